"""Counts by label, prediction, group and what the proxies say, as the methods take them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from scipy import stats

from levelhead.auditing.missing.bounds import naive_gap
from levelhead.auditing.missing.gaps import FloatArray
from levelhead.auditing.missing.labelled import FOLDS, cross_fitted
from levelhead.auditing.missing.tally import BINS

Cells = Mapping[tuple[Hashable, ...], FloatArray]


def add_up(cells: Cells, places: Sequence[tuple[int, Sequence[Hashable]]]) -> FloatArray:
    """Sum patterns into an array: an axis for each (position, its values), then (3, 3); others are left out."""
    index = [(at, {value: place for place, value in enumerate(values)}) for at, values in places]
    out = np.zeros((*(len(values) for _, values in places), 3, 3))
    for pattern, sums in cells.items():
        place = tuple(where.get(pattern[at], -1) for at, where in index)
        if min(place) >= 0:
            out[place] += sums
    return out


OUTCOME: list[tuple[int, Sequence[Hashable]]] = [(0, (0, 1)), (1, (0, 1))]


def varies(cells: Cells) -> bool:
    """Whether a probability varies."""
    rows, first, second = np.sum([sums[0] for sums in cells.values()], 0)
    return bool(second / rows - (first / rows) ** 2 > 1e-12)


def by_halves(cells: Cells) -> FloatArray:
    """Count rows by whether the probability is at least a half: (2, label, prediction)."""
    out = np.zeros((2, 2, 2))
    for pattern, sums in cells.items():
        out[int(int(str(pattern[-2])) >= BINS // 2), int(str(pattern[0])), int(str(pattern[1]))] += sums[0, 0]
    return out


def naive_gaps(
    cells: Cells, proxies: Sequence[str], positions: Sequence[int], pair: tuple[Hashable, Hashable],
    groups: Sequence[Hashable], gap: str,
) -> dict[str, float]:  # fmt: skip
    """The naive gaps, second of the pair minus first, of those proxies that speak of the groups in their own words."""
    out = {}
    for proxy, at in zip(proxies, positions, strict=True):
        values = {pattern[at] for pattern in cells}
        if values <= set(groups):
            out[proxy] = naive_gap(add_up(cells, [(at, pair), *OUTCOME])[..., 0, 0], gap)
    return out


def moments_of(
    cells: Cells, groups: Sequence[Hashable], a: int, positions: Sequence[int], probability: bool
) -> tuple[FloatArray, FloatArray, float]:
    """Return what :func:`by_labelled_rows` takes for group ``a`` against the others, and the proxy's direction."""
    if probability or not positions:
        every = add_up(cells, [(2, [*groups, None]), *OUTCOME])
        known = every[:-1]
        own = np.stack([known.sum(0) - known[a], known[a]])
        rest = every[-1][..., 0, :]
        if not positions:  # without a proxy h is the same everywhere, and gains nothing
            own[..., 1:], rest = own[..., :1], np.repeat(rest[..., :1], 3, -1)
        counts, first = own[..., 0, 0].sum((1, 2)), own[..., 0, 1].sum((1, 2))
        mean = np.divide(first, counts, out=np.zeros(2), where=counts > 0)
        if mean[1] >= mean[0]:
            return own, rest, 1.0
        # The probability is that of the other group: h becomes 1 - h.
        turned = []
        for table in (own, rest):
            zero, one, two = table[..., 0], table[..., 1], table[..., 2]
            turned.append(np.stack([zero, zero - one, zero - 2 * one + two], -1))
        return turned[0], turned[1], -1.0
    labelled, unlabelled = by_cell(cells, groups, positions, probability)
    two = np.stack([labelled.sum(1) - labelled[:, a], labelled[:, a]], 1)
    return (*cross_fitted(two, unlabelled), 1.0)


def by_cell(
    cells: Cells, groups: Sequence[Hashable], positions: Sequence[int], probability: bool
) -> tuple[FloatArray, FloatArray]:
    """Count by what the proxies say: labelled (fold, group, cell, label, prediction, 3), unlabelled (cell, 2, 2)."""

    def said(pattern: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        if probability:  # its tenths: what each says of several groups is fitted
            return (int(str(pattern[-2])) * 10 // BINS,)
        return tuple(pattern[at] for at in positions)

    place = {value: at for at, value in enumerate(sorted({said(pattern) for pattern in cells}, key=str))}
    number = {group: at for at, group in enumerate(groups)}
    labelled = np.zeros((FOLDS, len(groups), len(place), 2, 2, 3))
    unlabelled = np.zeros((len(place), 2, 2))
    for pattern, sums in cells.items():
        cell = place[said(pattern)]
        y, hit = int(str(pattern[0])), int(str(pattern[1]))
        if pattern[2] is None:
            unlabelled[cell, y, hit] += sums[0, 0]
        else:
            labelled[int(str(pattern[-1])), number[pattern[2]], cell, y, hit] += sums[:, 0]
    return labelled, unlabelled


def not_random(cells: Cells, positions: Sequence[int], probability: bool) -> str:
    """Say so if being labelled goes with label, prediction or proxy; empty if these rows do not show it."""
    table: dict[tuple[Hashable, ...], FloatArray] = {}
    for pattern, sums in cells.items():
        proxy = int(str(pattern[-2])) * 5 // BINS if probability else tuple(pattern[at] for at in positions)
        row = table.setdefault((pattern[0], pattern[1], proxy), np.zeros(2))
        row[int(pattern[2] is not None)] += sums[0, 0]
    counts = np.array(list(table.values()))
    share = counts[:, 1].sum() / counts.sum()
    counts = counts[counts.sum(1) * min(share, 1 - share) >= 5]
    if len(counts) < 2 or (counts.sum(0) == 0).any():
        return ""
    if stats.chi2_contingency(counts, correction=False).pvalue >= 0.001:
        return ""
    return (
        "whether a row was labelled goes with its label, prediction or proxy, so the labelled rows are no random sample"
    )
