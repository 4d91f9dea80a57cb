"""The Pareto set, the FACT frontier against brute force, and the picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import answered, rows_of, write_run

from levelhead.bench import pareto
from levelhead.bench.comparison import LEAKING
from levelhead.bench.frontier import GroupRates, fact_frontier, pareto_set
from levelhead.bench.grid import compare_methods, make_cells
from levelhead.bench.pareto import baseline_frontier, baseline_rates, draw_pareto, pareto_to_dict
from levelhead.bench.tables import RunSet, collect
from levelhead.cli.app import main
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import ConfigError

BASE: dict[str, Any] = {
    "data": {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 80, "correlation": 0.5},
    "model": {"hidden_size": 16, "layers": 2, "heads": 2},
    "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1},
}


def rates(*groups: tuple[float, float, int, int]) -> GroupRates:
    """Each group as (FPR, TPR, negatives, positives)."""
    columns = [np.array(column, float) for column in zip(*groups, strict=True)]
    return GroupRates(tuple(range(len(groups))), *columns)


def test_the_pareto_set() -> None:
    points = [[0.9, 0.2], [0.8, 0.1], [0.8, 0.3], [0.9, 0.2], [0.95, np.nan], [0.7, 0.1]]
    assert pareto_set(points).tolist() == [True, True, False, True, False, False]
    with pytest.raises(ConfigError, match="shape"):
        pareto_set([[1.0, 2.0, 3.0]])


def test_a_wide_gap_allows_the_classifier_itself() -> None:
    one = rates((0.2, 0.7, 100, 100), (0.1, 0.4, 100, 100))
    best = fact_frontier(one, np.linspace(0, 1, 11))
    assert (np.diff(best) >= -1e-7).all()
    assert best[-1] >= one.accuracy - 1e-9
    assert one.equalized_odds == pytest.approx(0.2)
    assert fact_frontier(one, [0.2])[0] >= one.accuracy - 1e-7
    # With a gap of 0 both groups sit at one point: here the better of (0.1, 0.4) and what group 0 reaches there.
    assert 0.5 <= best[0] <= best[-1]


def test_a_perfect_classifier_needs_no_gap() -> None:
    assert fact_frontier(rates((0, 1, 50, 20), (0, 1, 10, 30), (0, 1, 5, 5)), [0.0])[0] == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
def test_no_mixture_is_above_the_frontier(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rates(*((*rng.uniform(0, 1, 2), *rng.integers(20, 200, 2)) for _ in range(2 + seed % 2)))
    gaps = np.array([0.0, 0.05, 0.2])
    best = fact_frontier(one, gaps)
    corners = [
        np.array([[0, 0], [1, 1], [f, t], [1 - f, 1 - t]])
        for f, t in zip(one.false_positive, one.true_positive, strict=True)
    ]
    highest = np.zeros(3)
    for _ in range(4000):
        places = np.array([rng.dirichlet(np.full(4, 0.3)) @ corner for corner in corners])
        mixed = rates(*((*place, n, p) for place, n, p in zip(places, one.negatives, one.positives, strict=True)))
        for position, gap in enumerate(gaps):
            if mixed.equalized_odds <= gap:
                highest[position] = max(highest[position], mixed.accuracy)
    assert (highest <= best + 1e-6).all()
    assert highest[2] > best[2] - 0.15  # the search comes near: the frontier is not merely a large number


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pareto")
    for cell in make_cells(compare_methods(BASE, ["erm", "dam", "group-dro"], [0, 1], {}), folder):
        train_run(cell.experiment, cell.folder)
        evaluate_run(cell.folder)
    return folder


@pytest.fixture(scope="module")
def group(runs: Path) -> RunSet:
    (found,) = collect([runs], "test", min_count=1)
    return found


@pytest.mark.slow
def test_the_frontier_is_that_of_the_runs(group: RunSet) -> None:
    comparison = group.compare("erm")
    found = baseline_rates(group, "erm")
    for seed, (one, others, right) in enumerate(found):
        assert others == right == 0
        assert one.accuracy == pytest.approx(comparison.table.rows["erm"]["accuracy"].by_seed[seed])
        assert one.equalized_odds == pytest.approx(comparison.table.rows["erm"]["equalized_odds"].by_seed[seed])
    frontier = baseline_frontier(group, comparison)
    assert frontier.by_seed.shape == (2, len(frontier.gaps))
    with pytest.raises(ConfigError, match="runs' own predictions"):
        baseline_frontier(group, group.compare("erm", threshold="matched"))


def test_what_sees_groups_is_marked_and_not_in_the_set(group: RunSet) -> None:
    comparison = group.compare("erm")
    able = replace(comparison, table=replace(comparison.table, at_chance=(), few_seeds=()))
    value = pareto_to_dict(able)
    by_row = {point["row"]: point for point in value["points"]}
    assert by_row["group-dro"]["oracle"] == "method"
    assert by_row["group-dro"]["marks"] == ["ORACLE"]
    assert not by_row["group-dro"]["in_pareto_set"]
    assert any(point["in_pareto_set"] for point in value["points"])


@pytest.mark.parametrize("field", ["at_chance", "few_seeds"])
def test_no_marked_row_is_in_the_set_also_where_all_are_marked(group: RunSet, field: str, tmp_path: Path) -> None:
    comparison = group.compare("erm")
    table = replace(comparison.table, at_chance=(), few_seeds=())
    for rows in (("erm",), ("dam",), ("erm", "dam")):
        marked = replace(comparison, table=replace(table, **{field: rows}))
        kept = {point["row"] for point in pareto_to_dict(marked)["points"] if point["in_pareto_set"]}
        assert kept == {"erm", "dam"} - set(rows)
        draw_pareto(marked, tmp_path / "marked.svg")
    leaking = replace(comparison, table=table, selection=LEAKING)
    assert not any(point["in_pareto_set"] for point in pareto_to_dict(leaking)["points"])


def test_a_row_at_chance_far_from_the_others_is_named_and_not_drawn(group: RunSet) -> None:
    comparison = group.compare("erm")
    rows = {name: dict(row) for name, row in comparison.table.rows.items()}
    rows["dam"]["accuracy"] = replace(
        rows["dam"]["accuracy"], estimate=replace(rows["dam"]["accuracy"].estimate, value=-5.0, low=-5.0, high=-5.0)
    )
    for chance, drawn in ((("dam",), 2), ((), 3), (("dam", "erm", "group-dro"), 3)):
        table = replace(comparison.table, rows=rows, at_chance=chance, few_seeds=())
        figure = pareto._draw(replace(comparison, table=table), "equalized_odds", "accuracy", None)
        caption = figure.get_supxlabel()
        assert ("Outside the picture: dam AT CHANCE, at" in caption) == (drawn == 2)
        places = pareto.pareto_to_dict(replace(comparison, table=table))["points"]
        assert [point["row"] for point in places if point["outside_the_picture"]] == ["dam"] * (drawn == 2)
        low, _ = figure.axes[0].get_ylim()
        assert (low < -500) == (drawn == 3)


@pytest.mark.slow
def test_two_pictures_of_one_comparison_are_equal(group: RunSet, tmp_path: Path) -> None:
    comparison = group.compare("erm")
    for kind in ("png", "svg"):
        for copy in ("a", "b"):
            draw_pareto(comparison, tmp_path / f"{copy}.{kind}", frontier=baseline_frontier(group, comparison))
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    for wrong, message in (
        ({"x": "accuracy"}, "are both 'accuracy'"),
        ({"x": "eod"}, "there is no column 'eod'"),
    ):
        with pytest.raises(ConfigError, match=message):
            draw_pareto(comparison, tmp_path / "c.png", **wrong)
    with pytest.raises(ConfigError, match=r"must end in .png or .svg"):
        draw_pareto(comparison, tmp_path / "c.pdf")


def test_from_the_command_line(runs: Path, tmp_path: Path) -> None:
    out, json_file = tmp_path / "pareto.png", tmp_path / "pareto.json"
    with pytest.raises(SystemExit) as ended:
        main(["figure", "pareto", str(runs), "--out", str(out), "--json", str(json_file), "--min-count", "1"])
    assert ended.value.code == 0
    assert out.stat().st_size > 10_000
    (picture,) = read_json(json_file)["pictures"]
    assert picture["frontier"]["oracle"] is True
    assert len(picture["points"]) == 3


def test_the_page_has_the_fact_line_unless_it_is_left_out(tmp_path: Path) -> None:
    rows = rows_of()
    for place, name in enumerate(("erm", "dam")):
        write_run(tmp_path / name, answered(rows, 0.3, place), name)
    page, words = tmp_path / "page.html", ["figure", "pareto", str(tmp_path), "--out", str(tmp_path / "p.png")]
    for more in ([], ["--no-frontier"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--html", str(page), *more])
        assert ended.value.code == 0
        assert ("best post-processing of erm" in page.read_text()) == (not more)


@pytest.mark.parametrize("missing", ["leave out", "group"])
def test_the_line_is_never_below_what_is_reached_by_doing_nothing(tmp_path: Path, missing: str) -> None:
    """A third of the rows have no group and are all answered rightly: accuracy counts them, and so must the line."""
    rows = rows_of(600)
    frame = answered(rows, 0.3)
    absent = np.arange(600) % 3 == 0
    frame.loc[absent, "prediction"] = frame.loc[absent, "label"]
    frame.loc[absent, "group"] = None
    write_run(tmp_path / "erm", frame)
    write_run(tmp_path / "dam", answered(rows, 0.3, 1).assign(group=frame["group"]), "dam")
    (found,) = collect([tmp_path / "erm", tmp_path / "dam"], "test", missing=missing)
    comparison = found.compare("erm")
    own = comparison.table.rows["erm"]
    line = baseline_frontier(found, comparison)
    there = np.interp(own["equalized_odds"].estimate.value, line.gaps, line.accuracy)
    assert there >= own["accuracy"].estimate.value - 1e-6
