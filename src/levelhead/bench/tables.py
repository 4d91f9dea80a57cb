"""Compare evaluated runs: what differs between methods, over test rows and training seeds together."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.table import Table

from levelhead.config import Experiment, flatten, name_of, nearest
from levelhead.data import DATASETS, Split
from levelhead.methods import METHODS
from levelhead.metrics import Counts, JointRow, JointTable, equalized_odds, estimate_to_dict, joint
from levelhead.metrics.ranking import area_under_roc
from levelhead.runs import CONFIG, load_run, oracle_reason
from levelhead.select import SELECTORS
from levelhead.storage import read_json
from levelhead.types import ConfigError, DataError, Estimate

logger = logging.getLogger(__name__)

LEAKING = "LEAKING_equalized_odds"
"""Keep the epoch with the smallest EOd gap on the very rows that are reported, as the authors' CelebA notebook does."""

Threshold = Literal["own", "matched"]

COLUMNS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "worst_group_accuracy": "worst group accuracy",
    "demographic_parity": "DP gap",
    "equal_opportunity": "EOp gap",
    "equalized_odds": "EOd gap",
}


@dataclass(frozen=True)
class Run:
    """One evaluated run: its experiment, the split's predictions, environment and cost."""

    folder: Path
    experiment: Experiment
    predictions: pd.DataFrame
    environment: dict[str, Any]
    cost: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the data and the seed, flat: runs that agree in it are seeds of one row."""
        recipe = self.experiment.to_dict()
        return flatten({section: recipe[section] for section in ("method", "model", "train")})


def _changed_options(experiment: Experiment) -> dict[str, Any]:
    """Return the method's options that are not the default."""
    now = flatten(dataclasses.asdict(experiment.method))
    default = flatten(dataclasses.asdict(type(experiment.method)()))
    return {key: value for key, value in now.items() if value != default.get(key)}


@dataclass(frozen=True)
class Comparison:
    """The joint table of one data set and split, with what it took to make it.

    ``selection`` is the rule that chose the epochs, where it was not the runs' own; ``positive_rate`` the share of
    rows that every method calls positive, where thresholds were matched; ``areas`` the area under the ROC curve by
    method and group, with its difference to the baseline (two classes only).
    """

    data: dict[str, Any]
    split: str
    attribute: str
    rows: int
    seeds: dict[str, list[int]]
    settings: dict[str, dict[str, Any]]
    oracle: dict[str, str | None]
    cost: dict[str, dict[str, float]]
    environments: list[dict[str, Any]]
    table: JointTable
    selection: str | None = None
    positive_rate: float | None = None
    areas: dict[str, dict[str, tuple[Estimate, Estimate | None]]] | None = None

    @property
    def title(self) -> str:
        """One line that says what was compared: the data set's options are those that are not the default."""
        default = dataclasses.asdict(DATASETS[self.data["name"]]())
        options = {
            key: value
            for key, value in self.data.items()
            if key != "name" and (key == "target" or value != default[key])
        }
        name = self.data["name"] + (f" ({', '.join(f'{k} {v}' for k, v in options.items())})" if options else "")
        title = f"{name}: {self.split} split, {self.rows:,} rows, groups by {self.attribute}"
        if self.selection:
            title += f"; epochs by {self.selection}"
        if self.positive_rate is not None:
            title += f"; thresholds that call {self.positive_rate:.1%} positive, as {self.table.baseline} does"
        return title

    def label(self, method: str) -> str:
        """Return the row's name as printed, marked if it saw groups (LEAKING: those of the reported rows)."""
        name = f"{method} ORACLE" if self.oracle[method] else method
        return f"{name} LEAKING" if self.selection == LEAKING else name

    @property
    def sources(self) -> str:
        """What the intervals hold: a row with one seed has no measured variance over seeds."""
        alone = [self.label(method) for method, seeds in self.seeds.items() if len(seeds) == 1]
        return "test rows and seeds" + (
            f" (test rows alone where there is one seed: {', '.join(alone)})" if alone else ""
        )

    def tables(self) -> list[Table]:
        """Return the figures and the paired differences as two drawn tables, in percent."""
        counts = sorted({len(seeds) for seeds in self.seeds.values()})
        shown = {name: title for name, title in COLUMNS.items() if name != "balanced_accuracy"}  # 80 columns wide
        figures = Table(
            title=self.title,
            caption=f"percent, mean over {' or '.join(map(str, counts))} seed{'s' * (counts[-1] > 1)}; "
            f"{self.table.level:.0%} interval over {self.sources}",
            show_lines=True,
        )
        differences = Table(
            title=f"Difference to {self.table.baseline}, in points",
            caption="a negative gap difference is a smaller measured gap; p by Holm over the methods",
            show_lines=True,
        )
        for drawn in (figures, differences):
            drawn.add_column("method")
            for title in shown.values():
                drawn.add_column(title.replace(" ", "\n", 1), justify="right", min_width=8)
        figures.add_column("train\nseconds", justify="right")
        for method, row in self.table.rows.items():
            cells = [_percent(row[name].estimate) for name in shown]
            figures.add_row(self.label(method), *cells, f"{self.cost[method]['seconds']:.0f}")
            if method != self.table.baseline:
                differences.add_row(self.label(method), *(_difference(row[name]) for name in shown))
        drawn_tables = [figures, differences] if len(self.table.rows) > 1 else [figures]
        return drawn_tables + ([self._area_table()] if self.areas else [])

    def _area_table(self) -> Table:
        assert self.areas is not None
        groups = list(next(iter(self.areas.values())))
        drawn = Table(
            title="Area under the ROC curve by group: no threshold moves it",
            caption=f"percent, {self.table.level:.0%} interval over {self.sources}; below: difference to "
            f"{self.table.baseline}, in points",
            show_lines=True,
        )
        drawn.add_column("method")
        for group in groups:
            drawn.add_column(f"{self.attribute}:\n{group}" if group != "all" else "all rows", justify="right")
        for method, areas in self.areas.items():
            drawn.add_row(self.label(method), *(_area(*areas[group]) for group in groups))
        return drawn

    def findings(self, metric: str = "equalized_odds") -> list[str]:
        """Return one plain sentence a method: the measured difference to the baseline, and whether it is decided."""
        sentences = []
        for method, row in self.table.rows.items():
            difference = row[metric].difference
            if difference is None:
                continue
            what = f"{COLUMNS[metric]} of {self.label(method)} against {self.table.baseline}"
            if not difference.defined:
                sentences.append(f"{what}: undefined, {difference.reason}.")
                continue
            low, high = 100 * difference.low, 100 * difference.high
            p_value = row[metric].p_holm
            decided = p_value is not None and p_value < 1 - self.table.level and not low <= 0 <= high
            verdict = "These rows and seeds tell them apart." if decided else "These rows and seeds do not decide."
            if difference.reason:
                verdict = f"Not decided: {difference.reason}."
            size = "smaller" if difference.value < 0 else "larger"
            sentences.append(
                f"{what}: measured {abs(100 * difference.value):.1f} points {size}, "
                f"interval [{low:+.1f}, {high:+.1f}]. "
                f"{verdict}"
            )
        return sentences

    def markdown(self) -> str:
        """Return both tables as Markdown."""
        lines = [f"**{self.title}**", "", _markdown_row(["method", *COLUMNS.values(), "seconds"])]
        lines.append(_markdown_row(["---"] + ["---:"] * (len(COLUMNS) + 1)))
        for method, row in self.table.rows.items():
            seconds = f"{self.cost[method]['seconds']:.0f}"
            lines.append(
                _markdown_row([self.label(method), *(_percent(row[name].estimate) for name in COLUMNS), seconds])
            )
        for method, row in self.table.rows.items():
            if method != self.table.baseline:
                name = f"{self.label(method)} minus {self.table.baseline}"
                lines.append(_markdown_row([name, *(_difference(row[column]) for column in COLUMNS), ""]))
        if self.areas:
            groups = list(next(iter(self.areas.values())))
            titles = [
                f"area under ROC, {group if group == 'all' else f'{self.attribute}: {group}'}" for group in groups
            ]
            lines += ["", _markdown_row(["method", *titles]), _markdown_row(["---"] + ["---:"] * len(groups))]
            for method, areas in self.areas.items():
                lines.append(_markdown_row([self.label(method), *(_area(*areas[group]) for group in groups)]))
        lines += ["", f"Percent; {self.table.level:.0%} interval over {self.sources}.", *self.findings()]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict of aggregates: no row of the data is in it."""
        return {
            "data": self.data,
            "split": self.split,
            "attribute": self.attribute,
            "rows": self.rows,
            "seeds": self.seeds,
            "settings": self.settings,
            "oracle": self.oracle,
            "cost": self.cost,
            "environments": self.environments,
            "selection": self.selection,
            "matched_positive_rate": self.positive_rate,
            **self.table.to_dict(),
            "area_under_roc": self.areas
            and {
                method: {
                    group: {
                        **estimate_to_dict(area),
                        "difference": None if difference is None else estimate_to_dict(difference),
                    }
                    for group, (area, difference) in areas.items()
                }
                for method, areas in self.areas.items()
            },
        }


def _percent(estimate: Estimate) -> str:
    if not estimate.defined:
        return "undefined"
    return f"{100 * estimate.value:.2f}\n[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _difference(row: JointRow) -> str:
    estimate = row.difference
    assert estimate is not None, "only rows that are not the baseline have a difference"
    if not estimate.defined:
        return "undefined"
    adjusted = "" if row.p_holm is None else f"\np {row.p_holm:.2g}"
    return f"{100 * estimate.value:+.2f}\n[{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]{adjusted}"


def _area(area: Estimate, difference: Estimate | None) -> str:
    if not area.defined:
        return "undefined"
    own = f"{100 * area.value:.2f} [{100 * area.low:.1f}, {100 * area.high:.1f}]"
    if difference is None:
        return own
    return f"{own}\n{100 * difference.value:+.2f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("\n", " ") for cell in cells) + " |"


@dataclass(frozen=True)
class Group:
    """Runs on the same rows."""

    split: Split
    runs: list[Run]

    def compare(self, baseline: str, *, selection: str | None = None, threshold: Threshold = "own") -> Comparison:
        """Return the joint table; rows are sets of runs that differ in the seed alone.

        ``selection`` chooses each run's epoch anew, by a label-only selector or by :data:`LEAKING`; the runs must have
        been trained with ``train.keep_epochs``. ``threshold="matched"`` lets every run call as many rows positive as
        the baseline does on average over its seeds, so that a mere shift of the threshold changes nothing.
        """
        rows = self.rows()
        wanted = baseline.lower()
        names = [name for name in rows if name.lower() == wanted or name.lower().startswith(f"{wanted} ")]
        if not names:
            raise ConfigError(f"There is no run of the baseline {baseline!r}. {nearest(baseline, rows)}")
        rows = {names[0]: rows[names[0]]} | rows
        first = self.runs[0]
        labels, group, classes = first.predictions["label"], first.predictions[self.attribute], self.classes
        # The joint table orders classes by name; the positive one is the data set's second.
        positive = sorted(classes).index(classes[1]) if len(classes) == 2 else None
        probabilities = {name: self.probabilities(runs, selection) for name, runs in rows.items()}
        predictions = {name: np.array(classes)[values.argmax(-1)] for name, values in probabilities.items()}
        rate, areas = None, None
        if threshold == "matched":
            if positive is None:
                raise ConfigError(f"Thresholds can be matched for two classes only; there are {len(classes)}.")
            rate = float((predictions[names[0]] == classes[1]).mean())
            predictions = {
                name: np.array(classes)[_highest(values[..., 1], round(rate * len(labels)))]
                for name, values in probabilities.items()
            }
        if positive is not None:
            scores = {name: values[..., 1] for name, values in probabilities.items()}
            areas = area_under_roc(labels, group, scores, positive=classes[1], baseline=names[0])
        table = joint(labels.to_numpy(), group.to_numpy(), predictions, baseline=names[0], positive=positive)
        recipe = first.experiment.to_dict()["data"]
        return Comparison(
            data={key: value for key, value in recipe.items() if key != "root"},
            split=self.split,
            attribute=self.attribute,
            rows=len(labels),
            seeds={name: [run.experiment.seed for run in runs] for name, runs in rows.items()},
            settings={name: runs[0].settings for name, runs in rows.items()},
            oracle={name: oracle_reason(runs[0].experiment) for name, runs in rows.items()},
            cost={
                name: {
                    key: sum(run.cost[key] for run in runs) / len(runs)
                    for key in runs[0].cost
                    if all(key in run.cost for run in runs)
                }
                for name, runs in rows.items()
            },
            environments=[json.loads(text) for text in dict.fromkeys(json.dumps(run.environment) for run in self.runs)],
            table=table,
            selection=selection,
            positive_rate=rate,
            areas=areas,
        )

    @property
    def attribute(self) -> str:
        """Name of the sensitive attribute."""
        attribute: str = read_json(self.runs[0].folder / f"evaluation-{self.split}.json")["run"]["attribute"]
        return attribute

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the data set's order; of two, the second is the positive one."""
        columns = [str(column) for column in self.runs[0].predictions.columns]
        return [column.removeprefix("probability_") for column in columns if column.startswith("probability_")]

    def probabilities(self, runs: Sequence[Run], selection: str | None = None) -> np.ndarray:
        """Return probabilities (runs, rows, classes) of the epochs that ``selection`` keeps (None: the runs' own)."""
        return np.stack([_probabilities(run, self.split, self.attribute, selection) for run in runs])

    def rows(self) -> dict[str, list[Run]]:
        """Return the rows by name: the method, its options that are not the default, what else tells rows apart."""
        same: dict[str, list[Run]] = {}
        for run in self.runs:
            same.setdefault(str(sorted(run.settings.items(), key=str)), []).append(run)
        groups = list(same.values())
        every = [group[0].settings for group in groups]
        apart = [
            key
            for key in sorted(set().union(*every))
            if not key.startswith("method.") and len({str(settings.get(key)) for settings in every}) > 1
        ]
        rows: dict[str, list[Run]] = {}
        for group in groups:
            experiment = group[0].experiment
            options = _changed_options(experiment) | {key: group[0].settings[key] for key in apart}
            name = experiment.name or name_of(experiment.method, METHODS)
            if options and not experiment.name:
                name += f" ({', '.join(f'{key}={value}' for key, value in options.items())})"
            if name in rows:
                raise ConfigError(
                    f"Runs with different settings have the same name {name!r}: {rows[name][0].folder} and "
                    f"{group[0].folder}. Give them different names, or leave one out."
                )
            group.sort(key=lambda run: run.experiment.seed)
            seeds = [run.experiment.seed for run in group]
            if len(set(seeds)) < len(seeds):
                raise ConfigError(
                    f"Two runs of {name!r} have the same seed: {', '.join(str(run.folder) for run in group)}. A seed "
                    "counts once; leave one of them out."
                )
            rows[name] = group
        return rows


def _probabilities(run: Run, split: Split, attribute: str, selection: str | None) -> np.ndarray:
    """Return the predicted probabilities (rows, classes) of the epoch that ``selection`` keeps."""
    columns = [column for column in run.predictions.columns if str(column).startswith("probability_")]
    if selection is None:
        return run.predictions[columns].to_numpy()
    file = run.folder / f"predictions-{split}-epochs.parquet"
    if not file.exists():
        raise DataError(f"{run.folder} kept no epochs, so its selection is fixed. Train with train.keep_epochs=true.")
    frame = pd.read_parquet(file)
    epochs = sorted(frame["epoch"].unique())
    by_epoch = {epoch: part[columns].to_numpy() for epoch, part in frame.groupby("epoch")}
    if selection == LEAKING:
        names = np.array([str(column).removeprefix("probability_") for column in columns])
        labels, groups = run.predictions["label"].to_numpy(), run.predictions[attribute].to_numpy()
        scores = {
            epoch: -float(equalized_odds(Counts.from_rows(labels, names[by_epoch[epoch].argmax(-1)], groups).table))
            for epoch in epochs
        }
    elif selection == "last":
        scores = {epoch: float(epoch) for epoch in epochs}
    else:
        known = [name for name, rule in SELECTORS.items() if not rule.uses_groups]
        if selection not in known:
            raise ConfigError(f"Unknown selection {selection!r}. {nearest(selection, [*known, LEAKING])}")
        history = read_json(run.folder / "metrics.json")["history"]
        stage = max(row["stage"] for row in history)
        scores = {row["epoch"]: row[selection] for row in history if row["stage"] == stage}
    # As in training: the first epoch with the highest score; an undefined score is never preferred.
    return by_epoch[max(epochs, key=lambda epoch: (-np.inf if np.isnan(scores[epoch]) else scores[epoch], -epoch))]


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return 1 for the ``count`` highest of each row of ``scores`` (seeds, rows), ties in row order, else 0."""
    chosen = np.zeros(scores.shape, np.int64)
    np.put_along_axis(chosen, np.argsort(-scores, axis=1, kind="stable")[:, :count], 1, axis=1)
    return chosen


def collect(folders: Iterable[Path], split: Split) -> list[Group]:
    """Read evaluated runs, given one by one or by a folder of them, and group them by the rows they predicted.

    Runs found in a folder that are not finished or not evaluated yet are left out, and named in the log; a run that was
    given by itself must be evaluated.
    """
    found = []
    for folder in folders:
        if (folder / CONFIG).exists():
            found.append(folder)
            continue
        runs = sorted(path.parent for path in folder.rglob(CONFIG))
        ready = [run for run in runs if (run / f"evaluation-{split}.json").exists()]
        left_out = [run for run in runs if run not in ready]
        if ready and left_out:
            logger.warning("left out, no evaluation of the %s split: %s", split, ", ".join(map(str, left_out)))
        found += ready or runs
    if not found:
        raise DataError("There is no run folder here: give folders that `levelhead train` made, or a folder of them.")
    groups: dict[str, Group] = {}
    for folder in found:
        if not (folder / f"evaluation-{split}.json").exists():
            if not (folder / "metrics.json").exists():
                raise DataError(f"{folder} is not finished: run `levelhead train ... --out {folder} --resume` first.")
            raise DataError(f"{folder} is not evaluated: run `levelhead evaluate {folder} --split {split}` first.")
        experiment = load_run(folder)
        run = Run(
            folder,
            experiment,
            pd.read_parquet(folder / f"predictions-{split}.parquet"),
            read_json(folder / "environment.json"),
            read_json(folder / "cost.json"),
        )
        data = {key: value for key, value in experiment.to_dict()["data"].items() if key != "root"}
        data["name"] = name_of(experiment.data, DATASETS)
        group = groups.setdefault(str(data), Group(split, []))
        if group.runs and not run.predictions["label"].equals(group.runs[0].predictions["label"]):
            raise DataError(
                f"{folder} and {group.runs[0].folder} were evaluated on different rows: evaluate them again."
            )
        group.runs.append(run)
    return list(groups.values())
