"""levelhead reproduce: grids, shared runs, what is missing, the plan, and everything rehearsed on drawn data."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

from command_line import run, said
from levelhead.bench import timing
from levelhead.bench.grid import Cell, make_cells, read_grid
from levelhead.paper import reproduce
from levelhead.paper.items import ITEMS, SCALES, SOURCES, Item, find_item
from levelhead.paper.published import present_row, published, published_row
from levelhead.paper.reproduce import Options, distinct, make_plan
from levelhead.runs.options import section
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.terminal import Terminal
from levelhead.types import DataError

ROOT = Path(__file__).parents[2]


def cell_of(folder: Path, item: str, row: str = "", **train: object) -> Cell:
    """Return a run of an item's rehearsal on drawn data, with these options of its training."""
    options = Options(folder, quick=True, settings=tuple(f"train.{key}={value}" for key, value in train.items()))
    return next(cell for cell in make_plan(ITEMS[item], options).cells if row in ("", cell.row))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("LEVELHEAD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a recipe take the seconds that a function says, and let nothing run."""

    def play(times: Callable[[Cell], float]) -> None:
        monkeypatch.setattr(timing, "_time", times)
        monkeypatch.setattr(reproduce, "run_all", lambda *arguments, **options: 0)

    return play


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_every_grid_holds_the_published_rows(item: Item, scale: Any, tmp_path: Path) -> None:
    plan = make_plan(item, Options(tmp_path, scale))
    assert set(plan.grids) == set(item.grids[scale])
    for grid, cells in plan.grids.items():
        rows = {cell.row for cell in cells}
        if item.rows:
            assert rows == set(item.rows)
            assert len(cells) == len(rows), "one network each"
        else:
            found = {published_row(row) for row in rows}
            assert found >= set(published(item.name, item.grids[scale][grid])), "a published row has no run"
        if not item.name.startswith("figure"):
            assert published(item.name, item.grids[scale][grid])
            assert all(cell.experiment.train.keep_epochs for cell in cells), "the protocols need every epoch"
        assert all(cell.experiment.train.select == "val_loss" for cell in cells)
        assert section(read_grid(grid).base, "data")["name"] == item.data[scale][0]
        assert set(item.data[scale]) <= set(SOURCES)


@pytest.mark.parametrize("scale", SCALES)
def test_items_share_the_runs_that_they_have_in_common(scale: Any, tmp_path: Path) -> None:
    plans = {name: make_plan(ITEMS[name], Options(tmp_path, scale)) for name in ITEMS if name != "table5"}

    def folders(name: str, row: str) -> set[Path]:
        return {cell.folder for cell in plans[name].cells if cell.row == row and cell.experiment.seed == 0}

    for row in ("ERM", "DAM (paper)", "DAM (levelhead)"):
        assert folders("table2", row) == folders("table7", row) == folders("figure3", row) == folders("figure4", row)
    for row, at in (("DAM (paper)", "t = 2"), ("DAM (levelhead)", "t = 2"), ("KD", "lambda = 1"), ("ARL", "2 layers")):
        assert folders("table2", row) == folders("figure2", f"{row}, {at}")
    assert folders("table1", "DAM (levelhead)") != folders("table1", "DAM (paper)")
    assert folders("table3", "ERM") == folders("table6", "ERM-FT")
    cells = distinct(plans.values())
    assert len({cell.folder for cell in cells}) == len(cells)
    seeds = [cell.experiment.seed for cell in cells]
    assert seeds[: seeds.count(0)] == [0] * seeds.count(0), "every item's first seed comes before anybody's second"
    for cell in cells:
        assert cell.folder.parent.name.startswith(cell.experiment.method_name)


def test_the_finding_s_runs_of_utkface_are_those_of_table_1(tmp_path: Path) -> None:
    """The grid that methods_utkface64 was made with trains the same recipes, so its committed figures are Table 1's."""
    grid = make_cells(read_grid("methods_utkface64"), tmp_path)
    before = {cell.row: replace(cell.experiment, name="") for cell in grid}
    now = {cell.row: cell.experiment for cell in make_plan(ITEMS["table1"], Options(tmp_path)).cells}
    for row in ("ERM", "DRO", "ARL", "KD", "JTT", "LfF", "DAM", "JTT, weight 2", "balanced ERM", "GroupDRO"):
        assert before[row] == now[present_row(row)], row


def test_missing_data_are_named_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owners = ("or celeba/ with", "img_align_celeba/", "https://mmlab.ie.cuhk.edu.hk", "--data-root", "--quick")
    for item, parts in (
        ("table2", ("celeba64/", "train.parquet", *owners)),
        ("all", ("utkface64/", "celeba64/", "hatexplain/", "multinli/", "None of")),
    ):
        assert run("reproduce", item, "--data-root", tmp_path) == 2
        told = said(capsys)
        assert not [part for part in parts if part not in told]
    assert not (tmp_path / "runs").exists()


def write_celeba(folder: Path, rows: int) -> None:
    """Write plain pictures as CelebA's owners lay out their files."""
    names = [f"{row:06d}.jpg" for row in range(rows)]
    (folder / "img_align_celeba").mkdir(parents=True)
    for row, name in enumerate(names):
        Image.new("RGB", (54, 44), (row, 0, 0)).save(folder / "img_align_celeba" / name)
    signs = [f"{name} {2 * (row % 2) - 1} {2 * (row // 2 % 2) - 1}" for row, name in enumerate(names)]
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(rows), "Blond_Hair Male", *signs, ""]))
    splits = [f"{name} {row // 8 % 3}" for row, name in enumerate(names)]
    (folder / "list_eval_partition.txt").write_text("\n".join([*splits, ""]))


@pytest.mark.long
def test_the_owners_files_serve_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The owners' page, which is named where data are missing, has no parquet files."""
    write_celeba(tmp_path / "celeba", 48)
    small = ["--row", "ERM", "--set", "train.batch_size=8", "--set", "model.layers=1", "--set", "train.max_steps=1"]
    assert run("reproduce", "table2", "--data-root", tmp_path, *small) == 0
    told = said(capsys)
    assert "a ViT of width 192" in told
    assert "162,770" not in told, "said of the cut"
    (config,) = tmp_path.glob("runs/paper/small/runs/*/seed-0/config.yaml")
    assert yaml.safe_load(config.read_text())["data"]["name"] == "celeba"
    (tmp_path / "UTKFace").mkdir()
    for item, there in {"table1": "utkface", "table7": "celeba", "table5": "celeba", "table4": "multinli"}.items():
        cells = make_plan(ITEMS[item], Options(tmp_path, "small", data_root=tmp_path)).cells
        assert {cell.experiment.to_dict()["data"]["name"] for cell in cells} == {there}
    assert "162,770" in ITEMS["table2"].reason("small", "celeba64")
    assert ITEMS["table2"].reason("small", "mine:Faces") == ITEMS["table2"].reasons["small"]
    (tmp_path / "celeba64").mkdir()
    cells = make_plan(ITEMS["table2"], Options(tmp_path, data_root=tmp_path)).cells
    assert {cell.experiment.to_dict()["data"]["name"] for cell in cells} == {"celeba64"}, "the grid's own comes first"


def test_the_list_says_which_data_are_there_and_what_has_been_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(*arguments: object) -> dict[str, str]:
        monkeypatch.setenv("COLUMNS", "200")
        assert run("reproduce", "list", *arguments) == 0
        blocks = re.split(r"^(?=table|figure)", capsys.readouterr().out, flags=re.M)
        return {block.split()[0]: block for block in blocks if block.strip()}

    assert find_item("Table 2") is find_item("TABLE_2") is ITEMS["table2"]
    found = lines()
    assert found.keys() >= ITEMS.keys()
    for item in ITEMS.values():
        assert all((ROOT / "results" / file).exists() for file in item.results)
        assert {path.name for path in (ROOT / "results").glob(f"paper_{item.name}_*.json")} <= {*item.results}
    assert "celeba64/ (not in data)" in found["table2"]
    assert "yours: not run" in found["table2"]
    (tmp_path / "celeba64").mkdir()
    write_json(tmp_path / "runs" / "paper" / "small" / "table2.json", {})
    found = lines("--data-root", tmp_path)
    assert "celeba64/ (found)" in found["table2"]
    assert f"hatexplain/ (not in {tmp_path})" in found["table3"]
    assert "yours: runs/paper/small/table2.json" in found["table2"]
    assert "yours: not run" in found["table7"]


@pytest.mark.long
def test_one_table_rehearsed_twice_trains_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--quick", "--out", tmp_path / "out", "--set", "train.epochs=1")
    assert run("reproduce", "table7", *options) == 0
    first = capsys.readouterr().out
    assert "10 runs (10 variants x 1 seed)" in first
    assert "no result" in first
    folder = tmp_path / "out" / "small-quick"
    record = read_json(folder / "table7.json")
    assert record["trial"] is True
    figures = record["grids"]["table7_small"]["published"]["DAM (paper)"]["equalized_odds"]
    assert figures["published_percent"] == {"mean": 19.47, "deviation": None}
    assert figures["by_selection_alone"]["value"] <= 0
    assert record["grids"]["table7_small"]["by_selection_alone_pairs_seeds"] is True
    for row, gain in record["grids"]["table7_small"]["gains"].items():
        assert gain["baseline"] == "ERM"
        compared = record["grids"]["table7_small"]["label_only"]["methods"][row]
        assert all(gain[figure] == compared[figure]["difference"] for figure in ("equalized_odds", "accuracy"))
    assert all(key in figures for key in ("here", "difference", "as_released"))
    page = (folder / "table7.html").read_text()
    assert page.index("EOd gap, published and here") < page.index("<details")
    written = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/metrics.json")}
    assert len(written) == 10
    assert run("reproduce", "table7", *options, "--protocol", "as-released") == 0
    assert "all of them done" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/metrics.json")} == written
    released = read_json(folder / "table7-as-released.json")
    here = released["grids"]["table7_small"]["published"]["DAM (paper)"]["equalized_odds"]["here"]
    assert here == figures["as_released"]
    assert "LEAKING" in (folder / "table7-as-released.html").read_text()


@pytest.mark.slow
@pytest.mark.long
def test_everything_is_rehearsed_to_the_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = run("reproduce", "all", "--scale", "small", "--quick", "--out", tmp_path, "--set", "train.epochs=1")
    told = capsys.readouterr().out
    assert status == 0, told[-3000:]
    folder = tmp_path / "small-quick"
    for name, item in ITEMS.items():
        assert read_json(folder / f"{name}.json")["trial"] is True
        if item.name in ("figure3", "figure4"):  # the plane of figure 2 is a part of its page
            assert "<rect" in (folder / f"{name}-erm.html").read_text()
    assert "FAILED" not in told
    gains = read_json(folder / "table6.json")["grids"]["table6_small"]["gains"]
    assert {row: gain["baseline"] for row, gain in gains.items()} == {
        f"DAM ({options})-{kind}": f"ERM-{kind}" for kind in ("FT", "LE") for options in ("paper", "levelhead")
    }
    page = (folder / "table6.html").read_text()
    assert page.count("Every variant: one seed only.") == 1, "said once, of both kinds"
    for kind in ("FT", "LE"):
        assert f"ERM-{kind}" in page
        told = (f"relative to ERM-{kind}", f"the same gap in equalized odds as ERM-{kind}", f"ERM-{kind} did not learn")
        assert any(one in page for one in told)
    page = (folder / "figure2.html").read_text()
    assert "EOd gap, here" in page
    assert "EOd gap, published" not in page, "nothing is, of figure 2"
    assert "by selection alone" in page


def test_an_item_that_cannot_be_written_does_not_keep_back_the_others(
    tmp_path: Path, played: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run folder was damaged by hand."""

    def write(plan: Any, options: Options, console: Any) -> list[Path]:
        if plan.item.name == "table1":
            raise DataError("cost.json is no JSON.")
        return [tmp_path / plan.item.name]

    played(lambda cell: 1.0)
    monkeypatch.setattr(reproduce, "write_item", write)
    options = Options(tmp_path, quick=True)
    plans = [make_plan(ITEMS[name], options) for name in ("table1", "table7")]
    arguments: dict[str, Any] = {"workers": 1, "ray": None, "console": Terminal(), "again": "again"}
    assert reproduce.run_plans(plans, options, **arguments) == 1
    assert capsys.readouterr().out == "Table 1 cannot be written: cost.json is no JSON.\n"
    with pytest.raises(DataError, match="no JSON"):
        reproduce.run_plans(plans[:1], options, **arguments)


def test_a_recipe_that_fails_is_named_and_the_others_are_timed(played: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def times(cell: Cell) -> float:
        if cell.row == "DAM (levelhead)":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 60.0

    played(times)
    assert run("reproduce", "table7", "--quick", "--plan") == 1
    told = said(capsys)
    assert "DAM (levelhead) fails: CUDA out of memory." in told
    assert "In all: 9.0 minutes. 1 run not counted: see above what fails." in told


def test_a_dry_run_predicts_about_what_a_run_takes(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "table7", epochs=4)
    seconds = timing._time(cell)
    began = time.monotonic()
    assert reproduce.train_here(cell) is None
    taken = time.monotonic() - began
    assert taken / 10 < seconds < taken * 10
    # A training of a few steps is planned as one.
    train = replace(cell.experiment.train, epochs=1000)
    whole = Cell("whole", replace(cell.experiment, train=train), tmp_path / "whole" / "seed-0")
    short = Cell("short", replace(cell.experiment, train=replace(train, max_steps=5)), tmp_path / "short" / "seed-0")
    assert 20 * timing._time(short) < timing._time(whole)


def stopped(cell: Cell, after: int) -> None:
    """Assert that each stage of JTT ended after so many steps; its first has one epoch of four batches."""
    assert read_json(cell.folder / "cost.json")["steps"] == min(after, 4) + after
    assert read_json(cell.folder / "rehearsal.json")["steps"] == {"stage 1": 4, "stage 2": 2 * 4}
    last = {row["stage"]: row["step"] for row in read_json(cell.folder / "metrics.json")["history"]}
    assert last == {0: min(after, 4), 1: after}


def test_max_steps_ends_every_stage(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "table2", "JTT", max_steps=5)
    assert reproduce.train_here(cell) is None
    stopped(cell, after=5)


def test_a_rehearsal_attacks_a_few_batches_and_counts_all(tmp_path: Path) -> None:
    """DSA replaces a patch of every picture before its second stage, which is most of its work."""
    seen: list[str] = []
    cell = cell_of(tmp_path, "table2", "DSA", max_steps=2, checkpoint_seconds=0)
    train_run(cell.experiment, cell.folder, progress=lambda what, *_: seen.append(what))
    whole = {"stage 1": 2 * 4, "replacing patches": 4, "stage 2": 2 * 4}
    assert read_json(cell.folder / "rehearsal.json")["steps"] == whole
    assert Counter(seen) == dict.fromkeys(whole, 2)
    assert not (cell.folder / "checkpoints").exists(), "a finished run has no use for what it had computed"


def two_depths(folder: Path) -> Item:
    """An item with two rows that differ in one option."""
    rows = "".join(f"  t = {t}: {{method.name: dam, method.debias.top_t: {t}}}\n" for t in (2, 4))
    (folder / "mine.yaml").write_text(f"base: utkface64_erm_small\nrows:\n{rows}")
    return replace(ITEMS["table7"], grids={"small": {str(folder / "mine.yaml"): ""}})


def test_two_rows_are_two_runs_unless_a_setting_makes_them_one(tmp_path: Path) -> None:
    assert len(make_plan(two_depths(tmp_path), Options(tmp_path)).cells) == 2
