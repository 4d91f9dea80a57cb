"""What benchmark scripts share: interleaved times, peak memory, rows with intervals, and the file they are kept in.

A row is {name, ratio, low, high, repeats, target, better, resolved, machine, commit}: the median of paired ratios with
its 95% interval; ``better`` is "lower" or "higher"; ``resolved`` says whether the whole interval lies on one side of
the target, and is null without a target (a noise floor, or a figure to know).

    python benchmarks/measure.py    # print the rows with a target, the table of benchmarks/measured.md
"""

from __future__ import annotations

import functools
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import nn

from levelhead.storage import read_json, write_json

ROOT = Path(__file__).parents[1]
LATEST = ROOT / "benchmarks" / "latest.json"
DATA = Path(os.environ.get("LEVELHEAD_DATA") or "data")
MEASURED = Path("build/measured")
"""Where figures go that nobody records: git ignores it in the repository."""
# Without the last two, the C library gives memory back and asks for it again: page faults swing ratios by half.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}


def with_environment() -> None:
    """Start this script again with :data:`ENVIRONMENT`, which must be there before the process begins."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ENVIRONMENT})


def destination(tracked: Path, record: bool) -> Path:
    """Return the file of figures: the tracked one with ``record``, else one of its name in :data:`MEASURED`."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    return tracked if record else MEASURED / tracked.name


def interleaved(
    variants: Mapping[str, Callable[[], Any]], repeats: int, device: torch.device, note: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return seconds of each variant in each repeat: after two warm-ups, from the first to the last, then backwards.

    On a CPU, processor time of the one thread: what other work takes of the machine is not in it.
    """

    def seconds(call: Callable[[], Any]) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        clock = time.perf_counter if device.type == "cuda" else time.process_time
        began = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return clock() - began

    found: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(-2, repeats):
        names = list(variants) if repeat % 2 == 0 else list(reversed(variants))
        for name in names:
            note(f"{name}, {'warm-up' if repeat < 0 else f'repeat {repeat + 1} of {repeats}'}")
            spent = seconds(variants[name])
            if repeat >= 0:
                found[name].append(spent)
    return found


def peak_memory(call: Callable[[], Any], device: torch.device, resident: int = 0) -> int:
    """Return the most bytes of tensors during ``call``, ``resident`` ones that were there before included.

    From the allocator's events on a CPU; on a GPU torch counts by itself, and ``resident`` is not used.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    assert profile.profiler is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held, most = 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return resident + most


def resident_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of weights, buffers and the optimiser's state."""
    tensors = [*model.parameters(), *model.buffers()]
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return two of the values that hold the median with at least 95%, whatever the distribution of independent values.

    Order statistics by the sign test. Fewer than six values allow no 95%: then the smallest and the largest.
    """
    ordered = sorted(values)
    cut = max(int(stats.binom.ppf(0.025, len(ordered), 0.5)) - 1, 0)
    return ordered[cut], ordered[-1 - cut]


def row(
    name: str, ratios: Sequence[float], target: float | None = None, better: str = "lower", *, device: torch.device
) -> dict[str, Any]:
    """Make a row of paired ratios."""
    low, high = median_interval(ratios)
    resolved = None if target is None else high <= target or low >= target
    return {
        "name": name,
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "repeats": len(ratios),
        "target": target,
        "better": better,
        "resolved": resolved,
        "machine": machine(device),
        "commit": commit(),
    }


def paired(times: Mapping[str, Sequence[float]], above: str, below: str) -> list[float]:
    """Return the ratios of two variants within each repeat."""
    return [a / b for a, b in zip(times[above], times[below], strict=True)]


def verdict(row: Mapping[str, Any]) -> str:
    """Return whether a row's target is held: yes, no, unresolved, or nothing without a target."""
    if row["target"] is None:
        return ""
    if not row["resolved"]:
        return "unresolved"
    held = row["ratio"] <= row["target"] if row["better"] == "lower" else row["ratio"] >= row["target"]
    return "yes" if held else "no"


@functools.cache
def machine(device: torch.device) -> str:
    """Describe the hardware in a few words."""
    from levelhead.training.work import environment

    found = environment(device)
    return f"{found['device'] if device.type == 'cuda' else found['cpu']}, torch {found['packages']['torch']}"


@functools.cache
def commit() -> str:
    """Return the commit of the code, with "+" where files differ from it; empty outside a repository."""

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "../src", "*.py")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def merge(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put rows into the file: one replaces that of the same name, the others stay."""
    known = read_json(path)["rows"] if path.exists() else []
    together = {one["name"]: one for one in [*known, *rows]}
    write_json(path, {"rows": list(together.values())})


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return a row as texts: name, ratio with interval, target, whether it is held."""
    at = "at most" if row["better"] == "lower" else "at least"
    target = "" if row["target"] is None else f"{at} {row['target']:g}"
    return [row["name"], f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]", target, verdict(row)]


def show(rows: Iterable[Mapping[str, Any]], title: str, **more: str) -> None:
    """Print rows as a table; ``more`` are further columns by the keys of their numbers."""
    shown = Table(title=title)
    for column in ("what", "ratio [95% interval]", "target", "held", *more.values()):
        shown.add_column(column, justify="left" if column == "what" else "right")
    for one in rows:
        shown.add_row(*cells(one), *(f"{one[key]:.2f}" for key in more))
    Console(width=max(160, Console().width)).print(shown)


def measured() -> str:
    """Return the recorded rows that have a target as a Markdown table."""
    rows = [row for row in read_json(LATEST)["rows"] if row["target"] is not None]
    lines = ["| | ratio [95% interval] | target | held |", "|---|---:|---:|---|"]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(measured())
