"""What every result can do: be drawn for a terminal, a notebook and a page, and be written as JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pandas as pd
from rich.console import Group

from levelhead.metrics.names import Key, group_name
from levelhead.report.page import render
from levelhead.report.terminal import drawn
from levelhead.report.text import Record
from levelhead.terminal import notebook_html, plain_text
from levelhead.types import Estimate

COLUMNS = ("attribute", "group", "figure", "value", "low", "high", "n", "reason")
"""Of a frame. ``group`` is None where a figure is about all groups, ``reason`` where it is defined."""


class Report(ABC):
    """A result with a page. Its ``kind`` stands in its JSON, so that a page can be made of the file alone."""

    kind: ClassVar[str]
    make_page: ClassVar[Callable[..., Record]]
    """Turns the JSON of a result of this kind into a page; takes ``source``, what was measured in a word, and
    ``command``, what made the page."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""

    def page(self, *, source: str = "", command: str = "") -> Record:
        """Return the page as a plain dict, for :func:`levelhead.report.render`."""
        return type(self).make_page(self.to_dict(), source=source, command=command)

    def to_html(self) -> str:
        """Return one standalone HTML page: no scripts, nothing loaded from elsewhere (docs/report.md)."""
        return render(self.page())

    def table(self) -> Group:
        """Return tables and sentences that ``rich`` can print."""
        return drawn(self.page())

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure with its attribute, its group (None: all of them) and its name; none by default."""
        return iter(())

    def to_frame(self) -> pd.DataFrame:
        """Return every figure as a row: attribute, group, figure, value, low, high, n, reason; fractions."""
        rows = [
            (
                name,
                None if group is None else group_name(group),
                figure,
                one.value,
                one.low,
                one.high,
                one.n,
                one.reason,
            )
            for name, group, figure, one in self.figures()
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def __str__(self) -> str:
        return plain_text(self.table())

    def _repr_html_(self) -> str:
        """Return the tables as a notebook shows them."""
        return notebook_html(self.table())
