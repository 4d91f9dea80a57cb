from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from levelhead.data import texts as module
from levelhead.data.base import hash_of
from levelhead.data.texts import Texts, tokenize
from levelhead.types import DataError
from words import word_tokenizer

WORDS = ["one", "two", "three", "four", "five", "six"]


def test_the_fingerprint_tells_texts_pairs_and_labels_apart() -> None:
    labels = torch.tensor([0, 1])
    base = Texts(["one two", "three"])
    others = [
        Texts(["one", " two three"]),  # the same letters, parted elsewhere
        Texts(["three", "one two"]),
        Texts(["one two", "three"], ["one", "two"]),
        Texts(["one two"], ["three"]),
    ]
    assert len({texts.fingerprint() for texts in (base, *others)}) == 5
    assert Texts(["one two", "three"], where="elsewhere").fingerprint() == base.fingerprint()
    assert hash_of(base, labels) == hash_of(Texts(base.texts), labels.clone())
    assert hash_of(base, labels) != hash_of(base, 1 - labels)
    assert len(Texts(["half a surrogate \ud83d"]).fingerprint()) == 32


def test_batches_are_padded_to_their_own_longest_text() -> None:
    inputs = tokenize(Texts(["one", "one two three", "six"]), word_tokenizer(WORDS), 16)
    assert len(inputs) == 3
    assert inputs.lengths.tolist() == [3, 5, 3]
    both = inputs.batch(torch.tensor([1, 2]))
    assert both["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert both["input_ids"][1, 3:].tolist() == [0, 0]
    assert all(column.dtype == torch.int64 for column in both.values())
    alone = inputs.batch(torch.tensor([2]))
    assert alone["input_ids"].shape == (1, 3)
    assert both["input_ids"][1, :3].equal(alone["input_ids"][0])


def test_pairs_are_framed_by_the_tokenizer() -> None:
    inputs = tokenize(Texts(["one two", "six"], ["three", "four five"]), word_tokenizer(WORDS), 16)
    batch = inputs.batch(torch.arange(2))
    expected = word_tokenizer(WORDS)(["one two", "six"], ["three", "four five"])
    assert batch["input_ids"].tolist() == expected["input_ids"]
    assert batch["token_type_ids"].tolist() == expected["token_type_ids"]


def test_long_texts_are_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    texts = Texts(["one two three", "one two", "one two three four five"], where="pets")
    inputs = tokenize(texts, word_tokenizer(WORDS), 5)
    assert inputs.lengths.tolist() == [5, 4, 5]
    (warning,) = [record.getMessage() for record in caplog.records if record.name == module.__name__]
    assert warning == "pets: 2 of 3 texts fill all 5 tokens; what is longer is cut."  # the first just fits


def test_many_texts_are_tokenised_in_parts_that_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts([" ".join(WORDS[: 1 + row % 6]) for row in range(10)])
    whole = tokenize(texts, word_tokenizer(WORDS), 16)
    monkeypatch.setattr(module, "CHUNK", 3)
    parts = tokenize(texts, word_tokenizer(WORDS), 16)
    assert parts.fingerprint() == whole.fingerprint()
    assert tokenize(Texts(texts.texts[::-1]), word_tokenizer(WORDS), 16).fingerprint() != whole.fingerprint()


def test_a_text_without_a_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)

    class Frameless:
        pad_token_id = None
        pad_token_type_id = 0

        def __call__(self, firsts: list[str], seconds: Any, **options: Any) -> dict[str, list[list[int]]]:
            return {"input_ids": [[1] * text.count("a") for text in firsts]}

    assert tokenize(Texts(["a", "aa"]), Frameless(), 9).batch(torch.arange(2))["input_ids"].tolist() == [[1, 0], [1, 1]]
    with pytest.raises(DataError, match=r"pets: the tokenizer makes no token of the text in row 3 \(from 0\)"):
        tokenize(Texts(["a", "a", "a", "b"], where="pets"), Frameless(), 9)
