"""Audits by period: columns of times, the trend in the result, hostile names, the command."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.report.gate import Condition, check
from levelhead.tables.periods import as_periods, ordered, places_of
from levelhead.types import ConfigError


def table(rows: int = 6000, drift: float = 0.03, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), "D")
    sex, label = rng.choice(["f", "m"], rows, p=[0.4, 0.6]), rng.random(rows) < 0.5
    rate = np.where(label, 0.7, 0.4) - drift * (sex == "f") * (day.month - 1)
    answer = rng.random(rows) < rate
    score = np.where(answer, rng.uniform(0.5, 1, rows), rng.uniform(0, 0.499, rows))
    return pd.DataFrame({"y": label * 1, "p": answer * 1, "s": score, "sex": sex, "day": day})


ROWS = table()


def audit(data: pd.DataFrame = ROWS, **options: object) -> lh.AuditResult:
    given = {"time": data["day"], **options}
    return lh.audit(data["y"], data["p"], sensitive_features=data["sex"], replicates=100, **given)  # type: ignore[arg-type]


def test_dates_are_months_and_other_values_periods() -> None:
    dates = ["2024-03-31", "2024/3/1 10:00", date(2024, 3, 5), datetime(2024, 3, 5, 1), "2024-03", "2024-3"]
    values = [*dates, "2024-Q1", 7, "2024-3-123"]
    assert as_periods((np.arange(9), values))[1] == ["2024-03"] * 6 + ["2024-Q1", "7", "2024-3-123"]


PLACES = [
    ("9,10,11", [0, 1, 2]),
    ("1,2,10", [0, 1, 9]),
    ("2019,2020,2024", [0, 1, 5]),
    ("2024-01,2024-02,2024-10,2025-01", [0, 1, 9, 12]),
    ("2024-9,2024-10", [0, 1]),
    ("2024.9,2024.10,2025.1", [0, 1, 4]),
    ("2024.25,2024.5", [0, 1]),  # numbers
    ("2024-Q1,2024-Q2,2025-Q1", [0, 1, 4]),
    ("2024-W9,2024-W10", [0, 1]),
    ("2024-W01,2024-W52,2025-W01", [0, 51, 52]),
    ("2023/24,2024/25", [0, 1]),
    ("202411,202412,202501", [0, 1, 2]),  # codes
    ("20243,20244,20251", [0, 1, 2]),
    ("202451,202452,202501", [0, 1, 2]),
    ("20241231,20250101,20250102", [0, 1, 2]),
    ("2024-01,2024-04,2024-07", [0, 1, 2]),  # quarters, written as months
    ("2013B,2013J,2014B,2014J", [0, 1, 2, 3]),
    ("2013S1,2013S2,2014S1", [0, 1, 2]),
    ("2013-H2,2014-H1", [0, 1]),
    ("9 days,10 days", [0, 1]),
    ("2023 Q4,2024 Q1", [0, 1]),
    ("sales_9.csv,sales_10.csv", [0, 1]),
    ("2024-01", [0]),
]


@pytest.mark.parametrize(("periods", "places"), PLACES)
def test_periods_of_known_time_are_sorted_and_lie_where_they_are_in_time(periods: str, places: list[int]) -> None:
    given = periods.split(",")
    assert ordered(given[::-1]) == (given, True)
    assert places_of(given) == places


@pytest.mark.parametrize(
    "periods",
    [
        "March,April",
        "before,after",
        "12/2023,01/2024",  # as texts, January would come first
        "31.01.2024,01.02.2024",
        "2024 Jan,2024 Feb",
        "sales_9.csv,Sales_10.csv",
        "4Q2023,1Q2024",
        "2024/12,2024-11",
        "2024S,2024F",  # spring and fall
    ],
)
def test_periods_of_unknown_time_stay_in_the_order_of_the_rows(periods: str) -> None:
    given = periods.split(",")
    assert ordered(given[::-1]) == (given[::-1], False)
    assert places_of(given) == [0, 1]


WRITTEN = (
    "%Y-%m-%d", "%Y/%m/%d %H:%M", "%Y.%m.%d", "%Y%m%d", "%Y%m%d%H%M%S", "%Y-%m-%dT%H:%M:%S+02:00",
    "%Y%m%dT%H%M%SZ", "%s", "%s000", "%s123456", "%s123456789", "%s.5", "%d/%m/%Y", "%m/%d/%Y",
    "%d-%m-%Y %H:%M", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y", "%d%b%Y", "%Y-%b-%d",
    "%a, %d %b %Y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y", "%b %Y", "%m/%Y",
)  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN)
def test_dates_in_any_usual_writing_are_months(written: str) -> None:
    """As in an audit of these dates, in this order; numbers as texts."""
    rows = ROWS[::20].reset_index(drop=True)
    days = pd.DatetimeIndex(rows.day, tz="UTC")
    seconds = days.astype("int64") // 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[days.unit]
    texts = [day.strftime(written.replace("%s", str(at))) for day, at in zip(days, seconds, strict=True)]
    expected = audit(rows, time=rows.day.to_numpy()).over_time.to_dict()
    assert audit(rows, time=texts).over_time.to_dict() == expected
    if "%" not in written.replace("%s", "") or written == "%Y%m%d":
        numbers = pd.Series(texts, dtype=float if "." in written else int)
        assert audit(rows, time=numbers).over_time.to_dict()["by_attribute"] == expected["by_attribute"]


UNKNOWN = (
    "%a", "%B", "%d/%m/%y", "%y%m%d beside %Y", "Q{q} %Y", "%Y {season}", "%Y{term}", "{before}", "1/%m/%Y", "%j of %Y",
)  # fmt: skip


@pytest.mark.parametrize("written", UNKNOWN)
def test_periods_whose_order_is_not_known_make_no_trend(written: str) -> None:
    """Nor a chart, a finding or a change between two; a limit on them is refused."""
    rows = ROWS[::20].reset_index(drop=True)
    words = [
        written.format(
            q=(day.month + 2) // 3, season=("Spring", "Fall")[day.month // 7], term="SF"[day.month // 7],
            before=("before", "after")[day.month // 7],
        )
        for day in rows.day
    ]  # fmt: skip
    data = rows.assign(day=[day.strftime(word) for day, word in zip(rows.day, words, strict=True)])
    data = data[data.day.isin(data.day.unique()[:12])]
    result = audit(data)
    found = result.over_time
    (said,) = found.sentences()
    assert said.endswith(" is not known. Write dates as 2024-03-31, or numbers.")
    assert result.to_dict()["sentences"].count(said) == 1
    assert said not in result.warnings
    assert found.by_attribute == {"sex": ()}
    assert "control limits" not in result.to_html()
    for rate in ("selection_rate", "true_positive_rate"):
        with pytest.raises(ConfigError, match=f"'{rate}_slope > 1%': By sex, no "):
            result.require(f"{rate}_slope > 1%")


def test_a_growing_gap_is_found_with_its_figures() -> None:
    found = audit().over_time
    assert found is not None
    assert found.periods == tuple(f"2024-{month:02}" for month in range(1, 13))
    best = found.by_attribute["sex"][0]
    assert (best.group, best.reference) == ("f", "m")  # the largest group is the reference
    assert best.slope.high < 0
    rates = ROWS.assign(month=ROWS.day.dt.strftime("%Y-%m")).groupby(["month", "sex"])["p"].mean().unstack()
    selected = next(one for one in found.by_attribute["sex"] if one.rate == "selection_rate")
    assert [gap.difference.value for gap in selected.gaps] == pytest.approx(list(rates["f"] - rates["m"]), abs=1e-12)
    assert "the gap grows" in found.sentences()[0]
    assert audit(reference="f").over_time.by_attribute["sex"][0].group == "m"


def test_files_of_periods_and_scores_agree(tmp_path: Path) -> None:
    scored = lh.audit(ROWS["y"], scores=ROWS["s"], sensitive_features=ROWS["sex"], time=ROWS["day"], replicates=100)
    assert scored.over_time.to_dict() == audit().over_time.to_dict()
    paths = [tmp_path / f"{name}.csv" for name in MONTHS]
    for path, rows in zip(paths, MONTHS.values(), strict=True):
        rows.to_csv(path, index=False)
    expected = audit(BOTH).over_time.to_dict()["by_attribute"]
    for options in ({"prediction": "p"}, {"prediction": None, "score": "s", "threshold": 0.6}):
        found = lh.audit_table(paths, label="y", groups=["sex"], time="file", replicates=100, **options)
        assert found.over_time.to_dict()["by_attribute"] == expected


def test_without_change_one_sentence_says_what_could_not_be_seen() -> None:
    alike = pd.concat([month(seed, 1000, 0.3).assign(day=f"2024-0{seed}") for seed in (3, 4)], ignore_index=True)
    for data, none, unseen in (
        (table(drift=0.0, seed=3), "no gap changes measurably over 12 periods", "points per period"),
        (alike, "no rate and no gap changes measurably over 2 periods", "points"),
    ):
        first, second = audit(data).over_time.sentences()
        assert first == f"By sex, {none}."
        assert second.endswith(f" {unseen} cannot be detected with this many rows.")
    assert "over_time" not in lh.audit(alike["y"], alike["p"], sensitive_features=alike["sex"]).to_dict()


def test_several_classes_tiny_groups_one_group_and_one_period() -> None:
    label, answer = np.random.default_rng(0).choice(list("abc"), (2, len(ROWS)))
    several = audit(ROWS.assign(y=label, p=answer)).over_time
    assert [one.rate for one in several.by_attribute["sex"]] == ["accuracy"]
    rare = np.where(np.arange(len(ROWS)) < 8, "x", ROWS["sex"])
    assert {one.group for one in audit(ROWS.assign(sex=rare)).over_time.by_attribute["sex"]} == {"f"}
    alone = audit(ROWS.assign(sex="f"))
    assert alone.over_time.by_attribute["sex"] == ()
    assert alone.over_time.sentences() == [
        "By sex, no trend over 12 periods was measured: there are fewer than two groups."
    ]
    assert str(alone)
    one = audit(time=np.ones(len(ROWS), int))
    assert "all rows are of the period “1”" in one.over_time.sentences()[0]
    spelled = audit(time=np.where(np.arange(len(ROWS)) % 2, "2024 Q1", "2024 q1"))
    assert any("“2024 q1” and “2024 Q1” differ only in how" in said for said in spelled.warnings)
    assert one.to_html()


def test_why_there_is_no_trend_is_said_where_none_was_measured() -> None:
    """No trend of a column whose groups are too small in every period is not the same as no change."""
    sex, month = np.tile(["f"] * 5 + ["m"] * 15, 12), np.repeat([f"2024-{at:02d}" for at in range(1, 13)], 20)
    data = pd.DataFrame(
        {"y": np.tile(["no", "yes"], 120), "p": np.where(sex == "f", "no", "yes"), "sex": sex, "day": 1}
    )
    decided = lh.audit(None, data["p"], sensitive_features={"sex": sex}, time=month, favourable="yes")
    for to, found in (("the largest group", audit(data, time=month)), ("the reference group “m”", decided)):
        (said,) = found.over_time.sentences()
        assert f"was measured: no period has 10 rows of both {to} and another group." in said
        assert found.to_dict()["sentences"].count(said) == 1
        assert said not in found.warnings
        assert "causes" not in found.to_dict()["over_time"]
    month = np.where(np.arange(240) < 5, 2, np.arange(240) % 2)
    two = audit(data, time=month).over_time
    assert "over 3 periods was measured: fewer than 3 periods have 10 rows of both" in two.sentences()[0]


@pytest.mark.parametrize("reference", ["f", "m"])
@pytest.mark.parametrize(("drift", "growing"), [(0.03, True), (-0.03, True), (0.0, False)])
def test_a_limit_on_a_slope_asks_whether_the_gap_grows_whichever_group_is_ahead(
    reference: str, drift: float, growing: bool
) -> None:
    found = audit(table(drift=drift), reference=reference)
    asked = ("selection_rate_slope.low > 0.5%", "selection_rate_slope.high < 0", "selection_rate_slope < -2%")
    assert [check(found, [Condition.parse(one)]).answer for one in asked] == ["yes" if growing else "no", "no", "no"]


@pytest.mark.parametrize("small", [0, 4])
def test_a_slope_is_per_period_also_beside_periods_without_rows(small: int) -> None:
    """The gap is a point a month, and the months from April to September have few rows or none."""
    rows = []
    for month in range(1, 13):
        each = 1000 if month in (1, 2, 3, 10, 11, 12) else small
        hits = 500 - 10 * (month - 1) if each == 1000 else 0
        rows += [("f", month, at < hits) for at in range(each)] + [("m", month, at < each // 2) for at in range(each)]
    data = pd.DataFrame(rows, columns=["sex", "month", "p"])
    day = [f"2024-{month:02}-15" for month in data["month"]]
    found = lh.audit(data["p"] * 1, data["p"] * 1, sensitive_features=data["sex"], time=day, replicates=100)
    (one,) = [one for one in found.findings["over_time"].by_attribute["sex"] if one.rate == "selection_rate"]
    assert abs(one.slope.value) == pytest.approx(0.01, abs=1e-6)
    assert np.abs(one.line) == pytest.approx((0, 0.11), abs=1e-6)


def month(seed: int, rows: int, harm: float) -> pd.DataFrame:
    """One of two months: women's true positive rate is lower by as much as ``harm`` says."""
    rng = np.random.default_rng(seed)
    sex, label = rng.choice(["f", "m"], rows, p=[0.4, 0.6]), rng.random(rows) < 0.5
    score = 1 / (1 + np.exp(-rng.normal(label * 1.5 - harm * (sex == "f") * label)))
    return pd.DataFrame({"y": label * 1, "p": (score > 0.6) * 1, "s": score, "sex": sex})


MONTHS = {"2024-05": month(1, 2500, 0.0), "2024-06": month(0, 3000, 1.0)}
BOTH = pd.concat([rows.assign(day=name) for name, rows in MONTHS.items()], ignore_index=True)
OF_RATES = {
    ("f", "selection_rate"): (-0.1473214824809344, -0.2021060801359848, -0.09147193094363881),
    ("m", "selection_rate"): (0.0025128323920321494, -0.04263480316883048, 0.04780268411203538),
    ("f", "true_positive_rate"): (-0.3545029276985743, -0.41782624746988606, -0.2858238413955618),
    ("m", "true_positive_rate"): (0.01127152988855118, -0.03301748578411168, 0.05624490350659687),
    ("f", "false_positive_rate"): (0.031029203956665086, -0.044051549781696744, 0.10534688579732679),
    ("m", "false_positive_rate"): (0.030516524317445337, -0.032359595946071476, 0.09258527978185883),
}
"""Value and ends of each change, by Newcombe's interval at the level that six share."""
OF_GAPS = {
    "selection_rate": (-0.14983431487296656, -0.22091541509690538, -0.07801870790864783),
    "true_positive_rate": (-0.36577445758712546, -0.44344328763784874, -0.2840533843888982),
    "false_positive_rate": (0.0005126796392197486, -0.09690215489239404, 0.09786012096954978),
}


def ends(one: lh.Estimate) -> tuple[float, float, float]:
    return one.value, one.low, one.high


def test_two_periods_have_the_change_of_each_rate_and_gap() -> None:
    result = audit(BOTH)
    found = result.over_time
    assert found.comparisons == 6
    changes = found.changes["sex"]
    assert {(one.group, one.rate): ends(one.change) for one in changes} == {
        name: pytest.approx(figures, abs=1e-12) for name, figures in OF_RATES.items()
    }
    trends = found.by_attribute["sex"]
    assert {one.rate: ends(one.slope) for one in trends} == {
        rate: pytest.approx(figures, abs=1e-12) for rate, figures in OF_GAPS.items()
    }
    for one in trends:
        assert one.line == tuple(gap.difference.value for gap in one.gaps)
        assert not any(gap.outside for gap in one.gaps)
    (lost,) = [one for one in changes if (one.group, one.rate) == ("f", "true_positive_rate")]
    hits = [rows[(rows.sex == "f") & (rows.y == 1)].p.mean() for rows in MONTHS.values()]
    assert (lost.first, lost.last) == pytest.approx(tuple(hits))
    assert [one.group for one in changes if one.change.excludes_zero] == ["f", "f"]
    frame = result.to_frame()
    assert frame[frame.figure == "true_positive_rate_change"].group.tolist() == ["f", "m"]
    record = json.loads(json.dumps(result.to_dict()))["over_time"]["by_attribute"]["sex"]
    assert len(record["changes"]) == 6
    assert record["sentences"] == found.sentences()
    assert len(found.sentences()) == 4


def test_decisions_of_two_periods_and_the_limits_of_a_gate() -> None:
    decided = lh.audit(None, BOTH["p"], sensitive_features=BOTH["sex"], time=BOTH["day"], favourable=1).over_time
    assert len(decided.changes["sex"]) == decided.comparisons == 2
    assert decided.by_attribute["sex"][0].slope.value == pytest.approx(OF_GAPS["selection_rate"][0])
    found = audit(BOTH)
    for page in (" ".join(found.text(all=True).split()), found.to_html()):
        assert "in 2024-05 to" in page
    limits = ("slope > 25%", "change < -0.25", "change < -0.5")
    asked = [Condition.parse(f"true_positive_rate_{limit}") for limit in limits]
    assert [check(found, [one]).answer for one in asked] == ["yes", "yes", "no"]


def test_groups_that_one_of_two_periods_lacks_are_named() -> None:
    rare = BOTH[(BOTH.day == "2024-06") | (BOTH.sex == "m") | (BOTH.index < 5)].reset_index(drop=True)
    result = audit(rare)
    assert {one.group for one in result.over_time.changes["sex"]} == {"m"}
    assert result.over_time.by_attribute["sex"] == ()
    assert "sex: groups without 10 rows in both periods are not compared: “f”." in result.warnings
    few = "not both periods have 10 rows of both the largest group and another group"
    assert f"By sex, no change over 2 periods was measured: {few}." in result.to_dict()["sentences"]
