"""What a notebook does with an audit: tables of other libraries in; a frame, a drawing and HTML out."""

import io

import numpy as np
import pandas as pd
import pyarrow
import pytest
from matplotlib.figure import Figure

import levelhead as lh
from levelhead.metrics.names import RATE_TITLES
from levelhead.report.result import COLUMNS
from levelhead.types import ConfigError, DataError

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


def library_rows():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"sex": SEX.tolist(), "age": AGE.tolist()})


@pytest.mark.parametrize(
    "table",
    [
        lambda: pd.DataFrame({"sex": SEX, "age": AGE}),
        lambda: {"sex": SEX, "age": AGE},
        lambda: pyarrow.table({"sex": SEX, "age": AGE}),
        lambda: Polars({"sex": SEX, "age": AGE}),
        library_rows,
    ],
    ids=["pandas", "dict", "pyarrow", "polars", "datasets"],
)
def test_tables_of_every_library_give_the_same_audit(table):
    expected = lh.audit(LABEL, PREDICTION, sensitive_features={"sex": SEX, "age": AGE}, intersect=True)
    found = lh.audit(LABEL, PREDICTION, sensitive_features=table(), intersect=True)
    assert found.to_dict() == expected.to_dict()
    numbers = lh.regression_audit(LABEL.astype(float), PREDICTION + 0.5, sensitive_features=table())
    assert list(numbers.by_attribute) == ["sex", "age"]


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


def test_numbers_beside_the_groups_come_from_tables_too():
    ages = np.arange(ROWS) % 50
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=SEX, continuous={"age": ages})
    for table in (pd.DataFrame({"age": ages}), pyarrow.table({"age": ages}), Polars({"age": ages})):
        found = lh.audit(LABEL, PREDICTION, sensitive_features=SEX, continuous=table)
        assert found.continuous == expected.continuous
        assert lh.regression_audit(LABEL * 1.0, PREDICTION * 1.0, sensitive_features=SEX, continuous=table).continuous


def test_levels_come_from_tables_too():
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=SEX, control_features={"age": AGE})
    for table in (pyarrow.table({"age": AGE}), Polars({"age": AGE}), Column("age", AGE)):
        found = lh.audit(LABEL, PREDICTION, sensitive_features=Column("group", SEX), control_features=table)
        assert found.more["control"] == expected.more["control"]


def test_two_columns_of_one_text_are_still_refused():
    with pytest.raises(DataError, match="Two sensitive columns are named '1'"):
        lh.audit(LABEL, PREDICTION, sensitive_features={"1": SEX, 1: AGE})


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


def test_undefined_figures_keep_their_reason_in_a_frame():
    frame = lh.audit(LABEL, PREDICTION, sensitive_features=["a"] * ROWS).to_frame()
    undefined = frame[frame["reason"].notna()]
    assert len(undefined)
    assert undefined["value"].isna().all()


def test_a_frame_of_numbers():
    frame = lh.regression_audit(LABEL * 1.0, PREDICTION * 1.0, sensitive_features=SEX).to_frame()
    assert set(frame["figure"]) == {"mean_prediction", "mean_error", "mean_absolute_error"}
    assert len(frame) == 6


def test_a_frame_of_an_explanation_has_groups_and_pairs():
    score = np.where(PREDICTION == 1, 0.8, 0.3)
    result = lh.explain_gap(LABEL, score, sensitive_features={"sex": SEX}, replicates=100)
    frame = result.to_frame().set_index(["attribute", "group", "figure"])
    assert list(result.to_frame().columns) == list(COLUMNS)
    assert frame.loc[("sex", "women", "area"), "value"] == result.groups["women"].area.value
    assert frame.loc[("sex", "men and women", "measured"), "high"] == result.pairs[0].measured.high
    assert len(frame) == 2 * 4 + 5


def test_a_frame_of_an_audit_without_the_attribute_has_every_gap():
    result = lh.indirect_audit(LABEL, PREDICTION, shares={"women": 0.5})
    frame = result.to_frame()
    assert frame["value"].isna().all()  # bounds, and no estimate
    assert set(frame["figure"]) == set(result.gaps)
    assert frame["group"].str.contains(" minus ").all()


def test_a_drawing_has_a_panel_for_each_rate_and_a_line_for_each_group():
    result = lh.audit(LABEL, PREDICTION, sensitive_features={"sex": SEX, "$a$\x1b[2J": AGE}, min_count=100)
    figure = result.plot()
    assert isinstance(figure, Figure)
    assert [panel.get_title("left") for panel in figure.axes] == [
        RATE_TITLES[name] for name in ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
    ]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["men", "women"]
    low, high = (100 * getattr(result.groups["men"].rates["selection_rate"], end) for end in ("low", "high"))
    drawn = figure.axes[0].collections[0].get_segments()[0][:, 0]
    assert drawn.tolist() == pytest.approx([low, high])
    figure.savefig(io.BytesIO(), format="png")
    result.plot("$a$\x1b[2J", rates=["accuracy"]).savefig(io.BytesIO(), format="png")
    with pytest.raises(ConfigError, match=r"The audit has no column 'race'\. It has sex"):
        result.plot("race")
    with pytest.raises(ConfigError, match=r"The audit has no rate 'recall'\. It has accuracy, selection_rate"):
        result.plot(rates=["recall"])


def test_many_groups_and_classes_are_drawn():
    rng = np.random.default_rng(0)
    groups = np.char.add("g", rng.integers(0, 60, 3000).astype(str))
    label = rng.integers(0, 3, 3000)
    result = lh.audit(label, rng.integers(0, 3, 3000), sensitive_features=groups, replicates=100)
    figure = result.plot()
    assert len(figure.axes) == 4
    assert len(figure.axes[0].get_yticklabels()) == 40
    figure.savefig(io.BytesIO(), format="png")


def test_a_notebook_shows_the_tables():
    shown = lh.audit(LABEL, PREDICTION, sensitive_features={"<script>": SEX})._repr_html_()
    assert shown.startswith("<pre")
    assert "Demographic parity" in shown
    assert "<script>" not in shown
    assert "Mean error" in lh.regression_audit(LABEL * 1.0, PREDICTION * 2.0, sensitive_features=SEX)._repr_html_()
