"""Parquet files in the layout of the Hugging Face hub, read one column at a time.

Only the columns that are requested are opened: training asks for the picture's bytes and the target. The picture's
``path`` stays closed as well, because file names can say what labels do not (UTKFace's hold age, gender and race).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from levelhead.csv_form import whole
from levelhead.data.base import Examples, Split, refuse_one_class
from levelhead.data.cache import picture_inputs
from levelhead.types import DataError, require_columns

AGAIN = "; fetch it again."


def split_files(folder: Path, split: Split) -> list[Path]:
    """Return the parquet files of a split, in order: ``train.parquet``, or all of ``train-00000-of-00002.parquet`` etc.

    A missing part, or a single file beside parts, is an error: rows would be missing or counted twice.
    """
    single, parts = folder / f"{split}.parquet", sorted(folder.glob(f"{split}-*-of-*.parquet"))
    there = ", ".join(sorted(file.name for file in folder.iterdir())) or "nothing"
    if not parts:
        if not single.is_file():
            raise DataError(f"{folder} has no {split}.parquet and no {split}-*-of-*.parquet; it holds {there}.")
        return [single]
    count = int(parts[0].stem.rpartition("-")[2]) if parts[0].stem.rpartition("-")[2].isdigit() else 0
    if single.is_file() or [file.name for file in parts] != [
        f"{split}-{number:05d}-of-{count:05d}.parquet" for number in range(count)
    ]:
        raise DataError(f"{folder} does not hold one whole set of files of the {split} split; it holds {there}.")
    return parts


def check_columns(files: Sequence[Path], columns: Sequence[str]) -> list[list[str]]:
    """Raise :class:`DataError` if a file cannot be opened or lacks a column; reads no data.

    Returns the names of all columns of each file.
    """
    tables = []
    for file in files:
        if not file.is_file():
            raise DataError(f"{file} is not a regular file; fetch it again.")
        with whole(file, AGAIN):
            known: list[str] = pq.read_schema(file).names
        require_columns(known, columns, str(file))
        tables.append(known)
    return tables


def read_column(files: Sequence[Path], column: str, codes: int) -> Tensor:
    """Return one column of codes from 0 to ``codes`` - 1, or of truth values, as int64 (n,); opens nothing else."""
    check_columns(files, [column])
    parts = []
    for file in files:
        with whole(file, AGAIN):
            values = pq.read_table(file, columns=[column]).column(0)
        if values.null_count:
            raise DataError(f"{file}: column {column!r} is empty in {values.null_count} of {len(values)} rows.")
        if not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
            raise DataError(f"{file}: column {column!r} holds {values.type}, not whole numbers or truth values.")
        parts.append(torch.tensor(values.to_pylist(), dtype=torch.int64))
    column_codes = torch.cat(parts)
    if len(column_codes) and not 0 <= int(column_codes.min()) <= int(column_codes.max()) < codes:
        found = ", ".join(map(str, column_codes.unique().tolist()[:8]))
        raise DataError(f"{files[0].parent}: column {column!r} holds codes outside 0 to {codes - 1}: {found}.")
    return column_codes


def read_encoded(files: Sequence[Path]) -> tuple[list[bytes | None], Callable[[int], str]]:
    """Return the bytes of the ``image`` column, and a function that names a picture; leaves the path closed."""
    check_columns(files, ["image"])
    for file in files:
        kind = pq.read_schema(file).field("image").type
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            raise DataError(f"{file}: column 'image' holds {kind}; it must hold pictures as struct<bytes, path>.")
    encoded: list[bytes | None] = []
    places: list[tuple[Path, int]] = []
    for file in files:
        with whole(file, AGAIN):
            column = pq.read_table(file, columns=["image.bytes"]).column(0)
            if pa.types.is_struct(column.type):  # pyarrow versions differ in whether they unwrap the one field
                column = pc.struct_field(column, "bytes")
            contents = column.to_pylist()
        encoded += contents
        places += [(file, row) for row in range(len(contents))]

    def where(position: int) -> str:
        file, row = places[position]
        return f"{file}: the picture in row {row}"

    return encoded, where


def read_examples(files: Sequence[Path], target: str, labels: Tensor, class_names: tuple[str, ...]) -> Examples:
    """Return the examples of a split, or raise :class:`DataError` if all of them are of one class."""
    refuse_one_class(labels, class_names, target, str(files[0]))
    encoded, where = read_encoded(files)
    return picture_inputs(encoded, where).with_labels(labels, class_names)
