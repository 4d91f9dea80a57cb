"""One story of ids: the user's name, in every file of predictions, and groups joined by them in every verb."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from own_csv import letters, recipe, trained_on

import levelhead as lh
from command_line import run, said
from levelhead.data import SPLITS
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.joined import Join, required_groups
from levelhead.runs.recipe import build_experiment
from levelhead.storage import read_json
from levelhead.tables.join import both_ids
from levelhead.types import DataError

SITES = ["north", "south", "south", "north"] * 120


@pytest.fixture
def trained(own: Path, tmp_path: Path) -> Path:
    """A run on data without groups, whose ids are called "letter"; groups.csv calls them "id" and knows the site."""
    frame = letters(own, 3)
    sites = pd.DataFrame({"id": frame["letter"], "site": ["north", "south"] * 240, "age": range(480)})
    sites.loc[::2, "site"] = ["north", "south"] * 120
    sites[sites["id"] != "L007"].to_csv(tmp_path / "groups.csv", index=False)
    return trained_on(own, id_column="letter")


def test_the_users_name_of_the_ids_stands_in_the_predictions_of_every_split(trained: Path) -> None:
    for split in ("train", "test"):
        evaluate_run(trained, split)  # type: ignore[arg-type]
    numbers = []
    for split in SPLITS:
        frame = pd.read_parquet(trained / f"predictions-{split}.parquet")
        assert frame.columns[0] == "letter"
        assert "id" not in frame
        numbers += frame["letter"].str[1:].astype(int).tolist()
        assert (frame["label"] == ["yes" if int(one[1:]) % 2 else "no" for one in frame["letter"]]).all()
    assert sorted(numbers) == list(range(480))


def test_ids_that_are_called_like_another_column_stand_under_id(own: Path) -> None:
    for column in ("label", "prediction", "row", "probability_no"):
        assert build_experiment(recipe(own, id_column=column)).data.id_name == "id"
    assert build_experiment(recipe(own)).data.id_name == "id"


def test_ids_stand_in_the_predictions_of_folds(own: Path) -> None:
    frame = letters(own, 3, site=SITES)
    data = build_experiment(recipe(own, id_column="letter", sensitive="site", folds=3, fold=1)).data
    assert data.id_name == "letter"
    assert sorted(one for split in SPLITS for one in data.ids(split) or ()) == sorted(frame["letter"])
    by_id = dict(zip(frame["letter"], frame["message"], strict=True))
    texts = data.examples("test").inputs.texts  # type: ignore[attr-defined]
    assert [by_id[one] for one in data.ids("test") or ()] == list(texts)


def test_an_audit_of_a_run_folder_needs_no_column(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters(own, 3, site=SITES, code=[row % 12 for row in range(480)])
    folder = trained_on(own, id_column="letter", sensitive=["site", "code"])
    assert run("audit", folder) == 2
    assert "is not evaluated: run `levelhead evaluate" in said(capsys)
    assert isinstance(evaluate_run(folder), lh.AuditResult)
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
    assert "reads one group column, not site, code" in said(capsys)
    rule = ("postprocess", folder, "--group", "site", "--fit", folder)
    assert run(*rule) == 2
    assert "--split validation` first" in said(capsys)
    evaluate_run(folder, split="validation")
    columns = ("--label", "label", "--score", "probability_yes", "--positive", "yes")
    by_file = (*rule[:1], folder / "predictions-test.parquet", *rule[2:4], *columns)
    files = []
    for words in (rule, (*by_file, "--fit", folder / "predictions-validation.parquet")):
        assert run(*words, "--metric", "demographic_parity", "--json", tmp_path / "rule.json") == 0
        files.append(read_json(tmp_path / "rule.json")["against"])
    assert files[0] == files[1]


def test_groups_of_another_file_are_joined_in_audit_explain_evaluate_and_refit(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate_run(trained)
    joined = ("--join", tmp_path / "groups.csv", "--on", "letter=id", "--group", "site")
    predictions, file = trained / "predictions-test.parquet", tmp_path / "found.json"
    found = []
    for first in ((predictions, "--label", "label", "--prediction", "prediction"), (trained,)):
        assert run("audit", *first, *joined, "--json", file) == 0
        found.append(read_json(file)["by_attribute"]["site"])
        assert "rows (" in said(capsys)
    assert run("evaluate", trained, *joined) == 0
    found.append(read_json(trained / "evaluation-test.json")["by_attribute"]["site"])
    assert found[0]["metrics"] == found[1]["metrics"] == found[2]["metrics"]
    frame = pd.read_parquet(predictions)
    assert list(frame.columns[:2]) == ["letter", "label"]
    sites = pd.read_csv(tmp_path / "groups.csv").set_index("id")["site"]
    assert frame["site"].where(frame["site"].notna(), None).tolist() == [sites.get(one) for one in frame["letter"]]
    # The file's name of the ids suffices, since a run knows its own.
    assert run("evaluate", trained, *joined[:2], "--on", "id", "--group", "site") == 0
    evaluate_run(trained)  # without groups again
    for first in ((predictions, "--label", "label", "--score", "probability_yes"), (trained,)):
        assert run("explain", *first, *joined, "--json", file) == 0
        assert read_json(file)["by_attribute"].keys() == {"site"}
    methods = ("--method", "few-label,dfr", "--try", "method.rows=30", "--try", "method.smallest_group=2")
    capsys.readouterr()
    assert run("refit", trained, *methods, *joined, "--out", tmp_path / "refit") == 0
    assert "dfr, smallest_group 2" in said(capsys)
    assert run("table", trained, tmp_path / "refit") == 0


def test_both_sides_of_the_ids_are_named() -> None:
    assert both_ids("a=b") == ("a", "b")
    assert both_ids("a=b", ["a=b"]) == ("a=b", None)
    assert both_ids("a") == ("a", None)


@pytest.fixture
def numbered(own: Path) -> Path:
    """The letters in one table for each split, and test.groups.csv with the site of each test row, by its number."""
    frame = letters(own, 3, site=SITES)
    for split, part in zip(SPLITS, (frame[:240], frame[240:360], frame[360:]), strict=True):
        part.to_csv(own / f"{split}.csv", index=False)
    pd.DataFrame({"id": range(1, 121), "site": frame["site"][360:]}).to_csv(own / "test.groups.csv", index=False)
    return own


def test_row_numbers_of_several_tables_are_no_ids_of_a_fold(numbered: Path) -> None:
    folds = {"folds": 3, "fold": 1}
    for data, known in (({"file": None}, False), ({"file": None, "id_column": "letter"}, True), ({}, True)):
        ids = build_experiment(recipe(numbered, **(folds | data))).data.ids("test")
        assert (ids is not None) == known
        assert len(set(ids or ())) == len(ids or ())
    data = build_experiment(recipe(numbered, file=None, **folds)).data
    with pytest.raises(DataError, match=r"Add --set data\.id_column=COLUMN and --out FOLDER"):
        Join(numbered / "test.groups.csv", ("site",)).groups(data, "test")


def test_row_numbers_do_not_join_groups_of_test_rows_to_validation_rows(
    numbered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained_on(numbered, file=None)
    joined, out = ("--join", numbered / "test.groups.csv", "--group", "site"), tmp_path / "refit"
    assert run("evaluate", folder, *joined) == 0
    sites = pd.read_csv(numbered / "test.csv")["site"].tolist()
    assert pd.read_parquet(folder / "predictions-test.parquet")["site"].tolist() == sites
    capsys.readouterr()
    assert run("refit", folder, "--method", "dfr", *joined, "--out", out) == 2
    assert "cannot tell validation rows from test rows" in said(capsys)
    assert not out.exists()
    assert run("refit", folder, "--method", "afr", *joined, "--out", out) == 0  # sees no group
    join, named = Join(numbered / "test.groups.csv", ("site",), "id"), recipe(numbered, file=None, id_column="letter")
    with pytest.raises(DataError, match="No id of the validation split"):  # a column of ids is taken at its word
        required_groups(build_experiment(named).data, "validation", join)
