"""Running a backbone over a split, and writing its features so that a stopped build continues where it was.

What the files are is described in :mod:`levelhead.models.features`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from levelhead.attention.interface import evaluating
from levelhead.data.base import Inputs
from levelhead.data.cache_folder import check_space, is_at
from levelhead.models.features_store import (
    BUILDING,
    FORMAT,
    MANIFEST,
    PROGRESS,
    VALUES,
    Record,
    as_bytes,
    by_length,
    hash_lengths,
    hash_segments,
)
from levelhead.storage import write_json
from levelhead.terminal import tracked
from levelhead.types import DataError, LevelheadError, UnsupportedModelError

NOTE_EVERY = 5.0  # seconds between two notes of the progress: what a stop can cost

logger = logging.getLogger(__name__)


class TooLarge(Exception):  # noqa: N818  (caught here, never shown)
    """A feature is beyond float16; bfloat16, with eight times the rounding error, holds it."""


class Run:
    """A backbone run over inputs, longest rows first; ``lengths`` and ``width`` are learned from one row."""

    def __init__(self, inputs: Inputs, backbone: nn.Module, batch_size: int, device: torch.device) -> None:
        self.inputs, self.backbone, self.batch_size, self.device = inputs, backbone, batch_size, device

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """Hold the backbone in evaluation mode on the device, and run one row of it."""
        home = next((tensor.device for tensor in self.backbone.parameters()), self.device)
        try:
            if home != self.device:
                self.backbone.to(self.device)
            with evaluating(self.backbone):
                first = self._hidden(torch.tensor([0]))
                self.width = first[0].shape[1]
                known = self.inputs.lengths
                self.lengths: Tensor = first[1].expand(len(self.inputs)).contiguous() if known is None else known
                if self.lengths.shape != (len(self.inputs),) or int(self.lengths.min()) < 1:
                    raise DataError(f"{type(self.inputs).__name__}: lengths must give at least one token for each row.")
                self.order = by_length(self.lengths)
                self.tokens = int(self.lengths.sum())
                yield
        finally:
            if home != self.device:
                self.backbone.to(home)

    def _hidden(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (tokens, width) of the rows, one after another, and their lengths (rows,) int64."""
        batch = {name: tensor.to(self.device) for name, tensor in self.inputs.batch(rows).items()}
        with torch.no_grad():
            hidden = getattr(self.backbone(**batch), "last_hidden_state", None)
        mask = batch.get("attention_mask")
        if hidden is None or hidden.ndim != 3 or (mask is not None and mask.shape != hidden.shape[:2]):
            shape = "nothing" if hidden is None else tuple(hidden.shape)
            raise UnsupportedModelError(
                f"{type(self.backbone).__name__} cannot give features: its last_hidden_state is {shape}, not (batch, "
                "tokens, width) with as many tokens as it was given. Load it with AutoModel."
            )
        if mask is None:
            return hidden.flatten(0, 1), torch.full((len(rows),), hidden.shape[1])
        return hidden[mask.bool()], mask.sum(1).cpu()

    def compute(self, dtype: torch.dtype, done: int, take: Callable[[Tensor, int, int], None]) -> None:
        """Give ``take`` the features after ``done`` rows batch by batch, and draw a bar on stderr.

        ``take`` gets (tokens, width) in ``dtype`` on the CPU, and the numbers of rows and tokens that are done then.
        Raises :class:`TooLarge` for values that float16 cannot hold.
        """
        tokens = int(self.lengths[self.order[:done]].sum())
        for rows in tracked(self.order[done:].split(self.batch_size), "Computing features", shown=True):
            part = self._stored(rows, dtype)
            done, tokens = done + len(rows), tokens + len(part)
            take(part, done, tokens)

    def _stored(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        hidden, lengths = self._hidden(rows)
        if not torch.equal(lengths, self.lengths[rows]):
            row = int(rows[(lengths != self.lengths[rows]).nonzero()[0]])
            raise DataError(
                f"Row {row} (from 0) has another number of tokens in its batch than {type(self.inputs).__name__}"
                ".lengths says, or than the first row if there are no lengths."
            )
        stored = hidden.to(dtype)
        if bool(stored.isfinite().all()):
            return stored.cpu()
        if dtype == torch.float16 and bool(hidden.isfinite().all()):
            logger.warning(
                "A feature is %.4g, beyond float16 (6.55e+04): the features are computed again and kept as bfloat16.",
                float(hidden.abs().max()),
            )
            raise TooLarge
        row = int(rows.repeat_interleave(lengths)[int((~stored.isfinite().all(1)).nonzero()[0])])
        raise DataError(
            f"The features of row {row} (from 0) are not finite: the backbone returned NaN, infinity, or a value near "
            "it. Run it in float32, or drop the row."
        )


def build(place: Path, run: Run, describe: dict[str, str]) -> None:
    """Write the features of a run that is ready to ``place``, in one step; continues where an earlier build stopped.

    The process must hold the lock. Raises FileNotFoundError if the folder is deleted meanwhile.
    """
    folder = place.with_name(place.name + BUILDING)
    digest = hash_lengths(run.lengths)
    blank = Record(FORMAT, describe, "float16", len(run.inputs), run.tokens, run.width, 0, 0, [], digest)
    try:
        try:
            _write(folder, place, run, _earlier(folder, run, blank) or blank)
        except TooLarge:
            _write(folder, place, run, replace(blank, dtype="bfloat16"))
    except LevelheadError:
        if not (folder / PROGRESS).exists():  # there is nothing to continue from
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _earlier(folder: Path, run: Run, blank: Record) -> Record | None:
    """Return how far an earlier build came, or None if nothing of it can be used."""
    if not (folder / PROGRESS).exists():
        return None
    try:
        note = Record.read(folder / PROGRESS)
        tokens = int(run.lengths[run.order[: note.done_rows]].sum())
        record = replace(blank, dtype=note.dtype, done_rows=note.done_rows, done_tokens=tokens, digests=note.digests)
        if replace(note, describe=blank.describe) != record or not 0 < record.done_rows <= record.rows:
            raise ValueError(f"{PROGRESS} is of other features")
        if _digests(folder, record) != record.digests:
            raise ValueError(f"{VALUES} has other bytes than {PROGRESS} says")
    except (OSError, ValueError) as error:
        logger.warning("An unfinished feature cache in %s cannot be used (%s) and is rebuilt.", folder, error)
        return None
    return record


def _write(folder: Path, place: Path, run: Run, record: Record) -> None:
    """Compute what is missing in ``folder``, write the manifest, and rename it to ``place``."""
    if record.done_rows == 0:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    check_space(place.parent, record.size(record.tokens - record.done_tokens), "feature")
    noted = time.monotonic()
    with (folder / VALUES).open("r+b" if record.done_rows else "wb") as file:
        file.seek(record.size(record.done_tokens))

        def take(part: Tensor, rows: int, tokens: int) -> None:
            nonlocal record, noted
            file.write(as_bytes(part).data)
            record = replace(record, done_rows=rows, done_tokens=tokens)
            if time.monotonic() - noted >= NOTE_EVERY:
                record = _note(folder / PROGRESS, file, record)
                noted = time.monotonic()

        run.compute(getattr(torch, record.dtype), record.done_rows, take)
        _note(folder / MANIFEST, file, record)
        for other in folder.iterdir():
            if other.name not in (VALUES, MANIFEST):
                other.unlink()
        _check(file, folder)
        folder.rename(place)


def _note(note: Path, file: BinaryIO, record: Record) -> Record:
    """Write a note of what is in ``file``, and return it with the hashes."""
    file.flush()
    os.fsync(file.fileno())  # before the note: it must never count what a power cut could lose
    _check(file, note.parent)
    record = replace(record, digests=_digests(note.parent, record, record.digests[:-1]))
    write_json(note, asdict(record))
    return record


def _digests(folder: Path, record: Record, known: Sequence[str] = ()) -> list[str]:
    """Return the hashes of the stored segments; of an earlier note, all but the last one stay as they were."""
    values = np.memmap(folder / VALUES, np.uint8, "r")
    return hash_segments(values[: record.size(record.done_tokens)], known)


def _check(file: BinaryIO, folder: Path) -> None:
    """Make sure that the folder is not another process's, which has taken the name after a deletion."""
    if not is_at(file, folder / VALUES):
        raise FileNotFoundError(folder)
