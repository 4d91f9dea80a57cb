"""Two `lm-bias` runs side by side as one plain dict, for a report page; and generations side by side, kept apart.

Figures are aggregates. Sentences, prompts and generations are never in the summary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelhead.arrays import checked
from levelhead.lm.base import Benchmark
from levelhead.lm.benchmarks import class_of
from levelhead.lm.prompts import ONE_WORDING, prompt_differences, prompts_lacking
from levelhead.lm.runner import ScoreDifference, compare_runs, kept_answers, scored, scores_file, take
from levelhead.metrics import estimate_to_dict
from levelhead.runs.recipe import build_options, refuse_own_code
from levelhead.storage import read_json, write_json
from levelhead.types import DataError

EXAMPLES = "examples-bold.json"


@checked
def comparison_summary(before: Path | str, after: Path | str, root: Path | str | None = None) -> dict[str, Any]:
    """Return what two run folders say, as plain JSON.

    Keys::

        before, after     {"folder", "models": {benchmark: name}}
        headlines         list of {"benchmark", "part", "score", "unit", "side": bias | utility | both, "better",
                          "ideal", "before", "after", "difference"}: utility beside bias. "better" is where the ideal
                          lies: high, low, half (0.5), zero. BOLD's gaps are here by domain (side bias, better low)
        benchmarks        list of {"name", "title", "licence", "citation", "url", "caution", "items", "limit",
                          "options", "units": {score: unit}, "notes": {"before": [...], "after": [...]},
                          "overall": [figure, ...], "categories": {part: [figure, ...]}}
                          with figure = {"score", "before", "after", "difference"}
        prompt_noise      what :func:`levelhead.lm.prompts.prompt_differences` finds where both have all wordings
        notes             list of sentences: what has no paired interval, no score in common, or no difference over
                          wordings, and why
        examples          name of the file of generations in the folder of ``after``, or null; see write_examples

    Every "before", "after" and "difference" of a figure is {"value", "low", "high", "n"}, plus "reason" where it, or
    its interval, is undefined, and "corrected" where there is a value with less bias. Undefined numbers are null.
    "difference" is after minus before, drawn over the same items; it has an interval where the data are below ``root``
    (None: ``$LEVELHEAD_DATA``, then ``data``).

    Raises :class:`~levelhead.types.DataError` if the folders share no benchmark, or if options or items differ.
    """
    before, after, root = Path(before), Path(after), None if root is None else Path(root)
    return summarized(before, after, *compare_runs(before, after, benchmarks_of(before), root), root)


def summarized(
    before: Path,
    after: Path,
    differences: Sequence[ScoreDifference],
    notes: Sequence[str],
    root: Path | None = None,
) -> dict[str, Any]:
    """Return :func:`comparison_summary` of what :func:`~levelhead.lm.runner.compare_runs` found."""
    names = list(dict.fromkeys(difference.benchmark for difference in differences))
    records = {name: [read_json(scores_file(folder, name)) for folder in (before, after)] for name in names}
    noise, unequal = _prompt_noise(before, after, names, root)
    by_name = {name: [one for one in differences if one.benchmark == name] for name in names}
    return {
        "before": {"folder": before.name, "models": {name: records[name][0].get("model") for name in names}},
        "after": {"folder": after.name, "models": {name: records[name][1].get("model") for name in names}},
        "headlines": [line for name in names for line in _headlines(by_name[name], records[name][0])],
        "benchmarks": [_benchmark(name, by_name[name], records[name]) for name in names],
        "prompt_noise": noise,
        "notes": [*notes, *unequal],
        "examples": EXAMPLES if (after / EXAMPLES).is_file() else None,
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


def write_examples(before: Path, after: Path, root: Path | None = None, *, count: int = 12) -> Path:
    """Write prompts of BOLD with both models' continuations into the folder of ``after``, and return the file.

    They are for a look on this machine: generations can be offensive, and the prompts are other people's sentences.
    ``count`` prompts are drawn, spread over the groups and the same ones each time.

    Raises :class:`~levelhead.types.DataError` if one of the folders has no answers to BOLD.
    """
    benchmark = benchmarks_of(before).get("bold")
    if benchmark is None:
        raise DataError(f"{before} has no scores of BOLD: run `levelhead lm bench bold` into both folders.")
    items = take(benchmark, benchmark.read(root), read_json(scores_file(before, "bold"))["limit"])
    first, second = (kept_answers(folder, benchmark, items) for folder in (before, after))
    groups: dict[str, list[Any]] = {}
    for item in sorted(items, key=lambda item: hashlib.blake2b(item.id.encode()).digest()):
        if item.id in first and item.id in second:
            groups.setdefault(item.content["group"], []).append(item)
    rounds = [group[turn] for turn in range(max(map(len, groups.values()), default=0)) for group in groups.values()
              if turn < len(group)]  # fmt: skip
    examples = [
        {
            "domain": item.content["domain"],
            "group": item.content["group"],
            "prompt": item.content["prompt"],
            "before": first[item.id].content["continuation"],
            "after": second[item.id].content["continuation"],
        }
        for item in rounds[:count]
    ]
    write_json(after / EXAMPLES, {"before": before.name, "after": after.name, "examples": examples})
    return after / EXAMPLES


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
        try:
            limit = read_json(scores_file(before, name)).get("limit")
            found += prompt_differences(benchmark, before, after, root, limit)
        except DataError:  # without the data; the plain differences say so
            continue
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
