"""Read the rows of a table once, for all the questions of an audit, and say what each found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from levelhead.auditing.figures import Classes
from levelhead.auditing.options import EXCLUDED, AuditOptions, Roles, find_quantiles, refuse_excluded
from levelhead.auditing.part import Asked, Part
from levelhead.auditing.parts import PARTS
from levelhead.auditing.result import AuditResult
from levelhead.auditing.score_rows import ScoreRows
from levelhead.tables.bins import cuts_of
from levelhead.tables.rows import Rows
from levelhead.tables.source import Source
from levelhead.types import ConfigError, listed, quoted


def check(roles: Roles, options: AuditOptions, argument: bool = False) -> None:
    """Raise an error, before anything is read, for what does not go together; ``argument``: named as in Python."""
    options.check(roles)
    refuse_excluded(roles, options, argument)
    for name in options.parts:
        part = _named(name)
        if lacking := part.lacks(roles, options):
            raise ConfigError(f"The part {quoted(name)} needs what this audit lacks: {listed(lacking)}.")
        if clash := [column for column in part.excludes if getattr(roles, column) is not None]:
            raise ConfigError(
                f"The part {quoted(name)} cannot be used with {EXCLUDED[clash[0]][0].partition(':')[0]}. Leave one of "
                "them out."
            )


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
    cuts = cuts_of(options.bins, [*roles.groups, *roles.levels])
    find_quantiles(source, cuts)
    options = replace(
        options,
        label=source.called(str(roles.label)),
        cluster=None if roles.cluster is None else source.called(roles.cluster),
    )
    asked = Asked(source, roles, options, cuts)
    classes = Classes(asked)
    ours = {one.name: one(asked) for one in PARTS.own() if not one.lacks(roles, options)}
    own = {one.name: one(asked) for one in map(_named, options.parts)}
    titles = roles.titles(source)
    rows: Rows = Rows(titles) if roles.score is None else ScoreRows(titles)
    kept = {role for part in (*ours.values(), *own.values()) for role in roles.kept(part.keeps)}
    for columns in roles.batches(source, cuts):
        for part in (classes, *ours.values(), *own.values()):
            part.update(columns)
        rows.add({role: column for role, column in columns.items() if role in kept})
    # An audit of scores joins labels of one class: memory is shared until then.
    as_read = options.other is not None or options.metrics is not None
    frame = classes.frame(rows, rows.only({*rows.parts} - {"score"}) if as_read else rows)
    result = classes.find(frame)
    frame.warnings.extend(warnings)
    found = {name: part.find(frame) for name, part in ours.items()}
    answers = {name: part.find(frame) for name, part in own.items()}
    options.label_map.refuse_unused()
    more = {**result.more, "reading": list(dict.fromkeys(reading))} if reading else result.more
    return replace(result, more=more, findings=found, parts=answers)
