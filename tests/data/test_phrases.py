from __future__ import annotations

import pytest
import torch

from levelhead.data import SPLITS, phrases
from levelhead.data.phrases import AGREEMENT, BAKER_RATE, CLASS_NAMES, GROUP_NAMES, Phrases, vocabulary
from levelhead.data.texts import Texts


def sentences(data: Phrases, split: str = "train") -> list[str]:
    inputs = data.examples(split).inputs  # type: ignore[arg-type]
    assert isinstance(inputs, Texts)
    assert inputs.pairs is None
    return inputs.texts


def test_sentences_are_plain_and_made_of_the_vocabulary() -> None:
    data = Phrases()
    data.check()
    seen = {word for split in SPLITS for text in sentences(data, split) for word in text.split(" ")}
    assert tuple(sorted(seen)) == vocabulary()
    assert len(vocabulary()) < 300
    assert all(word.isascii() and word == word.lower() for word in vocabulary())


def test_labels_and_groups_are_what_the_sentences_say() -> None:
    data = Phrases(noise=0.0)
    examples, (trade,) = data.examples("train"), data.groups("train")
    assert (trade.attribute, trade.names, examples.class_names) == ("trade", GROUP_NAMES, CLASS_NAMES)
    for text, label, group in zip(sentences(data), examples.labels.tolist(), trade.values.tolist(), strict=True):
        assert f" the {GROUP_NAMES[group]} " in text
        assert [any(mood in text for mood in moods) for moods in phrases.POOLS["moods"]] == [label == 0, label == 1]


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_the_place_goes_with_the_mood_as_the_correlation_says(correlation: float) -> None:
    data = Phrases(train_size=6000, correlation=correlation)
    labels, group = data.examples("train").labels, data.groups("train")[0].values
    river = torch.tensor(["river" in text for text in sentences(data)]).long()
    assert group.double().mean().item() == pytest.approx(BAKER_RATE, abs=0.025)
    for value, name in enumerate(GROUP_NAMES):
        rows = group == value
        assert labels[rows].double().mean().item() == pytest.approx(0.5, abs=0.045)
        agreement = 0.5 + correlation * (AGREEMENT[name] - 0.5)
        assert (river == labels)[rows].double().mean().item() == pytest.approx(agreement, abs=0.045)


def test_noise_is_the_share_of_sentences_that_tell_no_mood() -> None:
    for noise in (0.0, 0.3, 1.0):
        texts = sentences(Phrases(noise=noise))
        silent = [any(text.endswith(f" {end} .") for end in phrases.POOLS["no_mood"]) for text in texts]
        assert sum(silent) / len(texts) == pytest.approx(noise, abs=0.035)


def test_a_seed_fixes_the_sentences_and_a_larger_split_begins_with_a_smaller_one() -> None:
    assert sentences(Phrases())[0] == "by the river the gardener planted a tree in spring and was delighted ."
    assert sentences(Phrases(train_size=50)) == sentences(Phrases())[:50]
    assert len({Phrases(seed=seed).examples("train").fingerprint for seed in (0, 0, 1)}) == 2
    assert sentences(Phrases(), "test")[:20] != sentences(Phrases())[:20]
    # Another correlation exchanges places and nothing else.
    for before, after in zip(sentences(Phrases(correlation=0.0)), sentences(Phrases()), strict=True):
        assert before.replace("river", "station") == after.replace("river", "station")
