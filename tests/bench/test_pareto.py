"""The Pareto set, and the FACT frontier against brute force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import answered, rows_of, write_run

from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.frontier import GroupRates, fact_frontier, pareto_set
from levelhead.bench.of_runs import baseline_frontier, baseline_rates
from levelhead.bench.pareto import not_drawn, pareto_rows
from levelhead.bench.tables import RunSet, collect


def rates(*groups: tuple[float, float, int, int]) -> GroupRates:
    """Each group as (FPR, TPR, negatives, positives)."""
    return GroupRates(*(np.array(column, float) for column in zip(*groups, strict=True)))


def reached(one: GroupRates) -> tuple[float, float]:
    """The classifier's own accuracy, and its gap in equalized odds between two or three groups."""
    right = one.positives * one.true_positive + one.negatives * (1 - one.false_positive)
    first, second = np.triu_indices(len(one.positives), 1)
    apart = [np.abs(rate[first] - rate[second]) for rate in (one.true_positive, one.false_positive)]
    return float(right.sum() / one.rows), float(np.mean(apart, 0).max())


def test_the_pareto_set() -> None:
    accuracy, gap = np.array([[0.9, 0.2], [0.8, 0.1], [0.8, 0.3], [0.9, 0.2], [0.95, np.nan], [0.7, 0.1]]).T
    assert pareto_set(gap, accuracy).tolist() == [True, True, False, True, False, False]


def test_a_wide_gap_allows_the_classifier_itself() -> None:
    one = rates((0.2, 0.7, 100, 100), (0.1, 0.4, 100, 100))
    best = fact_frontier(one, np.linspace(0, 1, 11))
    assert (np.diff(best) >= -1e-7).all()
    accuracy, gap = reached(one)
    assert best[-1] >= accuracy - 1e-9
    assert gap == pytest.approx(0.2)
    assert fact_frontier(one, np.array([0.2]))[0] >= accuracy - 1e-7
    # With a gap of 0 both groups sit at one point: here the better of (0.1, 0.4) and what group 0 reaches there.
    assert 0.5 <= best[0] <= best[-1]
    # A perfect classifier needs no gap.
    assert fact_frontier(rates((0, 1, 50, 20), (0, 1, 10, 30), (0, 1, 5, 5)), np.zeros(1))[0] == pytest.approx(1)


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
        accuracy, gap = reached(one._replace(false_positive=places[:, 0], true_positive=places[:, 1]))
        highest = np.where(gap <= gaps, np.maximum(highest, accuracy), highest)
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
        figures = [comparison.table.rows["erm"][name].by_seed[seed] for name in ("accuracy", "equalized_odds")]
        assert reached(one) == pytest.approx(figures)
    frontier = baseline_frontier(group, comparison)
    assert frontier.by_seed.shape == (2, len(frontier.gaps))


def marked(comparison: Comparison, **table: tuple[str, ...]) -> Comparison:
    """The comparison with these rows at chance, or of too few seeds."""
    return replace(comparison, table=replace(comparison.table, **{"at_chance": (), "few_seeds": (), **table}))


@pytest.mark.parametrize("field", ["at_chance", "few_seeds"])
def test_no_marked_row_is_in_the_set_also_where_all_are_marked(comparison: Comparison, field: str) -> None:
    whole = pareto_rows(marked(comparison))
    assert whole
    for rows in (("erm",), ("dam",), ("erm", "dam")):
        found = pareto_rows(marked(comparison, **{field: rows}))
        assert not found & {*rows, "group-dro"}
        assert found >= whole - set(rows)
    assert not pareto_rows(marked(replace(comparison, selection=LEAKING)))


def test_a_row_at_chance_is_named_and_not_drawn(comparison: Comparison) -> None:
    (left_out,) = not_drawn(marked(comparison, at_chance=("dam",))).items()
    assert left_out[0] == "dam"
    assert left_out[1].startswith("Not drawn: dam AT CHANCE (")


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
