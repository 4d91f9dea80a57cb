"""Designs of coverage.py: decisions without outcomes, gates, rules, one threshold, and numbers beside others."""

from __future__ import annotations

import numpy as np
from coverage_designs import Once, Row, titled
from numpy.typing import NDArray

from levelhead.auditing.bias_rule import choose_rule
from levelhead.auditing.door import audit
from levelhead.report.gate import Condition
from levelhead.types import Estimate

POPULATION = 150_000
"""Rows that stand for all, of which a rule's true gap is measured."""


def _holds(figure: Estimate | None, truth: float) -> bool | None:
    return None if figure is None or not figure.defined else bool(figure.low <= truth <= figure.high)


def _decided(sizes: tuple[int, ...], rates: tuple[float, ...], named: bool) -> str:
    return f"decided: {sizes} rows, rates {rates}, reference {'named' if named else 'the most selected'}"


def _at_the_bound(sizes: tuple[int, int], rate: float) -> str:
    return f"decided by a gate: {sizes} rows, {rate:g} and {0.8 * rate:g}"


def _by(rows: int, metric: str, one_threshold: bool) -> str:
    return f"decided by {'one threshold' if one_threshold else 'a rule'}: {rows} rows, {metric}"


@titled(_decided)
def _decisions(sizes: tuple[int, ...], rates: tuple[float, ...], named: bool) -> tuple[tuple[str, ...], Once]:
    names = [f"g{at}" for at in range(len(sizes))]
    group = np.repeat(names, sizes)
    true = dict(zip(names, rates, strict=True))
    alike = len(set(rates)) == 1

    def once(rng: np.random.Generator) -> list[bool | None]:
        decided = rng.random(len(group)) < np.repeat(rates, sizes)
        found = audit(
            None,
            np.where(decided, "yes", "no"),
            sensitive_features=group,
            favourable="yes",
            replicates=100,
            reference="g0" if named else None,
        ).by_attribute["group"]
        to = true[str(found.reference)]
        beside = {str(name): one for name, one in found.groups.items() if one.difference is not None}
        apart = [_holds(one.difference, true[name] - to) for name, one in beside.items()]
        ratios = [_holds(one.selection_ratio, true[name] / to) for name, one in beside.items()]
        known = [one for one in ratios if one is not None]
        headline = any(one.difference is not None and one.difference.excludes_zero for one in beside.values())
        held = [all(apart), all(known) if known else None]
        return [*held, not headline] if alike else held

    return ("all differences", "all ratios", *(["no group named"] if alike else [])), once


@titled(_at_the_bound)
def _gate(sizes: tuple[int, int], rate: float) -> tuple[tuple[str, ...], Once]:
    """The true ratio is 0.8 just at the bound: neither a pass nor a failure is right more often than by chance."""
    group, condition = np.repeat(["a", "b"], sizes), Condition.parse("selection_ratio < 0.8")

    def once(rng: np.random.Generator) -> list[bool | None]:
        decided = rng.random(len(group)) < np.repeat([rate, 0.8 * rate], sizes)
        if not decided.any() or decided.all():
            return [None, None]
        found = audit(
            None, decided, sensitive_features=group, favourable=True, replicates=100, reference="a"
        ).by_attribute["group"]  # fmt: skip
        ratio = found.groups["b"].selection_ratio
        answer = "undecided" if ratio is None else condition.ask(ratio)
        return [answer != "yes", answer != "no"]

    return ("no failure at the bound", "no pass at the bound"), once


def _people(rng: np.random.Generator, rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.str_]]:
    group, label = rng.choice(["a", "b"], rows, p=[0.7, 0.3]), rng.integers(0, 2, rows)
    return 1 / (1 + np.exp(-rng.normal(2 * label - 1 - 0.8 * (group == "b")))), label, group


@titled(_by)
def _held_out(rows: int, metric: str, one_threshold: bool) -> tuple[tuple[str, ...], Once]:
    everybody = _people(np.random.default_rng(7), POPULATION)
    name = "equalized_odds_worst" if metric == "equalized_odds" else metric

    def gap(decided: NDArray[np.bool_]) -> float:
        _, label, group = everybody
        inside = {"demographic_parity": [label >= 0], "equal_opportunity": [label == 1]}
        return max(
            abs(float(decided[one & (group == "a")].mean() - decided[one & (group == "b")].mean()))
            for one in inside.get(metric, [label == 1, label == 0])
        )

    def once(rng: np.random.Generator) -> list[bool | None]:
        score, label, group = _people(rng, rows)
        first = rng.random(rows) < 0.5
        rule = choose_rule(
            score[first], group[first], label[first] == 1, metric=metric, delta=0.05 if one_threshold else 0.02,
            threshold=0.5, one_threshold=one_threshold,
        )  # fmt: skip
        decided = rule.decide(score[~first], group[~first]).astype(int)
        measured = audit(label[~first], decided, sensitive_features=group[~first], replicates=300)
        truth = gap(rule.decide(everybody[0], everybody[2]))
        return [_holds(measured.by_attribute["group"].metrics[name], truth)]

    return (f"held-out gap in {metric.replace('_', ' ')}",), once


DESIGNS: list[Row] = [
    (_decisions, (40, 40), (0.3, 0.3), True),
    (_decisions, (500, 60), (0.05, 0.05), True),
    (_decisions, (300, 100, 50), (0.5, 0.5, 0.5), False),
    (_decisions, (2000, 500, 100, 30), (0.1, 0.1, 0.1, 0.1), False),
    (_decisions, (300, 100), (0.6, 0.45), True),
    (_decisions, (2000, 200, 100), (0.3, 0.2, 0.25), False),
    (_gate, (100, 100), 0.5),
    (_gate, (1000, 100), 0.2),
    (_gate, (3000, 1000), 0.6),
    (_held_out, 600, "demographic_parity", False),
    (_held_out, 600, "demographic_parity", True),
    (_held_out, 2000, "equal_opportunity", False),
    (_held_out, 2000, "equal_opportunity", True),
    (_held_out, 2000, "equalized_odds", False),
    (_held_out, 2000, "equalized_odds", True),
]
