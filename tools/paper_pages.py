"""Write the pages of docs/paper/ and the table of docs/paper.md from what was published and what is in results/.

``python tools/paper_pages.py`` after a result was added; a test fails while a page is not what this writes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from levelhead.metrics.names import METRICS
from levelhead.paper.items import ITEMS, SOURCES, Item
from levelhead.paper.published import Published, published
from levelhead.paper.results import COSTS, FIGURES, published_gain

ROOT = Path(__file__).parents[1]
START, END = "<!-- written by tools/paper_pages.py -->", "<!-- end -->"
MAIN = FIGURES[0]


def result_file(item: Item) -> Path:
    """Return where the result of ``levelhead reproduce`` at small scale is kept."""
    return ROOT / "results" / f"paper_{item.name}_small.json"


def pages() -> dict[Path, str]:
    """Return the content of every page by path."""
    found = {ROOT / "docs" / "paper" / f"{item.name}.md": page(item) for item in ITEMS.values()}
    overview = ROOT / "docs" / "paper.md"
    before, _, rest = overview.read_text(encoding="utf-8").partition(START)
    found[overview] = before + START + "\n" + table() + END + rest.partition(END)[2]
    return found


def table() -> str:
    """Return the overview: one line a table and figure."""
    lines = ["| | what it shows | EOd of DAM minus ERM, published | here, small scale | state |"]
    lines += ["|---|---|---:|---:|---|"]
    lines += ["| Figure 1 | the method as a drawing | | | nothing to run: [the method](methods/dam.md) |"]
    for item in sorted(ITEMS.values(), key=lambda item: (item.is_figure, item.name)):
        name = f"[{item.title}](paper/{item.name}.md)"
        lines.append(f"| {name} | {item.shows} | {published_difference(item)} | {measured(item)} | {state(item)} |")
    figure_1 = lines.pop(2)
    lines.insert(2 + sum(not item.is_figure for item in ITEMS.values()), figure_1)
    return "\n".join(lines) + "\n"


def state(item: Item) -> str:
    """Say how far the item has come here."""
    if result_file(item).exists() or item.results:
        return "small scale only"
    return "not run"


def published_difference(item: Item) -> str:
    """Return what the paper reports DAM to change, with the interval of its deviations."""
    parts = []
    for backbone in dict.fromkeys(backbone for grids in item.grids.values() for backbone in grids.values()):
        rows = published(item.name, backbone)
        for suffix in ("", "-FT", "-LE"):
            if f"ERM{suffix}" in rows and f"DAM{suffix}" in rows:
                value, low, high = published_gain(rows[f"DAM{suffix}"][MAIN], rows[f"ERM{suffix}"][MAIN])
                ends = "" if math.isnan(low) else f" [{low:+.1f}, {high:+.1f}]"
                name = " ".join([*([backbone] if backbone else []), suffix.strip("-")]).strip()
                parts.append(f"{name} {value:+.1f}{ends}".strip())
    return "; ".join(parts)


def measured(item: Item) -> str:
    """Return the same of the committed result, if there is one."""
    parts = []
    for methods in comparisons(item):
        for name, row in methods.items():
            suffix = name[3:]
            if name.upper().startswith("DAM") and suffix in ("", "-FT", "-LE"):
                found = row[MAIN]["difference"]
                if found is not None and found["value"] is not None and matches(methods, suffix):
                    parts.append(f"{suffix.strip('-')} {interval(found, signed=True)}".strip())
    return "; ".join(parts)


def matches(methods: dict[str, Any], suffix: str) -> bool:
    """Say whether differences of this kind are to the ERM of the same kind."""
    baseline = next(name for name, row in methods.items() if row[MAIN]["difference"] is None)
    return baseline.upper() == f"ERM{suffix}".upper()


def comparisons(item: Item) -> list[dict[str, Any]]:
    """Return ``{method: {figure: ...}}`` of every comparison of the item's newest result under the label-only rule."""
    if result_file(item).exists():
        record = json.loads(result_file(item).read_text(encoding="utf-8"))
        return [grid["label_only"]["methods"] for grid in record.get("grids", {}).values() if "label_only" in grid]
    found = []
    for name in item.results:
        every = json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))["comparisons"]
        chosen = every["own"] if isinstance(every, dict) else every[0]
        found.append(chosen["methods"])
    return found


def page(item: Item) -> str:
    """Return the page of one item."""
    lines = [f"# {item.title}", "", f"{item.shows}.", "", "## Commands", "```"]
    backbone = " --backbone MINILM" if "small" in item.backbone else ""
    name = f"levelhead reproduce {item.name}"
    lines += [f"{name} --data-root DATA{backbone} --workers 2     # small scale: {item.cost['small']}"]
    lines += [f"{name} --data-root DATA --scale paper     # the paper's size: {item.cost['paper']}"]
    lines += [f"{name} --quick     # rehearse on drawn data in a minute; no result", "```", ""]
    if backbone:
        lines += ["`MINILM` is the folder or the Hub name of all-MiniLM-L6-v2, which is also the default.", ""]
    if item.name == "table5":
        lines += [
            "At small scale a network is first pretrained on the training pictures: [pretrained](../pretrained.md).",
            "",
        ]
    for source in dict.fromkeys(item.data.values()):
        one = SOURCES[source]
        lines += [f"Data: the folder `{one.folder}/` with {one.files}. Owners: <{one.owner}>.", ""]
    grids = ", ".join(f"`recipes/paper/{grid}.yaml`" for every in item.grids.values() for grid in every)
    lines += [f"Grids: {grids}. Runs that two items need are trained once.", ""]
    for grids_of in item.grids.values():
        for title in grids_of.values():
            rows = published(item.name, title)
            heading = f"## Published{', ' + title if title else ''}"
            if rows and heading not in lines:
                lines += [heading, *published_table(rows), ""]
    lines += ["## Here, at small scale", *here(item), ""]
    lines += ["## At the paper's size", "Not run.", ""]
    lines += [f"Why figures will differ from the published ones: {item.reasons['paper']}.", ""]
    return "\n".join(lines)


def published_table(rows: dict[str, dict[str, Published]]) -> list[str]:
    """Return a table of published figures."""
    costs = [key for key in COSTS if any(key in row for row in rows.values())]
    titles = [METRICS[name].column for name in FIGURES] + [COSTS[key] for key in costs]
    lines = ["| method | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for method, row in rows.items():
        cells = [str(row[name]) for name in FIGURES] + [f"{row[key].mean:,.6g}" if key in row else "" for key in costs]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, "", "Percent, mean ± standard deviation over three seeds, or one seed. DAM is the paper's “Ours”."]


def here(item: Item) -> list[str]:
    """Return what came out here."""
    file = result_file(item)
    if not file.exists() and not item.results:
        return ["Not run."]
    why = f"Most likely reasons for differences from the published figures: {item.reasons['small']}."
    if not file.exists():
        links = ", ".join(f"`results/{name}`" for name in item.results)
        return [f"An earlier run of another grid stands for it: {links}. {why}"]
    record = json.loads(file.read_text(encoding="utf-8"))
    lines = [f"Made by the first command above; `results/{file.name}`. {why}", ""]
    if item.drawing in DRAWN:
        picture = f"![{item.title} at small scale: {item.shows}](../images/paper-{item.name}-small.png)"
        return [*lines, picture, "", *DRAWN[item.drawing](record["networks"])]
    for grid in record["grids"].values():
        if "published" not in grid:
            continue
        for figure in FIGURES[:2]:
            lines += against(grid, figure)
        if not grid.get("by_selection_alone_pairs_seeds"):
            lines += [
                "The intervals of the last column were made with the seeds of the two choices taken as independent, "
                "and not as the pairs that they are: their width is not that of today's code.",
                "",
            ]
        if grid["missing"]:
            lines += [f"Not run yet: {', '.join(grid['missing'])}.", ""]
    lines += [
        "Percent; in brackets 95% intervals over test rows and seeds, or over rows alone where there is one seed.",
        "*As released*: each run's epoch with the smallest gap on these test rows (LEAKING), as the released notebooks",
        "choose it. *By selection alone*: that minus the epochs chosen by labels, on the same runs.",
    ]
    return lines


def distances(networks: dict[str, Any]) -> list[str]:
    """Return how far queries and keys differ between groups, over all dimensions of the last encoder."""
    lines = ["| network | query | key |", "|---|---:|---:|"]
    for name, one in networks.items():
        for debiasing in dict.fromkeys(panel["debiasing"] for panel in one["panels"]):
            found = {panel["tensor"]: panel for panel in one["panels"] if panel["debiasing"] == debiasing}
            title = f"{name}, {debiasing} debiasing" if len(one["panels"]) > 2 else name
            cells = [_quantiles(found[tensor]["all_dimensions"]) for tensor in ("query", "key")]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        chance = one["all_dimensions_with_groups_shuffled"]
        lines.append(f"| {name}, groups shuffled | {_quantiles(chance['query'])} | {_quantiles(chance['key'])} |")
    first = next(iter(networks.values()))
    rows = " and ".join(f"{count:,} {group}" for group, count in first["groups"].items())
    dimensions = first["panels"][0]["all_dimensions"]["count"]
    return [
        *lines,
        "",
        f"Two-sample Kolmogorov-Smirnov statistic between the groups ({rows}; test split, one seed): median over all",
        f"{dimensions} dimensions [5th, 95th percentile]. The picture shows one dimension; its boxes show all of them.",
    ]


def _quantiles(figure: dict[str, Any]) -> str:
    low, middle, high = (figure["quantiles"][place] for place in ("0.05", "0.5", "0.95"))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def attention_differences(networks: dict[str, Any]) -> list[str]:
    """Return where the groups' mean attention differs most, by label."""
    lines = ["| network | label | groups | largest difference on a patch, points | half the sum over patches, points |"]
    lines += ["|---|---|---|---:|---:|"]
    for name, one in networks.items():
        for found in one["differences"]:
            pairs = zip(found["difference"], found["standard_error"], strict=True)
            every = [pair for row in pairs for pair in zip(*row, strict=True)]
            value, error = max(every, key=lambda pair: abs(pair[0]))
            share = sum(abs(difference) for difference, _ in every) / 2
            most = f"{100 * value:+.1f} (standard error {100 * error:.1f})"
            lines.append(f"| {name} | {found['label']} | {found['what']} | {most} | {100 * share:.1f} |")
    return [
        *lines,
        "",
        "Attention of the readout row in the last encoder, in percent of what lies on patches; test split, one seed.",
        "The last column is how much attention would have to move to make the two means alike.",
    ]


DRAWN = {"qk": distances, "attention": attention_differences}


def against(grid: dict[str, Any], figure: str) -> list[str]:
    """Return one table of published figures and ours."""
    titles = ["published", "here", "here minus published", "as released", "by selection alone"]
    lines = [f"### {METRICS[figure].column}", "| method | " + " | ".join(titles) + " |", "|---|" + "---:|" * 5]
    for method, row in grid["published"].items():
        one, marks = row[figure], " ".join(grid["label_only"]["marks"].get(method, []))
        theirs = one["published_percent"]
        cells = ["" if theirs is None else str(Published(**theirs)), interval(one["here"])]
        cells += [interval(one["difference"], signed=True), interval(one["as_released"])]
        cells += [interval(one["by_selection_alone"], signed=True)]
        lines.append(f"| {' '.join([method, marks]).strip()} | {' | '.join(cells)} |")
    return [*lines, ""]


def interval(figure: dict[str, Any] | None, *, signed: bool = False) -> str:
    """Return a figure in percent with its interval."""
    if figure is None:
        return ""
    if figure["value"] is None:
        return "undefined"
    sign = "+" if signed else ""
    value, low, high = (100 * figure[key] for key in ("value", "low", "high"))
    return f"{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def main() -> int:
    """Write the pages, or with --check say which differ; the exit status is the number of those."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not up to date")
    check = parser.parse_args().check
    stale = 0
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main())
