"""Take directions out of a last layer, as far as accuracy allows."""

from __future__ import annotations

import numpy as np
from scipy import optimize, sparse, special

from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray

STRENGTHS = np.arange(1, 61) / 20
"""Multiples of the step that takes away all covariance within the classes, tried in this order."""


def standardized(held: HeldOut) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation (width,) of the held-out features; 1 where a feature is constant."""
    mean, scale = held.features.mean(0), held.features.std(0)
    return mean, np.where(scale == 0, 1, scale)


def without_directions(held: HeldOut, directions: FloatArray, budget: float) -> tuple[FloatArray, FloatArray]:
    """Return a last layer whose logits lean less on some directions, at a cost of at most ``budget``.

    Inside the classes, the logits are regressed on the directions. The fitted part is subtracted, times the largest
    strength that :func:`largest_strength` allows.

    Args:
        held: held-out rows.
        directions: (width, some), in features standardized by :func:`standardized`.
        budget: share of the rows by which the accuracy may fall.
    """
    mean, scale = standardized(held)
    signal, logits = (held.features - mean) / scale @ directions, held.logits
    share = regression_within(signal, logits - logits.mean(1, keepdims=True), held.labels)
    strength = largest_strength(logits, signal @ share, held.labels, budget)
    change = strength * (directions @ share).T / scale
    weight, bias = held.weight - change, held.bias + change @ mean
    slope, offset = calibration(held.features @ weight.T + bias, held.labels)
    return slope * weight, slope * bias + offset


def less_means(values: FloatArray, codes: IntArray) -> FloatArray:
    """Return the values (rows, some) less the mean of the rows with the same of ``codes`` (rows,)."""
    codes = np.unique(codes, return_inverse=True)[1]
    members = sparse.csr_array((np.ones(len(codes)), codes, np.arange(len(codes) + 1)))
    return np.asarray(values - (members.T @ values / np.bincount(codes)[:, None])[codes])


def regression_within(signal: FloatArray, logits: FloatArray, labels: IntArray) -> FloatArray:
    """Return the least-squares coefficients of (rows, classes) logits on (rows, some) signals inside the classes."""
    return np.asarray(np.linalg.lstsq(less_means(signal, labels), less_means(logits, labels), rcond=None)[0])


def largest_strength(logits: FloatArray, change: FloatArray, labels: IntArray, budget: float) -> float:
    """Return the largest multiple of ``change`` that can be subtracted before accuracy falls too far.

    The fall is the one that calibrated probabilities of the answers before and after lead one to expect, at unchanged
    shares of answers. The measured fall is not looked at: a count of few rows stops the search by chance
    (benchmarks/strength.py).

    Args:
        logits: (rows, classes) of the trained network.
        change: (rows, classes).
        labels: (rows,) classes.
        budget: share of the rows.
    """
    slope, offset = calibration(logits, labels)
    probability = special.softmax(slope * logits + offset, axis=1)
    before = logits.argmax(1)
    shares = np.bincount(before, minlength=logits.shape[1])
    rows, best = np.arange(len(logits)), 0.0
    for strength in STRENGTHS:
        after = answers_in_shares(logits - strength * change, shares)
        expected = (probability[rows, before] - probability[rows, after]).mean()
        if expected > budget:
            break
        best = float(strength)
    return best


def answers_in_shares(logits: FloatArray, counts: IntArray) -> IntArray:
    """Return one class a row so that each class has about ``counts`` rows: logits with an offset for each class.

    For two classes the counts are met exactly, ties in row order.
    """
    if logits.shape[1] == 2:
        answers = np.zeros(len(logits), np.int64)
        answers[np.argsort(logits[:, 0] - logits[:, 1], kind="stable")[: counts[1]]] = 1
        return answers
    offset = np.zeros(logits.shape[1])
    wanted = counts + 0.5
    for step in np.geomspace(1, 0.01, 60):
        found = np.bincount((logits + offset).argmax(1), minlength=len(counts)) + 0.5
        offset += step * logits.std() * np.log(wanted / found)
    return np.asarray((logits + offset).argmax(1))


def calibration(logits: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Return slope and offsets (classes,) that make slope * logits + offsets most likely (Platt 1999; Guo et al. 2017).

    The slope is held between 1e-3 and 1e3: logits that separate the classes would have none.
    """
    rows = np.arange(len(labels))

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        slope, offset = np.exp(values[0]), values[1:]
        logarithms = special.log_softmax(slope * logits + offset, axis=1)
        rest = np.exp(logarithms)
        rest[rows, labels] -= 1
        gradient = np.concatenate([[slope * (rest * logits).sum()], rest.sum(0)]) / len(labels)
        return float(-logarithms[rows, labels].mean()), gradient

    limit = np.log(1e3)
    found = optimize.minimize(
        objective,
        np.zeros(logits.shape[1] + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-limit, limit), *[(None, None)] * logits.shape[1]],
    )
    return float(np.exp(found.x[0])), found.x[1:]
