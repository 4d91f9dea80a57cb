"""Maps of attention by group: how alike they are, where they look, and what chance makes of both.

Attention-IoU is that of Serianni et al., CVPR 2025. Neither it nor the total variation is 0 by chance, so both stand
beside what other masks, or groups drawn again, give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from levelhead.inspecting.probes import FEWEST, Array, Bools, Ints, dealt
from levelhead.metrics.scores import student
from levelhead.report.record import Finding
from levelhead.types import Estimate

ONE_CLUSTER = "all rows of a group belong together"


@dataclass(frozen=True)
class AgainstChance(Finding):
    """A figure, its mean and 95% quantile under chance, and the share of chance that reaches it."""

    figure: Estimate
    chance: float
    above: float
    p: float

    @classmethod
    def of(cls, figure: Estimate, null: Array) -> AgainstChance:
        """Compare a figure with ``null`` (deals,); large figures count."""
        if not figure.defined:
            return cls(figure, float("nan"), float("nan"), float("nan"))
        p = (1 + int((null >= figure.value - 1e-12).sum())) / (1 + len(null))
        return cls(figure, float(null.mean()), float(np.quantile(null, 0.95)), p)


def attention_iou(first: Array, second: Array) -> Array:
    """Return sum(ab) / sum(((a + b) / 2)^2) of maps (..., cells) that are brought to sum 1; NaN for a map of zeros."""
    with np.errstate(invalid="ignore", divide="ignore"):
        one, other = (maps / maps.sum(-1, keepdims=True) for maps in (first, second))
        return np.asarray((one * other).sum(-1) / (((one + other) / 2) ** 2).sum(-1))


def iou_with_masks(
    maps: Array, masks: Array, *, deals: int = 200, level: float = 0.95, seed: int = 0, cluster: Ints | None = None
) -> AgainstChance:
    """Mean Attention-IoU of maps (rows, cells) with their masks, beside that with the masks of other pictures.

    The interval is Student's, over pictures (clusters of them) whose map and mask are no zeros.
    """
    rng = np.random.default_rng(seed)
    kept = (masks.sum(1) > 0) & (maps.sum(1) > 0) & np.isfinite(maps).all(1)
    maps, masks = maps[kept], masks[kept]
    if len(maps) < FEWEST:
        reason = f"fewer than {FEWEST} pictures show this part"
        return AgainstChance.of(Estimate.undefined(reason, len(maps)), np.zeros(0))
    null = np.array([attention_iou(maps, masks[rng.permutation(len(maps))]).mean() for _ in range(deals)])
    own = None if cluster is None else cluster[kept]
    return AgainstChance.of(mean_of_rows(attention_iou(maps, masks), level, cluster=own), null)


def mean_of_rows(
    values: Array, level: float = 0.95, ends: tuple[float, float] = (0.0, 1.0), cluster: Ints | None = None
) -> Estimate:
    """Return the mean of (rows,) with Student's interval over ``cluster`` (rows,), or rows, cut off at ``ends``."""
    rows = len(values)
    if rows < 2 or not np.isfinite(values).all():
        return Estimate.undefined("fewer than two rows" if rows < 2 else "some rows have no figure", rows)
    if cluster is not None and (cluster == cluster[0]).all():
        return Estimate.undefined(ONE_CLUSTER, rows)
    variance, freedom = _variance((values - values.mean()) / rows, cluster)
    return student(float(values.mean()), variance, freedom, rows, level, ends)


def _variance(parts: Array, cluster: Ints | None) -> tuple[float, float]:
    """Return the variance of a sum of what rows (rows,) add to a figure, of mean 0, and its degrees of freedom."""
    if cluster is not None:
        parts = np.bincount(np.unique(cluster, return_inverse=True)[1], parts).astype(np.float64)
    number = max(len(parts), 2)
    return float(parts @ parts) * number / (number - 1), number - 1.0


def total_variation(first: Array, second: Array) -> Array:
    """Return half the sum of absolute differences of two distributions (..., cells): 0 equal, 1 disjoint."""
    return np.asarray(np.abs(first - second).sum(-1) / 2)


def between_groups(
    values: Array, member: Bools, label: Ints, distance: Any, *, cluster: Ints | None = None, deals: int = 200,
    seed: int = 0,
) -> AgainstChance:  # fmt: skip
    """Measure a ``distance`` of two groups' mean rows, and of groups drawn again within each label.

    Args:
        values: (rows, cells), such as attention by token, or logits by head and token.
        member: (rows,) whether a row belongs to the second group.
        label: (rows,) codes.
        distance: takes two arrays (deals, cells) of means, and returns (deals,).
        cluster: (rows,) codes of rows that belong together.
        deals: of groups.
        seed: of the deals.

    Returns:
        the distance without an interval: it is no mean of rows, and large by chance; its null distribution tells.
    """
    sizes = int(member.sum()), int((~member).sum())
    if min(sizes) < FEWEST:
        return AgainstChance.of(Estimate.undefined(f"fewer than {FEWEST} rows of a group", len(member)), np.zeros(0))
    drawn = dealt(member, label, cluster, deals, np.random.default_rng(seed)).T
    second = drawn @ values / drawn.sum(1, keepdims=True)
    first = (1 - drawn) @ values / (1 - drawn).sum(1, keepdims=True)
    found = distance(first, second)
    value = float(found[0])
    return AgainstChance.of(Estimate.without_interval(value, len(member)), found[1:])


def gap_of_means(
    values: Array, member: Bools, cell: Ints, *, level: float = 0.95, bound: float = 1.0, cluster: Ints | None = None
) -> Estimate:
    """Mean of the second group less that of the first, with the mix of cells held fixed.

    Means are taken in each cell (a label and whether the model is right), and both groups get the mix of cells of all
    rows that are compared. Cells where a group has fewer than two rows are left out. Welch's interval; with ``cluster``
    (rows,), rows of one code add to it together.
    """
    parts = []
    for one in np.unique(cell):
        sides = [np.flatnonzero((cell == one) & side) for side in (member, ~member)]
        if min(map(len, sides)) >= 2:
            parts.append(sides)
    rows = sum(len(second) + len(first) for second, first in parts)
    if not parts or not np.isfinite(values).all():
        return Estimate.undefined("no label has two right or two wrong rows of both groups", len(values))
    value, terms, added = 0.0, [], np.zeros(len(values))
    for sides in parts:
        share, means = sum(map(len, sides)) / rows, [float(values[side].mean()) for side in sides]
        value += share * (means[0] - means[1])
        for side, mean in zip(sides, means, strict=True):
            added[side] = share * (values[side] - mean) / len(side)
            terms.append(_variance(added[side], None))
    if cluster is not None:
        there = np.concatenate([side for sides in parts for side in sides])
        by_group = [there[member[there]], there[~member[there]]]
        if any((cluster[side] == cluster[side[0]]).all() for side in by_group):
            return Estimate.undefined(ONE_CLUSTER, rows)
        terms = [_variance(added[side], cluster[side]) for side in by_group]
    variance = sum(one for one, _ in terms)
    spread = sum(one**2 / freedom for one, freedom in terms)
    freedom = variance**2 / spread if spread > 0 else 1.0
    return student(value, variance, freedom, rows, level, (-bound, bound))


def area_under_steps(shares: Array, values: Array) -> Array:
    """Return the mean height of curves (rows, steps) over ``shares`` (steps,) from 0 to 1, by trapezoids."""
    return np.asarray(np.trapezoid(values, shares, axis=1))
