"""Write the tables of results/results.md from results/: `python tools/results_page.py`.

Each table stands between two comments, `<!-- NAME -->` and `<!-- end -->`; the text around it is written by hand.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from scipy import stats

from levelhead.storage import read_json

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "results" / "results.md"
VERDICTS = {"within": "equal within 2 points", "undecided": "inconclusive"}
AFTER_THREE_TASKS = {("decide_celeba64_blond", "DAM"): "larger; inconclusive after correction for three tasks"}
REFITTED_AGAIN = ("few-label", "decorrelation")
"""Refitted by another stopping rule in these files; the rule of ``levelhead refit`` is that of rungs_*.json."""
TEXTS = {"hatexplain": "HateXplain", "multinli": "MultiNLI"}
TRAINED = {"le_small": "last layer on MiniLM", "le_smollm2": "last layer on SmolLM2", "ft_small": "MiniLM, whole"}


def first(name: str) -> dict[str, Any]:
    """Return the first comparison of a committed file."""
    record: dict[str, Any] = read_json(ROOT / "results" / f"{name}.json")["comparisons"][0]
    return record


def points(figure: dict[str, float], sign: str = "+") -> str:
    """Return a share or a difference in points, with its interval."""
    value, low, high = (100 * figure[end] for end in ("value", "low", "high"))
    return f"{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def table(heads: list[str], rows: Iterator[list[str]], text: int) -> str:
    """Return a table whose first ``text`` columns are words, the others figures."""
    lines = [heads, ["---"] * text + ["---:"] * (len(heads) - text), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def change(name: str, method: str, metric: str = "equalized_odds") -> str:
    """Return a method's difference to plain training with its verdict, where the file has one."""
    figure = first(name)["methods"][method][metric]
    if metric != "equalized_odds":
        return points(figure["difference"])
    verdict = AFTER_THREE_TASKS.get((name, method)) or VERDICTS.get(figure["verdict"], figure["verdict"])
    return f"{points(figure['difference'])}, {verdict}"


def adjusted(name: str, method: str) -> dict[str, float]:
    """Return a method's change of the gap with an interval that holds together with those of all methods of the file.

    Student's, each at the level that is left when the error is shared (Bonferroni).
    """
    comparison = first(name)
    figure = comparison["methods"][method]["equalized_odds"]
    found, freedom, error = figure["difference"], figure["degrees_of_freedom"], (1 - comparison["level"]) / 2
    wider = stats.t.isf(error / (len(comparison["methods"]) - 1), freedom) / stats.t.isf(error, freedom)
    ends = {end: found["value"] + wider * (found[end] - found["value"]) for end in ("low", "high")}
    return {"value": found["value"], **ends}


def variants(name: str, matched: bool, without: Collection[str] = ()) -> str:
    """Return the table of one task: every variant's gap, its change with the verdict, and the change in accuracy."""

    def rows() -> Iterator[list[str]]:
        comparison = first(name)
        for method, figures in comparison["methods"].items():
            if method in without:
                continue
            mark = comparison["told"].get(method) or ("ORACLE" if comparison["oracle"].get(method) else "")
            row = [method + (f" ({mark})" if mark else ""), points(figures["equalized_odds"]["estimate"], "")]
            if method == "ERM":
                yield row + [""] * (3 if matched else 2)
                continue
            files = [name, f"{name}_matched"] if matched else [name]
            yield [*row, *(change(file, method) for file in files), change(name, method, "accuracy")]

    threshold = ["at plain training's positive rate"] if matched else []
    return table(["variant", "EOd gap", "change", *threshold, "change in accuracy"], rows(), 1)


def methods() -> str:
    """Return every method's differences to plain training on two tasks."""

    def rows() -> Iterator[list[str]]:
        faces, attractive = first("methods_utkface64"), first("methods_celeba64_attractive")
        for method in faces["methods"]:
            row = [method + (" (ORACLE)" if faces["oracle"][method] else "")]
            for comparison in (faces, attractive):
                figures = comparison["methods"].get(method)
                mark = " AT CHANCE" if method in comparison["at_chance"] else ""
                for metric in ("equalized_odds", "accuracy"):
                    figure = figures and (figures[metric]["difference"] or figures[metric]["estimate"])
                    signed = "" if method == "ERM" else "+"
                    row.append(points(figure, signed) + (mark if metric == "accuracy" else "") if figure else "not run")
            yield row

    heads = ["method", "UTKFace: EOd", "UTKFace: accuracy", "Attractive: EOd", "Attractive: accuracy"]
    return table(heads, rows(), 1)


def ablation() -> str:
    """Return the variants of one test split, and what choosing the epoch by the test gap does to each."""

    def rows() -> Iterator[list[str]]:
        record = read_json(ROOT / "results" / "finding_utkface64.json")
        for method, figures in record["comparisons"]["own"]["methods"].items():
            own = figures["equalized_odds"]["difference"]
            effect = [record["selection_effect"][method][what]["difference"] for what in ("equalized_odds", "accuracy")]
            yield [method, points(own) if own else "", *map(points, effect)]

    return table(["variant", "EOd minus ERM", "EOd by the leak", "accuracy by the leak"], rows(), 1)


def texts() -> str:
    """Return debiased attention minus plain training on texts."""

    def rows() -> Iterator[list[str]]:
        for name, title in TEXTS.items():
            for short, trained in TRAINED.items():
                comparison = first(f"{name}_{short}")
                dam = comparison["methods"]["dam"]
                plain = points(comparison["methods"]["erm"]["equalized_odds"]["estimate"], "")
                differences = [points(dam[metric]["difference"]) for metric in ("equalized_odds", "accuracy")]
                yield [title, trained, str(len(comparison["seeds"]["dam"])), plain, *differences]

    return table(["data", "trained", "seeds", "EOd of ERM", "EOd, DAM minus ERM", "accuracy"], rows(), 2)


def portraits() -> str:
    """Return the figures of the demonstration."""

    def rows() -> Iterator[list[str]]:
        for record in read_json(ROOT / "results" / "portraits_demo.json")["comparisons"]:
            for method, figures in record["methods"].items():
                row = [record["title"], method]
                for metric in ("accuracy", "equalized_odds"):
                    difference = figures[metric]["difference"]
                    row += [
                        f"{100 * figures[metric]['estimate']['value']:.1f}",
                        points(difference) if difference else "",
                    ]
                yield row

    return table(["setting", "method", "accuracy", "minus plain", "EOd gap", "minus plain"], rows(), 2)


TABLES = {
    "decide_utkface64": lambda: variants("decide_utkface64", matched=False, without=REFITTED_AGAIN),
    "decide_celeba64_attractive": lambda: variants("decide_celeba64_attractive", matched=True, without=REFITTED_AGAIN),
    "decide_celeba64_blond": lambda: variants("decide_celeba64_blond", matched=True, without=REFITTED_AGAIN),
    "rungs_celeba64_attractive": lambda: variants("rungs_celeba64_attractive", matched=True, without=("AFR",)),
    "rungs_celeba64_blond": lambda: variants("rungs_celeba64_blond", matched=True, without=("AFR",)),
    "plugins_celeba64_blond": lambda: variants("plugins_celeba64_blond", matched=True),
    "methods": methods,
    "ablation": ablation,
    "texts": texts,
    "portraits": portraits,
}


def written(page: str) -> str:
    """Return the page with its tables as the files have them."""
    for name, make in TABLES.items():
        block = f"<!-- {name} -->\n{make()}<!-- end -->"
        page, found = re.subn(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, block=block: block, page, flags=re.DOTALL)
        if found != 1:
            raise LookupError(f"results/results.md has {found} places for the table {name}; it needs one")
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
