"""Train a recipe into a run folder."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from levelhead.data import SPLITS, Examples, Inputs, Split
from levelhead.data.views import View
from levelhead.methods.fit import fit
from levelhead.models.networks import load_model
from levelhead.runs.card import write_card
from levelhead.runs.folder import REHEARSAL, predictions_table, put_ids, work_of, write_parquet
from levelhead.runs.recipe import Experiment
from levelhead.storage import read_json, read_metrics, write_json, writing
from levelhead.terminal import Progress, silent
from levelhead.training.cost import EnergyOption
from levelhead.training.lab import Lab
from levelhead.training.processes import make_accelerator
from levelhead.training.select import FOR_ANY_METHOD, SELECTORS, measured
from levelhead.training.work import environment
from levelhead.types import DataError, LevelheadError, quoted

logger = logging.getLogger(__name__)


def device_of(experiment: Experiment) -> torch.device:
    """Return the device that an experiment runs on here."""
    return torch.device("cuda" if torch.cuda.is_available() and experiment.train.device != "cpu" else "cpu")


def prepared(experiment: Experiment, split: Split, trained: Any = None, view: View | None = None) -> Examples:
    """Return a split with inputs as the experiment's network takes them; no sensitive column is opened.

    With the ``trained`` network of a run folder, its own backbone and tokenizer make them. With a ``view`` they are
    those of this part of the input alone.
    """
    describe = {"data": experiment.data_name, "split": split}
    examples = experiment.data.examples(split)
    if view is not None:
        examples, describe["view"] = replace(examples, inputs=view(examples.inputs)), str(view)
    return experiment.model.prepare(examples, device_of(experiment), describe, trained)


def _card(examples: Examples) -> dict[str, Any]:
    counts = torch.bincount(examples.labels, minlength=len(examples.class_names)).tolist()
    classes = dict(zip(examples.class_names, counts, strict=True))
    return {"rows": len(examples.labels), "classes": classes, "fingerprint": examples.fingerprint}


def _check_saved(
    experiment: Experiment, folder: Path, validation: Examples, logits: Tensor, device: torch.device
) -> None:
    """Raise :class:`LevelheadError` unless the saved network gives the validation split's first ``logits`` again.

    With its whole backbone, where features of it took its place in training: what is measured is what is delivered.
    """
    model, whole = load_model(folder / "model").to(device), experiment.model.whole()
    if whole != experiment.model:
        validation = prepared(replace(experiment, model=whole), "validation", model)
    index = torch.arange(min(16, experiment.train.predicted_rows(len(logits))))
    with torch.no_grad():
        inputs = validation.inputs.batch(index)
        again = model(**{name: tensor.to(device) for name, tensor in inputs.items()}).logits.float().cpu()
    largest = float((again - logits[index]).abs().max())
    if not largest <= 0.02 * (1 + float(logits[index].abs().max())):
        raise LevelheadError(
            f"The network saved in {folder / 'model'} gives other logits than the trained one (by up to "
            f"{largest:.2g}). Kept features may be damaged, or too coarse for its last layer: train again with "
            "--set model.features=false."
        )


def _outside(experiment: Experiment, train: Examples, validation: Examples) -> dict[str, Any]:
    """Return what a run records of its data and its backbone, by the name of the file.

    Raises :class:`DataError` for labels of one class.
    """
    present = train.labels.unique()
    if len(present) < 2:
        raise DataError(
            f"All {len(train.labels)} training labels are {quoted(train.class_names[int(present[0])])}: there is "
            "nothing to learn. Choose another target."
        )
    view = experiment.method.declared_view
    pretrained = experiment.model.fingerprint() | ({} if view is None else view.fingerprint())
    data = {"data.json": {"train": _card(train), "validation": _card(validation)}}
    return data | ({"pretrained.json": pretrained} if pretrained else {})


def _work(lab: Lab, model: nn.Module) -> dict[str, Any]:
    """Return the steps of a training, its passes over all training rows in units of the kept network, and its size."""
    whole = sum(parameter.numel() for parameter in model.parameters()) * len(lab.labels)
    return {
        "steps": lab.steps,
        "forward_passes": lab.work.forward / whole,
        "backward_passes": lab.work.backward / whole,
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def train_run(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress = silent,
    energy: EnergyOption = "counter",
) -> dict[str, Any]:
    """Train ``experiment`` into ``folder`` and return its validation metrics.

    ``energy`` says how energy is measured, see :func:`levelhead.training.cost.measured_cost`.
    An existing run folder is an error unless ``resume``; a finished one is then left as it is. The sensitive column is
    read here only for a method or a selector that declares ``uses_groups``.
    """
    accelerator = make_accelerator(experiment.train)
    main = accelerator.is_main_process  # of several processes it alone writes; the others wait, and read
    work = work_of(folder)
    with work.locked() if main else contextlib.nullcontext():
        if main:
            work.begin(experiment.recipe, resume)
        accelerator.wait_for_everyone()
        if work.finished:
            if main:
                work.tidy()  # left over if the run was killed right after its end
            return read_metrics(folder)
        experiment.data.check()
        experiment.check_pixels()
        experiment.check_view()
        # Before inputs are prepared, which takes long on a frozen backbone.
        people = experiment.data.training_people() if experiment.method.uses_people else None
        column = experiment.method.other_label
        other_labels = None if column is None else experiment.data.with_target(column).examples("train").labels
        uses, selects = experiment.method.uses_groups, SELECTORS[experiment.train.select].uses_groups
        groups = experiment.data.require_groups("train")[0].values if uses else None
        validation_groups = experiment.data.require_groups("validation")[0].values if selects else None
        began, view = time.monotonic(), experiment.method.declared_view

        @functools.cache  # first called below, so that preparing is no part of a method's cost
        def viewed(view: View) -> tuple[Inputs, Inputs]:
            train, validation = (prepared(experiment, split, view=view) for split in SPLITS[:2])
            return train.inputs, validation.inputs

        with accelerator.main_process_first():  # which fills the caches
            train, validation = prepared(experiment, "train"), prepared(experiment, "validation")
            if view is not None:
                viewed(view)
        preparing = time.monotonic() - began
        work.keep(experiment.recipe, _outside(experiment, train, validation), writes=main)
        lab = Lab(
            new_model=lambda **size: replace(experiment.model, **size).build(train.class_names),
            train=train,
            validation=validation,
            config=experiment.train,
            seed=experiment.seed,
            groups=groups,
            validation_groups=validation_groups,
            known_groups=experiment.method.validation_groups(
                lambda: experiment.data.require_groups("validation", partly=True)[0].values,
                len(validation.labels),
                experiment.seed,
            ),
            people=people,
            other_labels=other_labels,
            viewed=viewed,
            folder=folder,
            progress=progress,
        )
        with work.measured(lab.device, energy=energy, writes=main, processes=accelerator.num_processes) as measured:
            model: Any = fit(experiment.method, lab)
        logits = lab.predict(model, validation.inputs)
        if not main:
            accelerator.wait_for_everyone()
            return read_json(folder / "metrics.json")
        if lab.inferred is not None:
            rows = {"row": range(len(lab.inferred)), "part": lab.inferred.tolist()}
            write_parquet(folder / "inferred-parts.parquet", pd.DataFrame(rows))
        cost = measured.result(rows=lab.steps * experiment.train.batch_size)
        cost |= {**_work(lab, model), "preparing_seconds": preparing}
        if experiment.train.max_steps is not None:
            whole_run = {"steps": lab.whole_steps, "epochs": lab.whole_epochs}
            write_json(folder / REHEARSAL, {**whole_run, "left_out_seconds": lab.left_out_seconds})
        metrics = keep_result(experiment, folder, model, validation, logits, cost, lab.history, lab.device)
        work.tidy()
        accelerator.wait_for_everyone()
        return metrics


def keep_result(
    experiment: Experiment,
    folder: Path,
    model: Any,
    validation: Examples,
    logits: Tensor,
    cost: dict[str, Any],
    history: list[dict[str, Any]],
    device: torch.device,
) -> dict[str, Any]:
    """Write the kept network of a run and what is known of it, which makes the run a finished one.

    Args:
        experiment: what was run.
        folder: the run folder.
        model: the network.
        validation: the validation split as the network took it in training.
        logits: (validation, classes) of the network.
        cost: what it took.
        history: label-only scores by epoch.
        device: where it ran.

    Returns:
        what metrics.json holds.
    """
    write_json(folder / "environment.json", environment(device))
    predictions = predictions_table(validation, logits)
    try:
        put_ids(predictions, experiment.data, "validation")
    except LevelheadError as error:  # what was trained is worth more than ids
        logger.warning("predictions of the validation split have no ids: %s", error)
    write_parquet(folder / "predictions-validation.parquet", predictions)
    with writing(folder / "model"):
        experiment.model.save(model, folder / "model")
    _check_saved(experiment, folder, validation, logits, device)
    # Counted now: saving has put a frozen backbone into the network.
    parameters = sum(parameter.numel() for parameter in model.parameters())
    write_json(folder / "cost.json", cost | {"parameters": parameters})
    metrics = {
        "selected_by": experiment.train.select,
        "oracle": experiment.oracle,
        "told": experiment.method.told,
        "validation": measured(
            {name: SELECTORS[name].score(logits, validation.labels, None) for name in FOR_ANY_METHOD if name != "last"}
        ),
        "history": [measured(row) for row in history],
    }
    if experiment.own_code:
        metrics["own_code"] = experiment.own_code
    write_json(folder / "metrics.json", metrics)  # last: it marks the run as finished
    write_card(folder)
    return metrics
