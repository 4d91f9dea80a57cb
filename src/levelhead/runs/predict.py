"""Predict rows without labels with a finished run's network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from levelhead.data import Examples
from levelhead.data.text_files import read_columns, table_header
from levelhead.models.networks import classify_one
from levelhead.runs.finished import FinishedRun
from levelhead.runs.folder import load_run, require_finished
from levelhead.storage import warn_of_rehearsal
from levelhead.training.finite import refuse_not_finite
from levelhead.training.lab import predict_logits
from levelhead.types import DataError, quoted

PREDICTION, PROBABILITY = "prediction", "probability_"


def predict_file(folder: Path, table: Path) -> pd.DataFrame:
    """Predict the rows of a table; the run's own data need not be there.

    Args:
        folder: a finished run on ``text-csv``, ``image-folder-csv`` or texts of ``hub``.
        table: a csv, tsv, JSON-lines or parquet file with the run's columns of texts or of picture files. Pictures lie
            below its own folder. No label and no group is read for the prediction.

    Returns:
        the table's columns as texts, then ``prediction`` and ``probability_CLASS`` (rows,), fractions.

    Raises:
        DataError: the run is not finished, the table lacks a column, or has one of these names.
        ConfigError: the run's data set reads no table of a user's own.
    """
    require_finished(folder)
    run = FinishedRun(folder, load_run(folder, running=("data",)))
    experiment = run.experiment
    warn_of_rehearsal(experiment.train.max_steps)
    header = table_header(table)
    inputs = experiment.data.new_rows(table)
    model = run.load_model()
    names = tuple(str(model.config.id2label[position]) for position in range(model.config.num_labels))
    own = [PREDICTION, *(f"{PROBABILITY}{name}" for name in names)]
    if taken := [name for name in own if name in header]:
        raise DataError(f"{table} has a column {quoted(taken[0])} already. Rename it, or leave it out.")
    unknown = torch.zeros(len(inputs), dtype=torch.long)  # nothing reads these labels
    rows = Examples(inputs, unknown, names, inputs.fingerprint())
    examples = experiment.model.prepare(rows, run.device, {"data": table.name}, model)
    classify_one(model, examples.inputs.batch(torch.tensor([0])), folder / "model")
    logits = predict_logits(model, examples.inputs, experiment.train.evaluation_batch_size, run.device)
    refuse_not_finite(logits, f"logits of {folder}", f"of {table.name}")
    frame = pd.DataFrame(read_columns(table, header), dtype=object)
    frame[PREDICTION] = np.array(names)[logits.argmax(-1).numpy()]
    for name, column in zip(own[1:], logits.double().softmax(-1).T, strict=True):
        frame[name] = column.numpy()
    return frame
