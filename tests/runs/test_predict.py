"""`levelhead predict`: rows without labels, by a finished run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_own_csv import own, recipe  # noqa: F401  (a fixture)
from typer.testing import CliRunner

from levelhead.cli.app import app
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.predict import predict_file
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.types import ConfigError, DataError


@pytest.fixture
def run(own: Path, tmp_path: Path) -> Path:  # noqa: F811
    train_run(build_experiment(recipe(own, "erm")), tmp_path / "run")
    return tmp_path / "run"


def test_new_rows_get_what_evaluation_gives_to_the_same_texts(own: Path, run: Path, tmp_path: Path) -> None:  # noqa: F811
    evaluate_run(run, "test")
    known = pd.read_parquet(run / "predictions-test.parquet")
    rows = pd.read_csv(own / "letters.csv").iloc[known["id"].astype(int).to_numpy() - 1]
    new = tmp_path / "new.csv"
    rows.drop(columns="outcome").assign(group=["=a", "b"] * (len(rows) // 2) + ["=a"] * (len(rows) % 2)).to_csv(
        new, index=False
    )
    shutil.rmtree(own)  # the run's own data need not be there
    out = tmp_path / "predictions.csv"
    result = CliRunner().invoke(app, ["predict", str(run), str(new), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert f"Predicted {len(rows)} rows" in result.output
    assert "levelhead audit" in result.output
    found = pd.read_csv(out)
    assert list(found.columns[:3]) == ["letter", "message", "group"]
    assert found["group"].iloc[0] == "'=a"  # no spreadsheet runs it
    assert found["prediction"].tolist() == known["prediction"].tolist()
    np.testing.assert_allclose(found["probability_yes"], known["probability_yes"], atol=1e-5)


def test_pictures_lie_beside_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for at in range(60):
        shade = 60 + 120 * (at % 2)
        Image.fromarray(draw.integers(shade, shade + 60, (16, 16, 3), dtype=np.uint8)).save(folder / f"{at}.png")
    table = pd.DataFrame({"file": [f"{at}.png" for at in range(60)], "label": [f"c{at % 2}" for at in range(60)]})
    table.to_csv(folder / "labels.csv", index=False)
    experiment = build_experiment(
        {
            "data": {"name": "image-folder-csv", "folder": str(folder), "image_size": 16},
            "method": {"name": "erm"},
            "model": {"hidden_size": 8, "layers": 1, "heads": 1, "patch_size": 8, "image_size": 16},
            "train": {"epochs": 1, "batch_size": 16, "device": "cpu"},
        }
    )
    train_run(experiment, tmp_path / "run")
    table[["file"]].iloc[:7].to_csv(folder / "new.csv", index=False)
    found = predict_file(tmp_path / "run", folder / "new.csv")
    assert list(found.columns) == ["file", "prediction", "probability_c0", "probability_c1"]
    assert len(found) == 7
    (folder / "new.csv").write_text("file\n../run/config.yaml\n")
    with pytest.raises(DataError, match=r"new\.csv, row 1"):
        predict_file(tmp_path / "run", folder / "new.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("text\nhello\n", "message"),
        ("message\n", "no rows"),
        ("message,prediction\nhello,1\n", "already"),
        ("message,id\n   ,1\nhello,2\n", "empty"),
        ('message\nhello\n""\n', "1 of 2 texts are empty"),  # a row, which no prediction may lack
    ],
)
def test_a_table_that_cannot_be_predicted_says_why(run: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        predict_file(run, tmp_path / "new.csv")


def test_data_that_are_not_a_table_are_refused(tmp_path: Path) -> None:
    from levelhead.data import DATASETS

    with pytest.raises(ConfigError, match="model in the run's folder"):
        DATASETS["portraits"]().new_rows(tmp_path / "new.csv")
    with pytest.raises(DataError, match="not a run folder"):
        predict_file(tmp_path, tmp_path / "new.csv")
