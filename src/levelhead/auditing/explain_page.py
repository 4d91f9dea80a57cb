"""The page of an explanation: what a measured gap is made of, for every sensitive column."""

from __future__ import annotations

from levelhead.metrics.between import clearest
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, estimate_from_dict, joined, level_text, number, short
from levelhead.types import Estimate

FIGURES = ("measured", "implied", "rho", "predicted", "rest")
NOTE = (
    "Gaps are in equalized odds, (|dTPR| + |dFPR|) / 2, in percentage points, with confidence intervals over rows, "
    "adjusted for all pairs of groups of a column (Bonferroni). The implied gap is what base rates imply for a score "
    "that is calibrated inside every group and ranks as well as this one. It is neither a lower bound nor an excuse: "
    "the labels behind the base rates can be unjust."
)
TITLES = {
    "measured": "Measured gap",
    "implied": "Implied by base rates",
    "predicted": "Predicted from the share used",
    "rest": "Rest: measured minus predicted",
}
MOST_FORESTS = 3


def explain_page(result: Record, *, source: str = "") -> Record:
    """Return the page of an explanation, from its JSON; arguments are those of :attr:`Report.make_page`."""
    by_attribute = result["by_attribute"]
    sentences = result["sentences"] or ["No two groups have enough rows to be compared."]
    level = level_text(result["level"])
    parts = blocks.by_column({name: _sections(name, part, level) for name, part in by_attribute.items()})
    how = [
        blocks.paragraph(NOTE, where=blocks.BOTH),
        blocks.paragraph(
            f"Positive: {short(result['positive'])} where the score is at least {result['threshold']:g} "
            f"({result['scale']}). {level} intervals from "
            f"{result.get('replicates', 1000):,} bootstrap replicates of the rows.",
            where=blocks.BOTH,
        ),
        blocks.paragraph(CAUTION),
    ]
    parts.append(blocks.part([*blocks.of_terminal(result, ""), blocks.section("How to read this", how, rank=10)]))
    return blocks.page(
        "Explanation of a gap",
        sentences[0],
        parts,
        title=f"Sources of the gap in {source or 'predictions'}",
        about=f"{source or 'predictions'}: groups by {', '.join(map(short, by_attribute))}",
        lines=sentences[1:],
        cautions=result["warnings"],
        brief=_brief(by_attribute, sentences, level),
    )


def _brief(by_attribute: Record, sentences: list[str], level: str) -> Record:
    """Return what fits a screen: the clearest gap in words, and the sources of all, the clearest first."""
    titles = {"measured": "Measured gap", "implied": "From base rates", "rho": "Share used, %", "rest": "Rest"}
    rows, sizes = [], []
    for name, part in by_attribute.items():
        start = f"{short(name, 20)}: " if len(by_attribute) > 1 else ""
        for pair in part["pairs"]:
            cells = [_cell(pair, key) for key in titles]
            rows.append((start + " and ".join(short(group, 30) for group in pair["groups"]), cells))
            found = estimate_from_dict(pair["measured"])
            sizes.append((not found.defined, *clearest(found)))
    by = joined([short(name, 30) for name in list(by_attribute)[:4]])
    caption = f"Sources of the gaps in equalized odds by {by}: points, with {level} intervals"
    table = blocks.table(caption, ["Groups", *titles.values()], rows)
    return blocks.brief(sentences[1:], table, sorted(range(len(rows)), key=lambda at: sizes[at]), row="pair")


def _sections(name: str, part: Record, level: str) -> list[Record]:
    defined = [pair for pair in part["pairs"] if pair["measured"]["value"] is not None]
    largest = sorted(defined, key=lambda pair: -pair["measured"]["value"])[:MOST_FORESTS]
    forests = [
        blocks.forest(
            f"{' and '.join(map(short, pair['groups']))}: percentage points with {level} intervals",
            [_forest_row(title, estimate_from_dict(pair[key])) for key, title in TITLES.items()],
            heads=("Gap in equalized odds", "Points"),
        )
        for pair in largest
    ]
    every = blocks.table(
        f"Sources of the gap by {short(name)}: every pair of groups, percent with {level} intervals",
        ["Groups", *(TITLES.get(key, "Share used (rho)") for key in FIGURES)],
        [
            (
                " and ".join(map(short, pair["groups"])),
                [_cell(pair, key) for key in FIGURES],
            )
            for pair in part["pairs"]
        ],
        where=blocks.BOTH,
    )
    trade_off = [_trade_off(pair) for pair in largest[:1] if pair.get("trade_off") and _fits(pair)]
    rates = [
        (f"{which} positive rate", f"{which[0]}PR predicted", f"{which[0]}PR implied") for which in ("True", "False")
    ]
    groups = blocks.table(
        f"Groups of {short(name)}, as annotated: measured and predicted rates, percent",
        ["Group", "Rows", "Base rate", "Area under ROC", *(column for rate in rates for column in rate)],
        [
            (group, _group_cells(figures), "" if figures["included"] else "left out")
            for group, figures in part["groups"].items()
        ],
        where=blocks.BOTH,
    )
    calibration = blocks.table(
        "Calibration by group: fifths of each group, ordered by score",
        ["Group", "Rows", "Mean probability, percent", "Share of positives, percent"],
        [
            (group, [blocks.cell(f"{one['n']:,}"), _share(one["probability"]), _share(one["observed"])])
            for group, figures in part["groups"].items()
            for one in figures["calibration"]
        ],
    )
    return [
        blocks.section("Sources of the gap", [*forests, every, *trade_off]),
        blocks.section("The groups", [groups], rank=1),
        blocks.section(
            "Limits of the formula", [calibration],
            "The formula assumes a normal score with one variance in each group and class. Where measured and "
            "predicted rates differ, trust the measured ones.",
        ),
    ]  # fmt: skip


def _fits(pair: Record) -> bool:
    """Whether the formula predicts the measured gap, as far as these rows tell."""
    return not estimate_from_dict(pair["rest"]).excludes_zero


def _cell(pair: Record, key: str) -> Record:
    if key == "rho" and not _fits(pair):
        return blocks.undefined_cell("the formula does not predict the measured gap")
    return blocks.figure_cell(pair[key], 0 if key == "rho" else 1)


def _trade_off(pair: Record) -> Record:
    names = " and ".join(map(short, pair["groups"]))
    return blocks.table(
        f"Predicted gap if the score used another share of the base rates: {names}",
        ["Share used, percent", "Gap, points", "Change of accuracy, points"],
        [
            (
                f"{100 * one['rho']:.0f}",
                [
                    blocks.cell(number(100 * one["equalized_odds"])),
                    blocks.cell(number(100 * one["accuracy_change"], signed=True)),
                ],
            )
            for one in pair["trade_off"]
        ],
        where=blocks.BOTH,
    )


def _share(value: float | None) -> Record:
    return blocks.no_cell() if value is None else blocks.cell(number(100 * value))


def _group_cells(figures: Record) -> list[Record]:
    cells = [blocks.cell(f"{figures['n']:,}")]
    cells += [blocks.figure_cell(figures[key]) for key in ("base_rate", "area")]
    for rate in ("true_positive_rate", "false_positive_rate"):
        cells.append(blocks.figure_cell(figures[rate]))
        cells += [_share(figures[kind][rate]) for kind in ("predicted", "implied")]
    return cells


def _forest_row(title: str, figure: Estimate) -> Record:
    return blocks.forest_row(title, figure, decided=figure.excludes_zero, signed=False)
