"""The folders of the feature cache: their notes and hashes.

What the files are is described in :mod:`levelhead.models.features`. Nothing here looks into the values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FORMAT = 1  # raise it when the same backbone and inputs would become other files
SEGMENT = 2**24  # bytes under one hash
VALUES, PROGRESS, MANIFEST, BUILDING = "values.bin", "progress.json", "manifest.json", ".building"


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


def lock_of(place: Path) -> Path:
    """Return the file that a process holds while it builds the features of a folder."""
    return place.with_name(f"{place.name}.lock")
