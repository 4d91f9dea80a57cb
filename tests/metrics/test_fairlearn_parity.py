"""The same tables to fairlearn: equal figures for two groups and two classes, and where the two libraries part."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)

from levelhead.metrics import (
    Counts,
    accuracy,
    demographic_parity,
    equal_opportunity,
    equalized_odds,
    equalized_odds_mean,
    equalized_odds_worst,
    gaps_by_class,
    group_accuracy,
)


def rows_of(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return label, prediction and group of every row that is counted in (groups, classes, classes)."""
    group, label, prediction = np.repeat(list(np.ndindex(table.shape)), table.ravel(), axis=0).T
    return label, prediction, group


def fairlearn_gaps(label: np.ndarray, prediction: np.ndarray, group: np.ndarray) -> dict[str, float]:
    """Return fairlearn's figures under our names of the same quantities."""
    rows = {"y_true": label, "y_pred": prediction, "sensitive_features": group}
    return {
        "demographic_parity": demographic_parity_difference(**rows),
        "equal_opportunity": equal_opportunity_difference(**rows),
        "equalized_odds": equalized_odds_difference(**rows, agg="mean"),
        "equalized_odds_worst": equalized_odds_difference(**rows, agg="worst_case"),
    }


def our_gaps(table: np.ndarray) -> dict[str, float]:
    return {
        "demographic_parity": float(demographic_parity(table)),
        "equal_opportunity": float(equal_opportunity(table)),
        "equalized_odds": float(equalized_odds(table)),
        "equalized_odds_worst": float(equalized_odds_worst(table)),
    }


def accuracies(label: np.ndarray, prediction: np.ndarray, group: np.ndarray) -> MetricFrame:
    def share_right(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        return float(np.mean(y_true == y_pred))

    return MetricFrame(metrics=share_right, y_true=label, y_pred=prediction, sensitive_features=group)


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 60))])
def test_two_groups_and_two_classes_have_the_same_figures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, [4, 30, 300][seed % 3], size=(2, 2, 2))
    table[:, :, 0] += table.sum(-1) == 0  # both groups have rows of both classes
    label, prediction, group = rows_of(table)
    order = rng.permutation(len(label))
    label, prediction, group = label[order], prediction[order], group[order]
    counts = Counts.from_rows(label, prediction, group)
    if prediction.any():  # else the table has a column less to count
        assert np.array_equal(counts.table, table)
    assert our_gaps(counts.table) == pytest.approx(fairlearn_gaps(label, prediction, group), abs=1e-12)
    theirs = accuracies(label, prediction, group)
    assert accuracy(counts.table) == pytest.approx(theirs.overall, abs=1e-12)
    assert group_accuracy(counts.table).tolist() == pytest.approx(theirs.by_group.tolist(), abs=1e-12)


def test_the_mean_form_of_three_groups_takes_one_pair_and_fairlearn_two() -> None:
    """True positive rates .5, .6, 1 and false positive rates 0, .5, .1.

    Pairs: (.1 + .5) / 2 = .3, (.5 + .1) / 2 = .3, (.4 + .4) / 2 = .4, of which the largest is ours; fairlearn takes the
    largest difference of each rate, .5 and .5, whoever they belong to.
    """
    table = np.array([[[10, 0], [5, 5]], [[5, 5], [4, 6]], [[9, 1], [0, 10]]])
    theirs, ours = fairlearn_gaps(*rows_of(table)), our_gaps(table)
    assert ours["equalized_odds"] == pytest.approx(0.4)
    assert theirs["equalized_odds"] == pytest.approx(0.5)
    # The largest over pairs of the larger of two differences does not depend on the order of the two.
    for name in ("demographic_parity", "equal_opportunity", "equalized_odds_worst"):
        assert ours[name] == pytest.approx(theirs[name])


@pytest.mark.parametrize("seed", range(12))
def test_the_mean_form_of_several_groups_is_never_above_that_of_fairlearn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(1, 30, size=(rng.integers(3, 7), 2, 2))
    theirs, ours = fairlearn_gaps(*rows_of(table)), our_gaps(table)
    assert ours.pop("equalized_odds") <= theirs.pop("equalized_odds") + 1e-12
    assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("table", "undefined", "theirs"),
    [
        # No positives in group 1: fairlearn takes its true positive rate for 0, so that .7 - 0 is the gap.
        ([[[8, 2], [3, 7]], [[9, 1], [0, 0]]], {"equal_opportunity", "equalized_odds", "equalized_odds_worst"}, 0.7),
        # No negatives in group 1: its false positive rate is taken for 0; .7 and .6 are true positive rates.
        ([[[8, 2], [3, 7]], [[0, 0], [4, 6]]], {"equalized_odds", "equalized_odds_worst"}, 0.1),
    ],
)
def test_a_rate_over_no_rows_is_undefined_where_fairlearn_takes_zero(
    table: list[list[list[int]]], undefined: set[str], theirs: float
) -> None:
    ours, found = our_gaps(np.array(table)), fairlearn_gaps(*rows_of(np.array(table)))
    assert {name for name, gap in ours.items() if math.isnan(gap)} == undefined
    assert found["equal_opportunity"] == pytest.approx(theirs)
    assert not any(math.isnan(gap) for gap in found.values())


def test_a_single_group_has_no_gap_where_fairlearn_finds_zero() -> None:
    table = np.array([[[8, 2], [3, 7]]])
    assert all(math.isnan(gap) for gap in our_gaps(table).values())
    assert set(fairlearn_gaps(*rows_of(table)).values()) == {0.0}


def test_three_classes_are_each_set_against_the_rest_where_fairlearn_refuses() -> None:
    table = np.array([[[8, 1, 1], [1, 7, 2], [0, 2, 8]], [[5, 3, 2], [2, 6, 2], [1, 1, 8]]])
    label, prediction, group = rows_of(table)
    with pytest.raises(ValueError, match="pos_label"):
        equal_opportunity_difference(label, prediction, sensitive_features=group)
    each = [fairlearn_gaps(label == k, prediction == k, group) for k in range(3)]
    for name in ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_worst"):
        assert gaps_by_class(table, name).tolist() == pytest.approx([gaps[name] for gaps in each])
    assert equalized_odds(table) == pytest.approx(max(gaps["equalized_odds"] for gaps in each))
    assert equalized_odds_mean(table) == pytest.approx(np.mean([gaps["equalized_odds"] for gaps in each]))
    assert accuracy(table) == pytest.approx(accuracies(label, prediction, group).overall)
