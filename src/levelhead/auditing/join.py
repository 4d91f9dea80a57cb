"""Groups that stand in another file: join them to a file of predictions by an id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from levelhead.auditing.files import SEPARATORS
from levelhead.report.text import counted
from levelhead.types import ConfigError, DataError, listed, quoted


@contextmanager
def joined_file(predictions: Path, others: Path, on: str, columns: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield a temporary file of ``predictions`` with those of ``columns`` that it lacks, and a sentence on the match.

    Rows are matched by the text of the column ``on``, to the letter: 1 and 01 are two ids. A row whose id the other
    file lacks has no group; what is done with such rows is the audit's matter.

    Args:
        predictions: a ``.csv``, ``.tsv`` (also ``.gz``) or ``.parquet`` file with one prediction a row.
        others: such a file with one row for each id.
        on: name of the column of ids, in both files.
        columns: what the audit reads, from either file.

    Raises:
        ConfigError: nothing would be joined, or a column stands in both files.
        DataError: a file cannot be read, lacks a column, names an id twice or without one, or no id is found.
    """
    there, here = _header(others), _header(predictions)
    for path, header in ((predictions, here), (others, there)):
        if on not in header:
            raise DataError(f"{path} has no column {quoted(on)} (--on). Columns there: {listed(header, 20)}.")
    wanted = [name for name in dict.fromkeys(columns) if name != on and name in there]
    if twice := [name for name in wanted if name in here]:
        raise ConfigError(f"{quoted(twice[0])} stands in {predictions} and in {others}: leave it out of one of them.")
    if not wanted:
        raise ConfigError(f"None of the columns {listed(columns, 20)} stands in {others}: leave out --join.")
    known = _read(others, [on, *wanted])
    rows = _read(predictions, [on, *(name for name in dict.fromkeys(columns) if name != on and name in here)])
    ids, own = (table[on].cast(pyarrow.string()).combine_chunks() for table in (known, rows))
    absent = pyarrow.compute.or_kleene(pyarrow.compute.is_null(ids), pyarrow.compute.equal(ids, "")).fill_null(True)
    if without := int(pyarrow.compute.sum(absent).as_py() or 0):
        raise DataError(f"{others}, column {quoted(on)}: {counted(without, 'row')} without an id. Leave them out.")
    counts = pyarrow.compute.value_counts(ids)
    repeated = counts.filter(pyarrow.compute.greater(counts.field("counts"), 1))
    if len(repeated):
        raise DataError(
            f"{others}, column {quoted(on)}: {counted(len(repeated), 'id')} more than once, the first being "
            f"{quoted(repeated[0]['values'].as_py())}. One row for each id, please."
        )
    places = pyarrow.compute.index_in(own, value_set=ids)
    found, different = len(places) - places.null_count, len(pyarrow.compute.unique(places.drop_null()))
    if not found:
        raise DataError(
            f"No id of {predictions} is in {others}. Ids there are such as {_examples(ids)}, and in the predictions "
            f"such as {_examples(own)}: are they of the same kind, with the same leading zeros?"
        )
    for name in wanted:
        rows = rows.append_column(name, known[name].combine_chunks().take(places))
    said = (
        f"{found:,} of {len(places):,} rows ({found / len(places):.1%}) found their id in {others.name}"
        + (f"; {len(places) - found:,} have no group" if found < len(places) else "")
        + (f"; {counted(len(ids) - different, 'row')} of {others.name} not needed" if different < len(ids) else "")
        + "."
    )
    with TemporaryDirectory() as folder:
        parquet = predictions.suffix.lower() == ".parquet"
        file = Path(folder) / ("joined.parquet" if parquet else "joined.csv")
        (pyarrow.parquet.write_table if parquet else pyarrow.csv.write_csv)(rows, file)
        yield file, said


def _kind(path: Path) -> str:
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if not path.is_file():
        raise DataError(f"There is no file {path}. Check the path.")
    if suffix not in {*SEPARATORS, ".parquet"}:
        raise DataError(f"{path} is of an unknown kind. Pass a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file.")
    return suffix


def _header(path: Path) -> list[str]:
    suffix = _kind(path)
    try:
        if suffix == ".parquet":
            names: list[str] = pyarrow.parquet.read_schema(path).names
        else:
            with pyarrow.csv.open_csv(path, parse_options=_parse(suffix)) as reader:
                names = reader.schema.names
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as {suffix[1:]} ({str(error).splitlines()[0]}).") from None
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"{path} has the column {quoted(twice[0])} more than once: rename one.")
    return names


def _read(path: Path, columns: Sequence[str]) -> pyarrow.Table:
    """Return columns of a file: texts to the letter of a csv, the types of a parquet file."""
    suffix = _kind(path)
    try:
        if suffix == ".parquet":
            return pyarrow.parquet.read_table(path, columns=list(columns))
        options = pyarrow.csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pyarrow.string()),
            strings_can_be_null=False,
        )
        return pyarrow.csv.read_csv(path, parse_options=_parse(suffix), convert_options=options)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as {suffix[1:]} ({str(error).splitlines()[0]}).") from None


def _parse(suffix: str) -> pyarrow.csv.ParseOptions:
    return pyarrow.csv.ParseOptions(delimiter=SEPARATORS[suffix], newlines_in_values=True)


def _examples(ids: pyarrow.Array) -> str:
    return " and ".join(quoted(str(value)) for value in ids[:2].to_pylist())
