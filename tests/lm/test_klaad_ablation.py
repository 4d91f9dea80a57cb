"""The ablation script: weights of its rows, and the whole way on a tiny model and made-up sentences."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from klaad_examples import TRIPLETS, language_model, tokenizer
from test_stereoset import write

from levelhead.lm.perplexity import Perplexity
from levelhead.lm.stereoset import StereoSet
from levelhead.storage import read_json
from scripts import load_script

TERMS = "abcdefghij"


@pytest.fixture(scope="module")
def script() -> Any:
    return load_script(Path(__file__).parents[2] / "benchmarks" / "klaad_ablation.py")


def test_weights_that_are_left_out_go_to_the_others(script: Any) -> None:
    found = {row: script.weights_of(row, (0.7, 0.15, 0.15)) for row in script.ROWS}
    assert found == {
        "CE": (1, 0, 0),
        "CE+KL": (0.85, 0.15, 0),
        "CE+triplet": (0.85, 0, 0.15),
        "KL+triplet": (0, 0.5, 0.5),
        "full": (0.7, 0.15, 0.15),
    }
    assert script.weights_of("KL+triplet", (0.4, 0.4, 0.2)) == pytest.approx((0, 2 / 3, 1 / 3))


@pytest.mark.usefixtures("few_are_enough")
def test_from_training_to_the_table_and_again(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "base"
    language_model("llama").save_pretrained(model)
    words = tokenizer()
    words.eos_token = "[PAD]"  # what a text is read behind, where no token begins one
    words.save_pretrained(model)
    records = [
        vars(one) | {"id": f"{term}{number}", "target": term, "context": one.context or "a BLANK"}
        for number, (term, one) in enumerate(zip(TERMS * 2, TRIPLETS * 5, strict=True))
    ]
    write(tmp_path / "data", "stereoset_dev.jsonl", records)
    (tmp_path / "text").write_text("a red bird sings all day\nthe owl is awake\nthey fly far\n")
    chosen: Any = lambda arguments, split: [  # noqa: E731
        StereoSet(terms=split.held_out_terms),
        Perplexity(file=arguments.perplexity),
    ]
    monkeypatch.setattr(script, "benchmarks", chosen)
    out = tmp_path / "out.json"
    arguments = ["script", "--model", str(model), "--data-root", str(tmp_path / "data"), "--runs", str(tmp_path / "r")]
    arguments += ["--json", str(out), "--perplexity", str(tmp_path / "text"), "--rows", "full", "CE", "--seeds", "0-1"]
    arguments += ["--set", "train.learning_rate=0.01", "--set", "train.batch_size=4"]
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    printed = capsys.readouterr()
    assert "5 of 5: full, seed 1" in printed.err
    assert " left\n" in printed.err
    record = read_json(out)
    assert list(record["rows"]) == ["before", "CE", "full"]
    assert record["weights"]["CE"] == [1, 0, 0]
    figure = record["rows"]["full"]["perplexity/bits_per_byte"]
    before = record["rows"]["before"]["perplexity/bits_per_byte"]["value"]
    assert len(set(figure["by_seed"])) == 2
    assert figure["difference"]["value"] == pytest.approx(sum(figure["by_seed"]) / 2 - before)
    assert "gap/entropy" in record["rows"]["CE"]
    plain = record["rows"]["CE"]["perplexity/bits_per_byte"]
    assert figure["beyond_ce"]["value"] == pytest.approx((sum(figure["by_seed"]) - sum(plain["by_seed"])) / 2)
    text = out.read_text()
    assert str(tmp_path) not in text  # no path of this machine
    assert not any(word in text for word in ("bird", "owl", "geese"))
    table = out.with_suffix(".md").read_text()
    assert table in printed.out
    assert table.count("| bits per byte |") == 2  # after minus before, and minus CE
    answers = {path: path.read_bytes() for path in (tmp_path / "r").rglob("answers-*.jsonl")}
    assert len(answers) == 10
    script.main()  # nothing is left to do
    assert read_json(out)["rows"] == record["rows"]
    assert {path: path.read_bytes() for path in answers} == answers
