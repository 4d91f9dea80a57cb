"""A user's own csv that holds nobody's group: train, evaluate, page, card, and groups joined afterwards."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import levelhead as lh
from levelhead.auditing.of_run import own_predictions
from levelhead.auditing.overall import NOBODYS_GROUP, Overall
from levelhead.cli.app import app
from levelhead.data import DATASETS
from levelhead.data.phrases import vocabulary
from levelhead.runs.card import model_card
from levelhead.runs.data_check import look_at
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.page import run_page
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import warn_of_rehearsal
from levelhead.types import ConfigError, DataError
from words import save_tiny_backbone

WORDS = sorted(word for word in vocabulary() if word.isalpha())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a csv of 160 short texts: an id, a text, a label, and no group."""
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    folder = tmp_path / "mine"
    folder.mkdir()
    with (folder / "letters.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["letter", "message", "outcome"])
        for row in range(160):
            words = list(generator.choice(WORDS, 6))
            writer.writerow(
                [f"L{row:03d}", " ".join([*words, "pleased" if row % 2 else "annoyed"]), ["no", "yes"][row % 2]]
            )
    save_tiny_backbone(tmp_path / "backbone", vocabulary())
    return folder


def recipe(own: Path, method: str = "dam", **data: object) -> dict[str, object]:
    columns = {"folder": str(own), "file": "letters.csv", "text_column": "message", "target": "outcome"}
    return {
        "data": {"name": "text-csv", **columns, **data},
        "method": {"name": method},
        "model": {"backbone": str(own.parent / "backbone")},
        "train": {"epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "device": "cpu"},
    }


def test_from_a_csv_without_groups_to_page_and_card(own: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(build_experiment(recipe(own, id_column="letter")), run)
    result = evaluate_run(run)
    assert isinstance(result, Overall)
    assert NOBODYS_GROUP.split(":")[0] in " ".join(result.text(all=True).split())
    predictions = pd.read_parquet(run / "predictions-test.parquet")
    assert list(predictions.columns) == ["letter", "label", "prediction", "probability_no", "probability_yes"]
    numbers = predictions["letter"].str[1:].astype(int)
    assert (predictions["label"] == np.where(numbers % 2, "yes", "no")).all()
    written = json.loads((run / "evaluation-test.json").read_text())
    assert written["overall"]["accuracy"]["value"] == pytest.approx(
        (predictions["label"] == predictions["prediction"]).mean()
    )
    assert written["run"]["attribute"] is None
    card = model_card(run)
    assert "- Task: predict the column outcome" in card
    assert "No groups are known." in card
    assert "of its rows found" in card
    page = tmp_path / "page.html"
    answer = CliRunner().invoke(app, ["report", str(run), "--html", str(page)])
    assert answer.exit_code == 0, answer.output
    assert "No groups are known" in page.read_text()
    assert lh.from_pretrained(run / "model").config.num_labels == 2
    answer = CliRunner().invoke(app, ["table", str(run)])
    assert answer.exit_code != 0
    assert "was evaluated without groups" in str(answer.exception)
    # Groups that were joined on one split are not denied because another has none.
    letters = pd.DataFrame({"letter": predictions["letter"], "region": np.where(numbers % 3, "north", "south")})
    letters.to_csv(tmp_path / "regions.csv", index=False)
    command = ["evaluate", str(run), "--min-count", "1", "--join", str(tmp_path / "regions.csv"), "--group", "region"]
    for one in (command, ["evaluate", str(run), "--split", "validation"]):
        answer = CliRunner().invoke(app, one)
        assert answer.exit_code == 0, answer.output
    assert "Groups of the data set, as annotated: region." in model_card(run)


def test_rows_without_an_id_column_are_numbered_as_in_the_file(own: Path) -> None:
    data = DATASETS["text-csv"](folder=str(own), file="letters.csv", text_column="message", target="outcome")
    table = pd.read_csv(own / "letters.csv")
    found: list[str] = []
    for split in ("train", "validation", "test"):
        texts = data.examples(split).inputs.texts
        ids = data.ids(split)
        assert [table["message"][int(number) - 1] for number in ids] == list(texts)
        found += ids
    assert sorted(map(int, found)) == list(range(1, 161))


@pytest.mark.parametrize("sensitive", [[], "", "group"])
def test_no_group_column_is_no_group(own: Path, sensitive: object, caplog: pytest.LogCaptureFixture) -> None:
    data = build_experiment(recipe(own, sensitive=sensitive)).data
    data.check()
    assert data.groups("test") == ()
    assert not caplog.text
    with pytest.raises(ConfigError, match=r"This needs groups: name their column in data\.sensitive"):
        data.require_groups("test")


def test_a_column_that_is_named_and_absent_shows_before_any_work(own: Path, tmp_path: Path) -> None:
    train_run(build_experiment(recipe(own, sensitive="gender")), tmp_path / "run")
    with pytest.raises(DataError, match="gender"):
        evaluate_run(tmp_path / "run")


def test_a_method_that_sees_groups_is_refused_before_training(own: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="This needs groups"):
        train_run(build_experiment(recipe(own, "group-dro")), tmp_path / "run")
    assert not (tmp_path / "run" / "log.jsonl").exists()


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
    assert (
        Overall.of(labels[:1], probabilities[:1], ("a", "b", "c")).by_class["a"]["calibration"].reason == "a single row"
    )


def test_other_data_is_evaluated_into_a_folder_of_its_own(own: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "other"
    train_run(build_experiment(recipe(own)), run)
    evaluate_run(run)
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    frame = pd.read_csv(own / "letters.csv").assign(site=["north", "north", "south", "south"] * 40)
    frame.to_parquet(own / "other.parquet")
    settings = ("data.file=other.parquet", "data.sensitive=site", "data.split_seed=3")
    result = evaluate_run(run, settings=settings, out=out)
    assert isinstance(result, lh.AuditResult)
    assert sorted(result.groups) == ["north", "south"]
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before
    assert sorted(file.name for file in out.iterdir()) == ["evaluation-test.json", "predictions-test.parquet"]
    for wrong in (("model.max_length=3",), ("method.name=erm",), ("seed=3",), ("train.epochs=1",)):
        with pytest.raises(ConfigError, match="only the data of a finished run can change"):
            evaluate_run(run, settings=wrong, out=out)
    with pytest.raises(ConfigError, match=r"data.split_seed deals the rows of the run's own file to other splits"):
        evaluate_run(run, settings=("data.split_seed=3",), out=out)
    pd.read_csv(own / "letters.csv").assign(other=[f"other {row}" for row in range(160)]).to_csv(
        own / "letters.csv", index=False
    )
    with pytest.raises(ConfigError, match=r"data.text_column deals the rows of the run's own file to other splits"):
        evaluate_run(run, settings=("data.text_column=other",), out=out)
    with pytest.raises(ConfigError, match="--set and --out go together"):
        evaluate_run(run, settings=settings)
    with pytest.raises(ConfigError, match="--set and --out go together"):
        evaluate_run(run, out=out)
    frame.assign(outcome=["a", "b"] * 80).to_parquet(own / "other.parquet")
    with pytest.raises(DataError, match="was trained to tell no, yes, and the test split now has") as refused:
        evaluate_run(run, settings=settings, out=out)
    assert "same classes" not in str(refused.value)
    frame.assign(outcome=["No", "yes."] * 80).to_parquet(own / "other.parquet")
    with pytest.raises(DataError, match="If these are the same classes") as refused:
        evaluate_run(run, settings=settings, out=out)
    typed = shlex.split(str(refused.value))
    one = typed[typed.index("--set") + 1]
    assert one == 'data.label_map={"No": "no", "yes.": "yes"}'
    assert evaluate_run(run, settings=(*settings, one), out=out).metrics == result.metrics


def test_texts_of_a_set_from_the_hub_are_looked_at_trained_and_evaluated(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "library")
    frame = pd.read_csv(own / "letters.csv").assign(site=["north", "north", "south", "south"] * 40)
    (own / "letters.csv").unlink()
    for split, part in (("train", slice(0, 100)), ("test", slice(100, 160))):
        frame[part].to_parquet(own / f"{split}.parquet")
    data = {"name": "hub", "path": str(own), "text_column": "message", "target": "outcome", "id_column": "letter"}
    plan = {**recipe(own), "data": {**data, "sensitive": "site", "validation_split": None}}
    experiment = build_experiment(plan)
    look = look_at(experiment)
    assert [sum(count) for count in zip(*look.counts.values(), strict=True)][2] == 60
    assert look.said[:2] == [
        "Training opens 'message' (the text), 'outcome' (the class).",
        "Only evaluation opens 'site', 'letter' (the id).",
    ]
    train_run(experiment, tmp_path / "run")
    result = evaluate_run(tmp_path / "run")
    assert isinstance(result, lh.AuditResult)
    assert sorted(result.groups) == ["north", "south"]
    predictions = pd.read_parquet(tmp_path / "run" / "predictions-test.parquet")
    assert predictions["letter"].tolist() == frame["letter"][100:].tolist()
    assert "predict the column outcome" in model_card(tmp_path / "run")


def test_a_rehearsal_is_called_one_wherever_it_is_read(
    own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, asked = tmp_path / "run", recipe(own, "erm")
    warn_of_rehearsal.cache_clear()  # it is said once in a process
    train_run(build_experiment({**asked, "train": {**asked["train"], "max_steps": 3}}), run)  # type: ignore[dict-item]
    evaluate_run(run)
    assert "A rehearsal: each stage stopped after 3 steps" in caplog.text
    said = "A rehearsal: each stage stopped after 3 steps (train.max_steps). Its figures are no result."
    assert f"- {said}" in model_card(run)
    assert said in run_page(run)["cautions"]
    warn_of_rehearsal.cache_clear()
    caplog.clear()
    assert own_predictions(run) is not None  # what audit, explain and postprocess read
    assert said in caplog.text


def test_an_evaluation_says_that_rows_have_changed_since_the_training(
    own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, file = tmp_path / "run", own / "letters.csv"
    train_run(build_experiment(recipe(own, "erm", id_column="letter")), run)
    evaluate_run(run)
    assert "have changed" not in caplog.text
    frame = pd.read_csv(file)
    kept = pd.read_parquet(run / "predictions-validation.parquet")["letter"]
    frame.loc[frame["letter"] == kept[0], "message"] += " indeed"  # which deals it to another split, perhaps
    frame.to_csv(file, index=False)
    evaluate_run(run)
    assert "validation rows have changed since" in caplog.text
    caplog.clear()
    evaluate_run(run, settings=[f"data.file={file}"], out=tmp_path / "other")
    assert "have changed" not in caplog.text
