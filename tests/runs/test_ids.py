"""One story of ids: the user's name, in every file of predictions, and groups joined by them in every verb."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from test_own_csv import own, recipe

import levelhead as lh
from command_line import run, said
from levelhead.data import DATASETS, SPLITS
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.joined import Join, required_groups
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.tables.join import both_ids
from levelhead.types import ConfigError, DataError

__all__ = ["own"]


def enlarge(own: Path, **columns: object) -> pd.DataFrame:
    """Write the csv of letters three times as long, so that groups have enough rows; return it."""
    frame = pd.concat([pd.read_csv(own / "letters.csv")] * 3, ignore_index=True)
    frame = frame.assign(letter=[f"L{row:03d}" for row in range(480)], **columns)
    frame["message"] = [f"{text} {row}" for row, text in enumerate(frame["message"])]
    frame.to_csv(own / "letters.csv", index=False)
    return frame


@pytest.fixture
def trained(own: Path, tmp_path: Path) -> Path:
    """A run on data without groups, whose ids are called "letter"; groups.csv calls them "id" and knows the site."""
    frame = enlarge(own)
    sites = pd.DataFrame({"id": frame["letter"], "site": ["north", "south"] * 240, "age": range(480)})
    sites.loc[::2, "site"] = ["north", "south"] * 120
    sites[sites["id"] != "L007"].to_csv(tmp_path / "groups.csv", index=False)
    folder = tmp_path / "run"
    train_run(build_experiment(recipe(own, "erm", id_column="letter")), folder)
    return folder


def test_the_users_name_of_the_ids_stands_in_the_predictions_of_every_split(trained: Path) -> None:
    for split in ("train", "test"):
        evaluate_run(trained, split)  # type: ignore[arg-type]
    numbers = []
    for split in ("train", "validation", "test"):
        frame = pd.read_parquet(trained / f"predictions-{split}.parquet")
        assert frame.columns[0] == "letter"
        assert "id" not in frame
        numbers += frame["letter"].str[1:].astype(int).tolist()
        assert (frame["label"] == ["yes" if int(one[1:]) % 2 else "no" for one in frame["letter"]]).all()
    assert sorted(numbers) == list(range(480))


@pytest.mark.parametrize("column", ["label", "prediction", "row", "probability_no"])
def test_ids_that_are_called_like_another_column_stand_under_id(own: Path, column: str) -> None:
    data = build_experiment(recipe(own, id_column=column)).data
    assert data.id_name == "id"
    assert build_experiment(recipe(own)).data.id_name == "id"


def test_ids_stand_in_the_predictions_of_folds(own: Path, tmp_path: Path) -> None:
    frame = enlarge(own, site=["north", "south", "south", "north"] * 120)
    data = build_experiment(recipe(own, id_column="letter", sensitive="site", folds=3, fold=1)).data
    assert data.id_name == "letter"
    ids = [one for split in ("train", "validation", "test") for one in data.ids(split) or ()]
    assert sorted(ids) == sorted(frame["letter"])
    texts = data.examples("test").inputs.texts  # type: ignore[attr-defined]
    by_id = dict(zip(frame["letter"], frame["message"], strict=True))
    assert [by_id[one] for one in data.ids("test") or ()] == list(texts)


def test_an_audit_of_a_run_folder_needs_no_column(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enlarge(own, site=["north", "south", "south", "north"] * 120, code=[row % 12 for row in range(480)])
    folder = tmp_path / "run"
    train_run(build_experiment(recipe(own, "erm", id_column="letter", sensitive=["site", "code"])), folder)
    assert run("audit", folder) == 2
    assert "is not evaluated: run `levelhead evaluate" in said(capsys)
    evaluated = evaluate_run(folder)
    assert isinstance(evaluated, lh.AuditResult)
    assert run("audit", folder, "--json", tmp_path / "audit.json") == 0
    audited, written = read_json(tmp_path / "audit.json"), read_json(folder / "evaluation-test.json")
    assert audited["by_attribute"].keys() == {"site", "code"}
    assert audited["positive"] == written["positive"] == "yes"
    for attribute in ("site", "code"):
        assert audited["by_attribute"][attribute]["metrics"] == written["by_attribute"][attribute]["metrics"]
    assert run("audit", folder, "--score", "probability_yes", "--group", "site") == 0
    assert run("explain", folder, "--group", "site", "--json", tmp_path / "explained.json") == 0
    assert read_json(tmp_path / "explained.json")["by_attribute"].keys() == {"site"}
    capsys.readouterr()
    assert run("postprocess", folder) == 2
    assert "missing: --group. Groups of the run: site, code." in said(capsys)
    rule = ("postprocess", folder, "--group", "site", "--validation", folder)
    assert run(*rule) == 2
    assert "--split validation` first" in said(capsys)
    evaluate_run(folder, split="validation")
    columns = ("--label", "label", "--score", "probability_yes", "--positive", "yes", "--id", "letter")
    by_file = (*rule[:1], folder / "predictions-test.parquet", *rule[2:4], *columns)
    files = []
    for words in (rule, (*by_file, "--validation", folder / "predictions-validation.parquet")):
        assert run(*words, "--metric", "demographic_parity", "--out", tmp_path / "decisions.csv") == 0
        files.append((tmp_path / "decisions.csv").read_text())
    assert files[0] == files[1]
    assert files[0].startswith("letter,before,after,fitted")


def test_groups_of_another_file_are_joined_in_audit_explain_evaluate_and_refit(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate_run(trained)
    joined = ("--join", tmp_path / "groups.csv", "--on", "letter=id", "--group", "site")
    predictions = trained / "predictions-test.parquet"
    columns = ("--label", "label", "--prediction", "prediction")
    found = []
    for first in ((predictions, *columns), (trained,)):
        assert run("audit", *first, *joined, "--json", tmp_path / "audit.json") == 0
        found.append(read_json(tmp_path / "audit.json")["by_attribute"]["site"])
        assert "rows (" in said(capsys)
    assert run("evaluate", trained, *joined) == 0
    found.append(read_json(trained / "evaluation-test.json")["by_attribute"]["site"])
    assert found[0]["metrics"] == found[1]["metrics"] == found[2]["metrics"]
    frame = pd.read_parquet(predictions)
    assert list(frame.columns[:2]) == ["letter", "label"]
    sites = pd.read_csv(tmp_path / "groups.csv").set_index("id")["site"]
    assert frame["site"].where(frame["site"].notna(), None).tolist() == [sites.get(one) for one in frame["letter"]]
    # The file's name of the ids suffices, since a run knows its own.
    assert run("evaluate", trained, "--join", tmp_path / "groups.csv", "--on", "id", "--group", "site") == 0
    score = ("--label", "label", "--score", "probability_yes")
    evaluate_run(trained)  # without groups again
    for first in ((predictions, *score), (trained,)):
        assert run("explain", *first, *joined, "--json", tmp_path / "explained.json") == 0
        assert read_json(tmp_path / "explained.json")["by_attribute"].keys() == {"site"}
    methods = ("--method", "few-label,dfr", "--few-groups", 30, "--try", "method.smallest_group=2")
    capsys.readouterr()
    assert run("refit", trained, *methods, *joined, "--out", tmp_path / "refit") == 0
    assert "dfr, smallest_group 2" in said(capsys)
    assert run("table", trained, tmp_path / "refit") == 0


def test_what_cannot_be_joined_is_said_without_a_temporary_path(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--join needs --group"):
        Join(tmp_path / "groups.csv", ())
    with pytest.raises(ConfigError, match="is also a column of a run's predictions"):
        Join(tmp_path / "groups.csv", ("label",))
    for columns, on, message in ((("site",), "nobody", "no column 'nobody'"), (("sex",), "id", "leave out --join")):
        with pytest.raises((ConfigError, DataError), match=message) as told:
            evaluate_run(trained, join=Join(tmp_path / "groups.csv", columns, on))
        assert "tmp/tmp" not in str(told.value)
    (tmp_path / "other.csv").write_text("id,site\n1,north\n2,south\n")
    with pytest.raises(DataError, match="No id of the test split is in") as told:
        evaluate_run(trained, join=Join(tmp_path / "other.csv", ("site",), "id"))
    assert "parquet" not in str(told.value)
    assert not (trained / "evaluation-test.json").exists()


@pytest.mark.parametrize("on", ["=id", "letter=", "="])
def test_both_sides_of_the_ids_are_named(on: str) -> None:
    with pytest.raises(ConfigError, match="name a column on both sides"):
        both_ids(on)
    assert both_ids("a=b") == ("a", "b")
    assert both_ids("a=b", ["a=b"]) == ("a=b", None)
    assert both_ids("a") == ("a", None)


@pytest.fixture
def numbered(own: Path) -> Path:
    """The letters in one table for each split, and test.groups.csv with the site of each test row, by its number."""
    frame = enlarge(own, site=["north", "south", "south", "north"] * 120)
    for split, part in zip(SPLITS, (frame[:240], frame[240:360], frame[360:]), strict=True):
        part.to_csv(own / f"{split}.csv", index=False)
    sites = {"id": range(1, 121), "site": frame["site"][360:]}
    pd.DataFrame(sites).to_csv(own / "test.groups.csv", index=False)
    return own


def test_row_numbers_of_several_tables_are_no_ids_of_a_fold(numbered: Path) -> None:
    folds = {"folds": 3, "fold": 1}
    for data, known in (({"file": None}, False), ({"file": None, "id_column": "letter"}, True), ({}, True)):
        experiment = build_experiment(recipe(numbered, **(folds | data)))
        ids = experiment.data.ids("test")
        assert (ids is not None) == known
        assert len(set(ids or ())) == len(ids or ())
    data = build_experiment(recipe(numbered, file=None, **folds)).data
    with pytest.raises(DataError, match=r"Add --set data\.id_column=COLUMN and --out FOLDER"):
        Join(numbered / "test.groups.csv", ("site",)).groups(data, "test")


def test_row_numbers_do_not_join_groups_of_test_rows_to_validation_rows(
    numbered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    train_run(build_experiment(recipe(numbered, "erm", file=None)), folder)
    joined = ("--join", numbered / "test.groups.csv", "--group", "site")
    assert run("evaluate", folder, *joined) == 0
    sites = pd.read_csv(numbered / "test.csv")["site"].tolist()
    assert pd.read_parquet(folder / "predictions-test.parquet")["site"].tolist() == sites
    capsys.readouterr()
    assert run("refit", folder, "--method", "dfr", *joined, "--out", tmp_path / "refit") == 2
    assert "cannot tell validation rows from test rows" in said(capsys)
    assert not (tmp_path / "refit").exists()
    assert run("refit", folder, "--method", "afr", *joined, "--out", tmp_path / "refit") == 0  # sees no group
    join, named = Join(numbered / "test.groups.csv", ("site",), "id"), recipe(numbered, file=None, id_column="letter")
    with pytest.raises(DataError, match="No id of the validation split"):  # a column of ids is taken at its word
        required_groups(build_experiment(named).data, "validation", join)


def test_row_numbers_of_a_set_of_the_hub(tmp_path: Path) -> None:
    whole = DATASETS["hub"](path=str(tmp_path), validation_split=None, test_split=None)
    assert not whole.numbered_by_split  # of one split, which deals all
    assert DATASETS["hub"](path=str(tmp_path), validation_split=None).numbered_by_split
    assert not DATASETS["hub"](path=str(tmp_path), id_column="name").numbered_by_split
