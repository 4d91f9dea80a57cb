"""Groups from another file, joined to predictions by an id."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import printed, written
from levelhead.tables.join import Joined


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, pd.DataFrame]:
    return write_files(tmp_path)


def write_files(folder: Path) -> tuple[Path, Path, pd.DataFrame]:
    """Write predictions of 400 rows with ids, and groups for them in another order."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"{row:04d}" for row in range(400)],
            "y": generator.integers(0, 2, 400),
            "p": generator.integers(0, 2, 400),
            "sex": generator.choice(["w", "m"], 400),
        }
    )
    frame.drop(columns="sex").to_csv(folder / "predictions.csv", index=False)
    frame.sample(frac=1, random_state=0)[["id", "sex"]].to_csv(folder / "groups.csv", index=False)
    return folder / "predictions.csv", folder / "groups.csv", frame


ASKED = ["--label", "y", "--prediction", "p", "--group", "sex"]


@pytest.mark.parametrize("kinds", [("csv", "csv"), ("parquet", "csv"), ("csv", "parquet")])
def test_a_joined_file_is_audited_as_one_file_is(
    files: tuple[Path, Path, pd.DataFrame], kinds: tuple[str, str]
) -> None:
    predictions, groups, frame = files
    one, other = (
        written(pd.read_csv(path, dtype={"id": str}), path.with_suffix(f".{kind}"))
        for path, kind in zip((predictions, groups), kinds, strict=True)
    )
    whole, out = written(frame, predictions.with_name(f"whole.{kinds[0]}")), predictions.with_name("out.json")
    said = printed("audit", one, *ASKED, "--join", other, "--on", "id", "--json", out)
    joined = json.loads(out.read_text())
    assert "400 of 400 rows (100.0%) matched an id" in said
    assert joined.pop("reading") == [f"400 of 400 rows (100.0%) matched an id in {other.name}."]
    assert "matched an id" not in printed("audit", whole, *ASKED, "--json", out)
    alone = json.loads(out.read_text())
    assert len(joined.pop("made")["inputs"]) == len(alone.pop("made")["inputs"]) + 1
    assert joined == alone


def test_ids_of_several_files_are_compared_as_they_are_written(tmp_path: Path) -> None:
    rows = pd.DataFrame({"id": range(8), "y": [0, 1] * 4, "p": [0, 1] * 4})
    files = [
        written(rows[2 * at : 2 * at + 2].astype({"id": kind}), tmp_path / f"{at}.parquet")
        for at, kind in enumerate((int, float, str, "category"))
    ]
    groups = written(pd.DataFrame({"id": range(8), "sex": list("ab" * 4)}), tmp_path / "groups.csv")
    found = lh.audit_table(files, label="y", prediction="p", groups=["sex"], join=groups, on="id")
    assert {name: group.n for name, group in found.by_attribute["sex"].groups.items()} == {"a": 4, "b": 4}


def join_changed(
    change: Callable[[pd.DataFrame], pd.DataFrame] = pd.DataFrame, on: str = "id", whole: bool = False
) -> None:
    """Join groups that are changed so, to predictions that have the groups, too, where they are whole."""
    predictions, groups, frame = write_files(Path())
    if whole:
        frame.to_csv(predictions, index=False)
    change(pd.read_csv(groups, dtype=str)).to_csv(groups, index=False)
    Joined(predictions, groups, on, ["y", "p", "sex"])


def test_rows_whose_id_has_no_partner_are_counted(files: tuple[Path, Path, pd.DataFrame]) -> None:
    predictions, groups, frame = files
    written(frame.assign(id=["0" * (at < 30) + one for at, one in enumerate(frame["id"])])[["id", "sex"]], groups)
    said = printed("audit", predictions, *ASKED, "--join", groups, "--on", "id")
    assert "370 of 400 rows (92.5%) matched" in said
    assert "30 have no group;" in said
