"""How many rows an audit needs to show a gap, before there are any: ``levelhead plan --gap 5``."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from levelhead.arrays import checked
from levelhead.auditing.door import audit_table
from levelhead.auditing.exclusions import Refused
from levelhead.auditing.options import MIN_COUNT
from levelhead.metrics.power import check_plan, detectable_gap, rows_needed
from levelhead.report import blocks
from levelhead.report.result import Report
from levelhead.report.sentences import Words
from levelhead.report.text import Record, counted, level_text, number
from levelhead.tables.tally import MOST_GROUPS
from levelhead.types import ConfigError, quoted

MOST_ROWS, SMALLEST_SHARE = 10**12, 1e-300


def plan_page(record: Record, *, source: str = "") -> Record:
    """Summarise what :meth:`Plan.to_dict` returned, or the JSON of it, as a page."""
    gap = math.nan if record["gap"] is None else record["gap"]
    names = ("rate", "rows", "power", "level", "comparisons", "denominator")
    plan = Plan(gap, *(record[name] for name in names))
    rows: list[tuple[object, list[Record]]] = [
        (name, [blocks.cell(f"{100 * rows / plan.total:.1f}%"), blocks.cell(f"{rows:,}")])
        for name, rows in plan.rows.items()
    ]
    rows.append(("all", [blocks.cell(), blocks.cell(f"{plan.total:,}")]))
    notes = [
        "Rows are those in the denominator of the rate: all rows for a selection rate, positive rows for a true "
        "positive rate, negative rows for a false positive rate. If 1 row in 4 is positive, a true positive rate gap "
        "needs 4 times as many rows in total.",
        f"Intervals have {level_text(plan.level)} confidence, adjusted for {counted(plan.comparisons, 'comparison')} "
        "(Bonferroni). The two smallest groups determine this. For several group columns, add up their comparisons: "
        "--comparisons.",
    ]
    heads = ["Group", "Share of rows", "Rows"]
    table = blocks.table("Denominator of the rate", heads, rows, notes=notes)
    parts = [blocks.part("The groups", [table])]
    return blocks.page("Plan of an audit", plan.sentence, parts, title=source or "Plan of an audit")


@dataclass(frozen=True)
class Plan(Report):
    """What :func:`plan_audit` found; fractions.

    ``rows`` of each group show a difference of ``gap`` between any two groups with probability ``power``, in an audit
    that makes this many ``comparisons``; they are of the ``denominator`` of the rate, in words. ``gap``
    is NaN where so few rows show no gap, of any size.

    Examples:
        >>> import levelhead as lh
        >>> plan = lh.plan_audit(rows=2000, rate=0.3)
        >>> type(plan).__name__, plan.total, round(plan.gap, 3)
        ('Plan', 2000, 0.066)
    """

    kind: ClassVar[str] = "plan"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(plan_page)

    gap: float
    rate: float
    rows: dict[str, int]
    power: float
    level: float
    comparisons: int = 1
    denominator: str = "rows"

    @property
    def total(self) -> int:
        """Rows of all groups together."""
        return sum(self.rows.values())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; a gap that no number of rows detects is null."""
        return {**super().to_dict(), "total": self.total}

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        found = f"{self.total:,} {self.denominator}"
        if math.isnan(self.gap):
            return f"{found} are too few to detect any gap in a rate of {number(100 * self.rate)}%."
        pairs = len(self.rows) * (len(self.rows) - 1) // 2
        points = f"{100 * self.gap:.1f}" if self.gap >= 0.001 else f"{100 * self.gap:.2g}"
        which = "the two groups" if pairs == 1 else f"any two of {len(self.rows)} groups"
        return (
            f"{found} detect a gap of {points} points between {which} in {100 * self.power:g} "
            f"of 100 audits, at a rate of {number(100 * self.rate)}%."
            + (f" But an audit leaves out groups of fewer than {MIN_COUNT} rows." if self.few else "")
        )

    @property
    def few(self) -> bool:
        """Whether an audit would leave a group out, unless it is asked to keep it (``min_count``)."""
        return min(self.rows.values()) < MIN_COUNT

    def __str__(self) -> str:
        return self.sentence


@checked
def plan_audit(
    data: Any = None,
    *,
    groups: Sequence[str] = (),
    label: str | None = None,
    prediction: str | None = None,
    favourable: Hashable = None,
    gap: float | None = None,
    rows: int | None = None,
    rate: float | None = None,
    shares: Mapping[str, float] | Sequence[float] | str = (0.5, 0.5),
    power: float = 0.8,
    level: float = 0.95,
    comparisons: int | None = None,
) -> Plan:
    """Say how many rows show a gap, or which gap this many rows show.

    Args:
        data: earlier rows that rate and shares are taken from, a table as :func:`levelhead.audit_table` takes it. With
            a ``label`` the rate is the true positive rate, and its denominator the positive rows; without, the
            selection rate, of all rows. None: ``rate`` and ``shares`` say what to expect.
        groups: name of the group column, one alone.
        label: name of the column with the true class.
        prediction: name of the column with the predicted class, or the decision.
        favourable: the class that the rate is about; of decisions it must be named.
        gap: difference between two groups, a fraction; or
        rows: of all groups together.
        rate: of one group, about, a fraction: how often it is selected, or found. The other's lies above or below,
            whichever needs more rows. None: that of ``data``.
        shares: of the groups in the rows, by name or in a row, or as text: ``0.5,0.3,0.2`` or ``women=0.3,men=0.7``.
            They must sum to 1.
        power: how often the gap is to be shown, which means that its interval leaves out 0.
        level: of the intervals, which hold for all comparisons together (Bonferroni).
        comparisons: how many pairs the audit compares. None: every pair of these groups in the true and in the false
            positive rate, as an audit of one column does. Of several columns, the sum.

    Returns:
        the rows of each group, and the gap.

    Raises:
        DataError: as :func:`levelhead.audit_table`, about ``data``.
        ConfigError: a number is out of range, neither or both of ``gap`` and ``rows`` are given, or no number of rows
            that can be had would show the gap.

    Examples:
        >>> import levelhead as lh
        >>> plan = lh.plan_audit(gap=0.05, rate=0.3, shares=[0.5, 0.3, 0.2])
        >>> plan.rows
        {'group 1': 4526, 'group 2': 2716, 'group 3': 1811}
    """
    denominator = "rows"
    if (gap is None) == (rows is None):
        raise Refused("A plan needs a gap to detect or a number of rows: give {gap} or {rows}, one of them.", ["gap"])
    if data is not None:
        found, named, denominator = _earlier(data, list(groups), label, prediction, favourable)
        rate = found if rate is None else rate
    elif rate is None:
        raise Refused("A plan needs the expected rate: give {rate}, or a table of earlier rows.", ["rate"])
    else:
        named = _named(shares)
    whole = math.fsum(named.values())
    if not 2 <= len(named) <= MOST_GROUPS:
        raise ConfigError(f"A plan needs 2 to 1,000 groups, and there are {len(named)}. Pass their shares of the rows.")
    if min(named.values()) < SMALLEST_SHARE or not abs(whole - 1) <= 0.005:
        raise ConfigError(
            f"The groups' shares of the rows are {', '.join(f'{one:g}' for one in list(named.values())[:10])}; each "
            f"must be above 0, and together they must be 1, not {whole:g}."
        )
    parts = np.array(list(named.values())) / whole
    comparisons = len(parts) * (len(parts) - 1) if comparisons is None else comparisons
    check_plan(rate, level, power, comparisons)
    asked: dict[str, Any] = {"level": level, "comparisons": comparisons, "power": power}
    if gap is not None:
        total = _rows_for(gap, rate, parts, asked)
        # A group of a tenth of a row cannot be: each gets whole ones.
        each = [max(1, math.ceil(share * total - 1e-9)) for share in parts]
        return Plan(gap, rate, dict(zip(named, each, strict=True)), power, level, comparisons, denominator)
    if not len(parts) <= (rows or 0) <= MOST_ROWS:
        raise ConfigError(f"rows={rows} must be at least the {len(parts)} groups, and at most {MOST_ROWS:,}.")
    each = [max(1, round(share * (rows or 0))) for share in parts]
    shown = detectable_gap(rate, *sorted(each)[:2], **asked)
    return Plan(shown, rate, dict(zip(named, each, strict=True)), power, level, comparisons, denominator)


def _rows_for(gap: float, rate: float, shares: NDArray[np.float64], asked: Mapping[str, Any]) -> float:
    """Return how many rows show a gap; raise :class:`ConfigError` for one that no rows show, or too many."""
    if not 0 < gap <= 1:
        raise ConfigError(f"A gap of {100 * gap:g} points is out of range: give one above 0 and at most 100.")
    if rate + gap > 1 and rate - gap < 0:
        raise ConfigError(
            f"A gap of {100 * gap:g} points does not fit a rate of {100 * rate:g}%: the other group's rate would "
            "be below 0 or above 100%."
        )
    if (total := rows_needed(gap, rate, shares, **asked)) > MOST_ROWS:
        raise ConfigError(
            f"A gap of {100 * gap:g} points needs more than {MOST_ROWS:,} rows. Plan for a larger gap, or larger "
            "shares of the smallest groups."
        )
    return total


def _earlier(
    data: Any, groups: list[str], label: str | None, prediction: str | None, favourable: Hashable
) -> tuple[float, dict[str, float], str]:
    """Return the rate of all rows of a table, the share of each group in its denominator, and what that is called."""
    asked: dict[str, Any] = {"positive": favourable} if label is not None else {"favourable": favourable}
    found = audit_table(data, groups=groups, label=label, prediction=prediction, replicates=100, **asked)
    wanted = "selection_rate" if label is None else "true_positive_rate"
    rates = {
        str(group): one
        for name, group, figure, one in found.figures()
        if group is not None and name == groups[0] and figure == wanted and one.defined
    }
    if len(groups) > 1 or not rates:
        raise ConfigError("A plan takes the rate and the shares of one group column, of two classes: name one.")
    rows = sum(one.n for one in rates.values())
    rate = sum(one.value * one.n for one in rates.values()) / rows
    record = found.to_dict()
    denominator = "rows" if label is None else Words(record).those(record["positive"])
    return rate, {group: one.n / rows for group, one in rates.items()}, denominator


def _named(shares: Mapping[str, float] | Sequence[float] | str) -> dict[str, float]:
    """Return shares by the names of their groups."""
    if isinstance(shares, Mapping):
        return dict(shares)
    parts = shares.split(",") if isinstance(shares, str) else shares
    found: dict[str, float] = {}
    for place, part in enumerate(parts, 1):
        name, _, written = str(part).rpartition("=")
        try:
            share = float(written)
        except ValueError:
            share = math.nan
        if not math.isfinite(share) or (name or f"group {place}") in found:
            raise ConfigError(
                f"The shares are {quoted(shares)}. Write shares such as 0.5,0.3,0.2, or women=0.3,men=0.7 with names "
                "that differ."
            )
        found[name or f"group {place}"] = share
    return found
