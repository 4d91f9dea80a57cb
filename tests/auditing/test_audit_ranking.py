"""Audits of rankings without outcomes: figures, ties, hostile columns, the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from command_line import run
from levelhead.auditing.ranking_page import ranking_sentences
from levelhead.cli.report import page_of
from levelhead.metrics.top import TopLaw
from levelhead.types import DataError


def drawn(seed: int, rows: int = 300, shift: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    return rng.normal(shift * (group == "a")), group


def test_ties_at_the_cut_are_said_and_shared() -> None:
    result = lh.audit_ranking([2] * 10 + [1] * 90, sensitive_features={"g": ["a", "b"] * 50}, top=40)
    assert {one.in_top for one in result.by_attribute["g"].groups.values()} == {20.0}
    assert result.warnings[-1] == (
        "90 rows tie at the cut (score 1) for 30 places: each counts as 30/90 of a row in the top."
    )
    order = np.random.default_rng(0).permutation(100)
    score, group = np.repeat([2, 1], [10, 90])[order], np.array(["a", "b"] * 50)[order]
    again = lh.audit_ranking(score, sensitive_features={"g": group}, top=40)
    assert again.to_dict() == result.to_dict()  # no order of the file decides


def test_the_first_places_can_be_the_lowest_and_a_share() -> None:
    score, group = drawn(1)
    highest = lh.audit_ranking(score, sensitive_features={"g": group}, top=30)
    ranks = stats.rankdata(-score)
    lowest = lh.audit_ranking(ranks, sensitive_features={"g": group}, top="10%", lowest_first=True)
    assert lowest.by_attribute["g"] == highest.by_attribute["g"]


def test_small_absent_and_lonely_groups_are_said() -> None:
    score, group = drawn(3)
    group = np.where(np.arange(300) < 5, "tiny", group).astype(object)
    group[5:20] = None
    result = lh.audit_ranking(score, sensitive_features={"g": group}, top=50)
    assert any("“tiny” has 5 rows, fewer than 10" in said for said in result.warnings)
    assert any("15 rows without a group keep their places" in said for said in result.warnings)
    assert not result.by_attribute["g"].groups["tiny"].included
    alone = lh.audit_ranking(score, sensitive_features={"g": ["one"] * 300}, top=50)
    assert alone.by_attribute["g"].groups["one"].representation.reason == "too few rows to be compared"
    assert "there is nothing to compare" in alone.warnings[0]
    assert "No two groups" in str(alone)


def test_nobody_of_the_reference_in_the_top_has_no_ratio() -> None:
    score, group = np.arange(100.0), np.repeat(["low", "high"], 50)
    found = lh.audit_ranking(score, sensitive_features={"g": group}, top=20, reference="low").by_attribute["g"].groups
    assert found["high"].selection_ratio.reason == "no row of the reference group is in the top"
    assert found["low"].representation.value == 0 < found["low"].representation.high


def test_the_command_writes_a_page_and_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score, group = drawn(4, rows=2000, shift=1.0)
    hostile = np.where(group == "a", "<b>&\x1b[31m", group)
    pd.DataFrame({"points": score, "who": hostile}).to_csv(tmp_path / "rows.csv", index=False)
    args = ["audit", str(tmp_path / "rows.csv"), "--rank", "points", "--top", "200", "--group", "who"]
    files = ["--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html")]
    assert run(*args, *files, "--fail-if", "selection_ratio < 0.8") == 1
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert "of the first 200 places" in shown
    html = (tmp_path / "out.html").read_text()
    assert "<b>&" not in html
    assert "Representation by who over the size of the top" in html
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["kind"] == "ranking"
    assert (
        page_of(tmp_path / "out.json")["finding"]
        == lh.audit_ranking_file(tmp_path / "rows.csv", "points", ["who"], top=200).page()["finding"]
    )


def test_a_frequency_table_has_the_figures_of_its_rows(tmp_path: Path) -> None:
    score, group = drawn(0)
    count = np.arange(len(score)) % 3
    every = np.repeat(np.arange(len(score)), count)
    expected = lh.audit_ranking(score[every], sensitive_features={"group": group[every]}, top=40)
    found = lh.audit_ranking(score, sensitive_features={"group": group}, top=40, counts=count)
    assert found.by_attribute == expected.by_attribute
    assert found.reading == (f"Frequency table: counts counts {count.sum()} people in all.",)
    path = tmp_path / "rows.csv"
    pd.DataFrame({"s": score, "g": group, "n": count}).to_csv(path, index=False)
    of_file = lh.audit_ranking_file(path, "s", ["g"], top=40, count="n")
    assert of_file.by_attribute["g"].groups == expected.by_attribute["group"].groups
    pd.DataFrame({"s": score, "g": group, "n": 0}).to_csv(path, index=False)
    with pytest.raises(DataError, match="All counts in 'n' are 0"):
        lh.audit_ranking_file(path, "s", ["g"], top=40, count="n")


def test_two_groups_are_one_figure_only_where_they_are_all_rows() -> None:
    """What one of two has in the top says what the other has; beside rows without a group it does not."""
    score, half = np.arange(400)[::-1] % 397, ["x", "y"] * 100
    alone = lh.audit_ranking(score[:200], sensitive_features={"g": half}, top=40)
    beside = lh.audit_ranking(score, sensitive_features={"g": [*half, *[None] * 200]}, top=40)
    groups = [one.by_attribute["g"].groups["x"] for one in (alone, beside)]
    law = TopLaw(100, 400, 40)
    assert groups[1].p_value == min(1.0, 2 * law.p_value(groups[1].in_top))
    low, high = law.expected(groups[1].in_top, 0.025)
    assert (groups[1].share_of_top.low, groups[1].share_of_top.high) == pytest.approx((low / 40, high / 40))
    assert groups[0].p_value == min(1.0, TopLaw(100, 200, 40).p_value(groups[0].in_top))


def test_beside_rows_without_a_group_both_of_two_groups_are_named() -> None:
    """Neither group's share of the top follows from the other's: both may hold more than their share."""
    chance = np.random.default_rng(1)
    group = ["a"] * 100 + ["b"] * 100
    score = np.concatenate([chance.permutation(np.arange(200.0)), np.full(60, -5.0) - np.arange(60)])
    beside = lh.audit_ranking(score, sensitive_features={"g": [*group, *[None] * 60]}, top=150)
    said = ranking_sentences(beside.to_dict())
    assert len(said) == 2
    assert {one.split(" ")[0] for one in said} == {"“a”", "“b”"}
    ahead = np.where(np.array(group) == "a", 300.0, 0.0) + score[:200]
    only = lh.audit_ranking(np.r_[ahead, score[200:]], sensitive_features={"g": [*group, *[None] * 60]}, top=110)
    first = ranking_sentences(only.to_dict())[0]
    assert first.startswith("“b” holds 10 of the first 110 places")
    alone = lh.audit_ranking(ahead, sensitive_features={"g": group}, top=110)
    assert [one.split(" ")[0] for one in ranking_sentences(alone.to_dict())] == ["“b”"]
