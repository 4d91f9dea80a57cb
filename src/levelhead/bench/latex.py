r"""The sections of a comparison as LaTeX tables in the style of booktabs: the same figures as the printed table.

A file of them needs ``\usepackage{booktabs}`` and nothing else, and can be read in with ``\input``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from levelhead.bench.tables import Section
from levelhead.types import visible

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: "\\" + character for character in "&%$#_"},
}
NEGATIVE = re.compile(r"(?<![\w.])-(?=\d)")  # the sign of a number, not the hyphen of 1e-05 or of a name


def escaped(text: str) -> str:
    """Return ``text`` as LaTeX that shows it, on one line; nothing in it is a command."""
    line = visible(" ".join(text.split()))
    shown = "".join(SPECIAL.get(character, character) for character in line)
    # After the end of a row, a bracket would be an option of it, and a star would forbid a page break.
    return "{}" + shown if shown[:1] in ("[", "*") else shown


def latex(sections: Iterable[Section]) -> str:
    """Return one ``table`` environment for each section, with the interval of a figure below it."""
    head = "% Needs \\usepackage{booktabs}; names in other scripts than Latin need LuaLaTeX or XeLaTeX.\n"
    return head + "\n".join(_table(section) for section in sections)


def _table(section: Section) -> str:
    title, *more = section.title.split("\n")
    caption = ". ".join(escaped(part).rstrip(".") for part in (title, *more, *section.caption.split("\n")) if part)
    columns = r"p{0.22\linewidth}" + "r" * (len(section.columns) - 1)  # long names break
    head = _rows([section.columns[0], *(title.replace(" ", "\n", 1) for title in section.columns[1:])])
    rows = "\n\\addlinespace\n".join(_rows(cells) for cells in section.cells)
    return (
        "\\begin{table}\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{4pt}\n"
        f"\\caption{{{caption}.}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        f"{head}\n\\midrule\n"
        f"{rows}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def _rows(cells: Sequence[str]) -> str:
    """Return one row of LaTeX for each line of the cells: a figure, its interval, its p."""
    name, *figures = cells
    lines = zip_longest(*(figure.split("\n") for figure in figures), fillvalue="")
    return "\n".join(
        _row([escaped(name) if number == 0 else "", *(NEGATIVE.sub("$-$", escaped(text)) for text in line)])
        for number, line in enumerate(lines)
    )


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
