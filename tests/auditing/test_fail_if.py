"""--fail-if on the command line: exit status, files, and what is refused before any work."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

import levelhead
from command_line import run, said

DECISIONS = ["audit", "rows.csv", "--prediction", "decision", "--favourable", "yes", "--group", "race"]
LABELLED = ["audit", "rows.csv", "--label", "y", "--prediction", "decision", "--group", "race", "--positive", "yes"]


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(
        {
            "decision": ["yes"] * 80 + ["no"] * 20 + ["yes"] * 40 + ["no"] * 60 + ["yes"] * 75 + ["no"] * 25,
            "y": ["yes", "no"] * 150,
            "race": ["a"] * 100 + ["b"] * 100 + ["c"] * 100,
        }
    )
    table.to_csv("rows.csv", index=False)
    return table


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        (["selection_ratio < 0.8"], 1),  # b: 0.50 [0.37, 0.64]
        (["selection_ratio < 0.3"], 0),
        (["selection_ratio < 0.3", "selection_ratio < 0.55"], 3),
        (["selection_ratio < 0.55", "race: selection_ratio < 0.8"], 1),
        (["selection_ratio.value < 0.45"], 0),
        (["demographic_parity.low > 5%"], 1),
    ],
)
@pytest.mark.parametrize("command", [DECISIONS, [*LABELLED, "--favourable", "yes"]], ids=["decisions", "labelled"])
def test_the_exit_status_says_what_held(command: list[str], conditions: list[str], status: int) -> None:
    asked = [word for one in conditions for word in ("--fail-if", one)]
    assert run(*command, *asked, "--json", "a.json", "--html", "a.html") == status
    gate = json.loads(Path("a.json").read_text())["gate"]
    assert gate["answer"] == {0: "no", 1: "yes", 3: "undecided"}[status]
    assert len(gate["checks"]) >= 1
    assert Path("a.html").is_file()


def test_the_ratio_is_that_of_the_favourable_class(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the positive class is the unfavourable one, the group that it harms has the low ratio."""
    no = [*LABELLED[:-1], "no", "--favourable", "yes"]
    assert run(*no, "--fail-if", "selection_ratio < 0.8") == 1
    assert "selection_ratio < 0.8 holds: race, group 'b': selection_ratio 0.5" in said(capsys)


def test_an_unknown_figure_costs_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*DECISIONS, "--fail-if", "selection_rato < 1", "--json", "a.json") == 2
    assert "No figure is called 'selection_rato'. Did you mean 'selection_ratio'" in said(capsys)
    assert "gate" not in json.loads(Path("a.json").read_text())


def test_the_json_says_what_made_it_and_of_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    command = [*DECISIONS, "--json", "a.json"]
    assert run(*command) == 0
    first = Path("a.json").read_bytes()
    made = json.loads(first)["made"]
    assert made["tool"] == "levelhead"
    assert made["version"].startswith(levelhead.__version__)
    content = Path("rows.csv").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert made["inputs"] == [{"file": "rows.csv", "bytes": len(content), "sha256": digest}]
    assert made["time"] == "2001-09-09T01:46:40Z"
    assert run(*command) == 0
    assert Path("a.json").read_bytes() == first
