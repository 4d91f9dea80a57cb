r"""The tables of a page as LaTeX in the style of booktabs.

A file of them needs ``\usepackage{booktabs}`` and nothing else, and can be read in with ``\input``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from levelhead.report.text import Record, cell_lines
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
    "−": "$-$",
    **{character: "\\" + character for character in "&%$#_"},
}


def escaped(text: str) -> str:
    """Return ``text`` as LaTeX that shows it, on one line; nothing in it is a command."""
    line = visible(" ".join(text.split()))
    shown = "".join(SPECIAL.get(character, character) for character in line)
    # After the end of a row, a bracket would be an option of it, and a star would forbid a page break.
    return "{}" + shown if shown[:1] in ("[", "*") else shown


def latex(tables: Iterable[Record]) -> str:
    """Return one ``table`` environment for each table, of :func:`levelhead.report.blocks.table`.

    The interval of a figure stands below it.
    """
    head = "% Needs \\usepackage{booktabs}; names in other scripts than Latin need LuaLaTeX or XeLaTeX.\n"
    return head + "\n".join(map(_table, tables))


def _table(table: Record) -> str:
    caption = ". ".join(escaped(part).rstrip(".") for part in (table["caption"], *table["notes"]) if part)
    first, *titles = (column["title"] for column in table["columns"])
    head = _rows(first, [title.split(" ", 1) for title in titles])
    rows = "\n\\addlinespace\n".join(_rows(row["head"], map(cell_lines, row["cells"])) for row in table["rows"])
    columns = r"p{0.22\linewidth}" + "r" * len(titles)  # long names break
    return (
        "\\begin{table}\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{4pt}\n"
        f"\\caption{{{caption}.}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        f"{head}\n\\midrule\n"
        f"{rows}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def _rows(name: str, cells: Iterable[Sequence[str]]) -> str:
    """Return one row of LaTeX for each line of the cells: a figure, its interval, its p."""
    lines = zip_longest(*cells, fillvalue="")
    return "\n".join(
        " & ".join(escaped(text) for text in ("" if number else name, *line)) + r" \\"
        for number, line in enumerate(lines)
    )
