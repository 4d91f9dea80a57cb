"""What per-item logs of one task say about one or several models: a plain dict, and its page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from levelhead.lm.intervals import FEW_CLUSTERS, at_level, cluster_count, p_value, paired_difference
from levelhead.lm.page import spaced
from levelhead.metrics import estimate_to_dict, holm
from levelhead.metrics.intervals import finite_or_none
from levelhead.report import blocks
from levelhead.report.text import Record, counted, estimate_from_dict, interval, joined, number, short

if TYPE_CHECKING:
    from levelhead.lm.samples import SampleLog

DIGITS = 3


def samples_summary(logs: Sequence[SampleLog]) -> dict[str, Any]:
    """Score the documents that all logs hold, and compare every two models over them.

    Keys::

        task, documents   name of the task, and number of common documents
        logs              list of {"name", "file", "lines", "scores", "worst"}: scores of
                          :func:`~levelhead.lm.runner.scores_to_dict`; worst: list of {"score", "part", "of", "figure"},
                          whose interval is adjusted for the choice among ``of`` categories (Bonferroni)
        headlines         names of the main scores of any log
        differences       list of {"score", "first", "second", "difference", "p", "p_holm"}: second minus first over the
                          same documents; ``p_holm`` is adjusted over the whole list (Holm)
        notes             list of sentences

    Raises the errors of :func:`~levelhead.lm.samples.common_documents`.
    """
    from levelhead.lm.runner import scores_to_dict
    from levelhead.lm.samples import common_documents, worst_parts

    common, notes = common_documents(logs)
    names = _names(logs)
    scores = [log.rows.score(log.task, common) for log in logs]
    every = dict.fromkeys(score for found in scores for score in found.overall)
    known = {score: headline for log in logs for score, headline in log.rows.headlines.items()}
    headlines = {score: headline for score, headline in known.items() if score in every}
    main = list(headlines or every)
    records = []
    for log, name, found in zip(logs, names, scores, strict=True):
        numbered = [] if name == log.name else [f"{log.path}."]
        notes += [f"{name}: {note}" for note in (*numbered, *log.notes, *found.notes)]
        if absent := [score for score in main if score not in found.overall]:
            notes.append(f"{name} has no {joined(absent)} to compare.")
        few = [each for figure in found.overall.values() if (each := cluster_count(figure)) and each < FEW_CLUSTERS]
        if few:
            notes.append(f"{name}: {min(few)} documents or templates are too few for an interval.")
        worst = [
            {"score": score, "part": part, "of": of}
            | {"figure": estimate_to_dict(at_level(found.parts[part][score], 1 - 0.05 / of))}
            for score, part, of in worst_parts(found, headlines)
        ]
        about = {"name": name, "file": log.path.name, "lines": log.lines}
        records.append({**about, "scores": scores_to_dict(found), "worst": worst})
    differences: list[dict[str, Any]] = []
    for (first, one), (second, other) in itertools.combinations(list(zip(names, scores, strict=True)), 2):
        for score in (score for score in main if score in one.overall and score in other.overall):
            paired = paired_difference(one.overall[score], other.overall[score])
            both = {"score": score, "first": first, "second": second, "difference": estimate_to_dict(paired)}
            differences.append(both | {"p": p_value(paired)})
    for found_p, adjusted in zip(differences, holm([each["p"] for each in differences]), strict=True):
        found_p |= {"p": finite_or_none(found_p["p"]), "p_holm": finite_or_none(adjusted)}
    return {
        "kind": "sample logs",
        "task": logs[0].task,
        "documents": len(common),
        "logs": records,
        "headlines": main,
        "differences": differences,
        "notes": list(dict.fromkeys(notes)),
    }


def _names(logs: Sequence[SampleLog]) -> list[str]:
    """Return the models' names, numbered where two are alike."""
    plain = [log.name for log in logs]
    return [name if plain.count(name) == 1 else f"{name}, log {at}" for at, name in enumerate(plain, start=1)]


def samples_page(record: Record, *, source: str = "") -> Record:
    """Summarise what :func:`samples_summary` returns, as a plain dict for :func:`levelhead.report.render`."""
    names = [short(log["name"], 60) for log in record["logs"]]
    found = [*_scores(record, names), *_differences(record)]
    sections = [
        blocks.section("Scores", found),
        blocks.section("Categories", [*_worst(record), *_categories(record, names)]),
        blocks.section("Notes", [blocks.bullets(record["notes"], where=blocks.BOTH)] if record["notes"] else []),
    ]
    about = f"{record['task']}: {counted(record['documents'], 'document')}, {joined(names)}"
    return blocks.page(
        "Sample logs", samples_sentence(record), [blocks.part(sections)], title=record["task"], about=about,
    )  # fmt: skip


def samples_sentence(record: Record) -> str:
    """Say what the models score, or which of them differ."""
    task, logs = record["task"], record["logs"]
    if len(logs) == 1:
        said = [f"{spaced(score)} {_figure(logs[0]['scores']['overall'][score])}" for score in record["headlines"][:3]]
        return f"{short(logs[0]['name'], 60)} on {task}, {counted(record['documents'], 'document')}: {joined(said)}."
    apart = [one for one in record["differences"] if one["p_holm"] is not None and one["p_holm"] < 0.05]
    of = counted(len(record["differences"]), "paired difference")
    if not apart:
        return f"On {task} none of {of} between models is decided at 5% after Holm's correction."
    said = [
        f"{spaced(one['score'])}, {short(one['second'], 60)} minus {short(one['first'], 60)}: "
        f"{_figure(one['difference'], signed=True)}"
        for one in apart
    ]
    more = [f"{len(said) - 3} more"] if len(said) > 3 else []
    return f"On {task} {len(apart)} of {of} are decided at 5% after Holm's correction: {joined([*said[:3], *more])}."


def _figure(figure: Record, *, signed: bool = False) -> str:
    found = estimate_from_dict(figure)
    if not found.defined:
        return f"undefined ({found.reason})"
    ends = interval(found.low, found.high, DIGITS, signed=signed) or "no interval"
    return f"{number(found.value, DIGITS, signed=signed)} {ends}"


def _cell(figure: Record | None, *, signed: bool = False) -> Record:
    return blocks.no_cell() if figure is None else blocks.figure_cell(figure, DIGITS, scale=1, signed=signed)


def _scores(record: Record, names: Sequence[str]) -> list[Record]:
    every = dict.fromkeys(score for log in record["logs"] for score in log["scores"]["overall"])
    rows = [(spaced(score), [_cell(log["scores"]["overall"].get(score)) for log in record["logs"]]) for score in every]
    units = {score: unit for log in record["logs"] for score, unit in log["scores"]["units"].items()}
    notes = ["95% intervals, unadjusted."]
    for unit in dict.fromkeys(units.values()):
        of = [spaced(score) for score, one in units.items() if one == unit]
        notes.append(f"{'All' if len(of) == len(units) else joined(of)}: {unit}.")
    caption = f"{record['task']}, {counted(record['documents'], 'document')}"
    return [blocks.table(caption, ["Score", *names], rows, notes=notes, where=blocks.BOTH)]


def _differences(record: Record) -> list[Record]:
    if not record["differences"]:
        return []
    rows = [
        (
            f"{spaced(one['score'])}: {short(one['second'], 60)} minus {short(one['first'], 60)}",
            [
                _cell(one["difference"], signed=True),
                blocks.p_cell(one["p_holm"], 4),
            ],
        )
        for one in record["differences"]
    ]
    notes = [
        "Differences are over the same documents. p is adjusted by Holm over this table; intervals are unadjusted."
    ]
    columns = ["Difference", "Value", "p, adjusted"]
    return [blocks.table("Paired differences", columns, rows, notes=notes, where=blocks.BOTH)]


def _worst(record: Record) -> list[Record]:
    rows = [
        (
            f"{short(log['name'], 60)}: {spaced(one['score'])}",
            [blocks.cell(spaced(one["part"]), f"(of {one['of']})"), _cell(one["figure"])],
        )
        for log in record["logs"]
        for one in log["worst"]
    ]
    if not rows:
        return []
    notes = ["Intervals are adjusted for the choice. Categories of fewer than ten clusters do not take part."]
    columns = ["Score", "Category", "Value"]
    return [blocks.table("Worst category", columns, rows, notes=notes, text_columns=[1], where=blocks.BOTH)]


def _categories(record: Record, names: Sequence[str]) -> list[Record]:
    found = []
    for score in record["headlines"]:
        parts = dict.fromkeys(part for log in record["logs"] for part in log["scores"]["parts"])
        figures = {part: [log["scores"]["parts"].get(part, {}).get(score) for log in record["logs"]] for part in parts}
        rows = [(spaced(part), [_cell(one) for one in some]) for part, some in figures.items() if any(some)]
        if all(figure is None or figure["value"] is None for some in figures.values() for figure in some):
            continue
        if rows:
            caption = f"{spaced(score)} by category"
            found.append(blocks.table(caption, ["Category", *names], rows, where=blocks.BOTH))
    return found
