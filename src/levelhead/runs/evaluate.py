"""Evaluate a finished run: predictions, and group metrics with intervals."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from levelhead.auditing.door import audit
from levelhead.auditing.options import LEAVE_OUT, MIN_COUNT, check_grouping
from levelhead.auditing.overall import Overall
from levelhead.auditing.result import AuditResult
from levelhead.data import DataSet, Examples, Groups, Split
from levelhead.data.folds import Fold
from levelhead.data.texts import Texts
from levelhead.metrics.clustered import cluster_codes
from levelhead.models.networks import classify_one
from levelhead.runs.card import write_card
from levelhead.runs.finished import FinishedRun, open_finished
from levelhead.runs.folder import (
    digest,
    kept_epochs,
    load_run,
    predictions_table,
    put_ids,
    read_run,
    write_parquet,
)
from levelhead.runs.joined import Join, groups_of
from levelhead.runs.recipe import Experiment
from levelhead.storage import is_run, load_tensors, read_metrics, refuse_strange_files, write_json
from levelhead.tables.tally import VALUES
from levelhead.training.finite import refuse_not_finite
from levelhead.training.lab import predict_logits
from levelhead.training.weights import load_trained_state
from levelhead.types import ConfigError, LevelheadError, listed, quoted

logger = logging.getLogger(__name__)

OTHER_FILES = {"name", "root", "folder", "file", "csv", "path", "config_name"}
"""Options of data that name other files than the run's own."""
SHARES = {"fold", "folds", "split_seed", "validation_share", "test_share"}
DEALING = {*SHARES, "split_column", "person_column", "text_column", "pair_column", "file_column", "image_column"}
"""Options of data that decide which split a row is of where no column of the data says so."""


def evaluate_run(
    folder: Path,
    split: Split = "test",
    *,
    data_root: Path | None = None,
    settings: Sequence[str] = (),
    out: Path | None = None,
    cluster: str | None = None,
    min_count: int = MIN_COUNT,
    missing: str = LEAVE_OUT,
    join: Join | None = None,
) -> AuditResult | Overall:
    """Predict ``split`` with a finished run's network, audit it by the data set's groups, and write both down.

    A data set without groups gives the figures of all rows together, and predictions that groups can be joined to.
    ``settings`` (``data.…=…``) name other data, or other groups; then everything is written into the folder ``out``,
    and the run folder keeps what was measured on its own.
    ``cluster`` names the column of the predictions that tells which rows belong together, such as ``id``; None: the
    person, where the data set knows people. Intervals, and those of tables, take such rows together.
    ``min_count`` and ``missing`` are those of :func:`levelhead.audit`; ``join`` names groups in another file.
    A run that kept its epochs gets the predictions of each as well, for :func:`levelhead.bench.collect`'s selection.
    """
    if (bool(settings) or (join is not None and out is not None)) != (out is not None):
        raise ConfigError("--set and --out go together: results on other data need their own folder.")
    refuse_strange_files(out or folder)
    if out is not None and is_run(out):
        raise ConfigError(f"--out {out} is a run folder: its own figures would be lost. Choose another folder.")
    check_grouping(1, min_count, False, missing)
    run = open_finished(folder, data_root, settings)
    read_metrics(folder)  # the card needs them in the end
    experiment, device = run.experiment, run.device
    if settings:
        _refuse_dealing_anew(folder, experiment)
    else:
        run.warn_of_changes(split)
    if settings or split != "train":
        _warn_of_trained(folder, data_root, experiment, split, other=bool(settings))
    groups = groups_of(experiment.data, split, join)  # first, for what is wrong with them would show after long work
    model = run.load_model()
    examples = run.prepared(split, model)
    classify_one(model, examples.inputs.batch(torch.tensor([0])), folder / "model")

    def predicted() -> Tensor:
        found = predict_logits(model, examples.inputs, experiment.train.evaluation_batch_size, device)
        refuse_not_finite(found, f"logits of {folder}", f"of the {split} split")
        return found

    logits, frames = predicted(), []
    for epoch, weights in (kept_epochs(folder) if out is None else {}).items():
        load_trained_state(model, load_tensors(weights)[0], weights)
        probabilities = predictions_table(examples, predicted()).filter(like="probability_")
        frames.append(probabilities.assign(epoch=epoch))
    if frames:
        write_parquet(folder / f"predictions-{split}-epochs.parquet", pd.concat(frames))
    return write_evaluation(run, split, examples, groups, logits, out, cluster, min_count=min_count, missing=missing)


def _refuse_dealing_anew(run: Path, now: Experiment) -> None:
    """Raise :class:`ConfigError` for settings that deal the rows of the run's own files to other splits."""
    before, after = (one.recipe["data"] for one in (read_run(run), now))
    changed = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
    dealing = changed & (DEALING if before.get("split_column") is None else {*SHARES, "split_column"})
    if dealing and not changed & OTHER_FILES:
        raise ConfigError(
            f"--set data.{min(dealing)} deals the rows of the run's own file to other splits, so the network may have "
            "been trained on rows that it would be tested on. Leave it out, or train again."
        )


def _warn_of_trained(run: Path, data_root: Path | None, now: Experiment, split: Split, *, other: bool) -> None:
    """Log how many rows of ``split`` hold an input that the network was trained on, wherever it stands.

    Pictures, which take long to decode, are looked at where they are of ``other`` data than the run's own.
    """
    try:
        asked = now.data.examples(split).inputs
        if not other and not isinstance(asked, Texts):
            return
        trained = set(load_run(run, data_root).data.examples("train").inputs.keys())
        keys = asked.keys()
    except LevelheadError:  # the run's own rows are gone, or a data set of a user's own knows no keys
        return
    if seen := sum(key in trained for key in keys):
        logger.warning(
            "%s of %s %s rows (%.0f%%) hold an input that %s was trained on: their figures are not those of new rows.",
            f"{seen:,}", f"{len(asked):,}", split, 100 * seen / len(asked), run,
        )  # fmt: skip


def write_evaluation(
    run: FinishedRun,
    split: Split,
    examples: Examples,
    groups: tuple[Groups, ...],
    logits: Tensor,
    out: Path | None = None,
    cluster: str | None = None,
    *,
    min_count: int = MIN_COUNT,
    missing: str = LEAVE_OUT,
) -> AuditResult | Overall:
    """Write down what a run's network answers to the rows of ``split``, and what an audit by ``groups`` finds.

    Args:
        run: whose folder is written to.
        split: which rows they are.
        examples: the rows.
        groups: the sensitive attributes of the rows, first the main one; may be empty.
        logits: (rows, classes) of the run's network.
        out: another folder, for rows that are not of the run's own data; made if it is not there.
        cluster: as :func:`evaluate_run` takes it.
        min_count: smallest denominator for a rate to enter a gap.
        missing: what becomes of rows without a group, as :func:`levelhead.audit` takes it.
    """
    experiment, folder = run.experiment, out or run.folder
    folder.mkdir(parents=True, exist_ok=True)
    frame = predictions_table(examples, logits, groups)
    fold: dict[str, Any] = {}
    if isinstance(data := experiment.data, Fold):  # so that tables put the folds together, and no others
        frame["row"] = data.rows(split).numpy()
        fold = {"folds": data.folds, "fold": data.fold, "pool": data.pool.fingerprint}
    put_ids(frame, data, split)
    together = _together(frame, data, split, cluster)
    if together is not None:
        frame["cluster"] = together
    # Folds of data that know no people take equal rows together in tables, but not as people.
    people = None if together is None or together.name is None else together
    write_parquet(folder / f"predictions-{split}.parquet", frame)
    result: AuditResult | Overall = (
        audit(
            frame["label"],
            frame["prediction"],
            sensitive_features=frame[[group.attribute for group in groups]],
            # A data set says what its groups are, of any number numbers they may be.
            bins={group.attribute: VALUES for group in groups},
            positive=examples.class_names[1] if len(examples.class_names) == 2 else None,
            cluster=people,
            min_count=min_count,
            missing=missing,
            label_map={name: name for name in examples.class_names},  # they were checked before training
        )
        if groups
        else Overall.of(
            examples.labels.numpy(),
            logits.double().softmax(-1).numpy(),
            examples.class_names,
            cluster=people,
        )
    )
    write_json(
        folder / f"evaluation-{split}.json",
        {
            "run": {
                **run.about,
                "split": split,
                **fold,
                "attribute": groups[0].attribute if groups else None,
                "selected_by": experiment.train.select,
                "oracle": experiment.oracle,
                "told": experiment.method.told,
                "predictions_sha256": digest(folder / f"predictions-{split}.parquet"),
            },
            **result.to_dict(),
        },
    )
    if out is None:
        write_card(folder)
    return result


def _together(frame: pd.DataFrame, data: DataSet, split: Split, cluster: str | None) -> pd.Series | None:
    """Return a number for each row, the same for rows that belong together, named after what they have in common."""
    if cluster is not None:
        known = [name for name in map(str, frame.columns) if name not in ("label", "prediction", "row")]
        known = [name for name in known if not name.startswith("probability_")]
        if cluster not in known:
            raise ConfigError(
                f"There is no column {quoted(cluster)} to cluster by. Columns: {listed(known) or 'none'}."
            )
        return pd.Series(cluster_codes(frame[cluster]), name=cluster)
    if isinstance(data, Fold):
        return pd.Series(data.clusters(split), name="person" if data.pool.people else None)
    people = data.people(split)
    return None if people is None else pd.Series(pd.factorize(np.asarray(people))[0], name="person")
