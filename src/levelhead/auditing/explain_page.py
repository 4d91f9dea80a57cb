"""The page of an explanation: what a measured gap is made of, for every sensitive column."""

from __future__ import annotations

from levelhead.auditing.explanation import FIGURES, NOTE
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, estimate_from_dict, level_text, number, percent, percent_interval, short
from levelhead.types import Estimate

TITLES = {
    "measured": "Measured gap",
    "implied": "Implied by base rates",
    "predicted": "Predicted with the share used",
    "rest": "Rest: measured less predicted",
}
MOST_FORESTS = 3


def explain_page(result: Record, *, source: str = "", command: str = "") -> Record:
    """Summarise an explanation.

    Args:
        result: what :meth:`levelhead.auditing.explanation.Explanation.to_dict` returns, or the JSON written of it.
        source: what was explained, in a word, for example the file's name.
        command: the command that made the page.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    by_attribute = result["by_attribute"]
    sentences = result["sentences"] or ["No two groups have rows enough to be compared."]
    level = level_text(result["level"])
    parts = [
        blocks.part(_sections(name, part, level), title=name if len(by_attribute) > 1 else "")
        for name, part in by_attribute.items()
    ]
    how = [
        blocks.paragraph(NOTE),
        blocks.paragraph(
            f"Positive: {short(result['positive'])} where the score is at least {result['threshold']:g} "
            f"({result['scale']}). Intervals are of {level}, from "
            f"{result.get('replicates', 1000):,} bootstrap replicates of the rows."
        ),
        blocks.paragraph(CAUTION),
    ]
    parts.append(blocks.part([blocks.section("How to read this", how)]))
    return blocks.page(
        "Explanation of a gap",
        sentences[0],
        parts,
        title=f"What the gap in {source or 'predictions'} is made of",
        about=f"{source or 'predictions'}: groups by {', '.join(map(short, by_attribute))}",
        lines=sentences[1:],
        cautions=result["warnings"],
        command=command,
    )


def _sections(name: str, part: Record, level: str) -> list[Record]:
    defined = [pair for pair in part["pairs"] if pair["measured"]["value"] is not None]
    largest = sorted(defined, key=lambda pair: -pair["measured"]["value"])[:MOST_FORESTS]
    forests = [
        blocks.forest(
            f"{' and '.join(map(short, pair['groups']))}: percentage points with {level} intervals",
            [blocks.forest_row(title, estimate_from_dict(pair[key]), signed=False) for key, title in TITLES.items()],
            heads=("Gap in equalized odds", "Points"),
        )
        for pair in largest
    ]
    every = blocks.table(
        "Every pair of groups, percent with intervals",
        ["Groups", *(TITLES.get(key, "Share used (rho)") for key in FIGURES)],
        [
            (" and ".join(map(short, pair["groups"])), [_cell(estimate_from_dict(pair[key])) for key in FIGURES])
            for pair in part["pairs"]
        ],
    )
    rates = [(f"{which} positive rate", "predicted", "implied") for which in ("True", "False")]
    groups = blocks.table(
        f"Groups of {short(name)}, as annotated: measured rates in percent, and those of the formula",
        ["Group", "Rows", "Base rate", "Area under ROC", *(column for rate in rates for column in rate)],
        [(group, _group_cells(figures)) for group, figures in part["groups"].items()],
    )
    calibration = blocks.table(
        "Calibration by group: fifths of each group in the order of the score",
        ["Group", "Rows", "Mean probability, percent", "Share of positives, percent"],
        [
            (group, [blocks.cell(f"{one['n']:,}"), _share(one["probability"]), _share(one["observed"])])
            for group, figures in part["groups"].items()
            for one in figures["calibration"]
        ],
    )
    return [
        blocks.section("What the gap is made of", [*forests, every]),
        blocks.section("The groups", [groups]),
        blocks.section(
            "Where the formula may be off", [calibration],
            "The formula takes the score for normal in each group and class, with one spread. Where a group’s measured "
            "rates differ from the predicted ones, believe the measured ones.",
        ),
    ]  # fmt: skip


def _cell(figure: Estimate) -> Record:
    if not figure.defined:
        return blocks.undefined_cell(figure.reason)
    return blocks.cell(percent(figure), percent_interval(figure))


def _share(value: float | None) -> Record:
    return blocks.cell("–", quiet=True) if value is None else blocks.cell(number(100 * value))


def _group_cells(figures: Record) -> list[Record]:
    cells = [blocks.cell(f"{figures['n']:,}", "" if figures["included"] else "left out")]
    cells += [_cell(estimate_from_dict(figures[key])) for key in ("base_rate", "area")]
    for rate in ("true_positive_rate", "false_positive_rate"):
        cells.append(_cell(estimate_from_dict(figures[rate])))
        cells += [_share(figures[kind][rate]) for kind in ("predicted", "implied")]
    return cells
