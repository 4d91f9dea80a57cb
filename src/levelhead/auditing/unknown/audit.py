"""Audit without the attribute: read and count, then let the strongest method answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from levelhead.auditing.of_run import joined
from levelhead.auditing.options import AuditOptions, Roles, refuse_twice
from levelhead.auditing.unknown.answer import IndirectAudit
from levelhead.auditing.unknown.cells import Cells
from levelhead.auditing.unknown.choice import answer
from levelhead.auditing.unknown.known import Known
from levelhead.auditing.unknown.tally import Pattern, Tally
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import check_options
from levelhead.report.text import counted
from levelhead.spelling import MOST_CLASSES
from levelhead.tables.files import Stored
from levelhead.tables.source import Labelled, Wanted
from levelhead.tables.vocabulary import LabelMap, agree, check_predictions, in_order
from levelhead.types import ConfigError, DataError, quoted


def unrecorded(source: Stored, asked: Mapping[str, Any]) -> IndirectAudit:
    """Measure or bound gaps between groups that are not recorded, by the strongest method that the input allows.

    Args:
        source: one prediction a row.
        asked: what :func:`levelhead.audit_table` was given, by name.

    Raises:
        DataError: columns that cannot be used; each error says which and what to do.
        ConfigError: options that contradict each other.
    """
    known = Known.of(asked)
    label, prediction = asked["label"], asked["prediction"]
    options = AuditOptions.of(asked)
    check_options(options.level, options.replicates)
    refuse_twice(Roles(label, prediction, ()), known.roles)
    outcomes = [prediction] if label is None else [label, prediction]
    names = [*outcomes, *known.columns]
    source = joined(source, asked["join"], asked["on"], names)
    rows = Labelled(source, label, options.ignore_label)
    fractions = (*known.proxies, *known.probabilities.values())
    numbers = [name for name in fractions if source.file_of(name).stores_fractions(name)]
    words = [name for name in known.columns if name not in numbers]
    titles = {name: source.title(name) for name in known.columns}
    tally = Tally(known, titles)
    for batch in rows.batches(Wanted(outcomes, words, numbers)):
        # A column of fractions has hardly two equal ones: the numbers themselves stand instead of codes.
        columns: dict[str, Any] = batch.words | {name: (values, []) for name, values in batch.numbers.items()}
        tally.add(batch.outcomes[label or prediction], batch.outcomes[prediction], columns)
    label_map = options.label_map
    of_labels: dict[Hashable, int] = {}
    predictions: dict[Hashable, int] = {}
    for pattern, sums in tally.sums.items():
        of_labels[pattern.label] = of_labels.get(pattern.label, 0) + int(sums[0, 0])
        predictions[pattern.prediction] = predictions.get(pattern.prediction, 0) + int(sums[0, 0])
    if len(of_labels.keys() | predictions.keys()) > MOST_CLASSES:
        raise DataError(f"There are more than {MOST_CLASSES} classes. Are these scores? An audit compares classes.")
    as_label, as_prediction, of_labels, predictions = agree(of_labels, predictions, label_map)
    warnings = check_predictions(of_labels, predictions, label_map.kept) + label_map.said + rows.ignored.said()
    if len(predictions) == 1:
        only = quoted(str(next(iter(predictions))))
        warnings.append(f"Every prediction is {only}: every gap among these rows is 0, whatever the groups are.")
    wanted = _wanted(in_order({**of_labels, **predictions}), options.positive, label_map)
    merged: dict[Pattern, FloatArray] = {}
    for pattern, sums in tally.sums.items():
        hit = int(as_prediction[pattern.prediction] == wanted)
        key = pattern._replace(label=int(as_label[pattern.label] == wanted), prediction=hit)
        merged[key] = merged[key] + sums if key in merged else sums
    cells = Cells(list(merged), np.array(list(merged.values())), known.proxies, tally.probability)
    attribute = known.labelled or "groups"
    part = answer(attribute, cells, known, options)
    if label is None:  # nothing but selection rates
        part = replace(part, gaps=[one for one in part.gaps if one.gap == "demographic_parity"])
    if tally.rounded:
        warnings.append(f"In {counted(tally.rounded, 'row')} rounded probabilities were normalised to sum to 1.")
    reading = tuple(source.taken(names))
    return IndirectAudit({attribute: part}, warnings, sum(of_labels.values()), str(wanted), options.level, reading)


def _wanted(classes: list[Hashable], positive: Hashable, label_map: LabelMap) -> Hashable:
    """Return the class that rates are about."""
    chosen = label_map.place(positive, classes)
    if chosen is None and len(classes) > 2:
        raise ConfigError(
            f"There are {len(classes)} classes; an audit without the attribute compares one with the rest. Name it "
            "with --positive."
        )
    return classes[-1 if chosen is None else chosen]
