"""Other options of a finished run's data: refused where rows of another split would be tested, and else taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from own_csv import letters, trained_on

from levelhead.data import SPLITS
from levelhead.runs.evaluate import _refuse_dealing_anew, evaluate_run
from levelhead.runs.folder import load_run
from levelhead.types import ConfigError

IN_ONE_OR_FOLDS = pytest.mark.parametrize("fold", [{}, {"folds": 5, "fold": 0}])


def table() -> pd.DataFrame:
    table = {name: [f"{name} {row}" for row in range(120)] for name in ("text", "other")}
    people = {"author": [f"p{row * 7 % 30}" for row in range(120)], "region": ["n", "s"] * 60}
    return pd.DataFrame(table | {"label": [0, 1] * 60} | people)


def refusal(folder: Path, data: dict[str, Any], *settings: str, split: Any = "test") -> str:
    """Return why a run on ``data`` cannot be evaluated with ``settings``; an empty text: it can."""
    folder.mkdir(exist_ok=True)
    config = {"data": data, "method": {"name": "erm"}, "model": {"backbone": "x"}, "train": {}, "seed": 0}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    try:
        _refuse_dealing_anew(folder, None, load_run(folder, None, settings), split)
    except ConfigError as error:
        return str(error)
    return ""


@IN_ONE_OR_FOLDS
def test_options_that_deal_the_rows_of_one_table_anew(tmp_path: Path, fold: dict[str, int]) -> None:
    table().to_csv(tmp_path / "one.csv", index=False)
    data = {"name": "text-csv", "folder": str(tmp_path), "file": "one.csv", "sensitive": [], **fold}
    for option in ("person_column=author", "text_column=other"):
        why = refusal(tmp_path / "run", data, "data.sensitive=region", f"data.{option}")
        assert why.startswith(f"--set data.{option.split('=')[0]} deals the rows of the run's own file to other splits")
        assert "test rows were of another split when the network was trained" in why
    for same in ("data.sensitive=region", "data.id_column=author", "data.validation_share=0.2"):
        assert not refusal(tmp_path / "run", data, same)
    assert bool(refusal(tmp_path / "run", data, "data.validation_share=0.2", split="validation"))
    if fold:
        assert "--set data.fold deals" in refusal(tmp_path / "run", data, "data.fold=1")
        assert not refusal(tmp_path / "run", data, "data.split_seed=3")  # a fold pools all splits


@IN_ONE_OR_FOLDS
def test_one_table_for_each_split_deals_nothing(tmp_path: Path, fold: dict[str, int]) -> None:
    rows = table()
    for split in SPLITS:
        own = rows.assign(text=split + rows["text"], other=split + rows["other"])
        own.to_csv(tmp_path / f"{split}.csv", index=False)
    data = {"name": "text-csv", "folder": str(tmp_path), "sensitive": [], **fold}
    assert not refusal(tmp_path / "run", data, "data.sensitive=region")
    for option in ("text_column=other", "person_column=author", "split_seed=3"):
        pooled_anew = bool(fold) and option != "split_seed=3"
        assert bool(refusal(tmp_path / "run", data, f"data.{option}")) == pooled_anew


@IN_ONE_OR_FOLDS
def test_a_set_of_the_hub_that_is_dealt_anew(tmp_path: Path, fold: dict[str, int]) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_pandas(table())
    whole.save_to_disk(str(tmp_path / "whole"))
    datasets.DatasetDict(train=whole, validation=whole, test=whole, late=whole).save_to_disk(str(tmp_path / "parts"))
    one = {"name": "hub", "path": str(tmp_path / "whole"), "text_column": "text", **fold}
    one |= {"validation_split": None, "test_split": None}
    assert "--set data.person_column deals" in refusal(tmp_path / "run", one, "data.person_column=author")
    assert not refusal(tmp_path / "run", one, "data.sensitive=region")
    if not fold:
        parts = {"name": "hub", "path": str(tmp_path / "parts"), "text_column": "text"}
        for same in ("text_column=other", "person_column=author", "test_split=late"):
            assert not refusal(tmp_path / "run", parts, f"data.{same}")
        settings = ("data.test_split=train", "data.train_split=late")
        assert "120 of 120 test rows were of another split" in refusal(tmp_path / "run", parts, *settings)


def test_a_data_set_without_places_refuses_options_that_always_deal(tmp_path: Path) -> None:
    folds = {"name": "portraits", "train_size": 40, "validation_size": 20, "test_size": 20, "folds": 4, "fold": 2}
    assert "some test rows were of another" in refusal(tmp_path / "run", folds, "data.fold=1")
    assert not refusal(tmp_path / "run", {"name": "utkface"}, "data.image_size=32")


def test_rows_of_another_file_that_were_trained_on_are_counted(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, rows = trained_on(own), pd.read_csv(own / "letters.csv")
    evaluate_run(run)
    assert "was trained on" not in caplog.text
    trained = load_run(run).data.examples("train").inputs.texts
    again = rows[rows["message"].isin(trained)].assign(letter="x")  # under another name, in another order
    again.sample(frac=1, random_state=0).to_csv(own / "again.csv", index=False)
    settings = ["data.file=again.csv", "data.test_share=0.5"]
    evaluate_run(run, settings=settings, out=own.parent / "other")
    asked = len(load_run(run, None, settings).data.examples("test").labels)
    assert f"{asked} of {asked} test rows (100%) hold an input that {run} was trained on" in caplog.text
    caplog.clear()
    rows.assign(message="new " + rows["message"]).to_csv(own / "new.csv", index=False)
    evaluate_run(run, settings=["data.file=new.csv"], out=own.parent / "third")
    assert not caplog.text


def test_own_test_texts_that_training_holds_too_are_counted(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = pd.read_csv(own / "letters.csv")["message"].tolist()
    split = ["test"] * 60 + ["validation"] * 30 + ["train"] * 70
    letters(own, message=texts[100:120] + texts[20:], split=split)
    evaluate_run(trained_on(own, split_column="split"))
    assert "20 of 60 test rows (33%) hold an input that" in caplog.text
