"""Answer with the strongest method that the input allows, and say what the answer rests on.

Order: randomised responses, whose noise is known; a labelled subset of 100 rows or more, which assumes nothing of the
proxies; three proxies; shares, strata or a probability, which bound the gap and do not estimate it. What cannot be
answered is refused, with the reason and with what would help.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from levelhead.auditing.missing.answer import PERSONS, IndirectGap, IndirectPart, points
from levelhead.auditing.missing.bounds import (
    ASSUMES_PROBABILITIES,
    ASSUMES_SHARES,
    ASSUMES_STRATA,
    Bracket,
    GapBounds,
    bracket,
    by_shares,
    naive_gap,
    sign_conditions,
)
from levelhead.auditing.missing.cells import (
    OUTCOME,
    Cells,
    add_up,
    by_cell,
    by_halves,
    moments_of,
    naive_gaps,
    not_random,
    varies,
)
from levelhead.auditing.missing.gaps import FEWEST_SHOWN, GAPS, shown_count
from levelhead.auditing.missing.known import FEWEST_LABELLED, MOST_GROUPS, NOTHING_KNOWN, Known, Shares
from levelhead.auditing.missing.labelled import FOLDS, LabelledGap, by_labelled_pairs, by_labelled_rows
from levelhead.auditing.missing.responses import Response, by_responses, shares_of
from levelhead.auditing.missing.tally import BINS
from levelhead.auditing.missing.three_proxies import ASSUMES, SHARED, by_proxies
from levelhead.tables.vocabulary import in_order
from levelhead.types import DataError, Estimate, printable, quoted


@dataclass(frozen=True)
class Options:
    """The confidence level, and the replicates and the seed of a bootstrap where a method needs one."""

    level: float
    replicates: int
    seed: int


def answer_responses(name: str, cells: Cells, response: Response, known: Known, options: Options) -> IndirectPart:
    """Invert the noise of randomised answers."""
    groups = in_order({pattern[2] for pattern in cells} - {None})
    without = sum(sums[0, 0] for pattern, sums in cells.items() if pattern[2] is None)
    if without:
        raise DataError(
            f"Column {quoted(name)}: {int(without):,} rows have no answer. Whether somebody answered was not "
            "randomised: make it a category, or leave those rows out."
        )
    if not 2 <= len(groups) <= MOST_GROUPS:
        raise DataError(
            f"Column {quoted(name)} has {_counted(len(groups))}; randomised responses need 2 to {MOST_GROUPS}."
        )
    counts = add_up(cells, [(2, groups), *OUTCOME])[..., 0, 0]
    matrix = response.matrix(len(groups))
    found = by_responses(counts, matrix, level=options.level)
    shares = shares_of(counts.sum((1, 2)), matrix)
    gaps, rests = [], []
    for gap, by_pair in found.items():
        for (a, b), one in by_pair.items():
            gaps.append(
                IndirectGap(gap, (str(groups[a]), str(groups[b])), one.estimate, {"reports as groups": one.naive})
            )
    best = found["demographic_parity"]
    spent = response.spent(len(groups))
    rests.append(
        "Method: the answers’ noise is known, so it is inverted exactly, and its share of the variance is counted."
    )
    rests.append(f"Assumption: every answer, one of {len(groups)}, was randomised with {response}, by chance alone.")
    if math.isinf(spent):
        rests.append("A flip of 0 protects nobody: these are plain groups.")
    else:
        budgets = [one.epsilon for one in known.responses.values()]
        together = sum(one for one in budgets if one is not None)
        more = f" The {len(budgets)} attributes of a person spent {together:.2f} together."
        rests.append(
            f"Each answer in {quoted(name)} spent epsilon={spent:.2f}."
            + (more if len(budgets) > 1 and None not in budgets else "")
        )
    defined = [one for one in best.values() if one.estimate.defined]
    if defined:
        inflation = max(one.inflation for one in defined)
        rows = max(one.rows_for_5_points or 0 for one in defined)
        rests.append(
            f"The noise makes the variance of the gap in selection rates {inflation:.1f} times that of the naive one; "
            f"{rows:,} rows would decide a gap of 5 points."
        )
    named = {str(group): float(share) for group, share in zip(groups, shares.shares, strict=True)}
    rests += [_naive_line(gaps), PERSONS]
    refused = "" if any(one.estimate.defined for one in gaps) else gaps[0].estimate.reason or ""
    return IndirectPart(
        "randomised responses", f"every answer was randomised with {response}", gaps, rests, refused,
        "more rows, or a larger epsilon for the next people who are asked" if refused else "", named,
    )  # fmt: skip


def _naive_line(gaps: Sequence[IndirectGap]) -> str:
    naive = [
        (one, proxy, value) for one in gaps if one.gap == "demographic_parity" for proxy, value in one.naive.items()
    ]
    naive = [item for item in naive if math.isfinite(item[2])]
    if not naive:
        return "There is no naive proxy gap to print beside it."
    said = ", ".join(f"{points(value)} points ({printable(proxy)})" for _, proxy, value in naive[:6])
    return (
        f"Naive gap in selection rates, with the proxy taken for the group: {said}. It is not what this "
        f"answer rests on."
    )


def answer_strongest(name: str, cells: Cells, known: Known, probability: bool, options: Options) -> IndirectPart:
    """Answer with the first method that can; say why the stronger ones could not."""
    why: list[str] = []
    labelled = sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[2] is not None)
    if known.labelled:
        if labelled >= FEWEST_LABELLED:
            return _labelled(name, cells, known, probability, options)
        why.append(
            (f"Only {int(labelled)}" if labelled >= FEWEST_SHOWN else f"Fewer than {FEWEST_SHOWN}")
            + f" rows have a group, and {FEWEST_LABELLED} are needed for an estimate."
        )
    if len(known.proxies) >= 3:
        return _three_proxies(cells, known, why, options)
    if known.shares:
        return _shares(cells, known, known.shares, why, options)
    if probability:
        return _probability(cells, known, why, options)
    if known.proxies:
        for proxy, at in zip(known.proxies, range(3, 3 + len(known.proxies)), strict=True):
            if len(said := {pattern[at] for pattern in cells}) == 1:
                if said == {None}:
                    raise DataError(f"Proxy {quoted(proxy)} is missing in every row. Leave it out.")
                raise DataError(
                    f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
                )
        reason = (
            f"{len(known.proxies)} prox{'y' if len(known.proxies) == 1 else 'ies'} without labelled rows cannot "
            "tell a gap from the proxy’s own errors"
        )
    else:
        reason = why[-1].rstrip(".")[0].lower() + why[-1].rstrip(".")[1:]
    gaps = [IndirectGap(gap, ("one group", "another"), Estimate.refuse(reason, 0, "nothing"), {}) for gap in GAPS]
    helped = (
        f"the group of {FEWEST_LABELLED} randomly chosen rows (--labelled-group), three proxies from different "
        "sources, or the shares of the groups (--shares)"
    )
    return IndirectPart("bounds", "nothing", gaps, [*why, NOTHING_KNOWN, PERSONS], reason, helped)


def _labelled(name: str, cells: Cells, known: Known, probability: bool, options: Options) -> IndirectPart:
    groups = in_order({pattern[2] for pattern in cells} - {None})
    if not 2 <= len(groups) <= MOST_GROUPS:
        raise DataError(f"Column {quoted(name)} has {_counted(len(groups))}; this method compares 2 to {MOST_GROUPS}.")
    weighted = known.inclusion is not None
    positions = list(range(3, 3 + len(known.proxies)))
    reason = "" if weighted else not_random(cells, positions, probability)
    helped = "the probability with which each row was labelled, as a column (--inclusion), or labels of a random sample"
    found: dict[str, dict[tuple[int, int], LabelledGap]]
    h_way = 1.0
    if len(groups) == 2:
        own, rest, h_way = moments_of(cells, groups, 1, positions, probability)
        two = by_labelled_rows(own, rest, level=options.level, weighted=weighted)
        found = {gap: {(1, 0): one} for gap, one in two.items()}
    else:
        tables = by_cell(cells, groups, positions, probability)
        found = by_labelled_pairs(*tables, level=options.level, weighted=weighted)
    gaps: list[IndirectGap] = []
    found_all: list[tuple[str, LabelledGap]] = []
    for gap, by_pair in found.items():
        for (a, b), one in by_pair.items():
            figure = Estimate.refuse(reason, one.estimate.n, one.estimate.assumes) if reason else one.estimate
            naive = {}
            if probability and len(groups) == 2:
                naive = {known.proxies[0]: h_way * naive_gap(by_halves(cells), gap)}
            elif known.proxies and not probability:
                naive = naive_gaps(cells, known.proxies, positions, (groups[b], groups[a]), groups, gap)
            gaps.append(IndirectGap(gap, (str(groups[a]), str(groups[b])), figure, naive, one.classical))
            found_all.append((gap, one))
    main = [one for gap, one in found_all if gap == "demographic_parity" and one.estimate.defined]
    n = int(sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[2] is not None))
    rest_rows = int(sum(float(sums[0, 0]) for sums in cells.values())) - n
    assumes = "each row was labelled with the probability that its column says" if weighted else (
        "the labelled rows are a random sample"
    )  # fmt: skip
    sizes = [
        (str(group), int(sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[2] == group)))
        for group in groups
    ]
    counted = ", ".join(
        f"{quoted(group)} {size:,}" if shown_count(size) else f"{quoted(group)} fewer than {FEWEST_SHOWN}"
        for group, size in sizes
    )
    rests = [
        f"Method: {n:,} rows with their group ({counted}) correct what the proxy says of {rest_rows:,} others. "
        f"It was taken "
        f"because {FEWEST_LABELLED} labelled rows or more are the strongest evidence, whatever the proxy is worth.",
        f"Assumption: {assumes}. Nothing is assumed of the proxy.",
    ]
    same = [
        name
        for name, at in zip(known.proxies, positions, strict=True)
        if len({pattern[-2] if probability else pattern[at] for pattern in cells}) == 1
    ]
    if same and not (probability and varies(cells)):
        rests.append(f"The proxy {quoted(same[0])} is the same in every row, and so tells nothing: leave it out.")
    if not known.proxies:
        rests.append("There is no proxy: of the other rows the predictions alone are used.")
    elif probability and len(groups) == 2:
        rests.append(
            f"The proxy {quoted(known.proxies[0])} must not have been fitted on these labelled rows. If it was, "
            "pass the columns it was made from with --proxy instead: they are cross-fitted."
        )
    else:
        rests.append(
            f"The proxies were turned into one probability by cross-fitting in {FOLDS} parts of the labelled rows."
        )
    if main:
        one = max(main, key=lambda found: found.narrower if math.isfinite(found.narrower) else 0)
        factor = 1 / one.narrower if one.narrower > 0 else math.nan
        rests.append(
            f"The interval of the gap in selection rates is {factor:.2f} times narrower than that of the "
            f"labelled rows alone."
        )
        if one.more_labels:
            rests.append(
                f"About {one.more_labels:,} more labelled rows would decide a gap of the size measured, if it is real."
            )
        elif one.more_labels is None:
            rests.append("The gap measured is so small that no serious number of labels would decide it.")
    rests += [_naive_line(gaps), PERSONS]
    refused = reason or ("" if main else gaps[0].estimate.reason or "")
    if refused and not reason:
        helped = "more labelled rows, above all of the smaller group"
    return IndirectPart("labelled subset", assumes, gaps, rests, refused, helped if refused else "")


def _three_proxies(cells: Cells, known: Known, why: list[str], options: Options) -> IndirectPart:
    positions = range(3, 3 + len(known.proxies))
    values = [{pattern[at] for pattern in cells} for at in positions]
    for proxy, own in zip(known.proxies, values, strict=True):
        if None in own:
            rows = sum(
                float(sums[0, 0]) for pattern, sums in cells.items() if pattern[3 + known.proxies.index(proxy)] is None
            )
            raise DataError(
                f"Proxy {quoted(proxy)} is missing in {int(rows):,} row{'' if rows == 1 else 's'}. A proxy must say "
                "something of every row: fill it in, or leave those rows out."
            )
        if len(own) == 1:
            raise DataError(
                f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
            )
    words = set().union(*values)
    groups = in_order(words)
    if any(own != words for own in values):
        raise DataError(
            "The proxies do not name the same groups: "
            + "; ".join(
                f"{quoted(p)} says {', '.join(map(quoted, in_order(own)[:4]))}"
                for p, own in zip(known.proxies, values, strict=True)
            )
            + ". Write the groups in the same words in all of them."
        )
    if len(groups) > MOST_GROUPS:
        raise DataError(f"The proxies name {len(groups)} groups; this method compares at most {MOST_GROUPS}.")
    for j, first in enumerate(positions):
        for k, second in enumerate(positions):
            if k > j and all(pattern[first] == pattern[second] for pattern in cells):
                raise DataError(
                    f"Proxies {quoted(known.proxies[j])} and {quoted(known.proxies[k])} are equal in every row: "
                    f"they are one proxy, "
                    "not two. Leave one out."
                )
    counts = add_up(cells, [*((at, groups) for at in positions), *OUTCOME])[..., 0, 0]
    answer = by_proxies(counts, level=options.level, replicates=options.replicates, seed=options.seed)
    outcome = counts.sum(tuple(range(len(known.proxies))))
    worst: dict[str, dict[tuple[int, int], GapBounds]] = {}
    if known.shares and known.shares.overall and known.shares.groups == tuple(map(str, groups)):
        worst = by_shares(outcome, known.shares.overall, level=options.level)
    elif not answer.refused and (answer.shares > 0).all():
        assumes = "the shares that the proxies imply"
        worst = by_shares(outcome, answer.shares / answer.shares.sum(), level=options.level, assumes=assumes)
    gaps = []
    for gap, by_pair in answer.gaps.items():
        for (a, b), figure in by_pair.items():
            naive = dict(zip(known.proxies, answer.naive[gap][a, b], strict=True))
            gaps.append(
                IndirectGap(gap, (str(groups[a]), str(groups[b])), figure, naive, None, worst.get(gap, {}).get((a, b)))
            )
    assumes = ASSUMES[answer.mode]
    rests = [
        *why,
        f"Method: how often {len(known.proxies)} proxies agree tells how good each is. It was taken because no "
        f"{FEWEST_LABELLED} rows have a known group.",
        f"Assumption: {assumes}; and each is right more often than chance.",
        SHARED,
    ]
    if math.isfinite(answer.p_value):
        if answer.mode == "local":
            rests.append(
                "A test rejected that the proxies’ errors do not depend on label and prediction (p below 0.01), "
                "so the weaker "
                "assumption was taken, which needs more rows."
            )
        else:
            rests.append(
                f"A test did not reject that their errors do not depend on label and prediction (p = "
                f"{answer.p_value:.2f})."
            )
    if not answer.refused and np.isfinite(answer.accuracy).all():
        said = ", ".join(
            f"{quoted(proxy)} " + " and ".join(f"{100 * own[k, k]:.0f}%" for k in range(len(groups)))
            for proxy, own in zip(known.proxies, answer.accuracy, strict=True)
        )
        rests.append(
            f"Fitted: how often each proxy is right of {' and of '.join(quoted(str(g)) for g in groups)}: {said}."
        )
    rests += [_naive_line(gaps), PERSONS]
    shares = {} if answer.refused else {str(g): float(s) for g, s in zip(groups, answer.shares, strict=True)}
    helped = "the group of 100 randomly chosen rows (--labelled-group), or proxies from sources that err differently"
    return IndirectPart("three proxies", assumes, gaps, rests, answer.refused, helped if answer.refused else "", shares)


def _shares(cells: Cells, known: Known, shares: Shares, why: list[str], options: Options) -> IndirectPart:
    position = 3 + len(known.proxies)
    rests = list(why)
    if shares.by_stratum is not None:
        strata = in_order({pattern[position] for pattern in cells} - {None})
        missing = sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[position] is None)
        unseen = [one for one in strata if one not in shares.by_stratum]
        if unseen or missing:
            which = f"stratum {quoted(str(unseen[0]))}" if unseen else "rows without a stratum"
            raise DataError(
                f"There are no shares for {which}. Name the shares of every stratum that the predictions have."
            )
        counts = add_up(cells, [(position, strata), *OUTCOME])[..., 0, 0]
        p = np.array([shares.by_stratum[str(one)] for one in strata])
        found = by_shares(counts, p, level=options.level, assumes=ASSUMES_STRATA)
        assumes = f"the share of each group in each of {len(strata):,} strata"
    else:
        assert shares.overall is not None
        outcome = add_up(cells, OUTCOME)[..., 0, 0]
        found = by_shares(outcome, shares.overall, level=options.level, assumes=ASSUMES_SHARES)
        assumes = "the share of each group"
        if known.strata:
            rests.append(
                "Strata narrow the bounds only if the shares of the groups in each of them are known: pass them "
                "with --shares "
                "FILE.csv (a line a stratum, a column a group)."
            )
    return _bounds_part(found, shares.groups, assumes, rests, {})


def _bounds_part(
    found: dict[str, dict[tuple[int, int], GapBounds]],
    groups: Sequence[str],
    assumes: str,
    rests: list[str],
    naive: dict[str, dict[str, float]],
    more: str = "",
) -> IndirectPart:
    reason = "bounds, not an estimate: the groups of no rows are known"
    gaps = [
        IndirectGap(
            gap, (groups[a], groups[b]), Estimate.refuse(reason, one.n, one.assumes), naive.get(gap, {}), None, one
        )
        for gap, by_pair in found.items()
        for (a, b), one in by_pair.items()
    ]
    rests = [
        *rests,
        "Method: the largest and the smallest gap that agree with what is known, with the sampling error of "
        "these rows.",
        f"Known: only {assumes}. The worst case assumes nothing of how predictions depend on the group.",
        *([more] if more else []),
        _naive_line(gaps),
        PERSONS,
    ]
    helped = (
        f"the group of {FEWEST_LABELLED} randomly chosen rows (--labelled-group), which turns bounds into an estimate"
    )
    return IndirectPart("bounds", assumes, gaps, [*rests, f"What would help: {helped}."], reason, helped)


def _probability(cells: Cells, known: Known, why: list[str], options: Options) -> IndirectPart:
    proxy = known.proxies[0]
    bins = add_up(cells, [(len(next(iter(cells))) - 2, range(BINS)), *OUTCOME])
    rows = bins[..., 0, 0].sum((1, 2))
    bins = bins[rows > 0]
    rows = rows[rows > 0]
    mean = bins[..., 0, 1].sum((1, 2)) / rows
    if len(rows) == 1 and mean[0] in (0.0, 1.0):
        raise DataError(
            f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
        )
    if not 0 < float(rows @ mean) / rows.sum() < 1:
        raise DataError(f"Proxy {quoted(proxy)} puts every row into one group. There is no gap to bound.")
    found = by_shares(
        bins[..., 0, 0], np.stack([1 - mean, mean], -1), level=options.level, assumes=ASSUMES_PROBABILITIES
    )
    ends: Bracket = bracket(
        bins[..., 0, :].sum((0, 1)), bins[..., 0, :].sum(1), level=options.level, replicates=options.replicates,
        seed=options.seed,
    )  # fmt: skip
    if ends.weighted.reason:
        raise DataError(
            f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
        )
    groups = in_order({pattern[2] for pattern in cells} - {None})
    signs, helped = ("unknown", "unknown"), ""
    if len(groups) == 2:
        own = add_up(cells, [(2, groups), *OUTCOME])[..., 0, :].sum(1)
        if own[1, :, 1].sum() / max(1, own[1, :, 0].sum()) < own[0, :, 1].sum() / max(1, own[0, :, 0].sum()):
            own = own[::-1]
        signs = sign_conditions(own)
    both = sorted((ends.weighted.value, ends.linear.value))
    low, high = min(ends.weighted.low, ends.linear.low), max(ends.weighted.high, ends.linear.high)
    between = (
        f"between {points(both[0])} and {points(both[1])} points (with sampling error {points(low)} to {points(high)})"
    )
    # Both conditions in the direction that the proxy shows.
    way, least, more = ("positive", "least", "less") if both[0] + both[1] >= 0 else ("negative", "most", "more")
    conditions = (
        f"among rows of equal probability the group is selected at {least} as often, and within each group a higher "
        f"probability does not go with {more} selection"
    )
    if signs == (way, way):
        helped = f"The labelled rows show that {conditions}: then the gap in selection rates lies {between}."
    elif {*signs} - {way, "unknown"}:
        helped = f"The labelled rows contradict that {conditions}: no bracket is given."
    else:
        helped = f"If {conditions}, the gap in selection rates lies {between}; no labelled rows confirm it."
    naive = {gap: {proxy: naive_gap(by_halves(cells), gap)} for gap in GAPS}
    named = ("all others", proxy)
    return _bounds_part(found, named, f"that the probability {quoted(proxy)} is calibrated", why, naive, helped)


def _counted(groups: int) -> str:
    return "1 group" if groups == 1 else f"{groups} groups"
