"""Progress bars for training and for grids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from levelhead.engine import Progress as Report


@contextmanager
def training_progress(console: Console) -> Iterator[Report]:
    """Draw one bar a stage; yields the function that :class:`levelhead.engine.Lab` reports to."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[text]}"), console=console) as bars:
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
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(description, total=total, completed=done)
        yield lambda: bars.advance(task)
