"""How many rows an audit needs to show a gap, before there are any: ``levelhead plan --gap 5``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from levelhead.arrays import checked
from levelhead.auditing.options import MIN_COUNT
from levelhead.metrics.power import detectable_gap, rows_needed
from levelhead.report import blocks
from levelhead.report.result import Report
from levelhead.report.text import Record, counted, level_text
from levelhead.types import ConfigError, quoted

MOST_ROWS, MOST_COMPARISONS, SMALLEST_SHARE = 10**12, 10**9, 1e-300


def plan_page(record: Record, *, source: str = "") -> Record:
    """Summarise what :meth:`Plan.to_dict` returned, or the JSON of it, as a page."""
    gap = math.nan if record["gap"] is None else record["gap"]
    plan = Plan(gap, record["rate"], record["rows"], record["power"], record["level"], record["comparisons"])
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
    table = blocks.table("Denominator of the rate", heads, rows, notes=notes, where=blocks.BOTH)
    parts = [blocks.part([blocks.section("The groups", [table])])]
    return blocks.page("Plan of an audit", plan.sentence, parts, title=source or "Plan of an audit")


@dataclass(frozen=True)
class Plan(Report):
    """What :func:`plan_audit` found; fractions.

    ``rows`` of each group show a difference of ``gap`` between any two groups with probability ``power``, in an audit
    that makes this many ``comparisons``. ``gap`` is NaN where so few rows show no gap, of any size.

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
        if math.isnan(self.gap):
            return f"{self.total:,} rows are too few to detect any gap in a rate of {100 * self.rate:g}%."
        pairs = len(self.rows) * (len(self.rows) - 1) // 2
        points = f"{100 * self.gap:.1f}" if self.gap >= 0.001 else f"{100 * self.gap:.2g}"
        which = "the two groups" if pairs == 1 else f"any two of {len(self.rows)} groups"
        return (
            f"{self.total:,} rows detect a gap of {points} points between {which} in {100 * self.power:g} "
            f"of 100 audits, at a rate of {100 * self.rate:g}%."
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
    *,
    gap: float | None = None,
    rows: int | None = None,
    rate: float,
    groups: Mapping[str, float] | Sequence[float] = (0.5, 0.5),
    power: float = 0.8,
    level: float = 0.95,
    comparisons: int | None = None,
) -> Plan:
    """Say how many rows show a gap, or which gap this many rows show.

    Args:
        gap: difference between two groups, a fraction; or
        rows: of all groups together.
        rate: of one group, about, a fraction: how often it is selected, or found. The other's lies above or below,
            whichever needs more rows.
        groups: shares of the rows, by name or in a row. They must sum to 1.
        power: how often the gap is to be shown, which means that its interval leaves out 0.
        level: of the intervals, which hold for all comparisons together (Bonferroni).
        comparisons: how many pairs the audit compares. None: every pair of these groups in the true and in the false
            positive rate, as an audit of one column does. Of several columns, the sum.

    Returns:
        the rows of each group, and the gap.

    Raises:
        ConfigError: a number is out of range, neither or both of ``gap`` and ``rows`` are given, or no number of rows
            that can be had would show the gap.

    Examples:
        >>> import levelhead as lh
        >>> plan = lh.plan_audit(gap=0.05, rate=0.3, groups=[0.5, 0.3, 0.2])
        >>> plan.rows
        {'group 1': 4526, 'group 2': 2716, 'group 3': 1811}
    """
    if (gap is None) == (rows is None):
        raise ConfigError("A plan needs a gap or a number of rows: pass one of the two.")
    named = dict(groups) if isinstance(groups, Mapping) else {f"group {i}": share for i, share in enumerate(groups, 1)}
    shares = np.array(list(named.values()), float)
    if not 2 <= len(shares) <= 1000:
        raise ConfigError(
            f"A plan needs 2 to 1,000 groups, and there are {len(shares)}. Pass their shares of the rows."
        )
    whole = math.fsum(shares[np.isfinite(shares)])
    if not ((shares >= SMALLEST_SHARE) & np.isfinite(shares)).all() or abs(whole - 1) > 0.005:
        raise ConfigError(
            f"The groups' shares of the rows are {', '.join(f'{share:g}' for share in shares[:10])}; each must be "
            f"above 0, and together they must be 1, not {whole:g}."
        )
    shares = shares / whole
    if not 0 <= rate <= 1:
        raise ConfigError(f"rate={rate:g} is not between 0 and 1. Pass 0.3 for 30%.")
    if comparisons is None:
        comparisons = len(shares) * (len(shares) - 1)
    if not 1 <= comparisons <= MOST_COMPARISONS:
        raise ConfigError(f"comparisons={comparisons} is not between 1 and {MOST_COMPARISONS:,}.")
    for name, value in (("power", power), ("level", level)):
        if not 0 < value < 1:
            raise ConfigError(f"{name}={value:g} is not between 0 and 1.")
    if gap is not None:
        if not 0 < gap <= 1:
            raise ConfigError(f"A gap of {100 * gap:g} points is out of range: give one above 0 and at most 100.")
        if rate + gap > 1 and rate - gap < 0:
            raise ConfigError(
                f"A gap of {100 * gap:g} points does not fit a rate of {100 * rate:g}%: the other group's rate would "
                "be below 0 or above 100%."
            )
        total = rows_needed(gap, rate, shares, level=level, comparisons=comparisons, power=power)
        if total > MOST_ROWS:
            raise ConfigError(
                f"A gap of {100 * gap:g} points needs more than {MOST_ROWS:,} rows. Plan for a larger gap, or larger "
                "shares of the smallest groups."
            )
        # A group of a tenth of a row cannot be: each gets whole ones.
        each = [max(1, math.ceil(share * total - 1e-9)) for share in shares]
        return Plan(gap, rate, dict(zip(named, each, strict=True)), power, level, comparisons)
    if rows is None or rows < len(shares):
        raise ConfigError(f"rows={rows} is too few for {len(shares)} groups.")
    each = [max(1, round(share * rows)) for share in shares]
    first, second = sorted(each)[:2]
    shown = detectable_gap(rate, first, second, level=level, comparisons=comparisons, power=power)
    return Plan(shown, rate, dict(zip(named, each, strict=True)), power, level, comparisons)


def read_plan(
    gap: float | None, rows: float | None, rate: float, shares: str, comparisons: int | None, power: float
) -> Plan:
    """Read a plan as the command line has it: ``gap`` in points or ``rows``, and shares with or without names.

    Raises:
        ConfigError: something cannot be read, or is out of range.
    """
    if (gap is None) == (rows is None):
        raise ConfigError("A plan needs a gap or a number of rows: give --gap 5 (points) or --rows 2000.")
    found: dict[str, float] = {}
    for place, part in enumerate(shares.split(","), 1):
        name, _, written = part.rpartition("=")
        share = _number(written)
        if share is None or (name or f"group {place}") in found:
            raise ConfigError(
                f"--shares is {quoted(shares)}. Write shares such as 0.5,0.3,0.2, or women=0.3,men=0.7 with names that "
                "differ."
            )
        found[name or f"group {place}"] = share
    if rows is not None and (rows != rows // 1 or not 1 <= rows <= MOST_ROWS):
        raise ConfigError(f"--rows {rows:g} is not a number of rows. Type for example --rows 2000.")
    whole = None if rows is None else int(rows)
    points = None if gap is None else gap / 100
    return plan_audit(gap=points, rows=whole, rate=rate, groups=found, comparisons=comparisons, power=power)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
