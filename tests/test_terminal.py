"""Names out of data reach a terminal, and an error, as names: nothing in them is a command, and none is endless."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import numpy as np
import pytest
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import levelhead
from command_line import run
from levelhead.terminal import Terminal, spent
from levelhead.types import (
    LONGEST_MESSAGE,
    LONGEST_NAME,
    DataError,
    LevelheadError,
    listed,
    printable,
    quoted,
    require_columns,
    visible,
)

HOSTILE = "\x1b[31m\x1b]0;taken\x07\x9b2J\u202egnp\u2028\r\n\t\x7f\x00"
SHOWN = r"\x1b[31m\x1b]0;taken\x07\x9b2J\u202egnp\u2028\r\n\t\x7f\x00"


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character in "\n\u200c\u200d" for character in text)


def test_control_characters_are_written_out() -> None:
    assert printable(HOSTILE) == SHOWN
    assert quoted(HOSTILE) == f"'{SHOWN}'"
    assert visible("a\nb", keep="\n") == "a\nb"
    assert visible("\ud83d") == r"\ud83d"
    assert visible("\U000e0001") == r"\U000e0001"
    for name in ("é عربي 模型", "👩‍👩‍👧", "a\u00a0b", "[bold]", r"\x1b"):
        assert printable(name) == name


def test_names_are_cut() -> None:
    assert printable("x" * 80) == "x" * 80
    assert printable("x" * 81) == "x" * 79 + "…"
    assert len(printable("\x1b" * 20_000_000)) == LONGEST_NAME
    assert quoted("x" * 81) == repr("x" * 79 + "…")
    assert quoted(["x" * 1000]) == "['" + "x" * 77 + "…"
    assert [quoted(one) for one in (np.str_("a"), np.int64(1))] == ["'a'", "1"]
    assert quoted(10**5000) == "a number of very many digits"
    assert listed(range(100), 3) == "0, 1, 2 and 97 more"


def test_an_error_is_one_short_line_whatever_is_in_it() -> None:
    error = LevelheadError(f"first\n  second: {HOSTILE}\r\n" + "y" * 5000 + " a path " + "z" * 299 + " words" * 5000)
    assert str(error).startswith(r"first second: \x1b[31m")
    assert is_harmless(str(error))
    assert "\n" not in str(error)
    assert " " + "y" * 40 + "…" + "y" * 40 + " a path " + "z" * 299 + " words" in str(error)
    assert len(str(error)) == LONGEST_MESSAGE
    with pytest.raises(DataError, match=r"no column 'x{79}…'. Columns there: \\x1b\[31m.*…$") as no:
        require_columns([HOSTILE * 9] * 100, ["x" * 1_000_000], "table.csv")
    assert is_harmless(str(no.value))


def drawn(*shown: object) -> str:
    terminal = Terminal(file=io.StringIO(), width=150, force_terminal=True, color_system=None)
    for one in shown:
        terminal.print(one)
    written = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert is_harmless(written)
    return str(written)


def test_whatever_is_printed_is_harmless() -> None:
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))
    table.add_row(escape(HOSTILE + "[red]:warning:"))
    text = drawn(table, HOSTILE, Text(HOSTILE), escape(HOSTILE))
    assert text.count(r"\x1b[31m\x1b]0;taken") == 9
    assert "[red]:warning:" in text
    # Measured as it is shown: the borders stand below each other.
    narrow = Table("group")
    narrow.add_row("\x1b[2J\x1b[31m")
    assert len({len(line) for line in drawn(narrow).splitlines()}) == 1


def test_an_audit_prints_names_of_groups_classes_and_columns_as_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    group, column, label, few = "\x1b[2J\u202eevil", "\x1b[31mcolumn", "\x9b1m", "\x1bfew" + "x" * 5000
    rows = [(label, label, group), ("0", label, "b"), (label, "0", "b"), ("0", "0", group)] * 10 + [("0", "0", few)]
    lines = [f"{column},prediction,{column}group", *(",".join(row) for row in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines), encoding="utf-8")
    arguments = ["audit", str(tmp_path / "table.csv"), "--label", column, "--prediction", "prediction"]
    assert run(*arguments, "--group", f"{column}group") == 0
    printed = capsys.readouterr()
    assert r"\x1b[2J\u202eevil" in printed.out
    assert "x" * 81 not in printed.out
    assert run(*arguments, "--group", "absent") == 2
    refused = capsys.readouterr()
    assert r"\x1b[31mcolumn" in refused.err
    assert is_harmless(printed.out + printed.err + refused.out + refused.err)


def test_everything_is_printed_through_the_one_terminal() -> None:
    for file in Path(levelhead.__file__).parent.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        called = {ast.unparse(function) for function in calls}
        assert not called & {"Console", "print", "typer.echo", "typer.secho", "sys.stderr.write"}, file


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 seconds"), (59, "59 seconds"), (60, "1 minute"), (3600, "60 minutes"), (5400, "1.5 hours")],
)
def test_time_is_said_in_its_unit(seconds: float, said: str) -> None:
    assert spent(seconds) == said
