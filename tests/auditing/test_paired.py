"""Two models on the same rows: figures by hand, matching of rows, what is said of who gained and who lost."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.auditing.page import audit_page
from levelhead.cli.app import main
from levelhead.metrics import compare, holm
from levelhead.metrics.paired import paired_interval
from levelhead.report import render
from levelhead.types import ConfigError, DataError


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


def compared(new: pd.DataFrame, old: pd.DataFrame) -> lh.AuditResult:
    return lh.audit(new["y"], new["yhat"], against=old["yhat"], sensitive_features=new["sex"])


def test_the_figures_are_those_of_the_rows() -> None:
    new, old = made()
    against = compared(new, old).against
    assert against is not None
    part = against.by_attribute["sex"]
    for sex, group in part.groups.items():
        own, before = (frame[frame["sex"] == sex] for frame in (new, old))
        right, was_right = own["yhat"] == own["y"], before["yhat"] == before["y"]
        assert group.n == len(own)
        assert group.both_right == (right & was_right).sum()
        assert group.only_new_right == (right & ~was_right).sum()
        assert group.only_old_right == (~right & was_right).sum()
        assert group.both_wrong == (~right & ~was_right).sum()
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


def test_differences_of_gaps_are_those_of_compare() -> None:
    new, old = made(600)
    # Counts and rows are resampled by different draws, which only many replicates make alike.
    many = {"replicates": 8000}
    against = lh.audit(new["y"], new["yhat"], against=old["yhat"], sensitive_features=new["sex"], **many).against
    assert against is not None
    found = compare(new["y"], new["sex"], new["yhat"], old["yhat"], **many)
    for name in ("demographic_parity", "equal_opportunity", "equalized_odds", "worst_group_accuracy"):
        change = against.by_attribute["sex"].metrics[name]
        assert change.difference.value == pytest.approx(found[name].value)
        width = found[name].high - found[name].low
        assert change.difference.low == pytest.approx(found[name].low, abs=0.04 * width)
        assert change.difference.high == pytest.approx(found[name].high, abs=0.04 * width)
    p_values = [change.p_value for change in against.by_attribute["sex"].metrics.values()]
    assert [change.p_holm for change in against.by_attribute["sex"].metrics.values()] == holm(p_values)


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
    new, old = made(200)
    audits = {
        level: lh.audit(new["y"], new["yhat"], against=old["yhat"], sensitive_features=new["sex"], level=level)
        for level in (0.95, 0.999)
    }
    said = {level: audit.against.sentences("sex") for level, audit in audits.items()}
    assert said[0.95][0].startswith("Group “m” of sex gained")
    assert said[0.999][0].startswith("By sex, no group’s accuracy changed measurably")


def test_pages_say_the_level_and_the_replicates_that_were_used() -> None:
    new, old = made(600)
    options = {"level": 0.995, "replicates": 200}
    result = lh.audit(new["y"], new["yhat"], against=old["yhat"], sensitive_features=new["sex"], **options)
    page = render(audit_page(result.to_dict()))
    assert "99.5% of such intervals hold the true value" in page
    assert "200 bootstrap replicates" in page
    assert "1,000 bootstrap" not in page
    assert "100% interval" not in page


def test_a_model_against_itself_changes_nothing() -> None:
    new, _ = made(400)
    against = compared(new, new).against
    assert against is not None
    for change in against.by_attribute["sex"].metrics.values():
        assert change.difference.value == 0
        assert change.p_value == 1
    assert all(
        group.only_new_right == group.only_old_right == 0 for group in against.by_attribute["sex"].groups.values()
    )


@pytest.mark.parametrize(("old", "value"), [(0, 0.0), (1, 1.0)])
def test_rows_that_all_say_the_same_make_no_change_sure(old: int, value: float) -> None:
    label = np.arange(40) % 2
    frame = pd.DataFrame({"y": label, "yhat": label, "sex": np.arange(40) // 20})
    against = compared(frame, frame.assign(yhat=label ^ old)).against
    assert against is not None
    changes = against.by_attribute["sex"].metrics
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


def test_what_is_said_of_who_gained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, old = made()
    new.to_csv(tmp_path / "new.csv", index=False)
    old.sample(frac=1, random_state=0).to_csv(tmp_path / "old.csv", index=False)
    options = ["--label", "y", "--prediction", "yhat", "--group", "sex", "--on", "id"]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "audit",
                str(tmp_path / "new.csv"),
                "--against",
                str(tmp_path / "old.csv"),
                *options,
                "--html",
                str(tmp_path / "p.html"),
            ]
        )
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "Group “m” of sex gained: the new model is right for 87.5% of its rows, the old one for 75.9%, a change of "
        "+11.6 points, interval +9.6 to +13.5." in said
    )
    assert "Group 'f'" not in said
    page = (tmp_path / "p.html").read_text()
    assert "The same rows, two models" in page
    assert "Rows by which model is right, by group of sex" in page


def test_nobody_gained_is_said_so() -> None:
    new, _ = made(400)
    found = compared(new, new)
    brief, whole = (" ".join(found.text(all=every).split()) for every in (False, True))
    for said in (brief, whole):
        assert "By sex, no group’s accuracy changed measurably." in said
    assert "Equalized odds gap by sex: change 0.0 points, from 21.8." in brief
    assert "from 21.8 to 21.8 points; no interval: every draw of the rows gives this change." in whole


def test_rows_are_matched_by_id_or_by_order(tmp_path: Path) -> None:
    new, old = made(500)
    new.to_csv(tmp_path / "new.csv", index=False)
    old.to_csv(tmp_path / "old.csv", index=False)
    old[::-1].to_csv(tmp_path / "turned.csv", index=False)
    old[:400].to_csv(tmp_path / "fewer.csv", index=False)

    def audited(name: str, on: str | None = None) -> lh.AuditResult:
        return lh.audit_file(tmp_path / "new.csv", "y", "yhat", ["sex"], against=tmp_path / name, on=on)

    by_order, by_id = audited("old.csv").to_dict()["against"], audited("turned.csv", "id").to_dict()["against"]
    assert json.dumps(by_order["by_attribute"]) == json.dumps(by_id["by_attribute"])
    with pytest.raises(DataError, match=r"of 500 rows have another (label|group) in .*turned.csv"):
        audited("turned.csv")
    with pytest.raises(DataError, match="The new file has 500 rows, the old one 400"):
        audited("fewer.csv")
    some = audited("fewer.csv", "id")
    assert "100 rows of the new file and 0 of the old have no partner and are left out; 400 rows are compared." in (
        some.warnings
    )
    assert some.against is not None
    assert sum(group.n for group in some.against.by_attribute["sex"].groups.values()) == 400


def test_rows_that_cannot_be_matched_are_refused(tmp_path: Path) -> None:
    new, old = made(300)
    new.to_csv(tmp_path / "new.csv", index=False)
    old.assign(id="x").to_csv(tmp_path / "twice.csv", index=False)
    old.assign(id=old["id"] + "?").to_csv(tmp_path / "others.csv", index=False)
    old.drop(columns="yhat").to_csv(tmp_path / "lacking.csv", index=False)
    relabelled = old.assign(y=np.where(old.index == 7, 1 - old["y"], old["y"]))
    relabelled.to_csv(tmp_path / "labels.csv", index=False)
    for name, said in (
        ("twice.csv", r"'id': 299 rows with the id of an earlier row, such as rows 1 and 2 \(counted"),
        ("others.csv", "share no id"),
        ("lacking.csv", "has no column 'yhat'"),
        ("labels.csv", "1 of 300 rows have another label .* first row 8"),
        ("absent.csv", "There is no file"),
    ):
        with pytest.raises(DataError, match=said):
            lh.audit_file(tmp_path / "new.csv", "y", "yhat", ["sex"], against=tmp_path / name, on="id")
    with pytest.raises(ConfigError, match="--on matches the rows of two files"):
        lh.audit_file(tmp_path / "new.csv", "y", "yhat", ["sex"], on="id")


def test_ids_may_have_other_names_in_the_other_file(tmp_path: Path) -> None:
    new, old = made(300)
    new.to_csv(tmp_path / "new.csv", index=False)
    old[::-1].to_csv(tmp_path / "old.csv", index=False)
    old[::-1].rename(columns={"id": "key"}).to_csv(tmp_path / "renamed.csv", index=False)
    one, other = (
        lh.audit_file(tmp_path / "new.csv", "y", "yhat", ["sex"], against=tmp_path / name, on=on).to_dict()["against"]
        for name, on in (("old.csv", "id"), ("renamed.csv", "id=key"))
    )
    assert one["by_attribute"] == other["by_attribute"]


def test_two_models_of_scores_are_compared_by_their_decisions(tmp_path: Path) -> None:
    """At the threshold that each score has alone, the figures are those of the predicted classes."""
    new, old = made(600)
    chance = np.random.default_rng(1).random(600) / 2
    paths = []
    for name, frame in (("new", new), ("old", old)):
        words = frame["y"].map({0: "no", 1: "yes"}), frame["yhat"].map({0: "no", 1: "yes"})
        frame = frame.assign(y=words[0], yhat=words[1], p=frame["yhat"] / 2 + chance)
        paths.append(tmp_path / f"{name}.csv")
        frame.assign(logit=np.log(frame["p"] / (1 - frame["p"]))).to_csv(paths[-1], index=False)
    by_class = lh.audit_file(paths[0], "y", "yhat", ["sex"], against=paths[1], on="id").to_dict()["against"]
    for score, threshold in (("p", None), ("logit", None), ("p", [0.5, 0.8])):
        found = lh.audit_file(
            paths[0], "y", None, ["sex"], score=score, against=paths[1], on="id", threshold=threshold
        ).to_dict()
        own, classes = (one["by_attribute"]["sex"] for one in (found["against"], by_class))
        assert (own["metrics"], own["groups"]) == (classes["metrics"], classes["groups"])
        assert sorted(own["areas"]) == ["f", "m"]
        assert found["scores"]["thresholds"][0] == (0 if score == "logit" else 0.5)
    assert main_status("--score", "p", "--html", tmp_path / "p.html", files=paths) == 0
    assert "(new) against" in (tmp_path / "p.html").read_text()
    table = pd.read_csv(paths[1])
    table.assign(p=table["logit"]).to_csv(paths[1], index=False)
    with pytest.raises(DataError, match=r"old.csv, column 'p' holds scores on the scale log-odds, the audited file"):
        lh.audit_file(paths[0], "y", None, ["sex"], score="p", against=paths[1])


def main_status(*more: object, files: list[Path]) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, ("audit", files[0], "--against", files[1], "--label", "y", "--group", "sex", *more))])
    return int(ended.value.code or 0)


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
    render(audit_page(result.to_dict()))


def test_groups_too_small_to_compare_are_not_said_to_be_unchanged() -> None:
    label, group = np.arange(60) % 2, ["a", "b", "b"] * 20
    found = lh.audit(label, label, against=1 - label, sensitive_features=group, min_count=100).against
    assert found is not None
    said = "By group, no group has enough rows to be compared, so no change of accuracy was measured."
    assert found.sentences() == [said]


def test_two_rows_and_one_group() -> None:
    result = lh.audit([1, 0], [1, 0], against=[0, 0], sensitive_features=["a", "a"])
    assert result.against is not None
    group = result.against.by_attribute["group"].groups["a"]
    assert (group.n, group.only_new_right, group.included) == (2, 1, False)
    json.dumps(result.to_dict(), allow_nan=False)
    result.text(all=True)
    render(audit_page(result.to_dict()))


def test_the_favourable_outcome_has_its_name_in_what_changed() -> None:
    draw = np.random.default_rng(0)
    sex, label = draw.choice(["f", "m"], 2000), draw.integers(0, 2, 2000)
    old = np.where(draw.random(2000) < 0.9, label, 1 - label)
    new = np.where((sex == "f") & (draw.random(2000) < 0.3), 1, old)
    for favourable, words in ((1, "is the prediction for"), (0, "is the prediction for")):
        found = lh.audit(
            label, new, sensitive_features={"sex": sex}, against=old, favourable=favourable, replicates=100
        ).against
        said = next(one for one in found.sentences() if words in one)
        share = [100 * float((one[sex == "f"] == favourable).mean()) for one in (new, old)]
        assert f"“{favourable}” is the prediction for {share[0]:.1f}% of “f” and was for {share[1]:.1f}%" in said
        assert f"a change of {'+' if favourable else '−'}" in said
    plain = lh.audit(label, new, sensitive_features={"sex": sex}, against=old, replicates=100).against
    assert not any("is the prediction for" in one for one in plain.sentences())
