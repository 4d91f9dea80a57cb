"""Features of a frozen backbone: computed once, kept on disk, read many times.

Training only what stands on top of a frozen backbone needs its last hidden states and nothing else of it. They are
computed without gradient and in evaluation mode, stored without padding in half precision, and mapped into memory.

The folder is that of :mod:`levelhead.data.cache_folder`. It may be deleted at any time: a run that reads from it
continues, and one that builds in it ends with an error.

::

    features/KEY/values.bin       (all tokens, width) float16 or bfloat16, without padding, the longest rows first
    features/KEY/manifest.json    what they are, and their hashes
    features/KEY.building/        values.bin as far as it is, and progress.json; renamed to KEY when it is complete
    features/KEY.lock             held by the process that builds, or deletes

``KEY`` is a hash of the backbone's weights, class and configuration, of the inputs, and the version of transformers,
whose code decides the output as well. So what is found is never stale: anything else has another key.

The manifest holds a SHA-256 of each 16 MiB. Opening reads up to 2 GiB again and compares, at about 1 GB/s (200 MB take
0.2 s, and are in the page cache then); of a larger file as much, in segments spread over it. The rest is covered by
the size of the file, and by flushing it to disk before the manifest is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from levelhead.data.base import Inputs, fits
from levelhead.data.cache_folder import ADVICE, alone, cache_folder
from levelhead.models.features_build import Run, TooLarge, build
from levelhead.models.features_store import (
    FORMAT,
    MANIFEST,
    SEGMENT,
    VALUES,
    Record,
    as_bytes,
    by_length,
    hash_bytes,
    hash_lengths,
    hash_segments,
    lock_of,
    segments,
)
from levelhead.storage import hash_tensors
from levelhead.types import ConfigError, DataError

CPU = torch.device("cpu")
# Where a configuration was read from, and who wrote it: a copy of a backbone elsewhere has the same key.
NOT_DECIDING = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")

VERIFY_UP_TO = 2**31  # bytes that are read again when a cache is opened

logger = logging.getLogger(__name__)


class FeatureInputs(Inputs):
    """The last hidden states of a frozen backbone for one split, in memory or mapped from a file.

    Args:
        values: (all tokens, width) float16 or bfloat16, without padding, the longest rows first.
        lengths: (n,) int64 tokens of each row, in the order of the split.
        digests: the hashes of ``values`` if they are known, see :meth:`fingerprint`.

    ``lengths`` is None afterwards if all rows have the same number of tokens.
    """

    def __init__(self, values: Tensor, lengths: Tensor, digests: Sequence[str] | None = None) -> None:
        self.values = values
        self._tokens, self._digests = lengths, digests
        order = by_length(lengths)
        self._starts = torch.empty_like(lengths)
        self._starts[order] = lengths[order].cumsum(0) - lengths[order]
        self._bytes = as_bytes(values)
        self.lengths = None if bool((lengths == lengths[0]).all()) else lengths

    def __len__(self) -> int:
        return len(self._tokens)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return ``features`` (batch, longest, width) in the stored type, zeros at padding, on the right.

        Where lengths differ there is an ``attention_mask`` (batch, longest) int64, too.
        """
        lengths = self._tokens[index]
        longest = int(lengths.max())
        rows = np.empty((len(index), longest, self._bytes.shape[1]), np.uint8)
        # Copying row by row beats one gathering index for the batch by three to five times: rows are long.
        places = zip(self._starts[index].tolist(), lengths.tolist(), strict=True)
        for row, (start, length) in zip(rows, places, strict=True):
            row[:length] = self._bytes[start : start + length]
            row[length:] = 0
        batch = {"features": torch.from_numpy(rows).view(self.values.dtype)}
        if self.lengths is not None:
            batch["attention_mask"] = (torch.arange(longest) < lengths[:, None]).long()
        return batch

    def on(self, device: torch.device) -> Inputs:
        """Return the features in a GPU's memory if they take at most a quarter of what is free there."""
        return _GatheredFeatures(self, device) if fits(device, self.values.nbytes) else self

    def fingerprint(self) -> str:
        """Return a hash of the stored values, their type and the lengths."""
        if self._digests is None:
            self._digests = hash_segments(self._bytes)
        kind = f"{self.values.dtype} {tuple(self.values.shape)} {tuple(self._digests)}"
        digest = hashlib.sha256(kind.encode())
        digest.update(self._tokens.numpy().astype("<i8").data)
        return digest.hexdigest()[:32]


class _GatheredFeatures(Inputs):
    """The same batches, gathered where they are needed: row numbers alone are sent to the GPU."""

    def __init__(self, features: FeatureInputs, device: torch.device) -> None:
        self.lengths, self._tokens = features.lengths, features._tokens
        self._starts, self._counts = features._starts.to(device), features._tokens.to(device)
        padding = features.values.new_zeros(1, features.values.shape[1])
        self._values = torch.cat([features.values.to(device), padding.to(device)])

    def __len__(self) -> int:
        return len(self._tokens)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return what :meth:`FeatureInputs.batch` does."""
        longest, rows = int(self._tokens[index.cpu()].max()), index.to(self._values.device)
        place = torch.arange(longest, device=rows.device)
        inside = place < self._counts[rows, None]
        batch = {"features": self._values[(self._starts[rows, None] + place).where(inside, len(self._values) - 1)]}
        if self.lengths is not None:
            batch["attention_mask"] = inside.long()
        return batch


def feature_inputs(
    inputs: Inputs,
    backbone: nn.Module,
    *,
    describe: Mapping[str, str],
    batch_size: int = 64,
    device: torch.device = CPU,
) -> FeatureInputs:
    """Return the features of ``inputs``, from the cache or computed now; an interrupted build continues where it was.

    They are float16, or bfloat16 if a value is beyond float16's largest (65,504).

    Args:
        inputs: ``backbone(**inputs.batch(index)).last_hidden_state`` must be (batch, tokens, width). Tokens whose
            ``attention_mask`` is 0 are not stored; ``inputs.lengths`` must count the others.
        backbone: runs in evaluation mode without gradient, in its own type; its modes and its device are restored.
        describe: short texts for the manifest, e.g. the names of backbone, data and split.
        batch_size: rows computed at once; rows of like length stand together.
        device: where the backbone runs.

    Raises:
        DataError: a feature is NaN or infinite, lengths and masks disagree, or the cache cannot be written.
        ConfigError: options that cannot be right.
        UnsupportedModelError: the backbone returns no last hidden states.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1; got {batch_size}.")
    if len(inputs) == 0:
        raise DataError("There are no features of a split without rows.")
    run = Run(inputs, backbone, batch_size, device)
    folder = cache_folder()
    if folder is None:
        return _in_memory(run)
    place = folder / "features" / feature_key(inputs, backbone)
    with contextlib.suppress(OSError, ValueError):  # absent, or damaged: the build says so
        return _open(place, inputs)
    _build(place, run, dict(describe))
    try:
        return _open(place, inputs)
    except (OSError, ValueError) as error:
        raise DataError(
            f"The feature cache {place} was deleted or damaged when it had just been built ({error}). Try again."
        ) from None


def feature_key(inputs: Inputs, backbone: nn.Module) -> str:
    """Return the key of the features: a hash of all that decides them, up to rounding."""
    import transformers

    digest = hashlib.sha256(f"{FORMAT} {transformers.__version__} half {inputs.fingerprint()}".encode())
    cls = type(backbone)
    about = f"{cls.__module__}.{cls.__qualname__} {backbone!r}"  # the tree of modules with their sizes and options
    config = getattr(backbone, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        attention = getattr(config, "_attn_implementation", None)
        about += f" {attention} {json.dumps(_deciding(config.to_dict()), default=str)}"
    # A function among the options shows its address, which is another one each time.
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", about).encode())
    hash_tensors(digest, backbone.state_dict())
    return digest.hexdigest()[:32]


def _deciding(value: Any) -> Any:
    """Leave out of a configuration, at every depth, what does not decide the output or is hashed anyhow."""
    if isinstance(value, dict):
        return {str(key): _deciding(value[key]) for key in sorted(value, key=str) if key not in NOT_DECIDING}
    return [_deciding(item) for item in value] if isinstance(value, list | tuple) else value


def count_bytes(lengths: Tensor, width: int) -> int:
    """Return the bytes of the stored values of rows of ``lengths`` (n,) tokens."""
    return int(lengths.sum()) * width * torch.float16.itemsize


def _in_memory(run: Run) -> FeatureInputs:
    with run.ready():
        values = torch.empty(run.tokens, run.width, dtype=torch.float16)

        def take(part: Tensor, rows: int, tokens: int) -> None:
            values[tokens - len(part) : tokens] = part

        try:
            run.compute(values.dtype, 0, take)
        except TooLarge:
            values = values.view(torch.bfloat16)
            run.compute(values.dtype, 0, take)
        return FeatureInputs(values, run.lengths)


def _open(place: Path, inputs: Inputs) -> FeatureInputs:
    """Map complete features; raises OSError, or ValueError that says what is wrong with them."""
    record = Record.read(place / MANIFEST)
    # Copy-on-write: nothing is copied, torch gets memory that it may write to, and the file stays as it is.
    values = np.memmap(place / VALUES, np.uint8, "c")
    if record.done_tokens != record.tokens or values.size != record.size(record.tokens):
        raise ValueError(f"{VALUES} has {values.size:,} bytes, and {MANIFEST} says {record.size(record.tokens):,}")
    lengths = inputs.lengths
    if lengths is None:
        lengths = torch.full((len(inputs),), record.tokens // record.rows)
    if hash_lengths(lengths) != record.lengths or int(lengths.sum()) != record.tokens:
        raise ValueError("its lengths are not those of the inputs")
    parts = segments(values)
    if len(parts) != len(record.digests):
        raise ValueError(f"{MANIFEST} has {len(record.digests)} hashes of {len(parts)} segments")
    looked = max(1, VERIFY_UP_TO // SEGMENT)
    for position in np.unique(np.linspace(0, len(parts) - 1, min(len(parts), looked)).round().astype(int)).tolist():
        if hash_bytes(parts[position]) != record.digests[position]:
            raise ValueError(f"{VALUES} has other bytes than were written, in segment {position} of {len(parts)}")
    tensor = torch.from_numpy(np.asarray(values)).view(getattr(torch, record.dtype)).view(record.tokens, record.width)
    return FeatureInputs(tensor, lengths, record.digests)


def _build(place: Path, run: Run, describe: dict[str, str]) -> None:
    """Compute the features into ``place``, unless another process has done it while this one waited."""
    try:
        with alone(lock_of(place), "Another process is computing these features; waiting for it."):
            if place.exists():
                try:
                    _open(place, run.inputs)
                    return
                except (OSError, ValueError) as error:
                    logger.warning("The feature cache %s is damaged (%s) and is rebuilt.", place, error)
                    shutil.rmtree(place)
            with run.ready():
                build(place, run, describe)
    except FileNotFoundError:
        raise DataError(f"The feature cache {place} was deleted while it was built. Try again.") from None
    except OSError as error:
        raise DataError(
            f"The feature cache cannot be written to {place} ({error.strerror or error}): {ADVICE}"
        ) from None
