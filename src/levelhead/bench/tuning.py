"""Choosing options without groups: which of a method's rows a label-only rule picks, and what groups would have picked.

The choice is made on validation. The pick of a rule that sees groups stands beside it, marked ORACLE, and is used for
nothing: the gap between the two is the price of tuning blindly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from levelhead.auditing.options import LEAVE_OUT
from levelhead.bench.comparison import Comparison
from levelhead.bench.tables import Run, RunSet, choose_epoch, last_stage, measured_gap
from levelhead.metrics import Counts, estimate_to_dict
from levelhead.runs.stand_in import StandIn, named
from levelhead.storage import as_written, read_metrics
from levelhead.training.select import FOR_ANY_METHOD, score_of
from levelhead.types import ConfigError, DataError, nearest, quoted


@dataclass(frozen=True)
class Choice:
    """Of one method's ``candidates``: the row that labels chose, and the one that groups would have chosen."""

    method: str
    candidates: tuple[str, ...]
    chosen: str
    oracle: str | None


def _label_only(group: RunSet, runs: list[Run], criterion: str, selection: str | None) -> float:
    """Return the mean validation ``criterion`` of the epochs that ``selection`` keeps (None: the runs' own)."""
    scores = []
    for part in [part for run in runs for part in run.trained]:
        metrics = read_metrics(part.folder)
        kept = metrics["validation"]
        if selection is not None:
            epoch = choose_epoch(group, part, selection)[0]
            with as_written(part.folder / "metrics.json"):
                kept = last_stage(metrics)[epoch]
        score = kept.get(criterion)
        scores.append(-np.inf if score is None else score_of(criterion, score))
    return float(np.mean(scores))


def _with_groups(group: RunSet, runs: list[Run], selection: str | None) -> float:
    """Return minus the mean equalized odds gap on validation, over the groups that the tables of ``group`` compare.

    -inf where no gap is defined, NaN where a run does not hold what the epoch of ``selection`` predicted there.
    """
    gaps = []
    for run in [part for one in runs for part in one.trained]:
        frame = pd.read_parquet(run.folder / "predictions-validation.parquet")
        answers = _answers(group, run, frame, selection)
        if answers is None:
            return np.nan
        groups = _groups_of(run, frame, group.attribute)
        known = (groups >= 0) | (group.missing != LEAVE_OUT)
        counts = Counts.from_rows(frame["label"].to_numpy()[known], answers[known], groups[known])
        gaps.append(measured_gap(counts, group.min_count))
    return -float(np.nanmean(gaps)) if not np.isnan(gaps).all() else -np.inf


def _groups_of(run: Run, frame: pd.DataFrame, attribute: str) -> NDArray[np.int64]:
    """Return the group (rows,) of each validation row: as an evaluation wrote it down, else as the data has it."""
    data = named(run.experiment.data)
    if attribute in frame:
        return np.asarray(pd.factorize(frame[attribute])[0])
    if not isinstance(data, StandIn):  # of another class, the code is not run
        found = run.experiment.data.require_groups("validation", partly=True)
        if own := [one for one in found if one.attribute == attribute]:
            return np.asarray(own[0].values.numpy())
    how = (
        f"`, which runs the code of {data.name}"
        if isinstance(data, StandIn)
        else f" --join FILE --group {quoted(attribute)}`, as its test split was evaluated"
    )
    raise DataError(
        f"{run.folder} does not record the groups of its validation rows. Run `levelhead evaluate "
        f"{run.folder} --split validation{how}."
    )


def _answers(group: RunSet, run: Run, frame: pd.DataFrame, selection: str | None) -> NDArray[Any] | None:
    """Return what the kept epoch says of the validation rows; None where that is not stored."""
    if selection is None:
        return frame["prediction"].to_numpy()
    file = run.folder / "predictions-validation-epochs.parquet"
    if not file.exists():
        return None
    with as_written(file):
        epochs = pd.read_parquet(file)
        kept = epochs[epochs["epoch"] == choose_epoch(group, run, selection)[0]]
        if len(kept) != len(frame):
            raise ValueError("an epoch has another number of rows than the run")
        columns = [f"probability_{name}" for name in group.classes]
        answers: NDArray[Any] = np.array(group.classes)[kept[columns].to_numpy().argmax(-1)]
    return answers


def tune(group: RunSet, criterion: str = "val_loss", selection: str | None = None) -> tuple[RunSet, list[Choice]]:
    """Keep one row a method: the one whose runs have the best mean validation ``criterion``.

    ``selection`` as :meth:`RunSet.compare` takes it. Returns the group with the chosen rows alone, and the choices of
    the methods that had several. Reads validation groups, for the ORACLE pick only. It is None where no gap is defined
    there, or where the validation predictions of the selected epoch are not stored.
    """
    criteria = [name for name in FOR_ANY_METHOD if name != "last"]
    if criterion not in criteria:
        raise ConfigError(f"Options cannot be chosen by {criterion!r}. {nearest(criterion, criteria)}")
    rows = group.rows()
    by_method: dict[str, list[str]] = {}
    for name, runs in rows.items():
        by_method.setdefault(runs[0].experiment.method_name, []).append(name)
    choices, kept = [], []
    for method, names in by_method.items():
        chosen = max(names, key=lambda name: _label_only(group, rows[name], criterion, selection))
        kept += rows[chosen]
        if len(names) > 1:
            gaps = {name: _with_groups(group, rows[name], selection) for name in names}
            oracle = max(names, key=gaps.__getitem__)
            known = not np.isnan(list(gaps.values())).any() and gaps[oracle] > -np.inf
            choices.append(Choice(method, tuple(names), chosen, oracle if known else None))
    return replace(group, runs=kept), choices


def compare_tuned(group: RunSet, baseline: str, criterion: str, **options: Any) -> tuple[RunSet, Comparison]:
    """Return the rows that ``criterion`` chose, and :meth:`RunSet.compare` of them, which holds the choices, too.

    ``options`` as :meth:`RunSet.compare` takes them.
    """
    kept, choices = tune(group, criterion, options.get("selection"))
    comparison = kept.compare(baseline, **options)
    if not choices:
        return kept, comparison
    # Among all variants the baseline may have a longer name: it is the row with the same runs.
    first = kept.rows()[comparison.table.baseline][0]
    own = next(name for name, runs in group.rows().items() if any(run is first for run in runs))
    rows = group.compare(own, **options).table.rows

    def gap(name: str | None) -> dict[str, Any] | None:
        return None if name is None else estimate_to_dict(rows[name]["equalized_odds"].estimate)

    found = [vars(one) | {"chosen_gap": gap(one.chosen), "oracle_gap": gap(one.oracle)} for one in choices]
    return kept, replace(comparison, tuning={"criterion": criterion, "choices": found})
