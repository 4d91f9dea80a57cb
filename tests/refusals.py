"""Tables of refusals, one a room: a text of what is asked and what is answered, as in a session of Python and a shell.

``tests/ROOM/refusals.txt``::

    >>> from levelhead.methods.afr import AFR
    >>> AFR(gamma=-1.0)
    ConfigError: method afr needs gamma >= 0, penalty > 0 and 0 <= holdout < 1
    $ levelhead audit rows.csv --label y --prediction p --group g --on id
    exit 2: --on matches the rows of two tables: name the other with --against or --join.

The answer is the error or the exit status, and the whole sentence in one line; ``[...]`` is what differs between
machines and versions. Imports have none. Several
statements of one row stand in one line, with ; between them. Lines that begin with # and empty ones are for readers.
``tests/ROOM/test_ROOM_refusals.py`` (pytest imports test files by their base name) defines what the calls use besides,
and the one test::

    @pytest.mark.parametrize("row", rows(__file__))
    def test_it_is_refused(row: Row, folder_of_its_own: None, capsys: pytest.CaptureFixture[str]) -> None:
        check(row, globals(), capsys)

A fixture in place of ``folder_of_its_own`` may make files there that the rows need. Add a line, or change a
sentence of the code; then write the answers anew and read the difference::

    PYTHONPATH=src python tests/refusals.py tests/ROOM
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from command_line import run

SHELL, PYTHON, IMPORTS = "$ levelhead ", ">>> ", (">>> import ", ">>> from ")
SAID: dict[str, str] = {}
"""What was answered, by what is asked, where it is not what the text says."""
FRAME = re.compile("[\u2500-\u257f]+|Usage: .*? for help\\.", re.DOTALL)
"""What the command line draws around an error of its options."""


class Row(NamedTuple):
    """What is asked, what the text says is answered, and the imports above it."""

    asked: str
    answer: str
    imports: tuple[str, ...]


def read(text: Path) -> list[Row]:
    """Return the rows of a table."""
    found: dict[str, Row] = {}
    imports: list[str] = []
    asked = ""
    for line in text.read_text(encoding="utf-8").splitlines():
        if line.startswith(IMPORTS):
            imports.append(line.removeprefix(PYTHON))
        elif line.startswith((SHELL, PYTHON)):
            assert line not in found, f"{text} asks twice: {line}"
            asked, found[line] = line, Row(line, "", tuple(imports))
        elif line and not line.startswith("#"):
            found[asked] = found[asked]._replace(answer=line)
    return list(found.values())


def rows(file: str) -> list[object]:
    """Return the parameters of the test in ``file``."""
    table = read(Path(file).parent / "refusals.txt")
    return [pytest.param(row, id=row.asked.removeprefix(PYTHON).removeprefix(SHELL)[:80]) for row in table]


def check(row: Row, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that it is refused in these words, and that a refused command leaves no new file in its folder."""
    if row.asked.startswith(SHELL):
        before = sorted(Path().rglob("*"))
        status = run(*shlex.split(row.asked.removeprefix(SHELL)))
        message = (
            " ".join(FRAME.sub(" ", capsys.readouterr().err).split()).removeprefix("Error ").removeprefix("Error: ")
        )
        assert status in (1, 2, 3), f"{row.asked} is not refused"
        assert sorted(Path().rglob("*")) == before, "a refused command left files"
        found = f"exit {status}: {message}"
    else:
        here = dict(names)
        exec("\n".join(row.imports), here)
        with pytest.raises(Exception) as caught:  # noqa: PT011  (the text has type and words)
            exec(row.asked.removeprefix(PYTHON), here)
        found = f"{caught.type.__name__}: {' '.join(str(caught.value).split())}"
    if not re.fullmatch(re.escape(row.answer).replace(re.escape("[...]"), ".*"), found):
        SAID[row.asked] = found.replace(str(Path.cwd()), "[...]")
        pytest.fail(f"{row.asked}\nwants {row.answer}\nsays  {found}")


def renew(text: Path) -> None:
    """Run the test of a table, write what was said into its text, and show the difference."""
    (test,) = text.parent.glob("test_*_refusals.py")
    pytest.main(["-q", "--no-header", "--tb=line", str(test)])
    lines, answered = [], False
    for line in text.read_text(encoding="utf-8").splitlines():
        if line.startswith((SHELL, PYTHON)):
            lines += [line, *([SAID[line]] if line in SAID else [])]
            answered = line in SAID
        elif not (answered and line and not line.startswith("#")):
            lines.append(line)
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run(["git", "--no-pager", "diff", "--", str(text)], check=True)


if __name__ == "__main__":
    os.environ["LEVELHEAD_LONG"] = "1"
    import refusals  # the module that the test imports

    refusals.renew(Path(sys.argv[1]) / "refusals.txt")
