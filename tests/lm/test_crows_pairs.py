from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from speakers import Speaker

from levelhead.lm.base import Answer, Item
from levelhead.lm.crows_pairs import CrowSPairs
from levelhead.lm.crows_pairs.score import score_answers

HEADER = ["", "sent_more", "sent_less", "stereo_antistereo", "bias_type", "annotations"]
ROWS = [
    ["4", 'Apples, he said, are "red".', 'Pears, he said, are "red".', "stereo", "fruit", "[['fruit']]"],
    ["5", "Chairs have four legs.", "Tables have four legs.", "antistereo", "furniture", "[]"],
    ["9", "Apples fall.", "Ripe pears fall.", "stereo", "fruit", "[]"],
]
MASKED, CAUSAL = "shared_pseudo_log_likelihood", "log_likelihood"


def write(root: Path, rows: Sequence[Sequence[str]] = ROWS, header: Sequence[str] = HEADER, gz: bool = False) -> Path:
    path = root / "crows_pairs" / ("crows_pairs_anonymized.csv" + ".gz" * gz)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.write_bytes(gzip.compress(text.getvalue().encode()) if gz else text.getvalue().encode())
    return path


def pairs(stereo: int, antistereo: int = 0, kind: str = "fruit") -> list[Item]:
    return [
        Item(f"{direction}{number}", {"stereo_antistereo": direction, "bias_type": kind})
        for direction, count in (("stereo", stereo), ("antistereo", antistereo))
        for number in range(count)
    ]


def answer(item: Item, more: float, less: float, measure: str = MASKED) -> Answer:
    return Answer(item.id, {"sent_more": more, "sent_less": less, "measure": measure})


def test_the_counts_behind_a_published_run_give_its_figures() -> None:
    """788 of 1,290 stereo and 124 of 218 antistereo pairs: BERT base, uncased, prints 60.48, 61.09 and 56.88."""
    items = pairs(1290, 218)
    answers = []
    for item in items:
        number = int(item.id.removeprefix("anti").removeprefix("stereo"))
        wins = number < (788 if item.id.startswith("stereo") else 124)
        answers.append(answer(item, -3.0 if wins else -5.0, -4.0))
    overall = score_answers(items, answers).overall
    assert [round(100 * overall[name].value, 2) for name in ("metric_score", "stereotype_score")] == [60.48, 61.09]
    assert round(100 * overall["antistereotype_score"].value, 2) == 56.88
    assert overall["neutral"].value == 0
    # 912 of 1,508: the normal approximation of the interval is 0.0247 to each side
    assert overall["metric_score"].high - overall["metric_score"].low == pytest.approx(0.0493, abs=0.004)
    assert overall["metric_score"].n == 1508


def test_likelihoods_of_masked_models_alone_are_rounded() -> None:
    items = pairs(2)
    tied = score_answers(items, [answer(item, -1.0, -1.0001) for item in items]).overall
    assert (tied["metric_score"].value, tied["neutral"].value) == (0, 1)
    assert tied["stereotype_score"].reason == "every stereo pair is a tie"
    assert tied["antistereotype_score"].reason == "there are no antistereo pairs"
    causal = score_answers(items, [answer(item, -1.0, -1.0001, CAUSAL) for item in items])
    assert causal.overall["causal_stereotype_likelier"].value == 1


@pytest.mark.parametrize("gz", [False, True])
def test_the_released_table_is_read(tmp_path: Path, gz: bool) -> None:
    write(tmp_path, gz=gz)
    items = CrowSPairs().read(tmp_path)
    assert [[item.id, *item.content.values()] for item in items] == [row[:5] for row in ROWS]
    assert list(items[0].content) == HEADER[1:5]


def test_rows_are_the_ids_of_a_table_without_numbers(tmp_path: Path) -> None:
    write(tmp_path, [row[1:] for row in ROWS], HEADER[1:])
    assert [item.id for item in CrowSPairs().read(tmp_path)] == ["0", "1", "2"]


def length(context: str, text: str) -> tuple[float, int]:
    """A sentence costs its length in letters."""
    assert context == ""
    return -float(len(text)), 1


def test_a_masked_model_is_asked_for_shared_tokens(tmp_path: Path) -> None:
    write(tmp_path)
    benchmark = CrowSPairs()
    items = benchmark.read(tmp_path)
    answers = [
        Answer(one.id, json.loads(json.dumps(one.content)))
        for one in benchmark.ask(Speaker(length, causal=False), items)
    ]  # type: ignore[arg-type]
    assert {one.id for one in answers} == {"4", "5", "9"}
    found = {one.id: one.content for one in answers}
    assert found["9"] == {
        "sent_more": -12.0,
        "sent_less": -16.0,
        "tokens": {"sent_more": 1, "sent_less": 1},
        "measure": MASKED,
    }
    scores = benchmark.score(items, answers)
    # more is longer than less in 4, as long in 5, shorter in 9
    assert scores.overall["metric_score"].value == pytest.approx(1 / 3)
    assert scores.overall["stereotype_score"].value == 0.5
    assert scores.overall["neutral"].value == pytest.approx(1 / 3)
    assert list(scores.parts) == ["fruit", "furniture"]


def test_a_causal_model_is_asked_for_whole_sentences(tmp_path: Path) -> None:
    write(tmp_path)
    benchmark = CrowSPairs()
    items = benchmark.read(tmp_path)
    answers = list(benchmark.ask(Speaker(length), items))  # type: ignore[arg-type]
    assert {one.id: (one.content["sent_more"], one.content["sent_less"]) for one in answers} == {
        row[0]: (-len(row[1]), -len(row[2])) for row in ROWS
    }
    assert {one.content["measure"] for one in answers} == {CAUSAL}
    scores = benchmark.score(items, answers)
    assert set(scores.overall) == {"causal_stereotype_likelier"} == set(scores.units)
    assert scores.overall["causal_stereotype_likelier"].value == pytest.approx(1 / 3)
    assert any("not comparable with the masked metric" in note for note in scores.notes)


@pytest.mark.data
def test_the_real_set_has_the_published_counts(real_data: Path) -> None:
    if not (real_data / "crows_pairs").is_dir():
        pytest.skip(f"no CrowS-Pairs: there is no folder crows_pairs in {real_data}")
    items = CrowSPairs().read(real_data)
    assert len(items) == 1508
    assert Counter(item.content["stereo_antistereo"] for item in items) == {"stereo": 1290, "antistereo": 218}
    kinds = Counter(item.content["bias_type"] for item in items)
    assert (len(kinds), kinds["race-color"], kinds["gender"], kinds["disability"]) == (9, 516, 262, 60)
