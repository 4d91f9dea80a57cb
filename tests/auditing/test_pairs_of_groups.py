"""The engine: which pairs of groups are made, how many comparisons they share, in which order, and which are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from levelhead.auditing.engine import NAMED_PAIRS, Quantity, compare, headline
from levelhead.metrics.between import Differences
from levelhead.report.headline import Lead
from levelhead.types import Estimate


def quantity(value: list[float], arm: float | list[float] = 0.1, **more: Any) -> Quantity:
    """Return a figure whose differences are as sure as ``arm`` times the number of comparisons."""
    known = np.array(value, float)

    def apart(first: Any, second: Any, *, level: float, comparisons: int) -> Differences:
        off, reach = known[first] - known[second], np.broadcast_to(arm, len(first)) * comparisons
        return Differences(off, off - reach, off + reach)

    groups = [f"g{at}" for at in range(len(value))]
    return Quantity("sex", "rate", groups, known, np.full(len(value), 9), apart, **more)


def test_intervals_allow_for_the_pairs_of_all_quantities() -> None:
    found = compare([quantity([0.1, 0.5]), quantity([0.3, 0.4, 0.5], reference="g1")], level=0.95)
    assert found.comparisons == 3
    widths = {round(pair.difference.high - pair.difference.low, 9) for pair in found.pairs}
    assert widths == {0.6}
    assert {pair.difference.n for pair in found.pairs} == {18}


@pytest.mark.parametrize(
    ("more", "first", "value"),
    [({}, "g1", 0.4), ({"larger_first": False}, "g0", -0.4), ({"reference": "g1"}, "g0", -0.4)],
)
def test_the_group_that_fares_worse_comes_first_and_a_reference_second(
    more: dict[str, Any], first: str, value: float
) -> None:
    (pair,) = compare([quantity([0.1, 0.5], **more)], level=0.95).pairs
    assert (pair.first.group, pair.difference.value) == (first, pytest.approx(value))
    assert pair.difference.low < pair.difference.value < pair.difference.high


def test_decided_pairs_come_first_then_those_of_a_lower_rank_then_the_largest() -> None:
    low, high = quantity([0.1, 0.5], [0.01]), quantity([0.1, 0.9, 0.2], [0.9, 0.01, 0.01], rank=1)
    found = [
        (pair.rank, pair.decided, round(pair.difference.value, 9)) for pair in compare([high, low], level=0.9).pairs
    ]
    assert found == [(0, True, 0.4), (1, True, 0.7), (1, True, 0.1), (1, False, 0.8)]


def test_what_is_kept_bounds_all_pairs() -> None:
    """40 pairs: the first ten, and the one whose interval ends farthest, which is neither large nor decided."""
    values, arms = list(np.linspace(1, 0.01, 40)), [1e-4] * 39 + [1.0]
    found = compare([quantity([*values, 0.0], arms, reference="g40")], level=0.95)
    assert (len(found.pairs), found.comparisons) == (NAMED_PAIRS + 1, 40)
    assert max(pair.difference.high for pair in found.pairs) == pytest.approx(40.01)


def test_no_pair_is_made_where_there_is_none_to_compare() -> None:
    missing = quantity([0.1, 0.5], reference="another")
    without = quantity([0.1, 0.5, 0.9], [np.nan] * 3)
    some = quantity([0.1, 0.5, 0.9], compared=np.array([False, True, False]))
    found = compare([missing, without, some], level=0.95)
    assert found.comparisons == 4
    assert [(pair.first.group, pair.second.group) for pair in found.pairs] == [("g2", "g0")]


def lead(said: str, column: str, quantity: str, value: float, *, decided: bool = True) -> Lead:
    reach = abs(value) / 2 if decided else 1.0
    return Lead((said,), "", column, quantity, difference=Estimate(value, value - reach, value + reach, 10))


def test_the_headline_is_decided_then_about_the_plain_finding_then_the_largest() -> None:
    plain = quantity([0.1, 0.5]).pair(1, 0, 0.4, 0.3, 0.5).about
    leads = [
        lead("large, of another column", "race", "rate", 0.9),
        lead("larger, of another rate", "sex", "other", 0.9),
        lead("smaller, of the rate", "sex", "rate", -0.1),
        lead("larger, of the rate", "sex", "rate", -0.2),
        lead("inconclusive", "age", "rate", 0.9, decided=False),
        Lead(("not measured",), "", "age"),
    ]
    said = [[one.sentence for one in headline(leads, about)] for about in (plain, None)]
    assert said[0] == ["larger, of the rate", "large, of another column", "inconclusive"]
    assert said[1] == ["large, of another column", "larger, of another rate", "inconclusive"]
