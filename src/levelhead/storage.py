"""Atomic files: a reader sees the old content or the new, never a part, whenever the writer is killed."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelhead.types import DataError, LevelheadError

if TYPE_CHECKING:  # importing torch takes seconds, and an audit writes only text
    from torch import Tensor


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk, and put it in place in one step."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, and a file is to be written there. Move it away.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _finite(value: Any) -> Any:
    """Turn NaN and infinities into null: standard JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NaN becomes null."""
    write_text(path, json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON, or raise :class:`DataError` that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing. Is {path.parent} a finished run folder?") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not readable JSON ({error}). Was the file edited or cut short?") from None


def read_record(path: Path, **fields: Any) -> dict[str, Any]:
    """Read a JSON object with these fields, each of the type given, or raise :class:`DataError` that names the file."""
    record = read_json(path)
    with as_written(path):
        for name, kind in fields.items():
            if not isinstance(record[name], kind):
                raise TypeError(f"{name} is a {type(record[name]).__name__}")
        return dict(record)


def read_metrics(run: Path) -> dict[str, Any]:
    """Read the ``metrics.json`` of a finished run, or raise :class:`DataError` that names the file."""
    metrics = read_record(run / "metrics.json", selected_by=str, validation=dict, history=list)
    with as_written(run / "metrics.json"):
        for name, score in metrics["validation"].items():
            if not (score is None or isinstance(score, int | float)):
                raise TypeError(f"{name} is no number")
    return metrics


@contextlib.contextmanager
def as_written(place: object) -> Iterator[None]:
    """Turn what a record of another form makes its reader raise into a :class:`DataError` that names the place.

    For code that reads what levelhead has written itself, in files that somebody may have altered since: nobody could
    list every way in which they can be wrong.
    """
    try:
        yield
    except LevelheadError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, OSError) as error:
        reason = f"{type(error).__name__} {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"
        raise DataError(
            f"{place} does not hold what levelhead wrote there ({reason.strip()}). Restore it from a copy, or make it "
            "again."
        ) from error


def hash_tensors(digest: Any, tensors: Mapping[str, Any]) -> None:
    """Feed a hashlib digest with the names, types, shapes and bytes of tensors on any device, in order of name."""
    import torch

    for name, tensor in sorted(tensors.items()):
        if isinstance(tensor, torch.Tensor):  # a state dict may hold other things
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            # As bytes, because numpy has no bfloat16.
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write tensors and JSON-able metadata into one safetensors file, atomically."""
    from safetensors.torch import save_file

    # Clones: safetensors refuses tensors that share memory (tied weights).
    owned = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(owned, temporary, {"levelhead": json.dumps(metadata)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote, or raise :class:`DataError` that names the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
            return tensors, json.loads((file.metadata() or {})["levelhead"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise DataError(
            f"Checkpoint {path} cannot be read ({error}). It is cut short or not a levelhead checkpoint. "
            f"Delete it to start this stage again, or restore it from a copy."
        ) from None
