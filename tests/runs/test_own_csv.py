"""A user's own csv that holds nobody's group: train, evaluate, page, card, and groups joined afterwards."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from own_csv import FOUR, letters, recipe, trained_on

import levelhead as lh
from command_line import run, said
from levelhead.auditing.of_run import own_predictions
from levelhead.auditing.overall import NOBODYS_GROUP, Overall
from levelhead.data import DATASETS
from levelhead.runs.card import model_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.page import run_page
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json, warn_of_rehearsal
from levelhead.types import DataError


def test_from_a_csv_without_groups_to_page_and_card(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained_on(own, "dam", id_column="letter")
    result = evaluate_run(folder)
    assert isinstance(result, Overall)
    assert NOBODYS_GROUP.split(":")[0] in " ".join(result.text(all=True).split())
    predictions = pd.read_parquet(folder / "predictions-test.parquet")
    assert list(predictions.columns) == ["letter", "label", "prediction", "probability_no", "probability_yes"]
    numbers = predictions["letter"].str[1:].astype(int)
    written, right = read_json(folder / "evaluation-test.json"), predictions["label"] == predictions["prediction"]
    assert written["overall"]["accuracy"]["value"] == pytest.approx(right.mean())
    assert written["run"]["attribute"] is None
    card = model_card(folder)
    for words in ("- Task: predict the column outcome", "No groups are known.", "| Group | Rows | Recall |"):
        assert words in card
    page = tmp_path / "page.html"
    assert run("report", folder, "--html", page) == 0
    assert "No groups are known" in page.read_text()
    assert lh.from_pretrained(folder / "model").config.num_labels == 2
    assert run("table", folder) != 0
    assert "was evaluated without groups" in said(capsys)
    # Groups that were joined on one split are not denied because another has none.
    regions = pd.DataFrame({"letter": predictions["letter"], "region": np.where(numbers % 3, "north", "south")})
    regions.to_csv(tmp_path / "regions.csv", index=False)
    joined = ("--join", tmp_path / "regions.csv", "--group", "region", "--min-count", "1")
    assert run("evaluate", folder, *joined) == run("evaluate", folder, "--split", "validation") == 0
    assert "Groups of the data set, as annotated: region." in model_card(folder)


def test_rows_without_an_id_column_are_numbered_as_in_the_file(own: Path) -> None:
    data = DATASETS["text-csv"](folder=str(own), file="letters.csv", text_column="message", target="outcome")
    table = pd.read_csv(own / "letters.csv")
    found: list[str] = []
    for split in ("train", "validation", "test"):
        ids = data.ids(split)
        assert [table["message"][int(number) - 1] for number in ids] == list(data.examples(split).inputs.texts)
        found += ids
    assert sorted(map(int, found)) == list(range(1, 161))


@pytest.mark.parametrize("sensitive", [[], "", "group"])
def test_no_group_column_is_no_group(own: Path, sensitive: object, caplog: pytest.LogCaptureFixture) -> None:
    data = build_experiment(recipe(own, sensitive=sensitive)).data
    data.check()
    assert data.groups("test") == ()
    assert not caplog.text


def test_figures_of_all_rows() -> None:
    labels = torch.tensor([0, 0, 0, 1]).numpy()
    probabilities = np.array([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0]])
    found = Overall.of(labels, probabilities, ("a", "b", "c"))
    assert found.accuracy.value == 0.75
    assert found.by_class["a"]["recall"].value == pytest.approx(2 / 3)
    assert found.by_class["b"]["precision"].value == 0.5
    assert found.by_class["c"]["recall"].reason == "no row has this class"
    assert found.by_class["c"]["precision"].reason == "the model never predicts this class"
    assert found.by_class["a"]["calibration"].value == pytest.approx((0.9 + 0.8 + 0.4 + 0.3) / 4 - 0.75)
    alone = Overall.of(labels[:1], probabilities[:1], ("a", "b", "c"))
    assert alone.by_class["a"]["calibration"].reason == "a single row"


def test_other_data_is_evaluated_into_a_folder_of_its_own(own: Path, tmp_path: Path) -> None:
    folder, out = trained_on(own, "dam"), tmp_path / "other"
    evaluate_run(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    frame = pd.read_csv(own / "letters.csv").assign(site=FOUR * 40)
    frame.to_parquet(own / "other.parquet")
    settings = ("data.file=other.parquet", "data.sensitive=site", "data.split_seed=3")
    result = evaluate_run(folder, settings=settings, out=out)
    assert isinstance(result, lh.AuditResult)
    assert sorted(result.groups) == ["north", "south"]
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before
    assert sorted(file.name for file in out.iterdir()) == ["evaluation-test.json", "predictions-test.parquet"]
    frame.assign(outcome=["No", "yes."] * 80).to_parquet(own / "other.parquet")
    with pytest.raises(DataError, match="was trained to tell no, yes, and the test split now has") as refused:
        evaluate_run(folder, settings=settings, out=out)
    typed = shlex.split(str(refused.value))
    one = typed[typed.index("--set") + 1].replace("THERE: TRAINED", "'No': 'no', yes.: 'yes'")
    assert evaluate_run(folder, settings=(*settings, one), out=out).metrics == result.metrics


def test_texts_of_a_set_from_the_hub_are_trained_on_and_evaluated(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "library")
    frame = pd.read_csv(own / "letters.csv").assign(site=FOUR * 40)
    (own / "letters.csv").unlink()
    for split, part in (("train", slice(0, 100)), ("test", slice(100, 160))):
        frame[part].to_parquet(own / f"{split}.parquet")
    data = {"name": "hub", "path": str(own), "text_column": "message", "target": "outcome", "id_column": "letter"}
    experiment = build_experiment(recipe(own) | {"data": {**data, "sensitive": "site", "validation_split": None}})
    train_run(experiment, tmp_path / "run")
    result = evaluate_run(tmp_path / "run")
    assert isinstance(result, lh.AuditResult)
    assert sorted(result.groups) == ["north", "south"]
    predictions = pd.read_parquet(tmp_path / "run" / "predictions-test.parquet")
    assert predictions["letter"].tolist() == frame["letter"][100:].tolist()


def test_a_rehearsal_is_called_one_wherever_it_is_read(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_rehearsal.cache_clear()  # it is said once in a process
    folder = trained_on(own, train={"max_steps": 3})
    evaluate_run(folder)
    words = "A rehearsal: each stage stopped after 3 steps"
    assert words in caplog.text
    assert f"- {words}" in model_card(folder)
    assert any(words in one for one in run_page(folder)["cautions"])
    warn_of_rehearsal.cache_clear()
    caplog.clear()
    assert own_predictions(folder) is not None  # what audit, explain and postprocess read
    assert words in caplog.text


def test_an_evaluation_says_that_rows_have_changed_since_the_training(
    own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, file = trained_on(own, id_column="letter"), own / "letters.csv"
    evaluate_run(folder)
    assert "have changed" not in caplog.text
    kept = pd.read_parquet(folder / "predictions-validation.parquet")["letter"]
    frame = pd.read_csv(file)
    changed = frame["message"].where(frame["letter"] != kept[0], frame["message"] + " indeed")
    letters(own, message=changed)  # which deals it to another split, perhaps
    evaluate_run(folder)
    assert "validation rows have changed since" in caplog.text
    caplog.clear()
    evaluate_run(folder, settings=[f"data.file={file}"], out=tmp_path / "other")
    assert "have changed" not in caplog.text
