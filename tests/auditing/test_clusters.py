"""Rows of one person: cluster-robust intervals by hand, their coverage, what is said, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import command_line
import levelhead as lh
from command_line import evaluated_run
from levelhead.auditing.page import audit_page
from levelhead.auditing.paired_answer import PairedAttribute, paired_sentences
from levelhead.auditing.postprocess_audit import postprocess_file
from levelhead.cli.app import main
from levelhead.metrics.paired import paired_interval
from levelhead.report import render


def made(people: int = 400, records: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return records of people, each of whom the model is right for with a chance of their own."""
    chance = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), records)
    sex, y, right = chance.choice(["f", "m"], people), chance.integers(0, 2, people), chance.beta(0.7, 0.3, people)
    yhat = np.where(chance.random(len(who)) < right[who], y[who], 1 - y[who])
    return pd.DataFrame({"y": y[who], "yhat": yhat, "sex": sex[who], "person": [f"p{one}" for one in who]})


def audited(frame: pd.DataFrame, **options: object) -> lh.AuditResult:
    return lh.audit(frame["y"], frame["yhat"], sensitive_features=frame["sex"], cluster=frame["person"], **options)  # type: ignore[arg-type]


def run(command: list[str]) -> object:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as stop:
        main(command)
    return stop.value.code


def test_copies_of_rows_are_worth_no_more_than_the_rows() -> None:
    # Five copies of every row: the effective sample size is that of the rows, and intervals are as wide, but for t.
    alone = made(records=1)
    copied = alone.loc[alone.index.repeat(5)].sample(frac=1, random_state=1)
    plain, clustered = lh.audit(alone["y"], alone["yhat"], sensitive_features=alone["sex"]), audited(copied)
    for sex, part in plain.groups.items():
        assert clustered.groups[sex].worth == pytest.approx(part.n, rel=0.02)
        for name, figure in part.rates.items():
            own = clustered.groups[sex].rates[name]
            assert own.value == pytest.approx(figure.value)
            assert own.high - own.low == pytest.approx(figure.high - figure.low, rel=0.05)
    pairs = [result.more["finding"]["pair"]["difference"] for result in (plain, clustered)]
    assert pairs[1]["high"] - pairs[1]["low"] == pytest.approx(pairs[0]["high"] - pairs[0]["low"], rel=0.05)
    whole = [result.metrics["balanced_accuracy"] for result in (plain, clustered)]
    assert whole[1].high - whole[1].low == pytest.approx(whole[0].high - whole[0].low, rel=0.05)


def test_effective_sample_size_by_hand() -> None:
    # 12 people with 2 rows each: the jackknife's variance of the share of right rows.
    right = [(1, 1)] * 5 + [(0, 0)] * 3 + [(1, 0)] * 4
    rows = pd.DataFrame(
        [{"y": 1, "yhat": one, "sex": "f", "person": i} for i, both in enumerate(right) for one in both]
        + [{"y": k % 2, "yhat": k % 2, "sex": "m", "person": 100 + k} for k in range(24)]
    )
    hits = np.array([sum(both) for both in right])
    share = hits.sum() / 24
    variance = 11 / 12 * (((hits - share * 2) / (1 - 2 / 24)) ** 2).sum() / 24**2
    rho = 1 - 4 * (1 * 1 / 2) / ((24 - 12) * share * (1 - share))
    worth = min(share * (1 - share) / variance, 24**2 / ((1 - rho) * 24 + rho * 48))
    assert audited(rows).groups["f"].worth == pytest.approx(worth)


@pytest.mark.slow
def test_intervals_by_person_hold_the_true_gap_where_those_of_rows_do_not() -> None:
    held, without, decided = [], [], []
    for seed in range(60):
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
    positives = [f"p{one}" for one in range(200) if frame["sex"][5 * one] == "f" and frame["y"][5 * one] == 1]
    result = audited(frame[~frame["person"].isin(positives[5:])])
    assert result.metrics["demographic_parity"].defined
    assert "clusters" in str(result.metrics["equal_opportunity"].reason)
    assert any("25 rows with label “1”, from fewer than 8 clusters" in one for one in result.warnings)
    rates = {pair["rate"] for pair in result.more["pairs"]}
    assert rates == {"false_positive_rate"}


def test_a_file_gives_the_same_wherever_the_rows_of_a_person_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = made()
    expected = audited(frame)
    monkeypatch.setattr("levelhead.tables.files.BATCH_BYTES", 1 << 12)  # several batches
    for name in ("p.csv", "p.parquet"):
        mixed = frame.sample(frac=1, random_state=3)
        mixed.to_csv(tmp_path / name, index=False) if name.endswith("csv") else mixed.to_parquet(tmp_path / name)
        text = frame.assign(y=frame["y"].astype(str), yhat=frame["yhat"].astype(str))
        found = lh.audit_file(tmp_path / name, "y", "yhat", ["sex"], cluster="person")
        assert found.metrics["accuracy"].value == pytest.approx(expected.metrics["accuracy"].value)
        for key, figure in audited(text).metrics.items():
            own = found.metrics[key]
            assert (own.value, own.low, own.high) == pytest.approx((figure.value, figure.low, figure.high))


def test_people_who_change_groups_make_rates_go_together() -> None:
    # The same people are in both groups: what they have in common falls out of the difference.
    chance = np.random.default_rng(2)
    who = np.repeat(np.arange(150), 6)
    right = chance.beta(0.4, 0.4, 150)[who]
    hit = (chance.random(900) < right).astype(int)
    together, apart = np.tile(["early", "late"], 450), np.where(who < 75, "early", "late")
    width = {}
    for name, group in (("together", together), ("apart", apart)):
        pair = lh.audit(np.ones(900, int) * [1], hit, sensitive_features=group, cluster=who, positive=1).more["pairs"][
            0
        ]
        width[name] = pair["difference"]["high"] - pair["difference"]["low"]
    assert width["together"] < 0.7 * width["apart"]


def test_one_person_with_nearly_all_rows_decides_nothing() -> None:
    # The person is in both groups, and all that is known of how rates go together is of that person alone.
    chance = np.random.default_rng(0)
    who = np.where(np.arange(1000) < 900, 0, np.arange(1000))
    y, yhat, sex = chance.integers(0, 2, 1000), chance.integers(0, 2, 1000), chance.choice(["f", "m"], 1000)
    result = lh.audit(y, yhat, sensitive_features=sex, cluster=who)
    assert all(pair["difference"]["high"] - pair["difference"]["low"] > 1 for pair in result.more["pairs"])


def test_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page, figures = tmp_path / "p.csv", tmp_path / "a.html", tmp_path / "a.json"
    made().to_csv(file, index=False)
    command = ["audit", str(file), "--label", "y", "--prediction", "yhat", "--group", "sex", "--cluster", "person"]
    assert run([*command, "--html", str(page), "--json", str(figures)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Intervals are clustered by person: 2,000 rows in 400 clusters, the largest of 5." in said
    whole = json.loads(figures.read_text())
    assert (whole["clusters"]["column"], whole["clusters"]["clusters"], whole["clusters"]["rows"]) == (
        "person", 400, 2000,
    )  # fmt: skip
    assert whole["finding"]["pair"]["first"]["clusters"] < 250
    assert "cluster-robust" in page.read_text()
    assert "cluster-robust" in render(audit_page(whole))


def test_ratios_precision_and_amplification_are_by_person_too() -> None:
    alone = made(records=1)
    copied = alone.loc[alone.index.repeat(4)]
    plain, clustered = lh.audit(alone["y"], alone["yhat"], sensitive_features=alone["sex"]), audited(copied)
    for sex, one in plain.rates["sex"].groups.items():
        own = clustered.rates["sex"].groups[sex]
        for name in ("precision", "false_negative_rate"):
            first, second = getattr(one, name), getattr(own, name)
            assert second.value == pytest.approx(first.value)
            assert second.high - second.low == pytest.approx(first.high - first.low, rel=0.06)
        assert own.balanced_error.high - own.balanced_error.low >= one.balanced_error.high - one.balanced_error.low
    first, second = (one.amplification["sex"].value for one in (plain, clustered))
    assert first.reason == second.reason
    if first.defined:
        assert second.high - second.low == pytest.approx(first.high - first.low, rel=0.05)


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
    assert found.scores is not None
    assert rows.scores is not None
    part, plain = found.scores.by_attribute["sex"], rows.scores.by_attribute["sex"]
    for sex, own in part.groups.items():
        inside = (frame["sex"] == sex).to_numpy()
        assert own.area.value == pytest.approx(plain.groups[sex].area.value)
        assert own.area.high - own.area.low > 1.5 * (plain.groups[sex].area.high - plain.groups[sex].area.low)
        errors = (frame["y"] - frame["score"])[inside]
        sums = (errors - errors.mean()).groupby(frame["person"][inside]).sum()  # five rows each
        people = len(sums)
        arm = stats.t.ppf(0.975, people - 1) * np.sqrt(people / (people - 1) * (sums**2).sum()) / inside.sum()
        assert (own.residual.low, own.residual.high) == pytest.approx((errors.mean() - arm, errors.mean() + arm))
        assert own.slope.reason == "rows come in clusters"
    pair, alone = part.pairs[0], plain.pairs[0]
    for name in ("area", "crossed_difference", "residual"):
        one, other = getattr(pair, name), getattr(alone, name)
        assert one.value == pytest.approx(other.value)
        assert one.high - one.low > 1.5 * (other.high - other.low)
    # Decisions at a threshold have the figures of an audit of those decisions.
    decided = audited(frame.assign(yhat=(frame["score"] >= 0.7).astype(int)))
    for name in ("demographic_parity", "equalized_odds"):
        assert part.at[0.7][name] == decided.metrics[name]
    curve = part.curves["demographic_parity"]
    one = audited(frame.assign(yhat=(frame["score"] >= curve.thresholds[5]).astype(int))).metrics["demographic_parity"]
    assert (curve.values[5], curve.low[5], curve.high[5]) == (one.value, one.low, one.high)
    assert found.metrics == audited(frame.assign(yhat=(frame["score"] >= 0.5).astype(int))).metrics
    assert any("slope, intercept and squared error of calibration are left out" in one for one in found.warnings)


def test_scores_of_one_row_a_person_are_those_of_independent_rows() -> None:
    frame = scored(records=1)
    found, plain = of_scores(frame), of_scores(frame, cluster=False)
    assert found.scores is not None
    assert plain.scores is not None
    assert found.scores.by_attribute == plain.scores.by_attribute
    # A single person with two rows: nearly the same, by the formulas for clusters.
    found = of_scores(frame.assign(person=["p0", "p0", *frame["person"][2:]]))
    assert found.scores is not None
    for sex, own in found.scores.by_attribute["sex"].groups.items():
        other = plain.scores.by_attribute["sex"].groups[sex]
        assert (own.area.low, own.area.high) == pytest.approx((other.area.low, other.area.high), abs=0.002)
        assert (own.residual.low, own.residual.high) == pytest.approx(
            (other.residual.low, other.residual.high), abs=2e-3
        )


def test_scores_of_fewer_than_eight_people_with_a_label_are_not_compared() -> None:
    frame = scored(200)
    own = frame[(frame["sex"] == "f") & (frame["y"] == 1)]["person"].unique()
    result = of_scores(frame[~frame["person"].isin(own[7:])])
    assert result.scores is not None
    part = result.scores.by_attribute["sex"]
    assert part.groups["f"].area.reason == "positives or negatives from fewer than 8 clusters, or nearly all from one"
    assert part.groups["m"].area.defined
    assert part.area_gap.reason == "fewer than two groups have 10 positives and 10 negatives from 8 clusters each"


def test_a_file_of_scores_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = scored().assign(yhat=lambda rows: (rows["score"] > 0.4).astype(int))
    mixed = frame.sample(frac=1, random_state=3)
    mixed.to_csv(tmp_path / "p.csv", index=False)
    monkeypatch.setattr("levelhead.tables.files.BATCH_BYTES", 1 << 12)  # several batches
    figures, page = tmp_path / "a.json", tmp_path / "a.html"
    command = ["audit", str(tmp_path / "p.csv"), "--label", "y", "--prediction", "yhat", "--score", "score", "--all"]
    command += ["--group", "sex", "--cluster", "person", "--json", str(figures), "--html", str(page)]
    assert run(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1,500 rows in 300 clusters" in said
    assert "Slope" not in said
    assert "With clusters, slope, intercept and squared error of calibration are left out" in said
    assert "rows come in clusters" in page.read_text()
    own = json.loads(figures.read_text())
    expected = of_scores(frame)
    assert expected.scores is not None
    for sex, part in expected.scores.by_attribute["sex"].groups.items():
        found = own["scores"]["by_attribute"]["sex"]["groups"][sex]["area"]
        assert (found["low"], found["high"]) == pytest.approx((part.area.low, part.area.high))
    gap = audited(frame).metrics["equal_opportunity"]
    assert own["by_attribute"]["sex"]["metrics"]["equal_opportunity"]["high"] == pytest.approx(gap.high)


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
    assert "no group’s accuracy changed measurably" in " ".join(paired_sentences("sex", people))
    assert "gained" in " ".join(paired_sentences("sex", rows))
    # Of all rows, no surer than Student's t for sums within people.
    change = (copied["yhat"] == copied["y"]) * 1 - (copied["old"] == copied["y"])
    sums = change.groupby(copied["person"]).sum() - 6 * change.mean()
    arm = stats.t.ppf(0.975, 149) * np.sqrt(150 / 149 * (sums**2).sum()) / 900
    one = people.metrics["accuracy"].difference
    assert one.low <= change.mean() - arm * (1 - 1e-9)
    assert one.high >= change.mean() + arm * (1 - 1e-9)


def test_changes_of_one_row_a_person_are_those_of_independent_rows() -> None:
    frame = two_models(400, records=1)
    assert changed(frame) == changed(frame, cluster=False)
    # A single person with two rows: nearly the same, by the formulas for clusters.
    one, plain = changed(frame.assign(person=["p0", "p0", *frame["person"][2:]])), changed(frame, cluster=False)
    for sex, group in one.groups.items():
        for rate, change in group.rates.items():
            alone = plain.groups[sex].rates[rate].difference
            assert change.difference.low == pytest.approx(alone.low, abs=0.004)
            assert change.difference.high == pytest.approx(alone.high, abs=0.004)


def test_changes_of_fewer_than_eight_people_with_a_label_are_not_compared() -> None:
    frame = two_models()
    positives = frame[(frame["sex"] == "f") & (frame["y"] == 1)]["person"].unique()
    kept = frame[~frame["person"].isin(positives[5:])]
    result = lh.audit(
        kept["y"], kept["yhat"], against=kept["old"], sensitive_features=kept["sex"], cluster=kept["person"]
    )
    assert result.against is not None
    part = result.against.by_attribute["sex"]
    assert np.isfinite(part.groups["f"].rates["accuracy"].p_value)
    assert np.isnan(part.groups["f"].rates["true_positive_rate"].p_value)
    assert not part.metrics["equal_opportunity"].difference.defined
    said = "group “f” has rows or a label from fewer than 8 clusters: the changes of gaps leave it out."
    assert any(said in one for one in result.warnings)


def test_two_files_are_compared_by_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = two_models().assign(id=lambda rows: [f"r{row}" for row in range(len(rows))])
    expected = changed(frame)
    frame.drop(columns="old").to_csv(tmp_path / "new.csv", index=False)
    old = frame.assign(yhat=frame["old"]).drop(columns=["old", "person"]).sample(frac=1, random_state=2)
    old.to_csv(tmp_path / "old.csv", index=False)
    monkeypatch.setattr("levelhead.tables.files.BATCH_BYTES", 1 << 12)  # several batches
    command = ["audit", str(tmp_path / "new.csv"), "--against", str(tmp_path / "old.csv"), "--on", "id", "--label", "y"]
    command += ["--prediction", "yhat", "--group", "sex", "--cluster", "person", "--json", str(tmp_path / "a.json")]
    assert run(command) == 0
    found = json.loads((tmp_path / "a.json").read_text())["against"]["by_attribute"]["sex"]
    for sex, group in expected.groups.items():
        for rate, change in group.rates.items():
            own = found["groups"][sex]["rates"][rate]
            assert own["p_holm"] == pytest.approx(change.p_holm)
            assert own["difference"]["low"] == pytest.approx(change.difference.low)


@pytest.mark.parametrize(
    ("name", "told"),
    [("person_id", True), ("userId", True), ("Patient", True), ("ID", True), ("valid", False), ("paid", False)],
)
def test_an_id_column_that_repeats_is_named(name: str, told: bool, tmp_path: Path) -> None:
    made(records=3).rename(columns={"person": name}).to_csv(tmp_path / "p.csv", index=False)
    found = lh.audit_file(tmp_path / "p.csv", "y", "yhat", ["sex"]).warnings
    hint = (
        f"{name} has 400 values in 1,200 rows. If rows with the same value belong to one person, these intervals are "
        f"too narrow: add --cluster {name}."
    )
    assert (hint in found) == told


def test_what_takes_no_clusters_is_told_another_way_out(tmp_path: Path) -> None:
    """The advice must not be a command that is refused."""
    frame = made(records=3).assign(p=lambda rows: (rows.index * 7919 % len(rows)) / len(rows))
    frame.rename(columns={"person": "person_id"}).to_csv(tmp_path / "p.csv", index=False)
    costs = {"false_positive": 1, "false_negative": 2}
    priced = lh.audit_file(tmp_path / "p.csv", "y", "yhat", ["sex"], costs=costs).warnings
    (told,) = [one for one in priced if "belong to one person" in one]
    assert told.endswith("keep one row of each person_id.")
    rule = postprocess_file(tmp_path / "p.csv", "p", "sex", label="y").warnings
    assert [one for one in rule if one.endswith("too narrow: add --cluster person_id.")]
    assert not postprocess_file(tmp_path / "p.csv", "p", "sex").warnings  # nothing is measured


@pytest.mark.parametrize(
    "options",
    [["--control", "dept"], ["--continuous", "age"], ["--time", "age"],
     ["--rank", "probability_1", "--top", "10%"]],
)  # fmt: skip
def test_what_takes_no_clusters_of_a_run_is_told_where_they_come_from(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that the error names must work; without clusters the run's folder does."""
    folder = evaluated_run(tmp_path / "run", clusters=250)
    assert command_line.run("audit", folder, *options) == 2
    error = command_line.said(capsys)
    assert f"run come in clusters, such as several of one person, which {options[0]} cannot take into account" in error
    file = folder / "predictions-test.parquet"
    assert f"audit {file} (columns label and prediction) with the same options" in error
    named = [] if "--rank" in options else ["--label", "label", "--prediction", "prediction"]
    assert command_line.run("audit", file, *named, "--group", "sex", *options) == 0
    assert command_line.run("audit", evaluated_run(tmp_path / "plain"), *options) == 0


def test_ids_that_do_not_repeat_are_not_named(tmp_path: Path) -> None:
    frame = made(records=1).assign(department_id=lambda rows: np.arange(len(rows)) % 12)
    frame.rename(columns={"person": "person_id"}).to_parquet(tmp_path / "p.parquet")
    found = lh.audit_file(tmp_path / "p.parquet", "y", "yhat", ["sex"]).warnings
    assert not [one for one in found if "--cluster" in one]
    with_it = lh.audit_file(tmp_path / "p.parquet", "y", "yhat", ["sex"], cluster="department_id").warnings
    assert not [one for one in with_it if "--cluster" in one]
