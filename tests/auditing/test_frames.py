"""What a notebook does with an audit: tables of other libraries in; a frame and HTML out."""

import numpy as np
import pandas as pd
import pyarrow
import pytest

import levelhead as lh
from levelhead.report.result import COLUMNS

ROWS = 200
LABEL = np.arange(ROWS) % 2
PREDICTION = np.where(np.arange(ROWS) % 7 == 0, 1 - LABEL, LABEL)
SEX = np.where(np.arange(ROWS) % 3 == 0, "women", "men")
AGE = np.where(np.arange(ROWS) % 5 == 0, "old", "young")


class Polars:
    """What a polars frame shows of itself: names in ``columns``, columns by name, which NumPy can read."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return Column(name, self._columns[name])


class Column:
    def __init__(self, name, values):
        self.name, self.values = name, values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __len__(self):
        return len(self.values)


def library_rows(columns):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({name: values.tolist() for name, values in columns.items()})


@pytest.mark.parametrize(
    "table",
    [
        lambda columns: pd.DataFrame(columns),
        lambda columns: pyarrow.table(columns),
        lambda columns: Polars(columns),
        library_rows,
    ],
    ids=["pandas", "pyarrow", "polars", "datasets"],
)
def test_tables_of_every_library_give_the_same_audit(table):
    """Groups, numbers beside them and levels."""
    groups, ages = {"sex": SEX, "age": AGE}, np.arange(ROWS) % 50
    options = {"intersect": True, "replicates": 100}
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=groups, along={"years": ages}, **options)
    found = lh.audit(LABEL, PREDICTION, sensitive_features=table(groups), along=table({"years": ages}), **options)
    assert found.to_dict() == expected.to_dict()
    levels = lh.audit(LABEL, PREDICTION, sensitive_features=SEX, control_features={"age": AGE}).more["control"]
    found = lh.audit(LABEL, PREDICTION, sensitive_features=Column("group", SEX), control_features=table({"age": AGE}))
    assert found.more["control"] == levels
    numbers = lh.audit(
        LABEL.astype(float),
        PREDICTION + 0.5,
        sensitive_features=table(groups),
        along=table({"years": ages}),
        numbers=True,
    )
    assert list(numbers.by_attribute) == ["sex", "age"]
    assert numbers.continuous


def test_columns_of_every_library_are_labels_predictions_and_scores():
    score = np.linspace(0, 1, ROWS)
    expected = lh.audit(LABEL, PREDICTION, scores=score, sensitive_features=SEX)
    forms = [
        pd.Series,
        pyarrow.array,
        lambda one: pyarrow.chunked_array([one[:90], one[90:]]),
        lambda one: Column("y", one),
    ]
    for form in forms:
        found = lh.audit(form(LABEL), form(PREDICTION), scores=form(score), sensitive_features=form(SEX))
        assert found.metrics == expected.metrics
    named = lh.audit(Column("income", LABEL), PREDICTION, sensitive_features=SEX)
    assert named.to_dict()["words"]["label"] == "income"


def test_a_frame_has_a_row_for_each_figure():
    result = lh.audit(
        LABEL, PREDICTION, sensitive_features={"sex": SEX, "age": AGE}, intersect=True, replicates=100,
        metrics={"right": lambda y, p: (y == p).mean()},
    )  # fmt: skip
    frame = result.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    gaps = frame[frame["group"].isna()].set_index(["attribute", "figure"])
    assert gaps.loc[("sex", "equal_opportunity"), "value"] == result.metrics["equal_opportunity"].value
    of_groups = frame.dropna(subset="group").set_index(["attribute", "group", "figure"])
    rate = result.groups["women"].rates["true_positive_rate"]
    assert tuple(of_groups.loc[("sex", "women", "true_positive_rate"), ["value", "low", "high"]]) == (
        rate.value, rate.low, rate.high,
    )  # fmt: skip
    assert ("sex & age", "women & old", "accuracy") in of_groups.index
    own = result.own_metrics["sex"]["right"].groups["men"]
    assert of_groups.loc[("sex", "men", "right"), "value"] == own.value


def drawn_table(rows, seed):
    rng = np.random.default_rng(seed)
    groups = rng.choice(list("abcde")[: 2 + seed % 4], rows)
    label = rng.integers(0, 2, rows)
    return label, np.where(rng.random(rows) < rng.uniform(0.5, 0.9), label, 1 - label), groups


def test_by_group_difference_and_ratio_are_those_of_fairlearn():
    theirs = pytest.importorskip("fairlearn.metrics")
    rates = (
        theirs.selection_rate,
        theirs.true_positive_rate,
        theirs.false_positive_rate,
        theirs.false_negative_rate,
    )
    metrics = {one.__name__: one for one in rates} | {"accuracy": lambda label, predicted: (label == predicted).mean()}
    for seed in range(4):
        label, prediction, groups = drawn_table(300 + 40 * seed, seed)
        options = {"sensitive_features": pd.Series(groups, name="sex")}
        frame = theirs.MetricFrame(metrics=metrics, y_true=label, y_pred=prediction, **options)
        result = lh.audit(label, prediction, replicates=100, min_count=1, **options)
        pd.testing.assert_frame_equal(
            result.by_group.loc["sex"][list(metrics)].astype(float), frame.by_group.astype(float),
            check_names=False, check_exact=False, rtol=1e-12,
        )  # fmt: skip
        for name in ("difference", "ratio"):
            ours = getattr(result, name)().loc["sex"]
            expected = getattr(frame, name)(method="between_groups")
            np.testing.assert_allclose(ours.value[list(metrics)].astype(float), expected, rtol=1e-10, atol=1e-12)
            assert ours[ours.low.isna()].reason.notna().all()
        apart = result.difference().loc["sex"]
        for figure, gap in (("selection_rate", "demographic_parity"), ("false_negative_rate", "equal_opportunity")):
            gap = result.metrics[gap]
            assert tuple(apart.loc[figure, ["value", "low", "high"]]) == pytest.approx((gap.value, gap.low, gap.high))


def test_small_groups_and_missing_ones_are_in_no_difference():
    groups = np.where(np.arange(ROWS) < 5, "few", SEX)
    result = lh.audit(
        LABEL, PREDICTION, sensitive_features={"sex": [None if at == 7 else one for at, one in enumerate(groups)]}
    )
    assert set(result.by_group.loc["sex"].index) == {"few", "men", "women", "(missing)"}
    assert not {"few", "(missing)"} & {*result.difference()[["highest", "lowest"]].to_numpy().ravel()}
    assert "ratio_of_rates" not in result.difference().index.get_level_values("figure")
    one = lh.audit(LABEL, PREDICTION, sensitive_features=["a"] * ROWS)
    assert one.difference().value.isna().all()
    assert set(one.difference().reason) == {"fewer than two groups are compared"}


def test_pairs_of_every_part_are_in_frames():
    score = np.linspace(0, 1, ROWS) % 0.37 * 2
    result = lh.audit(
        LABEL, PREDICTION, sensitive_features={"sex": SEX}, scores=score, along={"score": score}, against=LABEL,
        control_features={"age": AGE}, replicates=100, favourable=1,
    )  # fmt: skip
    pairs = result.pairs
    named = {"true_positive_rate_difference", "selection_rate_difference_within_levels", "area_difference"}
    assert named <= {*pairs.figure}
    first = result.more["pairs"][0]
    row = pairs[pairs.figure == f"{first['rate']}_difference"].iloc[0]
    assert (row["first"], row["second"], row.value) == (
        first["first"]["group"], first["second"]["group"], first["difference"]["value"],
    )  # fmt: skip
    frame = result.to_frame()
    assert {"slope", "bias_amplification", "accuracy_change", "area", "selection_ratio"} <= {*frame.figure}
    assert not frame.duplicated(["attribute", "group", "figure"]).any()
    assert "men minus women" not in result.by_group.loc["sex"].index
    decided = lh.audit(None, PREDICTION, sensitive_features={"sex": SEX}, favourable=1)
    assert (
        decided.difference().loc[("sex", "selection_rate"), "high"]
        == decided.by_attribute["sex"].demographic_parity.high
    )
    numbers = lh.audit(LABEL * 1.0, PREDICTION + score - score.mean(), sensitive_features={"sex": SEX}, numbers=True)
    means = numbers.by_group.loc["sex"].mean_error
    assert numbers.difference().loc[("sex", "mean_error"), "value"] == pytest.approx(abs(means["men"] - means["women"]))
    assert "below 0" in numbers.ratio().loc[("sex", "mean_error"), "reason"]
