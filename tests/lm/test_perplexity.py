"""Perplexity of a few made-up documents, worked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from speakers import ends

from levelhead.lm.base import Answer, Item
from levelhead.lm.intervals import estimated, paired_difference
from levelhead.lm.perplexity import Perplexity


def documents(texts: Sequence[str], costs: Sequence[float], tokens: Sequence[int]) -> Any:
    """What is scored of documents with these costs in nats, whose answers come backwards."""
    items = [Item(str(row), {"text": text}) for row, text in enumerate(texts)]
    answers = [
        Answer(item.id, {"log_likelihood": -cost, "tokens": count})
        for item, cost, count in zip(items, costs, tokens, strict=True)
    ]
    return Perplexity().score(items, answers[::-1])


@pytest.mark.usefixtures("few_are_enough")
def test_perplexity_and_bits_of_documents_of_different_lengths() -> None:
    texts = ["löwe", "ab", "abcdefgh", "é", "abc", "abcd", "ab cd", "a", "abcdefghijkl"]  # bytes 5 2 8 2 3 4 5 1 12
    costs, tokens = [6.0, 1.0, 8.0, 1.5, 2.5, 5.0, 3.0, 0.5, 9.5], [2, 1, 5, 1, 2, 2, 3, 1, 4]
    overall = documents(texts, costs, tokens).overall
    assert overall["perplexity_per_token"].value == pytest.approx(math.exp(37 / 21))
    assert overall["bits_per_byte"].value == pytest.approx(37 / 42 / math.log(2))
    assert overall["bits_per_character"].value == pytest.approx(37 / 40 / math.log(2))
    for name, sizes, statistic in (
        ("perplexity_per_token", tokens, lambda sums: np.exp(sums[:, 0] / sums[:, 1])),
        ("bits_per_byte", [5, 2, 8, 2, 3, 4, 5, 1, 12], lambda sums: sums[:, 0] / sums[:, 1] / math.log(2)),
        ("bits_per_character", [4, 2, 8, 1, 3, 4, 5, 1, 12], lambda sums: sums[:, 0] / sums[:, 1] / math.log(2)),
    ):
        drawn = estimated(list(zip(costs, sizes, strict=True)), None, statistic)
        assert ends(overall[name]) == pytest.approx(ends(drawn))
    others = documents(texts, costs, [*tokens[:-1], 5]).overall  # of another tokenizer
    assert paired_difference(overall["bits_per_byte"], others["bits_per_byte"]).value == 0
    assert not paired_difference(overall["perplexity_per_token"], others["perplexity_per_token"]).defined


@pytest.mark.parametrize(
    ("cost", "tokens", "of_a_token", "bits"),
    [(5000, 2, math.nan, 2500 / math.log(2)), (0, 1, 1, 0), (0, 0, math.nan, 0)],  # beyond all numbers; free; unscored
)
def test_perplexities_at_the_ends_of_the_scale(cost: float, tokens: int, of_a_token: float, bits: float) -> None:
    overall = documents(["ab", "cd"], [cost] * 2, [tokens] * 2).overall
    assert overall["perplexity_per_token"].value == pytest.approx(of_a_token, nan_ok=True)
    assert overall["bits_per_byte"].value == pytest.approx(bits)
