"""How often do the intervals of scores, pairs, ratios, numbers, weights, levels and own metrics hold the true value?

Undefined intervals (an area with fewer than five rows of a class) are not counted as held or missed. Figures marked
with a star show a limit that the documentation states: of them no coverage is required.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
from coverage_designs import Once, Row, titled
from numpy.typing import NDArray
from scipy import special, stats

from levelhead.auditing.continuous import continuous_gap
from levelhead.auditing.control import LevelCounts, stratified
from levelhead.auditing.door import audit
from levelhead.auditing.finding import find
from levelhead.auditing.options import AuditOptions
from levelhead.auditing.own_metrics import Metric, own_metrics
from levelhead.auditing.rates import more_rates
from levelhead.auditing.scores import band
from levelhead.auditing.strata import controlled
from levelhead.metrics import Counts, estimate
from levelhead.metrics import scores as score_metrics
from levelhead.metrics.amplification import audited_amplification, signs
from levelhead.metrics.between import (
    differences,
    mean_of,
    mover,
    proportion_ends,
    ratio_of,
)
from levelhead.metrics.clustered import ClusteredCounts, Members
from levelhead.metrics.contrasts import Contrasts, Enough
from levelhead.metrics.paired import paired_interval
from levelhead.metrics.scores import ScoreCounts
from levelhead.metrics.weighted import WeightedCounts, weighted_estimates, weighted_proportion
from levelhead.types import Estimate


def _areas_apart(sizes: tuple[int, int], distances: tuple[float, float], base: float) -> str:
    areas = ", ".join(f"{special.ndtr(one / 2**0.5):.2f}" for one in distances)
    return f"AUC {areas}; {sizes[0]} and {sizes[1]} rows, {base:.0%} positive"


def _groups(sizes: tuple[int, ...], rates: tuple[float, ...]) -> str:
    return f"{len(sizes)} groups of {min(sizes)} to {max(sizes)} rows, rates {min(rates)} to {max(rates)}"


NAMES = {"_f1": "F1", "_brier": "Brier score", "_recall": "recall"}


def _own_metric(metric: Metric, sizes: tuple[int, int], base: float, *_: object) -> str:
    positive = f", {base:.0%} positive" if base else ""
    return f"own metric {NAMES[metric.__name__]}, {sizes[0]} and {sizes[1]} rows{positive}"


def _levels(levels: int, rows: int, gap: float, spread: float = 0.0) -> str:
    return f"{'weights, ' if spread else ''}within {levels} levels, 2 groups of {rows}, gap {gap:g}"


@titled(_areas_apart)
def _areas(sizes: tuple[int, int], distances: tuple[float, float], base: float) -> tuple[tuple[str, ...], Once]:
    truth = stats.norm.cdf(np.array(distances) / 2**0.5)
    crossed = stats.norm.cdf(np.array(distances) / 2**0.5)  # negatives of both groups are alike
    group = np.repeat([0, 1], sizes)

    def once(rng: np.random.Generator) -> list[bool | None]:
        label = rng.random(len(group)) < base
        score = rng.normal(label * np.array(distances)[group])
        counts = ScoreCounts.from_rows(label, score, group, 2)
        found, size = score_metrics.areas(counts), counts.sizes

        def ends(g: int, h: int) -> tuple[Any, Any]:
            return score_metrics.area_interval(
                found.value[g, h], found.variance[g, h], found.freedom[g, h], size[g, 1], size[h, 0], 0.95
            )

        held: list[bool | None] = []
        for g, h, true in ((0, 0, truth[0]), (1, 1, truth[1]), (0, 1, crossed[0])):
            low, high = ends(g, h)
            held.append(None if np.isnan(low) else bool(low <= true <= high))
        for pairs, true in ((((0, 0), (1, 1)), truth[0] - truth[1]), (((0, 1), (1, 0)), crossed[0] - crossed[1])):
            first, second = ((found.value[pair], ends(*pair)) for pair in pairs)
            low, high = mover(*first, *second)
            held.append(None if np.isnan(low) else bool(low <= true <= high))
        return held

    return ("area, first group", "area, second group", "area across", "area difference", "difference across"), once


@titled("calibrated, {0} rows, beta {1}")
def _calibration(rows: int, shape: tuple[float, float]) -> tuple[tuple[str, ...], Once]:
    def once(rng: np.random.Generator) -> list[bool | None]:
        score = rng.beta(*shape, rows)
        label = rng.random(rows) < score
        counts = ScoreCounts.from_rows(label, score, np.zeros(rows, int), 1)
        mean, variance = score_metrics.residuals(counts)
        lines = score_metrics.calibration_lines(counts)
        one = score_metrics.student(float(mean[0]), float(variance[0]), rows - 1, rows, 0.95)
        return [
            one.low <= 0 <= one.high,
            None if np.isnan(lines.slope[0]) else bool(abs(lines.slope[0] - 1) <= 1.96 * lines.slope_error[0]),
            bool(abs(lines.intercept[0]) <= 1.96 * lines.intercept_error[0]),
        ]

    return ("mean residual", "calibration slope", "calibration intercept"), once


@titled("calibrated, {0[0]} and {0[1]} rows")
def _residual_gap(sizes: tuple[int, int]) -> tuple[tuple[str, ...], Once]:
    group = np.repeat([0, 1], sizes)

    def once(rng: np.random.Generator) -> list[bool | None]:
        score = rng.beta(2, 3, len(group))
        counts = ScoreCounts.from_rows(rng.random(len(group)) < score, score, group, 2)
        mean, variance = score_metrics.residuals(counts)
        both = variance.sum()
        freedom = both**2 / (variance**2 / (np.array(sizes) - 1)).sum()
        one = score_metrics.student(float(mean[0] - mean[1]), float(both), float(freedom), len(group), 0.95)
        return [one.low <= 0 <= one.high]

    return ("gap of mean residuals",), once


@titled("threshold, {0} groups of {1}, gap {2:g}")
def _bands(groups: int, rows: int, gap: float) -> tuple[tuple[str, ...], Once]:
    names = ("demographic_parity", "equal_opportunity", "equalized_odds")
    rates = np.array([[0.2, 0.6]] * groups) + gap * (np.arange(groups) == groups - 1)[:, None]

    def once(rng: np.random.Generator) -> list[bool | None]:
        positive = rng.binomial(rows // 2, rates)
        table = np.stack([rows // 2 - positive, positive], -1)[None]
        enough = Enough.of(table[0], 1, 10)
        plain, smooth = Contrasts(table, 1, enough, smooth=False), Contrasts(table, 1, enough)
        found = [band(name, plain, smooth, 0.95)[:, 0] for name in names]
        return [bool(low <= gap + 1e-12 and gap - 1e-12 <= high) for _, low, high in found]

    return tuple(f"band, {name}" for name in names), once


@titled("paired, {0} rows, {1:g} gained, {2:g} lost")
def _changes(rows: int, gained: float, lost: float) -> tuple[tuple[str, ...], Once]:
    def once(rng: np.random.Generator) -> list[bool | None]:
        up, down, _ = rng.multinomial(rows, [gained, lost, 1 - gained - lost])
        low, high = paired_interval(int(up), int(down), rows)
        return [bool(low <= gained - lost + 1e-12 and gained - lost - 1e-12 <= high)]

    return ("paired change",), once


@titled("rates {1} of {0} rows")
def _rates(sizes: tuple[int, int], rates: tuple[float, float]) -> tuple[tuple[str, ...], Once]:
    def once(rng: np.random.Generator) -> list[bool | None]:
        hits = rng.binomial(sizes, rates)
        ends = zip(*proportion_ends(hits, np.array(sizes), 0.05), strict=True)  # as audits take them
        first, second = (
            Estimate(hit / size, low, high, size) for hit, size, (low, high) in zip(hits, sizes, ends, strict=True)
        )
        one, both = ratio_of(first, second), mean_of(first, second)
        true = rates[0] / rates[1]
        return [
            bool(one.low <= true <= one.high) if one.defined else None,
            bool(both.low <= sum(rates) / 2 <= both.high),
        ]

    return ("ratio of rates", "balanced error"), once


@titled("precision, 2 groups of {0}, gap {1:g}")
def _parity(rows: int, gap: float) -> tuple[tuple[str, ...], Once]:
    # Labels, given predictions: precision 0.6, and 0.6 + gap in the second group; 40% are selected.
    shares = np.array([[[0.5, 0.16], [0.1, 0.24]], [[0.5, 0.4 * (0.4 - gap)], [0.1, 0.4 * (0.6 + gap)]]])

    def once(rng: np.random.Generator) -> list[bool | None]:
        table = np.stack([rng.multinomial(rows, one.ravel() / one.sum()).reshape(2, 2) for one in shares])
        swapped = Counts(table.swapaxes(1, 2), ("a", "b"), (0, 1))
        one = estimate(swapped, "equal_opportunity", positive=1, replicates=300, seed=int(rng.integers(2**31)))
        return [bool(one.low <= gap + 1e-12 and gap - 1e-12 <= one.high)]

    return ("predictive parity",), once


@titled("slope {1:g}, {0} rows")
def _slopes(rows: int, slope: float) -> tuple[tuple[str, ...], Once]:
    def once(rng: np.random.Generator) -> list[bool | None]:
        along = np.concatenate([[0.0, 1.0], rng.random(rows - 2)])
        decided = (rng.random(rows) < 0.3 + slope * along).astype(float)
        one = continuous_gap(decided, along, permutations=1).slope
        return [one.low <= slope <= one.high]

    return ("slope along a number",), once


@titled("amplification, {0} rows")
def _amplification(rows: int) -> tuple[tuple[str, ...], Once]:
    shares = np.array([[[0.3, 0.1], [0.05, 0.1]], [[0.08, 0.07], [0.05, 0.25]]])
    train = (shares * 10**6).sum(-1).astype(np.int64)
    truth = float((signs(train) * (shares.sum(1) - shares.sum(2)) / shares.sum((1, 2))[:, None]).mean())

    def once(rng: np.random.Generator) -> list[bool | None]:
        table = rng.multinomial(rows, shares.ravel() / shares.sum()).reshape(2, 2, 2)
        one = audited_amplification(table).value
        return [one.low <= truth <= one.high]

    return ("bias amplification",), once


@titled("weights, {2}, rates {1} of {0} rows")
def _weighted(sizes: tuple[int, ...], rates: tuple[float, ...], kind: str) -> tuple[tuple[str, ...], Once]:
    # (share of rows, weight, rate) of the two kinds of rows in each group; weights go with the outcome by kind.
    rates_of = np.array(rates)

    def once(rng: np.random.Generator) -> list[bool | None]:
        weight, square, table = (np.zeros((len(sizes), 2, 2)) for _ in range(3))
        for g, size in enumerate(sizes):
            hit = rng.random(size) < rates_of[g]
            if kind == "independent":
                own = rng.lognormal(0, 0.8, size)
            elif kind == "strata":
                rare = rng.random(size) < 0.3
                hit = rng.random(size) < np.where(rare, rates_of[g] + 0.2, rates_of[g] - 0.1)
                own = np.where(rare, 1.0, 5.0)
            else:
                own = np.where(hit, rng.choice([1.0, 4.0], size), 1.0)
            for k in (0, 1):
                part = own[hit == bool(k)]
                weight[g, 1, k], square[g, 1, k], table[g, 1, k] = part.sum(), (part**2).sum(), len(part)
        if kind == "independent":
            truth = rates_of
        elif kind == "strata":
            truth = (0.3 * (rates_of + 0.2) + 3.5 * (rates_of - 0.1)) / 3.8
        else:
            truth = 2.5 * rates_of / (2.5 * rates_of + 1 - rates_of)
        counts = Counts(table.astype(np.int64), tuple(map(str, range(len(sizes)))), (0, 1))
        weighted = WeightedCounts(counts, weight, square)
        rate = weighted.rate("true_positive_rate", 1)
        first, second = np.triu_indices(len(sizes), 1)
        pairs = differences(rate.hits[0], rate.worth[0], first, second, comparisons=len(first))
        far = truth[first] - truth[second]
        one = weighted_proportion(rate, (0, 0), 0.95)
        gap = weighted_estimates(weighted, positive=1, level=0.95, min_count=1)["equal_opportunity"]
        more = more_rates(counts, counts.groups, 1, options=ALL_RATES, reference="1", weighted=weighted)
        ratios = [more.groups[group].true_positive_ratio for group in counts.groups]
        of_truth = truth / truth[1]
        return [
            bool(one.low <= truth[0] <= one.high),
            all(
                one.low <= own + 1e-12 and own - 1e-12 <= one.high
                for one, own in zip(ratios, of_truth, strict=True)
                if one
            ),
            bool(((pairs.low <= far + 1e-12) & (far - 1e-12 <= pairs.high)).all()),
            bool(gap.low <= np.abs(far).max() + 1e-12 and np.abs(far).max() - 1e-12 <= gap.high),
        ]

    return ("weighted rate", "all weighted ratios to one group", "all weighted differences", "weighted gap"), once


@titled("clusters, {4}, rates {1} of {0} people, correlation {2:g}, {3} records")
def _clustered(
    people: tuple[int, ...], rates: tuple[float, ...], icc: float, sizes: tuple[int, ...], kind: str
) -> tuple[tuple[str, ...], Once]:
    # Each person has a true positive rate of their own (beta, with this intraclass correlation), the same as their
    # false positive rate; labels are one a person, or one a record; groups are the person's, or change by record.
    truth = np.array(rates)
    first, second = np.triu_indices(len(people), 1)
    far = truth[first] - truth[second]
    names = tuple(map(str, range(len(people))))

    def once(rng: np.random.Generator) -> list[bool | None]:
        own = np.repeat(np.arange(len(people)), people)
        records = rng.choice(sizes, len(own))
        person = np.repeat(np.arange(len(own)), records)
        if kind == "groups by record":
            group = rng.integers(0, len(people), len(person))
            spread = rng.random(len(own))[person]  # one rank a person, in all groups
            chance = stats.beta.ppf(spread, *_beta(truth[group], icc))
            hit = rng.random(len(person)) < chance
        else:
            group = own[person]
            hit = rng.random(len(person)) < rng.beta(*_beta(truth[own], icc))[person]
        labels = rng.integers(0, 2, len(own))[person] if kind == "labels by person" else rng.integers(0, 2, len(person))
        shape = (len(own), len(people), 2, 2)
        keys, count = np.unique(np.ravel_multi_index((person, group, labels, hit * 1), shape), return_counts=True)
        members = Members(*np.unravel_index(keys, shape), count)
        clustered = ClusteredCounts.of(Counts.from_codes(*members[1:4], names, (0, 1), count), members)
        one = weighted_proportion(clustered.rate("true_positive_rate", 1), (0, 0), 0.95)
        pairs = clustered.rate("true_positive_rate", 1).of(0, np.arange(len(people)))
        apart = pairs.differences(first, second, level=0.95, comparisons=len(first))
        gaps = weighted_estimates(clustered, positive=1, level=0.95, min_count=1)
        counted = {"group": clustered.counts}
        frame: Any = SimpleNamespace(  # what findings read of it
            options=ALL_RATES, names={"group": "group"}, weighted={"group": clustered}, references={}, positive=1,
            counts=counted,
        )  # fmt: skip
        found = find(frame, counted, gaps["balanced_accuracy"])
        pair = found["finding"]["pair"]
        wrong = pair is None or bool(pair["difference"]["low"] <= 0 <= pair["difference"]["high"])
        size = np.abs(far).max()
        rows = clustered.pooled().rate("selection_rate", 1)
        true = (np.array(people) @ truth) / sum(people) if kind != "groups by record" else truth.mean()
        whole = weighted_proportion(rows, (0, 0), 0.95)
        return [
            bool(one.low <= truth[0] <= one.high),
            bool(whole.low <= true <= whole.high),
            bool(((apart.low <= far + 1e-12) & (far - 1e-12 <= apart.high)).all()),
            *(bool(gaps[name].low - 1e-12 <= size <= gaps[name].high + 1e-12) for name in CLUSTERED_GAPS),
            *([] if np.any(far) else [wrong]),
        ]

    figures = ("clustered rate", "selection rate of all", "all clustered differences", *CLUSTERED_GAPS)
    return (*figures, *([] if np.any(far) else ["no false headline"])), once


ALL_RATES = AuditOptions(min_count=1)
CLUSTERED_GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds")


def _beta(rate: NDArray[np.float64], icc: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rate * (1 - icc) / icc, (1 - rate) * (1 - icc) / icc


@titled("changes of clusters, right 0.75 and {1:g}, {0} people, correlation {2:g}, {3} records")
def _clustered_changes(
    people: tuple[int, int], new: float, icc: float, sizes: tuple[int, ...]
) -> tuple[tuple[str, ...], Once]:
    # Each person has a chance of a right prediction of their own by either model, 75% and ``new`` on average.
    def once(rng: np.random.Generator) -> list[bool | None]:
        own = np.repeat(["a", "b"], people)
        person = np.repeat(np.arange(len(own)), rng.choice(sizes, len(own)))
        label = rng.integers(0, 2, len(person))
        decided = []
        for rate in (0.75, new):
            right = rng.random(len(person)) < rng.beta(*_beta(np.full(len(own), rate), icc))[person]
            decided.append(np.where(right, label, 1 - label))
        found = audit(
            label, decided[1], against=decided[0], sensitive_features={"group": own[person]}, cluster=person,
            positive=1, replicates=300, seed=int(rng.integers(2**31)),
        ).against  # fmt: skip
        assert found is not None
        part, apart = found.by_attribute["group"], new - 0.75
        rates = [group.rates["accuracy"] for group in part.groups.values()]
        changes = [*(rate.difference for rate in rates), part.metrics["accuracy"].difference]
        held: list[bool | None] = [bool(one.low <= apart <= one.high) for one in changes]
        gap = part.metrics["equalized_odds"].difference
        return [*held, bool(gap.low <= 0 <= gap.high), *([] if apart else [all(rate.p_holm > 0.05 for rate in rates)])]

    names = (
        *(f"change of accuracy, {of}" for of in ("first group", "second group", "all")),
        "change of equalized odds",
    )
    return (*names, *([] if new != 0.75 else ["no false change"])), once


@titled(_levels)
def _within(levels: int, rows: int, gap: float, spread: float = 0.0) -> tuple[tuple[str, ...], Once]:
    base = np.linspace(0.15, 0.75, levels)
    shares = np.arange(1, levels + 1) / np.arange(1, levels + 1).sum()

    def once(rng: np.random.Generator) -> list[bool | None]:
        # Women are more often in the levels with few positives; all rows have label 1, so that rates are those of rows.
        sizes = np.stack([rng.multinomial(rows, shares[::-1]), rng.multinomial(rows, shares)], -1)
        hits = rng.binomial(sizes, np.stack([base, base + gap], -1))
        table = np.zeros((levels, 2, 2, 2), np.int64)
        table[:, :, 1, 1], table[:, :, 1, 0] = hits, sizes - hits
        names = tuple(map(str, range(levels)))
        weight, square = table.astype(float), table.astype(float)
        if spread:  # weights that know nothing of the outcome: the truth stays the same
            weight, square = np.zeros(table.shape), np.zeros(table.shape)
            for place, number in np.ndenumerate(table):
                own = rng.lognormal(0, spread, number)
                weight[place], square[place] = own.sum(), (own**2).sum()
        flat, weight, square = (one.reshape(-1, 2, 2) for one in (table, weight, square))
        cells = WeightedCounts(Counts(flat, tuple(product(names, ("f", "m"))), ("0", "1")), weight, square)
        counts = LevelCounts("sex", cells, names, ("f", "m"))
        frame: Any = SimpleNamespace(options=ALL_RATES, references={"sex": "f"}, outcome=None)  # what strata read
        found = controlled(stratified(counts, 1, 5), "level", frame, None)
        pair = next((one for one in found["pairs"] if one["rate"] == "true_positive_rate"), None)
        # Selection rate and true positive rate are the same here, so that two comparisons are allowed for: too many.
        own = stratified(counts, 1, 5)[1].apart(np.array([1]), np.array([0]), level=0.95, comparisons=1)
        held = None if pair is None else bool(pair["low"] <= gap <= pair["high"])
        return [bool(own.low[0] - 1e-12 <= gap <= own.high[0] + 1e-12), held]

    return ("average over levels", "average over levels, as reported"), once


@titled(_groups)
def _together(sizes: tuple[int, ...], rates: tuple[float, ...]) -> tuple[tuple[str, ...], Once]:
    truth, rows = np.array(rates), np.array(sizes)
    first, second = np.triu_indices(len(sizes), 1)
    far = truth[first] - truth[second]

    def once(rng: np.random.Generator) -> list[bool | None]:
        hits = [rng.binomial(rows, truth) for _ in range(2)]  # two rates, as an audit has them
        found = [differences(one, rows, first, second, comparisons=2 * len(first)) for one in hits]
        return [all(((one.low <= far + 1e-12) & (far - 1e-12 <= one.high)).all() for one in found)]

    return ("all pairs by Bonferroni",), once


ERRORS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "normal": lambda rng, rows: rng.normal(0.3, 1, rows),
    "heavy-tailed (t, 4 degrees)": lambda rng, rows: rng.standard_t(4, rows),
    "skewed (lognormal)": lambda rng, rows: rng.lognormal(0, 0.7, rows) - 1.28,
    "long right tail (lognormal, sigma 1)": lambda rng, rows: rng.lognormal(0, 1, rows) - 1.5,
    "long right tail (exponential)": lambda rng, rows: rng.exponential(1, rows) - 0.5,
    "long left tail (gamma, shape 0.5)": lambda rng, rows: 1 - rng.gamma(0.5, 1, rows),
}


@titled("regression, {1} errors, {0[0]} and {0[1]} rows")
def _regression(sizes: tuple[int, int], errors: str, stars: str = "") -> tuple[tuple[str, ...], Once]:
    drawn = ERRORS[errors]
    many = drawn(np.random.default_rng(0), 4_000_000)
    truth = (float(many.mean()), float(np.abs(many).mean()), float(np.sqrt((many**2).mean())))
    group = np.repeat(["a", "b"], sizes)

    def once(rng: np.random.Generator) -> list[bool | None]:
        error = np.concatenate([drawn(rng, rows) for rows in sizes])
        label = rng.normal(0, 3, len(error))
        found = audit(label, label + error, sensitive_features=group, numbers=True)
        one = found.by_attribute["group"]["a"]
        held: list[bool | None] = [
            figure.low <= true <= figure.high
            for figure, true in zip((one.mean_error, one.mean_absolute_error), truth, strict=False)
        ]
        apart = [pair.difference for pair in found.pairs if pair.quantity != "mean_prediction"]
        held.append(all(figure.low <= 0 <= figure.high for figure in apart))
        # The usual interval of a root mean squared error, which the audit does not give: Student's, on the log scale.
        squares = error[: sizes[0]] ** 2
        arm = stats.t.ppf(0.975, sizes[0] - 1) * squares.std(ddof=1) / sizes[0] ** 0.5 / squares.mean()
        held.append(bool(abs(np.log(squares.mean()) - 2 * np.log(truth[2])) <= arm))
        return held

    names = ("mean error", f"mean absolute error{stars}", "both differences")
    return (*names, "root mean squared error*"), once


def _f1(label: NDArray[np.int64], prediction: NDArray[np.int64]) -> float:
    hits = int((label & prediction).sum())
    return 2 * hits / (int(label.sum()) + int(prediction.sum())) if hits else 0.0


def _recall(label: NDArray[np.int64], prediction: NDArray[np.int64]) -> float:
    positives = int(label.sum())
    return int((label & prediction).sum()) / positives if positives else np.nan


def _brier(label: NDArray[np.int64], score: NDArray[np.float64]) -> float:
    return float(((label - score) ** 2).mean())


@titled(_own_metric)
def _own(
    metric: Metric, sizes: tuple[int, int], base: float, rates: tuple[float, float], stars: str = ""
) -> tuple[tuple[str, ...], Once]:
    """Draw labels and predictions with these true and false positive rates; for Brier's score, calibrated scores."""
    codes = np.repeat([0, 1], sizes)

    def draw(rng: np.random.Generator, rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if metric is _brier:
            score = rng.beta(2, 3, rows)
            return (rng.random(rows) < score).astype(np.int64), score
        label = (rng.random(rows) < base).astype(np.int64)
        return label, (rng.random(rows) < np.where(label == 1, *rates)).astype(np.int64)

    truth = metric(*draw(np.random.default_rng(0), 4_000_000))

    def once(rng: np.random.Generator) -> list[bool | None]:
        label, other = draw(rng, len(codes))
        options = AuditOptions(metrics={"m": metric}, replicates=500, seed=int(rng.integers(2**31)))
        found = own_metrics(options, label, other, codes, ["a", "b"])["m"]
        held: list[bool | None] = [
            bool(one.low <= truth <= one.high) if one.defined else None for one in found.groups.values()
        ]
        apart = found.pairs[0].difference if found.pairs else None
        return [*held, None if apart is None else bool(apart.low <= 0 <= apart.high)]

    return tuple(f"{name}{stars}" for name in ("first group", "second group", "difference")), once


DESIGNS: list[Row] = [
    (_areas, (500, 50), (2.0, 2.0), 0.3),
    (_areas, (500, 50), (3.0, 2.5), 0.3),
    (_areas, (500, 100), (3.0, 2.5), 0.12),
    (_areas, (200, 200), (1.0, 1.0), 0.3),
    (_areas, (5000, 500), (2.0, 1.0), 0.3),
    (_areas, (60, 60), (0.0, 0.0), 0.5),
    (_calibration, 50, (2.0, 3.0)),
    (_calibration, 200, (2.0, 3.0)),
    (_calibration, 100, (0.5, 4.0)),
    (_calibration, 2000, (2.0, 3.0)),
    (_residual_gap, (250, 50)),
    (_residual_gap, (250, 20)),
    (_bands, 2, 100, 0.0),
    (_bands, 2, 100, 0.1),
    (_bands, 8, 100, 0.0),
    (_bands, 8, 100, 0.2),
    (_bands, 2, 2000, 0.05),
    (_changes, 40, 0.15, 0.05),
    (_changes, 400, 0.02, 0.02),
    (_changes, 400, 0.01, 0.002),
    (_changes, 2000, 0.1, 0.05),
    (_rates, (60, 200), (0.3, 0.5)),
    (_rates, (100, 100), (0.1, 0.1)),
    (_rates, (500, 500), (0.02, 0.02)),
    (_rates, (40, 300), (0.9, 0.95)),
    (_parity, 300, 0.0),
    (_parity, 300, 0.15),
    (_slopes, 200, 0.0),
    (_slopes, 200, 0.4),
    (_amplification, 500),
    (_amplification, 2000),
    (_weighted, (100, 100), (0.3, 0.3), "independent"),
    (_weighted, (400, 60), (0.5, 0.4), "independent"),
    (_weighted, (100, 100, 100, 100), (0.3, 0.3, 0.3, 0.5), "independent"),
    (_weighted, (1000, 1000), (0.2, 0.3), "strata"),
    (_weighted, (100, 100), (0.3, 0.3), "strata"),
    (_weighted, (1000, 1000), (0.1, 0.2), "outcome"),
    (_weighted, (200, 200), (0.3, 0.3), "outcome"),
    (_clustered, (200, 200), (0.7, 0.7), 0.3, (5,), "labels by person"),
    (_clustered, (200, 200), (0.7, 0.7), 0.9, (5,), "labels by person"),
    (_clustered, (60, 300), (0.7, 0.8), 0.6, (5,), "labels by record"),
    (_clustered, (60, 60, 60), (0.5, 0.5, 0.5), 0.6, (5,), "labels by person"),
    (_clustered, (40, 80, 200, 400), (0.9, 0.9, 0.9, 0.9), 0.5, (5,), "labels by record"),
    (_clustered, (100, 100, 100, 100, 100), (0.3, 0.3, 0.3, 0.3, 0.3), 0.9, (5,), "labels by record"),
    (_clustered, (100, 100, 100, 100, 100), (0.3, 0.3, 0.3, 0.3, 0.5), 0.3, (5,), "labels by record"),
    (_clustered, (200, 200), (0.7, 0.7), 0.3, (1, 2, 3, 5, 20), "labels by record"),
    (_clustered, (60, 200), (0.7, 0.7), 0.9, (1, 2, 3, 5, 20), "labels by person"),
    (_clustered, (100, 100, 100), (0.1, 0.1, 0.1), 0.6, (1, 1, 2, 8), "labels by record"),
    (_clustered, (16, 100), (0.6, 0.6), 0.6, (5,), "labels by record"),
    (_clustered, (300, 300), (0.05, 0.05), 0.6, (5,), "labels by record"),
    (_clustered, (100, 100), (0.7, 0.7), 0.6, (5,), "groups by record"),
    (_clustered, (100, 100, 100), (0.5, 0.5, 0.7), 0.3, (2, 5, 9), "groups by record"),
    (_within, 3, 200, 0.0),
    (_within, 3, 1000, 0.1),
    (_within, 10, 300, 0.0),
    (_within, 10, 300, 0.2),
    (_within, 3, 200, 0.0, 0.8),
    (_within, 3, 1000, 0.1, 0.8),
    (_within, 10, 600, 0.2, 0.8),
    (_together, (100,) * 8, (0.3,) * 8),
    (_together, (400, 400, 400, 400), (0.1, 0.2, 0.3, 0.3)),
    (_together, (30, 40, 60, 80, 100, 200, 400, 800), (0.3,) * 8),
    (_regression, (60, 200), "normal", ""),
    (_regression, (300, 300), "normal", ""),
    (_regression, (200, 300), "heavy-tailed (t, 4 degrees)", ""),
    (_regression, (600, 400), "skewed (lognormal)", ""),
    (_regression, (20, 60), "normal", ""),
    (_regression, (20, 60), "heavy-tailed (t, 4 degrees)", ""),
    (_regression, (20, 60), "skewed (lognormal)", "*"),
    (_regression, (15, 40), "long right tail (lognormal, sigma 1)", "*"),
    (_regression, (30, 30), "long right tail (lognormal, sigma 1)", "*"),
    (_regression, (60, 300), "long right tail (lognormal, sigma 1)", ""),
    (_regression, (20, 60), "long right tail (exponential)", ""),
    (_regression, (60, 60), "long left tail (gamma, shape 0.5)", ""),
    (_own, _f1, (200, 60), 0.3, (0.9, 0.1), ""),
    (_own, _f1, (200, 200), 0.1, (0.9, 0.05), ""),
    (_own, _brier, (60, 200), 0.0, (0.0, 0.0), ""),
    (_own, _recall, (400, 200), 0.3, (0.7, 0.2), ""),
    (_own, _recall, (200, 200), 0.1, (0.9, 0.05), "*"),
    (_clustered_changes, (100, 100), 0.75, 0.6, (5,)),
    (_clustered_changes, (60, 200), 0.75, 0.5, (1, 2, 3, 5, 20)),
    (_clustered_changes, (60, 200), 0.85, 0.5, (2, 5, 9)),
]
