"""Draw a page's plain dict as one standalone HTML file: no script, nothing loaded from elsewhere, all text escaped."""

from __future__ import annotations

import datetime
import functools
import re
import shlex
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from levelhead._version import __version__
from levelhead.report.text import Record, number, visible
from levelhead.storage import refuse_files_of_runs, write_text
from levelhead.terminal import RUNNING

ELSEWHERE = re.compile(r"(^|[=:,{\[\s\"'])((?:~|\.\.)?/(?!/)[^,{}\[\]\"']*)")
"""A path in a word that begins at the root, at home or above the current folder, and what stands before it."""


def render(page: Record, *, date: datetime.date | None = None) -> str:
    """Return the HTML of a page that one of this room's ``..._page`` functions summarised.

    Every text is escaped, and characters that are invisible or turn text around are spelled out, so that a group's name
    stays a name. ``date`` is the day that the page names as its own; None: today.
    """
    day = date or datetime.datetime.now(datetime.UTC).date()
    template = _environment().get_template("page.html.jinja")
    html = template.render(
        page=page,
        version=__version__,
        date=day.isoformat(),
        percent=number,
        style=_style(),
    )
    return "\n".join(line for line in html.splitlines() if line.strip()) + "\n"


def write_page(path: Path, page: Record, *, date: datetime.date | None = None) -> None:
    """Render a page into a file, atomically; an existing one is replaced, but no file of a run or of a saved model.

    The page says which command made it: the running one, unless it names another.
    """
    refuse_files_of_runs("path", path)
    write_text(path, render(page | {"command": page["command"] or recorded_command()}, date=date))


def command_line() -> str:
    """Return the command that runs; empty where none does, as in a notebook."""
    words = RUNNING.get()
    return "" if words is None else shlex.join(["levelhead", *words])


def recorded_command() -> str:
    """Return the command that runs as a page or a JSON records it: of paths elsewhere on the machine the last name."""
    words = RUNNING.get()
    return "" if words is None else shlex.join(["levelhead", *(ELSEWHERE.sub(_last_name, word) for word in words)])


def _last_name(found: re.Match[str]) -> str:
    return found[1] + found[2].rstrip("/ ").rpartition("/")[2]


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def _style() -> Markup:
    """Return the style of all pages without the spaces that only its readers need."""
    source, _, _ = _environment().loader.get_source(_environment(), "style.css")  # type: ignore[union-attr]
    return Markup(re.sub(r"\s+(?=[{}])|(?<=[{};,:])\s+", "", source))


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("levelhead.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
