"""Any set of pictures or texts that the library `datasets` can load: by its Hugging Face hub id, or a local folder.

The library itself copies a set, with all its columns, into its own cache (``HF_HOME``); a folder that ``save_to_disk``
wrote is read where it lies. Training opens the picture or the texts and the target column. A folder without a table is
read in the order of its file names, which is then part of what the data says; see ``image-folder-csv`` for an order of
one's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from levelhead.data.base import Card, Inputs, Split, check_image_size, dataset_folder
from levelhead.data.cache import picture_inputs
from levelhead.data.images import is_below, read_picture
from levelhead.data.own_table import OwnTable
from levelhead.data.table_set import Roles, Rows, Table
from levelhead.data.targets import ordered
from levelhead.data.text_files import cells_of, is_saved
from levelhead.data.texts import texts_of
from levelhead.spelling import is_value
from levelhead.storage import refuse_strange_files
from levelhead.types import ConfigError, DataError, require_columns

PICTURES = "image"  # the column of pictures where nobody names one
TEXTS = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class HubTable(Table):
    """One of the set's own splits, ``source``: ``rows`` is the library's table of it.

    Class labels are read by their names, truth values by the name of their column. Columns of ``texts`` hold nothing
    else.
    """

    source: str = ""
    rows: Any = None
    texts: tuple[str, ...] = ()
    ignored: str | int | None = None

    first: ClassVar[int] = 0

    def header(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.rows.column_names)

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return columns as texts, and the number of rows."""
        return {name: self._cells(name) for name in columns}, len(self.rows)

    def nobody(self, row: int, among_all: int) -> str:
        """Return where a row without a person stands, from 1."""
        return f"{self.source}, row {row + 1}"

    def labels(self, column: str) -> tuple[str, ...]:
        """Return the names of a column's class labels; none of another column."""
        return tuple(map(str, getattr(self.rows.features[column], "names", None) or ()))

    def dtype(self, column: str) -> str:
        """Return the type of a column's values; an empty text of lists, records and pictures."""
        import datasets

        feature = self.rows.features[column]
        return str(feature.dtype) if isinstance(feature, datasets.Value | datasets.ClassLabel) else ""

    def _cells(self, column: str) -> list[str]:
        require_columns(self.header(), [column], self.name)
        dtype = self.dtype(column)
        if not dtype or (column in self.texts and dtype not in TEXTS):
            wanted = "texts" if column in self.texts else "class labels, truth values, numbers or texts"
            raise DataError(f"{self.name}: {column!r} holds {self.rows.features[column]}; it must hold {wanted}.")
        arrow = self.rows.select_columns([column]).with_format("arrow")[:][column]  # no other column is opened
        cells = cells_of(arrow, f"Column {column!r}")
        named = {"False": f"not {column}", "True": column} if dtype == "bool" else {}
        if labels := self.labels(column):
            named = {"-1": "", **{str(code): label for code, label in enumerate(labels)}}  # -1: one that is kept secret
        return [cell if is_value(cell, self.ignored) else named.get(cell, cell) for cell in cells] if named else cells


@dataclass(frozen=True)
class Hub(OwnTable):
    """Tell the ``target`` column from the pictures or texts of a set on the Hugging Face hub or in a local folder.

    ``path`` is a hub id such as ``owner/name``, or a folder: below the data root, or a path of its own; also one that
    ``save_to_disk`` wrote. Pin ``revision`` to a commit, so that a run can be repeated. ``text_column`` makes it a set
    of texts, with ``pair_column`` of pairs; without, it is one of pictures, in ``image_column``. ``train_split``,
    ``validation_split`` and ``test_split`` are the set's names, all different; None for validation or test takes
    ``validation_share`` or ``test_share`` of the training split's rows, by a hash and ``split_seed``: of a text itself,
    so that rows with the same text go to the same split, of a picture's row number. Target and sensitive columns hold
    class labels, truth values, numbers or texts. ``label_map`` says which class a value of the target represents,
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
    train_split: str = "train"
    validation_split: str | None = "validation"
    test_split: str | None = "test"
    id_column: str | None = None
    image_size: int = 64

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
        super().__post_init__()
        check_image_size(self.image_size)
        if self.pair_column is not None and self.text_column is None:
            raise ConfigError("data.pair_column is the second of two texts: name the first with data.text_column.")
        named = self._sources
        if len(set(named)) < len(named):
            raise ConfigError(
                f"data.train_split, data.validation_split and data.test_split must differ, not {', '.join(named)}: "
                "rows that train a model cannot test it. Null takes a share of the training split."
            )

    @property
    def _options(self) -> dict[str, str | None]:
        return super()._options | ({"image_column": None} if self._inputs else {})

    @property
    def _roles(self) -> Roles:
        roles = super()._roles
        return roles if self._inputs else replace(roles, needed=(*roles.needed, self.image_column))

    @property
    def _sources(self) -> list[str]:
        """The set's own names of the splits that are used."""
        return [name for name in (self.train_split, self.validation_split, self.test_split) if name]

    def _tables(self) -> list[HubTable]:
        """Return the set's splits; one that is named and not there is an error."""
        splits = self.open_splits()
        for name in self._sources:
            if name not in splits:
                raise DataError(
                    f"{self.path} has no split {name!r}; it has {', '.join(splits)}. Set data.train_split, "
                    "data.validation_split and data.test_split to these; null takes a share of the training split."
                )
        dealt = not (self.validation_split and self.test_split)
        named: dict[str | None, Split | None] = {self.validation_split: "validation", self.test_split: "test"}
        named |= {self.train_split: None if dealt else "train"}
        return [
            HubTable(f"{self.path}, split {name!r}", named[name], name, splits[name], self._inputs, self.ignore_label)
            for name in self._sources
        ]

    def _load(self, rows: Rows, split: Split) -> Inputs:
        table, _ = rows.place(rows.numbers[0])
        if self._inputs:
            return rows.texts(self._inputs, table.name)
        encoded = self._pictures(table, [rows.place(row)[1] for row in rows.numbers])
        return picture_inputs(encoded, encoded.where, self.image_size)

    def new_rows(self, table: Path) -> Inputs:
        """Return the texts of a table of new rows; the columns of texts alone are opened."""
        return texts_of(table, self._inputs) if self._inputs else super().new_rows(table)

    def _ordered(self, column: str, rows: Rows) -> tuple[str, ...]:
        """Return the values of a column: class labels in their own order, truth values, numbers, else texts."""
        values = {*rows.cells[column]} - {""}
        labels = max((table.labels(column) for table, _ in rows.tables), key=len)
        if values <= {*labels}:
            return labels
        kinds = {table.dtype(column) for table, _ in rows.tables}
        if kinds == {"bool"}:
            return f"not {column}", column
        return tuple(sorted(values)) if kinds & {*TEXTS} else ordered(values)

    def _in_order(self, classes: Sequence[str]) -> tuple[str, ...]:
        return tuple(classes)

    def _labelled(self, rows: Rows) -> Sequence[int]:
        """Return the rows wanted, if they are of one split, as another may come without labels; not all of them."""
        numbers = [row for row in rows.numbers if rows.splits[row] is not None]
        if numbers and not any(rows.chosen(self.target)):
            table, _ = rows.place(numbers[0])
            raise DataError(
                f"{table.name}: no row has a label in {self.target!r}. Name a split with labels, or none: "
                f"--set data.{table.split or 'train'}_split=null."
            )
        return numbers

    def _pictures(self, table: HubTable, rows: Sequence[int]) -> _Pictures:
        import datasets
        import huggingface_hub.constants

        require_columns(table.header(), [self.image_column], table.name)
        column = table.rows.select_columns([self.image_column])
        feature = column.features[self.image_column]
        if not isinstance(feature, datasets.Image) and not (isinstance(feature, dict) and "bytes" in feature):
            raise DataError(f"{table.name}: column {self.image_column!r} holds {feature}, not pictures.")
        # Undecoded: the bytes go through levelhead's own decoder, whose errors name the row.
        column = column.cast_column(self.image_column, datasets.Image(decode=False))
        homes = [
            datasets.config.HF_CACHE_HOME,
            datasets.config.HF_DATASETS_CACHE,
            huggingface_hub.constants.HF_HUB_CACHE,
        ]
        with contextlib.suppress(DataError):
            homes.append(dataset_folder(self.root, self.path))
        return _Pictures(column, self.image_column, rows, table.name, [Path(home).resolve() for home in homes])

    def open_splits(self) -> Mapping[str, Any]:
        """Return all splits of the set by name, each a ``datasets.Dataset``; no column is opened."""
        if not self.path:
            raise ConfigError("data.path is empty; give a hub id such as owner/name, or a folder below the data root.")
        import datasets

        path = self.path
        try:
            path = str(dataset_folder(self.root, path).resolve())
        except DataError:  # no folder of ours: a hub id
            if path.startswith(("/", ".")):
                raise
        saved, of_hub = is_saved(Path(path)), not Path(path).is_dir()
        if saved:
            refuse_strange_files(Path(path))
        try:
            if saved:
                found = datasets.load_from_disk(path).with_format(None)  # a format hides columns
                return {"train": found} if isinstance(found, datasets.Dataset) else found
            from levelhead.loading import hub_or_cache  # here, as it imports torch

            with hub_or_cache() if of_hub else contextlib.nullcontext():
                # Said aloud, because an environment variable would otherwise decide it in some versions.
                return datasets.load_dataset(path, self.config_name, revision=self.revision, trust_remote_code=False)
        except Exception as error:  # the library raises a dozen kinds, with its own clear first line
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"The set {self.path} cannot be loaded ({reason}). Check data.path, data.config_name and data.revision."
                + " A folder works, too." * of_hub
            ) from error


class _Pictures:
    """The encoded bytes of a split's pictures, read one by one from the library's table or from the file it names."""

    def __init__(self, table: Any, column: str, rows: Sequence[int], name: str, homes: Sequence[Path]) -> None:
        self.table = table
        self.column = column
        self.rows = rows
        self.name = name
        self.homes = homes  # the set's folder and the library's own: what a table names elsewhere is not opened

    def where(self, position: int) -> str:
        return f"{self.name}: the picture in row {self.rows[position]}"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int, /) -> bytes | None:
        picture = self.table[int(self.rows[position])][self.column]
        if not picture or picture["bytes"] is not None or not picture["path"]:
            return picture["bytes"] if picture else None
        path = Path(picture["path"])
        if not any(is_below(path, home) for home in self.homes):
            raise DataError(f"{self.where(position)} is named by a path that leads out of the set. Put it there.")
        return read_picture(path, self.where(position))
