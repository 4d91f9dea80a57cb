"""What audits refuse: the call or the command, the exact sentence, the exit status."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from refusals import Refusal, check, names

AUDIT = "audit rows.csv --label y --prediction decision --group race --all"
ROWS = [
    *(
        Refusal(
            f"{AUDIT} {positive} --fail-if '{condition}'",
            f"'{condition}' is about the favourable outcome: name it with --favourable CLASS (favourable= in Python).",
        )
        for positive in ("", "--positive no")
        for condition in ("selection_ratio < 0.9", "race: selection_ratio.value < 0.9")
    ),
]


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    decision = ["yes"] * 80 + ["no"] * 20 + ["yes"] * 40 + ["no"] * 60 + ["yes"] * 75 + ["no"] * 25
    table = {"decision": decision, "y": ["yes", "no"] * 150, "race": ["a"] * 100 + ["b"] * 100 + ["c"] * 100}
    pd.DataFrame(table).to_csv("rows.csv", index=False)


@pytest.mark.parametrize("row", ROWS, ids=names(ROWS))
def test_refusals(row: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, capsys)
