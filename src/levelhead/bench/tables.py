"""Compare evaluated runs: what differs between methods, over test rows and training seeds together."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from levelhead.config import Experiment, flatten, name_of, nearest
from levelhead.data import DATASETS, Split
from levelhead.methods import METHODS
from levelhead.metrics import JointRow, JointTable, joint
from levelhead.runs import CONFIG, load_run, oracle_reason
from levelhead.storage import read_json
from levelhead.types import ConfigError, DataError, Estimate

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
    """The joint table of one data set and split, with what it took to make it."""

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
        return f"{name}: {self.split} split, {self.rows:,} rows, groups by {self.attribute}"

    def label(self, method: str) -> str:
        """Return the row's name as printed, marked if it saw groups."""
        return f"{method} ORACLE" if self.oracle[method] else method

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
        return [figures, differences] if len(self.table.rows) > 1 else [figures]

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
            **self.table.to_dict(),
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


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("\n", " ") for cell in cells) + " |"


@dataclass(frozen=True)
class Group:
    """Runs on the same rows."""

    split: Split
    runs: list[Run]

    def compare(self, baseline: str) -> Comparison:
        """Return the joint table; rows are sets of runs that differ in the seed alone."""
        rows = self._rows()
        names = [name for name in rows if name == baseline or name.startswith(f"{baseline} ")]
        if not names:
            raise ConfigError(f"There is no run of the baseline {baseline!r}. {nearest(baseline, rows)}")
        rows = {names[0]: rows[names[0]]} | rows
        first = self.runs[0]
        attribute = read_json(first.folder / f"evaluation-{self.split}.json")["run"]["attribute"]
        labels, group = first.predictions["label"], first.predictions[attribute]
        columns = [str(column) for column in first.predictions.columns]
        classes = [column.removeprefix("probability_") for column in columns if column.startswith("probability_")]
        # The joint table orders classes by name; the positive one is the data set's second.
        positive = sorted(classes).index(classes[1]) if len(classes) == 2 else None
        table = joint(
            labels.to_numpy(),
            group.to_numpy(),
            {name: [run.predictions["prediction"].to_numpy() for run in runs] for name, runs in rows.items()},
            baseline=names[0],
            positive=positive,
        )
        recipe = first.experiment.to_dict()["data"]
        return Comparison(
            data={key: value for key, value in recipe.items() if key != "root"},
            split=self.split,
            attribute=attribute,
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
        )

    def _rows(self) -> dict[str, list[Run]]:
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
            name = name_of(experiment.method, METHODS)
            name += f" ({', '.join(f'{key}={value}' for key, value in options.items())})" if options else ""
            group.sort(key=lambda run: run.experiment.seed)
            seeds = [run.experiment.seed for run in group]
            if len(set(seeds)) < len(seeds):
                raise ConfigError(
                    f"Two runs of {name!r} have the same seed: {', '.join(str(run.folder) for run in group)}. A seed "
                    "counts once; leave one of them out."
                )
            rows[name] = group
        return rows


def collect(folders: Iterable[Path], split: Split) -> list[Group]:
    """Read evaluated runs, given one by one or by a folder of them, and group them by the rows they predicted."""
    found = [
        run
        for folder in folders
        for run in (
            [folder] if (folder / CONFIG).exists() else sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
        )
    ]
    if not found:
        raise DataError("There is no run folder here: give folders that `levelhead train` made, or a folder of them.")
    groups: dict[str, Group] = {}
    for folder in found:
        if not (folder / f"evaluation-{split}.json").exists():
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
