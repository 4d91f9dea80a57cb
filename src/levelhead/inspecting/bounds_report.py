"""What a comparison of measured gaps with bounds found, as tables and as a record."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from levelhead.inspecting.bounds_page import MIN_ROWS, bounds_page, keys_text
from levelhead.report.result import Report
from levelhead.report.text import Record
from levelhead.types import quoted

if TYPE_CHECKING:
    from levelhead.attention.config import DebiasConfig


NOT_STANDARDISED = "does not apply: queries and keys are not standardised"
AVERAGED = "bounds only the gap averaged over pairs of positions"


@dataclass(frozen=True)
class Place:
    """The largest gap of one head: how large, between whom, where, and the bound there.

    ``query`` is None for the readout row. ``bound`` is the distribution-free bound with the second moments measured
    at this very place, ``rows`` the rows behind the two means. ``closest`` is the largest gap divided by its own bound,
    over all places and pairs of groups; ``readout`` is the largest gap of the readout row. All are NaN where nothing
    could be compared.
    """

    gap: float
    bound: float
    closest: float
    readout: float
    groups: tuple[str, str] | None = None
    query: int | None = None
    key: int | None = None
    rows: tuple[int, int] | None = None

    @property
    def used(self) -> float:
        """The gap as a fraction of the bound there; 0 where both are 0, as for features that do not vary."""
        return self.gap / self.bound if self.bound else self.gap

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {
            "gap": self.gap,
            "groups": None if self.groups is None else list(self.groups),
            "query": "readout" if self.query is None and self.key is not None else self.query,
            "key": self.key,
            "rows": None if self.rows is None else list(self.rows),
            "bound": self.bound,
            "closest_to_its_bound": self.closest,
            "readout_gap": self.readout,
        }


NOTHING = Place(math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Bound:
    """One bound on the gap: its value, what it assumes, and why it is NaN, or no bound on this gap, if so.

    ``applies`` is False for a value that bounds something else: the gap of the same model without absolute values, or
    that averaged over pairs of positions.
    """

    name: str
    title: str
    value: float
    assumes: str
    reason: str | None = None
    applies: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        result: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "value": self.value,
            "applies": self.applies and self.reason is None,
            "assumes": self.assumes,
        }
        return result if self.reason is None else {**result, "reason": self.reason}


@dataclass(frozen=True)
class GroupPair:
    """Two groups: the largest gap over heads and places, with both kinds of statistics, and the bounds on it."""

    groups: tuple[str, str]
    gap: float
    own_gap: float
    bounds: tuple[Bound, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {
            "groups": list(self.groups),
            "gap": self.gap,
            "gap_with_statistics_of_the_split": self.own_gap,
            "bounds": {bound.name: bound.value if bound.reason is None else math.nan for bound in self.bounds},
        }


@dataclass(frozen=True)
class BoundsReport(Report):
    """What :func:`bounds_of_run` found: measured gaps, and the bounds on them.

    Attributes:
        run: data set, method, seed and split.
        attribute: the sensitive attribute that makes the groups.
        rows: rows of each group.
        rows_by_key: for each group that has rows, how many of them hold a token at each key position.
        head_size: features per head.
        statistics: over what the model standardises, or None for a model that does not.
        heads: per head, with the logits as the model computes them.
        own: per head, with queries and keys standardised by the split's own statistics, each position apart, so that
            all second moments are 1, with or without the absolute value as in the model. Empty where that is not done.
        no_own: why ``own`` is empty for a model that standardises; None where it is not.
        signed: per head, as ``own`` without the absolute value. Empty for a model that keeps signs anyway.
        pairs: each pair of groups.
        bounds: the bounds on every pair at once.
        arithmetic_check: whether no gap exceeds its distribution-free bound, which for these rows is a matter of
            arithmetic and says nothing about the model; None where no bound applies or a logit is not finite.
        warnings: full sentences.
    """

    kind: ClassVar[str] = "bounds"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(bounds_page)

    run: dict[str, Any]
    attribute: str
    rows: dict[str, int]
    rows_by_key: dict[str, tuple[int, ...]]
    head_size: int
    statistics: str | None
    heads: tuple[Place, ...]
    own: tuple[Place, ...]
    signed: tuple[Place, ...]
    pairs: tuple[GroupPair, ...]
    bounds: tuple[Bound, ...]
    arithmetic_check: bool | None
    warnings: tuple[str, ...]
    no_own: str | None = None

    @property
    def largest(self) -> Place:
        """The largest gap of all heads, as the model computes logits."""
        return largest_place(self.heads)

    @property
    def finding(self) -> str:
        """What was measured, in one sentence."""
        place = self.largest
        if place.groups is None:
            return f"No gap of attention logits can be measured: {(*self.warnings, 'no two groups share a place.')[0]}"
        head = self.heads.index(place)
        text = (
            f"On {self.run['split']}, mean attention logits of the last layer differ by at most {place.gap:.4g} "
            f"between {quoted(place.groups[0])} and {quoted(place.groups[1])} ({self.attribute}; head {head}, "
            f"{_where(place)}"
        )
        if place.rows is not None:
            text += f"; {place.rows[0]:,} and {place.rows[1]:,} rows"
        text += ")"
        if self.statistics is None:
            return f"{text}; the model does not standardise queries and keys, so no bound applies."
        if math.isfinite(place.bound):
            text += f", {100 * place.used:.3g}% of the distribution-free bound {place.bound:.4g} there"
        paper = next(bound for bound in self.bounds if bound.name == "paper")
        if paper.applies and math.isfinite(paper.value) and place.gap > 0:
            text += f"; the paper's bound, {paper.value:.4g}, is {paper.value / place.gap:.3g} times the gap"
        return f"{text}."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are NaN (null once written), bounds with a ``reason``."""
        total = sum(self.rows.values())
        return {
            "kind": self.kind,
            "run": self.run,
            "attribute": self.attribute,
            "groups": {
                name: {"rows": rows, "share": rows / total, "rows_by_key": list(self.rows_by_key.get(name, ()))}
                for name, rows in self.rows.items()
            },
            "head_size": self.head_size,
            "statistics": self.statistics,
            "finding": self.finding,
            "arithmetic_check": self.arithmetic_check,
            "largest": self.largest.to_dict(),
            "bounds": [bound.to_dict() for bound in self.bounds],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "heads": [place.to_dict() for place in self.heads],
            "heads_with_statistics_of_the_split": [place.to_dict() for place in self.own],
            "heads_with_statistics_of_the_split_without_absolute": [place.to_dict() for place in self.signed],
            **({"no_statistics_of_the_split": self.no_own} if self.no_own else {}),
            "warnings": list(self.warnings),
        }


def few_rows_notes(rows_by_key: dict[str, tuple[int, ...]]) -> list[str]:
    """Say which keys, and which groups altogether, have too few rows for a gap."""
    told = []
    for name, rows in rows_by_key.items():
        few = [key for key, count in enumerate(rows) if count < MIN_ROWS]
        if len(few) == len(rows):
            told.append(f"{name!r} has fewer than {MIN_ROWS} rows at every key: no gap with it is measured.")
        elif few:
            runs = [
                [key for _, key in run]
                for _, run in itertools.groupby(enumerate(few), key=lambda pair: pair[1] - pair[0])
            ]
            told.append(
                f"Keys {', '.join(map(keys_text, runs))} are left out of the gaps with {name!r}: fewer than "
                f"{MIN_ROWS} of its rows hold a token there, and a mean over a few rows is large by chance."
            )
    return told


def worst_bounds(bounded: list[tuple[Bound, ...]], largest: Place, options: DebiasConfig | None) -> tuple[Bound, ...]:
    """Take each bound for the pair where it is largest, and put the one with measured moments in front."""
    if not bounded:
        return ()
    worst = [max(kind, key=lambda bound: bound.value) for kind in zip(*bounded, strict=True)]
    plain = None if options is not None and options.normalize else NOT_STANDARDISED
    measured = Bound(
        "distribution_free_measured",
        "Distribution-free, measured",
        math.nan if plain else largest.bound,
        "nothing: second moments at the largest gap",
        plain,
    )
    return (measured, *worst)


def largest_place(places: tuple[Place, ...]) -> Place:
    """Return the place with the largest gap; places that could not be compared come last."""
    return max(places, key=lambda place: -1.0 if math.isnan(place.gap) else place.gap)


def _where(place: Place) -> str:
    if place.key is None:
        return ""
    return f"query {'readout' if place.query is None else place.query}, key {place.key}"
