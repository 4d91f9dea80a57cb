"""Weights and margin of KLAAD over a grid: one training a cell, all measured alike on held-out triplets.

A recipe with a ``grid`` names settings and the values to try; a list of such mappings is the union of their products::

    grid:
      - klaad.weights: [[1.0, 0, 0]]
      - klaad.weights: [[0.9, 0.05, 0.05], [0.7, 0.15, 0.15]]
        klaad.margin: [0.1, 0.5]

The losses of two cells cannot be compared: each has its own weights and margin. So every cell is measured with one
yardstick: all parts of the loss with the published options, on target terms that none was trained on. Texts are cut
at the largest ``train.max_length`` of all cells.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.table import Table
from torch import nn

from levelhead.lm.capture import release
from levelhead.lm.klaad import Klaad, TripletLike, collate
from levelhead.lm.klaad_training import KlaadConfig, build_klaad, find_klaad_recipe
from levelhead.runs.recipe import flatten, override, plain_options, read_recipe
from levelhead.types import ConfigError, quoted

GRID = "grid"
COLUMNS = {"ce": "CE", "kl": "KL", "triplet": "triplet", "entropy": "entropy", "likelihood_gap": "likelier"}


def read_cells(recipe: str | Path, settings: Iterable[str] = ()) -> dict[str, KlaadConfig]:
    """Return the trainings of a recipe by name: one for each cell of its grid; without a grid one, with no name.

    Settings replace those of the recipe. Errors: :class:`~levelhead.types.ConfigError` that names the key, also for a
    setting that the grid has, and for two cells that would share a folder.
    """
    settings = list(settings)
    content = override(read_recipe(find_klaad_recipe(recipe)), settings)
    if GRID not in content:
        return {"": build_klaad(content)}
    grid = content.pop(GRID)
    fixed = flatten(override({}, settings))
    cells: dict[str, KlaadConfig] = {}
    for part in grid if isinstance(grid, list) else [grid]:
        lists = isinstance(part, dict) and part and all(isinstance(values, list) and values for values in part.values())
        if not lists:
            raise ConfigError(
                f"grid must map settings to lists of values, e.g. klaad.margin: [0.1, 0.5]; got {quoted(part)}."
            )
        if both := [key for key in fixed if any(_overlap(key, varied) for varied in part)]:
            raise ConfigError(
                f"--set {both[0]} would do nothing, because the recipe's grid sets it: leave it out, or edit the grid."
            )
        for values in itertools.product(*part.values()):
            chosen = [f"{key}={_text(value)}" for key, value in zip(part, values, strict=True)]
            name, config = _name(chosen), build_klaad(override(content, chosen))
            if cells.setdefault(name, config) != config:
                raise ConfigError(
                    f"Two cells of the grid would share the folder {quoted(name)}; the second is {', '.join(chosen)}. "
                    "Train them from two recipes, into two --out."
                )
    if not cells:
        raise ConfigError("grid has no combination: map settings to lists of values, e.g. klaad.margin: [0.1, 0.5].")
    return cells


def _text(value: Any) -> str:
    """Write a value as :func:`~levelhead.runs.recipe.override` reads it."""
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")


def _overlap(key: str, other: str) -> bool:
    """Say whether two dotted keys name one option, or a section and an option in it."""
    pair = sorted(f"{one.strip()}." for one in (key, other))
    return pair[1].startswith(pair[0])


def _name(chosen: Sequence[str]) -> str:
    """Return the folder's name of a cell, e.g. ``weights-0.7-0.15-0.15-margin-0.3``."""
    words = []
    for setting in chosen:
        key, _, value = setting.partition("=")
        words += [key.rpartition(".")[2], value]
    return "-".join(re.findall(r"[\w.]+", " ".join(words)))


def yardstick_of(cells: Mapping[str, KlaadConfig]) -> dict[str, Any]:
    """Return what all cells of a grid are measured with: the options of the loss, and the largest ``max_length``."""
    lengths = [config.train.max_length for config in cells.values()]
    known = [length for length in lengths if length is not None]
    longest = max(known) if len(known) == len(lengths) else None
    return {**plain_options(Klaad()), "max_length": longest}


@torch.no_grad()
def held_out_figures(
    model: nn.Module, tokenizer: Any, triplets: Sequence[TripletLike], batch_size: int, max_length: int | None = None
) -> dict[str, float]:
    """Return all parts of the loss on ``triplets`` with the published options, whatever the training's are."""
    yardstick, device = Klaad(), next(model.parameters()).device
    model.eval()
    try:
        batches = (triplets[start : start + batch_size] for start in range(0, len(triplets), batch_size))
        sums = [yardstick.sums(model, collate(tokenizer, part, max_length).to(device)) for part in batches]
    finally:
        release(model)
    return {name: value.item() for name, value in yardstick.combined(torch.stack(sums).sum(0))[1].items()}


def tuning_table(figures: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the table of all cells; marked are those that no other beats in cross-entropy and divergence at once."""
    table = Table(title="Held-out triplets, every training measured with the same loss")
    for column in ("", "training", *COLUMNS.values()):
        table.add_column(column, justify="left" if column in ("", "training") else "right", overflow="fold")
    for name, cell in figures.items():
        beaten = any(_beats(other, cell) for other in figures.values())
        table.add_row("" if beaten else "*", name, *(f"{cell[key]:.4f}" for key in COLUMNS))
    return table


def _beats(other: Mapping[str, float], cell: Mapping[str, float]) -> bool:
    pairs = [(other[key], cell[key]) for key in ("ce", "kl")]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
