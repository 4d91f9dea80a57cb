"""A threshold within a bound: chosen on half of the rows, told of the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run, said
from levelhead.auditing.bounded import BOUNDED, check_bound, choose_threshold
from levelhead.auditing.bounded import _Rows as Scored
from levelhead.types import ConfigError, DataError


def table(rows: int = 4000, apart: float = 1.0, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"sex": draw.choice(["f", "m"], rows), "y": draw.integers(0, 2, rows)})
    frame["s"] = 1 / (1 + np.exp(-draw.normal(2 * frame.y - 1 - apart * (frame.sex == "f"))))
    return frame


def audited(frame: pd.DataFrame, **options: object) -> lh.AuditResult:
    given = {"bound": {"equalized_odds": 0.1}, "replicates": 200, "sensitive_features": frame[["sex"]], **options}
    return lh.audit(frame.y, scores=frame.s, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", BOUNDED)
def test_it_is_the_best_of_all_thresholds_within_the_bound(metric: str) -> None:
    frame = table(400)
    code = (frame.sex == "m").to_numpy().astype(np.int64)
    rows = Scored(frame.s.to_numpy(), frame.y.to_numpy() == 1, {"sex": code}, {"sex": ["f", "m"]})

    def at(threshold: float) -> tuple[float, float]:
        decided = (frame.s >= threshold).astype(int)
        rates = {"demographic_parity": [frame.y >= 0], "equal_opportunity": [frame.y == 1]}
        gaps = [
            np.ptp(decided[own].groupby(frame.sex[own]).mean())
            for own in rates.get(metric, [frame.y == 1, frame.y == 0])
        ]
        return max(gaps), float((decided == frame.y).mean())

    threshold, met, _ = choose_threshold(rows, metric, 0.1, 0.5, None, 1)
    assert met
    assert at(threshold)[0] <= 0.1
    every = [at(one) for one in np.unique(np.append(frame.s, 0.5))]
    assert at(threshold)[1] == max(accuracy for gap, accuracy in every if gap <= 0.1)


def halves(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows that choose a threshold, and those that it is measured on."""
    ordered = frame.sort_values(["s", "y", "sex"])  # the draws are of sorted rows
    places = np.random.default_rng([0, 2]).permutation(len(frame))
    return [ordered.iloc[places[first::2]] for first in (0, 1)]


def test_figures_are_those_of_rows_that_did_not_choose() -> None:
    frame = table()
    found = audited(frame).findings["bound"]
    assert found.chosen_on == found.measured_on == len(frame) / 2
    _, held = halves(frame)
    again = lh.audit(
        held.y, (held.s >= found.chosen.threshold).astype(int), sensitive_features=held[["sex"]], replicates=200
    )
    assert found.chosen.gaps["sex"] == again.by_attribute["sex"].metrics["equalized_odds_worst"]
    assert found.chosen.accuracy.value == again.metrics["accuracy"].value
    assert found.plain.threshold == 0.5
    assert found.plain.gaps["sex"].value > 0.2 > found.chosen.gaps["sex"].value
    assert found.sentences()[0] in audited(frame).to_dict()["bound"]["sentences"]


def test_whether_the_bound_holds_is_told_in_three_ways() -> None:
    assert audited(table(apart=0.0, rows=6000)).findings["bound"].within == "yes"
    assert audited(table(200)).findings["bound"].within == "undecided"
    none = audited(table(), bound="0").findings["bound"]
    assert none.within in ("undecided", "no")
    # What is so at every threshold cannot be kept within it, but by deciding all rows alike.
    choosing, _ = halves(table())
    assert (choosing.s >= none.chosen.threshold).mean() in (0, 1) or not none.met


def test_costs_choose_where_there_are_some() -> None:
    frame = table()
    dear = audited(frame, costs={"false_positive": 1, "false_negative": 8}).findings["bound"]
    cheap = audited(frame, costs={"false_positive": 8, "false_negative": 1}).findings["bound"]
    assert dear.chosen.threshold < cheap.chosen.threshold
    assert dear.chosen.cost is not None
    assert "Errors there cost" in " ".join(dear.sentences())


def test_bounds_are_read() -> None:
    assert check_bound(None) is None
    assert check_bound("5%") == ("equalized_odds", 0.05)
    assert check_bound("demographic_parity=0.1") == ("demographic_parity", 0.1)
    assert check_bound({"equal_opportunity": 0}) == ("equal_opportunity", 0.0)


def test_what_cannot_be_measured_is_no_gap_of_0() -> None:
    frame = table(600).assign(one="a", rare=["b"] * 15 + ["a"] * 585)
    found = audited(frame, sensitive_features=frame[["sex", "one", "rare"]]).findings["bound"]
    assert found.left_out == ("one", "rare")
    assert found.chosen == replace(audited(frame).findings["bound"].chosen, gaps=found.chosen.gaps)
    assert not found.chosen.gaps["one"].defined
    assert found.within != "yes"
    assert "leaves out one, rare: fewer than two groups have 10 rows under each rate" in " ".join(found.sentences())
    with pytest.raises(DataError, match=r"Rows per group of 'rare': a 1\d\d, b \d\. Pass more rows, or lower --min-c"):
        audited(frame, sensitive_features=frame[["one", "rare"]])
    # Only one of the two groups has negatives: no gap in false positive rates, and none in equalized odds.
    frame["y"] = np.where(frame.sex == "f", 1, frame.y)
    with pytest.raises(DataError, match="Rows per group of 'sex': f 0, m"):
        audited(frame)
    assert audited(frame, bound="equal_opportunity=9%").findings["bound"].left_out == ()


def test_a_group_that_a_half_has_too_few_rows_of_is_named_and_leaves_the_bound_undecided() -> None:
    """All of group x score below any threshold: the audit sees that gap, either half has about 5 rows of each label."""
    few = pd.DataFrame({"sex": "x", "y": [0, 1] * 10, "s": 0.01})
    frame = pd.concat([table(6000, apart=0.0), few], ignore_index=True)
    found, gap = audited(frame).findings["bound"], audited(frame).by_attribute["sex"].metrics["equalized_odds_worst"]
    assert gap.low > 0.4
    assert found.not_choosing == found.not_measured == {"sex": ("x",)}
    assert found.within == "undecided"
    said = found.sentences()
    assert f"within 10 points on {found.chosen_on:,} rows without “x” of sex, " in said[0]
    assert said[1] == "On the other rows that is inconclusive: too few rows of “x” of sex."
    assert said[2] == "A group needs 10 rows under each rate there: pass more, or lower --min-count."
    assert "by sex, the gap without “x” is " in said[3]
    (figure,) = [one for *_, name, one in found.figures() if name == "bounded_equalized_odds"]
    assert not figure.defined
    assert audited(frame).to_dict()["bound"]["not_measured"] == {"sex": ["x"]}
    above = replace(found, bound=0.0, within="no", chosen=found.plain)
    above.plain.gaps["sex"] = replace(gap, low=0.2, high=0.3)
    (figure,) = [one for *_, name, one in above.figures() if name == "bounded_equalized_odds"]
    assert (figure.low, figure.high) == (0.2, 1.0)  # the group that is not measured can only make it larger
    assert "The other rows show a gap above 0 points, even without “x” of sex: the choice" in above.sentences()[1]
    # A group that the audit itself leaves out takes nothing from what is found.
    fewer = pd.concat([table(6000, apart=0.0), few[:12]], ignore_index=True)
    known = audited(fewer).findings["bound"]
    assert (known.not_choosing, known.not_measured, known.within) == ({}, {}, "yes")


def test_counts_at_all_thresholds_are_those_of_each() -> None:
    rows, draw = 500, np.random.default_rng(3)
    score, label = draw.integers(0, 20, rows) / 20, draw.random(rows) < 0.4
    group, tried = draw.integers(-1, 3, rows), np.array([0, 0.1, 0.33, 0.95, 2.0])
    found = Scored(score, label, {"g": group}, {"g": ["a", "b", "c"]}).tables("g", tried)
    for (at, one, y, p), count in np.ndenumerate(found):
        assert count == ((group == one) & (label == y) & ((score >= tried[at]) == p)).sum()


def test_the_command_and_what_does_not_go_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, path = table(600), tmp_path / "rows.csv"
    frame.assign(p=(frame.s > 0.5) * 1, one="a").to_csv(path, index=False)
    line = ["audit", str(path), "--label", "y", "--group", "sex"]
    assert run(*line, "--score", "s", "--bound", "5%", "--json", tmp_path / "a.json", "--all") == 0
    assert "One threshold for all" in said(capsys)
    assert json.loads((tmp_path / "a.json").read_text())["bound"]["metric"] == "equalized_odds"
    with pytest.raises(ConfigError, match="chooses a threshold"):
        lh.audit_file(path, "y", "p", ["sex"], bound="5%")
    with pytest.raises(DataError, match=r"half of the rows that chooses a threshold \(1 row\)"):
        lh.audit([1, 0], scores=[0.9, 0.1], sensitive_features=["a", "b"], bound="5%", replicates=100)
