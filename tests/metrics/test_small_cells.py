"""Cells of a few rows: intervals hold the truth there too, and 300 groups take no minutes."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy import special, stats

from levelhead.metrics import Counts, compare, estimate, estimate_all
from levelhead.metrics.contrasts import FEW, Contrasts, Enough, _pairs
from levelhead.metrics.group import Rate
from levelhead.metrics.intervals import _lowest_rate, _shuffle
from levelhead.types import Estimate

CLASSES = ("no", "yes")


def draw(rng: np.random.Generator, sizes: list[int], positives: float, tpr: list[float], fpr: list[float]) -> Counts:
    shares = np.array(
        [
            [(1 - positives) * (1 - alarms), (1 - positives) * alarms, positives * (1 - found), positives * found]
            for found, alarms in zip(tpr, fpr, strict=True)
        ]
    )
    return Counts(rng.multinomial(sizes, shares).reshape(-1, 2, 2), tuple(range(len(sizes))), CLASSES)


def held(figure: Estimate, truth: float) -> bool:
    return figure.low - 1e-12 <= truth <= figure.high + 1e-12


@pytest.mark.parametrize("name", ["equal_opportunity", "equalized_odds"])
@pytest.mark.slow
def test_cells_of_three_rows_show_a_gap_where_there_is_none_as_seldom_as_the_level_says(name: str) -> None:
    rng = np.random.default_rng(0)
    tables = [draw(rng, [30] * 6, 0.1, [0.65] * 6, [0.2] * 6) for _ in range(300)]
    figures = [figure for table in tables if (figure := estimate(table, name, replicates=200)).defined]
    assert len(figures) > 200  # the others lack the positives of some group
    wrong = sum(not held(figure, 0.0) for figure in figures)
    assert wrong <= stats.binom.ppf(0.999, len(figures), 0.05)


def test_the_lowest_accuracy_of_small_cells_is_held() -> None:
    rng = np.random.default_rng(1)
    tables = [draw(rng, [40] * 3, 0.3, [0.98] * 3, [0.02] * 3) for _ in range(300)]
    figures = [estimate(table, "worst_group_accuracy", replicates=100) for table in tables]
    assert np.mean([held(figure, 0.98) for figure in figures]) > 0.93


def test_the_ends_of_a_lowest_rate_are_those_of_clopper_and_pearson() -> None:
    enough = np.ones(1, bool)
    # 0 of 3: the upper end is where three misses have a probability of 2.5%.
    low, high = _lowest_rate(Rate(np.array([0]), np.array([3])), enough, 0.95)
    assert (low, high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 3)))
    low, high = _lowest_rate(Rate(np.array([3]), np.array([3])), enough, 0.95)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 3)), 1.0)
    # Two alike: each gets the part of the error at which both together err in 2.5% of all cases.
    low, high = _lowest_rate(Rate(np.array([0, 0]), np.array([3, 3])), np.ones(2, bool), 0.95)
    assert high == pytest.approx(1 - (1 - math.sqrt(0.975)) ** (1 / 3))
    # A cell that is left out counts for nothing.
    assert _lowest_rate(Rate(np.array([0, 9]), np.array([3, 9])), np.array([False, True]), 0.95)[1] == 1.0


def test_dealing_predictions_out_keeps_the_cells_and_follows_the_hypergeometric_law() -> None:
    table = np.array([[[4, 1], [2, 3]], [[6, 4], [0, 5]], [[0, 0], [1, 0]]])
    over_rows, within_labels = _shuffle(table, 4000, [0])
    assert over_rows.shape == (4000, 3, 1, 2)
    assert (within_labels.sum(-1) == table.sum(-1)).all()
    assert (within_labels.sum(1) == table.sum(0)).all()
    assert (over_rows.sum((2, 3)) == table.sum((1, 2))).all()
    assert (over_rows.sum((1, 2)) == table.sum((0, 1))).all()
    # 8 of the 11 rows with label "yes" are predicted "yes"; 5 of the 11 are the second group's.
    seen = np.bincount(within_labels[:, 1, 1, 1], minlength=6) / 4000
    assert seen == pytest.approx(stats.hypergeom.pmf(np.arange(6), 11, 8, 5), abs=0.03)


def test_dealing_out_more_than_two_classes_keeps_the_cells() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        # Labels, groups and predictions that no row has are common in small tables.
        table = rng.integers(0, 4, (3, 4, 4)) * (rng.random((3, 4, 4)) < 0.4)
        over_rows, within_labels = _shuffle(table, 20, [0])
        assert over_rows.min() >= 0
        assert within_labels.min() >= 0
        assert (within_labels.sum(-1) == table.sum(-1)).all()
        assert (within_labels.sum(1) == table.sum(0)).all()
        assert (over_rows.sum((2, 3)) == table.sum((1, 2))).all()
        assert (over_rows.sum((1, 2)) == table.sum((0, 1))).all()


def test_no_gap_is_fishers_exact_test_for_two_groups() -> None:
    def low(hits: tuple[int, int], rows: int) -> float:
        cells = np.array([[[5, 5], [rows - one, one]] for one in hits])
        return estimate(Counts(cells, ("a", "b"), CLASSES), "equal_opportunity", replicates=20_000).low

    # 5 of 5 against 0 of 5 has a p-value of 2/252; 4 of 5 against 0 of 5, and 5 against 1, of 10/210.
    assert low((5, 0), 5) > 0
    # 3 of 3 against 0 of 3: 2/20, and so 10% of all deals are as far apart.
    assert low((3, 0), 3) == 0


def test_among_many_groups_the_screened_pairs_hold_the_largest_t() -> None:
    rng = np.random.default_rng(3)
    groups = 2 * FEW
    for rows in (4, 30, 400):
        table = rng.multinomial(rows, [0.4, 0.1, 0.15, 0.35], size=(5, groups)).reshape(5, groups, 2, 2)
        enough = Enough.of(table[0], None, 0)
        enough.rates["true_positive_rate"][0, :3] = False
        figures = Contrasts(table, None, enough)
        for name in ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_worst"):
            delta, variance = figures.contrasts(name)
            t = (np.abs(delta) / np.sqrt(variance))[..., enough.contrasts(name)]
            assert figures.largest_t(name) == pytest.approx(t.max(-1))


def test_the_largest_difference_is_the_highest_rate_less_the_lowest() -> None:
    table = np.random.default_rng(4).integers(1, 20, (6, 3, 3))
    figures = Contrasts(table, None, Enough.of(table, None, 0), smooth=False)
    found = np.abs(_pairs(figures.share("true_positive_rate"))[0])
    alarms = np.abs(_pairs(figures.share("false_positive_rate"))[0])
    assert figures.by_class("equal_opportunity") == pytest.approx(found.max(-1))
    assert figures.by_class("equalized_odds") == pytest.approx(((found + alarms) / 2).max(-1))
    assert figures.by_class("equalized_odds_worst") == pytest.approx(np.maximum(found, alarms).max(-1))


def test_a_gap_among_300_groups_is_found_within_two_seconds() -> None:
    rng = np.random.default_rng(5)
    rows = 60_000
    group, label = rng.integers(0, 300, rows), rng.integers(0, 2, rows)
    wrong = rng.random(rows) < np.where(group == 7, 0.6, 0.2)
    counts = Counts.from_rows(label, np.where(wrong, 1 - label, label), group)
    start = time.process_time()
    figures = estimate_all(counts)
    assert time.process_time() - start < 2
    assert figures["equalized_odds"].low > 0.1
    assert figures["demographic_parity"].low == 0


@pytest.mark.parametrize("name", ["equal_opportunity", "worst_group_accuracy"])
@pytest.mark.slow
def test_a_difference_of_predictors_is_held_where_a_group_has_twelve_rows(name: str) -> None:
    """One finds 95% of the positives of a group of 12 and alarms at half of its negatives; the other 65% and 20%."""
    rng = np.random.default_rng(6)
    group = np.repeat([0, 1], [12, 500])
    hits = 0
    for trial in range(60):
        label = rng.integers(0, 2, len(group))
        if len(set(label[:12])) < 2:
            hits += 1  # undefined
            continue
        common = rng.normal(size=len(group))
        predictions = []
        for found, alarms in ((0.95, 0.5), (0.65, 0.2)):
            rate = np.where(label, np.where(group == 0, found, 0.65), np.where(group == 0, alarms, 0.2))
            noise = math.sqrt(0.9) * common + math.sqrt(0.1) * rng.normal(size=len(group))
            predictions.append((special.ndtr(noise) < rate).astype(int))
        figure = compare(label, group, *predictions, replicates=200, seed=trial)[name]
        hits += held(figure, 0.3 if name == "equal_opportunity" else 0.5 - 0.65)
    assert hits >= 53  # of intervals that hold the truth in 95% of all cases, fewer do once in fifty


def test_rates_over_few_rows_are_left_out_of_what_compares_them() -> None:
    counts = Counts(np.array([[[80, 20], [30, 70]], [[70, 30], [20, 80]], [[1900, 97], [0, 3]]]), tuple("abc"), CLASSES)
    kept = estimate(counts, "equal_opportunity", min_count=10)
    assert kept == estimate(counts.keep(["a", "b"]), "equal_opportunity") or kept.value == pytest.approx(0.1)
    assert kept.n == 200
    assert estimate(counts, "demographic_parity", min_count=10).value == pytest.approx(0.55 - 0.05)
    assert estimate(counts, "equalized_odds", min_count=10).n == 400
    worst = estimate(counts, "worst_group_accuracy", min_count=10)
    assert (worst.value, worst.n) == (pytest.approx(0.7), 400 + 1997)
    missing = estimate(counts, "equal_opportunity", min_count=101)
    assert not missing.defined
    assert missing.reason == (
        "fewer than two groups have 101 rows with label “yes” (rows by group: a: 100, b: 100, c: 3)"
    )
