"""Whether a group can be read: worked areas, size of the null, coverage, clusters, and removal."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from levelhead.inspecting import probes
from levelhead.inspecting.probes import Probe, Readability, group_shifts


def drawn(rng, rows, gap, features=6, base=0.0):
    """Vectors whose first feature moves by ``gap`` with the group and whose second moves with the label."""
    label = rng.integers(0, 2, rows)
    member = rng.random(rows) < 0.5 + base * (label - 0.5)
    vectors = rng.normal(size=(rows, features))
    vectors[:, 0] += gap * member
    vectors[:, 1] += 2 * label
    return vectors, member, label


def readability(vectors, member, label=None, hidden=False, **options) -> Readability:
    return Probe(vectors, member, **options).read(label, [hidden])[0]


def test_a_known_area_of_delong_with_its_variance():
    # Of the specification: 0.84375 with the variance 0.022786.
    scores = np.array([0.9, 0.8, 0.35, 0.6, 0.7, 0.2, 0.35, 0.1])
    member = np.arange(8) < 4
    cell = np.zeros(8, int)
    assert probes._areas(scores[:, None], member[:, None].astype(float), cell)[0] == 0.84375
    placed = probes._placements(scores, member)
    variance = placed[member].var(ddof=1) / 4 + placed[~member].var(ddof=1) / 4
    assert variance == pytest.approx(0.022786, abs=1e-6)
    biased = placed[member].var() / 4 + placed[~member].var() / 4
    assert probes._variance(scores, member, cell, None) == pytest.approx(biased * 8 / 7)


def test_the_area_counts_pairs_of_one_cell_alone():
    scores = np.array([[1.0], [0.0], [10.0], [9.0]])
    member = np.array([[1.0], [0.0], [0.0], [1.0]])
    assert probes._areas(scores, member, np.array([0, 0, 1, 1]))[0] == 0.5


@pytest.mark.parametrize(("hidden", "given"), [(False, True), (True, False)])
def test_the_null_holds_its_level(hidden, given):
    """The group follows the label, and the vectors know the label alone: beyond it there is nothing to read."""
    rng, found = np.random.default_rng(3), []
    for seed in range(200):
        vectors, member, label = drawn(rng, 120, 0.0, base=0.6 if given else 0.0)
        one = readability(vectors, member, label=label if given else None, hidden=hidden, deals=39, seed=seed)
        found.append(one.p)
    assert 0.015 <= np.mean(np.array(found) <= 0.05) <= 0.09  # 3.2 standard errors of 200 trials around 5%
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_without_the_label_its_base_rates_are_read_as_the_group():
    vectors, member, label = drawn(np.random.default_rng(0), 800, 0.0, base=0.8)
    assert readability(vectors, member).p < 0.02
    assert readability(vectors, member, label=label).p > 0.05


def test_intervals_of_areas_hold_the_areas_of_the_fitted_probes():
    rng, held = np.random.default_rng(5), 0
    for seed in range(200):
        vectors, member, _ = drawn(rng, 300, 1.0)
        fold = probes.folds(300, None, np.random.default_rng(seed))
        one = readability(vectors, member, deals=1, seed=seed)
        # Of a probe fitted on varying vectors the area over all rows is known: normal, with the gap along one feature.
        scaled = probes.varying(vectors)
        target = member[:, None].astype(float)
        products = probes._products(scaled, scaled, fold), probes._products(scaled, target, fold)
        truth = []
        for direction in probes._directions(scaled, target, fold, np.zeros(300, int), *products)[:, :, 0]:
            direction = direction / vectors.std(0)
            spread = np.sqrt(direction @ np.diag([1, 2, 1, 1, 1, 1]) @ direction)  # the label adds 1 to the second
            truth.append(stats.norm.cdf(direction[0] / np.sqrt(2) / spread))
        held += one.area.low <= np.mean(truth) <= one.area.high
    assert 0.91 <= held / 200 <= 0.985


def test_without_group_information_intervals_hold_one_half():
    """Probes of noise vary with the rows: DeLong's variance alone held one half in 79 to 88% of such sets."""
    rng, held = np.random.default_rng(11), 0
    for seed in range(150):
        vectors, member, _ = drawn(rng, 200, 0.0, 8)
        area = readability(vectors, member, deals=40, seed=seed).area
        held += area.low <= 0.5 <= area.high
    assert 0.89 <= held / 150 <= 0.985


def test_hidden_units_see_a_difference_of_spread():
    rng = np.random.default_rng(1)
    member = rng.random(1000) < 0.5
    vectors = rng.normal(size=(1000, 3)) * np.where(member, 2.0, 1.0)[:, None]
    assert readability(vectors, member).p > 0.05
    assert readability(vectors, member, hidden=True).area.low > 0.65


def test_rows_of_one_person_widen_the_interval_and_the_null():
    rng = np.random.default_rng(2)
    person = np.repeat(np.arange(60), 10)
    member = (rng.random(60) < 0.5)[person]
    vectors = rng.normal(size=(60, 8))[person] + 0.1 * rng.normal(size=(600, 8))
    alone = readability(vectors, member)
    together = readability(vectors, member, cluster=person)
    assert alone.p < 0.01 < 0.05 < together.p  # persons are recognised, not groups
    assert together.area.high - together.area.low > 2 * (alone.area.high - alone.area.low)


def test_perfect_order_has_an_interval_with_a_width():
    member = np.arange(80) % 2 == 0
    found = readability(member[:, None] + np.linspace(0, 0.1, 80)[:, None], member)
    assert found.area.value == 1
    assert 0.9 < found.area.low < 1


@pytest.mark.parametrize(
    ("vectors", "member", "reason"),
    [
        (np.zeros((100, 3)), np.arange(100) < 50, "the same in every row"),
        (np.ones((100, 0)), np.arange(100) < 50, "the same in every row"),
        (np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) < 5, "fewer than 20 rows"),
        (np.zeros((1, 3)), np.array([True]), "fewer than 20 rows"),
    ],
)
def test_what_cannot_be_read_has_a_reason(vectors, member, reason):
    assert reason in readability(vectors, member).area.reason


def test_a_removed_group_cannot_be_read_and_the_label_stays():
    vectors, member, label = drawn(np.random.default_rng(4), 1500, 1.5, base=0.4)
    left = vectors - group_shifts(vectors, member, label)
    assert readability(vectors, member, label=label).area.value > 0.8
    assert readability(left, member, label=label).p > 0.01
    assert readability(left, label == 1).area.value > 0.9


def test_removal_in_the_rows_that_it_was_fitted_on_leaves_no_covariance():
    vectors, member, label = drawn(np.random.default_rng(6), 400, 1.0)
    shifts = group_shifts(vectors, member, label)
    one = probes.folds(400, None, np.random.default_rng(0)) == 0
    covariance = probes._within(vectors[~one], label[~one]).T @ probes._within(member[~one, None] * 1.0, label[~one])
    spread = float((probes._within(member[~one, None] * 1.0, label[~one]) ** 2).sum())
    difference = covariance[:, 0] / spread
    along = shifts[one] @ difference / (difference @ difference)
    assert shifts[one] == pytest.approx(np.outer(along, difference))


def test_where_group_and_label_have_one_direction_the_group_goes_all_the_same():
    rng = np.random.default_rng(7)
    label = rng.integers(0, 2, 600)
    member = rng.random(600) < 0.5
    vectors = (label + 0.8 * member + 0.5 * rng.normal(size=600))[:, None]
    assert np.isfinite(group_shifts(vectors, member, label)).all()
