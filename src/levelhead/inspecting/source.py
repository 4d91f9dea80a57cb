"""Open a finished run, and run its network on a split with the groups of its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelhead.attention.capture import Captured, capture
from levelhead.data import Examples, Groups, Split
from levelhead.runs.finished import open_finished
from levelhead.runs.recipe import Experiment
from levelhead.storage import pictures_of, write_picture
from levelhead.types import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Array = NDArray[np.float64]
DOTS_PER_INCH = 120
NUMBERS_UP_TO = 6  # patches a side: in a finer grid, numbers in the cells could not be read


class RunFigure(ABC):
    """What a figure shows, and how it is drawn."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the aggregates behind the picture, ready for JSON; nothing in it belongs to a single row."""

    @abstractmethod
    def draw(self) -> Figure:
        """Return a new matplotlib figure, readable in greyscale."""

    def save(self, path: Path) -> list[Path]:
        """Write the files of :func:`pictures_of` atomically and return them; equal figures give equal bytes."""
        import matplotlib

        written = pictures_of(path)
        with matplotlib.rc_context({"svg.hashsalt": "levelhead", "font.size": 9, "hatch.linewidth": 0.6}):
            figure = self.draw()
            for picture in written:
                write_picture(picture, figure, DOTS_PER_INCH)
        return written


@dataclass(frozen=True)
class Source:
    """Which run, split and attribute a figure is about, and how many rows each group has."""

    run: str
    data: str
    method: str
    seed: int
    split: str
    attribute: str
    groups: dict[str, int]

    @property
    def title(self) -> str:
        """Return the heading of the picture."""
        return f"{self.data}, {self.method}, seed {self.seed}, {self.split} split"

    @property
    def legend(self) -> str:
        """Return how the attribute is named in a legend."""
        return self.attribute if self.data == "portraits" else f"{self.attribute}, as annotated"


@dataclass(frozen=True)
class OpenedRun:
    """A finished run with its network and one split, whose rows know their group of one attribute.

    ``index`` (rows,) are the rows that figures are about, positions in the inputs; labels and groups are theirs.
    """

    source: Source
    experiment: Experiment
    examples: Examples
    groups: Groups
    model: Any
    device: torch.device
    index: Tensor

    @property
    def split(self) -> Split:
        """The split that the rows are of."""
        return cast(Split, self.source.split)

    def of_rows(self, index: Tensor, member: Tensor, names: tuple[str, ...]) -> OpenedRun:
        """Return the run with the rows ``index`` alone, of which ``member`` (rows,) int64 says the group."""
        counts = torch.bincount(member, minlength=len(names)).tolist()
        return replace(
            self,
            source=replace(self.source, groups=dict(zip(names, counts, strict=True))),
            examples=replace(self.examples, labels=self.examples.labels[index]),
            groups=Groups(self.groups.attribute, member, names),
            index=index,
        )

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
    every = torch.arange(len(groups.values))
    return OpenedRun(source, experiment, run.prepared(split, model), groups, model, run.device, every)
