"""Columns of all rows in memory, in small types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from levelhead.metrics.names import MISSING_GROUP, Key, parts_of
from levelhead.report.text import counted
from levelhead.tables.columns import Column, occurring
from levelhead.types import DataError, quoted

CHUNK = 1 << 18
MOST_VALUES = 32_000
OTHER_SCORE = "other score"

Rowwise = Mapping[str, NDArray[Any]]
"""Columns of some rows, by role."""


@dataclass
class Rows:
    """Rows that are kept batch by batch: a byte or two a code, eight a number.

    Columns go by their role: ``label``, ``prediction``, ``score``, ``cluster``, ``id``, ``group NAME``, ``level NAME``,
    ``along NAME``.

    Attributes:
        titles: what errors call the columns that hold few values; others may hold any number of them.
        known: the values of each column of codes, with their codes.
        parts: what is held of each column, batch by batch.
    """

    titles: Mapping[str, str]
    known: dict[str, dict[Hashable, int]] = field(default_factory=dict)
    parts: dict[str, list[NDArray[Any]]] = field(default_factory=dict)

    def add(self, columns: Mapping[str, Column | NDArray[Any]]) -> None:
        """Keep a batch; raises :class:`~levelhead.types.DataError` where a column with a title has too many values."""
        for role, column in columns.items():
            values = column if isinstance(column, np.ndarray) else self._codes(role, column)
            self.parts.setdefault(role, []).append(values)

    def _codes(self, role: str, column: Column) -> NDArray[Any]:
        """Return codes, (rows,), in the smallest type that holds all so far."""
        codes, values, _ = occurring(column)
        known = self.known.setdefault(role, {})
        places = np.array([known.setdefault(value, len(known)) for value in values], np.int64)
        if role in self.titles and len(known) > MOST_VALUES:
            raise DataError(
                f"{self.titles[role]} has more than {MOST_VALUES:,} different values: is this an id or a score?"
            )
        return places.astype(np.min_scalar_type(max(0, len(known) - 1)))[codes]

    def __len__(self) -> int:
        return sum(map(len, next(iter(self.parts.values()), [])))

    def whole(self, role: str) -> NDArray[Any]:
        """Return a column in one piece, (rows,)."""
        if len(self.parts.get(role, [])) > 1:  # all columns, so that batches stay alike
            for column, parts in self.parts.items():
                self.parts[column] = [np.concatenate(parts)]
        return self.parts.get(role, [np.empty(0)])[0]

    def batches(self) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the columns some rows at a time. Nothing is joined: twice the rows would be held while it is done."""
        for at, first in enumerate(next(iter(self.parts.values()), [])):
            for begin in range(0, len(first), CHUNK):
                yield {role: parts[at][begin : begin + CHUNK] for role, parts in self.parts.items()}

    def column(self, role: str, batch: Rowwise | None = None) -> Column:
        """Return codes, of all rows or those of a batch, and values."""
        codes = self.whole(role) if batch is None else batch[role]
        return codes.astype(np.int64), list(self.known[role])

    def counts(self, role: str) -> dict[Hashable, int]:
        """Return the rows of each value that occurs."""
        rows = np.bincount(self.whole(role), minlength=len(self.known[role])).tolist()
        return {value: count for value, count in zip(self.known[role], rows, strict=True) if count}

    def coded(self, role: str, codes: Mapping[Hashable, int]) -> NDArray[np.int64]:
        """Return the codes that others have for the values of a column, (rows,); -1 for none."""
        return np.array([codes.get(value, -1) for value in self.known[role]], np.int64)[self.whole(role)]

    def texts(self, role: str) -> list[str]:
        """Return the values of a column as texts, by code."""
        return [MISSING_GROUP if one is None else str(one) for one in self.known[role]]

    def members(self, key: Key, groups: Sequence[Key]) -> Callable[[Rowwise], NDArray[np.int16]]:
        """Return what finds the place of each row's group among ``groups``, of a column or a crossing."""
        place = {group: at for at, group in enumerate(groups)}
        columns = [f"group {name}" for name in parts_of(key)]
        names = list(map(self.texts, columns))
        wanted = [place.get(one[0] if isinstance(key, str) else one, 0) for one in itertools.product(*names)]
        places = np.array(wanted, np.int16)

        def of(batch: Rowwise) -> NDArray[np.int16]:
            codes = batch[columns[0]]
            for name, texts in zip(columns[1:], names[1:], strict=True):
                codes = codes.astype(np.int64) * len(texts) + batch[name]
            return np.asarray(places[codes])

        return of

    def only(self, roles: Collection[str]) -> Rows:
        """Return some of the columns; memory is shared."""
        return Rows(
            self.titles,
            {role: known for role, known in self.known.items() if role in roles},
            {role: list(parts) for role, parts in self.parts.items() if role in roles},
        )

    def reordered(self, rows: NDArray[np.int64]) -> Rows:
        """Return these rows alone, in this order."""
        return Rows(self.titles, dict(self.known), {role: [self.whole(role)[rows]] for role in self.parts})

    def put(self, role: str, column: Column) -> None:
        """Set a column of all rows."""
        for other in list(self.parts):
            self.whole(other)
        self.known[role] = {}
        self.parts[role] = [self._codes(role, column)]


def partners(rows: Rows, member: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return the places of the two rows of each matched pair, (2, pairs): that of the first group, then the other's.

    Args:
        rows: have the ids of pairs as ``pair``, and may have a ``label``.
        member: the place of each row's group, (rows,), of two.

    Raises:
        DataError: the first pair that is not of two rows, of both groups and of one label.
    """
    codes, ids = rows.column("pair")
    sizes = np.bincount(codes)

    def refuse(wrong: NDArray[np.bool_], why: str) -> None:
        if wrong.any():
            pair, count = quoted(ids[int(wrong.argmax())]), counted(int(wrong.sum()), "such pair")
            raise DataError(f"Pair {pair} has {why}. Mend or remove {count}.")

    refuse(sizes != 2, f"{counted(int(sizes[(sizes != 2).argmax()]), 'row')}, and not two")
    both = np.argsort(codes, kind="stable").reshape(-1, 2).T
    refuse(member[both[0]] == member[both[1]], "two rows of one group")
    if "label" in rows.parts:
        refuse(np.diff(rows.whole("label").astype(np.int64)[both], axis=0)[0] != 0, "two labels")
    return np.where(member[both[0]] < member[both[1]], both, both[::-1])


def matched(new: Rows, old: Rows) -> tuple[Rows, list[str]]:
    """Give rows the predictions that another table has for them, as the column ``other``; and its scores, if any.

    Rows are matched by their ``id`` if they have one, and else by their order; labels must be the same, and groups that
    both tables have.

    Returns:
        the new rows that have a partner, and warnings.

    Raises:
        DataError: ids that occur twice or have no partner, unequal numbers of rows, or rows whose label or group
            differs between the tables; the text says how many and which is the first.
    """
    warnings = []
    if "id" in new.parts:
        for rows in (new, old):
            index = pd.Index(rows.whole("id"))
            if not index.is_unique:
                first, second = np.flatnonzero(index == index[index.duplicated()][0])[:2] + 1
                raise DataError(
                    f"{rows.titles['id']}: {counted(int(index.duplicated().sum()), 'row')} with the id of an earlier "
                    f"row, such as rows {first:,} and {second:,} (counted from 1). Each id must be unique."
                )
        place = pd.Index(old.whole("id")).get_indexer(pd.Index(new.whole("id")))
        there = place >= 0
        if not there.any():
            raise DataError(
                f"{new.titles['id']} and {old.titles['id']} share no id: do they have the same "
                "rows, with ids written the same way?"
            )
        alone, missed = int((~there).sum()), len(old) - int(there.sum())
        if alone or missed:
            warnings.append(
                f"{alone:,} rows of the new file and {missed:,} of the old have no partner and are left out; "
                f"{int(there.sum()):,} rows are compared."
            )
        new, old = new.reordered(np.flatnonzero(there)), old.reordered(place[there])
    elif len(new) != len(old):
        raise DataError(
            f"The new file has {len(new):,} rows, the old one {len(old):,}. Both must hold the same rows in the same "
            "order, or a column of ids to match them by: --on."
        )
    for role in [one for one in old.parts if one == "label" or one.startswith("group ")]:
        wrong = np.flatnonzero(old.coded(role, new.known[role]) != new.whole(role))
        if len(wrong):
            what = "label" if role == "label" else "group"
            kinds = " Fields of csv files are text, and no numbers." if len(wrong) == len(new) else ""
            raise DataError(
                f"{len(wrong):,} of {len(new):,} rows have another {what} in {old.titles[role]} than in "
                f"{new.titles[role]}, first row {wrong[0] + 1}. The rows must be the same and in the same order; if "
                f"the files have a column of ids, match by it: --on.{kinds}"
            )
    if "score" in new.parts and "score" in old.parts:
        new.parts[OTHER_SCORE] = [old.whole("score")]
    new.put("other", old.column("prediction"))
    return new, warnings
