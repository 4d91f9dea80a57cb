"""What a training costs: a played NVML, parts of a killed run, and the table's cost columns."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from command_line import wait_until
from levelhead.report.text import cell_lines
from levelhead.runs.cost_table import cost_table, mean_cost
from levelhead.storage import read_json
from levelhead.training import cost
from levelhead.training.cost import add_parts, earlier_part, measured_cost, process_peak_memory_mib

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
UUID = "8a1f2c3d-0000-1111-2222-333344445555"


class PlayedNvml(ModuleType):
    """Stands for pynvml: two GPUs, of which torch's first is the second one here."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.known = {"GPU-other": "first", f"GPU-{UUID}": "second"}
        self.energy: Callable[[], int] = iter(range(1_000_000, 10**9, 360_000)).__next__  # mJ: 0.1 Wh a reading
        self.mig: int | None = None
        self.pids = [os.getpid()]
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.known:
            raise self.NVMLError("Not Found")
        return self.known[uuid]

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802
        if self.mig is None:
            raise self.NVMLError("Not Supported")
        return [self.mig, self.mig]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        assert handle == "second", "read the energy of another GPU"
        return self.energy()

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> PlayedNvml:
    """A played NVML, and a played CUDA device with 3 MiB allocated and 4 MiB reserved at most."""
    played = PlayedNvml()
    monkeypatch.setitem(sys.modules, "pynvml", played)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=UUID))
    for name, mib in (("max_memory_allocated", 3), ("max_memory_reserved", 4)):
        monkeypatch.setattr(torch.cuda, name, lambda device, mib=mib: mib * 2**20)
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda device: None)
    return played


def measure(device: torch.device = GPU, **options: Any) -> dict[str, Any]:
    with measured_cost(device, **options) as meter:
        pass
    return meter.result(rows=10)


def test_the_counter_of_the_right_gpu_is_read_before_and_after(nvml: PlayedNvml) -> None:
    result = measure()
    assert result["energy_wh"] == pytest.approx(0.1)
    assert "energy_reason" not in result
    assert result["peak_gpu_memory_mib"] == 3
    assert result["peak_gpu_reserved_mib"] == 4
    assert result["gpu_other_processes"] == 0
    assert nvml.open == 0, "NVML was not shut down"


def test_no_counter_is_a_reason_and_no_figure(nvml: PlayedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_supported() -> int:
        raise nvml.NVMLError("Not Supported")

    nvml.energy = not_supported
    result = measure()
    assert result["energy_wh"] is None
    assert "Volta and later have one): Not Supported" in result["energy_reason"]
    nvml.known = {"GPU-other": "first"}
    result = measure()
    assert result["energy_wh"] is None
    assert result["energy_reason"] == "NVML does not find the GPU, or it is a MIG slice: Not Found"
    assert UUID not in str(result), "a machine's number does not belong into a result"
    assert nvml.open == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in measure()["energy_reason"]
    result = measure(energy="off")
    assert result["energy_wh"] is None
    assert result["energy_reason"] == "switched off"


@pytest.mark.parametrize("seen_as", [{"mig": 1}, {"known": {f"MIG-{UUID}": "slice"}}])
def test_a_mig_slice_is_not_billed_for_the_whole_gpu(nvml: PlayedNvml, seen_as: dict[str, Any]) -> None:
    nvml.mig = 0
    assert measure()["energy_wh"] == pytest.approx(0.1)  # switched off
    vars(nvml).update(seen_as)
    result = measure()
    assert result["energy_wh"] is None
    assert "MIG slice" in result["energy_reason"]
    assert nvml.open == 0


def test_each_reading_between_counts(nvml: PlayedNvml) -> None:
    nvml.energy = iter([5_000_000, 6_000_000, 100, 9_000_000, 9_000_001]).__next__
    with measured_cost(GPU) as meter:
        nvml.pids = [7, 8, 9]  # numbers of the host, as seen inside a container
        meter._step(running=True)  # the third reading, after a reset; the last one is higher than the first again
        nvml.pids = [os.getpid()]
    result = meter.result()
    assert result["energy_wh"] is None
    assert "went back" in result["energy_reason"]
    assert result["gpu_other_processes"] == 2
    nvml.pids, nvml.energy = [], iter(range(10)).__next__
    result = measure()
    assert result["gpu_other_processes"] is None
    assert "does not show" in result["gpu_other_processes_reason"]


def test_several_processes_are_not_measured_as_one(nvml: PlayedNvml) -> None:
    result = measure(processes=2)
    assert result["processes"] == 2
    assert result["energy_wh"] is None
    assert result["energy_reason"].startswith("training ran in 2 processes")
    assert result["peak_gpu_memory_mib"] == 3
    _, notes = table(ERM=[{**WHOLE, **result}])
    assert "several processes trained, memory is the first one's: ERM" in notes


def test_on_a_cpu_nothing_of_cuda_or_nvml_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    for name in ("synchronize", "max_memory_allocated", "get_device_properties", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("CUDA was touched"))
    with measured_cost(CPU) as meter:
        time.sleep(0.05)
    result = meter.result(rows=1000)
    assert 0.05 <= result["seconds"] < 60
    assert result["samples_per_second"] == pytest.approx(1000 / result["seconds"])
    assert result["process_peak_memory_mib"] > 10
    assert "peak_gpu_memory_mib" not in result
    assert result["energy_wh"] is None
    assert result["energy_reason"] == "training ran on cpu, not on a GPU with an energy counter"
    json.dumps(result, allow_nan=False)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_the_peak_is_this_process_and_not_the_one_that_started_it() -> None:
    code = "import contextlib, resource, sys\nfrom pathlib import Path\n" + inspect.getsource(process_peak_memory_mib)
    code += "before = process_peak_memory_mib()\nx = b'1' * (64 << 20)\nprint(before, process_peak_memory_mib())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    before, after = map(float, done.stdout.split())
    assert process_peak_memory_mib() > 150, "this process, with torch, is the large one"
    assert before < 60
    assert before + 60 < after < 150


def test_parts_add_up_and_peaks_do_not() -> None:
    first = {"parts": 1, "killed_parts": 1, "seconds": 60.0, "energy_wh": 2.0, "process_peak_memory_mib": 900.0}
    second = {"parts": 1, "killed_parts": 0, "seconds": 30.0, "energy_wh": 0.5, "process_peak_memory_mib": 700.0}
    total = add_parts(first | {"gpu_other_processes": 0}, second | {"gpu_other_processes": 2})
    summed = {"parts": 2, "killed_parts": 1, "seconds": 90.0, "energy_wh": 2.5}
    assert total == {**summed, "process_peak_memory_mib": 900.0, "gpu_other_processes": 2}
    # A sum with an unknown part is unknown, whichever part it is.
    unknown = second | {"energy_wh": None, "energy_reason": "a MIG slice"}
    for parts in ((second, unknown), (unknown, second), (add_parts(unknown, second), second)):
        total = add_parts(*parts)
        assert total["seconds"] == 30.0 * total["parts"]
        assert total["energy_wh"] is None
        assert total["energy_reason"] == "a MIG slice"


def test_a_resumed_run_whose_first_part_left_nothing_is_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "cost-so-far.json"
    assert earlier_part(file, begun=False) is None
    for content in (None, "cut sh", "[1]", '{"running": false}'):
        if content is not None:
            file.write_text(content)
        result = measure(CPU, earlier=earlier_part(file, begun=True))
        assert result["seconds"] is result["samples_per_second"] is None
        assert "an earlier part of the run" in result["seconds_reason"]
        assert result["parts"] == 2


def test_the_file_is_closed_when_training_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "cost-so-far.json"

    def fail() -> None:
        with measured_cost(CPU, file=file):
            assert read_json(file)["running"] is True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    found = read_json(file)
    assert found["running"] is False
    part = earlier_part(file, begun=True)
    assert part is not None
    assert part["killed_parts"] == 0
    assert part["seconds"] == found["seconds"]
    # A full disk does not end the training.
    assert measure(CPU, file=file / "cost-so-far.json")["seconds"] >= 0
    assert "could not be written" in caplog.text


KILLED = """
import sys, time, torch
from pathlib import Path
from levelhead.training import cost
from levelhead.training.cost import earlier_part, measured_cost
file, cost.EVERY_SECONDS = Path(sys.argv[1]), 0.002
with measured_cost(torch.device("cpu"), file=file, earlier=earlier_part(file, begun=False)):
    time.sleep(60)
"""


@pytest.mark.slow
def test_the_parts_of_a_run_killed_with_signal_9_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "cost-so-far.json"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(file)])
    try:
        wait_until(lambda: file.exists() and read_json(file)["seconds"] > 0.2)
    finally:
        os.kill(process.pid, signal.SIGKILL)  # while it writes, as often as not
        process.wait()
    left = read_json(file)
    assert left["running"] is True
    assert left["seconds"] > 0.2
    with measured_cost(CPU, file=file, earlier=earlier_part(file, begun=True)) as meter:
        time.sleep(0.05)
    result = meter.result()
    assert result["parts"] == 2
    assert result["killed_parts"] == 1
    assert left["seconds"] + 0.05 <= result["seconds"] < left["seconds"] + 30
    assert read_json(file) == {"running": False, **result}


MACHINE = {"device": "cpu", "cpu": "Example 1", "threads": 1}
WHOLE: dict[str, Any] = {"seconds": 100.0, "samples_per_second": 640.0, "steps": 1000, "forward_passes": 1.5}
WHOLE |= {"backward_passes": 1.0, "parameters": 2_000_000, "process_peak_memory_mib": 900.0}
WHOLE |= {"parts": 1, "killed_parts": 0}
OLD: dict[str, Any] = {"seconds": 529.2, "steps": 1260, "parameters": 1_936_706, "peak_memory_mib": 877.1}


def on_gpu(**changes: Any) -> dict[str, Any]:
    gpu = {"peak_gpu_memory_mib": 11792.0, "peak_gpu_reserved_mib": 12000.0, "gpu_other_processes": 0}
    return {**WHOLE, **gpu, "energy_wh": 144.864, **changes}


def table(machines: dict[str, Any] | None = None, **rows: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return the cells of a cost table by row and title, and its notes."""
    machines = machines or {}
    found = cost_table({name: mean_cost(each, machines.get(name, [MACHINE])) for name, each in rows.items()})
    titles = [column["title"] for column in found["columns"][1:]]
    cells = {row["head"]: dict(zip(titles, map(cell_lines, row["cells"]), strict=True)) for row in found["rows"]}
    return cells, "\n".join(found["notes"])


def test_cost_columns_of_a_gpu_run() -> None:
    cells, notes = table(ERM=[on_gpu(), on_gpu(seconds=200.0)])
    assert cells["ERM"] == {
        "seconds": ["150"],
        "samples/s": ["640"],
        "optimiser steps": ["1,000"],
        "forward passes": ["1.50"],
        "backward passes": ["1.00"],
        "parameters": ["2,000,000"],
        "peak memory, MiB": ["11,792", "GPU"],
        "GPU energy, Wh": ["144.86"],
    }
    assert "idle power included" in notes
    assert "NOT comparable" not in notes
    assert "no GPU energy" not in notes
    assert table(short=[{**WHOLE, "seconds": 0.04}])[0]["short"]["seconds"] == ["0.04"]


UNMEASURED = on_gpu(energy_wh=None, energy_reason="training ran on a MIG slice")
LOST = {**WHOLE, "seconds": None, "seconds_reason": "no cost file", "samples_per_second": None}
HIDDEN = on_gpu(gpu_other_processes=None, gpu_other_processes_reason="hidden")


@pytest.mark.parametrize(
    ("costs", "titles", "note"),
    [
        ([on_gpu(), UNMEASURED], ("GPU energy, Wh",), "no GPU energy of DAM: training ran on a MIG slice"),
        (
            [OLD],
            ("samples/s", "forward passes", "GPU energy, Wh", "peak memory, MiB"),
            "no samples/s, forward passes, backward passes, peak memory, GPU energy of DAM: not recorded when it was",
        ),
        ([on_gpu(), OLD], ("samples/s",), "no samples/s"),  # a row of which one seed lacks a figure has no mean
        ([LOST], ("seconds", "samples/s"), "no seconds, samples/s of DAM: no cost file"),
        ([on_gpu(gpu_other_processes=2)], (), "held the GPU too, and its energy includes theirs: DAM"),
        ([on_gpu(parts=3)], (), "resumed after a stop, repeated work counted again: DAM"),
        ([HIDDEN], (), "other processes on the GPU could not be detected: DAM"),
    ],
)
def test_what_was_not_measured_or_limits_a_row_is_said_of_it_and_never_zero(
    costs: list[dict[str, Any]], titles: tuple[str, ...], note: str
) -> None:
    cells, notes = table(ERM=[on_gpu()], DAM=costs)
    assert cells["ERM"]["GPU energy, Wh"] == ["144.86"]
    assert {title for title in titles if cells["DAM"][title] != ["not measured"]} == set()
    assert note in notes


def test_different_hardware_is_said() -> None:
    machines = {"ERM": [MACHINE, MACHINE], "DAM": [MACHINE, {**MACHINE, "threads": 8}]}
    _, notes = table(machines, ERM=[WHOLE, WHOLE], DAM=[WHOLE, WHOLE])
    assert "NOT comparable, the hardware differs: ERM: device cpu, CPU Example 1, threads 1; DAM: " in notes
    assert "threads 1 and device cpu, CPU Example 1, threads 8" in notes
    _, notes = table(ERM=[WHOLE], DAM=[WHOLE])
    assert "all runs: device cpu, CPU Example 1, threads 1; machine load is not recorded" in notes


def test_the_page_on_cost_names_every_figure() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
    for name in (*cost.REASONS, *cost.MAXIMA, "samples_per_second", "parts", "killed_parts"):
        assert f"`{name}`" in page, f"docs/cost.md does not name {name}"
