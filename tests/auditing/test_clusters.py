"""Rows of one person: cluster-robust intervals by hand, their coverage, what is said, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import levelhead as lh
from command_line import evaluated_run, run, said
from levelhead.auditing.paired_answer import PairedAttribute, paired_leads
from levelhead.metrics.paired import paired_interval


def made(people: int = 400, records: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return records of people, each of whom the model is right for with a chance of their own."""
    chance = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), records)
    sex, y, right = chance.choice(["f", "m"], people), chance.integers(0, 2, people), chance.beta(0.7, 0.3, people)
    yhat = np.where(chance.random(len(who)) < right[who], y[who], 1 - y[who])
    return pd.DataFrame({"y": y[who], "yhat": yhat, "sex": sex[who], "person": [f"p{one}" for one in who]})


def width(one: Any) -> float:
    return float(one.high - one.low)


def column(result: lh.AuditResult) -> Any:
    """Return what is said of the scores of each sex."""
    assert result.scores is not None
    return result.scores.by_attribute["sex"]


def audited(frame: pd.DataFrame, **options: object) -> lh.AuditResult:
    return lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"], cluster=frame["person"], **options)  # type: ignore[arg-type]


def test_copies_of_rows_are_worth_no_more_than_the_rows() -> None:
    """The effective sample size is that of the rows, and intervals are as wide, but for t."""
    alone = made(records=1)
    copied = alone.loc[alone.index.repeat(5)].sample(frac=1, random_state=1)
    plain, clustered = lh.audit(alone["y"], alone["yhat"], sensitive_features=alone["sex"]), audited(copied)
    for sex, part in plain.groups.items():
        assert clustered.groups[sex].worth == pytest.approx(part.n, rel=0.02)
        one, own = (result.rates["sex"].groups[sex] for result in (plain, clustered))
        pairs = [(figure, clustered.groups[sex].rates[name]) for name, figure in part.rates.items()]
        for figure, found in (
            *pairs, (one.precision, own.precision), (one.false_negative_rate, own.false_negative_rate)
        ):  # fmt: skip
            assert found.value == pytest.approx(figure.value)
            assert width(found) == pytest.approx(width(figure), rel=0.06)
        assert width(own.balanced_error) >= width(one.balanced_error)
    found = [result.more["finding"]["pair"]["difference"] for result in (plain, clustered)]
    assert found[1]["high"] - found[1]["low"] == pytest.approx(found[0]["high"] - found[0]["low"], rel=0.05)
    for figures in (
        [result.metrics["balanced_accuracy"] for result in (plain, clustered)],
        [result.amplification["sex"].value for result in (plain, clustered)],
    ):
        assert width(figures[1]) == pytest.approx(width(figures[0]), rel=0.05, nan_ok=True)
        assert figures[0].reason == figures[1].reason


@pytest.mark.slow
def test_intervals_by_person_hold_the_true_gap_where_those_of_rows_do_not() -> None:
    held, without, decided = [], [], []
    for seed in range(30):
        frame = made(120, seed=seed)
        for found, options in ((held, {"cluster": frame["person"]}), (without, {})):
            result = lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"], replicates=100, **options)
            rate = result.groups["f"].rates["accuracy"]
            found.append(rate.low <= 0.7 <= rate.high)
            pair = result.more["finding"]["pair"]["difference"]
            if options:
                decided.append(not pair["low"] <= 0 <= pair["high"])
    assert np.mean(held) > 0.9
    assert np.mean(without) < 0.85
    assert np.mean(decided) < 0.1


def test_every_row_of_its_own_is_the_plain_audit_and_says_so() -> None:
    frame = made(records=1)
    plain, clustered = lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"]), audited(frame)
    assert clustered.metrics == plain.metrics
    assert clustered.groups == plain.groups
    assert "Every row has a person of its own: rows count as independent." in clustered.warnings


def test_fewer_than_eight_people_are_not_compared() -> None:
    frame = made(60)
    few = [f"p{one}" for one in range(60) if frame["sex"][5 * one] == "f"][:7]
    kept = frame[(frame["sex"] == "m") | frame["person"].isin(few)]
    result = audited(kept)
    assert any("group “f” has rows from 7 clusters, fewer than 8, and is left out" in one for one in result.warnings)
    assert result.metrics["demographic_parity"].reason == "a gap needs at least two groups; there is 1"
    nobody = audited(kept[kept["sex"] == "f"])
    assert nobody.metrics["demographic_parity"].reason == "no group has 10 rows from 8 clusters"
    assert result.more["finding"]["pair"] is None
    rate = result.groups["f"].rates["accuracy"]
    assert rate.defined
    assert rate.high - rate.low > 0.3
    one = audited(kept[(kept["sex"] == "m") | (kept["person"] == few[0])]).groups["f"].rates["accuracy"]
    assert (one.low, one.high) == pytest.approx((0, 1), abs=1e-6)


def test_fewer_than_eight_people_with_a_label_are_left_out_of_its_gap_alone() -> None:
    frame = made(200)
    positives = frame[(frame["sex"] == "f") & (frame["y"] == 1)]["person"].unique()
    result = audited(frame[~frame["person"].isin(positives[5:])])
    assert result.metrics["demographic_parity"].defined
    assert "clusters" in str(result.metrics["equal_opportunity"].reason)
    assert any("25 rows with label “1”, from fewer than 8 clusters" in one for one in result.warnings)
    assert {pair["rate"] for pair in result.more["pairs"]} == {"false_positive_rate"}


def test_people_who_change_groups_make_rates_go_together() -> None:
    """The same people are in both groups: what they have in common falls out of the difference."""
    chance = np.random.default_rng(2)
    who = np.repeat(np.arange(150), 6)
    hit = (chance.random(900) < chance.beta(0.4, 0.4, 150)[who]).astype(int)
    together, apart = (
        lh.audit(np.ones(900, int), hit, sensitive_features=group, cluster=who, positive=1).more["pairs"][0]
        for group in (np.tile(["early", "late"], 450), np.where(who < 75, "early", "late"))
    )
    reach = [pair["difference"]["high"] - pair["difference"]["low"] for pair in (together, apart)]
    assert reach[0] < 0.7 * reach[1]


def test_one_person_with_nearly_all_rows_decides_nothing() -> None:
    # The person is in both groups, and all that is known of how rates go together is of that person alone.
    chance = np.random.default_rng(0)
    who = np.where(np.arange(1000) < 900, 0, np.arange(1000))
    y, yhat, sex = chance.integers(0, 2, 1000), chance.integers(0, 2, 1000), chance.choice(["f", "m"], 1000)
    result = lh.audit(y, yhat, sensitive_features=sex, cluster=who)
    assert all(pair["difference"]["high"] - pair["difference"]["low"] > 1 for pair in result.more["pairs"])


def scored(people: int = 300, records: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return records of people with the probability of y 1, nearly the same for all records of a person."""
    chance = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), records)
    sex, y, own = chance.choice(["f", "m"], people)[who], chance.integers(0, 2, people)[who], chance.normal(size=people)
    score = 1 / (1 + np.exp(0.6 - 1.2 * y - own[who] - 0.5 * chance.normal(size=len(who))))
    return pd.DataFrame({"y": y, "score": score.round(3), "sex": sex, "person": [f"p{one}" for one in who]})


def of_scores(frame: pd.DataFrame, *, cluster: bool = True, **options: object) -> lh.AuditResult:
    together = frame["person"] if cluster else None
    return lh.audit(
        frame["y"], scores=frame["score"], sensitive_features=frame["sex"], cluster=together, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def test_scores_by_person() -> None:
    frame = scored()
    found, rows = of_scores(frame, threshold=[0.5, 0.7]), of_scores(frame, cluster=False, threshold=[0.5, 0.7])
    part, plain = column(found), column(rows)
    for sex, own in part.groups.items():
        inside = (frame["sex"] == sex).to_numpy()
        assert own.area.value == pytest.approx(plain.groups[sex].area.value)
        assert width(own.area) > 1.5 * width(plain.groups[sex].area)
        errors = (frame["y"] - frame["score"])[inside]
        sums = (errors - errors.mean()).groupby(frame["person"][inside]).sum()  # five rows each
        people = len(sums)
        arm = stats.t.ppf(0.975, people - 1) * np.sqrt(people / (people - 1) * (sums**2).sum()) / inside.sum()
        assert (own.residual.low, own.residual.high) == pytest.approx((errors.mean() - arm, errors.mean() + arm))
        assert own.slope.reason == "rows come in clusters"
    for name in ("area", "crossed_difference", "residual"):
        one, other = getattr(part.pairs[0], name), getattr(plain.pairs[0], name)
        assert one.value == pytest.approx(other.value)
        assert width(one) > 1.5 * width(other)

    def decided(threshold: float) -> Any:
        """Decisions at a threshold have the figures of an audit of those decisions."""
        return audited(frame.assign(yhat=(frame["score"] >= threshold).astype(int))).metrics

    for name in ("demographic_parity", "equalized_odds"):
        assert part.at[0.7][name] == decided(0.7)[name]
    curve = part.curves["demographic_parity"]
    one = decided(curve.thresholds[5])["demographic_parity"]
    assert (curve.values[5], curve.low[5], curve.high[5]) == (one.value, one.low, one.high)
    assert found.metrics == decided(0.5)
    assert any("slope and intercept of calibration are left out" in one for one in found.warnings)


def test_scores_of_one_row_a_person_are_those_of_independent_rows() -> None:
    frame = scored(records=1)
    plain = column(of_scores(frame, cluster=False))
    assert column(of_scores(frame)).groups == plain.groups
    # A single person with two rows: nearly the same, by the formulas for clusters.
    found = column(of_scores(frame.assign(person=["p0", "p0", *frame["person"][2:]])))
    for sex, own in found.groups.items():
        for one, other in ((own.area, plain.groups[sex].area), (own.residual, plain.groups[sex].residual)):
            assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.002)


def test_scores_of_fewer_than_eight_people_with_a_label_are_not_compared() -> None:
    frame = scored(200)
    own = frame[(frame["sex"] == "f") & (frame["y"] == 1)]["person"].unique()
    part = column(of_scores(frame[~frame["person"].isin(own[7:])]))
    assert "fewer than 8 clusters" in part.groups["f"].area.reason
    assert part.groups["m"].area.defined
    assert "fewer than two groups have 10 positives and 10 negatives" in part.area_gap.reason


def two_models(people: int = 120, records: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return records of people; the new model is right more often for men, for some people far more than for others."""
    chance = np.random.default_rng(seed)
    frame = made(people, records, seed)
    moved = np.repeat(chance.beta(0.3, 0.5, people), records) * np.where(frame["sex"] == "m", 1.0, 0.3)
    better, worse = chance.random(len(frame)) < moved, chance.random(len(frame)) < 0.04
    yhat = np.where(worse, 1 - frame["y"], np.where(better, frame["y"], frame["yhat"]))
    return frame.assign(old=frame["yhat"], yhat=yhat)


def changed(frame: pd.DataFrame, *, cluster: bool = True) -> PairedAttribute:
    """Return the changes from the old to the new model, by sex."""
    together = frame["person"] if cluster else None
    result = lh.audit(
        frame["y"], frame["yhat"], against=frame["old"], sensitive_features=frame["sex"], cluster=together
    )
    assert result.against is not None
    return result.against.by_attribute["sex"]


def test_changes_between_two_models_by_person_by_hand() -> None:
    frame = two_models()
    part, plain = changed(frame), changed(frame, cluster=False)
    for sex, group in part.groups.items():
        for rate, rows in (("accuracy", frame["sex"] == sex), ("true_positive_rate", frame["y"] == 1)):
            own = frame[(frame["sex"] == sex) & rows]
            right = (own["yhat"] == own["y"]) * 1 - (own["old"] == own["y"])
            gained, lost, n = int((right == 1).sum()), int((right == -1).sum()), len(own)
            by_person = right.groupby(own["person"])
            mean, people = right.mean(), len(by_person)
            variance = people / (people - 1) * ((by_person.sum() - 5 * mean) ** 2).sum() / n**2
            spread = (gained + lost) / n - mean**2
            rho = 1 - ((right**2).groupby(own["person"]).sum() - by_person.sum() ** 2 / 5).sum() / (n - people) / spread
            worth = min(spread / variance, n, n / (1 + 4 * max(rho, 0)))
            used = worth * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, people - 1)) ** 2
            expected = paired_interval(gained / n * used, lost / n * used, used)
            change = group.rates[rate]
            assert (change.difference.low, change.difference.high) == pytest.approx(expected, rel=1e-9)
            few, both = min(gained, lost) / n * worth, (gained + lost) / n * worth
            exact = 2 * special.betainc(both - few, few + 1, 0.5)
            student = 2 * stats.t.sf(abs(mean) / variance**0.5, people - 1)
            assert change.p_value == pytest.approx(max(min(1, exact), student), rel=1e-9)
            alone = plain.groups[sex].rates[rate].difference
            assert change.difference.value == alone.value
            wider = 1.2 if sex == "m" else 1.0  # hardly anything changes for women
            assert change.difference.high - change.difference.low > wider * (alone.high - alone.low)
    for name in ("demographic_parity", "equalized_odds"):
        one, alone = part.metrics[name].difference, plain.metrics[name].difference
        assert one.value == alone.value
        assert one.high - one.low > 1.1 * (alone.high - alone.low)


def test_copies_of_rows_decide_no_more_than_the_rows() -> None:
    alone = two_models(150, records=1)
    alone = alone.assign(yhat=np.where(alone.index % 2 == 0, alone["yhat"], alone["old"]))
    copied = alone.loc[alone.index.repeat(6)]
    single, rows, people = changed(alone), changed(copied, cluster=False), changed(copied)
    p_values = [one.groups["m"].rates["accuracy"].p_value for one in (single, rows, people)]
    assert p_values[1] < 1e-6
    assert p_values[2] == pytest.approx(p_values[0], rel=0.05)
    assert "no group’s accuracy changed measurably" in paired_leads("sex", people)[-1].sentence
    assert "the accuracy of m changed from" in " ".join(one.sentence for one in paired_leads("sex", rows))
    # Of all rows, no surer than Student's t for sums within people.
    change = (copied["yhat"] == copied["y"]) * 1 - (copied["old"] == copied["y"])
    sums = change.groupby(copied["person"]).sum() - 6 * change.mean()
    arm = stats.t.ppf(0.975, 149) * np.sqrt(150 / 149 * (sums**2).sum()) / 900
    one = people.metrics["accuracy"].difference
    assert one.low <= change.mean() - arm * (1 - 1e-9)
    assert one.high >= change.mean() + arm * (1 - 1e-9)


def test_changes_of_one_row_a_person_are_those_of_independent_rows() -> None:
    frame = two_models(400, records=1)
    plain = changed(frame, cluster=False)
    assert changed(frame) == plain
    # A single person with two rows: nearly the same, by the formulas for clusters.
    one = changed(frame.assign(person=["p0", "p0", *frame["person"][2:]]))
    for sex, group in one.groups.items():
        for rate, change in group.rates.items():
            alone, own = plain.groups[sex].rates[rate].difference, change.difference
            assert (own.low, own.high) == pytest.approx((alone.low, alone.high), abs=0.004)


def test_changes_of_fewer_than_eight_people_with_a_label_are_not_compared() -> None:
    frame = two_models()
    positives = frame[(frame["sex"] == "f") & (frame["y"] == 1)]["person"].unique()
    part = changed(frame[~frame["person"].isin(positives[5:])])
    assert np.isfinite(part.groups["f"].rates["accuracy"].p_value)
    assert np.isnan(part.groups["f"].rates["true_positive_rate"].p_value)
    assert not part.metrics["equal_opportunity"].difference.defined


@pytest.mark.parametrize(
    ("name", "records", "told"),
    [(name, 3, True) for name in ("person_id", "userId", "Patient", "ID")]
    + [("valid", 3, False), ("paid", 3, False), ("person_id", 1, False)],
)
def test_an_id_column_that_repeats_is_named(name: str, records: int, told: bool, tmp_path: Path) -> None:
    rows = made(records=records).assign(department_id=lambda rows: np.arange(len(rows)) % 12)
    rows.rename(columns={"person": name}).to_parquet(tmp_path / "p.parquet")
    found = lh.audit_table(tmp_path / "p.parquet", label="y", prediction="yhat", groups=["sex"])
    hints = [one for one in found.warnings if one.endswith(f"too narrow: add --cluster {name}.")]
    assert len(hints) == told
    assert not told or hints[0].startswith(f"{name} has 400 values in 1,200 rows. ")
    with_it = lh.audit_table(
        tmp_path / "p.parquet", label="y", prediction="yhat", groups=["sex"], cluster="department_id"
    ).warnings
    assert not [one for one in with_it if "--cluster" in one]


def test_what_takes_no_clusters_of_a_run_is_told_where_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that the error names must work; without clusters the run's folder does."""
    folder, plain = evaluated_run(tmp_path / "run", clusters=250), evaluated_run(tmp_path / "plain")
    file = folder / "predictions-test.parquet"
    columns = ["--label", "label", "--prediction", "prediction"]
    for named, options in (
        (columns, ["--control", "dept"]),
        (columns, ["--along", "age"]),
        (columns, ["--time", "age"]),
        ([], ["--score", "probability_1", "--top", "10%"]),
    ):
        assert run("audit", folder, *options) == 2
        error, clash = said(capsys), "--top" if "--top" in options else options[0]
        assert f"run come in clusters, such as several of one person, which {clash} cannot" in error
        assert f"audit {file} with the same options" in error
        assert run("audit", file, *named, "--group", "sex", *options) == 0
        assert run("audit", plain, *options) == 0
