"""Groups from another file, joined to predictions by an id."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import levelhead as lh
from levelhead.cli.app import app
from levelhead.tables.join import Joined
from levelhead.types import ConfigError


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


def audit(*words: object, verb: str = "audit") -> str:
    answer = CliRunner().invoke(app, [verb, *map(str, words)])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    assert answer.exit_code == 0, answer.output
    return " ".join(answer.output.split())


@pytest.mark.parametrize("kinds", [("csv", "csv"), ("parquet", "csv"), ("csv", "parquet")])
def test_a_joined_file_is_audited_as_one_file_is(
    files: tuple[Path, Path, pd.DataFrame], kinds: tuple[str, str]
) -> None:
    predictions, groups, frame = files
    found = []
    for path, kind in zip((predictions, groups), kinds, strict=True):
        table = pd.read_csv(path, dtype={"id": str})
        path = path.with_suffix(f".{kind}")
        table.to_parquet(path) if kind == "parquet" else table.to_csv(path, index=False)
        found.append(path)
    whole = predictions.with_name(f"whole.{kinds[0]}")
    frame.to_parquet(whole) if kinds[0] == "parquet" else frame.to_csv(whole, index=False)
    for path, more in ((found[0], ["--join", found[1], "--on", "id"]), (whole, [])):
        said = audit(
            path, "--label", "y", "--prediction", "p", "--group", "sex", *more, "--json", f"{whole}.{len(more)}"
        )
        assert ("400 of 400 rows (100.0%) matched an id" in said) == bool(more)
    joined, alone = (json.loads(Path(f"{whole}.{length}").read_text()) for length in (4, 0))
    assert joined.pop("reading") == [f"400 of 400 rows (100.0%) matched an id in {found[1].name}."]
    assert len(joined.pop("made")["inputs"]) == len(alone.pop("made")["inputs"]) + 1
    assert joined == alone


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("audit", ["--label", "y", "--prediction", "p", "--group", "sex"]),
        ("audit", ["--label", "y", "--prediction", "p", "--group", "sex", "--numbers"]),
        ("audit", ["--prediction", "p", "--favourable", 1, "--group", "sex"]),
        ("audit", ["--score", "s", "--top", 50, "--group", "sex"]),
        ("explain", ["--label", "y", "--score", "s", "--group", "sex"]),
        ("indirect-audit", ["--label", "y", "--prediction", "p", "--labelled-group", "sex"]),
    ],
)
def test_how_many_rows_were_matched_is_printed_once_and_in_every_file(
    files: tuple[Path, Path, pd.DataFrame], verb: str, words: list[object]
) -> None:
    predictions, groups, frame = files
    some = [pd.read_csv(groups, dtype=str)[:300], pd.DataFrame({"id": ["x"], "sex": ["w"]})]
    pd.concat(some).to_csv(groups, index=False)
    scores = np.random.default_rng(0).random(len(frame)).round(3)
    pd.read_csv(predictions, dtype={"id": str}).assign(s=scores).to_csv(predictions, index=False)
    json_file, html_file = predictions.with_suffix(".json"), predictions.with_suffix(".html")
    said = "300 of 400 rows (75.0%) matched an id in groups.csv; 100 have no group; 1 row of groups.csv not needed."
    files_ = ["--json", json_file, "--html", html_file]
    assert audit(predictions, *words, "--join", groups, "--on", "id", *files_, verb=verb).count(said) == 1
    assert json.loads(json_file.read_text())["reading"] == [said]
    assert html_file.read_text().count(said) == 1


def test_python_joins_as_the_command_does(files: tuple[Path, Path, pd.DataFrame], tmp_path: Path) -> None:
    predictions, groups, frame = files
    frame.to_csv(tmp_path / "whole.csv", index=False)
    alone = lh.audit_table(tmp_path / "whole.csv", label="y", prediction="p", groups=["sex"]).to_dict()
    joined = lh.audit_table(predictions, label="y", prediction="p", groups=["sex"], join=groups, on="id").to_dict()
    assert joined.pop("reading") == ["400 of 400 rows (100.0%) matched an id in groups.csv."]
    assert joined == alone
    pd.read_csv(groups, dtype=str).rename(columns={"id": "key"}).to_csv(groups, index=False)
    other = lh.audit_table(predictions, label="y", prediction="p", groups=["sex"], join=groups, on="id=key").to_dict()
    assert other["by_attribute"] == alone["by_attribute"]
    for options in ({"join": groups}, {"join": groups, "on": "id", "against": predictions}):
        with pytest.raises(ConfigError, match=r"join= (needs on=|and against=)"):
            lh.audit_table(predictions, label="y", prediction="p", groups=["sex"], **options)


def test_ids_of_several_files_are_compared_as_they_are_written(tmp_path: Path) -> None:
    rows = pd.DataFrame({"id": range(8), "y": [0, 1] * 4, "p": [0, 1] * 4})
    kinds = (int, float, str, "category")
    files = [tmp_path / f"{at}.parquet" for at in range(4)]
    for at, (path, kind) in enumerate(zip(files, kinds, strict=True)):
        rows[2 * at : 2 * at + 2].astype({"id": kind}).to_parquet(path)
    pd.DataFrame({"id": range(8), "sex": list("ab" * 4)}).to_csv(tmp_path / "groups.csv", index=False)
    found = lh.audit_table(files, label="y", prediction="p", groups=["sex"], join=tmp_path / "groups.csv", on="id")
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


def test_ids_that_lost_their_leading_zeros_are_counted(files: tuple[Path, Path, pd.DataFrame], tmp_path: Path) -> None:
    predictions, groups, _ = files
    table = pd.read_csv(groups, dtype=str)
    table["id"] = ["0" * (at < 30) + one for at, one in enumerate(table["id"])]
    table.to_csv(groups, index=False)
    said = audit(predictions, "--label", "y", "--prediction", "p", "--group", "sex", "--join", groups, "--on", "id")
    assert "370 of 400 rows (92.5%) matched" in said
    assert "30 have no group, 30 of them because leading zeros of the id differ;" in said
