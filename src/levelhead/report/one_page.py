"""The one page of every result with figures, from its JSON alone.

It has a line on what was measured, the headline, one picture that answers the question, three sentences on its limits,
and at most four folds: all figures, summary gaps, pairs and further findings, and how it was measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from levelhead.report import blocks, lines
from levelhead.report.charts import NEUTRAL_ONE, Subject, chart, in_order, subjects_of
from levelhead.report.definitions import CAUTION, STATISTICS
from levelhead.report.provenance import provenance
from levelhead.report.rows import BY_PERIOD, Row, rows_of, told
from levelhead.report.sentences import Words, named_group, turned
from levelhead.report.text import Record, counted, joined, level_text, number, short
from levelhead.report.titles import definition_of, title_of
from levelhead.report.wide import Pair
from levelhead.types import in_quotes, printable

PANELS, ON_SCREEN, MOST_PAIRS = 3, 4, 20
"""Panels of a chart, figures in a terminal's short table, and pairs in its long one."""
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "audit": ("Audit", ("true_positive_rate", "false_positive_rate", "selection_rate", "accuracy")),
    "decisions": ("Audit of decisions", ("selection_rate", "selection_rate_difference", "selection_ratio")),
    "ranking": ("Audit of a ranking", ("share_of_top", "representation", "exposure")),
    "regression audit": ("Audit of predicted numbers", ("mean_error", "mean_absolute_error", "mean_prediction")),
    "indirect audit": (
        "Audit without recorded groups",
        ("demographic_parity", "equal_opportunity", "false_positive_rate"),
    ),
    "explanation": ("Sources of a gap", ("measured", "implied", "rest")),
    "rule": ("Rule", ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")),
    "evaluation": ("Evaluation", ("recall", "precision", "calibration")),
}
"""By the kind of a result, its name and the figures of its chart, the first of which comes first."""
INTERVALS = {
    "weights": "They are Wilson’s and Newcombe’s at the effective sample size: the smaller of Kish’s number and that "
    "of the linearised variance. Gaps use simultaneous intervals of all pairs (Bonferroni).",
    "clusters": "They are Wilson’s and Newcombe’s at the effective sample size that a cluster-robust variance gives, "
    "with Student’s t. Gaps use simultaneous intervals of all pairs (Bonferroni). A rate with fewer than 8 clusters is "
    "not compared.",
    "replicates": "For gaps they come from {replicates} bootstrap replicates and invert tests of signed differences; "
    "for single rates they are Wilson’s.",
}
"""By a key of a result's JSON, how its intervals were made."""
RATIOS = ("selection_ratio", "ratio_of_rates")
_ENDS = re.compile(r": | \((?=interval|\d+(?:\.\d+)?% interval)|, (?=interval )|; |,? by (?=[+−][\d.]+ points)")
"""Where the headline of a finding ends, and its size and uncertainty begin."""


def one_page(record: Record, *, source: str = "") -> Record:
    """Return the page of any result with figures.

    Args:
        record: what ``to_dict`` of the result returns, or the JSON that it was written to.
        source: what was measured, in a word, for example the file's name.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    found = _Found(record)
    about = record.get("about") or {}
    kind, _ = KINDS[record["kind"]]
    line = [*map(short, about.values()), source, f"{found.rows_in_all:,} rows" if found.rows_in_all else ""]
    line += [f"{short(name, 40)}, {counted(count, 'group')}" for name, count in found.columns.items()][:4]
    finding, *others = found.sentences
    return blocks.page(
        kind,
        finding,
        [blocks.part(sections, title=title) for title, sections in found.folds(source) if sections],
        title=about.get("title") or f"{kind}: {source or 'predictions'}",
        about=" · ".join(one for one in line if one),
        lines=others,
        cautions=record.get("warnings", []),
        brief=found.brief(),
        headline=found.headline,
        deck=" ".join([found.deck, *found.denominators()]),
        chart=found.chart(),
        sure=found.sure(),
    )


class _Found:
    """A result's JSON, and what its page is about: the headline, the figure it is about, and the groups it names."""

    def __init__(self, record: Record) -> None:
        self.record, self.rows, self.words = record, rows_of(record), Words(record)
        self.sentences: list[str] = list(record.get("sentences") or told(record)) or ["Nothing was compared."]
        self.level = level_text(record.get("level") or 0.95)
        shown = KINDS[record["kind"]][1]
        drawn = list(map(self._favourable, self.rows)) if self.words.turned else self.rows
        groups, pairs = (subjects_of(drawn, pairs=pairs) for pairs in (False, True))
        is_pair = any(one in pair.found for pair in pairs for one in shown)
        self.subjects = pairs if is_pair and record["kind"] in ("indirect audit", "explanation") else groups
        self.columns: dict[str, int] = {}
        for one in groups:
            self.columns[one.column] = self.columns.get(one.column, 0) + 1
        self.head, self.deck = self._parted()
        self.named = self._named(self.sentences[0])
        self.figures = self._figures(shown)
        self._column = self.subjects[self.named[0]].column if self.named else next(iter(self.columns), "")
        named = [self.subjects[at] for at in self.named[:2]]
        if self.figures:
            self.subjects = in_order(self.subjects, self.figures[0], self._column)
        self.named = [next(at for at, other in enumerate(self.subjects) if other is one) for one in named]

    @property
    def rows_in_all(self) -> int:
        """The rows of the table, as far as the JSON says."""
        if isinstance(self.record.get("rows"), int):
            return int(self.record["rows"])
        first = next(iter(self.columns), None)
        return sum(one.rows for one in self.subjects if one.column == first)

    def _favourable(self, row: Row) -> Row:
        """Return a rate of the positive class as that of the favourable outcome, where this is the other class."""
        other = {
            "selection_rate": "selection_rate",
            "true_positive_rate": "false_positive_rate",
            "false_positive_rate": "true_positive_rate",
        }
        if row.figure not in other or row.group is None or isinstance(row.group, Pair):
            return row
        return row._replace(figure=other[row.figure], found=turned(row.found))

    # ------------------------------------------------------------------------------------------- the headline

    def _parted(self) -> tuple[str, str]:
        """Divide the finding into the headline, and its size and uncertainty."""
        finding = self.sentences[0]
        ends = next((one for one in _ENDS.finditer(finding)), None)
        head, rest = (finding[: ends.start()], finding[ends.end() :]) if ends else (finding.rstrip("."), "")
        rest = re.sub(r"\)(?=[;.,])|\)$", "", rest, count=1) if "(" not in rest.partition(")")[0] else rest
        comparisons = (self.record.get("finding") or self.record).get("comparisons") or 1
        rest = re.sub(r"(?<!% )interval (?=[\[+−\d])", f"{self.level} interval ", rest, count=1)
        adjusted = comparisons > 1 and "interval" in rest and "adjusted" not in rest
        told = [rest[:1].upper() + rest[1:]] if rest else []
        told += [f"Adjusted for {comparisons:,} comparisons."] if adjusted else []
        return head, " ".join(told)

    def denominators(self) -> list[str]:
        """Say how many rows the rates of the headline's two groups are of; nothing of other findings."""
        named = [self.subjects[at] for at in self.named]
        if not self.figures or not all(_value(one, self.figures[0]) in self.head for one in named):
            return []
        rates = [row.found.n for one in named if (row := _row(one, self.figures[0])) and row.fraction]
        return [f"The rates are of {rates[0]:,} and {rates[1]:,} rows."] if len(rates) == 2 else []

    @property
    def headline(self) -> list[Record]:
        """The headline in pieces; those that name one of its two groups have its class in the chart."""
        names = {self._names(self.subjects[at])[0]: mark for at, mark in zip(self.named, ("on2", "on"), strict=False)}
        names |= {
            other: mark
            for at, mark in zip(self.named, ("on2", "on"), strict=False)
            for other in self._names(self.subjects[at])
        }
        if not names:
            return [{"text": self.head, "mark": ""}]
        longest = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        pieces, end = [], 0
        for piece in re.finditer(rf"(?:[\d.]+% of )?(?<!\w)({longest})(?!\w)", self.head):
            pieces += [{"text": self.head[end : piece.start()], "mark": ""}]
            pieces += [{"text": piece[0], "mark": names[piece[1]]}]
            end = piece.end()
        return [*pieces, {"text": self.head[end:], "mark": ""}]

    def _names(self, one: Subject) -> list[str]:
        """Return what sentences call a group."""
        return [named_group(one.column, one.name), in_quotes(one.name)]

    def _named(self, sentence: str) -> list[int]:
        """Return the places of the groups that a sentence names, in its order; of namesakes, the larger one."""
        places: dict[str, int] = {}
        only = [one.column for one in self.subjects if sentence.startswith(f"By {printable(one.column)}, ")]
        for at in sorted(range(len(self.subjects)), key=lambda at: -self.subjects[at].rows):
            one = self.subjects[at]
            if only and one.column not in only:
                continue
            sides = [one.name.first, one.name.second] if isinstance(one.name, Pair) else []
            if sides and all(side in sentence for side in sides):
                places.setdefault(sides[0], at)
            for name in self._names(one):
                places.setdefault(name, at)
        if not places:
            return []
        longest = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
        return list(dict.fromkeys(places[name] for name in re.findall(rf"(?<!\w)(?:{longest})(?!\w)", sentence)))

    def _figures(self, shown: Sequence[str]) -> list[str]:
        """Return the figures of the chart: first that whose values the headline says, of its groups."""
        known = [
            re.sub("_(new|bounds)$", "", name)
            for one in self.subjects
            for name, row in one.found.items()
            if _base(name) in shown and _known(row)
        ]
        about = [self.subjects[at] for at in self.named[:2]]

        def said(figure: str) -> bool:
            texts = [_value(one, figure) for one in about]
            return bool(texts) and all(text and text in self.sentences[0] for text in texts)

        every = list(dict.fromkeys(known))
        lead = next((one for one in every if said(one)), "")
        lead = lead or next((one for one in every if title_of(one).lower() in self.head.lower()), "")
        ratios = [_value(one, ratio, 1) for one in about for ratio in RATIOS]
        if not lead and any(ratio and ratio in self.head for ratio in ratios):
            lead = "selection_rate"
        ending = lead.partition("[")[2]

        def place(figure: str) -> tuple[bool, bool, int]:
            name, _, of_class = figure.partition("[")
            return figure != lead, bool(of_class) and of_class != ending, shown.index(name)

        return sorted(every, key=place)[:PANELS]

    # -------------------------------------------------------------------------------------- picture and limits

    def chart(self) -> list[Record]:
        """Return the blocks that answer the question."""
        if drawn := lines.chart(self.record, self.head + self.deck):
            return drawn
        marks = dict(zip(self.named, ("on2", "on"), strict=False))
        drawn = [chart(self.subjects, self.figures, self.record, marks)] if self.figures else []
        return [*drawn, *lines.curves(self.record, self._column)]

    def sure(self) -> list[tuple[str, str]]:
        """Return three questions with their answers: chance, what could be missed, and what it does not say."""
        lead = (self.figures or [""])[0]
        of_rate = {row.figure: row for row in self.rows if row.column == self._column and row.figure.startswith(lead)}
        span, chance = of_rate.get(f"{lead}_range"), of_rate.get(f"{lead}_range_by_chance")
        finding = self.sentences[0]
        if span and chance:
            high, here = (number(100 * one) for one in (chance.found.high, span.found.value))
            first = f"With no true difference, the largest gap of {self.columns[self._column]} groups would exceed "
            first += f"{high} points in 1 audit of 20. Here it is {here}."
        elif re.search("inconclusive|measurabl", finding):
            first = "It could: no difference fits these rows, too. Inconclusive does not mean equal."
        elif "interval" in finding:
            first = f"The {self.level} interval leaves out no difference, so chance alone is an unlikely cause."
        else:
            first = "This finding is no comparison of two groups. The intervals say how sure each figure is."
        least = [
            row.found.value for row in self.rows if row.figure.endswith("_detectable") and row.column == self._column
        ]
        ends = sorted({number(100 * one) for one in least if not math.isnan(one)}, key=float)
        second = "Gaps smaller than half the width of an interval may exist without being found."
        if ends:
            size = ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
            second = (
                f"With these rows, an audit finds a gap of {size} points in 80 of 100 cases. Smaller gaps may exist."
            )
        return [("Could it be chance?", first), ("What could be missed?", second), ("What it does not say", CAUTION)]

    # ------------------------------------------------------------------------------------------------ the rest

    def brief(self) -> Record:
        """Return what fits a screen: sentences, and one table with the groups that they name and the reference."""
        figures = [*self.figures]
        more = [one for one in RATIOS if any(one in subject.found for subject in self.subjects)]
        figures += [one for one in more if one not in figures][: ON_SCREEN - len(figures)]
        several, pairs = len(self.columns) > 1, any(isinstance(one.name, Pair) for one in self.subjects)
        references = {at for at, one in enumerate(self.subjects) if one.name == self._reference(one.column)}
        rows = []
        for at, one in enumerate(self.subjects):
            cells = [] if pairs else [blocks.cell(f"{one.rows:,}")]
            cells += [
                blocks.cell("reference", quiet=True) if at in references and name in RATIOS and name not in one.found
                else _cell(_row(one, name)) for name in figures
            ]  # fmt: skip
            rows.append((f"{short(one.column, 20)}: {one.name}" if several else one.name, cells))
        heads = ["Groups" if pairs else "Group", *([] if pairs else ["Rows"]), *map(title_of, figures)]
        shares = [row for one in self.subjects for name in figures if (row := _row(one, name)) and row.fraction]
        by = joined([short(name, 30) for name in dict.fromkeys(one.column for one in self.subjects)][:4])
        of_class = self.words.favourable or self.words.positive
        outcome = short(self.words.decision or of_class, 40)
        about = f": rates of {outcome}" if of_class and not pairs else ""
        about += " in percent" if about else ", percent" if shares else ""
        table = blocks.table(f"Groups by {by}{about}, with {self.level} intervals", heads, rows)
        named = [self._named(sentence) for sentence in self.sentences[:6]]
        named[0] += [at for at in references if self.subjects[at].column == self._column]
        size = sorted(range(len(rows)), key=lambda at: -self.subjects[at].rows)
        places = list(dict.fromkeys([*self.named, *references, *size]))
        return blocks.brief(self.sentences[1:], table, places, row="pair" if pairs else "group", named=named)

    def _reference(self, column: str) -> str | None:
        """Return the group that ratios of a column are to."""
        places = (self.record.get("rates"), self.record.get("by_attribute"))
        return next((one[column]["reference"] for one in places if one and one.get(column, {}).get("reference")), None)

    def folds(self, source: str) -> list[tuple[str, list[Record]]]:
        """Return title and sections of each fold."""
        groups, pairs = ([row for row in self.rows if isinstance(row.group, kind)] for kind in (str, Pair))
        groups = [row for row in groups if not isinstance(row.group, Pair)]
        plain = [row for row in groups if not BY_PERIOD.search(row.figure)]
        names = list(dict.fromkeys(row.figure for row in plain))
        tables = [one for column in self.columns for one in self._of_groups(column, plain, names)]
        whole = [row for row in self.rows if row.group is None]
        more = [row for row in pairs if _known(row)] + [row for row in groups if BY_PERIOD.search(row.figure)]
        gaps = [title_of(row.figure).split(" (")[0] for row in whole if _known(row)]
        gaps = list(dict.fromkeys(sorted(gaps, key=lambda one: not one.endswith("gap"))))[:3]
        also = list(dict.fromkeys([*self.sentences, *told(self.record)]))
        for row in (row for row in self.rows if not _known(row) and isinstance(row.group, Pair)):
            also.append(f"{title_of(row.figure)}, {row.group}: undefined, {row.found.reason}.")
        count = counted(sum(self.columns.values()), "group")
        basis = [one for part in (self.record.get("parts") or {}).values() for one in part.get("rests_on", ())]
        further = [blocks.bullets(also, where=blocks.BOTH)] if also else []
        further += self._pairs(more)
        if basis:
            further = [blocks.bullets(basis, where=blocks.BOTH), *further]
        title = "Assumptions of this answer, and further figures" if basis else "Pairs of groups and further findings"
        return [
            (f"All figures: {count}", [blocks.section("", tables)] if tables else []),
            (f"Summary: {', '.join(gaps)}", self._wholes(whole)),
            (title, [blocks.section("", further, rank=1)] if further else []),
            ("How it was measured, and how to repeat it", self._method(source)),
        ]

    def _of_groups(self, column: str, rows: Sequence[Row], names: Sequence[str]) -> list[Record]:
        own = [one for one in subjects_of(rows, pairs=False) if one.column == column]
        shown = [name for name in names if any(name in one.found and _known(one.found[name]) for one in own)]
        table = [
            (one.name, [blocks.cell(f"{one.rows:,}"), *(_cell(one.found.get(name)) for name in shown)]) for one in own
        ]
        caption = f"Groups of {short(column)}, as annotated; percent where figures are shares; {self.level} intervals"
        heads = ["Group", "Rows", *map(title_of, shown)]
        return [blocks.table(caption, heads, table, where=blocks.BOTH)] if shown else []

    def _wholes(self, rows: Sequence[Row]) -> list[Record]:
        found = []
        for column in dict.fromkeys(row.column for row in rows):
            own = [row for row in rows if row.column == column]
            if any(map(_known, own)):
                told = [(title_of(row.figure), [_cell(self._of_pair(row)), _count(row)]) for row in own]
                caption = f"Summary figures by {short(column)}: percent and points, {self.level} intervals"
                found.append(blocks.table(caption, ["Figure", "Value", "Rows"], told, where=blocks.BOTH))
        return [blocks.section("", found)] if found else []

    def _of_pair(self, whole: Row) -> Row:
        """Return a gap with the interval of the two groups that it is between, as all sentences have it."""
        for row in self.rows:
            apart = row.found.size
            same = row.column == whole.column and isinstance(row.group, Pair) and row.figure.endswith("_difference")
            if same and row.fraction and math.isclose(apart.value, whole.found.value):
                return whole._replace(found=replace(whole.found, low=apart.low, high=apart.high))
        return whole

    def _pairs(self, rows: Sequence[Row]) -> list[Record]:
        several = len(self.columns) > 1
        found = []
        for row in rows:
            start = f"{short(row.column, 20)}: " if several else ""
            found.append((f"{start}{row.group}", [blocks.cell(title_of(row.figure)), _cell(row, signed=True)]))
        caption = f"Differences and further figures of groups, points where figures are shares; {self.level} intervals"
        heads = ["Groups", "Figure", "Value"]
        table = blocks.table(caption, heads, found, text_columns=[1], most=MOST_PAIRS, where=blocks.BOTH)
        return [table] if found else []

    def _method(self, source: str) -> list[Record]:
        record, known = self.record, list(dict.fromkeys(row.figure for row in self.rows if _known(row)))
        names = dict.fromkeys(re.split(r"_difference|_change|_within|_by_|_bounds|\[|@", name)[0] for name in known)
        terms = [("Predictions", source)] if source else []
        if (positive := record.get("positive")) is not None:
            terms.append(("Positive class", short(positive, 40)))
        elif record["kind"] == "audit":
            terms.append(("Positive class", "each class against the rest"))
        if self.words.favourable is not None:
            terms.append(("Favourable outcome", self.words.outcome))
        terms.append(("Intervals", f"{self.level} of such intervals hold the true value. {_intervals(self.record)}"))
        definitions = [(title_of(name), definition_of(name)) for name in names if definition_of(name)]
        terms += [(name, text) for name, text in record.get("facts") or ()]
        words = [blocks.terms(terms), blocks.terms(definitions), blocks.paragraph(STATISTICS["undefined"][1])]
        reading = blocks.section(
            "How the file was read",
            [blocks.bullets(record["reading"], where=blocks.BOTH)] if record.get("reading") else [],
            rank=-1,
        )
        return [*([reading] if reading["blocks"] else []), blocks.section("", words), provenance(record)]


def _intervals(record: Record) -> str:
    """Say how the intervals of a result were made."""
    how = next((text for name, text in INTERVALS.items() if record.get(name)), STATISTICS["interval"][1])
    return how.format(replicates=f"{record.get('replicates') or 0:,}")


def _base(figure: str) -> str:
    """Return the name of a figure without its class, and without a word on which model or which bounds it is of."""
    return re.sub("_(new|bounds)$", "", figure.partition("[")[0])


def _known(row: Row) -> bool:
    """Whether a row has a value, or bounds."""
    return row.found.defined or not math.isnan(row.found.low)


def _count(row: Row) -> Record:
    return blocks.cell(f"{row.found.n:,}") if row.found.n else blocks.no_cell()


def _row(one: Subject, figure: str) -> Row | None:
    return one.found.get(figure) or one.found.get(f"{figure}_new")


def _value(one: Subject, figure: str, scale: int = 100) -> str:
    """Return a figure as sentences say it."""
    row = _row(one, figure)
    if row is None or not row.found.defined:
        return ""
    return f"{number(100 * row.found.value)}%" if scale > 1 else number(row.found.value, 2)


def _cell(row: Row | None, *, signed: bool = False) -> Record:
    """Return a figure with its interval below, in percent if it is a fraction."""
    if row is None:
        return blocks.no_cell()
    ratio = not row.fraction and row.figure.endswith(NEUTRAL_ONE)
    signed = signed and not row.figure.endswith("_detectable")
    return blocks.range_cell(row.found, fraction=row.fraction, ratio=ratio, signed=signed)
