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
from command_line import run
from levelhead.auditing.part import Answer, Asked, Frame, Part
from levelhead.auditing.parts import PARTS
from levelhead.report import render
from levelhead.report.one_page import one_page
from levelhead.storage import read_json
from levelhead.tables import files
from levelhead.terminal import plain_text
from levelhead.types import ConfigError

HOSTILE = "\x1b[31m<b>&[bold] a very long name of a group\u202e"


@dataclass(frozen=True)
class Errors(Answer):
    wrong: dict[str, int]

    def sentences(self) -> list[str]:
        return [f"{group} has {count} errors." for group, count in self.wrong.items()]


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
    table = table.assign(
        y=table["y"].astype(int), age=draw.integers(18, 80, count), site=draw.choice(["n", "s"], count)
    )
    return table.assign(person=[f"p{one // 3}" for one in draw.permutation(count)])


# Columns of arrays by argument, and those of files by option.
ASKED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "control": ({"control_features": "site"}, {"control": ["site"]}),
    "continuous": ({"along": "age"}, {"along": ["age"]}),
    "against": ({"against": "other"}, {"against": "other.csv"}),
    "costs": ({}, {"costs": {"false_positive": 1, "false_negative": 5}}),
    "over_time": ({"time": "age"}, {"time": "age"}),
    "scores": ({"scores": "score"}, {"score": "score"}),
    "rates": ({}, {}),
    "amplification": ({}, {}),
    "errors": ({}, {}),
    "clusters": ({"cluster": "person"}, {"cluster": "person"}),
    "clusters of scores": ({"cluster": "person", "scores": "score"}, {"cluster": "person", "score": "score"}),
    "clusters of two models": (
        {"cluster": "person", "against": "other"},
        {"cluster": "person", "against": "other.csv"},
    ),
}
CLUSTERS = [name for name in ASKED if name.startswith("clusters")]
OF_ARRAYS_ALONE = {"own_metrics"}


def figures_of(name: str, record: dict[str, Any]) -> Any:
    """Return what a part, or every part, says of groups and gaps."""
    if name in CLUSTERS:
        kept = [record, *(record[one] for one in ("scores", "against") if one in record)]
        return [one["by_attribute"] for one in kept]
    part = record["parts"] if name == "errors" else record[name]
    return part["by_attribute"] if name == "against" else part


@pytest.mark.parametrize("name", [*sorted(PARTS.keys() - OF_ARRAYS_ALONE), "errors", *CLUSTERS])
def test_arrays_a_file_and_batches_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, (columns, options) = rows(), ASKED[name]
    table.to_csv("rows.csv", index=False)
    table.assign(answer=table["other"]).to_csv("other.csv", index=False)
    parts = ["errors"] if name == "errors" else []
    given = {
        one: table[column] if one in ("against", "cluster", "scores", "time") else table[[column]]
        for one, column in columns.items()
    }
    settings: dict[str, Any] = {"replicates": 100, "parts": parts}
    if name == "costs":
        settings, options = settings | options, {}
    arrays = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], **given, **settings)
    found = [arrays.to_dict()]
    for size in (1 << 18, 37):
        monkeypatch.setattr(files, "BATCH_ROWS", size)
        found.append(
            lh.audit_table("rows.csv", label="y", prediction="answer", groups=["sex"], **options, **settings).to_dict()
        )
    halves = [table[:170], table[170:], table[:0]]
    for at, half in enumerate(halves):
        half.to_parquet(f"half{at}.parquet", index=False)
    if "against" in options:
        table.assign(answer=table["other"]).to_parquet("other.parquet")
        options = {**options, "against": "other.parquet"}
    found.append(
        lh.audit_table("half?.parquet", label="y", prediction="answer", groups=["sex"], **options, **settings).to_dict()
    )
    part = [figures_of(name, one) for one in found]
    assert part[0] == part[1] == part[2] == part[3]
    assert json.loads(json.dumps(part[0], allow_nan=False)) == part[0]


OF_SEVERAL: list[dict[str, Any]] = [
    {"control": ["site"], "against": "other.parquet", "along": ["age"], "parts": ["errors"]},
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
        found.append(
            lh.audit_table(path, label="y", prediction="answer", groups=["sex"], replicates=100, **options).to_frame()
        )
    exact = "weight" not in options
    pd.testing.assert_frame_equal(*found, check_exact=exact, **({} if exact else {"rtol": 1e-13}))
    if "cluster" not in options and "control" not in options:
        columns = lh.audit_table(
            "parts", label="y", prediction="answer", groups=["sex", "site"], replicates=100, **options
        )
        assert columns.to_frame().dropna(subset="value").value.gt(-1).all()
        assert {group: one.n for group, one in columns.by_attribute["site"].groups.items()} == (
            table.site.value_counts().to_dict()
        )


def test_the_command_takes_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    table, columns = rows(), ("--label", "y", "--prediction", "answer", "--group", "sex")
    for at in range(2):
        table[at * 200 : (at + 1) * 200].to_csv(f"part{at}.csv", index=False)
    assert run("audit", "part*.csv", *columns) == 0
    first = capsys.readouterr().out
    assert run("audit", "part0.csv", "part1.csv", "--json", "found.json", *columns) == 0
    assert first.partition("Next:")[0].strip() in capsys.readouterr().out
    names = [one["file"] for one in read_json(Path("found.json"))["made"]["inputs"]]
    assert names == ["part0.csv", "part1.csv"]
    assert run("audit", "part*.csv", "--json", "part1.csv", *columns) == 2
    assert "part1.csv" in capsys.readouterr().err


def test_a_part_counts_what_it_is_given_and_is_drawn_everywhere_harmlessly() -> None:
    table = rows().replace({"sex": {"f": HOSTILE}})
    result = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], replicates=100, parts=["errors"])
    wrong = table[table["y"] != table["answer"]].groupby("sex").size()
    assert result.parts["errors"].wrong == {HOSTILE: wrong[HOSTILE], "m": wrong["m"]}
    brief, text, page = plain_text(result.table(), 80), result.text(all=True), result.to_html()
    pages = (page, result._repr_html_(), render(one_page(json.loads(json.dumps(result.to_dict())))))
    assert all(f"m has {wrong['m']} errors." in " ".join(shown.split()) for shown in (text, *pages))
    assert not any(sign in shown for sign in ("\x1b", "\u202e") for shown in (brief, text, *pages))
    assert not any("<b>&" in shown for shown in pages)
    assert all("[bold]" in shown for shown in (brief, text, *pages))
    assert max(map(cell_len, brief.splitlines())) <= 80


class OfScores(Counting):
    name = "of_scores"
    needs = ("score",)


class Scores(Counting):
    name = "scores"


class Without(Part):
    name = "without"


@pytest.mark.parametrize(
    ("part", "more", "said"),
    [
        ("of_scores", {}, "The part 'of_scores' needs what this audit lacks: score."),
        ("errors", {"sample_weight": np.ones(400)}, "parts= cannot be used with sample_weight=:"),
        ("errors", {"cluster": np.arange(400)}, "parts= cannot be used with cluster=:"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_read(part: str, more: dict[str, Any], said: str) -> None:
    PARTS.register(OfScores)
    table = rows()
    with pytest.raises(ConfigError, match="^" + said.replace(".", r"\.")):
        lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], parts=[part], **more)


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
    of_rows = lh.audit_table("rows.csv", label="y", prediction="answer", groups=["sex"], **settings)
    of_cells = lh.audit_table("cells.csv", label="y", prediction="answer", groups=["sex"], count="n", **settings)
    pd.testing.assert_frame_equal(of_rows.to_frame(), of_cells.to_frame(), check_exact=True)
    found, said = of_rows.to_dict(), of_cells.to_dict()
    assert said.pop("reading") == ["Frequency table: n counts 400 people in all."]
    assert found == said
    arrays = lh.audit(few.y, few.answer, sensitive_features=few[["sex"]], counts=few.n, replicates=100).to_frame()
    pd.testing.assert_frame_equal(
        arrays, lh.audit_table("rows.csv", label="y", prediction="answer", groups=["sex"], replicates=100).to_frame()
    )


def test_a_frequency_table_of_two_files_and_of_decisions_says_what_its_rows_say() -> None:
    table = rows().sort_values(["y", "answer", "other", "sex"])[["y", "answer", "other", "sex"]]
    few = cells(table[["y", "answer", "other", "sex"]]).assign(key=lambda one: range(len(one)))
    few.to_csv("new.csv", index=False)
    few.assign(answer=few.other)[::-1].to_csv("old.csv", index=False)
    table.to_csv("rows.csv", index=False)
    one = lh.audit_table(
        "new.csv",
        label="y",
        prediction="answer",
        groups=["sex"],
        against="old.csv",
        on="key",
        count="n",
        replicates=100,
    )
    other = lh.audit(table.y, table.answer, against=table.other, sensitive_features=table[["sex"]], replicates=100)
    assert one.against is not None
    assert other.against is not None
    assert one.against.by_attribute == other.against.by_attribute
    decided = lh.audit(None, table.answer, sensitive_features=table[["sex"]], favourable=1)
    for again in (
        lh.audit(None, few.answer, sensitive_features=few[["sex"]], counts=few.n, favourable=1),
        lh.audit_table("new.csv", prediction="answer", groups=["sex"], count="n", favourable=1),
    ):
        pd.testing.assert_frame_equal(decided.to_frame(), again.to_frame(), check_exact=True)
        assert again.reading == ("Frequency table: n counts 400 people in all.",)


def test_the_order_of_the_rows_changes_no_figure_that_is_drawn_by_chance() -> None:
    """Permutations along a number, resamples of a metric."""

    def found(table: pd.DataFrame) -> dict[str, Any]:
        options: dict[str, Any] = {"metrics": {"mean": lambda _, predicted: predicted.mean()}, "replicates": 100}
        options |= {"sensitive_features": table[["sex"]], "along": table[["age"]]}
        return lh.audit(table["y"], scores=table["score"], **options).to_dict()

    first, mixed = (found(table) for table in (rows(), rows().sample(frac=1, random_state=1).reset_index(drop=True)))
    for name in ("continuous", "metrics"):
        assert first[name] == mixed[name], name
