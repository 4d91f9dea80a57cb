from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawing import picture

from levelhead.data.celeba import CelebA
from levelhead.data.utkface import UTKFace


def write(folder: Path, columns: dict[str, Any], rows: int = 12, pictures: list[bytes | None] | None = None) -> Path:
    """Write the three splits of a small data set below ``folder``'s parent; returns the root."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = pictures or [picture(row) for row in range(rows)]
    image = [{"bytes": content, "path": f"{row}.jpg"} for row, content in enumerate(contents)]
    for split in ("train", "validation", "test"):
        pq.write_table(pa.table({"image": image, **columns}), folder / f"{split}.parquet")
    return folder.parent


def celeba(root: Path) -> Path:
    flags = {"Blond_Hair": [row % 3 == 0 for row in range(12)], "Male": [row % 2 == 0 for row in range(12)]}
    people = {"celeb_id": [row // 2 for row in range(12)]}
    return write(root / "celeba64", {**flags, "Smiling": [row > 5 for row in range(12)], **people})


def utkface(root: Path) -> Path:
    columns = {"gender": [row % 2 for row in range(12)], "race": [row % 5 for row in range(12)]}
    return write(root / "utkface64", columns)


def parts(root: Path, count: int, written: int) -> None:
    """Write the training rows in parts instead of one file, and the first of these alone."""
    file = root / "celeba64" / "train.parquet"
    table = pq.read_table(file)
    file.unlink()
    for part in range(written):
        rows = table.slice(part * len(table) // count, len(table) // count)
        pq.write_table(rows, file.with_name(f"train-{part:05d}-of-{count:05d}.parquet"))


def test_several_files_make_one_split(tmp_path: Path) -> None:
    data = CelebA(root=celeba(tmp_path))
    parts(tmp_path, 2, 2)
    pq.write_table(pq.read_table(tmp_path / "celeba64" / "test.parquet"), tmp_path / "celeba64" / "test-old.parquet")
    assert data.examples("train").fingerprint == data.examples("test").fingerprint


@pytest.mark.data
@pytest.mark.parametrize(
    ("data", "rows"),
    [(CelebA, (33790, 3750, 4535)), (UTKFace, (5406, 772, 1544))],
    ids=["celeba64", "utkface64"],
)
def test_the_real_sets_have_their_rows(data: Any, rows: tuple[int, ...], real_data: Path) -> None:
    dataset = data(root=real_data)
    dataset.check()
    for split, count in zip(("train", "validation", "test"), rows, strict=True):
        assert len(dataset.groups(split)[0].values) == count
