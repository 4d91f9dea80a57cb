"""What an explanation of a gap holds, and its wording: tables and plain sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from levelhead.metrics.between import clearest
from levelhead.metrics.names import Key
from levelhead.report.headline import Lead, plainly
from levelhead.report.record import Finding
from levelhead.report.result import Report
from levelhead.report.sentences import named_group
from levelhead.report.text import joined, percent, percent_ends
from levelhead.report.wide import Fraction, Pair
from levelhead.types import Estimate, in_quotes, printable

FIGURES = ("measured", "implied", "rho", "predicted", "rest")
"""Of each pair of groups."""


@dataclass(frozen=True)
class ExplainedGroup(Finding):
    """One group: ``n`` rows, ``positives`` among them, and its figures.

    ``base_rate``, ``area`` (under the ROC curve), ``true_positive_rate`` and ``false_positive_rate`` are measured.
    ``included``: whether the group has enough rows to be compared.
    """

    n: int
    positives: int
    base_rate: Estimate
    area: Estimate
    true_positive_rate: Estimate
    false_positive_rate: Estimate
    included: bool = True


@dataclass(frozen=True)
class ExplainedPair(Finding):
    """What the gap of two groups is made of; every figure is a fraction.

    ``measured``: the gap in equalized odds. ``implied``: that of a score which is calibrated inside both groups, at
    the same positive rate. ``rho``: the share of the base-rate difference that the score uses. ``predicted``: the
    gap that the formula gives with this share. ``rest``: measured less predicted; where its interval leaves out 0, the
    formula fails, and neither sentences nor tables say ``rho``.
    """

    groups: tuple[str, str]
    measured: Estimate
    implied: Estimate
    rho: Estimate
    predicted: Estimate
    rest: Estimate


@dataclass(frozen=True)
class ExplainedAttribute(Finding):
    """One sensitive column: its ``groups`` by name, and every pair of them."""

    groups: dict[str, ExplainedGroup]
    pairs: tuple[ExplainedPair, ...]


@dataclass(frozen=True)
class Explanation(Report):
    """What :func:`levelhead.explain` found.

    ``by_attribute`` has the figures of every sensitive column; ``pairs`` and ``groups`` are those of the first.
    ``warnings`` are full sentences. ``positive`` is the class that scores are about; rows with a score of at least
    ``threshold``, in the units of the score, are decided positive; ``scale`` is "probability" or "log-odds".
    ``reading`` says how a file was read that is not a plain csv.

    Examples:
        >>> import levelhead as lh
        >>> import pandas as pd
        >>> columns = {"y": [1, 0, 1, 0] * 50, "p": [0.9, 0.2, 0.4, 0.6] * 50, "sex": ["a", "a", "a", "b", "b"] * 40}
        >>> explanation = lh.explain(pd.DataFrame(columns), label="y", score="p", groups=["sex"])
        >>> [pair.groups for pair in explanation.pairs]
        [('a', 'b')]
        >>> explanation.scale, explanation.threshold
        ('probability', 0.5)
    """

    kind: ClassVar[str] = "explanation"
    optional: ClassVar[Collection[str]] = ("reading",)

    by_attribute: dict[str, ExplainedAttribute]
    warnings: list[str]
    positive: str
    threshold: float
    scale: str
    level: float = 0.95
    replicates: int = 1000
    reading: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[ExplainedPair, ...]:
        """Pairs of groups of the first sensitive column."""
        return next(iter(self.by_attribute.values())).pairs

    @property
    def groups(self) -> dict[str, ExplainedGroup]:
        """Groups of the first sensitive column."""
        return next(iter(self.by_attribute.values())).groups

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the figures of every group, and of every pair of them, with their attribute and their name."""
        for name, part in self.by_attribute.items():
            for group, found in part.groups.items():
                for rate in ("base_rate", "area", "true_positive_rate", "false_positive_rate"):
                    yield name, group, Fraction(rate), getattr(found, rate)
            for pair in part.pairs:
                both = Pair(*pair.groups, " and ")
                for figure in FIGURES:
                    # rho divides by a difference of base rates, which can be small
                    yield name, both, figure if figure == "rho" else Fraction(figure), getattr(pair, figure)

    @property
    def leads(self) -> list[Lead]:
        """What the clearest measured gap of each column is made of."""
        said = []
        for name, part in self.by_attribute.items():
            if known := [pair for pair in part.pairs if pair.measured.defined]:
                pair = min(known, key=lambda one: clearest(one.measured))
                said.append(_lead(name, pair, len(part.pairs)))
                said += plainly(_sentences(pair, part.groups, self.positive))
        return said


def _lead(column: str, pair: ExplainedPair, pairs: int) -> Lead:
    """Say how large the gap of two groups is, and of how many pairs it is the clearest."""
    first, second = (named_group(column, one) for one in pair.groups)
    of = f", the clearest of {pairs} by {printable(column)} (intervals adjusted for all)" if pairs > 1 else ""
    return Lead(
        ("Between ", first, " and ", second, f", the equalized-odds gap is {percent(pair.measured)} points"),
        f"interval {percent_ends(pair.measured)}, mean of both parts{of}.",
        column, "measured", None, pair.groups, (), pair.measured,
    )  # fmt: skip


def _sentences(pair: ExplainedPair, groups: Mapping[str, ExplainedGroup], positive: str) -> list[str]:
    """Say in plain words what a pair's figures mean."""
    (first, second), said = (groups[name] for name in pair.groups), list[str]()
    if pair.rest.excludes_zero:
        said[:0] = [
            f"The formula does not fit these scores: it predicts a gap of {_points(pair.predicted)}; the rest, "
            f"{_points(pair.rest, signed=True)}, is unexplained.",
            "So neither the share of base rates that the score uses nor a method is named. Check the groups’ rates and "
            "calibration first.",
        ]
    base = joined([f"{percent(one.base_rate)}%" for one in (first, second)])
    if not pair.implied.defined:
        return [*said, f"The gap that base rates ({base}) imply is undefined: {_ended(pair.implied.reason)}"]
    said.append(f"Base rates of {in_quotes(positive)}, {base}, alone imply a gap of {_points(pair.implied)}.")
    rho = pair.rho
    if pair.rest.excludes_zero:
        return said
    if not rho.defined:
        said.append(f"The share of the base-rate difference that the score uses is undefined: {_ended(rho.reason)}")
    else:
        share = f"{percent(rho, 0)}% ({percent_ends(rho, 0)}) of the base-rate difference"
        if rho.low > 1:
            said.append(f"The score uses {share}, more than base rates explain and than a calibrated score would use.")
        elif rho.high < 0:
            said.append(f"The score uses {share}: it runs against the base rates, so they do not explain this gap.")
        elif rho.high < 1:
            said.append(f"The score uses {share}, less than a score that is calibrated in each group.")
        else:
            said.append(
                f"The score uses {share}, which is compatible with 100%, the share of a score that is calibrated in "
                "each group."
            )
    if not pair.rest.defined:
        if rho.defined:
            said.append(f"The gap predicted from that share is undefined: {_ended(pair.rest.reason)}")
    else:
        given = "With that share" if rho.defined else "From the ranking and mean of the score in each group"
        said.append(
            f"{given}, the formula predicts a gap of {_points(pair.predicted)}; the rest, "
            f"{_points(pair.rest, signed=True)}, is compatible with zero."
        )
    return said


def _ended(reason: str | None) -> str:
    """Return a reason as the end of a sentence."""
    return str(reason) if str(reason).endswith("?") else f"{reason}."


def _points(figure: Estimate, *, signed: bool = False) -> str:
    return f"{percent(figure, signed=signed)} points ({percent_ends(figure, signed=signed)})"
