"""Weighted rows: figures by hand, what rows are worth, what is said, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.report import render
from levelhead.report.one_page import one_page


def made(rows: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Return predictions that are right for 70% of women and 85% of men, and weights."""
    chance = np.random.default_rng(seed)
    sex, y = chance.choice(["f", "m"], rows), chance.integers(0, 2, rows)
    yhat = np.where(chance.random(rows) < np.where(sex == "f", 0.7, 0.85), y, 1 - y)
    return pd.DataFrame({"y": y, "yhat": yhat, "sex": sex, "w": chance.lognormal(0, 0.8, rows).round(4) + 0.01})


def audited(frame: pd.DataFrame, **options: Any) -> lh.AuditResult:
    return lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"], sample_weight=frame["w"], **options)


def plain(frame: pd.DataFrame, **options: Any) -> lh.AuditResult:
    return lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"], **options)


def ends(one: lh.Estimate) -> tuple[float, float, float]:
    return one.value, one.low, one.high


def test_rates_are_weighted_and_rows_are_worth_what_kish_says() -> None:
    frame = made()
    result, women = audited(frame), frame[frame["sex"] == "f"]
    positives, figures = women[women["y"] == 1], result.groups["f"]

    def share(of: Any, rows: pd.DataFrame) -> float:
        return float(np.average(of, weights=rows["w"]))

    for rate, expected in (
        ("true_positive_rate", share(positives["yhat"], positives)),
        ("selection_rate", share(women["yhat"], women)),
        ("accuracy", share(women["y"] == women["yhat"], women)),
    ):
        assert figures.rates[rate].value == pytest.approx(expected)
    assert figures.worth == pytest.approx(women["w"].sum() ** 2 / (women["w"] ** 2).sum())
    assert figures.n == len(women)
    rates = {sex: part.rates["true_positive_rate"].value for sex, part in result.groups.items()}
    recalls = [share(part["y"] == part["yhat"], part) for _, part in frame.groupby("y")]
    for name, expected in (
        ("equal_opportunity", abs(rates["f"] - rates["m"])),
        ("accuracy", share(frame["y"] == frame["yhat"], frame)),
        ("balanced_accuracy", np.mean(recalls)),
    ):
        assert result.metrics[name].value == pytest.approx(expected)
    assert all(figure.low <= figure.value <= figure.high for figure in result.metrics.values())


def test_equal_weights_give_the_figures_of_none_whatever_their_size() -> None:
    frame = made()
    alone, unequal = plain(frame), audited(frame)
    for weight in (1.0, 1e-9, 250.0):
        equal = audited(frame.assign(w=weight))
        for name, figure in alone.metrics.items():
            assert equal.metrics[name].value == pytest.approx(figure.value)
        for sex, part in alone.groups.items():
            assert equal.groups[sex].worth == pytest.approx(part.n)
            for name, figure in part.rates.items():
                assert ends(equal.groups[sex].rates[name]) == pytest.approx(ends(figure))
        found, pair = equal.more["finding"]["pair"], alone.more["finding"]["pair"]
        assert found["difference"]["low"] == pytest.approx(pair["difference"]["low"])
        for name in ("demographic_parity", "equal_opportunity"):
            one, other = equal.metrics[name], unequal.metrics[name]
            assert other.high - other.value > one.high - one.value


def test_weights_that_go_with_the_outcome_are_worth_less_than_kish_says() -> None:
    # Hits have the larger weights: the linearised variance is larger than Kish's number tells.
    y = np.ones(400, int)
    yhat = np.tile([1, *[0] * 9], 40)
    w = np.where(yhat == 1, 4.0, 1.0)
    share, hits, misses = 160 / 520, 40, 360
    spread = ((1 - share) ** 2 * 16 * hits + share**2 * misses) / 520**2
    everyone = lh.audit([*y, 0], [*yhat, 0], sensitive_features=["a"] * 401, sample_weight=[*w, 1])
    rate = everyone.groups["a"].rates["true_positive_rate"]
    worth = share * (1 - share) / spread
    middle, z = (share + 1.959964**2 / (2 * worth)) / (1 + 1.959964**2 / worth), 1.959964
    half = z / (1 + z * z / worth) * np.sqrt(share * (1 - share) / worth + z * z / (4 * worth**2))
    assert worth < 520**2 / (640 + 360)
    assert (rate.low, rate.high) == pytest.approx((middle - half, middle + half), abs=1e-6)


def test_a_file_gives_the_figures_of_the_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = made(500)
    frame.loc[::7, "w"] = 0
    frame.to_parquet(tmp_path / "p.parquet")
    monkeypatch.setattr("levelhead.tables.files.BATCH_ROWS", 64)
    whole, file = (
        audited(frame),
        lh.audit_table(tmp_path / "p.parquet", label="y", prediction="yhat", groups=["sex"], weight="w"),
    )
    assert file.groups["f"].rates["accuracy"].value == pytest.approx(whole.groups["f"].rates["accuracy"].value)
    assert "Left out: 72 rows with the weight 0 in w." in file.warnings
    kept = frame[frame["w"] > 0]
    assert audited(kept).metrics["equalized_odds"].value == pytest.approx(whole.metrics["equalized_odds"].value)


def test_several_classes_and_groups_without_rows() -> None:
    chance = np.random.default_rng(1)
    frame = pd.DataFrame({"y": chance.integers(0, 3, 900), "sex": chance.choice(list("abc"), 900)})
    frame["yhat"] = np.where(chance.random(900) < 0.7, frame["y"], chance.integers(0, 3, 900))
    frame["w"] = chance.random(900) + 0.1
    frame.loc[frame["sex"] == "c", "y"] = 0
    result = audited(frame)
    assert result.metrics["equalized_odds"].defined
    assert result.by_attribute["sex"].worst_class["equalized_odds"] in {"0", "1", "2"}
    for name in ("equalized_odds", "equalized_odds_mean", "demographic_parity_mean"):
        figure = result.metrics[name]
        assert 0 <= figure.low <= figure.value <= figure.high <= 1
    assert "undefined" in result.text(all=True)
    assert render(one_page(result.to_dict()))
    assert not result.groups["c"].rates["true_positive_rate[1]"].defined


def test_ratios_precision_and_the_four_fifths_rule_are_weighted() -> None:
    frame = made()
    options: dict[str, Any] = {"favourable": 1, "reference": "m"}
    found = audited(frame, **options).rates["sex"]
    rate = {sex: np.average(own.yhat, weights=own.w) for sex, own in frame.groupby("sex")}
    precise = {sex: np.average(own.y, weights=own.w) for sex, own in frame[frame.yhat == 1].groupby("sex")}
    for own in (found.groups["f"].selection_ratio, found.outcome.ratios["f"]):
        assert own.value == pytest.approx(rate["f"] / rate["m"])
    assert found.groups["f"].precision.value == pytest.approx(precise["f"])
    assert found.predictive_parity.value == pytest.approx(abs(precise["f"] - precise["m"]))
    alike, alone = audited(frame.assign(w=1.0), **options).rates["sex"], plain(frame, **options).rates["sex"]
    own, its = alike.outcome.ratios["f"], alone.outcome.ratios["f"]
    np.testing.assert_allclose(ends(own), ends(its), rtol=1e-12)


def test_levels_are_weighted() -> None:
    frame = made().assign(site=lambda one: np.where(np.arange(len(one)) % 3 == 0, "n", "s"))
    site = frame[["site"]]
    pair = next(
        one for one in audited(frame, control_features=site).more["control"]["pairs"] if one["rate"] == "selection_rate"
    )
    rate = frame.groupby(["site", "sex"])[["yhat", "w"]].apply(lambda own: np.average(own.yhat, weights=own.w))
    share = frame.groupby("site").w.sum() / frame.w.sum()
    first, second = pair["first"]["group"], pair["second"]["group"]
    apart = rate.xs(first, level="sex") - rate.xs(second, level="sex")
    assert pair["difference"] == pytest.approx((apart * share).sum())
    over = frame.groupby("sex")[["yhat", "w"]].apply(lambda own: np.average(own.yhat, weights=own.w))
    assert pair["plain"] == pytest.approx(over[first] - over[second])
    rows = [((frame.site == "n") & (frame.sex == sex)).sum() for sex in (first, second)]
    assert pair["levels"][0]["rows"] == rows
    alike, alone = (
        result.more["control"]["pairs"]
        for result in (audited(frame.assign(w=1.0), control_features=site), plain(frame, control_features=site))
    )
    for own, its in zip(alike, alone, strict=True):
        for key in ("difference", "low", "high", "plain", "covered"):
            assert own[key] == pytest.approx(its[key], rel=1e-12)
    assert pair["high"] - pair["low"] > 1.1 * (alone[0]["high"] - alone[0]["low"])
