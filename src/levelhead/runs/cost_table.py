"""The cost columns of a comparison: what training took, what each figure is, and why one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelhead.report import blocks
from levelhead.report.text import Record
from levelhead.training.cost import REASONS

COLUMNS = {
    "seconds": ("seconds", 0),
    "samples_per_second": ("samples/s", 0),
    "steps": ("optimiser steps", 0),
    "forward_passes": ("forward passes", 2),
    "backward_passes": ("backward passes", 2),
    "parameters": ("parameters", 0),
    "memory": ("peak memory, MiB", 0),
    "energy_wh": ("GPU energy, Wh", 2),
}
"""Title and digits. "memory" is the GPU's where there is one, otherwise the process's."""

GPU_MEMORY = "peak_gpu_memory_mib"


def mean_cost(costs: Sequence[dict[str, Any]], environments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of the runs' ``cost.json``; what a run lacks is left out, what one did not measure is None.

    Counts of parts and processes are the largest; texts are joined. ``hardware`` lists the
    device, processor and threads that the runs' ``environment.json`` name.
    """
    mean: dict[str, Any] = {}
    for key in dict.fromkeys(key for cost in costs for key in cost):
        values = [cost[key] for cost in costs if key in cost]
        if any(isinstance(value, str) for value in values):
            mean[key] = "; ".join(dict.fromkeys(values))
        elif len(values) < len(costs):
            continue
        elif None in values:
            mean[key] = None
        else:
            whole = key in ("parts", "killed_parts", "processes", "gpu_other_processes")
            mean[key] = max(values) if whole else sum(values) / len(values)
    mean["hardware"] = list(dict.fromkeys(_hardware(environment) for environment in environments))
    return mean


def _hardware(environment: dict[str, Any]) -> str:
    device, cpu, threads = (environment.get(key, "unknown") for key in ("device", "cpu", "threads"))
    return f"device {device}, CPU {cpu}, threads {threads}"


def cost_table(costs: dict[str, dict[str, Any]], *, head: str = "Variant", caption: str = "") -> Record:
    """Return the table of ``costs``, what :func:`mean_cost` gave by the rows' names.

    What was not measured says so, and the notes below say why.
    """
    rows = [(name, [_cell(key, digits, cost) for key, (_, digits) in COLUMNS.items()]) for name, cost in costs.items()]
    return blocks.table(
        caption or "Cost of training, mean over seeds",
        [head, *(title for title, _ in COLUMNS.values())],
        rows,
        notes=_notes(costs),
    )


def _notes(costs: dict[str, dict[str, Any]]) -> list[str]:
    notes = [
        "one pass is one run of the kept network over all training rows",
        "peak memory: of torch on the GPU if marked GPU, otherwise of the whole process",
    ]
    if any(cost.get("energy_wh") is not None for cost in costs.values()):
        notes.append("GPU energy: NVML's counter of the whole GPU while training, idle power included")
    return notes + _missing(costs) + _cautions(costs)


def _cell(key: str, digits: int, cost: dict[str, Any]) -> Record:
    value, _ = _figure(key, cost)
    if value is None:
        return blocks.cell("not measured", quiet=True)
    return blocks.cell(_number(value, digits), "GPU" * (key == "memory" and GPU_MEMORY in cost))


def _figure(key: str, cost: dict[str, Any]) -> tuple[float | None, str]:
    """Return a figure, and why it is not there; an empty text where it is."""
    if key == "memory":
        key = GPU_MEMORY if GPU_MEMORY in cost else "process_peak_memory_mib"
    if key not in cost:
        return None, "not recorded when it was run"
    reason = "" if cost[key] is not None else cost.get(REASONS.get(key, "seconds_reason"), "no reason was recorded")
    return cost[key], str(reason)


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if value == 0 or value >= 10**-digits else f"{value:.2g}"


def _missing(costs: dict[str, dict[str, Any]]) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, cost in costs.items():
        lacking: dict[str, list[str]] = {}
        for key, (title, _) in COLUMNS.items():
            if reason := _figure(key, cost)[1]:
                lacking.setdefault(reason, []).append(title.partition(",")[0])
        for reason, titles in lacking.items():
            found.setdefault((reason, ", ".join(titles)), []).append(name)
    every = list(costs) if len(costs) > 1 else []
    return [
        f"no {titles} of {'every variant' if names == every else ', '.join(names)}: {reason}"
        for (reason, titles), names in found.items()
    ]


def _cautions(costs: dict[str, dict[str, Any]]) -> list[str]:
    notes = []
    for key, of_interest, text in (
        ("parts", lambda count: count is not None and count > 1, "resumed after a stop, repeated work counted again"),
        ("processes", lambda count: count > 1, "several processes trained, memory is the first one's"),
        ("gpu_other_processes", bool, "other processes held the GPU too, and its energy includes theirs"),
        ("gpu_other_processes", lambda count: count is None, "other processes on the GPU could not be detected"),
    ):
        if rows := [name for name, cost in costs.items() if key in cost and of_interest(cost[key])]:
            notes.append(f"{text}: {', '.join(rows)}")
    kinds: dict[str, list[str]] = {}
    for name, cost in costs.items():
        kinds.setdefault(" and ".join(cost["hardware"]), []).append(name)
    if len(kinds) > 1 or any(len(cost["hardware"]) > 1 for cost in costs.values()):
        listed = "; ".join(f"{', '.join(rows)}: {kind}" for kind, rows in kinds.items())
        notes.append(f"seconds, samples/s, memory and energy are NOT comparable, the hardware differs: {listed}")
    else:
        notes.append(f"all runs: {next(iter(kinds))}; machine load is not recorded and affects seconds")
    return notes
