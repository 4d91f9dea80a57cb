"""Predicted numbers from frequency tables, and beyond limits."""

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import written
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


def test_a_frequency_table_has_the_figures_of_its_rows(folder_of_its_own: None) -> None:
    frame = rows(150)
    frame["age"], frame["n"] = np.arange(150.0) % 40, np.arange(150) % 4
    every = frame.loc[frame.index.repeat(frame.n)]
    expected, found = (
        audited(one, along=one[["age"]], counts=counts).to_dict() for one, counts in ((every, None), (frame, frame.n))
    )
    assert found.pop("reading") == ["Frequency table: n counts 223 people in all."]
    assert numbers(found) == pytest.approx(numbers(expected), rel=1e-9, abs=1e-9, nan_ok=True)
    parts = [written(frame[:70], "one.csv"), written(frame[70:], "two.csv")]
    whole, several = (
        lh.audit_table(file, label="y", prediction="p", groups=["sex", "branch"], count="n", numbers=True).to_dict()
        for file in (written(frame, "all.csv"), parts)
    )
    assert numbers(several) == pytest.approx(numbers(whole), nan_ok=True)


def numbers(found: object) -> list[float]:
    if isinstance(found, dict):
        return [one for value in found.values() for one in numbers(value)]
    if isinstance(found, (list, tuple)):
        return [one for value in found for one in numbers(value)]
    return [float(found)] if isinstance(found, (int, float)) else []


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
        numbers=True,
    )
    assert check(found, [Condition.parse("mean_error_difference > 4")]).answer == "undecided"
    assert check(found, [Condition.parse("mean_error_difference > 40")]).answer == "no"
    kept = [(one.column, one.quantity) for one in found.pairs]
    assert {kept.count(one) for one in kept} <= {10, 11, 12}
