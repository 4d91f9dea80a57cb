"""The tutorials are short, and the figures that they show are those that their commands print."""

from __future__ import annotations

import re
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
    (shown,) = re.findall(r"```\n(Of .*?)```", text, flags=re.DOTALL)
    for figure in [*re.findall(r"\d[\d.]*\d", shown), "0.83"]:
        assert figure in printed, figure
    assert Path("audit.html").exists()
    assert run("plan", "--rate", "0.6", "--gap", "5") == 0
    assert "3,794 rows" in capsys.readouterr().out
    assert "3,794 rows" in text
    assert run(*audit, "--fail-if", "equal_opportunity > 0.1") == 1
