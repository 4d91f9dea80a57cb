"""The tutorials are short, and they show what their commands print, as the page for auditors does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from command_line import run

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_is_short(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= 500
    assert max(map(len, text.splitlines())) <= 120
    assert "## Next" in text


def test_the_audit_of_the_tutorial_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (page,) = (page for page in TUTORIALS if page.stem == "audit")
    text = page.read_text(encoding="utf-8")
    exec(compile(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0], page.name, "exec"), {})
    audit = ["audit", "loans.csv", "--label", "repaid", "--prediction", "approved", "--group", "region"]
    assert run(*audit, "--html", "audit.html") == 0
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```\n(Among .*?)```", text, flags=re.DOTALL)
    assert shown in printed
    assert "0.83" in printed
    assert Path("audit.html").exists()
    assert run("plan", "--rate", "0.6", "--gap", "5") == 0
    assert "3,794 rows" in capsys.readouterr().out
    assert "3,794 rows" in text
    assert run(*audit, "--fail-if", "equal_opportunity > 0.1") == 1


def test_the_page_for_auditors_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = (TUTORIALS[0].parents[1] / "for-auditors.md").read_text(encoding="utf-8")
    exec(compile(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0], "for-auditors.md", "exec"), {})
    pairs = re.findall(r"```\nlevelhead (audit[^\n]*)\n```\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(pairs) == 3
    for command, shown in pairs:
        run(*shlex.split(command))
        printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
        assert shown.strip() in printed
