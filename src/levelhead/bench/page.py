"""The page of a comparison: methods against a baseline, over test rows and training seeds together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from levelhead.bench.comparison import MAIN, Comparison
from levelhead.bench.pareto import Frontier, points_of
from levelhead.metrics import JointRow, JointTable
from levelhead.metrics.names import COMPARED, METRICS
from levelhead.report import blocks, marks
from levelhead.report.definitions import CAUTION, DEFINITIONS, STATISTICS, help_for
from levelhead.report.result import Report
from levelhead.report.sentences import Difference, several_sentences
from levelhead.report.text import (
    Record,
    counted,
    estimate_from_dict,
    level_text,
    number,
    percent,
    percent_interval,
    short,
)
from levelhead.runs.cost_table import cost_table
from levelhead.types import DataError, Estimate, printable

SMALL = 10
"""Rows below which a group's rates are not informative."""
_GAP_ENDS = ("smaller measured gap", "larger measured gap")
_LEVEL_ENDS = ("lower", "higher")
_OPEN = (MAIN, "accuracy")
"""Metrics whose differences are drawn; tables have all."""
_SAW_GROUPS = (marks.ORACLE, marks.FEW_GROUPS, marks.LEAKING)
"""Marks of variants for which groups were read, of all rows or of some."""
_PAGE_ONLY = ("balanced_accuracy",)
"""Columns that a terminal of 80 columns has no room for."""


@dataclass(frozen=True)
class Compared:
    """A comparison and the inputs of its page.

    ``sizes`` are the rows by group and label (see :func:`levelhead.bench.of_runs.group_sizes`), ``frontier`` the FACT
    line of the baseline, ``published`` tables of these figures beside those that others published or under their choice
    of epochs, ``title`` a name where a page holds several comparisons. ``plane_first`` puts accuracy against the gap
    above all.
    """

    comparison: Comparison
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    frontier: Frontier | None = None
    published: Sequence[Record] = ()
    title: str = ""
    plane_first: bool = False


@dataclass(frozen=True)
class Comparisons(Report):
    """One comparison, or several (on several data sets, or of several kinds), on one page.

    ``title`` takes the place of one made of the data's name; ``cautions`` stand before those that are found.
    """

    kind: ClassVar[str] = "comparison"
    every: Sequence[Compared]
    title: str = ""
    cautions: Sequence[str] = ()

    @classmethod
    def of(cls, *comparisons: Comparison) -> Comparisons:
        """Return comparisons as a result that draws itself: page, terminal, Markdown, LaTeX, data frame."""
        return cls([Compared(one) for one in comparisons])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict of aggregates: no row of the data is in it."""
        return {"kind": self.kind, "comparisons": [one.comparison.to_dict() for one in self.every]}

    def figures(self) -> Iterator[tuple[str, None, str, Estimate]]:
        """Yield each variant's figures and differences from the baseline, named by variant and metric."""
        for one in self.every:
            yield from one.comparison.figures()

    def page(self, *, source: str = "", command: str = "", more: Mapping[str, Any] | None = None) -> Record:
        """Return the page as a plain dict, for :func:`levelhead.report.render`."""
        every, several, titles = self.every, len(self.every) > 1, titles_of(self.every)
        first, said = every[0].comparison, [one.comparison.sentences() for one in every]
        finding, *lines = said[0]
        if several:
            baselines = {one.comparison.table.baseline for one in every}
            findings = list(zip(titles, [one.comparison.differences() for one in every], strict=True))
            finding, *lines = several_sentences(findings, first.table.baseline if len(baselines) == 1 else "")
        named = [_headed(one, title, text[0]) for one, title, text in zip(every, titles, said, strict=True)]
        whole = named if several else []
        return blocks.page(
            "Comparison",
            finding,
            _folds(every, titles),
            title=self.title or f"Comparison: {first.data['name']}",
            about=_shared_data(every) if several else first.title,
            lines=[*lines, *whole],
            cautions=list(dict.fromkeys([*self.cautions, *_all_cautions(every, titles)])),
            brief=None if several else brief(first, lines),
            deck=" ".join(lines),
            chart=[block for at, one in enumerate(every) for block in _chart(one, *whole[at : at + 1])],
            sure=_sure(every),
        ) | {"command": command}


def stored_comparisons(record: Any, source: str = "") -> Comparisons:
    """Return the comparisons of a JSON that ``levelhead table`` wrote; ``source`` names the file in errors."""
    if not isinstance(record, dict) or not isinstance(record.get("comparisons"), list) or not record["comparisons"]:
        raise DataError(f"{source} is not what `levelhead table --json` writes.")
    return Comparisons.of(*map(Comparison.from_dict, record["comparisons"]))


def comparisons_page(record: Record, *, source: str = "") -> Record:
    """Return the page of :func:`stored_comparisons`."""
    return stored_comparisons(record, source).page()


def brief(comparison: Comparison, lines: Sequence[str] = ()) -> Record | None:
    """Return what fits a screen: ``lines``, and one line a variant, with its change from the baseline.

    None where there is no variant beside the baseline.
    """
    table, level = comparison.table, level_text(comparison.table.level)
    metrics = [name for name in reversed(_OPEN) if name in _metrics(comparison)]
    differences = {(each.method, name): each for name in metrics for each in comparison.differences(name)}
    if not differences:
        return None
    changes = [differences.get((method, metrics[-1])) for method in table.rows]
    ranked = sorted(range(len(changes)), key=lambda at: _rank(changes[at]))
    rows = [
        (
            comparison.label(method),
            [
                cell
                for name in metrics
                for cell in (_level(row[name].estimate), _change(differences.get((method, name))))
            ],
        )
        for method, row in table.rows.items()
    ]
    columns = [title for name in metrics for title in (METRICS[name].short, "change")]
    notes = [
        f"Percent, mean over {comparison.number_of_seeds}; changes in points, {level} intervals over "
        f"{comparison.sources}. *: significant after correction for the number of variants."
    ]
    return blocks.brief(
        [*lines, *_detectable(comparison)],
        blocks.table(short(f"{comparison.data['name']}: {comparison.measured_on}"), ["Variant", *columns], rows),
        ranked,
        notes,
        row="variant",
        option="levelhead table --all",
    )


def _rank(change: Difference | None) -> tuple[bool, bool, float]:
    """Order variants: the baseline, significant changes, the others; the largest first."""
    if change is None:
        return False, False, 0.0
    return True, not change.decided, -abs(change.estimate.value) if change.estimate.defined else 0.0


def _level(figure: Estimate) -> Record:
    return blocks.cell(percent(figure)) if figure.defined else blocks.undefined_cell(figure.reason)


def _change(change: Difference | None) -> Record:
    if change is None:
        return blocks.cell("")
    found = blocks.figure_cell(change.estimate, signed=True)
    return found | {"sub": [f"{found['sub'][0]}*"]} if change.decided else found


def _begun(one: Compared) -> str:
    """Return what the names of all variants of a comparison begin with, before a colon; often nothing."""
    begun = {name.partition(": ")[0] if ": " in name else "" for name in one.comparison.table.rows}
    return begun.pop() if len(begun) == 1 else ""


def titles_of(every: Sequence[Compared]) -> list[str]:
    """Return a title of each comparison of a page: its own, what the names of its variants begin with, or its options.

    Of the options, those in which it differs from the others.
    """
    data, begun = [one.comparison.data for one in every], list(map(_begun, every))
    if all(begun) and len(set(begun)) == len(every):
        return [one.title or start for one, start in zip(every, begun, strict=True)]
    differing = [
        key for key in dict.fromkeys(key for one in data for key in one) if len({str(one.get(key)) for one in data}) > 1
    ]
    if not differing or "name" in differing:
        return [one.title or one.comparison.title for one in every]
    options = [
        ", ".join(f"no {key}" if one.get(key) is None else f"{key} {printable(one[key])}" for key in differing)
        for one in data
    ]
    return [one.title or listing for one, listing in zip(every, options, strict=True)]


def _shared_data(every: Sequence[Compared]) -> str:
    names = dict.fromkeys(str(one.comparison.data["name"]) for one in every)
    return f"{', '.join(names)}: {counted(len(every), 'comparison')}"


def _metrics(comparison: Comparison) -> list[str]:
    return [name for name in COMPARED if name in next(iter(comparison.table.rows.values()))]


def _definitions(every: Sequence[Compared]) -> Record:
    """Return the words of a page and what they mean."""
    names = ["interval", "distinguishable", "undefined", "pareto", "group"]
    names += [mark for mark in marks.MEANINGS if any(_marked(one.comparison, mark) for one in every)]
    items = [DEFINITIONS[name] for name in _metrics(every[0].comparison) if name in DEFINITIONS]
    items += [STATISTICS[name] for name in names]
    return blocks.section("Definitions", [blocks.terms(items)])


def _marked(comparison: Comparison, mark: str) -> list[str]:
    """Return the rows that have a mark."""
    return [method for method in comparison.table.rows if mark in comparison.marks(method)]


def _who(methods: Sequence[str], comparison: Comparison) -> str:
    """Return the methods' names, which may hold commas."""
    return "Every variant" if len(methods) == len(comparison.table.rows) else "; ".join(map(short, methods))


def _cautions(one: Compared) -> list[str]:
    comparison = one.comparison
    # What concerns the rows comes first, as a terminal shows the first alone.
    cautions = list(comparison.cautions)
    alone = [method for method, seeds in comparison.seeds.items() if len(seeds) == 1]
    if alone:
        cautions.append(f"{_who(alone, comparison)}: one seed only. The intervals leave out the variance over seeds.")
    for mark, meaning in marks.MEANINGS.items():
        if marked := _marked(comparison, mark):
            cautions.append(f"{_who(marked, comparison)}: {mark}. {meaning}")
    return cautions


def _headed(one: Compared, title: str, text: str) -> str:
    """Return a sentence on a comparison after its title, unless the names of its variants say it."""
    return text if title == _begun(one) else f"{title}: {text}"


def _all_cautions(every: Sequence[Compared], titles: Sequence[str]) -> list[str]:
    """Return every comparison's cautions; one that does not hold for all names those that it holds for."""
    found: dict[str, list[str]] = {}
    for one, title in zip(every, titles, strict=True):
        for caution in dict.fromkeys(_cautions(one)):
            found.setdefault(caution, []).append("" if title == _begun(one) else title)
    return [
        told if len(where) == len(every) or not all(where) else f"{'; '.join(where)}: {told}"
        for told, where in found.items()
    ]


def _folds(every: Sequence[Compared], titles: Sequence[str]) -> list[Record]:
    """Return what is folded: of one comparison by what it says, of several by comparison."""
    definitions = _definitions(every)
    if len(every) > 1:
        parts = [blocks.part(_sections(one), title=title) for one, title in zip(every, titles, strict=True)]
        return [*parts, blocks.part([definitions], title="Definitions")]
    figures, plane, rows, cost, how = _sections(every[0])
    return [
        blocks.part([figures], title=figures["title"]),
        *([] if _led_by_plane(every[0]) else [blocks.part([plane], title=plane["title"])]),
        blocks.part([rows, cost], title="Rows and cost of training"),
        blocks.part([how, definitions], title="How it was measured, and definitions"),
    ]


def _sections(one: Compared) -> list[Record]:
    comparison = one.comparison
    costs = {comparison.label(method): cost for method, cost in comparison.cost.items()}
    tables = [*one.published, *_options(comparison)]
    figures = [table | {"folded": "" if place < len(_OPEN) else table["caption"]} for place, table in enumerate(tables)]
    if len(comparison.table.rows) > 2:
        figures.append(blocks.bullets(comparison.findings(), folded="One sentence per variant", where=blocks.BOTH))
    return [
        blocks.section("All figures", [*figures, *_figures(one)]),
        blocks.section("Accuracy against the gap", _pareto(one)),
        blocks.section("Rows", _rows_of_groups(one)),
        blocks.section("Cost of training", [cost_table(costs, where=blocks.BOTH)]),
        blocks.section("How it was measured", _how(one)),
    ]


def _chart(one: Compared, *said: str) -> list[Record]:
    """Return the drawings that answer the question; beside others, below what was found in this comparison."""
    found = _differences(one.comparison) if len(one.comparison.table.rows) > 1 else []
    return [*map(blocks.paragraph, said), *(_pareto(one) if _led_by_plane(one) else []), *found[: 1 if said else 2]]


def _led_by_plane(one: Compared) -> bool:
    """Whether accuracy against the gap is drawn above all, and so not among the folds."""
    return one.plane_first or len(one.comparison.table.rows) == 1


def _sure(every: Sequence[Compared]) -> list[tuple[str, str]]:
    """Return three questions with their answers: chance, what could be missed, and what it does not say."""
    differences = [each for one in every for each in one.comparison.differences()]
    chance = "It could: no difference fits these rows, too. Inconclusive does not mean equal."
    if any(each.on_one_seed for each in differences):
        chance = "It could: one seed cannot tell a method from its luck in training. Train three or more."
    if any(each.decided for each in differences):
        chance = "Filled marks are unlikely to be chance: after correction, their intervals leave out 0."
    missed = [each for one in every for each in _detectable(one.comparison)]
    missed = missed or ["Differences smaller than half the width of an interval may exist without being found."]
    return [("Could it be chance?", chance), ("What could be missed?", missed[0]), ("What it does not say", CAUTION)]


def _options(comparison: Comparison) -> list[Record]:
    """Return the table of the options that were chosen, beside those that groups would have chosen, if any were."""
    tuning = comparison.tuning or {}
    rows = []
    for one in tuning.get("choices", []):
        gaps = [
            blocks.cell("") if gap is None else blocks.figure_cell(estimate_from_dict(gap))
            for gap in (one["chosen_gap"], one["oracle_gap"])
        ]
        by_labels, by_groups = blocks.cell(one["chosen"]), blocks.cell(one["oracle"] or "undefined")
        rows.append((one["method"], [blocks.cell(len(one["candidates"])), by_labels, gaps[0], by_groups, gaps[1]]))
    if not rows:
        return []
    columns = ["Method", "variants", "chosen by labels", COMPARED[MAIN], "ORACLE: by groups", COMPARED[MAIN]]
    note = f"chosen by {tuning['criterion']} on validation; ORACLE: by the smallest EOd gap on validation, with groups"
    return [blocks.table("Options", columns, rows, notes=[note], text_columns=[2, 4], where=blocks.BOTH)]


def _differences(comparison: Comparison) -> list[Record]:
    """Draw the change of the gap, sorted by its size, and that of accuracy in the same order."""
    baseline, level = short(comparison.table.baseline, 40), level_text(comparison.table.level)
    order = [each.method for each in sorted(comparison.differences(), key=_by_size)]
    drawn = []
    for metric in (name for name in _OPEN if name in _metrics(comparison)):
        every = {each.method: each for each in comparison.differences(metric)}
        rows = [
            blocks.forest_row(name, every[name].estimate, decided=every[name].decided, tag=_tag(every[name]))
            for name in order
        ]
        title = f"{METRICS[metric].short}: difference from {baseline}, percentage points with {level} intervals"
        ends = _LEVEL_ENDS if METRICS[metric].larger_is_better else _GAP_ENDS
        notes = [
            "Filled mark: significant (interval without 0, Holm-adjusted p below "
            f"{1 - comparison.table.level:.2g}). Open mark: inconclusive, which does not mean equal.",
            *["ONE SEED: these rows show a difference, and other seeds may not."]
            * any(each.on_one_seed for each in every.values()),
        ]
        drawn.append(blocks.forest(title, rows, heads=("Variant", "Points"), ends=ends, notes=notes * (metric == MAIN)))
    return drawn


def _by_size(each: Difference) -> tuple[bool, float]:
    return not each.estimate.defined, each.estimate.value


def _tag(each: Difference) -> str:
    """Return the words beside a row of a drawing: its marks, and that one seed decides nothing."""
    return " ".join([*each.marks, *["ONE SEED"] * each.on_one_seed])


def _figures(one: Compared) -> list[Record]:
    comparison, table = one.comparison, one.comparison.table
    metrics, level, several = _metrics(comparison), level_text(table.level), len(table.rows) > 1
    columns: list[str | tuple[str, str]] = ["Variant", *((METRICS[name].short, help_for(name)) for name in metrics)]
    page_only = [at for at, name in enumerate(metrics, 1) if name in _PAGE_ONLY]
    shown: dict[str, Any] = {"where": blocks.BOTH, "page_columns": page_only}
    seeds, sources = comparison.number_of_seeds, comparison.sources
    notes = [comparison.protocol, f"Percent, mean over {seeds}, with {level} intervals over {sources}."]
    if MAIN in metrics:
        notes.append("EOd gap: the mean of the gaps of both rates, as in the paper; an audit shows the larger one.")
    if several:
        notes.append(
            f"best: the best measured value. ~: not distinguishable from it (p at least {1 - table.level:.2g} for the "
            "paired difference, Holm over the methods)."
        )
    rows = [
        (
            comparison.label(method),
            [blocks.figure_cell(row[name].estimate, mark=_mark(row[name], table, method)) for name in metrics],
        )
        for method, row in table.rows.items()
    ]
    found = [blocks.table(comparison.title, columns, rows, notes=notes, **shown)]
    if several:
        rows = [
            (
                comparison.label(method),
                [
                    blocks.no_cell()
                    if one.difference is None
                    else blocks.figure_cell(one.difference, signed=True, more=_p_value(one))
                    for one in (row[name] for name in metrics)
                ],
            )
            for method, row in table.rows.items()
            if method != table.baseline
        ]
        notes = ["Percentage points. Negative means a smaller measured gap. p is Holm-adjusted."]
        found.append(blocks.table(f"Differences to {short(table.baseline)}", columns, rows, notes=notes, **shown))
    return found + _areas(comparison)


def _mark(row: JointRow, table: JointTable, method: str) -> str:
    if not row.estimate.defined or not table.can_be_best(method):
        return ""
    return "best" if row.p_best is None else "~" if not row.p_best < 1 - table.level else ""


def _p_value(row: JointRow) -> str:
    return "" if row.p_holm is None else f"p {row.p_holm:.2g}"


def _areas(comparison: Comparison) -> list[Record]:
    """Return the areas under the ROC curve by group; nothing where none were measured."""
    if not comparison.areas:
        return []
    attribute = short(comparison.attribute, 40)
    groups = next(iter(comparison.areas.values()))
    rows = [
        (comparison.label(method), [_area(*areas[group]) for group in groups])
        for method, areas in comparison.areas.items()
    ]
    title = "Area under the ROC curve by group, independent of the threshold"
    level, baseline = level_text(comparison.table.level), short(comparison.table.baseline)
    return [
        blocks.table(
            title,
            ["Variant", *("all rows" if group == "all" else f"{attribute}: {short(group)}" for group in groups)],
            rows,
            notes=[f"Percent, {level} intervals; then the difference from {baseline} in points."],
            folded=title,
            where=blocks.BOTH,
        )
    ]


def _area(area: Estimate, difference: Estimate | None) -> Record:
    more = ""
    if difference is not None and area.defined:
        ends = percent_interval(difference, signed=True) or "no interval"
        more = f"{percent(difference, signed=True)} {ends}" if difference.defined else "undefined"
    return blocks.figure_cell(area, more=more)


def _pareto(one: Compared) -> list[Record]:
    comparison = one.comparison
    every = points_of(comparison)
    missing = [short(point.not_drawn, 600) for point in every if point.not_drawn]
    points: list[Record] = [
        {
            "label": short(point.row),
            "tag": " ".join(point.marks),
            "oracle": point.oracle is not None,
            "kept": point.kept,
            "x": _ends(point.x),
            "y": _ends(point.y),
        }
        for point in every
        if not point.not_drawn
    ]
    if not points:
        return [blocks.bullets(missing)]
    steps = sorted((point["x"][0], point["y"][0]) for point in points if point["kept"])
    line: list[tuple[float, float]] = []
    if one.frontier is not None:
        line = list(zip((100 * one.frontier.gaps).tolist(), (100 * one.frontier.accuracy).tolist(), strict=True))
    notes = [
        f"Marks: means over seeds. Thin bars: {level_text(comparison.table.level)} intervals per axis. Variants with "
        "overlapping bars may swap places.",
        "Stairs: the Pareto set of the measured means, of variants without a mark.",
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


def _ends(figure: Estimate) -> list[float]:
    return [100 * figure.value, 100 * figure.low, 100 * figure.high]


def _detectable(comparison: Comparison) -> list[str]:
    """Say which differences of the gap these rows and seeds cannot detect; nothing where the baseline did not learn."""
    ends = [each.estimate for each in comparison.differences()]
    halves = sorted(50 * (one.high - one.low) for one in ends if not math.isnan(one.low))
    if not halves or not comparison.learned:
        return []
    least = " to ".join(dict.fromkeys(number(one) for one in (halves[0], halves[-1])))
    return [
        f"With {comparison.rows:,} {comparison.whose_rows} and these seeds, differences in the {METRICS[MAIN].short} "
        f"below {least} points cannot be detected. “Inconclusive” describes the size of the data, not the methods."
    ]


def _rows_of_groups(one: Compared) -> list[Record]:
    """Say what these rows can detect, and how many there are of each group and label."""
    several = len(one.comparison.table.rows) > 1
    said = [blocks.paragraph(each, where=blocks.BOTH) for each in _detectable(one.comparison) if several]
    return [*said, _sizes_block(one)]


def _sizes_block(one: Compared) -> Record:
    if not one.sizes:
        return blocks.paragraph("This file holds no group sizes: make the page from the run folders.")
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
    title = f"{one.comparison.whose_rows.capitalize()} by group of {attribute}, as annotated"
    return blocks.table(title, columns, rows)


def _how(one: Compared) -> list[Record]:
    comparison = one.comparison
    seeds = sorted({tuple(each) for each in comparison.seeds.values()})
    rules = sorted({str(settings.get("train.select")) for settings in comparison.settings.values()})
    selection = f"{comparison.selection}, selected again" if comparison.selection else ", ".join(rules)
    threshold = "each run’s own"
    if comparison.positive_rate is not None:
        threshold = f"set to call {comparison.positive_rate:.1%} positive, as {comparison.table.baseline} does"
    marked = [mark for mark in _SAW_GROUPS if mark == marks.ORACLE or _marked(comparison, mark)]
    seers = " or ".join(marked)
    items: list[tuple[str, str]] = [
        ("Data", comparison.title),
        ("Groups", f"{comparison.attribute}, as annotated; seen by no variant except those marked {seers}"),
        ("Training seeds", "; ".join(", ".join(map(str, each)) for each in seeds)),
        ("Epoch kept by", selection),
        ("Threshold", threshold),
        (
            "All variants share",
            comparison.protocol.removeprefix("all variants: ") or "see the settings below",
        ),
        (
            "Intervals",
            f"{level_text(comparison.table.level)}, over {comparison.sources}: rows are resampled jointly for all "
            "variants and seeds (1,000 replicates); the variance over training seeds beyond row noise is added "
            "(Student’s t, Satterthwaite’s degrees of freedom; with two or three seeds Cochran’s wider interval). "
            f"Differences are paired over {comparison.whose_rows}.",
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
    """Return what distinguishes the rows in their settings."""
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
