"""Weighted rows: figures by hand, what rows are worth, what is said, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.auditing.page import audit_page
from levelhead.cli.app import main
from levelhead.metrics.weighted import kish
from levelhead.report import render
from levelhead.types import DataError


def made(rows: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Return predictions that are right for 70% of women and 85% of men, and weights."""
    chance = np.random.default_rng(seed)
    sex, y = chance.choice(["f", "m"], rows), chance.integers(0, 2, rows)
    yhat = np.where(chance.random(rows) < np.where(sex == "f", 0.7, 0.85), y, 1 - y)
    return pd.DataFrame({"y": y, "yhat": yhat, "sex": sex, "w": chance.lognormal(0, 0.8, rows).round(4) + 0.01})


def audited(frame: pd.DataFrame, **options: object) -> lh.AuditResult:
    return lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"], sample_weight=frame["w"], **options)  # type: ignore[arg-type]


def run(command: list[str]) -> object:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as stop:
        main(command)
    return stop.value.code


def test_rates_are_weighted_and_rows_are_worth_what_kish_says() -> None:
    frame = made()
    result = audited(frame)
    women = frame[frame["sex"] == "f"]
    positives = women[women["y"] == 1]
    figures = result.groups["f"]
    assert figures.rates["true_positive_rate"].value == pytest.approx(
        np.average(positives["yhat"], weights=positives["w"])
    )
    assert figures.rates["selection_rate"].value == pytest.approx(np.average(women["yhat"], weights=women["w"]))
    right = women["y"] == women["yhat"]
    assert figures.rates["accuracy"].value == pytest.approx(np.average(right, weights=women["w"]))
    assert figures.worth == pytest.approx(women["w"].sum() ** 2 / (women["w"] ** 2).sum())
    assert figures.worth_by_label is not None
    assert figures.worth_by_label["1"] == pytest.approx(positives["w"].sum() ** 2 / (positives["w"] ** 2).sum())
    assert figures.n == len(women)
    rates = {sex: part.rates["true_positive_rate"].value for sex, part in result.groups.items()}
    assert result.metrics["equal_opportunity"].value == pytest.approx(abs(rates["f"] - rates["m"]))
    assert result.metrics["accuracy"].value == pytest.approx(
        np.average(frame["y"] == frame["yhat"], weights=frame["w"])
    )
    recalls = [np.average(part["y"] == part["yhat"], weights=part["w"]) for _, part in frame.groupby("y")]
    assert result.metrics["balanced_accuracy"].value == pytest.approx(np.mean(recalls))
    for figure in result.metrics.values():
        assert figure.low <= figure.value <= figure.high


def test_kish_by_hand() -> None:
    weights = np.array([1.0, 1, 2, 4])
    assert kish(weights.sum(), (weights**2).sum()) == pytest.approx(64 / 22)


def test_equal_weights_give_the_figures_of_none_whatever_their_size() -> None:
    frame = made()
    plain = lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"])
    for weight in (1.0, 1e-9, 250.0):
        equal = audited(frame.assign(w=weight))
        for name, figure in plain.metrics.items():
            assert equal.metrics[name].value == pytest.approx(figure.value)
        for sex, part in plain.groups.items():
            assert equal.groups[sex].worth == pytest.approx(part.n)
            for name, figure in part.rates.items():
                own = equal.groups[sex].rates[name]
                assert (own.value, own.low, own.high) == pytest.approx((figure.value, figure.low, figure.high))
        found, pair = equal.more["finding"]["pair"], plain.more["finding"]["pair"]
        assert found["difference"]["low"] == pytest.approx(pair["difference"]["low"])


def test_unequal_weights_make_intervals_wider() -> None:
    frame = made()
    equal, unequal = audited(frame.assign(w=1.0)), audited(frame)
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


def test_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, file, page, figures = made(), tmp_path / "p.csv", tmp_path / "a.html", tmp_path / "a.json"
    frame.to_csv(file, index=False)
    command = ["audit", str(file), "--label", "y", "--prediction", "yhat", "--group", "sex", "--weight", "w"]
    assert run([*command, "--all", "--html", str(page), "--json", str(figures)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    whole = json.loads(figures.read_text())
    worth = f"{whole['weights']['worth']:,.0f}"
    assert f"Weighted: effective sample size {worth}." in said
    assert f"All figures are weighted by w: the effective sample size of 2,000 rows is {worth}" in said
    assert "effective " in said.partition("Groups of sex")[2]
    assert "(effective " in said.partition("Denominators of these rates:")[2][:80]
    assert whole["amplification"] == {}
    assert whole["ranges"] == []
    assert f"effective sample size {worth}" in page.read_text()
    assert whole["by_attribute"]["sex"]["groups"]["f"]["worth"] == pytest.approx(
        audited(frame.assign(sex=frame["sex"])).groups["f"].worth
    )


def test_a_file_gives_the_figures_of_the_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = made(500)
    frame.loc[::7, "w"] = 0
    frame.to_parquet(tmp_path / "p.parquet")
    monkeypatch.setattr("levelhead.tables.files.BATCH_ROWS", 64)
    whole, file = audited(frame), lh.audit_file(tmp_path / "p.parquet", "y", "yhat", ["sex"], weight="w")
    assert file.groups["f"].rates["accuracy"].value == pytest.approx(whole.groups["f"].rates["accuracy"].value)
    assert "72 rows have the weight 0 in w, and are left out." in file.warnings
    kept = frame[frame["w"] > 0]
    assert audited(kept).metrics["equalized_odds"].value == pytest.approx(whole.metrics["equalized_odds"].value)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({3: -1.0}, "1 weight is negative, first in row 4"),
        ({3: np.nan, 5: np.nan}, "2 weights are missing or infinite, first in row 4"),
        ({0: np.inf}, "1 weight is missing or infinite, first in row 1"),
        ({1: 1e200}, "is beyond 1e-100 to 1e.100, first in row 2"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: dict[int, float], said: str) -> None:
    frame = made(100)
    for row, value in weights.items():
        frame.loc[row, "w"] = value
    with pytest.raises(DataError, match=said):
        audited(frame)


def test_what_does_not_work_with_weights_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = made(100)
    file = tmp_path / "p.csv"
    frame.to_csv(file, index=False)
    command = ["audit", str(file), "--label", "y", "--prediction", "yhat", "--group", "sex", "--weight", "w"]
    for more in (["--against", str(file)], ["--score", "w"], ["--continuous", "w"]):
        assert run([*command, *more]) != 0
        assert "cannot be used with weights" in " ".join(capsys.readouterr().err.split())


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
    assert render(audit_page(result.to_dict()))
    assert not result.groups["c"].rates["true_positive_rate[1]"].defined


def test_ratios_precision_and_the_four_fifths_rule_are_weighted() -> None:
    frame = made()
    found = audited(frame, favourable=1, reference="m").rates["sex"]
    rate = {sex: np.average(own.yhat, weights=own.w) for sex, own in frame.groupby("sex")}
    precise = {sex: np.average(own.y, weights=own.w) for sex, own in frame[frame.yhat == 1].groupby("sex")}
    assert found.groups["f"].selection_ratio.value == pytest.approx(rate["f"] / rate["m"])
    assert found.outcomes[0].ratios["f"].value == pytest.approx(rate["f"] / rate["m"])
    assert found.groups["f"].precision.value == pytest.approx(precise["f"])
    assert found.predictive_parity.value == pytest.approx(abs(precise["f"] - precise["m"]))
    alike = audited(frame.assign(w=1.0), favourable=1, reference="m").rates["sex"]
    plain = lh.audit(frame.y, frame.yhat, sensitive_features=frame.sex, favourable=1, reference="m").rates["sex"]
    for own, its in zip(alike.outcomes, plain.outcomes, strict=True):
        np.testing.assert_allclose(ends(own.ratios["f"]), ends(its.ratios["f"]), rtol=1e-12)


def ends(one: lh.Estimate) -> tuple[float, float, float]:
    return one.value, one.low, one.high


def test_levels_are_weighted() -> None:
    frame = made().assign(site=lambda one: np.where(np.arange(len(one)) % 3 == 0, "n", "s"))
    found = audited(frame, control_features=frame[["site"]]).more["control"]
    pair = next(one for one in found["pairs"] if one["rate"] == "selection_rate")
    rate = frame.groupby(["site", "sex"])[["yhat", "w"]].apply(lambda own: np.average(own.yhat, weights=own.w))
    share = frame.groupby("site").w.sum() / frame.w.sum()
    first, second = pair["first"]["group"], pair["second"]["group"]
    apart = rate.xs(first, level="sex") - rate.xs(second, level="sex")
    assert pair["difference"] == pytest.approx((apart * share).sum())
    over = frame.groupby("sex")[["yhat", "w"]].apply(lambda own: np.average(own.yhat, weights=own.w))
    assert pair["plain"] == pytest.approx(over[first] - over[second])
    assert pair["levels"][0]["rows"] == [
        ((frame.site == "n") & (frame.sex == first)).sum(),
        ((frame.site == "n") & (frame.sex == second)).sum(),
    ]
    alike = audited(frame.assign(w=1.0), control_features=frame[["site"]]).more["control"]["pairs"]
    plain = lh.audit(frame.y, frame.yhat, sensitive_features=frame.sex, control_features=frame[["site"]])
    for own, its in zip(alike, plain.more["control"]["pairs"], strict=True):
        np.testing.assert_allclose([own[key] for key in KEYS], [its[key] for key in KEYS], rtol=1e-12)
    spread = pair["high"] - pair["low"]
    assert spread > 1.1 * (plain.more["control"]["pairs"][0]["high"] - plain.more["control"]["pairs"][0]["low"])


KEYS = ("difference", "low", "high", "plain", "covered")
