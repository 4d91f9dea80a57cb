"""The page of two models on the same rows: what changed, for whom, and what these rows cannot decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from levelhead.report.headline import Lead
from levelhead.report.one_page import one_page
from levelhead.report.rows import COLUMNS
from levelhead.report.text import Record, short

HOW = (
    "Both models predicted the same rows; rows that both get right, or both wrong, do not widen the intervals. "
    "Intervals of rates are those of paired proportions (Bonett and Price, 2012), those of gaps come from bootstrap "
    "replicates of the joint counts of group, label and both predictions."
)
WHOLE = ("accuracy", "balanced_accuracy")
NO_GROUPS = "No groups were given, so no figure is by group."
AGREEMENT = {
    "both_right": "both right",
    "only_new_right": "only the new one",
    "only_old_right": "only the old one",
    "both_wrong": "both wrong",
}


def two_models_page(result: Record, *, source: str = "") -> Record:
    """Return the page of :meth:`levelhead.own.compare.ModelComparison.to_dict`, for :func:`levelhead.report.render`."""
    audit: Record = result["audit"] or {}
    head, _, rest = result["sentence"].partition(": ")
    whole = {"sentences": [result["sentence"], NO_GROUPS], "lead": Lead((head,), rest).to_dict()}
    said = [*audit["sentences"][:1], result["sentence"], *audit["sentences"][1:]] if audit else whole["sentences"]
    models = f"{short(result['new'], 60)} (new) against {short(result['old'], 60)} (old)"
    own = {
        "sentences": said,
        "figures": {"columns": [*COLUMNS], "data": [*audit.get("figures", {}).get("data", ()), *_changes(result)]},
        "title": source or f"{result['new']} against {result['old']}",
        "about": {"models": models},
        "facts": [*_facts(result), *audit.get("facts", ())],
    }
    shared = {name: result[name] for name in ("kind", "rows", "level", "warnings")}
    return one_page({**whole, **audit, "positive": result.get("positive"), **shared, **own})


def _changes(result: Record) -> Iterator[list[Any]]:
    """Yield the figures over all rows of both models, with their changes."""
    for name, change in result["changes"].items():
        difference = change["difference"]
        ends = [difference[end] for end in ("value", "low", "high")]
        for which in ("old", "new"):
            alone, n = [change[which], None, None], difference["n"]
            yield ["all rows", None, f"{name}_{which}", *alone, n, difference.get("reason"), True]
        yield ["all rows", None, f"{name}_change", *ends, n, difference.get("reason"), True]


def _facts(result: Record) -> Iterator[tuple[str, str]]:
    for role, one in zip(("old", "new"), result["models"], strict=True):
        what = f"debiased attention at {one['attention']}" if one["debias"] else "nothing is debiased"
        seen = f", statistics of {one['batches']:,} training batches" if one["batches"] else ""
        said = f"{one['model']}: {what}{seen}; {one['parameters']:,} parameters, {one['trainable']:,} of them trainable"
        yield f"{short(result[role], 60)} ({role})", said
    yield "Classes", ", ".join(short(name, 60) for name in result["classes"])
    yield (
        "Rows by which model is right",
        ", ".join(f"{AGREEMENT[name]} {n:,}" for name, n in result["agreement"].items()),
    )
    yield "Two models on the same rows", HOW
