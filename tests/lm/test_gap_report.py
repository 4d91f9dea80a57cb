"""The verb lm-gap: figures by hand, which terms are used, and what is written."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from klaad_examples import TRIPLETS, language_model, tokenizer
from transformers import BatchEncoding

from command_line import run, said
from levelhead.cli.report import page_of
from levelhead.lm import gap_report as module
from levelhead.lm.gap_analysis import PairGaps
from levelhead.lm.gap_report import gap_report, held_out_triplets
from levelhead.lm.triplets import Triplet, terms_held_out
from levelhead.storage import read_json
from levelhead.types import DataError

ROWS = [Triplet(**{**vars(TRIPLETS[row % 4]), "term": term}) for row, term in enumerate("abcdefghijklmnop")]


def pair(gaps: list[float], bearing: list[bool], entropy: float = 0.5, likelihood: float = 1.0) -> PairGaps:
    return PairGaps(torch.tensor(gaps), torch.tensor(bearing), entropy, likelihood)


PAIRS = {
    "after": [
        pair([0.1, 0.4], [False, True], 0.6, 2.0),  # a hit, chance 1/2
        pair([0.3, 0.1, 0.2, 0.1], [False, True, False, False], 0.8, -1.0),  # none, chance 1/4
        pair([0.2, 0.2], [False, True], 0.7, -1.0),  # a tie
        pair([0.2], [True]),  # nothing else: left out
    ],
    "before": [
        pair([0.1, 0.9], [False, True], 0.4, 3.0),
        pair([0.3, 0.5, 0.2, 0.1], [False, True, False, False], 0.4, 3.0),
        pair([0.2, 0.6], [False, True], 0.4, 3.0),
        pair([0.2, 0.3], [True, False]),
    ],
}


def model(name: str, causal: bool = True) -> Any:
    return SimpleNamespace(
        name=name, network=name, causal=causal, longest=12, tokenizer=Words(), beginning="Texts begin somehow."
    )


class Words:
    """A tokenizer of words, without special tokens."""

    pad_token_id = bos_token_id = eos_token_id = None

    def __call__(self, text: str, **_: Any) -> BatchEncoding:
        return BatchEncoding({"input_ids": list(range(len(text.split())))})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(network: Any, tokenizer: Any, triplets: list[Triplet]) -> list[PairGaps]:
        return [PAIRS[network][ROWS.index(one) if one in ROWS else at] for at, one in enumerate(triplets)]

    monkeypatch.setattr(module, "pair_gaps", found)


@pytest.mark.usefixtures("measured")
@pytest.mark.usefixtures("few_are_enough")
def test_figures_by_hand() -> None:
    found = gap_report(model("after"), ROWS[:4], against=model("before"), selection="some")
    assert [found.about[name] for name in ("pairs", "left_out", "terms")] == [3, 1, 3]
    after = {name: figure.value for name, figure in found.figures["after"].items()}
    assert after == pytest.approx(
        {
            "share": 0.5,
            "chance": 1.25 / 3,
            "share_minus_chance": 0.25 / 3,
            "bearing_gap": 0.7 / 3,
            "other_gap": 0.9 / 5,
            "entropy": 0.7,
            "likelihood_difference": 0.0,
            "likelihood_difference_absolute": 4 / 3,
        },
        abs=1e-7,
    )
    assert found.figures["difference"]["share"].value == pytest.approx(-0.5)
    assert found.figures["difference"]["likelihood_difference_absolute"].value == pytest.approx(4 / 3 - 3)
    assert found.figures["difference"]["entropy"].low < 0.3 < found.figures["difference"]["entropy"].high
    assert found.about["notes"][0] == "Texts begin somehow."


@pytest.mark.usefixtures("measured")
def test_intervals_draw_terms_and_say_when_there_are_few() -> None:
    alone = gap_report(model("after"), ROWS[:3])
    one = gap_report(model("after"), [replace(row, term=" A") for row in ROWS[:3]])
    assert alone.figures["after"]["share"].reason == "no interval: 3 clusters, and 10 are needed"
    assert (one.about["terms"], one.figures["after"]["share"].value) == (1, 0.5)
    assert math.isnan(one.figures["after"]["share"].low)
    assert list(alone.figures) == ["after"]
    nameless = gap_report(model("after"), [replace(row, term="") for row in ROWS[:3]])
    assert "no target terms" in nameless.about["notes"][1]
    with pytest.raises(DataError, match="No pair has both"):
        gap_report(model("after"), ROWS[3:4])


def training(folder: Path, terms: str | None) -> str:
    (folder / "model").mkdir(parents=True)
    (folder / "klaad.json").write_text("{}")
    if terms is not None:
        (folder / "held-out-terms.txt").write_text("\n".join(terms))
    return str(folder / "model")


def test_terms_that_a_training_has_seen_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = training(tmp_path / "first", "AbcX"), training(tmp_path / "second", "bcd")
    found, how = held_out_triplets(ROWS, ["org/name", first])
    assert ("".join(row.term for row in found), how) == ("abc", "the terms that the training held out")
    assert [row.term for row in held_out_triplets(ROWS, [first, second])[0]] == ["b", "c"]
    assert held_out_triplets(ROWS, ["org/name"])[0] == ROWS
    (tmp_path / "terms").write_text("p\nq\nb\n")
    found, how = held_out_triplets(ROWS, [first], tmp_path / "terms")
    assert ("".join(row.term for row in found), how) == (
        "bp",
        "the terms of terms, 2 of which a training may have seen",
    )
    how = held_out_triplets(ROWS, [first, training(tmp_path / "all", None)], tmp_path / "terms")[1]
    assert how == "the terms of terms, 3 of which a training may have seen"
    monkeypatch.chdir(second)
    assert terms_held_out(".") == {"b", "c", "d"}


def table(path: Path) -> Path:
    lines = ["stereo,anti,unrelated,context,term"]
    for row in ROWS:
        context = row.context if row.task == "intersentence" else ""
        lines.append(f"{row.stereotype},{row.anti_stereotype},{row.unrelated},{context},{row.term}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.usefixtures("few_are_enough")
def test_the_verb_writes_aggregates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, family in (("before", "llama"), ("after", "gpt2")):
        folder = tmp_path / name / "model"
        language_model(family).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    (tmp_path / "after" / "held-out-terms.txt").write_text("\n".join("abcdefgh"))
    line = ["lm", "gap", "--triplets", table(tmp_path / "own.csv"), "--out", tmp_path / "out", "--device", "cpu"]
    line += ["--model", tmp_path / "after", "--limit", "6"]
    assert run(*line, "--html", tmp_path / "page.html", "--against", tmp_path / "before") == 0
    printed = said(capsys)
    assert page_of(tmp_path / "out" / "result.json")["finding"] in (tmp_path / "page.html").read_text()
    assert "6 pairs have" in printed
    assert "result.json" in printed
    assert all(text in (tmp_path / "page.html").read_text() for text in ("of 6 terms", "0.484 in the paper"))
    text = (tmp_path / "out" / "result.json").read_text()
    assert not any(word in text for word in ("bird", "owl", "geese"))
    record = json.loads(text)
    assert record["models"] == {"before": "before", "after": "after"}  # not "model", the folder in each
    assert record["published"]["share"] == 0.4845
    figure = record["figures"]["bearing_gap"]
    assert figure["difference"]["value"] == pytest.approx(figure["after"]["value"] - figure["before"]["value"])
    assert figure["difference"]["low"] is not None
    assert run(*line) == 0
    assert "before" not in read_json(tmp_path / "out" / "result.json")["figures"]["share"]
