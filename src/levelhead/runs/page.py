"""The page of one run: its gaps by group, what it cost, how its epoch was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from levelhead.report import blocks, marks
from levelhead.report.card import without_paths
from levelhead.report.one_page import one_page
from levelhead.report.text import Record, number
from levelhead.runs.cost_table import cost_table, mean_cost
from levelhead.runs.folder import require_finished
from levelhead.runs.recipe import read_recipe
from levelhead.storage import REHEARSED, as_written, read_json, read_record, rehearsed
from levelhead.training.select import score_of

ONE_RUN = "This is one run: its intervals do not cover variation between training seeds."


def run_page(folder: Path, *, split: str = "test") -> Record:
    """Summarise a finished run folder.

    Args:
        folder: what ``levelhead train`` made; evaluated or not.
        split: whose evaluation to show.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.

    Raises:
        DataError: the run is not finished.
    """
    require_finished(folder)
    with as_written(folder):
        return _run_page(folder, split)


def _run_page(folder: Path, split: str) -> Record:
    config = read_recipe(folder / "config.yaml")
    metrics = read_record(folder / "metrics.json", selected_by=str, history=list)
    name = str(config.get("name") or config["method"]["name"])
    cautions = [f"ORACLE, by its {metrics['oracle']}: {marks.MEANINGS[marks.ORACLE]}"] if metrics.get("oracle") else []
    if told := metrics.get("told"):
        cautions.append(marks.meaning(told))
    if (steps := rehearsed(config)) is not None:
        cautions.append(REHEARSED % steps)
    unknown = f"The {split} split of this run has not been evaluated by group, so its gaps are unknown: run `levelhead "
    unknown += f"evaluate {folder} --split {split}`."
    result: Record = {"by_attribute": {}, "warnings": [], "sentences": [unknown]}
    if (evaluation := folder / f"evaluation-{split}.json").exists():
        result = read_json(evaluation)
        cautions.append(ONE_RUN)
    record = {
        **result,
        "kind": "audit" if result["by_attribute"] else "evaluation",
        "warnings": [*cautions, *result["warnings"]],
        "title": f"Run {folder.name}",
        "about": {"run": f"{name} on {config['data']['name']}, seed {config.get('seed')}, {split} split"},
    }
    own = [_cost(folder, name), _settings(config, metrics), _history(metrics)]
    return one_page(record, more=[("The run: cost and settings", own)]) | {"kind": "Run"}


def _cost(folder: Path, name: str) -> Record:
    cost = mean_cost([read_json(folder / "cost.json")], [read_json(folder / "environment.json")])
    return cost_table({name: cost}, head="Run", caption="What training took")


def _settings(config: dict[str, Any], metrics: Record) -> Record:
    shown = without_paths(config)
    items: list[tuple[object, object]] = [("Epoch kept by", metrics["selected_by"])]
    for section in ("method", "model", "train"):
        items.append((section, _flat(shown.get(section) or {})))
    return blocks.terms([("Data", _flat(shown["data"])), *items, ("Seed", config.get("seed"))])


def _flat(options: dict[str, Any]) -> str:
    parts = [
        f"{key}: ({_flat(value)})" if isinstance(value, dict) else f"{key}: {value}"
        for key, value in options.items()
        if value is not None
    ]
    return ", ".join(parts)


def _history(metrics: Record) -> Record:
    """Return the label-only validation scores by epoch; the kept one is marked."""
    history, rule = metrics["history"], metrics["selected_by"]
    names = list(dict.fromkeys(key for row in history for key in row if key.startswith("val_")))
    last = max((row["stage"] for row in history), default=0)
    known = [row for row in history if row["stage"] == last and row.get(rule) is not None]
    # The first of the best, as in training; "last" is no score.
    kept = max(known, key=lambda row: (score_of(rule, row[rule]), -row["epoch"]), default=None)
    rows = [
        (
            f"stage {row['stage']}, epoch {row['epoch']}" if last else f"epoch {row['epoch']}",
            [
                blocks.cell("–", quiet=True)
                if row.get(name) is None
                else blocks.cell(number(abs(row[name]), 4), mark="kept" if row is kept and name == rule else "")
                for name in names
            ],
        )
        for row in history
    ]
    return blocks.table("Validation by epoch, labels only", ["", *names], rows)
