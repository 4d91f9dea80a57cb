"""What is looked at before the first run of a grid starts, so that one mistake is one error, not a failure a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from levelhead.bench.grid import Cell
from levelhead.runs.folder import work_of
from levelhead.runs.joined import Join, required_groups
from levelhead.runs.recipe import Experiment
from levelhead.training.processes import warn_of_slow_bfloat16
from levelhead.training.select import SELECTORS
from levelhead.training.trackers import check_installed
from levelhead.types import ConfigError, LevelheadError, quoted


def check_cells(cells: Sequence[Cell], *, local: bool = True) -> None:
    """Raise a :class:`~levelhead.types.LevelheadError` for the first mistake that would make a missing run fail.

    Looked at are the folder of each run, and, once for each that differs: the data set with the sensitive columns that
    its evaluation needs, the network's backbone, the device and the trackers. The groups are read for the evaluation
    alone, and forgotten. A run that is done needs none of it. With ``local`` False the runs are for other machines,
    whose devices cannot be seen from here.
    """
    known: dict[str, str] = {}
    for cell in cells:
        first = known.setdefault(str(replace(cell.experiment, name="")), cell.row)
        if first != cell.row:
            raise ConfigError(
                f"The variants {quoted(first)} and {quoted(cell.row)} are the same run. Remove one, or change its "
                "settings."
            )
    missing = [cell for cell in cells if not cell.done]
    for cell in missing:
        work = work_of(cell.folder)
        work.refuse_foreign()
        if work.in_use:
            raise LevelheadError(f"Another process is working in {cell.folder}; wait for it or end it.")
    # The data first: a wrong folder is the mistake that is made most.
    for what in (_data, _model, _training) if local else (_data, _model):
        seen: dict[str, None] = {}
        for cell in missing:
            key, check = what(cell)
            if key in seen:
                continue
            seen[key] = None
            try:
                check()
            except LevelheadError as error:
                shared = len({what(other)[0] for other in missing}) == 1
                raise error if shared else type(error)(f"Variant {quoted(cell.row)}: {error}") from None


def _data(cell: Cell) -> tuple[str, Callable[[], object]]:
    experiment = cell.experiment
    splits: list[Any] = ["test"]
    splits += experiment.method.group_splits
    selects = SELECTORS[experiment.train.select].uses_groups
    splits += ["validation"] * selects
    whole = ["train", *["validation"] * selects]  # of which every row must have a group

    method = experiment.method

    def check() -> None:
        experiment.data.check()
        for split in splits:
            experiment.data.require_groups(split, partly=split not in whole)
        check_told_groups(experiment)
        if experiment.method.uses_people:
            experiment.data.training_people()
        if method.other_label is not None:
            experiment.data.with_target(method.other_label).check()
        experiment.check_view()

    about = f"{method.declared_view} {method.told} {method.uses_people} {method.other_label}"
    return f"{experiment.data} {splits} {whole} {about}", check


def check_told_groups(experiment: Experiment, rows: int | None = None, join: Join | None = None) -> None:
    """Raise the error that a method would raise about the groups of the validation ``rows`` (None: count them)."""
    if "validation" not in experiment.method.group_splits and rows is None:
        return
    read = functools.cache(lambda: required_groups(experiment.data, "validation", join)[0].values)
    experiment.method.validation_groups(read, len(read()) if rows is None else rows, experiment.seed)


def _model(cell: Cell) -> tuple[str, Callable[[], object]]:
    experiment = cell.experiment

    def check() -> None:
        experiment.model.check()
        experiment.check_pixels()

    return f"{experiment.model} {experiment.method.changes_pixels}", check


def _training(cell: Cell) -> tuple[str, Callable[[], object]]:
    train = cell.experiment.train

    def check() -> None:
        if not torch.cuda.is_available():
            for option, value, remedy in (
                ("device", "cuda", "leave it out, or use device: cpu"),
                ("precision", "fp16", "use precision: no"),
            ):
                if getattr(train, option) == value:
                    raise ConfigError(f"train.{option} is {value}, and torch sees no GPU here: {remedy}.")
            if train.precision == "bf16":
                warn_of_slow_bfloat16()
        check_installed(train.trackers)

    return f"{train.device} {train.precision} {train.trackers}", check
