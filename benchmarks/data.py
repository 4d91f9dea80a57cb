"""Reading and counting: pictures after the first epoch, an audit of ten million rows, intervals, imports.

    python benchmarks/data.py
    python benchmarks/data.py --audit scores    # only the audits whose names hold a word; other rows stay as they are

Everything is drawn: no outside data. Times are processor time of one thread, taken in turns within one run; ratios are
those of neighbours, shown as median with its 95% interval. Audits and imports run in processes of their own, so that
each finds nothing loaded. Files lie in the page cache when they are read, as in any epoch but the first.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import measure
import numpy as np
import pyarrow
import pyarrow.parquet
import torch
import typer
from PIL import Image

import levelhead as lh
from levelhead.data.cache import picture_inputs
from levelhead.data.cache_folder import VARIABLE
from levelhead.data.images import ImageInputs, decode_images
from levelhead.metrics import Counts, estimate_all

CPU = torch.device("cpu")
ROWS, PICTURES, BATCH = 10_000_000, 4096, 256

READ = """
import pyarrow.parquet, sys
began = time.process_time()
table = pyarrow.parquet.read_table(sys.argv[1], columns=sys.argv[2].split(), use_threads=False)
"""
# What is audited: the columns that are read for it, their roles, and the target of time beside reading.
AUDITS: dict[str, tuple[str, dict[str, object], float]] = {
    "audit": ("label prediction group", {"prediction": "prediction", "groups": ["group"]}, 0.5),
    "audit with scores": ("label score group", {"groups": ["group"], "score": "score", "threshold": 0.5}, 1.0),
    "audit with a few groups and a proxy": (
        "label prediction known score",
        {"prediction": "prediction", "labelled_group": "known", "proxy": ["score"]},
        0.5,
    ),
    "audit with three proxies": (
        "label prediction proxy_1 proxy_2 proxy_3",
        {"prediction": "prediction", "proxy": ["proxy_1", "proxy_2", "proxy_3"]},
        0.5,
    ),
}
AUDIT = """
import sys
from levelhead import audit_table
began = time.process_time()
audit_table(sys.argv[1], label="label", **json.loads(sys.argv[2]))
"""
IMPORTS = {
    "levelhead": "import levelhead",
    "transformers": "import transformers",
    "help": "import sys; sys.argv = ['levelhead', '--help']; from levelhead.cli import app; app(standalone_mode=False)",
}


def child(code: str, *arguments: str) -> dict[str, float]:
    """Run code in a process of its own; return its processor seconds since ``began``, and its peak memory in MB."""
    # Not getrusage: its maximum counts in what the parent held when the child was started.
    told = """
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"seconds": time.process_time() - began, "megabytes": int(peak.split()[1]) * 1024 / 1e6}))
"""
    whole = f"import json, time\nbegan = time.process_time()\n{code}{told}"
    done = subprocess.run([sys.executable, "-c", whole, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_rows(path: Path, rows: int) -> None:
    """Write predictions with a label, a prediction, eight groups, and two columns that nobody asks for."""
    rng = np.random.default_rng(0)
    words = np.array(["no", "yes"])
    columns = {
        "id": np.arange(rows),
        "label": words[rng.integers(0, 2, rows)],
        "prediction": words[rng.integers(0, 2, rows)],
        "group": np.array([f"group {letter}" for letter in "ABCDEFGH"])[rng.integers(0, 8, rows)],
        "score": rng.random(rows),
    }
    own = rng.random(rows) < 0.4  # of whom 500 are known, and at whom three proxies guess
    known = pyarrow.array(np.where(own, "a", "b"), mask=np.arange(rows) % max(1, rows // 500) > 0)
    columns["known"] = known
    for number in (1, 2, 3):
        columns[f"proxy_{number}"] = np.where(rng.random(rows) < 0.75, own, ~own).astype(np.int64)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def audits(folder: Path, rows: int, repeats: int, word: str = "") -> list[dict[str, object]]:
    """Audit a file against reading the same columns of it; ``word``: only the audits whose names hold it."""
    file = folder / "predictions.parquet"
    write_rows(file, rows)
    measured = []
    for name, (columns, roles, target) in ((name, one) for name, one in AUDITS.items() if word in name):
        ratios, peaks = [], []
        child(READ, str(file), columns)
        for _ in range(repeats):
            reading, auditing = child(READ, str(file), columns), child(AUDIT, str(file), json.dumps(roles))
            ratios.append(auditing["seconds"] / reading["seconds"])
            peaks.append(auditing["megabytes"] / 500)
        words = name.replace("audit", f"audit of {rows / 1e6:g} million rows", 1)
        measured.append(measure.row(f"{words} / pyarrow reading them", ratios, target, device=CPU))
        measured.append(measure.row(f"{words}, peak memory / 500 MB", peaks, 1.0, device=CPU))
    return measured


def draw_pictures(count: int) -> list[bytes]:
    """Return JPEGs of 178x218 pixels, as large as CelebA's, of smooth colours."""
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(count):
        small = Image.fromarray(rng.integers(0, 256, (7, 6, 3), dtype=np.uint8))
        with io.BytesIO() as file:
            small.resize((178, 218), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            encoded.append(file.getvalue())
    return encoded


def decoding(folder: Path, count: int, repeats: int) -> list[dict[str, object]]:
    """Read shuffled batches from the cache against decoding them with Pillow."""
    os.environ[VARIABLE] = str(folder / "cache")
    encoded = draw_pictures(count)

    def where(position: int) -> str:
        return f"picture {position}"

    kept = picture_inputs(encoded, where, 64)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).split(BATCH)
    first = ImageInputs(decode_images([encoded[i] for i in order[0].tolist()], where, 64))
    assert torch.equal(first.batch(torch.arange(BATCH))["pixel_values"], kept.batch(order[0])["pixel_values"])

    def decode() -> None:
        for index in order[:4]:  # a few batches tell its time
            pixels = decode_images([encoded[i] for i in index.tolist()], where, 64)
            ImageInputs(pixels).batch(torch.arange(len(index)))

    def read() -> None:
        for index in order:
            kept.batch(index)

    times = measure.interleaved({"decode": decode, "read": read}, repeats, CPU, lambda _: None)
    ratios = [ratio * len(order) / 4 for ratio in measure.paired(times, "decode", "read")]
    return [measure.row("pictures decoded by Pillow / read after the first epoch", ratios, 100, "higher", device=CPU)]


def intervals(repeats: int) -> list[dict[str, object]]:
    """Bootstrap the counts of 200,000 rows in eight groups; and audit 300 groups, all 44,850 pairs of them."""
    rng = np.random.default_rng(0)
    counts = Counts(rng.multinomial(200_000, np.full(32, 1 / 32)).reshape(8, 2, 2), tuple(range(8)), ("no", "yes"))
    times = measure.interleaved({"once": lambda: estimate_all(counts)}, repeats, CPU, lambda _: None)["once"]
    name = "1,000 bootstrap replicates, 200,000 rows, 8 groups / 20 ms"
    rows = [measure.row(name, [seconds / 0.02 for seconds in times], 1.0, device=CPU)]
    group = np.char.add("group ", rng.integers(0, 300, 300_000).astype(str))
    label = rng.integers(0, 2, len(group))
    prediction = np.where(rng.random(len(group)) < 0.8, label, 1 - label)
    many = {"many": lambda: lh.audit(label, prediction, sensitive_features=group)}
    times = measure.interleaved(many, repeats, CPU, lambda _: None)["many"]
    return [*rows, measure.row("audit of 300 groups, 300,000 rows / 2 s", [one / 2 for one in times], 1.0, device=CPU)]


def imports(repeats: int) -> list[dict[str, object]]:
    """Import levelhead against transformers, and ask for the help."""
    spent = {name: [] for name in IMPORTS}
    for repeat in range(-1, repeats):
        for name, code in IMPORTS.items():
            seconds = child(code)["seconds"]
            if repeat >= 0:
                spent[name].append(seconds)
    both = zip(spent["levelhead"], spent["transformers"], strict=True)
    return [
        measure.row(
            "import levelhead / import transformers and 0.2 s", [a / (b + 0.2) for a, b in both], 1, device=CPU
        ),
        measure.row("levelhead --help / 0.4 s", [seconds / 0.4 for seconds in spent["help"]], 1, device=CPU),
    ]


def main(
    repeats: int = 15, rows: int = ROWS, pictures: int = PICTURES, audit: str | None = None, record: bool = False
) -> None:
    """Measure, print, and keep the rows; ``audit``: only the audits of files whose names hold this word."""
    measure.with_environment()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = audits(folder, rows, repeats, audit or "")
        if audit is None:
            found += [*intervals(repeats), *decoding(folder, pictures, repeats), *imports(repeats)]
    measure.merge(measure.destination(measure.LATEST, record), found)
    measure.show(found, "Reading, auditing, intervals, imports")


if __name__ == "__main__":
    typer.run(main)
