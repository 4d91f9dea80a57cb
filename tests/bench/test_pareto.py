"""The Pareto set, the FACT frontier against brute force, and the picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import answered, rows_of, write_run

from command_line import run
from levelhead.bench import pareto
from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.frontier import GroupRates, fact_frontier, pareto_set
from levelhead.bench.pareto import baseline_frontier, baseline_rates, draw_pareto, pareto_to_dict
from levelhead.bench.tables import RunSet, collect
from levelhead.storage import read_json


def rates(*groups: tuple[float, float, int, int]) -> GroupRates:
    """Each group as (FPR, TPR, negatives, positives)."""
    columns = [np.array(column, float) for column in zip(*groups, strict=True)]
    return GroupRates(tuple(range(len(groups))), *columns)


def test_the_pareto_set() -> None:
    points = [[0.9, 0.2], [0.8, 0.1], [0.8, 0.3], [0.9, 0.2], [0.95, np.nan], [0.7, 0.1]]
    assert pareto_set(points).tolist() == [True, True, False, True, False, False]


def test_a_wide_gap_allows_the_classifier_itself() -> None:
    one = rates((0.2, 0.7, 100, 100), (0.1, 0.4, 100, 100))
    best = fact_frontier(one, np.linspace(0, 1, 11))
    assert (np.diff(best) >= -1e-7).all()
    assert best[-1] >= one.accuracy - 1e-9
    assert one.equalized_odds == pytest.approx(0.2)
    assert fact_frontier(one, [0.2])[0] >= one.accuracy - 1e-7
    # With a gap of 0 both groups sit at one point: here the better of (0.1, 0.4) and what group 0 reaches there.
    assert 0.5 <= best[0] <= best[-1]
    # A perfect classifier needs no gap.
    assert fact_frontier(rates((0, 1, 50, 20), (0, 1, 10, 30), (0, 1, 5, 5)), [0.0])[0] == pytest.approx(1)


@pytest.mark.parametrize("seed", range(2))
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
        highest = np.where(mixed.equalized_odds <= gaps, np.maximum(highest, mixed.accuracy), highest)
    assert (highest <= best + 1e-6).all()
    assert highest[2] > best[2] - 0.15  # the search comes near: the frontier is not merely a large number


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods of two seeds each, of which one sees groups."""
    folder, rows = tmp_path_factory.mktemp("pareto"), rows_of()
    for place, name in enumerate(("erm", "dam", "group-dro")):
        for seed in (0, 1):
            frame = answered(rows, 0.3 - place / 50, 10 * place + seed)
            write_run(folder / f"{name}-{seed}", frame, name, seed)
    return folder


@pytest.fixture(scope="module")
def group(runs: Path) -> RunSet:
    (found,) = collect([runs], "test", min_count=1)
    return found


@pytest.fixture
def comparison(group: RunSet) -> Comparison:
    return group.compare("erm")


def test_the_frontier_is_that_of_the_runs(group: RunSet, comparison: Comparison, tmp_path: Path) -> None:
    for seed, (one, others, right) in enumerate(baseline_rates(group, "erm")):
        assert others == right == 0
        assert one.accuracy == pytest.approx(comparison.table.rows["erm"]["accuracy"].by_seed[seed])
        assert one.equalized_odds == pytest.approx(comparison.table.rows["erm"]["equalized_odds"].by_seed[seed])
    frontier = baseline_frontier(group, comparison)
    assert frontier.by_seed.shape == (2, len(frontier.gaps))
    for kind in ("png", "svg"):
        for copy in ("a", "b"):  # equal comparisons give equal bytes
            draw_pareto(comparison, tmp_path / f"{copy}.{kind}", frontier=frontier)
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_what_sees_groups_is_marked_and_not_in_the_set(comparison: Comparison) -> None:
    able = replace(comparison, table=replace(comparison.table, at_chance=(), few_seeds=()))
    by_row = {point["row"]: point for point in pareto_to_dict(able)["points"]}
    assert by_row["group-dro"]["oracle"] == "method"
    assert by_row["group-dro"]["marks"] == ["ORACLE"]
    assert not by_row["group-dro"]["in_pareto_set"]
    assert any(point["in_pareto_set"] for point in by_row.values())


@pytest.mark.parametrize("field", ["at_chance", "few_seeds"])
def test_no_marked_row_is_in_the_set_also_where_all_are_marked(
    comparison: Comparison, field: str, tmp_path: Path
) -> None:
    table = replace(comparison.table, at_chance=(), few_seeds=())
    whole = {point["row"] for point in pareto_to_dict(replace(comparison, table=table))["points"]
             if point["in_pareto_set"]}  # fmt: skip
    for rows in (("erm",), ("dam",), ("erm", "dam")):
        marked = replace(comparison, table=replace(table, **{field: rows}))
        kept = {point["row"] for point in pareto_to_dict(marked)["points"] if point["in_pareto_set"]}
        assert not kept & {*rows, "group-dro"}
        assert kept >= whole - set(rows)
    draw_pareto(marked, tmp_path / "marked.svg")
    leaking = replace(comparison, table=table, selection=LEAKING)
    assert not any(point["in_pareto_set"] for point in pareto_to_dict(leaking)["points"])


def test_a_row_at_chance_far_from_the_others_is_named_and_not_drawn(comparison: Comparison) -> None:
    rows = {name: dict(row) for name, row in comparison.table.rows.items()}
    rows["dam"]["accuracy"] = replace(
        rows["dam"]["accuracy"], estimate=replace(rows["dam"]["accuracy"].estimate, value=-5.0, low=-5.0, high=-5.0)
    )
    for chance, drawn in ((("dam",), 2), ((), 3), (("dam", "erm", "group-dro"), 3)):
        table = replace(comparison.table, rows=rows, at_chance=chance, few_seeds=())
        figure = pareto._draw(replace(comparison, table=table), "equalized_odds", "accuracy", None)
        assert ("Outside the picture: dam AT CHANCE, at" in figure.get_supxlabel()) == (drawn == 2)
        places = pareto.pareto_to_dict(replace(comparison, table=table))["points"]
        assert [point["row"] for point in places if point["outside_the_picture"]] == ["dam"] * (drawn == 2)
        low, _ = figure.axes[0].get_ylim()
        assert (low < -500) == (drawn == 3)


def test_from_the_command_line_with_the_fact_line_unless_it_is_left_out(runs: Path, tmp_path: Path) -> None:
    page, words = tmp_path / "page.html", ["figure", "pareto", runs, "--out", tmp_path / "p.png"]
    for more in ([], ["--no-frontier"]):
        assert run(*words, "--html", page, "--json", tmp_path / "p.json", *more) == 0
        assert ("best post-processing of erm" in page.read_text()) == (not more)
        (picture,) = read_json(tmp_path / "p.json")["pictures"]
        assert (picture["frontier"] is None) == bool(more)
        assert len(picture["points"]) == 3
    assert (tmp_path / "p.png").stat().st_size > 10_000


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
