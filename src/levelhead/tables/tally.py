"""Count the rows of each (label, prediction, group), a batch at a time, and stop where a column cannot be audited.

An audit needs nothing else of its rows. What is kept stays small, of any number rows there are: a column of ids or
scores is refused as soon as it has more values than classes or groups can have.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from levelhead.metrics.names import MISSING_GROUP, Key
from levelhead.spelling import MOST_CLASSES
from levelhead.tables.columns import Column, occurring
from levelhead.tables.vocabulary import TO_CLASSES, all_numbers
from levelhead.types import DataError, printable, quoted

MOST_GROUPS = 1_000
MOST_CELLS = 250_000
"""Groups x classes x classes. Intervals draw the whole table a thousand times, which are then two gigabytes."""
MOST_NUMBERS = 20
"""Different numbers that a group column may hold without being told that they are groups."""
VALUES = "values"
"""What says so."""
LONGEST_VALUE = 20_000
MOST_MEMBERS = 1 << 22
"""Pairs of a cluster and a pattern that are held of batches before they are added up."""
# Up to this many cells, a batch is counted in one array; beyond, the patterns that occur are sorted out first.
MOST_COUNTED_CELLS = 1 << 20

Pattern = tuple[Hashable, Hashable, Hashable]
"""Label, prediction and group of a row."""


@dataclass
class Tally:
    """What has been counted so far.

    Attributes:
        label: what errors call the labels.
        prediction: what errors call the predictions.
        groups: what errors call each group column, by name.
        intersect: whether the crossing of all group columns is counted as well.
        numbered: columns whose numbers are groups, of any number.
        counts: rows of each (label, prediction, group), by the name of the group column. The crossing lies under the
            tuple of the names, and each of its groups is a tuple. Groups are texts, or None where they are missing.
        labels: rows of each label.
        predictions: rows of each prediction.
        weights: of weighted rows, the sums of weights and of squared weights, by the keys of ``counts``.
        clusters: of clustered rows, how many are of each cluster, by its value.
        met: rows of each group, as ``counts`` has them.
    """

    label: str
    prediction: str
    groups: Mapping[str, str]
    intersect: bool = False
    numbered: frozenset[str] = frozenset()
    counts: dict[Key, dict[Pattern, int]] = field(default_factory=dict)
    labels: dict[Hashable, int] = field(default_factory=dict)
    predictions: dict[Hashable, int] = field(default_factory=dict)
    weights: dict[Key, dict[Pattern, NDArray[np.float64]]] = field(default_factory=dict)
    clusters: dict[Hashable, int] = field(default_factory=dict)
    met: dict[Key, dict[Hashable, int]] = field(default_factory=dict)
    _pairs: dict[Key, list[NDArray[np.int64]]] = field(default_factory=dict)
    _places: dict[Hashable, int] = field(default_factory=dict)

    def add(
        self,
        label: Column,
        prediction: Column,
        groups: Mapping[str, Column],
        weight: NDArray[np.float64] | None = None,
        cluster: Column | None = None,
        count: NDArray[np.int64] | None = None,
    ) -> None:
        """Count the rows of a batch.

        Args:
            label: true classes.
            prediction: predicted classes.
            groups: each group column, by name.
            weight: (rows,) positive weights; None: all rows count alike.
            cluster: what tells which rows belong together; None: they are independent.
            count: (rows,) how many rows each row represents, at least 1, without ``weight`` and ``cluster``; None: 1.

        Raises:
            DataError: there are more than 200 classes, more than 1,000 groups of a column or of the crossing, or more
                than 20,000 characters in a value; or a group has the name that missing values get.
        """
        label = self._classes(self.label, label, self.labels, count)
        prediction = self._classes(self.prediction, prediction, self.predictions, count)
        of_clusters = None if cluster is None else self._clusters(cluster)
        for key, column in self.group_columns(groups, count).items():
            self._check_cells(key)
            counts = self.counts.setdefault(key, {})
            columns = (label, prediction, column)
            flat = crossed(columns)
            places, rows = occurring_codes(flat, columns)
            if count is not None:
                rows = np.bincount(np.searchsorted(places, flat), count, len(places)).astype(np.int64)
            there = patterns_at(places, columns)
            for pattern, number in zip(there, rows.tolist(), strict=True):
                counts[pattern] = counts.get(pattern, 0) + number
            if weight is None and of_clusters is None:
                continue
            inverse = np.searchsorted(places, flat)
            if weight is not None:
                sums = self.weights.setdefault(key, {})
                both = np.stack([np.bincount(inverse, weights=weight), np.bincount(inverse, weights=weight**2)], -1)
                for pattern, sum_of in zip(there, both, strict=True):
                    sums[pattern] = sums.get(pattern, 0.0) + sum_of
            if of_clusters is not None:
                self._add_members(key, of_clusters, inverse, there)

    def _check_cells(self, key: Key) -> None:
        met, classes = len(self.met[key]), len(self.labels.keys() | self.predictions.keys())
        if met * classes**2 > MOST_CELLS:
            raise DataError(
                f"{self._title(key)} has {met:,} groups, and there are {classes} classes: that is too much to "
                "compare. Merge rare groups or rare classes."
            )

    def members(self, key: Key) -> NDArray[np.int64]:
        """Return cluster, pattern (its place in ``counts``) and rows of each pair of the two, (pairs, 3)."""
        parts = self._pairs[key]
        whole = np.concatenate(parts)
        if len(parts) > 1:
            patterns = len(self.counts[key])
            pairs, place = np.unique(whole[:, 0] * patterns + whole[:, 1], return_inverse=True)
            rows = np.bincount(place, whole[:, 2]).astype(np.int64)
            whole = np.column_stack([*np.divmod(pairs, patterns), rows])
            self._pairs[key] = [whole]
        return whole

    def _clusters(self, cluster: Column) -> NDArray[np.int64]:
        """Count the rows of each cluster; return the place of each row's cluster in ``clusters``."""
        codes, values, rows = occurring(cluster)
        for value, count in zip(values, rows, strict=True):
            self.clusters[value] = self.clusters.get(value, 0) + count
        return np.array([self._places.setdefault(value, len(self._places)) for value in values], np.int64)[codes]

    def _add_members(
        self, key: Key, cluster: NDArray[np.int64], inverse: NDArray[np.int64], there: Sequence[Pattern]
    ) -> None:
        """Count the rows of each (cluster, pattern) of a batch, whose rows have the patterns ``there[inverse]``."""
        places = {pattern: place for place, pattern in enumerate(self.counts[key])}
        own = np.array([places[pattern] for pattern in there], np.int64)[inverse]
        pairs, rows = np.unique(cluster * len(places) + own, return_counts=True)
        found = np.column_stack([*np.divmod(pairs, len(places)), rows])
        self._pairs.setdefault(key, []).append(found)
        if sum(map(len, self._pairs[key][1:])) > MOST_MEMBERS:
            self.members(key)

    def group_columns(self, groups: Mapping[str, Column], count: NDArray[np.int64] | None = None) -> dict[Key, Column]:
        """Return the group columns of a batch, as texts or None, and their crossing if it is requested.

        ``count`` as :meth:`add` takes it.

        Raises:
            DataError: as :meth:`add`, about groups.
        """
        columns: dict[Key, Column] = {name: self._members(name, column) for name, column in groups.items()}
        if self.intersect:
            columns[tuple(groups)] = self._crossing(list(columns.values()))
        for key, (codes, values) in columns.items():
            self._meet(key, values, np.bincount(codes, count, len(values)).astype(np.int64).tolist())
        return columns

    def refuse_ids(self, min_count: int) -> None:
        """Raise :class:`DataError` for a column of many groups of which no two have ``min_count`` rows.

        It may hold ids or names of people, which are never printed, and nothing could be compared.
        """
        for name, title in self.groups.items():
            refuse_ids(title, self.met.get(name, {}).values(), min_count)

    def _meet(self, key: Key, groups: Sequence[Hashable], rows: Sequence[int]) -> None:
        met = self.met.setdefault(key, {})
        for group, number in zip(groups, rows, strict=True):
            met[group] = met.get(group, 0) + number
        if len(met) > MOST_NUMBERS and isinstance(key, str) and key not in self.numbered:
            self._check_numbers(key, met)
        if len(met) > MOST_GROUPS:
            raise self._too_many(key)
        if {None, MISSING_GROUP} <= met.keys():
            raise DataError(
                f"{self._title(key)} has a group named {MISSING_GROUP!r} and missing values, which get that name. "
                "Rename the group, or leave its field empty."
            )

    def _classes(
        self, title: str, column: Column, rows_of: dict[Hashable, int], count: NDArray[np.int64] | None
    ) -> Column:
        codes, values, rows = occurring(column)
        if count is not None:
            rows = np.bincount(codes, count, len(values)).astype(np.int64).tolist()
        if len(values) <= MOST_CLASSES:
            for value, number in zip(values, rows, strict=True):
                _text(value, title)
                rows_of[value] = rows_of.get(value, 0) + number
        if max(len(values), len(rows_of)) > MOST_CLASSES:
            raise DataError(
                f"{title} has more than {MOST_CLASSES} different values: is this an id or a score? {TO_CLASSES} A "
                "number that is predicted, such as a price, is audited with --numbers (numbers=True)."
            )
        return codes, values

    def _members(self, name: str, column: Column) -> Column:
        codes, values, _ = occurring(column)
        if len(values) > MOST_GROUPS:
            if name not in self.numbered:
                self._check_numbers(name, values)
            raise self._too_many(name)
        return codes, [None if value is None else _text(value, self.groups[name]) for value in values]

    def _check_numbers(self, name: str, values: Collection[Hashable]) -> None:
        """Refuse a column of many numbers: few rows would have each, and an id or an age would pass for groups."""
        known = [value for value in values if value is not None]
        if len(known) > MOST_NUMBERS and all_numbers(known):
            raise DataError(
                f"{self.groups[name]} has more than {MOST_NUMBERS} different numbers: is this an age, an id, a "
                f"probability? Use --bins "
                f"{printable(name)}=25,40,60 or {printable(name)}=quantiles:4 (in Python bins=), or leave it out. If "
                f"the numbers are codes of groups: --bins {printable(name)}={VALUES}."
            )

    def _crossing(self, columns: Sequence[Column]) -> Column:
        """Cross columns pair by pair, so that no more is ever held than the crossings that occur."""
        codes, names = columns[0]
        groups: list[tuple[Hashable, ...]] = [(name,) for name in names]
        for own_codes, own_names in columns[1:]:
            codes, pairs = pd.factorize(codes * len(own_names) + own_codes)
            if len(pairs) > MOST_GROUPS:
                raise self._too_many(tuple(self.groups))
            groups = [(*groups[pair // len(own_names)], own_names[pair % len(own_names)]) for pair in pairs.tolist()]
        return codes, list(groups)

    def _title(self, key: Key) -> str:
        return self.groups[key] if isinstance(key, str) else f"The crossing of {', '.join(map(quoted, key))}"

    def _too_many(self, key: Key) -> DataError:
        way_out = (
            "Is this an id or a score? Name a column of groups, or cut numbers into ranges first."
            if isinstance(key, str)
            else "Is one of these columns an id or a score? Cross fewer columns, or merge rare groups."
        )
        return DataError(f"{self._title(key)} has more than {MOST_GROUPS:,} different groups. {way_out}")


def refuse_ids(title: str, rows: Collection[int], min_count: int) -> None:
    """Raise :class:`DataError` for many groups of which no two have ``min_count`` of these ``rows`` of each."""
    if len(rows) > MOST_NUMBERS and sum(number >= min_count for number in rows) < 2:
        raise DataError(
            f"{title} has {len(rows):,} different groups, and no two of them have {min_count} rows: is this an id? "
            "Name a column of groups, or merge rare ones."
        )


def _text(value: Hashable, title: str) -> str:
    try:
        text = str(value)
    except ValueError:  # a whole number of more than 4,300 digits
        text = " " * (LONGEST_VALUE + 1)
    if len(text) > LONGEST_VALUE:
        raise DataError(
            f"{title} holds a value of more than {LONGEST_VALUE:,} characters: is this a column of texts? Classes and "
            "groups have short names."
        )
    return text


def crossed(columns: Sequence[Column]) -> NDArray[np.int64]:
    """Return one code for each row, of what it has in all columns."""
    flat = columns[0][0].astype(np.int64)  # a copy, counted on in place
    for codes, values in columns[1:]:
        if len(values) > 1:
            flat *= len(values)
            flat += codes
    return flat


def patterns_at(places: NDArray[np.int64], columns: Sequence[Column]) -> list[Any]:
    """Return what stands behind codes that :func:`crossed` returned: a tuple with a value of each column."""
    combined = np.unravel_index(places, [len(values) for _, values in columns])
    named = ([values[code] for code in codes] for codes, (_, values) in zip(combined, columns, strict=True))
    return list(zip(*named, strict=True))


def occurring_codes(flat: NDArray[np.int64], columns: Sequence[Column]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the codes that occur, and how many rows have each."""
    if np.prod([len(values) for _, values in columns]) > MOST_COUNTED_CELLS:
        return np.unique(flat, return_counts=True)
    counted = np.bincount(flat)
    places = np.flatnonzero(counted)
    return places, counted[places]
