"""Checkpoints that are not what they say: truncated, of another size, with code of their own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
)

from levelhead.attention import attach, from_pretrained
from levelhead.lm.klaad_training import KlaadModel, load_language_model
from levelhead.lm.model import LanguageModel
from levelhead.loading import _hub_answers, load_config, load_tokenizer_of
from levelhead.models.networks import load_backbone, load_image_processor, load_model, load_tokenizer
from levelhead.types import ConfigError, LevelheadError
from tiny import bert_config, tiny_appended, tiny_vit
from words import save_tiny_backbone, word_tokenizer

WORDS = ["a", "red", "bird"]


@pytest.fixture(autouse=True)
def no_question_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks at the terminal fails, and transformers is set up as somebody would who runs everything."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_TRUST_REMOTE_CODE", "1")
    monkeypatch.setenv("TRUST_REMOTE_CODE", "1")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked at the terminal"))
    load_backbone.cache_clear()
    load_tokenizer.cache_clear()
    load_image_processor.cache_clear()


def change(folder: Path, **entries: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))
    return folder


def causal(folder: Path, **options: Any) -> Path:
    size = GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=40, n_positions=16, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(size).save_pretrained(folder, **options)
    word_tokenizer(WORDS).save_pretrained(folder)
    return folder


def backbone(folder: Path) -> Path:
    save_tiny_backbone(folder, WORDS)
    BertModel(bert_config(), add_pooling_layer=False).save_pretrained(folder)
    return folder


def debiased(folder: Path) -> Path:
    attach(tiny_vit()).save_pretrained(folder)
    return folder


def appended(folder: Path) -> Path:
    tiny_appended(layers=2).save_pretrained(folder)
    return folder


def plain(folder: Path) -> Path:
    tiny_vit().save_pretrained(folder)
    return folder


Load = Callable[..., Any]
LAYERS = "num_hidden_layers"
LOADERS: dict[str, tuple[Callable[[Path], Path], Load, str]] = {
    "lm bench": (causal, lambda folder, **more: LanguageModel.load(folder, "cpu", **more).network, "n_layer"),
    "klaad": (causal, lambda folder, **more: load_language_model(KlaadModel(str(folder), **more))[0], "n_layer"),
    "backbone": (backbone, lambda folder, **more: load_backbone(str(folder), None, *more.values()), LAYERS),
    "attached": (debiased, from_pretrained, LAYERS),
    "run, debiased": (debiased, load_model, LAYERS),
    "run, plain": (plain, load_model, LAYERS),
}

NAME_THEIR_LAYER = ("attached", "run, debiased")  # which is then the one that is not there


@pytest.mark.parametrize("name", LOADERS)
def test_fewer_layers_in_the_config_than_in_the_weights_are_an_error(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, load, layers = LOADERS[name]
    there = getattr(load(make(tmp_path)).config, layers)
    load_backbone.cache_clear()
    change(tmp_path, **{layers: there - 1})
    no_place = r"weights that have no place in it, such as .*\b(h|layer|layers)\.\d"
    with pytest.raises(LevelheadError, match="gives no weights" if name in NAME_THEIR_LAYER else no_place):
        load(tmp_path)
    if name not in NAME_THEIR_LAYER:
        assert getattr(load(tmp_path, allow_mismatched_weights=True).config, layers) == there - 1
        assert "have no place in it" in caplog.text


@pytest.mark.parametrize("name", LOADERS)
def test_more_layers_or_another_size_are_an_error(name: str, tmp_path: Path) -> None:
    make, load, layers = LOADERS[name]
    config = json.loads((make(tmp_path) / "config.json").read_text())
    width = "n_embd" if "n_embd" in config else "hidden_size"
    change(tmp_path, **{layers: config[layers] + 1})
    with pytest.raises(LevelheadError, match=r"it holds no weights for \d+ parameters"):
        load(tmp_path)
    change(tmp_path, **{layers: config[layers], width: 2 * config[width]})
    with pytest.raises(LevelheadError, match="weights have another shape"):
        load(tmp_path)


def test_the_missing_layers_of_an_appended_network_are_noticed(tmp_path: Path) -> None:
    appended(tmp_path)
    for place, entry in (("backbone", "num_hidden_layers"), ("levelhead", "layers")):
        whole = json.loads((tmp_path / "config.json").read_text())[place]
        change(tmp_path, **{place: {**whole, entry: 1}})
        with pytest.raises(ConfigError, match="have no place in it"):
            load_model(tmp_path)
        change(tmp_path, **{place: whole})
    load_model(tmp_path)


def test_ordinary_checkpoints_load_without_the_switch(tmp_path: Path) -> None:
    """The names of gpt2, bert-base-uncased and MiniLM on the Hub: heads, poolers and old tables beside the backbone."""
    size = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=16)
    GPT2LMHeadModel(size).save_pretrained(tmp_path / "gpt2")
    file = tmp_path / "gpt2" / "model.safetensors"
    weights = {name.removeprefix("transformer."): value for name, value in load_file(file).items()}
    weights |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 16, 16) for layer in range(2)}
    save_file(weights, file, {"format": "pt"})
    word_tokenizer(WORDS).save_pretrained(tmp_path / "gpt2")
    assert type(load_backbone(str(tmp_path / "gpt2"), None)) is GPT2Model
    assert LanguageModel.load(tmp_path / "gpt2", "cpu").causal

    BertForPreTraining(bert_config()).save_pretrained(tmp_path / "bert")
    file = tmp_path / "bert" / "model.safetensors"
    weights = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value for name, value in load_file(file).items()}
    weights["bert.embeddings.position_ids"] = torch.arange(16)[None]
    save_file(weights, file, {"format": "pt"})
    words = word_tokenizer(WORDS)
    words.mask_token = "[UNK]"
    words.save_pretrained(tmp_path / "bert")
    assert type(load_backbone(str(tmp_path / "bert"), None)) is BertModel
    assert type(LanguageModel.load(tmp_path / "bert", "cpu").network) is BertForMaskedLM

    BertModel(bert_config()).save_pretrained(tmp_path / "minilm")
    assert type(load_backbone(str(tmp_path / "minilm"), None)) is BertModel
    weights = load_file(tmp_path / "minilm" / "model.safetensors")
    torch.save(weights, tmp_path / "minilm" / "pytorch_model.bin")
    (tmp_path / "minilm" / "model.safetensors").unlink()
    load_backbone.cache_clear()
    assert type(load_backbone(str(tmp_path / "minilm"), None)) is BertModel


def test_a_checkpoint_in_parts_is_measured_as_a_whole(tmp_path: Path) -> None:
    causal(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert LanguageModel.load(tmp_path, "cpu").causal
    next(tmp_path.glob("model-00002-*")).unlink()
    with pytest.raises(ConfigError, match="gives no weights"):
        LanguageModel.load(tmp_path, "cpu")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_that_lacks_matrices_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    adapter = tmp_path / "adapter"
    network, words = load_language_model(KlaadModel(str(llama(tmp_path / "base")), lora_rank=2))
    network.save_pretrained(adapter)
    words.save_pretrained(adapter)
    LanguageModel.load(adapter, "cpu")
    file, settings = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
    weights, usual = load_file(file), json.loads(settings.read_text())
    for altered, match in (
        (dict(sorted(weights.items())[1:]), "holds no weights for 1 parameters"),
        (weights | {"base_model.model.other.lora_A.weight": torch.ones(2, 16)}, "1 weights that have no place"),
    ):
        save_file(altered, file)
        with pytest.raises(ConfigError, match=match):
            LanguageModel.load(adapter, "cpu")
    save_file(weights, file)
    for entries, match in (
        ({"r": 10**9}, "gives no adapter"),
        ({"base_model_name_or_path": str(adapter)}, "stands on it in turn"),
    ):
        settings.write_text(json.dumps({**usual, **entries}))
        with pytest.raises(ConfigError, match=match):
            LanguageModel.load(adapter, "cpu")


EVIL = "raise SystemExit('code of the checkpoint was run')\n"


@pytest.mark.parametrize("name", LOADERS)
def test_code_of_a_checkpoint_is_never_run_and_never_asked_about(name: str, tmp_path: Path) -> None:
    make, load, _ = LOADERS[name]
    make(tmp_path)
    for file in ("evil.py", "custom_generate/generate.py", f"{tmp_path.name}.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(EVIL)
    auto = {f"Auto{part}": "evil.Evil" for part in ("Config", "Model", "ModelForCausalLM", "ImageProcessor")}
    load(change(tmp_path, auto_map={**auto, "AutoTokenizer": ["evil.Evil", None]}))  # transformers has its own code
    load_backbone.cache_clear()
    for kind, message in (("evil", "needs code of its own, which is never run"), ("bert/../evil", "never run")):
        change(tmp_path, model_type=kind)
        with pytest.raises(LevelheadError, match=message):
            load(tmp_path)
    change(tmp_path, model_type="unheard-of", auto_map=None)
    with pytest.raises(LevelheadError, match=r"of type 'unheard-of', which .* (is not known|never run)"):
        load(tmp_path)


def test_a_tokenizer_or_an_image_processor_with_code_is_refused(tmp_path: Path) -> None:
    backbone(tmp_path)
    (tmp_path / "evil.py").write_text(EVIL)
    file = tmp_path / "tokenizer_config.json"
    entries = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "Evil", "auto_map": {"AutoImageProcessor": "evil.Evil"}})
    )
    load_tokenizer(str(tmp_path), None)  # transformers has a tokenizer of its own for this type
    with pytest.raises(ConfigError, match="gives no image processor"):
        load_image_processor(str(tmp_path), None)


def test_a_kernel_from_the_hub_is_code_too(tmp_path: Path) -> None:
    causal(tmp_path)
    with pytest.raises(ConfigError, match="which is code, and never run"):
        LanguageModel.load(change(tmp_path, attn_implementation="someone/flash"), "cpu")


def test_the_hub_data_set_never_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    from levelhead.data.hub import Hub

    asked: list[Any] = []

    def load(*_: Any, **options: Any) -> Any:
        asked.append(options["trust_remote_code"])
        raise ValueError("stop")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(LevelheadError):
        Hub(path="owner/name", sensitive="group").check()
    assert asked == [False]
    monkeypatch.undo()
    (tmp_path / "faces").mkdir()
    (tmp_path / "faces" / "faces.py").write_text(EVIL)
    with pytest.raises(LevelheadError, match="cannot be loaded"):
        Hub(root=tmp_path, path="faces", sensitive="group").check()


def test_nobody_waits_for_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    from levelhead.data.hub import Hub

    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("the library tries again"))
    _hub_answers.cache_clear()
    for ask in (lambda: load_config("--model", "owner/name"), lambda: load_tokenizer_of("--model", "owner/name")):
        with pytest.raises(ConfigError, match="A folder works"):
            ask()
    with pytest.raises(LevelheadError, match="A folder works"):
        Hub(path="owner/name", sensitive="group").check()
    _hub_answers.cache_clear()


def test_a_pickle_is_refused_without_a_page_of_torch(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("the pickle was run",))

    causal(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for evil in ({"weight": Evil()}, Evil(), [1, 2]):
        torch.save(evil, tmp_path / "pytorch_model.bin")
        with pytest.raises(ConfigError, match=r"^[^\n]*gives no weights[^\n]*$"):
            LanguageModel.load(tmp_path, "cpu")


def llama(folder: Path, tokens: int = 40) -> Path:
    """Save a language model that knows so many tokens, with a tokenizer of WORDS."""
    size = LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    size.vocab_size = tokens
    LlamaForCausalLM(size).save_pretrained(folder)
    word_tokenizer(WORDS).save_pretrained(folder)
    return folder


def test_a_tokenizer_with_ids_beyond_the_embedding_is_refused_before_any_text(tmp_path: Path) -> None:
    llama(tmp_path, tokens=4)
    for load in (lambda: LanguageModel.load(tmp_path, "cpu"), lambda: load_language_model(KlaadModel(str(tmp_path)))):
        with pytest.raises(ConfigError, match="and the network knows 4 tokens, from 0"):
            load()


def test_a_token_that_was_added_is_refused_where_a_text_has_it(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    known = max(tokenizer.get_vocab().values()) + 1
    llama(tmp_path, known)
    tokenizer.add_tokens(["[new]"])
    tokenizer.save_pretrained(tmp_path)
    model = LanguageModel.load(tmp_path, "cpu")  # no text needs the token
    list(model.option_log_likelihoods(["red"], [[" bird"]]))
    with pytest.raises(ConfigError, match=f"makes token {known}, and the network knows {known} tokens"):
        list(model.option_log_likelihoods(["red"], [[" [new]"]]))
