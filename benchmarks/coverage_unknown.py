"""Worlds of coverage.py in which groups are not recorded: the methods of ``levelhead.auditing.unknown``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from coverage_designs import LOWEST, Design, Record
from numpy.typing import NDArray

from levelhead.auditing.unknown.privacy import Response
from levelhead.metrics.labelled import by_labelled_pairs, by_labelled_rows
from levelhead.metrics.proxies import by_proxies
from levelhead.metrics.responses import by_responses
from levelhead.metrics.signed import GAPS, rate_gap, rows_of
from levelhead.metrics.worst_case import by_probabilities, by_shares

FloatArray = NDArray[np.float64]


Figures = dict[str, tuple[float, float, float]]
"""Value and interval by gap."""


def ends(one: Any) -> tuple[float, float, float]:
    return one.value, one.low, one.high


class Missing(NamedTuple):
    """A world in which groups are not recorded: ``once`` gives by gap (value, low, high), NaN where refused."""

    method: str
    design: str
    holds: bool  # whether the method's assumption does
    truth: dict[str, tuple[float, float]]  # both ends of what an interval must hold
    once: Callable[[np.random.Generator], Figures]


def population(share: float, positive: tuple[float, float], selected: tuple[tuple[float, float], ...]) -> FloatArray:
    """P(group 2, label 2, prediction 2) from P(group 1), P(label 1 | group), P(prediction 1 | group, label)."""
    label = np.stack([1 - np.array(positive), np.array(positive)], -1)
    hit = np.array(selected)
    return np.array([1 - share, share])[:, None, None] * label[..., None] * np.stack([1 - hit, hit], -1)


UNEQUAL = ((0.2, 0.7), (0.35, 0.9))
EQUAL = ((0.3, 0.7), (0.3, 0.7))


def gaps_of(joint: FloatArray) -> dict[str, tuple[float, float]]:
    """The true gaps of (group, label, prediction), each as both ends."""
    return {gap: (rate_gap(rows_of(joint, gap)),) * 2 for gap in GAPS}


def labelled_world(
    design: str, n: int, share: float, proxy: tuple[float, float], selected: Any = UNEQUAL, shift: float = 0.0,
    positive: tuple[float, float] = (0.3, 0.5),
) -> Missing:  # fmt: skip
    """Labelled rows among 5,000 others, with a binary proxy of this TPR and FPR, which may depend on the prediction."""
    joint = population(share, positive, selected)
    says = np.clip(np.array([proxy[1], proxy[0]])[:, None] + shift * np.array([0.0, 1.0])[None], 0, 1)  # (group, yhat)
    full = joint[..., None] * np.stack([1 - says, says], -1)[:, None]  # (group, label, prediction, h)
    power = np.arange(2)[:, None] ** np.arange(3)  # (h, j)

    def once(rng: np.random.Generator) -> Figures:
        known, rows = (rng.multinomial(size, full.ravel()).reshape(full.shape) for size in (n, 5000))
        own = np.einsum("gyhk,kj->gyhj", known.astype(float), power)
        rest = np.einsum("yhk,kj->yhj", rows.sum(0).astype(float), power)
        found = by_labelled_rows(own, rest)
        return {gap: ends(one.estimate) for gap, one in found.items()}

    return Missing("labelled subset", design, True, gaps_of(joint), once)


def cross_fitted_world(design: str, n: int, joint: FloatArray, says: Any, level: float = 0.95) -> Missing:
    """A proxy, P(category | group), that is fitted on the labelled rows themselves: the last group minus the first."""
    full, last = joint[:, None] * np.array(says)[:, :, None, None], len(joint) - 1  # (group, category, label, yhat)

    def once(rng: np.random.Generator) -> Figures:
        folds = rng.multinomial([n // 5] * 5, full.ravel()).reshape(5, *full.shape).astype(float)
        rows = rng.multinomial(5000, full.ravel()).reshape(full.shape).sum(0).astype(float)
        found = by_labelled_pairs(folds, rows, level=level)
        return {gap: ends(by_pair[last, 0].estimate) for gap, by_pair in found.items()}

    return Missing("labelled subset", design, True, gaps_of(joint[[0, last]]), once)


def three_groups() -> FloatArray:
    """P(group, label, prediction) of three groups."""
    label, hit = np.array([0.3, 0.4, 0.5]), np.array([[0.2, 0.7], [0.3, 0.8], [0.35, 0.9]])
    share = np.array([0.4, 0.35, 0.25])[:, None, None]
    return np.asarray(share * np.stack([1 - label, label], -1)[..., None] * np.stack([1 - hit, hit], -1))


OF_TWO = [[0.3, 0.25, 0.2, 0.15, 0.07, 0.03], [0.03, 0.07, 0.1, 0.2, 0.3, 0.3]]
OF_THREE = [[0.5, 0.25, 0.1, 0.08, 0.05, 0.02], [0.1, 0.1, 0.5, 0.2, 0.05, 0.05], [0.02, 0.03, 0.05, 0.2, 0.3, 0.4]]
"""What a proxy of six categories says of each group."""
ONE_OF_THREE = 0.85
"""Three pairs share the error probability: 15% for all leave 5% for each."""
PROXIES = np.array([[0.2, 0.7], [0.25, 0.9], [0.35, 0.6]])  # P(says 1 | group), a proxy a line


def proxy_world(
    design: str, n: int, *, says: Any = PROXIES, mode: str = "auto", selected: Any = UNEQUAL,
    positive: tuple[float, float] = (0.3, 0.5), shift: float = 0.0, shared: float = 0.0,
) -> Missing:  # fmt: skip
    """Three proxies; ``shift``: they say 1 more often where the prediction is 1; ``shared``: errors of two
    correlate."""
    joint = population(0.4, positive, selected)
    chance = np.clip(
        np.array(says)[:, :, None] + shift * np.array([0.0, 1.0])[None, None], 0, 1
    )  # (proxy, group, yhat)
    one, two, three = (np.stack([1 - own, own], -1) for own in chance)
    pair = one[..., :, None] * two[..., None, :]
    spread = shared * np.sqrt(one.prod(-1) * two.prod(-1))[..., None, None]
    pair = pair + spread * np.array([[1.0, -1.0], [-1.0, 1.0]])
    full = np.einsum("gyh,ghij,ghk->ijkyh", joint, pair, three)

    def once(rng: np.random.Generator) -> Figures:
        counts = rng.multinomial(n, full.ravel()).reshape(full.shape)
        found = by_proxies(counts, mode=mode, replicates=500, seed=int(rng.integers(1 << 30)))
        return {gap: ends(by_pair[1, 0]) for gap, by_pair in found.gaps.items()}

    return Missing("three proxies", design, not (shift and mode == "global") and not shared, gaps_of(joint), once)


def response_world(design: str, n: int, share: float, flip: float, selected: Any) -> Missing:
    """Randomised answers of two groups."""
    joint = population(share, (0.4, 0.4), selected)
    matrix = Response(flip=flip).matrix(2)
    seen = np.einsum("ij,iyh->jyh", matrix, joint)

    def once(rng: np.random.Generator) -> Figures:
        found = by_responses(rng.multinomial(n, seen.ravel()).reshape(seen.shape), matrix)
        return {gap: ends(by_pair[1, 0].estimate) for gap, by_pair in found.items()}

    return Missing("randomised responses", design, True, gaps_of(joint), once)


def bounds_world(design: str, n: int, weight: Any, rate: Any, share: Any, *, drawn: bool = False) -> Missing:
    """Shares of two groups, or their probabilities in several strata; both bounds of the population must be held.

    ``drawn``: the sizes of the strata are chance.
    """
    w, r, p = (np.array(one, float) for one in (weight, rate, share))
    # In each stratum a fifth of those selected, and two fifths of the others, have label 0.
    cells = np.stack([np.stack([0.4 * (1 - r), 0.2 * r], -1), np.stack([0.6 * (1 - r), 0.8 * r], -1)], 1)
    shares = np.stack([1 - p, p], -1)
    vectors = np.concatenate([np.ones((len(p), 1)), shares], 1)
    outer = (vectors[:, :, None] * vectors[:, None, :])[:, None, None]

    def bounded(counts: FloatArray) -> dict[str, Any]:
        if len(p) == 1:
            return by_shares(counts[0], shares[0])
        return by_probabilities(counts[..., None, None] * outer)[0]

    bounds = bounded(1e12 * w[:, None, None] * cells)
    truth = {gap: (one[1, 0].low, one[1, 0].high) for gap, one in bounds.items()}

    def once(rng: np.random.Generator) -> Figures:
        sizes = rng.multinomial(n, w) if drawn else np.round(n * w).astype(int)
        counts = np.stack([rng.multinomial(k, q.ravel()).reshape(2, 2) for k, q in zip(sizes, cells, strict=True)])
        found = {gap: by_pair[1, 0] for gap, by_pair in bounded(counts).items()}
        return {gap: ((one.low + one.high) / 2, one.reach_low, one.reach_high) for gap, one in found.items()}

    return Missing("bounds", design, True, truth, once)


def probabilities_world(design: str, n: int) -> Missing:
    """Three groups by their probabilities, of which there are 60 kinds: the weighted third minus first, at 95%."""
    kinds = np.random.default_rng(0).dirichlet((2.0, 0.7, 0.4), 60)
    label, hit = 0.2 + 0.4 * kinds[:, 0], np.stack([0.1 + 0.3 * kinds[:, 1], 0.5 + 0.4 * kinds[:, 0]], -1)
    cells = np.stack([1 - label, label], -1)[..., None] * np.stack([1 - hit, hit], -1)  # (kind, label, prediction)
    vectors = np.concatenate([np.ones((60, 1)), kinds], 1)
    outer = (vectors[:, :, None] * vectors[:, None, :])[:, None, None]
    joint = np.einsum("kg,kyh->gyh", kinds, cells) / 60

    def once(rng: np.random.Generator) -> Figures:
        counts = rng.multinomial(n, cells.ravel() / 60).reshape(cells.shape)
        _, weighted = by_probabilities(counts[..., None, None] * outer, level=ONE_OF_THREE)
        return {gap: ends(by_pair[2, 0]) for gap, by_pair in weighted.items()}

    return Missing("weighted by probabilities", design, True, gaps_of(joint[[0, 2]]), once)


def worlds() -> list[Missing]:
    """Return the worlds in which groups are not recorded."""
    weak, middling = [[0.425, 0.575]] * 3, [[0.35, 0.65]] * 3
    strong = [[0.125, 0.875], [0.125, 0.875], [0.2, 0.75]]
    none = {"selected": EQUAL, "positive": (0.4, 0.4)}
    strata = ((0.5, 0.3, 0.2), (0.2, 0.5, 0.8))
    many = np.linspace(0.05, 0.95, 100)
    hundred = np.full(100, 0.01)
    four, decided = (0.25,) * 4, ((0.98, 0.02, 0.98, 0.02), (0.97, 0.97, 0.03, 0.03))
    return [
        labelled_world("200 labelled, 30% in the group, proxy 90/10", 200, 0.3, (0.9, 0.1)),
        labelled_world("200 labelled, proxy 98/2", 200, 0.3, (0.98, 0.02)),
        labelled_world("200 labelled, proxy 70/30, no gap", 200, 0.3, (0.7, 0.3), EQUAL, positive=(0.4, 0.4)),
        labelled_world("400 labelled, 10% in the group", 400, 0.1, (0.9, 0.1)),
        labelled_world("100 labelled", 100, 0.4, (0.9, 0.1)),
        labelled_world("200 labelled, proxy errs with the prediction", 200, 0.3, (0.7, 0.2), shift=0.2),
        cross_fitted_world(
            "400 labelled, proxy cross-fitted on them", 400, population(0.4, (0.3, 0.5), UNEQUAL), OF_TWO
        ),
        proxy_world("global, 2,000 rows", 2_000, says=strong, mode="global"),
        proxy_world("global, 10,000 rows", 10_000, mode="global"),
        proxy_world("global, 50,000 rows", 50_000, mode="global"),
        proxy_world("global, 10,000 rows, no gap", 10_000, mode="global", **none),
        proxy_world("local, 50,000 rows", 50_000, mode="local"),
        proxy_world("chosen by the test, 10,000 rows", 10_000),
        proxy_world("local, 2,000 rows: must refuse", 2_000, mode="local"),
        proxy_world("proxies that tell little, 1,000 rows", 1_000, says=middling),
        proxy_world("proxies that tell almost nothing, 5,000 rows", 5_000, says=weak),
        proxy_world("errors go with the prediction, global forced", 10_000, mode="global", shift=0.1),
        proxy_world("errors go with the prediction, chosen by the test", 50_000, shift=0.1),
        proxy_world("shared errors, correlation 0.1", 10_000, shared=0.1),
        proxy_world("shared errors, correlation 0.3", 10_000, shared=0.3),
        response_world("30% in the group, flip 0.2, 1,000 rows", 1_000, 0.3, 0.2, UNEQUAL),
        response_world("30% in the group, flip 0.4, 5,000 rows", 5_000, 0.3, 0.4, UNEQUAL),
        response_world("10% in the group, flip 0.2, 2,000 rows, no gap", 2_000, 0.1, 0.2, EQUAL),
        response_world("halves, flip 0.3, 500 rows", 500, 0.5, 0.3, UNEQUAL),
        response_world("10% in the group, flip 0.25, 1,000 rows", 1_000, 0.1, 0.25, UNEQUAL),
        bounds_world("three strata at their kinks, 500 rows", 500, *strata, strata[1]),
        bounds_world("three strata at their kinks, 5,000 rows", 5_000, *strata, strata[1]),
        bounds_world("three strata off their kinks, 5,000 rows", 5_000, *strata, (0.1, 0.4, 0.9)),
        bounds_world("one stratum at its kink, 1,000 rows", 1_000, (1.0,), (0.3,), (0.3,)),
        bounds_world("one stratum off its kink, 1,000 rows", 1_000, (1.0,), (0.3,), (0.2,)),
        # The place of a world decides its draws: new ones come last.
        cross_fitted_world(
            "600 labelled of three groups, proxy cross-fitted on them", 600, three_groups(), OF_THREE, ONE_OF_THREE
        ),
        proxy_world("global, 700 rows, 10 to 15% positive", 700, says=strong, mode="global", positive=(0.1, 0.15)),
        proxy_world("global, 3,000 rows, 5 to 8% positive", 3_000, says=strong, mode="global", positive=(0.05, 0.08)),
        bounds_world("100 strata at their kinks, 5,000 rows", 5_000, hundred, many, many),
        bounds_world("100 strata off their kinks, 16,000 rows", 16_000, hundred, 0.2 + 0.3 * many, many),
        probabilities_world("three groups, 60 kinds of probabilities, 1,000 rows", 1_000),
        probabilities_world("three groups, 60 kinds of probabilities, 10,000 rows", 10_000),
        bounds_world("four strata of random sizes decide, 1,000 rows", 1_000, four, *decided, drawn=True),
        bounds_world("four strata of random sizes decide, 10,000 rows", 10_000, four, *decided, drawn=True),
        bounds_world("three strata of random sizes at their kinks, 5,000 rows", 5_000, *strata, strata[1], drawn=True),
    ]


def summed_up(cell: Missing, drawn: list[list[tuple[float, float, float]]]) -> list[Record]:
    """Turn values and ends (trials, gaps, 3) into a record a gap."""
    found, records = np.array(drawn), []
    for position, gap in enumerate(GAPS):
        answered = ~np.isnan(found[:, position, 0])
        value, low, high = found[answered, position].T
        least, most = cell.truth[gap]
        held = (low <= least + 1e-12) & (high >= most - 1e-12)
        some = bool(answered.any())
        records.append(
            {
                "method": cell.method,
                "design": cell.design,
                "assumption_holds": cell.holds,
                "gap": gap,
                "true_value": least if least == most else [least, most],
                "trials": len(found),
                "refused": float(1 - answered.mean()),
                "coverage": float(held.mean()) if some else None,
                "bias": float(value.mean() - least) if some and least == most else None,
                "mean_width": float((high - low).mean()) if some else None,
            }
        )
    return records


def missed(record: Record) -> bool:
    """Whether a record misses the requirement: few answers after refusals decide nothing."""
    if not record["assumption_holds"] or record["coverage"] is None or record["refused"] > 0.5:
        return False
    wide = record["method"] == "bounds" or record["refused"] > 0.01
    return bool(record["coverage"] < LOWEST or (not wide and record["coverage"] > 0.975))


def designs() -> Iterator[Design]:
    """Yield the worlds in which groups are not recorded."""
    for place, world in enumerate(worlds()):
        yield Design(world.design, (9, place), partial(_start, world), partial(summed_up, world), missed)


def _start(world: Missing, rng: np.random.Generator) -> Callable[[int], Any]:
    def once(_: int) -> list[tuple[float, float, float]]:
        found = world.once(rng)
        return [found[gap] for gap in GAPS]

    return once
