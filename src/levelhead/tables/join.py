"""Groups that stand in another file: join them to a file of predictions by an id."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from levelhead.report.text import counted
from levelhead.spelling import shape_of
from levelhead.tables.columns import Column
from levelhead.tables.files import File, Read, Stored, source_of
from levelhead.types import ConfigError, DataError, listed, quoted


class Joined(Stored):
    """Rows of ``predictions`` with those of ``columns`` that it lacks out of ``others``, matched by an id.

    Rows are matched by the text of their ids, to the letter: 1 and 01 are two ids, and a whole number is its digits. A
    row whose id the other file lacks has no group; what is done with such rows is the audit's matter. ``said`` tells
    how many rows were matched.

    Args:
        predictions: a table with one prediction a row, as :func:`source_of` takes it.
        others: such a table with one row for each id.
        on: name of the column of ids in ``predictions``.
        columns: what the audit reads, from either file.
        other_on: name of the column of ids in ``others``; None: the same.

    Raises:
        ConfigError: nothing would be joined, or a column stands in both files.
        DataError: a file cannot be read, lacks a column, names an id twice or without one, or no id is found.
    """

    def __init__(
        self,
        predictions: Any,
        others: Any,
        on: str,
        columns: Sequence[str],
        other_on: str | None = None,
    ) -> None:
        self.predictions, key = source_of(predictions), on if other_on is None else other_on
        self.others = source_of(others).file_of(key)
        there, here = self.others.header([key]), self.predictions.file_of(on).header([on])
        for file, header, name in ((self.predictions, here, on), (self.others, there, key)):
            if name not in header:
                raise DataError(f"{file} has no column {quoted(name)} (--on). Columns there: {listed(header, 20)}.")
        wanted = [name for name in dict.fromkeys(columns) if name not in (on, key) and name in there]
        if twice := [name for name in wanted if name in here]:
            raise ConfigError(f"{quoted(twice[0])} is in {self.predictions} and in {self.others}: remove it from one.")
        if not wanted:
            raise ConfigError(f"None of the columns {listed(columns, 20)} stands in {self.others}: leave out --join.")
        self._keys = on, key
        self._joined = dict.fromkeys(wanted)
        ids, own = _ids(self.others, key), _ids(self.predictions, on)
        _check(ids, self.others.title(key))
        self._places, self.said = self._match(own, ids)

    def __str__(self) -> str:
        return str(self.predictions)

    @property
    def name(self) -> str:
        """The name of the file of predictions."""
        return self.predictions.name

    def file_of(self, column: str) -> File:
        """Return the file that holds a column."""
        return self.others if column in self._joined else self.predictions.file_of(column)

    def taken(self, columns: Sequence[str]) -> list[str]:
        """Say how many rows were matched, and how both files were read."""
        mine = [name for name in columns if name not in self._joined]
        theirs = [name for name in columns if name in self._joined]
        read = self.predictions.taken([self._keys[0], *mine]) + self.others.taken([self._keys[1], *theirs])
        return [self.said, *read]

    def read(self, wanted: Sequence[str], numbers: Collection[str] = (), plain: Collection[str] = ()) -> Iterator[Read]:
        """Yield columns of both files, in the order of the predictions."""
        theirs = [name for name in wanted if name in self._joined]
        # The id is read as well, so that a batch without columns of its own has its rows.
        mine = list(dict.fromkeys([self._keys[0], *(name for name in wanted if name not in self._joined)]))
        found = _whole(self.others.read(theirs, numbers, plain), theirs) if theirs else {}
        plain = [*plain, *([] if self._keys[0] in wanted else [self._keys[0]])]
        start = 0
        for batch in self.predictions.read(mine, numbers, plain):
            places = self._places[start : start + len(batch[mine[0]])]
            start += len(places)
            both = batch | {name: column.take(places) for name, column in found.items()}
            yield {name: both[name] for name in wanted}

    def _match(self, own: pyarrow.ChunkedArray, ids: pyarrow.ChunkedArray) -> tuple[pyarrow.Array, str]:
        """Return where in the other file each row's partner stands (null: nowhere), and a sentence on it."""
        places = pyarrow.compute.index_in(own, value_set=ids, skip_nulls=True)
        places = places.combine_chunks() if isinstance(places, pyarrow.ChunkedArray) else places
        found, used = len(places) - places.null_count, len(pyarrow.compute.unique(places.drop_null()))
        if not found:
            raise DataError(
                f"No id of {self.predictions} is in {self.others}. Ids there look like {_shapes(ids)}, and in the "
                f"predictions like {_shapes(own)}: are they of the same kind, with the same leading zeros?"
            )
        said = (
            f"{found:,} of {len(places):,} rows ({found / len(places):.1%}) matched an id in {self.others.name}"
            + (f"; {places.null_count:,} have no group" if places.null_count else "")
            + (f"; {counted(len(ids) - used, 'row')} of {self.others.name} not needed" if used < len(ids) else "")
            + "."
        )
        return places, said


def both_ids(on: str, names: Sequence[str] = ()) -> tuple[str, str | None]:
    """Split ``LEFT=RIGHT``, the columns of ids of two files; a column that is called so, out of ``names``, is one.

    Raises :class:`~levelhead.types.ConfigError` where a side is empty.
    """
    left, equals, right = on.partition("=")
    if not equals or on in names:
        return on, None
    if not left or not right:
        raise ConfigError(f"--on {quoted(on)}: name a column on both sides of the sign, as in id=comment_id.")
    return left, right


def _ids(file: Stored, column: str) -> pyarrow.ChunkedArray:
    """Return the ids of a file as texts; null where one is missing."""
    parts = [_texts(batch[column], file.title(column)) for batch in file.read([column], plain=[column])]
    if not parts:
        raise DataError(f"{file} has a header but no rows. Write one line for each id.")
    return pyarrow.chunked_array(parts, pyarrow.string())


def id_texts(column: Column, title: str) -> NDArray[Any]:
    """Return the ids of a column of values as :class:`Joined` matches them, (rows,) objects."""
    codes, values = column
    return np.asarray(_texts(pyarrow.array(values), title).to_numpy(zero_copy_only=False)[codes], object)


def _texts(ids: pyarrow.Array, title: str) -> pyarrow.Array:
    """Return ids as they are written; files of one table may hold them in several types."""
    kind = ids.type
    if pyarrow.types.is_dictionary(kind):
        ids = ids.cast(kind.value_type)
    try:
        if pyarrow.types.is_floating(ids.type):  # whole numbers, most often, beside missing ones
            numbers = ids.to_numpy(zero_copy_only=False)
            whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < 1 << 53)
            texts = pyarrow.array(np.where(whole, numbers, 0).astype(np.int64)).cast(pyarrow.string())
            texts = pyarrow.compute.if_else(pyarrow.array(whole), texts, ids.cast(pyarrow.string()))
            ids = pyarrow.compute.if_else(pyarrow.array(np.isnan(numbers)), None, texts)
        ids = ids.cast(pyarrow.string())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        raise DataError(f"{title} holds values of the type {kind}, and ids are texts or numbers.") from None
    return pyarrow.compute.if_else(pyarrow.compute.equal(ids, ""), None, ids)


def _check(ids: pyarrow.ChunkedArray, title: str) -> None:
    """Raise :class:`~levelhead.types.DataError` for a row without an id, or an id in two rows; ids are not told."""
    if without := ids.null_count:
        raise DataError(f"{title}: {counted(without, 'row')} without an id. Leave them out.")
    counts = pyarrow.compute.value_counts(ids)
    repeated = counts.filter(pyarrow.compute.greater(counts.field("counts"), 1))
    if len(repeated):
        rows = np.flatnonzero(pyarrow.compute.equal(ids, repeated[0]["values"]).to_numpy())
        raise DataError(
            f"{title}: {counted(len(repeated), 'id')} more than once, the first in rows {rows[0] + 1:,} and "
            f"{rows[1] + 1:,} (counted from 1, without the header). Each id must be unique."
        )


def _whole(batches: Iterator[Read], columns: Sequence[str]) -> Read:
    """Return columns of a file in one piece."""
    parts = list(batches)
    return {
        name: pyarrow.chunked_array([part[name] for part in parts]).unify_dictionaries().combine_chunks()
        for name in columns
    }


def _shapes(ids: pyarrow.ChunkedArray) -> str:
    """Return what ids look like without telling one: letters as a, digits as 9."""
    masked = map(shape_of, ids.drop_null()[:100].to_pylist())
    return " and ".join(quoted(text, 40) for text in list(dict.fromkeys(masked))[:2]) or "nothing"
