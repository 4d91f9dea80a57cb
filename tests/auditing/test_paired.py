"""Two models on the same rows: figures by hand, matching of rows, what is said of who gained and who lost."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.metrics import holm, joint
from levelhead.metrics.paired import paired_interval
from levelhead.report import render
from levelhead.report.one_page import one_page


def made(rows: int = 2000, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return predictions of a new and an old model for the same rows: the new one is better for men alone."""
    chance = np.random.default_rng(seed)
    sex = chance.choice(["f", "m"], rows)
    label = chance.integers(0, 2, rows)
    noise = chance.random((2, rows))
    old = np.where(noise[0] < 0.75, label, 1 - label)
    new = np.where((noise[1] < 0.5) & (sex == "m"), label, old)
    frame = pd.DataFrame({"id": [f"r{row}" for row in range(rows)], "y": label, "yhat": new, "sex": sex})
    return frame, frame.assign(yhat=old)


def compared(new: pd.DataFrame, old: pd.DataFrame, **options: Any) -> Any:
    """Return the changes from the old to the new model."""
    result = lh.audit(new["y"], new["yhat"], against=old["yhat"], sensitive_features=new["sex"], **options)
    assert result.against is not None
    return result.against


def of_files(folder: Path, new: pd.DataFrame, old: pd.DataFrame, on: str | None = None) -> Any:
    """Return what an audit of two files says."""
    new.to_csv(folder / "new.csv", index=False)
    old.to_csv(folder / "old.csv", index=False)
    return lh.audit_table(
        folder / "new.csv", label="y", prediction="yhat", groups=["sex"], against=folder / "old.csv", on=on
    )


def test_the_figures_are_those_of_the_rows() -> None:
    new, old = made()
    found = compared(new, old)
    part = found.by_attribute["sex"]
    for sex, group in part.groups.items():
        own, before = (frame[frame["sex"] == sex] for frame in (new, old))
        right, was_right = own["yhat"] == own["y"], before["yhat"] == before["y"]
        counts = (right & was_right, right & ~was_right, ~right & was_right, ~right & ~was_right)
        assert [group.both_right, group.only_new_right, group.only_old_right, group.both_wrong] == [
            one.sum() for one in counts
        ]
        assert group.n == len(own)
        for rate, which in (
            ("selection_rate", slice(None)),
            ("true_positive_rate", own["y"] == 1),
            ("false_positive_rate", own["y"] == 0),
        ):
            change = group.rates[rate]
            assert change.new == pytest.approx(own["yhat"][which].mean())
            assert change.old == pytest.approx(before["yhat"][which].mean())
            assert change.difference.value == pytest.approx(change.new - change.old)
    discordant = part.groups["m"].only_new_right + part.groups["m"].only_old_right
    exact = stats.binomtest(part.groups["m"].only_old_right, discordant, 0.5).pvalue
    assert part.groups["m"].rates["accuracy"].p_value == pytest.approx(exact)
    gap, accuracy = found.sentences()
    assert gap.startswith("By sex, the larger part of the equalized-odds gap changed from ")
    assert accuracy.startswith("By sex, the accuracy of m changed from 7")
    assert " to 87.5%: +" in accuracy


def test_differences_of_gaps_are_those_of_joint_tables() -> None:
    """Counts and rows are resampled by different draws, which only many replicates make alike."""
    new, old = made(600)
    changes = compared(new, old, replicates=8000).by_attribute["sex"].metrics
    models = {"new": new[["yhat"]].T, "old": old[["yhat"]].T}
    rows = joint(new["y"], new["sex"], models, baseline="old", replicates=8000).rows["new"]
    found = {name: row.difference for name, row in rows.items()}
    for name in ("demographic_parity", "equal_opportunity", "equalized_odds", "worst_group_accuracy"):
        own, width = changes[name].difference, found[name].high - found[name].low
        assert own.value == pytest.approx(found[name].value)
        assert (own.low, own.high) == pytest.approx((found[name].low, found[name].high), abs=0.04 * width)
    assert [change.p_holm for change in changes.values()] == holm([change.p_value for change in changes.values()])


def test_a_model_has_one_gap_whatever_it_stands_in() -> None:
    """Group c has many rows and four positives: it is selected or not, and its true positive rate is not compared."""
    chance = np.random.default_rng(3)
    group = np.repeat(["a", "b", "c"], [400, 400, 200])
    label = np.concatenate([chance.integers(0, 2, 800), np.repeat([1, 0], [4, 196])])
    score = np.clip(0.3 * label + chance.random(1000) * 0.7 - 0.1 * (group == "c"), 0, 1)
    old = chance.integers(0, 2, 1000)
    scored = lh.audit(label, scores=score, sensitive_features=group)
    curves = scored.scores.by_attribute["group"].curves
    at = int(np.argmin(np.abs(np.array(curves["demographic_parity"].thresholds) - 0.5)))
    decided = (score >= curves["demographic_parity"].thresholds[at]).astype(int)
    result = lh.audit(label, decided, against=old, sensitive_features=group)
    rates = {one: decided[group == one].mean() for one in "abc"}
    expected = {"demographic_parity": max(rates.values()) - min(rates.values())}
    assert min(rates, key=rates.__getitem__) == "c"
    tprs = [decided[(group == one) & (label == 1)].mean() for one in "ab"]
    expected["equal_opportunity"] = abs(tprs[0] - tprs[1])
    changes = result.against.by_attribute["group"]
    for name, value in expected.items():
        assert result.metrics[name].value == pytest.approx(value)
        assert curves[name].values[at] == pytest.approx(value)
        assert changes.metrics[name].new == pytest.approx(value)
    assert changes.groups["c"].included
    assert np.isfinite(changes.groups["c"].rates["selection_rate"].p_value)
    assert np.isnan(changes.groups["c"].rates["true_positive_rate"].p_value)


def test_what_is_decided_depends_on_the_level() -> None:
    sure, surer = (compared(*made(200), level=level).sentences()[1] for level in (0.95, 0.999))
    assert sure.startswith("By sex, the accuracy of m changed")
    assert surer.startswith("By sex, no group’s accuracy changed measurably")


def test_a_model_against_itself_changes_nothing() -> None:
    new, _ = made(400)
    options = {"sensitive_features": new["sex"], "level": 0.995, "replicates": 200}
    result = lh.audit(new["y"], new["yhat"], against=new["yhat"], **options)
    assert result.against is not None
    part = result.against.by_attribute["sex"]
    assert all((change.difference.value, change.p_value) == (0, 1) for change in part.metrics.values())
    assert all(group.only_new_right == group.only_old_right == 0 for group in part.groups.values())
    brief, whole = (" ".join(result.text(all=every).split()) for every in (False, True))
    for said in (brief, whole):
        assert "By sex, no group’s accuracy changed measurably." in said
    assert "larger part of the equalized-odds gap did not change: 21.8 points in both; no" in brief
    page = render(one_page(result.to_dict()))
    assert "99.5% of such intervals hold the true value" in page
    assert "200 bootstrap replicates" in page
    assert "100% interval" not in page


@pytest.mark.parametrize(("old", "value"), [(0, 0.0), (1, 1.0)])
def test_rows_that_all_say_the_same_make_no_change_sure(old: int, value: float) -> None:
    label = np.arange(40) % 2
    frame = pd.DataFrame({"y": label, "yhat": label, "sex": np.arange(40) // 20})
    changes = compared(frame, frame.assign(yhat=label ^ old)).by_attribute["sex"].metrics
    accuracy = changes["accuracy"].difference
    assert accuracy.value == value
    assert accuracy.low < value
    assert value or (accuracy.low, accuracy.high) == paired_interval(0, 0, 40)
    assert changes["accuracy"].p_value == (1.0 if not value else pytest.approx(0, abs=0.01))
    gap = changes["demographic_parity"].difference
    assert gap.value == 0
    if not value:
        assert math.isnan(gap.low)
        assert str(gap.reason).startswith("no interval")


def test_the_interval_of_a_paired_difference_is_bonett_and_prices() -> None:
    low, high = paired_interval(30, 10, 200)
    up, down = 31 / 202, 11 / 202
    arm = stats.norm.ppf(0.975) * ((up + down - (up - down) ** 2) / 202) ** 0.5
    assert (low, high) == pytest.approx((up - down - arm, up - down + arm))
    assert paired_interval(0, 0, 5)[0] < 0 < paired_interval(0, 0, 5)[1]


@pytest.mark.parametrize(("gained", "lost"), [(0.02, 0.02), (0.15, 0.05), (0.0, 0.0), (0.01, 0.002)])
@pytest.mark.parametrize("rows", [40, 400])
def test_the_interval_of_a_paired_difference_holds_the_truth(gained: float, lost: float, rows: int) -> None:
    draws = np.random.default_rng(0).multinomial(rows, [gained, lost, 1 - gained - lost], 3000)
    ends = np.array([paired_interval(int(up), int(down), rows) for up, down, _ in draws])
    held = (ends[:, 0] <= gained - lost + 1e-12) & (gained - lost <= ends[:, 1] + 1e-12)
    assert held.mean() > 0.94


def test_rows_are_matched_by_id_or_by_order(tmp_path: Path) -> None:
    new, old = made(500)
    by_order = of_files(tmp_path, new, old).to_dict()["against"]["by_attribute"]
    for turned, on in ((old[::-1], "id"), (old[::-1].rename(columns={"id": "key"}), "id=key")):
        assert of_files(tmp_path, new, turned, on).to_dict()["against"]["by_attribute"] == by_order
    some = of_files(tmp_path, new, old[:400], "id")
    assert "100 rows of the new file and 0 of the old have no partner and are left out" in " ".join(some.warnings)
    assert sum(group.n for group in some.against.by_attribute["sex"].groups.values()) == 400


def test_ids_that_one_table_has_as_numbers_and_the_other_as_texts_are_the_same() -> None:
    new, old = (one.assign(id=range(300)) for one in made(300))
    asked: dict[str, Any] = {"label": "y", "prediction": "yhat", "groups": ["sex"], "on": "id", "replicates": 100}
    kinds = ("int64", "float64", "str")
    found = [lh.audit_table(new, against=old.astype({"id": kind}), **asked).against for kind in kinds]
    assert found[0] == found[1] == found[2]


def test_two_models_of_scores_are_compared_by_their_decisions(tmp_path: Path) -> None:
    """At the threshold that each score has alone, the figures are those of the predicted classes."""
    chance, paths = np.random.default_rng(1).random(600) / 2, (tmp_path / "new.csv", tmp_path / "old.csv")
    for path, frame in zip(paths, made(600), strict=True):
        words = {name: frame[name].map({0: "no", 1: "yes"}) for name in ("y", "yhat")}
        frame = frame.assign(**words, p=frame["yhat"] / 2 + chance)
        frame.assign(logit=np.log(frame["p"] / (1 - frame["p"]))).to_csv(path, index=False)
    options: dict[str, Any] = {"against": paths[1], "on": "id"}
    classes = lh.audit_table(paths[0], label="y", prediction="yhat", groups=["sex"], **options).to_dict()["against"][
        "by_attribute"
    ]["sex"]
    for score, threshold in (("p", None), ("logit", None), ("p", [0.5, 0.8])):
        found = lh.audit_table(
            paths[0], label="y", groups=["sex"], score=score, threshold=threshold, **options
        ).to_dict()
        own = found["against"]["by_attribute"]["sex"]
        assert (own["metrics"], own["groups"]) == (classes["metrics"], classes["groups"])
        assert sorted(own["areas"]) == ["f", "m"]
        assert found["scores"]["thresholds"][0] == (0 if score == "logit" else 0.5)


def test_several_classes_crossings_and_small_groups() -> None:
    chance = np.random.default_rng(3)
    label = chance.integers(0, 3, 900)
    new, old = (np.where(chance.random(900) < 0.7, label, chance.integers(0, 3, 900)) for _ in range(2))
    groups = pd.DataFrame({"sex": chance.choice(["f", "m"], 900), "race": chance.choice(["a", "b", "c"], 900)})
    groups.loc[:4, "race"] = "tiny"
    result = lh.audit(label, new, against=old, sensitive_features=groups, intersect=True)
    assert result.against is not None
    assert list(result.against.by_attribute) == ["sex", "race", ("sex", "race")]
    race = result.against.by_attribute["race"]
    assert not race.groups["tiny"].included
    assert np.isnan(race.groups["tiny"].rates["accuracy"].p_value)
    assert "true_positive_rate[2]" in race.groups["a"].rates
    assert race.metrics["equalized_odds"].difference.defined
    assert race.metrics["accuracy"].new == pytest.approx((new == label).mean())
    json.dumps(result.to_dict(), allow_nan=False)
    render(one_page(result.to_dict()))


def test_the_favourable_outcome_has_its_name_in_what_changed() -> None:
    draw = np.random.default_rng(0)
    sex, label = draw.choice(["f", "m"], 2000), draw.integers(0, 2, 2000)
    old = np.where(draw.random(2000) < 0.9, label, 1 - label)
    new = np.where((sex == "f") & (draw.random(2000) < 0.3), 1, old)
    frames = [pd.DataFrame({"y": label, "sex": sex, "yhat": one}) for one in (new, old)]
    for favourable in (1, 0, None):
        found = compared(*frames, favourable=favourable, replicates=100).sentences()
        said = [one for one in found if "with the prediction" in one]
        assert len(said) == (favourable is not None)
        share = [100 * float((one[sex == "f"] == favourable).mean()) for one in (new, old)]
        for one in said:
            assert f"of f with the prediction “{favourable}” changed from {share[1]:.1f}% to {share[0]:.1f}%" in one
            assert f"%: {'+' if favourable else '−'}" in one
