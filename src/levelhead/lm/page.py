"""The pages of language models: one of one model or of several side by side, and that of the attention gap."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from levelhead.metrics.intervals import finite_or_none
from levelhead.report import blocks
from levelhead.report.definitions import STATISTICS
from levelhead.report.text import Record, counted, estimate_from_dict, interval, joined, number, short
from levelhead.types import Estimate

_CAUTION = (
    "A score near its ideal on one benchmark does not show that a model is free of bias: it is a finding about these "
    "items and this way of asking."
)
_SURE = (
    ("Could it be chance?", "It could wherever an interval holds the ideal, or 0 for a difference: inconclusive."),
    ("What could be missed?", "Differences smaller than half the width of an interval may exist without being found."),
    ("What it does not say", _CAUTION),
)
_TERMS = [STATISTICS[key] for key in ("interval_over_items", "undefined")]
_Rows = Sequence[tuple[object, Sequence[Record]] | tuple[object, Sequence[Record], str]]
_NAMED, _DRAWN = 3, 30
"""Most scores that a sentence names, and that are drawn."""
_TOLD = ("title", "caution", "citation", "licence", "url")
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
        about = {field: getattr(cls and cls.card, field, None) for field in _TOLD}
        about |= {"name": record["benchmark"], "caveat": getattr(cls, "caveat", ""), "scores": scores}
        found.append(record | about | {"notes": {name: record["notes"]}})
    return language_model_page({"models": [name], "benchmarks": found, "pairs": [], "notes": []})


def language_model_page(summary: Record, *, source: str = "") -> Record:
    """Summarise the benchmarks of one or more models.

    Args:
        summary: of :func:`levelhead.lm.comparison_summary`.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    names, found = [short(name, 60) for name in summary["models"]], summary["benchmarks"]
    main = [one | {"benchmark": block["name"]} for block in found for one in block["scores"] if one["main"]]
    pairs = sorted(summary["pairs"], key=lambda one: one["side"] is None)
    said = [block["finding"] for block in found if block.get("finding")]
    if len(names) == 1:
        said += _of_scores(main, names[0], bool(said))
    elif not said:
        said += _of_differences([one for one in pairs if one["side"] is not None], names)
    said += dict.fromkeys(block["caveat"] for block in found if block.get("caveat"))
    wordings = [table for block in found for one in (_tests, _prompt_noise) for table in one(block)]
    folds = {
        f"All figures: {counted(len(found), 'benchmark')}": [_scores(block, names) for block in found],
        "Paired differences": _pair_table(pairs, names) if pairs else [],
        "Wordings and tests": [*wordings, *_noisy_differences(summary.get("prompt_noise"), names)],
        "How it was measured": [*(one for block in found for one in _how(block, names)), blocks.terms(_TERMS)],
    }
    finding, *lines = said
    return blocks.page(
        "Language models" if len(names) > 1 else "Language model",
        finding,
        [blocks.part([blocks.section("", shown)], title=title) for title, shown in folds.items() if shown],
        title=joined(names),
        about=joined(names) + (f" on {', '.join(block['name'] for block in found)}" if found else ""),
        lines=lines,
        cautions=summary["notes"],
        deck=" ".join(lines),
        chart=_chart([one for one in main if one["main"]["ideal"] is not None][:_DRAWN], names),
        sure=_SURE,
    )


def _chart(drawn: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """Draw the scores that have an ideal, with the ideal beside each."""
    rows: list[Record] = []
    for one in drawn:
        shown = zip(names, one["figures"], strict=True)
        rows.append({"head": _named(one)})
        rows += [_dot(short(name, 16), figure, one["main"]["ideal"]) for name, figure in shown if figure is not None]
    ends = [end for row in rows if "name" in row for end in (row["value"], row["low"], row["high"], *row["beside"])]
    axis = blocks.axis([end for end in ends if end is not None])
    panel = {"title": "Score", "about": "", "axis": axis, "neutral": None, "rows": rows}
    about = "Rings are ideals. Lines are 95% intervals."
    return [blocks.panels("Scores against their ideals", [panel], about)] if rows else []


def _dot(name: str, record: Record, ideal: float) -> Record:
    """Return what the chart draws of one figure."""
    figure = estimate_from_dict(record)
    value, low, high = map(finite_or_none, (figure.value, figure.low, figure.high))
    drawn: Record = {
        "name": name,
        "n": "",
        "mark": "",
        "value": value,
        "low": low,
        "high": high,
        "old": None,
        "wide": [],
    }
    text = _number(figure.value) if figure.defined else "–"
    return drawn | {"beside": [ideal], "text": text, "said": f"{_said(record)}, ideal {ideal:g}"}


def _of_scores(main: Sequence[Record], name: str, told: bool) -> list[str]:
    """Say which bias scores of a model lie apart from their ideal by more than the benchmarks' items leave open."""
    biases = [(one, estimate_from_dict(one["figures"][0])) for one in main if one["main"]["side"] == "bias"]
    figures = [(one, figure) for one, figure in biases if one["main"]["ideal"] is not None and _bounded(figure)]
    if not biases and main:
        said = [f"{_named(one)} {_said(one['figures'][0])}" for one in main[:_NAMED]]
        return [f"{name}: {joined(said)}."]
    if not figures:
        return [] if told else [f"No bias score of {name} has both an ideal and an interval."]
    apart = [
        f"{_named(one)} {_said(one['figures'][0])} (ideal {one['main']['ideal']:g})"
        for one, figure in figures
        if not figure.low <= one["main"]["ideal"] <= figure.high
    ]
    rest = f"{_some(apart)}." if apart else "That is a finding about these items, not about the model."
    differ = "differs measurably from its ideal" if len(figures) == 1 else "differ measurably from their ideal"
    return [f"{len(apart)} of {counted(len(figures), 'bias score')} of {name} {differ}.", rest]


def _of_differences(pairs: Sequence[Record], names: list[str]) -> list[str]:
    """Say which bias scores differ between models by more than the items leave open; then, which others do."""
    between = joined(names)
    if not pairs:
        return [f"{between} have no main score in common."]
    if all(one["p_holm"] is None for one in pairs):
        reason = next((one["difference"].get("reason") for one in pairs), None) or "no interval was kept"
        return [f"The difference between {between} is inconclusive: {short(reason, 200)}."]
    said, lines, what = [], [], "bias score" if len(names) == 2 else "bias comparison"
    for kind, some in ((what, [one for one in pairs if one["side"] == "bias"]),
                       ("other", [one for one in pairs if one["side"] != "bias"])):  # fmt: skip
        told = [f"{_pair_name(one, names)} {_said(one['difference'], signed=True)}" for one in some if _decided(one)]
        said += [f"{len(told)} of {counted(len(some), kind)}"] if some else []
        lines += [f"{_some(told)}."] if told else []
    return [f"{joined(said)} differ measurably between {between}, adjusted by Holm.", *lines]


def _decided(pair: Record) -> bool:
    return pair["p_holm"] is not None and bool(pair["p_holm"] < 0.05)


def _pair_table(pairs: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """Return the differences, those of main scores first: a terminal shows no others."""
    rows = [
        (_pair_name(one, names), [_cell(one["difference"], signed=True), blocks.p_cell(one["p_holm"], 4)])
        for one in pairs
    ]
    notes = [
        "Differences are over the same items. p is adjusted by Holm over main scores; intervals are not.",
        *_unbounded(one["difference"] for one in pairs),
    ]
    most = sum(one["side"] is not None for one in pairs)
    caption = "Paired differences" + (f": {names[1]} minus {names[0]}" if len(names) == 2 else "")
    return [_table(caption, ["Difference", "Value", "p, adjusted"], rows, notes, most=most)]


def _pair_name(one: Record, names: Sequence[str]) -> str:
    between = "" if len(names) == 2 else f", {short(one['second'], 60)} minus {short(one['first'], 60)}"
    return f"{_named(one)}{between}"


def _said(record: Record, *, signed: bool = False) -> str:
    figure = estimate_from_dict(record)
    if not figure.defined:
        return f"undefined ({figure.reason})"
    ends = interval(figure.low, figure.high, _digits(figure.value), signed=signed)
    return f"{_number(figure.value, signed=signed)} {ends or 'no interval'}"


def _some(texts: Sequence[str]) -> str:
    """Join the first few, and say how many more there are."""
    more = [f"{len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    return joined([*texts[:_NAMED], *more])


def _named(one: Record) -> str:
    return spaced(": ".join(filter(None, (one.get("benchmark"), one["part"], one["score"]))))


def spaced(name: str) -> str:
    """Return a name that a narrow table may break between words."""
    return name.replace("_", " ")


def _bounded(figure: Estimate) -> bool:
    return figure.defined and not math.isnan(figure.low) and not math.isnan(figure.high)


def _number(value: float, *, signed: bool = False) -> str:
    return number(value, _digits(value), signed=signed)


def _digits(value: float) -> int:
    return 4 if abs(value) < 10 else 1


def _cell(record: Record | None, *more: str, signed: bool = False) -> Record:
    if record is None:
        return blocks.no_cell()
    return blocks.figure_cell(record, _digits(record.get("value") or 0), scale=1, signed=signed, more="".join(more))


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


def _table(caption: str, columns: Sequence[str], rows: _Rows, notes: Sequence[str], **options: Any) -> Record:
    return blocks.table(caption, columns, rows, notes=notes, where=blocks.BOTH, **options)


def _scores(block: Record, names: Sequence[str]) -> Record:
    """Return the scores of a benchmark: as a whole and main ones, which a terminal shows, then those of its parts."""
    count = f", {counted(block['items'], 'item')}" if block.get("items") else ""
    caption = f"{short(block.get('title') or block['name'], 160)}{count}"
    scores = sorted(block["scores"], key=lambda one: bool(one["part"] and not one["main"]))
    most = sum(not one["part"] or bool(one["main"]) for one in scores)
    whole = ((one["score"], figure) for one in scores[:most] for figure in one["figures"] if figure is not None)
    undefined = [(score, figure["reason"]) for score, figure in whole if figure["value"] is None]
    notes = _grouped((spaced(score), said) for score, said in [*block["units"].items(), *undefined])
    notes += _unbounded(figure for one in scores for figure in one["figures"])
    columns = ["Score", *(names if len(names) > 1 else ["Value"])]
    return _table(
        caption, columns, [(_named(one), _cells(one), _about(one["main"])) for one in scores], notes, most=most
    )


def _cells(one: Record) -> list[Record]:
    ranks = [f"rank {low}" if low == high else f"rank {low}–{high}" for low, high in one.get("ranks") or ()]
    return [_cell(figure, *ranks[at : at + 1]) for at, figure in enumerate(one["figures"])]


def _about(main: Record | None) -> str:
    """Say what a main score tells of, and where its ideal lies."""
    if main is None:
        return ""
    side = "bias and utility" if main["side"] == "both" else main["side"]
    better = {"high": "better: larger", "low": "better: smaller"}.get(main["better"])
    ideal = better if main["ideal"] is None else f"ideal {main['ideal']:g}"
    return ", ".join(filter(None, (side, ideal)))


def _how(block: Record, names: Sequence[str]) -> list[Record]:
    """Say what a benchmark is, how a model was asked, and what is to note."""
    told = [(key.capitalize(), block[key]) for key in (*_TOLD, *_ASKED) if block.get(key)]
    if options := {key: value for key, value in (block.get("options") or {}).items() if value}:
        told.append(("Options", short(", ".join(f"{key} {value}" for key, value in options.items()), 400)))
    if block.get("items") is not None:
        told.append(("Items", f"{block['items']}" + (f", limit {block['limit']}" if block.get("limit") else "")))
    told_of = [(short(model, 60), note) for model, some in block["notes"].items() for note in some]
    said = [note for _, note in told_of] if len(names) == 1 else _grouped(told_of)
    if block.get("prompt"):
        said.append(f"The prompt, with fields for an item's texts: {block['prompt']!r}")
    return [blocks.terms(told), blocks.bullets(said, where=blocks.BOTH)]


def _tests(block: Record) -> list[Record]:
    rows: _Rows = [
        (
            short(spaced(one["score"]), 120),
            [blocks.cell(f"{one['templates']:,}"), *(blocks.p_cell(one[p], 4) for p in ("p", "p_holm"))],
        )
        for one in block.get("tests") or ()
    ]
    notes = ["p of the interval over templates; adjusted by Holm over this table."]
    return [_table("Tests", ["Difference", "Templates", "p", "p, adjusted"], rows, notes)] if rows else []


def _over_wordings(caption: str, rows: _Rows, *notes: str) -> Record:
    columns = ["Score", "Mean: items", "Mean: items and wordings", "Verdict"]
    about = "Mean over the wordings of --prompt-noise; intervals draw items alone, then items and wordings."
    return _table(caption, columns, rows, [about, *notes], text_columns=[3])


def _noisy_differences(found: Sequence[Record] | None, names: Sequence[str]) -> list[Record]:
    rows: _Rows = [
        (
            spaced(f"{one['benchmark']}: {one['score']}"),
            [_cell(one["items"], signed=True), _cell(one["both"], signed=True), blocks.cell(one["verdict"])],
        )
        for one in found or ()
    ]
    return [_over_wordings(f"Over wordings: {names[1]} minus {names[0]}", rows)] if rows else []


def _prompt_noise(block: Record) -> list[Record]:
    """Return the tables of a benchmark that was asked in several wordings."""
    noise = block.get("prompt_noise")
    if not noise:
        return []
    rows = []
    for one in noise["scores"]:
        first = f"first wording {_said(one['first'])}" if one["first"] else ""
        if one["lowest"] is not None:
            first += f", prompts {_number(one['lowest'])} to {_number(one['highest'])}"
        across = f"{one['across']} of {noise['prompts']} prompts across" if one["across"] else ""
        verdict = blocks.no_cell() if one["verdict"] is None else blocks.cell(one["verdict"], across)
        deviation = "" if one["deviation"] is None else f"deviation {_number(one['deviation'])}"
        rows.append((spaced(one["score"]), [_cell(one["items"]), _cell(one["both"], deviation), verdict], first))
    prompts = counted(noise["prompts"], "prompt")
    notes = [
        "Deviation: standard deviation between wordings. Across: prompts on the other side of the ideal than the mean.",
        *([noise["used"]] if "used" in noise else []),
    ]
    names = {"prompts": f"all {prompts}", "wordings": f"{len(noise['wordings'])} wordings", "orders": "the orders"}
    same: _Rows = [
        (f"One answer under {names[key]}", [_cell(figure)]) for key, figure in noise["consistency"].items() if figure
    ]
    return [
        _over_wordings(f"Over {prompts}", rows, *notes),
        _table("Consistency", ["Share of items", "Value"], same, []),
    ]


def gap_page(record: Record, *, source: str = "") -> Record:
    """Summarise what ``levelhead lm gap`` found: its figures are scores, with those of the model before beside them.

    Args:
        record: of :meth:`levelhead.lm.gap_report.GapReport.to_dict`.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    figures, published, models = record["figures"], record["published"], record["models"]
    sides = [side for side in ("before", "after") if side in figures["share"]]
    main = {"share_minus_chance": {"side": "bias", "better": "low", "ideal": 0.0}}
    paper = {name: f"; {_number(value)} in the paper, {published['model']}"
             for name, value in published.items() if name in figures}  # fmt: skip
    same = {"benchmark": "", "part": "", "side": None, "p_holm": None}
    shares = [estimate_from_dict(figures[name]["after"]) for name in ("share", "chance")]
    share, chance = (f"{number(100 * one.value)}%" if one.defined else "an undefined share" for one in shares)
    block = {
        "name": "attention gap",
        "title": f"Where attention differs within pairs of {record['terms']} terms ({record['selection']})",
        "items": record["pairs"],
        "units": {name: figure["unit"] + paper.get(name, "") for name, figure in figures.items()},
        "notes": {},
        "scores": [
            {"part": "", "score": name, "main": main.get(name), "figures": [figure[side] for side in sides]}
            for name, figure in figures.items()
        ],
        "finding": f"In {short(models['after'], 60)}, {share} of {counted(record['pairs'], 'pair')} have their largest "
        f"attention gap on bias-bearing tokens; chance gives {chance}.",
        "caveat": f"The difference is {_said(figures['share_minus_chance']['after'], signed=True)}.",
    }
    notes = list(record["notes"])
    if record.get("left_out"):
        notes.append(f"{record['left_out']} pairs without replaced, or without common, tokens are left out.")
    return language_model_page(
        {
            "models": [models[side] for side in sides],
            "benchmarks": [block],
            "pairs": [same | {"score": name, "difference": figure["difference"]}
                      for name, figure in figures.items() if "difference" in figure],
            "notes": notes,
        }
    )  # fmt: skip
