"""Open a finished run, and run its network on a split with the groups of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from levelhead.attention.capture import Captured, capture
from levelhead.data import Examples, Groups, Split
from levelhead.report.record import Finding
from levelhead.runs.finished import open_finished
from levelhead.runs.recipe import Experiment
from levelhead.types import ConfigError, DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Source(Finding):
    """Which run, split and attribute a figure is about, and how many rows each group has."""

    run: str
    data: str
    method: str
    seed: int
    split: str
    attribute: str
    groups: dict[str, int]


@dataclass(frozen=True)
class OpenedRun:
    """A finished run with its network and one split, whose rows know their group of one attribute."""

    source: Source
    experiment: Experiment
    examples: Examples
    groups: Groups
    model: Any
    device: torch.device

    @property
    def split(self) -> Split:
        """The split that the rows are of."""
        return cast(Split, self.source.split)

    def passes(self) -> Iterator[Captured]:
        """Run the network over the split and yield what its last layer computed, batch by batch."""
        return capture(
            self.model, self.examples.inputs, self.experiment.train.evaluation_batch_size, device=self.device
        )


def open_run(folder: Path, split: Split, data_root: Path | None, attribute: str | None) -> OpenedRun:
    """Open a finished run for a figure by one ``attribute`` (None: the first).

    Raises :class:`~levelhead.types.LevelheadError` for a run that is not finished, and for groups that have no rows.
    """
    run = open_finished(folder, data_root, running=["data"])  # it shows its rows; how they were trained on, it does not
    run.warn_of_changes(split)
    experiment = run.experiment
    everything = {groups.attribute: groups for groups in experiment.data.require_groups(split, attribute=attribute)}
    if attribute is not None and attribute not in everything:
        raise ConfigError(f"{attribute!r} is no sensitive attribute of this run; there is {', '.join(everything)}.")
    groups = everything[attribute or next(iter(everything))]
    counts = torch.bincount(groups.values, minlength=len(groups.names)).tolist()
    sizes = dict(zip(groups.names, counts, strict=True))
    empty = [name for name, size in sizes.items() if size == 0]
    if empty or len(sizes) < 2:
        raise DataError(
            f"Groups cannot be compared by {groups.attribute!r}: no row of the {split} split belongs to "
            f"{', '.join(map(repr, empty)) or 'a second group'}. Choose another --split or --attribute."
        )
    source = Source(folder.resolve().name, **run.about, split=split, attribute=groups.attribute, groups=sizes)
    model = run.load_model()
    return OpenedRun(source, experiment, run.prepared(split, model), groups, model, run.device)
