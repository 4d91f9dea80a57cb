"""Pictures and tables as nobody should send them: each gives a result, or one clear sentence, soon.

A seeded loop over the data sets that read files of pictures: one picture, its path, or the table is altered, and the
set is read. No device is ever named; pipes are made in the test's own folder.
"""

from __future__ import annotations

import io
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from shares import attempt, cases

from levelhead.data.base import DataSet
from levelhead.data.celeba_folder import CelebAFolder
from levelhead.data.image_folder_csv import ImageFolderCsv
from levelhead.data.utkface_folder import UTKFaceFolder

# Python's own warnings are allowed here: that a name does not fit, say. What must not happen is a traceback.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]

CASES = 25  # of each of the tests below, which are numbered by their seeds
ROWS = 8


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(size: tuple[int, int], draw: random.Random) -> Image.Image:
    width, height = size
    return Image.fromarray(np.frombuffer(draw.randbytes(3 * width * height), np.uint8).reshape(height, width, 3))


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, *more: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG with any header; its pixels are zeros, and compress well."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    rows = zlib.compress(bytes(min(2**22, height * (1 + width * 3))), 9)
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def odd_picture(draw: random.Random) -> bytes:
    """Return a picture of an unusual kind; most of them are fine."""
    small = noise((draw.choice([1, 7, 16, 40]), draw.choice([1, 9, 16])), draw)
    grey16 = Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000)
    real = Image.fromarray(np.linspace(-5, 9, 64, dtype=np.float32).reshape(8, 8))
    frames = [noise((8, 8), draw) for _ in range(3)]
    kinds: list[Callable[[], bytes]] = [
        lambda: encode(small, draw.choice(["PNG", "JPEG", "BMP", "GIF", "TIFF", "PPM", "TGA", "ICO", "DDS", "PCX"])),
        lambda: encode(small.convert("CMYK"), draw.choice(["JPEG", "TIFF"])),
        lambda: encode(small.convert(draw.choice(["1", "L", "P"])), "PNG"),
        lambda: encode(small.convert(draw.choice(["LAB", "YCbCr", "CMYK"])), "TIFF"),
        lambda: encode(small.convert("RGBA"), draw.choice(["PNG", "TIFF", "TGA"])),
        lambda: encode(small.convert("P"), "GIF", transparency=draw.randrange(300) % 256),
        lambda: encode(grey16, draw.choice(["PNG", "TIFF"])),
        lambda: encode(grey16.convert("I"), "TIFF"),
        lambda: encode(real, "TIFF"),
        lambda: encode(frames[0], draw.choice(["GIF", "TIFF", "PNG"]), save_all=True, append_images=frames[1:]),
        lambda: encode(small, "EPS"),
        lambda: encode(small, "PDF"),
        lambda: b"\xff\xd8\xff\xe1" + draw.randbytes(200) + encode(small, "JPEG")[2:],
        lambda: encode(small, "JPEG", progressive=True, exif=b"Exif\0\0" + draw.randbytes(60)),
    ]
    return draw.choice(kinds)()


def hostile_picture(draw: random.Random) -> bytes:
    """Return bytes that are no picture, or one that would exhaust memory or time."""
    whole = odd_picture(draw)
    large = draw.choice([0, 20_000, 65_535, 2**20, 2**31 - 1, 2**32 - 1])
    kinds: list[Callable[[], bytes]] = [
        lambda: whole[: draw.randrange(len(whole))],
        lambda: b"",
        lambda: bytes(draw.choice([1, 100, 10_000])),
        lambda: draw.randbytes(draw.choice([1, 8, 300])),
        lambda: whole[:8] + draw.randbytes(40) + whole[48:],
        lambda: _exchanged(whole, draw),
        lambda: _exchanged(_exchanged(whole, draw), draw),
        lambda: png(large, draw.choice([1, large])),
        lambda: png(
            draw.choice([8, 16]), 8, depth=draw.choice([0, 1, 3, 16, 255]), colour=draw.choice([0, 1, 3, 4, 6])
        ),
        lambda: png(11_000, 11_000),
        lambda: png(8, 8, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**23)))),
        lambda: png(8, 8, chunk(b"iCCP", b"a\0\0" + zlib.compress(draw.randbytes(4000)))),
        lambda: png(8, 8, chunk(b"PLTE", draw.randbytes(7)), chunk(b"tRNS", draw.randbytes(900))),
        lambda: b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0xF7, 0, 0) + draw.randbytes(900),
        lambda: b"BM" + struct.pack("<IHHIIiiHHI", 99, 0, 0, 54, 40, 2**31 - 1, -(2**31), 1, 24, 0) + bytes(64),
        lambda: b"P6 " + str(10 ** draw.choice([3, 6, 40])).encode() + b" 10 255\n" + bytes(30),
        lambda: b"II*\0\x08\0\0\0" + struct.pack("<H", 40) + draw.randbytes(480),
        lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nwhile { } loop\n",
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64,
    ]
    return draw.choice(kinds)()


def _exchanged(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + draw.randbytes(draw.choice([1, 1, 4])) + content[place + 1 :]


def quoted(cell: object) -> str:
    return '"' + str(cell).replace('"', '""') + '"'


def write_csv(file: Path, rows: list[list[object]]) -> None:
    file.write_text("\n".join(",".join(map(quoted, row)) for row in rows) + "\n", newline="")


def image_folder(root: Path, names: list[str]) -> DataSet:
    rows = [[name, "ab"[row % 2], f"g{row % 3}", "train"] for row, name in enumerate(names)]
    write_csv(root / "pets" / "pictures" / "labels.csv", [["file", "label", "group", "split"], *rows])
    return ImageFolderCsv(root=root / "pets", folder="pictures", split_column="split", image_size=8)


def celeba(root: Path, names: list[str]) -> DataSet:
    folder = root / "celeba"
    attributes = [[name, 1 - 2 * (row % 2), 1] for row, name in enumerate(names)]
    write_csv(folder / "list_attr_celeba.csv", [["image_id", "Blond_Hair", "Male"], *attributes])
    write_csv(folder / "list_eval_partition.csv", [["image_id", "partition"], *([name, 0] for name in names)])
    return CelebAFolder(root=root, image_size=8)


def utkface(root: Path, names: list[str]) -> DataSet:
    return UTKFaceFolder(root=root, image_size=8, validation_share=0.01, test_share=0.01)


SETS: dict[str, tuple[Callable[[Path, list[str]], DataSet], str]] = {
    "image-folder-csv": (image_folder, "pets/pictures"),
    "celeba": (celeba, "celeba/img_align_celeba"),
}
"""Those with a table of names; in UTKFace, the names are the table."""
NAMES, FACES = (
    [f"{row}.png" for row in range(ROWS)],
    [f"2{row}_{row % 2}_{row % 5}_20170{row}.jpg" for row in range(ROWS)],
)


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", "off")


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return what is in a folder: a pipe, or a link that leads nowhere, has no bytes."""
    return {
        str(file): (os.lstat(file).st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in root.rglob("*")
        if not file.is_dir()
    }


def check(root: Path, data: DataSet, what: str) -> None:
    """Read a data set, and demand examples and groups, or a sentence, with all files as they were."""
    before = contents(root)
    for use in (data.check, lambda: data.examples("train"), lambda: data.groups("train")):
        attempt(what, use)
    assert contents(root) == before, what


def fill(folder: Path, names: list[str], draw: random.Random) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(encode(noise((10, 8), draw), "PNG"))


@pytest.mark.parametrize("seed", range(8))
def test_hostile_pictures(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    for case in cases(CASES):
        name, root = draw.choice([*SETS, "utkface"]), tmp_path / str(case)
        content = draw.choice([odd_picture, hostile_picture, hostile_picture])(draw)
        make, place = SETS.get(name, (utkface, "utkface"))
        names = FACES if name == "utkface" else NAMES
        fill(root / place, names, draw)
        (root / place / draw.choice(names)).write_bytes(content)
        check(root, make(root, names), f"seed {seed}, case {case}: {name}")
