"""The pages of an inspection, and of a run's attention, each from its JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from levelhead.report import blocks
from levelhead.report.headline import Lead
from levelhead.report.one_page import one_page
from levelhead.report.rows import in_json
from levelhead.report.text import Record, counted, digits, estimate_from_dict, number, short
from levelhead.report.wide import Fraction, Pair
from levelhead.types import Estimate

HOW = (
    (
        "Probe",
        "A ridge regression of the group on the vectors of the row that the classifier reads, fitted on four folds of "
        "rows and measured on the fifth; with hidden units it also sees differences that are no shift of the mean. "
        "Its AUC is 50% by chance. Given the label, only pairs of rows with the same label count, so base rates play "
        "no role.",
    ),
    (
        "p",
        "The share of permutations of the groups, within labels, that reach the figure. A readable group need not be "
        "used: the change of the gap measures whether it is.",
    ),
    (
        "Without the direction",
        "The part of each vector that a linear probe could use, given the label, is taken off (LEACE, Belrose et al. "
        "2023), fitted on the other folds. The gap is that in equalized odds, in percentage points. No change of the "
        "keys' mean is tried: it shifts all logits of a query equally, which the softmax removes.",
    ),
    (
        "Bounds",
        "They depend on the groups' shares alone, but for that by second moments. A mean over fewer than 30 rows is "
        "not compared.",
    ),
    (
        "Deletion and insertion",
        "The predicted class's probability as tokens go, or come, most attention first. Deletion below its random "
        "order, or insertion above its own: attention points at the decisive tokens. Gaps hold label and correctness "
        "fixed.",
    ),
    ("Attention-IoU", "Attention beside the picture's own mask; by chance, beside masks of other pictures."),
)
Found = tuple[str, str | Pair | None, str, Estimate]
"""A figure with its column, which is a model, its place (None: of the whole model) and its name."""
GIVEN = "AUC given the label"


def _against_chance(path: str, title: str) -> dict[str, str]:
    return {f"{path}.figure": title, f"{path}.chance": f"{title}, by chance", f"{path}.p": f"{title}, p"}


OF_PLACE = {
    "linear_given.area": GIVEN,
    "gap_change": "Change of the gap without the direction",
    "accuracy_after": "Accuracy without the direction",
    "linear_given.p": f"{GIVEN}, p",
    "linear.area": "AUC",
    "linear.p": "AUC, p",
    "hidden.area": "AUC with hidden units",
    "hidden.p": "AUC with hidden units, p",
    "hidden_given.area": "AUC with hidden units, given the label",
    "hidden_given.p": "AUC with hidden units, given the label, p",
    "gap_after": "Gap without the direction",
}
OF_LAYER = {"area": GIVEN, "p": f"{GIVEN}, p"}
OF_MODEL = {
    "gap": "Gap in equalized odds",
    "accuracy": "Accuracy",
    **_against_chance("attention.variation", "Total variation of mean attention"),
    **_against_chance("attention.disparity", "Mean difference of attention logits, in deviations"),
    "attention.logit_disparity": "Mean difference of attention logits",
    "attention.largest": "Largest difference of attention logits",
    "attention.moment_bound": "Bound on it by second moments",
    "attention.free_bound": "Bound on it, distribution-free",
    "attention.gaussian_bound": "Bound on it, Gaussian groups",
    "attention.paper_bound": "Bound on it, Theorem 1 of the paper",
    "curves.by_chance": "Deletion in random order",
    "curves.deletion_gap": "Deletion, second less first group",
    "curves.insertion_by_chance": "Insertion in random order",
    "curves.insertion_gap": "Insertion, second less first group",
    "temperature": "Temperature",
}
OF_PART = {
    "share": "Share of attention",
    "area": "Share of pixels",
    "share_gap": "Share of attention, second less first group",
    **_against_chance("iou", "Attention-IoU"),
}
NUMBERS = (", p", "logits", "deviations", "Bound", "Temperature", "Mean difference")
"""What the names of figures hold that are no fractions."""


def figures_of(record: Record) -> Iterator[Found]:
    """Yield every figure of an inspection's JSON; undefined ones are NaN with a reason, untried ones are left out."""
    models: Mapping[str, Record] = record["models"]
    for name, model in models.items():
        for at, layer in enumerate(model["layers"][:-1], start=1):  # in the order of the network
            yield from _listed(name, f"Output of layer {at}", OF_LAYER, layer)
        for place in model["places"].values():
            title = place["title"][:1].upper() + place["title"][1:]
            yield from _listed(name, title, OF_PLACE, place)
        yield from _listed(name, None, OF_MODEL, model)
        for kind in ("deletion", "insertion"):
            for group, one in model["curves"][kind].items():
                yield name, None, Fraction(f"{kind.capitalize()}, {group}"), estimate_from_dict(one)
        for part, one in model["attention"]["parts"].items():
            names = {path: f"{part}: {title}" for path, title in OF_PART.items()}
            yield from _listed(name, None, names, one)
    for place, difference in record["differences"].items():
        first, second = models
        title = models[first]["places"][place]["title"]
        yield first, Pair(first, second), Fraction(f"{GIVEN}, {title}"), estimate_from_dict(difference)


def _listed(column: str, group: str | None, names: Mapping[str, str], found: Record) -> Iterator[Found]:
    """Yield the figures that stand in ``found`` at the paths that ``names`` has titles for."""
    for path, title in names.items():
        one: Any = found
        for key in path.split("."):
            one = one and one.get(key)
        if one is None:
            continue
        figure = estimate_from_dict(one) if isinstance(one, dict) else Estimate.without_interval(one, 0)
        yield column, group, title if any(part in title for part in NUMBERS) else Fraction(title), figure


def inspection_page(result: Record, *, source: str = "") -> Record:
    """Return the page of an inspection, from its JSON; arguments are those of :attr:`Report.make_page`."""
    groups: Mapping[str, int] = result["groups"]
    runs = [f"{short(name)} ({count} {'run' if count == 1 else 'runs'})" for name, count in result["runs"].items()]
    rows = ", ".join(f"{short(name)} {count:,}" for name, count in groups.items())
    about = {"runs": ", ".join(runs), "groups": f"groups by {short(result['attribute'])}, rows: {rows}"}
    figures = list(figures_of(result))
    reasons = [one.reason for *_, one in figures if one.defined and one.reason]
    own = {
        "about": about,
        "rows": sum(groups.values()),
        "facts": HOW,
        "reading": [f"{reason[:1].upper()}{reason[1:]}." for reason in dict.fromkeys(reasons)],
        "figures": in_json(figures),
    }
    head, cut, rest = result["sentences"][0].partition(", with an ")
    lead = Lead((head,), f"an {rest}" if cut else "").to_dict()
    return one_page({**result, **own, "lead": lead}, source=source)


def attention_page(result: Record, *, source: str = "") -> Record:
    """Return the page of a run's queries, keys and attention, from its JSON; arguments as :attr:`Report.make_page`."""
    groups: Mapping[str, int] = result["groups"]
    run = f"{result['data']}, {result['method']}, seed {result['seed']}, {result['split']} split"
    rows = ", ".join(f"{short(name)} {count:,}" for name, count in groups.items())
    panels, said = result["panels"], [_most(one, len(groups) == 2) for one in result["differences"]]
    if panels:
        what = f"dimension {result['dimension']} of head {result['head']}"
        apart = " and ".join(f"{digits(one['value'])} {one['debiasing']}" for one in panels if one["tensor"] == "query")
        chance = digits(result["all_dimensions_with_groups_shuffled"]["query"]["quantiles"]["0.5"])
        said.insert(0, f"The groups' queries differ by a Kolmogorov-Smirnov statistic of {apart} debiasing, in {what}.")
        said.insert(1, f"With groups shuffled, the median of all dimensions is {chance}.")
    chart = [_histogram(one, what, result["token"]) for one in panels]
    chart += [_maps(result, len(groups) + 1)] if result["cells"] else []
    return blocks.page(
        "Attention of a run",
        said[0],
        [blocks.part("All dimensions", [_dimensions(result)] if panels else [])],
        title=source or run,
        about=f"{run}; groups by {short(result['attribute'])} as annotated: {rows}",
        lines=said[1:],
        deck=" ".join(said[1:2]),
        chart=chart,
    )


def _most(one: Record, signed: bool) -> str:
    """Say where the mean attention of the groups differs most, given a label."""
    values = np.array(one["difference"], float)
    if np.isnan(values).any():
        return f"Given {one['label']}, attention is not compared: a group has no rows, or it is not finite."
    down, across = divmod(int(np.abs(values).argmax()), values.shape[1])
    points = f"{number(100 * float(values[down, across]), signed=signed)} points, {one['what']}"
    return f"Given {one['label']}, attention differs most in row {down + 1}, column {across + 1}: {points}."


def _histogram(panel: Record, what: str, token: int) -> Record:
    named = f"key of token {token}" if panel["tensor"] == "key" else "query of the row that is read"
    edges = [edge for edge in panel["bin_edges"] for _ in "lr"]  # each edge ends a bar, and begins the next
    lines = [
        (f"{name} ({counted(panel['rows'][name], 'row')})", list(zip(edges, [0.0, *twice, 0.0], strict=True)))
        for name, density in panel["density"].items()
        for twice in [[height for height in density for _ in "lr"]]
    ]
    note = f"Kolmogorov-Smirnov statistic {digits(panel['value'])}, {panel['pair'][0]} and {panel['pair'][1]}."
    title = f"{named[:1].upper()}{named[1:]}, {panel['debiasing']} debiasing"
    return blocks.curves(title, lines, titles=(what, "Density"), notes=[note])


def _dimensions(result: Record) -> Record:
    """Return the statistic of all dimensions, as they are and with groups shuffled, as a table."""
    found = [(f"{one['tensor']}, {one['debiasing']}", one["value"], one["all_dimensions"]) for one in result["panels"]]
    shuffled = result["all_dimensions_with_groups_shuffled"]
    found += [(f"{tensor}, groups shuffled", math.nan, one) for tensor, one in shuffled.items()]
    rows = []
    for head, own, every in found:
        cells = [blocks.cell(digits(one)) for one in (own, *every["quantiles"].values())]
        rows.append((head, cells if own == own else [blocks.no_cell(), *cells[1:]]))
    return blocks.table(
        "Kolmogorov-Smirnov statistic of all dimensions",
        ["tensor, debiasing", "this one", *(f"{100 * float(level):g}%" for level in found[0][2]["quantiles"])],
        rows,
        notes=["A dimension that is chosen for its picture proves nothing: compare it with all, and with chance."],
    )


def _maps(result: Record, columns: int) -> Record:
    """Return mean attention on each patch by label and group, and the differences of the groups."""
    cells = [(one, np.array(one["attention_on_patches"], float)) for one in result["cells"]]
    gaps = [(one, np.array(one["difference"], float)) for one in result["differences"]]
    # Of two patches' share at least, or nearly even attention would look like the darkest.
    most, widest = max(_largest(cells), 2 / cells[0][1].size), _largest(gaps)
    drawn = []
    for gap, difference in gaps:
        own = [(one, values) for one, values in cells if one["label"] == gap["label"]]
        drawn += [
            (f"{one['label']}, {one['group']} ({counted(one['rows'], 'row')})", values, most) for one, values in own
        ]
        drawn.append((f"{gap['label']}, {gap['what']}", difference, widest))
    about = "Percent of the attention on patches, and differences in percentage points."
    return blocks.maps("Mean attention over patches", drawn, about, columns=columns)


def _largest(found: Sequence[tuple[Record, Any]]) -> float:
    return max((float(np.abs(values).max()) for _, values in found if np.isfinite(values).all()), default=1.0)
