"""What every result can do: be drawn for a terminal, a notebook and a page, and be written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar

import pandas as pd
from rich.console import Group

from levelhead.metrics.names import Key, group_name
from levelhead.report import rows, wide
from levelhead.report.gate import Condition, check
from levelhead.report.headline import Lead, Leading, leads_in_json
from levelhead.report.latex import latex
from levelhead.report.markdown import markdown
from levelhead.report.one_page import one_page
from levelhead.report.page import render
from levelhead.report.record import Finding
from levelhead.report.terminal import drawn
from levelhead.report.text import Record
from levelhead.terminal import notebook_html, plain_text
from levelhead.types import Estimate

COLUMNS = ("attribute", "group", "figure", "value", "low", "high", "n", "reason")
"""Of a frame. ``group`` is None where a figure is about all groups, ``reason`` where it is defined."""


class Report(Finding, Leading):
    """A result with a page: a dataclass. Its ``kind`` stands in its JSON, so that a page can be made of the file alone.

    Fields that ``optional`` names stand in the JSON where they hold something.
    """

    kind: ClassVar[str]
    optional: ClassVar[Collection[str]] = ()
    level: float
    make_page: ClassVar[Callable[..., Record]] = staticmethod(one_page)
    """Turns the JSON of a result of this kind into a page; takes ``source``, what was measured in a word."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are null with a ``reason``."""
        found = {"kind": self.kind, **super().to_dict()}
        kept = {name: one for name, one in found.items() if one or name not in self.optional} | self.figures_in_json()
        return kept | leads_in_json(leads) if (leads := self.leads) else kept

    @property
    def leads(self) -> list[Lead]:
        """What was found, the most important first; none by default, for a kind whose JSON says it already."""
        return []

    def figures_in_json(self) -> dict[str, Any]:
        """Return what the JSON keeps of :meth:`figures`, under ``figures``: pages are drawn of it."""
        found = rows.in_json(self.figures())
        return {"figures": found} if found["data"] else {}

    def page(self, *, source: str = "", command: str = "", more: Mapping[str, Any] | None = None) -> Record:
        """Return the page as a plain dict, for :func:`levelhead.report.render`, of the JSON and ``more`` keys."""
        return made_page(type(self).make_page, {**self.to_dict(), **(more or {})}, source, command)

    def to_html(self) -> str:
        """Return one standalone HTML page: no scripts, nothing loaded from elsewhere (docs/report.md)."""
        return render(self.page())

    def table(self, *, all: bool = False) -> Group:
        """Return sentences and tables that ``rich`` can print: what fits a screen, or ``all`` of them."""
        return drawn(self.page(), everything=all)

    def text(self, *, all: bool = False, width: int = 80) -> str:
        """Return what :meth:`table` shows as plain text, ``width`` characters wide."""
        return plain_text(self.table(all=all), width)

    def tables(self) -> list[Record]:
        """Return the tables that a terminal shows as blocks, the page's cautions below the first."""
        page = self.page()
        found = [block for part in page["parts"] for block in part["blocks"] if block["type"] == "table"]
        return [one | {"notes": [*one["notes"], *page["cautions"] * (not at)]} for at, one in enumerate(found)]

    def to_markdown(self) -> str:
        """Return the finding and the tables that a terminal shows, with all their columns, as Markdown."""
        page = self.page()
        return "\n\n".join([page["finding"], *page["lines"], markdown(self.tables())])

    def to_latex(self) -> str:
        r"""Return the tables that a terminal shows as LaTeX, which needs ``\usepackage{booktabs}``."""
        return latex(self.tables())

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure with its attribute, its group (None: all of them) and its name; none by default.

        The name of a fraction is a :class:`~levelhead.report.wide.Fraction`: a limit above 1 on it is refused.
        """
        return iter(())

    def to_frame(self) -> pd.DataFrame:
        """Return every figure as a row: attribute, group, figure, value, low, high, n, reason; fractions."""
        rows = [
            (name, group and group_name(group), str(figure), one.value, one.low, one.high, one.n, one.reason)
            for name, group, figure, one in self.figures()
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    @property
    def by_group(self) -> pd.DataFrame:
        """A row for each attribute and group, a column for each figure; intervals are in :meth:`to_frame`."""
        return wide.by_group(self)

    def difference(self) -> pd.DataFrame:
        """Return how far apart the groups are, by attribute and figure, as fairlearn's MetricFrame does.

        Returns:
            ``value``, ``low``, ``high``, the groups ``highest`` and ``lowest``, ``n`` and ``reason``: the highest less
            the lowest of the groups that are compared, with the interval of the gap where the result measures it.
        """
        return wide.compared(self, ratio=False)

    def ratio(self) -> pd.DataFrame:
        """Return the lowest figure over the highest as :meth:`difference` does, without an interval."""
        return wide.compared(self, ratio=True)

    def compares(self, attribute: str, group: Key, figure: str) -> bool:
        """Whether a group's figure is compared with those of other groups: it is based on enough rows."""
        return True

    def gap_of(self, attribute: str, figure: str) -> Estimate | None:
        """Return the gap that is the largest difference of a figure, where the result has one."""
        return None

    def require(self, condition: str, *, allow_undecided: bool = False) -> None:
        """Raise unless a condition holds, such as ``selection_ratio >= 0.8``: a test in one line.

        The name of a figure asks about the quantity behind it: the whole interval must meet the condition.
        ``equal_opportunity.value <= 0.05`` asks about the estimate alone (:class:`levelhead.report.gate.Condition`).

        Args:
            condition: a figure's name (with a sensitive column and a colon before it, or for every column), a sign and
                a number.
            allow_undecided: let an interval pass that holds numbers of both sides, or a figure without one.

        Raises:
            AssertionError: for the first figures that do not meet it.
            ConfigError: if the condition cannot be read, or no figure has its name.
        """
        answers = {"no": "does not hold"} if allow_undecided else {"no": "does not hold", "undecided": "is undecided"}
        broken = [one for one in check(self, [Condition.parse(condition)]).checks if one.answer in answers]
        if broken:
            raise AssertionError("\n".join(f"{one.condition} {answers[one.answer]}: {one.about}" for one in broken))

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the tables as a notebook shows them; those that do not fit a screen are folded."""
        page = self.page()
        shown = notebook_html(drawn(page, everything=False))
        if not page["brief"]:
            return shown
        return f"{shown}<details><summary>All figures</summary>{notebook_html(drawn(page))}</details>"


def made_page(make_page: Callable[..., Record], record: Record, source: str, command: str) -> Record:
    """Return the page of a result's JSON; ``command`` is what made it, unless the JSON says so itself."""
    made: Record = record.get("made") or {}
    if command and not made.get("command"):
        record = record | {"made": made | {"command": command}}
    return make_page(record, source=source) | {"command": command}
