"""A training in a folder: one process at a time, the settings that it began with, and what says that it is finished.

Runs, pretraining and KLAAD work in this way::

    with work.locked():
        work.begin(settings, resume)            # refused: other settings, or a training that nobody wants resumed
        if work.finished:
            return what is there
        work.keep(settings, records)            # refused: other data than the folder's training began with
        with work.measured(device) as measured:
            train; a checkpoint every now and then
        write the results, and last of all what marks the end
        work.tidy()
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
import yaml

from levelhead._version import __version__
from levelhead.data.cache_folder import is_held
from levelhead.machine import cpu_name, system, versions
from levelhead.storage import check_outputs, read_json, write_json, write_text, writing
from levelhead.training.checkpoint import CHECKPOINTS, LOG, forget_progress
from levelhead.training.cost import COST_SO_FAR, EnergyOption, Meter, earlier_part, measured_cost
from levelhead.types import ConfigError, DataError, LevelheadError, quoted

CONFIG = "config.yaml"
OUTSIDE = {
    "data.json": "data",
    "pretrained.json": "pretrained backbone (or the list method.view.file)",
}
"""What comes from outside of a training's folder, by the file that records it."""


@dataclass(frozen=True)
class Work:
    """A training's ``folder``: ``settings`` names its file of settings, ``end`` the file that is written last.

    ``read`` returns the nested settings that the folder holds. ``free`` are those that a resumed training may change,
    with dots. ``place`` is the folder that messages name; None: ``folder``.
    """

    folder: Path
    end: str
    read: Callable[[Path], Mapping[str, Any]]
    settings: str = CONFIG
    free: tuple[str, ...] = ()
    place: Path | None = None

    @property
    def finished(self) -> bool:
        """Whether the training has come to its end."""
        return (self.folder / self.end).exists()

    @property
    def begun(self) -> bool:
        """Whether there is anything to lose: a checkpoint, or the end."""
        return self.finished or (self.folder / CHECKPOINTS).exists()

    @property
    def in_use(self) -> bool:
        """Whether another process is training in the folder right now."""
        return is_held(self.folder / ".lock")

    def refuse_foreign(self) -> None:
        """Raise :class:`ConfigError` if no training can be put into the folder."""
        check_outputs({}, folders={"The run folder": self.folder})
        if not (self.folder / self.settings).exists() and self.folder.exists():
            left = {".lock", *(file.name for file in self._cut_short())}
            if {file.name for file in self.folder.iterdir()} - left:
                raise ConfigError(f"{self.folder} exists and is not a run folder; choose another with --out.")

    def _cut_short(self) -> list[Path]:
        """Return the files that were being written when a training was killed."""
        known = (self.folder / self.settings).exists()
        return list(self.folder.glob("**/.*.tmp" if known else f".{self.settings}.*.tmp"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the lock goes with the process, also when it is killed.

        A training that is refused before its first step leaves no file that was not there.
        """
        self.refuse_foreign()  # before anything is made or deleted in it
        made = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        lock, there = self.folder / ".lock", set(self.folder.iterdir())
        check_outputs({"The lock": lock})
        with lock.open("a") as handle:
            try:
                _hold(handle, lock)
            except (BlockingIOError, FileNotFoundError):
                raise LevelheadError(f"Another process is working in {self.folder}; wait for it or end it.") from None
            for leftover in self._cut_short():
                leftover.unlink()
            try:
                yield
            except LevelheadError:
                if not self.begun and not (self.folder / LOG).exists():
                    self._leave(there, made)
                raise

    def _leave(self, there: set[Path], made: list[Path]) -> None:
        """Delete the files of the folder that were not ``there``, and the folders that were ``made`` for it."""
        for file in set(self.folder.iterdir()) - there:
            if file.is_file():
                file.unlink()
        for folder in made:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()

    def begin(self, now: Mapping[str, Any], resume: bool) -> None:
        """Raise :class:`ConfigError` if a training with the settings ``now`` would spoil what the folder holds."""
        if not self.begun:
            # Stopped before its first checkpoint: there is nothing to lose, but what it cost is no part of another run.
            if self._changes(now):
                (self.folder / COST_SO_FAR).unlink(missing_ok=True)
            return
        if not resume:
            raise ConfigError(
                f"{self.place or self.folder} holds a training. Add --resume to finish it, choose another folder with "
                "--out (for other --set options too), or delete it."
            )
        self.refuse_changes(now)

    def refuse_changes(self, now: Mapping[str, Any]) -> None:
        """Raise :class:`ConfigError` if the folder holds a training that began with other settings than ``now``."""
        if changed := self._changes(now):
            raise ConfigError(
                f"{self.place or self.folder} holds a training with other settings ({'; '.join(changed)}). Choose "
                "another folder with --out, or delete this one."
            )

    def _changes(self, now: Mapping[str, Any]) -> list[str]:
        """Name each setting that differs from the folder's, with both values; none where there is no training."""
        if not (self.folder / self.settings).exists():
            return []
        old, new = (flatten(one) for one in (self.read(self.folder), now))
        return [
            f"{key}: {quoted(old.get(key))} then, {quoted(new.get(key))} now"
            for key in sorted((old.keys() | new.keys()) - set(self.free))
            if str(old.get(key)) != str(new.get(key))
        ]

    def keep(self, settings: Mapping[str, Any], records: Mapping[str, Any], *, writes: bool = True) -> None:
        """Write the settings, and the ``records`` of what comes from outside, by the names of :data:`OUTSIDE`.

        Raises :class:`DataError` for what has changed since the training began. ``writes`` False only compares.
        """
        for name, now in records.items():
            if self.begun and (self.folder / name).exists() and read_json(self.folder / name) != now:
                raise DataError(
                    f"The {OUTSIDE[name]} has changed since {self.place or self.folder} began; restore it, or choose "
                    "another folder with --out."
                )
        if writes:
            file = self.folder / self.settings
            if file.suffix == ".json":
                write_json(file, settings)
            else:
                write_text(file, yaml.safe_dump(dict(settings), sort_keys=False))
            for name, record in records.items():
                write_json(self.folder / name, record)

    def measured(
        self, device: torch.device, *, energy: EnergyOption = "counter", writes: bool = True, processes: int = 1
    ) -> contextlib.AbstractContextManager[Meter]:
        """Measure the block as :func:`~levelhead.training.cost.measured_cost`, with the training's earlier parts.

        A process that does not write measures seconds and memory alone, for itself.
        """
        if not writes:
            return measured_cost(device, energy="off", processes=processes)
        file = self.folder / COST_SO_FAR
        earlier = earlier_part(file, begun=self.begun)
        return measured_cost(device, energy=energy, file=file, earlier=earlier, processes=processes)

    def tidy(self) -> None:
        """Delete what only an unfinished training needs."""
        (self.folder / COST_SO_FAR).unlink(missing_ok=True)
        forget_progress(self.folder)


def _hold(handle: TextIO, lock: Path) -> None:
    """Lock an opened file, or raise OSError where another process holds it, or has deleted it meanwhile."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
        raise BlockingIOError


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested options with dotted keys: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in nested.items():
        result |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return result


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and the hardware of ``device``, without names of people, machines or folders."""
    packages = ("torch", "transformers", "accelerate", "numpy", "scipy")
    return {
        "python": platform.python_version(),
        "system": system(),
        "packages": {"levelhead": __version__} | versions(packages),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
    }
