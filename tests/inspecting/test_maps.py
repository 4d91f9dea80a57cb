"""Maps of attention: the vectors of their definitions, chance, and groups."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.inspecting import maps
from levelhead.inspecting.maps import attention_iou, iou_with_masks


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([3, 1, 0, 0], [1, 3, 0, 0], 0.75),
        ([3, 1, 0, 0], [1, 1, 1, 1], 0.727273),
        ([1, 0, 0, 0], [1, 1, 1, 1], 0.571429),
        (np.eye(196)[0], np.ones(196), 0.020101),
        ([2, 3, 4, 5], [5, 4, 3, 2], 0.897959),
        *((np.ones(196), np.arange(196) < covered, 4 / (196 / covered + 3)) for covered in (19, 49, 98)),
    ],
)
def test_attention_iou(one, other, expected):
    found = attention_iou(np.asarray(one, float), np.asarray(other, float))
    assert found == pytest.approx(expected, abs=1e-6)
    assert attention_iou(7 * np.asarray(other, float), np.asarray(one, float)) == pytest.approx(float(found))


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: rng.exponential(size=(400, 196)), 0.669),
        (lambda rng: rng.random((400, 196)), 0.857),
        (lambda rng: np.exp(rng.normal(0, 2, (400, 196))), 0.137),
        (lambda rng: rng.random((400, 196)) * (rng.random((400, 196)) < 0.1), 0.14),
    ],
)
def test_independent_maps_are_alike_by_chance(draw, expected):
    rng = np.random.default_rng(0)
    assert attention_iou(draw(rng), draw(rng)).mean() == pytest.approx(expected, abs=0.03)


def test_a_map_of_zeros_has_no_score():
    assert np.isnan(attention_iou(np.zeros(4), np.ones(4)))


def test_masks_of_other_pictures_are_the_chance_level():
    rng, found = np.random.default_rng(1), []
    masks = (rng.random((60, 16)) < 0.3) * 1.0
    for seed in range(200):
        found.append(iou_with_masks(rng.exponential(size=(60, 16)), masks, deals=39, seed=seed).p)
    assert 0.015 <= np.mean(np.array(found) <= 0.05) <= 0.09
    looked = iou_with_masks(rng.exponential(size=(60, 16)) * (0.2 + masks), masks)
    assert looked.p < 0.01
    assert looked.figure.low > looked.chance > 0.3


def test_a_part_that_no_picture_shows_has_a_reason():
    assert "fewer than 20 pictures" in iou_with_masks(np.ones((50, 4)), np.zeros((50, 4))).figure.reason


def test_total_variation():
    assert maps.total_variation(np.array([0.5, 0.5, 0]), np.array([0, 0.5, 0.5])) == 0.5
    assert maps.total_variation(np.eye(3)[0], np.eye(3)[1]) == 1


def test_the_distance_of_groups_beyond_labels_holds_its_level():
    rng, found = np.random.default_rng(2), []
    for seed in range(200):
        label = rng.integers(0, 2, 100)
        member = rng.random(100) < 0.2 + 0.6 * label
        attention = 0.9 * rng.dirichlet(np.ones(8), 100) + 0.1 * np.eye(8)[label]
        found.append(maps.between_groups(attention, member, label, maps.total_variation, deals=39, seed=seed).p)
    assert 0.015 <= np.mean(np.array(found) <= 0.05) <= 0.09
    tied = maps.between_groups(attention + 0.2 * member[:, None] * np.eye(8)[0], member, label, maps.total_variation)
    assert tied.p < 0.01


def test_a_gap_of_means_holds_the_mix_of_cells():
    cell = np.array([0] * 40 + [1] * 40)
    member = np.array([True] * 30 + [False] * 10 + [True] * 10 + [False] * 30)
    values = cell + 0.0
    values[::2] += 1e-3
    found = maps.gap_of_means(values, member, cell)
    assert values[member].mean() - values[~member].mean() == pytest.approx(-0.5, abs=1e-3)  # of the mix alone
    assert found.low <= 0 <= found.high
    assert abs(found.value) < 1e-3
    assert maps.gap_of_means(values, np.ones(80, bool), cell).reason.startswith("no label has")


def test_intervals_of_gaps_of_means_cover():
    rng, held = np.random.default_rng(8), 0
    for _ in range(300):
        cell, member = rng.integers(0, 2, 80), rng.random(80) < 0.3
        found = maps.gap_of_means(rng.normal(0.1 * member, 1 + member), member, cell, bound=9)
        held += found.low <= 0.1 <= found.high
    assert 0.915 <= held / 300 <= 0.98


def test_the_mean_height_of_curves():
    assert maps.area_under_steps(np.array([0, 0.5, 1]), np.array([[1, 1, 1], [1, 0.5, 0]])) == pytest.approx([1, 0.5])


def test_intervals_and_chance_take_rows_of_a_person_together():
    person = np.repeat(np.arange(40), 10)
    held = {"mean": [], "gap": []}
    chance = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        member = rng.permutation(np.arange(40) % 2 == 0)[person]
        label = (rng.random(400) < np.where(member, 0.6, 0.4)).astype(int)  # labels differ within a person
        values = rng.normal(size=40)[person] + 0.3 * rng.normal(size=400) + label
        mean = maps.mean_of_rows(values - label, ends=(-9, 9), cluster=person)
        gap = maps.gap_of_means(values, member, label, bound=9, cluster=person)
        held["mean"].append(mean.low <= 0 <= mean.high)
        held["gap"].append(gap.low <= 0 <= gap.high)
        shares = np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], 1)
        found = maps.between_groups(shares, member, label, maps.total_variation, cluster=person, deals=39, seed=seed)
        chance.append(found.p <= 0.05)
    assert min(map(np.mean, held.values())) >= 0.88  # 0.3 to 0.5 without people
    assert np.mean(chance) <= 0.12  # 0.5 with groups dealt again label by label
    alone = maps.gap_of_means(np.arange(40.0), np.arange(40) < 20, np.zeros(40), bound=99, cluster=np.arange(40) // 20)
    assert alone.reason == maps.ONE_CLUSTER
