"""A run folder: what was asked, what it ran on, what came out.

::

    config.yaml                       the recipe with every default written out
    environment.json                  versions, device, threads
    data.json                         rows, classes and fingerprint of each split that was read
    pretrained.json                   hashes of a frozen backbone's weights, of its tokenizer's vocabulary, and of the
                                      words of a view
    log.jsonl                         losses by step, validation scores by epoch
    checkpoints/                      progress, one file a stage, and what takes long between two (safetensors);
                                      deleted when the run is finished
    epochs/                           each epoch's weights, with ``train.keep_epochs``; a grid deletes them once it has
                                      predicted the test split with each
    model/                            the kept network, for levelhead.from_pretrained or transformers
    predictions-validation.parquet    id, label, prediction and probabilities; no group
    inferred-parts.parquet            the part of each training row, where a method inferred parts; no demographic group
    metrics.json                      the kept checkpoint's label-only validation scores, and the history
    cost.json                         seconds, samples a second, steps, passes, peak memory, energy (docs/cost.md)
    rehearsal.json                    with ``train.max_steps``: the steps and epochs of a whole run, and the seconds of
                                      predictions that were left out
    cost-so-far.json                  cost.json while a run is not finished, written every ten seconds
    predictions-<split>.parquet       written by ``evaluate``, with the group columns
    predictions-<split>-epochs.parquet  the same probabilities of each kept epoch
    evaluation-<split>.json           written by ``evaluate``: metrics with intervals
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from levelhead.data import DATASETS, DataSet, Examples, Groups, Split
from levelhead.data.base import ID
from levelhead.registry import Registry
from levelhead.runs.options import override, section
from levelhead.runs.recipe import Experiment, build_experiment, read_recipe, refuse_own_code
from levelhead.runs.stand_in import NAME, StandInData, changed_of, method_stand_in, recorded_of
from levelhead.storage import as_written, read_metrics, refuse_strange_files, write_atomically
from levelhead.training.checkpoint import EPOCHS
from levelhead.training.finite import refuse_not_finite
from levelhead.training.work import CONFIG, Work
from levelhead.types import ConfigError, DataError, listed, quoted

REHEARSAL = "rehearsal.json"


def work_of(folder: Path) -> Work:
    """Return a run's training, which may go on with its data elsewhere, another row's name and other trackers."""
    free = ("data.root", "name", "train.trackers")
    return Work(folder, "metrics.json", lambda begun: load_run(begun).recipe, free=free)


def predictions_table(examples: Examples, logits: Tensor, groups: tuple[Groups, ...] = ()) -> pd.DataFrame:
    """Return label, predicted class, probabilities and groups of each row, by name; None where it has no group.

    Raises :class:`~levelhead.types.LevelheadError` for ``logits`` (rows, classes) that are not finite.
    """
    refuse_not_finite(logits, "network's logits", "to predict")
    names = np.array(examples.class_names)
    frame = pd.DataFrame({"label": names[examples.labels.numpy()], "prediction": names[logits.argmax(-1).numpy()]})
    for position, column in enumerate(logits.softmax(-1).T):
        frame[f"probability_{examples.class_names[position]}"] = column.numpy()
    for group in groups:
        frame[group.attribute] = np.array([*group.names, None], dtype=object)[group.values.numpy()]  # -1 is the last
    return frame


def put_ids(frame: pd.DataFrame, data: DataSet, split: Split) -> None:
    """Put the ids of ``split`` before the other columns of predictions, where the data set has any."""
    if (ids := data.ids(split)) is not None:
        frame.insert(0, data.id_name if data.id_name not in frame else ID, list(ids))


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """Write a table atomically."""
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))


def refuse_other_folder(folder: Path) -> None:
    """Raise :class:`~levelhead.types.DataError` unless ``folder`` is a run folder."""
    if not (folder / CONFIG).exists():
        beside = sorted(one.parent.name for one in folder.parent.glob(f"*/{CONFIG}"))
        there = f" Run folders in {folder.parent}: {listed(beside, 10)}." if beside else ""
        raise DataError(
            f"{folder} is not a run folder: it holds no {CONFIG}. Give a folder that `levelhead train` made.{there}"
        )
    refuse_strange_files(folder)


def require_finished(folder: Path) -> None:
    """Raise :class:`~levelhead.types.DataError`, with the command to type, unless ``folder`` holds a finished run."""
    refuse_other_folder(folder)
    if not (folder / "metrics.json").exists():
        recipe, out = shlex.quote(str(folder / CONFIG)), shlex.quote(str(folder))
        raise DataError(
            f"The run {folder} is not finished. Finish it first: levelhead train {recipe} --out {out} --resume"
        )


def load_run(
    folder: Path,
    data_root: Path | None = None,
    settings: Iterable[str] = (),
    *,
    running: Collection[str] = ("data", "method"),
) -> Experiment:
    """Return the experiment of a run folder, with its data in ``data_root`` if given.

    ``settings`` such as ``data.file=other.csv`` name other data; :class:`ConfigError` if one is about anything else.
    A class of the run's own is loaded, which runs its code, if its section is in ``running``; else a
    :mod:`stand-in <levelhead.runs.stand_in>` has what the run recorded of it.
    """
    refuse_other_folder(folder)
    recipe = read_recipe(folder / CONFIG)
    refuse_own_code(folder / CONFIG, {part: recipe.get(part) or {} for part in running})
    for setting in settings:
        if not setting.strip().startswith("data."):
            raise ConfigError(
                f"--set {quoted(setting)}: only the data of a finished run can change, e.g. --set data.file=other.csv."
            )
    recipe = override(recipe, settings)
    if data_root is not None:
        recipe["data"] = section(recipe, "data") | {"root": str(data_root)}

    def stand_in(table: Registry[Any], name: str, options: Mapping[str, Any]) -> Any:
        part = "data" if table is DATASETS else "method"
        if part in running:
            return None
        if not NAME.fullmatch(name):
            raise ConfigError(f"{folder / CONFIG}: {part}.name {quoted(name)} is no name of a {table.kind}.")
        metrics = read_metrics(folder)
        with as_written(folder / "metrics.json"):
            if part == "method":
                return method_stand_in(name, options, metrics)
            return StandInData(name=name, options=options, changed=changed_of(recorded_of(metrics, part)))

    return build_experiment(recipe, stand_in)


def read_run(folder: Path) -> Experiment:
    """Return the experiment of a finished run for reading its results: code that the run names is not run."""
    return load_run(folder, running=())


def digest(file: Path) -> str:
    """Return the SHA-256 of a file: an evaluation holds that of its predictions, so that a table notices a change."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def kept_epochs(folder: Path) -> dict[int, Path]:
    """Return the weights that ``train.keep_epochs`` kept of the last stage, by epoch."""
    with as_written(folder / EPOCHS):
        found = {
            tuple(int(part) for part in file.stem.removeprefix("stage-").split("-epoch-")): file
            for file in (folder / EPOCHS).glob("stage-*-epoch-*.safetensors")
        }
        last = max((stage for stage, _ in found), default=0)
        return {epoch: found[stage, epoch] for stage, epoch in sorted(found) if stage == last}
