"""What a gap in equalized odds is made of: base rates, how well a score ranks, and the share of the base rates it uses.

The model is the binormal one with equal variances (Green and Swets 1966). Inside group a the calibrated log-likelihood
ratio of the score is normal, N(+d_a^2/2, d_a^2) among positives and N(-d_a^2/2, d_a^2) among negatives, with
d_a = sqrt(2) invPhi(AUC_a). The score adds an offset o_a to it and decides at one threshold t for all groups, so

    TPR_a = Phi(d_a/2 + (o_a - t)/d_a),  FPR_a = Phi(-d_a/2 + (o_a - t)/d_a),

and the gap of two groups is (|TPR_1 - TPR_0| + |FPR_1 - FPR_0|) / 2. A score that is calibrated inside every group has
o_a = logit b_a, with b_a the base rate P(Y=1 | a): that is Bayes' rule in log odds. Its gap at the same positive rate
is the *implied* gap. It is no lower bound: a score that knows less of the group lies below it. With
o_a = rho logit b_a + (1 - rho) c, for any c, rho is the share of the base-rate difference that the score uses.

All arrays may have leading axes, for example of bootstrap replicates; the last axis is that of the groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.metrics.group import FloatArray

STEPS = 80
"""Halvings of the bracket that holds a threshold: to the last digit of a float."""
MOST_SLOPE = 1e4
"""Log odds by standard deviation of the score; beyond, the likelihood has no largest value."""


class Rates(NamedTuple):
    """True and false positive rates by group, (..., groups)."""

    true_positive: FloatArray
    false_positive: FloatArray


class Regression(NamedTuple):
    """Logistic regression P(Y=1) = sigmoid(slope s + intercept_a): ``slope`` (...), ``intercept`` (..., groups)."""

    slope: FloatArray
    intercept: FloatArray


def separation(area: ArrayLike) -> FloatArray:
    """Return d = sqrt(2) invPhi(AUC); NaN where the area is not strictly between 1/2 and 1, as the model asks."""
    area = np.asarray(area, np.float64)
    inside = (area > 0.5) & (area < 1)
    return np.where(inside, np.sqrt(2) * special.ndtri(np.where(inside, area, 0.75)), np.nan)


def model_rates(d: ArrayLike, offset: ArrayLike, threshold: ArrayLike) -> Rates:
    """Return the rates of the model in the head of this module.

    Args:
        d: (..., groups) distance of the classes, as :func:`separation` gives it.
        offset: (..., groups) what the score adds to the log-likelihood ratio.
        threshold: (...) in log odds, the same for all groups.
    """
    d = np.asarray(d, np.float64)
    shift = (np.asarray(offset) - np.asarray(threshold)[..., None]) / d
    return Rates(special.ndtr(d / 2 + shift), special.ndtr(-d / 2 + shift))


def positive_rate(rates: Rates, base: ArrayLike, share: ArrayLike) -> FloatArray:
    """Return the share of rows decided positive, from base rates and the groups' shares of the rows."""
    base, share = np.asarray(base, np.float64), np.asarray(share, np.float64)
    return np.asarray((share * (base * rates.true_positive + (1 - base) * rates.false_positive)).sum(-1))


def threshold_for(d: ArrayLike, offset: ArrayLike, base: ArrayLike, share: ArrayLike, rate: ArrayLike) -> FloatArray:
    """Return the threshold at which the share ``rate`` of rows is decided positive; arguments as above."""
    d, offset, rate = (np.asarray(array, np.float64) for array in (d, offset, rate))
    reach = d**2 / 2 + 9 * d
    low, high = (offset - reach).min(-1), (offset + reach).max(-1)
    for _ in range(STEPS):
        middle = (low + high) / 2
        above = positive_rate(model_rates(d, offset, middle), base, share) > rate
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)


def gap_of(rates: Rates, first: int = 0, second: int = 1) -> FloatArray:
    """Return (|dTPR| + |dFPR|) / 2 of two groups, (...)."""
    parts = [np.abs(rate[..., first] - rate[..., second]) for rate in rates]
    return np.asarray((parts[0] + parts[1]) / 2)


def implied_rates(area: ArrayLike, base: ArrayLike, share: ArrayLike, rate: ArrayLike) -> Rates:
    """Return the rates of a score that is calibrated inside every group, at one threshold.

    Args:
        area: (..., groups) area under the ROC curve in each group.
        base: (..., groups) base rates P(Y=1 | group).
        share: (..., groups) shares of the rows.
        rate: (...) the share of rows that are decided positive.

    Examples:
        >>> from levelhead.metrics.implied import gap_of, implied_rates
        >>> rates = implied_rates([0.85, 0.80], [0.65, 0.25], [0.6, 0.4], 0.477532)
        >>> print(rates.true_positive.round(3), round(float(gap_of(rates)), 3))
        [0.876 0.371] 0.409
    """
    d, offset = separation(area), special.logit(np.asarray(base, np.float64))
    return model_rates(d, offset, threshold_for(d, offset, base, share, rate))


def area_of_counts(positives: FloatArray, negatives: FloatArray) -> FloatArray:
    """Return the area under the ROC curve from weights in ascending bins of the score, (..., bins); ties count half."""
    below = np.cumsum(negatives, -1) - negatives / 2
    return np.asarray((positives * below).sum(-1) / (positives.sum(-1) * negatives.sum(-1)))


def regress(
    score: FloatArray, positives: FloatArray, rows: FloatArray, start: Regression, steps: int, accuracy: float = 1e-9
) -> Regression:
    """Fit P(Y=1) = sigmoid(slope s + intercept_a) by Newton's method.

    Args:
        score: (groups, cells) score of each cell, of about unit variance; anything where it has no rows.
        positives: (..., groups, cells) weight of the positives.
        rows: (..., groups, cells) weight of all rows.
        start: where to begin.
        steps: at most this many.
        accuracy: change of slope and intercepts at which to stop.

    Returns:
        the fit; NaN where it does not converge, for example because the score separates the classes.
    """
    slope, intercept = (np.array(part, np.float64) for part in start)
    done = np.zeros(slope.shape, bool)
    with np.errstate(all="ignore"):  # what cannot be solved is NaN, and says so
        for _ in range(steps):
            expected = special.expit(slope[..., None, None] * score + intercept[..., None])
            rest, weight = positives - rows * expected, rows * expected * (1 - expected)
            total, cross = weight.sum(-1), (weight * score).sum(-1)
            # The intercepts are eliminated: each group has its own, and only the slope joins them.
            lean = cross / total
            curvature = ((weight * score**2).sum(-1) - cross * lean).sum(-1)
            move = ((rest * score).sum(-1) - (rest.sum(-1) * lean)).sum(-1) / curvature
            move = np.clip(move, -2 - abs(slope), 2 + abs(slope))
            shift = np.clip(rest.sum(-1) / total - lean * move[..., None], -10, 10)
            slope, intercept = slope + move, intercept + shift
            done = np.maximum(abs(move), abs(shift).max(-1)) < accuracy * np.maximum(1, abs(slope))
            if done.all():
                break
        done &= abs(slope) < MOST_SLOPE
    return Regression(np.where(done, slope, np.nan), np.where(done[..., None], intercept, np.nan))
