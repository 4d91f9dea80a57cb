from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from drawing import picture

from levelhead.data import CelebA, UTKFace
from levelhead.types import DataError


def write(folder: Path, columns: dict[str, Any], rows: int = 12, pictures: list[bytes | None] | None = None) -> Path:
    """Write the three splits of a small data set below ``folder``'s parent; returns the root."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = pictures or [picture(row) for row in range(rows)]
    image = [{"bytes": content, "path": f"{row}.jpg"} for row, content in enumerate(contents)]
    for split in ("train", "validation", "test"):
        pq.write_table(pa.table({"image": image, **columns}), folder / f"{split}.parquet")
    return folder.parent


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    flags = {"Blond_Hair": [row % 3 == 0 for row in range(12)], "Male": [row % 2 == 0 for row in range(12)]}
    return write(tmp_path / "celeba64", {**flags, "Smiling": [row > 5 for row in range(12)]})


@pytest.fixture
def utkface(tmp_path: Path) -> Path:
    return write(
        tmp_path / "utkface64", {"gender": [row % 2 for row in range(12)], "race": [row % 5 for row in range(12)]}
    )


def test_celeba_takes_any_attribute(celeba: Path) -> None:
    data = CelebA(root=celeba, target="Smiling", sensitive=("Male", "Blond_Hair"))
    data.check()
    examples, groups = data.examples("test"), data.groups("test")
    assert examples.labels.tolist() == [int(row > 5) for row in range(12)]
    assert examples.class_names == ("not Smiling", "Smiling")
    assert [group.attribute for group in groups] == ["Male", "Blond_Hair"]
    assert groups[0].values.tolist() == [1, 0] * 6


def test_utkface_groups(utkface: Path) -> None:
    data = UTKFace(root=utkface)
    assert data.examples("train").class_names == ("male", "female")
    (white,) = data.groups("train")
    assert white.names == ("not white", "white")
    assert white.values.tolist() == [int(row % 5 == 0) for row in range(12)]
    (race,) = UTKFace(root=utkface, sensitive="race").groups("train")
    assert len(race.names) == 5


def test_several_files_make_one_split(celeba: Path) -> None:
    folder = celeba / "celeba64"
    table = pq.read_table(folder / "train.parquet")
    (folder / "train.parquet").unlink()
    pq.write_table(table.slice(0, 5), folder / "train-00000-of-00002.parquet")
    pq.write_table(table.slice(5), folder / "train-00001-of-00002.parquet")
    assert CelebA(root=celeba).examples("train").fingerprint == CelebA(root=celeba).examples("test").fingerprint


def test_training_reads_only_picture_and_target(celeba: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[list[str]] = []
    read = pq.read_table

    def spy(file: Path, columns: list[str]) -> Any:
        opened.append(columns)
        return read(file, columns=columns)

    monkeypatch.setattr(pq, "read_table", spy)
    CelebA(root=celeba).examples("train")
    assert opened == [["Blond_Hair"], ["image.bytes"]]


def test_an_unknown_column_names_the_nearest_and_lists_the_rest(celeba: Path) -> None:
    with pytest.raises(
        DataError, match=r"no column 'Blond'. Did you mean 'Blond_Hair'\? Columns there: image, Blond_Hair, Male"
    ):
        CelebA(root=celeba, target="Blond").check()
    with pytest.raises(DataError, match="no column 'Mal'"):
        CelebA(root=celeba, sensitive="Mal").groups("test")


def test_an_absent_sensitive_column_is_a_warning(celeba: Path, utkface: Path, caplog: pytest.LogCaptureFixture) -> None:
    CelebA(root=celeba, sensitive=("Male", "Young", "Bald")).check()
    file = utkface / "utkface64" / "test.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["race"]), file)
    UTKFace(root=utkface).check()
    assert [record.message.partition(" has ")[2] for record in caplog.records] == [
        "no column 'Young' and no column 'Bald' (data.sensitive): training does not need it, evaluation does.",
        "no column 'race' (data.sensitive): training does not need it, evaluation does.",
    ]


def test_a_missing_folder_says_how_to_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"no folder .*celeba64.*--data-root, or set LEVELHEAD_DATA"):
        CelebA(root=tmp_path).check()
    monkeypatch.setenv("LEVELHEAD_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere"):
        UTKFace().check()


def test_a_missing_split_lists_what_is_there(utkface: Path) -> None:
    (utkface / "utkface64" / "validation.parquet").unlink()
    with pytest.raises(DataError, match=r"no validation\.parquet.*holds test\.parquet, train\.parquet"):
        UTKFace(root=utkface).check()


def test_a_file_that_is_no_parquet_is_named(utkface: Path) -> None:
    (utkface / "utkface64" / "train.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"train\.parquet is not a readable parquet file"):
        UTKFace(root=utkface).check()


def test_half_a_set_of_files_and_stray_files_are_errors(celeba: Path) -> None:
    folder = celeba / "celeba64"
    table = pq.read_table(folder / "train.parquet")
    pq.write_table(table, folder / "train-00000-of-00002.parquet")
    with pytest.raises(DataError, match="one whole set of files of the train split"):
        CelebA(root=celeba).examples("train")
    (folder / "train.parquet").unlink()
    with pytest.raises(DataError, match="one whole set"):
        CelebA(root=celeba).examples("train")
    pq.write_table(table, folder / "test-old.parquet")
    assert len(CelebA(root=celeba).examples("test").labels) == 12


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


@pytest.mark.data
def test_real_pictures_become_batches(real_data: Path) -> None:
    examples = UTKFace(root=real_data).examples("validation")
    assert examples.inputs.batch(torch.arange(2))["pixel_values"].shape == (2, 3, 64, 64)
