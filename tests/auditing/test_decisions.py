"""Audits of decisions without outcomes: figures, errors, and how often noise makes a headline."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import written
from levelhead.auditing.decisions import _compared
from levelhead.auditing.rates import Share
from levelhead.cli.report import page_of
from levelhead.metrics.weighted import WeightedRate


def drawn(seed: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    rate = dict(zip("abc", rng.uniform(0.1, 0.9, 3), strict=True))
    return np.where(rng.random(rows) < [rate[one] for one in group], "yes", "no"), group


def shares(hits: np.ndarray, rows: np.ndarray) -> Share:
    return Share(WeightedRate(hits / rows, rows, rows.astype(float)))


def audited(decisions: Any, group: Any, **options: Any) -> Any:
    return lh.audit(None, decisions, sensitive_features=group, **{"favourable": "yes", **options})


def of_files(paths: Any, **options: Any) -> Any:
    """Return the audit of decisions in files, each of which is a period."""
    return lh.audit_table(paths, prediction="loan", groups=["sex"], favourable="yes", time="file", **options)


@pytest.mark.parametrize("seed", range(4))
def test_ratios_are_those_of_an_audit_with_labels(seed: int) -> None:
    decisions, group = drawn(seed)
    found = audited(decisions, group, reference="a")
    options = {"positive": "yes", "favourable": "yes", "reference": "a", "replicates": 100}
    other = lh.audit(decisions, decisions, sensitive_features=group, **options)
    for name, own in found.by_attribute["group"].groups.items():
        assert own.selection_ratio == other.rates["group"].groups[name].selection_ratio


def test_interval_and_p_value_agree() -> None:
    for seed in range(20):
        audit = audited(*drawn(seed, 120), min_count=5)
        for one in audit.by_attribute["group"].groups.values():
            if one.p_value is not None and one.p_value > 0.05:
                assert not one.difference.excludes_zero
                assert one.selection_ratio.low <= 1 <= one.selection_ratio.high


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5])
def test_groups_that_are_alike_rarely_make_a_headline(rate: float) -> None:
    """The most selected of five groups is the reference, so that every pair counts."""
    rng, tries = np.random.default_rng(0), 400
    rows = np.array([400, 200, 100, 60, 40])
    named = 0
    for hits in rng.binomial(rows, rate, (tries, len(rows))):
        to = int(np.argmax(hits / rows))
        found = _compared(shares(hits, rows), [at for at in range(5) if at != to], to, math.comb(5, 2), 0.95)
        named += any(one.excludes_zero for one, _, _ in found.values())
    assert named / tries < 0.05 + 3 * math.sqrt(0.05 * 0.95 / tries)


def test_the_lowest_ratio_goes_before_a_larger_difference_of_a_favoured_group_and_an_undecided_one() -> None:
    rows = {"base": (1000, 500), "less": (1000, 400), "more": (1000, 800), "few": (10, 2)}
    group, decisions = zip(*((one, k < hits) for one, (n, hits) in rows.items() for k in range(n)), strict=True)
    audit = audited(decisions, group, favourable=True, reference="base")
    assert not audit.by_attribute["group"].groups["few"].difference.excludes_zero
    sentences = audit.sentences()
    assert [one.split("% of ")[1].split(" and")[0] for one in sentences] == ["less", "more", "few"]
    assert "; inconclusive. The impact ratio is 0.40" in sentences[2]


def test_files_arrays_and_pages_say_the_same(tmp_path: Path) -> None:
    decisions, group = drawn(3)
    table = pd.DataFrame({"loan": decisions, "race": group, "sex": ["f", "m"] * 200})
    options = {"intersect": True, "reference": "race=a"}
    ours = audited(table["loan"], table[["race", "sex"]], **options)
    for name in ("loans.csv", "loans.parquet"):
        path = written(table, tmp_path / name)
        theirs = lh.audit_table(path, prediction="loan", groups=["race", "sex"], favourable="yes", **options)
        assert theirs.to_dict()["by_attribute"] == ours.to_dict()["by_attribute"]
    assert list(ours.by_attribute) == ["race", "sex", ("race", "sex")]
    (tmp_path / "audit.json").write_text(json.dumps(ours.to_dict(), allow_nan=False))
    assert page_of(tmp_path / "audit.json")["finding"] == ours.page()["finding"]
    assert ours.comparisons == 2 + 1 + math.comb(6, 2)
    figures = {"selection_rate", "selection_rate_difference", "selection_ratio", "demographic_parity"}
    figures.add("selection_rate_detectable")
    assert set(ours.to_frame()["figure"]) == figures


def test_what_is_missing_or_small_is_shown_and_not_compared() -> None:
    decisions, group = ["yes", "no"] * 53, {"race": ["a"] * 50 + ["b"] * 45 + ["c"] * 4 + [None] * 7}
    audit = audited(decisions, group)
    groups = audit.by_attribute["race"].groups
    assert [name for name, one in groups.items() if one.included] == ["a", "b"]
    assert groups["c"].selection_ratio is None
    small, missing = audit.warnings
    assert small.startswith("race: group “c” has 4 rows, fewer than 10")
    assert missing.startswith("race: 7 rows without a group are not compared; in Python, missing='group'")
    alone = audited(["yes"] * 20, ["a"] * 20)
    assert "there is nothing to compare" in alone.warnings[0]
    assert not alone.by_attribute["group"].demographic_parity.defined
    assert "There is only one group" in str(alone)
    to_few = audited(decisions, group, reference="c")
    assert "the reference group “c” is too small" in " ".join(to_few.warnings)
    (said,) = to_few.sentences()
    assert said.startswith("By race, nothing was compared: the reference group “c” has 4 rows")
    assert audited(["yes"], ["a"]).overall.value == 1


def test_it_says_which_difference_so_many_rows_detect() -> None:
    rng = np.random.default_rng(2)
    found = audited(["yes", "no"] * 200, np.repeat(["a", "b"], [300, 100]), reference="a")
    column = found.by_attribute["group"]
    assert column.smallest == "b"
    detected = {one["question"]: one["answer"] for one in found.page()["sure"]}
    assert f"a gap of {100 * column.detectable:.1f} points" in detected["What could be missed?"]
    told = 0
    for hits in rng.binomial([300, 100], [0.5, 0.5 - column.detectable], (200, 2)):
        told += _compared(shares(hits, np.array([300, 100])), [1], 0, 1, 0.95)[1][0].excludes_zero
    assert told / 200 > 0.8 - 3 * math.sqrt(0.8 * 0.2 / 200)


def test_nobody_selected_has_no_ratio() -> None:
    found = audited(["no"] * 50 + ["yes"], ["a", "b"] * 25 + ["c"])
    ratio = found.by_attribute["group"].groups["b"].selection_ratio
    assert ratio.reason == "the reference group's rate is 0"
    assert "The impact ratio is undefined" in " ".join(found.text(all=True).split())


def monthly(rows: int = 3000, drift: float = 0.04) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    frame = pd.DataFrame({"sex": draw.choice(["f", "m"], rows), "month": draw.integers(1, 9, rows)})
    frame["loan"] = np.where(draw.random(rows) < 0.6 - drift * frame.month * (frame.sex == "f"), "yes", "no")
    return frame.assign(month="2024-0" + frame.month.astype(str))


def test_selection_rates_over_time_are_those_of_an_audit_with_outcomes() -> None:
    frame = monthly()
    found = audited(frame.loan, frame[["sex"]], time=frame.month)
    label = np.arange(len(frame)) % 2
    options = {"sensitive_features": frame[["sex"]], "time": frame.month, "favourable": True, "replicates": 100}
    other = lh.audit(label, frame.loan == "yes", **options)  # to the group that is selected most, as decisions are
    (own,) = found.over_time.by_attribute["sex"]
    same = next(one for one in other.over_time.by_attribute["sex"] if one.rate == "selection_rate")
    assert [gap.difference.value for gap in own.gaps] == [gap.difference.value for gap in same.gaps]
    assert own.slope.excludes_zero
    assert own.slope.value == same.slope.value
    assert found.page()["headline"][-1]["text"].endswith(" points per period")
    assert [block["type"] for block in found.page()["chart"]] == ["curves", "curves"]
    assert f"selection_rate_difference[{own.gaps[0].period}]" in set(found.to_frame()["figure"])
    counts = frame.value_counts().rename("n").reset_index()
    table = audited(counts.loan, counts[["sex"]], time=counts.month, counts=counts.n)
    assert table.over_time.by_attribute["sex"][0].slope.value == pytest.approx(own.slope.value)
    alone = audited(frame.loan, frame[["sex"]], time=["a"] * len(frame))
    assert "all rows are of the period “a”" in alone.to_dict()["sentences"][-1]
    assert "over_time" not in audited(frame.loan, frame.sex).to_dict()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_several_files_are_periods(tmp_path: Path, suffix: str) -> None:
    """A point in their names merges no months, and files of one name are told by their folders."""
    frame = monthly(1200)
    parts = [rows.drop(columns="month") for _, rows in frame.groupby("month")]
    names = sorted(frame.month.unique())
    paths = [written(rows, tmp_path / f"{name}{suffix}") for name, rows in zip(names, parts, strict=True)]
    expected, found = audited(frame.loan, frame[["sex"]], time=frame.month).over_time, of_files(paths).over_time
    assert found.periods == expected.periods
    assert found.to_dict()["by_attribute"] == expected.to_dict()["by_attribute"]
    for names in (("2023/01", "2024/01"), ("2024.9", "2024.10", "2025.1"), ("2024.9", "2024.10", "more/2024.9")):
        paths = [written(rows, tmp_path / f"{name}{suffix}") for name, rows in zip(names, parts[:3], strict=False)]
        assert of_files(paths).over_time.periods == names


@pytest.mark.parametrize("size", [4, 30])
def test_a_reference_that_is_too_small_changes_no_interval_of_other_columns(size: int) -> None:
    """The named reference has 4 rows, so that its column compares nothing, whatever groups are in it."""
    rng = np.random.default_rng(0)
    team = np.full(300, None, object)
    team[:4], team[4 : 4 + size], team[40 : 40 + size] = "few", "some", "others"
    race, loan = np.tile(["a", "b", "c"], 100), rng.choice(["no", "yes"], 300)
    alone, both = audited(loan, {"race": race}), audited(loan, {"team": team, "race": race}, reference="team=few")
    assert (both.comparisons, both.by_attribute["race"]) == (3, alone.by_attribute["race"])
