"""Intervals of many pairs by max-|t|: never wider than Bonferroni's, the same every time, and jointly right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import levelhead as lh
from levelhead.metrics.between import PairBlock, comparisons_by_max_t, differences, normal_quantile
from levelhead.types import ConfigError


def block(rows: list[int], rate: float = 0.3) -> PairBlock:
    first, second = np.triu_indices(len(rows), 1)
    return PairBlock(np.round(np.array(rows) * rate).astype(int), np.array(rows), first, second)


def test_one_pair_needs_no_allowance() -> None:
    assert comparisons_by_max_t([block([100, 200])]) == 1


@pytest.mark.parametrize("groups", [3, 4, 8])
def test_equal_groups_have_the_studentized_range(groups: int) -> None:
    # The largest of all |t| of equal groups is the studentized range over the root of 2 (Tukey).
    allowed = comparisons_by_max_t([block([500] * groups)])
    critical = normal_quantile(1 - 0.05 / allowed)
    assert critical == pytest.approx(stats.studentized_range.ppf(0.95, groups, np.inf) / 2**0.5, abs=0.05)
    assert 1 < allowed < groups * (groups - 1) / 2


def test_pairs_that_share_a_noisy_group_need_less_allowance() -> None:
    # Of rates of 5%, 50% and 95% the one in the middle varies most, and both pairs have it.
    rows, hits = np.array([400, 400, 400]), np.array([20, 200, 380])
    first, second = np.array([0, 1]), np.array([1, 2])
    allowed = comparisons_by_max_t([PairBlock(hits, rows, first, second)])
    share = (hits + 0.5) / (rows + 1)
    variance = share * (1 - share)
    together = -variance[1] / np.sqrt((variance[0] + variance[1]) * (variance[1] + variance[2]))
    drawn = np.random.default_rng(0).multivariate_normal([0, 0], [[1, together], [together, 1]], 1_000_000)
    critical = np.quantile(np.abs(drawn).max(1), 0.95)
    assert together < -0.8
    assert allowed == pytest.approx(0.05 / (2 * stats.norm.sf(critical)), rel=0.04)


def test_it_is_never_wider_and_always_the_same() -> None:
    blocks = [block([50, 60, 300, 20]), block([30, 90, 200, 40], 0.05)]
    allowed = comparisons_by_max_t(blocks, seed=4)
    assert allowed == comparisons_by_max_t(blocks, seed=4)
    for one in blocks:
        narrow, wide = (differences(*one, comparisons=count) for count in (allowed, 12))
        assert (narrow.low >= wide.low).all()
        assert (narrow.high <= wide.high).all()


def test_too_many_groups_are_allowed_for_by_their_number() -> None:
    assert comparisons_by_max_t([block([50] * 33)]) == 33 * 32 / 2


def test_all_pairs_hold_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelhead.metrics.between.MOST_DRAWS", 20_000)
    chance, rows = np.random.default_rng(0), np.array([60, 80, 100, 150, 300])
    first, second = np.triu_indices(5, 1)
    held = 0
    for _ in range(150):
        hits = chance.binomial(rows, 0.3)
        allowed = comparisons_by_max_t([PairBlock(hits, rows, first, second)])
        found = differences(hits, rows, first, second, comparisons=allowed)
        held += bool(((found.low <= 0) & (found.high >= 0)).all())
    assert held / 150 >= 0.93


def test_an_audit_says_how_it_allows_for_pairs() -> None:
    chance = np.random.default_rng(0)
    labels, groups = chance.integers(0, 2, 1200), chance.choice(list("abcd"), 1200)
    predictions = np.where(chance.random(1200) < 0.8, labels, 1 - labels)
    plain, other = (
        lh.audit(labels, predictions, sensitive_features={"g": groups}, adjust=how) for how in ("bonferroni", "max-t")
    )
    wide, narrow = (one.more["finding"]["pair"]["difference"] for one in (plain, other))
    assert narrow["value"] == wide["value"]
    assert wide["low"] < narrow["low"]
    assert narrow["high"] < wide["high"]
    said = "Intervals are adjusted for 12 comparisons"
    assert f"{said} (max-|t|)." in " ".join(other.text(all=True).split())
    assert f"{said} (Bonferroni)." in " ".join(plain.text(all=True).split())
    assert "(max-|t|)" in other.to_html()
    with pytest.raises(ConfigError, match="adjust='holm' is unknown"):
        lh.audit(labels, predictions, sensitive_features={"g": groups}, adjust="holm")


def test_with_very_many_groups_the_answer_says_that_it_is_bonferroni() -> None:
    rng = np.random.default_rng(3)
    groups = np.repeat([f"g{group}" for group in range(33)], 60)
    labels, predictions = rng.integers(0, 2, (2, len(groups)))
    result = lh.audit(labels, predictions, sensitive_features={"g": groups}, adjust="max-t")
    assert result.to_dict()["finding"]["adjust"] == "bonferroni"
    assert "max-|t|" not in result.text(all=True)


def test_comparisons_are_those_of_the_drawn_quantile() -> None:
    """The same draws, pair by pair, and a quantile three standard errors further out."""
    block = PairBlock(np.array([5, 9, 30]), np.array([20, 30, 50]), np.array([0, 0, 1]), np.array([1, 2, 2]))
    other = PairBlock(np.array([7, 8]), np.array([20, 30]), np.array([0]), np.array([1]))
    rng, largest = np.random.default_rng([6, 5]), np.zeros(200_000)
    for one in (block, other):
        share = (one.hits + 0.5) / (one.rows + 1)
        spread = np.sqrt(share * (1 - share) / (one.rows + 1))
        noise = rng.standard_normal((200_000, len(spread))) * spread
        for i, j in zip(one.first, one.second, strict=True):
            t = np.abs(noise[:, i] - noise[:, j]) / math.hypot(spread[i], spread[j])
            largest = np.maximum(largest, t)
    rank = math.ceil(200_000 * 0.9 + 3 * math.sqrt(200_000 * 0.9 * 0.1))
    critical = np.sort(largest)[rank - 1]
    expected = 0.1 / (2 * stats.norm.sf(critical))
    assert 1 < expected < 4
    assert comparisons_by_max_t([block, other], level=0.9, seed=6) == pytest.approx(expected, rel=1e-9)


def test_no_pair_is_one_comparison_and_too_many_groups_are_not_drawn() -> None:
    assert comparisons_by_max_t([]) == 1.0
    wide = PairBlock(np.full(33, 5), np.full(33, 20), np.arange(32), np.arange(1, 33))
    assert comparisons_by_max_t([wide]) == 32.0
    narrow = PairBlock(np.full(32, 5), np.full(32, 20), np.arange(31), np.arange(1, 32))
    assert comparisons_by_max_t([narrow]) < 31.0
    single = PairBlock(np.array([5, 9]), np.array([20, 30]), np.array([0]), np.array([1]))
    assert comparisons_by_max_t([single]) == 1.0
