from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import picture

from levelhead.data.celeba_folder import CelebAFolder

ROWS = 18
SPLITS = ["0"] * 8 + ["1"] * 4 + ["2"] * 6
NAMES = [f"{row + 1:06d}.jpg" for row in range(ROWS)]
COLUMNS = {
    "Blond_Hair": [1 if row % 3 == 0 else -1 for row in range(ROWS)],
    "Male": [1 if row % 2 == 0 else -1 for row in range(ROWS)],
    "Smiling": [1 if row % 4 < 2 else -1 for row in range(ROWS)],
}


def write(root: Path, columns: dict[str, list[int]] = COLUMNS, kind: str = "txt") -> Path:
    folder = root / "celeba"
    pictures = folder / "img_align_celeba"
    pictures.mkdir(parents=True)
    for row, name in enumerate(NAMES):
        (pictures / name).write_bytes(picture(row, (44, 54)))
    if kind == "csv":
        pd.DataFrame({"image_id": NAMES, **columns}).to_csv(folder / "list_attr_celeba.csv", index=False)
        pd.DataFrame({"image_id": NAMES, "partition": SPLITS}).to_csv(folder / "list_eval_partition.csv", index=False)
    else:
        lines = [f"{name}  " + "  ".join(map(str, row)) for name, *row in zip(NAMES, *columns.values(), strict=True)]
        header = [str(ROWS), " ".join(columns) + " "]
        (folder / "list_attr_celeba.txt").write_text("\n".join([*header, *lines]) + "\n")
        partition = [f"{name} {split}" for name, split in zip(NAMES, SPLITS, strict=True)]
        (folder / "list_eval_partition.txt").write_text("\n".join(partition) + "\n")
    return root


def test_a_nested_folder_of_pictures_is_found(tmp_path: Path) -> None:
    folder = write(tmp_path) / "celeba" / "img_align_celeba"
    expected = CelebAFolder(root=tmp_path).examples("train").fingerprint
    folder.rename(tmp_path / "pictures")
    folder.mkdir()
    (tmp_path / "pictures").rename(folder / "img_align_celeba")
    assert CelebAFolder(root=tmp_path).examples("train").fingerprint == expected
