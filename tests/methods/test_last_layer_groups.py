"""Last layers that are told groups: known truth, the file of a few groups, refusals, the lasso against its optimum."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.methods.decorrelation import Decorrelation
from levelhead.methods.dfr import DFR, lasso
from levelhead.methods.directions import answers_in_shares, calibration, largest_strength, regression_within
from levelhead.methods.few_label import FewLabel, group_directions
from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, solve


def draw(rows: int, seed: int, classes: int = 2, groups: int = 2) -> tuple[FloatArray, IntArray, IntArray]:
    """Base rates differ by group, and other inputs tell the group: a score calibrated on them has a gap."""
    generator = np.random.default_rng(seed)
    group = generator.integers(groups, size=rows)
    labels = (generator.random(rows) < np.array([0.3, 0.7, 0.5])[group]).astype(np.int64)
    if classes == 3:
        labels += generator.integers(2, size=rows)
    features = generator.normal(size=(rows, 20))
    features[:, 0] += 1.5 * labels
    for code in range(1, groups):
        features[:, code] += 2.0 * (group == code)
    return features @ np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0], labels, group


def held_out(rows: int = 3000, classes: int = 2, groups: int = 2, told: int | None = None) -> HeldOut:
    train, labels, _ = draw(4000, 1, classes, groups)
    start = (np.zeros((classes, 20)), np.zeros(classes))
    weight, bias = solve(train, labels, np.full(4000, 1 / 4000), start, 1e-4)
    features, labels, group = draw(rows, 2, classes, groups)
    if told is not None:
        group = np.where(np.arange(rows) < told, group, -1)
    return HeldOut(features, labels, weight, bias, group)


def measured(layer: tuple[FloatArray, FloatArray], held: HeldOut, groups: int = 2) -> tuple[float, float]:
    """Return accuracy, and the largest gap in the share of right answers of a class, at the first layer's shares."""
    features, labels, group = draw(20000, 3, len(held.bias), groups)
    counts = np.bincount((features @ held.weight.T + held.bias).argmax(1), minlength=len(held.bias))
    answers = answers_in_shares(features @ layer[0].T + layer[1], counts)
    rates = [
        [(answers[(labels == label) & (group == code)] == label).mean() for code in range(groups)]
        for label in range(len(held.bias))
    ]
    return float((answers == labels).mean()), float(max(max(row) - min(row) for row in rates))


@pytest.mark.parametrize(("classes", "groups"), [(2, 2), (3, 2), (2, 3)])
def test_two_hundred_labels_make_the_gap_smaller_for_little_accuracy(classes: int, groups: int) -> None:
    held = held_out(classes=classes, groups=groups, told=200)
    before = measured((held.weight, held.bias), held, groups)
    after = measured(FewLabel(budget=0.01).refit(held), held, groups)
    assert after[1] < 0.8 * before[1]
    assert after[0] > before[0] - 0.02


def test_more_labels_do_more_and_a_larger_budget_too() -> None:
    held = held_out()
    few = held_out(told=60)
    gaps = [measured(FewLabel(budget=0.005).refit(each), each)[1] for each in (few, held)]
    assert gaps[1] < gaps[0]
    assert measured(Decorrelation(budget=0.02).refit(held), held)[1] < gaps[1]
    assert measured(Decorrelation(budget=0.005).refit(held), held)[1] == pytest.approx(gaps[1])


def test_the_direction_is_that_of_the_group_beside_the_class() -> None:
    features, labels, group = draw(20000, 4)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0]
    scale = features.std(0)
    (direction,) = (group_directions(features / scale, labels, group, 2) / scale[:, None]).T @ rotation.T
    direction /= np.linalg.norm(direction)
    assert direction[1] > 0.98  # not the first, which tells the class, and groups have more of one


def test_what_is_subtracted_is_the_regression_inside_the_classes() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(500) % 2
    signal = generator.normal(size=(500, 1)) + 3 * labels[:, None]
    logits = 0.7 * signal + 5 * labels[:, None] + 0.01 * generator.normal(size=(500, 1))
    assert regression_within(signal, logits, labels)[0, 0] == pytest.approx(0.7, abs=1e-2)


def test_the_strength_is_that_of_the_expected_fall_written_out() -> None:
    """In these rows the measured fall passes the budget first, which does not stop the search."""
    generator = np.random.default_rng(3)
    score, noise = 2 * generator.normal(size=400), generator.normal(size=400)
    labels = (generator.random(400) < 1 / (1 + np.exp(-score))).astype(np.int64)
    logits, change = (np.stack([-each / 2, each / 2], 1) for each in (score, noise))
    slope, offset = calibration(logits, labels)
    positive = 1 / (1 + np.exp(-(slope * score + offset[1] - offset[0])))
    count, best, stopped = int((score > 0).sum()), 0.0, 0.0
    for strength in np.arange(0.05, 3.01, 0.05):
        answer = np.zeros(400, bool)
        answer[np.argsort(strength * noise - score, kind="stable")[:count]] = True
        expected = np.mean(np.where(score > 0, positive, 1 - positive) - np.where(answer, positive, 1 - positive))
        if expected > 0.01:
            break
        best = strength
        if not stopped and np.mean((score > 0) == labels) - np.mean(answer == labels) > 0.01:
            stopped = strength
    assert 0 < stopped <= best
    assert largest_strength(logits, change, labels, 0.01) == pytest.approx(best)


def test_answers_keep_their_shares() -> None:
    logits = np.random.default_rng(0).normal(size=(1000, 3)) + np.array([1, 0, 0])
    assert np.bincount(answers_in_shares(logits, np.array([200, 300, 500]))) == pytest.approx([200, 300, 500], abs=15)
    assert np.bincount(answers_in_shares(logits[:, :2], np.array([1, 999]))).tolist() == [1, 999]


def test_calibration_finds_slope_and_offset_again() -> None:
    generator = np.random.default_rng(0)
    score = 2 * generator.normal(size=40000)
    labels = (generator.random(40000) < 1 / (1 + np.exp(-(1.5 * score - 0.4)))).astype(np.int64)
    slope, offset = calibration(np.stack([-score / 2, score / 2], 1), labels)
    assert slope == pytest.approx(1.5, abs=0.05)
    assert offset[1] - offset[0] == pytest.approx(-0.4, abs=0.05)
    separable, _ = calibration(np.array([[5.0, -5], [-5, 5]]), np.array([0, 1]))
    assert separable <= 1e3 * (1 + 1e-9)


def test_dfr_serves_the_worst_group_better_than_plain_training() -> None:
    """Where the class goes with the group in training, and every class of a group is there in validation."""
    held = held_out(rows=1000)
    before, after = (measured(layer, held) for layer in ((held.weight, held.bias), DFR(subsets=5).refit(held)))
    assert after[1] < 0.6 * before[1]


def test_the_lasso_is_at_its_optimum() -> None:
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(300, 12)), generator.integers(3, size=300)
    features[:, 0] += labels
    start = (np.zeros((3, 12)), np.zeros(3))
    weight, bias = lasso(features, labels, 0.1, start)
    logits = features @ weight.T + bias
    share = np.exp(logits - logits.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    slope = 0.1 * (share - np.eye(3)[labels]).T @ features
    kept = np.abs(weight) > 0
    assert 0 < kept.sum() < weight.size
    assert slope[kept] == pytest.approx(-np.sign(weight[kept]), abs=5e-3)
    assert (np.abs(slope[~kept]) <= 1 + 5e-3).all()
    assert (share - np.eye(3)[labels]).sum(0) == pytest.approx(0, abs=0.2)
