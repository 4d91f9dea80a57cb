"""The console that everything is printed on: no name out of a file can command the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from levelhead.types import visible

LAYOUT = "\n\t"  # the control characters that our own texts use


class Terminal(Console):
    """A console that spells control characters out (``\\x1b``) instead of sending them, and takes ``:x:`` for text.

    Whatever is printed passes through here, so that a command cannot forget it. Names out of data are cut where they
    enter a text, by :func:`levelhead.types.printable`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text of a string, also of a table's cell: before its width is measured."""
        return super().render_str(visible(text, LAYOUT), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render anything; a text that was not made by :meth:`render_str` loses its styles if it must be changed."""
        if isinstance(renderable, Text) and renderable.plain != (shown := visible(renderable.plain, LAYOUT)):
            renderable = Text(shown, style=renderable.style, justify=renderable.justify, overflow=renderable.overflow)
        return super().render(renderable, options)
