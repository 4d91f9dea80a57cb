"""What a training costs: seconds, memory, watt-hours. What could not be measured is None with a reason, never 0.

The energy of a GPU is the difference of NVML's own energy counter. ``docs/cost.md`` says what each figure is not.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, DataError

if TYPE_CHECKING:  # a table of costs is drawn without torch
    import torch

logger = logging.getLogger(__name__)

EnergyOption = Literal["counter", "off"]

COST_SO_FAR = "cost-so-far.json"
"""File in a run folder that keeps the cost of a run that is killed."""

EVERY_SECONDS = 10.0
"""Between two samples and two writes of the cost so far; about the most that a killed run's figures lack."""

REASONS = {
    "seconds": "seconds_reason",
    "energy_wh": "energy_reason",
    "gpu_other_processes": "gpu_other_processes_reason",
}
"""Where it stands why a figure is None."""

SUMS = ("seconds", "energy_wh")
"""Figures that add up over the parts of a resumed run; None, with a reason, if one part has none."""

MAXIMA = ("process_peak_memory_mib", "peak_gpu_memory_mib", "peak_gpu_reserved_mib", "processes")
"""Figures of which the largest counts."""


class NotMeasured(Exception):  # noqa: N818  (reads as the state it reports)
    """A figure could not be measured; the text is the reason that stands beside it."""


def process_peak_memory_mib() -> float:
    """Return the largest resident set of this process so far, in MiB."""
    with contextlib.suppress(OSError):
        # getrusage also counts the process that started this one: a small worker would report its large parent's size.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


class _Figure:
    """The latest of a figure's readings, or the first reason why there is none."""

    def __init__(self, readings: Iterator[float]) -> None:
        self.value: float | None = None
        self.reason: str | None = None
        self._readings = readings

    def read(self) -> None:
        if self.reason is None:
            try:
                self.value = next(self._readings)
            except NotMeasured as reason:
                self.value, self.reason = None, str(reason)


class _Gpu:
    """The GPU that torch calls ``device``, as NVML knows it: found by UUID, because the two count differently."""

    def __init__(self, device: torch.device) -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NotMeasured("nvidia-ml-py is not installed: pip install 'levelhead[nvml]'") from None
        self._ask("NVML does not start", self._nvml.nvmlInit)
        try:
            import torch

            self._handle = self._find(str(torch.cuda.get_device_properties(device).uuid))
        except NotMeasured:
            self.close()
            raise

    def _ask(self, problem: str, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError as error:
            raise NotMeasured(f"{problem}: {error}") from None

    def _find(self, uuid: str) -> Any:
        name, by_uuid = uuid.removeprefix("GPU-"), self._nvml.nvmlDeviceGetHandleByUUID
        handle = self._ask("NVML does not find the GPU, or it is a MIG slice", by_uuid, f"GPU-{name}")
        with contextlib.suppress(self._nvml.NVMLError):  # most GPUs know no MIG
            if self._nvml.nvmlDeviceGetMigMode(handle)[0] == self._nvml.NVML_DEVICE_MIG_ENABLE:
                raise NotMeasured("training ran on a MIG slice, and NVML counts the whole GPU")
        return handle

    def millijoules(self) -> int:
        """Return the energy counter: mJ since the driver was loaded."""
        problem = "the GPU's energy counter cannot be read (Volta and later have one)"
        return int(self._ask(problem, self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handle))

    def other_processes(self) -> int:
        """Return how many compute processes hold the GPU beside this one, which must hold it itself."""
        problem = "the GPU's processes cannot be listed"
        # Inside a container the numbers are the host's, so this process cannot be told by its own number.
        found = {
            entry.pid for entry in self._ask(problem, self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        }
        if not found:
            raise NotMeasured("NVML does not show the GPU's processes here, as in some containers")
        return len(found) - 1

    def close(self) -> None:
        """Let NVML go."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def _energy(open_gpu: Callable[[], _Gpu]) -> Iterator[float]:
    """Yield Wh by NVML's energy counter, from the first reading on."""
    gpu = open_gpu()
    begin = before = gpu.millijoules()
    while True:
        yield (before - begin) / 3.6e6
        if (now := gpu.millijoules()) < before:
            raise NotMeasured("the GPU's energy counter went back: its driver was reloaded meanwhile")
        before = now


def _most_others(open_gpu: Callable[[], _Gpu]) -> Iterator[float]:
    """Yield the largest number of other processes that were seen on the GPU."""
    gpu, most = open_gpu(), 0
    while True:
        most = max(most, gpu.other_processes())
        yield most


class Meter:
    """Measures the block of :func:`measured_cost`."""

    def __init__(
        self,
        device: torch.device,
        energy: EnergyOption,
        file: Path | None,
        earlier: dict[str, Any] | None,
        processes: int,
    ) -> None:
        self._device, self._energy, self._file, self._earlier = device, energy, file, earlier
        self._processes = processes
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._gpu: _Gpu | None = None
        self._peaks: dict[str, float] = {}
        self._figures = {"energy_wh": _Figure(_energy(self._open_gpu))}
        if device.type == "cuda":
            self._figures["gpu_other_processes"] = _Figure(_most_others(self._open_gpu))
        self._began, self._seconds = time.monotonic(), 0.0

    def _open_gpu(self) -> _Gpu:
        if self._device.type != "cuda":
            raise NotMeasured(f"training ran on {self._device.type}, not on a GPU with an energy counter")
        if self._energy == "off":
            raise NotMeasured("switched off")
        if self._processes > 1:
            raise NotMeasured(f"training ran in {self._processes} processes, and only one of them is measured")
        if self._gpu is None:
            self._gpu = _Gpu(self._device)
        return self._gpu

    def _read(self) -> None:
        for figure in self._figures.values():
            figure.read()
        self._seconds = time.monotonic() - self._began
        self._peaks["process_peak_memory_mib"] = process_peak_memory_mib()
        if self._device.type == "cuda":
            import torch

            self._peaks["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated(self._device) / 2**20
            self._peaks["peak_gpu_reserved_mib"] = torch.cuda.max_memory_reserved(self._device) / 2**20

    def _total(self) -> dict[str, Any]:
        part: dict[str, Any] = {"seconds": self._seconds, "parts": 1, "killed_parts": 0, **self._peaks}
        part["processes"] = self._processes
        for name, figure in self._figures.items():
            part[name] = figure.value
            if figure.reason is not None:
                part[REASONS[name]] = figure.reason
        return part if self._earlier is None else add_parts(self._earlier, part)

    def _step(self, *, running: bool) -> None:
        with self._lock:
            self._read()
            if self._file is not None:
                try:
                    write_json(self._file, {"running": running, **self._total()})
                except OSError as error:  # a full disk must not end a training that could continue
                    logger.warning("The cost so far could not be written to %s: %s", self._file, error)

    def _watch(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            self._step(running=True)

    def result(self, rows: int | None = None) -> dict[str, Any]:
        """Return the figures so far as a flat dict, over all parts of the run; the block's end is the last reading.

        ``rows`` is how many rows were trained on, each as often as it was drawn: it gives ``samples_per_second``.
        """
        with self._lock:
            total = self._total()
        if rows is not None:
            seconds = total["seconds"]
            total["samples_per_second"] = rows / seconds if seconds else None
        return total


@contextlib.contextmanager
def measured_cost(
    device: torch.device,
    *,
    energy: EnergyOption = "counter",
    file: Path | None = None,
    earlier: dict[str, Any] | None = None,
    processes: int = 1,
) -> Iterator[Meter]:
    """Measure the block: a training on ``device``, in this process.

    ``energy="counter"`` reads the GPU's energy counter, ``"off"`` none. ``file`` keeps the cost so far, every
    10 seconds, for a run that is killed; ``earlier`` is what :func:`earlier_part` found there, and is added. Of
    several ``processes`` this one alone is measured: memory is its own, and energy is not told. A figure that cannot be
    measured never stops the block.
    """
    if energy not in get_args(EnergyOption):
        raise ConfigError(f"energy is {energy!r}; choose from {', '.join(get_args(EnergyOption))}.")
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)  # earlier work is not this block's; also makes this process known to NVML
        torch.cuda.empty_cache()  # what a backbone reserved for its features is not this block's either
        torch.cuda.reset_peak_memory_stats(device)
    meter = Meter(device, energy, file, earlier, processes)
    meter._step(running=True)
    thread = threading.Thread(target=meter._watch, name="levelhead-cost", daemon=True)
    thread.start()
    try:
        yield meter
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # kernels that are still queued are part of it
    finally:
        meter._stopped.set()
        thread.join()
        meter._step(running=False)
        if meter._gpu is not None:
            meter._gpu.close()


def earlier_part(file: Path, *, begun: bool) -> dict[str, Any] | None:
    """Return what the earlier parts of a run left in ``file``, for ``measured_cost(earlier=...)``.

    None if there was no earlier part. ``begun`` says that there was one, whatever ``file`` holds: without a readable
    file its figures are None with a reason.
    """
    if not file.exists():
        return _unknown("an earlier part of the run left no cost file") if begun else None
    try:
        found: dict[str, Any] = read_json(file)
        found["killed_parts"] += bool(found.pop("running"))
        add_parts(found, found)  # a file that cannot be added is noticed now, not when the training ends
    except (DataError, AttributeError, KeyError, TypeError):
        logger.warning("%s cannot be read: the total cost of this run is recorded as not measured.", file)
        return _unknown("the cost file of an earlier part of the run cannot be read")
    return found


def _unknown(reason: str) -> dict[str, Any]:
    part: dict[str, Any] = {"parts": 1, "killed_parts": 0}
    for name in ("seconds", "energy_wh"):
        part |= {name: None, REASONS[name]: reason}
    return part


def add_parts(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return the cost of two parts of one run: sums, and the largest peak. A sum with an unknown part is unknown."""
    total: dict[str, Any] = {key: earlier[key] + later[key] for key in ("parts", "killed_parts")}
    for name in MAXIMA:
        peaks = [part[name] for part in (earlier, later) if name in part]
        if peaks:
            total[name] = max(peaks)
    for name, reason_name in REASONS.items():
        there = [part[name] for part in (earlier, later) if name in part]
        if not there:
            continue
        if None in there:
            total[name] = None
            total[reason_name] = later.get(reason_name) or earlier[reason_name]
        else:
            total[name] = sum(there) if name in SUMS else max(there)
    return total
