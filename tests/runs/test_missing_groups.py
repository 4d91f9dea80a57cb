"""Rows without a group, and groups without a class, in evaluate, refit and compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from own_csv import letters, recipe, trained_on

import levelhead as lh
from command_line import run, said
from levelhead.bench.checks import check_cells
from levelhead.bench.grid import compare_methods, make_cells
from levelhead.data import DATASETS
from levelhead.methods import Method, Stage
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import DataError

SOME = ["", "north", "south", "south"] * 40


@pytest.fixture
def trained(own: Path) -> Path:
    """A run of erm on a csv where every seventh row has no group."""
    letters(own, 3, site=[None if row % 7 == 0 else ["north", "south"][row // 2 % 2] for row in range(480)])
    return trained_on(own, sensitive="site", id_column="letter")


def test_rows_without_a_group_stop_neither_evaluate_nor_refit(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("evaluate", trained, "--min-count", 5) == 0
    assert "rows (" in (text := said(capsys))
    assert "have no group and are left out of the gaps" in text
    frame = pd.read_parquet(trained / "predictions-test.parquet")
    assert frame["site"].isna().any()
    audited = lh.audit(frame["label"], frame["prediction"], sensitive_features=frame["site"], min_count=5)
    written = read_json(trained / "evaluation-test.json")
    for name, figure in audited.metrics.items():
        assert written["by_attribute"]["site"]["metrics"][name]["value"] == pytest.approx(figure.value)
    assert run("evaluate", trained, "--missing", "group") == 0
    assert "(missing)" in read_json(trained / "evaluation-test.json")["by_attribute"]["site"]["groups"]
    methods = (
        "--method",
        "afr,few-label,dfr,decorrelation",
        "--try",
        "method.rows=30",
        "--try",
        "method.smallest_group=2",
    )
    assert run("refit", trained, *methods, "--out", tmp_path / "refit", "--min-count", 5) == 0
    text = said(capsys)
    assert "dfr, smallest_group 2" in text
    assert "have no group and are left out of the gaps" in text
    assert run("table", trained, tmp_path / "refit", "--min-count", 5, "--missing", "group") == 0


def test_fewer_validation_rows_than_a_method_is_told_are_named_before_any_work(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("levelhead.runs.refit.Refitting.__init__", lambda *_, **__: pytest.fail("work began"))
    before = {file.name for file in trained.iterdir()}
    (tmp_path / "few.csv").write_text("row,group\n900,a\n")
    few = ("--method", "few-label", "--groups", tmp_path / "few.csv")
    for more, message in (((), "lower it (--try method.rows=N)"), (few, "is not the position of a validation row")):
        assert run("refit", trained, *more, "--out", tmp_path / "refit") == 2
        assert message in said(capsys)
        assert not (tmp_path / "refit").exists()
        assert {file.name for file in trained.iterdir()} == before


def test_compare_names_too_many_rows_to_be_told_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [f"--set=data.{split}_size=60" for split in ("train", "validation", "test")]
    arguments = ("--data", "portraits", "--methods", "erm,few-label", "--try", "method.rows=5000", "--seeds", "0")
    assert run("compare", *arguments, *sizes, "--out", tmp_path / "out") == 2
    assert "--try method.rows=N" in said(capsys)
    assert not list(tmp_path.glob("out/*/seed-0"))


class Peeking(Method):
    """A method of one's own that needs every group."""

    uses_validation_groups = True

    def stages(self, lab: object) -> Iterator[Stage]:  # type: ignore[override]
        yield from ()


def test_a_selector_by_gaps_needs_every_group_before_inputs_are_prepared(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters(own, site=SOME)
    base = recipe(own, sensitive="site")
    base["train"]["select"] = "ORACLE_val_equalized_odds"
    (cell,) = make_cells(compare_methods(base, ["erm"], [0], {}), tmp_path / "runs")
    monkeypatch.setattr("levelhead.runs.train.prepared", lambda *_, **__: pytest.fail("inputs were prepared"))
    for work in (lambda: check_cells([cell]), lambda: train_run(cell.experiment, tmp_path / "run")):
        with pytest.raises(DataError, match="rows of the validation split have no group in 'site'"):
            work()


def test_pictures_in_a_csv_may_lack_a_group(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    lines = [f"{row}.png,{'ab'[row % 2]},{['x', 'y', ' '][row % 3]}" for row in range(300)]
    (tmp_path / "pictures" / "labels.csv").write_text("\n".join(["file,label,group", *lines]) + "\n")
    data = DATASETS["image-folder-csv"](root=tmp_path, folder="pictures")
    (groups,) = data.groups("test")
    assert groups.names == ("x", "y")
    assert (groups.values == -1).any()
