"""What a swapped word changes: differences between groups, template by template, beside those of no swap at all.

A template's score in a group is the mean over its draws (or rows), its effect that of the group minus that of the first
group. Reported are the mean effect, with Student's interval and p-value over templates, and the mean *absolute* effect
beside that of the baseline, in which the same prompt is drawn with other seeds: the absolute value of noise is not 0.
p-values are adjusted by Holm over all tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.lm.base import Answer, Item, Scores, answers_by_id
from levelhead.lm.bold.score import TextClassifier, text_scores
from levelhead.lm.counterfactual.data import GENERATED, ODDS
from levelhead.lm.intervals import estimated, p_value, ratio
from levelhead.metrics import holm
from levelhead.report.text import counted
from levelhead.types import Estimate

Values = NDArray[np.float64]

BASELINE = "same prompt"


def score_answers(
    items: Sequence[Item], answers: Sequence[Answer], classifiers: Sequence[TextClassifier] = ()
) -> Scores:
    """Score answers; ``tests`` of the scores has the p-values.

    Templates that a group lacks are left out of its comparison, and counted in a note.

    Raises :class:`~levelhead.types.DataError` for missing answers.
    """
    given = answers_by_id(items, answers, "counterfactual")
    groups = list(dict.fromkeys(item.content["group"] for item in items))
    columns, units = _columns(items, given, classifiers)
    overall: dict[str, Estimate] = {}
    tests: list[dict[str, Any]] = []
    notes: list[str] = []
    first = groups[0]
    half = 1 + max(item.content.get("draw", 0) for item in items if item.content["group"] != first)
    for name, values in columns.items():
        means = _means(items, values, half)
        plain = means[first, False]
        base = _less(means[first, True], plain)
        every = {at for some in means.values() for at in some}
        for group in groups[1:]:
            effects = _less(means[group, False], plain)
            label = f"{name}, {group} minus {first}"
            overall[label] = _mean(effects)
            tests.append({"score": label, "templates": len(effects), "p": p_value(overall[label])})
            if lost := len(every) - len(effects):
                notes.append(f"{label}: {counted(lost, 'template')} lack a score in one of the two, and are left out.")
            if base:
                beyond = _less(_absolute(effects), _absolute(base))
                overall[f"absolute {label}"] = _mean(_absolute(effects))
                label = f"absolute {label}, beyond {BASELINE}"
                overall[label] = _mean(beyond)
                tests.append({"score": label, "templates": len(beyond), "p": p_value(overall[label])})
        if base:
            overall[f"{name}, {BASELINE}"] = _mean(base)
            overall[f"absolute {name}, {BASELINE}"] = _mean(_absolute(base))
    for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = None if math.isnan(adjusted) else adjusted
        test["p"] = None if math.isnan(test["p"]) else test["p"]
    scales = {
        label: f"difference: {units.get(label.removeprefix('absolute ').split(',')[0], 'score')}" for label in overall
    }
    return Scores("counterfactual", overall, units=scales, notes=tuple(notes), tests=tuple(tests))


def _columns(
    items: Sequence[Item], given: Mapping[str, Answer], classifiers: Sequence[TextClassifier]
) -> tuple[dict[str, Values], dict[str, str]]:
    """Return the scores (items,) by name, NaN where an item has none, and their units."""
    columns, units = dict[str, Values](), {ODDS: "nats"}
    values = [given[item.id].content.get("value") if item.content["kind"] == ODDS else None for item in items]
    if any(value is not None for value in values):
        columns[ODDS] = np.array([math.nan if value is None else value for value in values])
    rows = [
        row
        for row, item in enumerate(items)
        if item.content["kind"] == GENERATED and str(given[item.id].content.get("continuation", "")).strip()
    ]
    if rows:
        texts = [given[items[row].id].content["continuation"] for row in rows]
        found, more = text_scores(texts, classifiers)
        for name, some in found.items():
            columns[name] = np.full(len(items), math.nan)
            columns[name][rows] = some
        units |= more
    return columns, units


def _means(items: Sequence[Item], values: Values, half: int) -> Mapping[tuple[str, bool], Mapping[str, float]]:
    """Return the mean of each template by group and whether draws are those from ``half`` on; only finite values."""
    found: dict[tuple[str, bool], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item, value in zip(items, values, strict=True):
        if math.isfinite(value):
            later = item.content.get("draw", 0) >= half
            found[item.content["group"], later][item.content["template"]].append(float(value))
    means = {key: {at: float(np.mean(some)) for at, some in each.items()} for key, each in found.items()}
    return defaultdict(dict, means)


def _less(ones: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {at: value - others[at] for at, value in ones.items() if at in others}


def _absolute(effects: Mapping[str, float]) -> dict[str, float]:
    return {at: abs(value) for at, value in effects.items()}


def _mean(effects: Mapping[str, float]) -> Estimate:
    rows = [(value, 1.0) for value in effects.values()]
    if not rows:
        return Estimate.undefined("no template has a score in both")
    return estimated(rows, None, ratio, ids=list(effects))
