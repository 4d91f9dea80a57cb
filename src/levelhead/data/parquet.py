"""Sets of pictures in parquet files in the layout of the Hugging Face hub, whose columns are known.

Only the columns that are requested are opened: training asks for the picture's bytes and the target. The picture's
``path`` stays closed as well, because file names can say what labels do not (UTKFace's hold age, gender and race).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from levelhead.csv_form import whole
from levelhead.data.base import SPLITS, Inputs, Split, dataset_folder
from levelhead.data.cache import picture_inputs
from levelhead.data.table_set import FileTable, KnownSet, Rows
from levelhead.data.text_files import AGAIN, table_files
from levelhead.types import DataError, require_columns

PICTURES = "image"


@dataclass(frozen=True)
class ParquetTable(FileTable):
    """A parquet file of pictures and attributes."""

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return columns as texts, and the number of rows."""
        if columns:
            return super().read(columns)
        with whole(self.path, AGAIN):
            return {}, pq.read_metadata(self.path).num_rows

    def pictures(self) -> list[bytes | None]:
        """Return the bytes of all pictures; leaves their paths closed."""
        require_columns(self.header(), [PICTURES], self.name)
        with whole(self.path, AGAIN):
            kind = pq.read_schema(self.path).field(PICTURES).type
            if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
                raise DataError(
                    f"{self.name}: column 'image' holds {kind}; it must hold pictures as struct<bytes, path>."
                )
            column = pq.read_table(self.path, columns=[f"{PICTURES}.bytes"]).column(0)
            if pa.types.is_struct(column.type):  # pyarrow versions differ in whether they unwrap the one field
                column = pc.struct_field(column, "bytes")
            encoded: list[bytes | None] = column.to_pylist()
        return encoded


@dataclass(frozen=True)
class ParquetSet(KnownSet):
    """Base of the sets in ``folder`` below the data root: ``train.parquet``, or in parts, and so on."""

    folder: ClassVar[str]

    def _tables(self) -> list[ParquetTable]:
        folder = dataset_folder(self.root, self.folder)
        return [
            ParquetTable(str(path), split, path)
            for split in SPLITS
            for path in table_files(folder, split, suffixes=[".parquet"])
        ]

    def _load(self, rows: Rows, split: Split) -> Inputs:
        encoded = [picture for table, _ in rows.tables for picture in table.pictures()]

        def where(position: int) -> str:
            table, row = rows.place(position)
            return f"{table.name}: the picture in row {row}"

        return picture_inputs(encoded, where)
