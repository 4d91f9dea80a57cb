"""Open a table: a data frame, files, or a run folder, which says what its own predictions are; reads records alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

from levelhead.arrays import check_path
from levelhead.plain_yaml import read_yaml
from levelhead.storage import as_written, is_run, read_record, refuse_strange_files, rehearsed, warn_of_rehearsal
from levelhead.tables.files import File, Stored, source_of
from levelhead.tables.join import Joined, both_ids
from levelhead.types import ConfigError, DataError

OUTCOMES = "label", "prediction"
SCORE = "probability_"


class OwnPredictions(File):
    """The predictions of an evaluated run in ``folder``: its columns of groups, ids and clusters, and the classes."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        groups: tuple[str, ...],
        ids: str | None,
        cluster: str | None,
        classes: tuple[str, ...],
    ) -> None:
        super().__init__(path)
        self.folder, self.groups, self.ids, self.cluster, self.classes = folder, groups, ids, cluster, classes

    @property
    def positive(self) -> str | None:
        """The positive class, the data set's second; None for more than two."""
        return self.classes[1] if len(self.classes) == 2 else None

    @property
    def score(self) -> str | None:
        """The column of the positive class's probability."""
        return None if self.positive is None else SCORE + self.positive


def own_predictions(folder: Path | None, split: str = "test") -> OwnPredictions | None:
    """Return what a run folder says of its predictions of a split; None for a path that is no run folder.

    Raises :class:`~levelhead.types.DataError` for a run that is not evaluated, with the command to type.
    """
    if folder is None or not is_run(folder):
        return None
    refuse_strange_files(folder)
    record, file = folder / f"evaluation-{split}.json", folder / f"predictions-{split}.parquet"
    if not record.is_file() or not file.is_file():
        raise DataError(f"{folder} is not evaluated: run `levelhead evaluate {folder} --split {split}` first.")
    evaluated = read_record(record, run=dict, by_attribute=dict)
    with as_written(file):
        columns = [str(name) for name in pyarrow.parquet.read_schema(file).names]
        classes = tuple(name.removeprefix(SCORE) for name in columns if name.startswith(SCORE))
        first = columns[0]
    config = folder / "config.yaml"
    with as_written(config):
        recipe = read_yaml(config.read_text(encoding="utf-8"), str(config))
        warn_of_rehearsal(rehearsed(recipe))
    groups = tuple(name for name in evaluated["by_attribute"] if name in columns)
    cluster = "cluster" if evaluated.get("clusters") and "cluster" in columns else None
    return OwnPredictions(file, folder, groups, None if first in OUTCOMES else first, cluster, classes)


def table_of(data: Any, split: str = "test") -> Stored:
    """Return a table: a data frame, a path, a glob, a list of paths, or the predictions of a run folder for a split.

    Raises:
        DataError: there is no such file, it is of an unknown kind, or the run is not evaluated.
        ConfigError: ``data`` is no table, or a run is named beside other files.
    """
    named = data if isinstance(data, list) else [data]
    paths = [Path(one) for one in named if isinstance(one, (str, Path))]
    for path in paths:
        check_path("The name of a table", path)
    if len(paths) > 1 and (runs := [path for path in paths if is_run(path)]):
        raise ConfigError(f"{runs[0]} is a run; audit runs one at a time.")
    own = own_predictions(paths[0], split) if len(paths) == len(named) == 1 else None
    return source_of(data[0] if isinstance(data, list) and len(data) == 1 else data) if own is None else own


def names_run(data: Any) -> bool:
    """Whether a table is the folder of a run, which says itself what its columns are."""
    named = data[0] if isinstance(data, list) and len(data) == 1 else data
    return isinstance(named, OwnPredictions) or (isinstance(named, (str, Path)) and is_run(Path(named)))


def joined(source: Stored, join: Any, on: str | None, columns: Sequence[str | None]) -> Stored:
    """Return the rows of a table with those of ``join``, if it is given, matched by the ids ``on``."""
    if join is None or on is None:
        return source
    left, right = both_ids(on, source.file_of("").header())
    return Joined(source, join, left, [name for name in columns if name], right)


def paths_of(source: Any) -> list[Path]:
    """Return the files of a table; none of a frame, and of joined ones those of the predictions."""
    source = getattr(source, "predictions", source)
    files = getattr(source, "files", [source])
    return [file.path for file in files if isinstance(file, File) and hasattr(file, "path")]
