"""Probabilities of each group in each row: bounds, the weighted estimate, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from as_tables import audit_unrecorded
from command_line import run, said
from levelhead.auditing.unknown.answer import points
from levelhead.auditing.unknown.known import named_in
from levelhead.storage import read_json

COLUMNS = {"white": "p_w", "black": "p_b", "other": "p_o"}


def world(rows: int = 6000, seed: int = 0, effect: float = 0.0) -> pd.DataFrame:
    """Rows whose group is drawn by their probabilities; approvals depend on these, and by ``effect`` on the group."""
    chance = np.random.default_rng(seed)
    p = chance.dirichlet((2.0, 0.7, 0.4), 60)[chance.integers(0, 60, rows)]
    group = (chance.random(rows)[:, None] > p.cumsum(1)).sum(1)
    approved = chance.random(rows) < 0.3 + 0.3 * p[:, 0] - effect * (group == 1)
    repaid = chance.random(rows) < 0.6
    table = pd.DataFrame(p, columns=list(COLUMNS.values()))
    return table.assign(group=group, approved=np.where(approved, "yes", "no"), repaid=np.where(repaid, "yes", "no"))


def audit(table: pd.DataFrame, **more: Any) -> Any:
    given = {group: table[name] for group, name in COLUMNS.items()}
    return audit_unrecorded(more.pop("y_true", None), table["approved"], proxy_probabilities=given, **more)


@pytest.fixture(scope="module")
def wide() -> Any:
    """Return the groups of an audit of many rows."""
    return audit(world(20_000)).parts["groups"]


def test_the_weighted_estimate_and_the_bounds_hold_the_truth(wide: Any) -> None:
    p = world(20_000)[list(COLUMNS.values())].to_numpy()
    rates = p.T @ (0.3 + 0.3 * p[:, 0]) / p.sum(0)  # of the population
    assert wide.method == "bounds"
    assert [one.groups for one in wide.gaps] == [("black", "white"), ("other", "white"), ("other", "black")]
    for one, (a, b) in zip(wide.gaps, ((1, 0), (2, 0), (2, 1)), strict=True):
        truth = rates[a] - rates[b]
        assert one.gap == "demographic_parity"
        assert one.bounds.reach_low <= one.bounds.low <= truth <= one.bounds.high <= one.bounds.reach_high
        assert one.bounds.reach_high - one.bounds.high < 0.03
        assert one.weighted.low < truth < one.weighted.high
    assert sum(wide.shares.values()) == pytest.approx(1)


def test_the_headline_is_about_the_largest_weighted_gap_unless_one_is_certain(wide: Any) -> None:
    """The bounds of the smallest groups are widest, whatever their gap is."""
    largest = max(wide.gaps, key=lambda one: abs(one.weighted.value))
    widest = max(wide.gaps, key=lambda one: one.bounds.largest_reach)
    assert largest is not widest
    a, b = largest.groups
    assert f"of {a} minus that of {b} lies between {points(largest.bounds.reach_low)}" in wide.headline
    assert f"The weighted estimate, as with BISG, is {points(largest.weighted.value)} points" in wide.headline
    assert "; the largest of 3 differences, adjusted for all)" in wide.headline
    known = replace(widest, bounds=replace(widest.bounds, reach_low=0.01))
    certain = replace(wide, gaps=[known if one is widest else one for one in wide.gaps]).headline
    assert f"of {widest.groups[0]} minus that of {widest.groups[1]} lies between +1.0" in certain
    assert "higher in any case" in certain
    assert "the largest of" not in certain


def test_groups_whose_probabilities_have_one_ratio_get_no_weighted_gap_of_zero() -> None:
    """Weights cannot tell them apart: their weighted rates are equal, whatever the rates are."""
    table = world(2_000)
    table["p_b"] = table["p_o"] = (1 - table["p_w"]) / 2
    part = audit(table).parts["groups"]
    *others, same = part.gaps
    assert (same.groups, same.weighted.defined) == (("other", "black"), False)
    assert "have the same ratio in every row" in same.weighted.reason
    assert all(one.weighted.low < one.weighted.high for one in others)
    assert f"No weighted estimate of other and black: {same.weighted.reason}." in part.rests_on


def test_the_weighted_estimate_is_too_small_where_the_group_counts_within_a_row() -> None:
    """Its error is what one expects: cov(group, approval | probabilities), over the share of the group."""
    table = world(40_000, effect=0.2)
    yes, of = (table["approved"] == "yes").to_numpy(), (table["group"] == 1).to_numpy()
    p = table["p_b"].to_numpy()
    one = audit(table).parts["groups"].gaps[0]
    truth = yes[of].mean() - yes[table["group"] == 0].mean()
    assert one.weighted.value > truth + 0.05
    assert one.bounds.low < truth < one.bounds.high
    # f_a less its weighted estimate, by its definition; the approximation is that p is calibrated.
    missing = ((of - p) * yes).mean() / of.mean()
    weighted = (p * yes).sum() / p.sum()
    assert yes[of].mean() - weighted == pytest.approx(missing, abs=0.01)


def test_with_labels_all_three_rates_are_compared() -> None:
    table = world()
    found = audit(table, y_true=table["repaid"])
    assert {one.gap for one in found.parts["groups"].gaps} == {
        "demographic_parity", "equal_opportunity", "false_positive_rate"
    }  # fmt: skip
    names = {figure for _, _, figure, _ in found.figures()}
    assert "equal_opportunity_weighted" in names


def test_one_group_stands_against_all_others() -> None:
    table = world()
    one = audit_unrecorded(None, table["approved"], proxy_probabilities={"black": table["p_b"]})
    two = audit_unrecorded(
        None, table["approved"], proxy_probabilities={"not black": 1 - table["p_b"], "black": table["p_b"]}
    )
    (first,), (second,) = one.parts["groups"].gaps, two.parts["groups"].gaps
    assert first.groups == second.groups == ("black", "not black")
    assert first.weighted == second.weighted
    assert (first.bounds.low, first.bounds.high) == pytest.approx((second.bounds.low, second.bounds.high))


def test_the_command_with_a_csv_and_a_parquet_file(folder_of_its_own: None, capsys: pytest.CaptureFixture[str]) -> None:
    table = world(2000).round({"p_w": 2, "p_b": 2, "p_o": 2})
    table.to_csv("loans.csv", index=False)
    table.to_parquet("loans.parquet")
    given = ",".join(f"{group}={column}" for group, column in COLUMNS.items())
    options = ("--prediction", "approved", "--proxy-probabilities", given, "--positive", "yes", "--json", "out.json")
    parts = []
    for name in ("loans.csv", "loans.parquet"):
        limit = ("--fail-if", "demographic_parity_weighted < 0.5")
        assert run("indirect-audit", name, *options, "--html", "out.html", *limit) == 1
        parts.append(read_json(Path("out.json"))["parts"])
        assert "rounded probabilities were normalised to sum to 1" in said(capsys)
        assert "BISG" in Path("out.html").read_text()
    assert parts[0] == parts[1]
    gap = parts[0]["groups"]["gaps"][0]
    assert gap["groups"] == ["black", "white"]
    assert gap["weighted"]["low"] < gap["weighted"]["value"] < gap["weighted"]["high"]


@pytest.mark.parametrize("rows", [2, 5])
def test_a_few_rows_give_bounds_and_no_error(rows: int) -> None:
    table = world(300).head(rows).assign(approved=["yes", *["no"] * (rows - 1)])
    one = audit(table).parts["groups"].gaps[0]
    assert -1 <= one.bounds.reach_low <= one.bounds.low <= one.bounds.high <= one.bounds.reach_high <= 1


def test_groups_and_their_columns_are_read() -> None:
    wanted = {"white": "p_w", "black": "p_b"}
    for given in (["white=p_w", "black = p_b"], "white=p_w,black=p_b", wanted):
        assert named_in(given, "--proxy-probabilities", "black=p_black") == wanted
