"""Tables of refusals, one a room: what is asked, the exact sentence, the exit status.

A room's table is ``tests/ROOM/test_ROOM_refusals.py``: pytest imports test files by their base name. It holds a list
``ROWS`` of `Refusal`, a fixture that makes what the rows need in a folder of its own, and one test, parametrised by
``ROWS`` with ``ids=names(ROWS)``, that calls `check`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from command_line import run, said
from levelhead.types import LevelheadError


class Refusal(NamedTuple):
    """What is asked, as a function without arguments or as a command line, and what is answered."""

    ask: Callable[[], object] | str
    sentence: str
    """The whole message; ``[...]`` is what differs between machines and versions, such as another library's words."""
    error: type[Exception] = LevelheadError
    exit: int = 2


def names(rows: Sequence[Refusal]) -> list[str]:
    """Return an id of each row: its number and its command, or the first words of its sentence."""
    return [f"{at} {(row.ask if isinstance(row.ask, str) else row.sentence)[:60]}" for at, row in enumerate(rows)]


def check(row: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that it is refused with that sentence, and that a refused command leaves no new file in its folder."""
    pattern = re.escape(" ".join(row.sentence.split())).replace(re.escape("[...]"), ".*")
    if isinstance(row.ask, str):
        before = sorted(Path().rglob("*"))
        assert run(*shlex.split(row.ask)) == row.exit
        assert re.search(pattern, printed := said(capsys)), f"{row.ask}\nwants {row.sentence}\nprints {printed}"
        assert sorted(Path().rglob("*")) == before
    else:
        with pytest.raises(row.error) as caught:
            row.ask()
        message = " ".join(str(caught.value).split())
        assert re.fullmatch(pattern, message), f"wants {row.sentence}\nsays  {message}"
