"""Rows in which nothing varies: no figure is certain, and no sentence says nan."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import levelhead as lh
from as_tables import audit_unrecorded
from levelhead.report.result import Report

RNG = np.random.default_rng(0)
GROUP, OTHER = RNG.choice(["a", "b"], 80), RNG.choice(["x", "y"], 80)
LABEL, NUMBER, ONES = RNG.integers(0, 2, 80), RNG.normal(size=80), np.ones(80, int)
BOTH = {"g": GROUP, "k": OTHER}
AUDITS: dict[str, Callable[[], Report]] = {
    "constant scores": lambda: lh.audit(LABEL, scores=np.full(80, 0.7), sensitive_features=BOTH),
    "scores of few rows": lambda: lh.audit(
        LABEL[:12], scores=RNG.random(12), sensitive_features={"g": GROUP[:12]}, min_count=1
    ),
    "separated scores": lambda: lh.audit(LABEL, scores=np.where(LABEL, 0.9, 0.1), sensitive_features=BOTH),
    "the label is the group": lambda: lh.audit(GROUP, GROUP, sensitive_features=BOTH, positive="b"),
    "one person a row": lambda: lh.audit(
        GROUP, GROUP, sensitive_features=BOTH, positive="b", cluster=np.arange(80) // 2
    ),
    "the same model": lambda: lh.audit(LABEL, ONES, against=ONES, sensitive_features=BOTH),
    "no errors": lambda: lh.audit(NUMBER, NUMBER, sensitive_features=BOTH, along={"age": RNG.random(80)}, numbers=True),
}


@pytest.mark.parametrize("name", AUDITS)
def test_no_figure_has_an_interval_of_no_width_and_no_sentence_says_nan(name: str) -> None:
    found = AUDITS[name]()
    for attribute, group, figure, one in found.figures():
        assert not one.defined or one.low != one.high, (attribute, group, figure, one)
    for text in (found.text(), found.text(all=True), re.sub(r"<[^>]+>", " ", found.to_html())):
        assert not re.search(r"(?<![a-z])nan(?![a-z])", text)


def test_constant_probabilities_beside_constant_predictions_are_refused() -> None:
    for rows in range(10, 30):
        with pytest.raises(lh.LevelheadError, match="constant"):
            audit_unrecorded(LABEL[:rows], ONES[:rows], proxy_probabilities={"p": np.full(rows, 0.7)})
