"""Choosing options without groups: which of a method's rows a label-only rule picks, and what groups would have picked.

The choice is made on validation. The pick of a rule that sees groups stands beside it, marked ORACLE, and is used for
nothing: the gap between the two is the price of tuning blindly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from levelhead.auditing.options import LEAVE_OUT
from levelhead.bench.comparison import Comparison
from levelhead.bench.tables import Run, RunSet, measured_gap
from levelhead.metrics import Counts
from levelhead.metrics.names import COMPARED
from levelhead.report import blocks
from levelhead.report.text import Record
from levelhead.runs.stand_in import StandIn, named
from levelhead.storage import read_metrics
from levelhead.training.select import FOR_ANY_METHOD, score_of
from levelhead.types import ConfigError, DataError, nearest


@dataclass(frozen=True)
class Choice:
    """Of one method's ``candidates``: the row that labels chose, and the one that groups would have chosen."""

    method: str
    candidates: tuple[str, ...]
    chosen: str
    oracle: str | None


def _label_only(runs: list[Run], criterion: str) -> float:
    parts = [part for run in runs for part in run.trained]
    scores = [read_metrics(part.folder)["validation"].get(criterion) for part in parts]
    return float(np.mean([-np.inf if score is None else score_of(criterion, score) for score in scores]))


def _with_groups(group: RunSet, runs: list[Run]) -> float:
    """Return minus the mean equalized odds gap on validation, over the groups that the tables of ``group`` compare."""
    gaps, attribute = [], group.attribute
    for run in [part for one in runs for part in one.trained]:
        frame = pd.read_parquet(run.folder / "predictions-validation.parquet")
        data = named(run.experiment.data)
        if isinstance(data, StandIn):  # whose code is not run: an evaluation wrote the groups down
            if attribute not in frame:
                raise DataError(
                    f"{run.folder} does not record the groups of its validation rows. Run `levelhead evaluate "
                    f"{run.folder} --split validation`, which runs the code of {data.name}."
                )
            groups = pd.factorize(frame[attribute])[0]
        else:
            groups = run.experiment.data.require_groups("validation", partly=True)[0].values.numpy()
        known = (groups >= 0) | (group.missing != LEAVE_OUT)
        labels, answers = (frame[column].to_numpy()[known] for column in ("label", "prediction"))
        gaps.append(measured_gap(Counts.from_rows(labels, answers, groups[known]), group.min_count))
    return -float(np.nanmean(gaps)) if not np.isnan(gaps).all() else -np.inf


def tune(group: RunSet, criterion: str = "val_loss") -> tuple[RunSet, list[Choice]]:
    """Keep one row a method: the one whose runs have the best mean validation ``criterion``.

    Returns the group with the chosen rows alone, and the choices of the methods that had several. Reads validation
    groups, for the ORACLE pick only, which is None where no gap is defined there.
    """
    known = [name for name in FOR_ANY_METHOD if name != "last"]
    if criterion not in known:
        raise ConfigError(f"Options cannot be chosen by {criterion!r}. {nearest(criterion, known)}")
    rows = group.rows()
    by_method: dict[str, list[str]] = {}
    for name, runs in rows.items():
        by_method.setdefault(runs[0].experiment.method_name, []).append(name)
    choices, kept = [], []
    for method, names in by_method.items():
        chosen = max(names, key=lambda name: _label_only(rows[name], criterion))
        kept += rows[chosen]
        if len(names) > 1:
            gaps = {name: _with_groups(group, rows[name]) for name in names}
            oracle = max(names, key=gaps.__getitem__)
            choices.append(Choice(method, tuple(names), chosen, None if gaps[oracle] == -np.inf else oracle))
    return replace(group, runs=kept), choices


def choices_table(choices: list[Choice], everything: Comparison, criterion: str) -> Record:
    """Return the table of the choices, with both picks' EOd gap on the split of ``everything``."""

    def gap(row: str) -> Record:
        return blocks.figure_cell(everything.table.rows[row]["equalized_odds"].estimate)

    rows = [
        (
            one.method,
            [
                blocks.cell(len(one.candidates)),
                blocks.cell(one.chosen),
                gap(one.chosen),
                blocks.cell(one.oracle or "undefined"),
                blocks.cell("") if one.oracle is None else gap(one.oracle),
            ],
        )
        for one in choices
    ]
    title = COMPARED["equalized_odds"]
    columns = ["Method", "variants", "chosen by labels", title, "ORACLE: by groups", title]
    note = f"chosen by {criterion} on validation; ORACLE: by the smallest EOd gap on validation, with groups"
    return blocks.table("Options", columns, rows, notes=[note], text_columns=[2, 4], where=blocks.BOTH)


def choices_to_dict(choices: list[Choice], criterion: str) -> dict[str, Any]:
    """Return a JSON-able dict."""
    return {"criterion": criterion, "choices": [vars(choice) for choice in choices]}
