"""Several models side by side as one plain dict, for a report page: run folders of `lm bench`, or logs of a harness.

Figures are aggregates. Sentences, prompts and generations are never in the summary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from levelhead.arrays import checked
from levelhead.lm.base import Benchmark, Headline, Scores
from levelhead.lm.benchmarks import class_of
from levelhead.lm.intervals import p_value, paired_difference
from levelhead.lm.prompts import prompt_differences
from levelhead.lm.runner import kept_answers, scored, scores_file, take
from levelhead.metrics import estimate_to_dict, holm
from levelhead.metrics.intervals import finite_or_none
from levelhead.runs.options import build_options
from levelhead.runs.recipe import refuse_own_code
from levelhead.storage import read_json, refuse_strange_files
from levelhead.types import ConfigError, DataError, listed

Record = dict[str, Any]
ABOUT = ("title", "licence", "citation", "url", "caution")


@checked
def comparison_summary(
    sources: Sequence[Path | str], root: Path | str | None = None, *, cluster: str = "", by: str = ""
) -> Record:
    """Return what run folders of `lm bench`, or logs of lm-evaluation-harness, say, as plain JSON.

    Keys::

        kind              "language models"
        models            their names: those of the folders, or of the logs' models
        benchmarks        list of {"name", "title", "licence", "citation", "url", "caution", "items", "limit",
                          "options", "units": {score: unit}, "notes": {model: [...]}, "models": {model: its name},
                          "scores": [score, ...]}
                          with score = {"part", "score", "main", "figures": one a model, or null, "ranks"}; "main" is
                          {"side": bias | utility | both, "better", "ideal"} of a main score, else null. "better" is
                          where the ideal lies: high, low, half (0.5), zero. "ranks" of three or more models are
                          [best, worst] that the pairs leave open, else null
        pairs             list of {"benchmark", "part", "score", "side", "first", "second", "difference", "p",
                          "p_holm"}: second minus first over the same items; "side" is null of a score that
                          is no main one, and "p_holm" is adjusted over all pairs of main scores (Holm)
        prompt_noise      of two folders: what levelhead.lm.prompts.prompt_differences finds
        notes             list of sentences: first what is left out, then what has no score in common, and why

    A figure or difference is {"value", "low", "high", "n"}, plus "reason" where it, or its interval, is undefined, and
    "corrected" where there is a value with less bias. Undefined numbers are null. Answers of folders are scored again
    with the data below ``root`` (None: ``$LEVELHEAD_DATA``, then ``data``), over the items that all have answered.
    ``cluster`` and ``by`` are fields of logs, see :func:`levelhead.lm.samples.read_log`.

    Raises :class:`~levelhead.types.DataError` if the folders share no benchmark, or if their options differ.
    """
    if any(not isinstance(source, str | Path) for source in sources):
        raise ConfigError("sources must be a list of paths: folders of `lm bench`, or logs of lm-evaluation-harness.")
    paths = [Path(source) for source in sources]
    logs = [path for path in paths if path.is_file()]
    if not paths or (logs and len(logs) < len(paths)):
        raise ConfigError(
            "Compare folders of `lm bench`, or logs of lm-evaluation-harness: give one or more of a kind."
        )
    if (cluster or by) and not logs:
        raise ConfigError("--cluster and --by are fields of logs: give samples_*.jsonl.")
    found = _of_logs(paths, cluster, by) if logs else _of_runs(paths, None if root is None else Path(root))
    main = [one for one in found["pairs"] if one["side"] is not None]
    for one, adjusted in zip(main, holm([one["p"] for one in main]), strict=True):
        one["p_holm"] = finite_or_none(adjusted)
    for one in found["pairs"]:
        one["p"] = finite_or_none(one["p"])
    for block in found["benchmarks"]:
        for score in block["scores"]:
            key = (block["name"], score["part"], score["score"])
            own = [one for one in main if (one["benchmark"], one["part"], one["score"]) == key]
            score["ranks"] = _ranks(score, own, found["models"])
    return {"kind": "language models", **found}


def _of_logs(paths: Sequence[Path], cluster: str, by: str) -> Record:
    from levelhead.lm.samples import common_documents, names_of, read_log

    logs = [read_log(path, cluster=cluster, by=by) for path in paths]
    common, notes = common_documents(logs)
    names = names_of(logs)
    scores = [log.rows.score(log.task, common) for log in logs]
    every = dict.fromkeys(score for one in scores for score in one.overall)
    main: dict[str, Headline] = {score: known for score in every if (known := logs[0].rows.headline(score)) is not None}
    main = main or dict.fromkeys(every, ("utility", "", None))
    for log, name, one in zip(logs, names, scores, strict=True):
        numbered = [] if name == log.name else [f"{log.path}."]
        notes += [f"{name}: {note}" for note in (*numbered, *log.notes, *one.notes)]
        if absent := [score for score in main if score not in one.overall]:
            notes.append(f"{name} has no {listed(absent)} to compare.")
    about = {"name": logs[0].task, "items": len(common), "notes": {}, "models": dict(zip(names, names, strict=True))}
    block, pairs = _compared(about, lambda part, score: None if part else main.get(score), scores, names)
    told = [*dict.fromkeys(notes)]
    return {"models": names, "benchmarks": [block], "pairs": pairs, "prompt_noise": [], "notes": told}


def _of_runs(folders: Sequence[Path], root: Path | None) -> Record:
    for folder in folders:
        refuse_strange_files(folder)
    there = [scored(folder) for folder in folders]
    shared = [name for name in there[0] if all(name in names for names in there)]
    if not shared:
        theirs = "; ".join(", ".join(names) or "none" for names in there)
        raise DataError(
            f"{listed(map(str, folders))} have no scores of the same benchmark. There: {theirs}. Run `levelhead lm "
            "bench` into all."
        )
    names = [folder.name for folder in folders]
    names = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    found: Record = {"models": names, "benchmarks": [], "pairs": [], "prompt_noise": [], "notes": []}
    only = sorted({name for some in there for name in some} - {*shared})
    if only:
        found["notes"].append(f"Not in every folder, and left out: {listed(only)}.")
    benchmarks = benchmarks_of(folders[0])
    for name in shared:
        records = [read_json(scores_file(folder, name)) for folder in folders]
        _refuse_unlike(name, records, folders)
        if name not in benchmarks:
            found["notes"].append(f"{name}: there is no such benchmark to score with, so it is not compared.")
            continue
        benchmark = benchmarks[name]
        scores, count, left = _rescored(benchmark, folders, root, [record["limit"] for record in records])
        found["notes"] += left
        common = set.intersection(*(set(one.overall) for one in scores)) if scores else set()
        if scores and not common:
            theirs = "; ".join(", ".join(one.overall) or "none" for one in scores)
            found["notes"].append(f"{name}: the models have no score in common ({theirs}).")
        if not common:
            continue
        about = {"name": name, **{field: getattr(benchmark.card, field) for field in ABOUT}, "items": count}
        about |= {key: records[0].get(key) for key in ("limit", "options")}
        about |= {"notes": {model: one["notes"] for model, one in zip(names, records, strict=True)}}
        about |= {"models": {model: one.get("model") for model, one in zip(names, records, strict=True)}}
        block, pairs = _compared(about, benchmark.headline, scores, names)
        found["benchmarks"].append(block)
        found["pairs"] += pairs
        alike = len(folders) == 2 and records[0]["limit"] == records[1]["limit"]
        if alike and all("prompt_noise" in one for one in records):
            found["prompt_noise"] += prompt_differences(benchmark, folders[0], folders[1], root, records[0]["limit"])
    return found


def _rescored(
    benchmark: Benchmark, folders: Sequence[Path], root: Path | None, limits: Sequence[int | None]
) -> tuple[list[Scores], int, list[str]]:
    """Return the scores of each folder over the items that all have answered, their number, and what is left out."""
    known = [limit for limit in limits if limit is not None]
    items = take(benchmark, benchmark.read(root), max(known) if len(known) == len(limits) else None)
    answers = [kept_answers(folder, benchmark, items) for folder in folders]
    common = [item for item in items if all(item.id in own for own in answers)]
    most = max(map(len, answers))
    lacking = [folder.name for folder, own in zip(folders, answers, strict=True) if len(own) < most]
    left = [f"{benchmark.name}: compared over {len(common):,} of {most:,} items; {listed(lacking)} lack the others."]
    scores = [benchmark.score(common, [own[item.id] for item in common]) for own in answers] if common else []
    return scores, len(common), left if len(common) < most else []


def _refuse_unlike(name: str, records: Sequence[Record], folders: Sequence[Path]) -> None:
    """Raise :class:`~levelhead.types.DataError` for runs with other options; given answers have none."""
    asked = [one for one in zip(records, folders, strict=True) if not one[0].get("given")]
    for record, folder in asked[1:]:
        options, first = (each.get("options") or {} for each in (record, asked[0][0]))
        if unlike := [key for key in first | options if first.get(key) != options.get(key)]:
            what = f"{name} was run with another {listed(unlike)} in {asked[0][1]} than in {folder}"
            raise DataError(f"{what}: run one of them again like the other.")


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


def _compared(
    about: Record, headline: Callable[[str, str], Headline | None], scores: Sequence[Scores], names: Sequence[str]
) -> tuple[Record, list[Record]]:
    """Return the scores of all models in a benchmark, and the pairs of each two; of parts for two models alone."""
    each = [{("", score): one for score, one in found.overall.items()} for found in scores]
    for own, found in zip(each, scores, strict=True):
        own |= {(part, score): one for part, some in found.parts.items() for score, one in some.items()}
    rows, pairs = [], []
    for part, score in dict.fromkeys(key for own in each for key in own):
        known, figures = headline(part, score), [own.get((part, score)) for own in each]
        rows.append({"part": part, "score": score, "main": main_of(known)}
                    | {"figures": [None if one is None else estimate_to_dict(one) for one in figures]})  # fmt: skip
        if known is None and len(names) > 2:
            continue
        for (first, a), (second, b) in itertools.combinations(zip(names, figures, strict=True), 2):
            if a is not None and b is not None:
                difference = paired_difference(a, b)
                which = {"benchmark": about["name"], "part": part, "score": score, "side": known and known[0]}
                which |= {"first": first, "second": second, "difference": estimate_to_dict(difference)}
                pairs.append(which | {"p": p_value(difference), "p_holm": None})
    units = {score: unit for one in scores for score, unit in one.units.items()}
    return about | {"units": units, "scores": rows}, pairs


def main_of(known: Headline | None) -> Record | None:
    """Return as JSON what a main score tells of, None for any other."""
    return None if known is None else dict(zip(("side", "better", "ideal"), known, strict=True))


def _ranks(score: Record, pairs: Sequence[Record], names: Sequence[str]) -> list[list[int]] | None:
    """Return the best and the worst rank of each model that the pairs leave open, at 5% after Holm."""
    values = [math.nan if one is None or one["value"] is None else one["value"] for one in score["figures"]]
    known: Mapping[str, Any] = score["main"] or {}
    if len(names) < 3 or any(map(math.isnan, values)) or not known.get("better"):
        return None
    sign = 1.0 if known["better"] == "high" else -1.0
    off = {"half": 0.5, "zero": 0.0}.get(known["better"])
    worth = {
        name: sign * (value if off is None else abs(value - off)) for name, value in zip(names, values, strict=True)
    }
    decided = [sorted((one["first"], one["second"]), key=worth.__getitem__)
               for one in pairs if one["p_holm"] is not None and one["p_holm"] < 0.05]  # fmt: skip
    return [
        [1 + sum(worse == name for worse, _ in decided), len(names) - sum(better == name for _, better in decided)]
        for name in names
    ]
