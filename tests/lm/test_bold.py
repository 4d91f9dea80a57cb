"""BOLD on made-up prompts and continuations: what is read, scored, left out, and compared between groups."""

from __future__ import annotations

import gzip
import importlib
import json
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from levelhead.lm.base import Answer, Item
from levelhead.lm.bold import BOLD, TextClassifier
from levelhead.lm.bold.data import DOMAINS
from levelhead.lm.bold.score import check_scorers, largest_gap, read_lexicon, text_norms, text_scores
from levelhead.lm.model import LanguageModel
from levelhead.types import ConfigError, DataError

GROUPS = {"lamps": {"Desk_lamp": ["A desk lamp is ", "Desk lamps "], "Wall": ["On the wall "]}, "pots": {"Pot": ["A "]}}


def write(root: Path, groups: Any = GROUPS, domains: Sequence[str] = DOMAINS, *, packed: bool = False) -> Path:
    folder = root / "bold" / ("" if packed else "prompts")
    folder.mkdir(parents=True, exist_ok=True)
    for domain in domains:
        text = json.dumps(groups).encode()
        name = f"{domain}_prompt.json"
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(text) if packed else text)
    return root


def make_items(groups: dict[str, int], *, entities: int = 3, domain: str = "race") -> list[Item]:
    return [
        Item(
            f"{domain}/{group}/{row}",
            {"domain": domain, "group": group, "entity": f"{group}{row % entities}", "prompt": "A lamp "},
        )
        for group, count in groups.items()
        for row in range(count)
    ]


def answer(items: Sequence[Item], texts: Sequence[str]) -> list[Answer]:
    return [Answer(item.id, {"continuation": text}) for item, text in zip(items, texts, strict=True)]


def write_lexicon(root: Path, text: str) -> Path:
    path = root / "lexicon.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    return write_lexicon(tmp_path, "word,valence,joy,weight\nWarm,9,5,2\ndull,3,1,-1\nplain,5,1,0\nwith,9,5,9\n")


@pytest.fixture
def vader() -> None:
    pytest.importorskip("vaderSentiment", reason="the optional sentiment library is not installed")


def test_prompts_are_read_from_both_layouts_without_empty_ones(tmp_path: Path, caplog: Any) -> None:
    groups = {"lamps": {"Desk": ["A ", " ", "B "]}, "pots": {"Pot": ["C "]}}
    first = BOLD().read(write(tmp_path / "a", groups))
    with caplog.at_level(logging.WARNING):
        second = BOLD(domains=("race",)).read(write(tmp_path / "b", groups, packed=True))
    assert [item.content["domain"] for item in first[::3]] == list(DOMAINS)
    assert [item.id for item in second] == ["race/lamps/Desk/0", "race/lamps/Desk/2", "race/pots/Pot/0"]
    assert second == [item for item in first if item.content["domain"] == "race"]
    assert second[1].content == {"domain": "race", "group": "lamps", "entity": "Desk", "prompt": "B "}
    assert "left out 1 empty prompts of 4" in caplog.text


def test_files_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bold"):
        BOLD().read(tmp_path)
    write(tmp_path, domains=DOMAINS[:4])
    with pytest.raises(DataError, match=r"holds neither religious_ideology_prompt\.json nor"):
        BOLD().read(tmp_path)
    with pytest.raises(ConfigError, match="no domain 'age'"):
        BOLD(domains=("age",)).read(tmp_path)
    write(tmp_path, {"lamps": {"Desk": "A lamp"}}, ["race"])
    with pytest.raises(DataError, match=r"race_prompt\.json: lamps, Desk must hold a list"):
        BOLD(domains=("race",)).read(tmp_path)
    (tmp_path / "bold" / "prompts" / "race_prompt.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"race_prompt\.json cannot be read"):
        BOLD(domains=("race",)).read(tmp_path)


def test_continuations_are_asked_with_the_seed_and_belong_to_their_prompts() -> None:
    asked: dict[str, Any] = {}

    class FakeModel:
        causal = True

        def generate(self, prompts: Sequence[str], **options: Any) -> Iterator[tuple[int, str]]:
            asked.update(options, prompts=list(prompts))
            yield from ((index, f"text {index}") for index in reversed(range(len(prompts))))

    items = make_items({"lamps": 2})
    benchmark = BOLD(seed=7, max_new_tokens=5)
    given = {one.id: one.content for one in benchmark.ask(cast(LanguageModel, FakeModel()), items)}
    names = [item.id for item in items]
    options = {"seed": 7, "max_new_tokens": 5, "greedy": False, "names": names}
    assert asked == {"prompts": ["A lamp", "A lamp"], **options}
    assert given == {items[0].id: {"continuation": "text 0"}, items[1].id: {"continuation": "text 1"}}


@pytest.mark.usefixtures("vader")
def test_sentiment_is_of_the_continuation_alone() -> None:
    items = make_items({"lamps": 4})
    prompts = [Item(item.id, {**item.content, "prompt": "A horrible, evil, hateful "}) for item in items]
    texts = ["a wonderful and lovely day", "a table", "a terrible, horrible disaster", "a table"]
    scores = BOLD().score(prompts, answer(prompts, texts))
    shares = {name: scores.overall[f"sentiment_{name}"].value for name in ("positive", "negative", "neutral")}
    assert shares == {"positive": 0.25, "negative": 0.25, "neutral": 0.5}
    assert scores.parts["race/lamps"]["sentiment_positive"].value == 0.25
    same = BOLD().score(items, answer(items, texts))  # other prompts, equal continuations
    assert same.overall["sentiment"].value == scores.overall["sentiment"].value


@pytest.mark.usefixtures("vader")
def test_the_thresholds_of_sentiment_are_inclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    class Analyzer:
        def polarity_scores(self, text: str) -> dict[str, float]:
            return {"compound": float(text)}

    module = importlib.import_module("vaderSentiment.vaderSentiment")
    monkeypatch.setattr(module, "SentimentIntensityAnalyzer", Analyzer)
    items = make_items({"lamps": 4})
    overall = BOLD().score(items, answer(items, ["0.5", "0.49", "-0.5", "-0.49"])).overall
    assert overall["sentiment_positive"].value == overall["sentiment_negative"].value == 0.25
    assert overall["sentiment"].value == pytest.approx(0.0)


def test_a_missing_sentiment_library_is_named_and_can_be_done_without(
    monkeypatch: pytest.MonkeyPatch, lexicon: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)  # as if it were not installed
    items = make_items({"lamps": 2})
    with pytest.raises(ConfigError, match="pip install vaderSentiment"):
        BOLD().score(items, answer(items, ["warm", "dull"]))
    assert BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, ["warm", "dull"])).overall
    with pytest.raises(ConfigError, match="nothing to score with"):
        BOLD(sentiment=False).score(items, answer(items, ["warm", "dull"]))


def test_norms_are_scaled_and_weighted_by_their_size(lexicon: Path) -> None:
    rows, values, names = read_lexicon(lexicon)
    assert names == ("valence", "joy", "weight")
    assert values[rows["warm"]].tolist() == [1.0, 1.0, 2.0]
    assert values[rows["dull"]].tolist() == [-0.5, 0.0, -1.0]
    # valence (1 - 1/4) / (1 + 1/2); joy 1 / 1; weight (4 - 1) / (2 + 1). "with" is no word that carries a norm.
    assert text_norms("Warm, dull: plain with", rows, values).tolist() == pytest.approx([0.5, 1.0, 1.0])
    assert text_norms("plain!", rows, values).tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(text_norms("with nothing", rows, values)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("term,valence\nwarm,5\n", "needs a column 'word'"),
        ("word,valence\nwarm,0.7\n", "line 2: valence must be a number from 1 to 9"),
        ("word,joy\nwarm,5\ndull,6\n", "line 3: joy must be a number from 1 to 5"),
        ("word,weight\nwarm,much\n", "line 2: weight must be a number"),
        ("word,weight\nwarm,1\nWARM,2\n", "line 3 twice"),
    ],
)
def test_a_broken_lexicon_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_lexicon(write_lexicon(tmp_path, text))


def test_empty_continuations_and_uncovered_ones_are_left_out_and_counted(lexicon: Path) -> None:
    items = make_items({"lamps": 4, "pots": 2})
    texts = ["warm", " \n", "nothing known", "dull", "", "  "]
    scores = BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, texts))
    assert scores.overall["norm_valence"].value == pytest.approx(0.25)
    assert scores.overall["norm_valence"].n == 2
    assert not scores.parts["race/pots"]["norm_valence"].defined
    assert not scores.parts["race"]["norm_valence_gap"].defined
    assert "3 of 6 continuations are empty, and left out of all figures: 1 of lamps, 2 of pots." in scores.notes
    assert any("1 continuations have no word of the lexicon" in note for note in scores.notes)
    nothing = BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, [""] * 6)).overall["norm_valence"]
    assert nothing.reason == "every continuation is empty"


def test_gaps_are_between_groups_of_one_domain(lexicon: Path) -> None:
    items = make_items({"lamps": 8, "pots": 8, "cups": 8}, entities=8) + make_items({"jars": 6}, domain="gender")
    texts = ["warm"] * 8 + ["plain"] * 8 + ["dull"] * 8 + ["dull"] * 6
    scores = BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, texts))
    gap = scores.parts["race"]["norm_valence_gap"]
    assert (gap.value, gap.low, gap.high) == (1.5, 1.5, 1.5)
    assert scores.parts["race"]["norm_valence"].value == pytest.approx(1 / 6)
    assert scores.parts["race/cups"]["norm_valence"].value == -0.5
    assert scores.parts["gender"]["norm_valence_gap"].reason == "there are not two groups with scores"
    assert set(scores.units) >= set(scores.overall) | {f"{name}_gap" for name in scores.overall}


@pytest.mark.usefixtures("few_are_enough")
def test_a_group_of_one_article_draws_its_prompts_and_says_so(lexicon: Path) -> None:
    items = make_items({"lamps": 6}, entities=1)
    scores = BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, ["warm", "dull"] * 3))
    figure = scores.overall["norm_valence"]
    assert figure.low < figure.value < figure.high
    assert any(note.startswith("race/lamps: prompts of one article") for note in scores.notes)


def test_the_interval_of_a_gap_holds_the_truth_where_there_is_none() -> None:
    """Four equal groups of 20 entities: percentiles of a maximum would never hold the true gap of 0."""
    rng = np.random.default_rng(0)
    groups, clusters = np.repeat(np.arange(4), 60), np.repeat(np.arange(80), 3)
    held, plain, corrected = [], [], []
    for seed in range(60):
        values = rng.normal(size=80)[clusters] + rng.normal(size=240)
        gap = largest_gap(values, groups, clusters, replicates=200, seed=seed)
        held.append(gap.low == 0)
        plain.append(gap.value)
        corrected.append(cast(float, gap.corrected))
        assert gap.low <= gap.value <= gap.high
    assert np.mean(held) >= 0.85
    # A replicate is noisier by the square root of 2, so about 2 - 1.41 of the bias is left, and more by the cut at 0.
    assert np.mean(corrected) < 0.75 * np.mean(plain)


def test_the_interval_of_a_gap_holds_a_true_gap_and_excludes_none() -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(3), 200)
    values = rng.normal(size=600) + np.repeat([0.0, 0.2, 1.0], 200)
    gap = largest_gap(values, groups, np.arange(600), replicates=500, seed=0)
    assert 0 < gap.low < 1.0 < gap.high < 1.6
    again = largest_gap(values, groups, np.arange(600), replicates=500, seed=0)
    assert again == gap


def test_a_gap_without_clusters_to_draw_has_no_interval() -> None:
    gap = largest_gap(np.array([1.0, 2.0, 4.0]), np.array(["a", "a", "b"]), np.arange(3), replicates=50, seed=0)
    assert gap.value == 2.5
    assert math.isnan(gap.low)
    assert "b has 1 cluster, and 8 are needed" in str(gap.reason)


def test_no_interval_of_a_gap_leaves_the_scale_or_rests_on_replicates_without_spread() -> None:
    """Sentiment of 8 prompts a group, most of them 0: a standard error from cancelling sums gave 39,938,185."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = np.where(rng.random(16) < 0.15, rng.uniform(-1, 1, 16), rng.choice([0.0, 0.4404], 16))
        gap = largest_gap(values, np.repeat(["a", "b"], 8), np.arange(16), replicates=200, seed=seed, most=2.0)
        if gap.reason is None:
            assert 0 <= gap.low <= gap.value <= gap.high <= 2
        else:
            assert gap.reason == "no interval: too many of the drawn samples have no spread"
        assert gap.value == pytest.approx(abs(values[:8].mean() - values[8:].mean()))


@pytest.fixture(scope="module")
def classifier_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that says "loud" of the word bang, "rude" of the word boo, each alone."""
    folder = tmp_path_factory.mktemp("classifier")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bang", "boo", "lamp"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        initializer_range=1.0,  # probabilities that are apart
        problem_type="multi_label_classification",
        id2label={0: "loud", 1: "rude"},
        label2id={"loud": 0, "rude": 1},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = BertForSequenceClassification(config)
    network.save_pretrained(folder)
    return folder


def test_classifiers_give_shares_and_mean_probabilities(classifier_folder: Path) -> None:
    network = BertForSequenceClassification.from_pretrained(classifier_folder).eval()
    tokenizer = BertTokenizerFast.from_pretrained(classifier_folder)
    items = make_items({"lamps": 4})
    texts = ["bang bang", "boo lamp boo", "lamp " * 600, "boo"]
    with torch.no_grad():
        expected = torch.cat(
            [
                network(**tokenizer(text, truncation=True, max_length=256, return_tensors="pt")).logits.sigmoid()
                for text in texts
            ]
        )
    largest = expected.max(1).values.sort().values
    threshold = float(largest[1:3].mean())  # two texts are above it, two below
    classifier = TextClassifier("tone", str(classifier_folder), ("rude", "loud"), threshold)
    overall = BOLD(sentiment=False, classifiers=(classifier,)).score(items, answer(items, texts)).overall
    assert overall["tone_rude"].value == pytest.approx(float(expected[:, 1].mean()), abs=1e-5)
    assert overall["tone_loud"].value == pytest.approx(float(expected[:, 0].mean()), abs=1e-5)
    assert overall["tone"].value == 0.5


def test_a_classifier_without_finite_probabilities_has_no_share_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    found = np.array([[np.nan], [0.2]])
    monkeypatch.setattr(TextClassifier, "probabilities", lambda *_: found)
    with pytest.raises(DataError, match="classifier tone gives no finite probability for 1 of 2 continuations"):
        text_scores(["a", "b"], False, (TextClassifier("tone", "x", ("rude",)),), None)


@pytest.mark.parametrize(
    ("classifiers", "name"),
    [
        ([("sentiment", "loud")], "sentiment"),
        ([("tone", "loud"), ("tone", "rude")], "tone"),
        ([("tone", "loud"), ("tone_loud", "rude")], "tone_loud"),
        ([("tone", "loud,loud")], "tone_loud"),
        ([("sentiment_positive", "gap"), ("sentiment", "loud")], "sentiment"),
        ([("tone", "gap")], "tone_gap"),
    ],
)
def test_no_classifier_takes_the_name_of_another_score(classifiers: list[tuple[str, str]], name: str) -> None:
    given = tuple(TextClassifier(one, "x", tuple(labels.split(","))) for one, labels in classifiers)
    with pytest.raises(ConfigError, match=f"Two scores would be called '{name}'"):
        check_scorers(True, given, None)
    with pytest.raises(ConfigError, match=f"Two scores would be called '{name}'"):
        text_scores(["a"], True, given, None)


def test_a_classifier_that_cannot_be_used_is_named(classifier_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no label 'toxic'\. There are: loud, rude"):
        TextClassifier("tone", str(classifier_folder), ("toxic",)).probabilities(["bang"])
    with pytest.raises(ConfigError, match="tone cannot be loaded"):
        TextClassifier("tone", str(tmp_path / "nowhere"), ("toxic",)).probabilities(["bang"])
    with pytest.raises(ConfigError, match="needs labels"):
        TextClassifier("tone", "x", ())


def test_answers_that_are_missing_doubled_or_no_text_are_named(lexicon: Path) -> None:
    benchmark = BOLD(sentiment=False, lexicon=lexicon)
    items = make_items({"lamps": 2})
    good = answer(items, ["warm", "dull"])
    with pytest.raises(DataError, match="race/lamps/0, race/lamps/1 have no answer"):
        benchmark.score(items, [])
    with pytest.raises(DataError, match="race/lamps/1 have more than one"):
        benchmark.score(items, [*good, good[1]])
    with pytest.raises(DataError, match="race/lamps/1 has no text"):
        benchmark.score(items, [good[0], Answer(items[1].id, {"text": "warm"})])


@pytest.mark.data
def test_the_released_files(real_data: Path) -> None:
    if not (real_data / "bold").is_dir():
        pytest.skip("no BOLD below the real data")
    items = BOLD().read(real_data)
    assert len(items) == 23_679 - 5  # five prompts are released empty
    assert len({item.id for item in items}) == len(items)
    assert len({(item.content["domain"], item.content["group"]) for item in items}) == 43
