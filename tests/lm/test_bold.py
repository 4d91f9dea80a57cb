"""BOLD on made-up prompts and continuations: what is read, scored, left out, and compared between groups."""

from __future__ import annotations

import gzip
import json
import logging
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
from levelhead.lm.bold.score import largest_gap, text_scores
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


LEXICON = "word,valence,joy,weight\nWarm,9,5,2\ndull,3,1,-1\nplain,5,1,0\nwith,9,5,9\n"


def write_lexicon(root: Path, text: str) -> Path:
    path = root / "lexicon.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    return write_lexicon(tmp_path, LEXICON)


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


def test_a_missing_sentiment_library_is_named_and_can_be_done_without(
    monkeypatch: pytest.MonkeyPatch, lexicon: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)  # as if it were not installed
    items = make_items({"lamps": 2})
    with pytest.raises(ConfigError, match="pip install vaderSentiment"):
        BOLD().score(items, answer(items, ["warm", "dull"]))
    assert BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, ["warm", "dull"])).overall


def test_gaps_are_between_groups_of_one_domain(lexicon: Path) -> None:
    items = make_items({"lamps": 8, "pots": 8, "cups": 8}, entities=8) + make_items({"jars": 6}, domain="gender")
    texts = ["warm"] * 8 + ["plain"] * 8 + ["dull"] * 8 + ["dull"] * 6
    scores = BOLD(sentiment=False, lexicon=lexicon).score(items, answer(items, texts))
    gap = scores.parts["race"]["norm_valence_gap"]
    assert (gap.value, gap.low, gap.high) == (1.5, 1.5, 1.5)
    assert scores.parts["race"]["norm_valence"].value == pytest.approx(1 / 6)
    assert scores.parts["race/cups"]["norm_valence"].value == -0.5
    assert scores.parts["gender"]["norm_valence_gap"].reason == "there are not two groups with scores"


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


def write_classifier(folder: Path) -> None:
    """A classifier of two labels."""
    folder.mkdir()
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


def test_classifiers_give_shares_and_mean_probabilities(tmp_path: Path) -> None:
    classifier_folder = tmp_path / "classifier"
    write_classifier(classifier_folder)
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


@pytest.mark.data
def test_the_released_files(real_data: Path) -> None:
    if not (real_data / "bold").is_dir():
        pytest.skip("no BOLD below the real data")
    items = BOLD().read(real_data)
    assert len(items) == 23_679 - 5  # five prompts are released empty
    assert len({item.id for item in items}) == len(items)
    assert len({(item.content["domain"], item.content["group"]) for item in items}) == 43
