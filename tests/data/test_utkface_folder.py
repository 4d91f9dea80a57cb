from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import picture

from levelhead.data import SPLITS
from levelhead.data.utkface_folder import UTKFaceFolder

ROWS = 120


def write(root: Path, race: list[int], suffix: str = ".jpg", folder: str = "UTKFace") -> Path:
    """Write noise pictures; picture, gender and date of a row are fixed, race and age are not."""
    (root / folder).mkdir(parents=True)
    for row in range(ROWS):
        date = 20170109 + row // 2 * 3 if row < 8 else 20180000 + row  # the first eight share four dates
        name = f"{race[row] + 20 + row // 2}_{row % 2}_{race[row]}_{date}{suffix}"
        (root / folder / name).write_bytes(picture(row, (40, 30)))
    return root


@pytest.fixture
def race() -> list[int]:
    return [row % 5 for row in range(ROWS)]


def test_names_of_chips_are_those_of_pictures(tmp_path: Path, race: list[int]) -> None:
    plain = UTKFaceFolder(root=write(tmp_path / "plain", race)).examples("train").fingerprint
    chips = UTKFaceFolder(root=write(tmp_path / "chips", race, ".jpg.chip.jpg", "utkface"))
    assert chips.examples("train").fingerprint == plain


def test_rows_of_examples_and_groups_match(tmp_path: Path) -> None:
    # Race follows gender here, so a row that is out of step shows.
    data = UTKFaceFolder(root=write(tmp_path, [row % 2 for row in range(ROWS)]), sensitive="race")
    for split in SPLITS:
        assert data.groups(split)[0].values.tolist() == data.examples(split).labels.tolist()


def test_permuting_the_race_field_changes_nothing_that_training_sees(tmp_path: Path, race: list[int]) -> None:
    kept = UTKFaceFolder(root=write(tmp_path / "kept", race))
    permuted = UTKFaceFolder(root=write(tmp_path / "permuted", np.random.default_rng(0).permutation(race).tolist()))
    for split in SPLITS:
        before, after = kept.examples(split), permuted.examples(split)
        assert torch.equal(before.inputs.pixels, after.inputs.pixels)  # type: ignore[attr-defined]
        assert torch.equal(before.labels, after.labels)
        assert before.fingerprint == after.fingerprint
    assert any(not torch.equal(kept.groups(split)[0].values, permuted.groups(split)[0].values) for split in SPLITS)


def test_the_seed_deals_anew_and_one_date_goes_to_one_split(tmp_path: Path, race: list[int]) -> None:
    write(tmp_path, race)
    first, second = (
        {split: set(data._read(split, ["date"]).chosen("date")) for split in SPLITS}
        for data in (UTKFaceFolder(root=tmp_path), UTKFaceFolder(root=tmp_path, split_seed=1))
    )
    assert first != second
    for dates in (first, second):
        assert not dates["train"] & dates["test"]
        assert not dates["train"] & dates["validation"]


def test_names_that_do_not_fit_are_counted_and_left_out(tmp_path: Path, race: list[int]) -> None:
    folder = write(tmp_path, race) / "UTKFace"
    expected = UTKFaceFolder(root=tmp_path).examples("train").fingerprint
    for name in ("39_1_20170116174525125.jpg", "53__0_2017011.jpg", "face.jpg"):
        (folder / name).write_bytes(b"")
    (folder / "notes.txt").write_text("no picture")
    with pytest.warns(UserWarning, match=r"3 of 123 pictures in .*UTKFace are left out"):
        examples = UTKFaceFolder(root=tmp_path).examples("train")
    assert examples.fingerprint == expected
