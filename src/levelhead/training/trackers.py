"""Experiment trackers (TensorBoard, Weights & Biases, MLflow, ...), as accelerate knows them by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, filter_trackers, get_available_trackers
from accelerate.utils import LoggerType

from levelhead.types import ConfigError

PROJECT = "levelhead"


def check_names(names: Sequence[str]) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a name that accelerate does not know."""
    known = sorted(map(str, LOGGER_TYPE_TO_CLASS))
    for name in names:
        if name not in known:
            raise ConfigError(f"train.trackers names {name!r}; choose from {', '.join(known)}.")


def check_installed(names: Sequence[str]) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a tracker whose library is absent: accelerate would drop it."""
    own = {str(kind) for kind in LoggerType}  # those that a user registered need no library of theirs
    for name in names:
        if name in own and name not in map(str, get_available_trackers()):
            raise ConfigError(
                f"train.trackers names {name!r}, which is not installed: pip install {name}, or take it out of "
                "train.trackers."
            )


@contextmanager
def tracked(
    accelerator: Accelerator, names: Sequence[str], folder: Path | None, options: Mapping[str, Any]
) -> Iterator[None]:
    """Let ``accelerator.log`` reach the named trackers inside the block; files go below ``folder``.

    ``options`` are stored with the run; what is no number, truth value or text is stored as text.
    """
    if not names:
        yield
        return
    check_installed(names)
    if folder is None:
        raise ConfigError("train.trackers needs a run folder for its files: give the lab a folder, or no trackers.")
    accelerator.project_configuration.set_directories(str(folder))
    accelerator.log_with = filter_trackers(list(names), str(folder))
    plain = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in options.items()}
    accelerator.init_trackers(PROJECT, plain, {"wandb": {"dir": str(folder), "name": folder.name}})
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
        accelerator.trackers.clear()
