"""How small a difference a comparison will show: the prediction beside what comes out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from command_line import run, said
from fold_runs import BASE, fake, grid
from levelhead.bench.grid import Grid, make_cells, remember, run_grid
from levelhead.bench.planning import DISAGREEMENT, OVER_SEEDS, SHARED, assumed, columns, from_pilot, show_plan
from levelhead.metrics.joint import joint
from levelhead.storage import write_json


def test_one_seed_on_four_equal_cells_is_the_textbook_interval() -> None:
    noise = assumed(np.array([[250, 250], [250, 250]]))
    # Half a sum of four differences of shares, each of variance d / n.
    assert noise.row == pytest.approx(DISAGREEMENT / 250)
    assert noise.half_width(1) == pytest.approx(1.959964 * math.sqrt(DISAGREEMENT / 250))
    # 80% power: the normal quantiles of 97.5% and 80% together.
    assert noise.smallest_shown(1) == pytest.approx((1.959964 + 0.841621) * math.sqrt(noise.row), rel=1e-5)


def test_more_seeds_know_more_but_never_less_than_what_all_share() -> None:
    noise = assumed(np.array([[400, 90], [700, 300]]))
    found = [half for _, half, _ in columns(noise, (4, 5, 10, 100, 100_000))]
    assert found == sorted(found, reverse=True)
    floor = 100 * 1.959964 * math.sqrt(SHARED * noise.row)
    assert found[-1] == pytest.approx(floor, rel=0.01)
    assert noise.half_width(2) > noise.half_width(4)  # two seeds cannot vouch for their variance
    assert noise.seed == OVER_SEEDS**2


def test_the_rarest_cells_decide_and_an_empty_one_is_named() -> None:
    many = assumed(np.array([[400, 400], [400, 400], [20, 30], [500, 500]]))
    assert many.row == pytest.approx(DISAGREEMENT * (1 / 20 + 1 / 30 + 2 / 400) / 4)
    for counts, least, why in (
        (np.array([[400, 0], [400, 400]]), 1, "a group has no row of a label"),
        (np.empty((1, 2), np.int64), 10, "fewer than two groups have 10 rows of each label"),
    ):
        nothing = assumed(counts, least)
        assert math.isnan(nothing.row)
        assert nothing.basis == why


def draw(seeds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Two methods of equal rates on 1,200 rows, whose noise is shared in part and whose seeds move their rates."""
    rows = 1200
    label, group = np.arange(rows) % 2, np.arange(rows) // 2 % 2
    hard = rng.standard_normal(rows)
    threshold = stats.norm.ppf(np.where(group == 1, 0.72, 0.85))
    predictions = {}
    for name in ("erm", "dam"):
        own = 0.6 * hard + 0.4 * rng.standard_normal(rows)
        noise = own + math.sqrt(1 - 0.36 - 0.16) * rng.standard_normal((seeds, rows))
        moves = 0.08 * rng.standard_normal((seeds, 2, 2))[:, group, label]
        predictions[name] = np.where(noise < threshold + moves, label, 1 - label)
    return label, group, predictions


class Pilot:
    """Stands for a set of runs: what :func:`from_pilot` asks of it."""

    def __init__(self, label: np.ndarray, group: np.ndarray, predictions: dict[str, np.ndarray]) -> None:
        self.predictions = predictions
        frame = pd.DataFrame({"label": label.astype(str), "side": group})
        self.runs = [type("Run", (), {"predictions": frame})]
        self.classes, self.positive, self.min_count = ["0", "1"], 1, 10

    def rows(self) -> dict[str, str]:
        return {name: name for name in self.predictions}

    def members(self, run: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        return run.predictions["side"].to_numpy(), ()

    def probabilities(self, name: str) -> np.ndarray:
        return np.eye(2)[self.predictions[name]]


def test_what_a_pilot_predicts_is_near_what_comes_out() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(5):
        label, group, predictions = draw(10, rng)
        pilot = {name: values[:5] for name, values in predictions.items()}
        noise = from_pilot(Pilot(label, group, pilot), "erm", "dam")  # type: ignore[arg-type]
        assert noise.basis == "from a pilot of 5 seeds of dam and erm"
        table = joint(label, group, predictions, baseline="erm", positive=1)
        difference = table.rows["dam"]["equalized_odds"].difference
        assert difference is not None
        ratios.append(2 * noise.half_width(10) / (difference.high - difference.low))
    assert 0.8 < float(np.median(ratios)) < 1.25
    one = from_pilot(Pilot(label, group, {name: values[:1] for name, values in predictions.items()}), "erm", "dam")  # type: ignore[arg-type]
    assert one.basis.endswith("1 seed of dam and erm; the variance over seeds is assumed")


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_pilot_that_answers_alike_promises_no_width(seeds: int) -> None:
    label, group, predictions = draw(seeds, np.random.default_rng(0))
    alike = Pilot(label, group, dict.fromkeys(predictions, predictions["erm"]))
    noise = from_pilot(alike, "erm", "dam")  # type: ignore[arg-type]
    assert np.isnan(noise.half_width(3))
    assert noise.basis == "dam and erm answer alike in the pilot, in the groups that make the gaps"


SMALL = [f"--set=data.{split}_size=60" for split in ("train", "validation", "test")]


def test_the_command_says_hours_rows_and_widths_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = make_cells(remember(grid(3, (0, 1)), tmp_path), tmp_path)
    run_grid([cell for cell in cells if cell.experiment.seed == 0], launch=fake)
    before = sorted(tmp_path.rglob("*"))
    assert run("compare", tmp_path, "--plan") == 0
    printed = said(capsys)
    # Six of twelve runs are done, in 2 seconds each.
    assert "6 of 12 runs are missing: about 12 seconds of one core (measured on runs that are done)" in printed
    assert "All rows, in 3 folds: 200 rows" in printed
    assert "EOd difference of dam to erm" in printed
    assert "from a pilot of 1 seed of dam and erm; the variance over seeds is assumed" in printed
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr("levelhead.bench.planning.predicted", lambda cells, *_: {one.folder: 3600.0 for one in cells})
    assert run("compare", "--data", "portraits", *SMALL, "--out", tmp_path / "new", "--plan", "--workers", "2") == 0
    printed = said(capsys)
    assert "6 of 6 runs are missing: about 6.0 hours of one core, 3.0 hours with 2 at a time" in printed
    assert "Test split: 60 rows" in printed
    assert not (tmp_path / "new").exists()


def test_a_variant_that_fails_while_it_is_timed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def times(cells: Any, console: Any) -> dict[Path, float]:
        return {cell.folder: 60.0 for cell in cells if cell.row != "dam"}

    monkeypatch.setattr("levelhead.bench.planning.predicted", times)
    command = ("compare", "--data", "portraits", "--methods", "erm,dam", *SMALL)
    assert run(*command, "--out", tmp_path / "new", "--plan") != 0
    assert "Cannot plan until these runs work (reasons above): dam." in said(capsys)


@pytest.mark.parametrize("piloted", [False, True])
def test_variants_on_several_data_sets_are_planned_with_those_on_the_same_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, piloted: bool
) -> None:
    rows = {
        f"{who} {size}": {"method.name": who, "data.test_size": size} for size in (40, 80) for who in ("erm", "dam")
    }
    rows["alone"] = {"method.name": "erm", "data.test_size": 60}
    cells = make_cells(Grid(BASE, rows, (0, 1), folds=3), tmp_path)
    if piloted:
        run_grid([cell for cell in cells if cell.experiment.seed == 0 and cell.row != "alone"], launch=fake)
    monkeypatch.setattr("levelhead.bench.planning.predicted", lambda cells, *_: {cell.folder: 1.0 for cell in cells})
    show_plan(cells, workers=1, console=Console(width=300), min_count=1)
    told = said(capsys)
    for size, count in ((40, 200), (80, 240)):
        assert f"All rows, in 3 folds of erm {size}; dam {size}: {count} rows" in told
        assert f"EOd difference of dam {size} to erm {size}" in told
        assert (f"from a pilot of 1 seed of dam {size} and erm {size}" in told) is piloted
    assert told.count("EOd difference") == 2
    assert "alone: no plan, no other variant has the same data." in told


def test_a_refit_is_planned_as_a_refit_and_not_as_a_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"erm": {"method.name": "erm"}, "decorrelation": {"method.name": "decorrelation"}}
    cells = make_cells(Grid(BASE, rows, (0, 1), folds=3), tmp_path)
    run_grid([cell for cell in cells if cell.row == "erm"], launch=fake)
    show_plan(cells, workers=1, console=Console(width=300))
    told = said(capsys)
    assert "6 of 12 runs are missing: about 0 seconds of one core" in told
    assert "6 refits, of seconds each, not counted" in told
    one = next(cell for cell in cells if cell.row == "decorrelation")
    fake(one)
    write_json(one.folder / "cost.json", {"seconds": 3602.0, "refit_seconds": 2.0})
    show_plan(cells, workers=1, console=Console(width=300))
    assert "5 of 12 runs are missing: about 10 seconds of one core" in said(capsys)
