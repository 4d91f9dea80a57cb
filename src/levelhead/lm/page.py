"""The pages of language models: one of one model or of several side by side, and that of the attention gap."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from levelhead.report import blocks
from levelhead.report.definitions import STATISTICS
from levelhead.report.text import Record, counted, estimate_from_dict, interval, joined, number, short
from levelhead.types import Estimate

_CAUTION = (
    "A score near its ideal on one benchmark does not show that a model is free of bias: it is a finding about these "
    "items and this way of asking."
)
_BETTER = {"high": "larger", "low": "smaller", "half": "nearer to 0.5", "zero": "nearer to 0"}
_SIDES = {"bias": "bias", "utility": "utility", "both": "bias and utility"}
_NAMED = 3
_ASKED = ("version", "date", "fingerprint", "revision", "served", "precision", "prompt")
"""What a run records of how its model was asked."""


def bench_page(record: Record, *, source: str = "") -> Record:
    """Summarise the JSON that ``levelhead lm bench`` wrote of all benchmarks, or of one."""
    records = record.get("benchmarks", [record])
    return scores_page(records, name=str(records[0].get("model") or source))


def scores_page(records: Sequence[Record], *, name: str) -> Record:
    """Summarise what ``levelhead lm bench`` found about one model.

    Args:
        records: one a benchmark, as :func:`levelhead.lm.runner.scores_to_dict` makes them.
        name: of the model, or of the file of answers.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    from levelhead.lm.benchmarks import class_of
    from levelhead.lm.comparison import main_of

    found = []
    for record in records:
        cls = class_of(record)
        scores = [
            {"part": part, "score": score, "main": cls and main_of(cls.headline(part, score)), "figures": [figure]}
            for part, figures in {"": record["overall"], **record["parts"]}.items()
            for score, figure in figures.items()
        ]
        card = {field: getattr(cls and cls.card, field, None) for field in ("title", *_TOLD)}
        about = {
            key: record.get(key) for key in (*_ASKED, "options", "items", "limit", "tests", "prompt_noise", "finding")
        }
        caveat = getattr(cls, "caveat", "")
        found.append(
            {"name": record["benchmark"], **card, **about, "units": record["units"], "caveat": caveat}
            | {"scores": scores, "notes": {name: record["notes"]}}
        )
    return language_model_page({"models": [name], "benchmarks": found, "pairs": [], "notes": []})


def language_model_page(summary: Record, *, source: str = "") -> Record:
    """Summarise the benchmarks of one or more models.

    Args:
        summary: of :func:`levelhead.lm.comparison_summary`.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    names = [short(name, 60) for name in summary["models"]]
    main = [
        one | {"benchmark": block["name"]} for block in summary["benchmarks"] for one in block["scores"] if one["main"]
    ]
    pairs = [one for one in summary["pairs"] if one["side"] is not None]
    found = [*_main_table(main, names), *_pair_table(pairs), *_rank_table(main, names)]
    found += _noisy_differences(summary.get("prompt_noise") or [], names)
    parts = [blocks.part([blocks.section("Utility beside bias", found)])]
    for block in summary["benchmarks"]:
        between = [one for one in summary["pairs"] if one["benchmark"] == block["name"]] if len(names) == 2 else []
        parts.append(blocks.part(_benchmark(block, names, between), title=block.get("title") or block["name"]))
    listed = ", ".join(block["name"] for block in summary["benchmarks"])
    terms = [STATISTICS[key] for key in ("interval_over_items", "undefined")]
    parts.append(blocks.part([blocks.section("Definitions", [blocks.terms(terms), blocks.paragraph(_CAUTION)])]))
    return blocks.page(
        "Language models" if len(names) > 1 else "Language model",
        _sentence(summary, main, pairs, names),
        parts,
        title=joined(names),
        about=joined(names) + (f" on {listed}" if listed else ""),
        cautions=summary["notes"],
    )


def _sentence(summary: Record, main: Sequence[Record], pairs: Sequence[Record], names: list[str]) -> str:
    """Say first what a model did not do; then which bias scores lie apart from their ideal, or differ."""
    if len(names) > 1:
        return _differences_sentence(pairs, names)
    first = " ".join(block["finding"] for block in summary["benchmarks"] if block.get("finding"))
    caveat = " ".join(dict.fromkeys(block["caveat"] for block in summary["benchmarks"] if block.get("caveat")))
    return " ".join(filter(None, (first, _scores_sentence(main, names[0], bool(first)), caveat)))


def _scores_sentence(main: Sequence[Record], name: str, told: bool) -> str:
    """Say which bias scores of a model lie apart from their ideal by more than the benchmarks' items leave open."""
    biases = [(one, estimate_from_dict(one["figures"][0])) for one in main if one["main"]["side"] == "bias"]
    figures = [(one, figure) for one, figure in biases if one["main"]["ideal"] is not None and _bounded(figure)]
    if not biases and main:
        said = [f"{_named(one)} {_said(one['figures'][0])}" for one in main[:_NAMED]]
        return f"{name}: {joined(said)}."
    if not figures:
        return "" if told else f"No bias score of {name} has both an ideal and an interval."
    apart = [
        f"{_named(one)} ({_number(figure.value)}, interval {_span(figure)}, ideal {one['main']['ideal']:g})"
        for one, figure in figures
        if not figure.low <= one["main"]["ideal"] <= figure.high
    ]
    rest = f": {_some(apart)}." if apart else "; that is a finding about these items, not about the model."
    differ = "differs measurably from its ideal" if len(figures) == 1 else "differ measurably from their ideal"
    return f"{len(apart)} of {counted(len(figures), 'bias score')} of {name} {differ}{rest}"


def _differences_sentence(pairs: Sequence[Record], names: list[str]) -> str:
    """Say which bias scores differ between models by more than the items leave open; then, which others do."""
    between = joined(names)
    if not pairs:
        return f"{between} have no main score in common."
    if all(one["p_holm"] is None for one in pairs):
        reason = next((one["difference"].get("reason") for one in pairs), None) or "no interval was kept"
        return f"The difference between {between} is inconclusive: {short(reason, 200)}."
    said, what = [], "bias score" if len(names) == 2 else "bias comparison"
    for kind, some in ((what, [one for one in pairs if one["side"] == "bias"]),
                       ("other", [one for one in pairs if one["side"] != "bias"])):  # fmt: skip
        decided = [one for one in some if _decided(one)]
        told = [f"{_pair_name(one, names)} {_said(one['difference'], signed=True)}" for one in decided]
        said += (
            [f"{len(decided)} of {counted(len(some), kind)}" + (f" ({_some(told)})" if told else "")] if some else []
        )
    return f"{joined(said)} differ measurably between {between} (adjusted by Holm)."


def _decided(pair: Record) -> bool:
    return pair["p_holm"] is not None and bool(pair["p_holm"] < 0.05)


def _main_table(main: Sequence[Record], names: Sequence[str]) -> list[Record]:
    if not main:
        return []
    rows: list[tuple[object, Sequence[Record]]] = [
        (_named(one), [_about(one["main"]), *map(_cell, one["figures"])]) for one in main
    ]
    notes = ["95% intervals are unadjusted.", *_unbounded(figure for one in main for figure in one["figures"])]
    columns = ["Score", "Tells of", *(names if len(names) > 1 else ["Value"])]
    return [blocks.table("The main scores", columns, rows, notes=notes, text_columns=[1], where=blocks.BOTH)]


def _pair_table(pairs: Sequence[Record]) -> list[Record]:
    if not pairs:
        return []
    rows: list[tuple[object, Sequence[Record]]] = [
        (_pair_name(one), [_cell(one["difference"], signed=True), blocks.p_cell(one["p_holm"], 4)]) for one in pairs
    ]
    notes = [
        "Differences are over the same items. p is adjusted by Holm over this table; intervals are not.",
        *_unbounded(one["difference"] for one in pairs),
    ]
    columns = ["Difference", "Value", "p, adjusted"]
    return [blocks.table("Paired differences", columns, rows, notes=notes, where=blocks.BOTH)]


def _rank_table(main: Sequence[Record], names: Sequence[str]) -> list[Record]:
    rows: list[tuple[object, Sequence[Record]]] = [
        (_named(one), [blocks.cell(f"{low}" if low == high else f"{low}–{high}") for low, high in one["ranks"]])
        for one in main
        if one.get("ranks")
    ]
    notes = ["1 is nearest to the ideal. The range is what the paired differences leave open, at 5% after Holm."]
    return [blocks.table("Ranks", ["Score", *names], rows, notes=notes, where=blocks.BOTH)] if rows else []


def _pair_name(one: Record, names: Sequence[str] = ()) -> str:
    between = "" if len(names) == 2 else f", {short(one['second'], 60)} minus {short(one['first'], 60)}"
    return f"{_named(one)}{between}"


def _said(record: Record, *, signed: bool = False) -> str:
    figure = estimate_from_dict(record)
    if not figure.defined:
        return f"undefined ({figure.reason})"
    return f"{_number(figure.value, signed=signed)} {_span(figure, signed=signed) or 'no interval'}"


def _some(texts: Sequence[str]) -> str:
    """Join the first few, and say how many more there are."""
    more = [f"{len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    return joined([*texts[:_NAMED], *more])


def _named(one: Record) -> str:
    return spaced(": ".join(filter(None, (one["benchmark"], one["part"], one["score"]))))


def spaced(name: str) -> str:
    """Return a name that a narrow table may break between words."""
    return name.replace("_", " ")


def _bounded(figure: Estimate) -> bool:
    return figure.defined and not math.isnan(figure.low) and not math.isnan(figure.high)


def _number(value: float, *, signed: bool = False) -> str:
    return number(value, _digits(value), signed=signed)


def _digits(value: float) -> int:
    return 4 if abs(value) < 10 else 1


def _span(figure: Estimate, *, signed: bool = False) -> str:
    return interval(figure.low, figure.high, _digits(figure.value), signed=signed)


def _cell(record: Record | None, *, signed: bool = False) -> Record:
    if record is None:
        return blocks.no_cell()
    return blocks.figure_cell(record, _digits(record.get("value") or 0), scale=1, signed=signed)


def _about(main: Record) -> Record:
    ideal = "" if main["ideal"] is None or main["better"] in ("half", "zero") else f" ({main['ideal']:g})"
    better = f"better: {_BETTER[main['better']]}{ideal}" if main["better"] else ""
    return blocks.cell(_SIDES[main["side"]], better)


def _unbounded(records: Iterable[Record | None]) -> list[str]:
    """Say once why figures have no interval."""
    figures = [estimate_from_dict(record) for record in records if record is not None]
    without = (one.reason for one in figures if one.defined and not _bounded(one) and one.reason)
    few = re.compile(r"(?:.* has )?[\d,]+ (item|cluster)s?, and (\d+) are needed")
    reasons = dict.fromkeys(few.sub(r"fewer than \2 \1s", reason.removeprefix("no interval: ")) for reason in without)
    return [f"No interval: {reason}." for reason in reasons]


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Say each text once, behind the names that it is about."""
    names: dict[str, list[str]] = {}
    for name, text in pairs:
        names.setdefault(text.removesuffix("."), []).append(name)
    return [f"{joined([*dict.fromkeys(some)])}: {text}." for text, some in names.items()]


_TOLD = ("caution", "citation", "licence", "url")


def _benchmark(block: Record, names: Sequence[str], pairs: Sequence[Record]) -> list[Record]:
    """Return the sections of a benchmark: its scores, what it is, and notes; ``pairs`` of two models."""
    differences = {(one["part"], one["score"]): one["difference"] for one in pairs}
    columns = [*(names if len(names) > 1 else ["Value"]), *(["Difference"] if pairs else [])]

    def cells(one: Record) -> list[Record]:
        beside = [_cell(differences.get((one["part"], one["score"])), signed=True)] if pairs else []
        return [*map(_cell, one["figures"]), *beside]

    whole = [one for one in block["scores"] if not one["part"]]
    count = f", {counted(block['items'], 'item')}" if block.get("items") else ""
    caption = f"The whole of {short(block['name'], 60)}{count}"
    undefined = [(spaced(one["score"]), figure["reason"]) for one in whole for figure in one["figures"]
                 if figure is not None and figure["value"] is None]  # fmt: skip
    notes = [*_grouped((spaced(score), unit) for score, unit in block["units"].items()), *_grouped(undefined),
             *_unbounded(figure for one in block["scores"] for figure in one["figures"])]  # fmt: skip
    notes += [f"Differences are {names[1]} minus {names[0]}."] if pairs else []
    rows = [(spaced(one["score"]), cells(one)) for one in whole]
    where = blocks.PAGE if all(one["main"] for one in whole) and not pairs else blocks.BOTH
    found = [blocks.table(caption, ["Score", *columns], rows, notes=notes, where=where)] if whole else []
    found += [*_tests(block.get("tests") or []), *_prompt_noise(block.get("prompt_noise"))]
    by_score: dict[str, list[Record]] = {}
    for one in block["scores"]:
        if one["part"]:
            by_score.setdefault(spaced(one["score"]), []).append(one)
    for score, some in by_score.items():
        title, rows = f"{score} by category", [(spaced(one["part"]), cells(one)) for one in some]
        found.append(blocks.table(title, ["Category", *columns], rows, folded=title, notes=[] if found else notes))
    told = [(key.capitalize(), block[key]) for key in (*_TOLD, *_ASKED) if block.get(key)]
    if options := {key: value for key, value in (block.get("options") or {}).items() if value}:
        told.append(("Options", short(", ".join(f"{key} {value}" for key, value in options.items()), 400)))
    if block.get("items") is not None:
        told.append(("Items", f"{block['items']}" + (f", limit {block['limit']}" if block.get("limit") else "")))
    sections = [blocks.section("Scores", found), blocks.section("About it", [blocks.terms(told)] if told else [])]
    told_of = [(short(model, 60), note) for model, some in block["notes"].items() for note in some]
    said = [note for _, note in told_of] if len(names) == 1 else _grouped(told_of)
    if block.get("prompt"):
        said.append(f"The prompt, with fields for an item's texts: {block['prompt']!r}")
    return [*sections, blocks.section("Notes", [blocks.bullets(said, where=blocks.BOTH)])] if said else sections


def _noisy_differences(found: Sequence[Record], names: Sequence[str]) -> list[Record]:
    if not found:
        return []
    rows: list[tuple[object, Sequence[Record]]] = [
        (
            spaced(f"{one['benchmark']}: {one['score']}"),
            [_cell(one["items"], signed=True), _cell(one["both"], signed=True), blocks.cell(one["verdict"])],
        )
        for one in found
    ]
    caption = f"Over wordings: {names[1]} minus {names[0]}"
    columns = ["Score", "Mean: items", "Mean: items and wordings", "Verdict"]
    notes = ["Mean over the wordings of --prompt-noise; intervals draw items alone, then items and wordings."]
    return [blocks.table(caption, columns, rows, notes=notes, text_columns=[2], where=blocks.BOTH)]


def _tests(tests: Sequence[Record]) -> list[Record]:
    if not tests:
        return []
    rows: list[tuple[object, Sequence[Record]]] = [
        (
            short(spaced(one["score"]), 120),
            [
                blocks.cell(f"{one['templates']:,}"),
                *(blocks.p_cell(one[p], 4) for p in ("p", "p_holm")),
            ],
        )
        for one in tests
    ]
    notes = ["p of the interval over templates; adjusted by Holm over this table."]
    columns = ["Difference", "Templates", "p", "p, adjusted"]
    return [blocks.table("Tests", columns, rows, notes=notes, where=blocks.BOTH)]


def _prompt_noise(noise: Record | None) -> list[Record]:
    """Return the tables of a benchmark that was asked in several wordings."""
    if not noise:
        return []
    rows: list[tuple[object, Sequence[Record]]] = []
    for one in noise["scores"]:
        extent = "" if one["lowest"] is None else f"{_number(one['lowest'])} to {_number(one['highest'])}"
        deviation = blocks.no_cell() if one["deviation"] is None else blocks.cell(_number(one["deviation"]), extent)
        across = f"{one['across']} of {noise['prompts']} prompts across" if one["across"] else ""
        verdict = blocks.no_cell() if one["verdict"] is None else blocks.cell(one["verdict"], across)
        figures = [_cell(one["first"]), _cell(one["items"]), _cell(one["both"])]
        rows.append((spaced(one["score"]), [*figures, deviation, verdict]))
    prompts = counted(noise["prompts"], "prompt")
    columns = ["Score", "First wording", "Mean: items", "Mean: items and wordings", "Deviation", "Against the ideal"]
    notes = [
        "Mean over wordings; its interval draws items alone, then items and wordings. Deviation: standard deviation "
        "between wordings, and the range over prompts. Across: prompts on the other side of the ideal than the mean.",
    ]
    names = {"prompts": f"all {prompts}", "wordings": f"{len(noise['wordings'])} wordings", "orders": "the orders"}
    same: list[tuple[object, Sequence[Record]]] = [
        (f"One answer under {names[key]}", [_cell(figure)]) for key, figure in noise["consistency"].items() if figure
    ]
    notes += [noise["used"]] if "used" in noise else []
    return [
        blocks.table(f"Over {prompts}", columns, rows, notes=notes, text_columns=[4], where=blocks.BOTH),
        blocks.table("Consistency", ["Share of items", "Value"], same, where=blocks.BOTH),
    ]


def gap_page(record: Record, *, source: str = "") -> Record:
    """Summarise what ``levelhead lm gap`` found.

    Args:
        record: of :meth:`levelhead.lm.gap_report.GapReport.to_dict`.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    sides = [side for side in ("before", "after", "difference") if side in record["figures"]["share"]]
    heads = {"before": "Before", "after": "After" if len(sides) > 1 else "Value", "difference": "Difference"}
    published = record["published"]
    rows: list[tuple[object, Sequence[Record]]] = []
    for name, figure in record["figures"].items():
        cells = [_cell(figure[side], signed=side == "difference") for side in sides]
        cells.append(blocks.cell(_number(published[name])) if name in published else blocks.no_cell())
        rows.append((name.replace("_", " "), cells))
    columns = ["Figure", *(heads[side] for side in sides), f"Paper, {published['model']}"]
    notes = [f"{name.replace('_', ' ')}: {figure['unit']}." for name, figure in record["figures"].items()]
    if record.get("left_out"):
        notes.append(f"{record['left_out']} pairs without replaced, or without common, tokens are left out.")
    about = f"{counted(record['pairs'], 'pair')} of {record['terms']} terms ({record['selection']})"
    caption = f"Where attention differs within pairs: {about}"
    found = [blocks.table(caption, columns, rows, notes=notes, where=blocks.BOTH)]
    share, chance = (estimate_from_dict(record["figures"][name]["after"]) for name in ("share", "chance"))
    beyond = estimate_from_dict(record["figures"]["share_minus_chance"]["after"])
    model = short(record["models"]["after"], 60)
    finding = (
        f"In {model} the largest attention gap of a pair lies on bias-bearing tokens in {100 * share.value:.1f}% of "
        f"{record['pairs']:,} pairs, by chance in {100 * chance.value:.1f}%: difference "
        f"{number(100 * beyond.value, signed=True)} points, interval "
        f"{interval(100 * beyond.low, 100 * beyond.high, signed=True) or 'unknown'}."
        if share.defined and chance.defined and beyond.defined
        else f"No share of pairs is defined for {model}."
    )
    return blocks.page(
        "Attention gap",
        finding,
        [blocks.part([blocks.section("Figures", found)])],
        title=model,
        about=about,
        cautions=record["notes"],
    )
