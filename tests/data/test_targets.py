"""Targets and splits as people's tables have them: one rule before training, and every way out of its errors works."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import yaml

from levelhead.cli.app import main
from levelhead.data.hub import Hub
from levelhead.data.image_folder_csv import ImageFolderCsv
from levelhead.data.splits import known_splits
from levelhead.data.text_csv import TextCsv
from levelhead.runs.data_check import look_at
from levelhead.runs.init import write_recipe
from levelhead.runs.recipe import load_experiment
from levelhead.types import DataError

ROWS = 300


def table(**columns: Any) -> pd.DataFrame:
    words = [f"some words number {row}" for row in range(ROWS)]
    return pd.DataFrame({"comment_text": words, "label": ["no", "yes"] * (ROWS // 2), **columns})


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def settings_in(error: str) -> list[list[str]]:
    """Return the settings that an error says to type, one list for each of its ways out."""
    found = re.findall(r"--set (?:'[^']*'|[^\s']\S*)", " ".join(error.split()))
    return [shlex.split(one.rstrip(".")) for one in found]


def build(folder: Path, kind: type, frame: pd.DataFrame, **options: Any) -> TextCsv | ImageFolderCsv | Hub:
    if kind is Hub:
        datasets.DatasetDict({"train": datasets.Dataset.from_pandas(frame)}).save_to_disk(str(folder / "set"))
        return Hub(
            path=str(folder / "set"), text_column="comment_text", validation_split=None, test_split=None, **options
        )
    frame.to_csv(folder / "t.csv", index=False)
    if kind is ImageFolderCsv:
        return ImageFolderCsv(folder=str(folder), csv="t.csv", file_column="comment_text", **options)
    return TextCsv(folder=str(folder), file="t.csv", text_column="comment_text", **options)


KINDS = [TextCsv, ImageFolderCsv, Hub]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [("<=50K", "<=50K."), ("1", "1.0")])
def test_a_class_in_two_spellings_is_refused_before_training(pair: tuple[str, str], kind: type, tmp_path: Path) -> None:
    labels = ["other", pair[0]] * (ROWS // 2 - 5) + ["other", pair[1]] * 5
    data = build(tmp_path, kind, table(label=labels))
    with pytest.raises(DataError, match="Two classes: ") as caught:
        data.class_names()
    one, two = settings_in(str(caught.value))
    for (_, setting), count in ((one, 2), (two, 3)):
        option, text = setting.split("=", 1)
        assert option == "data.label_map"
        names = replace(data, label_map=yaml.safe_load(text)).class_names()
        assert len(names) == count
        assert pair[0] in names


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_of_shares_asks_for_a_threshold(kind: type, tmp_path: Path) -> None:
    share = np.random.default_rng(0).random(ROWS).round(6)
    frame = table(label=share if kind is not Hub else share.astype(str))
    data = build(tmp_path, kind, frame)
    with pytest.raises(DataError, match=r"300 different numbers from 0 to 1.*--set data\.threshold=0\.5"):
        data.class_names()
    assert replace(data, threshold=0.5).class_names() == ("not label", "label")
    (tmp_path / "few").mkdir()
    few = build(tmp_path / "few", kind, table(label=["0", "0.4", "1"] * 100))
    with pytest.raises(DataError, match=r"If these are classes: --set 'data\.label_map=") as caught:
        few.class_names()
    text = settings_in(str(caught.value))[-1][1].split("=", 1)[1]
    assert replace(few, label_map=yaml.safe_load(text)).class_names() == ("0", "0.4", "1")


def test_shares_in_float32_reach_the_threshold_that_they_are_printed_as(tmp_path: Path) -> None:
    share = np.tile([0.7, 0.2], ROWS // 2).astype(np.float32)
    hub = build(tmp_path, Hub, table(label=share), threshold=0.7)
    table(label=share).to_parquet(tmp_path / "t.parquet")
    own = TextCsv(folder=str(tmp_path), file="t.parquet", text_column="comment_text", threshold=0.7)
    for data in (hub, own):
        assert sum(int(data.examples(split).labels.sum()) for split in ("train", "validation", "test")) == ROWS // 2


@pytest.mark.parametrize(
    "words",
    [
        ("train", "eval", "test"),
        ("training", "validation", "testing"),
        ("Train", " Valid", "TEST"),
        ("train", "dev", "eval"),
    ],
)
def test_official_splits_are_recognised(words: tuple[str, ...], tmp_path: Path) -> None:
    frame = table(split=[words[0]] * 200 + [words[1]] * 60 + [words[2]] * 40)
    build(tmp_path, TextCsv, frame)
    assert {word: known_splits(words)[word] for word in words} == dict(
        zip(words, ("train", "validation", "test"), strict=True)
    )
    text, guess = write_recipe(tmp_path / "t.csv")
    assert yaml.safe_load(text)["data"]["split_column"] == "split"
    (tmp_path / "a.yaml").write_text(text)
    counts = look_at(load_experiment(tmp_path / "a.yaml")).counts
    assert [sum(column) for column in zip(*counts.values(), strict=True)] == [200, 60, 40]
    assert not any("split" in sentence for sentence in guess.said if "might also" in sentence)


def test_splits_that_are_numbers_are_mapped(tmp_path: Path) -> None:
    splits: dict[Any, list[str | int]] = {"train": [0, 1], "test": [2]}
    frame = table(split=[0] * 200 + [1] * 60 + [2] * 40)
    data = build(tmp_path, TextCsv, frame, split_column="split", splits=splits)
    assert len(data.examples("test").labels) == 40


def test_splits_of_unknown_words_are_never_dealt_anew_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(split=["a"] * 200 + ["b"] * 60 + ["c"] * 40).to_csv("t.csv", index=False)
    assert run("init", "t.csv") != 0
    column, splits, none = settings_in(capsys.readouterr().err)
    assert run("init", "t.csv", *column, *(word.lower() for word in splits)) == 0
    assert yaml.safe_load(Path("t.yaml").read_text())["data"]["splits"] == {
        "train": ["a"],
        "validation": ["b"],
        "test": ["c"],
    }
    assert run("data", "check", "t.yaml") == 0
    assert run("init", "t.csv", *none, "--force") == 0
    assert yaml.safe_load(Path("t.yaml").read_text())["data"]["split_column"] is None
    assert run("data", "check", "t.yaml") == 0


def test_a_split_that_no_row_names_is_dealt_out_of_the_training_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = table(part=["train"] * 250 + ["test"] * 50, group=["f", "m"] * (ROWS // 2))
    data = build(tmp_path, TextCsv, frame, split_column="part", sensitive="group")
    groups = {split: len(data.groups(split)[0].values) for split in ("train", "validation", "test")}
    assert groups["test"] == 50
    assert 10 < groups["validation"] < 45
    assert sum(groups.values()) == ROWS
    assert {split: len(data.examples(split).labels) for split in groups} == groups
    assert "'part' names no validation rows; they are drawn from the training rows" in caplog.text


def test_init_never_takes_a_count_a_split_or_a_group_for_the_class(tmp_path: Path) -> None:
    other = {
        "identity_annotator_count": [0, 4, 10] * (ROWS // 3),
        "toxicity_annotator_count": [4, 5, 6] * (ROWS // 3),
        "applicant": ["male", "female", "other"] * (ROWS // 3),
        "subgroup": ["0", "1"] * (ROWS // 2),
    }
    frame = table(**other).rename(columns={"label": "verdict"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    text, guess = write_recipe(tmp_path / "t.csv")
    assert yaml.safe_load(text)["data"]["target"] == "verdict"
    assert guess.sensitive == ["identity_annotator_count", "applicant", "subgroup"]
    frame.drop(columns="verdict").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"looks like a class.*--set data\.target=COLUMN"):
        write_recipe(tmp_path / "t.csv")
    frame.assign(kind=["a", "b", "c"] * (ROWS // 3)).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"Several columns may be the class to predict: 'verdict' and 'kind'") as caught:
        write_recipe(tmp_path / "t.csv")
    [[_, setting]] = settings_in(str(caught.value))
    text, _ = write_recipe(tmp_path / "t.csv", settings=[setting])
    assert yaml.safe_load(text)["data"]["target"] == "kind"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ignored", "names"), [("-100", ("0", "1")), ("255", ("no", "yes"))])
def test_rows_whose_label_means_no_label_are_refused_or_left_out(
    ignored: str, names: tuple[str, str], kind: type, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels, drawn = [names[row % 2] for row in range(ROWS)], np.arange(ROWS) % 7 == 3
    frame = table(label=np.where(drawn, ignored, labels), site=["a", "b", "c"] * (ROWS // 3))
    options: dict[str, Any] = {"sensitive": "site"}
    if kind is ImageFolderCsv:
        frame["split"] = ["train", "validation", "test"] * (ROWS // 3)
        options["split_column"] = "split"
    else:
        frame["row"], options["id_column"] = range(ROWS), "row"
    data = build(tmp_path, kind, frame, **options)
    with pytest.raises(DataError, match="often means no label") as caught:
        data.class_names()
    (one,), (other,) = settings_in(str(caught.value))[0][1:], settings_in(str(caught.value))[1][1:]
    assert yaml.safe_load(one.partition("=")[2]) in (ignored, int(ignored))
    as_class = replace(data, label_map=json.loads(other.partition("=")[2]))
    assert set(as_class.class_names()) == {*names, ignored}
    for given in (ignored, int(ignored)):
        kept = replace(data, ignore_label=given)
        assert kept.class_names() == names
        for split in ("train", "validation", "test"):
            every, numbers = ([int(re.findall(r"\d+", row)[0]) for row in one.ids(split)] for one in (as_class, kept))
            assert numbers == [row for row in every if not drawn[row]]
            assert kept.groups(split)[0].values.tolist() == [row % 3 for row in numbers]  # type: ignore[arg-type]
            if kind is not ImageFolderCsv:
                assert kept.examples(split).labels.tolist() == [row % 2 for row in numbers]  # type: ignore[arg-type]
    if kind is not ImageFolderCsv:
        assert "rows without a label left out" in caplog.text


def glue(root: Path) -> Hub:
    """Return a set of the hub whose test split has no labels, as those of GLUE."""
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"text": [f"words {row}" for row in range(40)]}
    whole = datasets.Dataset.from_dict(rows | {"label": [0, 1] * 20}, features=features)
    secret = datasets.Dataset.from_dict(rows | {"label": [-1] * 40}, features=features)
    datasets.DatasetDict({"train": whole, "test": secret}).save_to_disk(str(root / "set"))
    return Hub(root=root, path="set", text_column="text", validation_split=None)


@pytest.mark.parametrize("ignored", [None, -1])
def test_a_split_without_labels_leaves_the_others_as_they_are(ignored: int | None, tmp_path: Path) -> None:
    data = replace(glue(tmp_path), ignore_label=ignored)
    assert len(data.examples("train").labels) + len(data.examples("validation").labels) == 40
    assert len(replace(data, test_split=None).examples("test").labels) > 0
