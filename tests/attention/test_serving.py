"""A saved folder with its tokenizer and a card serves texts through the pipeline of transformers."""

import pytest
import torch
from tiny_models import backbone, build, fit
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

from levelhead.attention import append_encoder, attach, from_pretrained

WORDS = ["<end>", "<unknown>", *"abcdefghij"]
TEXTS = ["a", "b c d e f", "c a", "j i h g f e d c b a", "d", "e e e", "b a"]
NAMES = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}


def tokenizer(family):
    """One word, one token; GPT-2's has no padding token, as the real one."""
    words = Tokenizer(models.WordLevel({word: code for code, word in enumerate(WORDS)}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = {"pad_token": "<end>"} if family == "bert" else {"eos_token": "<end>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unknown>", **end)


@pytest.fixture(scope="module", params=[(kind, family) for kind in ("attach", "append") for family in ("bert", "gpt2")],
                ids="-".join)  # fmt: skip
def folder(request, tmp_path_factory):
    """A short training, then everything that serving needs in one folder."""
    kind, family = request.param
    place, model, tokens = tmp_path_factory.mktemp("-".join(request.param)), make(kind, family), tokenizer(family)
    if tokens.pad_token is None:
        tokens.pad_token = tokens.eos_token
    inputs = tokens(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    fit(model, [inputs] * 5, torch.arange(len(TEXTS)) % 3)
    model.eval().save_pretrained(place)
    tokens.save_pretrained(place)
    (place / "README.md").write_text("---\nlibrary_name: levelhead\n---\nLoad it with levelhead.\n")
    return place


def make(kind, family):
    ids = {"bos_token_id": 0, "eos_token_id": 0} if family == "gpt2" else {}
    if kind == "append":
        return append_encoder(backbone(family, **ids), 3, **NAMES)
    return attach(build(family, **ids, **NAMES))


def scores(classify, texts, **options):
    return torch.tensor([
        [one["score"] for one in sorted(row, key=lambda one: one["label"])]
        for row in classify(texts, top_k=None, **options)
    ])  # fmt: skip


def test_the_pipeline_gives_each_text_its_own_scores(folder):
    """One by one, in batches of any size and in any order; equal to the model called by hand."""
    tokens = AutoTokenizer.from_pretrained(folder)
    classify = pipeline("text-classification", model=from_pretrained(folder), tokenizer=tokens, device="cpu")
    single = scores(classify, TEXTS)
    assert single.std(dim=0).max() > 1e-3
    for size in (2, 3, len(TEXTS)):
        torch.testing.assert_close(scores(classify, TEXTS, batch_size=size), single, atol=2e-6, rtol=1e-4)
    mixed = scores(classify, TEXTS[::-1], batch_size=4).flip(0)
    torch.testing.assert_close(mixed, single, atol=2e-6, rtol=1e-4)
    with torch.no_grad():
        inputs = tokens(TEXTS, padding="max_length", max_length=14, return_tensors="pt", return_token_type_ids=False)
        by_hand = from_pretrained(folder)(**inputs).logits.softmax(-1)[
            :, [1, 0, 2]
        ]  # labels in the order of their names
    torch.testing.assert_close(by_hand, single, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", ["attach", "append"])
def test_a_tokenizer_without_padding_serves_one_by_one_and_says_what_batches_need(kind):
    model, tokens = make(kind, "gpt2").train(), tokenizer("gpt2")
    inputs = torch.randint(1, 12, (6, 4), generator=torch.Generator().manual_seed(0))
    model(input_ids=inputs, labels=torch.arange(6) % 3)
    classify = pipeline("text-classification", model=model.eval(), tokenizer=tokens, device="cpu")
    assert scores(classify, TEXTS).shape == (len(TEXTS), 3)
    with pytest.raises(ValueError, match=r"pad_?token"):
        classify(TEXTS, batch_size=2)
