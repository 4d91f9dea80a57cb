"""What an audit without the attribute found, in words and tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from levelhead.metrics import estimate_to_dict
from levelhead.metrics.labelled import FEWEST_SHOWN
from levelhead.metrics.names import RATE_TITLES, Key
from levelhead.metrics.worst_case import GapBounds
from levelhead.report.headline import Lead
from levelhead.report.record import Finding, as_json
from levelhead.report.result import Report
from levelhead.report.sentences import named_group, turned
from levelhead.report.text import number, percent_ends
from levelhead.report.wide import Fraction, Pair
from levelhead.types import Estimate

TITLES = {
    "demographic_parity": RATE_TITLES["selection_rate"],
    "equal_opportunity": RATE_TITLES["true_positive_rate"],
    "false_positive_rate": RATE_TITLES["false_positive_rate"],
}
PERSONS = f"No row’s group is guessed, stored or printed, and counts of fewer than {FEWEST_SHOWN} people are not shown."


@dataclass(frozen=True)
class IndirectGap(Finding):
    """One gap between two groups, f_a - f_b for ``groups`` (a, b), signed.

    ``estimate`` is refused where there are bounds alone. ``naive`` is the gap with each proxy taken for the group, by
    the proxy's name. ``alone``: the labelled rows alone. ``bounds``: the worst case. ``weighted``: each row counts for
    a group by its probability, which is an estimate under an assumption of its own.
    """

    gap: str
    groups: tuple[str, str]
    estimate: Estimate
    naive: Mapping[str, float] = field(default_factory=dict)
    alone: Estimate | None = None
    bounds: GapBounds | None = None
    weighted: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        found = {"gap": self.gap, "groups": self.groups, **estimate_to_dict(self.estimate)}
        found |= {"absolute": self.estimate.size, "naive": self.naive}
        if self.alone is not None:
            found["labelled_rows_alone"] = self.alone
        if (worst := self.bounds) is not None:
            reach = (worst.reach_low, worst.reach_high)
            found["worst_case"] = {"low": worst.low, "high": worst.high, "interval": reach, "assumes": worst.assumes}
        if self.weighted is not None:
            found["weighted"] = self.weighted
        return {name: as_json(one) for name, one in found.items()}

    def figures(self, rows: int) -> Iterator[tuple[str, Estimate]]:
        """Yield every figure with its name; ``rows`` are those of the audit."""
        yield self.gap, self.estimate
        if self.alone is not None:
            yield f"{self.gap}_labelled_rows_alone", self.alone
        for proxy, value in self.naive.items():
            yield f"{self.gap}_by_{proxy}", Estimate.without_interval(value, rows)
        if self.weighted is not None:
            yield f"{self.gap}_weighted", self.weighted
        if (worst := self.bounds) is not None:
            why = "bounds: the gap can lie anywhere between them"
            yield f"{self.gap}_bounds", Estimate(math.nan, worst.reach_low, worst.reach_high, worst.n, why)

    @property
    def size(self) -> float:
        """The absolute weighted gap; -1 without one."""
        return abs(self.weighted.value) if self.weighted is not None and self.weighted.defined else -1.0


@dataclass(frozen=True)
class IndirectPart(Finding):
    """What was found of one attribute: the method, what it assumes, the gaps, and what the answer is based on.

    ``refused`` is why there is no estimate; empty if there is one. ``help`` says what would help.
    """

    method: str
    assumes: str
    gaps: list[IndirectGap]
    rests_on: list[str]
    refused: str = ""
    help: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    level: float = 0.95

    @property
    def headline(self) -> str:
        """The finding in one or two sentences, with its assumption."""
        return self.lead("").sentence

    def lead(self, column: str) -> Lead:
        """Return the finding on a column, with its assumption."""
        found = [one for one in self.gaps if one.estimate.defined]
        if not self.refused and found:
            return _estimated(self, [one for one in found if one.gap == found[0].gap], column)
        worst = max((one for one in self.gaps if one.bounds), key=_told_first, default=None)
        if worst is None or worst.bounds is None:
            return Lead(("No answer",), f"{self.refused}. What would help: {self.help}.")
        return _bounded(self, worst, worst.bounds, column)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        names = ("method", "assumes", "headline", "refused", "help", "gaps", "shares", "rests_on")
        return {name: as_json(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class IndirectAudit(Report):
    """What an audit of groups that are not recorded found, by attribute; figures are fractions.

    ``reading`` says how a file was read that is not a plain csv.

    Examples:
        >>> import levelhead as lh
        >>> import pandas as pd
        >>> table = pd.DataFrame({"y": [1, 0] * 50, "answer": [1, 0, 1, 1] * 25})
        >>> result = lh.audit_table(table, label="y", prediction="answer", shares={"women": 0.5})
        >>> result.gaps["demographic_parity"].refused  # bounds, not an estimate
        True
    """

    kind: ClassVar[str] = "indirect audit"
    optional: ClassVar[Collection[str]] = ("reading",)

    parts: dict[str, IndirectPart]
    warnings: list[str]
    rows: int
    positive: str
    level: float = 0.95
    reading: tuple[str, ...] = ()

    @property
    def gaps(self) -> dict[str, Estimate]:
        """The signed gaps of the first attribute's first pair of groups, by name."""
        out: dict[str, Estimate] = {}
        for one in next(iter(self.parts.values())).gaps:
            out.setdefault(one.gap, one.estimate)
        return out

    @property
    def leads(self) -> list[Lead]:
        """One sentence for each sensitive column."""
        return [part.lead(name) for name, part in self.parts.items()]

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the signed gap of every pair of groups with its attribute and its name."""
        for name, part in self.parts.items():
            for one in part.gaps:
                yield from ((name, Pair(*one.groups), Fraction(figure), own) for figure, own in one.figures(self.rows))


def points(value: float) -> str:
    """Return a signed fraction in points, ``+12.3``."""
    return number(100 * value, signed=True) if math.isfinite(value) else ""


def _estimated(part: IndirectPart, pairs: Sequence[IndirectGap], column: str) -> Lead:
    """Say the largest of the gaps of pairs in one rate."""
    one = max(pairs, key=lambda gap: abs(gap.estimate.value))
    figure, rate = one.estimate, TITLES[one.gap].lower()
    a, b = (named_group(column, group) for group in one.groups)
    ends = "no interval"
    if not math.isnan(figure.low):
        size = turned(figure, 0) if figure.excludes_zero and figure.value < 0 else figure
        ends = f"{100 * part.level:g}% interval {percent_ends(size, signed=not figure.excludes_zero)}"
    ends += f"{_largest(pairs)}; it holds if {part.assumes}."
    pieces: tuple[str, ...] = (f"The {rate} does not differ measurably between ", a, " and ", b)
    if figure.excludes_zero:
        way = "higher" if figure.value > 0 else "lower"
        pieces = (f"The {rate} of ", a, f" is {100 * abs(figure.value):.1f} points {way} than that of ", b)
    else:
        ends = f"{points(figure.value)} points, {ends}"
    return Lead(
        pieces, ends, column, one.gap, None, one.groups, (), figure,
        comparisons=len(pairs),
    )  # fmt: skip


def _largest(pairs: Sequence[IndirectGap]) -> str:
    return f"; the largest of {len(pairs)} differences, adjusted for all" if len(pairs) > 1 else ""


def _told_first(one: IndirectGap) -> tuple[bool, float, float, float]:
    """Rank pairs with bounds: selection rates, how far from 0 the gap is in any case, its estimate, the worst case."""
    assert one.bounds is not None
    certain = max(0.0, one.bounds.reach_low, -one.bounds.reach_high)
    return one.gap == "demographic_parity", certain, one.size, one.bounds.largest_reach


def _bounded(part: IndirectPart, one: IndirectGap, worst: GapBounds, column: str) -> Lead:
    """Say between which figures a gap lies, and its weighted estimate."""
    a, b = (named_group(column, group) for group in one.groups)
    start = f"no estimate, since {part.refused}; known are the shares"
    if part.method == "bounds":
        start = f"the only assumption is {part.assumes}"
    certain = ", higher in any case" if worst.reach_low > 0 else ", lower in any case" if worst.reach_high < 0 else ""
    rest = f"{start}; narrower limits need another assumption."
    if one.weighted is not None and one.weighted.defined:
        weighed = [other for other in part.gaps if other.gap == one.gap and other.size >= 0]
        more = _largest(weighed) if one.size == max(other.size for other in weighed) else ""
        rest += (
            f" The weighted estimate, as with BISG, is {points(one.weighted.value)} points "
            f"({points(one.weighted.low)} to {points(one.weighted.high)}{more}). It holds if predictions do not depend "
            "on the group among rows of equal probabilities."
        )
    between = f" lies between {points(worst.reach_low)} and {points(worst.reach_high)} points{certain}"
    return Lead(
        ("The selection rate of ", a, " minus that of ", b, between), rest, column, one.gap, None, one.groups, (),
        Estimate(math.nan, worst.reach_low, worst.reach_high, worst.n, "bounds"),
    )  # fmt: skip
