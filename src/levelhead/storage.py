"""Atomic files: a reader sees the old content or the new, never a part, whenever the writer is killed.

Every command that writes asks :func:`check_outputs` before any work, so that no output takes the place of an input, of
another output or of something that is no file, and so that hours of work do not end in a path that cannot be written.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import json
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelhead.types import ConfigError, DataError, LevelheadError, UnwritableError, reason_of

if TYPE_CHECKING:  # importing torch takes seconds, and an audit writes only text
    from torch import Tensor

logger = logging.getLogger(__name__)

RUN_FILES = (
    *("config.yaml", "grid.yaml", "klaad.json", "environment.json", "data.json", "pretrained.json", "metrics.json"),
    *("cost*.json", "log.jsonl", "evaluation-*.json", "predictions-*.parquet", "answers-*.jsonl", "scores-*.json"),
    *("rehearsal.json", "held-out*", "*.safetensors*", "tokenizer*", "vocab*", "generation_config.json", "config.json"),
    *("inferred-*.parquet", "examples-*.json", "adapter_config.json", "preprocessor_config.json", ".lock"),
)
"""What folders of runs, grids, language models and trainings consist of, as patterns of file names."""

RUN_FOLDERS = ("model", "checkpoints", "epochs", "pretraining")
"""The folders within a run folder; every file in them is a file of the run."""

HUB_SNAPSHOT = re.compile(r"(.*/models--[^/]+)/snapshots/[^/]+")
"""A checkpoint as Hugging Face's cache keeps it."""

REHEARSED = "A rehearsal: each stage stopped after %d steps (train.max_steps). Its figures are no result."


def data_home(root: str | Path | None) -> Path:
    """Return the folder that holds the data sets: ``root``, else ``$LEVELHEAD_DATA``, else ``./data``."""
    return Path(root or os.environ.get("LEVELHEAD_DATA") or "data")


def check_outputs(
    files: Mapping[str, Path | None],
    *,
    folders: Mapping[str, Path | None] | None = None,
    inputs: Iterable[str | Path | None] = (),
    runs: Iterable[str | Path | None] = (),
) -> None:
    """Refuse outputs that would destroy something, or that cannot be written; to be asked before any work.

    Nothing is opened or made. What is None, an option that was not given, is left out. No option of a user (its name
    begins with ``--``) may name a file of a run or of a saved model, whether the command reads that run or not.

    Args:
        files: outputs that are files, by the option that names them, such as ``--json``.
        folders: outputs that are folders, in the same way.
        inputs: files that are read.
        runs: folders of runs or of models that are read: a page may be put beside what they consist of.

    Raises:
        ConfigError: an output is an input, another output or a file of a run, is no file (or no folder), lies below a
            file, has too long a name, or may not be written. A symbolic link is what it points to.
        DataError: one of the folders holds a link that leads out of it, or something that is no file.
    """
    named = {option: Path(path) for option, path in files.items() if path is not None}
    made = {option: Path(path) for option, path in (folders or {}).items() if path is not None}
    read = [Path(source) for source in runs if source is not None]
    for option, path in (*named.items(), *made.items()):
        if reason := _obstacle(path, folder=option in made):
            raise ConfigError(f"{option} {path} {reason}. Choose another path.")
        if option.startswith("--"):
            refuse_files_of_runs(option, path, folder=option in made)
    for folder in (*made.values(), *read):
        refuse_strange_files(folder)
    for option, path in named.items():
        for given in (Path(source) for source in inputs if source is not None):
            if _is_same(path, given):
                raise ConfigError(f"{option} {path} is an input of the same command: it would be lost. Choose another.")
        for run in read:
            own = any(fnmatch.fnmatch(Path(os.path.realpath(path)).name, pattern) for pattern in RUN_FILES)
            if own and _is_below(path, run):
                raise ConfigError(f"{option} {path} is a file of the folder that is read. Choose another path.")
    for (option, path), (other, second) in itertools.combinations((*named.items(), *made.items()), 2):
        if _is_same(path, second):
            raise ConfigError(f"{option} and {other} are the same, {path}: give each a path of its own.")
    for (option, path), (other, second) in itertools.permutations((*named.items(), *made.items()), 2):
        if option in named and _is_below(second, path):
            raise ConfigError(
                f"{other} {second} lies below {option} {path}, which will be a file. Choose another path."
            )


def refuse_files_of_runs(option: str, path: Path, *, folder: bool = False) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for an output that is a file of a run or of a saved model."""
    if owner := _owner(path, folder=folder):
        what = "lies inside" if folder else "is a file of"
        raise ConfigError(f"{option} {path} {what} {owner}, which it would damage. Choose another path.")


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds a run, a grid, a pretraining or a training of a language model."""
    if any(os.path.isfile(folder / name) for name in ("grid.yaml", "klaad.json")):  # noqa: PTH113  (no name is too long)
        return True
    parts = (".lock", "environment.json", "metrics.json", "checkpoints", "model/config.json")
    return os.path.isfile(folder / "config.yaml") and any(  # noqa: PTH113
        (folder / name).exists() for name in parts
    )


def rehearsed(recipe: Mapping[str, Any]) -> int | None:
    """Return after how many steps the stages of a run's recipe stopped; None: it is no rehearsal."""
    steps: int | None = (recipe.get("train") or {}).get("max_steps")
    return steps


@functools.cache
def warn_of_rehearsal(steps: int | None) -> None:
    """Log, once for many runs, that a run stopped after so few steps and is a rehearsal; None: it is not."""
    if steps is not None:
        logger.warning(REHEARSED, steps)


def _owner(path: Path, *, folder: bool) -> str | None:
    """Return the run or the saved model that ``path`` would be a part of, in words; None for a place of its own."""
    target = Path(os.path.realpath(path))
    known = any(fnmatch.fnmatch(target.name, pattern) for pattern in RUN_FILES)
    for parent in target.parents:
        try:
            inside = target.relative_to(parent).parts
            if is_run(parent) and (inside[0] in RUN_FOLDERS if folder or len(inside) > 1 else known):
                return f"the run folder {parent}"
            if folder or len(inside) > 1:
                continue
            saved = any((parent / name).is_file() for name in ("config.json", "adapter_config.json"))
            if (known or target.exists()) and saved and any(parent.glob("*.safetensors*")):
                return f"the saved model {parent}"
            if known and any(parent.glob("answers-*.jsonl")):
                return f"the folder of answers {parent}"
        except OSError:  # a folder that may not be looked into
            continue
    return None


def _is_same(first: Path, second: Path) -> bool:
    """Return whether two paths are one file, by links or otherwise, or would be."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return first.samefile(second)
    except (OSError, ValueError):
        return False


def _is_below(path: Path, folder: Path) -> bool:
    """Return whether a path lies in a folder, or would if both were there."""
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents


def _obstacle(path: Path, *, folder: bool = False) -> str | None:
    """Return why a path cannot be an output, as the rest of a sentence; None if it can."""
    mode = None
    if str(path) == "-":
        return "is no file name: only files are written"
    try:
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            mode = target.stat().st_mode
    except (OSError, ValueError) as error:  # too long, or not to be looked at; a name with the character NUL
        return f"cannot be written: {reason_of(error)}"
    if folder and mode is not None:
        if not stat.S_ISDIR(mode):
            return "is not a folder"
        return None if os.access(target, os.W_OK | os.X_OK) else "may not be written into"
    if mode is not None:
        if not stat.S_ISREG(mode):
            return "is a folder, a device, a pipe or a socket, not a file"
        if not os.access(target, os.W_OK):
            return "is write-protected"
    there = next(parent for parent in target.parents if os.path.lexists(parent))
    if not there.is_dir():
        return f"lies below {there}, which is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"cannot be made, because {there} may not be written into"
    longest = os.pathconf(there, "PC_NAME_MAX")
    if any(len(os.fsencode(part)) > longest for part in target.relative_to(there).parts):
        return "cannot be written: File name too long"
    return None


def refuse_strange_files(path: Path) -> None:
    """Raise :class:`DataError` for a pipe, a socket or a device, and in a folder for a link that leads out of it.

    A folder is looked through wholly, but for hidden folders, which are never read: what it came with, such as a link
    in the place of a file that will be written, must not reach any other place. Links within it may stay.
    """
    if "\0" in str(path):
        return
    home = os.path.realpath(path)
    if (of_hub := HUB_SNAPSHOT.fullmatch(home)) is not None:  # its files are links into a folder beside it
        home = of_hub[1]
    inside, strange = list[Path](), False
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside += [Path(folder, name) for name in (*folders, *files)]
    for each in [path, *inside]:
        if each != path and each.is_symlink() and not _is_below(each, Path(home)):
            raise DataError(f"{each} is a link that leads out of {path}. Put the file itself in its place.")
        with contextlib.suppress(OSError):  # a name that is too long, or a folder that is deleted meanwhile
            strange = each.exists() and not each.is_file() and not each.is_dir()
        if strange:
            raise DataError(f"{each} is a pipe, a socket or a device, not a file. Give a file in its place.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of writing, a full disk or a folder that may not be written, into :class:`UnwritableError`."""
    try:
        yield
    except OSError as error:
        reason = reason_of(error)
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # by its name: to import it takes long, and texts do not need it
            raise
        reason = str(error)
    else:
        return
    raise UnwritableError(f"{path} cannot be written: {reason}.")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file, flush it to disk, and put it in the place of ``path`` in one step.

    A symbolic link stays, and the file that it points to is replaced. What is no file, such as a device, never is.

    Raises :class:`~levelhead.types.UnwritableError`; ``path`` is then as it was.
    """
    if reason := _obstacle(path):
        raise UnwritableError(f"{path} {reason}.")
    target = Path(os.path.realpath(path))
    # Not the whole name: with the rest of the temporary one it could become too long.
    temporary = target.with_name(f".{target.name[:40]}.{os.getpid()}.tmp")
    with writing(path):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)  # a killed process with the same number, or something that is no file
            write(temporary)
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
            temporary.replace(target)
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
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"There is no file {path}. Check the path, or finish what writes it.") from None
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
    except (
        *(LookupError, TypeError, AttributeError, ValueError, ArithmeticError, OSError),
        *(StopIteration, RuntimeError, AssertionError),  # RecursionError is a RuntimeError
    ) as error:
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
            f"Checkpoint {path} cannot be read ({reason_of(error)}). It is cut short or not a levelhead checkpoint. "
            f"Delete it to start this stage again, or restore it from a copy."
        ) from None
