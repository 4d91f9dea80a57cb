"""The headline of a finding: its first words, its size and uncertainty below them, and the groups that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from levelhead.report.charts import Subject
from levelhead.report.sentences import named_group
from levelhead.report.text import Record
from levelhead.report.wide import Pair
from levelhead.types import in_quotes, printable

_ENDS = re.compile(
    r": (?![^()]*\))|, with (?=an area)| \((?=interval|\d+(?:\.\d+)?% interval)|, (?=interval )|; "
    r"|, by (?=[+−][\d.]+ points)"
)
"""Where the headline of a finding ends, and its size and uncertainty begin."""


def parted(finding: str, level: str, comparisons: int) -> tuple[str, str]:
    """Divide a finding into its headline, and its size and uncertainty.

    Args:
        finding: a full sentence.
        level: of its interval, in words: ``95%``.
        comparisons: how many its interval is adjusted for.
    """
    ends = _ENDS.search(re.sub("“[^”]*”", lambda name: "_" * len(name[0]), finding))  # never within a name
    if ends is None:
        return finding.rstrip("."), ""
    head, rest = finding[: ends.start()], finding[ends.end() :]
    if ends[0].endswith("("):
        rest = rest.replace(")", "", 1)
    rest = re.sub(r"(?<!% )interval (?=[+−\d])", f"{level} interval ", rest, count=1)
    adjusted = comparisons > 1 and "interval " in rest and "adjusted" not in rest
    return head, rest[:1].upper() + rest[1:] + (f" Adjusted for {comparisons:,} comparisons." if adjusted else "")


def names_of(one: Subject) -> list[str]:
    """Return what sentences call a group, or two of them."""
    return [named_group(one.column, one.name), in_quotes(one.name)]


def named(sentence: str, subjects: Sequence[Subject]) -> list[int]:
    """Return the places of the groups that a sentence names, in its order; of namesakes, the larger one.

    A sentence that begins with a column is about that column alone.
    """
    places: dict[str, int] = {}
    only = [one.column for one in subjects if sentence.startswith(f"By {printable(one.column)}, ")]
    for at in sorted(range(len(subjects)), key=lambda at: -subjects[at].rows):
        one = subjects[at]
        if only and one.column not in only:
            continue
        if isinstance(one.name, Pair) and one.name.first in sentence and one.name.second in sentence:
            places.setdefault(one.name.first, at)
        for name in names_of(one):
            places.setdefault(name, at)
    found = re.findall(rf"(?<!\w)(?:{_either(places)})(?!\w)", sentence) if places else []
    return list(dict.fromkeys(places[name] for name in found))


def pieces(head: str, marks: Mapping[str, str]) -> list[Record]:
    """Return a headline in pieces: those that name a group, with its figure, have the mark of that group."""
    found, end = [], 0
    for piece in re.finditer(rf"(?:[\d.]+% of )?(?<!\w)({_either(marks)})(?!\w)", head) if marks else ():
        found += [{"text": head[end : piece.start()], "mark": ""}, {"text": piece[0], "mark": marks[piece[1]]}]
        end = piece.end()
    return [*found, {"text": head[end:], "mark": ""}]


def _either(names: Mapping[str, object]) -> str:
    """Return the pattern of any of several names, the longest first: "f & low" before "low"."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
