"""Texts of what is asked and answered, as a session of Python: known answers and sentences.

``tests/ROOM/WHAT.txt`` is run by a test beside it::

    def test_it_answers_what_is_kept() -> None:
        check(TEXT, NAMES)

    if __name__ == "__main__":
        renew(TEXT, NAMES)

Run that test file as a script to write the answers anew (``PYTHONPATH=src:tests python tests/ROOM/test_WHAT.py``), and
read the difference.
"""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any


def _session(text: Path, names: dict[str, Any]) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(text.read_text(encoding="utf-8"), names, text.name, str(text), 0)


def check(text: Path, names: dict[str, Any]) -> None:
    """Assert that everything is answered as the text says."""
    said: list[str] = []
    asked = _session(text, dict(names))
    assert asked.examples
    doctest.DocTestRunner().run(asked, out=said.append)
    assert not said, "".join(said)


class _Renewed(doctest.DocTestRunner):
    """Takes what is said for what the text wants."""

    def report_failure(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        example.want = got

    def report_unexpected_exception(self, out: Any, test: Any, example: doctest.Example, exc_info: Any) -> None:
        raise exc_info[1]


def renew(text: Path, names: dict[str, Any]) -> None:
    """Write the answers anew."""
    asked = _session(text, dict(names))
    lines, done = text.read_text(encoding="utf-8").splitlines(), 0
    _Renewed().run(asked, clear_globs=False)
    written: list[str] = []
    for one in asked.examples:
        asks = one.lineno + len(one.source.splitlines())
        written += [*lines[done:asks], *one.want.splitlines()]
        done = asks
        while done < len(lines) and lines[done] and not lines[done].startswith(">>>"):
            done += 1
    text.write_text("\n".join([*written, *lines[done:]]) + "\n", encoding="utf-8")
