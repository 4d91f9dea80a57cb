"""One value never decides what scores are: audit, explain and postprocess read them alike, and say as what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

import levelhead as lh
from as_tables import explain_columns
from levelhead.auditing.postprocess_audit import apply_rule, postprocess
from levelhead.report import render
from levelhead.report.one_page import one_page

ROWS = 600


def made() -> pd.DataFrame:
    chance = np.random.default_rng(0)
    sex = chance.choice(["f", "m"], ROWS)
    label = (chance.random(ROWS) < 0.5).astype(int)
    log_odds = chance.normal(np.where(label == 1, 1.5, -1.5), 2)
    return pd.DataFrame({"y": label, "p": special.expit(log_odds), "z": log_odds, "sex": sex})


def with_value(value: float) -> pd.DataFrame:
    """Return rows of which one negative has another score."""
    frame = made()
    frame.loc[int(frame.index[(frame["y"] == 0) & (frame["p"].between(0.05, 0.95))][0]), "p"] = value
    return frame


def of_three(frame: pd.DataFrame, folder: Path, score: str, **options: Any) -> list[tuple[str, float, int]]:
    """Return scale, threshold and positive decisions by audit, explain and postprocess."""
    path = folder / "scores.csv"
    frame.to_csv(path, index=False)
    audited = lh.audit_table(path, label="y", groups=["sex"], score=score, replicates=100, **options).to_dict()
    explained = lh.explain(path, label="y", score=score, groups=["sex"], replicates=100, **options).to_dict()
    ruled = postprocess(path, score=score, groups=["sex"], label="y", **options)
    record = ruled.to_dict()
    selected = sum(one["n"] * one["selection_rate"]["value"] for one in audited["groups"].values())
    scores = frame[score].to_numpy()
    return [
        (audited["scores"]["scale"], audited["scores"]["threshold"], round(selected)),
        (explained["scale"], explained["threshold"], int((scores >= explained["threshold"]).sum())),
        (record["scale"], record["threshold"], int(ruled.before.sum())),
    ]


@pytest.mark.parametrize("value", [-1e-6, 1.0000001])
def test_a_probability_just_outside_is_a_probability(value: float, tmp_path: Path) -> None:
    frame = with_value(value)
    right = ("probability", 0.5, int((frame["p"] >= 0.5).sum()))
    assert of_three(frame, tmp_path, "p") == [right] * 3
    result = lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["sex"])
    assert result.metrics["accuracy"].value == pytest.approx(((frame["p"] >= 0.5) == frame["y"]).mean())
    (note,) = [one for one in result.warnings if "outside 0 to 1" in one]
    assert "1 of 600 probability lies outside 0 to 1" in note
    assert note in explain_columns(frame["y"], frame["p"], sensitive_features=frame["sex"], replicates=100).warnings
    assert result.scores is not None
    assert result.scores.by_attribute["sex"].groups["f"].residual.defined


@pytest.mark.parametrize(
    ("scale", "threshold", "words"),
    [
        ("probability", 0.5, "probabilities"),
        ("log-odds", 0.0, "log odds"),
        ("other", 0.3, "numbers of another scale"),
    ],
)
def test_every_answer_to_the_question_works(scale: str, threshold: float, words: str, tmp_path: Path) -> None:
    frame = made() if scale == "other" else with_value(-0.01)
    given: dict[str, Any] = {"scale": scale} | ({"threshold": threshold} if scale == "other" else {})
    result = lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["sex"], **given)
    record = result.to_dict()["scores"]
    assert (record["scale"], record["threshold"], bool(record["clipped"])) == (
        scale, threshold, scale == "probability"
    )  # fmt: skip
    for said in (" ".join(result.text(all=True).split()), render(one_page(result.to_dict()))):
        assert f"Scores are read as {words}; threshold {threshold:g}" in said
    if scale == "other":
        assert result.scores is not None
        assert result.scores.by_attribute["sex"].groups["f"].residual.reason == "the scores are not probabilities"
    else:
        assert {one[:2] for one in of_three(frame, tmp_path, "p", **given)} == {(scale, threshold)}


def test_log_odds_are_read_alike_everywhere(tmp_path: Path) -> None:
    frame = made()
    right = ("log-odds", 0.0, int((frame["z"] >= 0).sum()))
    assert of_three(frame, tmp_path, "z") == [right] * 3
    small = frame.assign(z=frame["z"] * 0.1 + 0.5)  # most lie in 0 to 1
    right = ("log-odds", 0.0, int((small["z"] >= 0).sum()))
    assert of_three(small, tmp_path, "z", scale="log-odds") == [right] * 3
    by_odds = postprocess(
        tmp_path / "scores.csv", score="z", groups=["sex"], label="y", scale="log-odds", threshold=0.1
    )
    assert by_odds.before.sum() == (small["z"] >= 0.1).sum()
    assert by_odds.rule.threshold == pytest.approx(special.expit(0.1))


def test_a_rule_knows_the_scale_that_it_was_fitted_on(tmp_path: Path) -> None:
    """A rule on log odds would take a probability of 0.36 for more than a half."""
    frame, old, new = made(), tmp_path / "old.csv", tmp_path / "new.csv"
    frame.to_csv(old, index=False)
    rule = postprocess(old, score="z", groups=["sex"], label="y").saved
    assert rule.scale == "log-odds"
    few = frame[frame["z"].between(0.01, 0.99)][:4]  # these alone would pass for probabilities
    few.to_csv(new, index=False)
    found = apply_rule(rule, new, score="z")
    assert found.before.all()
    assert (found.scale.name, found.threshold) == ("log-odds", 0.0)
    for rows in (1, ROWS):
        frame[:rows].to_csv(new, index=False)
        found = apply_rule(rule, new, score="p", scale="probability")
        assert (found.before == (frame["p"][:rows] >= 0.5)).all()
        assert (found.to_dict()["scale"], found.to_dict()["threshold"]) == ("probability", 0.5)  # as the cut-offs shown
        assert apply_rule(rule, new, score="p", scale="log-odds").before.all()
    frame[:1].assign(z=frame["p"]).to_csv(new, index=False)  # one log odds of the rule's own column can lie in 0 to 1
    assert apply_rule(rule, new, score="z").before.all()
