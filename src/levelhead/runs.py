"""A run folder: what was asked, what it ran on, what came out.

::

    config.yaml                       the recipe with every default written out
    environment.json                  versions, device, threads
    data.json                         rows, classes and fingerprint of each split that was read
    pretrained.json                   hashes of a frozen backbone's weights and of its tokenizer's vocabulary
    log.jsonl                         losses by step, validation scores by epoch
    checkpoints/                      progress, one file a stage (safetensors)
    epochs/                           each epoch's weights, with ``train.keep_epochs``
    model/                            the kept network, for levelhead.from_pretrained or transformers
    predictions-validation.parquet    label, prediction and probabilities; no group
    metrics.json                      the kept checkpoint's label-only validation scores, and the history
    cost.json                         seconds, samples a second, steps, passes, peak memory, energy (docs/cost.md)
    cost-so-far.json                  the same while a run is not finished, written every ten seconds
    predictions-<split>.parquet       written by ``evaluate``, with the group columns
    predictions-<split>-epochs.parquet  the same probabilities of each kept epoch
    evaluation-<split>.json           written by ``evaluate``: metrics with intervals
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor

from levelhead import __version__
from levelhead.bench.cost import COST_SO_FAR, PAPER_WATTS, EnergyOption, earlier_part, measured_cost
from levelhead.config import Experiment, build_experiment, flatten, method_name, name_of, read_recipe, section
from levelhead.data import DATASETS, Examples, Groups, Split
from levelhead.engine import (
    EPOCHS,
    Lab,
    Progress,
    _silent,
    fit,
    load_trained_state,
    make_accelerator,
    predict_logits,
)
from levelhead.model_card import write_card
from levelhead.models import classify_one, load_model
from levelhead.select import SELECTORS
from levelhead.storage import (
    as_written,
    check_outputs,
    load_tensors,
    read_json,
    read_metrics,
    write_atomically,
    write_json,
    write_text,
    writing,
)
from levelhead.types import ConfigError, DataError, LevelheadError, listed, quoted

if TYPE_CHECKING:
    from levelhead.auditing.audit import AuditResult

CONFIG = "config.yaml"


def oracle_reason(experiment: Experiment) -> str | None:
    """Return why an experiment counts as ORACLE (it sees groups in training or selection), or None."""
    reasons = []
    if experiment.method.uses_groups:
        reasons.append("method")
    if SELECTORS[experiment.train.select].uses_groups:
        reasons.append("selection")
    return " and ".join(reasons) or None


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and the hardware of ``device``, without names of people, machines or folders."""
    packages = ("torch", "transformers", "accelerate", "numpy", "scipy")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {"levelhead": __version__} | {package: importlib.metadata.version(package) for package in packages},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def refuse_foreign(folder: Path) -> str:
    """Raise :class:`ConfigError` if a run cannot be put into ``folder``; return the pattern of files left by a kill."""
    check_outputs({}, folders={"The run folder": folder})
    leftovers = "**/.*.tmp" if (folder / CONFIG).exists() else f".{CONFIG}.*.tmp"
    if not (folder / CONFIG).exists() and folder.exists():
        others = {file.name for file in folder.iterdir()} - {".lock"} - {file.name for file in folder.glob(leftovers)}
        if others:
            raise ConfigError(f"{folder} exists and is not a run folder; choose another with --out.")
    return leftovers


def in_use(folder: Path) -> bool:
    """Return whether another process is training in ``folder`` right now."""
    try:
        with (folder / ".lock").open() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the lock goes with the process, also when it is killed."""
    leftovers = refuse_foreign(folder)  # before anything is made or deleted in it
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".lock"
    check_outputs({"The lock": lock})
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LevelheadError(f"Another process is working in {folder}; wait for it or end it.") from None
        for leftover in folder.glob(leftovers):  # a file that was being written when the run was killed
            leftover.unlink()
        yield


def _comparable(recipe: dict[str, Any]) -> dict[str, Any]:
    """Drop what may change between a run and its continuation: where the data lies, and the row's name."""
    return {key: value for key, value in flatten(recipe).items() if key not in ("data.root", "name", "train.trackers")}


def _prepare_folder(folder: Path, experiment: Experiment, resume: bool) -> None:
    if not (folder / "checkpoints").exists():
        return  # stopped before training began: there is nothing to lose
    if not resume:
        raise ConfigError(
            f"The run folder {folder} exists. Add --resume to go on with it, choose another with --out (for other "
            "--set options too), or delete it."
        )
    refuse_changes(folder, experiment)


def refuse_changes(folder: Path, experiment: Experiment) -> None:
    """Raise :class:`ConfigError` if ``folder`` holds a run that began with other settings than ``experiment``."""
    if not (folder / CONFIG).exists():
        return
    before, now = _comparable(load_run(folder).to_dict()), _comparable(experiment.to_dict())
    changed = [
        f"{key}: {quoted(before.get(key))} then, {quoted(now.get(key))} now"
        for key in sorted(before.keys() | now.keys())
        if str(before.get(key)) != str(now.get(key))
    ]
    if changed:
        raise ConfigError(
            f"The recipe differs from the one in {folder} ({'; '.join(changed)}). Choose another folder with --out, or "
            "delete this one."
        )


def _card(examples: Examples) -> dict[str, Any]:
    return {
        "rows": len(examples.labels),
        "classes": dict(
            zip(
                examples.class_names,
                torch.bincount(examples.labels, minlength=len(examples.class_names)).tolist(),
                strict=True,
            )
        ),
        "fingerprint": examples.fingerprint,
    }


def device_of(experiment: Experiment) -> torch.device:
    """Return the device that an experiment runs on here."""
    return torch.device("cuda" if torch.cuda.is_available() and experiment.train.device != "cpu" else "cpu")


def prepared(experiment: Experiment, split: Split, trained: Any = None) -> Examples:
    """Return a split with inputs as the experiment's network takes them; no sensitive column is opened.

    With the ``trained`` network of a run folder, its own backbone and tokenizer make them.
    """
    describe = {"data": name_of(experiment.data, DATASETS), "split": split}
    return experiment.model.prepare(experiment.data.examples(split), device_of(experiment), describe, trained)


def _check_saved(
    experiment: Experiment, folder: Path, validation: Examples, logits: Tensor, device: torch.device
) -> None:
    """Raise :class:`LevelheadError` unless the saved network gives the validation split's first ``logits`` again.

    With its whole backbone, where features of it took its place in training: what is measured is what is delivered.
    """
    model, whole = load_model(folder / "model").to(device), experiment.model.whole()
    if whole != experiment.model:
        validation = prepared(replace(experiment, model=whole), "validation", model)
    index = torch.arange(min(16, len(logits)))
    with torch.no_grad():
        inputs = validation.inputs.batch(index)
        again = model(**{name: tensor.to(device) for name, tensor in inputs.items()}).logits.float().cpu()
    largest = float((again - logits[index]).abs().max())
    if not largest <= 0.02 * (1 + float(logits[index].abs().max())):
        raise LevelheadError(
            f"The network saved in {folder / 'model'} gives other logits than the one that was trained (by up to "
            f"{largest:.2g}). If it was trained on kept features, they are damaged: `levelhead features prune --all`, "
            "then train again."
        )


def _predictions(examples: Examples, logits: Tensor, groups: tuple[Groups, ...] = ()) -> pd.DataFrame:
    names = np.array(examples.class_names)
    frame = pd.DataFrame({"label": names[examples.labels.numpy()], "prediction": names[logits.argmax(-1).numpy()]})
    for position, column in enumerate(logits.softmax(-1).T):
        frame[f"probability_{examples.class_names[position]}"] = column.numpy()
    for group in groups:
        frame[group.attribute] = np.array(group.names)[group.values.numpy()]
    return frame


def _write_parquet(path: Path, frame: pd.DataFrame) -> None:
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))


def train_run(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress = _silent,
    energy: EnergyOption = "counter",
    watts: float = PAPER_WATTS,
) -> dict[str, Any]:
    """Train ``experiment`` into ``folder`` and return its validation metrics.

    ``energy`` and ``watts`` say how energy is measured, see :func:`levelhead.bench.cost.measured_cost`.
    An existing run folder is an error unless ``resume``; a finished one is then left as it is. The sensitive column is
    read here only for a method or a selector that declares ``uses_groups``.
    """
    accelerator = make_accelerator(experiment.train)
    main = accelerator.is_main_process  # of several processes it alone writes; the others wait, and read
    with _locked(folder) if main else contextlib.nullcontext():
        if main:
            _prepare_folder(folder, experiment, resume)
        accelerator.wait_for_everyone()
        if (folder / "metrics.json").exists():
            return read_metrics(folder)
        experiment.data.check()
        began = time.monotonic()
        with accelerator.main_process_first():  # which fills the caches
            train, validation = prepared(experiment, "train"), prepared(experiment, "validation")
        preparing = time.monotonic() - began
        present = train.labels.unique()
        if len(present) < 2:
            raise DataError(
                f"All {len(train.labels)} training labels are {quoted(train.class_names[int(present[0])])}: there is "
                "nothing to learn. Choose another target."
            )
        card = {"train": _card(train), "validation": _card(validation)}
        if (folder / "data.json").exists() and read_json(folder / "data.json") != card:
            raise DataError(f"The data has changed since {folder} began; restore it, or start a new run with --out.")
        pretrained, known = experiment.model.fingerprint(), folder / "pretrained.json"
        if known.exists() and read_json(known) != pretrained:
            raise DataError(
                f"The pretrained backbone has changed since {folder} began; restore it, or start a new run with --out."
            )

        uses = experiment.method.uses_groups
        selects = SELECTORS[experiment.train.select].uses_groups
        lab = Lab(
            new_model=lambda **size: replace(experiment.model, **size).build(train.class_names),
            train=train,
            validation=validation,
            config=experiment.train,
            seed=experiment.seed,
            groups=experiment.data.groups("train")[0].values if uses else None,
            validation_groups=experiment.data.groups("validation")[0].values if selects else None,
            folder=folder,
            progress=progress,
        )
        if main:
            write_text(folder / CONFIG, yaml.safe_dump(experiment.to_dict(), sort_keys=False))
            write_json(folder / "data.json", card)
            if pretrained:
                write_json(known, pretrained)
        so_far = folder / COST_SO_FAR
        with measured_cost(
            lab.device,
            energy=energy if main else "off",
            watts=watts,
            file=so_far if main else None,
            earlier=earlier_part(so_far, begun=(folder / "checkpoints").exists()) if main else None,
            processes=accelerator.num_processes,
        ) as measured:
            model: Any = fit(experiment.method, lab)
        logits = lab.predict(model, validation.inputs)
        if not main:
            accelerator.wait_for_everyone()
            return read_json(folder / "metrics.json")
        write_json(folder / "environment.json", environment(lab.device))
        _write_parquet(folder / "predictions-validation.parquet", _predictions(validation, logits))
        whole = sum(parameter.numel() for parameter in model.parameters()) * len(train.labels)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        with writing(folder / "model"):
            experiment.model.save(model, folder / "model")
        _check_saved(experiment, folder, validation, logits, lab.device)
        cost: dict[str, Any] = {
            **measured.result(rows=lab.steps * experiment.train.batch_size),
            "steps": lab.steps,
            # Passes over all training rows in units of the kept network, so that methods can be compared.
            "forward_passes": lab.work.forward / whole,
            "backward_passes": lab.work.backward / whole,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "trained_parameters": trained,
            "preparing_seconds": preparing,
        }
        write_json(folder / "cost.json", cost)
        metrics = {
            "selected_by": experiment.train.select,
            "oracle": oracle_reason(experiment),
            "validation": {
                name: selector.score(logits, validation.labels, None)
                for name, selector in SELECTORS.items()
                if name != "last" and not selector.uses_groups
            },
            "history": lab.history,
        }
        write_json(folder / "metrics.json", metrics)  # last: it marks the run as finished
        write_card(folder)
        so_far.unlink(missing_ok=True)
        accelerator.wait_for_everyone()
        return metrics


def load_run(folder: Path, data_root: Path | None = None) -> Experiment:
    """Return the experiment of a run folder, with its data in ``data_root`` if given."""
    if not (folder / CONFIG).exists():
        raise DataError(f"{folder} is not a run folder: it holds no {CONFIG}. Give a folder that `train` made.")
    recipe = read_recipe(folder / CONFIG)
    if data_root is not None:
        recipe["data"] = section(recipe, "data") | {"root": str(data_root)}
    return build_experiment(recipe)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file: an evaluation holds that of its predictions, so that a table notices a change."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _kept_epochs(folder: Path) -> dict[int, Path]:
    """Return the weights that ``train.keep_epochs`` kept of the last stage, by epoch."""
    with as_written(folder / EPOCHS):
        return _last_stage(folder)


def _last_stage(folder: Path) -> dict[int, Path]:
    found = {
        tuple(int(part) for part in file.stem.removeprefix("stage-").split("-epoch-")): file
        for file in (folder / EPOCHS).glob("stage-*-epoch-*.safetensors")
    }
    last = max((stage for stage, _ in found), default=0)
    return {epoch: found[stage, epoch] for stage, epoch in sorted(found) if stage == last}


def evaluate_run(
    folder: Path, split: Split = "test", *, data_root: Path | None = None, allow_mismatched_weights: bool = False
) -> AuditResult:
    """Predict ``split`` with a finished run's network, audit it by the data set's groups, and write both down.

    ``allow_mismatched_weights`` takes a network all the same whose weights do not fit its config.json.
    A run that kept its epochs gets the predictions of each as well, for :func:`levelhead.bench.collect`'s selection.
    """
    from levelhead.auditing.audit import audit

    experiment = load_run(folder, data_root)
    if not (folder / "metrics.json").exists():
        raise DataError(f"The run {folder} is not finished. Finish it first: levelhead train ... --resume.")
    read_metrics(folder)  # the card needs them in the end
    experiment.data.check()
    device = device_of(experiment)
    model = load_model(folder / "model", allow_mismatched_weights=allow_mismatched_weights).to(device)
    examples, groups = prepared(experiment, split, model), experiment.data.groups(split)
    trained = tuple(str(model.config.id2label[position]) for position in range(model.config.num_labels))
    if trained != examples.class_names:
        raise DataError(
            f"{folder} was trained to tell {listed(trained)}, and the {split} split now has "
            f"{listed(examples.class_names)}: restore the data, or train again."
        )

    classify_one(model, examples.inputs.batch(torch.tensor([0])), folder / "model")

    def predicted() -> Tensor:
        return predict_logits(model, examples.inputs, experiment.train.evaluation_batch_size, device)

    frame = _predictions(examples, predicted(), groups)
    _write_parquet(folder / f"predictions-{split}.parquet", frame)
    epochs = _kept_epochs(folder)
    if epochs:
        frames = []
        for epoch, weights in epochs.items():
            load_trained_state(model, load_tensors(weights)[0], weights)
            probabilities = _predictions(examples, predicted()).filter(like="probability_")
            frames.append(probabilities.assign(epoch=epoch))
        _write_parquet(folder / f"predictions-{split}-epochs.parquet", pd.concat(frames))
    result = audit(
        frame["label"],
        frame["prediction"],
        sensitive_features=frame[[group.attribute for group in groups]],
        positive=examples.class_names[1] if len(examples.class_names) == 2 else None,
    )
    write_json(
        folder / f"evaluation-{split}.json",
        {
            "run": {
                "data": name_of(experiment.data, DATASETS),
                "method": method_name(experiment.method),
                "seed": experiment.seed,
                "split": split,
                "attribute": groups[0].attribute,
                "selected_by": experiment.train.select,
                "oracle": oracle_reason(experiment),
                "predictions_sha256": digest(folder / f"predictions-{split}.parquet"),
            },
            **result.to_dict(),
        },
    )
    write_card(folder)
    return result
