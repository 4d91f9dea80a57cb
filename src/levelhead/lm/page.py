"""The pages of language models: one on benchmarks, two side by side, several by their logs, and the attention gap."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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
_SHOWN = ("before", "after", "difference")
_NAMED = 3


def language_model_page(summary: Record, *, source: str = "") -> Record:
    """Summarise what ``levelhead lm compare`` found.

    Args:
        summary: of :func:`levelhead.lm.comparison_summary`.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    names = short(summary["before"]["folder"], 60), short(summary["after"]["folder"], 60)
    main = [*_headlines(summary["headlines"], names), *_noisy_differences(summary.get("prompt_noise") or [], names)]
    parts = [blocks.part([blocks.section("Utility beside bias", main)])]
    for benchmark in summary["benchmarks"]:
        parts.append(blocks.part(_benchmark(benchmark, names), title=benchmark.get("title") or benchmark["name"]))
    listed = ", ".join(benchmark["name"] for benchmark in summary["benchmarks"])
    return blocks.page(
        "Language models",
        language_model_sentence(summary["headlines"], names),
        [*parts, _definitions()],
        title=f"{names[0]} and {names[1]}",
        about=f"{names[0]} and {names[1]}" + (f" on {listed}" if listed else ""),
        cautions=summary["notes"],
    )


def bench_page(record: Record, *, source: str = "") -> Record:
    """Summarise the JSON that ``levelhead lm bench`` wrote of all benchmarks, or of one."""
    records = record.get("benchmarks", [record])
    name = records[0].get("model") or record.get("predictions") or source
    return scores_page(records, name=str(name))


def scores_page(records: Sequence[Record], *, name: str) -> Record:
    """Summarise what ``levelhead lm bench`` found about one model.

    Args:
        records: one a benchmark, as :func:`levelhead.lm.runner.scores_to_dict` makes them.
        name: of the model, or of the file of answers.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    from levelhead.lm.benchmarks import class_of

    main = []
    classes = [class_of(record) for record in records]
    for record, benchmark in zip(records, classes, strict=True):
        for part, figures in {"": record["overall"], **record["parts"]}.items():
            for score, figure in figures.items():
                known = None if benchmark is None else benchmark.headline(part, score)
                if known is not None:
                    which = {"benchmark": record["benchmark"], "part": part, "score": score, "figure": figure}
                    main.append(which | dict(zip(("side", "better", "ideal"), known, strict=True)))
    rows: list[tuple[object, Sequence[Record]]] = [(_named(one), [_about(one), _cell(one["figure"])]) for one in main]
    notes = ["95% intervals are unadjusted.", *_unbounded(one["figure"] for one in main)]
    shown = blocks.table("The main scores", ["Score", "Tells of", "Value"], rows, notes=notes, text_columns=[1])
    parts = [blocks.part([blocks.section("Utility beside bias", [shown])])]
    for record, benchmark in zip(records, classes, strict=True):
        card = benchmark and benchmark.card
        about: Record = {field: getattr(card, field, None) for field in ("caution", "citation", "licence", "url")}
        about |= {"items": record.get("items"), "limit": record.get("limit")}
        parts.append(blocks.part(_scores(record, about), title=getattr(card, "title", "") or record["benchmark"]))
    model, listed = short(name, 60), ", ".join(record["benchmark"] for record in records)
    return blocks.page(
        "Language model",
        scores_sentence(main, model),
        [*parts, _definitions()],
        title=model,
        about=f"{model} on {listed}",
    )


def scores_sentence(main: Sequence[Record], name: str) -> str:
    """Say which bias scores of a model lie apart from their ideal by more than the benchmarks' items leave open."""
    figures = [
        (one, figure)
        for one in main
        if one["side"] != "utility"
        and one["ideal"] is not None
        and _bounded(figure := estimate_from_dict(one["figure"]))
    ]
    if not figures:
        return f"No bias score of {name} has both an ideal and an interval."
    apart = [(one, figure) for one, figure in figures if not figure.low <= one["ideal"] <= figure.high]
    named = [
        f"{_named(one)} ({_number(figure.value)}, interval {_span(figure)}, ideal {one['ideal']:g})"
        for one, figure in apart
    ]
    told = f": {_some(named)}." if named else "; that is a finding about these items, not about the model."
    differ = "differs measurably from its ideal" if len(figures) == 1 else "differ measurably from their ideal"
    return f"{len(apart)} of {counted(len(figures), 'bias score')} of {name} {differ}{told}"


def samples_page(record: Record, *, source: str = "") -> Record:
    """Summarise what :func:`levelhead.lm.samples.samples_summary` returns."""
    names = [short(log["name"], 60) for log in record["logs"]]
    scores = [log["scores"] for log in record["logs"]]
    caption = f"{record['task']}, {counted(record['documents'], 'document')}"
    units = {score: unit for one in scores for score, unit in one["units"].items()}
    notes = ["95% intervals, unadjusted.", *_units(units)]
    figures = {score: [one["overall"].get(score) for one in scores] for score in units}
    found = [_side_by_side(caption, "Score", figures, names, notes)]
    if record["differences"]:
        rows: list[tuple[object, Sequence[Record]]] = [
            (_difference_name(one), [_cell(one["difference"], signed=True), blocks.p_cell(one["p_holm"], 4)])
            for one in record["differences"]
        ]
        notes = ["Differences are over the same documents. p is adjusted by Holm over this table; intervals are not."]
        columns = ["Difference", "Value", "p, adjusted"]
        found.append(blocks.table("Paired differences", columns, rows, notes=notes, where=blocks.BOTH))
    categories = []
    for score in record["headlines"]:
        parts = dict.fromkeys(part for one in scores for part in one["parts"])
        figures = {part: [one["parts"].get(part, {}).get(score) for one in scores] for part in parts}
        if any(figure and figure["value"] is not None for some in figures.values() for figure in some):
            categories.append(_side_by_side(f"{spaced(score)} by category", "Category", figures, names))
    sections = [blocks.section("Scores", found), blocks.section("Categories", categories)]
    if record["notes"]:
        sections.append(blocks.section("Notes", [blocks.bullets(record["notes"], where=blocks.BOTH)]))
    about = f"{record['task']}: {counted(record['documents'], 'document')}, {joined(names)}"
    return blocks.page(
        "Sample logs", samples_sentence(record), [blocks.part(sections)], title=record["task"], about=about
    )


def samples_sentence(record: Record) -> str:
    """Say what a model scores, or which of several differ."""
    task, logs = record["task"], record["logs"]
    if len(logs) == 1:
        figures = logs[0]["scores"]["overall"]
        said = [f"{spaced(score)} {_said(figures[score])}" for score in record["headlines"][:_NAMED]]
        return f"{short(logs[0]['name'], 60)} on {task}, {counted(record['documents'], 'document')}: {joined(said)}."
    apart = [one for one in record["differences"] if one["p_holm"] is not None and one["p_holm"] < 0.05]
    of = counted(len(record["differences"]), "paired difference")
    if not apart:
        return f"On {task} none of {of} between models is decided at 5% after Holm's correction."
    said = [f"{_difference_name(one)}: {_said(one['difference'], signed=True)}" for one in apart]
    return f"On {task} {len(apart)} of {of} are decided at 5% after Holm's correction: {_some(said)}."


def _difference_name(one: Record) -> str:
    return f"{spaced(one['score'])}, {short(one['second'], 60)} minus {short(one['first'], 60)}"


def _said(record: Record, *, signed: bool = False) -> str:
    figure = estimate_from_dict(record)
    if not figure.defined:
        return f"undefined ({figure.reason})"
    return f"{_number(figure.value, signed=signed)} {_span(figure, signed=signed) or 'no interval'}"


def _side_by_side(
    caption: str, head: str, figures: Mapping[str, Sequence[Record | None]], names: Sequence[str],
    notes: Sequence[str] = (),
) -> Record:  # fmt: skip
    """Return a table of figures by name, with a column a model."""
    rows = [(spaced(name), [_cell(one) for one in some]) for name, some in figures.items() if any(some)]
    return blocks.table(caption, [head, *names], rows, notes=notes, where=blocks.BOTH)


def _definitions() -> Record:
    terms = [STATISTICS[key] for key in ("interval_over_items", "undefined")]
    return blocks.part([blocks.section("Definitions", [blocks.terms(terms), blocks.paragraph(_CAUTION)])])


def _units(units: Mapping[str, str]) -> list[str]:
    return [f"{spaced(score)}: {unit}" for score, unit in units.items()]


def _by_score(figures: Iterable[tuple[str, str, Record]]) -> dict[str, list[tuple[str, Record]]]:
    """Return figures of (part, score, figure) by score."""
    found: dict[str, list[tuple[str, Record]]] = {}
    for part, score, one in figures:
        found.setdefault(spaced(score), []).append((spaced(part), one))
    return found


def gap_page(record: Record, *, picture: Path | None = None, source: str = "") -> Record:
    """Summarise what ``levelhead lm gap`` found.

    Args:
        record: of :meth:`levelhead.lm.gap_report.GapReport.to_dict`.
        picture: of the mean gaps, a PNG, if the page is to show it.

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
    if values := record["t"]:
        cells = [blocks.cell("–" if values.get(side) is None else number(values[side], 2)) for side in sides]
        rows.append(("t of share minus chance", [*cells, blocks.cell(number(published["t"], 2))]))
    columns = ["Figure", *(heads[side] for side in sides), f"Paper, {published['model']}"]
    notes = [f"{name.replace('_', ' ')}: {figure['unit']}." for name, figure in record["figures"].items()]
    if record.get("left_out"):
        notes.append(f"{record['left_out']} pairs without replaced, or without common, tokens are left out.")
    about = f"{counted(record['pairs'], 'pair')} of {record['terms']} terms ({record['selection']})"
    caption = f"Where attention differs within pairs: {about}"
    found = [blocks.table(caption, columns, rows, notes=notes, where=blocks.BOTH)]
    if picture is not None:
        found.append(
            blocks.picture(picture, "Mean attention gaps with intervals", "Mean gaps of the two kinds of tokens")
        )
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


def language_model_sentence(headlines: Sequence[Record], names: tuple[str, str]) -> str:
    """Say which scores differ between two models by more than the benchmarks' items leave open."""
    between = f"{names[0]} and {names[1]}"
    figures = [(one, estimate_from_dict(one["difference"])) for one in headlines]
    if not figures:
        return f"{between} have no main score in common."
    if not any(_bounded(figure) for _, figure in figures):
        reason = next((figure.reason for _, figure in figures if figure.reason), "no interval was kept")
        return f"The difference between {between} is inconclusive: {short(reason, 200)}."
    decided = [(one, figure) for one, figure in figures if figure.excludes_zero]
    if not decided:
        return (
            f"None of {counted(len(figures), 'score')} differs measurably between {between}: every interval contains "
            "0, or is undefined."
        )
    named = [
        f"{_named(one)} ({_number(figure.value, signed=True)}, interval {_span(figure, signed=True)})"
        for one, figure in decided
    ]
    verb = "differs" if len(decided) == 1 else "differ"
    return (
        f"{len(decided)} of {counted(len(figures), 'score')} {verb} measurably between {between} (unadjusted): "
        f"{_some(named)}."
    )


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


def _cells(one: Record) -> list[Record]:
    return [_cell(one["before"]), _cell(one["after"]), _cell(one["difference"], signed=True)]


def _headlines(headlines: Sequence[Record], names: tuple[str, str]) -> list[Record]:
    if not headlines:
        return []
    rows: list[tuple[object, Sequence[Record]]] = []
    for one in headlines:
        rows.append((_named(one), [_about(one), *_cells(one)]))
    columns = ["Score", "Tells of", *names, "Difference"]
    notes = [
        f"Difference: {names[1]} minus {names[0]}, over the same items. 95% intervals are unadjusted for the number "
        "of scores."
    ]
    notes += _unbounded(one[side] for one in headlines for side in _SHOWN)
    return [blocks.table("The main scores", columns, rows, notes=notes, text_columns=[1])]


def _noisy_differences(found: Sequence[Record], names: tuple[str, str]) -> list[Record]:
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


def _about(one: Record) -> Record:
    ideal = "" if one["ideal"] is None or one["better"] in ("half", "zero") else f" ({one['ideal']:g})"
    return blocks.cell(_SIDES[one["side"]], f"better: {_BETTER[one['better']]}{ideal}")


def _unbounded(records: Iterable[Record]) -> list[str]:
    """Say once why figures have no interval."""
    figures = map(estimate_from_dict, records)
    without = (one.reason for one in figures if one.defined and not _bounded(one) and one.reason)
    few = re.compile(r"[\d,]+ (item|cluster)s?, and (\d+) are needed")
    reasons = dict.fromkeys(few.sub(r"fewer than \2 \1s", reason) for reason in without)
    return [f"No interval: {reason.removeprefix('no interval: ')}." for reason in reasons]


def _benchmark(benchmark: Record, names: tuple[str, str]) -> list[Record]:
    columns = ["Score", *names, "Difference"]
    rows = [(spaced(one["score"]), _cells(one)) for one in benchmark["overall"]]
    parts = [(part, one["score"], one) for part, some in benchmark["categories"].items() for one in some]
    every = [*benchmark["overall"], *(one for *_, one in parts)]
    notes = [*_units(benchmark["units"]), *_unbounded(one[side] for one in every for side in _SHOWN)]
    whole = f"The whole of {short(benchmark['name'], 60)}; differences are {names[1]} minus {names[0]}"
    found = [blocks.table(whole, columns, rows, notes=notes, where=blocks.BOTH)]
    for score, ones in _by_score(parts).items():
        found.append(_forest(score, ones, names))
        found.append(
            blocks.table(
                f"{score} by category", ["Category", *columns[1:]], [(part, _cells(one)) for part, one in ones],
                folded=f"{score} by category, in figures", where=blocks.BOTH,
            )
        )  # fmt: skip
    notes = [f"{side}: {note}" for side, some in benchmark["notes"].items() for note in some]
    return _sections(found, benchmark, notes)


def _scores(record: Record, about: Record) -> list[Record]:
    """Return the sections of one model's benchmark."""
    units = _units(record["units"])
    parts = [(part, score, figure) for part, some in record["parts"].items() for score, figure in some.items()]
    every = [*(("all", score, figure) for score, figure in record["overall"].items()), *parts]
    reasons = [f"{spaced(part)}, {spaced(score)}: {figure['reason']}." for part, score, figure in every
               if figure.get("reason")]  # fmt: skip
    rows = [(spaced(score), [_cell(figure)]) for score, figure in record["overall"].items()]
    without = _unbounded(figure for *_, figure in every)
    found = [
        blocks.table("The whole benchmark", ["Score", "Value"], rows, notes=[*units, *without]),
        blocks.table(
            f"{short(record['benchmark'], 60)}, {counted(about['items'] or 0, 'item')}: scores with 95% intervals",
            ["Part", "Score", "Value", "Items"],
            [
                (spaced(part), [blocks.cell(spaced(score)), _cell(figure), blocks.cell(f"{figure['n']:,}")])
                for part, score, figure in every
            ],
            notes=[*units, *reasons],
            text_columns=[1],
            where=blocks.TERMINAL,
        ),
    ]
    found += [*_tests(record.get("tests") or []), *_prompt_noise(record.get("prompt_noise"))]
    for score, ones in _by_score(parts).items():
        drawn = [(part, estimate_from_dict(figure)) for part, figure in ones]
        found.append(
            blocks.forest(
                f"{score} by category, with 95% intervals",
                [blocks.forest_row(part, figure, scale=1, digits=4, signed=False) for part, figure in drawn],
                heads=("Category", "Value"),
                ends=("lower", "higher"),
                zero=False,
                folded=f"{score} by category",
            )
        )
    return _sections(found, about, record["notes"])


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


def _sections(found: Sequence[Record], about: Record, notes: Sequence[str]) -> list[Record]:
    """Return the sections of a benchmark: its scores, what it is, and notes."""
    told = [(key.capitalize(), about[key]) for key in ("caution", "citation", "licence", "url") if about.get(key)]
    if about["items"] is not None:
        told.append(("Items", f"{about['items']}" + (f", limit {about['limit']}" if about["limit"] else "")))
    sections = [blocks.section("Scores", found), blocks.section("About it", [blocks.terms(told)] if told else [])]
    return [*sections, blocks.section("Notes", [blocks.bullets(notes, where=blocks.BOTH)])] if notes else sections


def _forest(score: str, ones: Sequence[tuple[str, Record]], names: tuple[str, str]) -> Record:
    figures = [(part, estimate_from_dict(one["difference"])) for part, one in ones]
    return blocks.forest(
        f"{score} by category: {names[1]} minus {names[0]}, with 95% intervals",
        [blocks.forest_row(part, figure, decided=figure.excludes_zero, scale=1, digits=4) for part, figure in figures],
        heads=("Category", "Difference"),
        ends=("lower", "higher"),
        folded=f"{score} by category, drawn",
    )
