"""Terminals of few characters, a deleted folder, odd variables of the environment: a result or one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = "audit rows.csv --label label --prediction prediction --group group --json audit.json".split()  # noqa: SIM905


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{row % 2},{row % 3 % 2},{'zoë' if row % 5 else 'жук'}\n" for row in range(200))
    (tmp_path / "rows.csv").write_text("label,prediction,group\n" + lines, encoding="utf-8")
    return tmp_path


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "levelhead", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.usefixtures("rows")
def test_every_console_gets_the_result() -> None:
    """Of few characters, of several bytes a character, and of two bytes each."""
    lines = []
    for encoding in ("utf-8", "ascii", "shift-jis", "utf-16"):
        done = process(*AUDIT, PYTHONIOENCODING=encoding, COLUMNS="120")
        assert (done.returncode, done.stderr) == (0, b"")
        text = done.stdout.decode(encoding)
        assert "zo" in text
        lines.append([len(line) for line in text.splitlines()])
    assert lines == lines[:1] * 4
    refused = process("audit", "no–file.csv", *AUDIT[2:], PYTHONIOENCODING="ascii")
    assert refused.returncode == 2
    assert b"Traceback" not in refused.stderr


def test_what_an_encoding_lacks_is_replaced_one_for_one() -> None:
    text = "“−3.2” – zoë … жук ▇ 漢"
    assert text.encode("ascii", "levelhead") == b'"-3.2" - zoe . ??? ? ?'
    assert text.encode("latin-1", "levelhead").decode("latin-1") == '"-3.2" - zoë . ??? ? ?'
    assert "\ud800x".encode("utf-8", "levelhead") == b"?x"
    for character in map(chr, range(0x20, 0x3000)):
        assert len(character.encode("ascii", "levelhead")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [AUDIT, ["train", "portraits_erm"], ["--version"], ["compare", "--data", "portraits"]], ids=str
)
def test_a_deleted_folder_is_one_sentence(line: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    shown = f"rmdir {gone}; exec {sys.executable} -m levelhead {line}"
    done = subprocess.run(["sh", "-c", shown], cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: The current folder was deleted. Change to another, for example: cd ~\n"


def test_ctrl_c_while_the_code_is_read_ends_quietly() -> None:
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from levelhead.cli import main\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
