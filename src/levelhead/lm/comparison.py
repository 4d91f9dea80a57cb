"""Two runs of `lm bench` side by side as one plain dict, for a report page.

Figures are aggregates. Sentences, prompts and generations are never in the summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from levelhead.arrays import checked
from levelhead.lm.base import Benchmark, Scores
from levelhead.lm.benchmarks import class_of
from levelhead.lm.intervals import paired_difference
from levelhead.lm.prompts import ONE_WORDING, prompt_differences, prompts_lacking
from levelhead.lm.runner import rescored, scored, scores_file
from levelhead.metrics import estimate_to_dict
from levelhead.runs.recipe import build_options, refuse_own_code
from levelhead.storage import read_json, refuse_strange_files
from levelhead.types import DataError


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
        prompt_noise      what levelhead.lm.prompts.prompt_differences finds where both have all wordings
        notes             list of sentences: what has no score in common, or no difference over
                          wordings, and why

    Every "before", "after" and "difference" of a figure is {"value", "low", "high", "n"}, plus "reason" where it, or
    its interval, is undefined, and "corrected" where there is a value with less bias. Undefined numbers are null.
    "difference" is after minus before, drawn over the same items: answers are scored again with the data below ``root``
    (None: ``$LEVELHEAD_DATA``, then ``data``).

    Raises :class:`~levelhead.types.DataError` if the folders share no benchmark, or if options or items differ.
    """
    folders, root = (Path(before), Path(after)), None if root is None else Path(root)
    for folder in folders:
        refuse_strange_files(folder)
    names = sorted(set(scored(folders[0])) & set(scored(folders[1])))
    if not names:
        theirs = " and ".join(", ".join(scored(folder)) or "none" for folder in folders)
        raise DataError(
            f"{before} and {after} have no scores of the same benchmark. There: {theirs}. Run `levelhead lm bench` "
            "into both."
        )
    found: dict[str, Any] = {"headlines": [], "benchmarks": [], "prompt_noise": [], "notes": []}
    models: tuple[dict[str, Any], ...] = ({}, {})
    benchmarks = benchmarks_of(folders[0])
    for name in names:
        records = [read_json(scores_file(folder, name)) for folder in folders]
        _refuse_unlike(name, records, folders)
        if name not in benchmarks:
            found["notes"].append(f"{name}: there is no such benchmark to score with, so it is not compared.")
            continue
        scores = [rescored(benchmarks[name], folder, root, records[0]["limit"])[1] for folder in folders]
        differences = list(_differences(*scores))
        if not differences:
            theirs = "; ".join(", ".join(one.overall) or "none" for one in scores)
            found["notes"].append(f"{name}: the two models have no score in common ({theirs}).")
            continue
        for model, record in zip(models, records, strict=True):
            model[name] = record.get("model")
        found["headlines"] += _headlines(benchmarks[name], differences, records[0]["units"])
        found["benchmarks"].append(_benchmark(benchmarks[name], differences, records))
        lacks = {str(folder): prompts_lacking(benchmarks[name], folder) for folder in folders}
        if not any(lacks.values()):
            found["prompt_noise"] += prompt_differences(benchmarks[name], *folders, root, records[0]["limit"])
        elif set(lacks.values()) != {ONE_WORDING}:
            reasons = " and ".join(f"{folder} {reason}" for folder, reason in lacks.items() if reason)
            found["notes"].append(f"{name}: no difference over wordings, because {reasons}.")
    named = ({"folder": folder.name, "models": model} for folder, model in zip(folders, models, strict=True))
    return {"kind": "language models", **dict(zip(("before", "after"), named, strict=True)), **found}


def _refuse_unlike(name: str, records: Sequence[dict[str, Any]], folders: Sequence[Path]) -> None:
    """Raise :class:`~levelhead.types.DataError` for runs with other options, or on other items."""
    # Of one benchmark's items a smaller --limit takes some of those of a larger one: equal counts are equal items.
    for key, text in (("options", "other options"), ("items", "another number of items")):
        first, second = (record.get(key) for record in records)
        if first != second:
            raise DataError(
                f"{name} was run with {text} in {folders[0]} ({first}) and in {folders[1]} ({second}): run one of them "
                "again like the other."
            )


def _differences(first: Scores, second: Scores) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield part, score, and the figures of both sides with their difference, as JSON."""
    for part in ["", *(part for part in first.parts if part in second.parts)]:
        before = first.parts[part] if part else first.overall
        after = second.parts[part] if part else second.overall
        for score in (score for score in before if score in after):
            a, b = before[score], after[score]
            sides = {"before": a, "after": b, "difference": paired_difference(a, b)}
            yield part, score, {side: estimate_to_dict(figure) for side, figure in sides.items()}


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


def _headlines(benchmark: Benchmark, differences: Sequence[Any], units: Mapping[str, str]) -> list[dict[str, Any]]:
    found = []
    for part, score, figures in differences:
        if (known := benchmark.headline(part, score)) is not None:
            about = {"benchmark": benchmark.name, "part": part, "score": score, "unit": units.get(score)}
            found.append({**about, **dict(zip(("side", "better", "ideal"), known, strict=True)), **figures})
    return found


def _benchmark(benchmark: Benchmark, differences: Sequence[Any], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    parts: dict[str, list[dict[str, Any]]] = {}
    for part, score, figures in differences:
        parts.setdefault(part, []).append({"score": score, **figures})
    first, second = records
    return {
        "name": benchmark.name,
        **{field: getattr(benchmark.card, field) for field in ("title", "licence", "citation", "url", "caution")},
        **{key: first.get(key) for key in ("items", "limit", "options", "units")},
        "notes": {"before": first["notes"], "after": second["notes"]},
        "overall": parts.pop("", []),
        "categories": parts,
    }
