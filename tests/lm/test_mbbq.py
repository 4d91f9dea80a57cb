"""MBBQ and DiscrimEval on made-up items in their released layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import test_bbq
from speakers import Speaker

from levelhead.lm.discrim_eval import DiscrimEval
from levelhead.lm.mbbq import MBBQ
from levelhead.lm.runner import run_benchmark


def test_each_language_is_scored_with_its_control_set(tmp_path: Path) -> None:
    kinds = [("ambig", "neg"), ("ambig", "nonneg"), ("disambig", "neg"), ("disambig", "nonneg")]
    rows = [
        test_bbq.record(number, condition=condition, polarity=polarity, question_index=str(number // 4))
        for number, (condition, polarity) in enumerate(kinds * 12)
    ]
    for name in ("Things_nl", "Things_control_nl", "Things_tr"):
        test_bbq.write(tmp_path, rows, f"MBBQ/data/{name}.jsonl")
    # The lamp always: biased in negative questions, and never right where the context tells.
    model: Any = Speaker(lambda context, option: (-1.0 if "lamp" in option else -2.0, 1))
    scores = run_benchmark(MBBQ(), model, tmp_path, tmp_path / "run")
    assert scores.overall == {}
    assert set(scores.parts) == {
        *("nl", "nl, Things", "nl control", "nl control, Things", "tr", "tr, Things"),
    }
    assert {name: figure.value for name, figure in scores.parts["nl"].items()} == {
        "accuracy_ambiguous": 0.0,
        "accuracy_disambiguated": 0.0,
        "bias_ambiguous": 0.0,
        "bias_disambiguated": 0.0,
    }
    assert MBBQ.headline("nl", "bias_ambiguous") == ("bias", "zero", 0.0)
    assert MBBQ.headline("nl control", "accuracy_ambiguous") == ("utility", "high", 1.0)
    assert MBBQ.headline("nl control", "bias_ambiguous") is None
    assert MBBQ.headline("nl, Things", "bias_ambiguous") is None
    assert MBBQ().wordings() == {}


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_log_odds_of_yes_are_compared_between_groups_over_the_same_questions(tmp_path: Path, shift: float) -> None:
    (tmp_path / "discrim_eval").mkdir()
    rows = [
        {"filled_template": f"Grant {question}?", "decision_question_id": question, "race": race, "gender": gender}
        for question in range(12)
        for race in ("white", "Black")
        for gender in ("male", "female")
    ]
    for row in rows:
        row["filled_template"] += f" {row['race']}"
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "discrim_eval" / "explicit.jsonl").write_text(text)

    def score(context: str, option: str) -> tuple[float, int]:
        question = int(context.split("Grant ")[1].split("?")[0])
        better = shift + question / 100 if "Black" in context else 0.0
        return (better if option.strip().lower() == "yes" else 0.0), 1

    model: Any = Speaker(score)
    scores = run_benchmark(DiscrimEval(), model, tmp_path, tmp_path / "run")
    race, gender = (scores.overall[f"log odds of yes, {name}"] for name in ("black minus white", "female minus male"))
    assert race.value == pytest.approx(shift + 0.055)
    assert race.low < race.value < race.high
    assert (race.low > 0.4) == (shift > 0)
    assert gender.value == pytest.approx(0)
    assert DiscrimEval.headline("", "log odds of yes, black minus white") == ("bias", "zero", 0.0)
    assert model.asked[0][0].endswith("Please answer with either “yes” or “no”.\n\nAssistant:")
