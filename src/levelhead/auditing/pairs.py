"""Matched pairs: whether two rows that differ in their group alone are decided alike, as paired applications test.

Two applications are sent, alike but for a name or a voice. No outcome is needed: each pair is its own control. Pairs
with different decisions say which group is preferred: the difference of both directions has the interval of Bonett and
Price, and leaves out 0 only where McNemar's exact test agrees (:mod:`levelhead.metrics.paired`). Of scores, the mean
difference within pairs has the interval of :mod:`levelhead.metrics.moments`. Where both are there, their intervals hold
together (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from levelhead.auditing.engine import Compared, Pair, Quantity, compare
from levelhead.auditing.grouped_rows import GroupedRows
from levelhead.auditing.options import AuditOptions, Roles
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics.between import proportion, shared
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import MISSING_GROUP, Key, group_name
from levelhead.metrics.paired import mcnemar, paired_differences
from levelhead.report import wide
from levelhead.report.headline import Lead, plainly
from levelhead.report.result import Report
from levelhead.report.sentences import gap_words, named_group
from levelhead.report.text import counted, digits, number, percent, percent_ends
from levelhead.tables.columns import positive_index
from levelhead.tables.rows import partners
from levelhead.tables.source import Source
from levelhead.tables.vocabulary import in_order
from levelhead.types import ConfigError, Estimate, in_quotes, listed

ALONE, SCORE = wide.Fraction("chosen_alone"), "mean_score"
"""What groups are compared in: the share of pairs in which they alone are chosen, and scores."""


@dataclass(frozen=True)
class MatchedPairs(Report):
    """What an audit of matched pairs found.

    Of ``rows`` rows each two are a pair, whose groups in the sensitive ``column`` differ. ``groups`` has the figures of
    each: of decisions the share of pairs in which it alone has the ``decision``, of scores the mean. ``found`` has the
    difference of both groups in each figure. ``p_value`` is that of McNemar's exact test, adjusted; NaN of scores.

    Examples:
        >>> import pandas as pd
        >>> import levelhead as lh
        >>> table = pd.DataFrame({"pair": [at // 2 for at in range(80)], "sex": ["m", "f"] * 40})
        >>> table["invited"] = ["yes", "no", "no", "no"] * 20
        >>> print(lh.audit_table(table, prediction="invited", groups=["sex"], pairs="pair").differently)
        50.00 [35.20, 64.80]
    """

    kind: ClassVar[str] = "matched pairs"
    optional: ClassVar[Collection[str]] = ("reading", "decision")

    column: str
    groups: dict[str, dict[str, Estimate]]
    found: Compared
    rows: int
    decision: str
    differently: Estimate
    p_value: float
    warnings: list[str]
    level: float = 0.95
    reading: tuple[str, ...] = ()

    @property
    def leads(self) -> list[Lead]:
        """One sentence for each figure."""
        none = "All pairs differ by the same amount, so that no interval is known."
        return [self._lead(one) for one in self.found.pairs] or plainly([none])

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the share of all pairs, the figures of each group, and their differences."""
        if self.decision:
            yield self.column, None, wide.Fraction("decided_differently"), self.differently
        for group, own in self.groups.items():
            yield from ((self.column, group, name, one) for name, one in own.items())
        for pair in self.found.pairs:
            name = type(pair.quantity)(f"{pair.quantity}_difference")
            yield self.column, wide.Pair(pair.first.group, pair.second.group), name, pair.difference

    def _lead(self, pair: Pair) -> Lead:
        first, second = (named_group(self.column, group) for group in pair.about.groups)
        pairs, apart = counted(self.rows // 2, "pair"), pair.difference
        if pair.quantity == ALONE:
            start = f"Of {pairs}, {in_quotes(self.decision, 40)} is the decision for "
            one, other = (f" alone in {percent(self.groups[group][ALONE])}%" for group in pair.about.groups)
            p_value = "below 0.001" if self.p_value < 0.001 else number(self.p_value, 3)
            both = f"{percent(self.differently)}%, interval {percent_ends(self.differently)}"
            rest = f"{gap_words(apart)}. Decisions differ in {both}. Exact McNemar test: p {p_value}."
            return replace(pair.about, pieces=(start, first, f"{one} and for ", second, other), rest=rest)
        value, low, high, one, other = map(digits, (apart.value, apart.low, apart.high, *pair.about.values))
        rest = f"a difference of {value}, interval {low} to {high}{'' if pair.decided else '; inconclusive'}."
        pieces = f"Within {pairs}, the mean score is {one} for ", first, f" and {other} for ", second
        return replace(pair.about, pieces=pieces, rest=rest)


def pairs_of(source: Source, roles: Roles, options: AuditOptions) -> MatchedPairs:
    """Read a table of matched pairs, and compare the two rows of each."""
    rows = ScoreRows(roles.titles(source))
    read = GroupedRows.read(source, roles, options, rows)
    names = [group_name(group) for groups in read.groups.values() for group in groups]
    if len(read.groups) > 1 or len(names) != 2 or MISSING_GROUP in names:
        raise ConfigError(f"Matched pairs need one column with two groups. Found: {listed(names)}.")
    column, level, whole = roles.groups[0], options.level, {role: rows.whole(role) for role in rows.parts}
    both = partners(rows, rows.members(column, names)(whole))
    measured: dict[str, tuple[list[Estimate], Any]] = {}
    decision, hits, n = "", [0, 0], len(rows) // 2
    if roles.prediction is not None:
        classes = in_order(rows.known["prediction"])
        at = positive_index(classes, options.favourable, "favourable")
        if at is None and len(classes) != 2:
            raise ConfigError(f"Name the decision to compare: --favourable CLASS. Found: {listed(classes)}.")
        value = classes[-1 if at is None else at]
        chosen = rows.coded("prediction", {value: 1})[both] == 1
        decision, hits = str(value), (chosen & ~chosen[::-1]).sum(1).tolist()
        measured[ALONE] = [proportion(count, n, level=level) for count in hits], partial(paired_differences, *hits, n)
    if roles.score is not None:
        rows.check_finite()
        score = rows.whole("score")[both]
        moments = Moments.of(np.zeros(n, np.int64), 1, [*score, score[0] - score[1]])
        means = [moments.means(at, level).at(0, n) for at in (0, 1)]
        measured[SCORE] = means, lambda *_, level, comparisons: moments.means(2, shared(level, comparisons))
    quantities = [
        Quantity(column, name, names, np.array([one.value for one in each]), np.array([n, n]), apart, rank=rank)
        for rank, (name, (each, apart)) in enumerate(measured.items())
    ]
    found = compare(quantities, level=level)
    groups = {group: {name: each[at] for name, (each, _) in measured.items()} for at, group in enumerate(names)}
    p_value = min(1.0, found.comparisons * mcnemar(*hits)) if decision else np.nan
    return MatchedPairs(
        column, groups, found, len(rows), decision, proportion(sum(hits), n if decision else 0, level=level), p_value,
        read.warnings, level, read.reading,
    )  # fmt: skip
