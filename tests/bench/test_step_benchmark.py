"""The benchmark of a training step runs at its smallest size and writes rows that other scripts' rows stay beside."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # it starts processes, which import torch
@pytest.mark.long
def test_a_smoke_run_writes_rows(tmp_path: Path) -> None:
    rows = tmp_path / "build" / "measured" / "latest.json"
    rows.parent.mkdir(parents=True)
    rows.write_text(json.dumps({"rows": [{"name": "of another script"}]}))
    command = [sys.executable, str(ROOT / "benchmarks" / "step.py"), "--smoke"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stderr
    other, *found = json.loads(rows.read_text())["rows"]
    assert other == {"name": "of another script"}
    assert len({one["name"] for one in found}) == len(found) > 15
    for one in found:
        figures = {"name", "ratio", "low", "high", "repeats", "target", "better", "resolved"}
        assert set(one) == figures | {"machine", "commit"}
        assert 0 < one["low"] <= one["ratio"] <= one["high"]
        assert one["better"] in ("lower", "higher")
        assert (one["resolved"] is None) == (one["target"] is None)
        assert "smoke" in one["name"]
    moments = next(one for one in found if one["name"].startswith("moments"))
    assert moments["ratio"] < 1e-5
    memory = next(one for one in found if "standardising" in one["name"] and "memory" in one["name"])
    assert memory["high"] < 0.8


def test_no_script_writes_tracked_files_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracked = re.compile(r"write_json\((ROOT|LATEST)|merge\(measure\.LATEST")
    assert not [file.name for file in (ROOT / "benchmarks").glob("*.py") if tracked.search(file.read_text())]
    measure = load_script(ROOT / "benchmarks" / "measure.py")
    monkeypatch.setattr(measure, "MEASURED", tmp_path)
    file = ROOT / "results" / "seeds.json"
    assert measure.destination(file, record=False) == tmp_path / "seeds.json"
    assert measure.destination(file, record=True) == file
