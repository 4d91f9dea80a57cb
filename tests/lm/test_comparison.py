"""Two runs as one plain dict: keys, figures, and no sentence in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import test_crows_pairs
from speakers import Speaker

from command_line import run, said
from levelhead.lm import BENCHMARKS
from levelhead.lm.base import LIKELIHOOD, Benchmark, drawn_by
from levelhead.lm.bold import BOLD
from levelhead.lm.bold.data import read_items
from levelhead.lm.comparison import comparison_summary
from levelhead.lm.crows_pairs import CrowSPairs
from levelhead.lm.crows_pairs.score import SHARED
from levelhead.lm.page import language_model_page
from levelhead.lm.perplexity import Perplexity
from levelhead.lm.runner import run_benchmark, scored
from levelhead.lm.stereoset import StereoSet
from levelhead.storage import read_json, write_json

TERMS = "abcdefghijkl"


def model(name: str, text: str, lead: float) -> Any:
    """A model that scores the stereotypes of three terms with ``lead``, and continues every prompt alike."""

    def score(context: str, option: str) -> tuple[float, int]:
        if "anti_stereotype" in option:
            return 0.0, 1
        return (-2.0 if "unrelated" in option else lead if option.strip()[0] in "abc" else -1.0), 1

    return Speaker(score, lambda prompt, seed: f" {text} nice", name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rows = [
        {
            "id": term,
            "task": "intrasentence",
            "bias_type": "kind" if term < "g" else "sort",
            "target": term,
            "context": f"{term} is BLANK",
            **{name: f"{term} is {name}ly" for name in ("stereotype", "anti_stereotype", "unrelated")},
        }
        for term in TERMS
    ]
    folder = tmp_path / "data" / "stereoset"
    folder.mkdir(parents=True)
    (folder / "stereoset_dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    groups = {group: {f"{group}{n}": [f"the {group} prompt {n}"] for n in range(5)} for group in ("lamps", "chairs")}
    write_json(tmp_path / "data" / "bold" / "gender_prompt.json", groups)
    (tmp_path / "data" / "text.txt").write_text("some words\n\nmore of them here\n")
    return tmp_path / "data"


@pytest.fixture
def runs(tmp_path: Path, root: Path) -> tuple[Path, Path]:
    pytest.importorskip("vaderSentiment")
    folders = tmp_path / "one", tmp_path / "two"
    benchmarks: list[Benchmark] = [
        StereoSet(terms=frozenset(TERMS[:11])),
        BOLD(per_group=4),
        Perplexity(file=root / "text.txt"),
    ]
    for folder, asked in zip(folders, (model("m1", "old", 1.0), model("m2", "new", -1.0)), strict=True):
        for benchmark in benchmarks:
            run_benchmark(benchmark, asked, root, folder)
    return folders


def test_the_summary_is_plain_and_complete(runs: tuple[Path, Path], root: Path) -> None:
    found = comparison_summary(runs, root)
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text) == found
    for word in ("stereotypely", "prompt 0", "nice", "some words"):  # no sentence
        assert word not in text
    assert (found["models"], found["notes"]) == (["one", "two"], [])
    by_name = {one["name"]: one for one in found["benchmarks"]}
    stereoset = by_name["stereoset"]
    assert stereoset["licence"] == "CC BY-SA 4.0"
    assert stereoset["models"] == {"one": "m1", "two": "m2"}
    assert stereoset["options"]["terms"] == sorted(TERMS[:11])
    parts = {"", "intrasentence", "kind", "sort", "intrasentence/kind", "intrasentence/sort"}
    assert {one["part"] for one in stereoset["scores"]} == parts
    first = stereoset["scores"][0]
    assert (first["part"], first["score"], first["main"]["side"]) == ("", "stereotype_score", "bias")
    assert first["figures"][0]["value"] == pytest.approx(3 / 11)
    pairs = {(one["benchmark"], one["part"], one["score"]): one for one in found["pairs"]}
    pair = pairs["stereoset", "", "stereotype_score"]
    assert (pair["first"], pair["second"], pair["side"]) == ("one", "two", "bias")
    assert pair["difference"]["value"] == pytest.approx(-3 / 11)
    assert pair["difference"]["low"] < -3 / 11 < 0 < pair["difference"]["high"]  # three terms differ
    assert pair["p"] > 0.05
    assert pairs["stereoset", "kind", "stereotype_score"]["p_holm"] is None
    main = {(one["benchmark"], one["score"]): one["side"] for one in found["pairs"] if one["side"]}
    for name in ("stereoset", "perplexity"):
        assert {score for benchmark, score in main if benchmark == name} == BENCHMARKS[name].headlines.keys()
    assert (main["stereoset", "icat"], main["perplexity", "bits_per_byte"]) == ("both", "utility")
    assert pairs["bold", "gender", "sentiment_gap"]["side"] == "bias"
    finding = language_model_page(found)["finding"]
    assert finding.startswith("0 of 2 bias scores and 0 of 4 others differ measurably between one and two")


def test_items_that_a_model_did_not_answer_are_left_out_for_all_and_three_models_are_ranked(
    runs: tuple[Path, Path], root: Path, tmp_path: Path
) -> None:
    third = tmp_path / "three"
    run_benchmark(StereoSet(terms=frozenset(TERMS[:11])), model("m3", "new", -1.0), root, third)
    file = third / "answers-stereoset.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    found = comparison_summary([*runs, third], root)
    assert found["notes"][0] == "Not in every folder, and left out: bold, perplexity."
    assert found["notes"][1] == "stereoset: compared over 10 of 11 items; three lack the others."
    (block,) = found["benchmarks"]
    assert (block["items"], block["scores"][0]["ranks"]) == (10, [[1, 3]] * 3)
    assert "rank 1–3" in json.dumps(language_model_page(found), ensure_ascii=False)
    assert {one["part"] for one in found["pairs"]} == {""}


def test_a_masked_and_a_causal_model_share_no_score_of_crows_pairs(tmp_path: Path) -> None:
    test_crows_pairs.write(tmp_path)
    for measure, causal in ((SHARED, False), (LIKELIHOOD, True)):
        asked: Any = Speaker(causal=causal)
        run_benchmark(CrowSPairs(), asked, tmp_path, tmp_path / measure)
    summary = comparison_summary([tmp_path / SHARED, tmp_path / LIKELIHOOD], tmp_path)
    assert summary["benchmarks"] == summary["pairs"] == []
    (note,) = summary["notes"]
    assert note.startswith("crows-pairs: the models have no score in common (metric_score, ")
    assert "; causal_stereotype_likelier)." in note
    page = language_model_page(summary)
    assert page["finding"] == f"{SHARED} and {LIKELIHOOD} have no main score in common."
    assert note in json.dumps(page)


def test_prompts_drawn_by_group_are_the_same_ones_and_from_all_articles(root: Path) -> None:
    items = read_items(root)
    keys = ("domain", "group")
    few, more = drawn_by(items, keys, 2), drawn_by(items, keys, 3)
    assert [len([item for item in few if item.content["group"] == group]) for group in ("lamps", "chairs")] == [2, 2]
    assert {item.id for item in few} < {item.id for item in more}
    assert [item.id for item in more] == [item.id for item in items if item in more]
    assert drawn_by(items[::-1], keys, 2) == few[::-1]
    assert drawn_by(items, keys, 9) == items


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelhead.lm.model.LanguageModel.load", lambda *_, **__: model("m", "some", 1.0))


@pytest.mark.usefixtures("loaded")
def test_the_verbs_pass_terms_and_text_on(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "terms").write_text("a\nb\n")
    options = ["--data-root", root, "--terms", tmp_path / "terms", "--file", root / "text.txt"]
    for name in ("one", "two"):
        assert run("lm", "bench", "stereoset,perplexity", "--model", "m", "--out", tmp_path / name, *options) == 0
        assert "bits per byte" in said(capsys)
    assert scored(tmp_path / "one") == ["perplexity", "stereoset"]
    assert read_json(tmp_path / "one" / "scores-stereoset.json")["items"] == 2
    both = (tmp_path / "one", tmp_path / "two")  # the terms of the runs are taken again
    assert run("lm", "compare", *both, "--data-root", root, "--json", tmp_path / "both") == 0
    assert read_json(tmp_path / "both")["pairs"]
    scores = tmp_path / "two" / "scores-stereoset.json"
    write_json(scores, (record := read_json(scores)) | {"options": record["options"] | {"terms": ["a"]}})
    assert run("lm", "compare", *both, "--data-root", root) == 2
    assert "stereoset was run with another terms in" in said(capsys)


@pytest.mark.usefixtures("loaded")
def test_a_trained_model_is_not_scored_on_the_terms_it_has_seen(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    write_json(tmp_path / "run" / "model" / "config.json", {})
    write_json(tmp_path / "run" / "klaad.json", {})
    (tmp_path / "terms").write_text("a\nb\n")
    line = ["lm", "bench", "stereoset", "--model", tmp_path / "run", "--data-root", root, "--out", tmp_path / "some"]
    for held_out, options, status, words in (
        (None, (), 2, "a file of terms that it has not seen, also for"),
        (None, ("--terms", tmp_path / "terms"), 0, "may have been trained on 2 of the 2 terms"),
        ("x\nA \n", (), 2, "held-out-terms.txt, also for"),
        ("x\ny\n", ("--limit", 1), 0, ""),  # trained on triplets of its own
    ):
        if held_out is not None:
            (tmp_path / "run" / "held-out-terms.txt").write_text(held_out)
        assert run(*line, *options) == status
        assert words in said(capsys)


def _text(folder: Path) -> Path:
    (folder / "text").write_text("some words")
    return folder / "text"
