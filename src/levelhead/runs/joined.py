"""Groups for the evaluation of a run that stand in another file than its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from levelhead.data import DataSet, Groups, Split
from levelhead.data.base import codes_of, refuse_taken_names
from levelhead.data.targets import ordered
from levelhead.tables.join import Joined
from levelhead.types import ConfigError, DataError


@dataclass(frozen=True)
class Join:
    """A ``file`` with ``columns`` of groups, one row an id: ``on`` is the column of ids there, None: as in the data."""

    file: Path
    columns: tuple[str, ...]
    on: str | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError("--join needs --group, a column of its file that holds groups.")
        refuse_taken_names(self.columns)

    def groups(self, data: DataSet, split: Split) -> tuple[Groups, ...]:
        """Return the groups of ``split``: a row whose id the file lacks has none.

        Raises:
            ConfigError: a column is a run's own.
            DataError: the data has no ids, or as :class:`levelhead.tables.join.Joined`.
        """
        ids = data.ids(split)
        if ids is None:
            if data.numbered_by_split:
                raise DataError(
                    f"Row numbers begin again in each table, and a fold has rows of all, so {self.file} cannot be "
                    "joined. Add --set data.id_column=COLUMN and --out FOLDER to `levelhead evaluate`, or train with "
                    "that column."
                )
            raise DataError("The run's data has no ids, so no file can be joined to it.")
        with TemporaryDirectory() as folder:
            rows = Path(folder) / f"predictions-{split}.parquet"
            pd.DataFrame({data.id_name: list(ids)}).to_parquet(rows, index=False)
            try:
                joined = Joined(rows, self.file, data.id_name, self.columns, self.on)
                found: dict[str, list[str]] = {name: [] for name in self.columns}
                for batch in joined.read(list(self.columns), plain=list(self.columns)):
                    for name, values in found.items():
                        values += ["" if value is None else str(value) for value in batch[name].to_pylist()]
            except (ConfigError, DataError) as error:  # nobody knows the temporary file
                raise type(error)(str(error).replace(str(rows), f"the {split} split")) from None
        return tuple(_groups(name, values, self.file) for name, values in found.items())


def _groups(name: str, values: Sequence[str], file: Path) -> Groups:
    values = [value if value.strip() else "" for value in values]
    names = ordered(set(values) - {""})
    if not names:
        raise DataError(f"{file}, column {name!r}: no row of the run has a group there.")
    return Groups(name, codes_of(values, names), names)


def groups_of(data: DataSet, split: Split, join: Join | None) -> tuple[Groups, ...]:
    """Return the groups of a split: the joined ones first, then the data's own."""
    if join is None:
        return data.groups(split)
    joined = join.groups(data, split)
    return (*joined, *(one for one in data.groups(split) if one.attribute not in join.columns))


def required_groups(data: DataSet, split: Split, join: Join | None) -> tuple[Groups, ...]:
    """Return :func:`groups_of`, or raise :class:`~levelhead.types.ConfigError` where there are none.

    Raises:
        ConfigError: there are none.
        DataError: a file is joined to validation rows whose ids may be those of test rows.
    """
    if join is None:
        return data.require_groups(split, partly=True)
    if split == "validation" and data.numbered_by_split:  # the file is joined to the test rows, too
        raise DataError(
            f"Row numbers begin again in each split, so {join.file} cannot tell validation rows from test rows. Train "
            "with --set data.id_column=COLUMN, a column whose ids differ."
        )
    return groups_of(data, split, join)
