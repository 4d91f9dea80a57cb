"""One rule for classes that are most often one: every command refuses them, and takes a map."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import levelhead as lh
from as_tables import audit_unrecorded, explain_columns
from command_line import run, written
from levelhead.auditing.postprocess_audit import postprocess
from levelhead.spelling import loosely
from levelhead.tables.vocabulary import LabelMap, in_order
from levelhead.types import ConfigError, DataError, listed, quoted

ROWS = 400
TRUTH = np.arange(ROWS) % 2
PREDICTED = np.where(np.arange(ROWS) % 8 < 6, TRUTH, 1 - TRUTH)  # three of four are right
GROUP = np.array(["f", "f", "m", "m"] * (ROWS // 4))
SCORE = np.where(PREDICTED == 1, 0.8, 0.3) + np.arange(ROWS) % 7 / 100

# What represents 0 and 1 in the labels, and in the predictions.
DIFFERENT = {
    "1/2 beside 0/1": (["1", "2"], ["0", "1"]),
    "-1/1 beside 0/1": (["-1", "1"], ["0", "1"]),
    "0/1 beside 1/2": (["0", "1"], ["1", "2"]),
    "0/1 beside -1/1": (["0", "1"], ["-1", "1"]),
    "a final dot": (["<=50K.", ">50K."], ["<=50K", ">50K"]),
    "a final dot of predictions": (["<=50K", ">50K"], ["<=50K.", ">50K."]),
    "a trailing blank": (["no", "yes "], ["no", "yes"]),
    "0/1 beside 00/01": (["0", "1"], ["00", "01"]),
    "case": (["no", "yes"], ["No", "YES"]),
    "truth values": (["False", "True"], ["0", "1"]),
    "truth values as numbers": (["0.0", "1.0"], ["false", "true"]),
    "blanks inside": (["<= 50K", "> 50K"], ["<=50K", ">50K"]),
    "underscores": (["not_toxic", "toxic"], ["not toxic", "toxic"]),
    "quotes": (["'no'", "'yes'"], ["no", "yes"]),
    "a no-break blank": (["no", "yes\u00a0"], ["no", "yes"]),
    "what cannot be seen": (["\ufeffno", "yes"], ["no", "yes"]),
    "a real minus": (["\u22121", "1"], ["-1", "1"]),
    "a decimal comma": (["0,0", "1,0"], ["0", "1"]),
    "other words": (["good", "toxic"], ["0", "1"]),
    "commas and equals signs": (["a,b", "c=d"], ["a, b", "c = d"]),
    "double quotes": (['"no"', '"yes"'], ["no", "yes"]),
}


def frame_of(labels: list[str], predictions: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "y": np.array(labels, object)[TRUTH],
            "q": np.array(predictions, object)[PREDICTED],
            "p": SCORE,
            "g": GROUP,
            "id": [f"r{row}" for row in range(ROWS)],
            "age": np.random.default_rng(1).integers(20, 80, ROWS).astype(str),
        }
    )


def audited(labels: Any, predictions: Any = None, **options: Any) -> lh.AuditResult:
    """Audit columns, of which two rows of four are of each group."""
    return lh.audit(labels, predictions, sensitive_features=GROUP[: len(labels)], replicates=100, **options)


def accuracy(labels: Any, predictions: Any = None, **options: Any) -> float:
    return audited(labels, predictions, **options).metrics["accuracy"].value


def of_file(path: Path, **options: Any) -> lh.AuditResult:
    """Audit a file, of predictions unless the options say otherwise."""
    asked = {"prediction": "q", "groups": ["g"], "replicates": 100} | options
    return lh.audit_table(path, label="y", **asked)


def verbs(frame: pd.DataFrame, path: Path) -> dict[str, Callable[..., Any]]:
    """Return every verb that takes a label map, asked about the rows, which are written to a file."""
    written(frame, path)
    few: dict[str, Any] = {"replicates": 100}
    scored: dict[str, Any] = {"prediction": None, "score": "p"}
    alone: dict[str, Any] = {"groups": (), "shares": {"f": 0.4}}
    rule: dict[str, Any] = {"label": "y", "metric": "demographic_parity"}
    groups = frame["g"]
    return {
        "arrays": lambda **more: lh.audit(frame["y"], frame["q"], sensitive_features=groups, **few, **more),
        "scores": lambda **more: lh.audit(frame["y"], scores=frame["p"], sensitive_features=groups, **few, **more),
        "file": lambda **more: of_file(path, against=path, on="id", **more),
        "scores of a file": lambda **more: of_file(
            path, **scored | {"groups": ["g", "age"], "bins": "age=quantiles:3", "control": ()}, **more
        ),
        "explanation": lambda **more: explain_columns(frame["y"], frame["p"], sensitive_features=groups, **few, **more),
        "explanation of a file": lambda **more: lh.explain(path, label="y", score="p", groups=["g"], **few, **more),
        "no groups": lambda **more: audit_unrecorded(frame["y"], frame["q"], shares={"f": 0.4}, **few, **more),
        "no groups of a file": lambda **more: of_file(path, **alone, **more),
        "rule": lambda **more: postprocess(path, score="p", groups=["g"], **rule, **more),
    }


def refused(ask: Callable[..., object], *columns: Any) -> str:
    with pytest.raises(DataError) as caught:
        ask(*columns)
    return str(caught.value)


@pytest.mark.parametrize("case", DIFFERENT)
def test_classes_in_two_writings_are_refused_and_mapped(case: str) -> None:
    frame = frame_of(*DIFFERENT[case])
    columns = frame["y"], frame["q"]
    assert all(f"{listed(map(quoted, in_order(one)))}" in refused(audited, *columns) for one in DIFFERENT[case])
    assert accuracy(*columns, label_map=dict(zip(*DIFFERENT[case], strict=True))) == 0.75


def test_labels_in_two_spellings_are_refused_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = DIFFERENT["a final dot"]
    mixed = np.where(np.arange(ROWS) < 30, np.array(first, object)[TRUTH], np.array(second, object)[TRUTH])
    path = tmp_path / "p.csv"
    pairs = dict(zip(first, second, strict=True))
    for ask in verbs(frame_of(first, second).assign(y=mixed), path).values():
        assert "--label-map" in refused(ask)
        found = ask(label_map=pairs)
        assert not hasattr(found, "metrics") or found.metrics["accuracy"].value == 0.75
    for words in (
        ["audit", path, "--label", "y", "--prediction", "q", "--group", "g"],
        ["explain", path, "--label", "y", "--score", "p", "--group", "g"],
        ["postprocess", path, "--label", "y", "--score", "p", "--group", "g"],
        ["indirect-audit", path, "--label", "y", "--prediction", "q", "--shares", "women=0.4"],
    ):
        assert run(*words) != 0
        assert "--label-map" in capsys.readouterr().err
        assert run(*words, "--label-map", '<=50K.="<=50K",>50K.=>50K') == 0


def test_a_label_never_predicted() -> None:
    """It is legal if every prediction is a label, and else refused; a map says whether two classes are one."""
    label, predicted = ["a", "b", "c"] * 40, ["a", "b", "b"] * 40
    assert accuracy(label, predicted) == pytest.approx(2 / 3)
    warnings = audited(predicted, label).warnings
    assert any("40 predictions have values that no label has: 'c'" in warning for warning in warnings)
    error = refused(audited, label, ["a", "b", "d"] * 40)
    assert "as the label 'c', and none is labelled as the prediction 'd'." in error
    assert accuracy(label, ["a", "b", "d"] * 40, label_map={"c": "d"}) == 1
    shifted = [1, 2, 3] * 40, [0, 1, 1] * 40  # counted from 1 and from 0
    assert "Labels: 1, 2, 3; predictions: 0, 1." in refused(audited, *shifted)
    assert accuracy(*shifted, label_map={1: 0, 2: 1, 3: 2}) == pytest.approx(2 / 3)
    two = audited(label, ["a", "b", "d"] * 40, label_map="c=c,d=d")
    assert two.metrics["accuracy"].value == pytest.approx(2 / 3)
    assert two.more["words"]["order"] == ["a", "b", "c", "d"]
    assert accuracy(["A", "a"] * 100, ["A", "a", "a", "a"] * 50, label_map="A=A,a=a") == 0.75


def test_the_other_model_is_held_to_the_same_words(tmp_path: Path) -> None:
    frame = frame_of(["0", "1"], ["0", "1"])
    path = written(frame, tmp_path / "new.csv")
    old = written(frame.assign(q=np.array(["00", "01"], object)[TRUTH]), tmp_path / "old.csv")
    refused(lambda: of_file(path, against=old, on="id"))
    found = of_file(path, against=old, on="id", label_map="00=0,01=1")
    assert found.against is not None
    assert found.metrics["accuracy"].value == 0.75
    assert found.against.by_attribute["g"].metrics["accuracy"].old == 1


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        (">50K=1,<=50K=0", {">50K": "1", "<=50K": "0"}),
        ('<=50K.="<=50K",>50K.=>50K', {"<=50K.": "<=50K", ">50K.": ">50K"}),
        ('"<=50K."="<=50K",">50K."=>50K', {"<=50K.": "<=50K", ">50K.": ">50K"}),
        ('"a,b"=1,c=0', {"a,b": "1", "c": "0"}),
        ('a="b,c"', {"a": "b,c"}),
        ('"say ""no"""=0,yes=1', {'say "no"': "0", "yes": "1"}),
        ('"=1', {'"': "1"}),
        ('""=no,yes=""', {"": "no", "yes": ""}),
        ('"a=b"="c",a="b=c"', {"a=b": "c", "a": "b=c"}),
    ],
)
def test_label_maps_in_text(text: str, targets: dict[str, str]) -> None:
    assert LabelMap(text).targets == targets


def test_blanks_of_a_label_map_are_those_of_a_class_or_none() -> None:
    found = LabelMap(">50K=1, <=50K=0,yes =yes")
    found.settle([">50K", "<=50K", "yes "], ["0", "1", "yes"])
    assert found.targets == {">50K": "1", "<=50K": "0", "yes ": "yes"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("C", "C++"), ("a", "b"), ("-1", "1"), ("A+", "A-"), ("0", "10"), ("1 0", "11"), ("", "a"), ("?", "."),
        ("<1", ">1"), ("50%", "50"), ("1.5", "15"), ("\u00e9", "e"),
    ],
)  # fmt: skip
def test_values_that_are_two(first: str, second: str) -> None:
    assert loosely(first) != loosely(second)


def test_numbers_and_texts_of_numbers_are_mapped() -> None:
    label = np.array([0, 1] * 50)
    for columns in ((label, label.astype(str)), (label.astype(bool), label.astype(bool).astype(str))):
        assert "one value in two writings" in refused(audited, *columns)
        assert accuracy(*columns, label_map={str(one): str(one) for one in columns[0]}) == 1


def test_a_map_merges_labels_of_scores(tmp_path: Path) -> None:
    frame = frame_of(["no", "yes"], ["no", "yes"])
    label = np.where(np.arange(ROWS) < 30, np.array(["1", "2"])[TRUTH], frame["y"])
    mapped: dict[str, Any] = {"label_map": {"1": "no", "2": "yes"}}
    plain, merged = verbs(frame, tmp_path / "p.csv"), verbs(frame.assign(y=label), tmp_path / "p.csv")
    one, other = plain["scores"]().to_dict(), merged["scores"](**mapped).to_dict()
    assert [one["scores"], one["metrics"]] == [other["scores"], other["metrics"]]
    shifted = audited(TRUTH + 1, scores=SCORE, label_map={1: 0, 2: 1})
    assert shifted.metrics == audited(TRUTH, scores=SCORE).metrics
    assert plain["explanation"]().to_dict() == merged["explanation"](**mapped).to_dict()
    assert merged["rule"](**mapped).saved.classes == ("no", "yes")


# ------------------------------------------------------------------------------------------------ two meanings

NAMES = some.sampled_from(["0", "1", "2", "a", "b"])


def rates_by_hand(frame: pd.DataFrame, meant: dict[str, str], of_class: str) -> dict[str, tuple[float, float]]:
    """Return by group the selection rate and the true positive rate of a class."""
    truth, told = frame["y"].map(lambda one: meant.get(one, one)) == of_class, frame["q"] == of_class
    return {
        name: (float(told[rows].mean()), float(told[rows & truth].sum() / max(1, (rows & truth).sum())))
        for name in ("f", "m")
        for rows in [frame["g"] == name]
    }


@given(
    labels=some.lists(NAMES, min_size=2, max_size=2, unique=True),
    ends=some.lists(NAMES, min_size=2, max_size=2, unique=True),
    name=NAMES,
    scored=some.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_class_is_what_its_name_means_or_is_refused(
    labels: list[str], ends: list[str], name: str, scored: bool
) -> None:
    """Also where labels and predictions have names in common, whichever of the two the user thought of."""
    meant = dict(zip(labels, ends, strict=True))
    frame = frame_of(labels, ends)
    told = None if scored else frame["q"]
    given_to = {"scores": frame["p"], "threshold": 0.5} if scored else {}
    possible = {meant.get(name), name if name in ends else None} - {None}

    def found() -> lh.AuditResult:
        wanted: dict[str, Any] = {"positive": name, "favourable": name, **given_to}
        return audited(frame["y"], told, label_map=meant, **wanted)

    if len(possible) != 1:
        with pytest.raises(ConfigError, match="two readings: " if possible else "not among the classes"):
            found()
        return
    (of_class,), result = possible, found()
    if scored:  # they are about the class
        frame["q"] = np.where(frame["p"] >= 0.5, of_class, "another")
    assert (result.positive, result.favourable) == (of_class, of_class)
    for group, by_hand in rates_by_hand(frame, meant, of_class).items():
        rates = result.groups[group].rates
        assert (rates["selection_rate"].value, rates["true_positive_rate"].value) == pytest.approx(by_hand)
    assert all(f"predicted “{one}”" not in result.text(all=True) for one in set(labels) - set(ends))


@pytest.mark.parametrize(
    ("numbers", "named"), [(("0", "1"), "label"), (("0.0", "1.0"), "prediction"), (("0", "1.00"), "label")]
)
def test_whole_numbers_in_two_writings_are_one_class_with_one_note(
    numbers: tuple[str, str], named: str, tmp_path: Path
) -> None:
    """One missing value upstream makes 1 to 1.0."""
    frame = frame_of(list(numbers), ["0", "1.0"])
    path = written(frame, tmp_path / "p.csv")
    against = written(frame.assign(q=PREDICTED), tmp_path / "other.csv")
    result = of_file(path, against=against, on="id", favourable=numbers[1] if named == "label" else "1.0")
    other = audited(TRUTH, PREDICTED, favourable="1")
    assert sum("are one number and count as one class; --label-map says" in one for one in result.warnings) == 1
    assert result.metrics == other.metrics
    assert result.findings["rates"]["g"].outcome.ratios == other.findings["rates"]["group"].outcome.ratios
    assert result.against is not None
    compared = result.against.by_attribute["g"].metrics["accuracy"]
    assert (compared.old, compared.new) == (0.75, 0.75)
    names = {*numbers, "0", "1.0"}
    assert {*of_file(path, label_map={one: one for one in names}).more["words"]["order"]} == names


# ------------------------------------------------------------------------------------------------ no label


@pytest.mark.parametrize("ignored", ["-1.0", "255"])
def test_rows_whose_label_means_no_label_are_refused_or_left_out(ignored: str, tmp_path: Path) -> None:
    whole = frame_of(["0", "1"], ["0", "1"])
    drawn = np.random.default_rng(0).random(ROWS) < 0.2
    hidden, kept = whole.assign(y=whole["y"].mask(drawn, ignored)), whole[~drawn]
    without = verbs(kept, tmp_path / "kept" / "p.csv")
    for verb, ask in verbs(hidden, tmp_path / "hidden" / "p.csv").items():
        assert f"ignore_label='{ignored}'" in refused(ask), verb
        found, expected = ask(ignore_label=ignored), without[verb]()
        said = str([getattr(found, "warnings", ()), getattr(found, "reading", ())])
        assert said.count("rows with the label") == 1, verb
        if verb == "rule":  # the halves are those of another file
            assert len(found.decisions) == len(expected.decisions)
        else:
            silent = {"reading": None, "warnings": []}
            shown, also = (json.dumps(one.to_dict() | silent) for one in (found, expected))
            assert shown == also, verb
    score = functools.partial(lh.gap_score, groups=hidden["g"])
    assert f"ignore_label='{ignored}'" in refused(score, hidden["y"], hidden["q"])
    left = score(hidden["y"], hidden["q"], ignore_label=ignored)
    assert left == lh.gap_score(kept["y"], kept["q"], groups=kept["g"])


def test_minus_one_is_a_class_where_it_is_predicted_or_1_is_the_only_other_one() -> None:
    label, ones = np.array([-1, 1] * 40), np.ones(80, int)
    assert accuracy(label, label[::-1]) == 0
    assert audited(label, scores=np.where(label > 0, 0.9, 0.2)).positive == "1"
    assert accuracy(label, scores=np.full(80, 0.9)) == 0.5
    assert lh.gap_score(label, ones, groups=GROUP[:80]) == 0
    assert accuracy(label, ones, label_map={-1: -1}) == 0.5


def test_class_labels_are_named_and_their_secret_label_is_no_class() -> None:
    """The library ``datasets`` writes -1 where a label is kept secret: it is not the last class."""
    datasets = pytest.importorskip("datasets")
    names, number = datasets.ClassLabel(names=["no", "yes"]), datasets.Value("int64")
    answers = [0, 1, 1, 1] * 20
    columns = {"y": [0, 1, -1, 1] * 20, "q": answers}
    column = datasets.Dataset.from_dict(columns, features=datasets.Features({"y": names, "q": number}))
    for told in (answers, np.array(["no", "yes"])[answers]):
        assert "--ignore-label -1 " in refused(audited, column["y"], told)
        assert accuracy(column["y"], told, ignore_label=-1) == 1
    features = datasets.Features(dict.fromkeys("yq", datasets.ClassLabel(names=["1", "0"])))
    column = datasets.Dataset.from_dict({"y": [0, 1] * 40, "q": answers}, features=features)
    with pytest.raises(ConfigError, match="position of one class"):
        audited(column["y"], column["q"], positive=1)
    assert audited(column["y"], column["q"], positive="1").positive == "1"
