"""Audit without the attribute: read and count, then let the strongest method answer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from levelhead.arrays import TAKEN, array_of, as_decimals, checked
from levelhead.auditing.unknown.answer import IndirectAudit
from levelhead.auditing.unknown.cells import Cells
from levelhead.auditing.unknown.choice import Options, answer
from levelhead.auditing.unknown.known import Known, Shares, shares_from
from levelhead.auditing.unknown.privacy import Response
from levelhead.auditing.unknown.tally import Pattern, Tally
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import check_options
from levelhead.report.text import counted
from levelhead.spelling import MOST_CLASSES
from levelhead.tables.columns import Column, columns_of, outcomes_of
from levelhead.tables.files import Stored, source_of
from levelhead.tables.repeated import kept
from levelhead.tables.source import Arrays, Ignored
from levelhead.tables.vocabulary import LabelMap, agree, check_predictions, in_order
from levelhead.types import ConfigError, DataError, quoted

Rows = tuple[Column, Column, Mapping[str, Column]]
"""A batch of rows: labels, predictions and what is known of the groups."""


@checked
def indirect_audit(
    y_true: ArrayLike | None,
    y_pred: ArrayLike,
    *,
    labelled: ArrayLike | None = None,
    proxy_probabilities: pd.DataFrame | Mapping[str, ArrayLike] | None = None,
    proxies: ArrayLike | pd.DataFrame | Mapping[str, ArrayLike] | None = None,
    inclusion: ArrayLike | None = None,
    responses: ArrayLike | Mapping[str, ArrayLike] | None = None,
    response: Response | Mapping[str, Response] | None = None,
    shares: Mapping[str, float] | Shares | None = None,
    strata: ArrayLike | None = None,
    positive: Hashable = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
) -> IndirectAudit:
    """Measure or bound gaps between groups that are not recorded, by the strongest method that the input allows.

    Args:
        y_true: (rows,) true classes. None: gaps in selection rates alone, as of decisions without outcomes.
        y_pred: (rows,) predicted classes.
        labelled: (rows,) the group where it is known, None or NaN elsewhere.
        proxies: (rows,) a proxy, or a frame or dict of several: groups in the same words, or probabilities from 0 to 1.
        proxy_probabilities: by group, the (rows,) probability that a row is in it, such as those of BISG. They add to 1
            in each row; of one group alone, the others are its complement.
        inclusion: (rows,) the probability with which each row was labelled, if the labelled rows are no random sample.
        responses: (rows,) randomised groups, or a dict of several columns.
        response: how they were randomised: one for all, or by column.
        shares: share of each group, which add to 1; or of one group alone; or :class:`Shares` by stratum.
        strata: (rows,) the stratum of each row, for shares by stratum.
        positive: the class that rates are about; None: the second of two.
        level: confidence level.
        replicates: bootstrap replicates, where a method needs them.
        seed: of the bootstrap, and of the parts of a cross-fit.
        label_map: which class of the predictions each label means, as :func:`levelhead.audit` takes it.
        ignore_label: the label of rows that have none, as there.

    Returns:
        the findings. A method that declines gives undefined figures with ``refused`` and a ``reason``.

    Raises:
        DataError: columns that cannot be used; each error says which and what to do.
        ConfigError: options that contradict each other, or nothing known of the groups at all.

    Examples:
        >>> import levelhead as lh
        >>> labels, predictions = [1, 0] * 50, [1, 0, 1, 1] * 25
        >>> result = lh.indirect_audit(labels, predictions, shares={"women": 0.5})
        >>> part = result.parts["groups"]
        >>> part.method, round(part.gaps[0].bounds.high, 3)
        ('bounds', 0.5)
    """
    if y_pred is None:
        raise DataError(f"y_pred is None. {TAKEN}")
    named = {} if y_true is None else {"label": y_true}
    outcomes, (positive,), by_position = outcomes_of({**named, "prediction": y_pred}, positive)
    prediction = outcomes["prediction"]
    label = outcomes.get("label", prediction)
    source = Arrays()
    source.add_outcomes(outcomes)
    rows = source.rows
    columns: dict[str, Column] = {}

    def take(name: str, values: Any) -> list[str]:
        if isinstance(values, Mapping | pd.DataFrame):
            found = columns_of(values, rows)
            if not found:
                raise DataError(f"There is no column of the {name}. Pass one, or leave the argument out.")
        else:
            kept = array_of(values, f"The {name} column")
            if kept.dtype.kind == "f" and name in ("proxy", "inclusion") and len(kept) == rows:
                numbers: Any = as_decimals(kept)  # where a column has no values, its codes are its numbers
                found = {name: (numbers, [])}
            else:
                found = columns_of({name: values}, rows)
        if clash := [key for key in found if key in columns]:
            raise DataError(f"Two columns are named {quoted(clash[0])}. Rename one of them.")
        columns.update(found)
        return list(found)

    known = Known(
        labelled=None if labelled is None else take("group", labelled)[0],
        proxies=() if proxies is None else tuple(take("proxy", proxies)),
        inclusion=None if inclusion is None else take("inclusion", inclusion)[0],
        strata=None if strata is None else take("stratum", strata)[0],
        probabilities={} if proxy_probabilities is None else {one: one for one in take("groups", proxy_probabilities)},
        shares=shares if isinstance(shares, Shares) or shares is None else shares_from(shares),
    )
    if (responses is None) != (response is None):
        raise ConfigError("Randomised responses need both: the reports, and how they were randomised (response=).")
    if responses is not None and response is not None:
        names = take("group", responses)
        by_column = dict.fromkeys(names, response) if isinstance(response, Response) else dict(response)
        if set(by_column) != set(names):
            raise ConfigError(
                f"Responses are in columns {', '.join(map(quoted, names))}, and response= is about "
                f"{', '.join(map(quoted, by_column))}. Say how each column was randomised."
            )
        known = replace(known, responses=by_column)
    titles = {name: f"The column {quoted(name)}" for name in columns}
    options = Options(level, replicates, seed)
    rows_of = [(label, prediction, columns)]
    found = _audit(known, titles, rows_of, positive, options, LabelMap(label_map), y_true is not None, ignore_label)
    return replace(found, warnings=[*by_position, *found.warnings])


@checked
def indirect_audit_file(
    path: Path | str | Stored,
    label: str | None,
    prediction: str,
    *,
    labelled: str | None = None,
    proxy_probabilities: Mapping[str, str] | None = None,
    proxies: Sequence[str] = (),
    inclusion: str | None = None,
    responses: Mapping[str, Response] | None = None,
    shares: Mapping[str, float] | Shares | None = None,
    strata: str | None = None,
    positive: Hashable = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
) -> IndirectAudit:
    """Audit a file of predictions without its groups; batches of rows are counted and forgotten.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file with one prediction a row.
        label: name of the column with the true classes.
        prediction: name of the column with the predicted classes.
        labelled: name of the column with the group where it is known, empty elsewhere.
        proxies: names of the columns with proxies.
        proxy_probabilities: by group, the name of the column with the probability that a row is in it.
        inclusion: name of the column with the probability with which a row was labelled.
        responses: for each column of randomised groups, how it was randomised.
        shares: as :func:`indirect_audit` takes it, like all that follows.
        strata: name of the column with strata.
        positive: see there.
        level: see there.
        replicates: see there.
        seed: see there.
        label_map: see there.
        ignore_label: see there.

    Returns:
        what :func:`indirect_audit` returns for the same rows.

    Raises:
        DataError: what :func:`indirect_audit` raises, and a file that is missing, unreadable, empty or lacks a column.
        ConfigError: as there.

    Examples:
        >>> import pandas as pd
        >>> import levelhead as lh
        >>> sex = ["f", "m", "m", "f", "m"] * 40 + [None] * 800
        >>> table = pd.DataFrame({"label": [1, 0] * 500, "answer": [1, 0, 1, 1] * 250, "sex": sex})
        >>> table.to_csv("predictions.csv", index=False)
        >>> result = lh.indirect_audit_file("predictions.csv", "label", "answer", labelled="sex")
        >>> result.parts["sex"].method
        'labelled subset'
    """
    known = Known(
        labelled,
        tuple(dict.fromkeys(proxies)),
        inclusion,
        strata,
        shares if isinstance(shares, Shares) or shares is None else shares_from(shares),
        dict(responses or {}),
        dict(proxy_probabilities or {}),
    )
    known.check()
    source = source_of(path)
    outcomes = [prediction] if label is None else [label, prediction]
    names = [*outcomes, *known.columns]
    titles = {name: source.title(name) for name in names}
    numbers = [
        name for name in (*known.proxies, *known.probabilities.values()) if source.file_of(name).stores_fractions(name)
    ]
    words = [name for name in known.columns if name not in numbers]

    def batches() -> Iterator[Rows]:
        for batch in source.batches(outcomes, words, numbers):
            # A column of fractions has hardly two equal ones: the numbers themselves stand instead of codes.
            columns: dict[str, Any] = batch.words | {name: (values, []) for name, values in batch.numbers.items()}
            yield batch.outcomes[label or prediction], batch.outcomes[prediction], columns

    options = Options(level, replicates, seed)
    found = _audit(known, titles, batches(), positive, options, LabelMap(label_map), label is not None, ignore_label)
    return replace(found, reading=tuple(source.taken(names)))


def _audit(
    known: Known,
    titles: dict[str, str],
    batches: Iterable[Rows],
    positive: Hashable,
    options: Options,
    label_map: LabelMap,
    labels: bool = True,
    ignore_label: Hashable = None,
) -> IndirectAudit:
    """Count the rows batch by batch, for each attribute, and answer; without ``labels`` of selection rates alone."""
    known.check()
    if not labels and len(known.proxies) >= 3 and not known.labelled:
        raise ConfigError("Three proxies need the true class of every row: name it with --label.")
    check_options(options.level, options.replicates)
    tallies = {name: Tally(one, titles) for name, one in known.attributes.items()}
    ignored = Ignored(ignore_label if labels else None)
    for label, prediction, columns in batches:
        there = ignored.mask(label)
        row = kept({"label": label, "prediction": prediction}, there)
        for tally in tallies.values() if there.any() else ():
            tally.add(row["label"], row["prediction"], kept(columns, there))
    ignored.check("The label column")
    of_labels: dict[Hashable, int] = {}
    predictions: dict[Hashable, int] = {}
    for pattern, sums in next(iter(tallies.values())).sums.items():
        of_labels[pattern.label] = of_labels.get(pattern.label, 0) + int(sums[0, 0])
        predictions[pattern.prediction] = predictions.get(pattern.prediction, 0) + int(sums[0, 0])
    if len(of_labels.keys() | predictions.keys()) > MOST_CLASSES:
        raise DataError(f"There are more than {MOST_CLASSES} classes. Are these scores? An audit compares classes.")
    as_label, as_prediction, of_labels, predictions = agree(of_labels, predictions, label_map)
    label_map.refuse_unused()
    warnings = check_predictions(of_labels, predictions, label_map.named) + label_map.said + ignored.said()
    if len(predictions) == 1:
        only = quoted(str(next(iter(predictions))))
        warnings.append(f"Every prediction is {only}: every gap among these rows is 0, whatever the groups are.")
    wanted = _wanted(in_order({**of_labels, **predictions}), positive, label_map)
    parts = {}
    for name, tally in tallies.items():
        merged: dict[Pattern, FloatArray] = {}
        for pattern, sums in tally.sums.items():
            hit = int(as_prediction[pattern.prediction] == wanted)
            key = pattern._replace(label=int(as_label[pattern.label] == wanted), prediction=hit)
            merged[key] = merged[key] + sums if key in merged else sums
        every = np.array(list(merged.values()))
        every, chances = (every[:, :3], every[:, 3:, 0]) if tally.known.inclusion else (every, None)
        cells = Cells(list(merged), every, tally.known.proxies, tally.probability, chances)
        part = answer(name, cells, known, options)
        if not labels:
            part = replace(part, gaps=[one for one in part.gaps if one.gap == "demographic_parity"])
        parts[name] = part
        warnings += part.warnings
        if tally.rounded:
            warnings.append(f"In {counted(tally.rounded, 'row')} rounded probabilities were normalised to sum to 1.")
    return IndirectAudit(parts, warnings, sum(of_labels.values()), str(wanted), options.level)


def _wanted(classes: list[Hashable], positive: Hashable, label_map: LabelMap) -> Hashable:
    """Return the class that rates are about."""
    chosen = label_map.place(positive, classes)
    if chosen is None and len(classes) > 2:
        raise ConfigError(
            f"There are {len(classes)} classes; an audit without the attribute compares one with the rest. Name it "
            "with --positive."
        )
    return classes[-1 if chosen is None else chosen]
