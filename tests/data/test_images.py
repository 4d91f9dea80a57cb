from __future__ import annotations

import io
import struct
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from drawing import picture
from numpy.typing import NDArray
from PIL import Image, ImageOps

from levelhead.data.images import decode_images

ORIENTATION = 0x0112
GREY = (np.arange(64).reshape(8, 8) * 1000).astype(np.uint16)


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decode(content: bytes, **options: Any) -> NDArray[Any]:
    """Return the pixels of one picture, (height, width, 3)."""
    return decode_images([content], str, **options)[0].permute(1, 2, 0).numpy()


def test_pictures_can_be_brought_to_one_size() -> None:
    pixels = decode_images([picture(0), picture(1, size=100, kind="PNG")], lambda row: f"row {row}", image_size=32)
    assert pixels.shape == (2, 3, 32, 32)
    assert pixels.dtype == torch.uint8


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_their_exif_says(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    plain = Image.open(io.BytesIO(picture(0, (16, 8), "PNG")))
    content = encode(plain, kind, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    assert expected.shape[:2] == ((8, 16) if orientation < 5 else (16, 8))
    assert np.array_equal(decode(content), expected)
    assert decode(content, image_size=4).shape == (4, 4, 3)


@pytest.mark.parametrize("kind", [2, 5])
def test_damaged_tags_beside_the_orientation_stop_nothing(kind: int) -> None:
    entry = struct.Struct(">HHII")  # tag, type, count, value
    first = entry.pack(ORIENTATION, 3, 1, 6 << 16)
    second = entry.pack(0x011A, kind, 1, 0xFFFF)  # a resolution: a text, or a fraction beyond the end of the file
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x02" + first + second + bytes(4)
    content = encode(Image.new("RGB", (16, 8), (9, 90, 200)), "JPEG", exif=exif)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own, about the tag
        assert decode(content).shape == (16, 8, 3)


def test_grey_of_16_bits_is_scaled_and_not_clipped() -> None:
    grey = decode(encode(Image.fromarray(GREY)))
    assert np.array_equal(grey, np.repeat((GREY >> 8).astype(np.uint8)[..., None], 3, axis=2))
    assert len(np.unique(grey)) == 64
    eight = Image.fromarray((GREY >> 8).astype(np.uint8))
    assert np.array_equal(decode(encode(eight)), grey)  # 8 bits stay as they are
    assert decode(encode(Image.fromarray(np.full((2, 2), 65535, np.uint16)))).min() == 255


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L"])
def test_transparent_pictures_are_laid_on_white(mode: str) -> None:
    noise = np.random.default_rng(0).integers(0, 200, (8, 8, 4)).astype(np.uint8)
    noise[:4, :, 3], noise[4:, :, 3] = 0, 255
    options: dict[str, Any] = {}
    if mode == "RGBA":
        image = Image.fromarray(noise)
    elif mode == "LA":
        image = Image.fromarray(noise[..., [0, 3]])
    else:  # one value of the picture represents transparent
        image = Image.fromarray(np.where(noise[..., 3] == 0, 7, 100).astype(np.uint8))
        if mode == "P":
            image.putpalette([channel for value in range(256) for channel in (value, 0, 255 - value)])
        options["transparency"] = 7
    pixels = decode(encode(image, **options))
    assert pixels[:4].min() == 255
    assert np.array_equal(pixels[4:], np.asarray(image.convert("RGB"))[4:])


def test_half_transparent_pixels_are_half_white() -> None:
    assert decode(encode(Image.new("RGBA", (1, 1), (0, 100, 200, 128)))).tolist() == [[[127, 177, 227]]]


def test_plain_pictures_keep_their_pixels() -> None:
    for kind in ("JPEG", "PNG"):
        content = picture(3, kind=kind)
        assert np.array_equal(decode(content), np.asarray(Image.open(io.BytesIO(content)).convert("RGB")))
    rgba = np.random.default_rng(0).integers(0, 256, (8, 8, 4)).astype(np.uint8)
    rgba[..., 3] = 255
    assert np.array_equal(decode(encode(Image.fromarray(rgba))), rgba[..., :3])
