"""Change decisions after training, so that the groups' rates come closer. USES GROUPS, to fit and to decide.

Post-hoc bias scoring (Chen, Klochkov and Liu, ICLR 2024). A decision costs accuracy to flip: eta = |2 p - 1| with p the
probability of the positive class. Flipping it moves the gap by f / n, with f = (2 yhat - 1) w, where w depends on group
(and label). The best set of flips for a bound delta on the gap solves a linear program; its solution flips the rows
whose bias score f / eta lies beyond a threshold z. With the row's own group A known, w is

- demographic parity: [A = a] / P(A = a) - [A = b] / P(A = b),
- equal opportunity: p ([A = a] / P(A = a, Y = 1) - [A = b] / P(A = b, Y = 1)), and for equalized odds the same for
  Y = 0 with 1 - p, each bounded by delta.

With several groups there is a constraint for each pair with the first. The dual is a piecewise linear function of a few
multipliers. For one constraint it is solved exactly, by going through the sorted scores; for more, by cutting planes
(Kelley 1960). Equalized odds cannot in general be met without chance (Hardt, Price and Srebro, NIPS 2016): whole
stretches of rows can be as good flipped as not. There, costs get noise of at most :data:`NOISE`, which parts such rows.
The noise depends on the seed, the probability, the group, and how many equal rows stand before: a row gets the same
decision alone as in a file. Bounds are about the model's own probabilities; what they come to on labelled rows is
measured, on rows that were not used to fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse, special

from levelhead.arrays import checked, put_in_order
from levelhead.metrics.counts import distinct
from levelhead.metrics.names import MISSING_GROUP
from levelhead.metrics.scores import SMALLEST
from levelhead.report.text import counted
from levelhead.tables.columns import numbers_of_array
from levelhead.types import ConfigError, DataError, listed, quoted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

METRICS = ("demographic_parity", "equal_opportunity", "equalized_odds")
CERTAIN = 1e-12
"""Decisions of less cost than this are flipped first."""
PLANES = 400
MOST_ROWS = 10_000
"""Most rows of a linear program; beyond, neighbouring rows of a group are merged."""
NOISE = 2e-3
SCHEMA = 1
"""Schema version of a rule's JSON. It grows when the meaning changes, not when keys are added."""
LEEWAY = 5e-4


@dataclass(frozen=True)
class FittedRule:
    """A fitted rule: which decisions are flipped. :class:`~levelhead.auditing.bias_rule.BiasRule` fits one.

    ``multipliers`` (constraints,) are the dual variables; constraint k compares group ``pairs[k][0]`` with group
    ``pairs[k][1]`` for the label ``pairs[k][2]`` (None: all rows). ``shares`` are the shares that a group's rows, or a
    group's rows with a label, have of all rows. ``lines`` are intercept and slope of each group's log odds, which make
    its probabilities calibrated. ``threshold`` decides rows before any flip.
    """

    metric: str
    delta: float
    groups: tuple[str, ...]
    threshold: float
    multipliers: FloatArray
    pairs: tuple[tuple[int, int, int | None], ...]
    shares: dict[tuple[int, int | None], float]
    lines: tuple[tuple[float, float], ...]

    @checked
    def decide(self, probability: ArrayLike, group: ArrayLike, *, seed: int = 0) -> NDArray[np.bool_]:
        """Return decisions (rows,); a group that the rule was not fitted on is an error.

        ``seed`` is of the chance that equalized odds need; other metrics need none.
        """
        values, members = rows_of_rule(probability, group)
        known = {name: place for place, name in enumerate(self.groups)}
        codes = np.array([known.get(name, -1) for name in members.tolist()])
        if len(unknown := np.flatnonzero(codes < 0)):
            name = members[unknown[0]]
            which = "No group" if name == MISSING_GROUP else f"Group {quoted(name)}"
            raise DataError(
                f"{which} stands in {counted(int((members == name).sum()), 'row')}, first in row {unknown[0] + 1} "
                f"(counted from 1). The rule does not know this group; it knows {listed(map(quoted, self.groups), 8)}. "
                "Fit a rule on such rows, too, or decide them another way."
            )
        scores, cost, plain = self._scores(values, codes, seed)
        return plain ^ (scores @ self.multipliers > cost)

    def _scores(
        self, values: FloatArray, codes: IntArray, seed: int
    ) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        plain = values >= self.threshold
        # What a flip loses: the probability of the class that was decided, less that of the other.
        sign = np.where(plain, 1.0, -1.0)
        given, values = values, _calibrated(values, codes, self.lines)
        # Never below 0: a flip that gains accuracy is nothing that a gap asks for.
        cost = np.maximum(0, sign * (2 * values - 1))
        if self.metric == "equalized_odds":
            cost = cost + NOISE * _chance(given, codes, seed)
        return sign[:, None] * _weights(values, codes, self.pairs, self.shares), cost, plain

    def calibrated(self, values: FloatArray, codes: IntArray) -> FloatArray:
        """Return the probabilities (rows,) that the rule takes for those of ``values``, in groups ``codes``."""
        return _calibrated(values, codes, self.lines)

    def cutoffs(self) -> dict[str, list[tuple[float, float, bool]]]:
        """Return for each group the ranges of probabilities that are decided positive, to a thousandth.

        Each has its ends, and whether decisions in it are by chance. Before any flip it is one, from the threshold on.
        """
        # The centres of thousandths: none lies on a threshold of few digits.
        grid, found = (np.arange(1000) + 0.5) / 1000, {}
        for place, name in enumerate(self.groups):
            scores, cost, plain = replace(self, metric="")._scores(grid, np.full(1000, place), 0)
            reach = scores @ self.multipliers
            noise = NOISE if self.metric == "equalized_odds" else 0.0
            least, most = plain ^ (reach > cost), plain ^ (reach > cost + noise)
            state = np.where(least & most, 2, np.where(least | most, 1, 0))
            edges = np.flatnonzero(np.diff(state, prepend=-1, append=-1))
            parts = [(int(start), int(end)) for start, end in itertools.pairwise(edges) if state[start]]
            found[name] = [(start / 1000, end / 1000, bool(state[start] == 1)) for start, end in parts]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict, which :meth:`from_dict` reads."""
        return {
            "schema": SCHEMA,
            "metric": self.metric,
            "delta": self.delta,
            "uses_groups": True,
            "groups": list(self.groups),
            "threshold": self.threshold,
            "multipliers": self.multipliers.tolist(),
            "pairs": [list(pair) for pair in self.pairs],
            "shares": [[*key, share] for key, share in self.shares.items()],
            "lines": [list(line) for line in self.lines],
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> FittedRule:
        """Read what :meth:`to_dict` returned; one of a later schema is a :class:`~levelhead.types.DataError`."""
        if (schema := int(record.get("schema", 1))) > SCHEMA:
            raise DataError(
                f"The rule has schema {schema}, and this levelhead reads up to {SCHEMA}. Update levelhead, or fit the "
                "rule again."
            )
        return cls(
            record["metric"],
            record["delta"],
            tuple(record["groups"]),
            record["threshold"],
            np.array(record["multipliers"], np.float64),
            tuple((int(a), int(b), None if label is None else int(label)) for a, b, label in record["pairs"]),
            {(int(a), None if label is None else int(label)): share for a, label, share in record["shares"]},
            tuple((float(intercept), float(slope)) for intercept, slope in record["lines"]),
        )


@checked
def fit_rule(
    probability: ArrayLike,
    group: ArrayLike,
    *,
    metric: str = "equalized_odds",
    delta: float = 0.0,
    threshold: float = 0.5,
    lines: Mapping[str, tuple[float, float]] | None = None,
    shift: Mapping[tuple[int, int | None], float] | None = None,
    seed: int = 0,
) -> FittedRule:
    """Find the flips that cost the least expected accuracy among those whose expected gap is at most ``delta``.

    Labels are not needed: the probabilities represent them.

    Args:
        probability: (rows,) probability of the positive class, between 0 and 1; calibrated, or the bound is about
            another gap than the true one.
        group: (rows,) group of each row.
        metric: one of :data:`METRICS`. Equalized odds bounds the differences of both rates, each by ``delta``.
        delta: largest gap, a fraction.
        threshold: rows with at least this probability are positive before any flip.
        lines: intercept and slope of each group's log odds, by its name, that calibrate it. None: 0 and 1.
        shift: by how much the rate of a group (its place in sorted order) among rows with a label (None: of all rows)
            is larger than probabilities say; None: 0.
        seed: of the noise, for equalized odds.

    Returns:
        the rule.

    Raises:
        DataError: probabilities that are none, fewer than two groups, or a group whose expected number of rows with a
            label is below one.
        ConfigError: an unknown metric, or a delta or a threshold outside 0 to 1.
    """
    check_rule(metric, delta, threshold)
    values, members = rows_of_rule(probability, group)
    names, codes = np.unique(members.astype(str), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"There are {len(names)} groups. A gap needs two or more.")
    labels: tuple[int | None, ...] = {
        "demographic_parity": (None,),
        "equal_opportunity": (1,),
        "equalized_odds": (1, 0),
    }[metric]
    drawn = tuple((lines or {}).get(str(name), (0.0, 1.0)) for name in names)
    calibrated = _calibrated(values, codes, drawn)
    expected = {None: np.ones(len(values)), 1: calibrated, 0: 1 - calibrated}
    shares = {}
    for a, name in enumerate(names):
        for label in labels:
            size = float(expected[label][codes == a].sum())
            if size < 1:
                raise DataError(f"Group {quoted(str(name))} has less than one row with label {label}, as expected.")
            shares[(a, label)] = size / len(values)
    # All pairs: with three groups, two that are within delta of a third can be 2 delta apart.
    pairs = tuple((a, b, label) for label in labels for a in range(len(names)) for b in range(a + 1, len(names)))
    rule = FittedRule(metric, delta, tuple(map(str, names)), threshold, np.zeros(len(pairs)), pairs, shares, drawn)
    moved = dict.fromkeys(shares, 0.0) | dict(shift or {})
    if len(names) > 2:
        return replace(rule, multipliers=_solve_rates(rule, values, codes, moved, seed))
    flips, cost, plain = rule._scores(values, codes, seed)
    gaps = _weights(calibrated, codes, pairs, shares)[plain].sum(0) / len(values)
    gaps = gaps + [moved[a, label] - moved[b, label] for a, b, label in pairs]
    return replace(rule, multipliers=solve_dual(flips, cost, gaps, delta))


def _solve_rates(
    rule: FittedRule, values: FloatArray, codes: IntArray, shift: Mapping[tuple[int, int | None], float], seed: int
) -> FloatArray:
    """Solve the program of a ``rule`` for three groups or more, and return a multiplier for each of its pairs.

    All pairs of rates are within delta just where all rates lie between a number and that number plus delta. That is
    one constraint a group and label instead of one a pair, and each row is in one group's alone: HiGHS solves it as it
    stands, and its duals sum to 0 over the groups of a label.
    """
    rows, keys = len(values), list(rule.shares)
    labels = list(dict.fromkeys(label for _, label in keys))
    _, cost, plain = replace(rule, pairs=())._scores(values, codes, seed)
    calibrated = _calibrated(values, codes, rule.lines)
    expected = {None: np.ones(rows), 1: calibrated, 0: 1 - calibrated}
    adds = [sparse.csr_array((codes == a) * expected[label] / rule.shares[a, label]) for a, label in keys]
    weights = sparse.vstack([one.reshape(1, -1) for one in adds], format="csr") / rows
    rates = np.asarray(weights @ plain) + [shift[key] for key in keys]
    own = {label: rates[[known == label for _, known in keys]] for label in labels}
    if all(np.ptp(one) <= rule.delta for one in own.values()):  # nothing is to be flipped
        return np.zeros(len(rule.pairs))
    flips = weights @ sparse.diags_array(np.where(plain, 1.0, -1.0))
    if rows > MOST_ROWS and rule.metric != "equalized_odds":  # rows of a group with near probabilities flip together
        order = np.lexsort((cost, calibrated, plain, codes))
        part = 2 * codes[order] + plain[order]
        place = np.arange(rows) - np.searchsorted(part, part)
        chunk = place // -(-rows // MOST_ROWS)
        bins = np.concatenate([[0], np.cumsum((np.diff(part) != 0) | (np.diff(chunk) != 0))])
        together = sparse.csr_array((np.ones(rows), (order, bins)))
        flips, cost = flips @ together, cost @ together
    # The least rate of each label, behind the flips; rate - flips @ r / n - least lies between 0 and delta.
    least = np.array([[float(label == known) for known in labels] for _, label in keys])
    found = optimize.linprog(
        np.concatenate([cost / rows, np.zeros(len(labels))]),  # of all rows, of any number are taken together
        A_ub=sparse.vstack([sparse.hstack([sign * flips, sign * least]) for sign in (1, -1)]),
        b_ub=np.concatenate([rates, rule.delta - rates]),
        bounds=[(0, 1)] * len(cost) + [(None, None)] * len(labels),
        method="highs",
    )
    # Marginals are what a looser bound would add to the cost, which is never positive.
    above, below = np.split(found.ineqlin.marginals, 2)
    prices = dict(zip(keys, above - below, strict=True))
    multipliers = np.zeros(len(rule.pairs))
    places = {pair: place for place, pair in enumerate(rule.pairs)}
    for label in labels:
        # What a group with a positive price gives to those with negative ones, as multipliers of pairs.
        owed = {a: prices[a, label] for a, known in keys if known == label}
        for a in [one for one, price in owed.items() if price > 0]:
            for b in [one for one, price in owed.items() if price < 0]:
                moved = min(owed[a], -owed[b])
                owed[a], owed[b] = owed[a] - moved, owed[b] + moved
                multipliers[places[min(a, b), max(a, b), label]] += moved if a < b else -moved
    # A group has at most one row that only a part of a flip would bring to the bound: it is flipped.
    return multipliers * (1 + 1e-7)


@checked
def check_rule(metric: str, delta: float, threshold: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for options of a rule that cannot be."""
    if metric not in METRICS:
        raise ConfigError(f"metric={quoted(metric)} is unknown. Known: {listed(METRICS)}.")
    for name, value in (("delta", delta), ("threshold", threshold)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name}={value} is not between 0 and 1.")


def solve_dual(flips: FloatArray, cost: FloatArray, gaps: FloatArray, delta: float) -> FloatArray:
    """Multipliers of the program: flip r in [0, 1]^n of least mean cost with |gaps - flips.T r / n| <= delta.

    Args:
        flips: (rows, constraints) how much a flip takes off each gap, times the number of rows.
        cost: (rows,) what a flip costs.
        gaps: (constraints,) gaps before any flip.
        delta: the bound.

    Returns:
        (constraints,) signed multipliers z: rows with flips @ z > cost are flipped.
    """
    if (np.abs(gaps) <= delta).all():
        return np.zeros(len(gaps))
    if len(gaps) == 1:
        return np.array([_solve_one(flips[:, 0], cost, float(gaps[0]), delta)])
    return _cutting_planes(flips, cost, gaps, delta)


def _solve_one(flips: FloatArray, cost: FloatArray, gap: float, delta: float) -> float:
    """Go through the rows by cost per gap: exact."""
    sign = math.copysign(1.0, gap)
    useful = np.flatnonzero(sign * flips > 0)
    price = np.maximum(cost[useful], CERTAIN) / (sign * flips[useful])
    order = np.argsort(price, kind="stable")
    taken = np.cumsum(sign * flips[useful][order]) / len(cost)
    need = abs(gap) - delta
    last = int(np.searchsorted(taken, need - 1e-12))
    if last >= len(order):
        return float(sign * price.max() * (1 + 1e-9)) if len(order) else 0.0
    # Between the last row that is flipped and the next one with another price.
    after = price[order][last + 1 :]
    higher = after[after > price[order][last]]
    edge = price[order][last]
    return float(sign * ((edge + higher[0]) / 2 if len(higher) else edge * (1 + 1e-9) + CERTAIN))


def _cutting_planes(flips: FloatArray, cost: FloatArray, gaps: FloatArray, delta: float) -> FloatArray:
    """Maximise the concave dual g(z) = gaps z - delta |z|_1 - mean max(0, flips z - cost) (Kelley 1960)."""
    rows, size = flips.shape

    def value(z: FloatArray) -> tuple[float, FloatArray]:
        """The concave part without the norm, and its slope."""
        beyond = flips @ z - cost
        hit = beyond > 0
        return float(gaps @ z - beyond[hit].sum() / rows), gaps - flips[hit].sum(0) / rows

    # z = up - down, both at least 0; t is below every plane. The first box is enlarged where it binds.
    box, planes, bounds = 1.0, [], []
    best, best_value = np.zeros(size), 0.0
    z = np.zeros(size)
    for _ in range(PLANES):
        height, slope = value(z)
        total = height - delta * float(np.abs(z).sum())
        left = float((np.abs(slope) - delta).max())
        if total > best_value:
            best, best_value = z, total
        planes.append(np.concatenate([-slope, slope, [1.0]]))
        bounds.append(height - float(slope @ z))
        while True:
            found = optimize.linprog(
                np.concatenate([np.full(2 * size, delta), [-1.0]]),
                A_ub=np.array(planes),
                b_ub=np.array(bounds),
                bounds=[(0, box)] * (2 * size) + [(None, None)],
                method="highs",
            )
            z = found.x[:size] - found.x[size : 2 * size]
            if np.abs(z).max() < box * (1 - 1e-9) or box >= 64:
                break
            box *= 4
        # The slope is what is left of the gaps: a solution within the bound need not be improved to the last digit.
        distance = -found.fun - best_value
        if distance <= 1e-9 or (distance <= 1e-5 and left <= LEEWAY and best_value == total):
            break
    return best


def _weights(
    values: FloatArray,
    codes: IntArray,
    pairs: Sequence[tuple[int, int, int | None]],
    shares: dict[tuple[int, int | None], float],
) -> FloatArray:
    """Return what a positive decision of each row adds to each gap, times the number of rows: (rows, constraints)."""
    expected = {None: np.ones(len(values)), 1: values, 0: 1 - values}
    found = np.zeros((len(values), len(pairs)))
    for at, (a, b, label) in enumerate(pairs):
        found[:, at] += np.where(codes == a, expected[label] / shares[(a, label)], 0)
        found[:, at] -= np.where(codes == b, expected[label] / shares[(b, label)], 0)
    return found


def _chance(values: FloatArray, codes: IntArray, seed: int) -> FloatArray:
    """Return a number in [0, 1) for each row: a hash of seed, probability, group and how many equal rows stand before.

    A decision must not depend on which other rows a file holds.
    """
    order = np.lexsort((values, codes))
    new = np.r_[True, (np.diff(values[order]) != 0) | (np.diff(codes[order]) != 0)]
    place = np.arange(len(values))
    before = np.empty(len(values), np.int64)
    before[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    mixed = np.full(len(values), seed, np.uint64)
    for part in ((values + 0.0).view(np.uint64), codes.astype(np.uint64), before.astype(np.uint64)):
        mixed = (mixed ^ part) + np.uint64(0x9E3779B97F4A7C15)  # SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _calibrated(values: FloatArray, codes: IntArray, lines: Sequence[tuple[float, float]]) -> FloatArray:
    if all(line == (0.0, 1.0) for line in lines):
        return values
    intercept, slope = np.array(lines).T
    log_odds = special.logit(np.clip(values, SMALLEST, 1 - SMALLEST))
    return np.asarray(special.expit(intercept[codes] + slope[codes] * log_odds))


def rows_of_rule(probability: ArrayLike, group: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
    """Return probabilities (rows,) and names of groups (rows,), or raise :class:`~levelhead.types.DataError`."""
    probability, group = put_in_order({"probability": probability, "group": group}).values()
    values = numbers_of_array(probability, "The probability", "Pass one between 0 and 1 for every row.")
    members, names = distinct(group, "The group column")
    if len(members) != len(values):
        raise DataError(f"{len(values)} probabilities and {len(members)} groups. Pass one of each for every row.")
    if (members < 0).any():
        row = np.flatnonzero(members < 0)[0] + 1
        count = counted(int((members < 0).sum()), "row")
        raise DataError(
            f"The group is missing in {count}, first in row {row} (counted from 1). Name it, or leave them out."
        )
    if not len(values):
        raise DataError("There are no rows.")
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        raise DataError(
            f"{len(wrong)} probabilities are missing or outside 0 to 1, first in row {wrong[0] + 1} (counted from 1)."
        )
    return values, np.array([str(name) for name in names], object)[members]
