"""Answer with the strongest method that the input allows, and say what the answer is based on.

Order: randomised responses, whose noise is known; a labelled subset of 100 rows or more, which assumes nothing of the
proxies; three proxies; shares or probabilities, which bound the gap. What cannot be answered is refused, with the
reason and the data that would help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from levelhead.auditing.options import AuditOptions
from levelhead.auditing.unknown.answer import PERSONS, IndirectGap, IndirectPart
from levelhead.auditing.unknown.cells import LEAST_SPREAD, Cells, group_of, said_by
from levelhead.auditing.unknown.known import FEWEST_LABELLED, MOST_GROUPS, NOTHING_KNOWN, Known
from levelhead.auditing.unknown.privacy import Response
from levelhead.metrics.labelled import FEWEST_SHOWN, FOLDS, LabelledGap, by_labelled_pairs, by_labelled_rows
from levelhead.metrics.proxies import ProxyAnswer, by_proxies
from levelhead.metrics.responses import IMPOSSIBLE, by_responses, shares_of
from levelhead.metrics.signed import GAPS, ByPair, Found
from levelhead.metrics.worst_case import GapBounds, by_probabilities, by_shares
from levelhead.report.sentences import named_group
from levelhead.report.text import counted, number
from levelhead.tables.vocabulary import in_order
from levelhead.types import DataError, Estimate, printable, quoted

CALIBRATED = "the proxy is calibrated: of the rows with probability 0.3, three in ten are in the group"
ERRORS = {
    "global": "within each group, proxy errors are independent of each other, of the label and of the prediction",
    "local": "within each group, label and prediction, proxy errors are independent of each other",
}
RANDOMISED = "every answer was randomised as declared, by chance alone"
SAMPLE = "the labelled rows are a random sample"
NOT_RANDOM = (
    "whether a row was labelled goes with its label, prediction or proxy, so the labelled rows are no random sample"
)
LABELLED_HELP = f"the group of {FEWEST_LABELLED} randomly chosen rows (--labelled-group)"


def answer(name: str, cells: Cells, known: Known, options: AuditOptions) -> IndirectPart:
    """Answer with the first method that can; say why the stronger ones could not."""
    if known.probabilities:
        return _probabilities(cells, known, options)
    if known.response is not None:
        return _responses(name, cells, known.response, options)
    if known.shares:
        assumes = "nothing but the shares that were given"
        found = by_shares(cells.table(), list(known.shares.values()), level=options.level, assumes=assumes)
        return _bounded(found, list(known.shares), "the share of each group", options)
    labelled = cells.count(lambda pattern: pattern.group is not None)
    if labelled >= FEWEST_LABELLED:
        return _labelled(name, cells, known, options)
    few = f"only {labelled}" if labelled >= FEWEST_SHOWN else f"fewer than {FEWEST_SHOWN}"
    lacking = f"{few} rows have a group; an estimate needs {FEWEST_LABELLED}" if known.labelled else ""
    why = [f"{lacking[0].upper()}{lacking[1:]}."] if lacking else []
    if len(known.proxies) == 3:
        return _three_proxies(cells, known, why, options)
    if cells.probability:
        proxy = printable(known.proxies[0])
        why.append(f"If {proxy} holds probabilities of a group, name them with --proxy-probabilities GROUP={proxy}.")
    proxies = counted(len(known.proxies), "proxy", "proxies")
    reason = lacking or f"{proxies} without labelled rows cannot tell a gap from the proxy’s own errors"
    gaps = [IndirectGap(gap, ("one group", "another"), Estimate.refuse(reason, 0, "nothing")) for gap in GAPS]
    helped = f"{LABELLED_HELP}, three proxies from different sources, or the shares of the groups (--shares)"
    return IndirectPart("bounds", "nothing", gaps, [*why, NOTHING_KNOWN, PERSONS], reason, helped, level=options.level)


def _gaps(
    found: ByPair[Found], groups: Sequence[Hashable], gap_of: Callable[[str, tuple[int, int], Found], Mapping[str, Any]]
) -> list[IndirectGap]:
    """Return each gap of each pair of groups, whose fields ``gap_of`` gives from its name, its places and a finding."""
    return [
        IndirectGap(gap, (str(groups[a]), str(groups[b])), **gap_of(gap, (a, b), one))
        for gap, by_pair in found.items()
        for (a, b), one in by_pair.items()
    ]


def _rests_on(said: Sequence[str], gaps: Sequence[IndirectGap]) -> list[str]:
    """Add to what a method says how intervals allow for several pairs, and what is true of them all."""
    pairs = len({one.groups for one in gaps})
    together = [f"There are {pairs} pairs of groups: their intervals hold together."] if pairs > 1 else []
    return [*said, *together, PERSONS]


def _known_groups(name: str, cells: Cells, need: str) -> list[Hashable]:
    """Return the groups, of which the method needs as many as can be compared."""
    if not 2 <= len(cells.groups) <= MOST_GROUPS:
        raise DataError(f"Column {quoted(name)} has {counted(len(cells.groups), 'group')}; {need} 2 to {MOST_GROUPS}.")
    return cells.groups


def _responses(name: str, cells: Cells, response: Response, options: AuditOptions) -> IndirectPart:
    """Invert the noise of randomised answers."""
    if without := cells.count(lambda pattern: pattern.group is None):
        raise DataError(
            f"Column {quoted(name)}: {without:,} rows have no answer. Non-response is not randomised: make it a "
            "category, or leave those rows out."
        )
    groups = _known_groups(name, cells, "randomised responses need")
    counts = cells.table((group_of, groups))
    matrix = response.matrix(len(groups))
    found = by_responses(counts, matrix, level=options.level)
    gaps = _gaps(
        found,
        groups,
        lambda gap, at, one: {
            "estimate": replace(one.estimate, assumes=RANDOMISED), "naive": {"reports as groups": one.naive},
        },
    )  # fmt: skip
    said = [
        "Method: the known response noise is inverted exactly and counted in the variance.",
        f"Assumption: every answer, one of {len(groups)}, was randomised with {response}, by chance alone.",
    ]
    if defined := [one for one in found["demographic_parity"].values() if one.estimate.defined]:
        rows = max(one.rows_for_5_points or 0 for one in defined)
        said.append(f"With this noise, {rows:,} rows would detect a gap of 5 points in 80 of 100 audits.")
    shares = dict(zip(map(str, groups), shares_of(counts.sum((1, 2)), matrix)[0].tolist(), strict=True))
    refused = "" if any(one.estimate.defined for one in gaps) else gaps[0].estimate.reason or ""
    helped = "more rows, or a larger epsilon for the next respondents" if refused else ""
    if refused == IMPOSSIBLE:
        implied = ", ".join(f"{number(100 * share)}% of {_named(group)}" for group, share in shares.items())
        said.append(f"With {response}, these answers imply shares of {implied}. A share lies between 0% and 100%.")
        helped = "the flip or epsilon with which the answers were in fact randomised"
    assumes = f"every answer was randomised with {response}"
    shares = {} if refused else shares
    rests = _rests_on(said, gaps)
    return IndirectPart("randomised responses", assumes, gaps, rests, refused, helped, shares, options.level)


def _labelled(name: str, cells: Cells, known: Known, options: AuditOptions) -> IndirectPart:
    """Correct what the proxies say of all rows by the labelled ones."""
    groups = _known_groups(name, cells, "this method compares")
    reason = NOT_RANDOM if cells.not_random() else ""
    way = 1.0
    found: ByPair[LabelledGap]
    if len(groups) == 2 and (cells.probability or not cells.proxies):
        *moments, way = cells.moments()
        two = by_labelled_rows(*moments, level=options.level)
        found = {gap: {(1, 0): one} for gap, one in two.items()}
    else:
        found = by_labelled_pairs(*cells.by_cell(options.seed), level=options.level)

    def gap_of(gap: str, at: tuple[int, int], one: LabelledGap) -> dict[str, Any]:
        both = (Estimate.refuse(reason, figure.n) if reason else figure for figure in (one.estimate, one.classical))
        figure, alone = (replace(figure, assumes=f"{SAMPLE} of all rows") for figure in both)
        spoken = not cells.probability or len(groups) == 2
        naive = cells.naive(groups[at[0]], groups[at[1]]).get(gap, {}) if spoken else {}
        return {"estimate": figure, "alone": alone, "naive": {proxy: way * value for proxy, value in naive.items()}}

    gaps = _gaps(found, groups, gap_of)
    main = [] if reason else [one for one in found["demographic_parity"].values() if one.estimate.defined]
    said = [_labelled_rows(cells), f"Assumption: {SAMPLE}. The proxy needs no assumption.", *_of_proxies(cells)]
    refused = reason or ("" if main else gaps[0].estimate.reason or "")
    helped = "more labelled rows, above all of the smaller group" if refused else ""
    if reason:
        helped = "labels of a random sample"
    rests = _rests_on([*said, *_gained(main)], gaps)
    return IndirectPart("labelled subset", SAMPLE, gaps, rests, refused, helped, level=options.level)


def _named(group: Hashable) -> str:
    return named_group("group", str(group))


def _labelled_rows(cells: Cells) -> str:
    """Say how many rows are labelled."""
    sizes = {group: cells.count(lambda one, group=group: one.group == group) for group in cells.groups}  # type: ignore[misc]
    shown = ", ".join(
        f"{_named(group)} {f'{size:,}' if size >= FEWEST_SHOWN else f'fewer than {FEWEST_SHOWN}'}"
        for group, size in sizes.items()
    )
    n = sum(sizes.values())
    return (
        f"Method: {n:,} rows with their group ({shown}) correct the proxy on {int(cells.rows.sum()) - n:,} other "
        f"rows. Reason: {FEWEST_LABELLED} labelled rows or more are the strongest evidence for any proxy."
    )


def _of_proxies(cells: Cells) -> list[str]:
    """Say how the proxies were used, beside labelled rows."""
    if not cells.proxies:
        return ["There is no proxy: only the predictions of the other rows are used."]
    said = [
        f"The proxy {printable(same)} is constant, so it carries no information: leave it out."
        for same in cells.constant
    ]
    if cells.probability and len(cells.groups) == 2:
        said.append(
            f"The proxy {printable(cells.proxies[0])} must not have been fitted on these labelled rows. If it was, "
            "pass the columns it was made from with --proxy instead: they are cross-fitted."
        )
    else:
        parts = f"{FOLDS} parts of the labelled rows"
        said.append(f"The proxies were turned into one probability by cross-fitting in {parts}.")
    return said


def _gained(main: Sequence[LabelledGap]) -> list[str]:
    """Say how many more labels would decide the gap."""
    most = {one.more_labels for one in main} - {0}
    if not most:
        return []
    if None in most:
        return ["The measured gap is too small for any feasible number of labels."]
    labels = max(one for one in most if one is not None)
    return [f"About {labels:,} more labelled rows would detect a true gap of the measured size in 80 of 100 audits."]


def _three_proxies(cells: Cells, known: Known, why: list[str], options: AuditOptions) -> IndirectPart:
    """Find out from how often proxies agree how good each is."""
    groups = _proxy_groups(cells, known.proxies)
    counts = cells.table(*((said_by(at), groups) for at in range(3)))
    found = by_proxies(counts, level=options.level, replicates=options.replicates, seed=options.seed)
    worst: ByPair[GapBounds] = {}
    if not found.refused and (found.shares > 0).all():
        implied = "the shares that the proxies imply"
        shares = found.shares / found.shares.sum()
        worst = by_shares(counts.sum((0, 1, 2)), shares, level=options.level, assumes=implied)
    errors = ERRORS[found.mode]
    of_figures = errors if found.refused else f"{errors}; proxies are right more often than chance"

    def gap_of(gap: str, at: tuple[int, int], one: Estimate) -> dict[str, Any]:
        naive = dict(zip(known.proxies, found.naive[gap][at], strict=True))
        return {"estimate": replace(one, assumes=of_figures), "naive": naive, "bounds": worst.get(gap, {}).get(at)}

    gaps = _gaps(found.gaps, groups, gap_of)
    said = [
        *why,
        f"Method: the agreement of 3 proxies gives their accuracy. Reason: fewer than {FEWEST_LABELLED} rows have a "
        "known group.",
        f"Assumption: {errors}; and each is right more often than chance.",
        "Errors that the proxies share, given the group, cannot be detected in these data.",
        *_fitted(found, known.proxies, groups),
    ]
    shared = {} if found.refused else dict(zip(map(str, groups), found.shares.tolist(), strict=True))
    helped = f"{LABELLED_HELP}, or proxies from sources that err differently" if found.refused else ""
    rests = _rests_on(said, gaps)
    return IndirectPart("three proxies", errors, gaps, rests, found.refused, helped, shared, options.level)


def _proxy_groups(cells: Cells, proxies: Sequence[str]) -> list[Hashable]:
    """Return the two groups that three proxies name; raise DataError for proxies that cannot be compared."""
    values = [cells.values(said_by(at)) for at in range(len(proxies))]
    for at, (proxy, own) in enumerate(zip(proxies, values, strict=True)):
        if None in own:
            rows = cells.count(lambda pattern, at=at: pattern.said[at] is None)  # type: ignore[misc]
            raise DataError(
                f"Proxy {quoted(proxy)} is missing in {counted(rows, 'row')}. A proxy needs a value in every row: "
                "fill it in, or leave those rows out."
            )
    groups = in_order(set().union(*values))
    if len(groups) != 2 or any(len(own) != 2 for own in values):
        named = (
            f"{quoted(proxy)} says {', '.join(map(quoted, in_order(own)[:4]))}"
            for proxy, own in zip(proxies, values, strict=True)
        )
        raise DataError(
            f"Three proxies must name the same two groups, in the same words: {'; '.join(named)}. Merge groups until "
            "two are left."
        )
    return groups


def _fitted(found: ProxyAnswer, proxies: Sequence[str], groups: Sequence[Hashable]) -> list[str]:
    """Say what a test said of the proxies' errors, and how often each was right."""
    said = []
    if math.isfinite(found.p_value):
        said.append(
            "A test rejected that the proxies’ errors do not depend on label and prediction (p below 0.01), so the "
            "weaker assumption was taken, which needs more rows."
            if found.mode == "local"
            else "A test did not reject that their errors do not depend on label and prediction (p = "
            f"{found.p_value:.2f})."
        )
    if not found.refused and np.isfinite(found.accuracy).all():
        right = ", ".join(
            f"{printable(proxy)} " + " and ".join(f"{100 * one:.0f}%" for one in own.diagonal())
            for proxy, own in zip(proxies, found.accuracy, strict=True)
        )
        said.append(f"Fitted accuracy of each proxy on {' and of '.join(map(_named, groups))}: {right}.")
    return said


def _bounded(
    found: ByPair[GapBounds],
    groups: Sequence[str],
    assumes: str,
    options: AuditOptions,
    more: Sequence[str] = (),
    weighted: ByPair[Estimate] | None = None,
) -> IndirectPart:
    """Give the worst case, which is no estimate."""
    reason = "bounds, not an estimate: no row’s group is known"

    def gap_of(gap: str, at: tuple[int, int], one: GapBounds) -> dict[str, Any]:
        none = Estimate.refuse(reason, one.n, one.assumes)
        return {"estimate": none, "bounds": one, "weighted": weighted[gap][at] if weighted else None}

    gaps = _gaps(found, groups, gap_of)
    said = [
        "Method: the largest and smallest gap compatible with the known facts, with the sampling error of these rows.",
        f"Known: only {assumes}. The worst case makes no assumption on how predictions depend on the group.",
        *more,
    ]
    helped = f"{LABELLED_HELP}, which turns bounds into an estimate"
    rests = [*_rests_on(said, gaps), f"What would help: {helped}."]
    return IndirectPart("bounds", assumes, gaps, rests, reason, helped, level=options.level)


def _probabilities(cells: Cells, known: Known, options: AuditOptions) -> IndirectPart:
    """Bound the gaps by the probabilities of the groups in each row, and estimate them by weights."""
    groups = list(known.probabilities)
    if len(groups) == 1:
        groups = [f"not {groups[0]}", *groups]
    p, squares = cells.sums[:, 0, 1:], np.diagonal(cells.sums, axis1=1, axis2=2)[:, 1:]
    shares = p.sum(0) / cells.rows.sum()
    if len(lacking := np.flatnonzero(shares <= 0)):
        raise DataError(f"Group {quoted(groups[lacking[0]])} has probability 0 in every row: leave it out.")
    if (squares.sum(0) / cells.rows.sum() - shares**2 < LEAST_SPREAD).all():
        raise DataError("The probabilities are constant, so they carry no information: pass --shares instead.")
    if (p == squares).all():
        raise DataError(
            f"Every probability is 0 or 1, which is a guess of the group. What would help: {LABELLED_HELP}."
        )
    kinds = sorted({one.said for one in cells.patterns})
    table = cells.table((lambda one: one.said, kinds), sums=cells.sums)
    found, weighted = by_probabilities(table, level=options.level, seed=options.seed, assumes=CALIBRATED)
    more = [
        f"No weighted estimate of {_named(groups[a])} and {_named(groups[b])}: {one.reason}."
        for (a, b), one in weighted["demographic_parity"].items()
        if not one.defined
    ]
    part = _bounded(found, groups, "that the probabilities are calibrated", options, more, weighted)
    return replace(part, shares=dict(zip(groups, shares.tolist(), strict=True)))
