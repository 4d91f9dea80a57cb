"""A cache of decoded pictures on disk: JPEG is read once, later runs map the pixels into memory.

The folder is that of :mod:`levelhead.data.cache_folder`. It may be deleted whenever no run builds it.

::

    pictures/KEY.npy          (n, 3, height, width) uint8, in the order of the split: pixels, and nothing else
    pictures/.KEY.npy.tmp     being built; the process that builds holds a lock on it

``KEY`` is a hash of the encoded bytes, their order, the size requested and the versions of the decoders. Sizes and
dates of files would be quicker to compare, but an edit can keep both. Hashing costs a hundredth of decoding, finds
every edit, works for a folder that was moved, and takes nothing from file names, which can hold what a trainer must
not see. So two layouts of the same pictures share one entry.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import features
from torch import Tensor

from levelhead.data.cache_folder import ADVICE, alone, cache_folder, check_space
from levelhead.data.images import SHOW_PROGRESS_FROM, Encoded, ImageInputs, PictureFiles, decode_each, decode_images
from levelhead.terminal import tracked
from levelhead.types import DataError

FORMAT = 2  # raise it when the same bytes would become other pixels


def picture_inputs(encoded: Encoded, where: Callable[[int], str], image_size: int | None = None) -> ImageInputs:
    """Return the pictures of a split from JPEG or PNG bytes, decoded now or mapped from the cache.

    Args:
        encoded: the bytes of each picture, n of them.
        where: names the picture at a position in errors.
        image_size: side in pixels; pictures of another size are cropped to their central square and resized. None:
            all pictures must be of one size.

    Raises:
        DataError: a picture is missing, broken or misfit, or the cache cannot be written.
    """
    folder = cache_folder()
    if folder is None:
        return ImageInputs(decode_images(encoded, where, image_size))
    file = folder / "pictures" / f"{_key(encoded, image_size)}.npy"
    mapped = _map(file, len(encoded))
    if mapped is None:
        _build(file, encoded, where, image_size)
        mapped = _map(file, len(encoded))
    if mapped is None:
        raise DataError(f"The picture cache {file} was removed or damaged while it was made. Try again, or {ADVICE}")
    return ImageInputs(mapped)


def files_inputs(
    folder: Path, names: Sequence[str], where: Callable[[int], str], image_size: int | None = None
) -> ImageInputs:
    """Return the pictures that the files ``names`` in ``folder`` hold; see :func:`picture_inputs`."""
    return picture_inputs(PictureFiles(folder, names, where), where, image_size)


def _key(encoded: Encoded, image_size: int | None) -> str:
    decoders = [features.version(part) for part in ("pil", "jpg", "libjpeg_turbo", "webp")]
    digest = hashlib.blake2b(f"{FORMAT} {decoders} {image_size} {len(encoded)}".encode(), digest_size=16)
    for position in tracked(range(len(encoded)), "Reading pictures", shown=len(encoded) >= SHOW_PROGRESS_FROM):
        content = encoded[position]
        # The length first: two pictures must not hash as one when bytes move from the one to the other.
        digest.update((-1 if content is None else len(content)).to_bytes(8, "little", signed=True))
        digest.update(content or b"")
    return digest.hexdigest()


def _map(file: Path, count: int) -> Tensor | None:
    """Map a cached file of ``count`` pictures, or return None if it is absent, cut short or something else."""
    try:
        # Copy-on-write: nothing is copied, torch gets memory that it may write to, and the file stays as it is.
        mapped = np.lib.format.open_memmap(file, mode="c")
        size = file.stat().st_size
    except Exception:  # whatever numpy makes of a file that is absent or not ours: it has to be made
        return None
    if mapped.dtype != np.uint8 or mapped.ndim != 4 or mapped.shape[:2] != (count, 3) or not mapped.flags.c_contiguous:
        return None
    if size != mapped.offset + mapped.nbytes:
        return None
    return torch.from_numpy(np.asarray(mapped))


def _build(file: Path, encoded: Encoded, where: Callable[[int], str], image_size: int | None) -> None:
    """Decode into ``file`` in one step, unless another process has done it while this one waited."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        with alone(temporary, "Another process is decoding these pictures; waiting for it.") as handle:
            if _map(file, len(encoded)) is None:
                _write(handle, file.parent, encoded, where, image_size)
                temporary.replace(file)
    except OSError as error:  # a picture that is missing is a DataError
        raise DataError(
            f"The picture cache cannot be written to {file.parent} ({error.strerror or error}): {ADVICE}"
        ) from None


def _write(
    handle: BinaryIO,
    folder: Path,
    encoded: Encoded,
    where: Callable[[int], str],
    image_size: int | None,
) -> None:
    handle.truncate(0)  # what a killed process left
    pictures = decode_each(encoded, where, image_size)
    for position, picture in enumerate(pictures):
        if position == 0:
            shape = (len(encoded), *picture.shape)
            check_space(folder, len(encoded) * picture.size, "picture")
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(handle, header)
        handle.write(picture.tobytes())
    handle.flush()
    os.fsync(handle.fileno())
