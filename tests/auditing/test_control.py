"""Gaps within the levels of a control column: averages by hand, the reversal of a gap, small cells, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.report import render
from levelhead.report.one_page import one_page


def rows(counts: dict[tuple[str, str, int, int], int]) -> pd.DataFrame:
    """Return rows of (sex, dep, y, yhat)."""
    made = [key for key, count in counts.items() for _ in range(count)]
    return pd.DataFrame(made, columns=["sex", "dep", "y", "yhat"])


def reversed_gap() -> pd.DataFrame:
    """Return rows in which women are selected less over all, and more in each of two departments."""
    return rows(
        {
            ("f", "law", 1, 1): 100, ("f", "law", 1, 0): 300, ("m", "law", 1, 1): 20, ("m", "law", 1, 0): 80,
            ("f", "sci", 1, 1): 80, ("f", "sci", 1, 0): 20, ("m", "sci", 1, 1): 300, ("m", "sci", 1, 0): 100,
            ("f", "law", 0, 0): 20, ("m", "law", 0, 0): 20, ("f", "sci", 0, 0): 20, ("m", "sci", 0, 0): 20,
        }
    )  # fmt: skip


def audited(frame: pd.DataFrame, **options: Any) -> lh.AuditResult:
    return lh.audit(
        frame["y"], frame["yhat"], sensitive_features=frame[["sex"]], control_features=frame["dep"], **options
    )


def within(frame: pd.DataFrame, **options: Any) -> dict[str, Any]:
    return dict(audited(frame, **options).more["control"])


def pair_of(found: dict[str, Any], rate: str) -> dict[str, Any]:
    return next(pair for pair in found["pairs"] if pair["rate"] == rate)


def test_the_difference_without_levels_is_over_the_same_rows() -> None:
    """In department art there are no men: its 400 women are in neither figure."""
    frame = pd.concat([reversed_gap(), rows({("f", "art", 1, 1): 400})])
    one, other = (pair_of(within(found), "selection_rate") for found in (reversed_gap(), frame))
    assert other["left_out"] == ["art"]
    assert other["difference"] == pytest.approx(one["difference"])
    assert other["plain"] == pytest.approx(one["plain"])
    assert "Without strata, over the same rows, the difference is" in " ".join(within(frame)["sentences"])


def test_the_average_by_hand() -> None:
    pair = pair_of(within(reversed_gap()), "true_positive_rate")
    share = 540 / 1080  # law has 440 + 120 - 20 = 540 rows: 400 + 20 women, 100 + 20 men
    assert [level["share"] for level in pair["levels"]] == pytest.approx([share, 1 - share])
    value = share * (0.2 - 0.25) + (1 - share) * (0.75 - 0.8)
    assert pair["difference"] == pytest.approx(value)
    assert (pair["first"]["group"], pair["second"]["group"]) == ("m", "f")
    assert pair["plain"] == pytest.approx(320 / 500 - 180 / 500)
    # The normal interval with one hit and one miss more in each cell; three comparisons share the error probability.
    cells = [(101 / 402, 400), (21 / 102, 100), (81 / 102, 100), (301 / 402, 400)]
    reach = stats.norm.isf(0.025 / 3) * np.sqrt(sum(0.25 * one * (1 - one) / count for one, count in cells))
    assert pair["low"] == pytest.approx(value - reach)


def test_one_level_gives_the_interval_of_the_pair() -> None:
    result = audited(reversed_gap().assign(dep="all"))
    own = pair_of(result.more["control"], "true_positive_rate")
    assert own["difference"] == pytest.approx(result.more["pairs"][0]["difference"]["value"])
    level = own["levels"][0]
    assert level["low"] - 0.01 < own["low"] <= level["low"]
    assert level["high"] <= own["high"] < level["high"] + 0.01


def test_levels_with_too_few_rows_or_none_are_named() -> None:
    few = rows({("f", "art", 1, 1): 3, ("m", "art", 1, 0): 4, ("f", None, 1, 1): 5})
    result = audited(pd.concat([reversed_gap(), few]), missing="leave out")
    page = render(one_page(result.to_dict()))
    for said in (
        "This averages 2 of 3 strata with 99.4% of the rows, weighted by size.",
        "has fewer than 10 rows there: “art”.",
        "dep: 5 rows without a value left out",
    ):
        assert said in " ".join(result.text(all=True).split())
        assert said in page


def test_a_reference_stands_second_and_missing_groups_are_left_out() -> None:
    frame = reversed_gap()
    frame.loc[::50, "sex"] = None
    found = within(frame, reference="f", missing="leave out")
    assert {pair["second"]["group"] for pair in found["pairs"]} == {"f"}


def test_levels_with_few_rows_alone_are_said_to_decide_nothing() -> None:
    frame = reversed_gap().assign(dep=lambda one: [f"d{at // 15}" for at in range(len(one))])
    (said,) = within(frame.iloc[:600])["sentences"]
    assert said.startswith("Within strata of dep there is nothing to compare")
