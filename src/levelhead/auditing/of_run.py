"""What a run folder says of its own predictions: which file, which columns, which class; reads records alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet

from levelhead.plain_yaml import read_yaml
from levelhead.storage import as_written, is_run, read_record, refuse_strange_files, rehearsed, warn_of_rehearsal
from levelhead.types import DataError

OUTCOMES = "label", "prediction"
SCORE = "probability_"


@dataclass(frozen=True)
class OwnPredictions:
    """The predictions of an evaluated run: their ``file``, its columns of groups, ids and clusters, and the classes."""

    file: Path
    groups: tuple[str, ...]
    ids: str | None
    cluster: str | None
    classes: tuple[str, ...]

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
    return OwnPredictions(file, groups, None if first in OUTCOMES else first, cluster, classes)
