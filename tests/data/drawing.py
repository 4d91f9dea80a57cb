"""Small noise pictures and changed files for the tests of data sets."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: int | tuple[int, int] = 64, kind: str = "PNG") -> bytes:
    """Return an encoded noise picture that a seed fixes; ``size`` is the side, or (width, height)."""
    width, height = (size, size) if isinstance(size, int) else size
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def replace(file: Path, before: str, after: str) -> None:
    """Write a text in place of another one that a file holds."""
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
