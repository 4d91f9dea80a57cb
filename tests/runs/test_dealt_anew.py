"""Other options of a finished run's data: refused where rows of another split would be tested, and else taken."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml
from own_csv import letters, trained_on

from levelhead.runs.evaluate import _refuse_dealing_anew, evaluate_run
from levelhead.runs.folder import load_run
from levelhead.types import ConfigError


@pytest.mark.parametrize("fold", [{}, {"folds": 5, "fold": 0}])
@pytest.mark.parametrize("split", [None, "split"])
def test_options_that_deal_the_rows_of_one_table_anew(tmp_path: Path, fold: dict[str, int], split: str | None) -> None:
    data = {"name": "text-csv", "folder": str(tmp_path), "file": "one.csv", "split_column": split, **fold}
    config = {"data": data, "method": {"name": "erm"}, "model": {"backbone": "x"}, "train": {}, "seed": 0}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    def refused(*settings: str) -> bool:
        try:
            _refuse_dealing_anew(tmp_path, load_run(tmp_path, None, settings))
        except ConfigError:
            return True
        return False

    assert not refused("data.sensitive=region", "data.id_column=author")
    assert not refused("data.file=other.csv", "data.test_share=0.5")
    assert refused("data.split_column=other")
    for option in ("person_column=author", "text_column=other"):
        assert refused("data.sensitive=region", f"data.{option}") == (split is None)
    assert refused("data.fold=1" if fold else "data.split_seed=3")


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
