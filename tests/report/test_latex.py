r"""LaTeX tables: the figures of the printed table, and names that are never commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fold_runs import fake, grid
from levelhead.bench.grid import make_cells, run_grid
from levelhead.bench.page import Comparisons
from levelhead.bench.tables import collect
from levelhead.cli.app import main
from levelhead.report import blocks
from levelhead.report.latex import escaped, latex
from levelhead.report.text import cell_lines

HOSTILE = r"a_b & 50% of {C:\new} ~ #1 ^ $x$ <|>"


def plain(text: str) -> str:
    """Undo the escapes: what a reader of the typeset page sees."""
    words = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<", "textgreater": ">"}
    words["textbar"] = "|"
    text = text.replace("$-$", "−").replace("{}[", "[").replace("{}*", "*")
    text = re.sub(r"\\(text[a-z]+)\{\}", lambda match: words[match[1]], text)
    return re.sub(r"\\([&%$#_{}])", r"\1", text)


def tables_of(text: str) -> list[list[list[str]]]:
    """Return the cells of each ``tabular``, row by row, its head first, which is as many rows as it has lines."""
    tables = []
    for body in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, flags=re.DOTALL):
        lines = [line for line in body.splitlines() if line not in (r"\midrule", r"\addlinespace")]
        assert all(line.endswith(r" \\") for line in lines)
        rows = [re.split(r"(?<!\\)&", line.removesuffix(r" \\")) for line in lines]
        tables.append([[plain(cell.strip()) for cell in row] for row in rows])
    return tables


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs of two methods and two seeds, in folds that were not trained."""
    cells = make_cells(grid(2), tmp_path / "runs")
    assert not run_grid(cells, launch=fake)
    return tmp_path / "runs"


def test_the_file_holds_the_figures_and_intervals_of_the_printed_table(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["table", str(runs), "--all", "--latex", str(tmp_path / "table.tex")])
    assert not ended.value.code
    (group,) = collect([runs], "test")
    expected_tables = Comparisons.of(group.compare("erm")).tables()
    text = (tmp_path / "table.tex").read_text()
    tables = tables_of(text)
    assert len(tables) == len(expected_tables) == 3
    for block, rows in zip(expected_tables, tables, strict=True):
        expected = []
        first, *titles = (column["title"].split(" ", 1) for column in block["columns"])
        figures = [list(map(cell_lines, row["cells"])) for row in block["rows"]]
        for name, lines in zip([*first, *(row["head"] for row in block["rows"])], [titles, *figures], strict=True):
            depth = max(map(len, lines))
            for line in range(depth):
                expected.append(["" if line else name, *((one + [""] * depth)[line] for one in lines)])
        assert rows == expected
    # And these are the figures on the terminal, some of whose cells are broken into lines.
    printed = capsys.readouterr().out.split()
    for table in tables[:2]:
        for cell in (cell for row in table[2:] for cell in row[1:]):
            assert all(word in printed for word in cell.split()), cell
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3


def test_names_are_text_and_no_commands() -> None:
    assert plain(escaped(HOSTILE)) == HOSTILE
    for character in "&%$#_{}":
        assert f"\\{character}" in escaped(HOSTILE)
    assert escaped("[x]") == "{}[x]"  # at the start of a row it would be an option of the row before
    assert escaped("a\nb\tc") == "a b c"
    assert escaped("\x1b[2J") == r"\textbackslash{}x1b[2J"
    rows = [(HOSTILE, [blocks.cell("−1.5", "[−2, 1e-05]")])]
    block = blocks.table("50% of_it", ["method", "A & B"], rows, notes=["100% sure.", "and"])
    text = latex([block])
    assert r"\caption{50\% of\_it. 100\% sure. and.}" in text
    ((*titles, (name, figure), (nothing, interval)),) = tables_of(text)
    assert titles == [["method", "A"], ["", "& B"]]
    assert (name, figure, nothing, interval) == (HOSTILE, "−1.5", "", "[−2, 1e-05]")
    assert "$-$1.5" in text
    assert "1e-05" in text
    depth = 0
    for character in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_it_compiles(runs: Path, tmp_path: Path) -> None:
    (group,) = collect([runs], "test")
    rows = [(HOSTILE, [blocks.cell("−1", "[−2, 3]")]), ("[x]", [blocks.cell("*")])]
    block = blocks.table(HOSTILE, [HOSTILE] * 2, rows, notes=[HOSTILE])
    text = latex([block, *Comparisons.of(group.compare("erm")).tables()])
    (tmp_path / "table.tex").write_text(text)
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
    (tmp_path / "main.tex").write_text(document)
    subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "main"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
