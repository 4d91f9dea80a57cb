from __future__ import annotations

import contextlib
import difflib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    BertLMHeadModel,
    PreTrainedTokenizerFast,
)

from levelhead.lm.loading import load_checkpoint
from levelhead.lm.model import GENERATED, LanguageModel
from levelhead.types import ConfigError

TEXTS = [
    "the small dog runs over the green hill and sleeps",
    "a red bird sings",
    "the old boat sails on the quiet lake in the morning light",
    "one two three",
]
CONTEXTS = ["the small do", "a red bird", "the old boat sails on the quiet lake in the", "one two three four five six"]
OPTIONS = [["g runs", "or", "g"], [" sings", " sings on the hill and sleeps"], [" morning", " lake", " light"], []]


def train_tokenizer(*, bos: bool, eos: bool = True, framed: bool = False, adds: bool = True) -> Any:
    """Train a byte-pair tokenizer, without padding token. It ``adds`` its BOS to a text (Llama) or not (GPT-2)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS + CONTEXTS, trainer)
    if framed:
        frame = [(token, tokenizer.token_to_id(token)) for token in special[:2]]
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=frame)
    elif bos and adds:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    named = {"eos_token": ("</s>", eos), "bos_token": ("<s>", bos), "mask_token": ("<mask>", framed)}
    names: dict[str, Any] = {name: token for name, (token, there) in named.items() if there}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)


SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
IDS: dict[str, Any] = {"vocab_size": 320, "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.5}
HALF = {"num_key_value_heads": 2, "head_dim": 4}

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", SMALL | HALF | {"max_position_embeddings": 64}),
    "gpt-neox": ("gpt_neox", SMALL | {"max_position_embeddings": 64}),
    "gpt2": ("gpt2", {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "sliding": ("mistral", SMALL | HALF | {"sliding_window": 6}),
    "capped": ("gemma2", SMALL | HALF | {"sliding_window": 6, "final_logit_softcapping": 2.0}),
    "alibi": ("bloom", {"hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "no cache": ("mamba", {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4, "initializer_range": 0.1}),
}
PAIRS = SMALL | {"num_key_value_heads": 2}
MIXED = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8, "attn_layer_indices": [1]}
EXPERTS = {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "num_experts": 2}
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bamba": ("bamba", PAIRS | MIXED | {"initializer_range": 0.3}),
    "jamba": ("jamba", PAIRS | EXPERTS | {"use_mamba_kernels": False, "mamba_d_state": 4}),
}
WINDOW = {"original_max_position_embeddings": 16}
ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "short_factor": [1.0] * 2, "long_factor": [8.0] * 2}
LONG_ROPE = {
    "longrope": ("phi3", PAIRS | WINDOW | {"max_position_embeddings": 64, "rope_parameters": ROPE | WINDOW}),
}


def make(
    name: str = "llama", *, bos: bool = True, eos: bool = True, adds: bool = True, **options: Any
) -> LanguageModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = train_tokenizer(bos=bos, eos=eos, adds=adds)
        kind, shape = (NETWORKS | HYBRIDS | LONG_ROPE)[name]
        config = AutoConfig.for_model(kind, **{**IDS, "pad_token_id": 0, **shape})
        return LanguageModel(AutoModelForCausalLM.from_config(config), tokenizer, causal=True, **options)


def whole_continuation(model: LanguageModel, text: str, steps: int) -> str:
    """The likeliest continuation, with each token from the whole text before it."""
    whole = encode(model, text)
    with torch.no_grad():
        for _ in range(steps):
            whole.append(int(model.network(torch.tensor([whole]), use_cache=False).logits[0, -1].argmax()))
    return model._text(whole[:-steps], whole[-steps:])


def whole_scores(model: Any, texts: list[str]) -> list[float]:
    found = dict(model.option_log_likelihoods([""] * len(texts), [[text] for text in texts]))
    return [found[index][0][0] for index in range(len(texts))]


def encode(model: LanguageModel, text: str) -> list[int]:
    return list(model.tokenizer(text).input_ids)


@torch.no_grad()
def naive(model: LanguageModel, whole: list[int], start: int) -> float:
    """One forward pass of one text, with nothing kept and nothing shared."""
    logits = model.network(torch.tensor([whole])).logits[0].double().log_softmax(-1)
    return sum(float(logits[place - 1, whole[place]]) for place in range(start, len(whole)))


def naive_option(model: LanguageModel, context: str, option: str) -> tuple[float, int]:
    before, whole = encode(model, context), encode(model, context + option)
    start = 0
    while start < min(len(before), len(whole)) and before[start] == whole[start]:
        start += 1
    return naive(model, whole, start), len(whole) - start


@pytest.mark.parametrize("name", [*NETWORKS, "jamba"])
@pytest.mark.parametrize("batch_tokens", [1, 10**6])
def test_options_that_share_their_context_score_as_in_a_loop(name: str, batch_tokens: int) -> None:
    """Jamba was off by nats, without a word: it cannot go on from a kept context by several tokens."""
    model = make(name, batch_tokens=batch_tokens)
    contexts, options = CONTEXTS + TEXTS[:1], [*OPTIONS, [" a", " the bird sings on"]]
    warned = pytest.warns(UserWarning, match=r"does not continue from a kept context .*\(off by [\d.]+ nats\)")
    with warned if name == "jamba" else contextlib.nullcontext():
        found = dict(model.option_log_likelihoods(contexts, options))
    assert sorted(found) == list(range(5))
    for index, (context, more) in enumerate(zip(contexts, options, strict=True)):
        expected = [naive_option(model, context, option) for option in more]
        assert [count for _, count in found[index]] == [count for _, count in expected]
        assert [value for value, _ in found[index]] == pytest.approx([value for value, _ in expected], abs=1e-4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "steps", "warns"),
    [("llama", 4, False), ("sliding", 8, False), ("bamba", 6, True)],
)
def test_a_continuation_is_that_of_whole_texts(name: str, steps: int, warns: bool) -> None:
    """Bamba began at position 0 again with the second new token."""
    model = make(name, eos=False)
    warned = pytest.warns(UserWarning, match=r"does not go on from a kept text .*\(off by [\d.]+ nats\)")
    with warned if warns else contextlib.nullcontext():
        ((_, text),) = model.generate(CONTEXTS[:1], seed=0, max_new_tokens=steps, greedy=True)
    assert text == whole_continuation(model, CONTEXTS[0], steps)
    assert model._quick[GENERATED] is not warns


def test_a_network_that_padding_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(model, "_padded_sums", lambda rows, starts: [-float(max(map(len, rows)))] * len(rows))
    assert model._sums([[1, 2], [1, 3]], [1, 1]) == [-2.0, -2.0]
    with pytest.raises(ConfigError, match="tokens behind a text change what it gives"):
        model._sums([[1, 2], [1, 2, 3]], [1, 1])


def test_a_token_across_the_boundary_belongs_to_the_option() -> None:
    model = make()
    before, whole = encode(model, "sleeps on th"), encode(model, "sleeps on the")
    assert before[:-1] == whole[:-1]
    assert before[-1] != whole[-1]  # " th" and " the" are one token each
    (found,) = model.option_log_likelihoods(["sleeps on th"], [["e"]])
    assert found == (0, [(pytest.approx(naive(model, whole, len(whole) - 1), abs=1e-4), 1)])


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("name", ["llama", "gpt2", "no cache"])
def test_whole_texts_score_as_in_a_loop(name: str, bos: bool) -> None:
    model = make(name, bos=bos)
    begin = [] if bos else [model.tokenizer.eos_token_id]
    expected = [naive(model, begin + encode(model, text), 1) for text in TEXTS]
    assert whole_scores(model, TEXTS) == pytest.approx(expected, abs=1e-4)
    assert whole_scores(model, []) == []


def test_contexts_are_run_once_and_logits_computed_where_they_are_needed() -> None:
    model = make()
    seen: list[int] = []
    logits: list[int] = []
    model.network.model.embed_tokens.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].numel()))
    model.network.lm_head.register_forward_hook(lambda _, __, output: logits.append(output.shape[1]))
    context = TEXTS[0] + " " + TEXTS[2]
    for _ in range(2):  # the first batch is read both ways, to see that both give one score
        seen.clear(), logits.clear()
        list(model.option_log_likelihoods([context], [[" a", " the", " one"]]))
    whole = len(encode(model, context))
    assert sum(seen) < 1.5 * whole < 3 * whole
    assert logits[0] == 1  # the context's: transformers reads 0 as all
    assert max(logits) <= 3


def test_an_option_that_overflows_is_no_broken_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(model, "_answer", lambda questions: [(0, [(math.nan, 1), (-1.0, 1)])])
    found = model.option_log_likelihoods(["one"], [[" two", " three"]], ["first"])
    assert next(found)[1][1] == (-1.0, 1)


def test_few_logits_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelhead.lm.model.LOGITS", 320 * 20)
    model = make()
    whole = whole_scores(make(), TEXTS)
    rows: list[int] = []
    model.network.register_forward_hook(lambda _, __, output: rows.append(output.logits.shape[:2].numel()))
    assert whole_scores(model, TEXTS) == pytest.approx(whole, abs=1e-4)
    list(model.option_log_likelihoods(TEXTS, [[" a", " the"]] * 4))
    assert max(rows) <= 30
    assert len(rows) > 5


@pytest.mark.parametrize(
    ("options", "first", "words"),
    [
        ({"bos": False}, 1, "The tokenizer adds no token before a text; a text without a context is read behind </s>."),
        ({"adds": False}, 0, "The tokenizer adds no token before a text; a text without a context is read behind <s>."),
    ],
)
def test_where_no_token_is_added_a_text_alone_is_read_behind_one(
    options: dict[str, Any], first: int, words: str
) -> None:
    model = make(**options)
    end = first
    assert str(model.beginning) == words
    assert str(make().beginning) == "Every text is read behind <s>, which the tokenizer adds."
    ((_, empty),) = model.generate([""], seed=0, max_new_tokens=3, greedy=True)
    assert isinstance(empty, str)  # the first token is given, so that there is something to continue from
    texts = ["a red bird sings", "the small dog"]
    found, given = (dict(model.option_log_likelihoods(["", "a red"], [texts, [" bird"]]))[row] for row in range(2))
    expected = [naive(model, [end, *encode(model, text)], 1) for text in texts]
    assert [value for value, _ in found] == pytest.approx(expected, abs=1e-4)
    assert [count for _, count in found] == [len(encode(model, text)) for text in texts]
    assert whole_scores(model, texts) == pytest.approx(expected, abs=1e-4)
    assert given[0] == (pytest.approx(naive_option(model, "a red", " bird")[0], abs=1e-4), 1)  # nothing put before it


def test_of_two_tokens_that_begin_a_text_neither_is_scored_with_it() -> None:
    model = make()
    frame = [("<s>", 0), ("</s>", 1)]
    model.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> </s> $A", special_tokens=frame
    )
    model = LanguageModel(model.network, model.tokenizer, causal=True, name="two")
    text = "a red bird sings"
    ids = model.tokenizer(text).input_ids
    assert ids[:2] == [0, 1]
    assert whole_scores(model, [text]) == pytest.approx([naive(model, ids, 2)], abs=1e-4)


@pytest.mark.parametrize(("bos", "eos"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("stride", [None, 20, 63])
def test_long_texts_are_read_in_windows_and_every_token_once(bos: bool, eos: bool, stride: int | None) -> None:
    model = make(bos=bos, eos=eos, batch_tokens=150)
    texts = [" ".join(TEXTS * 3), "a red bird sings"]
    found = dict(model.window_log_likelihoods(texts, stride))
    for index, text in enumerate(texts):
        ids = model.tokenizer(text, add_special_tokens=False).input_ids
        head = [0] if bos else [1] if eos else []
        total, begin, done = 0.0, 0, int(not head)
        while done < len(ids):
            end = min(len(ids), begin + 64 - len(head))
            total += naive(model, head + ids[begin:end], len(head) + done - begin)
            begin, done = begin + (stride or 32), end
        assert found[index] == (pytest.approx(total, abs=1e-3), len(ids) - int(not head))
    assert len(model.tokenizer(texts[0]).input_ids) > 100
    assert list(model.window_log_likelihoods([])) == []


def test_another_config_or_tokenizer_of_the_same_weights_has_other_settings() -> None:
    plain, other = make(), make()
    assert plain.settings == make().settings
    other.network.config.rms_norm_eps = 0.5
    assert other.fingerprint() == plain.fingerprint()
    assert other.settings != plain.settings
    assert make(adds=False).settings != make().settings
    assert make(adds=False).fingerprint() != make().fingerprint()  # another beginning


def make_masked(kind: str) -> LanguageModel:
    shape = {**SMALL, "vocab_size": 320, "initializer_range": 0.5}
    more = {"bert": {"max_position_embeddings": 64}, "roberta": {"max_position_embeddings": 66, "pad_token_id": 1}}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = AutoModelForMaskedLM.from_config(AutoConfig.for_model(kind, **shape, **more.get(kind, {})))
    return LanguageModel(network, train_tokenizer(bos=True, framed=True), causal=False)


@torch.no_grad()
def naive_pair(model: LanguageModel, pair: tuple[str, str]) -> tuple[float, float, int]:
    """As the release of CrowS-Pairs does it: opcodes on ids as strings, one mask and one sentence at a time."""
    ids = [model.tokenizer(sentence).input_ids for sentence in pair]
    spans: tuple[list[int], list[int]] = ([], [])
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *[[str(x) for x in row] for row in ids]).get_opcodes():
        if kind == "equal":
            spans[0].extend(range(a, b))
            spans[1].extend(range(c, d))
    sums = [0.0, 0.0]
    for number in range(1, len(spans[0]) - 1):
        for side in (0, 1):
            row, place = torch.tensor([ids[side]]), spans[side][number]
            row[0, place] = model.tokenizer.mask_token_id
            sums[side] += float(model.network(row).logits[0, place].log_softmax(-1)[ids[side][place]])
    return sums[0], sums[1], len(spans[0]) - 2


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_pseudo_log_likelihoods_mask_one_shared_token_at_a_time(kind: str) -> None:
    model = make_masked(kind)
    pairs = [(TEXTS[0], TEXTS[0].replace("dog", "bird")), (TEXTS[1], "a red boat sings"), ("red", "quiet")]
    found = dict(model.shared_pseudo_log_likelihoods(pairs))
    assert sorted(found) == [0, 1, 2]
    for index, pair in enumerate(pairs[:2]):
        first, second, count = naive_pair(model, pair)
        assert found[index] == (pytest.approx(first, abs=1e-4), pytest.approx(second, abs=1e-4), count)
    assert found[0][2] > 5
    assert not model.network.bert._forward_hooks if kind == "bert" else True


def test_padding_is_not_in_the_way_of_networks_that_mix_it_in() -> None:
    """FNet's transform reads padding as text: a longer pair in the batch turned a verdict around."""
    model = make_masked("fnet")
    pair, longer = (TEXTS[0], TEXTS[0].replace("dog", "bird")), (TEXTS[0] * 2, TEXTS[0] * 2 + TEXTS[1])
    ((_, alone),) = model.shared_pseudo_log_likelihoods([pair])
    beside = dict(model.shared_pseudo_log_likelihoods([pair, longer]))[0]
    assert beside == pytest.approx(alone, abs=1e-4)


def test_sentences_that_share_no_token_have_sums_of_0() -> None:
    model = make_masked("bert")
    assert list(model.shared_pseudo_log_likelihoods([("q", "z")])) == [(0, (0.0, 0.0, 0))]  # no shared token


@pytest.mark.parametrize("name", ["llama", "gpt2", "no cache"])
def test_a_continuation_depends_on_its_prompt_and_the_seed_alone(name: str) -> None:
    model = make(name)
    prompts = [*TEXTS, "a red boat sings", "two", "a red bird sings"]
    together = dict(model.generate(prompts, seed=3, max_new_tokens=8))
    alone = [next(iter(model.generate([prompt], seed=3, max_new_tokens=8)))[1] for prompt in prompts]
    assert [together[index] for index in range(len(prompts))] == alone
    assert together[1] == together[6]
    assert dict(model.generate(prompts, seed=4, max_new_tokens=8)) != together


def test_draws_follow_the_models_distribution_and_end_at_the_end() -> None:
    model = make()
    with torch.no_grad():
        chances = model.network(torch.tensor([encode(model, "a")])).logits[0, -1].softmax(-1)
    count = 4000  # evenly spaced draws: each token is hit as often as its chance says, give or take one
    uniforms = (torch.arange(count, dtype=torch.float64)[:, None] + 0.5) / count
    drawn = model._continue([encode(model, "a")] * count, uniforms, 1)
    counts = torch.bincount(torch.tensor([row[0] if row else 1 for row in drawn]), minlength=320)
    assert float((counts - count * chances).abs().max()) <= 1.01
    model = make()
    model.network.generation_config.eos_token_id = list(range(320))
    assert dict(model.generate(["a", "a red"], seed=0, max_new_tokens=5)) == {0: "", 1: ""}


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[you] {% if enable_thinking is not false %}<think>{% endif %}{% endif %}"
)


def test_a_prompt_becomes_a_dialogue_and_begins_once() -> None:
    model = make()
    assert not model.has_chat_template
    model.tokenizer.chat_template = TEMPLATE
    assert model.has_chat_template
    assert model.dialogues(["a red"]) == ["<s>[user] a red[you] "]
    assert model.dialogues(["a red"], "be short") == ["<s>[system] be short[user] a red[you] "]
    ((_, [(value, count)]),) = model.option_log_likelihoods(model.dialogues(["a red"]), [["bird"]])
    whole = model.tokenizer("<s>[user] a red[you] bird", add_special_tokens=False).input_ids
    assert whole.count(0) == 1  # the template's own, and no second one
    assert value == pytest.approx(naive(model, whole, len(whole) - count), abs=1e-4)
    model.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n"
    assert model.dialogues(["a red"]) == ["a red<think>\n\n</think>\n\n"]  # a thought that is begun is ended


def test_a_folder_is_loaded_as_what_it_is(tmp_path: Path) -> None:
    model, masked = make("gpt2"), make_masked("bert")
    for one, name in ((model, "causal"), (masked, "masked")):
        one.network.save_pretrained(tmp_path / name)
        one.tokenizer.save_pretrained(tmp_path / name)
    state = torch.random.get_rng_state()
    loaded = LanguageModel.load(tmp_path / "causal", "cpu")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert loaded.causal
    assert whole_scores(loaded, TEXTS) == whole_scores(model, TEXTS)
    assert loaded.fingerprint() == model.fingerprint()
    assert loaded.fingerprint() != LanguageModel.load(tmp_path / "causal", "cpu", dtype="bfloat16").fingerprint()
    assert not LanguageModel.load(tmp_path / "masked", "cpu").causal
    BertLMHeadModel(BertConfig(**SMALL, vocab_size=320, is_decoder=True)).save_pretrained(tmp_path / "masked")
    assert load_checkpoint("--model", str(tmp_path / "masked"))[2]  # a decoder of a type that can be both
    model.network.to(torch.bfloat16).save_pretrained(tmp_path / "causal")
    chosen = LanguageModel.load(tmp_path / "causal", "cpu", dtype="auto")
    assert chosen.network.dtype == torch.float32  # bfloat16 is slow on a CPU, and rounds
