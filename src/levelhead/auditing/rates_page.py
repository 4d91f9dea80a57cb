"""What an audit's page says of ratios, precision and balanced error, of amplification, numbers, and own metrics."""

from __future__ import annotations

import math

from levelhead.auditing.rates import FOUR_FIFTHS
from levelhead.report import blocks
from levelhead.report.text import (
    Record,
    estimate_from_dict,
    level_text,
    number,
    percent,
    percent_interval,
    short,
)

RATIOS_PRINTED = 10
"""Sentences on ratios that a terminal shows."""


def rate_sections(name: str, part: Record, result: Record) -> list[Record]:
    """Return the section on one sensitive column; none where several classes are set against the rest."""
    rates = result.get("rates", {}).get(name)
    amplified = result.get("amplification", {}).get(name)
    level = level_text(result.get("level", 0.95))
    shown = [] if rates is None else _rates(name, rates, level)
    if amplified is not None and amplified["pairs"]:
        shown += _amplified(name, amplified, level)
    return [blocks.section("More figures of the field", shown, rank=4)]


def own_sections(name: str, part: Record, result: Record) -> list[Record]:
    """Return the section on the user's own metrics; none where none was passed."""
    own = result.get("own_metrics", {}).get(name, {})
    level = level_text(result.get("level", 0.95))
    shown = [
        block
        for metric, found in own.items()
        for block in (
            *blocks.said(found["sentences"]),
            blocks.table(
                f"{short(metric)} by group of {short(name)}, with {level} intervals from resampled rows",
                ["Group", "Value", "Rows"],
                [
                    (group, [blocks.figure_cell(one, None), blocks.cell(f"{one['n']:,}")])
                    for group, one in found["groups"].items()
                ],
                where=blocks.BOTH,
            ),
        )
    ]
    return [blocks.section("Metrics of your own", shown, rank=6)]


def number_sections(result: Record) -> list[Record]:
    """Return the section on gaps along numbers; none where the audit has none."""
    shown: list[Record] = []
    for name, found in result.get("continuous", {}).items():
        shown += blocks.said(found["sentences"])
        if found["curve"]:
            shown.append(
                blocks.curves(
                    f"Positive rate along {short(name)}: a fitted curve of degree 3",
                    [("fitted positive rate", [(at, 100 * value) for at, value in found["curve"]])],
                    titles=(short(name), "Percent"),
                    notes=["Between the 5th and the 95th percentile."],
                )
            )
    return [blocks.section("Along numbers", shown, rank=5)]


def _rates(name: str, rates: Record, level: str) -> list[Record]:
    reference = rates["reference"]
    rows = []
    for group, figures in rates["groups"].items():
        cells = [blocks.figure_cell(figures[key]) for key in ("precision", "false_negative_rate", "balanced_error")]
        cells += [_ratio(figures[key]) for key in ("selection_ratio", "true_positive_ratio")]
        rows.append((group, cells))
    gap = estimate_from_dict(rates["predictive_parity"])
    parity = (
        f"Predictive parity: the precision of two groups differs by at most {percent(gap)} points, interval "
        f"{percent_interval(gap)}."
        if gap.defined
        else f"Predictive parity is undefined: {gap.reason}."
    )
    chosen = "as asked" if rates["reference_is_given"] else "the group with the highest selection rate"
    # Pages of results that were written before the favourable class could be named have no such key.
    about = (
        f"The four-fifths rule asks whether it is below {FOUR_FIFTHS}, where positive is the favourable outcome."
        if rates.get("favourable") is None
        else f"The sentence above says which ratio the four-fifths rule asks about: it is below {FOUR_FIFTHS} or not."
    )
    to = "" if reference is None else f"Ratios are to {short(reference)}, {chosen}; their intervals hold together."
    return [
        *blocks.said(rates["sentences"], most=RATIOS_PRINTED, more="ratios below four fifths"),
        blocks.table(
            f"Precision, errors and ratios by group of {short(name)}, with {level} intervals",
            [
                "Group",
                ("Precision", "Of the rows that are predicted positive, the share that is. Percent."),
                ("False negative rate", "Of the positive rows, the share that is missed. Percent."),
                ("Balanced error", "Mean of false negative and false positive rate. Percent."),
                ("Ratio of selection rates", f"How often predicted positive, beside the reference group. {about}"),
                ("Ratio of true positive rates", "1 is the rate of the reference group."),
            ],
            rows,
            notes=[parity, to],
            page_columns=[2],
            where=blocks.BOTH if rates["reference_is_given"] else blocks.PAGE,
        ),
    ]


def _amplified(name: str, found: Record, level: str) -> list[Record]:
    rows = []
    for pair in found["pairs"]:
        value = pair["value"]
        cell = (
            blocks.cell("no direction", quiet=True) if value is None else blocks.cell(number(100 * value, signed=True))
        )
        rows.append((f"{short(pair['group'], 60)}, {short(pair['class'], 40)}", [cell]))
    return [
        *(blocks.paragraph(sentence) for sentence in found["sentences"]),
        blocks.table(
            f"Bias amplification from group of {short(name)} to class, points",
            [
                "Group and class",
                ("Predicted less labelled", "In the direction that group and class have in the labels."),
            ],
            rows,
            notes=[
                f"The mean over these pairs has a {level} interval in the sentence above. No direction: in the labels, "
                "group and class go together no more than chance would have it."
            ],
            folded="Bias amplification, pair by pair",
        ),
    ]


def _ratio(record: Record | None) -> Record:
    if record is None:
        return blocks.cell("1", "the reference", quiet=True)
    figure = estimate_from_dict(record)
    if not figure.defined:
        return blocks.undefined_cell(figure.reason)
    high = "any size" if math.isnan(figure.high) or math.isinf(figure.high) else number(figure.high, 2)
    return blocks.cell(number(figure.value, 2), f"[{number(figure.low, 2)}, {high}]")
