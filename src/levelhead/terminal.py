"""The console that everything is printed on, and progress bars: no name out of a file can command the terminal."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn, track
from rich.progress import Progress as Bars
from rich.segment import Segment
from rich.text import Text

from levelhead.types import visible

Item = TypeVar("Item")
LAYOUT = "\n\t"  # the control characters that our own texts use
RUNNING: ContextVar[Sequence[str] | None] = ContextVar("RUNNING", default=None)
"""The words of the command that runs, after ``levelhead``; None in a program or a notebook."""

Progress = Callable[[str, int, int, str], None]
"""Called by a training as ``progress(stage, done_steps, all_steps, text)`` after every step."""


PLAIN = str.maketrans("“”‘’−–—…±×·•≥≤→✓│━─", "\"\"''---.+x.*><>v|--")
"""Characters of our own texts by what represents them where an encoding has them not; one for one, or tables bend."""


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks, character by character: a minus stays a minus, an accent is dropped."""
    assert isinstance(error, UnicodeEncodeError)
    found = ""
    for character in error.object[error.start : error.end]:
        plain = unicodedata.normalize("NFKD", character.translate(PLAIN))[:1]
        found += plain if plain.isascii() and plain.isprintable() else "?"
    return found, error.end


codecs.register_error("levelhead", _plainer)


def spare_encodings() -> None:
    """Let no character end a command whose terminal or file cannot hold it, such as those of Latin-1 or ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="levelhead")


def silent(stage: str, done: int, total: int, text: str) -> None:
    """Report no progress."""


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


def plain_text(shown: RenderableType, width: int = 80) -> str:
    """Return what a terminal would show as text without colours, for ``__str__``."""
    console = Terminal(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def notebook_html(shown: RenderableType, width: int = 100) -> str:
    """Return what a terminal would show as HTML, for ``_repr_html_``."""
    console = Terminal(file=io.StringIO(), width=width, record=True)
    console.print(shown)
    code = '<pre style="font-family:monospace;line-height:1.2">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=code)


@contextmanager
def training_progress(console: Console) -> Iterator[Progress]:
    """Draw one bar a stage; yields the function that a training reports to."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, TextColumn("{task.fields[text]}"), console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int, text: str) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, text=text)
            bars.update(tasks[stage], completed=done, text=text)

        yield report


@contextmanager
def counted(console: Console, description: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """Draw one bar that counts; yields the function that moves it by one."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console) as bars:
        task = bars.add_task(description, total=total, completed=done)
        yield lambda: bars.advance(task)


def tracked(items: Iterable[Item], title: str, *, shown: bool, total: int | None = None) -> Iterable[Item]:
    """Return ``items``, with a bar on stderr if ``shown`` that goes away at the end; in a log there is none."""
    console = Terminal(stderr=True)
    hidden = not shown or not console.is_terminal
    return track(items, title, total, transient=True, disable=hidden, console=console, update_period=0.5)


def spent(seconds: float) -> str:
    """Return a time that is good to read: seconds, minutes, or hours."""
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} hours"
    number, unit = (round(seconds), "second") if seconds < 60 else (round(seconds / 60), "minute")
    return f"{number} {unit}{'s' * (number != 1)}"
