"""What a Python caller passes: one index, matched by name, nothing merged, and one sentence for all else."""

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

import levelhead as lh
from levelhead.metrics import Counts
from levelhead.types import DataError

ROWS = 240
LABEL = np.arange(ROWS) % 2
PREDICTION = np.where(np.arange(ROWS) % 7 == 0, 1 - LABEL, LABEL)
SEX = np.where(np.arange(ROWS) % 3 == 0, "women", "men")
SCORE = np.clip(0.2 + 0.5 * LABEL + 0.2 * np.sin(np.arange(ROWS)), 0.01, 0.99)
AGE = 20.0 + np.arange(ROWS) % 50
BIG = 2**53


def shuffled(values, seed=1, name=None):
    """Return a Series with the same index 0, 1, ... in another order."""
    return pd.Series(values, name=name).sample(frac=1, random_state=seed)


# -------------------------------------------------------------------------------------------- one index


LABELS = pd.Series(LABEL)  # of the table of refusals


def test_rows_of_one_index_are_matched_by_position():
    twice, turned = np.arange(ROWS) // 2, np.arange(ROWS)[::-1]
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=SEX)
    for label, prediction, groups in (
        (pd.Series(LABEL, twice), PREDICTION, pd.Series(SEX, twice)),
        (LABEL, pd.Series(PREDICTION), pd.Series(SEX)),
        (LABEL, PREDICTION, pd.Series(SEX, turned)),
    ):
        found = lh.audit(label, prediction, sensitive_features=groups)
        assert (found.metrics, found.warnings) == (expected.metrics, expected.warnings)


# ---------------------------------------------------------------------------------------- matched by name


def class_labels(values, names):
    datasets = pytest.importorskip("datasets")
    feature = datasets.ClassLabel(names=names)
    return datasets.Dataset.from_dict({"y": values}, features=datasets.Features({"y": feature}))["y"]


def test_names_of_a_class_label_are_groups():
    codes = [None if n == 5 else int(one == "women") for n, one in enumerate(SEX)]
    found = lh.audit(LABEL, PREDICTION, sensitive_features=class_labels(codes, ["men", "women"]))
    assert set(found.groups) == {"men", "women", "(missing)"}
    assert found.groups["women"].n == (SEX == "women").sum() - (SEX[5] == "women")


def test_names_of_a_class_label_match_predicted_names():
    labels, names = class_labels(LABEL.tolist(), ["no", "yes"]), np.where(PREDICTION, "yes", "no")
    expected = lh.audit(np.where(LABEL, "yes", "no"), names, sensitive_features=SEX)
    turned = class_labels((1 - PREDICTION).tolist(), ["yes", "no"])
    for predicted in (names, turned):
        assert lh.audit(labels, predicted, sensitive_features=SEX).metrics == expected.metrics
    assert lh.audit(labels, PREDICTION, against=turned, sensitive_features=SEX).against is not None
    against = lh.audit(labels, names, against=turned, sensitive_features=SEX).against
    assert against.by_attribute["group"].groups["men"].rates["accuracy"].difference.value == 0
    codes = lh.audit(class_labels(LABEL.tolist(), ["yes", "no"]), PREDICTION, sensitive_features=SEX)
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=SEX)
    assert codes.metrics["accuracy"] == expected.metrics["accuracy"]
    assert (codes.positive, expected.positive) == ("no", "1")


@pytest.mark.parametrize("favourable", ["yes", 0])
def test_the_favourable_class_goes_by_the_name_or_the_position_of_a_class_label(favourable):
    labels = class_labels(LABEL.tolist(), ["yes", "no"])
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=SEX, favourable=0, replicates=100).to_dict()
    turned = class_labels(PREDICTION.tolist(), ["yes", "no"])
    for predicted in (PREDICTION, np.where(PREDICTION, "no", "yes"), turned):
        found = lh.audit(labels, predicted, sensitive_features=SEX, favourable=favourable, replicates=100).to_dict()
        own, plain = (one["rates"]["group"]["outcome"] for one in (found, expected))
        assert own["ratios"] == plain["ratios"]


# ------------------------------------------------------------------------------------------ nothing is merged

INTEGERS = {
    "Int64": lambda one: pd.Series(one, dtype="Int64"),
    "category": lambda one: pd.Series(one, dtype=object).astype("category"),
    "arrow": lambda one: pyarrow.array(one, pyarrow.int64()),
    "chunked": lambda one: pyarrow.chunked_array([one[:90], one[90:]], pyarrow.int64()),
    "dictionary": lambda one: pyarrow.array(one, pyarrow.int64()).dictionary_encode(),
    "pandas arrow": lambda one: pd.Series(one, dtype=pd.ArrowDtype(pyarrow.int64())),
    "list with NaN": lambda one: [float("nan") if n is None else n for n in one],
    "list with NA": lambda one: [pd.NA if n is None else n for n in one],
    "masked": lambda one: np.ma.masked_array([n or 0 for n in one], [n is None for n in one]),
    "list with masked": lambda one: [np.ma.masked if n is None else n for n in one],
    "tuple": tuple,
    "objects": lambda one: np.array(one, object),
}


@pytest.mark.parametrize("form", INTEGERS)
def test_integers_above_2_to_the_53_stay_apart_beside_missing_ones(form):
    ids = [None if row == 5 else BIG + row % 2 for row in range(ROWS)]
    found = lh.audit(LABEL, PREDICTION, sensitive_features=INTEGERS[form](ids), replicates=100)
    half = ROWS // 2
    assert {name: one.n for name, one in found.groups.items()} == {
        str(BIG): half, str(BIG + 1): half - 1, "(missing)": 1
    }  # fmt: skip


def test_integers_of_every_size_in_a_list_stay_apart():
    for pair in ([2**63, -1], [2**64, 2**64 + 1], [BIG + 1, 0.5], [-(2**63), 2**63]):
        groups = [pair[row % 2] for row in range(ROWS)]
        assert set(lh.audit(LABEL, PREDICTION, sensitive_features=groups, replicates=100).groups) == set(map(str, pair))


def test_masked_arrays_keep_their_mask_everywhere():
    masked = np.ma.masked_array(LABEL, np.arange(ROWS) < 3)
    for call in (
        lambda: lh.audit(masked, PREDICTION, sensitive_features=SEX),
        lambda: lh.audit(LABEL, masked, sensitive_features=SEX),
        lambda: Counts.from_rows(LABEL, PREDICTION, masked),
    ):
        with pytest.raises(DataError, match="missing"):
            call()


# ---------------------------------------------------------------------------------------- taken, or one sentence


@pytest.mark.parametrize("kind", ["bf16", "half", "grad", "float8", "list of tensors", "numpy scalars"])
def test_scores_of_every_tensor_are_taken(kind):
    plain = torch.from_numpy(SCORE)
    given = {
        "bf16": lambda: plain.bfloat16(),
        "half": lambda: plain.half(),
        "grad": lambda: plain.clone().requires_grad_() * 1,
        "float8": lambda: plain.float().to(torch.float8_e4m3fn),
        "list of tensors": lambda: list(plain.clone().requires_grad_() * 1),
        "numpy scalars": lambda: [np.float32(one) for one in SCORE],
    }[kind]()
    rounded = np.array([one.item() for one in given])
    found = lh.audit(torch.from_numpy(LABEL), scores=given, sensitive_features=torch.tensor(LABEL))
    assert found.metrics == lh.audit(LABEL, scores=rounded, sensitive_features=LABEL).metrics
    predicted = [torch.tensor(int(one)) for one in PREDICTION]
    assert lh.audit(LABEL, predicted, sensitive_features=SEX).metrics["accuracy"].value == (LABEL == PREDICTION).mean()


TENTHS = np.arange(ROWS) * 7 % 11 / 10
F4, F2 = TENTHS.astype(np.float32), TENTHS.astype(np.float16)


NARROW = {
    "float32": F4,
    "float16": F2,
    "list": list(F4),
    "series": pd.Series(F4),
    "index": pd.Index(F4),
    "category": pd.Series(F4).astype("category"),
    "sparse": pd.Series(F4).astype("Sparse[float32]"),
    "Float32": pd.Series(F4).astype("Float32"),
    "pandas arrow": pd.Series(F4).astype("float[pyarrow]"),
    "objects": pd.Series(list(F4), dtype=object),
    "masked": np.ma.masked_array(F4),
    "arrow": pyarrow.array(F2),
    "tensor": torch.from_numpy(F2),
    "list of tensors": list(torch.from_numpy(F4)),
}


def of_numbers(given):
    """Return what scores, weights, groups, predictions and proxies lead to, and decisions by a threshold."""
    options = {"sensitive_features": SEX, "replicates": 100}
    rule = lh.BiasRule("demographic_parity", threshold=0.7).fit(TENTHS, LABEL, sensitive_features=SEX)
    found = (
        lh.audit(LABEL, scores=given, threshold=0.7, **options),
        lh.audit(LABEL, PREDICTION, sample_weight=given, **options),
        lh.audit(LABEL, PREDICTION, sensitive_features={"g": given}, bins={"g": [0.3, 0.7]}, replicates=100),
        lh.audit(AGE, given, sensitive_features=SEX, numbers=True),
    )
    records = [{**one.to_dict(), "warnings": None} for one in found]
    return records, rule.predict(given, sensitive_features=SEX).tolist()


@pytest.fixture(scope="module")
def of_tenths():
    return of_numbers(TENTHS)


@pytest.mark.parametrize("kind", NARROW)
def test_numbers_of_fewer_bits_are_what_they_are_printed_as(kind, of_tenths):
    """0.7 in float32 lies below 0.7 in float64; NumPy and torch compare it with 0.7 as equal."""
    assert of_numbers(NARROW[kind]) == of_tenths


def test_a_reference_is_a_number_or_a_dict_too():
    groups = {"sex": LABEL[::-1], "age": np.where(AGE > 40, "old", "young")}
    options = {"sensitive_features": groups, "replicates": 100}
    expected = lh.audit(LABEL, PREDICTION, reference="sex=1", **options).to_dict()
    for given in (1, {"sex": 1}, {"sex": "1"}, [1], {"sex": np.int64(1)}):
        assert lh.audit(LABEL, PREDICTION, reference=given, **options).to_dict() == expected
    both = lh.audit(LABEL, PREDICTION, reference={"sex": 1, "age": "old"}, **options)
    assert both.more["reference"] == {"sex": "1", "age": "old"}
    truth = lh.audit(LABEL, PREDICTION, sensitive_features=LABEL[::-1] == 1, reference=True)
    assert truth.more["reference"] == {"group": "True"}


def test_continuous_takes_an_array_or_a_series():
    options = {"sensitive_features": SEX, "replicates": 100}
    expected = lh.audit(LABEL, PREDICTION, along={"age": AGE}, **options).continuous["age"]
    for given in (AGE, AGE.tolist(), torch.from_numpy(AGE), pd.Series(AGE), pyarrow.array(AGE)):
        found = lh.audit(LABEL, PREDICTION, along=given, **options).continuous
        assert {name: one.slope for name, one in found.items()} == {"number": expected.slope}
    assert list(lh.audit(AGE, AGE + LABEL, sensitive_features=SEX, along=AGE, numbers=True).continuous) == ["number"]
    named = lh.audit(LABEL, PREDICTION, along=pd.Series(AGE, name="age"), **options).continuous
    assert named == {"age": expected}


def test_numpy_numbers_and_whole_floats_are_options():
    expected = lh.audit(LABEL, PREDICTION, sensitive_features=SEX, replicates=200, level=0.9, seed=3, min_count=5)
    found = lh.audit(
        LABEL, PREDICTION, sensitive_features=SEX, replicates=np.int64(200), level=np.float64(0.9), seed=np.uint8(3),
        min_count=5.0, intersect=np.bool_(False),
    )  # fmt: skip
    assert found.to_dict() == expected.to_dict()
