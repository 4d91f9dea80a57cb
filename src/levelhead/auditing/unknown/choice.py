"""Answer with the strongest method that the input allows, and say what the answer is based on.

Order: randomised responses, whose noise is known; a labelled subset of 100 rows or more, which assumes nothing of the
proxies; three proxies; shares, strata or a probability, which bound the gap and do not estimate it. What cannot be
answered is refused, with the reason and the data that would help.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from levelhead.auditing.unknown.answer import PERSONS, IndirectGap, IndirectPart
from levelhead.auditing.unknown.cells import Cells, group_of, said_by
from levelhead.auditing.unknown.known import FEWEST_LABELLED, MOST_GROUPS, NOTHING_KNOWN, Known, Shares
from levelhead.auditing.unknown.page import points
from levelhead.auditing.unknown.privacy import Response
from levelhead.auditing.unknown.tally import BINS
from levelhead.metrics.labelled import FEWEST_SHOWN, FOLDS, LabelledGap, by_labelled_pairs, by_labelled_rows
from levelhead.metrics.proxies import ProxyAnswer, by_proxies
from levelhead.metrics.responses import IMPOSSIBLE, by_responses, shares_of
from levelhead.metrics.signed import GAPS, ByPair, Found
from levelhead.metrics.worst_case import GapBounds, bracket, by_probabilities, by_shares, sign_conditions
from levelhead.report.text import counted, number
from levelhead.tables.vocabulary import in_order
from levelhead.types import DataError, Estimate, in_quotes, printable, quoted

CALIBRATED = "the proxy is calibrated: of the rows with probability 0.3, three in ten are in the group"
ERRORS = {
    "global": "within each group, proxy errors are independent of each other, of the label and of the prediction",
    "local": "within each group, label and prediction, proxy errors are independent of each other",
}
GIVEN = "nothing but the shares that were given"
RANDOMISED = "every answer was randomised as declared, by chance alone"
SAMPLE = "the labelled rows are a random sample"
WEIGHTED = "each row was labelled with the probability that its column says"
NOT_RANDOM = (
    "whether a row was labelled goes with its label, prediction or proxy, so the labelled rows are no random sample"
)
LABELLED_HELP = f"the group of {FEWEST_LABELLED} randomly chosen rows (--labelled-group)"
SAME = "is constant, so it carries no information on the group. Leave it out."


@dataclass(frozen=True)
class Options:
    """The confidence level, the replicates of a bootstrap, and the seed where a method draws by chance."""

    level: float = 0.95
    replicates: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Lacking:
    """Labelled rows that are too few for an estimate."""

    rows: int

    def __str__(self) -> str:
        few = f"only {self.rows}" if self.rows >= FEWEST_SHOWN else f"fewer than {FEWEST_SHOWN}"
        return f"{few} rows have a group; an estimate needs {FEWEST_LABELLED}"

    @property
    def sentence(self) -> str:
        """The same as a sentence."""
        text = str(self)
        return f"{text[0].upper()}{text[1:]}."


def answer(name: str, cells: Cells, known: Known, options: Options) -> IndirectPart:
    """Answer with the first method that can; say why the stronger ones could not, and what was not used."""
    part = _strongest(name, cells, known, options)
    shares = known.shares
    bounded = shares is not None and part.method == "bounds"
    unused = {
        "the shares (--shares)": shares and not bounded and (part.method != "three proxies" or not shares.overall),
        "the strata (--strata)": known.strata and not bounded,
        "the proxies (--proxy)": known.proxies and bounded,
    }
    if left := " or ".join(one for one, given in unused.items() if given):
        part = replace(part, warnings=(*part.warnings, f"Method “{part.method}” does not use {left}."))
    return part


def _strongest(name: str, cells: Cells, known: Known, options: Options) -> IndirectPart:
    if known.probabilities:
        return _probabilities(cells, known, options)
    if known.responses:
        return _responses(name, cells, known.responses[name], known, options)
    labelled = cells.count(lambda pattern: pattern.group is not None)
    if known.labelled and labelled >= FEWEST_LABELLED:
        return _labelled(name, cells, known, options)
    lacking = Lacking(labelled) if known.labelled else None
    why = [lacking.sentence] if lacking else []
    if len(known.proxies) >= 3:
        return _three_proxies(cells, known, why, options)
    if known.shares:
        return _shares(cells, known, known.shares, why, options)
    if cells.probability and not cells.hard:
        return _probability(cells, why, options)
    for at, proxy in enumerate(known.proxies):
        if len(said := cells.values((lambda one: one.bin) if cells.probability else said_by(at))) == 1:
            raise DataError(
                f"Proxy {quoted(proxy)} " + ("is missing in every row. Leave it out." if None in said else SAME)
            )
    if known.proxies:
        return _guessed(known.proxies, why, options, cells.probability)
    return _no_answer(str(lacking), why, options)


def _guessed(proxies: Sequence[str], why: Sequence[str], options: Options, hard: bool) -> IndirectPart:
    """Refuse proxies that guess the group; say why where they are ``hard`` probabilities, 0 or 1."""
    said = [f"{', '.join(map(printable, proxies))}: every value is 0 or 1, so it is a guess and not a probability."]
    return _no_answer(
        f"{counted(len(proxies), 'proxy', 'proxies')} without labelled rows cannot tell a gap from the proxy’s own "
        "errors",
        [*why, *said] if hard else why,
        options,
    )


def _no_answer(reason: str, why: Sequence[str], options: Options) -> IndirectPart:
    gaps = [IndirectGap(gap, ("one group", "another"), Estimate.refuse(reason, 0, "nothing")) for gap in GAPS]
    helped = f"{LABELLED_HELP}, three proxies from different sources, or the shares of the groups (--shares)"
    return IndirectPart("bounds", "nothing", gaps, [*why, NOTHING_KNOWN, PERSONS], reason, helped, level=options.level)


def _rests_on(said: Sequence[str], gaps: Sequence[IndirectGap]) -> list[str]:
    """Add to what a method says the naive gap, how intervals allow for several pairs, and what is true of them all."""
    sentences = list(said) if any(one.weighted for one in gaps) else [*said, _naive_sentence(gaps)]
    if (pairs := len({one.groups for one in gaps})) > 1:
        if any(one.estimate.defined or one.weighted for one in gaps):
            how = "intervals are adjusted for all pairs of a rate (Bonferroni)"
        else:
            how = "the intervals of their bounds are simultaneous"
        sentences.append(f"There are {pairs} pairs of groups: {how}.")
    return [*sentences, PERSONS]


def _naive_sentence(gaps: Sequence[IndirectGap]) -> str:
    naive = [item for one in gaps if one.gap == "demographic_parity" for item in one.naive.items()]
    said = ", ".join(
        f"{points(value)} points ({printable(proxy)})"
        for proxy, value in [one for one in naive if math.isfinite(one[1])][:6]
    )
    if not said:
        return "There is no naive proxy gap to print beside it."
    return f"Naive gap in selection rates, with the proxy used as the group: {said}. This answer does not use it."


def _by_pair(
    found: ByPair[Found], groups: Sequence[Hashable]
) -> Iterator[tuple[str, tuple[int, int], tuple[str, str], Found]]:
    """Yield the name of each gap, the places and the names of its groups, and what was found."""
    for gap, by_pair in found.items():
        for (a, b), one in by_pair.items():
            yield gap, (a, b), (str(groups[a]), str(groups[b])), one


def _known_groups(name: str, cells: Cells, need: str) -> list[Hashable]:
    """Return the groups, of which the method needs as many as can be compared."""
    if not 2 <= len(cells.groups) <= MOST_GROUPS:
        raise DataError(f"Column {quoted(name)} has {counted(len(cells.groups), 'group')}; {need} 2 to {MOST_GROUPS}.")
    return cells.groups


def _responses(name: str, cells: Cells, response: Response, known: Known, options: Options) -> IndirectPart:
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
    gaps = [
        IndirectGap(gap, pair, replace(one.estimate, assumes=RANDOMISED), {"reports as groups": one.naive})
        for gap, _, pair, one in _by_pair(found, groups)
    ]
    assumes = f"every answer was randomised with {response}"
    said = [
        "Method: the known response noise is inverted exactly and counted in the variance.",
        f"Assumption: every answer, one of {len(groups)}, was randomised with {response}, by chance alone.",
        _spent(name, response.spent(len(groups)), known),
    ]
    if defined := [one for one in found["demographic_parity"].values() if one.estimate.defined]:
        said.append(
            f"The noise makes the variance of the gap in selection rates {max(one.inflation for one in defined):.1f} "
            f"times that of the naive estimate; {max(one.rows_for_5_points or 0 for one in defined):,} rows would "
            "detect a gap of 5 points in 80 of 100 audits."
        )
    shares = dict(zip(map(str, groups), shares_of(counts.sum((1, 2)), matrix)[0].tolist(), strict=True))
    refused = "" if any(one.estimate.defined for one in gaps) else gaps[0].estimate.reason or ""
    helped = "more rows, or a larger epsilon for the next respondents" if refused else ""
    if refused == IMPOSSIBLE:
        implied = ", ".join(f"{number(100 * share)}% of {in_quotes(group)}" for group, share in shares.items())
        said.append(f"With {response}, these answers imply shares of {implied}. A share lies between 0% and 100%.")
        helped = "the flip or epsilon with which the answers were in fact randomised"
    if refused:
        shares = {}
    return IndirectPart(
        "randomised responses", assumes, gaps, _rests_on(said, gaps), refused, helped, shares, options.level
    )


def _spent(name: str, spent: float, known: Known) -> str:
    """Say how much of their privacy people gave."""
    if math.isinf(spent):
        return "A flip of 0 gives no privacy: these are the true groups."
    budgets = [one.epsilon for one in known.responses.values()]
    said = f"Each answer in {printable(name)} spent epsilon={spent:.2f}."
    if len(budgets) > 1 and None not in budgets:
        together = sum(one for one in budgets if one is not None)
        said += f" The {len(budgets)} attributes of a person spent {together:.2f} together."
    return said


def _labelled(name: str, cells: Cells, known: Known, options: Options) -> IndirectPart:
    """Correct what the proxies say of all rows by the labelled ones."""
    groups = _known_groups(name, cells, "this method compares")
    weighted = known.inclusion is not None
    reason = cells.ill_weighted() if weighted else NOT_RANDOM if cells.not_random() else ""
    way = 1.0
    found: ByPair[LabelledGap]
    if len(groups) == 2 and (cells.probability or not cells.proxies):
        *moments, way = cells.moments()
        two = by_labelled_rows(*moments, level=options.level, weighted=weighted)
        found = {gap: {(1, 0): one} for gap, one in two.items()}
    else:
        found = by_labelled_pairs(*cells.by_cell(options.seed), level=options.level, weighted=weighted)
    of_figures = WEIGHTED if weighted else f"{SAMPLE} of all rows"
    naive = {
        (a, b): cells.naive(groups[a], groups[b]) if not cells.probability or len(groups) == 2 else {}
        for a, b in found["demographic_parity"]
    }
    gaps = []
    for gap, at, pair, one in _by_pair(found, groups):
        both = (Estimate.refuse(reason, one.n) if reason else one for one in (one.estimate, one.classical))
        figure, alone = (replace(one, assumes=of_figures) for one in both)
        own = {proxy: way * value for proxy, value in naive[at].get(gap, {}).items()}
        gaps.append(IndirectGap(gap, pair, figure, own, alone))
    main = [] if reason else [one for one in found["demographic_parity"].values() if one.estimate.defined]
    assumes = WEIGHTED if weighted else SAMPLE
    said = [*_labelled_rows(cells), f"Assumption: {assumes}. The proxy needs no assumption.", *_of_proxies(cells)]
    refused = reason or ("" if main else gaps[0].estimate.reason or "")
    helped = "more labelled rows, above all of the smaller group"
    if reason:
        which = "in fact labelled" if weighted else "labelled, as a column"
        helped = f"the probability with which each row was {which} (--inclusion), or labels of a random sample"
    return IndirectPart(
        "labelled subset", assumes, gaps, _rests_on([*said, *_gained(main)], gaps), refused,
        helped if refused else "", level=options.level,
    )  # fmt: skip


def _labelled_rows(cells: Cells) -> list[str]:
    """Say how many rows are labelled."""
    sizes = {group: cells.count(lambda one, group=group: one.group == group) for group in cells.groups}  # type: ignore[misc]
    shown = ", ".join(
        f"{in_quotes(group)} {f'{size:,}' if size >= FEWEST_SHOWN else f'fewer than {FEWEST_SHOWN}'}"
        for group, size in sizes.items()
    )
    n = sum(sizes.values())
    return [
        f"Method: {n:,} rows with their group ({shown}) correct the proxy on {int(cells.rows.sum()) - n:,} other "
        f"rows. Reason: {FEWEST_LABELLED} labelled rows or more are the strongest evidence for any proxy."
    ]


def _of_proxies(cells: Cells) -> list[str]:
    """Say how the proxies were used, beside labelled rows."""
    said = []
    readers = [lambda one: one.bin] if cells.probability else [said_by(at) for at in range(len(cells.proxies))]
    same = [proxy for proxy, reader in zip(cells.proxies, readers, strict=True) if len(cells.values(reader)) == 1]
    if same and not (cells.probability and cells.varies):
        said.append(f"The proxy {printable(same[0])} is constant, so it carries no information: leave it out.")
    if not cells.proxies:
        return [*said, "There is no proxy: only the predictions of the other rows are used."]
    if cells.probability and len(cells.groups) == 2:
        return [
            *said,
            f"The proxy {printable(cells.proxies[0])} must not have been fitted on these labelled rows. If it was, "
            "pass the columns it was made from with --proxy instead: they are cross-fitted.",
        ]
    return [
        *said,
        f"The proxies were turned into one probability by cross-fitting in {FOLDS} parts of the labelled rows.",
    ]


def _gained(main: Sequence[LabelledGap]) -> list[str]:
    """Say what the proxies gained, and how many more labels would decide the gap."""
    if not main:
        return []
    one = max(main, key=lambda found: found.narrower if math.isfinite(found.narrower) else 0)
    factor = 1 / one.narrower if one.narrower > 0 else math.nan
    than = f"{factor:.2f} times narrower" if factor >= 1.005 else "no narrower"  # as where it is NaN
    said = [f"The interval of the gap in selection rates is {than} than that of the labelled rows alone."]
    if one.more_labels:
        said.append(
            f"About {one.more_labels:,} more labelled rows would detect a true gap of the measured size in 80 of 100 "
            "audits."
        )
    elif one.more_labels is None:
        said.append("The measured gap is too small for any feasible number of labels.")
    return said


def _three_proxies(cells: Cells, known: Known, why: list[str], options: Options) -> IndirectPart:
    """Find out from how often proxies agree how good each is."""
    groups = _proxy_groups(cells, known.proxies)
    given = known.shares.of([str(one) for one in groups]) if known.shares and known.shares.overall else None
    counts = cells.table(*((said_by(at), groups) for at in range(len(known.proxies))))
    found = by_proxies(counts, level=options.level, replicates=options.replicates, seed=options.seed)
    outcome = counts.sum(tuple(range(len(known.proxies))))
    worst: ByPair[GapBounds] = {}
    if given:
        worst = by_shares(outcome, given, level=options.level, assumes=GIVEN)
    elif not found.refused and (found.shares > 0).all():
        implied = "the shares that the proxies imply"
        worst = by_shares(outcome, found.shares / found.shares.sum(), level=options.level, assumes=implied)
    errors = ERRORS[found.mode]
    of_figures = errors if found.refused else f"{errors}; proxies are right more often than chance"
    gaps = [
        IndirectGap(
            gap, pair, replace(figure, assumes=of_figures),
            dict(zip(known.proxies, found.naive[gap][at], strict=True)), bounds=worst.get(gap, {}).get(at),
        )
        for gap, at, pair, figure in _by_pair(found.gaps, groups)
    ]  # fmt: skip
    said = [
        *why,
        f"Method: the agreement of {len(known.proxies)} proxies gives their accuracy. Reason: fewer than "
        f"{FEWEST_LABELLED} rows have a known group.",
        f"Assumption: {errors}; and each is right more often than chance.",
        "Errors that the proxies share, given the group, cannot be detected in these data.",
        *_fitted(found, known.proxies, groups),
    ]
    shares = {} if found.refused else dict(zip(map(str, groups), found.shares.tolist(), strict=True))
    helped = f"{LABELLED_HELP}, or proxies from sources that err differently" if found.refused else ""
    return IndirectPart(
        "three proxies", errors, gaps, _rests_on(said, gaps), found.refused, helped, shares, options.level,
        _contradictions(given, found, groups),
    )  # fmt: skip


def _contradictions(given: Sequence[float] | None, found: ProxyAnswer, groups: Sequence[Hashable]) -> tuple[str, ...]:
    """Warn of a given share that the proxies contradict, beyond three standard errors and its rounding to a percent."""
    if not given or found.share_errors is None:
        return ()
    off = np.abs(found.shares - given) - 0.005 - 3 * found.share_errors
    at = int(off.argmax())
    if off[at] <= 0:
        return ()
    return (
        f"The given share of {in_quotes(groups[at])} is {100 * given[at]:.1f}%; the proxies imply "
        f"{100 * found.shares[at]:.1f}%. One of them is wrong, or the proxies share errors: do not rely on this answer "
        "before you know which.",
    )


def _proxy_groups(cells: Cells, proxies: Sequence[str]) -> list[Hashable]:
    """Return the groups that the proxies name; raise DataError for proxies that cannot be compared."""
    values = [cells.values(said_by(at)) for at in range(len(proxies))]
    for at, (proxy, own) in enumerate(zip(proxies, values, strict=True)):
        if None in own:
            rows = cells.count(lambda pattern, at=at: pattern.said[at] is None)  # type: ignore[misc]
            raise DataError(
                f"Proxy {quoted(proxy)} is missing in {counted(rows, 'row')}. A proxy needs a value in every row: "
                "fill it in, or leave those rows out."
            )
        if len(own) == 1:
            raise DataError(f"Proxy {quoted(proxy)} {SAME}")
    groups = in_order(set().union(*values))
    if any(len(own) < len(groups) for own in values):
        named = (
            f"{quoted(proxy)} says {', '.join(map(quoted, in_order(own)[:4]))}"
            for proxy, own in zip(proxies, values, strict=True)
        )
        raise DataError(
            f"The proxies do not name the same groups: {'; '.join(named)}. Write the groups in the same words in all "
            "of them."
        )
    if len(groups) > MOST_GROUPS:
        raise DataError(f"The proxies name {len(groups)} groups; this method compares at most {MOST_GROUPS}.")
    for j, first in enumerate(proxies):
        for k, second in enumerate(proxies[:j]):
            if all(pattern.said[j] == pattern.said[k] for pattern in cells.patterns):
                raise DataError(
                    f"Proxies {quoted(second)} and {quoted(first)} are identical: they are one proxy, not two. Leave "
                    "one out."
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
            f"{printable(proxy)} " + " and ".join(f"{100 * own[k, k]:.0f}%" for k in range(len(groups)))
            for proxy, own in zip(proxies, found.accuracy, strict=True)
        )
        of = " and of ".join(map(in_quotes, groups))
        said.append(f"Fitted accuracy of each proxy on {of}: {right}.")
    return said


def _shares(cells: Cells, known: Known, shares: Shares, why: list[str], options: Options) -> IndirectPart:
    """Bound the gaps by the shares of the groups."""
    said = list(why)
    if shares.by_stratum is None:
        assert shares.overall is not None
        found = by_shares(cells.table(), shares.overall, level=options.level, assumes=GIVEN)
        assumes = "the share of each group"
        if known.strata:
            said.append(
                "Strata narrow the bounds only if the shares of the groups in each of them are known: pass them with "
                "--shares FILE.csv (a line a stratum, a column a group)."
            )
        return _bounded(found, shares.groups, assumes, said, {}, options)
    strata = in_order(cells.values(lambda one: one.stratum) - {None})
    unseen = [one for one in strata if one not in shares.by_stratum]
    if unseen or cells.count(lambda one: one.stratum is None):
        which = f"stratum {quoted(str(unseen[0]))}" if unseen else "rows without a stratum"
        raise DataError(f"There are no shares for {which}. Name the shares of every stratum that the predictions have.")
    found = by_shares(
        cells.table((lambda one: one.stratum, strata)),
        [shares.by_stratum[str(one)] for one in strata],
        level=options.level,
        seed=options.seed,
        assumes=f"{GIVEN} for each stratum",
    )
    return _bounded(
        found, shares.groups, f"the share of each group in each of {len(strata):,} strata", said, {}, options
    )


def _bounded(
    found: ByPair[GapBounds],
    groups: Sequence[str],
    assumes: str,
    why: Sequence[str],
    naive: Mapping[str, Mapping[str, float]],
    options: Options,
    more: Sequence[str] = (),
    weighted: ByPair[Estimate] | None = None,
) -> IndirectPart:
    """Give the worst case, which is no estimate."""
    reason = "bounds, not an estimate: no row’s group is known"
    gaps = [
        IndirectGap(
            gap,
            pair,
            Estimate.refuse(reason, one.n, one.assumes),
            naive.get(gap, {}),
            bounds=one,
            weighted=weighted[gap][at] if weighted else None,
        )
        for gap, at, pair, one in _by_pair(found, groups)
    ]
    said = [
        *why,
        "Method: the largest and smallest gap compatible with the known facts, with the sampling error of these rows.",
        f"Known: only {assumes}. The worst case makes no assumption on how predictions depend on the group.",
        *more,
    ]
    helped = f"{LABELLED_HELP}, which turns bounds into an estimate"
    rests = [*_rests_on(said, gaps), f"What would help: {helped}."]
    return IndirectPart("bounds", assumes, gaps, rests, reason, helped, level=options.level)


def _probabilities(cells: Cells, known: Known, options: Options) -> IndirectPart:
    """Bound the gaps by the probabilities of the groups in each row, and estimate them by weights."""
    groups = list(known.probabilities)
    if len(groups) == 1:
        groups = [f"not {groups[0]}", *groups]
    steps = [said_by(at) for at in range(len(groups) - 1)]
    kinds = sorted({tuple(of(one) for of in steps) for one in cells.patterns})
    table = cells.table((lambda one: one.said, kinds), sums=cells.sums)
    p = cells.sums[:, 0, 1:].sum(0)
    if len(lacking := np.flatnonzero(p <= 0)):
        raise DataError(f"Group {quoted(groups[lacking[0]])} has probability 0 in every row: leave it out.")
    rows = p.sum()
    spread = np.diagonal(cells.sums, axis1=1, axis2=2)[:, 1:].sum(0) / rows - (p / rows) ** 2
    if (spread < 1e-12).all():
        raise DataError("The probabilities are constant, so they carry no information: pass --shares instead.")
    if cells.hard:
        return _guessed(list(known.probabilities.values()), [], options, hard=True)
    found, weighted = by_probabilities(table, level=options.level, seed=options.seed, assumes=CALIBRATED)
    pairs = weighted["demographic_parity"]
    largest, one = max(((at, one) for at, one in pairs.items() if one.defined), key=lambda item: abs(item[1].value))
    a, b = (in_quotes(groups[at]) for at in largest)
    more = [
        f"Weighted estimate (each row counts for a group by its probability, as supervisors count with BISG): the "
        f"selection rate of {a} minus that of {b} is {points(one.value)} points, {100 * options.level:g}% interval "
        f"{points(one.low)} to {points(one.high)}.",
        "It is unbiased only if predictions do not depend on the group at equal probabilities; otherwise it is "
        "usually too small. Its interval covers only the sampling of rows.",
        *(
            f"No weighted estimate of {in_quotes(groups[a])} and {in_quotes(groups[b])}: {one.reason}."
            for (a, b), one in pairs.items()
            if not one.defined
        ),
    ]
    assumes = "that the probabilities are calibrated"
    part = _bounded(found, groups, assumes, [], {}, options, more, weighted)
    return replace(part, shares=dict(zip(groups, (p / rows).tolist(), strict=True)))


def _probability(cells: Cells, why: list[str], options: Options) -> IndirectPart:
    """Bound the gap by a calibrated probability of the group, and say between which figures it lies if it does."""
    proxy = cells.proxies[0]
    bins = cells.table((lambda one: one.bin, range(BINS)), sums=cells.sums[:, 0])
    rows = bins[..., 0].sum((1, 2))
    bins = bins[rows > 0]
    n, first, second = np.moveaxis(bins, -1, 0)
    rest, both = n - first, first - second  # sums of 1 - b and of b (1 - b)
    products = np.array([[n, rest, first], [rest, rest - both, both], [first, both, second]])
    table = np.moveaxis(products, (0, 1), (-2, -1))
    found, _ = by_probabilities(table, level=options.level, seed=options.seed, assumes=CALIBRATED)
    ends = bracket(bins.sum((0, 1)), bins.sum(1), level=options.level, replicates=options.replicates, seed=options.seed)
    if not ends[0].defined:
        raise DataError(f"Proxy {quoted(proxy)} {SAME}")
    more = _between(*ends, _signs(cells))
    assumes = f"that the probability {printable(proxy)} is calibrated"
    return _bounded(found, ("all others", proxy), assumes, why, cells.naive(), options, [more])


def _signs(cells: Cells) -> tuple[int, int]:
    """What labelled rows, too few for an estimate, show of the two conditions of a bracket."""
    if len(cells.groups) != 2:
        return 0, 0
    own = cells.table((group_of, cells.groups), sums=cells.sums[:, 0]).sum(1)
    mean = own[..., 1].sum(1) / np.maximum(1, own[..., 0].sum(1))
    return sign_conditions(own[::-1] if mean[1] < mean[0] else own)


def _between(weighted: Estimate, linear: Estimate, signs: tuple[int, int]) -> str:
    """Say between which figures the gap lies, and under which conditions."""
    least, most = sorted((weighted.value, linear.value))
    low, high = min(weighted.low, linear.low), max(weighted.high, linear.high)
    between = f"between {points(least)} and {points(most)} points (with sampling error {points(low)} to {points(high)})"
    # Both conditions in the direction that the proxy shows.
    way, as_often, more = (1, "least", "less") if least + most >= 0 else (-1, "most", "more")
    conditions = (
        f"among rows of equal probability the group is selected at {as_often} as often, and within each group a higher "
        f"probability does not go with {more} selection"
    )
    if signs == (way, way):
        return f"The labelled rows show that {conditions}: then the gap in selection rates lies {between}."
    if -way in signs:
        return f"The labelled rows contradict that {conditions}: no bracket is given."
    return f"If {conditions}, the gap in selection rates lies {between}; no labelled rows confirm it."
