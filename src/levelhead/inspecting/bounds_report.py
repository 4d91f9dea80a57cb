"""What a comparison of measured gaps with bounds found, as tables and as a record."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from levelhead.types import printable, quoted

if TYPE_CHECKING:
    from levelhead.attention.config import DebiasConfig


NOT_STANDARDISED = "does not apply: queries and keys are not standardised"
AVERAGED = "bounds only the gap averaged over pairs of positions"
MIN_ROWS = 30
"""With fewer rows of a group at a place, its mean logit there is large or small by chance: the place is left out."""

SMALL_PERCENTAGES = (
    "A small percentage of a bound says that the bound is far away: not that the gap is small, not that the method "
    "made it so, and nothing about predictions."
)
NOTE = (
    "Gaps are differences of mean logits before the softmax, the largest one over places, which few rows inflate. "
    "A bound on them says nothing about predictions: measure those with `levelhead evaluate`."
)


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
class BoundsReport:
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

    def table(self) -> Group:
        """Return tables that ``rich`` can print; they fit 80 columns."""
        shown: list[Table | Text] = [self._head_table()]
        if self.statistics is not None:
            shown.append(self._bound_table())
        if len(self.pairs) > 1:
            shown.append(self._pair_table())
        shown += [Text(f"Warning: {warning}") for warning in self.warnings]
        shown.append(Text(self.finding))
        if self.no_own:
            shown.append(Text(f"No column with the split's own statistics: {self.no_own}."))
        if self.signed and self.pairs:
            shown.append(
                Text(
                    f"With the split's own statistics the largest gap is {_number(largest_place(self.own).gap)}; the "
                    f"same queries and keys with their sign kept give {_number(largest_place(self.signed).gap)}."
                )
            )
        behind = "; ".join(f"{name!r} {_behind(rows)}" for name, rows in self.rows_by_key.items())
        shown.append(Text(f"Rows behind each key: {behind}."))
        if self.statistics is not None:
            shown.append(Text(SMALL_PERCENTAGES))
        return Group(*shown, Text(NOTE))

    def _head_table(self) -> Table:
        drawn = Table(title=Text(f"Gap of mean attention logits by {self.attribute}"), title_justify="left")
        columns = ["Head", "Largest gap", "Query, key", "Readout row"]
        if self.statistics is not None:
            columns += ["Bound there", "% of bound", "Split's own", "% of bound"]
        for column in columns:
            drawn.add_column(column, justify="right")
        for head, place in enumerate(self.heads):
            cells = [str(head), _number(place.gap), _where(place, short=True), _number(place.readout)]
            if self.statistics is not None:
                own = self.own[head] if self.own else NOTHING
                cells += [_number(place.bound), _percent(place.used)]
                cells += [_number(own.gap), _percent(own.used)]
            drawn.add_row(*cells)
        return drawn

    def _bound_table(self) -> Table:
        drawn = Table(title=Text("Bounds on the gap of every pair of groups compared"), title_justify="left")
        drawn.add_column("Bound")
        drawn.add_column("Value", justify="right")
        drawn.add_column("x gap", justify="right")
        drawn.add_column("What it assumes")
        for bound in self.bounds:
            known = math.isfinite(bound.value) and bound.applies
            times = f"{bound.value / self.largest.gap:.1f}" if known and self.largest.gap > 0 else ""
            text = bound.assumes if bound.reason is None else bound.reason
            drawn.add_row(Text(bound.title), _number(bound.value), times, Text(text))
        return drawn

    def _pair_table(self) -> Table:
        drawn = Table(title=Text("Pairs of groups"), title_justify="left")
        drawn.add_column("Groups")
        drawn.add_column("Largest gap", justify="right")
        if self.statistics is not None:
            for heading in ("Split's own", "Distribution-free", "Gaussian"):
                drawn.add_column(heading, justify="right")
        for pair in self.pairs:
            values = [pair.gap]
            if self.statistics is not None:
                bounds = {bound.name: bound.value if bound.reason is None else math.nan for bound in pair.bounds}
                values += [pair.own_gap, bounds["distribution_free"], bounds["gaussian"]]
            drawn.add_row(Text(" / ".join(map(printable, pair.groups))), *map(_number, values))
        return drawn


def key_spans(rows: Sequence[Sequence[int]]) -> list[tuple[str, list[int]]]:
    """Return ("0 to 3", rows of each group there) for neighbouring keys alike, given (groups, keys) rows."""
    runs = itertools.groupby(enumerate(zip(*rows, strict=True)), key=lambda pair: pair[1])
    return [(_span([key for key, _ in run]), list(counts)) for counts, run in runs]


def _span(keys: Sequence[int]) -> str:
    return str(keys[0]) if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"


def _behind(rows: Sequence[int]) -> str:
    """Return "50", or "50 (keys 0 to 3), 12 (keys 4)": the rows of one group behind its keys, the ends if many."""
    spans = key_spans([rows])
    if len(spans) == 1:
        return f"{rows[0]:,}"
    if len(spans) > 6:
        ends = max(spans, key=lambda span: span[1]), min(spans, key=lambda span: span[1])
        return " down to ".join(f"{count:,} (keys {span})" for span, [count] in ends)
    return ", ".join(f"{count:,} (keys {span})" for span, [count] in spans)


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
                f"Keys {', '.join(map(_span, runs))} are left out of the gaps with {name!r}: fewer than {MIN_ROWS} of "
                "its rows hold a token there, and a mean over a few rows is large by chance."
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


def _where(place: Place, short: bool = False) -> str:
    if place.key is None:
        return ""
    query = "readout" if place.query is None else str(place.query)
    return f"{query}, {place.key}" if short else f"query {query}, key {place.key}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{100 * value:.3g}" if math.isfinite(value) else "-"
