"""The benchmark of a training step runs at its smallest size and writes rows that other scripts' rows stay beside."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
        assert set(one) == {"name", "ratio", "low", "high", "target", "better", "resolved", "machine", "commit"}
        assert 0 < one["low"] <= one["ratio"] <= one["high"]
        assert one["better"] in ("lower", "higher")
        assert (one["resolved"] is None) == (one["target"] is None)
        assert "smoke" in one["name"]
    assert picture.stat().st_size > 1000
    moments = next(one for one in found if one["name"].startswith("moments"))
    assert moments["ratio"] < 1e-5
    memory = next(one for one in found if "standardising" in one["name"] and "memory" in one["name"])
    assert memory["high"] < 0.8
