"""How resampling the rows moves the figures of methods, and their differences."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.counts import JointCounts
from levelhead.metrics.paired import Inference, Paired, _difference_ends, _difference_high, _Outward, _resample
from levelhead.metrics.seeds import OverSeeds
from levelhead.types import Estimate


def test_moves_of_a_difference_are_differences_of_moves() -> None:
    rng = np.random.default_rng(0)
    rows = 400
    label, group = rng.integers(2, size=rows), rng.integers(2, size=rows)
    answers = {
        "a": np.where(rng.random((3, rows)) < 0.2, 1 - label, label),
        "b": np.where(rng.random((2, rows)) < 0.3, 1 - label, label),
    }
    paired = Paired.build(label, group, answers, None, 0.95, 1000, 0)
    for name in ("accuracy", "equalized_odds"):
        a, b = paired.moves(name, "a"), paired.moves(name, "b")
        assert (a.shape, b.shape) == ((3, 1000), (2, 1000))
        np.testing.assert_allclose(paired.moves(name, "a", "b"), a[:2] - b)
        np.testing.assert_allclose(paired.moves(name, "b", "a"), b - a[:2])
    for at, one in enumerate(paired.moves("accuracy", "a")):
        right = (answers["a"][at] == label).mean()
        assert np.mean(one) == pytest.approx(0, abs=0.003)
        assert np.std(one) == pytest.approx(np.sqrt(right * (1 - right) / rows), rel=0.1)


def made(rows: int = 60, seed: int = 2) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Labels and groups of three values, and three sets of predictions."""
    rng = np.random.default_rng(seed)
    label, group = rng.integers(3, size=rows), rng.integers(3, size=rows)
    return label, group, [np.where(rng.random(rows) < 0.7, label, rng.integers(3, size=rows)) for _ in range(3)]


@pytest.mark.parametrize("clustered", [False, True])
def test_resamples_are_counts_of_the_rows_or_clusters_that_are_drawn(
    clustered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelhead.metrics.paired.DRAWN", 60 * 7 if not clustered else 20 * 7)
    label, group, answers = made()
    table = JointCounts.from_rows(label, group, answers)
    codes = np.arange(60) // 3 if clustered else np.arange(60)
    found = _resample(table, 3, 10, np.random.default_rng(5), codes if clustered else None)
    expected, rng, units = np.zeros((3, 10, 3, 3, 3)), np.random.default_rng(5), codes.max() + 1
    for start, count in ((0, 7), (7, 3)):  # in blocks of as many replicates as may be drawn at a time
        for replicate, drawn in enumerate(rng.integers(units, size=(count, units)), start):
            for unit in drawn:
                for row in np.flatnonzero(codes == unit):
                    for at, own in enumerate(answers):
                        expected[at, replicate, group[row], label[row], own[row]] += 1
    np.testing.assert_array_equal(found, expected)


def test_rows_that_were_counted_and_forgotten_are_drawn_by_pattern() -> None:
    label, group, answers = made()
    known = JointCounts.from_rows(label, group, answers[:2])
    table = replace(known, places=None)
    found = _resample(table, 2, 150, np.random.default_rng(5))
    rng, expected = np.random.default_rng(5), np.zeros((2, 150, 3, 3, 3))
    drawn = np.concatenate([rng.multinomial(60, table.multiplicity / 60, size=count) for count in (100, 50)])
    for pattern, (of, true, *own) in enumerate(table.patterns):
        for at in range(2):
            expected[at, :, of, true, own[at]] += drawn[:, pattern]
    np.testing.assert_array_equal(found, expected)


def upper_end(a: _Outward, b: _Outward, level: float, caution: float) -> float:
    """The bound of the module's first paragraph, pair of contrasts by pair."""

    def possible(one: _Outward) -> list[int]:
        top = int(one.value.argmax())
        return [
            k
            for k in range(len(one.value))
            if one.value[top] - one.value[k] <= caution * (one.shift[:, k] - one.shift[:, top]).std()
        ]

    z, ends = stats.norm.ppf((1 + level) / 2), []
    highest = [k for k in sorted(range(len(b.value)), key=lambda k: -b.value[k])[:8] if k in possible(b)]
    for k in possible(a):
        tried = highest if k in highest else [*highest, k]
        moves = np.stack([a.shift[:, k] - b.shift[:, j] for j in tried], -1)
        spread = moves.std(0)
        lowest = (-moves[:, spread > 0] / spread[spread > 0]).max(-1) if (spread > 0).any() else np.zeros(len(moves))
        if (spread == 0).any():
            lowest = np.maximum(lowest, 0)
        critical = max(z, float(np.quantile(lowest, (1 + level) / 2))) if len(tried) > 1 else z
        bounds = []
        for at, j in enumerate(tried):
            student = stats.t.ppf((1 + level) / 2, min(a.rows[k], b.rows[j]) + 1) / z
            bounds.append(a.value[k] - b.value[j] + critical * student * spread[at])
        ends.append(min(bounds))
    return max(ends)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_the_bound_of_a_difference_of_largest_contrasts(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 0.05, (400, 1))
    a, b = (
        _Outward(rng.normal(0, 0.05, 12), common + rng.normal(0, 0.03, (400, 12)), rng.integers(2, 40, 12))
        for _ in range(2)
    )
    if seed == 5:
        b = _Outward(b.value, np.where(np.arange(12) < 6, a.shift, b.shift), b.rows)  # some differ by nothing
    assert _difference_high(a, b, level, 1.5) == pytest.approx(upper_end(a, b, level, 1.5), abs=1e-9)
    ends = _difference_ends(
        _Outward(a.value[None], a.shift[:, None], a.rows[None]),
        _Outward(b.value[None], b.shift[:, None], b.rows[None]), level, 500,
    )  # fmt: skip
    caution = math.sqrt(2 * math.log(math.log(500)))
    assert ends == pytest.approx((-upper_end(b, a, level, caution), upper_end(a, b, level, caution)), abs=1e-9)


def test_the_bound_over_units_is_the_mean_of_theirs() -> None:
    rng = np.random.default_rng(1)
    a, b = (
        _Outward(rng.normal(0, 0.1, (2, 3)), rng.normal(0, 0.05, (300, 2, 3)), rng.integers(5, 40, (2, 3)))
        for _ in range(2)
    )
    each = [
        _difference_ends(*(_Outward(o.value[[u]], o.shift[:, [u]], o.rows[[u]]) for o in (a, b)), 0.95, 100)
        for u in range(2)
    ]
    assert _difference_ends(a, b, 0.95, 100) == pytest.approx(np.mean(each, axis=0))
    largest = [a.shift[:, u, a.value[u].argmax()] for u in range(2)]
    np.testing.assert_allclose(a.largest_alone(), np.mean(largest, axis=0))


def test_a_mean_over_seeds_is_inferred_from_arms_moves_and_spread() -> None:
    """Two seeds: how much of the rows' noise cancels is read off the moves, and the seeds' own variance is added."""
    label, group, answers = made(90)
    paired = Paired.build(label % 2, group, {"a": np.stack([one % 2 for one in answers])}, 1, 0.9, 200, 0)
    moves = [np.array([0.02, -0.02, 0.01, -0.01] * 50), np.array([0.02, -0.02, -0.01, 0.01] * 50)]
    seeds = OverSeeds.of([np.array([0.30, 0.34])], [0.0])
    found = paired._infer("equalized_odds", 0.32, [0.1, 0.2], [0.3, 0.1], moves, 0.05, seeds, 0.0)
    kept = np.mean(moves, axis=0).std() / np.mean([one.std() for one in moves])
    z = stats.norm.ppf(0.95)
    down, up = (seeds.join(float(kept * arm / z) ** 2) for arm in (0.15, 0.2))
    assert found.rows_only.low == pytest.approx(0.32 - kept * 0.15)
    assert found.rows_only.high == pytest.approx(0.32 + kept * 0.2)
    assert found.estimate.low == pytest.approx(max(0.0, 0.32 - down.arm(0.9)))
    assert found.estimate.high == pytest.approx(min(1.0, 0.32 + up.arm(0.9)))
    assert found.estimate.corrected == pytest.approx(0.27)
    assert found.degrees_of_freedom == pytest.approx(min(down.degrees_of_freedom, up.degrees_of_freedom))
    assert found.p_value == pytest.approx(down.p_value(0.32))
    assert found.estimate.n == found.rows_only.n == 90
    assert (found.estimate.reason, found.rows_only.reason) == (None, None)
    below = paired._infer("equalized_odds", -0.32, [-0.1, 0.0], [0.3, 0.1], [0 * moves[0]] * 2, 0.9, seeds, -1.0)
    assert below.rows_only.low == -0.32, "an arm is never below 0"
    assert below.estimate.corrected == -1.0
    assert below.p_value == pytest.approx(seeds.join((0.2 / z) ** 2).p_value(-0.32)), "of no moves all is kept"
    above = paired._infer("equalized_odds", 0.9, [0.1], [0.1], moves[:1], -0.3, seeds, 0.0)
    assert above.estimate.corrected == 1.0
    level = paired._infer("accuracy", 0.99, [0.1], [0.1], moves[:1], 0.0, OverSeeds.of([np.array([0.99])], [0.0]), 0.0)
    assert (level.rows_only.low, level.rows_only.high) == (pytest.approx(0.89), 1.0)
    assert level.estimate.corrected is None
    assert "one seed" in str(level.estimate.reason)


def test_a_figure_within_a_margin() -> None:
    """Two one-sided tests; both arms have their own variance."""
    seeds = OverSeeds.of([np.array([0.0])], [0.0])
    arms = (seeds.join(0.01**2), seeds.join(0.02**2))
    none = Estimate(0.01, 0.0, 0.02, 10)
    found = Inference(none, none, math.inf, 0.5, arms)
    assert found.p_within(0.05) == pytest.approx(max(stats.norm.sf(6), stats.norm.sf(2)))
    assert found.p_within(0.01) == found.p_within(0.005) == 1.0
    assert Inference(replace(none, value=-0.01), none, math.inf, 0.5, arms).p_within(0.05) == pytest.approx(
        max(stats.norm.sf(4), stats.norm.sf(3))
    )
    assert math.isnan(Inference(none, none, math.inf, 0.5).p_within(0.05))
    assert math.isnan(Inference(Estimate.undefined("none"), none, math.inf, 0.5, arms).p_within(0.05))


def test_clusters_make_arms_longer_by_what_their_draws_move_and_never_shorter() -> None:
    label, group, answers = made(120)
    label, answers = label % 2, np.stack([one % 2 for one in answers])
    copied = [np.repeat(one, 4, axis=-1) for one in (label, group, answers)]
    plain, together = (
        Paired.build(*copied[:2], {"a": copied[2]}, 1, 0.95, 400, 0, clusters)
        for clusters in (None, np.repeat(np.arange(120), 4))
    )
    for name in ("accuracy", "equalized_odds"):
        alone, drawn = plain.level_of(name, "a").rows_only, together.level_of(name, "a").rows_only
        spread = [np.mean([one.std() for one in each.moves(name, "a")]) for each in (plain, together)]
        assert spread[1] / spread[0] == pytest.approx(2, rel=0.15), "four copies of each row"
        assert alone.high - alone.low < 0.75 * (drawn.high - drawn.low)
    assert Paired.build(*copied[:2], {"a": copied[2]}, 1, 0.95, 400, 0, np.arange(480)).clustered is None


def of_two_methods(clusters: np.ndarray | None = None, positive: int | None = 1) -> Paired:
    label, group, answers = made(240)
    label, first = label % 2, np.stack([one % 2 for one in answers])
    second = np.where(np.random.default_rng(4).random((2, 240)) < 0.35, 1 - label, label)
    return Paired.build(label, group, {"a": first, "b": second}, positive, 0.95, 300, 0, clusters)


@pytest.mark.parametrize("name", ["accuracy", "equalized_odds", "worst_group_accuracy", "demographic_parity"])
@pytest.mark.parametrize("clustered", [False, True])
def test_a_difference_turned_round_is_its_mirror_image_and_the_same_every_time(name: str, clustered: bool) -> None:
    clusters = np.arange(240) // 2 if clustered else None
    paired, again = of_two_methods(clusters), of_two_methods(clusters)
    one, other = paired.difference(name, "a", "b"), paired.difference(name, "b", "a")
    assert one == again.difference(name, "a", "b")
    for first, second in ((one.estimate, other.estimate), (one.rows_only, other.rows_only)):
        assert (first.value, first.low, first.high) == pytest.approx((-second.value, -second.high, -second.low))
        assert first.low <= first.value <= first.high
    assert one.p_value == pytest.approx(other.p_value)
    a, b = paired.values(name, "a"), paired.values(name, "b")
    assert one.estimate.value == pytest.approx(a.mean() - b.mean())
    assert one.estimate.n == paired.level_of(name, "a").estimate.n


def test_seeds_that_methods_share_are_compared_one_by_one() -> None:
    paired = of_two_methods()
    cut = replace(paired, seeds={name: seeds[:2] for name, seeds in paired.seeds.items()})
    a, b = cut.values("accuracy", "a"), cut.values("accuracy", "b")
    moves = cut.moves("accuracy", "a", "b")
    expected = OverSeeds.of([a - b], [np.var(moves, axis=0, ddof=1).mean()])
    shared, apart = (cut.difference("accuracy", "a", "b", shared) for shared in (True, False))
    assert shared.arms is not None
    assert shared.arms[0].seeds.parts[0] == pytest.approx(expected.parts[0])
    assert shared.arms[0].seeds.beyond_rows == pytest.approx(expected.beyond_rows)
    assert apart.arms is not None
    assert len(apart.arms[0].seeds.parts) == 2
    assert shared.rows_only == apart.rows_only


def test_figures_are_of_the_positive_class_that_was_named() -> None:
    label, group, answers = made(240)
    rates = [[(answers[0] % 2 == k)[(group == g) & (label % 2 == k)].mean() for g in range(3)] for k in (0, 1)]
    for positive in (0, 1):
        paired = of_two_methods(positive=positive)
        assert paired.values("equal_opportunity", "a")[0] == pytest.approx(np.ptp(rates[positive]))


def test_a_class_that_one_group_alone_has_is_in_no_mean() -> None:
    label = np.array([0, 1, 2] * 20 + [0, 1, 1] * 20)
    group = np.repeat([0, 1], 60)
    paired = Paired.build(label, group, {"a": np.roll(label, 7)[None]}, None, 0.95, 100, 0, min_count=5)
    (seed,) = paired.seeds["a"]
    assert _Outward.of("equal_opportunity_mean", seed.compared).value.shape[0] == 2
