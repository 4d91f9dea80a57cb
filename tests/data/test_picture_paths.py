"""Pictures that are not what a table or a name says: elsewhere, endless, or far too large."""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from drawing import picture
from PIL import Image

from levelhead.data import images
from levelhead.data.base import DataSet
from levelhead.data.celeba_folder import CelebAFolder
from levelhead.data.image_folder_csv import ImageFolderCsv
from levelhead.types import DataError

ROWS = 12


def image_folder(root: Path, first: str) -> DataSet:
    (root / "pets" / "sub").mkdir(parents=True)
    names = [first, *(f"{row}.png" for row in range(1, ROWS))]
    for row in range(1, ROWS):
        (root / "pets" / f"{row}.png").write_bytes(picture(row, kind="PNG"))
    columns = {"file": names, "label": ["a", "b"] * (ROWS // 2), "group": ["g"] * ROWS, "part": ["train"] * ROWS}
    pd.DataFrame(columns).to_csv(root / "pets" / "labels.csv", index=False)
    return ImageFolderCsv(root=root, folder="pets", split_column="part", image_size=8)


def celeba(root: Path, first: str) -> DataSet:
    folder = root / "celeba" / "img_align_celeba"
    (folder / "sub").mkdir(parents=True)
    names = [first, *(f"{row}.png" for row in range(1, ROWS))]
    for row in range(1, ROWS):
        (folder / f"{row}.png").write_bytes(picture(row))
    attributes = pd.DataFrame({"image_id": names, "Blond_Hair": [1, -1] * (ROWS // 2), "Male": [1] * ROWS})
    attributes.to_csv(root / "celeba" / "list_attr_celeba.csv", index=False)
    partition = pd.DataFrame({"image_id": names, "partition": [0] * ROWS})
    partition.to_csv(root / "celeba" / "list_eval_partition.csv", index=False)
    return CelebAFolder(root=root, image_size=8)


def home(root: Path) -> Path:
    """Return the folder of the pictures."""
    folder = root / "celeba" / "img_align_celeba"
    return folder if folder.is_dir() else root / "pets"


TABLES = [image_folder, celeba]


def read_with_first(make: Callable[..., DataSet], name: str) -> None:
    """Read pictures of which the first is called so, where files lie within and beside the folder that it may mean."""
    data = make(Path(), name)
    for file in (home(Path()) / "sub" / "0.png", home(Path()).parent / "out.png"):
        file.write_bytes(picture(0))
    data.examples("train")


@pytest.mark.skipif(os.sep != "/", reason="there a backslash divides folders")
def test_a_backslash_that_is_part_of_a_name_is_one(tmp_path: Path) -> None:
    data = image_folder(tmp_path, "a\\b.png")
    (home(tmp_path) / "a\\b.png").write_bytes(picture(0))
    assert len(data.examples("train").labels) == ROWS


@pytest.mark.parametrize("make", TABLES)
def test_a_link_that_leaves_the_folder_is_refused_and_one_that_stays_is_followed(
    make: Callable[..., DataSet], tmp_path: Path
) -> None:
    data, behind = make(tmp_path, "link.png"), make(tmp_path / "2", "behind/0.png")
    (tmp_path / "0.png").write_bytes(picture(0))
    (home(tmp_path / "2") / "behind").symlink_to(tmp_path)
    link = home(tmp_path) / "link.png"
    for target, found in ((tmp_path / "0.png", "leads out of"), (link, "cannot be read")):
        link.symlink_to(target)
        with pytest.raises(DataError, match=found):
            data.examples("train")
        link.unlink()
    with pytest.raises(DataError, match="leads out of"):
        behind.examples("train")
    link.symlink_to(home(tmp_path) / "1.png")
    assert len(data.examples("train").labels) == ROWS


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    image_folder(tmp_path, "1.png")
    (tmp_path / "mine").symlink_to(tmp_path / "pets")
    data = ImageFolderCsv(root=tmp_path, folder="mine", split_column="part", image_size=8)
    assert len(data.examples("train").labels) == ROWS


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.timeout(120)
def test_a_pipe_does_not_hang(make: Callable[..., DataSet], tmp_path: Path) -> None:
    data = make(tmp_path, "pipe.png")
    os.mkfifo(home(tmp_path) / "pipe.png")
    with pytest.raises(DataError, match=r"pipe\.png is not a regular file"):
        data.examples("train")


def test_a_device_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "zero.png"
    file.write_bytes(picture(0))
    plain = Path.stat

    def device(path: Path, **options: Any) -> os.stat_result:
        found = plain(path, **options)
        return os.stat_result((stat.S_IFCHR | 0o666, *found[1:])) if path == file else found

    monkeypatch.setattr(Path, "stat", device)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("a device was opened"))
    with pytest.raises(DataError, match="is not a regular file"):
        images.read_picture(file, "row 1")


def test_a_file_beyond_the_limit_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_BYTES", 2**20)
    data = image_folder(tmp_path, "large.png")
    with (tmp_path / "pets" / "large.png").open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room
    with pytest.raises(DataError, match=r"large\.png is larger than 1 MiB\. Make it smaller"):
        data.examples("train")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bomb(width: int, height: int) -> bytes:
    """Return a PNG that says it is this large, and decodes to as much."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = zlib.compress(bytes(min(2**24, height * (1 + width // 8))), 9)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_formats_that_need_another_program_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_folder(tmp_path, "page.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "pets" / "page.png", "EPS")
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("another program was started"))
    with pytest.raises(DataError, match="row 1 cannot be decoded"):
        data.examples("train")
