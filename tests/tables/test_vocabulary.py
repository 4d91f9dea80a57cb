"""One rule for classes that are most often one: every command refuses them, and what its error says to type works."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import levelhead as lh
from as_tables import audit_unrecorded, explain_columns
from levelhead.auditing.postprocess_audit import postprocess_file
from levelhead.cli.app import main
from levelhead.spelling import loosely
from levelhead.tables.vocabulary import LabelMap, agree, check_predictions, map_text, suggested_map
from levelhead.types import ConfigError, DataError

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
        }
    )


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def to_type(error: str) -> list[str]:
    """Return the first label map that an error says to type, as a shell reads it."""
    first = " ".join(error.split()).split(" (in Python", 1)[0].split(". If they are different", 1)[0]
    return shlex.split(first[first.index("--label-map") :])


def in_python(error: str) -> Mapping[Hashable, Hashable]:
    found: Mapping[Hashable, Hashable] = ast.literal_eval(re.search(r"label_map=(\{.*?\})\)", error)[1])  # type: ignore[index]
    return found


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_label_map_of_the_error_works_as_it_is_printed(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = frame_of(*DIFFERENT[case])
    path = tmp_path / "p.csv"
    frame.to_csv(path, index=False)
    if case in ("1/2 beside 0/1", "a final dot", "what cannot be seen", "commas and equals signs"):
        command = ["audit", path, "--label", "y", "--prediction", "q", "--group", "g"]
        assert run(*command) != 0
        error = capsys.readouterr().err
        assert run(*command, *to_type(error), "--json", tmp_path / "a.json") == 0
        assert pd.read_json(tmp_path / "a.json", typ="series")["metrics"]["accuracy"]["value"] == 0.75
    with pytest.raises(DataError) as caught:
        lh.audit_table(path, label="y", prediction="q", groups=["g"])
    typed = to_type(str(caught.value))[1::2]
    result = lh.audit_table(path, label="y", prediction="q", groups=["g"], label_map=typed, replicates=100)
    assert result.metrics["accuracy"].value == 0.75

    with pytest.raises(DataError) as caught:
        lh.audit(frame["y"], frame["q"], sensitive_features=frame["g"])
    result = lh.audit(
        frame["y"], frame["q"], sensitive_features=frame["g"], label_map=in_python(str(caught.value)), replicates=100
    )
    assert result.metrics["accuracy"].value == 0.75


ALIKE = {name: pair for name, pair in DIFFERENT.items() if list(map(loosely, pair[0])) == list(map(loosely, pair[1]))}


@pytest.mark.parametrize("case", ["a final dot", "commas and equals signs"])
def test_labels_in_two_spellings_are_refused_by_every_command(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = ALIKE[case]
    mixed = np.where(np.arange(ROWS) < 30, np.array(first, object)[TRUTH], np.array(second, object)[TRUTH])
    path = tmp_path / "p.csv"
    frame_of(first, second).assign(y=mixed).to_csv(path, index=False)
    few = {"replicates": 100}
    commands: list[Callable[..., Any]] = [
        lambda **options: (
            lh.audit_table(path, label="y", prediction="q", groups=["g"], **few, **options).metrics["accuracy"].value
        ),
        lambda **options: (
            lh.audit_table(path, label="y", groups=["g"], score="p", **few, **options).metrics["accuracy"].value
        ),
    ]
    right = [0.75, 0.75]
    for command, expected in zip(commands, right, strict=True):
        with pytest.raises(DataError) as caught:
            command()
        assert command(label_map=in_python(str(caught.value))) == expected
        assert command(label_map=to_type(str(caught.value))[1::2]) == expected
    for words in (
        ["explain", path, "--label", "y", "--score", "p", "--group", "g"],
        ["postprocess", path, "--label", "y", "--score", "p", "--group", "g"],
        ["indirect-audit", path, "--label", "y", "--prediction", "q", "--shares", "women=0.4"],
    ):
        assert run(*words) != 0
        assert run(*words, *to_type(capsys.readouterr().err)) == 0


def test_a_label_never_predicted_is_legal_if_every_prediction_is_a_label() -> None:
    label, predicted = ["a", "b", "c"] * 40, ["a", "b", "b"] * 40
    result = lh.audit(label, predicted, sensitive_features=["f", "m"] * 60)
    assert result.metrics["accuracy"].value == pytest.approx(2 / 3)
    result = lh.audit(predicted, label, sensitive_features=["f", "m"] * 60)
    assert any("40 predictions have values that no label has: 'c'" in warning for warning in result.warnings)


def test_a_label_never_predicted_beside_a_prediction_never_labelled() -> None:
    label, predicted = ["a", "b", "c"] * 40, ["a", "b", "d"] * 40
    with pytest.raises(DataError, match=r"'c' is a label that no row is predicted as, and 'd' .* --label-map c=d ") as (
        caught
    ):
        lh.audit(label, predicted, sensitive_features=["f", "m"] * 60)
    one = lh.audit(label, predicted, sensitive_features=["f", "m"] * 60, label_map=in_python(str(caught.value)))
    assert one.metrics["accuracy"].value == 1
    assert "If they are different classes: --label-map c=c,d=d" in str(caught.value)
    two = lh.audit(label, predicted, sensitive_features=["f", "m"] * 60, label_map="c=c,d=d")
    assert two.metrics["accuracy"].value == pytest.approx(2 / 3)
    assert two.more["words"]["order"] == ["a", "b", "c", "d"]
    # Counted from 1 and from 0, with a class that is never predicted.
    with pytest.raises(DataError, match="--label-map 1=0,2=1,3=2 ") as caught:
        lh.audit([1, 2, 3] * 40, [0, 1, 1] * 40, sensitive_features=["f", "m"] * 60)
    mapped = lh.audit(
        [1, 2, 3] * 40, [0, 1, 1] * 40, sensitive_features=["f", "m"] * 60, label_map=in_python(str(caught.value))
    )
    assert mapped.metrics["accuracy"].value == pytest.approx(2 / 3)


def test_the_other_model_is_held_to_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = frame_of(["0", "1"], ["0", "1"])
    frame.to_csv(tmp_path / "new.csv", index=False)
    frame.assign(q=np.array(["00", "01"], object)[TRUTH]).to_csv(tmp_path / "old.csv", index=False)
    command = ["audit", tmp_path / "new.csv", "--label", "y", "--prediction", "q", "--group", "g"]
    command += ["--against", tmp_path / "old.csv", "--on", "id"]
    assert run(*command) != 0
    error = capsys.readouterr().err
    assert run(*command, *to_type(error), "--json", tmp_path / "a.json") == 0
    record = pd.read_json(tmp_path / "a.json", typ="series")
    assert record["metrics"]["accuracy"]["value"] == 0.75
    assert record["against"]["by_attribute"]["g"]["metrics"]["accuracy"]["old"] == 1


def test_classes_that_differ_in_writing_stay_two_where_the_map_says_so() -> None:
    label, predicted = ["A", "a"] * 100, ["A", "a", "a", "a"] * 50
    assert lh.audit(label, predicted, sensitive_features=GROUP[:200], label_map="A=A,a=a").metrics[
        "accuracy"
    ].value == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("text", "labels", "predictions", "targets"),
    [
        (">50K=1,<=50K=0", [">50K", "<=50K"], [0, 1], {">50K": "1", "<=50K": "0"}),
        ("<=50K.=<=50K,>50K.=>50K", ["<=50K.", ">50K."], ["<=50K", ">50K"], {"<=50K.": "<=50K", ">50K.": ">50K"}),
        ("a=<=50K,b=>50K", ["a", "b"], ["<=50K", ">50K"], {"a": "<=50K", "b": ">50K"}),
        ('"<=50K."="<=50K",">50K."=>50K', ["<=50K.", ">50K."], ["<=50K", ">50K"], None),
        ('"a,b"=1,c=0', ["a,b", "c"], [0, 1], {"a,b": "1", "c": "0"}),
        ('a="b,c"', ["a"], ["b,c"], {"a": "b,c"}),
        ('"say ""no"""=0,yes=1', ['say "no"', "yes"], [0, 1], {'say "no"': "0", "yes": "1"}),
        (">50K=1, <=50K=0", [">50K", "<=50K"], [0, 1], {">50K": "1", "<=50K": "0"}),
        ("yes =yes,no=no", ["yes ", "no"], ["yes", "no"], {"yes ": "yes", "no": "no"}),
        ('"=1', ['"'], [1], {'"': "1"}),
        ("===", ["="], ["="], {"=": "="}),
        ('""=no,yes=""', ["", "yes"], ["no", ""], {"": "no", "yes": ""}),
    ],
)
def test_label_maps_in_text(
    text: str, labels: list[str], predictions: list[Hashable], targets: dict[str, str] | None
) -> None:
    found = LabelMap(text)
    found.settle(labels, predictions)
    assert found.targets == (targets or {"<=50K.": "<=50K", ">50K.": ">50K"})


def test_a_pair_that_could_be_read_in_two_ways_is_read_by_its_quotes() -> None:
    assert LabelMap('"a=b"="c",a="b=c"').apply({"a": 1, "a=b": 1}, {"b=c": 1, "c": 1})[0] == {"a": "b=c", "a=b": "c"}


TEXTS = some.text(alphabet="aAbB01 .=,\"'_-\u00a0\ufeff\u00e9", min_size=0, max_size=4)


@given(some.lists(TEXTS, min_size=1, max_size=6), some.lists(TEXTS, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_every_map_that_is_printed_is_accepted(labels: list[str], predictions: list[str]) -> None:
    known, said = Counter(labels), Counter(predictions)
    try:
        check_predictions(known, said)
    except DataError as error:
        if "--label-map" not in str(error):
            return
        pairs = suggested_map(known, said)
        options = shlex.split(map_text(pairs))[1::2]
        for given_map in (LabelMap(pairs), LabelMap(options)):
            *_, classes, answers = agree(known, said, given_map)
            check_predictions(classes, answers, given_map.named)


def test_a_label_map_with_a_class_that_occurs_nowhere_is_refused(tmp_path: Path) -> None:
    frame = frame_of(["no", "yes"], ["no", "yes"])
    path, other = tmp_path / "p.csv", tmp_path / "other.csv"
    frame.to_csv(path, index=False)
    few: dict[str, Any] = {"replicates": 100, "label_map": {"no": "no", "yess": "yes"}}
    frame.assign(q=np.where(frame["q"] == "yes", "yess", "no")).to_csv(other, index=False)
    commands: list[Callable[[], Any]] = [
        lambda: lh.audit(frame["y"], frame["q"], sensitive_features=frame["g"], **few),
        lambda: lh.audit_table(path, label="y", prediction="q", groups=["g"], **few),
        lambda: lh.audit_table(path, label="y", groups=["g"], score="p", **few),
        lambda: lh.audit_table(path, label="y", prediction="q", groups=["g"], against=path, on="id", **few),
        lambda: lh.explain(path, label="y", score="p", groups=["g"], **few),
        lambda: postprocess_file(path, "p", "g", label="y", label_map="no=no,yess=yes"),
        lambda: lh.audit_table(path, label="y", prediction="q", shares={"f": 0.4}, **few),
    ]
    for command in commands:
        with pytest.raises(ConfigError, match=r"'yess', which is neither a label nor a prediction.*'no', 'yes'"):
            command()
    # The class of one of two files is no slip, nor is one that a map leaves as it is.
    result = lh.audit_table(path, label="y", prediction="q", groups=["g"], against=other, on="id", **few)
    assert result.against is not None
    assert result.against.by_attribute["g"].metrics["accuracy"].old == 0.75
    lh.audit_table(path, label="y", prediction="q", groups=["g"], replicates=100, label_map="maybe=maybe")
    frame.assign(y=np.where(frame["y"] == "yes", "yess", "no")).to_csv(other, index=False)
    postprocess_file(
        path, "p", "g", label="y", validation=other, label_map="no=no,yess=yes", metric="demographic_parity"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("C", "C++"), ("a", "b"), ("-1", "1"), ("A+", "A-"), ("0", "10"), ("1 0", "11"), ("", "a"), ("?", "."),
        ("<1", ">1"), ("50%", "50"), ("1.5", "15"), ("\u00e9", "e"),
    ],
)  # fmt: skip
def test_values_that_are_two(first: str, second: str) -> None:
    assert loosely(first) != loosely(second)


def test_numbers_and_texts_of_numbers_are_mapped(tmp_path: Path) -> None:
    label = np.array([0, 1] * 50)
    for given_labels, predicted in ((label, label.astype(str)), (label.astype(bool), label.astype(bool).astype(str))):
        with pytest.raises(DataError) as caught:
            lh.audit(given_labels, predicted, sensitive_features=GROUP[:100])
        mapped = lh.audit(
            given_labels, predicted, sensitive_features=GROUP[:100], label_map=in_python(str(caught.value))
        )
        assert mapped.metrics["accuracy"].value == 1


def test_a_map_merges_labels_of_scores(tmp_path: Path) -> None:
    label = np.where(np.arange(ROWS) < 30, np.array(["1", "2"])[TRUTH], np.array(["no", "yes"])[TRUTH])
    given_map = {"1": "no", "2": "yes"}
    frame = frame_of(["no", "yes"], ["no", "yes"])
    plain = lh.audit(frame["y"], scores=frame["p"], sensitive_features=frame["g"], replicates=100).to_dict()
    merged = lh.audit(
        label, scores=frame["p"], sensitive_features=frame["g"], label_map=given_map, replicates=100
    ).to_dict()
    assert merged["scores"] == plain["scores"]
    assert merged["metrics"] == plain["metrics"]
    shifted = lh.audit(TRUTH + 1, scores=SCORE, sensitive_features=GROUP, label_map={1: 0, 2: 1}, replicates=100)
    assert shifted.metrics == lh.audit(TRUTH, scores=SCORE, sensitive_features=GROUP, replicates=100).metrics
    one, other = (
        explain_columns(one, frame["p"], sensitive_features=frame["g"], label_map=two, replicates=100).to_dict()
        for one, two in ((frame["y"], None), (label, given_map))
    )
    assert one == other
    frame.assign(y=label).to_csv(tmp_path / "p.csv", index=False)
    found = postprocess_file(tmp_path / "p.csv", "p", "g", label="y", label_map=given_map)
    assert found.saved.classes == ("no", "yes")


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
    which=some.sampled_from(["", "label=", "prediction="]),
    scored=some.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_class_is_what_its_name_means_or_is_refused(
    labels: list[str], ends: list[str], name: str, which: str, scored: bool
) -> None:
    """Also where labels and predictions have names in common, whichever of the two the user thought of."""
    meant = dict(zip(labels, ends, strict=True))
    frame = frame_of(labels, ends)
    given_to = {"scores": frame["p"], "threshold": 0.5} if scored else {"y_pred": frame["q"]}
    readings = {"label=": meant.get(name), "prediction=": name if name in ends else None}
    possible = {readings[which]} if which else set(readings.values())
    possible -= {None}

    def found() -> lh.AuditResult:
        wanted: dict[str, Any] = {"positive": which + name, "favourable": which + name, **given_to}
        return lh.audit(frame["y"], sensitive_features=frame["g"], label_map=meant, replicates=100, **wanted)

    if len(possible) != 1:
        with pytest.raises(ConfigError, match=f"two readings: label={name} " if possible else "not among the classes"):
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
    ("written", "named"), [(("0", "1"), "label"), (("0.0", "1.0"), "prediction"), (("0", "1.00"), "label")]
)
def test_whole_numbers_in_two_writings_are_one_class_with_one_note(
    written: tuple[str, str], named: str, tmp_path: Path
) -> None:
    """One missing value upstream makes 1 to 1.0."""
    frame = frame_of(list(written), ["0", "1.0"])
    plain = frame.assign(y=TRUTH, q=PREDICTED)
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.assign(q=PREDICTED).to_csv(tmp_path / "other.csv", index=False)
    few: dict[str, Any] = {"replicates": 100, "favourable": written[1] if named == "label" else "1.0"}
    result = lh.audit_table(
        tmp_path / "p.csv", label="y", prediction="q", groups=["g"], against=tmp_path / "other.csv", on="id", **few
    )
    other = lh.audit(plain["y"], plain["q"], sensitive_features=plain["g"], replicates=100, favourable="1")
    assert sum("are one number and count as one class; --label-map says" in one for one in result.warnings) == 1
    assert result.metrics == other.metrics
    assert result.findings["rates"]["g"].outcomes[0].ratios == other.findings["rates"]["g"].outcomes[0].ratios
    assert result.against is not None
    assert result.against.by_attribute["g"].metrics["accuracy"].old == 0.75
    assert result.against.by_attribute["g"].metrics["accuracy"].new == 0.75
    names = {*written, "0", "1.0"}
    apart = lh.audit_table(
        tmp_path / "p.csv",
        label="y",
        prediction="q",
        groups=["g"],
        replicates=100,
        label_map={one: one for one in names},
    )
    assert {*apart.more["words"]["order"]} == names


# ------------------------------------------------------------------------------------------------ no label


def without_labels(ignored: str, kind: str) -> dict[str, Callable[..., Any]]:
    """Return every verb, asked about rows of which some have a label that says that there is none."""
    frame = frame_of(["0", "1"], ["0", "1"])
    drawn = np.random.default_rng(0).random(ROWS) < 0.2
    frame.loc[drawn, "y"] = ignored
    frame["age"] = np.random.default_rng(1).integers(20, 80, ROWS).astype(str)
    if kind == "dropped":
        frame = frame[~drawn]
    frame.to_csv("p.csv", index=False)
    few: dict[str, Any] = {"replicates": 100}
    groups = {"sensitive_features": frame["g"], **few}
    return {
        "arrays": lambda **more: lh.audit(frame["y"], frame["q"], **groups, **more),
        "scores": lambda **more: lh.audit(frame["y"], scores=frame["p"], **groups, **more),
        "file": lambda **more: lh.audit_table(
            "p.csv", label="y", prediction="q", groups=["g"], against="p.csv", on="id", **few, **more
        ),
        "scores of a file": lambda **more: lh.audit_table(
            "p.csv", label="y", groups=["g", "age"], score="p", bins="age=quantiles:3", control=(), **few, **more
        ),
        "explanation": lambda **more: explain_columns(frame["y"], frame["p"], **groups, **more),
        "explanation of a file": lambda **more: lh.explain("p.csv", label="y", score="p", groups=["g"], **few, **more),
        "no groups": lambda **more: audit_unrecorded(frame["y"], frame["q"], shares={"f": 0.4}, **few, **more),
        "no groups of a file": lambda **more: lh.audit_table(
            "p.csv", label="y", prediction="q", shares={"f": 0.4}, **few, **more
        ),
        "rule": lambda **more: postprocess_file(
            "p.csv", "p", "g", label="y", id_column="id", metric="demographic_parity", **more
        ),
        "score": lambda **more: lh.gap_score(frame["y"], frame["q"], groups=frame["g"], **more),
    }


@pytest.mark.parametrize("ignored", ["-1.0", "255"])
def test_rows_whose_label_means_no_label_are_refused_or_left_out(
    ignored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for verb, ask in without_labels(ignored, "there").items():
        with pytest.raises(DataError, match=f"ignore_label='{ignored}'"):
            ask()
        found = ask(ignore_label=ignored)
        shown = found if isinstance(found, float) else json.dumps(found.to_dict() | {"reading": None, "warnings": []})
        if verb != "score":
            said = str([getattr(found, "warnings", ()), getattr(found, "reading", ())])
            assert said.count("rows with the label") == 1, verb
        kept = without_labels(ignored, "dropped")[verb]()
        expected = kept if isinstance(kept, float) else json.dumps(kept.to_dict() | {"reading": None, "warnings": []})
        if verb == "rule":  # the halves are those of another file
            assert len(found.decisions) == len(kept.decisions) == len(found.ids)
        else:
            assert shown == expected, verb
        without_labels(ignored, "there")


def test_minus_one_is_a_class_where_it_is_predicted_or_1_is_the_only_other_one() -> None:
    label, group = np.array([-1, 1] * 40), GROUP[:80]
    assert lh.audit(label, label[::-1], sensitive_features=group).metrics["accuracy"].value == 0
    assert lh.audit(label, scores=np.where(label > 0, 0.9, 0.2), sensitive_features=group).positive == "1"
    assert lh.audit(label, scores=np.full(80, 0.9), sensitive_features=group).metrics["accuracy"].value == 0.5
    assert lh.gap_score(label, np.ones(80, int), groups=group) == 0
    one = lh.audit(label, np.ones(80, int), sensitive_features=group, label_map={-1: -1})
    assert one.metrics["accuracy"].value == 0.5


def test_the_secret_label_of_class_labels_is_no_class() -> None:
    """The library ``datasets`` writes -1 where a label is kept secret: it is not the last class."""
    datasets = pytest.importorskip("datasets")
    column = datasets.Dataset.from_dict(
        {"y": [0, 1, -1, 1] * 20, "q": [0, 1, 1, 1] * 20},
        features=datasets.Features({"y": datasets.ClassLabel(names=["no", "yes"]), "q": datasets.Value("int64")}),
    )
    for told in (column["q"][:], np.array(["no", "yes"])[column["q"][:]]):
        with pytest.raises(DataError, match="--ignore-label -1 "):
            lh.audit(column["y"], told, sensitive_features=GROUP[:80])
        found = lh.audit(column["y"], told, sensitive_features=GROUP[:80], ignore_label=-1)
        assert found.metrics["accuracy"].value == 1


def test_a_position_that_is_the_name_of_another_class_label_is_refused() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(dict.fromkeys("yq", datasets.ClassLabel(names=["1", "0"])))
    column = datasets.Dataset.from_dict({"y": [0, 1] * 40, "q": [0, 1, 1, 1] * 20}, features=features)
    with pytest.raises(ConfigError, match="position of one class"):
        lh.audit(column["y"], column["q"], sensitive_features=GROUP[:80], positive=1)
    assert lh.audit(column["y"], column["q"], sensitive_features=GROUP[:80], positive="1").positive == "1"


@pytest.mark.parametrize("ignored", [-1, 255])
def test_the_metrics_of_a_trainer_leave_out_what_they_are_told(ignored: int) -> None:
    labels = np.random.default_rng(0).integers(0, 2, 80)
    hidden = np.where(np.arange(80) % 5 == 3, ignored, labels)
    evaluated = type("EvalPrediction", (), {"predictions": np.eye(2)[labels], "label_ids": hidden})
    with pytest.raises(DataError, match=r"gap_metrics\(\.\.\., ignore_label=-1\)"):
        lh.gap_metrics(GROUP[:80], labels=hidden)(evaluated)
    assert lh.gap_metrics(GROUP[:80], labels=hidden, ignore_label=ignored)(evaluated)["accuracy"] == 1
