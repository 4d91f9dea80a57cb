"""Change decisions after training, so that the groups' rates come closer. USES GROUPS, to fit and to decide.

Post-hoc bias scoring (Chen, Klochkov and Liu, ICLR 2024). A decision costs accuracy to flip: eta = |2 p - 1| with p the
probability of the positive class. Flipping it moves the gap by f / n, with f = (2 yhat - 1) w, where w depends on group
(and label). The best set of flips for a bound delta on the gap solves a linear program; its solution flips the rows
whose bias score f / eta lies beyond a threshold z. With the row's own group A known, w is

- demographic parity: [A = a] / P(A = a) - [A = b] / P(A = b),
- equal opportunity: p ([A = a] / P(A = a, Y = 1) - [A = b] / P(A = b, Y = 1)), and for equalized odds the same for
  Y = 0 with 1 - p, each bounded by delta.

All pairs of rates are within delta just where all rates of a label lie between a number and that number plus delta:
one constraint a group and label. HiGHS solves that linear program, and its duals are the rule's multipliers. Of more
than :data:`MOST_ROWS` rows it gets a sample that is spread evenly over groups, probabilities and noise.

The accuracy that a flip costs is eta where the threshold is 0.5. Another threshold t is the best one where a false
positive costs t and a false negative 1 - t (Elkan, IJCAI 2001), so a flip costs 2 |p - t|. Rows that cost the same are
flipped from the threshold on: costs get a :data:`TIES`-th of the distance to it. Equalized odds cannot in general be
met without chance (Hardt, Price and Srebro, NIPS 2016): whole stretches of rows can be as good flipped as not. There,
costs get noise of at most :data:`TIES` instead. The noise depends on the seed, the probability, the group, and how many
equal rows stand before: a row gets the same decision alone as in a file, unless it equals another. The program bounds
the gap that the model's own probabilities predict. On labelled rows the gap can be larger, also on those that the rule
was fitted on: it is measured there (``fit_gap``), and on rows that were not used to fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse, special

from levelhead.arrays import checked
from levelhead.auditing.options import MIN_COUNT
from levelhead.metrics.counts import distinct
from levelhead.metrics.names import MISSING_GROUP
from levelhead.metrics.scores import SMALLEST
from levelhead.report.text import counted
from levelhead.tables.columns import numbers_of_array
from levelhead.tables.tally import refuse_ids
from levelhead.types import ConfigError, DataError, listed, quoted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Rates = dict[tuple[int, int | None], float]
"""A number for each rate: by the place of a group, and the label of its rows; None: all of them."""

LABELS: dict[str, tuple[int | None, ...]] = {
    "demographic_parity": (None,), "equal_opportunity": (1,), "equalized_odds": (1, 0)
}  # fmt: skip
"""By metric, the labels of the rows whose rates it compares; None: all rows."""
METRICS = tuple(LABELS)
MOST_ROWS = 100_000
"""Most rows of the linear program."""
MOST_PRICE = 1e4
"""Most cost that a full gap may take: a bound that no flips meet is missed by as little as can be."""
TIES = 2e-3
CLEARLY = 5e-3
"""A gap this far above a bound is warned of: rows that are decided by chance move it by less."""
SCHEMA = 3
"""Schema version of a rule's JSON. It grows when the meaning changes, not when keys are added."""


@dataclass(frozen=True)
class FittedRule:
    """A fitted rule: which decisions are flipped. :class:`~levelhead.auditing.bias_rule.BiasRule` fits one.

    ``prices`` are the dual variables of the rates: what is paid for a lower one. ``shares`` are the shares that the
    rows of each rate have of all rows. ``lines`` are intercept and slope of each group's log odds, which make its
    probabilities calibrated. ``threshold`` decides rows before any flip. ``delta`` is the bound to meet, and
    ``fit_gap`` the gap of all groups on the rows that the rule was fitted on, by their labels; None without labels.
    Without ``prices`` the rule is that threshold alone, one for all rows, and reads no group.
    """

    metric: str
    delta: float
    groups: tuple[str, ...]
    threshold: float
    prices: Rates
    shares: Rates
    lines: tuple[tuple[float, float], ...]
    fit_gap: float | None = None

    @property
    def missed(self) -> bool:
        """Whether the gap on the rows that the rule was fitted on is clearly above the bound."""
        return self.fit_gap is not None and self.fit_gap > self.delta + CLEARLY

    def missed_sentence(self) -> str:
        """Say that the bound is not met on the rows that the rule was fitted on, and what to do."""
        gap, words = 100 * (self.fit_gap or 0.0), self.metric.replace("_", " ")
        found = f"labels show a gap in {words} of {gap:.1f} points over all groups"
        if not self.prices:
            return f"No threshold keeps the bound of {100 * self.delta:g} points: {found} at the best. Raise delta."
        return (
            f"On the rows that the rule was fitted on, {found}. That exceeds the bound of {100 * self.delta:g} points, "
            "which is on the gap that scores predict. Recalibrate the scores in each group, round them less, merge "
            "small groups, or raise delta."
        )

    @checked
    def decide(self, probability: ArrayLike, group: ArrayLike, *, seed: int = 0) -> NDArray[np.bool_]:
        """Return decisions (rows,); a group that the rule was not fitted on is an error.

        ``seed`` is of the chance that equalized odds need; other metrics need none.
        """
        values, members = rows_of_rule(probability, group)
        if not self.prices:
            return values >= self.threshold
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
        cost, plain = self.costs(values, codes, seed)
        return plain ^ (self._reach(values, codes, plain) > cost)

    def costs(self, values: FloatArray, codes: IntArray, seed: int | None) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return what a flip of each row costs (rows,), and the decisions before. Seed None: without the noise."""
        plain = values >= self.threshold
        # Never below 0: a flip that gains accuracy is nothing that a gap asks for.
        cost = np.maximum(0, np.where(plain, 2, -2) * (self.calibrated(values, codes) - self.threshold))
        if self.metric != "equalized_odds":
            return cost + TIES * np.abs(values - self.threshold), plain
        return cost if seed is None else cost + TIES * _chance(values, codes, seed), plain

    def _reach(self, values: FloatArray, codes: IntArray, plain: NDArray[np.bool_]) -> FloatArray:
        """Return what is paid for a flip of each row, (rows,): it is flipped where that is more than it costs."""
        weights = rates_of(self.calibrated(values, codes), codes, self.shares)
        return np.where(plain, 1, -1) * (np.array(list(self.prices.values())) @ weights)

    def calibrated(self, values: FloatArray, codes: IntArray) -> FloatArray:
        """Return the probabilities (rows,) that the rule takes for those of ``values``, in groups ``codes``."""
        return _calibrated(values, codes, self.lines)

    def cutoffs(self) -> dict[str, list[tuple[float, float, bool]]]:
        """Return for each group the ranges of probabilities that are decided positive, to a thousandth.

        Each has its ends, and whether decisions in it are by chance. Before any flip it is one, from the threshold on.
        """
        if not self.prices:
            return {}
        # The centres of thousandths: none lies on a threshold of few digits.
        grid, found = (np.arange(1000) + 0.5) / 1000, {}
        for place, name in enumerate(self.groups):
            codes = np.full(1000, place)
            cost, plain = self.costs(grid, codes, None)
            reach = self._reach(grid, codes, plain)
            noise = TIES if self.metric == "equalized_odds" else 0.0
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
            "uses_groups": bool(self.prices),
            "groups": list(self.groups),
            "threshold": self.threshold,
            "prices": [[*key, price] for key, price in self.prices.items()],
            "shares": [[*key, share] for key, share in self.shares.items()],
            "lines": [list(line) for line in self.lines],
            "fit_gap": self.fit_gap,
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> FittedRule:
        """Read what :meth:`to_dict` returned; one of another schema is a :class:`~levelhead.types.DataError`."""
        if (schema := int(record.get("schema", 1))) != SCHEMA:
            hint = "Update levelhead, or fit" if schema > SCHEMA else "Fit"
            raise DataError(f"The rule has schema {schema}, and this levelhead reads {SCHEMA}. {hint} the rule again.")
        return cls(
            record["metric"],
            record["delta"],
            tuple(record["groups"]),
            record["threshold"],
            _rates(record["prices"]),
            _rates(record["shares"]),
            tuple((float(intercept), float(slope)) for intercept, slope in record["lines"]),
            None if (gap := record.get("fit_gap")) is None else float(gap),
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
    """Find the flips that cost least, as expected, among those whose expected gap is at most ``delta``.

    Labels are not needed: the probabilities represent them.

    Args:
        probability: (rows,) probability of the positive class, between 0 and 1; calibrated, or the bound is about
            another gap than the true one.
        group: (rows,) group of each row.
        metric: one of :data:`METRICS`. Equalized odds bounds the differences of both rates, each by ``delta``.
        delta: largest expected gap, a fraction.
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
    names, codes = group_codes(members)
    labels = LABELS[metric]
    drawn = tuple((lines or {}).get(str(name), (0.0, 1.0)) for name in names)
    calibrated = _calibrated(values, codes, drawn)
    expected = {None: np.ones(len(values)), 1: calibrated, 0: 1 - calibrated}
    shares = {}
    for a, name in enumerate(names):
        for label in labels:
            size = float(expected[label][codes == a].sum())
            if size < 1:
                own = counted(int((codes == a).sum()), "row")
                raise DataError(
                    f"The scores of group {quoted(str(name))} predict less than one row with label {label} among its "
                    f"{own}. Calibrate them, merge the group with another, or bound demographic_parity."
                )
            shares[(a, label)] = size / len(values)
    rule = FittedRule(metric, delta, tuple(map(str, names)), threshold, dict.fromkeys(shares, 0.0), shares, drawn)
    return replace(rule, prices=_prices(rule, values, codes, shift or {}, seed))


def _rates(rows: Sequence[Any]) -> Rates:
    """Read what :meth:`FittedRule.to_dict` wrote for each rate."""
    return {(int(a), None if label is None else int(label)): float(value) for a, label, value in rows}


def group_codes(group: NDArray[Any]) -> tuple[NDArray[np.str_], IntArray]:
    """Return the sorted names of the groups and the place of each row's (rows,); fewer than two are a ``DataError``."""
    names, codes = np.unique(group.astype(str), return_inverse=True)
    refuse_ids("The group column", np.bincount(codes), MIN_COUNT)
    if len(names) < 2:
        raise DataError(f"There are {len(names)} groups. A gap needs two or more.")
    return names, codes


def _prices(
    rule: FittedRule, values: FloatArray, codes: IntArray, shift: Mapping[tuple[int, int | None], float], seed: int
) -> Rates:
    """Return the price of each rate of a ``rule`` that has none yet."""
    rows, keys = len(values), list(rule.shares)
    cost, plain = rule.costs(values, codes, seed)
    chances = rule.calibrated(values, codes)
    weights = rates_of(chances, codes, rule.shares)
    rates = weights @ plain / rows + [shift.get(key, 0.0) for key in keys]
    flips = weights @ sparse.diags_array(np.where(plain, 1.0, -1.0))
    if rows > MOST_ROWS:
        order = np.lexsort((chances, cost - rule.costs(values, codes, None)[0], chances // 0.01, plain, codes))
        some = order[:: -(-rows // MOST_ROWS)]
        flips, cost = sparse.csc_array(flips)[:, some], cost[some]
    prices = solve_rates(flips, cost, rates, [label for _, label in keys], rule.delta)
    # A group has at most one row that only a part of a flip would bring to the bound: it is flipped.
    return dict(zip(keys, (prices * (1 + 1e-7)).tolist(), strict=True))


def solve_rates(
    flips: sparse.sparray, cost: FloatArray, rates: FloatArray, labels: Sequence[int | None], delta: float
) -> FloatArray:
    """Return prices (rates,) of the program: flip r in [0, 1]^rows at least cost, so that rates are within ``delta``.

    Args:
        flips: (rates, rows) how much a flip takes off each rate, times the number of rows.
        cost: (rows,) what a flip costs.
        rates: (rates,) rates before any flip.
        labels: (rates,) rates with the same label are compared.
        delta: largest difference of two rates that are compared.

    Returns:
        (rates,) prices z that sum to 0 over a label: rows with flips.T @ z > cost are flipped.
    """
    rows, kinds = len(cost), list(dict.fromkeys(labels))
    least = np.array([[float(one == kind) for kind in kinds] for one in labels])
    if all(np.ptp(rates[one > 0]) <= delta for one in least.T):
        return np.zeros(len(rates))
    # Behind the flips: the least rate of each label, and a miss. rate - flips @ r - least is in [0, delta] +- miss. All
    # is in numbers of rows, so that costs and weights are far above the solver's tolerance.
    miss = np.ones((len(rates), 1))
    found = optimize.linprog(
        np.concatenate([cost, np.zeros(len(kinds)), [MOST_PRICE]]),
        A_ub=sparse.vstack([sparse.hstack([sign * flips, sign * least, -miss]) for sign in (1, -1)]),
        b_ub=rows * np.concatenate([rates, delta - rates]),
        bounds=[(0, 1)] * rows + [(None, None)] * len(kinds) + [(0, None)],
        method="highs",
        options={"presolve": False},  # it takes 30 times as long as the solution: every row is much like its neighbours
    )
    # Marginals are what a looser bound would add to the cost, which is never positive.
    above, below = np.split(found.ineqlin.marginals, 2)
    return np.asarray(above - below)


@checked
def check_rule(metric: str, delta: float, threshold: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for options of a rule that cannot be."""
    if metric not in METRICS:
        raise ConfigError(f"metric={quoted(metric)} is unknown. Known: {listed(METRICS)}.")
    for name, value in (("delta", delta), ("threshold", threshold)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name}={value} is not between 0 and 1.")


def rates_of(values: FloatArray, codes: IntArray, shares: Mapping[tuple[int, int | None], float]) -> sparse.csr_array:
    """Return what a positive decision of each row adds to each rate, times the number of rows: (rates, rows)."""
    expected = {None: np.ones(len(values)), 1: values, 0: 1 - values}
    adds = [sparse.csr_array((codes == a) * expected[label] / share) for (a, label), share in shares.items()]
    return sparse.vstack([one.reshape(1, -1) for one in adds], format="csr")


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
