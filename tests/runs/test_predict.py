"""`levelhead predict`: rows without labels, by a finished run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_csv import trained_on
from test_init import draw

from command_line import run, said
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.predict import predict_file
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.types import DataError


def test_new_rows_get_what_evaluation_gives_to_the_same_texts(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, new, out = trained_on(own), tmp_path / "new.csv", tmp_path / "predictions.csv"
    evaluate_run(folder, "test")
    known = pd.read_parquet(folder / "predictions-test.parquet")
    rows = pd.read_csv(own / "letters.csv").iloc[known["id"].astype(int).to_numpy() - 1]
    rows.drop(columns="outcome").assign(group=["=a", *["b"] * (len(rows) - 1)]).to_csv(new, index=False)
    shutil.rmtree(own)  # the run's own data need not be there
    assert run("predict", folder, new, "--out", out) == 0
    printed = said(capsys)
    assert f"Predicted {len(rows)} rows" in printed
    assert "levelhead audit" in printed
    found = pd.read_csv(out)
    assert list(found.columns[:3]) == ["letter", "message", "group"]
    assert found["group"].iloc[0] == "'=a"  # no spreadsheet runs it
    assert found["prediction"].tolist() == known["prediction"].tolist()
    np.testing.assert_allclose(found["probability_yes"], known["probability_yes"], atol=1e-5)


def test_pictures_lie_beside_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    draw(folder := tmp_path / "pictures", range(60))
    table = pd.DataFrame({"file": [f"{at}.png" for at in range(60)], "label": [f"c{at % 2}" for at in range(60)]})
    table.to_csv(folder / "labels.csv", index=False)
    plan = {
        "data": {"name": "image-folder-csv", "folder": str(folder), "image_size": 16},
        "method": {"name": "erm"},
        "model": {"hidden_size": 8, "layers": 1, "heads": 1, "patch_size": 8, "image_size": 16},
        "train": {"epochs": 1, "batch_size": 16, "device": "cpu"},
    }
    train_run(build_experiment(plan), tmp_path / "run")
    table[["file"]].iloc[:7].to_csv(folder / "new.csv", index=False)
    found = predict_file(tmp_path / "run", folder / "new.csv")
    assert list(found.columns) == ["file", "prediction", "probability_c0", "probability_c1"]
    assert len(found) == 7
    (folder / "new.csv").write_text("file\n../run/config.yaml\n")
    with pytest.raises(DataError, match=r"new\.csv, row 1"):
        predict_file(tmp_path / "run", folder / "new.csv")
