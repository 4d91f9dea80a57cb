"""Write the pages of results/paper/ and the table of its README.md from what was published and what is in results/.

``python tools/paper_pages.py`` after a result was added; a test fails while a page is not what this writes.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from levelhead.bench.grid import read_grid
from levelhead.metrics.names import METRICS
from levelhead.paper.items import ITEMS, SELECTION, SOURCES, Item, Scale
from levelhead.paper.published import Published, present_row, published
from levelhead.paper.results import COSTS, FIGURES, published_gain

ROOT = Path(__file__).parents[1]
START, END = "<!-- written by tools/paper_pages.py -->", "<!-- end -->"
MAIN = FIGURES[0]


def result_file(item: Item, scale: str = "small") -> Path:
    """Return where the result of ``levelhead reproduce`` is kept."""
    return ROOT / "results" / f"paper_{item.name}_{scale}.json"


def pages() -> dict[Path, str]:
    """Return the content of every page by path."""
    found = {ROOT / "results" / "paper" / f"{item.name}.md": page(item) for item in ITEMS.values()}
    overview = ROOT / "results" / "paper" / "README.md"
    before, _, rest = overview.read_text(encoding="utf-8").partition(START)
    found[overview] = before + START + "\n" + table() + END + rest.partition(END)[2]
    return found


def table() -> str:
    """Return the overview: one line a table and figure."""
    columns = "DAM minus ERM, published | here | ERM, by selection"
    lines = [f"| `levelhead reproduce` | what it shows | {columns} | run |"]
    lines += ["|---|---|---:|---:|---:|---|"]
    lines += ["| Figure 1 | the method as a drawing | | | | nothing to run: [the method](../../docs/methods/dam.md) |"]
    for item in sorted(ITEMS.values(), key=lambda item: (item.name.startswith("figure"), item.name)):
        name = f"[`{item.name}`]({item.name}.md)"
        parts = [published_difference(item), measured(item), by_selection(item), state(item)]
        # An interval stays on its line, and each has one of its own.
        found = " | ".join(unbroken(part).replace("; ", "<br>") for part in parts)
        lines.append(f"| {name} | {item.shows} | {found} |")
    figure_1 = lines.pop(2)
    lines.insert(2 + sum(not item.name.startswith("figure") for item in ITEMS.values()), figure_1)
    return "\n".join(lines) + "\n"


def state(item: Item) -> str:
    """Say how far the item has come here."""
    if result_file(item, "paper").exists():
        rows = dict.fromkeys(name for methods in comparisons(item, "paper") for name in methods)
        grids = read(result_file(item, "paper")).get("grids", {}).values()
        counts = [len(each) for grid in grids for each in grid["label_only"]["seeds"].values()]
        seeds = f" ({min(counts)} {'seed' if min(counts) == 1 else 'seeds'})" if counts else ""
        found = measured(item, "paper")
        return f"small scale; {', '.join(rows)} at the paper's size{seeds}" + (f": {found}" if found else "")
    return "small scale only" if result_file(item).exists() else "not run"


def by_selection(item: Item) -> str:
    """Return what choosing ERM's epochs by the gap on the test rows alone does to that gap, at small scale."""
    if not result_file(item).exists():
        return ""
    parts = []
    for grid in read(result_file(item)).get("grids", {}).values():
        for name, figures in grid["published"].items():
            change = figures[MAIN]["by_selection_alone"]
            if name in ("ERM", "ERM-FT", "ERM-LE") and change is not None:
                parts.append(f"{name[4:]} {chosen_otherwise(change)}".strip())
    return "; ".join(parts)


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


def measured(item: Item, scale: str = "small") -> str:
    """Return the same of the committed result, if there is one, for each source of DAM's options."""
    parts = []
    later = {
        name: gain[MAIN]
        for each in run_later(item, scale)
        for grid in read(each)["grids"].values()
        for name, gain in grid.get("gains", {}).items()
    }
    for number, gains in enumerate(committed_gains(item, scale)):
        if number == 0:
            gains = gains | {name: gain for name, gain in later.items() if name not in gains}
        for name, difference in gains.items():
            found = re.fullmatch(r"DAM \((.*)\)(?:-(FT|LE))?", name)
            if found and difference["value"] is not None:
                kind = f"{found[2] or ''} {found[1]}".strip()
                parts.append(f"{kind} {interval(difference, signed=True)}")
    return "; ".join(parts)


def kind_of(row: str) -> str:
    """Return FT or LE, which say how much of a network is trained, or nothing."""
    return row[-2:] if row.endswith(("-FT", "-LE")) else ""


def committed_gains(item: Item, scale: str) -> list[dict[str, Any]]:
    """Return ``{method: EOd minus the same kind of ERM's}`` of every comparison under the label-only rule."""
    if result_file(item, scale).exists():
        grids = read(result_file(item, scale)).get("grids", {}).values()
        if all("gains" in grid for grid in grids):
            return [{name: gain[MAIN] for name, gain in grid["gains"].items()} for grid in grids]
    found: list[dict[str, Any]] = []
    for methods in comparisons(item, scale):
        baseline = next(name for name, row in methods.items() if row[MAIN]["difference"] is None)
        others = [name for name in methods if name != baseline and kind_of(name) == kind_of(baseline)]
        found.append({name: methods[name][MAIN]["difference"] for name in others})
    return found


def comparisons(item: Item, scale: str = "small") -> list[dict[str, Any]]:
    """Return ``{method: {figure: ...}}`` of every comparison of the item's result under the label-only rule."""
    if not result_file(item, scale).exists():
        return []
    return [grid["label_only"]["methods"] for grid in read(result_file(item, scale)).get("grids", {}).values()]


@functools.cache
def read(file: Path) -> Any:
    """Return what a result file holds, with the present names of rows."""
    text = file.read_text(encoding="utf-8")
    return json.loads(re.sub(r'(?<=")DAM[^"]*(?=")', lambda found: present_row(found[0]), text))


def page(item: Item) -> str:
    """Return the page of one item."""
    reading = "([how to read this page](README.md#how-to-read-a-page))"
    lines = [f"# {item.title}", "", f"{item.shows} {reading}.", "", "## Commands", "```"]
    backbone = " --backbone MINILM" if "small" in item.backbone else ""
    name = f"levelhead reproduce {item.name}"
    lines += [f"# small scale: {item.cost['small']}", f"{name} --data-root DATA{backbone} --workers 2"]
    lines += [f"# the paper's size: {item.cost['paper']}", f"{name} --data-root DATA --scale paper"]
    lines += ["```", ""]
    if backbone:
        lines += ["`MINILM` is a folder or Hub name of all-MiniLM-L6-v2, the default.", ""]
    if item.name == "table5":
        lines += [
            "At small scale, first [pretrain](../../docs/pretrained.md) a network on the training pictures.",
            "",
        ]
    folders = dict.fromkeys(SOURCES[name].folders[0] for names in item.data.values() for name in names)
    owner = SOURCES[item.data["paper"][0]].owner
    lines += [f"Data: `{'/` or `'.join(folders)}/` ([layouts](../../docs/data.md)), from <{owner}>.", ""]
    grids = ", ".join(f"`recipes/paper/{grid}.yaml`" for every in item.grids.values() for grid in every)
    lines += [f"Grids: {grids}.", ""]
    for grids_of in item.grids.values():
        for title in grids_of.values():
            rows = published(item.name, title)
            heading = f"## Published{', ' + title if title else ''}"
            if rows and heading not in lines:
                lines += [heading, *published_table(rows), ""]
    lines += ["## Here, at small scale", *here(item, "small"), ""]
    if result_file(item, "paper").exists():
        lines += ["## Here, at the paper's size", *here(item, "paper")]
    else:
        lines += ["Not run at the paper's size."]
    return "\n".join([*lines, ""])


def published_table(rows: dict[str, dict[str, Published]]) -> list[str]:
    """Return a table of published figures."""
    costs = [key for key in COSTS if any(key in row for row in rows.values())]
    titles = [METRICS[name].column for name in FIGURES] + [COSTS[key] for key in costs]
    lines = ["| method | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for method, row in rows.items():
        cells = [str(row[name]) for name in FIGURES] + [f"{row[key].mean:,.6g}" if key in row else "" for key in costs]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def here(item: Item, scale: Scale) -> list[str]:
    """Return what came out here."""
    file = result_file(item, scale)
    reason = differences(item, scale)
    first = next(other for other in ITEMS.values() if differences(other, scale) == reason)
    same = f"those of [{first.title}]({first.name}.md)" if first is not item else reason
    why = f"Differences from the published runs: {same}."
    if not file.exists():
        return ["Not run."]
    record = read(file)
    command = "first command" if scale == "small" else "second command"
    lines = [f"The {command}{made_with(item, record)} made `results/{file.name}`. {why}", ""]
    if item.drawing:
        lines += [f"![{item.title}, {scale} scale: {item.shows}](../../docs/images/paper-{item.name}-{scale}.png)", ""]
    if item.drawing in DRAWN:
        left = [row for row in item.rows if row not in record["networks"]]
        after = ["", f"Not run yet: {'; '.join(left)}."] if left else []
        return lines + DRAWN[item.drawing](record["networks"]) + after
    more = run_later(item, scale)
    for grid in record["grids"].values():
        lines += figures_of(grid)
    for added in more:
        options = made_with(item, read(added)).replace(" with ", " and ", 1)
        lines += [f"Run later with the {command}{options}: `results/{added.name}`.", ""]
        for name, grid in read(added)["grids"].items():
            lines += figures_of(grid, record["grids"].get(name))
    since = {row for each in more for grid in read(each)["grids"].values() for row in grid["label_only"]["methods"]}
    not_run = [row for name, grid in record["grids"].items() for row in not_in(name, grid) if row not in since]
    if not_run:
        lines += [f"Not run yet: {'; '.join(not_run)}.", ""]
    return lines[: -1 if lines[-1] == "" else None]


def differences(item: Item, scale: Scale) -> str:
    """Return what differs from the published runs, but for the choice of epochs, which docs/paper.md says once."""
    return item.reason(scale, item.source(scale)).replace(f"; {SELECTION}", "")


def run_later(item: Item, scale: str) -> list[Path]:
    """Return the results of rows that were run by themselves, with an ERM of their own."""
    file = result_file(item, scale)
    return sorted(file.parent.glob(f"{file.stem}_*.json"))


def figures_of(grid: dict[str, Any], earlier: dict[str, Any] | None = None) -> list[str]:
    """Return the tables of one grid's runs, without the rows that came out as in an ``earlier`` run."""
    lines = [made_on(grid, earlier), "", *against(grid, earlier), *(cost_table(grid) if earlier is None else [])]
    if not grid.get("by_selection_alone_pairs_seeds"):
        lines += [
            "Intervals by selection treat the seeds of the two choices as independent, not paired.",
            "",
        ]
    return lines


def rows_of(name: str) -> list[str]:
    """Return the rows of one of the paper's grids."""
    return list(read_grid(ROOT / "recipes" / "paper" / f"{name}.yaml").rows)


def not_in(name: str, found: dict[str, Any]) -> list[str]:
    """Return the rows of a grid that its result lacks: those that failed, and those that the grid got later."""
    return [*found["missing"], *(row for row in rows_of(name) if added(row) and row not in found["published"])]


def added(row: str) -> bool:
    """Say whether a row joined the grids after the first results."""
    return "(" in row and "(levelhead)" not in row


def made_with(item: Item, record: dict[str, Any]) -> str:
    """Say with which options other rows, seeds or another precision than the grids' were run."""
    options = []
    for name, found in record.get("grids", {}).items():
        grid = read_grid(ROOT / "recipes" / "paper" / f"{name}.yaml")
        rows = [*found["label_only"]["methods"], *found["missing"]]
        if not {row for row in item.rows or grid.rows if not added(row)} <= set(rows):
            options += [f"--row {shlex.quote(row)}" for row in rows]
        seeds = sorted({seed for each in found["label_only"]["seeds"].values() for seed in each})
        if seeds != sorted(grid.seeds):
            options.append(f"--seeds {','.join(map(str, seeds))}")
        for row in found["label_only"]["settings"].values():
            here, there = row.get("train.precision"), grid.shared.get("train.precision")
            if there is not None and here != there:
                options.append(f"--set train.precision={here}")
    return f" with `{' '.join(dict.fromkeys(options))}`" if options else ""


def made_on(grid: dict[str, Any], earlier: dict[str, Any] | None = None) -> str:
    """Say how long the runs of a grid took, and on what, unless an ``earlier`` grid's runs had the same hardware."""
    costs, seeds = grid["label_only"]["cost"], grid["label_only"]["seeds"]
    hardware = hardware_of(grid)
    on = (
        ""
        if earlier is not None and hardware == hardware_of(earlier)
        else f" on {' and '.join(map(in_words, hardware))}"
    )
    runs = {method: len(each) for method, each in seeds.items()}
    hours = sum(cost["seconds"] * runs[method] for method, cost in costs.items()) / 3600
    energy = [math.nan if cost["energy_wh"] is None else cost["energy_wh"] * runs[m] for m, cost in costs.items()]
    known = "" if math.isnan(sum(energy)) else f", {sum(energy):,.3g} Wh"
    return f"{sum(runs.values())} trainings took {hours:,.1f} hours{known}{on}."


def in_words(hardware: str) -> str:
    """Return what a run of a CPU was trained on as part of a sentence; any other hardware as it was recorded."""
    found = re.fullmatch(r"device cpu, CPU (.*), threads 1", hardware)
    return f"one thread of a CPU ({found[1].replace('(R)', '')})" if found else hardware


def hardware_of(grid: dict[str, Any]) -> list[str]:
    """Return what the runs of a grid were trained on."""
    return sorted({each for cost in grid["label_only"]["cost"].values() for each in cost["hardware"]})


def cost_table(grid: dict[str, Any]) -> list[str]:
    """Return what a run of each method took, where whole networks are trained beside last encoders."""
    costs = grid["label_only"]["cost"]
    if not any(method.endswith("-LE") for method in costs):
        return []
    titles = ["passes", "trained weights, million", "peak memory, MiB", "seconds"]
    lines = ["Cost of a run:", "", f"| method | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    for method, cost in costs.items():
        on_gpu = cost.get("peak_gpu_memory_mib")
        memory = cost["process_peak_memory_mib"] if on_gpu is None else on_gpu
        cells = [f"{cost['forward_passes']:,.1f}", f"{cost['trained_parameters'] / 1e6:,.2f}", f"{memory:,.0f}"]
        cells.append(f"{cost['seconds']:,.0f}")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, ""]


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
        "The last column is the attention that would have to move to make both means equal.",
    ]


DRAWN = {"qk": distances, "attention": attention_differences}


def against(grid: dict[str, Any], earlier: dict[str, Any] | None = None) -> list[str]:
    """Return the table of our figures, the gap beside accuracy, and how far the gap is from the published one."""
    before = {} if earlier is None else earlier["published"]
    same = [
        method
        for method, row in grid["published"].items()
        if method in before
        and all(row[name]["here"]["value"] == before[method][name]["here"]["value"] for name in FIGURES[:2])
    ]
    known = any(row[MAIN]["published_percent"] for row in grid["published"].values())
    minus = ["minus published"] if known else []
    titles = [METRICS[MAIN].column, *minus, "as released", METRICS[FIGURES[1]].column, "accuracy by selection"]
    lines = [f"| method | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    for method, row in grid["published"].items():
        if method in same:
            continue
        gap, accuracy = row[MAIN], row[FIGURES[1]]
        marks = " ".join(grid["label_only"]["marks"].get(method, []))
        name, cells = " ".join([method, marks]).strip(), [interval(gap["here"])]
        cells += [interval(gap["difference"], signed=True)] if known else []
        cells += [interval(gap["as_released"]), interval(accuracy["here"])]
        cells.append(chosen_otherwise(accuracy["by_selection_alone"]))
        lines.append(f"| {name} | {' | '.join(map(unbroken, cells))} |")
    return [
        *lines,
        "",
        *([f"Not repeated, since the options are the same: {', '.join(same)}.", ""] if same else []),
    ]


def unbroken(cell: str) -> str:
    """Return a cell whose interval stays on its line."""
    return cell.replace(", ", ",\u00a0").replace(" [", "\u00a0[")


def chosen_otherwise(figure: dict[str, Any] | None) -> str:
    """Return what another choice of epochs changes; where it is the same epochs, that."""
    if figure is not None and figure["value"] == figure["low"] == figure["high"] == 0:
        return "same epochs"
    return interval(figure, signed=True)


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
