"""Counterfactual prompts, on made-up texts and models that follow a rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from speakers import Speaker

from command_line import run as command
from command_line import said
from levelhead.lm.bold.score import TextClassifier
from levelhead.lm.counterfactual import Counterfactual
from levelhead.lm.counterfactual.data import swaps_of
from levelhead.lm.page import scores_page
from levelhead.lm.runner import run_benchmark, scores_file, take
from levelhead.storage import read_json

SWAP = ("who=the lamp|the kettle",)
GOOD, BAD = "wonderful, great and lovely", "horrible, awful and ugly"


class Ruled(Speaker):
    """Leans by the word in a text; a continuation also depends on the seed."""

    def __init__(self, lamp: float, kettle: float) -> None:
        super().__init__(self.leaning, self.said, f"{lamp} {kettle}")
        self.lean = {"lamp": lamp, "kettle": kettle}

    def of(self, text: str) -> float:
        return self.lean["kettle" if "kettle" in text.lower() else "lamp"]

    def leaning(self, context: str, option: str) -> tuple[float, int]:
        return -1.0 + self.of(context or option) * (option not in (" no", " cold")), 1

    def said(self, prompt: str, seed: int) -> str:
        return GOOD if np.random.default_rng([seed, *prompt.encode()]).random() < self.of(prompt) else BAD


def templates(root: Path, count: int = 8, options: bool = False) -> Path:
    texts: list[Any] = [f"In place {at}, {{who}} said" for at in range(count)]
    if options:
        texts = [{"id": f"place {at}", "text": text, "options": [" yes", " no"]} for at, text in enumerate(texts)]
    path = root / "templates.yaml"
    path.write_text(json.dumps({"templates": texts}), encoding="utf-8")
    return path


def run(root: Path, model: Any, folder: str = "run", **options: Any) -> Any:
    return run_benchmark(Counterfactual(**options), model, None, root / folder)


def p_of(scores: Any, score: str) -> dict[str, Any]:
    return dict(next(test for test in scores.tests if test["score"] == score))


def test_log_odds_of_options_differ_by_what_the_model_was_given(tmp_path: Path) -> None:
    path = templates(tmp_path, options=True)
    scores = run(tmp_path, Ruled(0.25, 0.75), file=path, swap=SWAP)
    label = "log odds, the kettle minus the lamp"
    assert scores.overall[label].value == pytest.approx(0.5)
    assert p_of(scores, label) == {"score": label, "templates": 8, "p": None, "p_holm": None}  # ten are needed
    assert list(scores.overall) == [label]  # nothing is drawn, so there is no baseline
    assert Counterfactual.headline("", label) == ("bias", "zero", 0.0)


def test_a_word_that_is_not_read_has_no_effect_beyond_the_same_prompt(tmp_path: Path) -> None:
    pytest.importorskip("vaderSentiment")
    path = templates(tmp_path, 30)
    label = "sentiment, the kettle minus the lamp"
    scores = run(tmp_path, Ruled(0.5, 0.5), file=path, swap=SWAP)
    beyond = f"absolute {label}, beyond same prompt"
    assert scores.overall[f"absolute {label}"].value > 0.2  # the absolute value of noise
    assert scores.overall[beyond].low < 0 < scores.overall[beyond].high
    assert p_of(scores, label)["p_holm"] > 0.05
    assert len(scores.tests) == 8  # four scores of VADER, each plain and beyond the baseline
    scores = run(tmp_path, Ruled(0.95, 0.05), "other", file=path, swap=SWAP)
    assert scores.overall[label].high < -1
    assert p_of(scores, label)["p_holm"] < 0.01
    assert p_of(scores, beyond)["p_holm"] < 0.01
    assert abs(scores.overall["sentiment, same prompt"].value) < 0.3
    more = run(tmp_path, Ruled(0.95, 0.05), "other", file=path, swap=SWAP, draws=2)  # fewer: answers are kept
    assert more.overall[label].value < -1
    page = json.dumps(scores_page([read_json(scores_file(tmp_path / "other", "counterfactual"))], name="x"))
    assert "In place" not in page


def test_a_limit_keeps_whole_templates(tmp_path: Path) -> None:
    limit = 2
    pytest.importorskip("vaderSentiment")
    benchmark = Counterfactual(file=templates(tmp_path, 3), swap=SWAP)
    scores = run_benchmark(benchmark, Ruled(0.7, 0.3), None, tmp_path / f"{limit}", limit=limit)
    assert len(take(benchmark, benchmark.read(None), limit)) == limit * (8 + 4)
    whole = Counterfactual(file=templates(tmp_path, limit), swap=SWAP)
    expected = run_benchmark(whole, Ruled(0.7, 0.3), None, tmp_path / f"{limit} alone")
    assert {name: one.value for name, one in scores.overall.items()} == {
        name: one.value for name, one in expected.overall.items()
    }


def test_swaps_go_side_by_side(tmp_path: Path) -> None:
    items = Counterfactual(file=templates(tmp_path), swap=(*SWAP, "unused=his|her")).read(None)
    assert {item.content["group"] for item in items} == {"the lamp", "the kettle"}
    assert swaps_of(["a=x|y", "b=1|2"])[1] == [{"a": "x", "b": "1"}, {"a": "y", "b": "2"}]


def test_the_command_line_asks_and_names_a_classifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vaderSentiment")
    monkeypatch.setattr("levelhead.lm.model.LanguageModel.load", lambda *_, **__: Ruled(0.9, 0.1))
    seen: list[TextClassifier] = []

    def probabilities(self: TextClassifier, texts: Sequence[str]) -> Any:
        seen.append(self)
        return np.array([[float("awful" in text), 0.0] for text in texts])

    monkeypatch.setattr(TextClassifier, "probabilities", probabilities)
    monkeypatch.setattr(TextClassifier, "load", lambda _: None)
    line = ["lm", "bench", "counterfactual", "--model", "x", "--file", templates(tmp_path), "--swap", SWAP[0]]
    line += ["--out", tmp_path / "run", "--classifier", "toxic=folder/x:bad,worse"]
    assert command(*line) == 0
    assert "No bias score of 0.9 0.1" in said(capsys)
    assert (seen[0].model, seen[0].labels) == ("folder/x", ("bad", "worse"))
