"""The pages of language models: one of one model or of several side by side, and that of the attention gap."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from levelhead.report.headline import Lead
from levelhead.report.one_page import one_page
from levelhead.report.rows import COLUMNS, MORE
from levelhead.report.text import Record, counted, digits, estimate_from_dict, joined, number, short
from levelhead.types import Estimate

_SURE = {
    "chance": "It could wherever an interval holds the ideal, or 0 for a difference: inconclusive.",
    "caution": "A score near its ideal on one benchmark does not show that a model is free of bias: it is a finding "
    "about these items and this way of asking.",
}
_NAMED = 3
"""Most scores that a sentence names."""
_TOLD = ("title", "caution", "citation", "licence", "url")
_ASKED = ("version", "date", "fingerprint", "revision", "served", "precision", "prompt")
"""What a run records of how its model was asked."""
_P = {"p": "p", "p_holm": "p adjusted by Holm over these tests"}


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
    every = [one | {"benchmark": block["name"]} for block in found for one in block["scores"]]
    main = [one for one in every if one["main"]] or every  # a benchmark of the user's may name none
    pairs = sorted(summary["pairs"], key=lambda one: one["side"] is None)
    said = [block["finding"] for block in found if block.get("finding")]
    if len(names) == 1:
        said += _of_scores(main, names[0], bool(said))
    elif not said:
        said += _of_differences([one for one in pairs if one["side"] is not None], names)
    said += dict.fromkeys(block["caveat"] for block in found if block.get("caveat"))
    figures = [row for block in found for row in (*_of_block(block), *_over_wordings(block))]
    figures += [*map(_of_pair, pairs), *_noisy(summary.get("prompt_noise"), names)]
    titles = {f"model {at}": name if len(names) > 1 else "Value" for at, name in enumerate(names)} | {"ideal": "Ideal"}
    record = {
        "kind": "language models",
        "rows": 0,
        "title": joined(names),
        "about": {"models": joined(names), "data": ", ".join(block["name"] for block in found)},
        "sentences": said,
        "lead": Lead((said[0],), " ".join(said[1:])).to_dict(),
        "each": {"sentences": [note for block in found for note in _notes(block, names)]},
        "warnings": summary["notes"],
        "titles": titles,
        "figures": {"columns": [*COLUMNS, *MORE], "data": figures},
        "facts": [fact for block in found for fact in _facts(block)] + _intervals(figures),
        "sure": _SURE,
    }
    page = one_page(record)
    return page if len(names) > 1 else page | {"kind": "Language model"}


def _row(column: str, who: str | list[str], figure: str, record: Record | float, more: str = "") -> list[Any]:
    """Return a figure as :mod:`levelhead.report.rows` has it, in its own unit."""
    one = record if isinstance(record, dict) else {"value": record, "n": 0}
    ends = [one.get(end) for end in ("value", "low", "high")]
    return [column, who, figure, *ends, one.get("n", 0), one.get("reason"), False, "", more, None]


def _of_block(block: Record) -> Iterator[list[Any]]:
    """Yield the scores of a benchmark by model, and the ideals of main ones."""
    for one in sorted(block["scores"], key=lambda one: not one["main"]):
        name, ranks = spaced(": ".join(filter(None, (one["part"], one["score"])))), one.get("ranks") or ()
        for at, figure in enumerate(one["figures"]):
            rank = "" if at >= len(ranks) else "rank " + "–".join(map(str, dict.fromkeys(ranks[at])))
            if figure is not None:
                yield _row(block["name"], name, f"model {at}", figure, rank)
        if main := one["main"]:
            better = {"high": "larger", "low": "smaller"}.get(main["better"], "none")
            none = {"value": None, "reason": f"{better} is better"}
            yield _row(block["name"], name, "ideal", none if main["ideal"] is None else main["ideal"], main["side"])


def _of_pair(one: Record) -> list[Any]:
    p = "" if one["p_holm"] is None else f"p {number(one['p_holm'], 4)}, adjusted"
    names = [short(one["second"], 60), short(one["first"], 60), " minus "]
    return _row(one["benchmark"], names, _named({**one, "benchmark": ""}), one["difference"], p)


def _over_wordings(block: Record) -> Iterator[list[Any]]:
    """Yield the scores of a benchmark that was asked in several wordings."""
    noise = block.get("prompt_noise") or {"scores": ()}
    for one in noise["scores"]:
        column, name = f"{block['name']}, over {counted(noise['prompts'], 'prompt')}", spaced(one["score"])
        across = f"{one['across']} of {noise['prompts']} prompts across the ideal" if one["across"] else ""
        deviation = "" if one["deviation"] is None else f"deviation {digits(one['deviation'])}"
        yield _row(column, name, "mean, intervals over items", one["items"])
        more = "; ".join(filter(None, (one["verdict"], across, deviation)))
        yield _row(column, name, "mean, intervals over items and wordings", one["both"], more)


def _noisy(found: Sequence[Record] | None, names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the differences of two models over wordings."""
    for one in found or ():
        name = f"{spaced(one['score'])}, mean over wordings"
        yield _row(one["benchmark"], [names[1], names[0], " minus "], name, one["both"], one["verdict"])


def _notes(block: Record, names: Sequence[str]) -> list[str]:
    told_of = [(short(model, 60), note) for model, some in block["notes"].items() for note in some]
    return [note for _, note in told_of] if len(names) == 1 else _grouped(told_of)


def _facts(block: Record) -> Iterator[tuple[str, str]]:
    """Yield what a benchmark is, and how a model was asked."""
    units = _grouped((spaced(score), unit) for score, unit in block["units"].items())
    options = ", ".join(f"{key} {value}" for key, value in (block.get("options") or {}).items() if value)
    limit = f", limit {block['limit']}" if block.get("limit") else ""
    told = {key: block.get(key) for key in (*_TOLD, *_ASKED)} | {"units": " ".join(units), "options": options}
    told["items"] = None if block.get("items") is None else f"{block['items']:,}{limit}"
    for one in block.get("tests") or ():
        p = ", ".join(f"{name} {number(one[key], 4)}" for key, name in _P.items() if one[key] is not None)
        told[f"test over templates: {spaced(one['score'])}"] = f"{counted(one['templates'], 'template')}, {p}"
    noise = block.get("prompt_noise") or {"consistency": {}}
    for key, figure in noise["consistency"].items():
        told[f"share of items with one answer under all {key}"] = figure and _said(figure)
    yield from ((f"{block['name']}: {key}", short(text, 600)) for key, text in told.items() if text)


def _intervals(figures: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """Say what intervals are over, and once why figures have none."""
    few = re.compile(r"(?:.* has )?[\d,]+ (item|cluster)s?, and (\d+) are needed")
    reasons = [row[7] for row in figures if row[3] is not None and row[4] is None and row[7]]
    said = dict.fromkeys(few.sub(r"fewer than \2 \1s", reason.removeprefix("no interval: ")) for reason in reasons)
    over = "The benchmark’s items are drawn again, in clusters where items share a template."
    return [("Intervals over items", over), *([("No interval", f"{'; '.join(said)}.")] if said else [])]


def _of_scores(main: Sequence[Record], name: str, told: bool) -> list[str]:
    """Say which bias scores of a model lie apart from their ideal by more than the benchmarks' items leave open."""
    biases = [(one, estimate_from_dict(one["figures"][0])) for one in main if (one["main"] or {}).get("side") == "bias"]
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
    rest = f"Namely {_some(apart)}." if apart else "That is a finding about these items, not about the model."
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
        lines += [f"Namely {_some(told)}."] if told else []
    return [f"{joined(said)} differ{'s' * (len(pairs) == 1)} measurably between {between}, adjusted by Holm.", *lines]


def _decided(pair: Record) -> bool:
    return pair["p_holm"] is not None and bool(pair["p_holm"] < 0.05)


def _pair_name(one: Record, names: Sequence[str]) -> str:
    between = "" if len(names) == 2 else f", {short(one['second'], 60)} minus {short(one['first'], 60)}"
    return f"{_named(one)}{between}"


def _said(record: Record, *, signed: bool = False) -> str:
    figure = estimate_from_dict(record)
    if not figure.defined:
        return f"undefined ({figure.reason})"
    value, low, high = ("+" * (signed and end > 0) + digits(end) for end in (figure.value, figure.low, figure.high))
    return f"{value}, interval {low} to {high}" if _bounded(figure) else f"{value}, no interval"


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


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Say each text once, behind the names that it is about."""
    names: dict[str, list[str]] = {}
    for name, text in pairs:
        names.setdefault(text.removesuffix("."), []).append(name)
    return [f"{joined([*dict.fromkeys(some)])}: {text}." for text, some in names.items()]


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
    paper = {name: f"; {digits(value)} in the paper, {published['model']}"
             for name, value in published.items() if name in figures}  # fmt: skip
    same = {"benchmark": "attention gap", "part": "", "side": None, "p_holm": None}
    same |= {"first": models.get("before"), "second": models["after"]}
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
