"""Read the columns that an audit needs, and no others, from csv, tsv or parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet

from levelhead.types import DataError, require_columns

# What counts as missing in a label or prediction column. In a group column only an empty field does: "NA" or
# "None" may well be the name of a group.
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_columns(path: Path, outcomes: Sequence[str], groups: Sequence[str] = ()) -> pd.DataFrame:
    """Read columns of a file of predictions, one row a prediction.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file.
        outcomes: names of the label and prediction columns.
        groups: names of the group columns.

    Returns:
        a frame with these columns in the order asked for. Missing values are kept as NaN.

    Raises:
        DataError: the file is missing, unreadable, empty, of an unknown kind, or lacks a column.
    """
    path = Path(path)
    wanted = list(dict.fromkeys([*outcomes, *groups]))
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if not path.is_file():
        raise DataError(f"There is no file {path}. Check the path.")
    if suffix not in {*SEPARATORS, ".parquet"}:
        raise DataError(f"{path} is of an unknown kind. Pass a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file.")
    try:
        if suffix == ".parquet":
            require_columns(list(pyarrow.parquet.read_schema(path).names), wanted, str(path))
            frame = pd.read_parquet(path, columns=wanted)
        else:
            separator = SEPARATORS[suffix]
            header = pd.read_csv(path, sep=separator, nrows=0)
            require_columns([str(name) for name in header.columns], wanted, str(path))
            frame = pd.read_csv(
                path,
                sep=separator,
                usecols=wanted,
                low_memory=False,
                keep_default_na=False,
                na_values={name: MISSING if name in outcomes else [""] for name in wanted},
            )
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty. Write a header line and one line for each prediction.") from None
    except (OSError, ValueError, EOFError, pd.errors.ParserError) as error:
        # pyarrow's errors are ValueErrors and OSErrors; its messages can be long.
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} cannot be read as {suffix[1:]} ({first_line}). Is it complete and UTF-8?") from None
    if frame.empty:
        raise DataError(f"{path} has a header but no rows. Write one line for each prediction.")
    return frame[wanted]
