"""What an audit's page says of scores: areas under ROC curves, calibration, and every gap over the threshold."""

from __future__ import annotations

from levelhead.auditing.separation import separation_sections
from levelhead.metrics.names import METRICS
from levelhead.report import blocks
from levelhead.report.text import (
    Record,
    estimate_from_dict,
    level_text,
    number,
    short,
)

MOST_LINES = 6
MOST_ROWS = 20
NOTE = (
    "AUC is the share of pairs of a positive and a negative in which the positive has the higher score; 50% is chance. "
    "Equal AUCs do not mean equal treatment: compare the positives of each group with the negatives of the other, too."
)


def score_sections(name: str, result: Record) -> list[Record]:
    """Return the sections on the scores by one sensitive column; none where the audit has no scores."""
    scores = result.get("scores")
    if scores is None or name not in scores["by_attribute"]:
        return []
    own, level = scores["by_attribute"][name], level_text(result.get("level", 0.95))
    order = [*blocks.said([scores["read_as"]]), _table(name, own, scores, level), *blocks.said(own["sentences"])]
    order += [_areas(name, own, level), *_pairs(name, own, level), *_roc(name, own), *blocks.said([NOTE])]
    thresholds = [*_thresholds(name, own, level), *_curves(name, own, scores, level)]
    calibration = [_calibration(name, own, level)] if scores["probabilities"] else []
    return [
        blocks.section("The scores: how well they order each group", order, rank=7),
        blocks.section("The scores: every threshold", thresholds, rank=7),
        blocks.section("The scores: are they calibrated in each group?", calibration),
        *separation_sections(name, own, level, scores["thresholds"]),
    ]


def _table(name: str, own: Record, scores: Record, level: str) -> Record:
    """Return what a terminal shows of each group; a page draws it."""
    rows, groups = [], own["groups"].values()
    sloped = scores["probabilities"] and any(one["slope"]["value"] is not None for one in groups)
    for group, figures in own["groups"].items():
        cells = [blocks.cell(f"{figures[key]:,}") for key in ("n", "positives")]
        cells += [blocks.figure_cell(figures["area"])]
        if scores["probabilities"]:
            cells += [blocks.figure_cell(figures["residual"], signed=True)]
        cells += [blocks.figure_cell(figures["slope"], 2, scale=1)] if sloped else []
        rows.append((group, cells, "" if figures.get("included", True) else "left out of the gaps"))
    heads = ["Group", "Rows", "Positive", "AUC", *(["Label minus score"] if scores["probabilities"] else [])]
    heads += ["Slope"] if sloped else []
    caption = f"Scores by {short(name)}, percent with {level} intervals"
    return blocks.table(caption, heads, rows, where=blocks.TERMINAL)


def _areas(name: str, own: Record, level: str) -> Record:
    rows = [
        blocks.forest_row(group, estimate_from_dict(figures["area"]), decided=True, signed=False)
        for group, figures in own["groups"].items()
    ]
    caption = f"AUC by group of {short(name)}, percent with {level} intervals"
    return blocks.forest(
        caption, rows, heads=("Group", "AUC"), zero=False, notes=["50 is chance, 100 a perfect order."]
    )


def _pairs(name: str, own: Record, level: str) -> list[Record]:
    if not own["pairs"]:
        return []
    rows = []
    for pair in own["pairs"][:MOST_ROWS]:
        first, second = map(short, pair["groups"])
        cells = [blocks.figure_cell(pair["area"], signed=True), *map(blocks.figure_cell, pair["crossed"])]
        cells.append(blocks.figure_cell(pair["crossed_difference"], signed=True))
        rows.append((f"{first} minus {second}", cells))
    more = f"The largest {len(rows)} of {own['pairs_in_all']:,} pairs." if own["pairs_in_all"] > len(rows) else ""
    return [
        blocks.table(
            f"Pairs of groups of {short(name)}: AUC, and positives of one against negatives of the other",
            [
                "Pair",
                ("AUC difference", f"In points; {level} of such intervals hold for all pairs together (Bonferroni)."),
                "First's positives above second's negatives",
                "Second's positives above first's negatives",
                (
                    "Difference",
                    "Difference of the two columns before, in points. Away from 0, the order favours one group.",
                ),
            ],
            rows,
            notes=[more],
            page_columns=[2, 3],
            most=10,
            where=blocks.BOTH if len(own["groups"]) > 2 else blocks.PAGE,
        )
    ]


def _roc(name: str, own: Record) -> list[Record]:
    lines = [
        (group, [(false, true) for false, true in figures["roc"]])
        for group, figures in own["groups"].items()
        if figures["roc"]
    ]
    if not lines:
        return []
    lines.sort(key=lambda line: -own["groups"][line[0]]["n"])
    more = f"The {MOST_LINES} largest of {len(lines)} groups are drawn." if len(lines) > MOST_LINES else ""
    return [
        blocks.curves(
            f"ROC curves by group of {short(name)}",
            lines[:MOST_LINES],
            titles=("False positive rate", "True positive rate"),
            diagonal=True,
            notes=["The dashed diagonal is chance.", more],
        )
    ]


def _thresholds(name: str, own: Record, level: str) -> list[Record]:
    if len(own["thresholds"]) < 2:
        return []
    shown = ["accuracy", *(key for key, metric in METRICS.items() if metric.kind == "gap" and metric.compared)]
    rows = []
    for one in own["thresholds"]:
        rows.append((f"{one['threshold']:g}", [blocks.figure_cell(one["metrics"][key]) for key in shown]))
    caption = f"Gaps between groups of {short(name)} at each threshold, percentage points with {level} intervals"
    return [blocks.table(caption, ["Threshold", *(METRICS[key].short for key in shown)], rows, where=blocks.BOTH)]


def _curves(name: str, own: Record, scores: Record, level: str) -> list[Record]:
    drawn = []
    for key, curve in own["curves"].items():
        if not METRICS[key].compared or len(curve["thresholds"]) < 2:
            continue
        places = list(zip(curve["thresholds"], curve["values"], curve["low"], curve["high"], strict=True))
        drawn.append(
            blocks.curves(
                f"{METRICS[key].title} between groups of {short(name)} over the threshold",
                [(METRICS[key].short, [(at, 100 * value) for at, value, _, _ in places])],
                titles=("Threshold", "Points"),
                band=[(at, 100 * low, 100 * high) for at, _, low, high in places],
                marks=scores["thresholds"],
                notes=[
                    f"The band is the pointwise {level} interval. Dashed: the chosen thresholds.",
                ],
            )
        )
    return drawn


def _calibration(name: str, own: Record, level: str) -> Record:
    rows = []
    for group, figures in own["groups"].items():
        error = figures["squared_calibration_error"]
        cells = [
            blocks.figure_cell(figures["residual"], signed=True),
            *(blocks.figure_cell(figures[key], 2, scale=1) for key in ("slope", "intercept")),
            blocks.cell("–" if error is None else number(1000 * error, 2)),
        ]
        rows.append((group, cells))
    return blocks.table(
        f"Calibration by group of {short(name)}, with {level} intervals",
        [
            "Group",
            ("Label minus score, points", "Above 0: the score is too low for this group, on average."),
            ("Slope", "1 if calibrated; below 1, scores are too extreme."),
            ("Intercept", "0 if calibrated; in log odds, with the slope held at 1."),
            (
                "Squared error x 1,000",
                "Squared calibration error, corrected for the noise of its ten bins: 0 on average if calibrated, so "
                "it can be negative.",
            ),
        ],
        rows,
        notes=["The expected calibration error is not shown: it grows as a group shrinks, even if calibrated."],
    )
