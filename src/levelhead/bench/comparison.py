"""A comparison of runs: the joint table of one data set and split, and what it took to make it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelhead.data import DATASETS
from levelhead.metrics import JointRow, JointTable, estimate_to_dict
from levelhead.metrics.joint import MARGIN
from levelhead.report import marks
from levelhead.report.card import without_paths
from levelhead.report.sentences import Difference, comparison_sentences
from levelhead.report.text import Record, estimate_from_dict
from levelhead.report.wide import Fraction
from levelhead.types import Estimate, printable

MAIN = "equalized_odds"
LEAKING = "LEAKING_equalized_odds"
"""Keep the epoch with the smallest EOd gap on the reported rows, as the authors' CelebA notebook does."""


AS_THEY_ARE = ("data", "split", "attribute", "rows", "seeds", "settings", "oracle", "cost", "environments", "selection")
"""Fields of a comparison that every stored JSON holds as they are."""


@dataclass(frozen=True)
class Comparison:
    """The joint table of one data set and split, and its inputs.

    ``selection`` is the rule that chose the epochs, where it was not the runs' own; ``positive_rate`` the share of
    rows that every method calls positive, where thresholds were matched; ``areas`` the area under the ROC curve by
    method and group, with its difference to the baseline (two classes only). ``warnings`` name the groups and rows that
    a gap leaves out. ``data_changed`` are the options that differ from the defaults, where the runs' own data set
    recorded them; ``tuning`` is what :func:`levelhead.bench.tuning.compare_tuned` chose.
    """

    data: dict[str, Any]
    split: str
    attribute: str
    rows: int
    seeds: dict[str, list[int]]
    settings: dict[str, dict[str, Any]]
    oracle: dict[str, str | None]
    told: dict[str, str | None]
    cost: dict[str, dict[str, Any]]
    environments: list[dict[str, Any]]
    table: JointTable
    selection: str | None = None
    positive_rate: float | None = None
    areas: dict[str, dict[str, tuple[Estimate, Estimate | None]]] | None = None
    warnings: tuple[str, ...] = ()
    data_changed: tuple[str, ...] | None = None
    tuning: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        """One line that says what was compared: the data set's options are those that are not the default."""
        default = _defaults(self.data["name"])
        if default is not None:
            changed = {key for key, value in self.data.items() if value != default.get(key)}
        else:
            changed = {key for key in self.data if shown(key, self.data_changed)}
        options = {
            key: without_folder(key, value)
            for key, value in self.data.items()
            if key not in ("name", "folds") and (key == "target" or key in changed)
        }
        plain = {key: " and ".join(map(str, one)) if isinstance(one, list) else one for key, one in options.items()}
        listing = ", ".join(f"{key} {printable(value)}" for key, value in plain.items())
        name = printable(self.data["name"]) + (f" ({listing})" if options else "")
        title = f"{name}: {self.measured_on}"
        if self.selection:
            title += f"; epochs by {self.selection}"
        if self.positive_rate is not None:
            title += f"; thresholds that call {self.positive_rate:.1%} positive, as {self.table.baseline} does"
        return title

    @property
    def whose_rows(self) -> str:
        """What sentences call the rows: those of a split."""
        return f"{self.split} rows"

    @property
    def measured_on(self) -> str:
        """The rows, and whose they are."""
        folds = self.data.get("folds")
        which = f"all {self.rows:,} rows in {folds} folds" if folds else f"{self.split} split, {self.rows:,} rows"
        return f"{which}, groups by {printable(self.attribute)}"

    def marks(self, method: str) -> list[str]:
        """Return the row's marks, of :mod:`levelhead.report.marks`."""
        table, told = self.table, self.told.get(method) or ""
        found = {
            marks.ORACLE: bool(self.oracle[method]),
            **{mark: told.startswith(mark) for mark in (marks.FEW_GROUPS, marks.DECLARES, marks.IDENTITIES)},
            marks.LEAKING: self.selection == LEAKING,
            marks.AT_CHANCE: method in table.at_chance,
            marks.FEW_SEEDS: method in table.few_seeds,
        }
        return [mark for mark, there in found.items() if there]

    def label(self, method: str) -> str:
        """Return the row's name as printed: with its marks, and what the variant knew."""
        told = self.told.get(method)
        return " ".join([method, *(told if told and told.startswith(mark) else mark for mark in self.marks(method))])

    @property
    def cautions(self) -> list[str]:
        """Which rows are never the best for their accuracy, and which groups and rows no gap compares."""
        lost = self.table.less_accurate
        less = f"measurably less accurate than {self.table.baseline}, so never marked best"
        return [*([f"{'; '.join(map(printable, lost))}: {less}."] if lost else []), *self.warnings]

    @property
    def number_of_seeds(self) -> str:
        """How many seeds a row has, in words."""
        counts = sorted({len(seeds) for seeds in self.seeds.values()})
        return f"{' or '.join(map(str, counts))} seed{'s' * (counts != [1])}"

    @property
    def sources(self) -> str:
        """What the intervals hold: a row with one seed has no measured variance over seeds."""
        alone = [self.label(method) for method, seeds in self.seeds.items() if len(seeds) == 1]
        if len(alone) == len(self.seeds):
            return f"{self.whose_rows} alone, one seed each"
        return f"{self.whose_rows} and seeds" + (
            f" ({self.whose_rows} alone where there is one seed: {', '.join(alone)})" if alone else ""
        )

    @property
    def protocol(self) -> str:
        """What all rows share: model, budget, selection; empty if they differ in one of these."""
        keys = {"model": ("hidden_size", "layers", "backbone", "mode")}
        keys["train"] = ("epochs", "batch_size", "learning_rate", "select")
        names = [f"{section}.{key}" for section, parts in keys.items() for key in parts]
        shared = [{str(settings.get(name)) for settings in self.settings.values()} for name in names]
        if any(len(values) > 1 for values in shared):
            return ""
        width, layers, backbone, mode, epochs, batch, rate, select = (next(iter(values)) for values in shared)
        kind = f"width {width}, {layers} layers"
        if backbone != "None":
            kind = f"{Path(backbone).name}, {mode.replace('_', ' ')}"
        return (
            f"all variants: {kind}, {epochs} epochs of batches of {batch}, rate {rate}, "
            f"epochs by {self.selection or select}"
        )

    @property
    def learned(self) -> bool:
        """Whether the baseline is above chance: else no difference to it says anything."""
        return self.table.baseline not in self.table.at_chance

    def differences(self, metric: str = MAIN) -> list[Difference]:
        """Return every row's difference to the baseline."""
        return [
            Difference(
                method,
                row[metric].difference,  # type: ignore[arg-type]  # only the baseline has none
                row[metric].p_holm,
                self.table.level,
                self.marks(method),
                row[metric].p_within,
                self.table.margin,
                self.learned,
                row["accuracy"].difference if method in self.table.less_accurate else None,
            )
            for method, row in self.table.rows.items()
            if method != self.table.baseline
        ]

    def sentences(self) -> list[str]:
        """Return what was found of all methods together: the headline first."""
        return comparison_sentences(self.differences(), self.table.baseline)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict of aggregates: no row of the data is in it."""
        return {
            **{name: getattr(self, name) for name in AS_THEY_ARE},
            "settings": {name: without_paths(settings) for name, settings in self.settings.items()},
            "told": self.told,
            "marks": {method: self.marks(method) for method in self.table.rows},
            "matched_positive_rate": self.positive_rate,
            "warnings": list(self.warnings),
            **({} if self.data_changed is None else {"data_changed": list(self.data_changed)}),
            **({} if self.tuning is None else {"tuning": self.tuning}),
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

    def figures(self) -> Iterator[tuple[str, None, str, Estimate]]:
        """Yield each variant's figures and differences from the baseline, named by variant and metric."""
        for method, row in self.table.rows.items():
            for name, figure in row.items():
                yield self.attribute, None, Fraction(f"{method}: {name}"), figure.estimate
                if figure.difference is not None:
                    yield self.attribute, None, Fraction(f"{method}: change of {name}"), figure.difference

    @classmethod
    def from_dict(cls, record: Record) -> Comparison:
        """Return the comparison that :meth:`to_dict` wrote."""
        rows = {
            method: {name: _joint_row(figures) for name, figures in row.items()}
            for method, row in record["methods"].items()
        }
        areas = record["area_under_roc"]
        return cls(
            **{name: record[name] for name in AS_THEY_ARE},
            told=record.get("told", {}),
            table=JointTable(
                rows,
                record["baseline"],
                record["level"],
                tuple(record.get("at_chance", ())),
                tuple(record.get("few_seeds", ())),
                record.get("margin", MARGIN),
            ),
            positive_rate=record["matched_positive_rate"],
            areas=areas
            and {
                method: {group: (estimate_from_dict(one), _maybe(one["difference"])) for group, one in each.items()}
                for method, each in areas.items()
            },
            warnings=tuple(record.get("warnings", ())),
            data_changed=None if (changed := record.get("data_changed")) is None else tuple(changed),
            tuning=record.get("tuning"),
        )


def _defaults(name: str) -> dict[str, Any] | None:
    """Return the options of a built-in data set; None of another one, and without torch, which data sets need."""
    try:
        return dataclasses.asdict(DATASETS[name]()) if DATASETS.offers(name) else None
    except ModuleNotFoundError:
        return None


def _joint_row(record: Record) -> JointRow:
    freedom = record["degrees_of_freedom"]
    return JointRow(
        estimate_from_dict(record["estimate"]),
        estimate_from_dict(record["rows_only"]),
        tuple(math.nan if value is None else value for value in record["by_seed"]),
        math.inf if freedom is None else freedom,
        _maybe(record["difference"]),
        record["p_value"],
        record["p_holm"],
        record["p_best"],
        record.get("p_within"),
    )


def _maybe(record: Record | None) -> Estimate | None:
    return None if record is None else estimate_from_dict(record)


def without_folder(key: str, value: Any) -> Any:
    """Return an option without the folder of a path: in titles and names a file is called by its own name."""
    value = without_paths(str(value) if isinstance(value, Path) else value)
    return Path(value).name if isinstance(value, str) and key.rpartition(".")[2] in ("file", "groups") else value


def shown(key: str, changed: Collection[str] | None) -> bool:
    """Return whether an option differs from its default; True where that is not recorded."""
    return changed is None or any(f"{one}.".startswith(f"{key}.") for one in changed)
