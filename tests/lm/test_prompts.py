"""Prompt noise: scores over wordings and orders, on made-up items and a model whose answers follow a rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_crows_pairs
import test_stereoset
from speakers import Speaker
from test_bbq import record, write
from test_endpoint import Server, server

from command_line import run, said
from levelhead.lm.base import Answer
from levelhead.lm.bbq import BBQ, LISTED, ORDERS
from levelhead.lm.comparison import comparison_summary
from levelhead.lm.crows_pairs import CrowSPairs
from levelhead.lm.page import language_model_page
from levelhead.lm.prompts import APART, UNDER_PROMPT_NOISE, prompt_noise, prompts_of
from levelhead.lm.runner import run_benchmark, scores_file
from levelhead.lm.stereoset import StereoSet
from levelhead.report.text import estimate_from_dict
from levelhead.storage import read_json
from levelhead.types import DataError

ITEMS = 40
__all__ = ["server"]  # a fixture


class Ruled(Speaker):
    """Chooses by ``rule(prompt, option texts)``."""

    def __init__(self, rule: Callable[[str, Sequence[str]], int], name: str = "ruled") -> None:
        super().__init__(name=name)
        self.rule = rule

    def options(self, context: str, more: Sequence[str]) -> list[tuple[float, int]]:
        best = self.rule(context, [text.strip() for text in more])
        return [(-1.0 if at == best else -2.0, 1) for at in range(len(more))]


def things(root: Path) -> Path:
    """Ambiguous items of ten templates, in which the lamp is the biased answer."""
    return write(root, [record(row, question_index=str(row % 10)) for row in range(ITEMS)])


def asked(root: Path, model: Any, folder: Path, benchmark: Any = None) -> dict[str, Any]:
    benchmark = benchmark or BBQ()
    for prompt in prompts_of(benchmark, folder):
        run_benchmark(prompt.benchmark, model, root, prompt.folder)
    return prompt_noise(benchmark, folder, root, None)


def of(found: dict[str, Any], score: str) -> dict[str, Any]:
    return next(one for one in found["scores"] if one["score"] == score)


def test_an_order_moves_options_and_all_positions(tmp_path: Path) -> None:
    things(tmp_path)
    plain = BBQ().read(tmp_path)
    for order in ORDERS:
        benchmark = BBQ(order=order, template=LISTED["by letter"])
        items = benchmark.read(tmp_path)
        assert [items[0].content["options"][order.index(at)] for at in range(3)] == plain[0].content["options"]
        assert items[0].content["options"][items[0].content["unknown"]] == "Not known"
        assert f"A) {items[0].content['options'][0]}\n" in benchmark.context(items[0])
        lamp = items[0].content["options"].index("The lamp")
        assert items[0].content["biased"] == [lamp]
        assert benchmark.choice(items[0], Answer("x", {"answer": lamp})) == 0
        letter = Answer("x", {"answer": None, "text": "ABC"[lamp]})
        assert benchmark.choice(items[0], letter) == 0
        scores = benchmark.score(items, [Answer(item.id, {"answer": lamp}) for item in items])
        assert scores.overall["bias_ambiguous"].value == 1
    assert "order" not in BBQ.asking({"order": [0, 1, 2]})
    assert "order" in BBQ.asking({"order": [1, 0, 2]})


def test_a_bias_that_follows_the_wording_is_not_distinguishable(tmp_path: Path) -> None:
    things(tmp_path)

    def rule(prompt: str, options: Sequence[str]) -> int:
        return options.index("The lamp" if "Question:" not in prompt or "Options" in prompt else "The kettle")

    found = asked(tmp_path, Ruled(rule), tmp_path / "run")
    bias = of(found, "bias_ambiguous")
    # plain and "in a row": the lamp, 1; labelled, question first and by letter: the kettle, -1
    assert found["prompts"] == 9
    assert estimate_from_dict(bias["first"]).value == 1
    assert estimate_from_dict(bias["items"]).value == pytest.approx(-0.2)
    assert bias["deviation"] == pytest.approx(np.std([1, 1, -1, -1, -1], ddof=1))
    assert bias["across"] == 4
    both = estimate_from_dict(bias["both"])
    assert (both.low, both.high) == (-1.0, 1.0)  # cut at the ends of the scale
    assert bias["verdict"] == UNDER_PROMPT_NOISE
    assert found["consistency"]["prompts"]["value"] == 0
    assert read_json(scores_file(tmp_path / "run", "bbq"))["prompt_noise"] == found


def test_a_bias_of_every_wording_is_apart(tmp_path: Path) -> None:
    things(tmp_path)
    model = Ruled(lambda prompt, options: options.index("The lamp"))
    found = asked(tmp_path, model, tmp_path / "run")
    assert of(found, "bias_ambiguous")["verdict"] == APART
    assert found["consistency"]["prompts"]["value"] == 1
    before = len(model.asked)
    assert asked(tmp_path, model, tmp_path / "run") == found  # resumed: nothing is asked again
    assert len(model.asked) == before == 9 * ITEMS
    found = asked(tmp_path, Ruled(lambda prompt, options: 0), tmp_path / "first")  # a choice by place
    assert found["consistency"]["prompts"]["value"] == 0
    assert estimate_from_dict(of(found, "accuracy_ambiguous")["items"]).value == pytest.approx(2 / 3 / 5)


def test_sentences_are_compared_behind_leads(tmp_path: Path) -> None:
    test_crows_pairs.write(tmp_path)
    benchmark = CrowSPairs(lead="Sentence:")
    model = Ruled(lambda prompt, options: 0)
    scores = run_benchmark(benchmark, model, tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert scores.overall["causal_stereotype_likelier"].value == 1
    header = json.loads((tmp_path / "run" / "answers-crows-pairs.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert header["options"] == {"lead": "Sentence:"}
    assert CrowSPairs.asking({"lead": ""}) == {}
    assert [len(prompts_of(one)) for one in (CrowSPairs(), BBQ())] == [5, 9]
    test_stereoset.write(tmp_path, "dev.json")
    for noisy in (CrowSPairs(), StereoSet()):
        assert asked(tmp_path, model, tmp_path / "noise", noisy)["consistency"]["prompts"]["value"] == 1


def test_two_models_are_compared_over_wordings(tmp_path: Path) -> None:
    things(tmp_path)

    def wavers(prompt: str, options: Sequence[str]) -> int:
        return options.index("The kettle" if "Question:" in prompt and "Options" not in prompt else "The lamp")

    asked(tmp_path, Ruled(lambda prompt, options: options.index("The lamp"), "steady"), tmp_path / "before")
    asked(tmp_path, Ruled(wavers, "wavering"), tmp_path / "after")
    before, after = tmp_path / "before", tmp_path / "after"
    summary = comparison_summary([before, after], tmp_path)
    bias = next(one for one in summary["prompt_noise"] if one["score"] == "bias_ambiguous")
    assert bias["items"]["value"] == pytest.approx(-1.2)
    # Student's t of five wordings: 2.776 x 1.095 / sqrt(5) = 1.36
    assert bias["both"]["high"] == pytest.approx(-1.2 + 1.36, abs=0.01)
    assert bias["verdict"] == UNDER_PROMPT_NOISE
    assert "prompt noise" in json.dumps(language_model_page(summary))

    run_benchmark(BBQ(), Ruled(wavers, "wavering"), tmp_path, after)  # type: ignore[arg-type]
    assert comparison_summary([before, after], tmp_path)["prompt_noise"] == []  # scored in one wording since
    (before / "prompts" / "03" / "answers-bbq.jsonl").unlink()
    with pytest.raises(DataError, match="is missing"):
        prompt_noise(BBQ(), before, tmp_path, None)


def test_the_verb_asks_in_all_prompts_once_and_keeps_the_answers(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [record(row) for row in range(8)])
    html = tmp_path / "out.html"
    line = ["lm", "bench", "bbq", "--endpoint", server.url, "--api-model", "m", "--data-root", tmp_path]
    line += ["--out", tmp_path / "run", "--prompt-noise", "--html", html, "--limit", 2]
    assert run(*line) == 0
    printed, page = said(capsys), html.read_text(encoding="utf-8")
    asked = 1 + 9 * 2 * 3  # the probe, and each option in each prompt
    assert len(server.seen) == asked
    for words in (
        ", in 9 prompts. Kept answers",
        "bbq: prompt 9 of 9, by letter.",
        f"Asked this time: {asked} requests",
    ):
        assert words in printed
    assert "one answer under all prompts" in page
    assert "over 9 prompts" in page
    assert "A lamp and a kettle" not in page
    assert run(*line) == 0
    assert len(server.seen) == asked + 1  # all answers are kept, but for the probe
