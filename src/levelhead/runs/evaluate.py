"""Evaluate a finished run: predictions, and group metrics with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from levelhead.data import DATASETS, Split
from levelhead.models.networks import classify_one, load_model
from levelhead.runs.card import write_card
from levelhead.runs.recipe import method_name, name_of
from levelhead.storage import (
    load_tensors,
    read_metrics,
    write_json,
)
from levelhead.training.checkpoint import load_trained_state
from levelhead.training.lab import predict_logits
from levelhead.types import DataError, listed

if TYPE_CHECKING:
    from levelhead.auditing.audit import AuditResult
from levelhead.runs.folder import (
    device_of,
    digest,
    kept_epochs,
    load_run,
    oracle_reason,
    predictions_table,
    prepared,
    write_parquet,
)


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

    frame = predictions_table(examples, predicted(), groups)
    write_parquet(folder / f"predictions-{split}.parquet", frame)
    epochs = kept_epochs(folder)
    if epochs:
        frames = []
        for epoch, weights in epochs.items():
            load_trained_state(model, load_tensors(weights)[0], weights)
            probabilities = predictions_table(examples, predicted()).filter(like="probability_")
            frames.append(probabilities.assign(epoch=epoch))
        write_parquet(folder / f"predictions-{split}-epochs.parquet", pd.concat(frames))
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
