"""Read the rows of a table once, for all the questions of an audit, and say what each found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from levelhead.auditing.figures import Classes
from levelhead.auditing.options import AuditOptions, Roles, count_sentence, cut_points
from levelhead.auditing.part import Asked, Part
from levelhead.auditing.parts import PARTS, plain_lead
from levelhead.auditing.rates import Rates
from levelhead.auditing.result import AuditResult
from levelhead.auditing.score_rows import ScoreRows
from levelhead.tables.repeated import repeated
from levelhead.tables.rows import Rows
from levelhead.tables.source import Labelled, Source
from levelhead.types import ConfigError, listed, quoted


def check(roles: Roles, options: AuditOptions) -> None:
    """Raise an error, before anything is read, for columns that do not fit, and for what parts of the user's lack."""
    options.check(roles)
    for name in options.parts:
        if lacking := _named(name).lacks(roles, options):
            raise ConfigError(f"The part {quoted(name)} needs what this audit lacks: {listed(lacking)}.")


def _named(name: str) -> type[Part]:
    """Return a part of the user's own."""
    if PARTS.is_own(name):
        raise ConfigError(f"The part {quoted(name)} comes with its columns. Leave it out of the parts.")
    try:
        return PARTS[name]
    except KeyError:
        known = [one for one in PARTS if not PARTS.is_own(one)]
        raise ConfigError(
            f"There is no part {quoted(name)}. Known: {listed(known) or 'none'}. Register the class, or write "
            "module:Class."
        ) from None


class Counted:
    """All parts of an audit with the rows that they keep, and their ``frame``, once all rows are counted.

    Args:
        source: the table.
        roles: which column is what; without a label, predictions are decisions.
        options: the options, which have passed :func:`check`.

    Attributes:
        classes: the part that every audit has.
        ours: the parts that this audit asks, by name.
        own: those of the user's.
        frame: what they share.
        reading: says how a frequency table was read.
    """

    def __init__(self, source: Source, roles: Roles, options: AuditOptions) -> None:
        cuts = cut_points(source, options.bins, [*roles.groups, *roles.levels], roles.count)
        asked = Asked(source, roles, options, cuts)
        titles = roles.titles(source)
        self.asked, self.classes, self.people = asked, Classes(asked), 0
        self.ours = {one.name: one(asked) for one in PARTS.own() if not one.lacks(roles, options)}
        self.own: dict[str, Part] = {one.name: one(asked) for one in map(_named, options.parts)}
        self.rows: Rows = Rows(titles) if roles.score is None else ScoreRows(titles)
        self._count()
        self.reading = [] if roles.count is None else [count_sentence(source.called(roles.count), self.people)]
        # An audit of scores joins labels of one class: memory is shared until then.
        as_read = options.other is not None or options.metrics is not None
        given = self.rows.only({*self.rows.parts} - {"score"}) if as_read else self.rows
        self.frame = self.classes.frame(self.rows, given)

    def _count(self) -> None:
        roles, parts = self.asked.roles, [self.classes, *self.ours.values(), *self.own.values()]
        kept = {role for part in parts for role in roles.kept(part.keeps)}
        each = kept or any(type(part).update is not Part.update and not part.counted for part in parts)
        for columns in roles.batches(self.asked.source, self.asked.cuts):
            alone = columns
            if "count" in columns:
                alone = repeated(columns, self.people) if each else columns
                self.people += int(columns["count"].sum())  # type: ignore[union-attr]
            for part in parts:
                part.update(columns if part.counted else alone)
            self.rows.add({role: column for role, column in alone.items() if role in kept})


def run(
    source: Source, roles: Roles, options: AuditOptions, reading: Collection[str] = (), warnings: Collection[str] = ()
) -> AuditResult:
    """Audit a table.

    Args:
        source: the table.
        roles: which column is what.
        options: the options, which have passed :func:`check`.
        reading: says how the table was read.
        warnings: full sentences.

    Returns:
        what all parts found.
    """
    source = Labelled(source, roles.label, options.ignore_label)
    if (other := options.other) is not None and other.source is not None:
        theirs = Labelled(other.source, roles.label, options.ignore_label)
        options = replace(options, other=replace(other, source=theirs))
    options = replace(
        options,
        label=source.called(str(roles.label)),
        cluster=None if roles.cluster is None else source.called(roles.cluster),
    )
    counts = Counted(source, roles, options)
    frame = counts.frame
    told = counts.classes.find(frame)
    frame.warnings.extend([*source.ignored.said(), *warnings])
    found: dict[str, Any] = {}
    for name, part in counts.ours.items():
        found[name] = part.find(frame)
        if name == Rates.name:  # parts after it are about what it names
            plain = plain_lead(told | told["headline"], found[name].leads)
            frame = replace(frame, plain=plain, ratios_to=found[name].references)
    answers = {name: part.find(frame) for name, part in counts.own.items()}
    reading = list(dict.fromkeys([*reading, *counts.reading]))
    return AuditResult(**told, reading=reading or None, findings=found, parts=answers)
