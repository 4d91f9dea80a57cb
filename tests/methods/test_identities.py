"""Directions between people: the formula against own code, known truth, the placebo, refusals, who may see ids."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.methods.directions import answers_in_shares
from levelhead.methods.identities import Identities, between_people
from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, PeopleRows, solve

ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0]


def draw(people: int, seed: int) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
    """Five records a person; a person's group stays, and so do base rates; features know the group, records vary."""
    generator = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), 5)
    group = generator.integers(2, size=people)[person]
    labels = (generator.random(len(person)) < np.array([0.3, 0.7])[group]).astype(np.int64)
    features = generator.normal(size=(len(person), 20))
    features[:, 0] += 1.5 * labels
    features[:, 1] += 3.0 * group
    features[:, 2] += 2.0 * generator.normal(size=people)[person]
    return features @ ROTATION, labels, group, person


def held_out() -> HeldOut:
    train, labels, _, person = draw(800, 1)
    weight, bias = solve(train, labels, np.full(4000, 1 / 4000), (np.zeros((2, 20)), np.zeros(2)), 1e-4)
    features, held_labels, _, _ = draw(600, 2)
    return HeldOut(features, held_labels, weight, bias, train=PeopleRows(train, labels, person))


def measured(layer: tuple[FloatArray, FloatArray]) -> tuple[float, float]:
    """Return accuracy and the gap in equalized odds of new people, half of them called positive."""
    features, labels, group, _ = draw(4000, 3)
    answers = answers_in_shares(features @ layer[0].T + layer[1], np.array([10000, 10000]))
    rates = [[answers[(labels == label) & (group == code)].mean() for code in (0, 1)] for label in (0, 1)]
    return float((answers == labels).mean()), float(np.mean([abs(row[0] - row[1]) for row in rates]))


def test_the_directions_are_those_of_the_formula_written_out() -> None:
    generator = np.random.default_rng(5)
    features, labels = generator.normal(size=(60, 4)), generator.integers(2, size=60)
    people = np.array([*np.repeat(np.arange(15), 3), *range(15, 30)])  # half of the people have one row
    features += generator.normal(size=(30, 4))[people]
    centred = np.array([row - features[labels == label].mean(0) for row, label in zip(features, labels, strict=True)])
    total, within = np.zeros((4, 4)), np.zeros((4, 4))
    for row, person in zip(centred, people, strict=True):
        away = row - centred[people == person].mean(0)
        total += np.outer(row, row)
        within += np.outer(away, away)
    within /= 60 - 30
    values, vectors = np.linalg.eig(np.linalg.solve(within + 0.1 * np.eye(4), total / 60 - within))
    order = np.argsort(-values.real)
    found = between_people(features, labels, people, 3, 0.1)
    for place in range(3):
        expected = vectors[:, order[place]].real
        cosine = found[:, place] @ expected / np.linalg.norm(found[:, place]) / np.linalg.norm(expected)
        assert abs(cosine) == pytest.approx(1, abs=1e-10)


def test_a_vector() -> None:
    """Four people with two rows, computed by hand: only the second feature differs between people."""
    features = np.array([[1, 2], [-1, 2], [1, -2], [-1, -2], [1, 2], [-1, 2], [1, -2], [-1, -2]], float)
    (direction,) = between_people(features, np.zeros(8, np.int64), np.arange(8) // 2, 1, 0.1).T
    # W = diag(8 / 4, 0), B = diag(1 - 2, 4): e is 4 / .1 along the second feature, whose vector has norm sqrt(1 / .1).
    assert np.abs(direction) == pytest.approx([0, np.sqrt(10)], abs=1e-12)


def test_the_gap_is_smaller_for_new_people_and_shuffled_ids_change_little() -> None:
    held = held_out()
    before = measured((held.weight, held.bias))
    after, placebo = (measured(Identities(budget=0.01, placebo=shuffled).refit(held)) for shuffled in (False, True))
    assert after[1] < 0.75 * before[1]
    assert after[0] > before[0] - 0.02
    assert abs(placebo[1] - before[1]) < 0.1 * before[1]
