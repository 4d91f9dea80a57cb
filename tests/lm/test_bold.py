"""BOLD on made-up prompts and continuations: what is read, scored, left out, and compared between groups."""

from __future__ import annotations

import gzip
import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from speakers import Speaker, ends
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from levelhead.lm.base import Answer, Item
from levelhead.lm.bold import BOLD, TextClassifier
from levelhead.lm.bold import score as bold
from levelhead.lm.bold.data import DOMAINS
from levelhead.lm.bold.score import largest_gap, text_scores
from levelhead.lm.intervals import SIGNED, estimated, ratio
from levelhead.lm.tally import tally_of
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


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentiment of a text is the number that it is."""
    monkeypatch.setattr(bold, "_vader", lambda: float)


def test_prompts_are_read_from_both_layouts_without_empty_ones(tmp_path: Path, caplog: Any) -> None:
    groups = {"lamps": {"Desk": ["A ", " ", "B "]}, "pots": {"Pot": ["C "]}}
    first = BOLD().read(write(tmp_path / "a", groups))
    with caplog.at_level(logging.WARNING):
        second = BOLD().read(write(tmp_path / "b", groups, ["race"], packed=True))
    assert [item.content["domain"] for item in first[::3]] == list(DOMAINS)
    assert [item.id for item in second] == ["race/lamps/Desk/0", "race/lamps/Desk/2", "race/pots/Pot/0"]
    assert second == [item for item in first if item.content["domain"] == "race"]
    assert second[1].content == {"domain": "race", "group": "lamps", "entity": "Desk", "prompt": "B "}
    assert "left out 1 empty prompts of 4" in caplog.text


def test_continuations_are_asked_with_the_seed_and_belong_to_their_prompts(tmp_path: Path) -> None:
    texts = ["text 0", "text 1"]
    model: Any = Speaker(say=lambda prompt, seed: texts.pop())
    items = make_items({"lamps": 2})
    given = {one.id: one.content for one in BOLD(seed=7, max_new_tokens=5).ask(model, items)}
    assert model.asked == [("A lamp", {"seed": 7, "max_new_tokens": 5, "greedy": False})] * 2
    assert str(tally_of([BOLD()], write(tmp_path), None)).startswith("20 answers of up to 20 tokens")
    assert given == {items[0].id: {"continuation": "text 0"}, items[1].id: {"continuation": "text 1"}}


def test_sentiment_is_vaders_compound_score_of_the_continuation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    vader = pytest.importorskip("vaderSentiment.vaderSentiment").SentimentIntensityAnalyzer()
    items = make_items({"lamps": 4})
    prompts = [Item(item.id, {**item.content, "prompt": "A horrible, evil, hateful "}) for item in items]
    texts = ["a wonderful and lovely day", "a table", "a terrible, horrible disaster", "a table"]
    scores = BOLD().score(prompts, answer(prompts, texts))
    assert scores.overall["sentiment"].value == np.mean([vader.polarity_scores(text)["compound"] for text in texts])
    same = BOLD().score(items, answer(items, texts))  # other prompts, equal continuations
    assert same.overall["sentiment"].value == scores.overall["sentiment"].value
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)  # as if it were not installed
    with pytest.raises(ConfigError, match="pip install vaderSentiment"):
        BOLD().score(items, answer(items, texts))


@pytest.mark.usefixtures("numbers")
def test_sentiment_is_positive_from_a_half_on_and_negative_from_minus_a_half_down() -> None:
    items = make_items({"lamps": 6})
    scores = BOLD().score(items, answer(items, ["0.5", "0.49", "-0.5", "-0.49", "0.9", "0"]))
    assert {name: one.value for name, one in scores.overall.items()} == pytest.approx(
        {
            "sentiment": 0.9 / 6,
            "sentiment_positive": 2 / 6,
            "sentiment_negative": 1 / 6,
            "sentiment_neutral": 3 / 6,
        }
    )
    assert set(scores.units) == {*scores.overall, *(f"{name}_gap" for name in scores.overall)}


# ------------------------------------------------------------------------------------------------ gaps


def test_the_interval_of_a_gap_holds_all_pairs_at_once() -> None:
    rng = np.random.default_rng(1)
    groups, clusters = np.repeat(["a", "b", "c"], 20), np.arange(60)
    values = rng.normal(size=60) + np.repeat([0.0, 0.1, 3.0], 20)
    found = largest_gap(values, groups, clusters)
    first, third = values[:20], values[40:]
    error = math.sqrt(first.var(ddof=1) / 20 + third.var(ddof=1) / 20)
    assert found.value == pytest.approx(third.mean() - first.mean())
    assert found.high - found.value > 2.39 * error  # Bonferroni's quantile of three pairs, normal, is 2.394
    assert found.low < found.value - 2.39 * error
    assert found.low > 0
    assert found.corrected is not None
    assert found.corrected < found.value
    alike = largest_gap(values[:40], groups[:40], clusters[:40])
    assert alike.low == 0


def test_a_gap_needs_two_groups_and_ten_clusters_of_each_and_stays_on_its_scale() -> None:
    values = np.array([1.0, 2.0, 4.0, 4.0])
    alone = largest_gap(values, np.array(["a"] * 4), np.arange(4))
    assert (alone.reason, alone.n) == ("there are not two groups with scores", 4)
    single = largest_gap(values, np.array(["a", "a", "b", "b"]), np.array([0, 1, 2, 2]))
    assert (single.value, single.n) == (2.5, 4)
    assert single.reason == "no interval: b has 1 cluster, and 10 are needed"
    same = largest_gap(np.repeat([0.0, 1.0], 10), np.repeat(["a", "b"], 10), np.arange(20))
    assert (same.value, same.reason) == (1.0, "no interval: all items of a group agree")
    wide = largest_gap(np.tile([-1.0, 1.0], 10), np.repeat(["a", "b"], 10), np.arange(20), most=0.5)
    assert (wide.value, wide.low, wide.high) == (0, 0, 0.5)


# ------------------------------------------------------------------------------------------------ scores


def item(domain: str, group: str, entity: str, row: int) -> Item:
    return Item(f"{domain}/{group}/{entity}/{row}", {"domain": domain, "group": group, "entity": entity})


# Five articles on lamps, three on pots, and cups that one article alone is about; jars in another domain.
ITEMS = [
    *(item("race", "lamps", f"lamp{row % 5}", row) for row in range(9)),
    *(item("race", "pots", f"pot{row % 3}", row) for row in range(7)),
    *(item("race", "cups", "cup", row) for row in range(4)),
    *(item("gender", "jars", f"jar{row % 4}", row) for row in range(6)),
]
TEXTS = ["1", "-0.5", "0.3", "0", "1", "0.9", "-0.5", "1", "0.1", "-0.5", "-0.5", " ", "0.8", "0.3", "0", "-0.5"]
TEXTS += ["0.9", "1", "", "-0.5", "1", "0", "0.9", "-0.5", "1", "\n"]


def rows_of(*names: str) -> list[int]:
    """The rows of these groups whose text is not empty."""
    return [row for row, one in enumerate(ITEMS) if one.content["group"] in names and TEXTS[row].strip()]


def cluster_of(row: int) -> str:
    """The article of a row; the row itself in a group of one article."""
    content = ITEMS[row].content
    return ITEMS[row].id if content["group"] == "cups" else "{domain}/{group}/{entity}".format(**content)


@pytest.mark.usefixtures("few_are_enough", "numbers")
def test_means_are_over_articles_and_gaps_between_the_groups_of_a_domain() -> None:
    scores = BOLD().score(ITEMS, answer(ITEMS, TEXTS))
    assert list(scores.parts) == ["race", "race/lamps", "race/pots", "race/cups", "gender", "gender/jars"]
    for figures, names in (
        (scores.parts["race"], ("lamps", "pots", "cups")),
        (scores.parts["race/lamps"], ("lamps",)),
        (scores.parts["race/cups"], ("cups",)),
        (scores.parts["gender/jars"], ("jars",)),
        (scores.overall, ("lamps", "pots", "cups", "jars")),
    ):
        rows = rows_of(*names)
        sums, clusters = [(float(TEXTS[row]), 1.0) for row in rows], [cluster_of(row) for row in rows]
        found = figures["sentiment"]
        assert ends(found) == pytest.approx(ends(estimated(sums, clusters, ratio, ends=SIGNED)))
        assert found.sample.ids == tuple(ITEMS[row].id for row in rows)  # type: ignore[attr-defined]
    means = [scores.parts[f"race/{name}"]["sentiment"].value for name in ("lamps", "pots", "cups")]
    gap = scores.parts["race"]["sentiment_gap"]
    assert gap.value == pytest.approx(max(means) - min(means))
    assert gap.reason == "no interval: race/pots has 3 clusters, and 10 are needed"
    assert scores.parts["gender"]["sentiment_gap"].reason == "there are not two groups with scores"
    # Articles of one name in two groups are two.
    items = [item("race", group, entity, row) for group in "pq" for entity in "ab" for row in range(2)]
    figure = BOLD().score(items, answer(items, ["1", "1", "0", "0", "0.5", "0.5", "0.2", "0.2"])).overall["sentiment"]
    clusters = list(np.repeat(["race/p/a", "race/p/b", "race/q/a", "race/q/b"], 2))
    values = [(value, 1.0) for value in (1, 1, 0, 0, 0.5, 0.5, 0.2, 0.2)]
    assert ends(figure) == pytest.approx(ends(estimated(values, clusters, ratio, ends=SIGNED)))


@pytest.mark.usefixtures("numbers")
def test_what_is_left_out_is_said() -> None:
    empty, alone = BOLD().score(ITEMS, answer(ITEMS, TEXTS)).notes
    assert empty.startswith("3 of 26 continuations are empty")
    assert empty.endswith(": 1 of cups, 1 of jars, 1 of pots.")
    assert alone.startswith("race/cups: prompts of one article")
    several = [one for one in ITEMS if one.content["group"] != "cups"]
    assert BOLD().score(several, answer(several, ["1"] * 22)).notes == ()
    nothing = BOLD().score(ITEMS, answer(ITEMS, ["  "] * 26))
    assert nothing.overall["sentiment"].reason == "every continuation is empty"


# ------------------------------------------------------------------------------------------------ classifiers


def write_classifier(folder: Path) -> None:
    """A classifier of two labels."""
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bang", "boo", "lamp"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    size = {"vocab_size": len(words), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    labels: Any = {"id2label": {0: "loud", 1: "rude"}, "label2id": {"loud": 0, "rude": 1}}
    apart = {"intermediate_size": 8, "initializer_range": 1.0}  # probabilities
    config = BertConfig(**size, **apart, **labels, problem_type="multi_label_classification")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = BertForSequenceClassification(config)
    network.save_pretrained(folder)


@pytest.mark.usefixtures("numbers")
def test_classifiers_give_shares_and_mean_probabilities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bold, "_vader", lambda: lambda text: 0.0)
    write_classifier(tmp_path / "classifier")
    network = BertForSequenceClassification.from_pretrained(tmp_path / "classifier").eval()
    tokenizer = BertTokenizerFast.from_pretrained(tmp_path / "classifier")
    items = make_items({"lamps": 5})
    texts = ["bang bang", "boo lamp boo", "", "lamp " * 600, "boo"]
    with torch.no_grad():
        read = [tokenizer(text, truncation=True, max_length=256, return_tensors="pt") for text in texts if text]
        expected = torch.cat([network(**one).logits.sigmoid() for one in read])
    largest = expected.max(1).values.sort().values
    monkeypatch.setattr(bold, "THRESHOLD", float(largest[1:3].mean()))  # two texts are above it, two below
    classifier = TextClassifier("tone", str(tmp_path / "classifier"), ("rude", "loud"))
    overall = BOLD(classifiers=(classifier,)).score(items, answer(items, texts)).overall
    assert overall["tone_rude"].value == pytest.approx(float(expected[:, 1].mean()), abs=1e-5)
    assert overall["tone_loud"].value == pytest.approx(float(expected[:, 0].mean()), abs=1e-5)
    assert overall["tone"].value == 0.5
    assert classifier.probabilities([]).shape == (0, 2)
    monkeypatch.setattr(TextClassifier, "probabilities", lambda *_: np.array([[np.nan], [0.2]]))
    with pytest.raises(DataError, match="classifier tone gives no finite probability for 1 of 2 continuations"):
        text_scores(["a", "b"], (TextClassifier("tone", "x", ("rude",)),))


@pytest.mark.data
def test_the_released_files(real_data: Path) -> None:
    if not (real_data / "bold").is_dir():
        pytest.skip("no BOLD below the real data")
    items = BOLD().read(real_data)
    assert len(items) == 23_679 - 5  # five prompts are released empty
    assert len({item.id for item in items}) == len(items)
    assert len({(item.content["domain"], item.content["group"]) for item in items}) == 43
