"""Predicted numbers within levels, and from frequency tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run, said, written
from levelhead.report.gate import Condition, check


def rows(count=600, seed=0):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"id": np.arange(count), "sex": draw.choice(["f", "m"], count)})
    # Women are in the branch whose prices are hard to guess; within a branch both are alike.
    frame["branch"] = np.where(draw.random(count) < np.where(frame.sex == "f", 0.8, 0.2), "hard", "easy")
    frame["y"] = draw.normal(100, 20, count)
    frame["p"] = frame.y + draw.normal(0, np.where(frame.branch == "hard", 10, 1))
    return frame


def audited(frame, **options):
    return lh.audit(frame.y, frame.p, sensitive_features=frame[["sex"]], numbers=True, **options)


def test_a_difference_that_a_branch_explains_is_gone_within_it() -> None:
    frame = rows()
    found = audited(frame, control_features=frame[["branch"]])
    assert found.control is not None
    pair = next(one for one in found.control["pairs"] if one["rate"] == "mean_absolute_error")
    size = np.abs(frame.p - frame.y)
    within = {name: size[frame.branch == name].groupby(frame.sex).mean() for name in ("easy", "hard")}
    share = frame.branch.value_counts(normalize=True)
    expected = sum(share[name] * (within[name]["f"] - within[name]["m"]) for name in within)
    assert abs(pair["difference"]) == pytest.approx(abs(expected))
    means = size.groupby(frame.sex).mean()
    assert abs(pair["plain"]) == pytest.approx(means["f"] - means["m"])
    assert (len(pair["levels"]), pair["covered"]) == (2, 1.0)
    assert pair["low"] < 0 < pair["high"]
    assert found.pairs[0].decided
    assert found.control["sentences"][0] in found.to_dict()["sentences"]


def test_levels_that_hold_one_group_or_few_rows_and_rows_without_a_level_are_left_out() -> None:
    frame = rows()
    frame.loc[:4, "branch"] = "tiny"
    frame.loc[(frame.sex == "f") & (frame.branch == "easy"), "branch"] = "hers"
    found = audited(frame, control_features={"branch": frame.branch.where(frame.id > 20)})
    assert {len(one["levels"]) for one in found.control["pairs"]} == {1}
    assert any("branch: 21 rows have no value" in one for one in found.warnings)
    nobody = audited(frame, control_features={"branch": frame.sex})
    assert "there is nothing to compare" in nobody.control["sentences"][0]
    half = audited(frame, control_features={"branch": rows().branch.where(frame.id < 300)})
    assert half.warnings[-1].startswith("branch: 300 rows have no value and are left out")
    assert "2 of 2 strata with 100.0% of the rows" in half.control["sentences"][1]


def test_a_frequency_table_has_the_figures_of_its_rows(folder_of_its_own: None) -> None:
    frame = rows(150)
    frame["age"], frame["n"] = np.arange(150.0) % 40, np.arange(150) % 4
    every = frame.loc[frame.index.repeat(frame.n)]
    expected, found = (
        audited(one, control_features=one[["branch"]], along=one[["age"]], counts=counts).to_dict()
        for one, counts in ((every, None), (frame, frame.n))
    )
    assert found.pop("reading") == ["Frequency table: n counts 223 people in all."]
    assert numbers(found) == pytest.approx(numbers(expected), rel=1e-9, abs=1e-9, nan_ok=True)
    parts = [written(frame[:70], "one.csv"), written(frame[70:], "two.csv")]
    whole, several = (
        lh.audit_table(
            file, label="y", prediction="p", groups=["sex"], control=["branch"], count="n", numbers=True
        ).to_dict()
        for file in (written(frame, "all.csv"), parts)
    )
    assert numbers(several) == pytest.approx(numbers(whole), nan_ok=True)


def numbers(found: object) -> list[float]:
    if isinstance(found, dict):
        return [one for value in found.values() for one in numbers(value)]
    if isinstance(found, (list, tuple)):
        return [one for value in found for one in numbers(value)]
    return [float(found)] if isinstance(found, (int, float)) else []


def test_the_command_line_has_them_all(folder_of_its_own: None, capsys: pytest.CaptureFixture[str]) -> None:
    frame = rows(300).assign(n=2)
    written(frame, "new.csv")
    line = "audit new.csv --label y --prediction p --group sex --numbers --control branch --count n "
    assert run(*line.split(), "--html", "page.html") == 0
    printed = said(capsys)
    assert "Within strata of branch" in printed
    assert "Mean absolute error" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [1, 2])
def test_a_pair_whose_interval_goes_beyond_a_limit_is_kept_of_each_column(columns: int) -> None:
    """Nine large groups have 36 decided pairs; the tenth has few rows, and its intervals go beyond the limit."""
    rng = np.random.default_rng(0)
    codes = np.r_[np.repeat(np.arange(9), 400), np.full(12, 9)]
    few = codes == 9
    noise = rng.normal(0, np.where(few, 4, 1))
    noise[few] -= noise[few].mean()
    label, gap = rng.normal(0, 10, len(codes)), np.where(few, 0.8, 0.2 * codes)
    other = np.r_[np.tile(np.arange(9), 400), np.arange(12) % 9]
    groups = {"g": np.char.add("g", codes.astype(str)), "h": np.char.add("h", other.astype(str))}
    groups = dict(list(groups.items())[:columns])
    prediction = label + gap + 0.2 * other * (columns == 2) + noise
    found = lh.audit(
        label,
        prediction,
        sensitive_features=groups,
        control_features={"dep": np.full(len(label), "x")},
        numbers=True,
    )
    assert found.control is not None
    for name in ("mean_error_difference", "mean_error_difference_within_levels"):
        assert check(found, [Condition.parse(f"{name} > 4")]).answer == "undecided"
        assert check(found, [Condition.parse(f"{name} > 40")]).answer == "no"
    kept = [(one.column, one.quantity) for one in found.pairs]
    assert {kept.count(one) for one in kept} <= {10, 11, 12}
    assert "Within strata of dep, the mean error is " in found.control["sentences"][0]


def test_a_mean_absolute_error_without_an_interval_leaves_the_other_means_within_levels() -> None:
    """Errors are 2 or -2: their size is constant, their mean is not."""
    sex = np.tile(["f", "m"], 100)
    error = np.where(np.arange(200) % np.where(sex == "f", 3, 5) == 0, -2.0, 2.0)
    label = np.arange(200.0)
    found = lh.audit(label, label + error, sensitive_features=sex, control_features={"dep": ["x"] * 200}, numbers=True)
    assert found.control is not None
    assert found.control["sentences"][0].startswith("Within strata of dep, the mean error is ")
