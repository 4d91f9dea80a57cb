"""The page of an inspection: the chain from attention to the gap, and each of its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short

HOW = (
    "A probe is a ridge regression of the group on the vectors of the row that the classifier reads, fitted on four "
    "folds of rows and measured on the fifth; with hidden units it also sees differences that are no shift of the "
    "mean. Its area under the ROC curve is 50% by chance. Given the label, only pairs of rows with the same label "
    "count, so base rates play no role.",
    "A p-value is the share of permutations of the groups, within labels, that reach the measured figure. A readable "
    "group need not be used: the change of the gap measures whether it is.",
    "Without the direction: the part of each vector that a linear probe could use, given the label, is taken off "
    "(LEACE, Belrose et al. 2023), fitted on the other folds. The gap is that in equalized odds, in percentage points.",
    "A constant added to all keys shifts all logits of a query equally, and the softmax removes it again: no change "
    "of the keys' mean is tried.",
)
NO_INSERTION = (
    "This JSON has no random order for insertion, and that of deletion differs from it. Run `levelhead inspect` again."
)
P_HELP = "p-value: share of permutations of the groups within labels that reach this figure"


def inspection_page(result: Record, *, source: str = "") -> Record:
    """Return the page of an inspection, from its JSON; arguments are those of :attr:`Report.make_page`."""
    models, level = result["models"], level_text(result["level"])
    first, second = result["groups"]
    sentences = result["sentences"]
    parts = [
        blocks.part(
            [
                _chain(result, level),
                *_attention(result, level),
                _readability(models, level),
                _use(models, level, (first, second)),
                _explanation(models, level, (first, second)),
                blocks.section("How to read this", [*map(blocks.paragraph, HOW), blocks.paragraph(CAUTION)], rank=10),
            ]
        )
    ]
    runs = ", ".join(
        f"{short(name)} ({count} {'run' if count == 1 else 'runs'})" for name, count in result["runs"].items()
    )
    rows = ", ".join(f"{short(name)} {count:,}" for name, count in result["groups"].items())
    return blocks.page(
        "Inside a classifier",
        sentences[0],
        parts,
        title=f"Inside {source or 'a classifier'}",
        about=f"{runs}; groups by {short(result['attribute'])}, rows: {rows}",
        lines=sentences[1:],
        cautions=result["warnings"],
    )


def _chain(result: Record, level: str) -> Record:
    models: Mapping[str, Record] = result["models"]
    places = next(iter(models.values()))["places"]
    forest = blocks.forest(
        "How well a probe reads the group beyond the label, from the bottom of the last layer to the logits",
        [
            blocks.forest_row(
                _capital(one["title"]),
                estimate_from_dict(one["linear_given"]["area"]),
                decided=(one["linear_given"]["p"] or 1) <= 0.05,
                tag=_of(name, models, ""),
                signed=False,
            )
            for place in places
            for name, model in models.items()
            if (one := model["places"].get(place)) is not None
        ],
        heads=("Place", "Area under ROC, %"),
        whole=True,
        notes=["50% is chance. Filled: p at most 0.05 under permutation of the groups within labels."],
    )
    attention = [
        ("mean difference of logits, in sd", "disparity", 1, 2),
        ("total variation of its means, %", "variation", 100, 1),
        ("the same of the rollout through all layers, %", "flow", 100, 1),
    ]
    lines = [
        (f"Attention: {title}", [_against(model["attention"][key], scale, digits) for model in models.values()])
        for title, key, scale, digits in attention
    ]
    for place, one in places.items():
        cells = [
            _tested(model["places"][place]["linear_given"], "area") if place in model["places"] else blocks.no_cell()
            for model in models.values()
        ]
        if (found := result["differences"].get(place)) is not None:
            cells.append(blocks.figure_cell(found, signed=True))
        lines.append((f"{_capital(one['title'])}: area, %", cells))
    for title, key in (("Gap in equalized odds, points", "gap"), ("Accuracy, %", "accuracy")):
        lines.append((title, [blocks.figure_cell(model[key]) for model in models.values()]))
    columns = ["Link", *map(short, models)]
    columns += [" minus ".join(columns[1:])] if result["differences"] else []
    table = blocks.table(
        f"The chain from attention to the gap, given the label, with {level} intervals",
        columns,
        [(head, [*cells, *[blocks.no_cell()] * (len(columns) - 1 - len(cells))]) for head, cells in lines],
        notes=["Areas: of a linear probe for the group. Below each figure: its interval or what chance gives, and p."],
        where=blocks.BOTH,
    )
    return blocks.section("The chain", [forest, table])


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _p_text(p: float | None) -> str:
    return "" if p is None else f"p = {number(p, 3)}"


def _against(found: Record, scale: float = 100, digits: int = 1) -> Record:
    """Return a figure with its value under permutation below."""
    figure = estimate_from_dict(found["figure"])
    if not figure.defined:
        return blocks.undefined_cell(figure.reason)
    chance = f"chance {number(scale * found['chance'], digits)}"
    return blocks.cell(number(scale * figure.value, digits), chance, _p_text(found["p"]), help_text=P_HELP)


def _tested(found: Record, key: str) -> Record:
    """Return a figure with its interval, what chance gives where that is known, and its p-value below."""
    one = blocks.figure_cell(found[key])
    if one.get("undefined"):
        return one
    chance = [f"chance {number(100 * found['chance'])}"] if "chance" in found else []
    return one | {"sub": [*one["sub"], *chance, _p_text(found["p"])], "help": P_HELP}


def _of(name: str, models: Mapping[str, Record], before: str = ": ") -> str:
    """Name the model in a heading, where there are several."""
    return f"{before}{short(name)}" if len(models) > 1 else ""


BOUNDS = {
    "Mean difference over heads and keys": "logit_disparity",
    "Largest difference": "largest",
    "Bound by these second moments": "moment_bound",
    "Distribution-free bound": "free_bound",
    "Bound for Gaussian groups": "gaussian_bound",
    "Theorem 1 of the paper": "paper_bound",
}


def _attention(result: Record, level: str) -> list[Record]:
    models: Mapping[str, Record] = result["models"]

    def plain(value: float | None) -> Record:
        return blocks.no_cell() if value is None else blocks.cell(number(value, 2))

    bounds = blocks.table(
        "Equation 2 in the readout row: how far apart the groups' mean attention logits are, and their limits",
        ["Figure, in logits", *map(short, models)],
        [(title, [plain(model["attention"][key]) for model in models.values()]) for title, key in BOUNDS.items()],
        notes=[
            "The last three depend on the groups' shares alone: the first of them holds for standardised queries and "
            "keys with the statistics of these rows, the others for their absolute values. A mean over fewer than 30 "
            "rows is not compared."
        ],
        where=blocks.BOTH,
    )
    parts = [
        (
            f"{_capital(short(part))}{_of(name, models, ', ')}",
            [
                blocks.figure_cell(one["share"]),
                blocks.cell(number(100 * one["area"])),
                blocks.figure_cell(one["share_gap"], signed=True),
                _tested(one["iou"], "figure"),
            ],
        )
        for name, model in models.items()
        for part, one in model["attention"]["parts"].items()
    ]
    gap = f"Share for {short(list(result['groups'])[1])} minus the other, points"
    iou = ("Attention-IoU", "with the picture's own mask; chance: masks of other pictures")
    masks = blocks.table(
        f"Attention on parts of the pictures, percent with {level} intervals",
        ["Part", "Share of attention", "Share of pixels", gap, iou],
        parts,
    )
    return [blocks.section("Attention", [bounds, *([masks] if parts else [])], rank=1)]


PROBES = {
    "linear": "Linear probe",
    "hidden": "One hidden layer",
    "linear_given": "Linear, given the label",
    "hidden_given": "Hidden, given the label",
}


def _readability(models: Mapping[str, Record], level: str) -> Record:
    tables = [
        blocks.table(
            f"How well the group is read: area under the ROC curve, percent with {level} intervals{_of(name, models)}",
            ["Place", "Numbers", *PROBES.values()],
            [
                (
                    _capital(one["title"]),
                    [blocks.cell(f"{one['width']:,}"), *(_tested(one[kind], "area") for kind in PROBES)],
                )
                for one in model["places"].values()
            ],
        )
        for name, model in models.items()
    ]
    lines = [
        (name, [(at, 100 * one["area"]["value"]) for at, one in enumerate(model["layers"], 1) if one["area"]["value"]])
        for name, model in models.items()
    ]
    if any(len(line) > 1 for _, line in lines):
        title = "How well a probe reads the group beyond the label from each layer's output (linear probe)"
        known = [(name, line) for name, line in lines if line]
        tables.append(blocks.curves(title, known, titles=("Layer", "Area under ROC, %")))
    return blocks.section("Group information in the vectors", tables, rank=2)


def _use(models: Mapping[str, Record], level: str, groups: tuple[str, str]) -> Record:
    columns: list[str | tuple[str, str]] = [
        "Place",
        ("Gap without it, points", "gap in equalized odds"),
        ("Change, points", "paired, on the same rows"),
        "Accuracy without it, %",
        ("Log odds", "mean absolute change if the place moves by the groups' mean difference; equal temperature"),
        ("Probability, points", "the same for the predicted class's probability"),
        (f"Log odds, {short(groups[1])} minus {short(groups[0])}", "with labels held fixed"),
    ]
    tables = []
    for name, model in models.items():
        tried = [one for one in model["places"].values() if one["slope"] is not None]
        lines = []
        for one in tried:
            cells = [
                blocks.figure_cell(one["gap_after"]),
                blocks.figure_cell(one["gap_change"], signed=True),
                blocks.figure_cell(one["accuracy_after"]),
                blocks.figure_cell(one["slope"], 2, scale=1),
                blocks.figure_cell(one["slope_probability"]),
                blocks.figure_cell(one["slope_gap"], 2, scale=1, signed=True),
            ]
            lines.append((_capital(one["title"]), cells))
        gap = blocks.figure_cell(model["gap"])
        as_it_is = f"Gap as it is: {' '.join([gap['text'], *gap['sub']])} points."
        title = f"Effect of the group’s direction on the answer, with {level} intervals{_of(name, models)}"
        notes = [
            f"{as_it_is} Temperature: {number(model['temperature'], 2)}.",
            *_reasons([one["gap_change"] for one in tried if one["gap_change"] is not None]),
        ]
        tables.append(blocks.table(title, columns, lines, notes=notes, page_columns=[5, 6], where=blocks.BOTH))
    return blocks.section("Effect on the answer", tables, rank=3)


def _reasons(figures: Sequence[Record]) -> list[str]:
    """Return a note on why figures are undefined, or have no interval; none where all have one."""
    said = dict.fromkeys(one["reason"] for one in figures if one["low"] is None and one.get("reason"))
    return [f"{_capital('; '.join(said))}."] if said else []


def _explanation(models: Mapping[str, Record], level: str, groups: tuple[str, str]) -> Record:
    kinds = {"deletion": ("Deletion", "by_chance"), "insertion": ("Insertion", "insertion_by_chance")}
    unknown = any("insertion_by_chance" not in model["curves"] for model in models.values())
    table = blocks.table(
        f"Probability of the predicted class as tokens go, most attention first: percent with {level} intervals",
        ["Curve", *map(short, groups), f"{short(groups[1])} minus {short(groups[0])}, points", "In random order"],
        [
            (
                f"{title}{_of(name, models, ', ')}",
                [
                    *(blocks.figure_cell(model["curves"][kind][group]) for group in groups),
                    blocks.figure_cell(model["curves"][f"{kind}_gap"], signed=True),
                    blocks.figure_cell(model["curves"][chance]) if chance in model["curves"] else blocks.no_cell(),
                ],
            )
            for name, model in models.items()
            for kind, (title, chance) in kinds.items()
        ],
        notes=[
            f"On {next(iter(models.values()))['curves']['rows']:,} rows, drawn evenly from groups and labels as far as "
            "they have rows. The gap holds label and correctness fixed. Deletion below its "
            "random order, or insertion above its own: attention points at the decisive tokens.",
            *([NO_INSERTION] if unknown else []),
            *_reasons([model["curves"]["by_chance"] for model in models.values()]),
        ],
        where=blocks.BOTH,
    )
    lines = []
    for name, model in models.items():
        for group, heights in model["curves"]["heights"].items():
            line = list(zip(model["curves"]["shares"], [100 * one for one in heights], strict=True))
            lines.append((f"{group}{_of(name, models, ', ')}", line))
    titles = ("Share of tokens left out", "Probability, %")
    drawn = [blocks.curves("Deletion: probability of the predicted class, %", lines, titles=titles)] if lines else []
    return blocks.section("Does attention point at the decisive tokens?", [table, *drawn], rank=4)
