"""Matched pairs: their figures against scipy, statsmodels and counts by hand, and what of a pair does not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh

statsmodels = pytest.importorskip("statsmodels.stats.contingency_tables")


def made(both: int = 40, men: int = 18, women: int = 4, neither: int = 60) -> pd.DataFrame:
    """Return this many pairs in which both are chosen, one is, or none, in any order of rows."""
    chosen = [(1, 1)] * both + [(1, 0)] * men + [(0, 1)] * women + [(0, 0)] * neither
    rows = [(f"p{at}", sex, one) for at, pair in enumerate(chosen) for sex, one in zip(("m", "f"), pair, strict=True)]
    table = pd.DataFrame(rows, columns=["pair", "sex", "chosen"]).sample(frac=1, random_state=0)
    table["score"] = table["chosen"] + (table["sex"] == "m") / 4 + np.random.default_rng(0).normal(0, 1, len(table))
    return table


def of(table: pd.DataFrame, **asked: Any) -> Any:
    """Audit pairs of decisions unless it is asked for scores."""
    named: dict[str, Any] = {"prediction": "chosen"} if "score" not in asked else {}
    return lh.audit_table(table, groups=["sex"], pairs="pair", **{**named, **asked})


@pytest.mark.parametrize(("men", "women"), [(18, 4), (4, 18), (5, 0), (6, 6), (0, 0)])
def test_decisions_are_those_of_mcnemar(men: int, women: int) -> None:
    found = of(made(men=men, women=women))
    n = 100 + men + women
    assert found.p_value == pytest.approx(statsmodels.mcnemar([[40, men], [women, 60]], exact=True).pvalue)
    assert (found.differently.value, found.differently.n) == (pytest.approx((men + women) / n), n)
    for group, hits in (("m", men), ("f", women)):
        ends = stats.binomtest(hits, n).proportion_ci(method="wilson")
        one = found.groups[group]["chosen_alone"]
        assert (one.value, one.low, one.high) == pytest.approx((hits / n, *ends))
    (pair,) = found.found.pairs
    assert pair.difference.value == pytest.approx(abs(men - women) / n)
    assert pair.decided == (found.p_value < 0.05)
    assert (pair.first.group == "m") == (men > women) or men == women
    found.require("decided_differently < 0.5")
    assert ("inconclusive" in found.sentences()[0]) != pair.decided


def test_the_interval_of_scores_holds_that_of_the_paired_t_test() -> None:
    table = made()
    found = of(table, score="score")
    first, second = (table[table["sex"] == sex].set_index("pair").sort_index()["score"] for sex in ("m", "f"))
    ends = stats.ttest_rel(first, second).confidence_interval(0.95)
    (pair,) = found.found.pairs
    assert pair.first.group == "m"
    assert pair.difference.value == pytest.approx((first - second).mean())
    assert pair.difference.low <= ends.low < ends.high <= pair.difference.high
    assert (pair.difference.low, pair.difference.high) == pytest.approx(tuple(ends), abs=0.02)
    assert found.groups["f"]["mean_score"].value == pytest.approx(second.mean())
    blind = of(table.assign(score=0.5), score="score")
    assert not blind.found.pairs
    assert "the same amount" in blind.sentences()[0]


def test_decisions_and_scores_share_the_error_probability() -> None:
    table = made()
    alone, both = of(table), of(table, prediction="chosen", score="score")
    assert both.found.comparisons == 2
    assert both.p_value == pytest.approx(2 * alone.p_value)
    wide = next(one for one in both.found.pairs if one.quantity == "chosen_alone")
    assert wide.difference.low < alone.found.pairs[0].difference.low


def test_order_labels_and_names_of_pairs_do_not_matter() -> None:
    table = made()
    plain = of(table).to_dict()
    named = table.assign(pair=table["pair"].str[1:].astype(int), y=1)
    assert of(named[::-1], label="y").to_dict() == plain
    turned = of(table.assign(chosen=np.where(table["chosen"], "no", "yes")), favourable="no")
    assert turned.to_dict()["groups"] == plain["groups"]
