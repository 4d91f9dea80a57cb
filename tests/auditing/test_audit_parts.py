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
from levelhead.types import ConfigError

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
    "against": ({"without": "other"}, {"without": "other"}),
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
    parts = ["errors"] if name == "errors" else []
    given = {
        one: table[column] if one in ("without", "scores", "time") else table[[column]]
        for one, column in columns.items()
    }
    settings: dict[str, Any] = {"replicates": 100, "parts": parts}
    arrays = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], **given, **settings)
    found = [arrays.to_dict()]
    for size in (1 << 18, 37):
        monkeypatch.setattr(files, "BATCH_ROWS", size)
        found.append(lh.audit_file("rows.csv", "y", "answer", ["sex"], **options, **settings).to_dict())
    part = [one["parts"] if parts else one[name] for one in found]
    if name == "against":
        part = [one["by_attribute"] for one in part]
    assert part[0] == part[1] == part[2]
    assert json.loads(json.dumps(part[0], allow_nan=False)) == part[0]


def test_a_part_counts_what_it_is_given_and_is_drawn_everywhere() -> None:
    table = rows()
    result = lh.audit(table["y"], table["answer"], sensitive_features=table[["sex"]], replicates=100, parts=["errors"])
    wrong = table[table["y"] != table["answer"]].groupby("sex").size()
    assert result.parts["errors"].wrong == {"f": wrong["f"], "m": wrong["m"]}
    said = f"f has {wrong['f']} errors."
    assert said in str(result)
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


@pytest.mark.parametrize("kind", [["--regression"], ["--shares", "f=0.5", "--shares", "m=0.5"]])
def test_other_kinds_of_audit_take_no_part(kind: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows().to_csv("rows.csv", index=False)
    group = ["--group", "sex"] if kind == ["--regression"] else []
    with pytest.raises(SystemExit) as ended:
        main(["audit", "rows.csv", "--label", "y", "--prediction", "answer", *group, *kind, "--part", "errors"])
    assert ended.value.code == 2
    assert "--part" in capsys.readouterr().err


def test_help_shows_the_usual_options_and_help_all_every_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            main(["audit", option])
        assert ended.value.code == 0
        shown[option] = capsys.readouterr().out
    assert len(shown["--help"].splitlines()) <= 75
    assert "--label-map" not in shown["--help"]
    for option in ("--label-map", "--weight", "--cluster", "--control", "--part", "--strata", "--comparisons"):
        assert option in shown["--help-all"]
