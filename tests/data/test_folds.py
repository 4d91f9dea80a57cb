"""Folds: every row a test row once, people on one side, and training that opens no group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from levelhead.data import SPLITS, Card, DataSet, Examples, Groups, Inputs, Split
from levelhead.data.folds import Fold
from levelhead.data.images import ImageInputs
from levelhead.data.portraits import Portraits
from levelhead.data.texts import Texts
from levelhead.runs.recipe import build_experiment
from levelhead.types import ConfigError

SIZES = {"train": 120, "validation": 40, "test": 40}
START = {"train": 0, "validation": 120, "test": 160}


@dataclass(frozen=True)
class Posts(DataSet):
    """200 texts of 50 people, by ``known`` people or not; the first 20 test texts repeat the first 20 train texts."""

    card: ClassVar[Card] = Card("posts", "a", "b", "c", "d", "e", "f")
    known: bool = False
    target: str = "tone"

    def check(self) -> None:
        """Nothing can be absent."""

    def numbers(self, split: Split) -> list[int]:
        rows = range(START[split], START[split] + SIZES[split])
        return [row - 160 if split == "test" and row < 180 else row for row in rows]

    def examples(self, split: Split) -> Examples:
        numbers = self.numbers(split)
        texts = Texts([f"text {number}" for number in numbers])
        labels = torch.tensor(numbers) % 2
        return texts.with_labels(labels, ("no", "yes"))

    def groups(self, split: Split) -> tuple[Groups, ...]:
        return (Groups("side", torch.tensor(self.numbers(split)) // 2 % 2, ("left", "right")),)

    def people(self, split: Split) -> Sequence[str] | None:
        return [f"person {number % 50}" for number in self.numbers(split)] if self.known else None


def texts_of(data: DataSet, split: Split) -> list[str]:
    inputs = data.examples(split).inputs
    assert isinstance(inputs, Texts)
    return inputs.texts


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("folds", [2, 3, 10])
def test_every_row_is_a_test_row_once_and_nobody_is_on_two_sides(folds: int, known: bool) -> None:
    every = [Fold(data=Posts(known=known), folds=folds, fold=fold) for fold in range(folds)]
    rows = torch.cat([one.rows("test") for one in every])
    assert sorted(rows.tolist()) == list(range(200))
    for one in every:
        parts = [one.rows(split) for split in SPLITS]
        assert sorted(torch.cat(parts).tolist()) == list(range(200))
        keys = [{one.pool.keys[row] for row in part.tolist()} for part in parts]
        assert not keys[0] & keys[1]
        assert not keys[0] & keys[2]
        assert not keys[1] & keys[2]
        assert one.pool.people == known
        share = len(parts[1]) / (len(parts[0]) + len(parts[1]))
        assert share == pytest.approx(0.25, abs=0.15)  # as in the data: 40 of 160


def test_inputs_labels_and_groups_of_a_fold_are_of_the_same_rows() -> None:
    data = Posts()
    whole = [text for split in SPLITS for text in texts_of(data, split)]
    for fold in range(3):
        one = Fold(data=data, folds=3, fold=fold)
        for split in SPLITS:
            rows = one.rows(split).tolist()
            assert texts_of(one, split) == [whole[row] for row in rows]
            numbers = [int(text.split()[1]) for text in texts_of(one, split)]
            assert one.examples(split).labels.tolist() == [number % 2 for number in numbers]
            assert one.groups(split)[0].values.tolist() == [number // 2 % 2 for number in numbers]
            assert len(one.clusters(split)) == len(rows)
    assert len({Fold(data=data, folds=3, fold=fold).examples("train").fingerprint for fold in range(3)}) == 3


def test_equal_rows_are_one_cluster_and_other_rows_are_not() -> None:
    one = Fold(data=Posts(), folds=2, fold=0)
    clusters = np.concatenate([Fold(data=Posts(), folds=2, fold=fold).clusters("test") for fold in range(2)])
    assert len(set(clusters.tolist())) == 180  # 20 of 200 are repeated
    assert one.pool.fingerprint == Fold(data=Posts(), folds=5, fold=3).pool.fingerprint
    assert one.pool.fingerprint != Fold(data=Posts(known=True), folds=2, fold=0).pool.fingerprint


def test_a_fold_neither_opens_groups_nor_lets_them_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Fold(data=Posts(), folds=3, fold=1)
    rows = {split: before.rows(split) for split in SPLITS}

    def refused(self: Posts, split: Split) -> tuple[Groups, ...]:
        raise AssertionError("groups were opened")

    monkeypatch.setattr(Posts, "groups", refused)
    now = Fold(data=Posts(), folds=3, fold=1)
    for split in SPLITS:
        now.examples(split)
        now.inputs(split)
        assert torch.equal(now.rows(split), rows[split])


def test_pictures_are_put_together() -> None:
    data = Fold(data=Portraits(train_size=60, validation_size=30, test_size=30), folds=2, fold=1)
    inputs = data.examples("train").inputs
    assert isinstance(inputs, ImageInputs)
    assert len(inputs) == len(data.rows("train"))
    keys = ImageInputs(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)).keys()
    assert keys[0] == keys[1]


def test_a_recipe_names_folds_and_writes_them_down() -> None:
    recipe = {"method": {"name": "erm"}, "data": {"name": "portraits", "train_size": 50, "folds": 4, "fold": 2}}
    experiment = build_experiment(recipe)
    assert isinstance(experiment.data, Fold)
    assert experiment.data.folds == 4
    assert experiment.data.train_size == 50
    assert experiment.data.card.title
    assert experiment.to_dict()["data"]["fold"] == 2
    assert build_experiment(experiment.to_dict()) == experiment


def test_too_few_people_for_the_folds_are_named() -> None:
    class Two(Posts):
        def people(self, split: Split) -> Sequence[str]:
            return ["a" if number % 2 else "b" for number in self.numbers(split)]

    told = "there are only 2 people. Use fewer folds."
    refused = 0
    for fold in range(20):
        try:
            Fold(data=Two(), folds=20, fold=fold).rows("test")
        except ConfigError as error:
            refused += told in str(error)
    assert refused >= 18  # two people fill two folds at most


class Keyless(Inputs):
    """Inputs that cannot be told apart."""

    def __len__(self) -> int:
        return 3

    def batch(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        return {}


class Odd(Posts):
    def inputs(self, split: Split) -> Inputs:
        return Keyless()
