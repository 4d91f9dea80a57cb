"""Any set of pictures or texts that the library `datasets` can load: by its Hugging Face hub id, or a local folder.

The library itself copies a set, with all its columns, into its own cache (``HF_HOME``); a folder that ``save_to_disk``
wrote is read where it lies. Training opens the picture or the texts and the target column. A folder without a table is
read in the order of its file names, which is then part of what the data says; see ``image-folder-csv`` for an order of
one's own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from levelhead.arrays import values_of
from levelhead.data.base import (
    Card,
    DataSet,
    Examples,
    Groups,
    Inputs,
    Split,
    check_roles,
    codes_of,
    dataset_folder,
    id_name_of,
    people_of,
    refuse_empty,
    refuse_one_class,
    say_shared_people,
    warn_of_absent,
)
from levelhead.data.cache import picture_examples, picture_inputs
from levelhead.data.images import check_image_size, is_below, read_picture
from levelhead.data.splits import check_shares, deal, rows_of
from levelhead.data.targets import check_target_options, classes_of
from levelhead.data.text_files import as_text, cells_of
from levelhead.data.texts import Texts, text_fingerprint, texts_of
from levelhead.spelling import is_value
from levelhead.storage import refuse_strange_files
from levelhead.types import ConfigError, DataError, LevelheadError, listed, quoted, require_columns, require_own_columns

logger = logging.getLogger(__name__)

PICTURES = "image"  # the column of pictures where nobody names one
TEXT_KIND = re.compile(r"(large_)?string(_view)?")
NUMBERS = re.compile(r"u?int\d+|float\d+|(large_)?string(_view)?")
KINDS = re.compile(r"bool|u?int\d+|(large_)?string(_view)?|null")  # null: no row has a value


@dataclass(frozen=True)
class Hub(DataSet):
    """Tell the ``target`` column from the pictures or texts of a set on the Hugging Face hub or in a local folder.

    ``path`` is a hub id such as ``owner/name``, or a folder: below the data root, or a path of its own; also one that
    ``save_to_disk`` wrote. Pin ``revision`` to a commit, so that a run can be repeated. ``text_column`` makes it a set
    of texts, with ``pair_column`` of pairs; without, it is one of pictures, in ``image_column``. ``train_split``,
    ``validation_split`` and ``test_split`` are the set's names, all different; None for validation or test takes
    ``validation_share`` or ``test_share`` of the training split's rows, by a hash and ``split_seed``: of a text itself,
    so that rows with the same text go to the same split, of a picture's row number. Target and sensitive columns hold
    class labels, truth values, whole numbers or texts. ``label_map`` says which class a value of the target represents,
    as ``{"yes ": "yes"}``; ``threshold`` makes two classes of a target of numbers: at least so much, or less.
    ``id_column`` is written beside predictions (None: the row's
    number). ``person_column`` says whom each row is of: shares are then dealt by person, and intervals take a person's
    rows together; an empty cell is somebody of its own. Pictures are cropped to their central square and resized to
    ``image_size`` pixels.
    """

    path: str = ""
    config_name: str | None = None
    revision: str | None = None
    image_column: str = PICTURES
    text_column: str | None = None
    pair_column: str | None = None
    target: str = "label"
    sensitive: str | tuple[str, ...] = ()
    train_split: str = "train"
    validation_split: str | None = "validation"
    test_split: str | None = "test"
    id_column: str | None = None
    person_column: str | None = None
    image_size: int = 64
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0
    label_map: Mapping[str, str] | None = None
    threshold: float | None = None
    ignore_label: str | int | None = None

    card: ClassVar[Card] = Card(
        title="A set from the Hugging Face hub",
        task="the target column",
        groups="the sensitive columns",
        licence="see the set's page",
        citation="see the set's page",
        url="https://huggingface.co/datasets",
        caution="Read the set's page: who labelled it, and under which terms. Its page is written by its uploader.",
    )

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)
        check_target_options(self.label_map, self.threshold)
        check_image_size(self.image_size)
        if self.pair_column is not None and self.text_column is None:
            raise ConfigError("data.pair_column is the second of two texts: name the first with data.text_column.")
        if self.text_column is not None and self.image_column != PICTURES:
            raise ConfigError(
                "data.text_column and data.image_column are both set, and a network reads texts or pictures. Leave one "
                "of them out."
            )
        inputs = (
            {"image_column": self.image_column}
            if self.text_column is None
            else {"text_column": self.text_column, "pair_column": self.pair_column}
        )
        person = self.person_column if self.person_column != self.id_column else None
        check_roles(self._sensitive, self.target, id_column=self.id_column, person_column=person, **inputs)
        named = self._names()
        if len(set(named)) < len(named):
            raise ConfigError(
                "data.train_split, data.validation_split and data.test_split must be different splits, not "
                f"{', '.join(map(repr, named))}: the rows that train or select a model cannot test it. Set the last "
                "two to null to take a share of the training split."
            )

    def check(self) -> None:
        """Raise an error if the set cannot be loaded or lacks a split or a column that training needs."""
        splits = self._load()
        for name in self._names():
            required = [*self._texts, *self._pictured, self.target, *self._named]
            require_own_columns(splits[name].column_names, required, self._where(name))
            for column in self._texts:
                self._refuse_no_texts(splits[name], column, name)
        for column in (self.target, *self._named):
            self._refuse_kind(splits, column)
        warn_of_absent(self._sensitive, self.path, *(splits[name].column_names for name in self._names()))

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, image_size, image_size) or texts, and labels of ``split``; opens no other column."""
        splits, source = self._load(), self._source(split)
        rows = self._rows(splits, split)
        labels, names = self._labels(splits, source, rows)
        refuse_one_class(labels, names, self.target, f"{self._where(source)}, {split}")
        if self._texts:
            texts = self._read_texts(splits, source, rows)
            return Examples(texts, labels, names, text_fingerprint(texts, labels))
        encoded = self._pictures(splits[source], source, rows)
        return picture_examples(encoded, encoded.where, labels, names, self.image_size)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size) or texts of ``split``; opens no other column."""
        splits, source = self._load(), self._source(split)
        for name in self._names():
            require_columns(splits[name].column_names, [*self._texts, *self._pictured], self._where(name))
        rows = self._rows(splits, split)
        if self._texts:
            return self._read_texts(splits, source, rows)
        encoded = self._pictures(splits[source], source, rows)
        return picture_inputs(encoded, encoded.where, self.image_size)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive columns of ``split``.

        Opens the texts as well where they decide the split, and never the target.
        """
        if not self._sensitive:
            return ()
        splits, source = self._load(), self._source(split)
        rows = self._rows(splits, split)
        return tuple(Groups(name, *self._values(splits, name, source, rows)) for name in self._sensitive)

    @property
    def id_name(self) -> str:
        """The name of the column of ids."""
        return id_name_of(self.id_column)

    @property
    def numbered_by_split(self) -> bool:
        """Whether :meth:`ids` are row numbers of several of the set's own splits."""
        return self.id_column is None and len(self._names()) > 1

    def ids(self, split: Split) -> Sequence[str]:
        """Return the ``id_column`` of ``split``, else the position of each row in the set's own split, from 0."""
        splits, source = self._load(), self._source(split)
        rows = self._rows(splits, split)
        if self.id_column is None:
            return [str(int(row)) for row in rows]
        self._refuse_kind(splits, self.id_column)
        values = self._cells(splits, self.id_column, source)
        chosen = [values[row] for row in rows.tolist()]
        self._refuse_empty([not value for value in chosen], self.id_column, source, rows)
        return chosen

    def places(self, split: Split) -> Sequence[tuple[str, int]]:
        """Return the set's own split of each row of ``split``, and its position there; opens what decides them."""
        source = self._source(split)
        return [(source, row) for row in self._rows(self._load(), split).tolist()]

    def people(self, split: Split) -> Sequence[str] | None:
        """Return the ``person_column`` of ``split``; None without one. An empty cell is somebody of its own.

        Opens this column of all splits in use; people in two of the set's own splits are a logged warning.
        """
        if self.person_column is None:
            return None
        splits, source = self._load(), self._source(split)
        every = {name: self._people(splits, name) for name in self._names()}
        whose = [(one, name) for name, people in every.items() for one in people]
        say_shared_people(whose, self.path, self.person_column)
        return [every[source][row] for row in self._rows(splits, split).tolist()]

    def _people(self, splits: Any, source: str) -> list[str]:
        """Return whom each row of one of the set's splits is of."""
        column = str(self.person_column)
        self._refuse_kind(splits, column)
        return people_of(self._cells(splits, column, source), f"{source}, row")

    @property
    def _named(self) -> list[str]:
        return [name for name in (self.id_column, self.person_column) if name is not None]

    @property
    def _texts(self) -> tuple[str, ...]:
        return tuple(name for name in (self.text_column, self.pair_column) if name is not None)

    @property
    def _pictured(self) -> tuple[str, ...]:
        return () if self._texts else (self.image_column,)

    def _names(self) -> list[str]:
        """Return the set's own names of the splits that are used."""
        return [name for name in (self.train_split, self.validation_split, self.test_split) if name]

    def _source(self, split: Split) -> str:
        named = {"train": self.train_split, "validation": self.validation_split, "test": self.test_split}
        return named[split] or self.train_split

    def _where(self, name: str) -> str:
        return f"{self.path}, split {name!r}"

    def _load(self) -> Any:
        """Return the set's splits; one that is named and not there is an error."""
        splits = self.open_splits()
        for name in self._names():
            if name not in splits:
                raise DataError(
                    f"{self.path} has no split {name!r}; it has {', '.join(splits)}. Set data.train_split, "
                    "data.validation_split and data.test_split to these, or the last two to null to take a share "
                    "of the training split."
                )
        return splits

    def open_splits(self) -> Any:
        """Return all splits of the set, a ``datasets.DatasetDict``; no column is opened."""
        if not self.path:
            raise ConfigError("data.path is empty; give a hub id such as owner/name, or a folder below the data root.")
        try:
            import datasets
        except ImportError:
            raise ConfigError(
                "data.name hub needs the library datasets. Install it: pip install 'levelhead[hub]'"
            ) from None
        path = self.path
        if Path(path).is_absolute():
            path = str(dataset_folder(None, path))
        else:
            try:
                path = str(dataset_folder(self.root, path).resolve())
            except DataError:  # no folder of ours: a hub id
                if path.startswith("."):
                    raise
        try:
            if is_saved(Path(path)):
                self._refuse_pinned(path)
                return _saved_splits(Path(path))
            # Said aloud, because an environment variable would otherwise decide it in some versions.
            return datasets.load_dataset(path, self.config_name, revision=self.revision, trust_remote_code=False)
        except LevelheadError:
            raise
        except Exception as error:  # the library raises a dozen kinds, with its own clear first line
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"The set {self.path} cannot be loaded ({reason}). Check data.path, data.config_name and data.revision."
            ) from error

    def _refuse_pinned(self, path: str) -> None:
        if self.config_name or self.revision:
            raise ConfigError(
                f"{path} was written by save_to_disk and has no configurations and no revisions: leave out "
                "data.config_name and data.revision."
            )

    def _rows(self, splits: Any, split: Split) -> Tensor:
        """Return the positions of the rows of ``split`` that have a label in its source, (n,) int64, in order."""
        rows, source = self._every_row(splits, split), self._source(split)
        if self.ignore_label is None:
            return rows
        ignored = self._ignored(splits, source)
        if len(found := torch.tensor([row for row in rows.tolist() if row not in ignored], dtype=torch.int64)):
            return found
        raise DataError(f"{self._where(source)}: {self._no_labels(source)}")

    def _ignored(self, splits: Any, source: str) -> set[int]:
        """Return the positions of the rows of one of the set's splits that have the label of those without one."""
        values = _column(splits[source], self.target)
        return {row for row, value in enumerate(values) if is_value(value, self.ignore_label)}

    def _no_labels(self, source: str) -> str:
        """Say what to do about one of the set's splits that has no label."""
        key = next((key for key in ("train", "validation", "test") if getattr(self, f"{key}_split") == source), "test")
        return f"no row has a label in {self.target!r}. Name a split with labels, or none: --set data.{key}_split=null."

    def _every_row(self, splits: Any, split: Split) -> Tensor:
        """Return the positions of the rows of ``split`` in its source, with a label or without."""
        source = self._source(split)
        count = len(splits[source])
        if source != self.train_split or (self.validation_split and self.test_split):
            return torch.arange(count)
        validation = 0.0 if self.validation_split else self.validation_share
        test = 0.0 if self.test_split else self.test_share
        if self.person_column is not None:
            keys = self._people(splits, source)
        elif self._texts:
            columns = [self._text_values(splits, name, source) for name in self._texts]
            keys = ["\n".join(map(as_text, texts)) for texts in zip(*columns, strict=True)]
        else:
            keys = [str(row) for row in range(count)]
        dealt = deal(keys, self.split_seed, validation, test)
        return torch.tensor(rows_of(dealt, split, self._where(source), test), dtype=torch.int64)

    def _refuse_kind(self, splits: Any, column: str) -> None:
        """Raise :class:`DataError` if a column is absent or its feature holds no classes; opens no value."""
        import datasets

        for name in self._names():
            require_columns(splits[name].column_names, [column], self._where(name))
            feature = splits[name].features[column]
            kinds = NUMBERS if column == self.target and self.threshold is not None else KINDS
            plain = isinstance(feature, datasets.Value) and kinds.fullmatch(feature.dtype)
            if not plain and not isinstance(feature, datasets.ClassLabel):
                shares = column == self.target and isinstance(feature, datasets.Value) and "float" in feature.dtype
                raise DataError(
                    f"{self._where(name)}: {column!r} holds {feature}; it must hold class labels, truth values, whole "
                    f"numbers or texts.{' Of numbers, --set data.threshold=0.5 makes two classes.' if shares else ''}"
                )
        self._refuse_other_labels(splits, column)

    def _refuse_other_labels(self, splits: Any, column: str) -> None:
        """Raise :class:`DataError` where class labels of a column have no counterpart in a split; opens no value."""
        features = {name: splits[name].features[column] for name in self._names()}
        labels = self._listed_labels(splits, column)
        for name, feature in features.items():
            if labels and name not in labels and not TEXT_KIND.fullmatch(feature.dtype) and feature.dtype != "null":
                other, known = next(iter(labels.items()))
                raise DataError(
                    f"{self.path}: {column!r} holds class labels ({listed(known, 10)}) in split {other!r}, and "
                    f"{feature.dtype} in split {name!r}. Cast it to these class labels there, too."
                )
        if column != self.target or self.train_split not in labels:  # a group need not have training rows
            return
        trained, meant = labels[self.train_split], self.label_map or {}
        for name, known in labels.items():
            unknown = {meant.get(one, one) for one in known} - {meant.get(one, one) for one in trained}
            if unknown or (self.threshold is not None and known != trained):
                remedy = "Say with data.label_map which class each name represents, or give both the same class labels."
                raise DataError(
                    f"{self.path}: {column!r} has the class labels {listed(trained, 10)} in split "
                    f"{self.train_split!r}, and {listed(known, 10)} in split {name!r}. "
                    + (remedy if self.threshold is None else "Give both the same class labels.")
                )

    def _listed_labels(self, splits: Any, column: str) -> dict[str, tuple[str, ...]]:
        """Return the names of a column's class labels in each of the set's splits in use that holds any."""
        import datasets

        features = {name: splits[name].features[column] for name in self._names()}
        return {
            name: tuple(map(str, feature.names))
            for name, feature in features.items()
            if isinstance(feature, datasets.ClassLabel)
        }

    def _cells(self, splits: Any, column: str, source: str) -> list[str]:
        """Return a column of one of the set's splits as texts: class labels by code, or by name where codes differ."""
        labels = self._listed_labels(splits, column)
        values = _column(splits[source], column)
        return list(map(as_text, _by_name(values, labels.get(source)) if len({*labels.values()}) > 1 else values))

    def _values(self, splits: Any, column: str, source: str, rows: Tensor) -> tuple[Tensor, tuple[str, ...]]:
        """Return a column at some rows of one of the set's splits as codes (rows,) int64, and the names of the codes.

        The names come from all splits in use, so that a code means the same in each.
        """
        self._refuse_kind(splits, column)
        labels = self._listed_labels(splits, column)
        # By name, since a code may mean another class in each split.
        raw = {name: _by_name(_column(splits[name], column), labels.get(name)) for name in self._names()}
        feature = splits[source].features[column]
        absent = (None,) if source in labels else (None, "")
        known = {value for values in raw.values() for value in values if value not in (None, "")}
        if column == self.target and self.ignore_label is not None:
            known = {value for value in known if not is_value(value, self.ignore_label)}
        if labels:
            listing = dict.fromkeys(one for names in labels.values() for one in names)
            distinct: list[Any] = [*listing, *sorted(known - listing.keys())]
            names = tuple(distinct)
        elif feature.dtype == "bool":
            distinct, names = [False, True], (f"not {column}", column)
        else:
            distinct = sorted(known)
            names = tuple(map(str, distinct))
        code = dict.fromkeys(absent, -1) | {value: position for position, value in enumerate(distinct)}
        chosen = [raw[source][row] for row in rows.tolist()]
        empty = [value in absent for value in chosen]
        if column == self.target and empty and all(empty):
            raise DataError(f"{self._where(source)}: {self._no_labels(source)}")
        if column not in self._sensitive or all(empty):  # a row may have no group, and must have a class
            self._refuse_empty(empty, column, source, rows)
        return torch.tensor([code[value] for value in chosen], dtype=torch.int64), names

    def new_rows(self, table: Path) -> Inputs:
        """Return the texts of a table of new rows; the columns of texts alone are opened."""
        return texts_of(table, self._texts) if self.text_column else super().new_rows(table)

    def class_names(self) -> tuple[str, ...]:
        """Return the classes of the target, of all splits; errors are those of :meth:`examples`."""
        return self._labels(self._load(), self.train_split, torch.zeros(0, dtype=torch.int64))[1]

    def _labels(self, splits: Any, source: str, rows: Tensor) -> tuple[Tensor, tuple[str, ...]]:
        """Return the classes of some rows of one of the set's splits as codes (rows,) int64, and their names."""
        if self.threshold is None:
            labels, values = self._values(splits, self.target, source, rows)
        else:
            self._refuse_kind(splits, self.target)
            kind = pa.float32() if splits[source].features[self.target].dtype == "float32" else None
            cells = {name: cells_of(pa.array(_column(splits[name], self.target), kind)) for name in self._names()}
            chosen = [cells[source][row] for row in rows.tolist()]
            self._refuse_empty([not cell for cell in chosen], self.target, source, rows)
            values = tuple(sorted({cell for column in cells.values() for cell in column} - {""}))
            labels = codes_of(chosen, values)
        if self.ignore_label is not None and (without := self._ignored(splits, source)):
            logger.warning(
                "%s: %d rows without a label left out (data.ignore_label).", self._where(source), len(without)
            )
        classes, names = classes_of(values, self.target, self.path, label_map=self.label_map, threshold=self.threshold)
        if self.threshold is None:  # in the order of the set's own values, which is that of its class labels
            names = tuple(dict.fromkeys(classes))
        return codes_of(classes, names)[labels], names

    def _text_values(self, splits: Any, column: str, source: str) -> list[str | None]:
        """Return a column of texts of one of the set's splits."""
        self._refuse_no_texts(splits[source], column, source)
        return _column(splits[source], column)

    def _refuse_no_texts(self, table: Any, column: str, source: str) -> None:
        """Raise :class:`DataError` if a column is absent or holds no texts; opens no value."""
        import datasets

        require_columns(table.column_names, [column], self._where(source))
        feature = table.features[column]
        if not isinstance(feature, datasets.Value) or not TEXT_KIND.fullmatch(feature.dtype):
            raise DataError(f"{self._where(source)}: {column!r} holds {feature}, not texts.")

    def _read_texts(self, splits: Any, source: str, rows: Tensor) -> Texts:
        columns = []
        for name in self._texts:
            values = self._text_values(splits, name, source)
            chosen = [as_text(values[row]) for row in rows.tolist()]
            self._refuse_empty([not text.strip() for text in chosen], name, source, rows)
            columns.append(chosen)
        return Texts(columns[0], columns[1] if len(columns) > 1 else None, where=self._where(source))

    def _refuse_empty(self, empty: Sequence[bool], column: str, source: str, rows: Tensor) -> None:
        refuse_empty(empty, column, lambda at: (self._where(source), int(rows[at])), file=False)

    def _pictures(self, split: Any, source: str, rows: Tensor) -> _Pictures:
        import datasets
        import huggingface_hub.constants

        column = split.select_columns([self.image_column])
        feature = column.features[self.image_column]
        if not isinstance(feature, datasets.Image) and not (isinstance(feature, dict) and "bytes" in feature):
            raise DataError(f"{self._where(source)}: column {self.image_column!r} holds {feature}, not pictures.")
        # Undecoded: the bytes go through levelhead's own decoder, whose errors name the row.
        column = column.cast_column(self.image_column, datasets.Image(decode=False))
        homes = [
            datasets.config.HF_CACHE_HOME,
            datasets.config.HF_DATASETS_CACHE,
            huggingface_hub.constants.HF_HUB_CACHE,
        ]
        with contextlib.suppress(DataError):
            homes.append(dataset_folder(None if Path(self.path).is_absolute() else self.root, self.path))
        return _Pictures(
            column, self.image_column, rows.numpy(), self._where(source), [Path(home).resolve() for home in homes]
        )


def _column(split: Any, name: str) -> list[Any]:
    """Return one column of a split of the library's; no other is opened."""
    return values_of(split.select_columns([name]).with_format("arrow")[:][name], f"Column {name!r}")


def _by_name(values: list[Any], names: Sequence[str] | None) -> list[Any]:
    """Return class labels by the names of their codes; values of another kind, without ``names``, as they are."""
    if names is None:
        return values
    # -1 is the library's word for a label that is kept secret.
    return [None if value is None or value < 0 else names[value] for value in values]


def first_columns(split: Any, count: int) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns of the first rows as texts, classes by name, and the names of those that hold pictures."""
    import datasets

    some = split.select(range(min(count, len(split))))
    table, pictures = {}, []
    for name, feature in split.features.items():
        if isinstance(feature, datasets.Image):
            pictures.append(name)
        elif isinstance(feature, datasets.ClassLabel):
            known = dict(enumerate(feature.names))
            table[name] = [known.get(value, "") for value in _column(some, name)]
        elif isinstance(feature, datasets.Value):
            table[name] = [as_text(value) for value in _column(some, name)]
    return table, pictures


def is_saved(folder: Path) -> bool:
    """Return whether ``save_to_disk`` of the library wrote a folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _saved_splits(folder: Path) -> Any:
    """Return what ``save_to_disk`` wrote into a folder: a ``DatasetDict``, or one ``Dataset`` under the name train.

    Each part names the files of its rows, and a name that leads out of the part is an error.
    """
    import datasets

    refuse_strange_files(folder)
    home = folder.resolve()
    if "::" in str(home):
        raise DataError(f"{home}: the library datasets takes '::' for an address in another place. Rename the folder.")
    parts = {"train": folder}
    if not (folder / "state.json").is_file():
        parts = {name: folder / name for name in _named(folder / "dataset_dict.json")}
    splits = {}
    for name, part in parts.items():
        _named(part / "state.json")
        # Without the format that it was saved with, which hides columns and makes tensors of others.
        splits[name] = datasets.Dataset.load_from_disk(str(part)).with_format(None)
    return datasets.DatasetDict(splits)


def _named(listing: Path) -> list[str]:
    """Return the splits, or the files of rows, that a listing of ``save_to_disk`` names, all of them beside it.

    The library itself follows any path, link or address that stands there.
    """
    try:
        found = json.loads(listing.read_text(encoding="utf-8"))
        of_splits = listing.name == "dataset_dict.json"
        names = found["splits"] if of_splits else [one["filename"] for one in found["_data_files"]]
        for name in names:
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise DataError(f"{listing} names {quoted(name)}, which leads out of its folder. Save the set again.")
    except (ValueError, KeyError, TypeError, OSError) as error:
        what = "its splits" if listing.name == "dataset_dict.json" else "the files of its rows"
        raise DataError(f"{listing} does not name {what} ({error}). Save the set again.") from None
    if not names:
        raise DataError(f"{listing} names {'no split' if of_splits else 'no file'}: the set is empty.")
    return list(names)


class _Pictures(Sequence[bytes | None]):
    """The encoded bytes of a split's pictures, read one by one from the library's table or from the file it names."""

    def __init__(self, table: Any, column: str, rows: np.ndarray, name: str, homes: Sequence[Path]) -> None:
        self.table = table
        self.column = column
        self.rows = rows
        self.name = name
        self.homes = homes  # the set's folder and the library's own: what a table names elsewhere is not opened

    def where(self, position: int) -> str:
        return f"{self.name}: the picture in row {self.rows[position]}"

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, position: int) -> bytes | None: ...
    @overload
    def __getitem__(self, position: slice) -> _Pictures: ...
    def __getitem__(self, position: int | slice) -> bytes | _Pictures | None:
        if isinstance(position, slice):
            return _Pictures(self.table, self.column, self.rows[position], self.name, self.homes)
        picture = self.table[int(self.rows[position])][self.column]
        if not picture or picture["bytes"] is not None:
            return picture["bytes"] if picture else None
        if not picture["path"]:
            return None
        path = Path(picture["path"])
        if not any(is_below(path, home) for home in self.homes):
            raise DataError(f"{self.where(position)} is named by a path that leads out of the set. Put it there.")
        return read_picture(path, self.where(position))
