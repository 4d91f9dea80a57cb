"""What a page folds, from the rows of a result: all figures, summary gaps, pairs of groups, and how it was measured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from levelhead._version import __version__
from levelhead.report import blocks
from levelhead.report.charts import NEUTRAL_ONE, Subject, subjects_of
from levelhead.report.rows import Row
from levelhead.report.sentences import Words
from levelhead.report.text import Record, level_text, short
from levelhead.report.titles import UNDEFINED, definition_of, title_of
from levelhead.report.wide import Pair

INTERVALS = {
    "weights": "They are Wilson’s and Newcombe’s at the effective sample size: the smaller of Kish’s number and that "
    "of the linearised variance. Gaps use simultaneous intervals of all pairs (Bonferroni).",
    "clusters": "They are Wilson’s and Newcombe’s at the effective sample size that a cluster-robust variance gives, "
    "with Student’s t. Gaps use simultaneous intervals of all pairs (Bonferroni). A rate with fewer than 8 clusters is "
    "not compared.",
    "replicates": "For gaps they come from {replicates} bootstrap replicates and invert tests of signed differences; "
    "for single rates they are Wilson’s.",
}
"""By a key of a result's JSON, how its intervals were made."""
DECIDED = "An interval that contains 0 is inconclusive; its upper end is the largest gap that fits the rows."
OF_RATES = {
    "equal_opportunity": ("true_positive_rate",),
    "equalized_odds_worst": ("true_positive_rate", "false_positive_rate"),
}
"""Gaps that are the largest difference of two groups in one of these rates."""
_CHANGED = re.compile(r"_difference|_change|_within|_by_|_bounds|\[|@")
"""Where the name of a figure ends that another one is made of."""


def known(row: Row) -> bool:
    """Whether a row has a value, or bounds."""
    return row.found.defined or not math.isnan(row.found.low)


def cell(row: Row | None, *, signed: bool = False, brief: bool = False) -> Record:
    """Return a figure with its interval below, in percent if it is a fraction, and if not ``brief`` what is more."""
    if row is None:
        return blocks.no_cell()
    ratio = not row.fraction and row.figure.endswith(NEUTRAL_ONE)
    change, signed = row.decided is not None, signed and not row.figure.endswith("_detectable")
    drawn = blocks.figure_cell(
        row.found, fraction=row.fraction, ratio=ratio, signed=change or signed, brackets=change,
        mark="*" if row.decided else row.mark,
    )  # fmt: skip
    return drawn | {"sub": [*drawn["sub"], *[row.more] * bool(row.more and not (change and brief))]}


def of_groups(
    rows: Sequence[Row], level: str, each: str, title: Callable[[str], str], notes: Sequence[str] = (), about: str = ""
) -> list[Record]:
    """Return the tables of each column: its groups and all figures that at least one of them has, then the changes.

    ``about`` says of which class rates are.
    """
    subjects = subjects_of(rows, pairs=False)
    changes, counted = {row.figure for row in rows if row.decided is not None}, each == "group"
    found = []
    for column in dict.fromkeys(one.column for one in subjects):
        own = [one for one in subjects if one.column == column]
        every = dict.fromkeys(name for one in own for name, row in one.found.items() if known(row))
        of = f"{each.capitalize()}s of {short(column, 200)}"
        shares = "; percent where figures are shares" * any(row.fraction for one in own for row in one.found.values())
        for unit, changed in ((shares, False), ("; changes in points", True)):
            names = [name for name in every if (name in changes) == changed]
            lines = [
                (
                    one.name,
                    [*[blocks.cell(f"{one.rows:,}")] * counted, *(cell(one.found.get(name)) for name in names)],
                )
                for one in own
                if not changed or any(name in one.found for name in names)
            ]
            heads = [each.capitalize(), *["Rows"] * counted, *map(title, names)]
            caption = f"{of}{unit}{about}; {level} intervals"
            found += [blocks.table(caption, heads, lines, notes=notes)] if names else []
            notes = ()
    return found


def of_columns(rows: Sequence[Row], level: str, title: Callable[[str], str]) -> list[Record]:
    """Return a table for each column with a figure of all groups together."""
    whole, found = [row for row in rows if row.group is None], []
    for column in dict.fromkeys(row.column for row in whole if known(row)):
        lines = [
            (title(row.figure), [cell(_of_pair(row, rows)), blocks.cell(f"{row.found.n:,}" if row.found.n else "")])
            for row in whole
            if row.column == column
        ]
        caption = f"Summary figures by {short(column)}: percent and points, {level} intervals"
        found.append(blocks.table(caption, ["Figure", "Value", "Rows"], lines))
    return found


def _of_pair(whole: Row, rows: Sequence[Row]) -> Row:
    """Return a gap with the interval of the two groups that it is between, as all sentences have it."""
    names = tuple(f"{rate}_difference" for rate in OF_RATES.get(whole.figure, ()))
    for row in rows:
        apart = row.found.size
        same = row.column == whole.column and isinstance(row.group, Pair) and row.figure.startswith(names or ("?",))
        if same and math.isclose(apart.value, whole.found.value):
            return whole._replace(found=replace(whole.found, low=apart.low, high=apart.high))
    return whole


def of_pairs(rows: Sequence[Row], level: str, title: Callable[[str], str]) -> list[Record]:
    """Return the table of pairs of groups."""
    several = len({row.column for row in rows if row.group is not None}) > 1
    lines = []
    for row in rows:
        if known(row) and isinstance(row.group, Pair):
            start = f"{short(row.column, 20)}: " if several else ""
            lines.append((f"{start}{row.group}", [blocks.cell(title(row.figure)), cell(row, signed=True)]))
    caption = f"Differences and further figures of groups, points where figures are shares; {level} intervals"
    heads = ["Groups", "Figure", "Value"]
    table = blocks.table(caption, heads, lines, text_columns=[1])
    return [table] if lines else []


def method(record: Record, rows: Sequence[Row], source: str) -> list[Record]:
    """Return the blocks on how a result was read and measured, what its words mean, and what made it."""
    words, level = Words(record), level_text(record.get("level") or 0.95)
    terms = [("Predictions", source)] if source else []
    if "positive" in record:
        positive = record["positive"]
        terms.append(("Positive class", "each class against the rest" if positive is None else short(positive, 40)))
    if words.favourable is not None:
        terms.append(("Favourable outcome", words.outcome))
    how = next((text for name, text in INTERVALS.items() if record.get(name)), DECIDED)
    how = how.format(replicates=f"{record.get('replicates') or 0:,}")
    terms.append(("Intervals", f"{level} of such intervals hold the true value. {how}"))
    terms += [(name, text) for name, text in record.get("facts") or ()]
    names = dict.fromkeys(_CHANGED.split(row.figure)[0] for row in rows if known(row))
    defined = [(title_of(name), definition_of(name)) for name in names if definition_of(name)]
    read = [blocks.bullets(record["reading"])] if record.get("reading") else []
    return [*read, blocks.terms(terms), blocks.terms([*defined, UNDEFINED]), blocks.terms(_made(record))]


def _made(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what made a result, and of what: version, command, time, input files and options."""
    made = record.get("made") or {}
    yield "Tool", f"levelhead {made.get('version', __version__)}"
    yield from ((name.capitalize(), made[name]) for name in ("command", "time") if made.get(name))
    for one in made.get("inputs", []):
        yield f"Input {one['file']}", f"{one['bytes']:,} bytes, SHA-256 {one['sha256']}"
    told = [f"{name.replace('_', ' ')} {value}" for name, value in (record.get("options") or {}).items() if value != ""]
    if told:
        yield "Options", ", ".join(told)


def missing(rows: Sequence[Row]) -> list[str]:
    """Say why figures of pairs of groups are undefined."""
    return [
        f"{title_of(row.figure)}, {row.group}: undefined, {row.found.reason}."
        for row in rows
        if isinstance(row.group, Pair) and not known(row)
    ]


def row_of(one: Subject, figure: str) -> Row | None:
    """Return a figure of a group: of two models the new one's; its bounds, where it is undefined and they are known."""
    row = one.found.get(figure) or one.found.get(f"{figure}_new")
    return row if row is None or row.found.defined else one.found.get(f"{figure}_bounds", row)
