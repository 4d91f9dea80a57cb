"""The page of a comparison: methods against a baseline, over test rows and training seeds together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rich.console import Console

from levelhead.bench.comparison import MAIN, Comparison
from levelhead.bench.pareto import Frontier, not_drawn, pareto_rows
from levelhead.metrics import JointRow, JointTable
from levelhead.metrics.intervals import finite_or_none
from levelhead.metrics.names import COMPARED, METRICS
from levelhead.report import blocks, marks
from levelhead.report.headline import Lead
from levelhead.report.one_page import one_page
from levelhead.report.result import Report
from levelhead.report.rows import COLUMNS, MORE
from levelhead.report.sentences import quoted_name, several_sentences
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short
from levelhead.runs.cost_table import cost_table
from levelhead.types import DataError, Estimate, printable, visible

ANSWERS = 2
"""Published tables that stand above the chart, as they answer the question."""
SMALL = 10
"""Rows below which a group's rates are not informative."""
_SAW_GROUPS = (marks.ORACLE, marks.FEW_GROUPS, marks.LEAKING)
"""Marks of variants for which groups were read, of all rows or of some."""


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
        every, titles = self.every, titles_of(self.every)
        first, said = every[0].comparison, [one.comparison.sentences() for one in every]
        finding, *lines = said[0]
        if len(every) > 1:
            baselines = {one.comparison.table.baseline for one in every}
            findings = list(zip(titles, [one.comparison.differences() for one in every], strict=True))
            finding, *lines = several_sentences(findings, first.table.baseline if len(baselines) == 1 else "")
            lines += [_headed(one, title, text[0]) for one, title, text in zip(every, titles, said, strict=True)]
        columns = titles if len(every) > 1 else [first.title]
        data = [figure for one, column in zip(every, columns, strict=True) for figure in _figures(one, column)]
        data_sets = dict.fromkeys(str(one.comparison.data["name"]) for one in every)
        record = {
            "kind": self.kind,
            "title": self.title,
            "rows": first.rows,
            "level": first.table.level,
            "sentences": [finding, *lines],
            "lead": _lead(every, columns[0], finding, lines).to_dict(),
            "named": [[columns[0], *_pieces(every, text)[1]] for text in (finding, *lines)],
            "warnings": list(dict.fromkeys([*self.cautions, *_all_cautions(every, titles)])),
            "titles": {name: metric.short for name, metric in METRICS.items()},
            "drawn": f"Changes are relative to {first.table.baseline}; a negative change of a gap is a smaller gap.",
            "rates": {column: {"reference": first.label(first.table.baseline)} for column in columns},
            "figures": {"columns": [*COLUMNS, *MORE], "data": data},
            "notes": _notes(first),
            "facts": [fact for one, column in zip(every, titles, strict=True) for fact in _facts(one, column)],
            "sure": _sure(every),
        }
        planes = [block for one in every for block in _plane(one)]
        first_plane = every[0].plane_first or all(len(one.comparison.table.rows) == 1 for one in every)
        beside = [*(() if first_plane else planes), *(table for one in every for table in _tables(one))]
        made = one_page(
            record,
            source=", ".join(data_sets),
            drawn=[*(planes if first_plane else ()), *(table for one in every for table in one.published[:ANSWERS])],
            more=[("Accuracy against the gap, and cost of training", beside)],
        )
        return made | {"command": command}


def print_each(reports: Sequence[Comparisons], console: Console, everything: bool) -> None:
    """Print comparisons; of several, each short one below what tells it from the others."""
    for report, title in zip(reports, titles_of([one.every[0] for one in reports]), strict=True):
        if len(reports) > 1 and not everything:
            console.print(f"\n{visible(title)}", markup=False, highlight=False, soft_wrap=True)
        console.print(report.table(all=everything))


def stored_comparisons(record: Any, source: str = "") -> Comparisons:
    """Return the comparisons of a JSON that ``levelhead table`` wrote; ``source`` names the file in errors."""
    if not isinstance(record, dict) or not isinstance(record.get("comparisons"), list) or not record["comparisons"]:
        raise DataError(f"{source} is not what `levelhead table --json` writes.")
    stored = [Compared(Comparison.from_dict(one), title=one.get("title", "")) for one in record["comparisons"]]
    return Comparisons(stored)


def comparisons_page(record: Record, *, source: str = "") -> Record:
    """Return the page of :func:`stored_comparisons`."""
    return stored_comparisons(record, source).page()


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


def _metrics(comparison: Comparison) -> list[str]:
    return [name for name in COMPARED if name in next(iter(comparison.table.rows.values()))]


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


def _pieces(every: Sequence[Compared], text: str) -> tuple[list[str], list[str]]:
    """Return a sentence in pieces, every second one a variant as it names them, and the labels of these variants."""
    labels = {
        quoted_name(label): label
        for comparison in (one.comparison for one in every)
        for label in map(comparison.label, comparison.table.rows)
    }
    known = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    pieces = re.split(rf"(?<!\w)({known})(?!\w)", text)
    return pieces, [labels[name] for name in pieces[1::2]]


def _lead(every: Sequence[Compared], column: str, finding: str, lines: Sequence[str]) -> Lead:
    """Return the first sentence as data; what it says of further variants stands below it."""
    head, _, rest = finding.partition("; ")
    pieces, groups = _pieces(every, head)
    below = [rest[:1].upper() + rest[1:]] * bool(rest)
    named = [len(every) == 1 and not _pieces(every, line)[0][0] for line in lines[:2]]
    below += [f"Measured: {line}" if starts else line for starts, line in zip(named, lines, strict=False)]
    return Lead(tuple(pieces), " ".join(below), column, f"{MAIN}_change", groups=tuple(groups))


def _figures(one: Compared, column: str) -> Iterator[list[Any]]:
    """Yield each variant's figures and changes as :mod:`levelhead.report.rows` has them."""
    comparison, table = one.comparison, one.comparison.table
    decided = {
        (each.method, name): each.decided for name in _metrics(comparison) for each in comparison.differences(name)
    }

    def written(method: str, name: str, figure: Estimate, *more: Any) -> list[Any]:
        ends = map(finite_or_none, (figure.value, figure.low, figure.high))
        return [column, comparison.label(method), name, *ends, figure.n, figure.reason, True, *more]

    for method, row in table.rows.items():
        for name in _metrics(comparison):
            found, change = row[name], row[name].difference
            yield written(method, name, found.estimate, _mark(found, table, method), "", None)
            if change is not None:
                yield written(method, f"{name}_change", change, "", _p_value(found), decided[method, name])
        for group, (area, change) in (comparison.areas or {}).get(method, {}).items():
            yield written(method, f"area[{short(group)}]", area, "", "", None)
            if change is not None:
                yield written(method, f"area_change[{short(group)}]", change, "", "", False)


def _mark(row: JointRow, table: JointTable, method: str) -> str:
    if not row.estimate.defined or not table.can_be_best(method):
        return ""
    return "best" if row.p_best is None else "~" if not row.p_best < 1 - table.level else ""


def _p_value(row: JointRow) -> str:
    return "" if row.p_holm is None else f"p {row.p_holm:.2g}"


def _notes(comparison: Comparison) -> list[str]:
    several, error = len(comparison.table.rows) > 1, 1 - comparison.table.level
    notes = [f"Mean over {comparison.number_of_seeds}; intervals over {comparison.sources}."]
    if several:
        notes[0] += " *: significant after correction for the number of variants."
        notes.append(
            f"best: the best measured value. ~: not distinguishable from it (p at least {error:.2g} for the paired "
            "difference). p is Holm-adjusted over the variants."
        )
    if MAIN in _metrics(comparison):
        notes.append("EOd gap: the mean of the gaps of both rates, as in the paper; an audit shows the larger one.")
    return [*notes, comparison.protocol]


def _sure(every: Sequence[Compared]) -> Record:
    """Return whether it could be chance, and what could be missed."""
    differences = [each for one in every for each in one.comparison.differences()]
    chance = "It could: these rows also fit “no difference”. Inconclusive does not mean equal."
    if any(each.on_one_seed for each in differences):
        chance = "It could: one seed cannot tell a method from its luck in training. Train three or more."
    if any(each.decided for each in differences):
        chance = "Filled marks are unlikely to be chance: after correction, their intervals leave out 0."
    missed = [each for one in every for each in _detectable(one.comparison)]
    return {"chance": chance, "missed": "".join(missed[:1])}


def _tables(one: Compared) -> list[Record]:
    """Return the tables that comparisons alone have."""
    costs = {one.comparison.label(method): cost for method, cost in one.comparison.cost.items()}
    return [*one.published[ANSWERS:], *_options(one.comparison), cost_table(costs)]


def _options(comparison: Comparison) -> list[Record]:
    """Return the table of the options that were chosen, beside those that groups would have chosen, if any were."""
    tuning = comparison.tuning or {}
    rows = []
    for one in tuning.get("choices", []):
        gaps = [
            blocks.cell("") if gap is None else blocks.figure_cell(estimate_from_dict(gap), brackets=True)
            for gap in (one["chosen_gap"], one["oracle_gap"])
        ]
        by_labels, by_groups = blocks.cell(one["chosen"]), blocks.cell(one["oracle"] or "undefined")
        rows.append((one["method"], [blocks.cell(len(one["candidates"])), by_labels, gaps[0], by_groups, gaps[1]]))
    if not rows:
        return []
    columns = ["Method", "variants", "chosen by labels", COMPARED[MAIN], "ORACLE: by groups", COMPARED[MAIN]]
    note = f"chosen by {tuning['criterion']} on validation; ORACLE: by the smallest EOd gap on validation, with groups"
    return [blocks.table("Options", columns, rows, notes=[note], text_columns=[2, 4])]


def _plane(one: Compared) -> list[Record]:
    comparison = one.comparison
    left_out, kept = not_drawn(comparison), pareto_rows(comparison)
    missing = [short(sentence, 600) for sentence in left_out.values()]
    points: list[Record] = [
        {
            "label": short(name),
            "tag": " ".join(comparison.marks(name)),
            "oracle": comparison.oracle[name] is not None,
            "kept": name in kept,
            "x": _ends(row[MAIN].estimate),
            "y": _ends(row["accuracy"].estimate),
        }
        for name, row in comparison.table.rows.items()
        if name not in left_out
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


def _sizes(one: Compared) -> str:
    """Return how many rows of each label every group has."""
    return "; ".join(
        f"{short(group, 40)} {sum(cells.values()):,} ({', '.join(_size(*cell) for cell in cells.items())})"
        for group, cells in one.sizes.items()
    )


def _size(label: str, count: int) -> str:
    return f"{short(label, 40)} {count:,}" + f", fewer than {SMALL}" * (count < SMALL)


def _facts(one: Compared, title: str) -> list[tuple[str, str]]:
    """Return how a comparison was made, as terms and their texts."""
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
    sizes = f"{comparison.whose_rows.capitalize()} by group of {short(comparison.attribute, 40)}"
    items.append((sizes, _sizes(one) or "This file holds no group sizes: make the page from the run folders."))
    return [*items, *_settings(comparison)]


def _environment(environment: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    kept = [f"Python {environment['python']}"] if "python" in environment else []
    kept += [packages] if packages else []
    kept.append(f"device {environment.get('device', 'unknown')}, CPU {environment.get('cpu', 'unknown')}")
    return ", ".join(kept)


def _settings(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield the settings in which variants differ, with what each has."""
    every = comparison.to_dict()["settings"]
    for key in sorted({key for settings in every.values() for key in settings}):
        values = {comparison.label(name): str(settings.get(key, "–")) for name, settings in every.items()}
        if len({*values.values()}) > 1:
            yield f"Setting {key}", "; ".join(f"{name}: {value}" for name, value in values.items())
