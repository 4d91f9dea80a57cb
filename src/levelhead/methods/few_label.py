"""Take the group out of a score along one direction, found from a few rows whose groups are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from levelhead.data.text_files import read_columns
from levelhead.methods.directions import standardized, without_directions
from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, LastLayerMethod, solve
from levelhead.report.marks import FEW_GROUPS, PLACEBO
from levelhead.types import ConfigError, DataError, quoted

FEWEST = 5
"""Rows that each group needs among those whose groups are known."""

PROBE_PENALTY = 7.0
"""Penalty of the probe's squared weights, divided by the rows it is fitted on; features have unit variance."""

LABEL_WEIGHT = 3.0
"""Scale of the classes among the probe's inputs: large, so that the penalty hardly holds their weights down."""


@dataclass(frozen=True)
class FewGroups(LastLayerMethod):
    """A method that gets the groups of a few validation rows.

    They are the ``rows`` validation rows with a known group drawn by the run's seed and ``draw``, or those of the file
    ``groups``, columns ``row`` and ``group``. ``placebo=True`` shuffles the known groups: what the same steps do
    without any knowledge.
    """

    knowledge: ClassVar[str | None] = FEW_GROUPS
    rows: int = 200
    draw: int = 0
    groups: Path | None = None
    placebo: bool = False

    def __post_init__(self) -> None:
        if self.rows < 2 * FEWEST or self.draw < 0:
            raise ConfigError(f"method.rows must be at least {2 * FEWEST}, and method.draw 0 or more.")

    @property
    def told(self) -> str | None:
        """The mark with the number of rows, or the name of the file that holds them."""
        told = f"{FEW_GROUPS} {self.rows}" if self.groups is None else f"{FEW_GROUPS} of {self.groups.name}"
        return told + PLACEBO * self.placebo

    @property
    def group_splits(self) -> tuple[str, ...]:
        """No split where a file tells the groups."""
        return ("validation",) if self.groups is None else ()

    def validation_groups(self, read: Callable[[], Tensor], rows: int, seed: int) -> Tensor | None:
        """Return the known groups of rows; all others are -1. Drawn are rows that have a group."""
        told = torch.full((rows,), -1)
        if self.groups is not None:
            chosen, codes = read_few_groups(self.groups, rows)
            told[chosen] = codes
            return told
        if self.rows > rows:
            raise ConfigError(
                f"method.rows is {self.rows}, and there are only {rows} validation rows: lower it (--try "
                "method.rows=N), or take dfr."
            )
        groups = read()
        with_group = np.flatnonzero(groups.numpy() >= 0)
        if self.rows > len(with_group):
            raise DataError(
                f"method.rows is {self.rows}, and only {len(with_group)} of {rows} validation rows have a group: lower "
                "it (--try method.rows=N)."
            )
        drawn = np.random.default_rng((seed, self.draw)).choice(with_group, self.rows, replace=False)
        told[drawn] = groups[drawn]
        return told

    def received(self, held: HeldOut) -> HeldOut:
        """Return the rows with the groups that the method works with: the known ones, or shuffled as a placebo."""
        if not self.placebo or held.groups is None:
            return held
        return replace(held, groups=shuffled_groups(held.groups, (held.seed, self.draw)))


@dataclass(frozen=True)
class FewLabel(FewGroups):
    """Find the direction that distinguishes groups from a few labelled rows, and take it out as far as accuracy allows.

    A logistic probe learns the group from the last layer's inputs and the class, on the rows with a known group.
    :func:`~levelhead.methods.directions.without_directions` takes the probe's direction out of the last
    layer, at a cost of at most ``budget`` of the validation rows. What remains is one linear layer. No group is needed
    to predict. Groups may be two or more.

    Source: derived here, docs/methods/few_label.md. To take out a linear probe's direction is the idea of Ravfogel et
    al., ACL 2020, arXiv:2004.07667; to refit the last layer alone that of Kirichenko et al., ICLR 2023,
    arXiv:2204.02937.
    """

    summary: ClassVar[str] = "a few group labels: removes the group direction from the last layer"
    budget: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.budget < 1:
            raise ConfigError("method few-label needs 0 < budget < 1")

    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the layer without the direction that distinguishes groups."""
        return without_group(self.received(held), self.budget)


def read_few_groups(file: Path, rows: int) -> tuple[Tensor, Tensor]:
    """Return positions in the validation split and codes of groups, both (some,) int64, from a file.

    Args:
        file: csv, tsv or parquet with the columns ``row``, a position from 0, and ``group``, any text.
        rows: of the validation split.

    Raises:
        DataError: no such file or column, an empty group, or a row that is not one, or is named twice.
    """
    columns = read_columns(file, ("row", "group"))
    positions = []
    for line, text in enumerate(columns["row"], start=2):
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) < rows):
            raise DataError(
                f"{file}, line {line}: row {quoted(text)} is not the position of a validation row, 0 to {rows - 1}."
            )
        positions.append(int(text))
    if empty := [line for line, text in enumerate(columns["group"], start=2) if not text.strip()]:
        raise DataError(f"{file}, line {empty[0]}: the group is empty. Fill it in, or leave the line out.")
    if len(set(positions)) < len(positions):
        twice = next(position for position in positions if positions.count(position) > 1)
        raise DataError(f"{file} names the row {twice} more than once.")
    codes = np.unique(columns["group"], return_inverse=True)[1]
    return torch.tensor(positions, dtype=torch.int64), torch.from_numpy(codes)


def shuffled_groups(groups: IntArray, seed: tuple[int, ...]) -> IntArray:
    """Return the groups (rows,) that are known, shuffled among their rows; -1 stays."""
    told, found = groups >= 0, groups.copy()
    found[told] = np.random.default_rng(seed).permutation(groups[told])
    return found


def without_group(held: HeldOut, budget: float) -> tuple[FloatArray, FloatArray]:
    """Return a last layer whose logits lean less on what distinguishes groups, at a cost of at most ``budget``.

    Args:
        held: held-out rows; the groups of some, or all, are known.
        budget: share of the rows by which the accuracy may fall.

    Raises:
        DataError: fewer than two groups, or fewer than 5 rows of one, are known.
    """
    mean, scale = standardized(held)
    directions = group_directions((held.features - mean) / scale, held.labels, held.groups, len(held.bias))
    return without_directions(held, directions, budget)


def group_directions(features: FloatArray, labels: IntArray, groups: IntArray | None, classes: int) -> FloatArray:
    """Return the directions that distinguish groups beside the class, (width, groups - 1).

    Args:
        features: (rows, width), of unit variance.
        labels: (rows,) classes.
        groups: (rows,), -1 where not told.
        classes: how many there are.
    """
    if groups is None:
        raise DataError("few-label needs the group of some validation rows; none was given.")
    told = groups >= 0
    codes = np.unique(groups[told], return_inverse=True)[1]
    sizes = np.bincount(codes)
    if len(sizes) < 2 or sizes.min() < FEWEST:
        raise DataError(
            f"The {told.sum()} rows with a known group hold {len(sizes)} group{'s' * (len(sizes) != 1)}, the "
            f"smallest with {min(sizes, default=0)} rows: give at least {FEWEST} rows of each of two groups or more."
        )
    one_hot = LABEL_WEIGHT * (np.eye(classes)[labels] - np.bincount(labels, minlength=classes) / len(labels))
    inputs = np.hstack([features, one_hot])[told]
    start = (np.zeros((len(sizes), inputs.shape[1])), np.zeros(len(sizes)))
    found, _ = solve(inputs, codes, np.full(len(codes), 1 / len(codes)), start, PROBE_PENALTY / len(codes))
    return np.asarray((found[1:] - found[0])[:, : features.shape[1]].T)
