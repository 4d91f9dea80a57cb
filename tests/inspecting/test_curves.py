"""Curves of deletion and insertion, each beside its own random order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from levelhead.inspecting.curves import Answered, Curves, explanation_curves
from levelhead.inspecting.rows import Options, Rows
from levelhead.terminal import silent

ROWS, TOKENS = 200, 32
ROOT = Path(__file__).parents[2]


def curves(probability: Callable[[Tensor], Tensor], attention: np.ndarray) -> Curves:
    """Draw the curves of a text classifier whose ``probability`` depends on which tokens (rows, tokens) it sees."""
    every = torch.ones(ROWS, TOKENS, dtype=torch.int64)

    def answer(batch: dict[str, Tensor]) -> Tensor:
        found = probability(batch["attention_mask"].double())
        return torch.stack([torch.log(1 - found), torch.log(found)], 1)

    inputs = SimpleNamespace(batch=lambda index: {"input_ids": every[index], "attention_mask": every[index]})
    at = np.arange(ROWS)
    rows = Rows(inputs, torch.from_numpy(at), at // 2 % 2, at % 2 == 1, ("a", "b"))
    answered = Answered(answer({"attention_mask": every}).numpy(), 1.0, attention, np.full(ROWS, -1))
    opened, options = SimpleNamespace(answer=answer), Options(curve_rows=ROWS)
    return explanation_curves(opened, rows, answered, device="cpu", batch_size=99, options=options, progress=silent)


@pytest.mark.parametrize(
    ("probability", "apart"),
    [
        (lambda kept: torch.where(kept >= 0.25, 0.99, 0.5 + 0.49 * kept / 0.25), 6.1),
        (lambda kept: 0.5 + 0.49 * kept**4, 2.7),
    ],
)
def test_where_attention_points_nowhere_both_curves_are_their_random_orders(probability, apart):
    noise = np.random.default_rng(0).random((ROWS, TOKENS))
    found = curves(lambda seen: probability(seen.mean(1)), noise)
    for group in ("a", "b"):
        assert found.deletion[group].value == pytest.approx(found.by_chance.value)
        assert found.insertion[group].value == pytest.approx(found.insertion_by_chance.value)
    assert 100 * (found.insertion_by_chance.value - found.by_chance.value) == pytest.approx(apart, abs=0.05)
    assert "6.1 and 2.7 points" in (ROOT / "results" / "inside.md").read_text(encoding="utf-8").replace("\n", " ")


def test_attention_on_the_decisive_token_is_below_and_above_the_random_orders():
    attention = np.tile(np.arange(TOKENS, 0.0, -1), (ROWS, 1))
    found = curves(lambda seen: 0.5 + 0.49 * seen[:, 0], attention)
    first = 0.125 * (0.99 + 0.5) / 2
    for group in ("a", "b"):
        assert found.deletion[group].value == pytest.approx(first + 0.875 * 0.5)
        assert found.insertion[group].value == pytest.approx(first + 0.875 * 0.99)
    for chance in (found.by_chance, found.insertion_by_chance):
        assert chance.low < 0.745 < chance.high
