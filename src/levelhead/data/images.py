"""Pictures: decoded once into uint8, normalised batch by batch.

34,000 pictures of 64x64 take 0.4 GB as uint8. Decoding everything before training starts also means that a broken
picture is found in the first seconds, not in the third epoch. :mod:`levelhead.data.cache` keeps the result on disk.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import math
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from levelhead.data.base import Examples, Inputs, fits
from levelhead.terminal import tracked
from levelhead.types import DataError, reason_of

MOST_BYTES = 2**27  # of one file
MOST_PIXELS = 100_000_000  # of one picture: more than any common camera takes, and 300 MB when decoded
# No others: for some, Pillow starts another program.
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "TGA")
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

    def pictures(self, index: Tensor) -> Tensor:
        """Return the pictures at ``index`` (batch,) int64, (batch, 3, height, width) uint8."""
        # index_select copies whole pictures: indexing goes number by number, at an eighth of the speed.
        return self.pixels.index_select(0, index)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return ``pixel_values`` (batch, 3, height, width) float32 in [-1, 1]: mean 0.5 and deviation 0.5."""
        shape = self.pixels.shape[1:]
        result = torch.empty(len(index), *shape, dtype=torch.float32, device=self.pixels.device)
        index = index.to(self.pixels.device)
        some = max(1, _AT_ONCE // shape.numel())
        for rows, place in zip(index.split(some), result.split(some), strict=True):
            place.copy_(self.pictures(rows))
            torch.add(_BLACK, place, alpha=_SCALE, out=place)  # one pass, where dividing and subtracting are two
        return {"pixel_values": result}

    def on(self, device: torch.device) -> ImageInputs:
        """Return the pictures in a GPU's memory if they take at most a quarter of what is free there.

        A batch is then picked and normalised by the GPU, and nothing but row numbers is sent to it in training.
        """
        return ImageInputs(self.pixels.to(device)) if fits(device, self.pixels.numel()) else self

    def fingerprint(self) -> str:
        """Return a hash of the pixels."""
        return _hash_pixels(self.pixels).hexdigest()

    def with_labels(self, labels: Tensor, class_names: tuple[str, ...]) -> Examples:
        """Return the examples of a split: these pictures with the classes ``labels`` (n,) int64."""
        digest = _hash_pixels(self.pixels)
        digest.update(labels.numpy().astype("<i8").data)
        return Examples(self, labels, class_names, digest.hexdigest())

    def keys(self) -> list[str]:
        """Return a hash of the pixels of each picture."""
        index = torch.arange(len(self))
        pictures = (picture for rows in index.split(1000) for picture in self.pictures(rows).numpy())
        return [hashlib.blake2b(np.ascontiguousarray(one).data, digest_size=16).hexdigest() for one in pictures]

    def chosen(self, index: Tensor) -> ImageInputs:
        """Return the pictures at ``index`` (n,) int64, copied."""
        return ImageInputs(self.pictures(index))

    def joined(self, others: Sequence[ImageInputs]) -> ImageInputs:
        """Return these pictures and ``others``; raises :class:`~levelhead.types.DataError` if they differ in size."""
        sizes = {tuple(one.pixels.shape[1:]) for one in (self, *others)}
        if len(sizes) > 1:
            raise DataError("The splits hold pictures of different sizes: set data.image_size to bring them to one.")
        return ImageInputs(torch.cat([one.pixels for one in (self, *others)]))


class Encoded(Protocol):
    """The encoded bytes of pictures by position, None where there is none: a list, or files read one by one."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> bytes | None: ...


class PictureFiles:
    """The encoded bytes of many picture files below one folder, each read when it is requested.

    ``names`` are their paths in ``folder``; ``where(position)`` names a picture in errors. Raises
    :class:`~levelhead.types.DataError` for a path that leads out of the folder, also by a link, and for a file that is
    missing, not regular, too large, or cannot be read.
    """

    def __init__(self, folder: Path, names: Sequence[str], where: Callable[[int], str]) -> None:
        self.folder, self.names, self.where = folder, names, where
        self._home = folder.resolve()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, position: int, /) -> bytes:
        name = self.names[position]
        path = self._home / name
        if Path(name).is_absolute() or not is_below(path, self._home):
            raise DataError(
                f"{self.where(position)}: {name!r} leads out of {self.folder}. Give paths below that folder, and "
                "put the pictures themselves there."
            )
        if "\\" in name and not path.exists():
            raise DataError(
                f"{self.where(position)}: {name!r} has \\ between folders, as on Windows. Write paths below "
                f"{self.folder} with / instead."
            )
        return read_picture(path, self.where(position))


def is_below(path: Path, home: Path) -> bool:
    """Return whether a path, with every link in it followed, lies in the folder ``home``, given without links."""
    try:
        if path.parent == home and path.name != ".." and not path.is_symlink():
            return True  # most pictures: to follow every part of the path would take longer than to read a small one
        return path.resolve().is_relative_to(home)
    except (OSError, ValueError, RuntimeError):  # a circle of links, or no path at all: reading it says why
        return True


def read_picture(path: Path, where: str) -> bytes:
    """Return the bytes of a regular file of at most :data:`MOST_BYTES`.

    A device or a pipe is never opened: reading it might not end. ``where`` names the picture in errors. Raises
    :class:`~levelhead.types.DataError`.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{where}: {path} is not a regular file. Drop the row, or put a picture there.")
        # Not blocking, should a pipe have taken its place meanwhile.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            content = file.read(MOST_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except FileNotFoundError:
        raise DataError(f"{where}: there is no file {path}.") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = reason_of(error)
        raise DataError(f"{where}: {path} cannot be read ({reason}).") from None
    if len(content) > MOST_BYTES:
        raise DataError(f"{where}: {path} is larger than {MOST_BYTES // 2**20} MiB. Make it smaller, or drop the row.")
    return content


def decode_each(
    encoded: Encoded, where: Callable[[int], str], image_size: int | None = None
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
    for position in tracked(range(len(encoded)), "Decoding pictures", shown=len(encoded) >= SHOW_PROGRESS_FROM):
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


def decode_images(encoded: Encoded, where: Callable[[int], str], image_size: int | None = None) -> Tensor:
    """Decode pictures into memory, (n, 3, height, width) uint8 RGB; arguments and errors as :func:`decode_each`."""
    pixels: NDArray[np.uint8] | None = None
    for position, picture in enumerate(decode_each(encoded, where, image_size)):
        if pixels is None:
            pixels = np.empty((len(encoded), *picture.shape), np.uint8)
        pixels[position] = picture
    assert pixels is not None
    return torch.from_numpy(pixels)


@functools.cache
def _formats() -> list[str]:
    Image.init()  # which fills the table of formats; some need a library that this Pillow may lack
    return [name for name in FORMATS if name in Image.OPEN]


def _decode(content: bytes | None, position: int, where: Callable[[int], str]) -> Image.Image:
    if not content:
        raise DataError(f"{where(position)} holds no picture; fetch that file again, or drop the row")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged tags, which hold no pixel, and about large pictures
            picture = Image.open(io.BytesIO(content), formats=_formats())
            if math.prod(picture.size) > MOST_PIXELS:
                raise Image.DecompressionBombError
            picture.load()
        # Pillow turns the pixels first and rewrites the other tags then. Damaged ones raise almost anything there, and
        # no pixel is in them.
        with contextlib.suppress(Exception):
            ImageOps.exif_transpose(picture, in_place=True)
        return _rgb(picture)
    except Image.DecompressionBombError:
        raise DataError(
            f"{where(position)} has more than {MOST_PIXELS:,} pixels; make it smaller, or drop the row"
        ) from None
    except Exception as error:  # Pillow has a reader for each format, and each raises its own
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


def _hash_pixels(pixels: Tensor) -> hashlib.blake2b:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(tuple(pixels.shape)).encode())
    digest.update(np.ascontiguousarray(pixels.cpu().numpy()).data)
    return digest
