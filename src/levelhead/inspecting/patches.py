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
from levelhead.types import Estimate, UnsupportedModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from levelhead.inspecting.source import HATCHES, NORMAL_95, NUMBERS_UP_TO, Array, OpenedRun, RunFigure, Source, open_run


@dataclass(frozen=True)
class GroupAttention:
    """Mean attention over the rows of one group with one label.

    ``attention`` (patches down, patches across): the mean share of the attention on patches, summing to 1, NaN where
    there are no rows, or where the network's attention is not finite; ``standard_error`` of the same shape;
    ``outside``: share of all attention on tokens that are no patch (the CLS token); ``parts``: for drawn portraits,
    the share on each part of the picture, and ``area`` the part's share of the pixels, which is where even attention
    would go.
    """

    group: str
    label: str
    rows: int
    attention: Array
    standard_error: Array
    outside: float
    parts: dict[str, Estimate]
    area: dict[str, float]


@dataclass(frozen=True)
class AttentionFigure(RunFigure):
    """Mean attention of the readout row over patches, by group and label.

    ``cells`` by (label, group) names; ``portraits`` the same, one drawn picture each (height, width, 3) in [0, 1], and
    empty for every other data set.
    """

    source: Source
    labels: tuple[str, ...]
    cells: dict[tuple[str, str], GroupAttention]
    portraits: dict[tuple[str, str], Array]

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
        """Return the grids with standard errors, differences, and shares of parts with 95% intervals."""
        cells = []
        for cell in self.cells.values():
            parts = {name: {**asdict(share), "area": cell.area[name]} for name, share in cell.parts.items()}
            cells.append(
                {
                    "group": cell.group,
                    "label": cell.label,
                    "rows": cell.rows,
                    "attention_on_patches": cell.attention.tolist(),
                    "standard_error": cell.standard_error.tolist(),
                    "share_outside_patches": cell.outside,
                    **({"parts": parts} if parts else {}),
                }
            )
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
        """Return grids a group and label, their difference, and for portraits examples and shares of parts."""
        from matplotlib.figure import Figure

        groups = list(self.source.groups)
        columns = len(groups) + 1 + (len(groups) if self.portraits else 0)
        has_parts = any(cell.parts for cell in self.cells.values())
        heights = [2.0] * len(self.labels) + ([2.6] if has_parts else [])
        figure = Figure(figsize=(max(6.4, 1.9 * columns + 0.8), sum(heights) + 0.9), layout="constrained")
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        known = [cell.attention for cell in self.cells.values() if np.isfinite(cell.attention).all()]
        most = max((float(values.max()) for values in known), default=1.0)
        most = max(most, 2 / self._patches())  # or nearly even attention would look like the darkest
        gaps = {label: self.difference(label)[0] for label in self.labels}
        finite = [np.abs(gap).max() for gap in gaps.values() if np.isfinite(gap).all()]
        widest = max([float(value) for value in finite], default=1.0) or 1.0
        for row, label in enumerate(self.labels):
            for column, group in enumerate(groups):
                cell, panel = self.cells[label, group], figure.add_subplot(grid[row, column])
                _grid(panel, cell.attention, most, "{:.1f}", bool(cell.rows))
                panel.set_title(f"{group}\nn = {cell.rows:,}", fontsize=8)
                if column == 0:
                    panel.set_ylabel(label)
                if self.portraits:
                    panel = figure.add_subplot(grid[row, len(groups) + 1 + column])
                    self._overlay(panel, label, group, most)
            panel = figure.add_subplot(grid[row, len(groups)])
            rows_of = [self.cells[label, group].rows for group in groups]
            enough = all(rows_of) if len(groups) == 2 else any(rows_of)
            _grid(panel, gaps[label], widest, "{:+.1f}" if len(groups) == 2 else "{:.1f}", enough)
            what = f"{groups[1]}\nminus {groups[0]}" if len(groups) == 2 else "largest\ndifference"
            panel.set_title(what, fontsize=8)
        if has_parts:
            self._shares(figure.add_subplot(grid[-1, :]))
        figure.suptitle(f"{self.source.title}, groups by {self.source.attribute}", fontsize=10)
        if self._side() <= NUMBERS_UP_TO:
            notes = ["numbers: percent of the readout row's attention on patches; differences: percentage points"]
        else:
            notes = [
                f"white: none of the readout row's attention on patches, black: {100 * most:.1f}%",
                f"differences: black is {100 * widest:.1f} percentage points, hatched where negative",
            ]
        if self.portraits:
            notes.append("portraits: one picture each under its panel's mean attention; fainter patches get less")
        else:
            notes.append("groups (columns) and labels (rows) as annotated")
        figure.supxlabel("\n".join(notes), fontsize=8)
        return figure

    def _side(self) -> int:
        return max(next(iter(self.cells.values())).attention.shape)

    def _patches(self) -> int:
        return next(iter(self.cells.values())).attention.size

    def _overlay(self, panel: Axes, label: str, group: str, most: float) -> None:
        picture, cell = self.portraits.get((label, group)), self.cells[label, group]
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_title(f"a portrait,\n{group}", fontsize=8)
        if picture is None or not np.isfinite(cell.attention).all():
            _empty(panel, bool(cell.rows))
            return
        scale = picture.shape[0] // cell.attention.shape[0], picture.shape[1] // cell.attention.shape[1]
        strength = np.kron(0.2 + 0.8 * cell.attention / most, np.ones(scale))[:, :, None]
        panel.imshow(strength * picture + (1 - strength), interpolation="nearest")

    def _shares(self, panel: Axes) -> None:
        cells = [cell for cell in self.cells.values() if cell.rows]
        names = list(cells[0].parts)
        width = 0.8 / len(cells)
        for position, cell in enumerate(cells):
            places = np.arange(len(names)) + width * (position - (len(cells) - 1) / 2)
            values = np.array([100 * cell.parts[name].value for name in names])
            lows, highs = (
                np.array([100 * getattr(cell.parts[name], end) for name in names]) for end in ("low", "high")
            )
            shade = str(0.95 - 0.5 * position / max(1, len(cells) - 1))
            panel.bar(
                places,
                values,
                width,
                yerr=np.nan_to_num([values - lows, highs - values]),
                color=shade,
                edgecolor="black",
                hatch=HATCHES[position % len(HATCHES)],
                capsize=2,
                label=f"{cell.group}, {cell.label}",
            )
            panel.plot(
                places,
                [100 * cell.area[name] for name in names],
                "D",
                color="white",
                markeredgecolor="black",
                markersize=4,
                label="share of the pixels,\nwhere even attention\nwould go" if position == len(cells) - 1 else None,
            )
        panel.set_xticks(range(len(names)), names)
        panel.set_ylabel("attention on patches, %")
        panel.set_title("what the patches show (bars: 95% interval over pictures)", fontsize=8)
        panel.legend(fontsize=8, frameon=False)


def _empty(panel: Axes, rows: bool) -> None:
    """Say why there is nothing to draw: no rows, or attention that is not finite."""
    panel.text(0.5, 0.5, "not finite" if rows else "no rows", ha="center", va="center", transform=panel.transAxes)


def _grid(panel: Axes, values: Array, most: float, form: str, rows: bool) -> None:
    """Draw a grid in shades of grey, white 0 to dark ``most``, with percent in the cells of a coarse one."""
    from matplotlib.patches import Rectangle

    panel.set_xticks([])
    panel.set_yticks([])
    if not np.isfinite(values).all():
        panel.set_box_aspect(1)
        _empty(panel, rows)
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

    Attention is that after debiasing, averaged over heads. The grids, and the shares of picture parts, are shares of
    the attention on patches: tokens that are no patch (CLS) are left out and the rest is scaled to sum to 1 in every
    row. The share of a part is the sum over patches of attention times the fraction of the patch's pixels that show
    the part; its interval is normal, over rows. Without a readout row the mean over query rows is used.

    Errors: :class:`~levelhead.DataError` for an unfinished run or an empty group; :class:`~levelhead.ConfigError` for
    an unknown attribute; :class:`~levelhead.UnsupportedModelError` for a network that does not cut pictures into
    patches.

    Source: Lu, Wang, Wang, ICLR 2024, figure 4.
    """
    opened = open_run(folder, split, data_root, attribute)
    rows = PatchRows(opened.model)
    for captured in opened.passes():
        rows.add(captured)
    return rows.figure(opened)


class PatchRows:
    """The readout row's attention on patches, batch by batch."""

    def __init__(self, model: Any) -> None:
        self.grid = patch_grid(model)
        self.on_patches: list[torch.Tensor] = []
        self.outside: list[torch.Tensor] = []

    def add(self, captured: Captured) -> None:
        """Take a batch."""
        down, across = self.grid
        outside = captured.key.shape[2] - down * across
        if outside < 0:
            raise UnsupportedModelError(
                f"The last layer has {captured.key.shape[2]} tokens for {down}x{across} patches."
            )
        on_patches, elsewhere = shares_of_patches(captured, outside)
        self.on_patches.append(on_patches)
        self.outside.append(elsewhere)

    def figure(self, opened: OpenedRun) -> AttentionFigure:
        """Average over the rows that were taken, by group and label."""
        down, across = self.grid
        attention, outside_share = torch.cat(self.on_patches).numpy(), torch.cat(self.outside).numpy()
        parts = part_fractions(opened, down, across)
        labels, groups = opened.examples.labels.numpy(), opened.groups.values.numpy()
        cells, portraits = {}, {}
        for class_index, label in enumerate(opened.examples.class_names):
            for group_index, group in enumerate(opened.groups.names):
                members = np.flatnonzero((labels == class_index) & (groups == group_index))
                rows = attention[members]
                mean, error = (values.reshape(down, across) for values in _mean_and_error(rows))
                shares, areas = {}, {}
                if parts is not None:
                    fractions = parts[members]
                    on_parts = np.einsum("np,npc->nc", rows, fractions)
                    middle, spread = _mean_and_error(on_parts)
                    for position, name in enumerate(MASK_NAMES):
                        reach = NORMAL_95 * spread[position]
                        value = float(middle[position])
                        shares[name] = Estimate(value, float(value - reach), float(value + reach), len(members))
                        areas[name] = float(fractions[:, :, position].mean()) if len(members) else float("nan")
                    if len(members):
                        pixels = opened.examples.inputs.batch(opened.index[members[:1]])["pixel_values"][0]
                        portraits[label, group] = ((pixels + 1) / 2).permute(1, 2, 0).double().clamp(0, 1).numpy()
                outside_mean = float(outside_share[members].mean()) if len(members) else float("nan")
                cells[label, group] = GroupAttention(
                    group, label, len(members), mean, error, outside_mean, shares, areas
                )
        return AttentionFigure(opened.source, opened.examples.class_names, cells, portraits)


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
