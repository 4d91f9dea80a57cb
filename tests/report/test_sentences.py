"""What sentences of comparisons say: sentences.txt beside this file.

After a change of the words, write the answers anew and read the difference:
``PYTHONPATH=src:tests python tests/report/test_sentences.py``.
"""

from __future__ import annotations

import doctest
import math
from pathlib import Path
from typing import Any

from levelhead.report import sentences, text
from levelhead.report.sentences import Difference
from levelhead.types import Estimate

TEXT = Path(__file__).with_name("sentences.txt")


def method(name: str, value: float, low: float, high: float, p: float = 1.0, **options: Any) -> Difference:
    return Difference(name, Estimate(value, low, high, 1544, options.pop("reason", None)), p, **options)


def session() -> doctest.DocTest:
    names = vars(sentences) | vars(text) | {"method": method, "Estimate": Estimate, "nan": math.nan}
    return doctest.DocTestParser().get_doctest(TEXT.read_text(encoding="utf-8"), names, TEXT.name, str(TEXT), 0)


def test_they_say_what_is_kept() -> None:
    said: list[str] = []
    doctest.DocTestRunner().run(session(), out=said.append)
    assert not said, "".join(said)


class Renewed(doctest.DocTestRunner):
    """Writes what is said in place of what the text wants."""

    def report_failure(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        example.want = got

    def report_unexpected_exception(self, out: Any, test: Any, example: doctest.Example, exc_info: Any) -> None:
        raise exc_info[1]


if __name__ == "__main__":
    asked = session()
    lines, done = TEXT.read_text(encoding="utf-8").splitlines(), 0
    Renewed().run(asked, clear_globs=False)
    written: list[str] = []
    for one in asked.examples:
        written += [*lines[done : one.lineno + 1], *one.want.splitlines()]
        done = one.lineno + 1
        while done < len(lines) and lines[done] and not lines[done].startswith(">>>"):
            done += 1
    TEXT.write_text("\n".join([*written, *lines[done:]]) + "\n", encoding="utf-8")
