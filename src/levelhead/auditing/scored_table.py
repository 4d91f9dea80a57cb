"""Tables with a score in each row: opened, checked and read once, for explanations and for rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.exclusions import Lacks, refuse
from levelhead.auditing.of_run import OUTCOMES, OwnPredictions, joined, names_run, table_of
from levelhead.auditing.options import MIN_COUNT, AuditOptions, Roles, refuse_twice
from levelhead.auditing.scale import OTHER, Scale
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics.names import MISSING_GROUP
from levelhead.report.text import counted
from levelhead.tables.columns import Column, FloatArray
from levelhead.tables.files import Stored
from levelhead.tables.source import Labelled, Source
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import in_order
from levelhead.types import DataError, listed


def open_scored(asked: Mapping[str, Any], lacks: Lacks, split: str = "test") -> tuple[Stored, Roles]:
    """Return the table that options name as ``data``, with the groups that are joined to it, and which column is what.

    An evaluated run names its columns itself.

    Raises:
        Refused: options that do not go together, or are lacking.
        DataError: as :func:`levelhead.audit_table`, about the table.
    """
    given = dict(asked)
    if not names_run(given["data"]):
        _roles(given, lacks)
    source = table_of(given["data"], split)
    if isinstance(source, OwnPredictions):
        _fill(source, given)
    roles = _roles(given, lacks)
    return joined(source, given["join"], given["on"], roles.columns), roles


def _roles(asked: Mapping[str, Any], lacks: Lacks) -> Roles:
    refuse(asked, lacks=lacks)
    groups = tuple(dict.fromkeys(asked["groups"]))
    roles = Roles(asked["label"], None, groups, asked["score"], cluster=asked["cluster"])
    refuse_twice(roles)
    return roles


def _fill(own: OwnPredictions, asked: dict[str, Any]) -> None:
    """Name the columns of a run's own predictions that nobody named."""
    joins = asked["join"] is not None
    asked["label"], asked["score"] = asked["label"] or OUTCOMES[0], asked["score"] or own.score
    asked["groups"] = asked["groups"] or (() if joins else own.groups)
    asked["cluster"], asked["on"] = asked["cluster"] or own.cluster, asked["on"] or (own.ids if joins else None)


@dataclass(frozen=True)
class ScoredTable:
    """Rows with a score, of which no probability lies outside 0 to 1.

    Attributes:
        score: (rows,) scores, of the scale ``scale``.
        label: (rows,) whether a row has the positive class; None without labels.
        groups: codes (rows,) and values of each group column, by name; None is a missing group.
        cluster: (rows,) codes of clusters; None: rows are independent.
        classes: the classes in their order, of which ``positive`` is the place of the positive one.
        said: sentences on rows that were left out.
    """

    score: FloatArray
    label: NDArray[np.bool_] | None
    groups: dict[str, Column]
    cluster: NDArray[np.int64] | None
    classes: list[Any]
    positive: int
    scale: Scale
    said: list[str]

    @classmethod
    def read(cls, table: Source, roles: Roles, options: AuditOptions, *, several: bool = False) -> ScoredTable:
        """Read all rows; the limits of columns, and their errors, are those of an audit.

        ``several``: there may be more than two classes, of which ``options`` name the positive one.
        """
        source = Labelled(table, roles.label, options.ignore_label)
        rows, titles = ScoreRows(roles.titles(source)), {name: source.title(name) for name in roles.groups}
        title = rows.titles.get("label", "")
        tally = Tally(title, title, titles, numbered=frozenset(titles))
        for columns in roles.batches(source, {}):
            found: dict[str, Any] = dict(columns)
            label: Any = found.get("label") or (np.zeros(len(found["score"]), np.int64), ["1"])
            tally.add(label, label, {name: found[f"group {name}"] for name in titles})
            rows.add(columns)
        scale = rows.settle(options.scale)
        if scale.name == OTHER:
            raise DataError(
                f"{rows.titles['score']} ranges from {scale.low:g} to {scale.high:g}: neither probabilities (0 to 1) "
                "nor log odds (some below 0). Divide percentages by 100; if they are log odds, say so with --scale "
                "log-odds."
            )
        tally.refuse_ids(MIN_COUNT)
        truth, classes, place = None, ["0", "1"], 1
        if roles.label is not None:
            truth, classes, place = _labelled(rows, options, several=several)
        return cls(
            rows.whole("score"),
            truth,
            {name: rows.column(f"group {name}") for name in titles},
            rows.column("cluster")[0] if roles.cluster is not None else None,
            classes,
            place,
            scale,
            [*source.ignored.said(), *options.label_map.said],
        )

    @property
    def probability(self) -> FloatArray:
        """The scores as probabilities, (rows,)."""
        return self.score if self.scale.probabilities else np.asarray(special.expit(self.score))

    def members(self, name: str) -> NDArray[Any]:
        """Return the texts of a group column, (rows,) objects; rows without a group are in one of their own."""
        codes, values = self.groups[name]
        return np.array([MISSING_GROUP if one is None else str(one) for one in values], object)[codes]

    def only(self, rows: NDArray[Any]) -> ScoredTable:
        """Return the rows of a mask, or those at places, in that order."""
        return replace(
            self,
            score=self.score[rows],
            label=None if self.label is None else self.label[rows],
            groups={name: (codes[rows], values) for name, (codes, values) in self.groups.items()},
            cluster=None if self.cluster is None else self.cluster[rows],
        )


def _labelled(rows: ScoreRows, options: AuditOptions, *, several: bool) -> tuple[NDArray[np.bool_], list[Any], int]:
    """Return which rows have the positive class, (rows,), the classes, and the place of the positive one."""
    class_of = rows.merge(options.label_map)
    classes = in_order(set(class_of.values()))
    place = options.label_map.place(options.positive, classes)
    many = len(classes) > 2
    if len(classes) < 2 or (many and (place is None or not several)):
        advice = "A gap needs rows of two classes."
        if many:
            advice = "Name the class that the score is about: --positive." if several else "A rule decides between two."
        raise DataError(
            f"{rows.titles['label']} has {counted(len(classes), 'class', 'classes')}: {listed(classes, 10)}. {advice}"
        )
    place = 1 if place is None else place
    wanted = [code for label, code in rows.labels.items() if class_of[label] == classes[place]]
    return np.isin(rows.whole("label"), wanted), classes, place
