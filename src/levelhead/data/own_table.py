"""What data sets of a user's own share: options for the target, groups and people, and for the column of splits."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.data.base import (
    GROUP,
    ID,
    TAKEN,
    Groups,
    Split,
    check_roles,
    codes_of,
    dataset_folder,
)
from levelhead.data.splits import check_shares, check_splits
from levelhead.data.table_set import FileTable, Roles, Rows, TableSet
from levelhead.data.targets import check_target_options, classes_of, ordered
from levelhead.spelling import is_value
from levelhead.types import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnTable(TableSet):
    """Base of data sets of a user's own. Its options are explained by its subclasses."""

    target: str = "label"
    sensitive: str | tuple[str, ...] = ()
    person_column: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0
    label_map: Mapping[str, str] | None = None
    threshold: float | None = None
    ignore_label: str | int | None = None

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)
        check_target_options(self.label_map, self.threshold)
        check_roles(self._sensitive, target=self.target, **self._options)

    @property
    def _options(self) -> dict[str, str | None]:
        """The columns of other roles by the names of their options; a person may be called by the row's id."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name.endswith("_column")}
        return named | {"person_column": None} if self.person_column == named.get("id_column") else named

    @property
    def _identifier(self) -> str | None:
        """The column of ids; None: the number of a row."""
        return getattr(self, "id_column", None)

    @property
    def _inputs(self) -> tuple[str, ...]:
        """The columns of cells that inputs are read from: of a text, or of a pair of texts."""
        columns = (getattr(self, f"{name}_column", None) for name in ("text", "pair"))
        return tuple(name for name in columns if name is not None)

    @property
    def _roles(self) -> Roles:
        return Roles(
            target=self.target,
            inputs=self._inputs,
            needed=(self._identifier, self.person_column),
            person=self.person_column,
            deals_by=self._inputs,
            shares=(self.validation_share, self.test_share),
            seed=self.split_seed,
            ignored=self.ignore_label,
        )

    def _ordered(self, column: str, rows: Rows) -> tuple[str, ...]:
        """Return the different values of a column, without an empty one, in the order of their codes."""
        return self._in_order([*{*rows.cells[column]} - {""}])

    def _in_order(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Return classes in the order of their codes; they come in the order of the values that represent them."""
        return ordered(classes)

    def _labelled(self, rows: Rows) -> Sequence[int]:
        """Return the rows that must have a label."""
        return range(len(rows.splits))

    def class_names(self) -> tuple[str, ...]:
        """Return the classes of the target, of all rows; errors are those of :meth:`examples`."""
        return self._classes(self._read(None, [self.target]))[1]

    def _classes(self, rows: Rows) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the class of each value of the target, and the names of all classes in order."""
        rows.refuse_empty(self.target, self._labelled(rows))
        counts = Counter(rows.cells[self.target])
        values = {
            value: counts[value]
            for value in self._ordered(self.target, rows)
            if self.ignore_label is None or not is_value(value, self.ignore_label)
        }
        classes = classes_of(
            values, self.target, rows.tables[0][0].name, label_map=self.label_map, threshold=self.threshold
        )
        if self.threshold is not None:
            return classes, (f"not {self.target}", self.target)
        return classes, self._in_order(tuple(dict.fromkeys(classes.values())))

    def _labels(self, rows: Rows) -> tuple[Tensor, tuple[str, ...]]:
        classes, names = self._classes(rows)
        if without := rows.splits.count(None):
            logger.warning("%s: %d rows without a label left out (data.ignore_label).", rows.tables[0][0].name, without)
        return codes_of([classes[cell] for cell in rows.chosen(self.target)], names), names

    def _group(self, attribute: str, rows: Rows) -> Groups:
        cells = rows.chosen(attribute)
        if not any(cells):
            rows.refuse_empty(attribute)
        names = self._ordered(attribute, rows)
        return Groups(attribute, codes_of(cells, names), names)

    @property
    def id_name(self) -> str:
        """The name of the column of ids in predictions: its own, unless another column has that name there."""
        name = self._identifier
        return ID if name is None or name in TAKEN or name.startswith("probability_") else name

    @property
    def numbered_by_split(self) -> bool:
        """Whether :meth:`ids` are row numbers of several tables."""
        return self._identifier is None and len({table.split for table in self._tables()}) > 1

    def ids(self, split: Split) -> Sequence[str]:
        """Return the column of ids of ``split``, else the number of each row in its table.

        Of a table in parts, rows are counted over all of them, so that no two of a split have one number.
        """
        if self._identifier is not None:
            rows = self._read(split, [self._identifier])
            rows.refuse_empty(self._identifier)
            return rows.chosen(self._identifier)
        rows = self._read(split, [], self._inputs[:1])
        table, start = rows.first(split)
        return [str(row - start + table.first) for row in rows.numbers]


@dataclass(frozen=True)
class OwnFiles(OwnTable):
    """Base of data sets in tables of a user's own, in a folder. Its options are explained by its subclasses."""

    folder: str = ""
    sensitive: str | tuple[str, ...] = GROUP
    split_column: str | None = None
    splits: Mapping[Split, Sequence[str | int]] | None = None

    def __post_init__(self) -> None:
        check_splits(self.splits, self.split_column)
        super().__post_init__()

    @property
    def _roles(self) -> Roles:
        return replace(super()._roles, split=self.split_column, words=self.splits)

    def _folder(self) -> Path:
        if not self.folder:
            raise ConfigError("data.folder is empty; name the folder of the data, below the data root.")
        return dataset_folder(self.root, self.folder)

    def _table(self, option: str) -> list[FileTable]:
        """Return the one table that an option names."""
        name = Path(getattr(self, option))
        path = name if name.is_absolute() else self._folder() / name
        if not path.is_file():
            raise DataError(
                f"There is no file {path}. Set data.{option} to a file in {path.parent}, or to a whole path."
            )
        return [FileTable(str(path), path=path)]
