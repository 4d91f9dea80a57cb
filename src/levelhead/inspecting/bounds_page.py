"""The page of bounds: group gaps of a run's attention logits, beside every bound on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from levelhead.report import blocks
from levelhead.report.text import Record, counted, number, short, significant

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

Rows = list[tuple[object, Sequence[Record]]]
_CAUTION = (
    "The bounds are about logits of the last attention layer, not about predictions: a small gap here does not make a "
    "model's decisions alike."
)


def bounds_page(record: Record, *, source: str = "", command: str = "") -> Record:
    """Summarise what ``levelhead figure bounds`` found.

    Args:
        record: of :meth:`levelhead.inspecting.bounds_report.BoundsReport.to_dict`; null in place of NaN will do, and
            so will a record of ``levelhead certify``, as the verb was called before.
        source: what was measured, in a word.
        command: the command that made the page.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    sections = [blocks.section("Gaps of mean attention logits", [_heads(record)])]
    if record["statistics"] is not None:
        sections.append(blocks.section("Bounds on the gap of every pair of groups compared", [_bounds(record)]))
    if len(record["pairs"]) > 1:
        sections.append(blocks.section("Pairs of groups", [_pairs(record)]))
    sections.append(blocks.section("Groups", [*_signed(record), *_groups(record)]))
    sections += blocks.of_terminal({}, NOTE)
    told = [(key.replace("_", " ").capitalize(), value) for key, value in record["run"].items() if value is not None]
    told.append(("Standardised over", record["statistics"] or "nothing: the model does not standardise"))
    sections.append(blocks.section("How it was measured", [blocks.terms(told), blocks.paragraph(_CAUTION)]))
    rows = sum(group["rows"] for group in record["groups"].values())
    return blocks.page(
        "Bounds",
        record["finding"],
        [blocks.part(sections)],
        title=source or f"Attention logits by {short(record['attribute'], 60)}",
        about=f"{counted(rows, 'row')} by {record['attribute']}, {counted(len(record['heads']), 'head')}",
        cautions=record["warnings"],
        command=command,
    )


def _figure(value: float | None, reason: str | None = None) -> Record:
    known = value is not None and not math.isnan(value)
    return blocks.undefined_cell(reason) if reason and not known else blocks.cell(significant(value), quiet=not known)


def _used(place: Record) -> Record:
    gap, bound = place["gap"], place["bound"]
    if gap is None or bound is None or math.isnan(gap) or not bound > 0:
        return blocks.cell("–", quiet=True)
    return blocks.cell(f"{number(100 * gap / bound)}%")


def _heads(record: Record) -> Record:
    bounded = record["statistics"] is not None
    own = record["heads_with_statistics_of_the_split"]
    columns: list[str | tuple[str, str]] = ["Head", "Largest gap", "Readout row"]
    if bounded:
        columns += [("Bound there", "distribution-free, with the second moments measured there"), "% of bound"]
        columns += [("Split’s own", "standardised by the split's own statistics"), "% of bound"] if own else []
    rows: Rows = []
    for head, place in enumerate(record["heads"]):
        where = "" if place["groups"] is None else f"query {place['query']}, key {place['key']}"
        if behind := place.get("rows"):
            where += f"; {behind[0]:,} and {behind[1]:,} rows"
        cells = [_figure(place["gap"]) | {"sub": [where]}, _figure(place["readout_gap"])]
        if bounded:
            cells += [_figure(place["bound"]), _used(place)]
            cells += [_figure(own[head]["gap"]), _used(own[head])] if own else []
        rows.append((head, cells))
    notes = [SMALL_PERCENTAGES] if bounded else []
    if why := record.get("no_statistics_of_the_split"):
        notes.append(f"No column with the split’s own statistics: {why}.")
    caption = f"By {record['attribute']}, head by head"
    return blocks.table(caption, columns, rows, notes=notes, where=blocks.BOTH)


def _bounds(record: Record) -> Record:
    largest = record["largest"]["gap"]
    rows: Rows = []
    for bound in record["bounds"]:
        times = "–"
        if bound["applies"] and bound["value"] is not None and math.isfinite(bound["value"]) and largest:
            times = number(bound["value"] / largest)
        value = _figure(bound["value"], bound.get("reason"))
        rows.append((bound["title"], [value, blocks.cell(times), blocks.cell(bound.get("reason") or bound["assumes"])]))
    columns: list[str | tuple[str, str]] = [
        "Bound",
        "Value",
        ("× gap", "the bound divided by the largest gap"),
        "What it assumes",
    ]
    return blocks.table("Bounds", columns, rows, text_columns=[3], where=blocks.BOTH)


def _pairs(record: Record) -> Record:
    names = list(record["pairs"][0]["bounds"]) if record["statistics"] is not None else []
    gaps = {"gap": "Gap"} | ({"gap_with_statistics_of_the_split": "Split’s own"} if names else {})
    rows: Rows = [
        (
            " / ".join(pair["groups"]),
            [*(_figure(pair[gap]) for gap in gaps), *(_figure(pair["bounds"][name]) for name in names)],
        )
        for pair in record["pairs"]
    ]
    heads = ["Groups", *gaps.values(), *(name.replace("_", " ") for name in names)]
    return blocks.table("Largest gap of each pair", heads, rows, where=blocks.BOTH)


def _signed(record: Record) -> list[Record]:
    """Say what the absolute value does to the largest gap."""
    places = [record.get(f"heads_with_statistics_of_the_split{which}") for which in ("", "_without_absolute")]
    if not all(places) or not record["pairs"]:
        return []
    own, signed = (
        max(
            (place["gap"] for place in heads or [] if place["gap"] is not None and not math.isnan(place["gap"])),
            default=None,
        )
        for heads in places
    )
    text = (
        f"With the split’s own statistics the largest gap is {significant(own)}; the same queries and keys with their "
        f"sign kept give {significant(signed)}."
    )
    return blocks.said([text])


def _groups(record: Record) -> list[Record]:
    groups: Rows = [
        (name, [blocks.cell(f"{group['rows']:,}"), blocks.cell(f"{100 * group['share']:.1f}%")])
        for name, group in record["groups"].items()
    ]
    found = [blocks.table("Rows of each group", ["Group", "Rows", "Share"], groups)]
    by_key = {name: group["rows_by_key"] for name, group in record["groups"].items() if group.get("rows_by_key")}
    if by_key:
        told = "; ".join(f"{name!r} {_behind(rows)}" for name, rows in by_key.items())
        found += blocks.said([f"Rows behind each key: {told}."], where=blocks.TERMINAL)
        keys: Rows = [
            (
                span,
                [blocks.cell(f"{rows:,}", flag=f"fewer than {MIN_ROWS} rows" * (rows < MIN_ROWS)) for rows in counts],
            )
            for span, counts in key_spans(list(by_key.values()))
        ]
        notes = [f"Keys with fewer than {MIN_ROWS} rows of a group are left out of its gaps."]
        found.append(blocks.table("Rows behind each key", ["Keys", *by_key], keys, notes=notes))
    return found


def key_spans(rows: Sequence[Sequence[int]]) -> list[tuple[str, list[int]]]:
    """Return ("0 to 3", rows of each group there) for neighbouring keys alike, given (groups, keys) rows."""
    runs = itertools.groupby(enumerate(zip(*rows, strict=True)), key=lambda pair: pair[1])
    return [(keys_text([key for key, _ in run]), list(counts)) for counts, run in runs]


def keys_text(keys: Sequence[int]) -> str:
    """Return "0 to 3", or "3", for neighbouring keys."""
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
