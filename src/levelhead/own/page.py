"""The page of two models on the same rows: what changed, for whom, and what these rows cannot decide."""

from __future__ import annotations

from levelhead.report import blocks
from levelhead.report.one_page import one_page
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short
from levelhead.report.titles import title_of
from levelhead.types import in_quotes

HOW = (
    "Both models predicted the same rows; rows that both get right, or both wrong, do not widen the intervals. "
    "Intervals of rates are those of paired proportions (Bonett and Price, 2012), those of gaps come from bootstrap "
    "replicates of the joint counts of group, label and both predictions."
)


WHOLE = ("accuracy", "balanced_accuracy")
NO_GROUPS = "No groups were given, so no figure is by group."


def two_models_page(result: Record, *, source: str = "") -> Record:
    """Summarise what :meth:`levelhead.own.compare.ModelComparison.to_dict` returned.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`. ``source`` is what it is about in a word, and
        ``command`` what made it.
    """
    level, audit = level_text(result["level"]), result["audit"]
    about = f"{result['new']} (new) against {result['old']} (old), the same {result['rows']:,} rows"
    shared = [_whole_section(result, level), _models_section(result)]
    how = blocks.section("Two models on the same rows", [blocks.paragraph(HOW)])
    if audit is None:
        title, parts = source or f"{result['new']} against {result['old']}", [blocks.part([*shared, how])]
        said = [result["sentence"], NO_GROUPS]
        return blocks.page(
            "Comparison", said[0], parts, title=title, about=about, lines=said[1:], cautions=result["warnings"]
        )
    first, *others = audit["sentences"]
    said = [first, result["sentence"], *others]
    page = one_page({**audit, "sentences": said, "warnings": result["warnings"]}, source=source)
    parts = [*page["parts"], blocks.part([*shared, how], title="All rows, and the two models")]
    return page | {"kind": "Comparison", "about": about, "parts": parts}


def _whole_section(result: Record, level: str) -> Record:
    positive = result.get("positive")  # pages are also made of files that do not name it
    about = "" if positive is None else f"; rates are about {in_quotes(positive)}"
    table = blocks.table(
        f"Every figure over all rows, percent{about}; changes with their {level} intervals",
        ["Figure", "Old", "New", "Change, points"],
        [(change_title(name), _cells(change)) for name, change in result["changes"].items()],
        where=blocks.BOTH,
    )
    agreement = blocks.table(
        "Rows by which model is right",
        ["", "Both right", "Only the new one", "Only the old one", "Both wrong"],
        [
            (
                "All rows",
                [
                    blocks.cell(f"{result['agreement'][key]:,}")
                    for key in ("both_right", "only_new_right", "only_old_right", "both_wrong")
                ],
            )
        ],
        where=blocks.BOTH,
    )
    return blocks.section("All rows", [table, agreement])


def _models_section(result: Record) -> Record:
    items = []
    for role, one in zip(("old", "new"), result["models"], strict=True):
        what = f"debiased attention at {one['attention']}" if one["debias"] else "nothing is debiased"
        seen = f", statistics of {one['batches']:,} training batches" if one["batches"] else ""
        said = f"{one['model']}: {what}{seen}; {one['parameters']:,} parameters, {one['trainable']:,} of them trainable"
        items.append((f"{short(result[role], 60)} ({role})", said))
    items.append(("Classes", ", ".join(short(name, 60) for name in result["classes"])))
    return blocks.section("The two models", [blocks.terms(items, where=blocks.BOTH)])


def change_title(name: str) -> str:
    """Return a figure's name as tables show it."""
    return title_of(name)


def _cells(change: Record) -> list[Record]:
    figure = estimate_from_dict(change["difference"])
    if not figure.defined:
        return [blocks.undefined_cell(figure.reason), *[blocks.no_cell()] * 2]
    return [
        blocks.cell(_percent(change["old"])),
        blocks.cell(_percent(change["new"])),
        blocks.figure_cell(figure, signed=True),
    ]


def _percent(value: float | None) -> str:
    return "undefined" if value is None else number(100 * value)
