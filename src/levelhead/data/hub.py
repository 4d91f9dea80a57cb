"""Any set of pictures or texts that the library `datasets` can load: by its Hugging Face hub id, or a local folder.

The library itself copies a set, with all its columns, into its own cache (``HF_HOME``). Training opens the picture or
text and the target column of that copy. A folder of pictures without a table is read in the order of its file names,
which is then part of what the data says; see ``image-folder-csv`` for an order of one's own. A folder that ``save_to_disk``
wrote is read where it lies, without a copy.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
import torch
from torch import Tensor

from levelhead.data.base import (
    Card,
    DataSet,
    Examples,
    Groups,
    Inputs,
    Split,
    as_names,
    check_roles,
    dataset_folder,
    refuse_one_class,
    warn_of_absent,
)
from levelhead.data.cache import picture_examples, picture_inputs
from levelhead.data.images import check_image_size, is_below, read_picture
from levelhead.data.splits import check_shares, position_of, split_of
from levelhead.data.texts import Texts, text_fingerprint
from levelhead.types import ConfigError, DataError, LevelheadError, quoted, require_columns

KINDS = re.compile(r"bool|u?int\d+|(large_)?string(_view)?|null")  # null: no row has a value
TEXTS = re.compile(r"(large_)?string(_view)?")
SPLIT_NAMES = "dataset_dict.json"  # where DatasetDict.save_to_disk writes them
PICTURES = "image"
"""The column of pictures where nobody names one."""


@dataclass(frozen=True)
class Hub(DataSet):
    """Tell the ``target`` column of a set on the Hugging Face hub or in a folder from its pictures or its texts.

    ``path`` is a hub id such as ``owner/name``, or a folder: below the data root, or a path of its own. It may be one
    that ``DatasetDict.save_to_disk`` or ``Dataset.save_to_disk`` wrote; the latter has no splits but ``train``. Pin
    ``revision`` to a commit, so that a run can be repeated. ``text_column``, and ``pair_column`` of pairs, hold texts;
    None: ``image_column`` holds pictures, which are cropped to their central square and resized to ``image_size``
    pixels. ``train_split``, ``validation_split`` and ``test_split`` are the set's names, all different; None for
    validation or test takes ``validation_share`` or ``test_share`` of the training split's rows, by a hash and
    ``split_seed``: of a picture's row number, or of the text, so that rows with the same text go to the same split.
    Target and sensitive columns hold class labels, truth values, whole numbers or texts. ``id_column`` is written
    beside predictions (None: the row's number in the set's own split, from 0).
    """

    path: str = ""
    config_name: str | None = None
    revision: str | None = None
    image_column: str = PICTURES
    text_column: str | None = None
    pair_column: str | None = None
    target: str = "label"
    sensitive: str | tuple[str, ...] = ()
    id_column: str | None = None
    train_split: str = "train"
    validation_split: str | None = "validation"
    test_split: str | None = "test"
    image_size: int = 64
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0

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
        check_image_size(self.image_size)
        if self.text_column is None and self.pair_column is not None:
            raise ConfigError("data.pair_column needs data.text_column: a pair is two texts.")
        if self.text_column is not None and self.image_column != PICTURES:
            raise ConfigError(
                "data.text_column and data.image_column are both set, and a network reads texts or pictures. Leave one "
                "of them out."
            )
        check_roles(
            self._sensitive,
            self.target,
            image_column=self.image_column if self.text_column is None else None,
            text_column=self.text_column,
            pair_column=self.pair_column,
            id_column=self.id_column,
        )
        named = self._names()
        if len(set(named)) < len(named):
            raise ConfigError(
                "data.train_split, data.validation_split and data.test_split must be different splits, not "
                f"{', '.join(map(repr, named))}: the rows that train or select a model cannot test it. Set the last "
                "two to null to take a share of the training split."
            )

    @property
    def _sensitive(self) -> tuple[str, ...]:
        return as_names(self.sensitive)

    @property
    def _texts(self) -> tuple[str, ...]:
        return tuple(name for name in (self.text_column, self.pair_column) if name is not None)

    @property
    def _inputs(self) -> tuple[str, ...]:
        return self._texts or (self.image_column,)

    def check(self) -> None:
        """Raise an error if the set cannot be loaded or lacks a split or a column that training needs."""
        splits = self._load()
        for name in self._names():
            require_columns(splits[name].column_names, [*self._inputs, self.target], self._where(name))
            self._refuse_no_texts(splits[name], name)
        for column in (self.target, *([self.id_column] if self.id_column else [])):
            self._refuse_kind(splits, column)
        warn_of_absent(self._sensitive, self.path, *(splits[name].column_names for name in self._names()))

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, image_size, image_size), or texts, and labels of ``split``; opens no other column."""
        splits, source = self._load(), self._source(split)
        rows = self._rows(split, splits[source])
        labels, names = self._values(splits, self.target, source, rows)
        refuse_one_class(labels, names, self.target, f"{self._where(source)}, {split}")
        if self._texts:
            texts = self._read_texts(splits[source], split, rows)
            return Examples(texts, labels, names, text_fingerprint(texts, labels))
        encoded = self._pictures(splits[source], source, rows)
        return picture_examples(encoded, encoded.where, labels, names, self.image_size)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size), or texts, of ``split``; opens no other column."""
        splits, source = self._load(), self._source(split)
        for name in self._names():
            require_columns(splits[name].column_names, self._inputs, self._where(name))
        rows = self._rows(split, splits[source])
        if self._texts:
            return self._read_texts(splits[source], split, rows)
        encoded = self._pictures(splits[source], source, rows)
        return picture_inputs(encoded, encoded.where, self.image_size)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive columns of ``split``; opens the texts as well where they decide the split."""
        if not self._sensitive:
            return ()
        splits, source = self._load(), self._source(split)
        rows = self._rows(split, splits[source])
        return tuple(Groups(name, *self._values(splits, name, source, rows)) for name in self._sensitive)

    def ids(self, split: Split) -> Sequence[str]:
        """Return the ``id_column`` of ``split``, else the position of each row in the set's own split, from 0."""
        splits, source = self._load(), self._source(split)
        rows = self._rows(split, splits[source])
        if self.id_column is None:
            return [str(row) for row in rows.tolist()]
        self._refuse_kind(splits, self.id_column)
        values = _cells(splits[source], self.id_column)
        chosen = [values[row] for row in rows.tolist()]
        self._refuse_empty([value in (None, "") for value in chosen], self.id_column, source, rows)
        return [str(value) for value in chosen]

    def _names(self) -> list[str]:
        """Return the set's own names of the splits that are used."""
        return [name for name in (self.train_split, self.validation_split, self.test_split) if name]

    def _source(self, split: Split) -> str:
        named = {"train": self.train_split, "validation": self.validation_split, "test": self.test_split}
        return named[split] or self.train_split

    def _where(self, name: str) -> str:
        return f"{self.path}, split {name!r}"

    def _load(self) -> Any:
        """Return the ``datasets.DatasetDict`` of the set."""
        if not self.path:
            raise ConfigError("data.path is empty; give a hub id such as owner/name, or a folder below the data root.")
        try:
            import datasets
        except ImportError:
            raise ConfigError(
                "data.name hub needs the library datasets. Install it: pip install 'levelhead[hub]'"
            ) from None
        folder = self._folder()
        try:
            if folder is not None and (saved := _saved_kind(folder)):
                splits = self._load_saved(folder, saved)
            else:
                # Said aloud, because an environment variable would otherwise decide it in some versions.
                splits = datasets.load_dataset(
                    str(folder or self.path), self.config_name, revision=self.revision, trust_remote_code=False
                )
        except LevelheadError:
            raise
        except Exception as error:  # the library raises a dozen kinds, with its own clear first line
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"The set {self.path} cannot be loaded ({reason}). Check data.path, data.config_name and data.revision."
            ) from error
        for name in self._names():
            if name not in splits:
                raise DataError(
                    f"{self.path} has no split {name!r}; it has {', '.join(splits)}. Set data.train_split, "
                    "data.validation_split and data.test_split to these, or the last two to null to take a share "
                    "of the training split."
                )
        return splits

    def _folder(self) -> Path | None:
        """Return the folder that ``path`` is, or None for a hub id."""
        if Path(self.path).is_absolute():
            return dataset_folder(None, self.path)
        try:
            return dataset_folder(self.root, self.path).resolve()
        except DataError:  # no folder of ours: a hub id
            if self.path.startswith("."):
                raise
            return None

    def _load_saved(self, folder: Path, saved: str) -> dict[str, Any]:
        """Return the splits in a folder that ``save_to_disk`` wrote."""
        if self.config_name or self.revision:
            raise ConfigError(
                f"{folder} was written by save_to_disk and has no configurations and no revisions: leave out "
                "data.config_name and data.revision."
            )
        if saved == "Dataset" and (self.validation_split or self.test_split):
            raise ConfigError(
                f"{folder} holds one Dataset that save_to_disk wrote, without splits. Set data.validation_split and "
                "data.test_split to null, so that its rows are dealt to the splits."
            )
        return _read_saved(folder, saved)

    def _rows(self, split: Split, source: Any) -> Tensor:
        """Return the positions of the rows of ``split`` in its source, (n,) int64, in order."""
        if self._source(split) != self.train_split:
            return torch.arange(len(source))
        if self.validation_split and self.test_split:
            return torch.arange(len(source))
        validation = 0.0 if self.validation_split else self.validation_share
        test = 0.0 if self.test_split else self.test_share
        keys: Iterable[str] = map(str, range(len(source)))
        if self._texts:
            self._refuse_no_texts(source, self.train_split)
            keys = ("\n".join(cells) for cells in zip(*(_texts(source, name) for name in self._texts), strict=True))
        dealt = [split_of(position_of(key, self.split_seed), validation, test) for key in keys]
        rows = [row for row, name in enumerate(dealt) if name == split]
        if not rows:
            raise DataError(
                f"{self._where(self.train_split)}: none of its {len(source)} rows falls into the {split} split."
            )
        return torch.tensor(rows, dtype=torch.int64)

    def _read_texts(self, table: Any, split: Split, rows: Tensor) -> Texts:
        """Return the texts, or pairs, at ``rows`` (n,) int64 of one of the set's own splits, read for ``split``."""
        source = self._source(split)
        self._refuse_no_texts(table, source)
        columns = []
        for name in self._texts:
            values = _texts(table, name)
            columns.append([values[row] for row in rows.tolist()])
            self._refuse_empty([not text.strip() for text in columns[-1]], name, source, rows)
        where = f"{self._where(source)}, {split}"
        return Texts(columns[0], columns[1] if len(columns) > 1 else None, where=where)

    def _refuse_no_texts(self, table: Any, name: str) -> None:
        """Raise :class:`DataError` if a column of texts is absent or holds something else; opens no value."""
        import datasets

        require_columns(table.column_names, self._texts, self._where(name))
        for column in self._texts:
            feature = table.features[column]
            if not isinstance(feature, datasets.Value) or not TEXTS.fullmatch(feature.dtype):
                raise DataError(f"{self._where(name)}: column {column!r} holds {feature}, not texts.")

    def _refuse_empty(self, empty: Sequence[bool], column: str, source: str, rows: Tensor) -> None:
        """Raise :class:`DataError` if any cell of a column is empty; ``empty`` says so for each of ``rows`` (n,)."""
        if any(empty):
            raise DataError(
                f"{self._where(source)}: {column!r} is empty in {sum(empty)} of {len(empty)} rows, the first being "
                f"row {int(rows[empty.index(True)])}."
            )

    def _refuse_kind(self, splits: Any, column: str) -> None:
        """Raise :class:`DataError` if a column is absent or its feature holds no classes; opens no value."""
        import datasets

        for name in self._names():
            require_columns(splits[name].column_names, [column], self._where(name))
            feature = splits[name].features[column]
            plain = isinstance(feature, datasets.Value) and KINDS.fullmatch(feature.dtype)
            if not plain and not isinstance(feature, datasets.ClassLabel):
                raise DataError(
                    f"{self._where(name)}: {column!r} holds {feature}; it must hold class labels, truth values, whole "
                    "numbers or texts."
                )

    def _values(self, splits: Any, column: str, source: str, rows: Tensor) -> tuple[Tensor, tuple[str, ...]]:
        """Return a column at some rows of one of the set's splits as codes (rows,) int64, and the names of the codes.

        The names come from all splits in use, so that a code means the same in each.
        """
        import datasets

        self._refuse_kind(splits, column)
        raw: dict[str, list[Any]] = {name: _cells(splits[name], column) for name in self._names()}
        feature = splits[source].features[column]
        labelled = isinstance(feature, datasets.ClassLabel)
        absent = (None, -1) if labelled else (None, "")  # -1 is the library's word for a label that is kept secret
        known = {value for values in raw.values() for value in values if value not in absent}
        if labelled:
            distinct, names = list(range(len(feature.names))), tuple(feature.names)
        elif feature.dtype == "bool":
            distinct, names = [False, True], (f"not {column}", column)
        else:
            distinct = sorted(known)
            names = tuple(map(str, distinct))
        code = {value: position for position, value in enumerate(distinct)}
        chosen = [raw[source][row] for row in rows.tolist()]
        self._refuse_empty([value in absent for value in chosen], column, source, rows)
        return torch.tensor([code[value] for value in chosen], dtype=torch.int64), names

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


def _saved_kind(folder: Path) -> str | None:
    """Return the class whose ``save_to_disk`` wrote a folder: Dataset or DatasetDict; None where neither did."""
    if all((folder / name).is_file() for name in ("state.json", "dataset_info.json")):
        return "Dataset"
    return "DatasetDict" if (folder / SPLIT_NAMES).is_file() else None


def _read_saved(folder: Path, saved: str) -> dict[str, Any]:
    """Return the splits in a folder that ``save_to_disk`` wrote; of a ``Dataset``, one that is called train.

    Each file is looked up before the library opens it: the folder's own JSON names them, and it may name any place.
    """
    import datasets

    home = folder.resolve()
    names = [""]
    if saved == "DatasetDict":
        names = json.loads(_below(folder / SPLIT_NAMES, home).read_text("utf-8"))["splits"]
    tables: dict[str, Any] = {}
    for name in names:
        # The library would take other names as addresses.
        if saved == "DatasetDict" and not re.fullmatch(r"\w[\w.-]*", name):
            raise DataError(f"{folder / SPLIT_NAMES} names a split {quoted(name)}, which is no name of a folder.")
        part = folder / name
        state = json.loads(_below(part / "state.json", home).read_text("utf-8"))
        for file in (part / "dataset_info.json", *(part / one["filename"] for one in state["_data_files"])):
            _below(file, home)
        # Without the format that it was saved with: that would hide columns, and make tensors of others.
        tables[name or "train"] = datasets.Dataset.load_from_disk(str(part), keep_in_memory=False).with_format(None)
    return tables


def _below(file: Path, home: Path) -> Path:
    if not is_below(file, home):
        raise DataError(f"{home} names a file that lies elsewhere, {quoted(str(file))}. Put it there.")
    if not file.is_file():
        raise DataError(f"There is no file {file}. Save the set again.")
    return file


def _cells(table: Any, column: str) -> list[Any]:
    """Return one column of one of the set's own splits; opens no other."""
    found: list[Any] = table.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    return found


def _texts(table: Any, column: str) -> list[str]:
    """Return a column of texts, a missing one as an empty one."""
    return [text or "" for text in _cells(table, column)]


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
