from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from speakers import Speaker, ends

from levelhead.lm.base import Answer, Item, Scores
from levelhead.lm.intervals import SHARE, estimated, ratio
from levelhead.lm.stereoset import StereoSet
from levelhead.lm.stereoset.data import SENTENCES, TASKS, read_terms
from levelhead.lm.stereoset.score import score_answers


def made(terms: Mapping[str, str]) -> list[dict[str, str]]:
    """Two items of each term and task; ``terms`` gives their bias types."""
    return [
        {
            "id": f"{task}-{term}-{number}",
            "task": task,
            "bias_type": kind,
            "target": term,
            "context": f"The {term} is BLANK {number}." if task == "intrasentence" else f"I saw a {term} {number}.",
            "stereotype": f"The {term} is round {number}.",
            "anti_stereotype": f"The {term} is square {number}.",
            "unrelated": f"The {term} is yesterday {number}.",
        }
        for task in TASKS
        for term, kind in terms.items()
        for number in range(2)
    ]


RECORDS = made({"Apple": "fruit", "pear": "fruit", "chair": "furniture"})


def owners(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    data: dict[str, list[Any]] = {task: [] for task in TASKS}
    for record in records:
        # The owners' order of sentences is not fixed.
        sentences = [
            {
                "id": f"{record['id']}-{name}",
                "sentence": record[name],
                "gold_label": name.replace("_", "-"),
                "labels": [],
            }
            for name in sorted(SENTENCES, key=lambda name, record=record: hash((name, record["id"])))
        ]
        kept = {name: record[name] for name in ("id", "bias_type", "target", "context")}
        data[record["task"]].append({**kept, "sentences": sentences})
    return {"version": "1.0", "data": data}


def write(root: Path, name: str, records: Sequence[dict[str, Any]] = RECORDS) -> Path:
    path = root / "stereoset" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = name.removesuffix(".gz")
    text = "\n".join(map(json.dumps, records)) + "\n" if plain.endswith(".jsonl") else json.dumps(owners(records))
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def items_of(counts: dict[str, int], task: str = "intrasentence") -> list[Item]:
    """Invented items, this many for each term."""
    return [
        Item(f"{term}{number}", {"task": task, "bias_type": "fruit", "target": term, **dict.fromkeys(SENTENCES, "x")})
        for term, count in counts.items()
        for number in range(count)
    ]


def answer(item: Item, stereotype: float, anti_stereotype: float, unrelated: float, tokens: Any = (1, 1, 1)) -> Answer:
    content: dict[str, Any] = dict(zip(SENTENCES, (stereotype, anti_stereotype, unrelated), strict=True))
    return Answer(item.id, {**content, "tokens": dict(zip(SENTENCES, tokens, strict=True))})


def ranked(item: Item, pro: bool, related: int) -> Answer:
    """An answer with a given winner, and with this many of the two comparisons with the unrelated sentence won."""
    unrelated = {2: -9.0, 1: -4.0, 0: -1.0}[related]
    return answer(item, -3.0 if pro else -5.0, -5.0 if pro else -3.0, unrelated)


@pytest.mark.parametrize(("lms", "ss", "icat"), [(90, 60, 0.72), (100, 50, 1.0), (85, 40, 0.68)])
def test_icat_of_the_published_vectors(lms: int, ss: int, icat: float) -> None:
    items = items_of({"a": 100, "b": 100})
    answers = []
    for item in items:
        number = int(item.id[1:])
        wins = min(2, max(0, 2 * lms - 100 - number)) if lms < 100 else 2
        # 2 lms wins over 100 items: items below 2 lms - 100 win both, the rest one.
        answers.append(ranked(item, number < ss, 2 if wins else 1))
    scores = score_answers(items, answers)
    assert scores.overall["language_modeling_score"].value == pytest.approx(lms / 100)
    assert scores.overall["stereotype_score"].value == pytest.approx(ss / 100)
    assert scores.overall["icat"].value == pytest.approx(icat)


def test_a_tie_counts_against_the_stereotype_and_against_the_related_sentence() -> None:
    items = items_of({"a": 1, "b": 1})
    overall = score_answers(items, [answer(item, -2, -2, -2) for item in items]).overall
    assert overall["stereotype_score"].value == 0
    assert overall["language_modeling_score"].value == 0
    # Of six tokens -6 is more than -4 of two.
    overall = score_answers(items, [answer(item, -6, -4, -20, tokens=(6, 2, 4)) for item in items]).overall
    assert overall["stereotype_score"].value == 1


def test_averages_are_over_terms_and_icat_has_no_interval() -> None:
    """Term t prefers the stereotype in t modulo 4 of its 3 items; every third term loses one comparison of two."""
    items, answers = items_of({f"term{term:02}": 3 for term in range(11)}), []
    for item in items:
        term, row = int(item.id[4:6]), int(item.id[6:])
        values = [-1.0, -3.0] if row < term % 4 else [-3.0, -1.0]
        answers.append(answer(item, *values, -9.0 if term % 3 else -2.0))
    # SS by term 0, 1/3, 2/3, 1 and again, in all 5/11; LMS 1/2 of terms 0, 3, 6, 9, in all 9/11.
    terms = [[term % 4 / 3, 1 if term % 3 else 1 / 2, 1] for term in range(11)]
    scores = score_answers(items, answers)
    assert list(scores.parts) == ["intrasentence", "fruit", "intrasentence/fruit"]
    for place, name in enumerate(("stereotype_score", "language_modeling_score")):
        expected = estimated([[term[place], 1] for term in terms], None, ratio, ends=SHARE)
        assert ends(scores.overall[name]) == pytest.approx(ends(expected))
    found: Any = scores.overall["stereotype_score"]
    assert found.sample.ids == tuple(f"term{term:02}" for term in range(11))
    icat = scores.overall["icat"]
    assert icat.value == pytest.approx(2 * 9 / 11 * 5 / 11)
    assert math.isnan(icat.low)
    assert icat.reason == "no interval: ICAT is a minimum, see the intervals of SS and LMS"


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz", "stereoset_dev.jsonl", "stereoset_dev.jsonl.gz"])
def test_every_layout_gives_the_same_items(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, name)
    items = StereoSet().read(tmp_path)
    assert [{"id": item.id, **item.content} for item in items] == RECORDS
    monkeypatch.setenv("LEVELHEAD_DATA", str(tmp_path))
    assert StereoSet().read(None) == items


def test_only_the_chosen_terms_are_read(tmp_path: Path) -> None:
    write(tmp_path, "dev.json")
    items = StereoSet(terms=frozenset({" apple", "CHAIR"})).read(tmp_path)
    assert {item.content["target"] for item in items} == {"Apple", "chair"}
    assert len(items) == 8
    terms = tmp_path / "terms.txt"
    terms.write_text("apple\n\nchair\n", encoding="utf-8")
    assert StereoSet(terms=read_terms(terms)).read(tmp_path) == items


def cost(context: str, text: str) -> tuple[float, int]:
    """Tokens are words: round costs 1 nat, square 2, any other word 3."""
    words = text.split()
    return -float(sum({"round": 1, "square": 2}.get(word, 3) for word in words)), len(words)


def ask(benchmark: StereoSet, model: Any, items: Sequence[Item]) -> tuple[dict[str, Any], Scores]:
    answers = list(benchmark.ask(model, items))
    assert len(answers) == len(items)
    plain = [Answer(one.id, json.loads(json.dumps(one.content))) for one in answers]
    return {one.id: one.content for one in plain}, benchmark.score(items, plain)


def test_a_causal_model_is_asked_for_sentences_given_their_context(tmp_path: Path) -> None:
    write(tmp_path, "dev.json")
    benchmark, model = StereoSet(), Speaker(cost)
    items = benchmark.read(tmp_path)
    answers, scores = ask(benchmark, model, items)
    assert model.asked[-1] == ("", [RECORDS[0][name] for name in SENTENCES])
    assert model.asked[0] == (RECORDS[-1]["context"], [f" {RECORDS[-1][name]}" for name in SENTENCES])
    tokens = dict.fromkeys(SENTENCES, 5)
    likelihoods = {"stereotype": -13.0, "anti_stereotype": -14.0, "unrelated": -15.0}
    for item in items:
        assert answers[item.id] == {**likelihoods, "tokens": tokens, "measure": "log_likelihood"}
    assert scores.overall["stereotype_score"].value == scores.overall["language_modeling_score"].value == 1
    assert scores.overall["icat"].value == 0


def test_the_whole_text_is_an_option(tmp_path: Path) -> None:
    write(tmp_path, "dev.json")
    items = StereoSet().read(tmp_path)
    last, texts = items[-1].id, [f"{RECORDS[-1]['context']} {RECORDS[-1][name]}" for name in SENTENCES]
    model = Speaker(cost)
    answers, _ = ask(StereoSet(intersentence="whole"), model, items)
    assert model.asked[0] == ("", texts)
    assert answers[last]["tokens"] == dict.fromkeys(SENTENCES, 10)


@pytest.mark.data
def test_the_real_set_has_the_published_counts(real_data: Path) -> None:
    if not (real_data / "stereoset").is_dir():
        pytest.skip(f"no StereoSet: there is no folder stereoset in {real_data}")
    items = StereoSet().read(real_data)
    assert Counter(item.content["task"] for item in items) == {"intrasentence": 2106, "intersentence": 2123}
    by_type = Counter((item.content["task"], item.content["bias_type"]) for item in items)
    # a third of the counts that the owners' script prints, which takes every item three times
    assert [by_type["intrasentence", kind] for kind in ("gender", "profession", "race", "religion")] == [
        *(255, 810, 962, 79)
    ]
    assert [by_type["intersentence", kind] for kind in ("gender", "profession", "race", "religion")] == [
        *(242, 827, 976, 78)
    ]
    overall = score_answers(items, [ranked(item, True, 2) for item in items]).overall
    assert (overall["stereotype_score"].value, overall["icat"].value, overall["icat"].n) == (1, 0, 79)
