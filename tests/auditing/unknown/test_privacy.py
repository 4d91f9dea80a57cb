"""Answers that are randomised before they are stored: how, how much that protects, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from levelhead.auditing.unknown import privacy
from levelhead.auditing.unknown.privacy import Response
from levelhead.types import ConfigError, DataError


def test_the_two_meanings_of_keep_spend_differently() -> None:
    assert Response(flip=0.2).spent(2) == pytest.approx(1.386, abs=1e-3)
    assert Response(flip=0.1).spent(2) == pytest.approx(2.197, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keep=0.8", "keep= has two meanings"),
        ("epsilon=0", "Near 0 an answer carries no information"),
        ("epsilon=-1", "must be finite and at least 1e-06"),
        ("epsilon=inf", "must be finite and at least 1e-06"),
        ("flip=1", "not a chance"),
        ("flip=x", "write epsilon=1.39 or flip=0.2"),
        ("", "write epsilon=1.39 or flip=0.2"),
    ],
)
def test_how_answers_were_randomised_must_be_plain(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Response.parse(text)


def test_a_flip_of_a_half_says_nothing() -> None:
    with pytest.raises(ConfigError, match=r"from 0\.5 on, a report says no more about the group than chance"):
        Response(flip=0.5).matrix(2)


def test_randomize_keeps_as_often_as_epsilon_says() -> None:
    values = np.array(["a", "b", "c"] * 20_000)
    reports = privacy.randomize(values, 1.0, seed=0)
    assert (reports == values).mean() == pytest.approx(math.e / (math.e + 2), abs=0.01)
    others = reports[(values == "a") & (reports != "a")]
    assert (others == "b").mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(reports, privacy.randomize(values, 1.0, seed=0))
    assert set(privacy.randomize(["a"] * 500, 0.5, seed=0, categories=["a", "longer"]).tolist()) == {"a", "longer"}


@pytest.mark.parametrize(
    ("values", "epsilon", "message"),
    [
        (["a", None], 1.0, "1 values are missing"),
        (["a", "a"], 1.0, "fewer than two categories"),
        (["a", "b"], 0.0, "at least 1e-06"),
    ],
)  # fmt: skip
def test_randomize_refuses(values: list[Any], epsilon: float, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        privacy.randomize(np.array(values, object), epsilon, seed=0)
