"""Two `lm-bias` runs side by side as one plain dict, for a report page.

Figures are aggregates. Sentences, prompts and generations are never in the summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelhead.arrays import checked
from levelhead.lm.base import Benchmark
from levelhead.lm.benchmarks import class_of
from levelhead.lm.prompts import ONE_WORDING, prompt_differences, prompts_lacking
from levelhead.lm.runner import ScoreDifference, compare_runs, scored, scores_file
from levelhead.metrics import estimate_to_dict
from levelhead.runs.recipe import build_options, refuse_own_code
from levelhead.storage import read_json


@checked
def comparison_summary(before: Path | str, after: Path | str, root: Path | str | None = None) -> dict[str, Any]:
    """Return what two run folders say, as plain JSON.

    Keys::

        kind              "language models"
        before, after     {"folder", "models": {benchmark: name}}
        headlines         list of {"benchmark", "part", "score", "unit", "side": bias | utility | both, "better",
                          "ideal", "before", "after", "difference"}: utility beside bias. "better" is where the ideal
                          lies: high, low, half (0.5), zero. BOLD's gaps are here by domain (side bias, better low)
        benchmarks        list of {"name", "title", "licence", "citation", "url", "caution", "items", "limit",
                          "options", "units": {score: unit}, "notes": {"before": [...], "after": [...]},
                          "overall": [figure, ...], "categories": {part: [figure, ...]}}
                          with figure = {"score", "before", "after", "difference"}
        prompt_noise      what :func:`levelhead.lm.prompts.prompt_differences` finds where both have all wordings
        notes             list of sentences: what has no score in common, or no difference over
                          wordings, and why

    Every "before", "after" and "difference" of a figure is {"value", "low", "high", "n"}, plus "reason" where it, or
    its interval, is undefined, and "corrected" where there is a value with less bias. Undefined numbers are null.
    "difference" is after minus before, drawn over the same items; which needs the data below ``root`` (None:
    ``$LEVELHEAD_DATA``, then ``data``).

    Raises :class:`~levelhead.types.DataError` if the folders share no benchmark, or if options or items differ.
    """
    before, after, root = Path(before), Path(after), None if root is None else Path(root)
    differences, notes = compare_runs(before, after, benchmarks_of(before), root)
    names = list(dict.fromkeys(difference.benchmark for difference in differences))
    records = {name: [read_json(scores_file(folder, name)) for folder in (before, after)] for name in names}
    noise, unequal = _prompt_noise(before, after, names, root)
    by_name = {name: [one for one in differences if one.benchmark == name] for name in names}
    return {
        "kind": "language models",
        "before": {"folder": before.name, "models": {name: records[name][0].get("model") for name in names}},
        "after": {"folder": after.name, "models": {name: records[name][1].get("model") for name in names}},
        "headlines": [line for name in names for line in _headlines(by_name[name], records[name][0])],
        "benchmarks": [_benchmark(name, by_name[name], records[name]) for name in names],
        "prompt_noise": noise,
        "notes": [*notes, *unequal],
    }


def benchmarks_of(folder: Path) -> dict[str, Benchmark]:
    """Return the benchmarks that a run folder has scores of, with the options that they were run with."""
    found: dict[str, Benchmark] = {}
    for name in scored(folder):
        path = scores_file(folder, name)
        record = read_json(path)
        refuse_own_code(path, {"class name": record.get("class", name)})
        if (cls := class_of(record | {"benchmark": name}, running=True)) is not None:
            found[name] = build_options(cls, record.get("options") or {}, str(path))
    return found


def _prompt_noise(
    before: Path, after: Path, names: Sequence[str], root: Path | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the differences over wordings, and notes on what has none although other wordings were asked."""
    found: list[dict[str, Any]] = []
    notes = []
    for name, benchmark in benchmarks_of(before).items():
        if name not in names:
            continue
        lacks = {str(folder): prompts_lacking(benchmark, folder) for folder in (before, after)}
        if any(lacks.values()):
            if set(lacks.values()) != {ONE_WORDING}:
                reasons = " and ".join(f"{folder} {reason}" for folder, reason in lacks.items() if reason)
                notes.append(f"{name}: no difference over wordings, because {reasons}.")
            continue
        found += prompt_differences(benchmark, before, after, root, read_json(scores_file(before, name)).get("limit"))
    return found, notes


def _figures(one: ScoreDifference) -> dict[str, Any]:
    sides = {"before": one.first, "after": one.second, "difference": one.paired}
    return {side: estimate_to_dict(figure) for side, figure in sides.items()}


def _headlines(differences: Sequence[ScoreDifference], record: dict[str, Any]) -> list[dict[str, Any]]:
    found, units, benchmark = [], record["units"], class_of(record)
    for one in differences:
        known = None if benchmark is None else benchmark.headline(one.part, one.score)
        if known is not None:
            side, better, ideal = known
            about = {"benchmark": one.benchmark, "part": one.part, "score": one.score, "unit": units.get(one.score)}
            found.append({**about, "side": side, "better": better, "ideal": ideal, **_figures(one)})
    return found


def _benchmark(name: str, differences: Sequence[ScoreDifference], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    benchmark = class_of(records[0])
    about = benchmark and benchmark.card
    fields = ("title", "licence", "citation", "url", "caution")
    parts: dict[str, list[dict[str, Any]]] = {}
    for one in differences:
        parts.setdefault(one.part, []).append({"score": one.score, **_figures(one)})
    first, second = records
    return {
        "name": name,
        **{field: None if about is None else getattr(about, field) for field in fields},
        "items": first.get("items"),
        "limit": first.get("limit"),
        "options": first.get("options"),
        "units": first["units"],
        "notes": {"before": first["notes"], "after": second["notes"]},
        "overall": parts.pop("", []),
        "categories": parts,
    }
