"""Gaps over a number: how a decision or a score changes along age or income, without cutting it into groups.

The attribute is scaled to [0, 1], so that figures do not depend on its unit.

*The slope* of the prediction on it is the change from the lowest to the highest value, if the change were even. It is
GeDI with k = 1 (Giuliani, Misino and Lombardi, ICML 2023), signed. For an attribute of two values it is the difference
in demographic parity. Its interval has the variance HC3 (MacKinnon and White, Journal of Econometrics 1985).

*The range* is the largest less the smallest value of a fitted curve of degree 3 between the 5th and the 95th percentile
of the attribute: a slope of 0 can hide that both ends fare worse. The range is never negative, so it has no interval
that could hold 0; a permutation test says how often shuffled rows have one as large.

*Sentences* give the curve at both ends, and at a peak or a low between them, and decide by that test. A slope times the
range of the attribute would be a straight line's change, where there may be no such line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.options import AuditOptions
from levelhead.auditing.part import Found, Frame, Part
from levelhead.metrics.names import Key
from levelhead.report.record import Finding
from levelhead.report.text import digits, number, short
from levelhead.tables.rows import Rows
from levelhead.types import ConfigError, Estimate, printable

FloatArray = NDArray[np.float64]

FEWEST = 20
POINTS = 101
PERMUTED_ROWS = 20_000
"""Number of bins of the attribute in permutation tests of more rows."""


@dataclass(frozen=True)
class ContinuousGap(Finding):
    """What :func:`continuous_gap` found.

    ``slope`` is the change of the prediction over the whole range of the attribute, ``lowest`` to ``highest``;
    ``range`` that of the fitted curve between the 5th and the 95th percentile, with ``range_p``; ``curve`` its places
    (attribute, prediction).
    """

    slope: Estimate
    range: float
    range_p: float
    lowest: float
    highest: float
    curve: tuple[tuple[float, float], ...]

    @property
    def points(self) -> dict[str, tuple[float, float]]:
        """The curve at its ``start`` and ``end``, and at a ``peak`` and a ``low`` that lie clearly between them."""
        if not self.curve:
            return {}
        ends, beyond = [self.curve[0], self.curve[-1]], 0.02 * self.range
        found = {"start": ends[0], "end": ends[1]}
        peak, low = (most(self.curve, key=lambda point: point[1]) for most in (max, min))
        if peak[1] > max(value for _, value in ends) + beyond:
            found["peak"] = peak
        if low[1] < min(value for _, value in ends) - beyond:
            found["low"] = low
        return found


def continuous_gap(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    title: str = "attribute",
    level: float = 0.95,
    permutations: int = 1000,
    seed: int = 0,
) -> ContinuousGap:
    """Measure how a prediction changes along a number.

    Args:
        prediction: (rows,) a score, or 1 for a positive decision and 0 for a negative one.
        attribute: (rows,) numbers, for example ages; finite.
        title: what reasons call it.
        level: confidence level of the slope's interval.
        permutations: of the test of the range.
        seed: of the permutations.

    Returns:
        the figures, in the units of the prediction; NaN with a reason where there are too few rows or values.

    Examples:
        >>> from levelhead.auditing.continuous import continuous_gap
        >>> ages = [20, 30, 40, 50, 60] * 4
        >>> found = continuous_gap([0.1, 0.3, 0.2, 0.6, 0.8] * 4, ages)
        >>> round(found.slope.value, 2)
        0.68
    """
    values, along = np.asarray(prediction, np.float64), np.asarray(attribute, np.float64)
    order = np.lexsort((values, along))  # the permutations must not depend on the order of the rows
    rows, values, along = len(values), values[order], along[order]
    low, high = (float(along.min()), float(along.max())) if rows else (np.nan, np.nan)
    if rows < FEWEST or low == high:
        why = f"{rows} rows, fewer than {FEWEST}" if rows < FEWEST else f"every {title} is {low:g}"
        return ContinuousGap(Estimate.undefined(why, rows), np.nan, np.nan, low, high, ())
    scaled = (along - low) / (high - low)
    slope = _slope(scaled, values, level)
    places = np.linspace(float(np.quantile(scaled, 0.05)), float(np.quantile(scaled, 0.95)), POINTS)
    rng = np.random.default_rng(seed)
    design, value, weight = _binned(scaled, values)
    basis, drawn = _legendre(design), _legendre(places)
    solve = np.linalg.pinv(basis * np.sqrt(weight)[:, None])
    fitted = drawn @ solve  # from weighted values to the curve
    root = np.sqrt(weight)
    curve = fitted @ (root * value)
    spread = float(curve.max() - curve.min())
    larger = 0
    unbinned = len(value) == rows
    for _ in range(permutations):
        # Of many rows the means of bins are as good as normal.
        shuffled = rng.permutation(value) if unbinned else rng.normal(0, values.std() / root)
        one = fitted @ (root * shuffled)
        larger += one.max() - one.min() >= spread * (1 - 1e-12)
    at = low + places * (high - low)
    return ContinuousGap(
        slope,
        spread,
        (larger + 1) / (permutations + 1),
        low,
        high,
        tuple(zip(at.tolist(), curve.tolist(), strict=True)),
    )


def _slope(scaled: FloatArray, values: FloatArray, level: float) -> Estimate:
    """Least squares with the variance HC3: residuals divided by one less their leverage."""
    rows = len(values)
    centred = scaled - scaled.mean()
    squares = float((centred**2).sum())
    slope = float((centred * values).sum() / squares)
    residual = values - values.mean() - slope * centred
    leverage = 1 / rows + centred**2 / squares
    spread = float(((centred * residual / np.maximum(1 - leverage, 1e-12)) ** 2).sum() / squares**2)
    if spread == 0:
        return Estimate(slope, math.nan, math.nan, rows, "no interval: every row lies on the line")
    arm = float(special.stdtrit(rows - 2, (1 + level) / 2)) * spread**0.5
    return Estimate(slope, slope - arm, slope + arm, rows)


def _binned(scaled: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return attribute, mean prediction and rows of each bin; of few rows each is its own."""
    if len(scaled) <= PERMUTED_ROWS:
        return scaled, values, np.ones(len(scaled))
    place = np.minimum((scaled * 2000).astype(np.int64), 1999)
    rows = np.bincount(place, minlength=2000).astype(np.float64)
    used = rows > 0
    return (
        np.bincount(place, scaled, 2000)[used] / rows[used],
        np.bincount(place, values, 2000)[used] / rows[used],
        rows[used],
    )


def _legendre(scaled: FloatArray) -> FloatArray:
    return np.asarray(np.polynomial.legendre.legvander(2 * scaled - 1, 3), np.float64)


def continuous_sentence(title: str, found: ContinuousGap, *, level: float = 0.95, of_class: str | None = None) -> str:
    """Say what a class's selection rate is along the attribute, or without one the mean error in its own unit.

    A curve that leaves 0% to 100% is said to be at the end that it leaves by. ``level`` decides whether it changes.
    """
    subject = "the mean error" if of_class is None else f"the selection rate of “{short(of_class, 40)}”"

    def shown(point: tuple[float, float]) -> str:
        at, value = point
        size = f"{number(min(100.0, max(0.0, 100 * value)))}%" if of_class is not None else digits(value)
        return f"{size} at {_place(at, found.highest - found.lowest)}"

    name = printable(title)
    if not found.slope.defined:
        return f"No trend along {name} can be estimated: {found.slope.reason}."
    points = found.points
    p_value = "below 0.005" if found.range_p < 0.005 else f"{found.range_p:.2f}"
    between = [f"a {what} of {shown(points[what])}" for what in ("peak", "low") if what in points]
    curve = f"from {shown(points['start'])} to {shown(points['end'])}" + (
        f", with {' and '.join(between)}" if between else ""
    )
    if found.range_p <= 1 - level:
        return f"Along {name}, {subject} runs {curve} (cubic fit, permutation p {p_value})."
    return f"No change of {subject} along {name} is detected (permutation p {p_value}); a cubic fit runs {curve}."


def _place(at: float, span: float) -> str:
    """Return a value of the attribute with enough decimals to resolve a fiftieth of its span, ``span``."""
    decimals = max(0, 1 - math.floor(math.log10(span)))
    return f"{at:.{decimals}f}" if decimals <= 6 and abs(at) < 1e15 else f"{at:.6g}"


class AlongFound(Found):
    """Gaps by column of numbers."""

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the slopes."""
        yield from ((name, None, "slope", one.slope) for name, one in self.items())

    @classmethod
    def of(
        cls, values: FloatArray, rows: Rows, names: Sequence[str], options: AuditOptions, *, of_class: str | None = None
    ) -> AlongFound:
        """Measure how values (rows,) change along columns of numbers; ``of_class``: whether they are decided so."""
        found = {}
        for name in names:
            both = values, rows.whole(f"along {name}")
            if "count" in rows.parts:
                both = np.repeat(values, rows.whole("count")), np.repeat(both[1], rows.whole("count"))
            found[name] = continuous_gap(*both, title=name, level=options.level, seed=options.seed)
        return cls(found, told=partial(continuous_sentence, level=options.level, of_class=of_class))


class Along(Part):
    """How decisions change along columns of numbers."""

    name = "continuous"
    needs = ("along",)
    keeps = ("prediction", "score", "along")

    def find(self, frame: Frame) -> Found:
        """Return the figures by column of numbers."""
        if frame.of_class is None:
            raise ConfigError(
                "A trend along a number is about one class: name it with --positive (positive= in Python)."
            )
        values, along = frame.decided().astype(np.float64), self.asked.roles.along
        return AlongFound.of(values, frame.rows, along, frame.options, of_class=frame.of_class)
