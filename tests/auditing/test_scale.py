"""One value never decides what scores are: audit, explain and postprocess read them alike, and say as what."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

import levelhead as lh
from levelhead.auditing.page import audit_page
from levelhead.auditing.postprocess_audit import postprocess_file
from levelhead.cli.app import main
from levelhead.report import render
from levelhead.types import DataError

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


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def of_three(frame: pd.DataFrame, folder: Path, score: str, **options: Any) -> list[tuple[str, float, int]]:
    """Return scale, threshold and positive decisions by audit, explain and postprocess."""
    path = folder / "scores.csv"
    frame.to_csv(path, index=False)
    audited = lh.audit_file(path, "y", None, ["sex"], score=score, replicates=100, **options).to_dict()
    explained = lh.explain_file(path, "y", score, ["sex"], replicates=100, **options).to_dict()
    ruled = postprocess_file(path, score, "sex", label="y", **options)
    record = ruled.to_dict()
    selected = sum(one["n"] * one["selection_rate"]["value"] for one in audited["groups"].values())
    scores = frame[score].to_numpy()
    return [
        (audited["scores"]["scale"], audited["scores"]["threshold"], round(selected)),
        (explained["scale"], explained["threshold"], int((scores >= explained["threshold"]).sum())),
        (record["scale"], record["threshold"], int(ruled.before.sum())),
    ]


@pytest.mark.parametrize("value", [-1e-9, -1e-6, 1.0000001, 1 + 1e-6])
def test_a_probability_just_outside_is_a_probability(value: float, tmp_path: Path) -> None:
    frame = with_value(value)
    right = ("probability", 0.5, int((frame["p"] >= 0.5).sum()))
    assert of_three(frame, tmp_path, "p") == [right] * 3
    result = lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["sex"])
    accuracy = ((frame["p"] >= 0.5) == frame["y"]).mean()
    assert result.metrics["accuracy"].value == pytest.approx(accuracy)
    assert accuracy > 0.7
    notes = [one for one in result.warnings if "outside 0 to 1" in one]
    assert len(notes) == 1
    assert "1 of 600 probability lies outside 0 to 1 and counts as 0 or 1" in notes[0]
    explained = lh.explain_gap(frame["y"], frame["p"], sensitive_features=frame["sex"], replicates=100)
    assert notes[0] in explained.warnings
    assert result.scores is not None
    assert result.scores.by_attribute["sex"].groups["f"].residual.defined


@pytest.mark.parametrize("value", [-0.01, 1.02, -1.0, 999.0, -2e-6])
def test_a_mix_that_is_mostly_in_0_to_1_is_asked_about(value: float, tmp_path: Path) -> None:
    frame = with_value(value)
    frame.to_csv(tmp_path / "scores.csv", index=False)
    calls: list[Callable[[], object]] = [
        lambda: lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["sex"]),
        lambda: lh.audit_file(tmp_path / "scores.csv", "y", None, ["sex"], score="p", threshold=0.5),
        lambda: lh.explain_gap(frame["y"], frame["p"], sensitive_features=frame["sex"]),
        lambda: postprocess_file(tmp_path / "scores.csv", "p", "sex", label="y"),
    ]
    for call in calls:
        with pytest.raises(DataError, match=r"599 of 600 .* --scores probability\|log-odds\|other"):
            call()


def test_every_answer_to_the_question_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = with_value(-0.01)
    path = tmp_path / "scores.csv"
    frame.to_csv(path, index=False)
    audit = ["audit", path, "--label", "y", "--score", "p", "--group", "sex", "--all", "--json", tmp_path / "a.json"]
    for scale, threshold, more in (
        ("probability", 0.5, []),
        ("log-odds", 0.0, []),
        ("other", 0.3, ["--threshold", 0.3]),
    ):
        assert run(*audit, "--scores", scale, *more) == 0
        words = {"probability": "probabilities", "log-odds": "log odds", "other": "numbers of another scale"}
        said = " ".join(capsys.readouterr().out.split())
        assert f"Scores are read as {words[scale]}; threshold {threshold:g}" in said
        record = json.loads((tmp_path / "a.json").read_text())["scores"]
        assert (record["scale"], record["threshold"]) == (scale, threshold)
        assert record["clipped"] == (scale == "probability")
    assert run(*audit, "--scores", "other") != 0
    assert "--threshold" in capsys.readouterr().err
    for scale in ("probability", "log-odds"):
        assert run("explain", path, "--label", "y", "--score", "p", "--group", "sex", "--scores", scale, "--all") == 0
        assert f"({scale})" in " ".join(capsys.readouterr().out.split())
    assert run("postprocess", path, "--label", "y", "--score", "p", "--group", "sex", "--scores", "probability") == 0
    assert "Scores are read as probabilities; threshold 0.5" in " ".join(capsys.readouterr().out.split())


def test_log_odds_are_read_alike_everywhere(tmp_path: Path) -> None:
    frame = made()
    right = ("log-odds", 0.0, int((frame["z"] >= 0).sum()))
    assert of_three(frame, tmp_path, "z") == [right] * 3
    small = frame.assign(z=frame["z"] * 0.1 + 0.5)  # most lie in 0 to 1
    right = ("log-odds", 0.0, int((small["z"] >= 0).sum()))
    assert of_three(small, tmp_path, "z", scale="log-odds") == [right] * 3
    by_odds = postprocess_file(tmp_path / "scores.csv", "z", "sex", label="y", scale="log-odds", threshold=0.1)
    assert by_odds.before.sum() == (small["z"] >= 0.1).sum()
    assert by_odds.rule.threshold == pytest.approx(special.expit(0.1))


def test_other_scales_need_a_threshold_and_have_no_calibration() -> None:
    frame = made()
    percent = frame["p"] * 100
    found = lh.audit(frame["y"], scores=percent, threshold=50, sensitive_features=frame["sex"]).scores
    assert found is not None
    assert (found.scale.name, found.thresholds) == ("other", (50.0,))
    told = lh.audit(frame["y"], scores=frame["p"], threshold=0.5, scale="other", sensitive_features=frame["sex"])
    assert told.scores is not None
    assert told.scores.by_attribute["sex"].groups["f"].residual.reason == "the scores are not probabilities"


def test_a_scale_that_is_none_or_without_scores_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = made().assign(q=lambda rows: rows["y"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    columns = ["--label", "y", "--prediction", "q", "--group", "sex"]
    assert run("audit", tmp_path / "a.csv", *columns, "--scores", "p") != 0
    assert "--score their column" in " ".join(capsys.readouterr().err.split())


def test_pages_say_what_scores_were_read_as() -> None:
    frame = made()
    record = lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["sex"], replicates=100).to_dict()
    assert "Scores are read as probabilities; threshold 0.5" in render(audit_page(record))


def test_a_probability_is_clipped_in_figures_of_ones_own_too() -> None:
    frame = with_value(-1e-9)
    seen: list[float] = []

    def lowest(truth: Any, scores: Any) -> float:
        seen.append(float(np.min(scores)))
        return float(np.mean(scores))

    lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["sex"], metrics={"mean": lowest}, replicates=100)
    assert min(seen) >= 0


def test_a_rule_knows_the_scale_that_it_was_fitted_on(tmp_path: Path) -> None:
    frame = made()
    frame.to_csv(tmp_path / "old.csv", index=False)
    path = tmp_path / "rule.json"
    path.write_text(json.dumps(postprocess_file(tmp_path / "old.csv", "z", "sex", label="y").to_dict()))
    assert json.loads(path.read_text())["scale"] == "log-odds"
    few = frame[frame["z"].between(0.01, 0.99)][:4]  # these alone would pass for probabilities
    few.to_csv(tmp_path / "new.csv", index=False)
    found = postprocess_file(tmp_path / "new.csv", "z", "sex", rule=path)
    assert found.before.all()
    assert (found.scale.name, found.threshold) == ("log-odds", 0.0)


@pytest.mark.parametrize("rows", [1, ROWS])
def test_probabilities_are_not_decided_as_log_odds(tmp_path: Path, rows: int) -> None:
    """A rule on log odds would take 0.36 for more than a half."""
    frame, path = made(), tmp_path / "rule.json"
    frame.to_csv(tmp_path / "old.csv", index=False)
    path.write_text(json.dumps(postprocess_file(tmp_path / "old.csv", "z", "sex", label="y").to_dict()))
    frame[:rows].to_csv(tmp_path / "new.csv", index=False)
    found = postprocess_file(tmp_path / "new.csv", "p", "sex", rule=path, scale="probability")
    assert (found.before == (frame["p"][:rows] >= 0.5)).all()
    record = found.to_dict()
    assert (record["scale"], record["threshold"]) == ("probability", 0.5)  # of the rows, as the cut-offs shown
    kept = postprocess_file(tmp_path / "new.csv", "p", "sex", rule=path, scale="log-odds")
    assert kept.before.all()
    frame[:rows].assign(z=frame["p"]).to_csv(tmp_path / "new.csv", index=False)
    if rows == 1:  # one log odds of the rule's own column can lie in 0 to 1
        assert postprocess_file(tmp_path / "new.csv", "z", "sex", rule=path).before.all()
    else:
        with pytest.raises(DataError, match="all scores lie in 0 to 1"):
            postprocess_file(tmp_path / "new.csv", "z", "sex", rule=path)
