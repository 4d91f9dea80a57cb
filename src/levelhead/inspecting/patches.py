"""Figure 4 of the paper: where the row that the classifier reads looks, by group."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from levelhead.attention.capture import Captured, attention_logits
from levelhead.data import Split
from levelhead.data.portraits import MASK_NAMES, Portraits
from levelhead.types import UnsupportedModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from levelhead.inspecting.source import NUMBERS_UP_TO, Array, OpenedRun, RunFigure, Source, open_run


@dataclass(frozen=True)
class GroupAttention:
    """Mean attention over the rows of one group with one label.

    ``attention`` (patches down, patches across): the mean share of the attention on patches, summing to 1, NaN where
    there are no rows, or where the network's attention is not finite; ``standard_error`` of the same shape;
    ``outside``: share of all attention on tokens that are no patch (the CLS token).
    """

    group: str
    label: str
    rows: int
    attention: Array
    standard_error: Array
    outside: float


@dataclass(frozen=True)
class AttentionFigure(RunFigure):
    """Mean attention of the readout row over patches, by group and label; ``cells`` by (label, group) names."""

    source: Source
    labels: tuple[str, ...]
    cells: dict[tuple[str, str], GroupAttention]

    def difference(self, label: str) -> tuple[Array, Array | None]:
        """Return the difference between groups within ``label``, and its standard error.

        Two groups: the second minus the first. More: the largest difference of any two, a patch at a time, without
        a standard error, as a largest of several has none that is simple.
        """
        cells = [self.cells[label, group] for group in self.source.groups]
        if len(cells) == 2:
            error = np.hypot(cells[0].standard_error, cells[1].standard_error)
            return cells[1].attention - cells[0].attention, error
        stacked = np.stack([cell.attention for cell in cells if cell.rows] or [cells[0].attention])
        return stacked.max(axis=0) - stacked.min(axis=0), None

    def to_dict(self) -> dict[str, Any]:
        """Return the grids with standard errors, and differences."""
        cells = [
            {
                "group": cell.group,
                "label": cell.label,
                "rows": cell.rows,
                "attention_on_patches": cell.attention.tolist(),
                "standard_error": cell.standard_error.tolist(),
                "share_outside_patches": cell.outside,
            }
            for cell in self.cells.values()
        ]
        differences = []
        for label in self.labels:
            difference, error = self.difference(label)
            names = list(self.source.groups)
            differences.append(
                {
                    "label": label,
                    "what": f"{names[1]} minus {names[0]}" if error is not None else "largest over pairs of groups",
                    "difference": difference.tolist(),
                    "standard_error": None if error is None else error.tolist(),
                }
            )
        return {"figure": "attention", **asdict(self.source), "cells": cells, "differences": differences}

    def draw(self) -> Figure:
        """Return a grid for each group and label, and their difference."""
        from matplotlib.figure import Figure

        groups = list(self.source.groups)
        size = max(6.4, 1.9 * len(groups) + 2.7), 2.0 * len(self.labels) + 0.9
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(self.labels), len(groups) + 1, squeeze=False)
        known = [cell.attention for cell in self.cells.values() if np.isfinite(cell.attention).all()]
        most = max((float(values.max()) for values in known), default=1.0)
        shape = next(iter(self.cells.values())).attention.shape
        most = max(most, 2 / (shape[0] * shape[1]))  # or nearly even attention would look like the darkest
        gaps = {label: self.difference(label)[0] for label in self.labels}
        finite = [np.abs(gap).max() for gap in gaps.values() if np.isfinite(gap).all()]
        widest = max([float(value) for value in finite], default=1.0) or 1.0
        for row, label in enumerate(self.labels):
            for column, group in enumerate(groups):
                cell, panel = self.cells[label, group], panels[row, column]
                _grid(panel, cell.attention, most, "{:.1f}", bool(cell.rows))
                panel.set_title(f"{group}\nn = {cell.rows:,}", fontsize=8)
                if column == 0:
                    panel.set_ylabel(label)
            panel = panels[row, -1]
            rows_of = [self.cells[label, group].rows for group in groups]
            enough = all(rows_of) if len(groups) == 2 else any(rows_of)
            _grid(panel, gaps[label], widest, "{:+.1f}" if len(groups) == 2 else "{:.1f}", enough)
            what = f"{groups[1]}\nminus {groups[0]}" if len(groups) == 2 else "largest\ndifference"
            panel.set_title(what, fontsize=8)
        figure.suptitle(f"{self.source.title}, groups by {self.source.attribute}", fontsize=10)
        if max(shape) <= NUMBERS_UP_TO:
            notes = ["numbers: percent of the readout row's attention on patches; differences: percentage points"]
        else:
            notes = [
                f"white: none of the readout row's attention on patches, black: {100 * most:.1f}%",
                f"differences: black is {100 * widest:.1f} percentage points, hatched where negative",
            ]
        figure.supxlabel("\n".join([*notes, "groups (columns) and labels (rows) as annotated"]), fontsize=8)
        return figure


def _grid(panel: Axes, values: Array, most: float, form: str, rows: bool) -> None:
    """Draw a grid in shades of grey, white 0 to dark ``most``, with percent in the cells of a coarse one."""
    from matplotlib.patches import Rectangle

    panel.set_xticks([])
    panel.set_yticks([])
    if not np.isfinite(values).all():
        panel.set_box_aspect(1)
        why = "not finite" if rows else "no rows"
        panel.text(0.5, 0.5, why, ha="center", va="center", transform=panel.transAxes)
        return
    panel.imshow(np.abs(values), cmap="Greys", vmin=0, vmax=most)
    numbers = max(values.shape) <= NUMBERS_UP_TO
    for (down, across), value in np.ndenumerate(values):
        if numbers:
            shade = "white" if abs(value) > 0.6 * most else "black"
            percent = round(100 * value, 1)
            text = form.format(percent).replace("-", "\N{MINUS SIGN}") if percent else "0.0"
            panel.text(across, down, text, ha="center", va="center", color=shade, fontsize=7)
        elif value < 0:
            panel.add_patch(Rectangle((across - 0.5, down - 0.5), 1, 1, fill=False, hatch="////", linewidth=0))


def attention_figure(
    folder: Path, split: Split = "test", *, data_root: Path | None = None, attribute: str | None = None
) -> AttentionFigure:
    """Average the readout row's attention in the last layer over patches, by group and label (as annotated).

    Attention is that after debiasing, averaged over heads. The grids are shares of the attention on patches: tokens
    that are no patch (CLS) are left out and the rest is scaled to sum to 1 in every row. Without a readout row the mean
    over query rows is used.

    Errors: :class:`~levelhead.DataError` for an unfinished run or an empty group; :class:`~levelhead.ConfigError` for
    an unknown attribute; :class:`~levelhead.UnsupportedModelError` for a network that does not cut pictures into
    patches.

    Source: Lu, Wang, Wang, ICLR 2024, figure 4.
    """
    opened = open_run(folder, split, data_root, attribute)
    down, across = patch_grid(opened.model)
    on_patches, elsewhere = [], []
    for captured in opened.passes():
        outside = captured.key.shape[2] - down * across
        if outside < 0:
            raise UnsupportedModelError(
                f"The last layer has {captured.key.shape[2]} tokens for {down}x{across} patches."
            )
        shares, rest = shares_of_patches(captured, outside)
        on_patches.append(shares)
        elsewhere.append(rest)
    attention, outside_share = torch.cat(on_patches).numpy(), torch.cat(elsewhere).numpy()
    labels, groups = opened.examples.labels.numpy(), opened.groups.values.numpy()
    cells = {}
    for class_index, label in enumerate(opened.examples.class_names):
        for group_index, group in enumerate(opened.groups.names):
            members = np.flatnonzero((labels == class_index) & (groups == group_index))
            mean, error = (values.reshape(down, across) for values in _mean_and_error(attention[members]))
            away = float(outside_share[members].mean()) if len(members) else float("nan")
            cells[label, group] = GroupAttention(group, label, len(members), mean, error, away)
    return AttentionFigure(opened.source, opened.examples.class_names, cells)


def shares_of_patches(captured: Captured, outside: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Share of the attention on patches that each patch gets (batch, patches), and the attention elsewhere (batch,).

    Attention is averaged over heads, and over query rows where the classifier reads no single one. The first
    ``outside`` tokens are no patches. In float64 and by logarithms: all that a row has left for patches may be less
    than the smallest number, and its shares of that still count.
    """
    logs = attention_logits(captured).double().log_softmax(dim=-1)
    if captured.readout is None and captured.valid is not None:  # averaging leaves padded query rows out
        logs = logs.masked_fill(~captured.valid[:, None, :, None], -torch.inf)
    # Summed, not averaged: a constant factor cancels in the shares.
    logs = logs.logsumexp(dim=(1, 2))
    patches = logs[:, outside:]
    return patches.softmax(dim=1), 1 - (patches.logsumexp(dim=1) - logs.logsumexp(dim=1)).exp()


def _mean_and_error(rows: Array) -> tuple[Array, Array]:
    """Mean over rows and its standard error; NaN where there are too few rows to tell."""
    unknown = np.full(rows.shape[1:], np.nan)
    mean = rows.mean(axis=0) if len(rows) else unknown
    return mean, rows.std(axis=0, ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else unknown


def patch_grid(model: Any) -> tuple[int, int]:
    """Patches down and across, from the network's config."""
    config = model.backbone.config if hasattr(getattr(model, "backbone", None), "config") else model.config
    config = getattr(config, "vision_config", config)
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if size is None or patch is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not divide pictures into patches, so there is no grid to draw."
        )
    height, width = (size, size) if isinstance(size, int) else size
    tall, wide = (patch, patch) if isinstance(patch, int) else patch
    return height // tall, width // wide


def part_fractions(opened: OpenedRun, down: int, across: int) -> Array | None:
    """Fraction of each patch's pixels that show each part (rows, patches, parts); None but for drawn portraits."""
    data = opened.experiment.data
    if not isinstance(data, Portraits):
        return None
    masks = data.masks(opened.split)[opened.index]
    blocks = masks.unflatten(1, (down, -1)).unflatten(3, (across, -1))  # rows, down, tall, across, wide
    shares = [(blocks == code).double().mean(dim=(2, 4)).flatten(1) for code in range(len(MASK_NAMES))]
    return cast(Array, torch.stack(shares, dim=2).numpy())
