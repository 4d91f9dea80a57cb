"""What an audit is asked: its options, which column is what, and what does not go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.finding import Reference
from levelhead.auditing.scale import AUTO, check_scale
from levelhead.auditing.score_rows import check_thresholds
from levelhead.metrics.names import MISSING_GROUP, Key, group_name, parts_of
from levelhead.report.text import counted
from levelhead.tables.bins import Bins, Cuts, cuts_of, ordered_groups
from levelhead.tables.columns import Column, FloatArray
from levelhead.tables.join import id_texts
from levelhead.tables.periods import as_periods
from levelhead.tables.repeated import kept, whole_counts
from levelhead.tables.source import Source, Wanted
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import LabelMap, alike
from levelhead.types import ConfigError, DataError, in_quotes, listed, printable, quoted

LEAVE_OUT, AS_GROUP = "leave out", "group"
"""How rows without a group are treated."""
MIN_COUNT = 10
"""Smallest denominator for a rate to enter a gap, by default."""
TOLD = ("level", "min_count", "replicates", "seed", "missing", "intersect")
"""Options recorded in the JSON of an audit."""
Metric = Callable[[Any, Any], Any]
"""A metric of the user's own: a function of labels and predictions."""


@dataclass(frozen=True)
class Roles:
    """Which column of a table is what; None or empty where there is none. A row represents ``count`` rows.

    ``other`` has the predictions of another model, ``levels`` are the control columns, ``along`` columns of numbers.
    ``of_numbers``: label and predictions are numbers, and no classes. ``pair``: the column that matched rows share.
    """

    label: str | None
    prediction: str | None
    groups: tuple[str, ...]
    score: str | None = None
    weight: str | None = None
    cluster: str | None = None
    other: str | None = None
    levels: tuple[str, ...] = ()
    along: tuple[str, ...] = ()
    id: str | None = None
    count: str | None = None
    time: str | None = None
    of_numbers: bool = False
    pair: str | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns whose reading is reported."""
        named = [self.label, self.prediction, self.score, self.weight, self.count, *self.along, *self.groups]
        named += [*self.levels, self.id, self.time, self.pair]
        return list(dict.fromkeys(name for name in named if name is not None))

    def titles(self, source: Source) -> dict[str, str]:
        """Return what errors call the columns that hold few values, and the score and id, by role."""
        named = {"label": self.label, "prediction": self.prediction, "other": self.other, "score": self.score}
        named |= {"id": self.id, "time": self.time} | {f"group {name}": name for name in self.groups}
        return {role: source.title(name) for role, name in named.items() if name is not None}

    def kept(self, fields: Collection[str]) -> set[str]:
        """Return the roles of the columns of some fields, such as ``groups``: that of each group column."""
        several = {"groups": ("group", self.groups), "along": ("along", self.along)}
        found = set(fields) - set(several)
        for name in set(fields) & set(several):
            role, columns = several[name]
            found |= {f"{role} {column}" for column in columns}
        return found

    def batches(self, source: Source, cuts: Mapping[str, Cuts]) -> Iterator[dict[str, Column | FloatArray]]:
        """Yield the columns of a table by role, batch by batch; groups and levels are cut, ids are texts.

        Rows with a count of 0 are left out.
        """
        answers = {"label": self.label, "prediction": self.prediction, "other": self.other}
        outcomes = {"cluster": self.cluster, "id": self.id, "time": self.time, "pair": self.pair}
        named = {"score": self.score, "weight": self.weight, "count": self.count}
        outcomes, named = (outcomes, answers | named) if self.of_numbers else (answers | outcomes, named)
        known = {role: name for role, name in outcomes.items() if name is not None}
        numbers, before = {role: name for role, name in named.items() if name is not None}, 0
        words = {f"group {name}": name for name in self.groups} | {f"level {name}": name for name in self.levels}
        wanted = list(known.values()), list(dict.fromkeys(words.values())), list(numbers.values())
        for batch in source.batches(Wanted(*wanted, self.along, cuts)):
            found: dict[str, Any] = {role: batch.outcomes[name] for role, name in known.items()}
            found |= {role: batch.numbers[name] for role, name in numbers.items()}
            found |= {f"along {name}": batch.numbers[name] for name in self.along}
            for role, name in words.items():
                column = batch.words[name]
                found[role] = cuts[name].cut(column, source.title(name)) if name in cuts else column
            if self.time is not None:
                found["time"] = as_periods(found["time"])
            if self.id is not None:
                found["id"] = id_texts(found["id"], source.title(self.id))
            if self.count is not None:
                given = found["count"]
                counts = found["count"] = whole_counts(given, source.title(self.count), before)
                before += len(counts)
                if not counts.all():
                    found = kept(found, counts > 0)
                if not len(found["count"]):
                    continue
            yield found


def count_sentence(name: str, people: int) -> str:
    """Say how many people the rows of a frequency table are; raise an error where they are none."""
    if not people:
        raise DataError(f"All counts in {quoted(name)} are 0.")
    return f"Frequency table: {printable(name)} counts {people:,} people in all."


def few_sentence(name: str, group: Key, rows: int, min_count: int, fate: str = "is not compared") -> str:
    """Say that a group of a sensitive column has too few rows."""
    return (
        f"{printable(name)}: group {in_quotes(group_name(group))} has {counted(rows, 'row')}, fewer than {min_count}, "
        f"and {fate}."
    )


def left_out(
    name: str,
    groups: Sequence[Key],
    sizes: Sequence[int] | NDArray[np.int64],
    options: AuditOptions,
    reference: Key | None = None,
) -> list[str]:
    """Say which groups of a sensitive column are not compared, and why.

    Args:
        name: what the column is called.
        groups: its groups.
        sizes: the rows of each, (groups,).
        options: those of the audit.
        reference: the group that the others are compared with; None: the largest figure's, or none.
    """
    said, compared = [], [groups[at] for at in options.compared(groups, sizes)]
    for group, rows in zip(groups, sizes, strict=True):
        if options.leaves_out(group):
            said.append(
                f"{printable(name)}: {counted(int(rows), 'row')} without a group are not compared; in Python, "
                "missing='group' compares them."
            )
        elif group not in compared:
            said.append(few_sentence(name, group, int(rows), options.min_count))
    if len(compared) < 2:
        few = f"fewer than two groups have {options.min_count} rows" if len(groups) > 1 else "there is only one group"
        large = listed(in_quotes(group_name(group)) for group in compared) or "none"
        said.append(f"{printable(name)}: {few} ({large}); there is nothing to compare.")
    elif reference is not None and reference not in compared:
        said.append(
            f"{printable(name)}: the reference group {in_quotes(group_name(reference))} is too small to compare with."
        )
    return said


def cut_points(
    source: Source, bins: Bins | Sequence[str] | str | None, names: Sequence[str], count: str | None
) -> dict[str, Cuts]:
    """Return where columns of numbers are cut; those of quantiles need all values before the first row is counted.

    ``count``: the column of a frequency table, of which each row is as many as it says.
    """
    cuts = cuts_of(bins, list(names))

    def batches(name: str) -> Iterator[tuple[Column, NDArray[np.int64] | None]]:
        before = 0
        for batch in source.batches(Wanted(words=[name], numbers=[] if count is None else [count], cut=cuts)):
            counts = None if count is None else whole_counts(batch.numbers[count], source.title(count), before)
            before += len(batch.words[name][0])
            yield batch.words[name], counts

    for name, cut in cuts.items():
        if cut.quantiles:
            cut.find(batches(name), source.title(name))
    return cuts


def groups_of(tally: Tally, cuts: Mapping[str, Cuts]) -> tuple[dict[Key, list[Key]], list[str]]:
    """Return the groups of each sensitive column and crossing that was read, in their order, and warnings."""
    found = {
        key: ordered_groups([group for group, rows in met.items() if rows], key, cuts)[1]
        for key, met in tally.met.items()
    }
    return found, [said for key, groups in found.items() for said in alike_groups(key, groups, cuts)]


def alike_groups(key: Key, groups: Sequence[Key], cuts: Mapping[str, Cuts]) -> list[str]:
    """Warn of groups of one column that are written nearly alike, unless they are ranges of numbers."""
    return alike(key, "groups", groups) if isinstance(key, str) and (key not in cuts or cuts[key].values) else []


@dataclass(frozen=True)
class Other:
    """Another model: its predictions in a table of its own (None: beside the audited ones), and both names."""

    names: tuple[str, str]
    source: Any = None
    id: str | None = None


@dataclass(frozen=True)
class AuditOptions:
    """The options of an audit, as :class:`levelhead.auditing.door.Options` describes them.

    ``label`` and ``cluster`` are what sentences call these columns.
    """

    positive: Hashable = None
    intersect: bool = False
    min_count: int = MIN_COUNT
    level: float = 0.95
    replicates: int = 1000
    seed: int = 0
    missing: str = LEAVE_OUT
    reference: Reference = None
    label_map: LabelMap = field(default_factory=lambda: LabelMap(None))
    favourable: Hashable = None
    thresholds: tuple[float, ...] = ()
    scale: str = AUTO
    bins: Bins | Sequence[str] | str | None = None
    metrics: Mapping[str, Metric] | None = None
    other: Other | None = None
    costs: tuple[float, float] | None = None
    parts: tuple[str, ...] = ()
    label: str = "label"
    cluster: str | None = None
    ignore_label: Hashable = None
    top: int | str | None = None

    @classmethod
    def of(
        cls, given: Mapping[str, Any], other: Other | None = None, metrics: Mapping[str, Metric] | None = None
    ) -> AuditOptions:
        """Return options that were given by name; raise :class:`ConfigError` for a value that is none."""
        read: dict[str, Callable[[Any], Any]] = {
            "label_map": LabelMap, "thresholds": check_thresholds, "scale": check_scale, "costs": check_costs,
            "parts": tuple,
        }  # fmt: skip
        named = {"thresholds" if name == "threshold" else name: value for name, value in given.items()}
        own = {one.name for one in fields(cls)} - {"other", "metrics", "label", "cluster"}
        kept = {name: read[name](value) if name in read else value for name, value in named.items() if name in own}
        return cls(**kept, other=other, metrics=metrics)

    def compared(self, groups: Sequence[Key], sizes: Sequence[int] | NDArray[np.int64]) -> list[int]:
        """Return the places of the groups that have enough rows to be compared; ``sizes`` (groups,) are their rows."""
        return [
            at for at, (group, rows) in enumerate(zip(groups, sizes, strict=True))
            if rows >= max(1, self.min_count) and not self.leaves_out(group)
        ]  # fmt: skip

    def leaves_out(self, group: Key) -> bool:
        """Whether no gap compares a group, because it represents rows without one."""
        return self.missing == LEAVE_OUT and MISSING_GROUP in parts_of(group)

    def check(self, roles: Roles) -> None:
        """Raise an error, before anything is counted, for columns that do not fit or an option out of range."""
        fewest = 2 if roles.of_numbers else 1
        check_grouping(len(roles.groups), self.min_count, self.intersect, self.missing, fewest=fewest)
        if self.metrics is not None:
            check_metrics(self.metrics)
        if clash := [name for name in roles.levels if name in roles.groups]:
            raise ConfigError(f"{quoted(clash[0])} is both a group and a control column. Remove one of them.")


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless each metric has a name and is a function."""
    named = isinstance(metrics, Mapping) and all(isinstance(name, str) and name.strip() for name in metrics)
    if not named or not metrics or not all(map(callable, metrics.values())):
        raise ConfigError(
            'metrics= needs names and functions of (y_true, y_pred), for example metrics={"f1": '
            "sklearn.metrics.f1_score}."
        )


def check_grouping(columns: int, min_count: int, intersect: bool, missing: str, *, fewest: int = 1) -> None:
    """Raise an error if there are too few columns, or an option about groups is out of range."""
    if not columns:
        raise DataError("There is no sensitive column. Pass at least one.")
    if min_count < fewest:
        raise ConfigError(
            f"min_count={min_count} is below {fewest}. Pass the smallest group to compare, for example 10."
        )
    if intersect and columns < 2:
        raise ConfigError("--intersect needs at least two group columns.")
    if missing not in (LEAVE_OUT, AS_GROUP):
        raise ConfigError(f"missing={quoted(missing)} is unknown. Pass {LEAVE_OUT!r} or {AS_GROUP!r}.")


def refuse_twice(roles: Roles, more: Sequence[tuple[str | None, str]] = ()) -> None:
    """Raise an error for a column that is named as two things; ``more`` are further columns, and what they are."""
    named = [(roles.label, "label"), (roles.prediction, "prediction"), (roles.score, "score")]
    named += [(roles.weight, "weight"), (roles.count, "count"), (roles.cluster, "cluster"), (roles.pair, "pair")]
    named += [*((name, "group") for name in roles.groups), *more]
    seen: dict[str | None, str] = {}
    for name, what in named:
        if name is not None and name in seen:
            advice = " For decisions without outcomes, leave the label out." if what == "prediction" else ""
            raise ConfigError(f"{quoted(name)} is named as {seen[name]} and as {what}. Name two columns.{advice}")
        seen[name] = what


def check_costs(given: Any) -> tuple[float, float] | None:
    """Return costs of a false positive and a false negative; raise :class:`ConfigError` for what is none."""
    names = ("false_positive", "false_negative")
    if given is None:
        return None
    if isinstance(given, str):
        given = dict(zip(names, parts, strict=True)) if len(parts := given.split(":")) == len(names) else {}
    try:
        found = tuple(float(given[name]) for name in names)
    except (KeyError, TypeError, ValueError):
        found = ()
    good = len(found) == len(given) == 2 and any(found)
    if not good or not all(math.isfinite(one) and one >= 0 for one in found):
        raise ConfigError(
            "Costs of a false positive and a false negative are two numbers of 0 or more, not both 0: --cost 1:5 "
            '(costs={"false_positive": 1, "false_negative": 5} in Python).'
        )
    return found[0], found[1]
