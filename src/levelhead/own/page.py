"""The page of two models on the same rows: what changed, for whom, and what these rows cannot decide."""

from __future__ import annotations

from levelhead.auditing.page import appendix, audit_sections, how
from levelhead.auditing.paired_page import paired_sections, rate_title
from levelhead.metrics.names import metric_title
from levelhead.report import blocks
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short
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
    audit, level = result["audit"], level_text(result["level"])
    sentences = [result["sentence"]]
    parts = [blocks.part([_whole_section(result, level), _models_section(result)])]
    metrics = [*WHOLE]
    if audit is None:
        sentences.append(NO_GROUPS)
        last = [blocks.section("How it was measured", [blocks.paragraph(HOW)])]
    else:
        alone = {key: value for key, value in audit.items() if key != "against"}
        for name in audit["by_attribute"]:
            changed = audit["against"]["by_attribute"][name]
            *rates, gap = changed["sentences"] if len(changed["sentences"]) > 1 else [*changed["sentences"], ""]
            sentences = [gap, *sentences, *rates] if gap and len(sentences) == 1 else [*sentences, gap, *rates]
            sections = [*paired_sections(name, audit), *blocks.on_page(audit_sections(name, alone))]
            parts.append(
                blocks.part(sections, title=f"By {short(name)}; figures without a change are those of {result['new']}")
            )
        metrics = list(next(iter(audit["by_attribute"].values()))["metrics"])
        last = [how(audit, ""), blocks.section("Two models on the same rows", [blocks.paragraph(HOW)])]
    parts.append(blocks.part([*last, appendix(metrics)]))
    finding, *lines = [sentence for sentence in sentences if sentence]
    accuracy = result["changes"]["accuracy"]
    return blocks.page(
        "Comparison",
        finding,
        parts,
        title=source or f"{result['new']} against {result['old']}",
        about=f"{result['new']} (new) against {result['old']} (old), the same {result['rows']:,} rows",
        facts=[
            ("Rows", f"{result['rows']:,}", "predicted by both models"),
            ("Accuracy, old", _percent(accuracy["old"]), f"percent, {short(result['old'], 40)}"),
            ("Accuracy, new", _percent(accuracy["new"]), f"percent, {short(result['new'], 40)}"),
            ("Predicted differently", f"{result['different']:,}", "rows, which decide every difference"),
        ],
        lines=lines,
        cautions=result["warnings"],
    )


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
    return metric_title(name) if name in WHOLE else rate_title(name)


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
