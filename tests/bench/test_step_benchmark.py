"""The benchmark of a training step runs at its smallest size and writes rows that other scripts' rows stay beside."""

import argparse
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
def test_a_smoke_run_writes_rows_and_a_picture(tmp_path: Path) -> None:
    rows, picture = tmp_path / "latest.json", tmp_path / "step.png"
    rows.write_text(json.dumps({"rows": [{"name": "of another script"}]}))
    command = [sys.executable, "benchmarks/step.py", "--smoke", "--json", str(rows), "--picture", str(picture)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
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
    assert picture.stat().st_size > 1000
    moments = next(one for one in found if one["name"].startswith("moments"))
    assert moments["ratio"] < 1e-5
    memory = next(one for one in found if "standardising" in one["name"] and "memory" in one["name"])
    assert memory["high"] < 0.8


def test_no_script_writes_tracked_files_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracked = re.compile(r"default=.*(LATEST|results|docs|PAGE)")
    assert not [file.name for file in (ROOT / "benchmarks").glob("*.py") if tracked.search(file.read_text())]
    measure = load_script(ROOT / "benchmarks" / "measure.py")
    monkeypatch.setattr(measure, "MEASURED", tmp_path / "measured")
    for arguments, folder in (([], tmp_path / "measured"), (["--record"], ROOT / "results")):
        monkeypatch.setattr(sys, "argv", ["seeds.py", *arguments])
        parser = argparse.ArgumentParser()
        measure.destinations(parser, json=ROOT / "results" / "seeds.json")
        assert parser.parse_args(arguments).json == folder / "seeds.json"
