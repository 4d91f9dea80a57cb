"""Curves of deletion and insertion: whether what attention points at decides the answer, for both groups alike.

Tokens go from the input: patches take their picture's mean colour, text tokens are masked. As many rows of each group
and label are looked at, and gaps hold label and correctness fixed. After Petsiuk, Das and Saenko, "RISE", BMVC 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from levelhead.attention.places import Dissection
from levelhead.inspecting.maps import area_under_steps, gap_of_means, mean_of_rows
from levelhead.inspecting.probes import Array, Bools, Ints
from levelhead.inspecting.rows import Options, Rows
from levelhead.report.record import Finding
from levelhead.terminal import Progress
from levelhead.types import Estimate

SHARES = np.array([0.0, 0.125, 0.25, 0.5, 1.0])
"""Of the tokens, by which curves of deletion and insertion are drawn."""
KINDS = ("deletion", "insertion", "random deletion", "random insertion")


@dataclass(frozen=True)
class Curves(Finding):
    """The predicted class's probability as tokens go, those with most attention first.

    ``deletion`` and ``insertion`` are mean heights by group. ``by_chance`` is the height where tokens go in random
    order, ``insertion_by_chance`` where they come in random order: the steps are uneven, so that the two differ.
    ``deletion_gap`` and ``insertion_gap`` are the second group's less the first's, with label and correctness held
    fixed.
    """

    rows: int
    deletion: dict[str, Estimate]
    insertion: dict[str, Estimate]
    by_chance: Estimate
    insertion_by_chance: Estimate
    deletion_gap: Estimate
    insertion_gap: Estimate


@dataclass(frozen=True)
class Answered:
    """Logits (rows, classes), the temperature they were fitted to, attention (rows, tokens), and the row that is read
    (rows,), -1 for none."""

    logits: Array
    temperature: float
    attention: Array
    readout: Ints


def explanation_curves(
    opened: Dissection,
    rows: Rows,
    answered: Answered,
    *,
    device: torch.device | str,
    batch_size: int,
    options: Options,
    progress: Progress,
) -> Curves:
    """Draw the curves on up to ``options.curve_rows`` rows."""
    rng = np.random.default_rng(options.seed)
    chosen = _balanced(rows, options.curve_rows, rng)
    if not _can_hide(rows.inputs_of(rows.index[:1], device), rows.grid):
        reason = "tokens of this kind of input cannot be left out"
        none = Estimate.undefined(reason, len(chosen))
        by_group = dict.fromkeys(rows.groups, none)
        return Curves(len(chosen), by_group, dict(by_group), none, none, none, none)
    predicted = answered.logits[chosen].argmax(1)
    heights = {kind: np.empty((len(chosen), len(SHARES))) for kind in KINDS}
    chances = rng.random((len(chosen), answered.attention.shape[1]))
    starts = range(0, len(chosen), batch_size)
    for at, start in enumerate(starts):
        part = slice(start, start + batch_size)
        own = chosen[part]
        batch = rows.inputs_of(rows.index[torch.from_numpy(own)], device)
        tokens = _tokens(batch, rows.grid, answered.attention.shape[1])
        free = _free(batch, rows.grid, tokens, answered.readout[own])
        attention = answered.attention[own][:, :tokens]
        known: dict[bytes, Array] = {}  # nothing and everything is left out several times
        chance = chances[part, :tokens]  # of both, so that half of the tokens are the same half
        for kind, order in zip(KINDS, (attention, -attention, chance, chance), strict=True):
            for step, share in enumerate(SHARES):
                gone = _first(order, free, 1 - share if kind.endswith("insertion") else share)
                if not gone.any():
                    known[gone.tobytes()] = answered.logits[own]
                if gone.tobytes() not in known:
                    hidden = _hide(batch, torch.from_numpy(gone).to(device), rows.grid)
                    known[gone.tobytes()] = opened.answer(hidden).double().cpu().numpy()
                shown = special.softmax(known[gone.tobytes()] / answered.temperature, axis=1)
                heights[kind][part, step] = shown[np.arange(len(own)), predicted[part]]
        progress("Leaving tokens out", at + 1, len(starts), "")
    areas = {kind: area_under_steps(SHARES, found) for kind, found in heights.items()}
    member, cluster = rows.member[chosen], None if rows.cluster is None else rows.cluster[chosen]
    cell = 2 * rows.label[chosen] + (predicted == rows.label[chosen])
    sides = dict(zip(rows.groups, (~member, member), strict=True))

    def means(kind: str) -> dict[str, Estimate]:
        return {
            name: mean_of_rows(areas[kind][side], options.level, cluster=None if cluster is None else cluster[side])
            for name, side in sides.items()
        }

    return Curves(
        len(chosen),
        means("deletion"),
        means("insertion"),
        mean_of_rows(areas["random deletion"], options.level, cluster=cluster),
        mean_of_rows(areas["random insertion"], options.level, cluster=cluster),
        gap_of_means(areas["deletion"], member, cell, level=options.level, cluster=cluster),
        gap_of_means(areas["insertion"], member, cell, level=options.level, cluster=cluster),
    )


def _balanced(rows: Rows, most: int, rng: np.random.Generator) -> Ints:
    """Positions of like many rows of each group and label."""
    cell = 2 * rows.label + rows.member
    there = np.unique(cell)
    parts = [rng.permutation(np.flatnonzero(cell == one))[: max(1, most // len(there))] for one in there]
    return np.sort(np.concatenate(parts))


def _can_hide(batch: Mapping[str, Tensor], grid: tuple[int, int] | None) -> bool:
    return ("pixel_values" in batch and grid is not None) or {"input_ids", "attention_mask"} <= batch.keys()


def _tokens(batch: Mapping[str, Tensor], grid: tuple[int, int] | None, most: int) -> int:
    return most if grid is not None else batch["attention_mask"].shape[1]


def _free(batch: Mapping[str, Tensor], grid: tuple[int, int] | None, tokens: int, readout: Ints) -> Bools:
    """Which tokens may go (rows, tokens): patches, or real tokens of a text; never the row that is read."""
    if grid is not None:
        free = np.zeros((len(readout), tokens), bool)
        free[:, tokens - grid[0] * grid[1] :] = True
    else:
        free = batch["attention_mask"].cpu().numpy().astype(bool)
    free[np.flatnonzero(readout >= 0), readout[readout >= 0]] = False
    return free


def _first(order: Array, free: Bools, share: float) -> Bools:
    """Mark a share of each row's free tokens, those that come first by falling ``order``."""
    ranks = np.where(free, -order, np.inf).argsort(1, kind="stable").argsort(1, kind="stable")
    return np.asarray((ranks < np.round(share * free.sum(1, keepdims=True))) & free)


def _hide(batch: Mapping[str, Tensor], gone: Tensor, grid: tuple[int, int] | None) -> dict[str, Tensor]:
    if grid is None:
        return {**batch, "attention_mask": batch["attention_mask"] * ~gone}
    pixels = batch["pixel_values"]
    down, across = grid
    patches = gone[:, gone.shape[1] - down * across :].unflatten(1, grid)[:, None]
    covered = patches.repeat_interleave(pixels.shape[2] // down, 2).repeat_interleave(pixels.shape[3] // across, 3)
    return {**batch, "pixel_values": torch.where(covered, pixels.mean((2, 3), keepdim=True), pixels)}
