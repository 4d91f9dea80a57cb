"""Ratios, precision and balanced error; gaps along numbers; bias amplification: worked figures, coverage, words."""

from __future__ import annotations

import html
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.auditing.continuous import ContinuousGap, continuous_gap, continuous_sentence
from levelhead.auditing.options import AuditOptions
from levelhead.auditing.rates import more_rates, rate_leads
from levelhead.metrics import Counts, estimate, proportion
from levelhead.metrics.amplification import amplification_of, audited_amplification, signs
from levelhead.metrics.between import ratio_of, unlike
from levelhead.report import render
from levelhead.report.one_page import one_page

HILL = [1 - (2 * place / 199 - 1) ** 2 for place in range(200)]
AGES, PREDICTED = [20.0, 30, 40, 50, 60], [0.1, 0.3, 0.2, 0.6, 0.8]


def bits(text: str) -> np.ndarray:
    return np.array([one == "1" for one in text])


def made(rows: int = 2000) -> pd.DataFrame:
    chance = np.random.default_rng(0)
    sex = chance.choice(["f", "m"], rows)
    label = (chance.random(rows) < 0.4).astype(int)
    predicted = (chance.random(rows) < 0.2 + 0.4 * label + 0.15 * (sex == "m")).astype(int)
    age = chance.normal(40, 10, rows) + 5 * predicted
    return pd.DataFrame({"y": label, "yhat": predicted, "sex": sex, "age": age})


def test_rates_are_those_of_the_rows() -> None:
    """And predictive parity is equal opportunity with label and prediction changed over."""
    rows = made()
    found = lh.audit(rows["y"], rows["yhat"], sensitive_features=rows["sex"], reference="m").rates["sex"]
    for sex, group in found.groups.items():
        own = rows[rows["sex"] == sex]
        missed = 1 - own["yhat"][own["y"] == 1].mean()
        assert group.base_rate.value == pytest.approx(own["y"].mean())
        assert group.precision.value == pytest.approx(own["y"][own["yhat"] == 1].mean())
        assert group.false_negative_rate.value == pytest.approx(missed)
        assert group.balanced_error.value == pytest.approx((missed + own["yhat"][own["y"] == 0].mean()) / 2)
    assert found.groups["m"].selection_ratio is None
    swapped = estimate(Counts.from_rows(rows["yhat"], rows["y"], rows["sex"]), "equal_opportunity", min_count=10)
    assert found.predictive_parity == swapped


@pytest.mark.parametrize(
    ("rates", "sizes"), [((0.3, 0.5), (60, 200)), ((0.1, 0.1), (100, 100)), ((0.9, 0.95), (40, 300))]
)
def test_the_interval_of_a_ratio_holds_the_truth(rates: tuple[float, float], sizes: tuple[int, int]) -> None:
    draws = np.random.default_rng(0).binomial(sizes, rates, (2000, 2))
    found = [ratio_of(proportion(int(a), sizes[0]), proportion(int(b), sizes[1])) for a, b in draws]
    held = [one.low <= rates[0] / rates[1] <= one.high for one in found if one.defined]
    assert np.mean(held) > 0.94


DENIED = {"women": (100, 400), "men": (250, 250), "others": (110, 390)}
"""Approved and denied rows of each group: women are approved 0.4 times as often as men, men denied 0.625 times."""


def denials(shares: dict[str, tuple[int, int]] = DENIED) -> dict[str, list[str]]:
    rows = [
        (group, answer)
        for group, (approved, denied) in shares.items()
        for answer, count in (("approved", approved), ("denied", denied))
        for _ in range(count)
    ]
    return {"group": [group for group, _ in rows], "answer": [answer for _, answer in rows]}


def ratios_of(shares: dict[str, tuple[int, int]] = DENIED, **options: Any) -> lh.AuditResult:
    rows = denials(shares)
    return lh.audit(rows["answer"], rows["answer"], sensitive_features=rows["group"], replicates=100, **options)


def four_fifths(shares: dict[str, tuple[int, int]] = DENIED, **options: Any) -> list[str]:
    result = ratios_of(shares, **options)
    said = result.to_dict()["rates"]["group"]["sentences"]
    text = " ".join(result.text(all=True).split())
    assert all(sentence in text for sentence in said)
    page = html.unescape(render(one_page(result.to_dict())))
    assert said[0] in page or options.get("favourable") is None
    return said


def test_without_a_favourable_class_there_is_no_four_fifths_verdict() -> None:
    """The positive class is "denied", the second in sorted order: its ratio would accuse the men."""
    (question,) = four_fifths()
    assert "name the favourable outcome: levelhead audit --favourable CLASS" in question


@pytest.mark.parametrize("positive", [None, "denied", "approved"])
def test_the_four_fifths_rule_is_about_the_favourable_class_whatever_is_positive(positive: str | None) -> None:
    said = four_fifths(favourable="approved", positive=positive)
    assert ["0.40 times" in said[0], "0.44 times" in said[1]] == [True, True]
    assert all(one.endswith(", below four fifths.") and "“approved” goes to " in one for one in said)


def test_each_group_below_four_fifths_gets_its_sentence_and_no_other() -> None:
    shares = {"a": (500, 500), "b": (250, 750), "c": (380, 620), "d": (470, 530), "e": (2, 3)}
    said = four_fifths(shares, favourable="approved")
    assert [sentence.split(" goes to ")[1][0] for sentence in said] == ["b", "c"]
    assert "0.50 times" in said[0]
    assert said[1].endswith("inconclusive against four fifths.")
    one = four_fifths({"a": (500, 500), "b": (490, 510)}, favourable="approved")
    assert [sentence.rpartition(", ")[2] for sentence in one] == ["not below four fifths."]
    (said,) = four_fifths(favourable="approved", reference="others")
    assert "the favourable outcome “approved” goes to women 0.91 times as often as to others" in said
    many = {f"g{place:02}": (100, 900) for place in range(14)} | {"best": (500, 500)}
    result = ratios_of(many, favourable="approved")
    assert len(result.to_dict()["rates"]["group"]["sentences"]) == 14


def test_three_classes_have_a_favourable_one_beside_a_positive_one() -> None:
    label = ["approve", "refer", "deny"] * 100
    predicted = ["approve"] * 100 + ["deny"] * 50 + ["approve"] * 40 + ["refer"] * 110
    groups, options = ["a"] * 150 + ["b"] * 150, {"positive": "deny", "favourable": "approve", "replicates": 100}
    record = lh.audit(label, predicted, sensitive_features=groups, **options).to_dict()
    assert "the favourable outcome “approve” goes to b 0.40 times" in record["rates"]["group"]["sentences"][0]


def test_a_favourable_class_is_found_by_the_labels_word_and_among_scores() -> None:
    rows = made(600)
    mapped = lh.audit(
        ["good" if one else "bad" for one in rows["y"]], rows["yhat"], sensitive_features=rows["sex"],
        label_map={"good": 1, "bad": 0}, favourable="bad", replicates=100,
    ).to_dict()["rates"]["sex"]  # fmt: skip
    plain = lh.audit(rows["y"], rows["yhat"], sensitive_features=rows["sex"], favourable=0, replicates=100).to_dict()
    assert mapped["outcome"]["outcome"] == "0"  # as it is predicted
    assert mapped["outcome"]["ratios"] == plain["rates"]["sex"]["outcome"]["ratios"]
    scored = lh.audit(
        rows["y"], scores=rows["yhat"] * 0.5 + 0.2, threshold=0.5, sensitive_features=rows["sex"], favourable="0",
        replicates=100,
    ).to_dict()  # fmt: skip
    assert scored["rates"]["sex"]["outcome"] == plain["rates"]["sex"]["outcome"]


def of_selected(selected: np.ndarray, sizes: np.ndarray, **options: Any) -> Any:
    """Return the ratios of groups, of whom so many are selected, and no row has the label 1."""
    table, names = np.zeros((len(sizes), 2, 2), np.int64), list("abcdef")[: len(sizes)]
    table[:, 0, 1], table[:, 0, 0] = selected, sizes - selected
    return more_rates(Counts(table, tuple(names), (0, 1)), names, 1, options=AuditOptions(replicates=100), **options)


def test_chance_puts_no_group_below_four_fifths() -> None:
    """Selected alike in 2% of 14,000 and of five times 60 rows: at most 5 of 100 audits may say "below"."""
    rng, sizes, below = np.random.default_rng(0), np.array([14_000, *(60,) * 5]), 0
    for _ in range(200):
        found = of_selected(rng.binomial(sizes, 0.02), sizes, favourable=1)
        below += any(one.sentence.endswith(", below four fifths.") for one in rate_leads("g", found))
    assert below <= 0.05 * 200


def test_a_ratio_leaves_out_1_only_where_the_exact_test_agrees() -> None:
    rng, sizes = np.random.default_rng(1), np.array([3000, 60, 60, 25])
    for _ in range(40):
        selected = rng.binomial(sizes, 0.03)
        found = of_selected(selected, sizes, reference="a")
        for place, name in enumerate("bcd", 1):
            one = found.groups[name].selection_ratio
            told = unlike(selected, sizes, np.array([place]), np.array([0]), 0.05 / 3)[0]
            assert told or one.low <= 1 <= one.high


def test_with_no_reference_ratios_are_to_the_highest_and_intervals_hold_for_any() -> None:
    table = np.array([[[60, 40], [40, 60]], [[50, 50], [30, 70]], [[70, 30], [50, 50]]])
    counts = Counts(table, ("a", "b", "c"), (0, 1))
    free, chosen = more_rates(counts, ["a", "b", "c"], 1), more_rates(counts, ["a", "b", "c"], 1, reference="b")
    assert free.reference == chosen.reference == "b"
    one, other = free.groups["c"].selection_ratio, chosen.groups["c"].selection_ratio
    assert one is not None
    assert other is not None
    assert one.value == other.value
    assert one.low < other.low
    assert one.high > other.high


def test_rates_over_few_rows_are_undefined_with_a_reason() -> None:
    result = lh.audit([0, 1] * 30, [0] * 60, sensitive_features=["a", "b"] * 30)
    group = result.rates["group"].groups["a"]
    assert group.precision.reason == "0 rows that are predicted positive, fewer than 10"
    assert group.true_positive_ratio is None or not group.true_positive_ratio.defined
    assert not result.rates["group"].predictive_parity.defined
    json.dumps(result.to_dict(), allow_nan=False)
    render(one_page(result.to_dict()))
    label, group = [1] * 8 + [0] * 12 + [1, 0] * 20, ["a"] * 20 + ["b"] * 40
    ratio = lh.audit(label, [1] * 20 + [1, 0] * 20, sensitive_features=group).rates["group"].groups["b"]
    assert "the reference group: 8 rows with the positive label" in ratio.true_positive_ratio.reason


@pytest.mark.parametrize("ages", [AGES, [1000 * age - 7 for age in AGES]])
def test_the_slope_as_worked_by_hand_depends_on_no_unit(ages: list[float]) -> None:
    assert continuous_gap(PREDICTED * 4, ages * 4, permutations=5).slope.value == pytest.approx(0.68)


def test_the_slope_along_two_values_is_the_difference_in_demographic_parity() -> None:
    found = continuous_gap([0.2, 0.4, 0.3, 0.8, 0.6] * 4, [0, 0, 0, 1, 1] * 4, permutations=5)
    assert found.slope.value == pytest.approx(0.4)


def arched(rows: int = 2000) -> ContinuousGap:
    """Along ages of 17 to 90, decisions go from 0 through 35% to 16%: no straight line."""
    chance = np.random.default_rng(0)
    ages = np.concatenate([[17, 90], chance.triangular(17, 30, 90, rows - 2).round()])
    at = (ages - 17) / 73
    rate = np.interp(at, [0, 0.45, 1], [0, 0.35, 0.1])
    return continuous_gap((chance.random(rows) < rate).astype(float), ages, title="age")


def test_the_sentence_has_the_curve_at_both_ends_and_its_peak() -> None:
    found = arched()
    points = {name: (round(at), round(100 * value, 1)) for name, (at, value) in found.points.items()}
    assert list(points) == ["start", "end", "peak"]
    assert points["peak"][1] == max(round(100 * value, 1) for _, value in found.curve)
    said = continuous_sentence("age", found, of_class="1")
    assert "from {start[1]:.1f}% at {start[0]} to {end[1]:.1f}% at {end[0]}, with a peak of".format(**points) in said
    assert "{peak[1]:.1f}% at {peak[0]} (cubic fit, permutation p below 0.005).".format(**points) in said
    assert "points from" not in said


def test_a_low_between_the_ends_is_named_and_a_steady_curve_has_neither() -> None:
    valley = continuous_gap(1 - np.array(HILL), range(200), title="age")
    assert set(valley.points) == {"start", "end", "low"}
    assert "with a low of " in continuous_sentence("age", valley, of_class="1")
    steady = continuous_gap(np.arange(200) / 400, np.arange(200), title="age")
    assert set(steady.points) == {"start", "end"}
    assert "from 2.5% at 10 to 47.3% at 189 (cubic fit" in continuous_sentence("age", steady, of_class="1")


def test_a_curve_that_chance_makes_is_not_decided_and_the_level_counts() -> None:
    chance = np.random.default_rng(5)
    flat = continuous_gap((chance.random(300) < 0.3).astype(float), chance.random(300), title="age")
    assert flat.range_p > 0.1
    assert f"along age is detected (permutation p {flat.range_p:.2f}); a " in continuous_sentence(
        "age", flat, of_class="1"
    )
    assert "is detected" not in continuous_sentence("age", flat, of_class="1", level=0.01)


@pytest.mark.parametrize("span", [1e-300, 1e-7, 0.3, 5.0, 1e6, 1e18, 1e300])
def test_any_span_can_be_said(span: float) -> None:
    said = continuous_sentence("x", continuous_gap(HILL, np.linspace(0, span, 200), permutations=9), of_class="1")
    assert len(said) < 400
    assert "nan" not in said


@pytest.mark.parametrize("slope", [0.0, 0.4])
def test_the_interval_of_a_slope_holds_the_truth(slope: float) -> None:
    chance, held = np.random.default_rng(1), 0
    for _ in range(250):
        along = np.concatenate([[0.0, 1.0], chance.random(198)])
        decided = (chance.random(200) < 0.3 + slope * along).astype(float)
        one = continuous_gap(decided, along, permutations=1).slope
        held += one.low <= slope <= one.high
    assert held / 250 > 0.91


def test_a_slope_is_least_squares_with_hc3() -> None:
    models = pytest.importorskip("statsmodels.api", reason="statsmodels is not installed")
    along, values = np.random.default_rng(2).random((2, 50))
    scaled = (along - along.min()) / np.ptp(along)
    fit = models.OLS(values, models.add_constant(scaled)).fit(cov_type="HC3")
    found = continuous_gap(values, along, permutations=1).slope
    assert found.value == pytest.approx(fit.params[1])
    assert (found.high - found.value) / 2.0106 == pytest.approx(fit.bse[1], rel=1e-4)  # Student's t, 48 degrees


def test_the_range_sees_an_inverted_u_that_a_slope_does_not() -> None:
    chance = np.random.default_rng(3)
    along = chance.random(600)
    decided = (chance.random(600) < 0.2 + 0.4 * (1 - (2 * along - 1) ** 2)).astype(float)
    found = continuous_gap(decided, along)
    assert found.slope.low < 0 < found.slope.high
    assert found.range_p < 0.01
    assert found.range == pytest.approx(0.4, abs=0.15)


def test_the_test_of_the_range_rejects_no_more_than_it_says() -> None:
    chance, rejected = np.random.default_rng(4), 0
    for at in range(250):
        decided, along = (chance.random(100) < 0.3).astype(float), chance.random(100)
        rejected += continuous_gap(decided, along, permutations=59, seed=10**6 + at).range_p <= 0.05
    assert 0.015 < rejected / 250 < 0.09


def test_a_number_that_does_not_vary_has_no_slope() -> None:
    assert continuous_gap([0.0] * 30, [1.0] * 30, title="age").slope.reason == "every age is 1"


def worked(task: np.ndarray, attribute: np.ndarray, predicted: np.ndarray) -> float:
    """From the attribute to the task, with the directions of the same rows."""
    table = np.zeros((2, 2, 2), np.int64)
    np.add.at(table, (attribute.astype(int), task.astype(int), predicted.astype(int)), 1)
    return float(amplification_of(table, signs(table.sum(-1))).mean())


def test_amplification_as_worked_by_hand() -> None:
    task, attribute, predicted = bits("11001010"), bits("11100010"), bits("11100010")
    assert worked(task, attribute, predicted) == pytest.approx(0.25)
    # From task to attribute: 0.25 for the task itself, 0 for its complement.
    assert worked(attribute, task, bits("11001011")) == pytest.approx(0.125)


def test_signs_that_are_chance_have_no_direction() -> None:
    assert signs(np.array([[80, 20], [20, 80]])).tolist() == [[1, -1], [-1, 1]]
    found = audited_amplification(np.full((2, 2, 2), 25))
    assert "no association of group and class beyond chance" in str(found.value.reason)


def test_of_many_tiny_groups_that_are_alike_none_has_a_direction() -> None:
    """Labels and predictions as in 20 groups without any difference: in at most 5 of 100 audits may one be named."""
    rng, sizes, named = np.random.default_rng(0), np.geomspace(20, 20_000, 20).astype(int), 0
    share = np.array([[0.88, 0.02], [0.03, 0.07]])
    for _ in range(60):
        table = rng.multinomial(sizes, share.ravel()).reshape(20, 2, 2)
        one = audited_amplification(table).value
        named += one.defined and not one.low <= 0 <= one.high
    assert named <= 0.05 * 60


@pytest.mark.parametrize("rows", [500, 2000])
def test_the_interval_of_amplification_holds_the_truth(rows: int) -> None:
    shares = np.array([[[0.3, 0.1], [0.05, 0.1]], [[0.08, 0.07], [0.05, 0.25]]])
    train = (shares * 10**6).sum(-1).astype(np.int64)
    moved = (shares.sum(1) - shares.sum(2)) / shares.sum((1, 2))[:, None]
    truth = (signs(train) * moved).mean()
    chance, held = np.random.default_rng(0), 0
    for _ in range(300):
        table = chance.multinomial(rows, shares.ravel() / shares.sum()).reshape(2, 2, 2)
        one = audited_amplification(table).value
        held += one.low <= truth <= one.high
    assert held / 300 > 0.92


def test_errors_of_few_rows_hold_at_every_rate() -> None:
    # Exact coverage of the false negative rate of 30 rows over all rates from 2% to 98%: Wilson's interval alone falls
    # to 90%.
    rows, rates = 30, np.linspace(0.02, 0.98, 97)
    ends = []
    for missed in range(rows + 1):
        table = np.array([[[rows, 0], [missed, rows - missed]]] * 2)
        found = more_rates(Counts(table, ("a", "b"), ("0", "1")), ["a", "b"], 1).groups["a"]
        ends.append((found.false_negative_rate.low, found.false_negative_rate.high))
    low, high = np.array(ends).T[:, :, None]
    chance = stats.binom.pmf(np.arange(rows + 1)[:, None], rows, rates)
    coverage = (chance * ((low <= rates) & (rates <= high))).sum(0)
    assert coverage.min() > 0.925
    assert coverage.mean() > 0.95
    assert (coverage < 0.94).mean() < 0.12
