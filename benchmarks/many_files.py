"""What an audit of many files costs: time and memory, also by row as rows grow.

    nice -n 15 python benchmarks/many_files.py --folder FOLDER --json results/many_files.json

Draws 40 parquet files of 2.5 million rows each (label, prediction, sex, race, and a score), audits the first 4, 10, 20
and all of them by a process of its own each time, and asserts that its figures are equal to the bit each time. With
``--scores`` the first 4 and 10 files are audited with their scores as well.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from levelhead.storage import write_json

FILES, ROWS = 40, 2_500_000
STEPS = (4, 10, 20, 40)
AUDIT = """
import json, sys
import levelhead as lh
files, out, score = json.loads(sys.argv[1])
decided = {"score": "score"} if score else {"prediction": "prediction"}
found = lh.audit_table(files, label="label", **decided, groups=["sex", "race"], intersect=True)
open(out, "w").write(json.dumps(found.to_dict()))
"""


def draw(folder: Path, files: int, rows: int) -> list[Path]:
    """Write files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rows-{at:03}.parquet" for at in range(files)]
    for at, path in enumerate(paths):
        if path.exists():
            continue
        rng = np.random.default_rng(at)
        sex, race = (
            rng.integers(0, 2, rows, np.int8),
            rng.choice(5, rows, p=[0.6, 0.2, 0.1, 0.07, 0.03]).astype(np.int8),
        )
        score = rng.beta(2, 3, rows).astype(np.float32)
        label = (rng.random(rows) < 0.2 + 0.5 * score + 0.02 * sex - 0.01 * race).astype(np.int8)
        words = [pa.array(["f", "m"]), pa.array(["white", "black", "asian", "other", "native"])]
        coded = [pa.DictionaryArray.from_arrays(pa.array(one), of) for one, of in zip((sex, race), words, strict=True)]
        columns = [pa.array(label), pa.array((score > 0.45).astype(np.int8)), *coded, pa.array(score)]
        half = path.with_suffix(".half")
        pq.write_table(pa.table(columns, ["label", "prediction", "sex", "race", "score"]), half, row_group_size=1 << 18)
        half.rename(path)
    return paths


def audited(script: Path, files: list[Path], score: bool) -> tuple[dict[str, float], str]:
    """Audit files in a process of its own; return wall and processor seconds, its MiB, and JSON."""
    out = script.with_suffix(".json")
    began = time.perf_counter()
    order = dumps([[str(one) for one in files], str(out), score])
    process = subprocess.Popen([sys.executable, str(script), order])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        sys.exit("an audit failed")
    measured = {"wall": time.perf_counter() - began, "processor": used.ru_utime + used.ru_stime}
    return measured | {"MiB": used.ru_maxrss / 1024}, out.read_text(encoding="utf-8")


def measure(script: Path, paths: list[Path], steps: Sequence[int], score: bool, repeats: int) -> list[dict[str, Any]]:
    """Return the medians of every step."""
    measured = []
    for count in steps:
        kept, said = zip(*(audited(script, paths[:count], score) for _ in range(repeats)), strict=True)
        assert len(set(said)) == 1, "figures differ between repeats"
        rows = sum(pq.read_metadata(path).num_rows for path in paths[:count])
        median = {name: statistics.median(one[name] for one in kept) for name in kept[0]}
        measured.append({"rows": rows, "files": count, "scores": score, **median})
        measured[-1]["nanoseconds_a_row"] = 1e9 * median["processor"] / rows
        print(measured[-1], flush=True)
    return measured


def main(
    folder: Annotated[Path, typer.Option()],
    json: Annotated[Path, typer.Option()],
    repeats: int = 1,
    rows: int = ROWS,
    scores: bool = False,
) -> None:
    """Draw ``rows`` of each file into the folder, measure and write."""
    paths = draw(folder, FILES, rows)
    script = folder / "audit_these.py"
    script.write_text(AUDIT, encoding="utf-8")
    size = sum(path.stat().st_size for path in paths)
    measured = measure(script, paths, STEPS, False, repeats)
    if scores:
        measured += measure(script, paths, STEPS[:2], True, repeats)
    load = os.getloadavg()[0]
    write_json(json, {"bytes": size, "processors": os.cpu_count(), "load": load, "measured": measured})


if __name__ == "__main__":
    typer.run(main)
