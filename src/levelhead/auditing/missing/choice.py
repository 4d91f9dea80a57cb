"""Audit without the attribute: count, take the strongest method that the input allows, and say what it rests on.

Order: randomised responses, whose noise is known; a labelled subset of 100 rows or more, which assumes nothing of the
proxies; three proxies; shares, strata or a probability, which bound the gap and do not estimate it. What cannot be
answered is refused, with the reason and with what would help.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from numpy.typing import ArrayLike
from rich.console import Group
from rich.table import Table
from rich.text import Text
from scipy import stats

from levelhead.auditing.columns import columns_of, outcome_of, positive_index
from levelhead.auditing.files import read_batches_with_numbers
from levelhead.auditing.missing.bounds import (
    ASSUMES_PROBABILITIES,
    ASSUMES_SHARES,
    ASSUMES_STRATA,
    Bracket,
    GapBounds,
    bracket,
    by_shares,
    naive_gap,
    sign_conditions,
)
from levelhead.auditing.missing.gaps import FEWEST_SHOWN, GAPS, TITLES, FloatArray, folded, shown_count
from levelhead.auditing.missing.labelled import FOLDS, LabelledGap, by_labelled_pairs, by_labelled_rows, cross_fitted
from levelhead.auditing.missing.responses import Response, by_responses, shares_of
from levelhead.auditing.missing.tally import BINS, Roles, Tally
from levelhead.auditing.missing.three_proxies import ASSUMES, SHARED, by_proxies
from levelhead.auditing.tally import MOST_CLASSES, Column
from levelhead.auditing.vocabulary import check_predictions, in_order
from levelhead.metrics import estimate_to_dict
from levelhead.metrics.intervals import check_options
from levelhead.terminal import plain_text
from levelhead.types import ConfigError, DataError, Estimate, printable, quoted

FEWEST_LABELLED = 100
MOST_GROUPS = 8
METHODS = {
    "labelled subset": "labelled rows and a proxy for the rest (PPI++)",
    "three proxies": "agreement of three proxies or more (HOC)",
    "randomised responses": "randomised answers, inverted",
    "bounds": "worst case: how large could it be",
}
PERSONS = (
    "The group of a single row is never guessed, kept or printed, and counts of fewer than "
    f"{FEWEST_SHOWN} people are not shown."
)
NOTHING_KNOWN = (
    "Where nothing is known of the groups, a gap of any size fits these predictions, up to 100 points: no figure is "
    "given."
)


@dataclass(frozen=True)
class IndirectGap:
    """One gap between two groups, f_a - f_b for ``groups`` (a, b), signed.

    ``estimate`` is refused where there are bounds alone. ``naive`` is the gap with each proxy taken for the group, by
    the proxy's name. ``alone``: the labelled rows alone. ``bounds``: the worst case.
    """

    gap: str
    groups: tuple[str, str]
    estimate: Estimate
    naive: Mapping[str, float] = field(default_factory=dict)
    alone: Estimate | None = None
    bounds: GapBounds | None = None

    @property
    def absolute(self) -> Estimate:
        """The absolute gap with its interval."""
        return folded(self.estimate)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        out: dict[str, Any] = {
            "gap": self.gap,
            "groups": list(self.groups),
            **estimate_to_dict(self.estimate),
            "absolute": estimate_to_dict(self.absolute),
            "naive": {name: value if math.isfinite(value) else None for name, value in self.naive.items()},
        }
        if self.alone is not None:
            out["labelled_rows_alone"] = estimate_to_dict(self.alone)
        if self.bounds is not None:
            worst = self.bounds
            out["worst_case"] = {
                "low": worst.low,
                "high": worst.high,
                "interval": [worst.reach_low, worst.reach_high],
                "assumes": worst.assumes,
            }
        return out


@dataclass(frozen=True)
class IndirectPart:
    """What was found of one attribute: the method, what it assumes, the gaps, and what the answer rests on.

    ``refused`` is why there is no estimate; empty if there is one. ``help`` says what would help.
    """

    method: str
    assumes: str
    gaps: list[IndirectGap]
    rests_on: list[str]
    refused: str = ""
    help: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    level: float = 0.95

    @property
    def headline(self) -> str:
        """The finding in a sentence, with its assumption."""
        return headline(self)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {
            "method": self.method,
            "assumes": self.assumes,
            "headline": self.headline,
            "refused": self.refused,
            "help": self.help,
            "gaps": [gap.to_dict() for gap in self.gaps],
            "shares": dict(self.shares),
            "rests_on": list(self.rests_on),
        }


@dataclass(frozen=True)
class IndirectAudit:
    """What :func:`indirect_audit` found, by attribute; figures are fractions.

    Examples:
        >>> import levelhead as lh
        >>> result = lh.indirect_audit([1, 0] * 50, [1, 0, 1, 1] * 25, shares={"women": 0.5})
        >>> result.gaps["demographic_parity"].refused  # bounds, not an estimate
        True
    """

    parts: dict[str, IndirectPart]
    warnings: list[str]
    rows: int
    positive: str
    level: float = 0.95

    @property
    def gaps(self) -> dict[str, Estimate]:
        """The signed gaps of the first attribute's first pair of groups, by name."""
        out: dict[str, Estimate] = {}
        for one in next(iter(self.parts.values())).gaps:
            out.setdefault(one.gap, one.estimate)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are null with a ``reason``."""
        return {
            "kind": "indirect audit",
            "parts": {name: part.to_dict() for name, part in self.parts.items()},
            "rows": self.rows,
            "positive": self.positive,
            "level": self.level,
            "warnings": list(self.warnings),
        }

    def to_html(self) -> str:
        """Return one standalone HTML page."""
        from levelhead.auditing.missing.page import indirect_page
        from levelhead.report import render

        return render(indirect_page(self.to_dict()))

    def table(self) -> Group:
        """Return tables that ``rich`` can print."""
        shown: list[Any] = []
        level = f"{100 * self.level:g}% interval"
        for name, part in self.parts.items():
            naive = list(dict.fromkeys(proxy for one in part.gaps for proxy in one.naive))
            worst = any(one.bounds for one in part.gaps)
            shown.append(Text(part.headline))
            # One table for each kind of figure: side by side they would not fit in 80 columns.
            if any(one.estimate.defined for one in part.gaps) or not worst:
                title = f"Gaps by {printable(name)}: {METHODS[part.method]}"
                shown.append(_gap_table(title, ["Points", level], part.gaps, _answer_words))
            if naive:
                heads = [printable(proxy) for proxy in naive]
                shown.append(_gap_table("Naive: each proxy taken for the group", heads, part.gaps, _naive_words(naive)))
            if worst:
                heads = ["These rows", f"With its {level}"]
                words = f"Worst case by {printable(name)}: all that these rows leave possible"
                shown.append(_gap_table(words, heads, part.gaps, _bound_words))
            if any(one.estimate.defined for one in part.gaps):
                shown += [
                    Text(f"Refused: {gap_words(one)}: {one.estimate.reason}.")
                    for one in part.gaps
                    if not one.estimate.defined
                ]
            shown.append(Text("What this answer rests on"))
            shown += [Text(f"- {line}") for line in part.rests_on]
        shown += [Text(f"Warning: {warning}") for warning in self.warnings]
        return Group(
            *shown, Text(f"Positive class: {printable(self.positive)}. Gaps are signed differences in points.")
        )

    def __str__(self) -> str:
        return plain_text(self.table(), width=140)


def _gap_table(
    title: str, heads: Sequence[str], gaps: Sequence[IndirectGap], cells: Callable[[IndirectGap], Sequence[str]]
) -> Table:
    """Return one line for each gap. Names fold where the terminal is narrow, numbers do not."""
    table = Table(title=Text(title), title_justify="left")
    rows = [[str(cell) for cell in cells(one)] for one in gaps]
    table.add_column("Gap", overflow="fold")
    for place, head in enumerate(heads):
        widest = max(len(row[place]) for row in rows)
        table.add_column(Text(head), justify="right", overflow="fold", min_width=widest)
    for one, row in zip(gaps, rows, strict=True):
        table.add_row(Text(gap_words(one)), *map(Text, row))
    return table


def _answer_words(one: IndirectGap) -> list[str]:
    figure = one.estimate
    return (
        [points(figure.value), f"[{points(figure.low)}, {points(figure.high)}]"] if figure.defined else ["refused", ""]
    )


def _naive_words(proxies: Sequence[str]) -> Callable[[IndirectGap], list[str]]:
    return lambda one: [points(one.naive.get(proxy, math.nan)) for proxy in proxies]


def _bound_words(one: IndirectGap) -> Sequence[str]:
    return ("", "") if one.bounds is None else worst_words(one.bounds)


def points(value: float) -> str:
    """Return a signed fraction in points, ``+12.3``."""
    return f"{100 * value:+.1f}" if math.isfinite(value) else ""


def worst_words(worst: GapBounds) -> tuple[str, str]:
    """Return bounds as a table shows them: of these rows, and with their sampling error."""
    ends = (worst.low, worst.high), (worst.reach_low, worst.reach_high)
    first, second = (f"[{points(low)}, {points(high)}]" for low, high in ends)
    return first, second


def gap_words(one: IndirectGap) -> str:
    """Return ``Selection rate: 'women' minus 'men'``."""
    return f"{TITLES[one.gap]}: {quoted(one.groups[0])} minus {quoted(one.groups[1])}"


def headline(part: IndirectPart) -> str:
    """Say what was found, under which assumption, in one or two sentences."""
    found = [one for one in part.gaps if one.estimate.defined]
    if part.refused or not found:
        worst = max((one for one in part.gaps if one.bounds), key=_reach, default=None)
        if worst is None:
            return f"No answer: {part.refused}. What would help: {part.help}."
        return _worst_sentence(part, worst)
    first = next((one for one in found if one.gap == "demographic_parity"), found[0])
    pairs = [one for one in found if one.gap == first.gap]
    one = max(pairs, key=lambda gap: abs(gap.estimate.value))
    figure, rate = one.estimate, TITLES[one.gap].lower()
    a, b = map(quoted, one.groups)
    ends = f"{100 * part.level:g}% interval {points(figure.low)} to {points(figure.high)}"
    if len(pairs) > 1:
        ends += f"; the largest of {len(pairs)} differences between two groups, with intervals that allow for all"
    if figure.low <= 0 <= figure.high:
        return (
            f"If {part.assumes}, these rows cannot tell whether the {rate} differs between {a} and {b}: the "
            f"difference is "
            f"{points(figure.value)} points ({ends})."
        )
    way = "higher" if figure.value > 0 else "lower"
    return (
        f"If {part.assumes}, the {rate} of {a} is {100 * abs(figure.value):.1f} points {way} than that of {b} ({ends})."
    )


def _reach(one: IndirectGap) -> float:
    return one.bounds.largest_reach if one.bounds and one.gap == "demographic_parity" else -1.0


def _worst_sentence(part: IndirectPart, one: IndirectGap) -> str:
    worst = one.bounds
    assert worst is not None
    a, b = map(quoted, one.groups)
    start = (
        f"Known is only {part.assumes}"
        if part.method == "bounds"
        else f"No estimate: {part.refused}. Known are the shares"
    )
    certain = "higher" if worst.reach_low > 0 else "lower" if worst.reach_high < 0 else ""
    return (
        f"{start}: the selection rate of {a} minus that of {b} could be anything from {points(worst.reach_low)} to "
        f"{points(worst.reach_high)} points, "
        + (f"{certain} in any case, " if certain else "")
        + "and no method can say more without another assumption."
    )


@dataclass(frozen=True)
class Shares:
    """Shares of the groups, of all rows or by stratum.

    ``groups`` are their names; ``overall`` (groups,) for all rows, or ``by_stratum`` with one such list a stratum.
    """

    groups: tuple[str, ...]
    overall: tuple[float, ...] | None = None
    by_stratum: Mapping[str, tuple[float, ...]] | None = None


def read_shares(given: Sequence[str], strata: str | None = None) -> Shares:
    """Read ``women=0.52`` (repeated, or with commas), or the path of a csv of shares by stratum.

    Raises:
        ConfigError: shares that are no fractions, do not add to 1, or name a group twice.
        DataError: a csv that cannot be read.
    """
    if len(given) == 1 and given[0].lower().endswith((".csv", ".tsv")):
        return _shares_file(Path(given[0]), strata)
    shares: dict[str, float] = {}
    for text in ",".join(given).split(","):
        name, sign, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not sign or not name.strip() or not 0 < value < 1:
            raise ConfigError(f"--shares {quoted(text)}: write a group and its share of the rows, as in women=0.52.")
        if name.strip() in shares:
            raise ConfigError(f"--shares names {quoted(name.strip())} twice.")
        shares[name.strip()] = value
    return shares_from(shares)


def shares_from(shares: Mapping[str, float]) -> Shares:
    """Check shares of all rows; of one group alone, the rest are its complement."""
    names, values = [str(name) for name in shares], [float(value) for value in shares.values()]
    if not values or not all(0 < value < 1 for value in values):
        raise ConfigError("Each share must lie between 0 and 1: pass for example women=0.52.")
    if len(names) == 1:
        names, values = [f"not {names[0]}", *names], [1 - values[0], *values]
    if abs(sum(values) - 1) > 1e-6:
        raise ConfigError(f"The shares add to {sum(values):.6g}, not to 1. Name every group, or one group alone.")
    return Shares(tuple(names), tuple(value / sum(values) for value in values))


def _shares_file(path: Path, strata: str | None) -> Shares:
    if strata is None:
        raise ConfigError(f"--shares {path} has shares by stratum: name the column of strata with --strata.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",") if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({type(error).__name__}). Is it a csv of shares by stratum?") from None
    if len(rows) < 2 or len(rows[0]) < 3:
        raise DataError(f"{path} needs a header (stratum, then each group) and one line for each stratum.")
    groups = tuple(name.strip() for name in rows[0][1:])
    by_stratum: dict[str, tuple[float, ...]] = {}
    for row in rows[1:]:
        try:
            values = tuple(float(field) for field in row[1:])
        except ValueError:
            values = ()
        name = row[0]
        if len(values) != len(groups) or not all(0 <= value <= 1 for value in values) or abs(sum(values) - 1) > 1e-6:
            raise DataError(
                f"{path}, stratum {quoted(name)}: there must be one share for each of {len(groups)} groups, and "
                f"they must "
                "add to 1."
            )
        if name in by_stratum:
            raise DataError(f"{path} has stratum {quoted(name)} twice.")
        by_stratum[name] = values
    if len(set(groups)) != len(groups):
        raise DataError(f"{path} has two groups of one name.")
    return Shares(groups, by_stratum=by_stratum)


def indirect_audit(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    labelled: ArrayLike | None = None,
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
) -> IndirectAudit:
    """Measure or bound gaps between groups that are not recorded, by the strongest method that the input allows.

    Args:
        y_true: (rows,) true classes.
        y_pred: (rows,) predicted classes.
        labelled: (rows,) the group where it is known, None or NaN elsewhere.
        proxies: (rows,) a proxy, or a frame or dict of several: groups in the same words, or probabilities from 0 to 1.
        inclusion: (rows,) the probability with which each row was labelled, if the labelled rows are no random sample.
        responses: (rows,) randomised groups, or a dict of several columns.
        response: how they were randomised: one for all, or by column.
        shares: share of each group, which add to 1; or of one group alone; or :class:`Shares` by stratum.
        strata: (rows,) the stratum of each row, for shares by stratum.
        positive: the class that rates are about; None: the second of two.
        level: confidence level.
        replicates: bootstrap replicates, where a method needs them.
        seed: of the bootstrap.

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
    label, prediction = outcome_of(y_true, "label"), outcome_of(y_pred, "prediction")
    rows = len(label[0])
    if rows != len(prediction[0]):
        raise DataError(f"{rows} labels and {len(prediction[0])} predictions. Pass one of each for every row.")
    if not rows:
        raise DataError("There are no rows to audit. Pass at least one labelled prediction.")
    columns: dict[str, Column] = {}

    def take(name: str, values: Any) -> list[str]:
        if isinstance(values, Mapping | pd.DataFrame):
            found = columns_of(values, rows)
        else:
            kept = np.asarray(values)
            numbers = kept.ndim == 1 and kept.dtype.kind == "f" and name in ("proxy", "inclusion")
            if numbers and len(kept) == rows:
                found = {name: (kept.astype(np.float64), [])}
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
    known.check()
    tallies = known.tallies("The label", "The prediction", {name: f"The column {quoted(name)}" for name in columns})
    for tally in tallies.values():
        tally.add(label, prediction, columns)
    return _answer(known, tallies, positive, level, replicates, seed)


def indirect_audit_file(
    path: Path | str,
    label: str,
    prediction: str,
    *,
    labelled: str | None = None,
    proxies: Sequence[str] = (),
    inclusion: str | None = None,
    responses: Mapping[str, Response] | None = None,
    shares: Mapping[str, float] | Shares | None = None,
    strata: str | None = None,
    positive: Hashable = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> IndirectAudit:
    """Audit a file of predictions without its groups; batches of rows are counted and forgotten.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file with one prediction a row.
        label: name of the column with the true classes.
        prediction: name of the column with the predicted classes.
        labelled: name of the column with the group where it is known, empty elsewhere.
        proxies: names of the columns with proxies.
        inclusion: name of the column with the probability with which a row was labelled.
        responses: for each column of randomised groups, how it was randomised.
        shares: as :func:`indirect_audit` takes it, like all that follows.
        strata: name of the column with strata.
        positive: see there.
        level: see there.
        replicates: see there.
        seed: see there.

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
    )
    known.check()
    path = Path(path)
    names = [label, prediction, *known.columns]
    titles = {name: f"{path}, column {quoted(name)}" for name in names}
    tallies = known.tallies(titles[label], titles[prediction], titles)
    numbers = _stored_as_fractions(path, known.proxies)
    words = [name for name in known.columns if name not in numbers]
    for batch, fractions in read_batches_with_numbers(path, [label, prediction], words, numbers):
        # A column of fractions has hardly two equal ones: the numbers themselves stand in place of codes.
        columns: dict[str, Any] = batch | {name: (values, []) for name, values in fractions.items()}
        for tally in tallies.values():
            tally.add(batch[label], batch[prediction], columns)
    return _answer(known, tallies, positive, level, replicates, seed)


def _stored_as_fractions(path: Path, names: Sequence[str]) -> list[str]:
    """Return which columns a parquet file stores as floating-point numbers."""
    if path.suffix.lower() != ".parquet":
        return []
    try:
        schema = pyarrow.parquet.read_schema(path)
    except (OSError, pyarrow.ArrowException):
        return []  # the reader says what is wrong
    return [name for name in names if schema.names.count(name) == 1 and _is_floating(schema.field(name).type)]


def _is_floating(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_floating(kind))


@dataclass(frozen=True)
class Known:
    """What is known of the groups: names of columns, shares, and how answers were randomised."""

    labelled: str | None = None
    proxies: tuple[str, ...] = ()
    inclusion: str | None = None
    strata: str | None = None
    shares: Shares | None = None
    responses: Mapping[str, Response] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of all columns besides label and prediction."""
        return list(
            dict.fromkeys([*self.responses, *Roles(self.labelled, self.inclusion, self.proxies, self.strata).columns])
        )

    def check(self) -> None:
        """Raise :class:`ConfigError` where nothing is known, or where options contradict each other."""
        if not (self.labelled or self.proxies or self.shares or self.responses):
            raise ConfigError(
                f"{NOTHING_KNOWN} What would help: the group of 100 rows or more (--labelled-group), three proxies "
                "(--proxy), or the shares of the groups (--shares)."
            )
        if self.inclusion and not self.labelled:
            raise ConfigError(
                "Probabilities to be labelled need a labelled subset: name its column (--labelled-group)."
            )
        if self.strata and not (self.shares or self.labelled or self.proxies):
            raise ConfigError("Strata need the shares of the groups in each of them: pass --shares FILE.csv.")
        if self.shares and self.shares.by_stratum is not None and not self.strata:
            raise ConfigError("Shares by stratum need the column of strata: name it (--strata).")
        if self.responses and (self.labelled or self.proxies or self.shares):
            raise ConfigError(
                "Randomised responses are audited by themselves: leave out the labelled group, proxies and shares, or "
                "audit those in a second run."
            )
        roles = [name for name in (self.labelled, self.inclusion, self.strata, *self.proxies) if name]
        if doubled := [name for name in roles if roles.count(name) > 1]:
            raise ConfigError(f"Column {quoted(doubled[0])} has two roles. Name another column for one of them.")

    def tallies(self, label: str, prediction: str, titles: dict[str, str]) -> dict[str, Tally]:
        """Return an empty tally for each attribute, by name."""
        words = {**titles, "label": label, "prediction": prediction}
        if self.responses:
            return {name: Tally(Roles(labelled=name), words) for name in self.responses}
        name = self.labelled or "groups"
        return {name: Tally(Roles(self.labelled, self.inclusion, self.proxies, self.strata), words)}


@dataclass(frozen=True)
class _Options:
    level: float
    replicates: int
    seed: int


def _answer(
    known: Known, tallies: dict[str, Tally], positive: Hashable, level: float, replicates: int, seed: int
) -> IndirectAudit:
    check_options(level, replicates)
    first = next(iter(tallies.values()))
    labels: dict[Hashable, int] = {}
    predictions: dict[Hashable, int] = {}
    for pattern, sums in first.sums.items():
        labels[pattern[0]] = labels.get(pattern[0], 0) + int(sums[0, 0])
        predictions[pattern[1]] = predictions.get(pattern[1], 0) + int(sums[0, 0])
    if len(labels.keys() | predictions.keys()) > MOST_CLASSES:
        raise DataError(f"There are more than {MOST_CLASSES} classes: are these scores? An audit compares classes.")
    warnings = check_predictions(labels, predictions)
    if len(predictions) == 1:
        only = quoted(str(next(iter(predictions))))
        warnings.append(f"Every prediction is {only}: every gap among these rows is 0, whatever the groups are.")
    classes = in_order({**labels, **predictions})
    chosen = positive_index(classes, positive)
    if chosen is None:
        if len(classes) > 2:
            raise ConfigError(
                f"There are {len(classes)} classes; an audit without the attribute compares one with the rest. Name it "
                "with --positive."
            )
        chosen = len(classes) - 1
    wanted = classes[chosen]
    options = _Options(level, replicates, seed)
    parts = {}
    for name, tally in tallies.items():
        # 0/1 for label and prediction; classes are few, so this is cheap.
        merged: dict[tuple[Hashable, ...], FloatArray] = {}
        for pattern, sums in tally.sums.items():
            key = (int(pattern[0] == wanted), int(pattern[1] == wanted), *pattern[2:])
            merged[key] = merged[key] + sums if key in merged else sums
        if known.responses:
            part = _responses(name, merged, known.responses[name], known, options)
        else:
            part = _strongest(name, merged, known, bool(tally.probability), options)
        parts[name] = replace(part, level=level, rests_on=_with_pairs(part))
    rows = sum(labels.values())
    return IndirectAudit(parts, warnings, rows, str(wanted), level)


def _with_pairs(part: IndirectPart) -> list[str]:
    """Say how intervals allow for several pairs of groups, before the sentence about persons."""
    pairs = {one.groups for one in part.gaps}
    if len(pairs) < 2:
        return part.rests_on
    if any(one.estimate.defined for one in part.gaps):
        how = "each interval is wider than that of a single pair, so that all of a rate hold together (Bonferroni)"
    else:
        how = "their bounds come from the same rates, so that all of a rate hold together"
    place = part.rests_on.index(PERSONS)
    said = f"There are {len(pairs)} pairs of groups: {how}."
    return [*part.rests_on[:place], said, *part.rests_on[place:]]


def _counted(groups: int) -> str:
    return "1 group" if groups == 1 else f"{groups} groups"


Cells = Mapping[tuple[Hashable, ...], FloatArray]


def _array(cells: Cells, places: Sequence[tuple[int, Sequence[Hashable]]]) -> FloatArray:
    """Sum patterns into an array: an axis for each (position, its values), then (3, 3); others are left out."""
    index = [(at, {value: place for place, value in enumerate(values)}) for at, values in places]
    out = np.zeros((*(len(values) for _, values in places), 3, 3))
    for pattern, sums in cells.items():
        place = tuple(where.get(pattern[at], -1) for at, where in index)
        if min(place) >= 0:
            out[place] += sums
    return out


_OUTCOME: list[tuple[int, Sequence[Hashable]]] = [(0, (0, 1)), (1, (0, 1))]


def _responses(name: str, cells: Cells, response: Response, known: Known, options: _Options) -> IndirectPart:
    groups = in_order({pattern[2] for pattern in cells} - {None})
    without = sum(sums[0, 0] for pattern, sums in cells.items() if pattern[2] is None)
    if without:
        raise DataError(
            f"Column {quoted(name)}: {int(without):,} rows have no answer. Whether somebody answered was not "
            f"randomised: make "
            "it a category, or leave those rows out."
        )
    if not 2 <= len(groups) <= MOST_GROUPS:
        raise DataError(
            f"Column {quoted(name)} has {_counted(len(groups))}; randomised responses need 2 to {MOST_GROUPS}."
        )
    counts = _array(cells, [(2, groups), *_OUTCOME])[..., 0, 0]
    matrix = response.matrix(len(groups))
    found = by_responses(counts, matrix, level=options.level)
    shares = shares_of(counts.sum((1, 2)), matrix)
    gaps, rests = [], []
    for gap, by_pair in found.items():
        for (a, b), one in by_pair.items():
            gaps.append(
                IndirectGap(gap, (str(groups[a]), str(groups[b])), one.estimate, {"reports as groups": one.naive})
            )
    best = found["demographic_parity"]
    spent = response.spent(len(groups))
    rests.append(
        "Method: the answers’ noise is known, so it is inverted exactly, and its share of the variance is counted."
    )
    rests.append(f"Assumption: every answer, one of {len(groups)}, was randomised with {response}, by chance alone.")
    if math.isinf(spent):
        rests.append("A flip of 0 protects nobody: these are plain groups.")
    else:
        budgets = [one.epsilon for one in known.responses.values()]
        together = sum(one for one in budgets if one is not None)
        more = f" The {len(budgets)} attributes of a person spent {together:.2f} together."
        rests.append(
            f"Each answer in {quoted(name)} spent epsilon={spent:.2f}."
            + (more if len(budgets) > 1 and None not in budgets else "")
        )
    defined = [one for one in best.values() if one.estimate.defined]
    if defined:
        inflation = max(one.inflation for one in defined)
        rows = max(one.rows_for_5_points or 0 for one in defined)
        rests.append(
            f"The noise makes the variance of the gap in selection rates {inflation:.1f} times that of the naive one; "
            f"{rows:,} rows would decide a gap of 5 points."
        )
    named = {str(group): float(share) for group, share in zip(groups, shares.shares, strict=True)}
    rests += [_naive_line(gaps), PERSONS]
    refused = "" if any(one.estimate.defined for one in gaps) else gaps[0].estimate.reason or ""
    return IndirectPart(
        "randomised responses", f"every answer was randomised with {response}", gaps, rests, refused,
        "more rows, or a larger epsilon for the next people who are asked" if refused else "", named,
    )  # fmt: skip


def _naive_line(gaps: Sequence[IndirectGap]) -> str:
    naive = [
        (one, proxy, value) for one in gaps if one.gap == "demographic_parity" for proxy, value in one.naive.items()
    ]
    naive = [item for item in naive if math.isfinite(item[2])]
    if not naive:
        return "There is no naive proxy gap to print beside it."
    said = ", ".join(f"{points(value)} points ({printable(proxy)})" for _, proxy, value in naive[:6])
    return (
        f"Naive gap in selection rates, with the proxy taken for the group: {said}. It is not what this "
        f"answer rests on."
    )


def _strongest(name: str, cells: Cells, known: Known, probability: bool, options: _Options) -> IndirectPart:
    """Answer with the first method that can; say why the stronger ones could not."""
    why: list[str] = []
    labelled = sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[2] is not None)
    if known.labelled:
        if labelled >= FEWEST_LABELLED:
            return _labelled(name, cells, known, probability, options)
        why.append(
            (f"Only {int(labelled)}" if labelled >= FEWEST_SHOWN else f"Fewer than {FEWEST_SHOWN}")
            + f" rows have a group, and {FEWEST_LABELLED} are needed for an estimate."
        )
    if len(known.proxies) >= 3:
        return _three_proxies(cells, known, why, options)
    if known.shares:
        return _shares(cells, known, known.shares, why, options)
    if probability:
        return _probability(cells, known, why, options)
    if known.proxies:
        for proxy, at in zip(known.proxies, range(3, 3 + len(known.proxies)), strict=True):
            if len(said := {pattern[at] for pattern in cells}) == 1:
                if said == {None}:
                    raise DataError(f"Proxy {quoted(proxy)} is missing in every row. Leave it out.")
                raise DataError(
                    f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
                )
        reason = (
            f"{len(known.proxies)} prox{'y' if len(known.proxies) == 1 else 'ies'} without labelled rows cannot "
            f"tell a gap "
            "from the proxy’s own errors"
        )
    else:
        reason = why[-1].rstrip(".")[0].lower() + why[-1].rstrip(".")[1:]
    gaps = [IndirectGap(gap, ("one group", "another"), Estimate.refuse(reason, 0, "nothing"), {}) for gap in GAPS]
    helped = (
        f"the group of {FEWEST_LABELLED} randomly chosen rows (--labelled-group), three proxies from different "
        f"sources, or "
        "the shares of the groups (--shares)"
    )
    return IndirectPart("bounds", "nothing", gaps, [*why, NOTHING_KNOWN, PERSONS], reason, helped)


def _labelled(name: str, cells: Cells, known: Known, probability: bool, options: _Options) -> IndirectPart:
    groups = in_order({pattern[2] for pattern in cells} - {None})
    if not 2 <= len(groups) <= MOST_GROUPS:
        raise DataError(f"Column {quoted(name)} has {_counted(len(groups))}; this method compares 2 to {MOST_GROUPS}.")
    weighted = known.inclusion is not None
    positions = list(range(3, 3 + len(known.proxies)))
    reason = "" if weighted else _not_random(cells, positions, probability)
    helped = "the probability with which each row was labelled, as a column (--inclusion), or labels of a random sample"
    found: dict[str, dict[tuple[int, int], LabelledGap]]
    h_way = 1.0
    if len(groups) == 2:
        own, rest, h_way = _moments(cells, groups, 1, positions, probability)
        two = by_labelled_rows(own, rest, level=options.level, weighted=weighted)
        found = {gap: {(1, 0): one} for gap, one in two.items()}
    else:
        tables = _by_cell(cells, groups, positions, probability)
        found = by_labelled_pairs(*tables, level=options.level, weighted=weighted)
    gaps: list[IndirectGap] = []
    found_all: list[tuple[str, LabelledGap]] = []
    for gap, by_pair in found.items():
        for (a, b), one in by_pair.items():
            figure = Estimate.refuse(reason, one.estimate.n, one.estimate.assumes) if reason else one.estimate
            naive = {}
            if probability and len(groups) == 2:
                naive = {known.proxies[0]: h_way * naive_gap(_halves(cells), gap)}
            elif known.proxies and not probability:
                naive = _category_naive(cells, known.proxies, positions, (groups[b], groups[a]), groups, gap)
            gaps.append(IndirectGap(gap, (str(groups[a]), str(groups[b])), figure, naive, one.classical))
            found_all.append((gap, one))
    main = [one for gap, one in found_all if gap == "demographic_parity" and one.estimate.defined]
    n = int(sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[2] is not None))
    rest_rows = int(sum(float(sums[0, 0]) for sums in cells.values())) - n
    assumes = "each row was labelled with the probability that its column says" if weighted else (
        "the labelled rows are a random sample"
    )  # fmt: skip
    sizes = [
        (str(group), int(sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[2] == group)))
        for group in groups
    ]
    counted = ", ".join(
        f"{quoted(group)} {size:,}" if shown_count(size) else f"{quoted(group)} fewer than {FEWEST_SHOWN}"
        for group, size in sizes
    )
    rests = [
        f"Method: {n:,} rows with their group ({counted}) correct what the proxy says of {rest_rows:,} others. "
        f"It was taken "
        f"because {FEWEST_LABELLED} labelled rows or more are the strongest evidence, whatever the proxy is worth.",
        f"Assumption: {assumes}. Nothing is assumed of the proxy.",
    ]
    same = [
        name
        for name, at in zip(known.proxies, positions, strict=True)
        if len({pattern[-2] if probability else pattern[at] for pattern in cells}) == 1
    ]
    if same and not (probability and _spread(cells)):
        rests.append(f"The proxy {quoted(same[0])} is the same in every row, and so tells nothing: leave it out.")
    if not known.proxies:
        rests.append("There is no proxy: of the other rows the predictions alone are used.")
    elif probability and len(groups) == 2:
        rests.append(
            f"The proxy {quoted(known.proxies[0])} must not have been fitted on these labelled rows. If it was, "
            f"pass the columns it "
            "was made from with --proxy instead: they are cross-fitted."
        )
    else:
        rests.append(
            f"The proxies were turned into one probability by cross-fitting in {FOLDS} parts of the labelled rows."
        )
    if main:
        one = max(main, key=lambda found: found.narrower if math.isfinite(found.narrower) else 0)
        factor = 1 / one.narrower if one.narrower > 0 else math.nan
        rests.append(
            f"The interval of the gap in selection rates is {factor:.2f} times narrower than that of the "
            f"labelled rows alone."
        )
        if one.more_labels:
            rests.append(
                f"About {one.more_labels:,} more labelled rows would decide a gap of the size measured, if it is real."
            )
        elif one.more_labels is None:
            rests.append("The gap measured is so small that no serious number of labels would decide it.")
    rests += [_naive_line(gaps), PERSONS]
    refused = reason or ("" if main else gaps[0].estimate.reason or "")
    if refused and not reason:
        helped = "more labelled rows, above all of the smaller group"
    return IndirectPart("labelled subset", assumes, gaps, rests, refused, helped if refused else "")


def _spread(cells: Cells) -> bool:
    """Whether a probability varies."""
    rows, first, second = np.sum([sums[0] for sums in cells.values()], 0)
    return bool(second / rows - (first / rows) ** 2 > 1e-12)


def _halves(cells: Cells) -> FloatArray:
    """Count rows by whether the probability is at least a half: (2, label, prediction)."""
    out = np.zeros((2, 2, 2))
    for pattern, sums in cells.items():
        out[int(int(str(pattern[-2])) >= BINS // 2), int(str(pattern[0])), int(str(pattern[1]))] += sums[0, 0]
    return out


def _category_naive(
    cells: Cells, proxies: Sequence[str], positions: Sequence[int], pair: tuple[Hashable, Hashable],
    groups: Sequence[Hashable], gap: str,
) -> dict[str, float]:  # fmt: skip
    """The naive gaps, second of the pair minus first, of those proxies that speak of the groups in their own words."""
    out = {}
    for proxy, at in zip(proxies, positions, strict=True):
        values = {pattern[at] for pattern in cells}
        if values <= set(groups):
            out[proxy] = naive_gap(_array(cells, [(at, pair), *_OUTCOME])[..., 0, 0], gap)
    return out


def _moments(
    cells: Cells, groups: Sequence[Hashable], a: int, positions: Sequence[int], probability: bool
) -> tuple[FloatArray, FloatArray, float]:
    """Return what :func:`by_labelled_rows` takes for group ``a`` against the others, and the proxy's direction."""
    if probability or not positions:
        every = _array(cells, [(2, [*groups, None]), *_OUTCOME])
        known = every[:-1]
        own = np.stack([known.sum(0) - known[a], known[a]])
        rest = every[-1][..., 0, :]
        if not positions:  # without a proxy h is the same everywhere, and gains nothing
            own[..., 1:], rest = own[..., :1], np.repeat(rest[..., :1], 3, -1)
        counts, first = own[..., 0, 0].sum((1, 2)), own[..., 0, 1].sum((1, 2))
        mean = np.divide(first, counts, out=np.zeros(2), where=counts > 0)
        if mean[1] >= mean[0]:
            return own, rest, 1.0
        # The probability is that of the other group: h becomes 1 - h.
        turned = []
        for table in (own, rest):
            zero, one, two = table[..., 0], table[..., 1], table[..., 2]
            turned.append(np.stack([zero, zero - one, zero - 2 * one + two], -1))
        return turned[0], turned[1], -1.0
    labelled, unlabelled = _by_cell(cells, groups, positions, probability)
    two = np.stack([labelled.sum(1) - labelled[:, a], labelled[:, a]], 1)
    return (*cross_fitted(two, unlabelled), 1.0)


def _by_cell(
    cells: Cells, groups: Sequence[Hashable], positions: Sequence[int], probability: bool
) -> tuple[FloatArray, FloatArray]:
    """Count by what the proxies say: labelled (fold, group, cell, label, prediction, 3), unlabelled (cell, 2, 2)."""

    def said(pattern: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        if probability:  # its tenths: what each says of several groups is fitted
            return (int(str(pattern[-2])) * 10 // BINS,)
        return tuple(pattern[at] for at in positions)

    place = {value: at for at, value in enumerate(sorted({said(pattern) for pattern in cells}, key=str))}
    number = {group: at for at, group in enumerate(groups)}
    labelled = np.zeros((FOLDS, len(groups), len(place), 2, 2, 3))
    unlabelled = np.zeros((len(place), 2, 2))
    for pattern, sums in cells.items():
        cell = place[said(pattern)]
        y, hit = int(str(pattern[0])), int(str(pattern[1]))
        if pattern[2] is None:
            unlabelled[cell, y, hit] += sums[0, 0]
        else:
            labelled[int(str(pattern[-1])), number[pattern[2]], cell, y, hit] += sums[:, 0]
    return labelled, unlabelled


def _not_random(cells: Cells, positions: Sequence[int], probability: bool) -> str:
    """Say so if being labelled goes with label, prediction or proxy; empty if these rows do not show it."""
    table: dict[tuple[Hashable, ...], FloatArray] = {}
    for pattern, sums in cells.items():
        proxy = int(str(pattern[-2])) * 5 // BINS if probability else tuple(pattern[at] for at in positions)
        row = table.setdefault((pattern[0], pattern[1], proxy), np.zeros(2))
        row[int(pattern[2] is not None)] += sums[0, 0]
    counts = np.array(list(table.values()))
    share = counts[:, 1].sum() / counts.sum()
    counts = counts[counts.sum(1) * min(share, 1 - share) >= 5]
    if len(counts) < 2 or (counts.sum(0) == 0).any():
        return ""
    if stats.chi2_contingency(counts, correction=False).pvalue >= 0.001:
        return ""
    return (
        "whether a row was labelled goes with its label, prediction or proxy, so the labelled rows are no random sample"
    )


def _three_proxies(cells: Cells, known: Known, why: list[str], options: _Options) -> IndirectPart:
    positions = range(3, 3 + len(known.proxies))
    values = [{pattern[at] for pattern in cells} for at in positions]
    for proxy, own in zip(known.proxies, values, strict=True):
        if None in own:
            rows = sum(
                float(sums[0, 0]) for pattern, sums in cells.items() if pattern[3 + known.proxies.index(proxy)] is None
            )
            raise DataError(
                f"Proxy {quoted(proxy)} is missing in {int(rows):,} row{'' if rows == 1 else 's'}. A proxy must say "
                "something of every row: fill it in, or leave those rows out."
            )
        if len(own) == 1:
            raise DataError(
                f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
            )
    words = set().union(*values)
    groups = in_order(words)
    if any(own != words for own in values):
        raise DataError(
            "The proxies do not name the same groups: "
            + "; ".join(
                f"{quoted(p)} says {', '.join(map(quoted, in_order(own)[:4]))}"
                for p, own in zip(known.proxies, values, strict=True)
            )
            + ". Write the groups in the same words in all of them."
        )
    if len(groups) > MOST_GROUPS:
        raise DataError(f"The proxies name {len(groups)} groups; this method compares at most {MOST_GROUPS}.")
    for j, first in enumerate(positions):
        for k, second in enumerate(positions):
            if k > j and all(pattern[first] == pattern[second] for pattern in cells):
                raise DataError(
                    f"Proxies {quoted(known.proxies[j])} and {quoted(known.proxies[k])} are equal in every row: "
                    f"they are one proxy, "
                    "not two. Leave one out."
                )
    counts = _array(cells, [*((at, groups) for at in positions), *_OUTCOME])[..., 0, 0]
    answer = by_proxies(counts, level=options.level, replicates=options.replicates, seed=options.seed)
    outcome = counts.sum(tuple(range(len(known.proxies))))
    worst: dict[str, dict[tuple[int, int], GapBounds]] = {}
    if known.shares and known.shares.overall and known.shares.groups == tuple(map(str, groups)):
        worst = by_shares(outcome, known.shares.overall, level=options.level)
    elif not answer.refused and (answer.shares > 0).all():
        assumes = "the shares that the proxies imply"
        worst = by_shares(outcome, answer.shares / answer.shares.sum(), level=options.level, assumes=assumes)
    gaps = []
    for gap, by_pair in answer.gaps.items():
        for (a, b), figure in by_pair.items():
            naive = dict(zip(known.proxies, answer.naive[gap][a, b], strict=True))
            gaps.append(
                IndirectGap(gap, (str(groups[a]), str(groups[b])), figure, naive, None, worst.get(gap, {}).get((a, b)))
            )
    assumes = ASSUMES[answer.mode]
    rests = [
        *why,
        f"Method: how often {len(known.proxies)} proxies agree tells how good each is. It was taken because no "
        f"{FEWEST_LABELLED} rows have a known group.",
        f"Assumption: {assumes}; and each is right more often than chance.",
        SHARED,
    ]
    if math.isfinite(answer.p_value):
        if answer.mode == "local":
            rests.append(
                "A test rejected that the proxies’ errors do not depend on label and prediction (p below 0.01), "
                "so the weaker "
                "assumption was taken, which needs more rows."
            )
        else:
            rests.append(
                f"A test did not reject that their errors do not depend on label and prediction (p = "
                f"{answer.p_value:.2f})."
            )
    if not answer.refused and np.isfinite(answer.accuracy).all():
        said = ", ".join(
            f"{quoted(proxy)} " + " and ".join(f"{100 * own[k, k]:.0f}%" for k in range(len(groups)))
            for proxy, own in zip(known.proxies, answer.accuracy, strict=True)
        )
        rests.append(
            f"Fitted: how often each proxy is right of {' and of '.join(quoted(str(g)) for g in groups)}: {said}."
        )
    rests += [_naive_line(gaps), PERSONS]
    shares = {} if answer.refused else {str(g): float(s) for g, s in zip(groups, answer.shares, strict=True)}
    helped = "the group of 100 randomly chosen rows (--labelled-group), or proxies from sources that err differently"
    return IndirectPart("three proxies", assumes, gaps, rests, answer.refused, helped if answer.refused else "", shares)


def _shares(cells: Cells, known: Known, shares: Shares, why: list[str], options: _Options) -> IndirectPart:
    position = 3 + len(known.proxies)
    rests = list(why)
    if shares.by_stratum is not None:
        strata = in_order({pattern[position] for pattern in cells} - {None})
        missing = sum(float(sums[0, 0]) for pattern, sums in cells.items() if pattern[position] is None)
        unseen = [one for one in strata if one not in shares.by_stratum]
        if unseen or missing:
            which = f"stratum {quoted(str(unseen[0]))}" if unseen else "rows without a stratum"
            raise DataError(
                f"There are no shares for {which}. Name the shares of every stratum that the predictions have."
            )
        counts = _array(cells, [(position, strata), *_OUTCOME])[..., 0, 0]
        p = np.array([shares.by_stratum[str(one)] for one in strata])
        found = by_shares(counts, p, level=options.level, assumes=ASSUMES_STRATA)
        assumes = f"the share of each group in each of {len(strata):,} strata"
    else:
        assert shares.overall is not None
        outcome = _array(cells, _OUTCOME)[..., 0, 0]
        found = by_shares(outcome, shares.overall, level=options.level, assumes=ASSUMES_SHARES)
        assumes = "the share of each group"
        if known.strata:
            rests.append(
                "Strata narrow the bounds only if the shares of the groups in each of them are known: pass them "
                "with --shares "
                "FILE.csv (a line a stratum, a column a group)."
            )
    return _bounds_part(found, shares.groups, assumes, rests, {})


def _bounds_part(
    found: dict[str, dict[tuple[int, int], GapBounds]],
    groups: Sequence[str],
    assumes: str,
    rests: list[str],
    naive: dict[str, dict[str, float]],
    more: str = "",
) -> IndirectPart:
    reason = "bounds, not an estimate: the groups of no rows are known"
    gaps = [
        IndirectGap(
            gap, (groups[a], groups[b]), Estimate.refuse(reason, one.n, one.assumes), naive.get(gap, {}), None, one
        )
        for gap, by_pair in found.items()
        for (a, b), one in by_pair.items()
    ]
    rests = [
        *rests,
        "Method: the largest and the smallest gap that agree with what is known, with the sampling error of "
        "these rows.",
        f"Known: only {assumes}. The worst case assumes nothing of how predictions depend on the group.",
        *([more] if more else []),
        _naive_line(gaps),
        PERSONS,
    ]
    helped = (
        f"the group of {FEWEST_LABELLED} randomly chosen rows (--labelled-group), which turns bounds into an estimate"
    )
    return IndirectPart("bounds", assumes, gaps, [*rests, f"What would help: {helped}."], reason, helped)


def _probability(cells: Cells, known: Known, why: list[str], options: _Options) -> IndirectPart:
    proxy = known.proxies[0]
    bins = _array(cells, [(len(next(iter(cells))) - 2, range(BINS)), *_OUTCOME])
    rows = bins[..., 0, 0].sum((1, 2))
    bins = bins[rows > 0]
    rows = rows[rows > 0]
    mean = bins[..., 0, 1].sum((1, 2)) / rows
    if len(rows) == 1 and mean[0] in (0.0, 1.0):
        raise DataError(
            f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
        )
    if not 0 < float(rows @ mean) / rows.sum() < 1:
        raise DataError(f"Proxy {quoted(proxy)} puts every row into one group. There is no gap to bound.")
    found = by_shares(
        bins[..., 0, 0], np.stack([1 - mean, mean], -1), level=options.level, assumes=ASSUMES_PROBABILITIES
    )
    ends: Bracket = bracket(
        bins[..., 0, :].sum((0, 1)), bins[..., 0, :].sum(1), level=options.level, replicates=options.replicates,
        seed=options.seed,
    )  # fmt: skip
    if ends.weighted.reason:
        raise DataError(
            f"Proxy {quoted(proxy)} is the same in every row, and so tells nothing of the group. Leave it out."
        )
    groups = in_order({pattern[2] for pattern in cells} - {None})
    signs, helped = ("unknown", "unknown"), ""
    if len(groups) == 2:
        own = _array(cells, [(2, groups), *_OUTCOME])[..., 0, :].sum(1)
        if own[1, :, 1].sum() / max(1, own[1, :, 0].sum()) < own[0, :, 1].sum() / max(1, own[0, :, 0].sum()):
            own = own[::-1]
        signs = sign_conditions(own)
    both = sorted((ends.weighted.value, ends.linear.value))
    low, high = min(ends.weighted.low, ends.linear.low), max(ends.weighted.high, ends.linear.high)
    between = (
        f"between {points(both[0])} and {points(both[1])} points (with sampling error {points(low)} to {points(high)})"
    )
    # Both conditions in the direction that the proxy shows.
    way, least, more = ("positive", "least", "less") if both[0] + both[1] >= 0 else ("negative", "most", "more")
    conditions = (
        f"among rows of equal probability the group is selected at {least} as often, and within each group a higher "
        f"probability does not go with {more} selection"
    )
    if signs == (way, way):
        helped = f"The labelled rows show that {conditions}: then the gap in selection rates lies {between}."
    elif {*signs} - {way, "unknown"}:
        helped = f"The labelled rows contradict that {conditions}: no bracket is given."
    else:
        helped = f"If {conditions}, the gap in selection rates lies {between}; no labelled rows confirm it."
    naive = {gap: {proxy: naive_gap(_halves(cells), gap)} for gap in GAPS}
    named = ("all others", proxy)
    return _bounds_part(found, named, f"that the probability {quoted(proxy)} is calibrated", why, naive, helped)
