"""Pictures: decoded once into uint8, normalised batch by batch.

34,000 pictures of 64x64 take 0.4 GB as uint8. Decoding everything before training starts also means that a broken
picture is found in the first seconds, not in the third epoch. :mod:`levelhead.data.cache` keeps the result on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rich.progress import track
from torch import Tensor

from levelhead.data.base import Inputs
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, DataError

SHOW_PROGRESS_FROM = 2000  # pictures; fewer decode in about a second
_BLACK = torch.tensor(-1.0)
_SCALE = torch.nextafter(torch.tensor(1 / 127.5), torch.tensor(0.0)).item()  # rounded up, it would take 255 beyond 1
_AT_ONCE = 400_000  # numbers that are normalised at once: what is read again is still in the processor's cache


class ImageInputs(Inputs):
    """Pictures of one split, held as ``pixels`` (n, 3, height, width) uint8, in memory or mapped from a file."""

    def __init__(self, pixels: Tensor) -> None:
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3:
            raise DataError(f"pictures must be uint8 (n, 3, height, width), not {pixels.dtype} {tuple(pixels.shape)}")
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return ``pixel_values`` (batch, 3, height, width) float32 in [-1, 1]: mean 0.5 and deviation 0.5."""
        shape = self.pixels.shape[1:]
        result = torch.empty(len(index), *shape, dtype=torch.float32)
        some = max(1, _AT_ONCE // shape.numel())
        for rows, place in zip(index.split(some), result.split(some), strict=True):
            # index_select copies whole pictures: indexing goes number by number, at an eighth of the speed.
            place.copy_(self.pixels.index_select(0, rows))
            torch.add(_BLACK, place, alpha=_SCALE, out=place)  # one pass, where dividing and subtracting are two
        return {"pixel_values": result}

    def fingerprint(self) -> str:
        """Return a hash of the pixels."""
        return _hash_pixels(self.pixels).hexdigest()


class PictureFiles(Sequence[bytes | None]):
    """The encoded bytes of many picture files, each read when it is asked for.

    ``where(position)`` names a picture in errors. Raises :class:`~levelhead.types.DataError` for a file that is missing
    or cannot be read.
    """

    def __init__(self, files: Sequence[Path], where: Callable[[int], str]) -> None:
        self.files = files
        self.where = where

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> PictureFiles: ...
    def __getitem__(self, position: int | slice) -> bytes | PictureFiles:
        if isinstance(position, slice):
            start = position.indices(len(self.files))[0]
            return PictureFiles(self.files[position], lambda row: self.where(start + row * (position.step or 1)))
        file = self.files[position]
        try:
            return file.read_bytes()
        except FileNotFoundError:
            raise DataError(f"{self.where(position)}: there is no file {file}.") from None
        except OSError as error:
            raise DataError(f"{self.where(position)}: {file} cannot be read ({error.strerror}).") from None


def check_image_size(image_size: int) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless pictures can have this side, in pixels."""
    if image_size < 1:
        raise ConfigError(f"data.image_size is {image_size}; it must be at least 1 pixel.")


def positions(count: int, title: str, shown_from: int = SHOW_PROGRESS_FROM) -> Iterable[int]:
    """Return the positions of ``count`` things, with a progress bar on stderr from ``shown_from`` things on."""
    return track(
        range(count),
        description=title,
        transient=True,
        disable=count < shown_from,
        console=Terminal(stderr=True),
        update_period=0.5,
    )


def decode_each(
    encoded: Sequence[bytes | None],
    where: Callable[[int], str],
    image_size: int | None = None,
    title: str = "Decoding pictures",
) -> Iterator[NDArray[np.uint8]]:
    """Decode JPEG or PNG bytes one by one into (3, height, width) uint8 RGB, with a progress bar for many.

    Pictures are turned as their EXIF says, transparent ones are laid on white, 16 bits a channel become 8.
    ``where(position)`` names a picture in errors. Without ``image_size`` every picture must have the size of the
    first; with it, pictures of another size are cropped to their central square and resized to it, in pixels.
    Raises :class:`~levelhead.types.DataError` that names the first picture that is missing, broken or misfit.
    """
    if len(encoded) == 0:
        raise DataError("no pictures to decode: the split is empty")
    size = None if image_size is None else (image_size, image_size)
    for position in positions(len(encoded), title):
        picture = _decode(encoded[position], position, where)
        if image_size is not None and picture.size != size:
            picture = _fit(picture, image_size)
        if size is None:
            size = picture.size
        if picture.size != size:
            raise DataError(
                f"{where(position)} is {picture.size[0]}x{picture.size[1]} pixels and those before it "
                f"{size[0]}x{size[1]}; set image_size to bring all pictures to one size"
            )
        yield np.asarray(picture).transpose(2, 0, 1)


def decode_images(
    encoded: Sequence[bytes | None],
    where: Callable[[int], str],
    image_size: int | None = None,
    title: str = "Decoding pictures",
) -> Tensor:
    """Decode pictures into memory, (n, 3, height, width) uint8 RGB; arguments and errors as :func:`decode_each`."""
    pixels: NDArray[np.uint8] | None = None
    for position, picture in enumerate(decode_each(encoded, where, image_size, title)):
        if pixels is None:
            pixels = np.empty((len(encoded), *picture.shape), np.uint8)
        pixels[position] = picture
    assert pixels is not None
    return torch.from_numpy(pixels)


def _decode(content: bytes | None, position: int, where: Callable[[int], str]) -> Image.Image:
    if not content:
        raise DataError(f"{where(position)} holds no picture; fetch that file again, or drop the row")
    try:
        picture = Image.open(io.BytesIO(content))
        picture.load()
        # Pillow turns the pixels first and rewrites the other tags then. Damaged ones raise almost anything there, and
        # no pixel is in them.
        with contextlib.suppress(Exception):
            ImageOps.exif_transpose(picture, in_place=True)
        return _rgb(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow's own words may quote nothing but a buffer address, so only the kind of trouble is kept.
        reason = "is cut short" if "truncated" in str(error) else "cannot be decoded"
        raise DataError(
            f"{where(position)} {reason} ({len(content)} bytes); fetch that file again, or drop the row"
        ) from error


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode == "I" or picture.mode.startswith("I;16"):
        # The upper byte, which is what Pillow keeps of 16-bit colour; its convert would clip grey at 255.
        return Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        # Its convert would also bring out the colours that editors leave below transparent pixels.
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def _fit(picture: Image.Image, image_size: int) -> Image.Image:
    width, height = picture.size
    side = min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    crop = (left, upper, left + side, upper + side)
    return picture.resize((image_size, image_size), Image.Resampling.BILINEAR, box=crop)


def fingerprint(pixels: Tensor, labels: Tensor) -> str:
    """Return a hash of pixels (n, 3, height, width) uint8 and labels (n,) int64, and of nothing else."""
    digest = _hash_pixels(pixels)
    digest.update(labels.numpy().astype("<i8").data)
    return digest.hexdigest()


def _hash_pixels(pixels: Tensor) -> hashlib.blake2b:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(tuple(pixels.shape)).encode())
    digest.update(np.ascontiguousarray(pixels.numpy()).data)
    return digest
