"""Write a table with the decisions of a rule beside all of its columns."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from levelhead.csv_form import harmless, records, suffix_of
from levelhead.storage import write_atomically
from levelhead.tables.files import LOADERS, SEPARATORS, File
from levelhead.types import ConfigError, DataError, listed, quoted

BEFORE = "_before_rule"


def check_decided(path: Path, out: Path, column: str) -> None:
    """Raise :class:`ConfigError` unless ``out`` can hold the rows of ``path`` with more columns; before any work.

    ``column`` is the name of the decision; that before the rule has :data:`BEFORE` behind it.
    """
    file = File(path)
    if file.kind in LOADERS:
        raise ConfigError(f"--out keeps all columns of {path} as they are: save it as .csv or .parquet first.")
    kinds = tuple(SEPARATORS) if file.is_text else (".parquet",)
    if out.suffix.lower() not in kinds:
        raise ConfigError(f"--out {out}: the decisions need a {listed(kinds)} file.")
    if taken := [name for name in (column, column + BEFORE) if name in file.header()]:
        raise ConfigError(
            f"{path} has a column {quoted(taken[0])} already. Choose another name for the decision with --column."
        )


def write_decided(
    path: Path, out: Path, column: str, classes: tuple[str, str], after: NDArray[np.bool_], before: NDArray[np.bool_]
) -> None:
    """Write the rows of a file in their order, with all columns as they are, and the class before and after a rule.

    Args:
        path: the table.
        out: where to write, in one step.
        column: name of the decision.
        classes: (negative, positive).
        after: (rows,) decisions of the rule.
        before: (rows,) those of the threshold.

    Raises:
        DataError: the file has changed since it was read.
    """
    file, named = File(path), {column: after, column + BEFORE: before}

    def write_text(temporary: Path) -> None:
        safe = list(map(harmless, classes))
        form = file.form()
        # As the rows are divided, unless the name says otherwise: nobody reads a .csv for tabs.
        same = out.suffix.lower() == suffix_of(path) or form.decimal_commas
        divider = form.delimiter if same else SEPARATORS[out.suffix.lower()]
        with temporary.open("w", newline="", encoding="utf-8") as target:
            writer = csv.writer(target, delimiter=divider)
            rows = records(path, form, "Was it changed while it was read?")
            writer.writerow([*next(rows), *map(harmless, named)])
            decided = zip(*(one.astype(int).tolist() for one in named.values()), strict=True)
            for row, places in itertools.zip_longest(rows, decided):
                if row is None or places is None:
                    raise DataError(f"{path} changed while it was read. Run levelhead apply again.")
                writer.writerow([*row, *(safe[at] for at in places)])

    def write_parquet(temporary: Path) -> None:
        at = 0
        with pyarrow.parquet.ParquetFile(path) as source:
            schema = source.schema_arrow
            for name in named:
                schema = schema.append(pyarrow.field(name, pyarrow.string()))
            with pyarrow.parquet.ParquetWriter(temporary, schema) as target:
                for batch in source.iter_batches(use_threads=False):
                    part = slice(at, at := at + batch.num_rows)
                    more = [
                        pyarrow.array(classes).take(pyarrow.array(one[part].astype(np.int8))) for one in named.values()
                    ]
                    target.write_batch(pyarrow.RecordBatch.from_arrays([*batch.columns, *more], schema=schema))
        if at != len(after):
            raise DataError(f"{path} changed while it was read. Run levelhead apply again.")

    write_atomically(out, write_text if file.is_text else write_parquet)
