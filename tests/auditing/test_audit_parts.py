"""Every part of an audit, and one of a user's own: arrays, a file and several batches say the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.cells import cell_len

import levelhead as lh
from levelhead.auditing.page import audit_page
from levelhead.auditing.part import Answer, Asked, Frame, Part
from levelhead.auditing.parts import PARTS
from levelhead.cli.app import main
from levelhead.report import blocks, render
from levelhead.tables import files
from levelhead.terminal import plain_text
from levelhead.types import ConfigError, DataError

HOSTILE = "\x1b[31m<b>& a very long name of a group\u202e"


@dataclass(frozen=True)
class Errors(Answer):
    wrong: dict[str, int]

    def sentences(self) -> list[str]:
        return [f"{group} has {count} errors." for group, count in self.wrong.items()]

    def sections(self) -> list[dict[str, Any]]:
        text = {"type": "paragraph", "text": " ".join(self.sentences()), "strong": False, "where": blocks.BOTH}
        return [blocks.section("Errors", [text])]


class Counting(Part):
    name = "errors"

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self.wrong: Counter[str] = Counter()

    def update(self, columns: Any) -> None:
        texts = [np.array(list(map(str, values)))[codes] for codes, values in map(columns.get, ("label", "prediction"))]
        codes, groups = columns["group sex"]
        self.wrong.update(groups[code] for code in codes[texts[0] != texts[1]].tolist())

    def find(self, frame: Frame) -> Errors:
        return Errors({str(group): np.int64(self.wrong[str(group)]) for group in frame.groups["sex"]})


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(PARTS, "_registered", {})
    monkeypatch.chdir(tmp_path)
    PARTS.register(Counting)


def rows(count: int = 400) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    score = np.round(draw.random(count), 2)
    table = pd.DataFrame({"y": draw.random(count) < score, "score": score, "sex": draw.choice(["f", "m"], count)})
    table["answer"], table["other"] = (score > 0.5).astype(int), (draw.random(count) < score).astype(int)
    return table.assign(y=table["y"].astype(int), age=draw.integers(18, 80, count), site=draw.choice(["n", "s"], count))


# Columns of arrays by argument, and those of files by option.
ASKED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "control": ({"control_features": "site"}, {"control": ["site"]}),
    "continuous": ({"continuous": "age"}, {"continuous": ["age"]}),
    "against": ({"against": "other"}, {"against": "other.csv"}),
    "costs": ({}, {"costs": {"false_positive": 1, "false_negative": 5}}),
    "over_time": ({"time": "age"}, {"time": "age"}),
    "scores": ({"scores": "score"}, {"score": "score"}),
    "rates": ({}, {}),
    "amplification": ({}, {}),
    "errors": ({}, {}),
}
OF_ARRAYS_ALONE = {"own_metrics"}


@pytest.mark.parametrize("name", [*sorted(PARTS.keys() - OF_ARRAYS_ALONE), "errors"])
def test_arrays_a_file_and_batches_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, (columns, options) = rows(), ASKED[name]
    table.to_csv("rows.csv", index=False)
    table.assign(answer=table["other"]).to_csv("other.csv", index=False)
    parts = ["errors"] if name == "errors" else []
    given = {
        one: table[column] if one in ("against", "scores", "time") else table[[column]]
        for one, column in columns.items()
    }
    settings: dict[str, Any] = {"replicates": 100, "parts": parts}
    if name == "costs":
        settings, options = settings | options, {}
    arrays = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], **given, **settings)
    found = [arrays.to_dict()]
    for size in (1 << 18, 37):
        monkeypatch.setattr(files, "BATCH_ROWS", size)
        found.append(lh.audit_file("rows.csv", "y", "answer", ["sex"], **options, **settings).to_dict())
    halves = [table[:170], table[170:], table[:0]]
    for at, half in enumerate(halves):
        half.to_parquet(f"half{at}.parquet", index=False)
    if name == "against":
        table.assign(answer=table["other"]).to_parquet("other.parquet")
        options = {"against": "other.parquet"}
    found.append(lh.audit_file("half?.parquet", "y", "answer", ["sex"], **options, **settings).to_dict())
    part = [one["parts"] if parts else one[name] for one in found]
    if name == "against":
        part = [one["by_attribute"] for one in part]
    assert part[0] == part[1] == part[2] == part[3]
    assert json.loads(json.dumps(part[0], allow_nan=False)) == part[0]


OF_SEVERAL: list[dict[str, Any]] = [
    {"control": ["site"], "against": "other.parquet", "continuous": ["age"], "parts": ["errors"]},
    {"weight": "weight"},
    {"cluster": "person", "score": "score"},
]


@pytest.mark.parametrize("options", OF_SEVERAL, ids=["rows", "weights", "clusters"])
def test_several_files_give_the_figures_of_one(options: dict[str, Any]) -> None:
    table = rows(1200).assign(weight=np.random.default_rng(1).random(1200), person=np.arange(1200) // 3 % 200)
    table.to_parquet("whole.parquet", row_group_size=100)
    table.assign(answer=table["other"]).to_parquet("other.parquet")
    table.to_parquet("parts", partition_cols=["site"])
    for at in range(3):
        table[at * 400 : (at + 1) * 400].to_parquet(f"part{at}.parquet")
    found = []
    for path in ("whole.parquet", ["part0.parquet", "part[12].parquet"]):
        found.append(lh.audit_file(path, "y", "answer", ["sex"], replicates=100, **options).to_frame())
    exact = "weight" not in options
    pd.testing.assert_frame_equal(*found, check_exact=exact, **({} if exact else {"rtol": 1e-13}))
    if "cluster" not in options and "control" not in options:
        columns = lh.audit_file("parts", "y", "answer", ["sex", "site"], replicates=100, **options)
        assert columns.to_frame().dropna(subset="value").value.gt(-1).all()
        assert {group: one.n for group, one in columns.by_attribute["site"].groups.items()} == (
            table.site.value_counts().to_dict()
        )


def test_files_that_cannot_be_read_together_are_refused() -> None:
    two = ["part0.parquet", "part2.parquet"]
    for path in two:
        rows(20).to_parquet(path)
    (Path.cwd() / "part1.parquet").write_bytes(b"PAR1 no")
    for missing, wrong in (
        ("none*.csv", r"No file matches none\*\.csv"),
        (".", r"part1\.parquet cannot be read as parquet"),
        (["part0.parquet", "gone.parquet"], r"There is no file gone\.parquet"),
    ):
        with pytest.raises(DataError, match=wrong):
            lh.audit_file(missing, "y", "answer", ["sex"])
    rows(20).to_csv("part.csv")
    with pytest.raises(ConfigError, match="parquet and some are text"):
        lh.audit_file(["part0.parquet", "part.csv"], "y", "answer", ["sex"])
    (Path.cwd() / "empty").mkdir()
    with pytest.raises(DataError, match=r"The folder empty has no \.parquet file"):
        lh.audit_file("empty", "y", "answer", ["sex"])


def test_the_command_takes_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    table = rows()
    for at in range(2):
        table[at * 200 : (at + 1) * 200].to_csv(f"part{at}.csv", index=False)
    said, options = {}, ["--label", "y", "--prediction", "answer", "--group", "sex"]
    for given in (["part*.csv"], ["part0.csv", "part1.csv", "--json", "found.json"]):
        with pytest.raises(SystemExit) as ended:
            main(["audit", *given, *options])
        assert ended.value.code == 0
        said[given[0]] = capsys.readouterr().out
    assert said["part*.csv"].partition("Next:")[0].strip() in said["part0.csv"]
    assert [one["file"] for one in json.loads(Path("found.json").read_text())["made"]["inputs"]] == [
        "part0.csv",
        "part1.csv",
    ]
    for wrong, error in ((["part*.csv", "--json", "part1.csv"], "part1.csv"),):
        with pytest.raises(SystemExit) as ended:
            main(["audit", *wrong, *options])
        assert ended.value.code == 2
        assert error in capsys.readouterr().err


def test_a_part_counts_what_it_is_given_and_is_drawn_everywhere() -> None:
    table = rows()
    result = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], replicates=100, parts=["errors"])
    wrong = table[table["y"] != table["answer"]].groupby("sex").size()
    assert result.parts["errors"].wrong == {"f": wrong["f"], "m": wrong["m"]}
    said = f"f has {wrong['f']} errors."
    assert said in result.text(all=True)
    assert said in result._repr_html_()
    assert said in result.to_html()
    assert said in render(audit_page(json.loads(json.dumps(result.to_dict()))))


def test_hostile_names_command_no_terminal_and_no_page() -> None:
    table = rows().replace({"sex": {"f": HOSTILE}})
    result = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], replicates=100, parts=["errors"])
    text, page = plain_text(result.table(), 80), result.to_html()
    assert "\x1b" not in text + page
    assert "\u202e" not in text + page
    assert "<b>&" not in page
    assert max(map(cell_len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("parts", "more", "said"),
    [
        (["none"], {}, "There is no part 'none'. Known: errors."),
        (["scores"], {}, "The part 'scores' comes with its columns."),
        (["of_scores"], {}, "The part 'of_scores' needs what this audit lacks: score."),
        (["errors"], {"sample_weight": np.ones(400)}, "The part 'errors' cannot be used with weights."),
        (["errors"], {"cluster": np.arange(400)}, "The part 'errors' cannot be used with a cluster column."),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_read(
    parts: list[str], more: dict[str, Any], said: str
) -> None:
    class OfScores(Counting):
        name = "of_scores"
        needs = ("score",)

    if parts == ["of_scores"]:
        PARTS.register(OfScores)
    table = rows()
    with pytest.raises(ConfigError, match="^" + said.replace(".", r"\.")):
        lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], parts=parts, **more)


def test_a_class_that_is_no_part_or_has_the_name_of_ours_is_refused() -> None:
    class Scores(Counting):
        name = "scores"

    class Without(Part):
        name = "without"

    with pytest.raises(ConfigError, match="levelhead has a part 'scores'"):
        PARTS.register(Scores)
    with pytest.raises(ConfigError, match="lacks what every part has: find"):
        PARTS.register(Without)
    with pytest.raises(ConfigError, match="is not a part"):
        PARTS.register(dict)  # type: ignore[type-var]
    assert list(PARTS)[-1] == "errors"
    assert (PARTS.source("errors"), PARTS.source("scores")) == (__name__, "levelhead")
    assert PARTS.offers("errors")
    assert not PARTS.is_own("errors")


def test_help_shows_the_usual_options_and_help_all_every_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            main(["audit", option])
        assert ended.value.code == 0
        shown[option] = capsys.readouterr().out
    assert len(shown["--help"].splitlines()) <= 60
    assert "--label-map" not in shown["--help"]
    for option in ("--label-map", "--weight", "--cluster", "--control", "--lowest-first"):
        assert option in shown["--help-all"]


def cells(table: pd.DataFrame) -> pd.DataFrame:
    """A frequency table of the same rows, and one row that nobody has."""
    found = table.value_counts(sort=False).rename("n").reset_index()
    return pd.concat([found, found[:1].assign(n=0)])


@pytest.mark.parametrize("name", [*sorted(PARTS.keys() - OF_ARRAYS_ALONE - {"against"}), "errors"])
def test_a_frequency_table_says_what_its_rows_say(name: str) -> None:
    columns, options = ASKED[name]
    table = rows()[list(dict.fromkeys(["y", "answer", "sex", *columns.values()]))].sort_values(["y", "sex"])
    table = table.sort_values(list(table.columns), kind="stable")
    few = cells(table)
    few.to_csv("cells.csv", index=False)
    table.to_csv("rows.csv", index=False)
    settings: dict[str, Any] = {"replicates": 100, "parts": ["errors"] if name == "errors" else [], **options}
    of_rows = lh.audit_file("rows.csv", "y", "answer", ["sex"], **settings)
    of_cells = lh.audit_file("cells.csv", "y", "answer", ["sex"], count="n", **settings)
    pd.testing.assert_frame_equal(of_rows.to_frame(), of_cells.to_frame(), check_exact=True)
    found, said = of_rows.to_dict(), of_cells.to_dict()
    assert said.pop("reading") == ["Frequency table: n counts 400 people in all."]
    assert found == said
    arrays = lh.audit(few.y, few.answer, sensitive_features=few[["sex"]], counts=few.n, replicates=100).to_frame()
    pd.testing.assert_frame_equal(arrays, lh.audit_file("rows.csv", "y", "answer", ["sex"], replicates=100).to_frame())


def test_a_frequency_table_of_two_files_and_of_decisions_says_what_its_rows_say() -> None:
    table = rows().sort_values(["y", "answer", "other", "sex"])[["y", "answer", "other", "sex"]]
    few = cells(table[["y", "answer", "other", "sex"]]).assign(key=lambda one: range(len(one)))
    few.to_csv("new.csv", index=False)
    few.assign(answer=few.other)[::-1].to_csv("old.csv", index=False)
    table.to_csv("rows.csv", index=False)
    one = lh.audit_file("new.csv", "y", "answer", ["sex"], against="old.csv", on="key", count="n", replicates=100)
    other = lh.audit(table.y, table.answer, against=table.other, sensitive_features=table[["sex"]], replicates=100)
    assert one.against is not None
    assert other.against is not None
    assert one.against.by_attribute == other.against.by_attribute
    decided = lh.audit_decisions(table.answer, sensitive_features=table[["sex"]], favourable=1)
    for again in (
        lh.audit_decisions(few.answer, sensitive_features=few[["sex"]], counts=few.n, favourable=1),
        lh.audit_decisions_file("new.csv", "answer", ["sex"], count="n", favourable=1),
    ):
        pd.testing.assert_frame_equal(decided.to_frame(), again.to_frame(), check_exact=True)
        assert again.reading == ("Frequency table: n counts 400 people in all.",)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1, 2.5, 1], r"the count in row 2 is not a whole number: 2\.5\. A count is"),
        ([1, -2, -3], r"the count in row 2 \(and 1 more\) is negative: -2"),
        ([1, 1e300, 1], "too large"),
        ([1, float("nan"), 1], "missing"),
        ([1, "many", 1], "many"),
        ([0, 0, 0], "All counts in 'n' are 0"),
        ([10**9, 1, 1], "counts add up to 1,000,000,002 rows or more"),
    ],
)
def test_counts_that_are_none_are_refused(counts: list[Any], said: str) -> None:
    table = pd.DataFrame({"y": [0, 1, 1], "answer": [0, 1, 0], "other": [0, 0, 1], "sex": ["f", "m", "m"], "n": counts})
    table.to_csv("cells.csv", index=False)
    more: dict[str, Any] = {"against": "cells.csv"} if counts[0] == 10**9 else {}
    with pytest.raises(DataError, match=said if said != "many" else "'aaaa'"):
        lh.audit_file("cells.csv", "y", "answer", ["sex"], count="n", **more)
    if not more and counts[0]:
        with pytest.raises(DataError):
            lh.audit_decisions(table.answer, sensitive_features=table[["sex"]], counts=table.n, favourable=1)
    with pytest.raises(ConfigError, match=r"sample_weight= cannot be used with a column of counts"):
        lh.audit([1], [1], sensitive_features=["f"], counts=[1], sample_weight=[1])


def test_the_order_of_the_rows_changes_no_figure_that_is_drawn_by_chance() -> None:
    """Permutations along a number, resamples of a metric."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"y": rng.integers(0, 2, 600), "sex": rng.choice(["f", "m"], 600), "age": rng.random(600)})
    table["score"] = (0.6 * table["age"] + 0.4 * rng.random(600)).round(2)

    def found(rows: pd.DataFrame) -> dict[str, Any]:
        more = {"metrics": {"mean": lambda _, predicted: predicted.mean()}, "replicates": 100}
        groups = rows[["sex"]]
        return lh.audit(
            rows["y"], scores=rows["score"], sensitive_features=groups, continuous=rows[["age"]], **more
        ).to_dict()

    first, shuffled = (found(rows) for rows in (table, table.sample(frac=1, random_state=1).reset_index(drop=True)))
    for name in ("continuous", "metrics"):
        assert first[name] == shuffled[name], name
