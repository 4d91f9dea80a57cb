"""The one page of every result with figures, from its JSON alone.

It has a line on what was measured, the headline, one picture that answers the question, three sentences on its limits,
and at most four folds: all figures, summary gaps, pairs and further findings, and how it was measured.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from levelhead.report import blocks, folds, lines
from levelhead.report.charts import chart, in_order, subjects_of
from levelhead.report.folds import known, row_of
from levelhead.report.headline import Lead
from levelhead.report.rows import Row, rows_of, told
from levelhead.report.sentences import TURNED, Words, turned
from levelhead.report.text import LONGEST_SENTENCE, Record, counted, joined, level_text, number, short
from levelhead.report.titles import CAUTION, title_of
from levelhead.report.wide import Pair

PANELS, ON_SCREEN, SENTENCES = 3, 4, 6
"""Panels of a chart, and figures and sentences that a screen has room for."""
MARKS = ("on2", "on")
"""The classes of the two groups that the headline names, in headline and chart."""


class Kind(NamedTuple):
    """What a page of a kind of result is called, and what it draws.

    ``figures`` are those of its chart, the first of which comes first, ``each`` is what they are of, ``pairs`` whether
    they are of two groups, ``order`` how subjects are sorted by the first figure: downwards, upwards or not at all, and
    ``option`` what shows the rest in a terminal.
    """

    name: str
    figures: tuple[str, ...]
    each: str = "group"
    pairs: bool = False
    order: int = -1
    option: str = "--html, --json, or print(result.text(all=True))"


RATES = ("true_positive_rate", "false_positive_rate", "selection_rate", "accuracy")
KINDS = {
    "audit": Kind("Audit", RATES),
    "decisions": Kind("Audit of decisions", ("selection_rate", "selection_rate_difference", "selection_ratio")),
    "matched pairs": Kind("Audit of matched pairs", ("chosen_alone", "mean_score", "selection_rate")),
    "ranking": Kind("Audit of a ranking", ("share_of_top", "representation", "exposure")),
    "regression audit": Kind("Audit of predicted numbers", ("mean_error", "mean_absolute_error", "mean_prediction")),
    "indirect audit": Kind(
        "Audit without recorded groups", ("demographic_parity", "equal_opportunity", "false_positive_rate"), pairs=True
    ),
    "explanation": Kind("Sources of a gap", ("measured", "implied", "predicted"), pairs=True),
    "rule": Kind("Rule", ("selection_rate", *RATES[:2], "accuracy")),
    "two models": Kind("Two models", RATES),
    "evaluation": Kind("Evaluation", ("recall", "precision", "calibration")),
    "inspection": Kind(
        "Inside a classifier",
        ("AUC given the label", "Change of the gap without the direction", "Accuracy without the direction"),
        each="place",
        order=0,
    ),
    "language models": Kind("Language models", (), each="score", order=0, option="--html, --json"),
    "comparison": Kind(
        "Comparison",
        ("equalized_odds_change", "accuracy_change", "equalized_odds", "accuracy"),
        each="variant",
        order=1,
        option="levelhead table --all",
    ),
}
"""By the ``kind`` of a result's JSON."""
BASE_RATE = "base_rate"
RATIOS = ("selection_ratio", "ratio_of_rates")


def one_page(
    record: Record, *, source: str = "", drawn: Sequence[Record] = (), more: Sequence[tuple[str, Sequence[Record]]] = ()
) -> Record:
    """Return the page of any result with figures.

    Args:
        record: what ``to_dict`` of the result returns, or the JSON that it was written to.
        source: what was measured, in a word, for example the file's name.
        drawn: blocks above the chart.
        more: titles and blocks of folds that this kind of result alone has.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    found = _Found(record)
    about, kind = record.get("about") or {}, KINDS[record["kind"]].name
    finding, *others = found.sentences
    return blocks.page(
        kind,
        finding,
        [blocks.part(*fold) for fold in found.folded(source, more)],
        title=record.get("title") or about.get("title") or f"{kind}: {source or 'predictions'}",
        about=found.line([*(short(text, 160) for text in about.values()), source]),
        lines=others,
        cautions=record.get("warnings", []),
        reading=record.get("reading") or [],
        brief=found.brief(),
        headline=found.headline(),
        deck=found.deck(),
        chart=[*drawn, *found.chart()],
        sure=found.sure(),
    )


class _Found:
    """A result's JSON, and what its page is about.

    ``subjects`` are its groups, or their pairs, as they are drawn; ``about`` the places of those that the headline
    names, ``column`` theirs, and ``figures`` the chart's, the headline's first.
    """

    def __init__(self, record: Record) -> None:
        self.record, self.rows, self.words = record, rows_of(record), Words(record)
        self.sentences: list[str] = list(record.get("sentences") or told(record))
        self.sentences = self.sentences or (["Nothing was compared."] if self.rows else record["sentences"])
        self.level = level_text(record.get("level") or 0.95)
        self.lead = record.get("lead") or Lead((self.sentences[0],)).to_dict()
        self.of_model = self.lead["quantity"] == "balanced_accuracy"
        drawn = list(map(_of_favourable, self.rows)) if self.words.turned else self.rows
        self.kind, self.title = KINDS[record["kind"]], partial(title_of, own=record.get("titles"))
        groups, self.pairs, self.each = subjects_of(drawn, pairs=False), self.kind.pairs, self.kind.each
        self.columns, self.groups = Counter(one.column for one in groups), groups
        self.subjects = subjects_of(drawn, pairs=True) if self.pairs else groups
        self.column = self.lead["column"] or next(iter(self.columns), "")
        self.subjects = [one for one in self.subjects if "ideal" in one.found] or self.subjects
        self.figures = self._figures(self.kind.figures)
        if self.figures:
            self.subjects = in_order(self.subjects, self.figures[0], self.column, self.kind.order)
        self.about = self.places(self.lead["column"], *self.lead["groups"])[: len(MARKS)]

    def places(self, column: str, *groups: str) -> list[int]:
        """Return the places of groups of a column, or of the pair that they are, in this order."""
        names = [*groups, " minus ".join(groups), " and ".join(groups)]
        found = [at for at, one in enumerate(self.subjects) if one.column == column and one.name in names]
        return sorted(found, key=lambda at: names.index(self.subjects[at].name))

    def headline(self) -> list[Record]:
        """Return the headline in pieces: every second one names a group, and has its mark where it is drawn."""
        marks = [] if self.pairs else [mark for _, mark in zip(self.about, MARKS, strict=False)]
        *start, last = self.lead["pieces"]
        every = itertools.chain(*(("", mark) for mark in marks), itertools.repeat(""))
        pieces = zip([*start, last.removesuffix(".")], every, strict=False)
        return [{"text": text, "mark": mark} for text, mark in pieces]

    def deck(self) -> str:
        """Return the size and uncertainty of what the headline says, with the base of its rates."""
        rest, comparisons = self.lead["rest"], self.lead["comparisons"]
        if "% interval " not in rest:
            rest = f" {rest}".replace(" interval ", f" {self.level} interval ", 1).strip()
        said = [rest[:1].upper() + rest[1:]] if rest else []
        if comparisons > 1 and "interval " in rest and "adjusted" not in rest:
            said.append(f"Adjusted for {comparisons:,} comparisons.")
        rates = [row_of(self.subjects[at], self.figures[0]) for at in self.about] if self.figures else []
        bases = [
            f"{row.found.n:,}"
            for row, value in zip(rates, self.lead["values"], strict=False)
            if row is not None and row.fraction and math.isclose(row.found.value, value)
        ]
        said += [f"The rates are of {' and '.join(bases)} rows."] if len(bases) == len(MARKS) else []
        return " ".join(said)

    def line(self, start: Sequence[str]) -> str:
        """Return the line above the headline: what was measured, its rows, and its groups."""
        first = sum(one.rows for one in self.groups if one.column == next(iter(self.columns), None))
        count = self.record["rows"] if isinstance(self.record.get("rows"), int) else first
        named = self.each == "group" or len(self.columns) > 1  # else the start of the line names what has them
        groups = [
            f"{short(name, 40)}, " * named + counted(size, self.each) for name, size in list(self.columns.items())[:4]
        ]
        return " · ".join([one for one in start if one] + ([counted(count, "row")] if count else []) + groups)

    def _figures(self, shown: Sequence[str]) -> list[str]:
        """Return the figures of the chart, that of the headline first."""
        every = dict.fromkeys(
            re.sub("_(new|bounds)$", "", name)
            for one in self.subjects
            for name, row in one.found.items()
            if (re.sub("_(new|bounds)$", "", name.partition("[")[0]) in shown or self.each == "score") and known(row)
        )
        if not shown:
            return [name for name in every if name != "ideal"][:PANELS]
        lead, of_class = self.lead["quantity"], self.lead["class"]

        def place(figure: str) -> tuple[bool, bool, int]:
            name, _, ending = figure.partition("[")
            other = of_class is not None and ending not in ("", f"{of_class}]")
            return name != lead or other, other, shown.index(name)

        return sorted(every, key=place)[:PANELS]

    def chart(self) -> list[Record]:
        """Return the blocks that answer the question."""
        if drawn := lines.chart(self.record, self.lead):
            return drawn
        marks = dict(zip(self.about, MARKS, strict=False))
        if self.each == "variant":  # one method in several comparisons is one
            names = {self.subjects[at].name: mark for at, mark in marks.items()}
            marks = {at: names[one.name] for at, one in enumerate(self.subjects) if one.name in names}
        drawn = [chart(self.subjects, self.figures, self.record, marks, self.each)] if self.figures else []
        return [*drawn, *lines.curves(self.record, self.column)]

    def sure(self) -> list[Record]:
        """Return three questions with their answers: chance, what could be missed, and what it does not say."""
        own = self.record.get("sure") or {}
        answers = (
            ("Could it be chance?", own.get("chance") or self._chance()),
            ("What could be missed?", own.get("missed") or self._missed()),
            ("What it does not say", own.get("caution") or CAUTION),
        )
        return [{"question": question, "answer": answer} for question, answer in answers]

    def _chance(self) -> str:
        lead, apart, decided = (self.figures or [""])[0], self.lead["difference"], self.lead["decided"]
        own = {row.figure: row.found for row in self.rows if row.column == self.column and row.group is None}
        span, chance = own.get(f"{lead}_range"), own.get(f"{lead}_range_by_chance")
        if span and chance and len(self.about) == len(MARKS) and (span.value > chance.high) == decided:
            return (
                f"With no true difference, the largest gap of {self.columns[self.column]} groups would exceed "
                f"{number(100 * chance.high)} points in 1 audit of 20. Here it is {number(100 * span.value)}."
            )
        if self.of_model:
            start, how = ("The", "leaves out") if decided else ("It could: the", "holds")
            return f"{start} interval of the balanced accuracy {how} that of guesses."
        if apart["value"] is None:
            if apart["low"] is not None:
                return "These are bounds under the assumption, not an estimate: any gap between them fits these rows."
            return "This finding is no comparison of two groups. The intervals say how sure each figure is."
        if decided:
            return f"The {self.level} interval excludes “no difference”, so chance alone is an unlikely cause."
        return "It could: these rows also fit “no difference”. Inconclusive does not mean equal."

    def _missed(self) -> str:
        gaps = [row.found for row in self.rows if row.figure.endswith("_detectable") and row.column == self.column]
        ends = sorted({number(100 * one.value) for one in gaps if one.defined}, key=float)
        if not ends and "lies between" in self.sentences[0]:
            return "Any gap within the bounds: only recorded groups, or a stronger assumption, can narrow them."
        if not ends:
            return "Gaps smaller than half the width of an interval may exist without being found."
        size = ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
        return f"With these rows, an audit finds a gap of {size} points in 80 of 100 cases. Smaller gaps may exist."

    def brief(self) -> Record:
        """Return what fits a screen: sentences, and one table with the groups that they name and the reference.

        Of the table's rows the ``ranked`` ones are shown first, and those that a sentence is about (``named``) where it
        is. ``row`` says what one is of, ``option`` what shows all.
        """
        ratios = [one for one in RATIOS if one not in self.figures and any(one in who.found for who in self.subjects)]
        figures = [*self.figures, *ratios][:ON_SCREEN]
        subjects = self.subjects if figures or not self.pairs else []  # pairs without a figure have nothing to show
        several = len({one.column for one in subjects}) > 1
        references = [at for at, one in enumerate(subjects) if one.name == self._reference(one.column)]
        before = ["Rows"] * (self.each == "group" and not self.pairs)
        base = BASE_RATE + "".join((figures or [""])[0].partition("[")[1:])  # of the class that figures are of
        before += [self.title(base)] * bool(before and any(base in one.found for one in subjects))
        rows = []
        for at, one in enumerate(subjects):
            cells = [blocks.cell(f"{one.rows:,}"), _share(one.found.get(base))][: len(before)]
            for name in figures:
                is_one = at in references and name in RATIOS and name not in one.found
                cells.append(
                    blocks.cell("reference", quiet=True) if is_one else folds.cell(row_of(one, name), brief=True)
                )
            rows.append((f"{short(one.column, 20)}: {one.name}" if several else one.name, cells))
        heads = ["Groups" if self.pairs else self.each.capitalize(), *before]
        table = blocks.table(self._caption(figures), [*heads, *map(self.title, figures)], rows)
        about = [
            self.places(*one) if one and subjects else [] for one in (self.record.get("named") or [[]])[:SENTENCES]
        ]
        about[0] += [at for at in references if subjects[at].column == self.column]
        size = sorted(range(len(rows)), key=lambda at: -subjects[at].rows)
        places = list(dict.fromkeys([*(self.about if subjects else ()), *references, *size]))
        return {
            "lines": [short(one, LONGEST_SENTENCE) for one in self.sentences[1:]],
            "table": table,
            "ranked": places,
            "row": "pair" if self.pairs else self.each,
            "named": about,
            "notes": [short(one, LONGEST_SENTENCE) for one in self.record.get("notes", [])[:1]],
            "option": self.kind.option,
        }

    def _caption(self, figures: Sequence[str]) -> str:
        outcome = self.words.favourable or self.words.positive
        outcome = outcome or self.record.get("favourable")
        about = "" if outcome is None else f": rates of {short(outcome, 40)}"
        about += " with the rule" * bool(about and self.record["kind"] == "rule")
        if self.pairs:
            return f"Differences between groups{about} in points, with {self.level} intervals"
        by = joined([short(name, 30) for name in dict.fromkeys(one.column for one in self.subjects)][:4])
        shares = [row for one in self.subjects for name in figures if (row := row_of(one, name)) and row.fraction]
        unit = "" if not shares else " in percent" if about else ", percent"
        by = f" by {by}" if self.each == "group" and by != self.each else ""  # of a column without a name of its own
        return f"{self.each.capitalize()}s{by}{about}{unit}, with {self.level} intervals"

    def _reference(self, column: str) -> str | None:
        """Return the group that ratios of a column are to: those of the favourable outcome, where one is named."""
        places = [(self.record.get(place) or {}).get(column) or {} for place in ("rates", "by_attribute")]
        favourable = [one["outcome"] for one in places if one.get("outcome")]
        return next((one["reference"] for one in [*favourable, *places] if one.get("reference")), None)

    def folded(self, source: str, more: Sequence[tuple[str, Sequence[Record]]]) -> list[tuple[str, Sequence[Record]]]:
        """Return title and blocks of each fold."""
        gaps = [re.split(r" \(|,", self.title(row.figure))[0] for row in self.rows if row.group is None and known(row)]
        gaps.sort(key=lambda one: not one.endswith("gap"))
        basis = [one for part in (self.record.get("parts") or {}).values() for one in part.get("rests_on", ())]
        also = [*basis, *self.sentences, *told(self.record), *folds.missing(self.rows)]
        pairs = folds.of_pairs(self.rows, self.level, self.title)
        title = "Pairs of groups and further findings" if pairs else "Further findings"
        title = "Assumptions of this answer, and further figures" if basis else title
        about = "" if self.words.positive is None else f"; rates of {short(self.words.positive, 40)}"
        about += f", impact ratios of {short(str(self.words.favourable), 40)}" * self.words.turned
        further = [blocks.bullets(list(dict.fromkeys(also))), *pairs]
        of = [counted(self.columns.total(), self.each)] * bool(self.columns) + list(dict.fromkeys(gaps))[:3]
        tables = [
            *folds.of_groups(self.rows, self.level, self.each, self.title, self.record.get("notes", ()), about),
            *folds.of_columns(self.rows, self.level, self.title),
        ]
        last = folds.method(self.record, self.rows, source)
        return [
            (f"All figures: {', '.join(of)}", tables),
            (title, further),
            *more,
            ("How it was measured, and how to repeat it", last),
        ]


def _share(row: Row | None) -> Record:
    """Return the cell of a share in percent, without its interval."""
    return blocks.cell(number(100 * row.found.value)) if row is not None and row.found.defined else blocks.no_cell()


def _of_favourable(row: Row) -> Row:
    """Return a group's rate of the positive class as that of the favourable outcome, which is the other class."""
    if row.figure not in TURNED or row.group is None or isinstance(row.group, Pair):
        return row
    return row._replace(figure=TURNED[row.figure], found=turned(row.found))
