"""Audits of rankings without outcomes: figures, ties, hostile columns, the command."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import levelhead as lh
from levelhead.auditing.ranking import ranking_leads
from levelhead.metrics.top import TopLaw


def drawn(seed: int, rows: int = 300, shift: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    return rng.normal(shift * (group == "a")), group


def audited(score: Any, group: Any, top: Any, **options: Any) -> Any:
    return lh.audit(None, scores=score, sensitive_features={"g": group}, top=top, **options)


def groups_of(score: Any, group: Any, top: Any, **options: Any) -> Any:
    return audited(score, group, top, **options).by_attribute["g"].groups


def test_ties_at_the_cut_are_said_and_shared() -> None:
    score, group = np.repeat([2, 1], [10, 90]), np.array(["a", "b"] * 50)
    result, order = audited(score, group, 40), np.random.default_rng(0).permutation(100)
    assert {one.in_top for one in result.by_attribute["g"].groups.values()} == {20.0}
    assert result.warnings[-1].startswith("90 rows tie at the cut (score 1) for 30 places")
    assert audited(score[order], group[order], 40).to_dict() == result.to_dict()  # no order of the file decides


def test_the_first_places_can_be_the_lowest_and_a_share() -> None:
    score, group = drawn(1)
    lowest = groups_of(stats.rankdata(-score), group, "lowest:10%")
    assert lowest == groups_of(score, group, 30)


def test_small_absent_and_lonely_groups_are_said() -> None:
    score, group = drawn(3)
    group = np.where(np.arange(300) < 5, "tiny", group).astype(object)
    group[5:20] = None
    result = audited(score, group, 50)
    assert any("“tiny” has 5 rows, fewer than 10" in said for said in result.warnings)
    assert any("15 rows without a group are not compared" in said for said in result.warnings)
    assert not result.by_attribute["g"].groups["tiny"].included
    alone = audited(score, ["one"] * 300, 50)
    assert alone.by_attribute["g"].groups["one"].representation.reason == "too few rows to be compared"
    assert "there is nothing to compare" in alone.warnings[0]
    assert "There is only one group" in str(alone)
    found = groups_of(np.arange(100.0), np.repeat(["low", "high"], 50), 20, reference="low")
    assert found["high"].selection_ratio.reason == "no row of the reference group is in the top"
    assert found["low"].representation.value == 0 < found["low"].representation.high


def test_two_groups_are_one_figure_only_where_they_are_all_rows() -> None:
    """What one of two has in the top says what the other has; beside rows without a group it does not."""
    score, half = np.arange(400)[::-1] % 397, ["x", "y"] * 100
    alone, beside = groups_of(score[:200], half, 40)["x"], groups_of(score, [*half, *[None] * 200], 40)["x"]
    law = TopLaw(100, 400, 40)
    assert beside.p_value == min(1.0, 2 * law.p_value(beside.in_top))
    low, high = law.expected(beside.in_top, 0.025)
    assert (beside.share_of_top.low, beside.share_of_top.high) == pytest.approx((low / 40, high / 40))
    assert alone.p_value == min(1.0, TopLaw(100, 200, 40).p_value(alone.in_top))


def test_beside_rows_without_a_group_both_of_two_groups_are_named() -> None:
    """Neither group's share of the top follows from the other's: both may hold more than their share."""
    group, last = ["a"] * 100 + ["b"] * 100, np.full(60, -5.0) - np.arange(60)
    score = np.random.default_rng(1).permutation(np.arange(200.0))
    ahead = np.where(np.array(group) == "a", 300.0, 0.0) + score
    both, first, alone = (
        [one.sentence for one in ranking_leads(audited(*given))]
        for given in (
            (np.r_[score, last], [*group, *[None] * 60], 150),
            (np.r_[ahead, last], [*group, *[None] * 60], 110),
            (ahead, group, 110),
        )
    )
    assert {one.split(" ")[0] for one in both} == {"a", "b"}
    assert len(both) == 2
    assert "b holds 9.1% of the first 110 places" in first[0]
    assert [one.split(" ")[0] for one in alone] == ["b"]
