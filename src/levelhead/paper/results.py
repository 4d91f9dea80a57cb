"""What the paper published beside what came out here: differences, and what the choice of epochs alone did."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.grid import Cell
from levelhead.bench.tables import RunSet, collect
from levelhead.metrics import estimate_to_dict
from levelhead.metrics.names import METRICS
from levelhead.paper.published import Published, published_row
from levelhead.report import blocks
from levelhead.report.text import Record, interval, number
from levelhead.types import DataError, Estimate

Protocol = Literal["label-only", "as-released"]

FIGURES = ("equalized_odds", "accuracy", "demographic_parity", "equal_opportunity")
"""What the paper's tables show, the most important first."""

COSTS = {"energy_wh": "GPU energy, Wh", "peak_gpu_memory_mib": "GPU memory, MiB"}


@dataclass(frozen=True)
class Against:
    """One figure of one method: as published, as found here, and the difference.

    ``here`` is chosen by the protocol of the table, ``released`` by the gap on the test rows (LEAKING), ``selection``
    is the second minus the one that labels chose, on the same runs. ``difference`` is here minus published: its
    interval joins ours with that of the published mean over seeds (where a deviation is published) by the method of
    variance estimates recovery (Zou, Donner, Statistics in Medicine 2008, equation 3). Fractions, except ``published``.
    """

    published: Published | None
    here: Estimate
    difference: Estimate | None
    released: Estimate | None
    selection: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; ``published`` is in percent, as printed."""

        def plain(estimate: Estimate | None) -> dict[str, Any] | None:
            return None if estimate is None else estimate_to_dict(estimate)

        return {
            "published_percent": None if self.published is None else dataclasses.asdict(self.published),
            "here": plain(self.here),
            "difference": plain(self.difference),
            "as_released": plain(self.released),
            "by_selection_alone": plain(self.selection),
        }


def minus_published(here: Estimate, published: Published) -> Estimate:
    """Return here minus published, as a fraction; without a published deviation that figure counts as exact."""
    if not here.defined:
        return here
    value = published.mean / 100
    half = 0.0 if math.isnan(published.half_width) else published.half_width / 100
    difference = here.value - value
    low = difference - math.hypot(here.value - here.low, half)
    high = difference + math.hypot(here.high - here.value, half)
    return dataclasses.replace(here, value=difference, low=low, high=high, corrected=None)


def published_gain(method: Published, baseline: Published) -> tuple[float, float, float]:
    """Return a published mean minus the baseline's and the ends of its interval, in percent; NaN without deviations.

    The two are taken as independent. The interval holds the noise of seeds alone.
    """
    half = math.hypot(method.half_width, baseline.half_width)
    value = method.mean - baseline.mean
    return value, value - half, value + half


@dataclass(frozen=True)
class Reproduction:
    """A grid of the paper as far as it has run: its runs on one test split, and the published figures.

    ``missing`` are the grid's rows without a finished run.
    """

    runs: RunSet
    published: Mapping[str, Mapping[str, Published]]
    protocol: Protocol
    title: str
    missing: tuple[str, ...] = ()

    def _published(self, row: str) -> Mapping[str, Published]:
        """Return the published figures that ``row`` stands beside; none if nothing was published of it."""
        return self.published.get(published_row(row), {})

    @cached_property
    def label_only(self) -> Comparison:
        """The runs with the epochs that they chose by labels."""
        return self.runs.compare(self.baseline)

    @cached_property
    def as_released(self) -> Comparison | None:
        """The same runs with the epochs of the smallest gap on the test rows; None if epochs were not kept."""
        if not all(run.experiment.train.keep_epochs for run in self.runs.runs):
            return None
        return self.runs.compare(self.baseline, selection=LEAKING)

    @property
    def baseline(self) -> str:
        """The first of the published rows that has run, else the first row."""
        rows = list(self.runs.rows())
        return next((row for row in (*self.published, *rows) if row in rows), rows[0])

    @property
    def comparison(self) -> Comparison:
        """The comparison under the table's protocol."""
        if self.protocol == "label-only":
            return self.label_only
        if self.as_released is None:
            raise DataError("These runs kept no epochs, so the protocol as released cannot be shown.")
        return self.as_released

    @cached_property
    def kinds(self) -> list[tuple[RunSet, Comparison]]:
        """The comparison; where some rows train everything (FT) and others the last encoder (LE), one of each kind."""
        found, rows = [], self.runs.rows()
        for kind in ("FT", "LE"):
            if (baseline := f"ERM-{kind}") in rows:
                alike = [run for row, runs in rows.items() if row.endswith(kind) for run in runs]
                runs = dataclasses.replace(self.runs, runs=alike)
                found.append((runs, runs.compare(baseline, selection=self.comparison.selection)))
        return found or [(self.runs, self.comparison)]

    @property
    def gains(self) -> dict[str, tuple[str, dict[str, Estimate]]]:
        """``{method: (baseline, {figure: method minus baseline})}``, paired, under the table's protocol."""
        found = {}
        for _, one in self.kinds:
            for method, row in one.table.rows.items():
                if method != one.table.baseline:
                    differences = {name: each.difference for name, each in row.items()}
                    known = {name: each for name, each in differences.items() if each is not None}
                    found[method] = one.table.baseline, known
        return found

    @cached_property
    def selection(self) -> dict[str, dict[str, Estimate]]:
        """What choosing by the gap on the test rows changes, by method and figure: paired over rows and seeds.

        The interval does not know that the choice saw these rows; the change in the gap is downward by construction.
        """
        if self.as_released is None:
            return {}
        return {
            method: {
                figure: row.difference for figure, row in table.rows["second"].items() if row.difference is not None
            }
            for method, table in self.runs.between_selections(None, LEAKING).items()
        }

    @cached_property
    def figures(self) -> dict[str, dict[str, Against]]:
        """Return ``{method: {figure: Against}}``, published methods first."""
        shown: dict[str, dict[str, Against]] = {}
        rows = self.comparison.table.rows
        place = {name: number for number, name in enumerate(self.published)}
        for method in sorted(rows, key=lambda row: place.get(published_row(row), len(place))):
            shown[method] = {}
            for figure in FIGURES:
                here = rows[method][figure].estimate
                published = self._published(method).get(figure)
                released = None if self.as_released is None else self.as_released.table.rows[method][figure].estimate
                shown[method][figure] = Against(
                    published,
                    here,
                    None if published is None else minus_published(here, published),
                    released,
                    self.selection.get(method, {}).get(figure),
                )
        return shown

    def sections(self) -> list[Record]:
        """Return the tables of published figures and ours, one a figure, then gains over the baseline, then cost."""
        return [*(self._against(figure) for figure in FIGURES), *map(self._gains, FIGURES[:2]), *self._cost()]

    def _against(self, figure: str) -> Record:
        columns = ["Method", "published", "here", "here minus published", "as released", "by selection alone"]
        rows = []
        for method, each in self.figures.items():
            one = each[figure]
            published = blocks.cell("" if one.published is None else one.published)
            parts = [_cell(one.here), _cell(one.difference, signed=True)]
            parts += [_cell(one.released), choice_of_epochs(one.selection)]
            rows.append((self.comparison.label(method), [published, *parts]))
        notes = (
            "Percent and points.",
            "published: mean ± standard deviation over 3 seeds.",
            f"here: 95% interval over {self.comparison.sources}.",
            "as released: each run's epoch with the smallest gap on these test rows (LEAKING).",
            "by selection alone: that minus the epochs chosen by labels.",
        )
        return self._table(f"{METRICS[figure].column}, published and here", columns, rows, notes)

    def _gains(self, figure: str) -> Record:
        rows = []
        for method, (baseline, figures) in self.gains.items():
            theirs, published = (self._published(row).get(figure) for row in (method, baseline))
            gain = blocks.cell()
            if published is not None and theirs is not None:
                value, low, high = published_gain(theirs, published)
                gain = blocks.cell(number(value, 2, signed=True), interval(low, high, signed=True))
            cells = [blocks.cell(baseline), gain, _cell(figures.get(figure), signed=True)]
            rows.append((self.comparison.label(method), cells))
        notes = (
            "Points.",
            "published: interval from the deviations over 3 seeds.",
            "here: paired, over test rows and seeds.",
        )
        columns = ["Method", "minus", "published", "here"]
        return self._table(f"{METRICS[figure].column}, minus the baseline", columns, rows, notes)

    def _table(
        self, title: str, columns: list[str], rows: list[tuple[str, list[Record]]], notes: Sequence[str]
    ) -> Record:
        """Return a table; where nothing was published (figure 2), without the columns and words about that."""
        if not self.published:
            kept = [place for place, column in enumerate(columns) if "published" not in column]
            columns = [columns[place] for place in kept]
            rows = [(head, [cells[place - 1] for place in kept[1:]]) for head, cells in rows]
            title = title.replace("published and ", "")
            notes = [note for note in notes if not note.startswith("published")]
        return blocks.table(f"{self.title}: {title}", columns, rows, notes=notes)

    def _cost(self) -> list[Record]:
        tables, costs = [], self.comparison.cost
        note = "Mean over seeds; published on one RTX 3090, Wh by utilisation x 350 W; here by NVML's counter."
        for key, title in COSTS.items():
            theirs = {method: each[key] for method in costs if key in (each := self._published(method))}
            rows = [
                (method, [_cost(theirs[method].mean) if method in theirs else blocks.cell(), _cost(cost.get(key))])
                for method, cost in costs.items()
            ]
            if theirs:
                columns = ["Method", "published", "here"]
                tables.append(blocks.table(f"{self.title}: {title}", columns, rows, notes=[note]))
        return tables

    def findings(self, reason: str) -> list[str]:
        """Say in sentences how far published figures and ours agree, and the most likely reason where they do not."""
        sentences = []
        for figure in FIGURES[:2]:
            known = [one for each in self.figures.values() if (one := each[figure].difference) is not None]
            known = [one for one in known if one.defined]
            away = [one for one in known if one.excludes_zero]
            if known:
                sentences.append(
                    f"{METRICS[figure].column}: {len(away)} of {len(known)} published figures differ from ours by more "
                    "than the intervals allow."
                )
        if sentences:
            sentences.append(f"Most likely reasons for differences: {reason}.")
        sentences += [sentence for _, one in self.kinds for sentence in one.sentences()]
        if self.missing:
            sentences.append(f"Not run yet: {', '.join(self.missing)}.")
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict of aggregates."""
        return {
            "protocol": self.protocol,
            "by_selection_alone_pairs_seeds": True,
            "missing": list(self.missing),
            "published": {
                method: {figure: one.to_dict() for figure, one in each.items()} for method, each in self.figures.items()
            },
            "gains": {
                method: {"baseline": baseline} | {figure: estimate_to_dict(figures[figure]) for figure in FIGURES}
                for method, (baseline, figures) in self.gains.items()
            },
            "label_only": self.label_only.to_dict(),
            "as_released": None if self.as_released is None else self.as_released.to_dict(),
        }


def reproduction(
    cells: Iterable[Cell],
    published: Mapping[str, Mapping[str, Published]],
    protocol: Protocol,
    title: str,
) -> Reproduction | None:
    """Return what the finished ``cells`` of one grid say; None if there are none.

    The rows are named as in ``cells``: a run that two grids share has a name in each.
    """
    cells = list(cells)
    done = [cell for cell in cells if cell.done]
    if not done:
        return None
    names = {cell.folder: cell.row for cell in done}
    (found,) = collect(list(names), "test")
    runs = [
        dataclasses.replace(run, experiment=dataclasses.replace(run.experiment, name=names[run.folder]))
        for run in found.runs
    ]
    rows = dict.fromkeys(cell.row for cell in cells)
    missing = tuple(row for row in rows if row not in names.values())
    return Reproduction(dataclasses.replace(found, runs=runs), published, protocol, title, missing)


def _cell(estimate: Estimate | None, *, signed: bool = False) -> Record:
    return blocks.cell() if estimate is None else blocks.figure_cell(estimate, digits=2, signed=signed, brackets=True)


def choice_of_epochs(estimate: Estimate | None) -> Record:
    """Return what another choice of epochs changes; where it is the same epochs, that."""
    if estimate is not None and estimate.value == estimate.low == estimate.high == 0:
        return blocks.cell("same epochs")
    return _cell(estimate, signed=True)


def _cost(value: Any) -> Record:
    return blocks.cell("not measured" if value is None else f"{value:,.5g}")
