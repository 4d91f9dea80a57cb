"""The page of a comparison: methods against a baseline, over test rows and training seeds together."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from levelhead.auditing.options import MIN_COUNT
from levelhead.auditing.page import SMALL, appendix
from levelhead.bench.pareto import Frontier, baseline_frontier, outside_the_picture, pareto_to_dict
from levelhead.bench.tables import COLUMNS, Comparison, RunSet, Section
from levelhead.metrics import JointRow, JointTable
from levelhead.metrics.joint import MARGIN
from levelhead.metrics.names import METRICS, MISSING_GROUP
from levelhead.report import blocks, marks
from levelhead.report.definitions import STATISTICS, help_for
from levelhead.report.sentences import Difference, comparison_sentence, difference_sentence, several_sentence
from levelhead.report.text import (
    Record,
    counted,
    estimate_from_dict,
    number,
    percent,
    percent_interval,
    short,
)
from levelhead.runs.cost_block import cost_block
from levelhead.types import DataError, Estimate

MAIN = "equalized_odds"
_GAP_ENDS = ("smaller measured gap", "larger measured gap")
_LEVEL_ENDS = ("lower", "higher")
_OPEN = (MAIN, "accuracy")
"""The differences that are drawn at once; the others are unfolded on demand."""


@dataclass(frozen=True)
class Compared:
    """A comparison with what its page needs beside it.

    ``sizes`` are the test rows by group and label (see :func:`group_sizes`), ``frontier`` the FACT line of the
    baseline, ``published`` tables of these figures beside those that others published, or under their choice of epochs,
    ``title`` a name where a page holds several comparisons. ``plane_first`` puts accuracy against the gap above all.
    """

    comparison: Comparison
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    frontier: Frontier | None = None
    published: Sequence[Section] = ()
    title: str = ""
    plane_first: bool = False


def compared(
    group: RunSet,
    comparison: Comparison,
    published: Sequence[Section] = (),
    *,
    title: str = "",
    plane_first: bool = False,
    min_count: int = MIN_COUNT,
) -> Compared:
    """Return a comparison of a group of runs with the sizes of its groups, and the FACT line where there is one."""
    frontier = None
    if len(group.classes) == 2 and comparison.selection is None and comparison.positive_rate is None:
        # Without two groups that have both classes there is no line, and the page does without it.
        with contextlib.suppress(DataError):
            frontier = baseline_frontier(group, comparison, min_count=min_count)
    sizes = group_sizes(group.runs[0].predictions, group.attribute)
    return Compared(comparison, sizes, frontier, published, title, plane_first)


def group_sizes(predictions: pd.DataFrame, attribute: str) -> dict[str, dict[str, int]]:
    """Return the number of rows by group and label."""
    filled = predictions.assign(**{attribute: predictions[attribute].fillna(MISSING_GROUP)})
    counts = filled.groupby([attribute, "label"], sort=True, observed=True).size()
    sizes: dict[str, dict[str, int]] = {}
    for key, count in counts.items():
        group, label = map(str, tuple(key))  # type: ignore[arg-type]  # a pair, since there are two columns
        sizes.setdefault(group, {})[label] = int(count)
    return sizes


def comparison_from_dict(record: Record) -> Comparison:
    """Return the comparison that :meth:`levelhead.bench.tables.Comparison.to_dict` wrote."""
    rows = {
        method: {name: _joint_row(figures) for name, figures in row.items()}
        for method, row in record["methods"].items()
    }
    areas = record["area_under_roc"]
    at_chance = record.get("at_chance", ())
    # Earlier records have one mark for both. A row above 1/2 is above chance for any number of classes.
    above = [name for name in at_chance if (row := rows[name].get("balanced_accuracy")) and row.rows_only.low > 0.5]
    few_seeds = tuple(record.get("few_seeds", above))
    at_chance = tuple(name for name in at_chance if name not in few_seeds)
    return Comparison(
        data=record["data"],
        split=record["split"],
        attribute=record["attribute"],
        rows=record["rows"],
        seeds=record["seeds"],
        settings=record["settings"],
        oracle=record["oracle"],
        told=record.get("told", {}),
        cost=record["cost"],
        environments=record["environments"],
        table=JointTable(
            rows,
            record["baseline"],
            record["level"],
            at_chance,
            few_seeds,
            record.get("margin", MARGIN),
            tuple(record.get("less_accurate", ())),
        ),
        selection=record["selection"],
        positive_rate=record["matched_positive_rate"],
        areas=areas
        and {
            method: {group: (estimate_from_dict(one), _maybe(one["difference"])) for group, one in each.items()}
            for method, each in areas.items()
        },
        warnings=tuple(record.get("warnings", ())),
        data_changed=None if (changed := record.get("data_changed")) is None else tuple(changed),
    )


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
        record.get("p_within"),  # absent in files of before there were verdicts
    )


def _maybe(record: Record | None) -> Estimate | None:
    return None if record is None else estimate_from_dict(record)


def comparison_page(
    every: Sequence[Compared], *, command: str = "", title: str = "", cautions: Sequence[str] = ()
) -> Record:
    """Summarise one comparison, or several (on several data sets, or of several kinds).

    ``title`` takes the place of one made of the data's name; ``cautions`` stand before those that are found.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    several = len(every) > 1
    first = every[0].comparison
    findings = [(_title(one), differences(one.comparison)) for one in every]
    baselines = [one.comparison.table.baseline for one in every]
    if several:
        finding = several_sentence(findings, baselines[0] if len(set(baselines)) == 1 else "")
        lines = [
            f"{title}: {comparison_sentence(found, baseline)}"
            for (title, found), baseline in zip(findings, baselines, strict=True)
        ]
    else:
        finding, lines = comparison_sentence(differences(first), first.table.baseline), []
    parts = []
    for one in every:
        found = differences(one.comparison)
        sentence = comparison_sentence(found, one.comparison.table.baseline) if several else ""
        parts.append(blocks.part(_sections(one), title=_title(one) if several else "", finding=sentence))
    parts.append(blocks.part([appendix(_metrics(first), _statistics(every))]))
    return blocks.page(
        "Comparison",
        finding,
        parts,
        title=title or f"Comparison: {first.data['name']}",
        about="; ".join(dict.fromkeys(one.comparison.title for one in every)) if not several else _shared_data(every),
        facts=[] if several else _facts(every[0]),
        lines=lines,
        cautions=list(dict.fromkeys([*cautions, *(caution for one in every for caution in _cautions(one))])),
        command=command,
    )


def comparisons_page(record: Record, *, source: str = "", command: str = "") -> Record:
    """Summarise the JSON of comparisons, as ``levelhead table`` writes it; ``source`` names the file in errors."""
    if not record["comparisons"]:
        raise DataError(f"{source} is not what `table` writes: it holds no comparison.")
    return comparison_page([Compared(comparison_from_dict(one)) for one in record["comparisons"]], command=command)


def _title(one: Compared) -> str:
    return one.title or one.comparison.title


def _shared_data(every: Sequence[Compared]) -> str:
    names = dict.fromkeys(str(one.comparison.data["name"]) for one in every)
    return f"{', '.join(names)}: {counted(len(every), 'comparison')}"


def differences(comparison: Comparison, metric: str = MAIN) -> list[Difference]:
    """Return every row's difference to the baseline."""
    return [
        Difference(
            method,
            row[metric].difference,  # type: ignore[arg-type]  # only the baseline has none
            row[metric].p_holm,
            comparison.table.level,
            comparison.marks(method),
            row[metric].p_within,
            comparison.table.margin,
        )
        for method, row in comparison.table.rows.items()
        if method != comparison.table.baseline
    ]


def _metrics(comparison: Comparison) -> list[str]:
    return [name for name in COLUMNS if name in next(iter(comparison.table.rows.values()))]


def _statistics(every: Sequence[Compared]) -> tuple[str, ...]:
    names = ["interval", "distinguishable", "half_width", "undefined", "pareto", "group"]
    return (*names, *(mark for mark in marks.MEANINGS if any(_marked(one.comparison, mark) for one in every)))


def _marked(comparison: Comparison, mark: str) -> list[str]:
    """Return the rows that have a mark."""
    return [method for method in comparison.table.rows if mark in comparison.marks(method)]


def _facts(one: Compared) -> list[tuple[str, str, str]]:
    comparison = one.comparison
    seeds = sorted({len(each) for each in comparison.seeds.values()})
    facts = [
        ("Test rows", f"{comparison.rows:,}", f"groups by {short(comparison.attribute, 40)}, as annotated"),
        (
            "Compared",
            f"{len(comparison.table.rows)}",
            f"variants of {' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])} each",
        ),
    ]
    halves = _halves(comparison, MAIN)
    if halves:
        facts.append(
            (
                "Not seen below about",
                _about(halves),
                f"points of difference in the {METRICS[MAIN].short}",
            )
        )
    told = sum(each.decided for each in differences(comparison))
    facts.append(
        (
            "Distinguishable",
            f"{told} of {len(comparison.table.rows) - 1}",
            f"from {short(comparison.table.baseline, 40)}",
        )
    )
    return facts


def _halves(comparison: Comparison, metric: str) -> list[float]:
    found = [each.estimate for each in differences(comparison, metric)]
    return [50 * (figure.high - figure.low) for figure in found if figure.defined]


def _about(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _who(methods: Sequence[str], comparison: Comparison) -> str:
    """Return the methods' names, which may hold commas."""
    return "Every variant" if len(methods) == len(comparison.table.rows) else "; ".join(map(short, methods))


def _cautions(one: Compared) -> list[str]:
    comparison = one.comparison
    cautions = []
    for mark, meaning in marks.MEANINGS.items():
        if marked := _marked(comparison, mark):
            cautions.append(f"{_who(marked, comparison)}: {mark}. {meaning}")
    alone = [method for method, seeds in comparison.seeds.items() if len(seeds) == 1]
    if alone:
        cautions.append(
            f"{_who(alone, comparison)}: one seed only. How much another seed would change is not in the intervals."
        )
    cautions += comparison.cautions
    few = _few(one.sizes)
    if few:
        cautions.append(f"Fewer than {SMALL} test rows: {', '.join(few)}. Rates over them decide nothing.")
    return cautions


def _few(sizes: Mapping[str, Mapping[str, int]]) -> list[str]:
    groups = [f"group {short(group, 40)}" for group, cells in sizes.items() if sum(cells.values()) < SMALL]
    cells = [
        f"group {short(group, 40)} with label {short(label, 40)}"
        for group, cells in sizes.items()
        for label, count in cells.items()
        if count < SMALL <= sum(cells.values())
    ]
    return groups + cells


def _sections(one: Compared) -> list[Record]:
    comparison = one.comparison
    several = len(comparison.table.rows) > 1
    costs = {comparison.label(method): cost for method, cost in comparison.cost.items()}
    plane = blocks.section("Accuracy against the gap", _pareto(one))
    sections = [plane] * one.plane_first
    if one.published:
        tables = [
            _drawn(table, folded="" if place < len(_OPEN) else short(table.title))
            for place, table in enumerate(one.published)
        ]
        theirs = any("published" in table.columns for table in one.published)
        sections.append(blocks.section("Published and here" if theirs else "Epochs by labels, and as released", tables))
    if several:
        sections.append(blocks.section("The differences", _difference_blocks(comparison)))
    sections.append(blocks.section("What these data cannot decide", _limits(one)))
    sections.append(blocks.section("All figures", _figures(one)))
    sections += [plane] * (not one.plane_first)
    sections.append(blocks.section("Cost of training", [cost_block(costs)]))
    sections.append(blocks.section("How it was measured", _how(one)))
    return sections


def _difference_blocks(comparison: Comparison) -> list[Record]:
    baseline, level = comparison.table.baseline, f"{comparison.table.level:.0%}"
    found: list[Record] = []
    metrics = [name for name in _OPEN if name in _metrics(comparison)]
    metrics += [name for name in _metrics(comparison) if name not in metrics]
    for metric in metrics:
        gap = not METRICS[metric].larger_is_better
        rows = [
            blocks.forest_row(each.method, each.estimate, decided=each.decided, tag=" ".join(each.marks))
            for each in differences(comparison, metric)
        ]
        title = (
            f"{METRICS[metric].short}: difference to {short(baseline, 40)}, percentage points with {level} intervals"
        )
        notes = []
        if metric == MAIN:
            notes = [
                "A filled mark: the difference is distinguishable from zero (interval without 0, and p after Holm "
                f"below {1 - comparison.table.level:.2g}). An open mark: it is not, which does not mean equal.",
            ]
        folded = "" if metric in _OPEN else f"{METRICS[metric].short}: difference to {short(baseline, 40)}"
        ends = _GAP_ENDS if gap else _LEVEL_ENDS
        found.append(blocks.forest(title, rows, heads=("Variant", "Points"), ends=ends, notes=notes, folded=folded))
        if metric == MAIN and len(rows) > 1:
            sentences = [difference_sentence(each, baseline) for each in differences(comparison)]
            found.append(blocks.bullets(sentences, folded="The same, one sentence a variant"))
    return found


def _figures(one: Compared) -> list[Record]:
    comparison = one.comparison
    table, several = comparison.table, len(comparison.table.rows) > 1
    metrics, level = _metrics(comparison), f"{table.level:.0%}"
    columns: list[str | tuple[str, str]] = ["Variant", *((METRICS[name].short, help_for(name)) for name in metrics)]
    rows = [
        (
            comparison.label(method),
            [_figure_cell(row[name], comparison.table.can_be_best(method), table.level) for name in metrics],
        )
        for method, row in table.rows.items()
    ]
    notes = [f"Percent, mean over seeds, with {level} intervals over {comparison.sources}."]
    if several:
        notes.append(
            f"best: the best measured value. ~: not distinguishable from it (p at least {1 - table.level:.2g} for the "
            "paired difference, Holm over the methods)."
        )
    found = [blocks.table("Every variant’s figures", columns, rows, notes=notes)]
    if several:
        rows = [
            (
                comparison.label(method),
                [_difference_cell(row[name]) for name in metrics],
            )
            for method, row in table.rows.items()
            if method != table.baseline
        ]
        notes = ["Percentage points. A negative difference of a gap is a smaller measured gap. p after Holm."]
        found.append(blocks.table(f"Differences to {short(table.baseline, 40)}", columns, rows, notes=notes))
    return found + [_drawn(area, folded=short(area.title)) for area in comparison.area_sections()]


def _figure_cell(row: JointRow, can_be_best: bool, level: float) -> Record:
    if not row.estimate.defined:
        return blocks.undefined_cell(row.estimate.reason)
    mark = ""
    if can_be_best:
        mark = "best" if row.p_best is None else "~" if not row.p_best < 1 - level else ""
    return blocks.cell(percent(row.estimate), percent_interval(row.estimate), mark=mark)


def _difference_cell(row: JointRow) -> Record:
    figure = row.difference
    if figure is None or not figure.defined:
        return blocks.undefined_cell(None if figure is None else figure.reason)
    p_value = "" if row.p_holm is None else f"p {row.p_holm:.2g}"
    return blocks.cell(percent(figure, signed=True), percent_interval(figure, signed=True), p_value)


def _drawn(section: Section, *, folded: str = "") -> Record:
    """Return a printed table as a block: a cell's first line is its text, what follows stands below."""
    rows: list[tuple[object, Sequence[Record]]] = []
    for head, *cells in section.cells:
        parts = [text.replace("-", "−") if text[:2].strip("-")[:1].isdigit() else text for text in cells]
        rows.append((head, [blocks.cell(*text.split("\n")) for text in parts]))
    return blocks.table(section.title, section.columns, rows, notes=section.caption.split("\n"), folded=folded)


def _pareto(one: Compared) -> list[Record]:
    comparison = one.comparison
    drawn = pareto_to_dict(comparison, x=MAIN, y="accuracy", frontier=one.frontier)
    points, missing = [], []
    for point in drawn["points"]:
        ends = {
            name: [point[column][end] for end in ("value", "low", "high")]
            for name, column in (("x", MAIN), ("y", "accuracy"))
        }
        if None in ends["x"] or None in ends["y"]:
            reason = point[MAIN].get("reason") or point["accuracy"].get("reason")
            missing.append(f"Not drawn: {short(point['label'])} ({reason}).")
            continue
        if point["outside_the_picture"]:
            missing.append(outside_the_picture(short(point["label"]), 100 * ends["x"][0], 100 * ends["y"][0]))
            continue
        points.append(
            {
                "label": short(point["row"]),
                "tag": " ".join(point["marks"]),
                "oracle": point["oracle"] is not None,
                "kept": point["in_pareto_set"],
                **{name: [100 * value for value in values] for name, values in ends.items()},
            }
        )
    if not points:
        return [blocks.bullets(missing)]
    steps = sorted((point["x"][0], point["y"][0]) for point in points if point["kept"])
    line: list[tuple[float, float]] = []
    if one.frontier is not None:
        line = list(zip((100 * one.frontier.gaps).tolist(), (100 * one.frontier.accuracy).tolist(), strict=True))
    notes = [
        f"Marks: means over seeds. Thin bars: {comparison.table.level:.0%} intervals, each direction by itself. "
        "Variants whose bars overlap may change places.",
        "Stairs: no variant without a mark beats these in both columns (Pareto set of the measured means).",
        *(["Squares: variants that saw groups (ORACLE)."] * any(p["oracle"] for p in points)),
        *missing,
    ]
    return [
        blocks.plane(
            f"Accuracy and {METRICS[MAIN].short}: better is up and to the left",
            points,
            titles=("EOd gap, percent (smaller is better)", "Accuracy, percent (larger is better)"),
            steps=steps,
            line=line,
            line_label="" if one.frontier is None else one.frontier.label,
            notes=notes,
        )
    ]


def _limits(one: Compared) -> list[Record]:
    comparison = one.comparison
    found: list[Record] = []
    metrics = _metrics(comparison)
    if len(comparison.table.rows) > 1:
        baseline = comparison.table.baseline
        halves = _halves(comparison, MAIN)
        if halves:
            found.append(
                blocks.paragraph(
                    f"With {comparison.rows:,} test rows and these seeds, a difference in the {METRICS[MAIN].short} of "
                    f"less than about {_about(halves)} points would not be seen, though it may be there. “Not "
                    "distinguishable” is a statement about the data’s size, not about the methods."
                )
            )
        rows = [
            (
                comparison.label(method),
                [
                    blocks.cell(number(50 * (figure.high - figure.low)))
                    if (figure := row[name].difference) is not None and figure.defined
                    else blocks.undefined_cell(figure.reason if figure is not None else None)
                    for name in metrics
                ],
            )
            for method, row in comparison.table.rows.items()
            if method != baseline
        ]
        found.append(
            blocks.table(
                f"Half the width of the interval of the difference to {short(baseline, 40)}, points",
                ["Variant", *((METRICS[name].short, STATISTICS["half_width"][1]) for name in metrics)],
                rows,
                folded="About the smallest difference seen, by variant and metric",
            )
        )
    found.append(_sizes_block(one))
    return found


def _sizes_block(one: Compared) -> Record:
    if not one.sizes:
        return blocks.paragraph("How many rows each group has is not in this file: make the page from the run folders.")
    labels = list(dict.fromkeys(label for cells in one.sizes.values() for label in cells))
    rows = []
    for group, cells in one.sizes.items():
        total = sum(cells.values())
        flag = f"fewer than {SMALL} rows" if total < SMALL else ""
        shown = [blocks.cell(f"{total:,}", flag=flag)]
        for label in labels:
            count = cells.get(label, 0)
            shown.append(blocks.cell(f"{count:,}", flag=f"fewer than {SMALL} rows" if count < SMALL <= total else ""))
        rows.append((group, shown))
    columns = ["Group", "Rows", *(f"with label {short(label, 40)}" for label in labels)]
    attribute = short(one.comparison.attribute, 40)
    return blocks.table(f"Test rows by group of {attribute}, as annotated", columns, rows)


def _how(one: Compared) -> list[Record]:
    comparison = one.comparison
    seeds = sorted({tuple(each) for each in comparison.seeds.values()})
    rules = sorted({str(settings.get("train.select")) for settings in comparison.settings.values()})
    selection = f"{comparison.selection}, chosen anew" if comparison.selection else ", ".join(rules)
    threshold = "each run’s own"
    if comparison.positive_rate is not None:
        threshold = f"set to call {comparison.positive_rate:.1%} positive, as {comparison.table.baseline} does"
    items: list[tuple[str, str]] = [
        ("Data", comparison.title),
        ("Groups", f"{comparison.attribute}, as annotated; seen by no variant except those marked ORACLE"),
        ("Training seeds", "; ".join(", ".join(map(str, each)) for each in seeds)),
        ("Epoch kept by", selection),
        ("Threshold", threshold),
        (
            "All variants share",
            comparison.protocol.removeprefix("all variants: ") or "not everything: see the settings below",
        ),
        (
            "Intervals",
            f"{comparison.table.level:.0%}, over {comparison.sources}: rows are resampled jointly for all variants "
            "and seeds (1,000 replicates), and what the variance over training seeds has beyond the noise of "
            "rows is added (Student’s t with Satterthwaite’s degrees of freedom; with two or three seeds Cochran’s "
            "wider interval). Differences are paired over test rows.",
        ),
        ("p-values", "adjusted by Holm over the methods, metric by metric"),
        ("Versions and hardware", "; ".join(dict.fromkeys(map(_environment, comparison.environments)))),
    ]
    found = [blocks.terms(items)]
    if settings := _settings(comparison):
        found.append(settings)
    return found


def _environment(environment: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    kept = [f"Python {environment['python']}"] if "python" in environment else []
    kept += [packages] if packages else []
    kept.append(f"device {environment.get('device', 'unknown')}, CPU {environment.get('cpu', 'unknown')}")
    return ", ".join(kept)


def _settings(comparison: Comparison) -> Record | None:
    """Return what tells the rows apart in their settings."""
    every = comparison.to_dict()["settings"]
    keys = [
        key
        for key in sorted({key for settings in every.values() for key in settings})
        if len({str(settings.get(key, "–")) for settings in every.values()}) > 1
    ]
    if not keys:
        return None
    rows = [
        (key, [blocks.cell(settings.get(key, "–"), quiet=key not in settings) for settings in every.values()])
        for key in keys
    ]
    columns = ["Setting", *(comparison.label(name) for name in every)]
    return blocks.table(
        "Settings that differ between variants", columns, rows, folded="Settings that differ between variants"
    )
