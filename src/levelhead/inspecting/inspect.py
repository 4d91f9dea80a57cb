"""Inspect a user's own classifier, or finished runs: what attention, vectors and answers know of a group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from levelhead.arrays import checked
from levelhead.attention.capture import unwrapped
from levelhead.data import Split
from levelhead.data.folds import Fold
from levelhead.data.portraits import MASK_NAMES
from levelhead.inspecting.inspection import Inspection
from levelhead.inspecting.measure import ModelInside, measure
from levelhead.inspecting.patches import part_fractions, patch_grid
from levelhead.inspecting.probes import FEWEST, Array, Ints
from levelhead.inspecting.rows import Options, Rows
from levelhead.inspecting.source import OpenedRun, open_run
from levelhead.metrics.between import check_level
from levelhead.metrics.counts import distinct
from levelhead.own.compare import matched_classes, open_model
from levelhead.own.rows import GroupColumns, OwnRows
from levelhead.runs.folder import read_run, require_finished
from levelhead.terminal import Progress, silent
from levelhead.training.work import flatten
from levelhead.types import (
    ConfigError,
    DataError,
    check_seed,
    in_quotes,
    listed,
    printable,
    quoted,
    visible,
)

MAX_ROWS = 2000
Recipes = Mapping[Path, Mapping[str, Any]]
"""Recipes of finished runs by folder, flat."""
FEWEST_PERMUTATIONS = 19
"""With fewer, the smallest p-value, 1 / (1 + permutations), is above 0.05."""
FEWEST_OF_SEVERAL = 39
"""The same of several runs, whose pooled p-value is twice the mean of theirs."""


def _check(max_rows: int, options: Options, runs: int = 1) -> None:
    """Raise :class:`ConfigError`, before any work, for an option that is out of range; a model has up to ``runs``."""
    check_level(options.level)
    check_seed(options.seed)
    least = {"max_rows": (max_rows, 2 * FEWEST), "permutations": (options.permutations, FEWEST_PERMUTATIONS),
             "curve_rows": (options.curve_rows, 8)}  # fmt: skip
    for name, (value, fewest) in least.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < fewest:
            raise ConfigError(f"{name} is {quoted(value)}; it must be a whole number of at least {fewest}.")
    if runs > 1 and options.permutations < FEWEST_OF_SEVERAL:
        raise ConfigError(
            f"permutations is {options.permutations}: for {runs} runs of a model, no p-value could be 0.05 or less. "
            f"Type --permutations {FEWEST_OF_SEVERAL}, or more."
        )


@checked
def inspect(
    model: Any,
    data: Any,
    groups: Any,
    *,
    against: Any = None,
    names: tuple[str, str] = ("model", "against"),
    label: str | None = None,
    text: str | Sequence[str] | None = None,
    tokenizer: Any = None,
    max_length: int | None = None,
    pair: tuple[Hashable, Hashable] | None = None,
    max_rows: int = MAX_ROWS,
    batch_size: int = 64,
    permutations: int = 200,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress = silent,
) -> Inspection:
    """Say what a classifier's attention, its vectors and its answers know of a group, layer by layer.

    Args:
        model: a classifier of transformers or of levelhead, or wrapped by PEFT; or the folder where one was saved. It
            is left as it is.
        data: labelled rows that the model was not trained on, as :func:`levelhead.compare_models` takes them.
        groups: the name of a group column of ``data``, or a dict or frame with one column of (rows,) values.
        against: a second model, inspected on the same rows.
        names: what the two are called.
        label: name of the label's column: positions of classes, or their names. None: ``labels``, else ``label``.
        text: the column of raw texts, or two for pairs. None: the rows hold what the model takes already.
        tokenizer: for ``text``.
        max_length: texts are cut at this many tokens; it needs ``text``.
        pair: the two groups that are compared. None: the two largest.
        max_rows: rows at most, drawn at random.
        batch_size: rows at once.
        permutations: of the groups, for p-values.
        level: of the intervals.
        seed: of all that is drawn.
        progress: called as in trainings.

    Returns:
        the :class:`~levelhead.inspecting.inspection.Inspection`; a figure that cannot be computed is NaN with a reason.

    Raises:
        ConfigError: no classifier, or an option out of range.
        DataError: rows without labels or inputs, or fewer than two groups.
        UnsupportedModelError: a network whose attention cannot be reached.

    Examples:
        >>> import torch
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> import levelhead as lh
        >>> config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> draw = torch.Generator().manual_seed(0)
        >>> ids = torch.randint(5, 50, (120, 8), generator=draw)
        >>> rows = [{"input_ids": one, "labels": i // 2 % 2, "dialect": "ab"[i % 2]} for i, one in enumerate(ids)]
        >>> found = lh.inspect(BertForSequenceClassification(config), rows, "dialect", permutations=19)
        >>> list(found.models["model"].places)[:3]
        ['input', 'scores', 'query']
    """
    options = Options(permutations=permutations, level=level, seed=seed)
    _check(max_rows, options)
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} is below 1.")
    if len(names) != 2 or names[0] == names[1]:
        raise ConfigError(f"names={names!r}: give two names that differ.")
    closed = GroupColumns.of(groups, data)
    if closed is None:
        raise ConfigError("No groups were given: name a group column of the data, or pass a dict with one column.")
    own = OwnRows.of(closed.hidden(), label, text, max_length)
    given = [model] if against is None else [model, against]
    models = [open_model(one, name) for one, name in zip(given, names, strict=False)]
    columns = closed.open()
    if len(columns) != 1:
        raise ConfigError(f"groups has {len(columns)} columns: {listed(columns)}. Inspect one at a time.")
    ((attribute, values),) = columns.items()
    codes, known = distinct(values, f"The group column {quoted(attribute)}")
    counts = {visible(str(name)): int((codes == at).sum()) for at, name in enumerate(known)}
    chosen, said = _two(counts, None if pair is None else tuple(visible(str(one)) for one in pair), attribute)
    if without := int((codes < 0).sum()):
        said.append(f"{without:,} of {len(codes):,} rows have no group in {in_quotes(attribute)} and are left out.")
    index, member = _drawn(codes, [list(counts).index(one) for one in chosen], max_rows, seed)
    found = {}
    classes, numbered = matched_classes([models[0], models[-1]], names, own.class_names())
    labels = own.labels(classes, numbered).numpy()[index.numpy()]
    for name, one in zip(names, models, strict=False):
        device = next((parameter.device for parameter in one.parameters()), torch.device("cpu"))
        rows = Rows(own.inputs(one, tokenizer), index, labels, member, chosen, grid=patch_grid(unwrapped(one)))
        found[name] = [measure(one, rows, device=device, batch_size=batch_size, options=options, progress=progress)]
    sizes = {chosen[0]: int((~member).sum()), chosen[1]: int(member.sum())}
    warnings = [*said, *_sampled(len(index), sum(counts[one] for one in chosen))]
    warnings += [_one_training(found)]
    return Inspection.of(
        attribute, sizes, found, warnings=tuple(one for one in warnings if one), level=level, permutations=permutations
    )


@checked
def inspect_runs(
    runs: Sequence[Path],
    against: Sequence[Path] = (),
    *,
    split: Split = "test",
    data_root: Path | None = None,
    attribute: str | None = None,
    pair: tuple[str, str] | None = None,
    max_rows: int = MAX_ROWS,
    permutations: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> Inspection:
    """Inspect finished runs of one method, beside those of another; figures are means over runs.

    Args:
        runs: folders of finished runs, of one data set and one method: seeds, or folds.
        against: those of another method, on the same data set and target.
        split: which rows.
        data_root: folder of the data sets; None: the runs' own.
        attribute: the sensitive attribute; None: the data set's first.
        pair: the two groups that are compared; None: the two largest.
        max_rows: rows of a run at most, drawn at random.
        permutations: of the groups, for p-values; with several runs of a method at least 39.
        seed: of all that is drawn.
        progress: called as in trainings.

    Raises:
        DataError: a run that is not finished, or groups without rows.
        ConfigError: an unknown attribute, runs of several data sets or targets, or an option out of range.
        UnsupportedModelError: a network whose attention cannot be reached.
    """
    options = Options(permutations=permutations, seed=seed)
    _check(max_rows, options, max(len(runs), len(against)))
    if not runs:
        raise ConfigError("No run was given: name a folder that `levelhead train` made.")
    recipes = {folder: _recipe(folder) for folder in (*runs, *against)}
    labels = ("data.target", "data.threshold", "data.label_map", "data.ignore_label")
    _agree(recipes, ("data.name", *labels), "runs of one data set and one target")
    for folders in (runs, against):
        _refuse_other_trainings(folders, recipes)
    found: dict[str, list[ModelInside]] = {}
    said: dict[str, None] = {}
    measured_on: dict[str, dict[str, dict[str, int]]] = {}  # rows of the groups, by model and set of rows
    name_of_attribute = ""
    for side, folders in enumerate((runs, against)):
        for at, folder in enumerate(folders):
            opened = open_run(Path(folder), split, data_root, attribute)
            name = opened.source.method
            if side and name in found and at == 0:
                name = f"{name} (against)"
            elif at:
                name = list(found)[-1]
            codes = opened.groups.values.numpy()
            chosen, about = _two(opened.source.groups, pair, opened.source.attribute)
            pair = chosen  # the two largest of another fold can be others
            places = [opened.groups.names.index(one) for one in chosen]
            index, member = _drawn(codes, places, max_rows, seed)
            said |= dict.fromkeys([*about, *_sampled(len(index), int(np.isin(codes, places).sum()))])
            rows = _rows_of_run(opened, index, member, chosen)
            inside = measure(
                opened.model,
                rows,
                device=opened.device,
                batch_size=opened.experiment.train.evaluation_batch_size,
                options=options,
                progress=lambda stage, *rest, of=f"{name}, {Path(folder).name}": progress(
                    f"{printable(of, 40)}: {stage}", *rest
                ),
            )
            found.setdefault(name, []).append(inside)
            sizes = dict(zip(chosen, (int((~member).sum()), int(member.sum())), strict=True))
            measured_on.setdefault(name, {})[f"{opened.examples.fingerprint} {len(index)}"] = sizes
            name_of_attribute = opened.source.attribute
    warnings = [*said, _one_training(found)]
    folds = next(iter(measured_on.values())).values()
    return Inspection.of(
        name_of_attribute,
        {group: sum(one[group] for one in folds) for group in pair or ()},
        found,
        folds={name: len(rows) for name, rows in measured_on.items()},
        warnings=tuple(one for one in warnings if one),
        permutations=permutations,
    )


def _agree(recipes: Recipes, keys: tuple[str, ...], advice: str) -> None:
    """Raise :class:`ConfigError` unless the recipes of finished runs are equal in what begins with these keys."""
    start, first = next(iter(recipes.items()))
    every = {key for one in recipes.values() for key in one if key.startswith(keys)}
    for key in sorted(every, key=lambda key: (not key.endswith(".name"), key)):
        for folder, recipe in recipes.items():
            if recipe.get(key) != first.get(key):
                raise ConfigError(
                    f"{start} and {folder} differ in {key}: {quoted(first.get(key))} and {quoted(recipe.get(key))}. "
                    f"Give {advice}."
                )


def _recipe(folder: Path) -> dict[str, Any]:
    require_finished(Path(folder))
    return flatten(read_run(Path(folder)).recipe)


def _refuse_other_trainings(folders: Sequence[Path], recipes: Recipes) -> None:
    """Raise :class:`ConfigError` unless finished runs, which are pooled, are seeds or folds of one training."""
    known: list[dict[str, Any]] = []
    for folder in folders:
        own = {key: value for key, value in recipes[folder].items() if key not in ("data.root", "name")}
        if own in known:
            raise ConfigError(
                f"{folders[known.index(own)]} and {folder} are one training: give each seed or fold once."
            )
        known.append(own)
    if folders:
        advice = "seeds or folds of one method, and the other method as --against"
        _agree({folder: recipes[folder] for folder in folders}, ("method.", "model."), advice)


def _two(counts: Mapping[str, int], pair: tuple[str, ...] | None, attribute: str) -> tuple[tuple[str, str], list[str]]:
    """Return the two groups that are compared, in the order of the column, and what is said of others."""
    if pair is not None:
        if len(pair) != 2 or pair[0] == pair[1] or any(one not in counts for one in pair):
            named = listed(map(quoted, pair))
            raise ConfigError(f"{named} are not two groups of {quoted(attribute)}. Groups: {listed(counts)}.")
        return (pair[0], pair[1]), []
    there = [name for name, rows in counts.items() if rows]
    if len(there) < 2:
        raise DataError(f"Groups cannot be compared by {quoted(attribute)}: only {listed(there) or 'none'} has rows.")
    largest = sorted(sorted(there, key=lambda name: -counts[name])[:2], key=list(counts).index)
    said = []
    if len(there) > 2:
        others = [name for name in there if name not in largest]
        said = [
            f"Compared are the two largest groups, {in_quotes(largest[0])} and {in_quotes(largest[1])}. Left out: "
            f"{listed(others, 5)}. Name others as the pair."
        ]
    return (largest[0], largest[1]), said


def _drawn(codes: Ints, places: Sequence[int], most: int, seed: int) -> tuple[Tensor, Any]:
    """Rows of two groups, at most this many, and whether each is of the second."""
    own = np.flatnonzero(np.isin(codes, places))
    if len(own) > most:
        own = np.sort(np.random.default_rng(seed).permutation(own)[:most])
    return torch.from_numpy(own), codes[own] == places[1]


def _sampled(rows: int, there: int) -> list[str]:
    return [f"{rows:,} of {there:,} rows were drawn at random; --max-rows takes more."] if rows < there else []


def _one_training(found: Mapping[str, Sequence[ModelInside]]) -> str:
    if all(len(several) == 1 for several in found.values()):
        return "Each model was trained once: intervals cover the sampling of rows, not the training seed."
    return ""


def _rows_of_run(opened: OpenedRun, index: Tensor, member: Any, groups: tuple[str, str]) -> Rows:
    grid = patch_grid(opened.model)
    shown: dict[str, Array] = {}
    if grid is not None and (parts := part_fractions(opened, index, *grid)) is not None:
        shown = {name: parts[:, :, at] for at, name in enumerate(MASK_NAMES)}
    labels = opened.examples.labels[index].numpy()
    return Rows(opened.examples.inputs, index, labels, member, groups, _clusters(opened, index), grid, shown)


def _clusters(opened: OpenedRun, index: Tensor) -> Ints | None:
    """Codes of rows that belong together; None where no two do."""
    data = opened.experiment.data
    people = data.clusters(opened.split) if isinstance(data, Fold) else data.people(opened.split)
    if people is None:
        return None
    codes = np.unique(np.asarray(people)[index.numpy()], return_inverse=True)[1]
    return None if codes.max() + 1 == len(codes) else codes
