"""What ``levelhead list`` shows: one row for each method, data set, recipe, grid, selector or benchmark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from levelhead.data import DATASETS
from levelhead.lm import BENCHMARKS
from levelhead.methods import METHODS, Method
from levelhead.registry import Registry
from levelhead.report import marks
from levelhead.runs.recipe import recipe_folder
from levelhead.training.select import SELECTORS
from levelhead.types import ConfigError


def listed_kind(kind: str) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of ``kind``: methods, datasets, selectors, recipes, grids or benchmarks."""
    if kind == "methods":
        columns = ["method", "what it does", "sees groups"]
        return _registered(METHODS, columns, lambda cls: [cls.summary, _sees(cls)])
    if kind == "datasets":
        columns = ["data set", "task", "groups", "terms"]
        return _registered(DATASETS, columns, lambda cls: [cls.card.task, cls.card.groups, cls.card.licence])
    if kind == "benchmarks":
        columns = ["benchmark", "task", "groups", "terms"]
        return _registered(BENCHMARKS, columns, lambda cls: [cls.card.task, cls.card.groups, cls.card.licence])
    if kind == "selectors":
        rows = [[name, rule.summary, "ORACLE" if rule.uses_groups else "no"] for name, rule in SELECTORS.items()]
        return ["selector", "which checkpoint is kept", "sees groups"], rows
    if kind == "recipes":
        return ["recipe", "what it is"], _files(sorted(recipe_folder().glob("*.yaml")))
    from levelhead.bench.grid import grid_files

    return ["grid (levelhead compare NAME)", "what it compares"], _files(grid_files())


def _sees(method: type[Method]) -> str:
    if method.uses_groups or method.uses_validation_groups:
        return marks.ORACLE
    return method.knowledge or "no"


def _registered(
    registry: Registry[Any], columns: list[str], describe: Callable[[Any], list[str]]
) -> tuple[list[str], list[list[str]]]:
    """Describe each class; where installed packages offer some, a last column says where each comes from."""
    rows = []
    for name in registry:
        try:
            texts = describe(registry[name])
        except (ConfigError, AttributeError) as error:  # one broken package must not hide the others
            texts = [f"cannot be used: {error}", *[""] * (len(columns) - 2)]
        rows.append([name, *map(str, texts), registry.source(name)])
    if {row[-1] for row in rows} == {"levelhead"}:
        return columns, [row[:-1] for row in rows]
    return [*columns, "from"], rows


def _files(files: list[Path]) -> list[list[str]]:
    """Return the name and the first line of each YAML file."""
    return [[file.stem, file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")] for file in files]
