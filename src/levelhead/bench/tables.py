"""Compare evaluated runs: what differs between methods, over test rows and training seeds together."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from levelhead.attention import DebiasConfig
from levelhead.auditing.figures import left_out_sentences
from levelhead.auditing.options import LEAVE_OUT, MIN_COUNT, check_grouping
from levelhead.bench.comparison import LEAKING, Comparison, shown, without_folder
from levelhead.bench.grid import GRID, Cell, read_grid
from levelhead.data import Split
from levelhead.data.folds import Fold
from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM
from levelhead.metrics import Counts, JointTable, joint
from levelhead.metrics.contrasts import Contrasts, Enough
from levelhead.metrics.counts import JointCounts
from levelhead.metrics.intervals import undefined_reason
from levelhead.metrics.joint import MARGIN
from levelhead.metrics.names import MISSING_GROUP
from levelhead.metrics.ranking import area_under_roc
from levelhead.report.text import clustered_sentence
from levelhead.runs import cost_table
from levelhead.runs.folder import digest, read_run, require_finished
from levelhead.runs.recipe import Experiment, read_recipe
from levelhead.runs.stand_in import StandIn, named
from levelhead.storage import REHEARSED, as_written, read_metrics, read_record, refuse_strange_files
from levelhead.training.select import FOR_ANY_METHOD, score_of
from levelhead.training.work import CONFIG, flatten
from levelhead.types import (
    ConfigError,
    DataError,
    Estimate,
    listed,
    nearest,
    printable,
    quoted,
    require_columns,
    visible,
)

logger = logging.getLogger(__name__)

Threshold = Literal["own", "matched"]


@dataclass(frozen=True)
class Run:
    """One evaluated run: its experiment, the split's predictions, environment and cost.

    ``folds`` are the runs that were put together where every row was predicted by the run of its fold; the rest is then
    that of the first, but for the predictions, which are of all rows in the order of the data.
    """

    folder: Path
    experiment: Experiment
    predictions: pd.DataFrame
    environment: dict[str, Any]
    cost: dict[str, Any]
    folds: tuple[Run, ...] = ()

    @property
    def trained(self) -> tuple[Run, ...]:
        """The runs that were trained for it: those of its folds, else itself."""
        return self.folds or (self,)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the data and the seed, flat: runs that agree in it are seeds of one row."""
        recipe = self.experiment.recipe
        return flatten({section: recipe[section] for section in ("method", "model", "train")})


def _changed_options(experiment: Experiment) -> dict[str, Any]:
    """Return the method's options that are not the default."""
    method = experiment.method
    if isinstance(method, StandIn):
        return {key: value for key, value in flatten(method.options).items() if shown(key, method.changed)}
    if isinstance(method, DAM) and isinstance(method.base, StandIn):
        base = _changed_options(dataclasses.replace(experiment, method=method.base))
        debias = _changed_options(dataclasses.replace(experiment, method=dataclasses.replace(method, base=ERM())))
        return debias | {f"base.{key}": value for key, value in base.items()}
    now = flatten(dataclasses.asdict(method))
    usual = type(method)()
    if isinstance(method, DAM):
        usual = dataclasses.replace(method, debias=DebiasConfig(), base=type(method.base)())
    default = flatten(dataclasses.asdict(usual))
    return {key: value for key, value in now.items() if value != default.get(key)}


def _titled(experiment: Experiment, options: Mapping[str, Any]) -> str:
    listing = ", ".join(f"{key}={printable(value)}" for key, value in options.items())
    return experiment.method_name + (f" ({listing})" if options else "")


def _rehearsals(rows: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return a sentence for each number of steps that training was stopped after, with the rows that it is true of."""
    stopped: dict[int, list[str]] = {}
    for name, runs in rows.items():
        if (steps := runs[0].experiment.train.max_steps) is not None:
            stopped.setdefault(steps, []).append(printable(name))
    return [f"{', '.join(names)}: {REHEARSED % steps}" for steps, names in stopped.items()]


@dataclass(frozen=True)
class RunSet:
    """Runs on the same rows; ``ordered`` if they stand in an order that was requested, which tables then keep.

    ``left_out`` has a sentence for runs of the same folders that tables lack. Groups with too few rows of a rate, and
    rows without a group, are left out of gaps as :func:`levelhead.audit` leaves them out, with its ``min_count`` and
    ``missing``. Differences within ``margin`` are equivalent to none.
    """

    split: Split
    runs: list[Run]
    ordered: bool = False
    left_out: tuple[str, ...] = ()
    min_count: int = MIN_COUNT
    missing: str = LEAVE_OUT
    margin: float = MARGIN

    def __post_init__(self) -> None:
        check_grouping(1, self.min_count, False, self.missing)

    def compare(
        self,
        baseline: str,
        *,
        selection: str | None = None,
        threshold: Threshold = "own",
    ) -> Comparison:
        """Return the joint table; rows are sets of runs that differ in the seed alone.

        ``selection`` chooses each run's epoch again, by a label-only selector or by :data:`LEAKING`; the runs must have
        been trained with ``train.keep_epochs``. ``threshold="matched"`` lets every run call as many rows positive as
        the baseline does on average over its seeds, so that a mere shift of the threshold changes nothing. Groups that
        are left out of gaps are named in ``warnings``. Rows of one
        cluster, such as a person, count together where the evaluation wrote them down.
        """
        rows, first = self.rows(), self.runs[0]
        name = _baseline_of(baseline, rows)
        if not self.ordered:
            rows = {name: rows[name]} | rows
        labels, classes, positive = first.predictions["label"], self.classes, self.positive
        group, left_out = self.members(first)
        fold = first.predictions.get("fold")
        clusters, together = first.predictions.get("cluster"), []
        if clusters is not None and (number := clusters.nunique()) < len(clusters):
            together = [f"{clustered_sentence(len(clusters), number)}."]
        probabilities = {row: self.probabilities(runs, selection) for row, runs in rows.items()}
        predictions = {row: np.array(classes)[values.argmax(-1)] for row, values in probabilities.items()}
        rate, areas = None, None
        if threshold == "matched":
            if positive is None:
                raise ConfigError(f"Thresholds can be matched for two classes only; there are {len(classes)}.")
            called = predictions[name] == classes[1]
            rate = float(called.mean())
            predictions = {row: np.array(classes)[one] for row, one in _at_rate_of(called, probabilities, fold).items()}
        if positive is not None and fold is None:  # scores of several networks have no common ROC curve
            scores = {row: _log_odds(values) for row, values in probabilities.items()}
            areas = area_under_roc(labels, group, scores, positive=classes[1], baseline=name, clusters=clusters)
            areas = {
                row: {where: area for where, area in each.items() if where not in left_out}
                for row, each in areas.items()
            }
        table = self._joint(predictions, name, clusters)
        whole = JointCounts.from_rows(labels.to_numpy(), group, [predictions[name][0]], classes).marginal(0)
        warnings = [*together, *left_out_sentences(self.attribute, whole, positive, self.min_count, self.missing)]
        warnings += [*_rehearsals(rows), *self.left_out]
        return self._comparison(
            rows, table, selection=selection, positive_rate=rate, areas=areas, warnings=tuple(warnings)
        )

    def _joint(
        self, predictions: Mapping[str, np.ndarray], baseline: str, clusters: pd.Series | None, **more: Any
    ) -> JointTable:
        """Return the joint table of predictions (runs, rows) on the rows of this set."""
        group, left_out = self.members(self.runs[0])
        return joint(
            self.runs[0].predictions["label"].to_numpy(),
            group,
            predictions,
            baseline=baseline,
            positive=self.positive,
            clusters=None if clusters is None else clusters.to_numpy(),
            margin=self.margin,
            classes=self.classes,
            min_count=self.min_count,
            left_out=left_out,
            **more,
        )

    def _comparison(self, rows: Mapping[str, list[Run]], table: JointTable, **more: Any) -> Comparison:
        """Return a table of the records of the runs."""
        first = self.runs[0]
        recipe, data = first.experiment.recipe["data"], named(first.experiment.data)
        changed = data.changed if isinstance(data, StandIn) else None
        parts = [part for run in self.runs for part in run.trained]
        environments = [json.loads(text) for text in dict.fromkeys(json.dumps(part.environment) for part in parts)]
        return Comparison(
            data={key: value for key, value in recipe.items() if key not in ("root", "fold")},
            split=self.split,
            attribute=self.attribute,
            rows=len(first.predictions),
            seeds={name: [run.experiment.seed for run in runs] for name, runs in rows.items()},
            settings={name: runs[0].settings for name, runs in rows.items()},
            oracle={name: runs[0].experiment.oracle for name, runs in rows.items()},
            told={name: runs[0].experiment.method.told for name, runs in rows.items()},
            cost={
                name: cost_table.mean_cost(
                    [part.cost for run in runs for part in run.trained],
                    [part.environment for run in runs for part in run.trained],
                )
                for name, runs in rows.items()
            },
            environments=environments,
            table=table,
            data_changed=None if changed is None else tuple(sorted(changed)),
            **more,
        )

    @property
    def attribute(self) -> str:
        """Name of the sensitive attribute."""
        evaluated = read_record(self.runs[0].folder / f"evaluation-{self.split}.json", run=dict)["run"]
        return str(evaluated.get("attribute"))

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the data set's order; of two, the second is the positive one."""
        return _classes(self.runs[0])

    @property
    def positive(self) -> int | None:
        """Position of the positive class, the data set's second, among the classes by name; None for more than two."""
        return sorted(self.classes).index(self.classes[1]) if len(self.classes) == 2 else None

    def between_selections(self, first: str | None, second: str) -> dict[str, JointTable]:
        """Compare two rules for the epoch on the same runs, paired over rows and seeds.

        Returns:
            for each method the table of the rows "first" (the baseline) and "second". Its intervals do not know that
            a rule such as :data:`LEAKING` saw these very rows. Where both rules keep the same epochs, differences are
            0 without sampling error: the interval is [0, 0].
        """
        classes, clusters = np.array(self.classes), self.runs[0].predictions.get("cluster")
        found = {}
        for method, runs in self.rows().items():
            kept = [self.probabilities(runs, rule) for rule in (first, second)]
            by_rule = {name: classes[each.argmax(-1)] for name, each in zip(("first", "second"), kept, strict=True)}
            table = self._joint(by_rule, "first", clusters, shared_seeds=True)
            if np.array_equal(kept[0], kept[1]):
                zero = {
                    name: dataclasses.replace(row, difference=Estimate(0.0, 0.0, 0.0, row.estimate.n))
                    for name, row in table.rows["second"].items()
                }
                table = dataclasses.replace(table, rows=table.rows | {"second": zero})
            found[method] = table
        return found

    def probabilities(self, runs: Sequence[Run], selection: str | None = None) -> np.ndarray:
        """Return probabilities (runs, rows, classes) of the epochs that ``selection`` keeps (None: the runs' own)."""
        if selection is None:
            columns = [f"probability_{name}" for name in self.classes]
            return np.stack([run.predictions[columns].to_numpy() for run in runs])
        return np.stack([choose_epoch(self, run, selection)[1] for run in runs])

    def members(self, run: Run) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the group of each row that ``run`` predicted, and those no gap compares: that of rows without one."""
        group = run.predictions[self.attribute]
        absent = group.isna()
        if absent.any() and (group == MISSING_GROUP).any():
            raise DataError(
                f"{quoted(self.attribute)} has a group named {MISSING_GROUP!r} and rows without a group, which get "
                "that name. Rename the group in the data, and evaluate again."
            )
        left_out = (MISSING_GROUP,) if absent.any() and self.missing == LEAVE_OUT else ()
        return group.where(~absent, MISSING_GROUP).to_numpy(), left_out

    def rows(self) -> dict[str, list[Run]]:
        """Return the rows by name: the method, its options that are not the default, what else distinguishes rows."""
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
            options = {key: without_folder(key, value) for key, value in options.items()}
            name = experiment.name or _titled(experiment, options)
            if name in rows:
                raise ConfigError(
                    f"Runs with different settings have the same name {name!r}: {rows[name][0].folder} and "
                    f"{group[0].folder}. Give them different names, or leave one out."
                )
            group.sort(key=lambda run: run.experiment.seed)
            seeds = [run.experiment.seed for run in group]
            if len(set(seeds)) < len(seeds):
                raise ConfigError(
                    f"Two runs of {name!r} have the same seed: {', '.join(str(run.folder) for run in group)}. "
                    "Each seed counts once; leave one out."
                )
            rows[name] = group
        return rows


def _baseline_of(baseline: str, rows: Collection[str]) -> str:
    """Return the row that is called ``baseline``, or is the only one whose name begins with it."""
    wanted = baseline.lower()
    names = [name for name in rows if name == baseline] or [name for name in rows if name.lower() == wanted]
    names = names or [name for name in rows if name.lower().startswith((f"{wanted} ", f"{wanted},"))]
    if len(names) > 1:
        raise ConfigError(f"Several variants could be the baseline {baseline!r}: {', '.join(names)}. Name one of them.")
    if not names:
        raise ConfigError(f"There is no run of the baseline {baseline!r}. {nearest(baseline, rows)}")
    return names[0]


def _at_rate_of(
    called: np.ndarray, probabilities: Mapping[str, np.ndarray], fold: pd.Series | None
) -> dict[str, np.ndarray]:
    """Return by row the classes (runs, rows), of 0 and 1, where each run calls as many positive as ``called`` does.

    Within each fold: the networks of two folds need not mean the same by one score.
    """
    count = called.shape[1]
    parts = [np.arange(count)] if fold is None else [np.flatnonzero(fold == one) for one in fold.unique()]
    chosen = {name: np.empty(values.shape[:2], np.int64) for name, values in probabilities.items()}
    for part in parts:
        positive = round(float(called[:, part].mean()) * len(part))
        for name, values in probabilities.items():
            chosen[name][:, part] = _highest(_log_odds(values[:, part]), positive)
    return chosen


def choose_epoch(group: RunSet, run: Run, selection: str) -> tuple[int, np.ndarray]:
    """Return the epoch of ``run`` that ``selection`` keeps, and its predicted probabilities (rows, classes).

    A gap that chooses is over the groups that the tables of ``group`` compare.
    """
    _refuse_fixed_epochs(run)
    by_epoch = _by_epoch(run, group.split)
    scores = {epoch: -np.inf if math.isnan(one) else one for epoch, one in _scored(group, run, selection, by_epoch)}
    if max(scores.values()) == -np.inf:
        logger.warning("%s: %s is undefined in every epoch: the last one is taken.", run.folder, selection)
        return max(by_epoch), by_epoch[max(by_epoch)]
    # As in training: the first epoch with the highest score; an undefined score is never preferred.
    chosen = max(scores, key=lambda epoch: (scores[epoch], -epoch))
    return chosen, by_epoch[chosen]


def _refuse_fixed_epochs(run: Run) -> None:
    """Raise :class:`DataError` for a run whose epoch cannot be chosen again."""
    if run.experiment.method.changes_at_end:
        raise DataError(
            f"{run.folder}: {run.experiment.method_name} changes the network after its last epoch, so its "
            "epoch is fixed. Leave it out, or leave out --select."
        )
    if run.folds:
        raise DataError(f"{run.folder} is one of several folds, whose epochs are fixed: leave out --select.")


def _by_epoch(run: Run, split: Split) -> dict[int, np.ndarray]:
    """Return what each epoch of a run predicted, probabilities (rows, classes)."""
    columns = [f"probability_{name}" for name in _classes(run)]
    file = run.folder / f"predictions-{split}-epochs.parquet"
    if not file.exists():
        raise DataError(
            f"{run.folder} has no predictions of each epoch on the {split} split, so its selection is fixed. Train "
            "with train.keep_epochs=true (in a comparison the epochs predict the test split alone)."
        )
    with as_written(file):
        frame = pd.read_parquet(file)
        epochs = sorted({*frame["epoch"].tolist()})
        found = {epoch: frame.loc[frame["epoch"] == epoch, columns].to_numpy() for epoch in epochs}
        if any(part.shape != (len(run.predictions), len(columns)) for part in found.values()):
            raise ValueError("an epoch has another number of rows than the run")
    rounding = 0.02  # of probabilities on another device, in mixed precision
    kept = run.predictions[columns].to_numpy()  # what the kept network says is what it said at the end of an epoch
    if min(float(np.abs(part - kept).mean()) for part in found.values()) > rounding:
        raise DataError(
            f"{file} holds other rows than {run.folder}'s predictions, which were made later: train again with "
            "train.keep_epochs=true, or leave out --select."
        )
    return found


def _scored(group: RunSet, run: Run, selection: str, by_epoch: Mapping[int, np.ndarray]) -> Iterator[tuple[int, float]]:
    """Yield each epoch with its score by a rule, higher is better; NaN where it is undefined."""
    if selection == "last":
        yield from ((epoch, float(epoch)) for epoch in by_epoch)
    elif selection == LEAKING:
        names, (members, left_out) = np.array(_classes(run)), group.members(run)
        known = ~np.isin(members, left_out)
        labels, members = run.predictions["label"].to_numpy()[known], members[known]
        for epoch, part in by_epoch.items():
            counts = Counts.from_rows(labels, names[part.argmax(-1)][known], members)
            yield epoch, -measured_gap(counts, group.min_count)
    elif selection in FOR_ANY_METHOD:
        with as_written(run.folder / "metrics.json"):
            history = last_stage(read_metrics(run.folder))
            figures = {epoch: history[epoch][selection] for epoch in by_epoch}
        yield from (
            (epoch, math.nan if one is None else score_of(selection, float(one))) for epoch, one in figures.items()
        )
    else:
        raise ConfigError(f"Unknown selection {selection!r}. {nearest(selection, [*FOR_ANY_METHOD, LEAKING])}")


def last_stage(metrics: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return what a run's ``metrics.json`` says of each epoch of its last stage."""
    history = metrics["history"]
    stage = max(row["stage"] for row in history)
    return {row["epoch"]: row for row in history if row["stage"] == stage}


def measured_gap(counts: Counts, min_count: int) -> float:
    """Return the EOd gap over the groups that have ``min_count`` rows of each rate; NaN where no two have."""
    enough = Enough.of(counts.table, None, min_count)
    if undefined_reason(counts, "equalized_odds", None, min_count, enough):
        return math.nan
    return float(Contrasts(counts.table, None, enough, smooth=False).values("equalized_odds"))


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return log p_1 - log p_0 of (..., 2): close to 1, p_1 alone no longer distinguishes rows."""
    logarithms = np.log(np.maximum(probabilities.astype(np.float64), 1e-300))
    return np.asarray(logarithms[..., 1] - logarithms[..., 0])


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return 1 for the ``count`` highest of each row of ``scores`` (seeds, rows), else 0.

    Ties are parted by chance, the same in all rows: in a file that is sorted by group, its order would make a gap.
    """
    chosen = np.zeros(scores.shape, np.int64)
    mixed = np.random.default_rng(0).permutation(scores.shape[1])
    order = mixed[np.argsort(-scores[:, mixed], axis=1, kind="stable")]
    np.put_along_axis(chosen, order[:, :count], 1, axis=1)
    return chosen


def _read_predictions(file: Path, attribute: str) -> pd.DataFrame:
    """Read what a run predicted, or raise :class:`DataError` unless it has every column that a table is made of."""
    with as_written(file):  # pyarrow's errors are ValueErrors, too
        frame = pd.read_parquet(file)
        probabilities = [name for name in map(str, frame.columns) if name.startswith("probability_")]
        require_columns(list(map(str, frame.columns)), ["label", "prediction", attribute], str(file))
        values = frame[probabilities].to_numpy(dtype=float)
        known = {name.removeprefix("probability_") for name in probabilities}
        if len(known) < 2 or not len(frame) or not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError("no probabilities of two classes or more")
        if not {*frame["label"], *frame["prediction"]} <= known:
            raise ValueError("a label without a probability")
        return frame


def _read_cost(file: Path) -> dict[str, Any]:
    cost = read_record(file)
    with as_written(file):
        for name, value in cost.items():
            if not (value is None or isinstance(value, str if "_reason" in name else int | float)):
                raise TypeError(f"{name} is a {type(value).__name__}")
    return cost


def collect(
    folders: Iterable[Path],
    split: Split,
    *,
    min_count: int = MIN_COUNT,
    missing: str = LEAVE_OUT,
    margin: float = MARGIN,
) -> list[RunSet]:
    """Read evaluated runs, given one by one or by a folder of them, and group them by the rows they predicted.

    ``min_count``, ``missing`` and ``margin`` as :class:`RunSet` has them.

    Runs found in a folder that are not finished or not evaluated yet are left out, which ``left_out`` says; a run that
    was given alone must be evaluated. Runs keep the order in which they are given, those of a comparison that of its
    variants.
    """
    check_grouping(1, min_count, False, missing)
    found, ordered, said = _run_folders(list(folders), split)
    groups: dict[str, RunSet] = {}
    folds: dict[str, tuple[dict[str, Any], str, list[tuple[Run, dict[str, Any]]]]] = {}
    for folder in found:
        run, evaluated = _read_evaluated(folder, split)
        data, attribute = _data_of(run.experiment), str(evaluated.get("attribute"))
        if isinstance(run.experiment.data, Fold):
            whose = str([data, run.settings, run.experiment.seed, run.experiment.name])
            folds.setdefault(whose, (data, attribute, []))[2].append((run, evaluated))
        else:
            _add(groups, data, run, attribute, RunSet(split, [], ordered))
    for data, attribute, parts in folds.values():
        if isinstance(whole := _put_together(parts), Run):
            _add(groups, data, whole, attribute, RunSet(split, [], ordered))
        else:
            said.append(whole)
    if not groups:
        raise DataError("No seed of any variant has all its folds yet: type levelhead compare OUT.")
    who: dict[str, Any] = {"left_out": tuple(said), "min_count": min_count, "missing": missing, "margin": margin}
    return [dataclasses.replace(group, **who) for group in groups.values()]


def _run_folders(folders: Sequence[Path], split: Split) -> tuple[list[Path], bool, list[str]]:
    """Return the run folders to read, whether their order was requested, and a sentence on those left out."""
    for folder in folders:
        refuse_strange_files(folder)
    found, ordered, said = [], True, []
    for folder in folders:
        if (folder / CONFIG).exists():
            found.append(folder)
            continue
        runs = sorted(path.parent for path in folder.rglob(CONFIG))
        if (folder / GRID).exists():
            variants = list(read_grid(folder / GRID, running=False).rows)
            names = {run: str(read_recipe(run / CONFIG).get("name")) for run in runs}
            runs.sort(key=lambda run: variants.index(names[run]) if names[run] in variants else len(variants))
        else:
            ordered = False
        ready = [run for run in runs if (run / f"evaluation-{split}.json").exists()]
        left_out = [run for run in runs if run not in ready]
        if ready and left_out:
            said.append(f"Left out, no evaluation of the {split} split: {visible(', '.join(map(str, left_out)))}.")
        found += ready or runs
    if not found:
        raise DataError("No run folder found: give folders that `levelhead train` made, or a folder of them.")
    return found, ordered, said


def _read_evaluated(folder: Path, split: Split) -> tuple[Run, dict[str, Any]]:
    """Return a run and what its evaluation says of itself; errors say how to evaluate it."""
    if not (folder / f"evaluation-{split}.json").exists():
        require_finished(folder)
        raise DataError(f"{folder} is not evaluated: run `levelhead evaluate {folder} --split {split}` first.")
    experiment = read_run(folder)
    evaluated: dict[str, Any] = read_record(folder / f"evaluation-{split}.json", run=dict)["run"]
    if evaluated.get("attribute", "") is None:
        raise DataError(
            f"{folder} was evaluated without groups; a table compares gaps between groups. Name a column in "
            "data.sensitive, and evaluate again."
        )
    file, recorded = folder / f"predictions-{split}.parquet", evaluated.get("predictions_sha256")
    with as_written(folder):
        changed = recorded not in (None, digest(file))
    if changed:
        raise DataError(
            f"{file} was changed after it was evaluated: run `levelhead evaluate {folder} --split {split}` again."
        )
    predictions = _read_predictions(file, str(evaluated.get("attribute")))
    environment = read_record(folder / "environment.json", packages=dict)
    return Run(folder, experiment, predictions, environment, _read_cost(folder / "cost.json")), evaluated


def _data_of(experiment: Experiment) -> dict[str, Any]:
    return {key: value for key, value in experiment.recipe["data"].items() if key not in ("root", "fold")}


def _key_of(data: Mapping[str, Any]) -> str:
    """Return what runs on the same data have in common."""
    return str(sorted(data.items()))


def by_data(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the cells of each table that :func:`collect` makes of them: those on the same data."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(_key_of(_data_of(cell.experiment)), []).append(cell)
    return list(found.values())


def _classes(run: Run) -> list[str]:
    """Return the names of the classes that a run predicts, in the data set's order."""
    columns = map(str, run.predictions.columns)
    return [name.removeprefix("probability_") for name in columns if name.startswith("probability_")]


def _add(groups: dict[str, RunSet], data: dict[str, Any], run: Run, attribute: str, new: RunSet) -> None:
    """Put a run to those on the same data, the first to a ``new`` set; refuse it if it was evaluated on other rows."""
    group = groups.setdefault(_key_of(data), new)
    first = str(run.predictions.columns[0])  # ids, where there are any
    known = {"cluster", first}.intersection(run.predictions, *(one.predictions for one in group.runs[:1]))
    _refuse_some_clusters([*group.runs[:1], run], group.split)
    if group.runs and not all(
        _classes(run) == _classes(group.runs[0]) and run.predictions[column].equals(group.runs[0].predictions[column])
        for column in ("label", attribute, *known)
    ):
        raise DataError(
            f"{run.folder} and {group.runs[0].folder} were evaluated on different rows or groups: evaluate them again."
        )
    group.runs.append(run)


def _refuse_some_clusters(runs: Sequence[Run], split: str) -> None:
    """Raise an error where some runs say which rows belong together and others do not: no interval fits both."""
    told = [run for run in runs if "cluster" in run.predictions]
    if told and (untold := [run for run in runs if "cluster" not in run.predictions]):
        raise DataError(
            f"{told[0].folder} was evaluated with clusters of rows, {untold[0].folder} without: run `levelhead "
            f"evaluate {untold[0].folder} --split {split}` again, with the same --cluster if one was given."
        )


def _put_together(parts: Sequence[tuple[Run, dict[str, Any]]]) -> Run | str:
    """Return one run of all rows out of the runs of the folds; if some are missing, a sentence that says so."""
    parts = sorted(parts, key=lambda part: int(part[1]["fold"]))
    first, about = parts[0]
    if len({(part["folds"], part["pool"]) for _, part in parts}) > 1:
        raise DataError(
            f"{first.folder.parent} holds folds of different rows: the data has changed between them. Train the older "
            "ones again."
        )
    _refuse_some_clusters([run for run, _ in parts], str(about.get("split", "test")))
    missing = [fold for fold in range(about["folds"]) if fold not in [part["fold"] for _, part in parts]]
    name = f"{first.experiment.name or first.experiment.method_name}, seed {first.experiment.seed}"
    if missing:
        return f"Left out, folds {listed(missing, 20)} are not evaluated: {printable(name)}."
    if len(parts) != about["folds"]:
        raise DataError(f"Two runs of {name} are the same fold: leave one of {first.folder.parent} out.")
    frame = pd.concat([run.predictions.assign(fold=part["fold"]) for run, part in parts])
    frame = frame.sort_values("row", kind="stable").reset_index(drop=True)
    if not np.array_equal(frame["row"], np.arange(len(frame))):
        raise DataError(f"The folds of {name} do not hold every row once: evaluate {first.folder.parent} again.")
    return dataclasses.replace(first, predictions=frame, folds=tuple(run for run, _ in parts))
