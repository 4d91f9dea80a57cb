"""A part of an audit: one question about its rows, from batches to sentences, tables and JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.options import AuditOptions, Roles
from levelhead.auditing.scale import Scale
from levelhead.metrics import Counts
from levelhead.metrics import group as group_metrics
from levelhead.metrics.clustered import ClusteredCounts
from levelhead.metrics.names import Key, attribute_names, group_name
from levelhead.metrics.weighted import WeightedCounts
from levelhead.report.headline import Lead
from levelhead.report.record import Finding, as_json
from levelhead.report.text import Record
from levelhead.tables.bins import Cuts
from levelhead.tables.rows import Rows
from levelhead.tables.source import Source
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import agree, check_labels, check_predictions, in_order
from levelhead.types import Estimate


@dataclass(frozen=True)
class Asked:
    """A table, which column is what, the options, and where columns of numbers are cut."""

    source: Source
    roles: Roles
    options: AuditOptions
    cuts: Mapping[str, Cuts]


@dataclass(frozen=True)
class Frame:
    """What all parts share, decided once, after the last row.

    Attributes:
        asked: the table, the roles of its columns, and the options.
        rows: the columns that parts keep; labels of one class are joined, and scores lie on their scale.
        given: the same labels, predictions and groups as they were read.
        counts: the count table of each sensitive column and crossing.
        groups: the groups of each, in the order of the table.
        weighted: the same counts with weights or clusters, where rows have some.
        classes: all classes, in order.
        as_prediction: the class of each value of the predictions.
        as_label: the class of each value of the labels.
        positive: place of the class that rates are about; None: every class against the rest.
        reference: the group that others are compared with, by column, where one was named.
        scale: what scores are; None without scores.
        favourable: place of the class that is the favourable outcome; None: not known.
        label: of scores, the label that they are about.
        warnings: full sentences, to which parts add.
        ratios_to: the group of each column that ratios of the favourable outcome are to, where one was named.
        plain: what an audit names unless more was asked (:func:`levelhead.auditing.parts.plain_lead`).
    """

    asked: Asked
    rows: Rows
    given: Rows
    counts: Mapping[Key, Counts]
    groups: Mapping[Key, Sequence[Key]]
    weighted: Mapping[Key, WeightedCounts]
    classes: Sequence[Hashable]
    as_prediction: Mapping[Hashable, Hashable]
    positive: int | None
    reference: Mapping[Key, Key]
    favourable: int | None = None
    scale: Scale | None = None
    label: Hashable = None
    as_label: Mapping[Hashable, Hashable] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    plain: Lead | None = None
    ratios_to: Mapping[Key, Key] = field(default_factory=dict)

    @property
    def outcome(self) -> str | None:
        """What the favourable outcome is called, where it is the other of two classes than rates are about."""
        if self.favourable is None or len(self.classes) != 2 or self.favourable == self.compared[0]:
            return None
        return str(self.classes[self.favourable])

    @property
    def options(self) -> AuditOptions:
        """The options."""
        return self.asked.options

    @property
    def names(self) -> dict[Key, str]:
        """What JSON and pages call each sensitive column and crossing."""
        return attribute_names(self.groups)

    @property
    def compared(self) -> tuple[int, ...]:
        """Places of the classes that are set against the rest."""
        return tuple(group_metrics.classes_compared(len(self.classes), self.positive))

    @property
    def of_class(self) -> str | None:
        """The one class that rates are about, as a text; None where several are set against the rest."""
        return str(self.classes[self.compared[0]]) if len(self.compared) == 1 else None

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Of scores; rows that reach the first are decided positive."""
        return self.options.thresholds or (() if self.scale is None else (self.scale.default_threshold(),))

    @property
    def references(self) -> dict[str, str]:
        """The name of the reference group by the name of its column."""
        return {self.names[key]: group_name(group) for key, group in self.reference.items()}

    def kept(self, key: Key) -> list[Key]:
        """Return the groups of a column but for rows without one, unless these are a group."""
        return [group for group in self.groups[key] if not self.options.leaves_out(group)]

    def uneven(self, key: Key) -> WeightedCounts | None:
        """Return the counts of a column's :meth:`kept` groups with their weights or clusters; None without."""
        found = self.weighted.get(key)
        return None if found is None else found.keep(list(map(group_name, self.kept(key))))

    def clusters(self, key: Key) -> ClusteredCounts | None:
        """Return the counts of a column's :meth:`kept` groups with their clusters; None where rows are independent."""
        found = self.uneven(key)
        return found if isinstance(found, ClusteredCounts) else None

    def decided(self) -> NDArray[np.bool_]:
        """Return whether each row is decided positive (rows,); for parts that keep ``prediction`` and ``score``."""
        if "prediction" not in self.rows.parts:
            return np.asarray(self.rows.whole("score") >= self.thresholds[0])
        chosen = self.classes[self.compared[0]]
        codes = {value: 1 for value in self.rows.known["prediction"] if self.as_prediction[value] == chosen}
        return self.rows.coded("prediction", codes) == 1

    def members(self, key: Key) -> NDArray[np.int16]:
        """Return the place of each kept row's group among ``groups[key]``, (rows,)."""
        return self.rows.members(key, self.groups[key])({role: self.rows.whole(role) for role in self.rows.parts})


class Answer(Finding):
    """What a part found: a dataclass, whose fields are its JSON."""

    def sentences(self) -> list[str]:
        """Return what was found in full sentences, the most important first; none by default."""
        return []

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the rows of a data frame: column, group (None: all), name and figure; none by default."""
        return iter(())


class Found(dict[Any, Any], Answer):
    """Findings by sensitive column, or by another name.

    Args:
        found: the findings.
        names: what JSON calls their keys; None: as they are.
        told: returns what the JSON says beside a finding, from its name and itself; None: nothing.
    """

    def __init__(
        self,
        found: Mapping[Any, Any] | None = None,
        names: Mapping[Any, str] | None = None,
        told: Callable[[str, Any], list[str] | str] | None = None,
    ) -> None:
        super().__init__(found or {})
        self.names, self.told = names or {}, told

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        named = {self.names.get(key, key): one for key, one in self.items()}
        if self.told is None:
            return {name: as_json(one) for name, one in named.items()}
        said = {name: self.told(name, one) for name, one in named.items()}
        return {
            name: {"sentences": [said[name]] if isinstance(said[name], str) else said[name], **one.to_dict()}
            for name, one in named.items()
        }


class Part(ABC):
    """One question that an audit asks. It takes the rows in batches, and answers after the last one.

    Attributes:
        name: under which it is requested, and found in the result.
        needs: what an audit must have for it: fields of :class:`~levelhead.auditing.options.Roles`, such as ``score``.
        keeps: the columns of all rows that it wants in memory, such as ``("label", "score", "groups")``; a part that
            counts in :meth:`update` wants none.
        counted: whether :meth:`update` knows ``count``, how many rows each row of a frequency table represents. To
            other parts such a row is given this many times.
    """

    name: ClassVar[str]
    needs: ClassVar[Sequence[str]] = ()
    keeps: ClassVar[Sequence[str]] = ()
    counted: ClassVar[bool] = False

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def update(self, columns: Mapping[str, Any]) -> None:  # noqa: B027  (a part that keeps rows needs none)
        """Take a batch of rows; does nothing by default.

        Args:
            columns: codes (rows,) and values of ``label``, ``prediction``, ``cluster`` and each ``group NAME``, and
                numbers (rows,) of ``score`` and ``weight``, as far as the audit has them.
        """

    @classmethod
    def lacks(cls, roles: Roles, options: AuditOptions) -> list[str]:
        """Return what it needs and is not there."""
        return [one for one in cls.needs if not (getattr(options, one, None) or getattr(roles, one, None))]

    @abstractmethod
    def find(self, frame: Frame) -> Any:
        """Return the :class:`Answer`."""

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return sentences among the first of an audit, from its JSON: by default one of all, or on each column."""
        found: Record = result.get(cls.name) or {}
        each = [found, *found.get("by_attribute", found).values()]
        return [one["sentences"][0] for one in each if isinstance(one, dict) and one.get("sentences")]


def find_classes(
    tally: Tally, options: AuditOptions, of_score: Hashable = None, *, decided: bool = False
) -> tuple[Mapping[Hashable, Hashable], Mapping[Hashable, Hashable], list[Hashable], int | None, list[str]]:
    """Return the class of each label and of each prediction, all classes, the positive one's place, and warnings.

    ``of_score``: the label that scores are about, where predictions are decided scores; ``decided``: there are no
    labels, but decisions alone.
    """
    if decided:
        check_labels(tally.predictions)
        same = {value: value for value in tally.predictions}
        return same, same, in_order(same), None, []
    as_label, as_prediction, labelled, predicted = agree(tally.labels, tally.predictions, options.label_map)
    scored = of_score is not None
    warnings = check_predictions(labelled, predicted, options.label_map.kept, scored=scored) + options.label_map.said
    # Labels first: where a prediction is the same number in another type, the label says how it is written.
    classes = in_order({**labelled, **predicted})
    chosen = classes.index(as_label[of_score]) if scored else options.label_map.place(options.positive, classes)
    return as_label, as_prediction, classes, chosen, warnings
