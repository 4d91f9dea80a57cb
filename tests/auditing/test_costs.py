"""What errors cost by group, and the other figures of scores, in an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run

RNG = np.random.default_rng(1)
SEX = RNG.choice(["f", "m"], 3000, p=[0.4, 0.6])
SCORE = RNG.beta(2, 3, 3000)
LABEL = RNG.random(3000) < np.where(SEX == "f", 0.8, 1) * SCORE
COSTS = {"false_positive": 1, "false_negative": 5}


def audit(**options: Any) -> lh.AuditResult:
    given: dict[str, Any] = {"scores": SCORE, "threshold": 0.4, "costs": COSTS, **options}
    return lh.audit(LABEL, sensitive_features={"sex": SEX}, replicates=100, **given)


def test_costs_are_those_of_the_rows() -> None:
    result, decided = audit(), SCORE >= 0.4
    found = result.findings["costs"]
    for group, one in found.by_attribute["sex"].groups.items():
        own = group == SEX
        price = (decided & ~LABEL)[own].sum() + 5 * (~decided & LABEL)[own].sum()
        assert one.cost.value == pytest.approx(price / own.sum())
    assert found.by_attribute["sex"].reference == "m"
    assert "errors cost 0.761 a row of f, 0.175 less than of m" in found.sentences()[0]
    assert found.sentences()[0] in result.sentences() == result.to_dict()["sentences"]
    predicted = lh.audit(LABEL, decided, sensitive_features={"sex": SEX}, replicates=100, costs=COSTS)
    assert predicted.findings["costs"] == found
    assert audit(positive=False).findings["costs"] != found  # errors change their names


def test_one_group_of_enough_rows_has_no_costs_to_compare() -> None:
    few = {"sex": np.where(np.arange(3000) < 5, "f", "m")}
    found = lh.audit(LABEL, SCORE >= 0.4, sensitive_features=few, replicates=100, costs=COSTS).findings["costs"]
    assert found.sentences() == ["By sex, no error costs were compared: two groups need enough rows."]
    both = lh.audit(
        LABEL, SCORE >= 0.4, sensitive_features=few | {"sort": RNG.permutation(SEX)}, replicates=100, costs=COSTS
    )
    assert found.sentences()[0] in both.findings["costs"].sentences()


def test_scores_have_figures_of_separation_and_a_curve_over_thresholds() -> None:
    result = audit()
    own = result.to_dict()["scores"]["by_attribute"]["sex"]
    assert own["groups"]["f"]["gini"]["value"] == pytest.approx(2 * own["groups"]["f"]["area"]["value"] - 1)
    frame = result.to_frame()
    assert {"gini", "brier", "kolmogorov_smirnov", "cost"} <= set(frame["figure"])
    assert "at each threshold" in result.to_html()


def test_scores_of_another_scale_have_no_brier_score() -> None:
    result = audit(scores=100 * SCORE, threshold=40)
    one = result.scores.by_attribute["sex"].groups["f"]
    assert one.brier.reason.startswith("the scores are not probabilities")
    assert one.kolmogorov_smirnov == audit().scores.by_attribute["sex"].groups["f"].kolmogorov_smirnov


def test_rows_in_clusters_leave_these_intervals_out() -> None:
    person = np.arange(3000) // 3
    one = audit(cluster=person, costs=None).scores.by_attribute["sex"].groups["f"]
    assert one.kolmogorov_smirnov.reason == one.brier.reason == "rows come in clusters"
    assert one.gini.defined


def test_the_command_takes_costs(tmp_path: Path) -> None:
    pd.DataFrame({"y": LABEL * 1, "s": SCORE, "sex": SEX}).to_csv(tmp_path / "rows.csv", index=False)
    args = ["audit", tmp_path / "rows.csv", "--label", "y", "--score", "s", "--group", "sex"]
    prices = ["--cost", "1:2"]
    assert run(*args, *prices, "--html", tmp_path / "a.html", "--fail-if", "brier > 0.3", "--fail-if", "cost > 10") == 0
    assert "Cost a row" in (tmp_path / "a.html").read_text()
