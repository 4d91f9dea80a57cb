"""Words and numbers as a page shows them: names made harmless and short, figures with a true minus sign."""

from __future__ import annotations

import math
import re
from typing import Any

from levelhead import types
from levelhead.types import LONGEST_NAME, Estimate, printable

LONGEST_SENTENCE = 600

Record = dict[str, Any]
"""A piece of a page as plain JSON-able values."""


def visible(text: str) -> str:
    """Spell out what cannot be seen, as :func:`levelhead.types.visible` does; line ends become spaces."""
    return types.visible(re.sub(r"[\n\r\t]", " ", text))


def short(text: object, longest: int = LONGEST_NAME) -> str:
    """Return visible text of at most ``longest`` characters; a cut is marked with an ellipsis."""
    shown = visible(str(text))
    return shown if len(shown) <= longest else shown[: longest - 1].rstrip() + "…"


def number(value: float, digits: int = 1, *, signed: bool = False) -> str:
    """Return a number with a true minus sign, and never with a minus before zero."""
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    if not text.strip("+-0."):
        return text.lstrip("+-")
    return text.replace("-", "−")


def interval(low: float, high: float, digits: int = 1, *, signed: bool = False) -> str:
    """Return ``[low, high]``; empty if there is no interval."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{number(low, digits, signed=signed)}, {number(high, digits, signed=signed)}]"


def percent(figure: Estimate, digits: int = 1, *, signed: bool = False) -> str:
    """Return a fraction in percent, or ``undefined``."""
    return number(100 * figure.value, digits, signed=signed) if figure.defined else "undefined"


def percent_ends(figure: Estimate, digits: int = 1, *, signed: bool = False) -> str:
    """Return the ends of a fraction's interval as prose has them, ``8.5 to 29.1`` percent; empty if it has none."""
    if math.isnan(figure.low) or math.isnan(figure.high):
        return ""
    return f"{number(100 * figure.low, digits, signed=signed)} to {number(100 * figure.high, digits, signed=signed)}"


def level_text(level: float) -> str:
    """Return a confidence level in percent, such as 95% or 99.5%."""
    return f"{100 * level:g}%"


def digits(value: float) -> str:
    """Return a figure of any unit with three significant digits, and all digits before the point."""
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else number(value)
    if value and not 1e-3 <= abs(value) < 1e7:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{number(float(mantissa), 2)}e{number(int(exponent), 0)}"
    size = abs(value)
    text = f"{value:,.{3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")


def estimate_from_dict(record: Record) -> Estimate:
    """Return the figure that :func:`levelhead.metrics.estimate_to_dict` wrote; null is NaN."""
    value, low, high = (math.nan if record.get(key) is None else float(record[key]) for key in ("value", "low", "high"))
    reason = record.get("reason")
    if math.isnan(value) and reason is None:
        reason = "no reason was recorded"
    rows, corrected, refused = int(record.get("n") or 0), record.get("corrected"), bool(record.get("refused"))
    return Estimate(value, low, high, rows, reason, corrected, assumes=record.get("assumes"), refused=refused)


def cell_lines(cell: Record) -> list[str]:
    """Return what a cell says outside a page: its text and mark, then the lines below; no reason of ``undefined``."""
    marked = f"{cell['text']} {cell['mark']}".strip() if cell.get("mark") else cell["text"]
    return [marked] if cell.get("undefined") else [marked, *cell["sub"]]


def in_one_line(cell: Record) -> str:
    """Return what :func:`cell_lines` does on one line, an interval in brackets."""
    first, *more = cell_lines(cell)
    ends = [line[:1] in "0123456789+−" and ("–" in line or " to " in line) for line in more]
    return " ".join([first, *(f"({line})" if is_it else line for line, is_it in zip(more, ends, strict=True))])


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return ``1 seed`` or ``1,544 rows``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def clustered_sentence(rows: int, clusters: int, column: str | None = None) -> str:
    """Return how many clusters rows come in, and by which column: a sentence without its point."""
    by = "" if column is None else f" by {printable(column)}"
    return f"Intervals are clustered{by}: {counted(rows, 'row')} in {counted(clusters, 'cluster')}"


def joined(parts: list[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
