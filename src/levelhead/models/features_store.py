"""The folders of the feature cache: their notes and hashes, and what ``levelhead features`` lists and deletes.

What the files are is described in :mod:`levelhead.models.features`. Nothing here looks into the values.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelhead.data.cache_folder import alone, is_held
from levelhead.types import DataError

FORMAT = 1  # raise it when the same backbone and inputs would become other files
SEGMENT = 2**24  # bytes under one hash
VALUES, PROGRESS, MANIFEST, BUILDING = "values.bin", "progress.json", "manifest.json", ".building"

State = Literal["complete", "unfinished", "being built", "damaged"]


@dataclass(frozen=True)
class Record:
    """What the note beside stored features says.

    ``describe`` is the caller's; ``dtype`` is float16 or bfloat16; ``rows``, ``tokens`` and ``width`` are the whole;
    ``done_rows`` and ``done_tokens`` are stored, and ``digests`` are the hashes of their segments; ``lengths`` is the
    hash of the rows' numbers of tokens.
    """

    format: int
    describe: dict[str, str]
    dtype: str
    rows: int
    tokens: int
    width: int
    done_rows: int
    done_tokens: int
    digests: list[str]
    lengths: str

    @classmethod
    def read(cls, file: Path) -> Record:
        """Read a note; raises ValueError for anything that is not one."""
        content = json.loads(file.read_bytes())
        kinds = {"describe": dict, "dtype": str, "digests": list, "lengths": str}
        names = [field.name for field in fields(cls)]
        if not isinstance(content, dict) or any(type(content.get(name)) is not kinds.get(name, int) for name in names):
            raise ValueError(f"{file.name} has other entries")
        record = cls(**{name: content[name] for name in names})
        counts = (record.rows, record.tokens, record.width)
        if record.format != FORMAT or record.dtype not in ("float16", "bfloat16") or min(counts) < 1:
            raise ValueError(f"{file.name} is of format {record.format}, {record.dtype}, {counts}")
        return record

    def size(self, tokens: int) -> int:
        """Return the bytes of ``tokens`` tokens."""
        return tokens * self.width * 2


def by_length(lengths: Tensor) -> Tensor:
    """Return the order (n,) int64 in which rows are computed and stored: longest first, as memory runs out at once."""
    return torch.argsort(lengths, descending=True, stable=True)


def as_bytes(values: Tensor) -> NDArray[np.uint8]:
    """Return a view of (rows, width) on the CPU as (rows, bytes of a row); numpy has no bfloat16."""
    return values.contiguous().view(torch.uint8).numpy()


def hash_bytes(content: Any) -> str:
    """Return the hash of bytes, or of a flat array of them."""
    return hashlib.sha256(content).hexdigest()[:32]


def segments(values: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """Return views of the parts that have a hash each; the last one may be short."""
    flat = values.reshape(-1)
    return [flat[start : start + SEGMENT] for start in range(0, flat.size, SEGMENT)]


def hash_segments(values: NDArray[np.uint8], known: Sequence[str] = ()) -> list[str]:
    """Return the hash of each segment; those of the first ones may be ``known``."""
    return [*known, *map(hash_bytes, segments(values)[len(known) :])]


def hash_lengths(lengths: Tensor) -> str:
    """Return the hash of the tokens (n,) of each row."""
    return hash_bytes(lengths.numpy().astype("<i4"))


@dataclass(frozen=True)
class Stored:
    """One folder of the cache: ``size`` in bytes on disk, ``used`` the time of the last use in seconds since 1970.

    ``record`` is None if its note cannot be read.
    """

    key: str
    place: Path
    state: State
    size: int
    used: float
    record: Record | None

    @property
    def share(self) -> float:
        """Return the share of the tokens that is stored."""
        return 0.0 if self.record is None else self.record.done_tokens / self.record.tokens


def lock_of(place: Path) -> Path:
    """Return the file that a process holds while it builds or deletes the features of a folder."""
    return place.with_name(f"{place.name.removesuffix(BUILDING)}.lock")


def stored_features(folder: Path) -> list[Stored]:
    """Return what lies in the cache ``folder``, the last used first; contents are not read."""
    found = []
    for place in (folder / "features").glob("*/"):
        if re.fullmatch(rf"[0-9a-f]{{32}}({BUILDING})?", place.name):
            with contextlib.suppress(FileNotFoundError):  # renamed or deleted while it was looked at
                found.append(_look(place))
    return sorted(found, key=lambda stored: -stored.used)


def _look(place: Path) -> Stored:
    stats = {}
    for file in place.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a note that is just being put in place
            stats[file.name] = file.stat()
    unfinished = place.name.endswith(BUILDING)
    record = None
    with contextlib.suppress(OSError, ValueError):
        record = Record.read(place / (PROGRESS if unfinished else MANIFEST))
    state: State = "damaged"
    if unfinished:
        state = "being built" if is_held(lock_of(place)) else "unfinished"
    elif record is not None and VALUES in stats and stats[VALUES].st_size == record.size(record.tokens):
        state = "complete"
    size = sum(stat.st_blocks * 512 for stat in stats.values())
    used = max((stat.st_mtime for stat in stats.values()), default=place.stat().st_mtime)
    return Stored(place.name.removesuffix(BUILDING), place, state, size, used, record)


def remove(stored: Stored) -> bool:
    """Delete stored features; False if a process builds them right now. One that reads them keeps what it has open."""
    try:
        with alone(lock_of(stored.place)):
            shutil.rmtree(stored.place)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True  # deleted by somebody else
    except OSError as error:
        raise DataError(f"{stored.place} cannot be deleted ({error.strerror or error}).") from None
    return True
