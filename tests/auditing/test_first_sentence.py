"""What stands first: the question that was asked, about the rate of the plain finding. Its groups are in the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run

REVERSED = [
    (year, sex, place < share * 200)
    for year in range(2013, 2019)
    for sex, share in (("F", 0.3 if year == 2013 else 0.7), ("M", 0.6))
    for place in range(200 if year > 2013 else 600)
    for share in [share * (3 if year == 2013 else 1)]
]
"""F is selected 30% of the time in 2013 and 70% after it, M 60%: over all years, both are close."""


def decided(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["year", "sex", "hired"]).astype({"hired": int})


def drawn(**rates: dict[str, tuple[float, float]]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return 4,000 rows; a group's false and true positive rates move by those of its level of each column."""
    chance = np.random.default_rng(0)
    frame = pd.DataFrame({name: chance.choice(list(levels), 4000) for name, levels in rates.items()})
    frame["y"] = chance.integers(0, 2, 4000)
    moved = sum(np.array([rates[name][one] for one in frame[name]]) for name in rates)
    share = np.array([0.3, 0.7])[frame["y"]] + np.asarray(moved)[np.arange(4000), frame["y"]]
    frame["p"] = (chance.random(4000) < share).astype(int)
    return frame, {"sensitive_features": frame[list(rates)], "replicates": 100}


LEVELS = {
    "sex": {"f": (0.0, -0.05), "m": (0.0, 0.0)},
    "education": {one: (-0.05, -0.1) if one == "low" else (0.0, 0.0) for one in ("low", "mid", "high", "phd", "none")},
    "race": {one: (0.25, -0.1) if one == "a" else (0.0, 0.0) for one in "abcd"},
}


def test_with_periods_their_change_stands_first() -> None:
    frame = decided(REVERSED)
    decisions: dict[str, Any] = {"favourable": 1, "sensitive_features": frame["sex"], "time": frame["year"]}
    found = lh.audit(None, frame["hired"], **decisions)
    (change,) = found.over_time.by_attribute["sex"]
    assert change.slope.excludes_zero or change.first_outside == "2014"
    finding = found.page()["finding"]
    assert finding == found.over_time.sentences()[0]
    assert " ".join(str(found).split()).startswith(finding)
    right = frame["hired"].to_numpy() ^ (np.arange(len(frame)) % 5 == 0)
    classes = lh.audit(right, frame["hired"], replicates=100, **decisions)
    finding = classes.page()["finding"]
    assert "selection rate" in finding, "the favourable outcome is what a plain audit is about"
    assert "control limits in 2014" in finding or "points per period" in finding
    assert change.reference == found.by_attribute["sex"].reference
    assert classes.over_time.by_attribute["sex"][0].reference == classes.rates["sex"].outcome.reference
    one = lh.audit(frame["hired"], frame["hired"] * 0, replicates=100, **decisions)
    assert one.page()["finding"].startswith("The model predicts “0” for every row")


def test_within_strata_the_rate_is_that_of_the_plain_finding_with_both_values() -> None:
    """Men and women differ in no department; departments differ in how many are found, and in who is there."""
    chance = np.random.default_rng(0)
    dep = chance.integers(0, 4, 40_000)
    sex, y = np.where(chance.random(40_000) < 0.3 + 0.1 * dep, "f", "m"), chance.integers(0, 2, 40_000)
    high = np.where(y == 1, 0.9 - 0.05 * dep, 0.2 + 0.012 * (sex == "f"))
    predicted = (chance.random(40_000) < high).astype(int)
    options = {"sensitive_features": {"sex": sex}, "control_features": {"dep": dep}, "replicates": 100}
    found = lh.audit(y, predicted, **options)
    plain, pair = found.more["finding"]["pair"], found.more["control"]["pairs"][0]
    assert plain["rate"] == pair["rate"] == "true_positive_rate"
    assert pair["low"] < 0 < pair["high"]
    assert abs(pair["plain"]) == pytest.approx(abs(plain["difference"]["value"]))
    finding = found.page()["finding"]
    assert "Within strata of dep, the true positive rate" in finding
    assert "inconclusive. Without strata, over the same rows, the difference is " in finding
    assert "points lower" in found.page()["brief"]["lines"][0]
    chosen = lh.audit(y, predicted, favourable=1, **options)
    assert chosen.more["control"]["pairs"][0]["rate"] == "selection_rate"


def test_a_plain_finding_that_no_stratum_can_compare_is_called_so() -> None:
    frame, options = drawn(**LEVELS)
    strata = np.where(frame["race"] == "a", "one", "another")
    found = lh.audit(frame["y"], frame["p"], control_features=strata, **options)
    assert "a" in found.more["control"]["sentences"][0]
    page = found.page()
    assert "cannot be compared: no stratum has 10 rows of both" in page["brief"]["lines"][0]
    assert page["finding"].startswith("Among rows with y = 0, ")


def test_the_lowest_ratio_of_all_columns_stands_first_on_screen_and_page() -> None:
    frame, options = drawn(**LEVELS)
    found = lh.audit(frame["y"], frame["p"], favourable=1, **options)
    ratios = {name: one.outcome.lowest_first[0] for name, one in found.rates.items()}
    assert min(ratios, key=lambda name: ratios[name][1].value) == "education"
    assert found.more["finding"]["pair"]["rate"] == "false_positive_rate"
    finding = found.page()["finding"]
    assert finding.startswith("By education, the favourable outcome “1” goes to low 0.8")
    assert finding in found.to_html()
    assert found.page()["brief"]["lines"][0].startswith("Among rows with y = 0, ")
    assert lh.audit(frame["y"], frame["p"], **options).page()["finding"].startswith("Among rows with y = 0, ")


@pytest.mark.parametrize("intersect", [False, True])
def test_groups_of_shown_sentences_stand_in_the_table_and_a_pipe_has_all(
    intersect: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, options = drawn(**LEVELS)
    decided = {"sensitive_features": options["sensitive_features"], "favourable": 1, "intersect": intersect}
    for found in (
        lh.audit(frame["y"], frame["p"], intersect=intersect, **options),
        lh.audit(frame["y"], frame["p"], replicates=100, **decided),
        lh.audit(None, frame["p"], **decided),
    ):
        page, text = found.page(), " ".join(found.text(width=160).split())
        table = page["brief"]["table"]["rows"]
        said = [page["finding"], *page["brief"]["lines"]]
        shown = [at for one, rows in zip(said, page["brief"]["named"], strict=False) for at in rows if one in text]
        assert len(shown) > 1
        assert all(table[at]["head"] in text for at in shown)
    frame.to_csv(tmp_path / "p.csv", index=False)
    groups = [word for name in LEVELS for word in ("--group", name)] + ["--intersect"] * intersect
    columns = ("--label", "y", "--prediction", "p", "--favourable", "1")
    assert run("audit", tmp_path / "p.csv", *columns, *groups) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "more group" not in out
    assert all(f"{name}: {group}" in out for name, levels in LEVELS.items() for group in levels)


def test_a_gap_has_one_interval_on_screen_and_page() -> None:
    frame, options = drawn(**LEVELS)
    found = lh.audit(frame["y"], frame["p"], **options)
    pair, pairs = found.more["finding"]["pair"], found.more["pairs"]
    low, high = (f"{100 * pair['difference'][end]:.1f}" for end in ("low", "high"))
    assert f"interval {low} to {high}" in found.page()["finding"]
    own = found.metrics["equal_opportunity"]
    of_sex = next(one for one in pairs if one["attribute"] == "sex" and one["rate"] == "true_positive_rate")
    adjusted = sorted(abs(100 * of_sex["difference"][end]) for end in ("low", "high"))
    html, text = found.to_html(), found.text(all=True)
    assert f"{100 * own.low:.1f}–{100 * own.high:.1f}" not in html + text
    assert f"{adjusted[0]:.1f}–{adjusted[1]:.1f}" in text


def test_rates_of_the_favourable_outcome_are_the_same_whichever_class_is_positive() -> None:
    frame, options = drawn(sex=LEVELS["sex"], education=LEVELS["education"])
    year = np.arange(len(frame)) % 3
    frame.loc[(frame["sex"] == "f") & (year == 2), "p"] = 1
    options |= {"sensitive_features": frame["sex"], "favourable": 0}
    for asked in ({"control_features": frame["education"]}, {"time": year}, {"time": year // 2}):
        turned, plain = (lh.audit(frame["y"], frame["p"], positive=one, **options, **asked) for one in (1, 0))
        leads = turned.to_dict()["lead"], plain.to_dict()["lead"]
        named = [sorted(zip(lead["groups"], lead["values"], strict=True)) for lead in leads]
        assert [one for _, one in named[0]] == pytest.approx([one for _, one in named[1]])
        assert "rates of 1, impact ratios of 0;" in " ".join(turned.text(all=True).split())
        if "time" in asked:
            assert turned.over_time.sentences() == plain.over_time.sentences()
            charts = [[block.get("lines") for block in one.page()["chart"]] for one in (turned, plain)]
            assert charts[0] == charts[1]
