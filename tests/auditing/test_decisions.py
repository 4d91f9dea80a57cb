"""Audits of decisions without outcomes: figures, errors, and how often noise makes a headline."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.auditing.decisions import _compared
from levelhead.auditing.decisions_page import decision_sentences
from levelhead.cli.report import page_of
from levelhead.metrics.between import fisher_p, unlike
from levelhead.types import DataError


def drawn(seed: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    rate = dict(zip("abc", rng.uniform(0.1, 0.9, 3), strict=True))
    return np.where(rng.random(rows) < [rate[one] for one in group], "yes", "no"), group


@pytest.mark.parametrize("seed", range(10))
def test_ratios_are_those_of_an_audit_with_labels(seed: int) -> None:
    decisions, group = drawn(seed)
    found = lh.audit_decisions(decisions, sensitive_features=group, favourable="yes", reference="a")
    other = lh.audit(decisions, decisions, sensitive_features=group, positive="yes", favourable="yes", reference="a")
    for name, own in found.by_attribute["group"].groups.items():
        assert own.selection_ratio == other.rates["group"].groups[name].selection_ratio


def test_p_values_are_twice_scipys_smaller_tail() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        rows = rng.integers(1, 60, 2)
        hits = rng.binomial(rows, 0.4)
        table = [[hits[0], rows[0] - hits[0]], [hits[1], rows[1] - hits[1]]]
        tails = [stats.fisher_exact(table, alternative=one).pvalue for one in ("less", "greater")]
        found = fisher_p(hits, rows, np.array([0]), np.array([1]))[0]
        assert found == pytest.approx(min(1, 2 * min(tails)), rel=1e-9)
        for error in (0.05, 0.01, found * (1 + 1e-6), found * (1 - 1e-6)):
            if error < 1:
                assert unlike(hits, rows, np.array([0]), np.array([1]), error)[0] == (found <= error)


def test_interval_and_p_value_agree() -> None:
    for seed in range(40):
        decisions, group = drawn(seed, 120)
        audit = lh.audit_decisions(decisions, sensitive_features=group, favourable="yes", min_count=5)
        for one in audit.by_attribute["group"].groups.values():
            if one.p_value is not None and one.p_value > 0.05:
                assert one.difference is not None
                assert one.selection_ratio is not None
                assert not one.difference.excludes_zero
                assert one.selection_ratio.low <= 1 <= one.selection_ratio.high


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5])
def test_groups_that_are_alike_rarely_make_a_headline(rate: float) -> None:
    """The most selected of five groups is the reference, so that every pair counts."""
    rng, tries = np.random.default_rng(0), 2000
    rows = np.array([400, 200, 100, 60, 40])
    named = 0
    for hits in rng.binomial(rows, rate, (tries, len(rows))):
        to = int(np.argmax(hits / rows))
        found = _compared(hits, rows, [at for at in range(5) if at != to], to, math.comb(5, 2), 0.95)
        named += any(one.excludes_zero for one, _, _ in found.values())
    assert named / tries < 0.05 + 3 * math.sqrt(0.05 * 0.95 / tries)


def test_sentences_name_who_differs_the_clearest_first() -> None:
    decisions = ["yes"] * 80 + ["no"] * 20 + ["yes"] * 40 + ["no"] * 60 + ["yes"] * 75 + ["no"] * 25
    group = ["a"] * 100 + ["b"] * 100 + ["c"] * 100
    text = " ".join(str(lh.audit_decisions(decisions, sensitive_features=group, favourable="yes")).split())
    assert text.startswith(
        "“yes” is the decision for 40.0% of b and 80.0% of a: a difference of −40.0 percentage points (interval "
    )
    assert re.search(r"impact ratio is 0\.50 \(interval \[0\.3\d, 0\.6\d\]\): below four fifths\. ", text)
    assert "75.0% of 'c'" not in text.partition("Decisions by")[0]


def test_the_lowest_ratio_goes_before_a_larger_difference_of_a_favoured_group_and_an_undecided_one() -> None:
    rows = {"base": (1000, 500), "less": (1000, 400), "more": (1000, 800), "few": (10, 2)}
    group, decisions = zip(*((one, k < hits) for one, (n, hits) in rows.items() for k in range(n)), strict=True)
    audit = lh.audit_decisions(decisions, sensitive_features=group, favourable=True, reference="base")
    assert not audit.by_attribute["group"].groups["few"].difference.excludes_zero
    sentences = decision_sentences(audit.to_dict())
    assert [one.split("% of ")[1].split(" and")[0] for one in sentences] == ["less", "more", "few"]
    assert "; inconclusive. The impact ratio is 0.40" in sentences[2]


def test_where_nobody_differs_one_sentence_says_so() -> None:
    decisions, group = ["yes", "no"] * 100, ["a", "a", "b", "b"] * 50
    text = " ".join(str(lh.audit_decisions(decisions, sensitive_features=group, favourable="yes")).split())
    assert text.startswith("No group’s selection rate differs measurably from its reference. “yes” is the decision for")


def test_files_arrays_and_pages_say_the_same(tmp_path: Path) -> None:
    decisions, group = drawn(3)
    table = pd.DataFrame({"loan": decisions, "race": group, "sex": ["f", "m"] * 200})
    table.to_csv(tmp_path / "loans.csv", index=False)
    table.to_parquet(tmp_path / "loans.parquet")
    options = {"favourable": "yes", "intersect": True, "reference": "race=a"}
    ours = lh.audit_decisions(table["loan"], sensitive_features=table[["race", "sex"]], **options)
    for name in ("loans.csv", "loans.parquet"):
        theirs = lh.audit_decisions_file(tmp_path / name, "loan", ["race", "sex"], **options)
        assert theirs.to_dict()["by_attribute"] == ours.to_dict()["by_attribute"]
    assert list(ours.by_attribute) == ["race", "sex", ("race", "sex")]
    (tmp_path / "audit.json").write_text(json.dumps(ours.to_dict(), allow_nan=False))
    assert page_of(tmp_path / "audit.json")["finding"] == ours.page()["finding"]
    assert ours.comparisons == 2 + 1 + math.comb(6, 2)
    frame = ours.to_frame()
    assert set(frame["figure"]) == {
        "selection_rate", "selection_rate_difference", "selection_ratio", "demographic_parity",
    }  # fmt: skip


def test_what_is_missing_or_small_is_shown_and_not_compared() -> None:
    decisions = ["yes", "no"] * 53
    group = ["a"] * 50 + ["b"] * 45 + ["c"] * 4 + [None] * 7
    audit = lh.audit_decisions(decisions, sensitive_features={"race": group}, favourable="yes")
    groups = audit.by_attribute["race"].groups
    assert [name for name, one in groups.items() if one.included] == ["a", "b"]
    assert groups["c"].selection_ratio is None
    assert audit.warnings == [
        "race: group “c” has 4 rows, fewer than 10, and is not compared.",
        "race: 7 rows without a group are not compared; --missing group compares them as a group.",
    ]
    alone = lh.audit_decisions(["yes"] * 20, sensitive_features=["a"] * 20, favourable="yes")
    assert "there is nothing to compare" in alone.warnings[0]
    assert not alone.by_attribute["group"].demographic_parity.defined
    assert "No two groups have enough rows to be compared." in str(alone)
    small = lh.audit_decisions(decisions, sensitive_features={"race": group}, favourable="yes", reference="c")
    assert "the reference group is too small" in " ".join(small.warnings)
    said = "By race, nothing was compared: the reference group “c” has 4 rows, too few to be compared."
    assert decision_sentences(small.to_dict()) == [said]
    one_row = lh.audit_decisions(["yes"], sensitive_features=["a"], favourable="yes")
    assert one_row.overall.value == 1


def test_it_says_which_difference_so_many_rows_detect() -> None:
    rng = np.random.default_rng(2)
    group = np.repeat(["a", "b"], [300, 100])
    found = lh.audit_decisions(["yes", "no"] * 200, sensitive_features=group, favourable="yes", reference="a")
    column = found.by_attribute["group"]
    assert column.smallest == "b"
    assert f"a difference of {100 * column.detectable:.1f} percentage points" in " ".join(found.text(all=True).split())
    told = 0
    for _ in range(400):
        hits = rng.binomial([300, 100], [0.5, 0.5 - column.detectable])
        found = _compared(hits, np.array([300, 100]), [1], 0, 1, 0.95)
        told += found[1][0].excludes_zero
    assert told / 400 > 0.8 - 3 * math.sqrt(0.8 * 0.2 / 400)


def test_nobody_selected_has_no_ratio() -> None:
    found = lh.audit_decisions(["no"] * 50 + ["yes"], sensitive_features=["a", "b"] * 25 + ["c"], favourable="yes")
    ratio = found.by_attribute["group"].groups["b"].selection_ratio
    assert ratio is not None
    assert ratio.reason == "the reference group's rate is 0"
    assert "The impact ratio is undefined" in found.text(all=True)


def test_hostile_names_are_escaped() -> None:
    name = "<script>\x1b[31m'\"&"
    audit = lh.audit_decisions([name, "no"] * 40, sensitive_features={name: [name, "b"] * 40}, favourable=name)
    assert "<script>" not in audit.to_html()
    assert "\x1b" not in audit.text(all=True)


def monthly(rows: int = 3000, drift: float = 0.04) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    frame = pd.DataFrame({"sex": draw.choice(["f", "m"], rows), "month": draw.integers(1, 9, rows)})
    frame["loan"] = np.where(draw.random(rows) < 0.6 - drift * frame.month * (frame.sex == "f"), "yes", "no")
    return frame.assign(month="2024-0" + frame.month.astype(str))


def test_selection_rates_over_time_are_those_of_an_audit_with_outcomes() -> None:
    frame = monthly()
    found = lh.audit_decisions(frame.loan, sensitive_features=frame[["sex"]], favourable="yes", time=frame.month)
    label = np.arange(len(frame)) % 2
    options = {"sensitive_features": frame[["sex"]], "time": frame.month, "favourable": True, "replicates": 100}
    other = lh.audit(label, frame.loan == "yes", **options)  # to the group that is selected most, as decisions are
    assert found.over_time is not None
    (own,) = found.over_time.by_attribute["sex"]
    same = next(one for one in other.over_time.by_attribute["sex"] if one.rate == "selection_rate")
    assert [gap.difference.value for gap in own.gaps] == [gap.difference.value for gap in same.gaps]
    assert own.slope.excludes_zero
    assert own.slope.value == same.slope.value
    assert "changes by" in found.text(all=True)
    assert "Over time" in found.to_html()
    assert f"selection_rate_difference[{own.gaps[0].period}]" in set(found.to_frame()["figure"])
    counts = frame.value_counts().rename("n").reset_index()
    table = lh.audit_decisions(
        counts.loan, sensitive_features=counts[["sex"]], favourable="yes", time=counts.month, counts=counts.n
    )
    assert table.over_time.by_attribute["sex"][0].slope.value == pytest.approx(own.slope.value)
    alone = lh.audit_decisions(frame.loan, sensitive_features=frame[["sex"]], favourable="yes", time=["a"] * len(frame))
    assert any("a trend needs several periods" in one for one in alone.warnings)
    assert "over_time" not in lh.audit_decisions(frame.loan, sensitive_features=frame.sex, favourable="yes").to_dict()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_several_files_are_periods(tmp_path: Path, suffix: str) -> None:
    frame, paths = monthly(), []
    for month, rows in frame.groupby("month"):
        folder = tmp_path / month[:4]
        folder.mkdir(exist_ok=True)
        paths.append(folder / f"{month}{suffix}")
        if suffix == ".csv":
            rows.drop(columns="month").to_csv(paths[-1], index=False)
        else:
            rows.drop(columns="month").to_parquet(paths[-1], index=False)
    expected = lh.audit_decisions(frame.loan, sensitive_features=frame[["sex"]], favourable="yes", time=frame.month)
    found = lh.audit_decisions_file(paths, "loan", ["sex"], favourable="yes", time="file")
    assert found.over_time.periods == expected.over_time.periods
    assert found.over_time.to_dict()["by_attribute"] == expected.over_time.to_dict()["by_attribute"]
    with pytest.raises(DataError, match="has no column 'file'"):
        lh.audit_decisions_file(paths[0], "loan", ["sex"], favourable="yes", time="file")
    twice = [tmp_path / year / f"01{suffix}" for year in ("2023", "2024")]
    for at, path in enumerate(twice):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(paths[at].read_bytes())
    both = lh.audit_decisions_file(twice, "loan", ["sex"], favourable="yes", time="file")
    assert both.over_time.periods == ("2023/01", "2024/01")


@pytest.mark.parametrize("size", [4, 30])
def test_a_reference_that_is_too_small_changes_no_interval_of_other_columns(size: int) -> None:
    """The named reference has 4 rows, so that its column compares nothing, whatever groups are in it."""
    rng = np.random.default_rng(0)
    team = np.full(300, None, object)
    team[:4], team[4 : 4 + size], team[40 : 40 + size] = "few", "some", "others"
    race, loan = np.tile(["a", "b", "c"], 100), rng.choice(["no", "yes"], 300)
    alone = lh.audit_decisions(loan, sensitive_features={"race": race}, favourable="yes")
    both = lh.audit_decisions(
        loan, sensitive_features={"team": team, "race": race}, favourable="yes", reference="team=few"
    )
    assert (both.comparisons, both.by_attribute["race"]) == (3, alone.by_attribute["race"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_point_in_the_names_of_files_merges_no_months(tmp_path: Path, suffix: str) -> None:
    paths, rows = [], monthly().drop(columns="month").head(240)
    for name in ("2024.9", "2024.10", "2025.1"):
        paths.append(tmp_path / f"{name}{suffix}")
        if suffix == ".parquet":
            rows.to_parquet(paths[-1], index=False)
        else:
            rows.to_csv(paths[-1], index=False)
    found = lh.audit_decisions_file(paths, "loan", ["sex"], favourable="yes", time="file")
    assert found.over_time.periods == ("2024.9", "2024.10", "2025.1")
    (tmp_path / "more").mkdir()
    again = tmp_path / "more" / paths[0].name
    again.write_bytes(paths[0].read_bytes())
    found = lh.audit_decisions_file([*paths[:2], again], "loan", ["sex"], favourable="yes", time="file")
    assert found.over_time.periods == ("2024.9", "2024.10", "more/2024.9")
