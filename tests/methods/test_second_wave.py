"""XRM, SPARE, CnC and GEORGE: numbers worked by hand, what they do to a known shortcut, and refusals."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from labs import Small, drawn, lab_of, missing, recipe, second_stage
from torch import Tensor, nn

from levelhead.data.base import Examples
from levelhead.methods import Method, clusters
from levelhead.methods.clusters import k_means, silhouettes
from levelhead.methods.cnc import CnC
from levelhead.methods.erm import ERM
from levelhead.methods.falling import warn_of_fall
from levelhead.methods.fit import fit
from levelhead.methods.george import GEORGE, best_clusters, hardness, mean_of_clusters
from levelhead.methods.spare import SPARE, drawing_chances
from levelhead.methods.xrm import XRM, infer_mistakes
from levelhead.objectives.correct_contrast import CorrectContrast, contrast, contrast_pairs
from levelhead.objectives.cross_risk import CrossRisk, flip_chances
from levelhead.objectives.group import group_means
from levelhead.runs.train import train_run
from levelhead.types import Batch
from tiny import Pictures, make_examples


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# XRM. The first twin learns from rows 0 and 1, and answers for rows 2 and 3.
FIRST = torch.tensor([[2.0, 0], [0, 1], [1, 0], [0, 0.5]])
SECOND = torch.tensor([[0.0, 1], [0, 2], [2, 0], [1, 0]])
LABELS, SIDE = torch.tensor([0, 1, 0, 1]), torch.tensor([True, True, False, False])


class Answers(nn.Module):
    """A network whose logits are its parameter: row i of the batch is row ``rows[i]``."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())

    def forward(self, rows: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits[rows])


def twins(seed: int = 0) -> CrossRisk:
    return CrossRisk(Answers(FIRST), Answers(SECOND), LABELS, SIDE, seed)


def whole_batch() -> Batch:
    rows = torch.arange(4)
    return Batch({"rows": rows}, LABELS, rows, torch.ones(4))


def test_chances_to_flip_are_those_worked_by_hand() -> None:
    chance, answer = flip_chances(torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log())
    assert chance.tolist() == pytest.approx([0.8, 0], abs=1e-6)
    assert answer[0] == 0
    chance, answer = flip_chances(torch.tensor([[0.3, 0.1, 0.6]]).log())
    assert chance.item() == pytest.approx(0.4)
    assert answer.item() == 2


def test_the_loss_of_twins_and_what_they_answer_for_are_those_worked_by_hand() -> None:
    loss, held_out = twins().loss(FIRST, SECOND, torch.arange(4), torch.ones(4))
    assert loss.item() == pytest.approx(0.940190, abs=1e-6)
    chance, answer = flip_chances(held_out)
    assert (chance / 2 + 0.5).tolist() == pytest.approx([0.731059, 0.880797, 0.731059, 0.622459], abs=1e-6)
    assert answer.tolist() == [1, 1, 0, 1]
    assert (chance * (answer != LABELS)).tolist() == pytest.approx([0.462117, 0, 0, 0], abs=1e-6)
    assert infer_mistakes(FIRST, SECOND, LABELS).tolist() == [1, 0, 0, 1]


def test_each_twin_learns_from_its_own_rows_alone() -> None:
    objective = twins()
    objective(whole_batch())[0].backward()
    assert objective.model.logits.grad.abs().sum(1).bool().tolist() == SIDE.tolist()  # type: ignore[union-attr, operator]
    assert objective.twin.logits.grad.abs().sum(1).bool().tolist() == (~SIDE).tolist()  # type: ignore[union-attr, operator]


def test_labels_flip_as_often_as_their_chance_says_and_the_same_again_from_the_same_seed() -> None:
    flipped = []
    for seed in range(500):
        objective = twins(seed)
        logs = objective(whole_batch())[1]
        assert objective.current[1:].tolist() == LABELS[1:].tolist()
        assert logs["flipped"].item() == pytest.approx((objective.current[0] != 0).item() / 4)
        flipped.append(objective.current[0].item())
    assert np.mean(flipped) == pytest.approx(0.462117, abs=4 * math.sqrt(0.25 / 500))
    one, other = twins(7), twins(7)
    for _ in range(3):
        one(whole_batch()), other(whole_batch())
        assert torch.equal(one.current, other.current)
    assert one.steps == 3
    assert {"current", "steps"} < set(one.state_dict())


def test_a_class_without_a_row_adds_nothing_and_rows_count_by_their_weight() -> None:
    losses, labels = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2])
    assert group_means(losses, labels, torch.tensor([5.0, 3.0, 1.0]), 3).tolist() == [1, 0, 10 / 4]


def test_a_class_in_a_single_part_is_kept_as_one_if_asked() -> None:
    lab = missing(lab_of(make_examples(48)), [0])
    stage = list(XRM(single_part="keep").stages(lab))[1]
    assert stage.groups is not None
    assert torch.bincount(stage.groups).tolist() == [23, 1, 24]


# SPARE and the clusters.
def test_chances_to_be_drawn_are_those_worked_by_hand() -> None:
    parts = np.repeat([0, 1], [90, 10])
    for power, expected in ((1, (0.005556, 0.05)), (2, (0.001111, 0.09)), (0, (0.01, 0.01))):
        found = drawing_chances(parts, power)
        assert found[[0, 99]] == pytest.approx(expected, abs=1e-6)
        assert found.sum() == pytest.approx(1)
    assert drawing_chances(parts, 2)[90:].sum() == pytest.approx(0.9)


def test_every_class_is_drawn_equally_often() -> None:
    examples = make_examples(48)
    examples.labels[:] = torch.tensor([0] * 36 + [1] * 12)
    lab = lab_of(examples)
    stage = second_stage(SPARE(), lab)
    assert stage.sampling is not None
    assert stage.sampling[:36].sum() == pytest.approx(0.5)
    assert stage.sampling.sum() == pytest.approx(1)


POINTS = np.array([0, 0.1, 0.2, 0.3, 2, 2.2])[:, None]


def test_silhouettes_are_those_worked_by_hand_and_0_of_a_point_alone_of_equal_points_and_of_one_cluster() -> None:
    for found, expected in (([0, 0, 0, 0, 1, 1], 0.905684), ([0, 0, 1, 1, 2, 2], 0.608303)):
        assert mean_of_clusters(*silhouettes(POINTS, np.array(found), draws())) == pytest.approx(expected, abs=1e-6)
    assert silhouettes(POINTS, np.array([0, 0, 0, 0, 0, 1]), draws())[0][5] == 0
    assert silhouettes(np.ones((4, 2)), np.array([0, 0, 1, 1]), draws())[0].tolist() == [0] * 4
    assert silhouettes(POINTS, np.zeros(6, np.int64), draws())[0].tolist() == [0] * 6


def test_silhouettes_of_many_points_are_those_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    points = draws().normal(size=(1200, 2)) + np.repeat([[0.0], [8.0]], 600, axis=0)
    found = np.repeat([0, 1], 600)
    whole, _ = silhouettes(points, found, draws())
    monkeypatch.setattr(clusters, "SAMPLE", 200)
    some, theirs = silhouettes(points, found, draws())
    assert len(some) == len(theirs) == 200
    assert some.mean() == pytest.approx(whole.mean(), abs=0.02)


def test_k_means_finds_clusters_again_from_the_same_seed_and_ends_where_all_points_are_equal() -> None:
    truth = np.repeat(np.arange(4), 50)
    points = draws(1).normal(size=(200, 3)) + 12 * draws(2).normal(size=(4, 3))[truth]
    found, centres = k_means(points, 4, draws())
    assert [len(np.unique(found[truth == part])) for part in range(4)] == [1] * 4
    assert len(np.unique(found)) == 4
    for part in range(4):
        assert centres[part] == pytest.approx(points[found == part].mean(axis=0))
    assert np.array_equal(k_means(points, 4, draws())[0], found)
    found, centres = k_means(np.ones((5, 2)), 3, draws())
    assert len(np.unique(found)) == 1
    assert np.isfinite(centres).all()


# CnC.
def test_pairs_are_those_worked_by_hand() -> None:
    labels, predicted = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 0])
    positive, negative = (mask.nonzero().tolist() for mask in contrast_pairs(labels, predicted))
    right = {(anchor, other) for anchor, other in map(tuple, positive) if anchor in (0, 1, 3, 4)}
    assert right == {(0, 2), (1, 2), (3, 5), (4, 5)}
    assert {tuple(pair) for pair in negative if pair[0] in (0, 1, 3, 4)} == {(0, 5), (1, 5), (3, 2), (4, 2)}
    # The mirrored anchors: row 2 was taken for class 1, whose right rows are 3 and 4.
    assert {tuple(pair) for pair in positive if pair[0] in (2, 5)} == {(2, 0), (2, 1), (5, 3), (5, 4)}
    assert {tuple(pair) for pair in negative if pair[0] in (2, 5)} == {(2, 3), (2, 4), (5, 0), (5, 1)}


def test_a_class_that_is_never_taken_for_another_contrasts_with_all_others() -> None:
    labels, predicted = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])
    _, negative = contrast_pairs(labels, predicted, torch.tensor([True, False, True]))
    assert negative[0].tolist() == [False, False, True, True]
    assert negative[1].tolist() == [False, False, True, False]
    model = Small(2)
    objective = CorrectContrast(model, model.head, predicted, labels)
    assert objective.faultless.tolist() == [True, False, True]


ANCHOR = torch.tensor([[1.0, 0]])
OTHERS = torch.tensor([[0.8, 0.6], [0.6, 0.8], [0, 1], [-0.6, 0.8]])
POSITIVE = torch.tensor([[True, True, False, False]])


@pytest.mark.parametrize(("single", "expected"), [(False, 1.127224), (True, 0.001409)])
def test_the_contrast_is_that_worked_by_hand(single: bool, expected: float) -> None:
    similarity = ANCHOR.double() @ OTHERS.double().T / 0.1
    assert contrast(similarity, POSITIVE, ~POSITIVE, single).item() == pytest.approx(expected, abs=1e-6)


def test_an_anchor_without_a_positive_or_a_negative_costs_nothing_and_has_a_gradient() -> None:
    similarity = torch.zeros(2, 2, requires_grad=True)
    nothing, some = torch.tensor([[False, False], [True, False]]), torch.tensor([[True, True], [False, False]])
    for single in (False, True):
        losses = contrast(similarity, nothing, some, single)
        assert losses.tolist() == [0, 0]
        losses.sum().backward()
        assert torch.isfinite(similarity.grad).all()  # type: ignore[arg-type]


def test_both_terms_of_the_contrast_and_cross_entropy_are_weighted_as_told() -> None:
    """Anchor 0 is right, with positives 1 and 2 (missed) and negatives 3 and 4 (taken for its class)."""
    features = torch.cat([ANCHOR, OTHERS])
    labels, predicted = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 1, 0, 0])
    model = Small(2)
    objective = CorrectContrast(model, model.head, predicted, labels)
    right, wrong = objective.contrasts(3 * features, labels, predicted, torch.ones(5))
    assert right.item() == pytest.approx(1.127224, abs=1e-5)
    assert wrong.item() == 0  # nobody was right about class 1, which the missed rows were taken for
    loss, logs = objective(Batch({"x": features}, labels, torch.arange(5), torch.ones(5)))
    task = nn.functional.cross_entropy(model.head(features), labels).item()
    assert loss.item() == pytest.approx(0.25 * task + 0.75 * 1.127224, abs=1e-5)
    assert logs["task"].item() == pytest.approx(task)
    assert {"predicted", "faultless"}.isdisjoint(objective.state_dict())
    assert not [name for name in objective.state_dict() if not name.startswith("model.")]


def test_half_of_the_rows_of_the_second_training_were_missed() -> None:
    lab = missing(lab_of(make_examples(40)), slice(4))
    stage = list(CnC().stages(lab))[1]
    assert stage.sampling is not None
    assert stage.sampling[:4].sum() == pytest.approx(stage.sampling[4:].sum())


@pytest.mark.parametrize(("wrong", "said"), [(0, "nothing"), (40, "everything")])
def test_cnc_says_where_there_are_no_pairs(wrong: int, said: str, caplog: pytest.LogCaptureFixture) -> None:
    lab = missing(lab_of(make_examples(40)), slice(wrong))
    assert list(CnC().stages(lab))[1].sampling is None
    assert f"missed {said}" in caplog.text


# GEORGE.
def test_hardness_is_that_worked_by_hand() -> None:
    towards, rest = hardness(np.array([[1.0, 1, 0]]), np.array([[1.0, 2, 0], [0, 2, 1]]))
    assert towards.tolist() == pytest.approx([-0.707107], abs=1e-6)
    assert rest[0] == pytest.approx([0.5, 1, 0.5])


def test_the_number_of_clusters_is_found() -> None:
    truth = np.repeat(np.arange(3), 40)
    points = draws(1).normal(size=(120, 2)) + np.array([[0, 0], [0, 30], [30, 0]])[truth]
    found, centres = best_clusters(points, 6, draws())
    assert sorted(np.bincount(found)) == [40, 40, 40]
    assert len(centres) == 3


@pytest.mark.parametrize("reduction", ["pca", "hardness"])
def test_clusters_stay_inside_their_class(reduction: Any) -> None:
    lab = lab_of(make_examples(48))
    stage = second_stage(GEORGE(reduction=reduction, most_clusters=4), lab)
    assert stage.groups is not None
    assert stage.sampling is None
    assert stage.validation_parts is not None
    for label in (0, 1):
        own, others = (set(stage.groups[lab.labels == each].tolist()) for each in (label, 1 - label))
        assert not own & others
        assert set(stage.validation_parts[lab.validation.labels == label].tolist()) <= own


# All four.


@pytest.mark.parametrize(("name", "parts"), [("erm", 0), ("spare", 4), ("group-dro", 0)])
def test_a_run_keeps_the_parts_that_its_method_inferred(name: str, parts: int, tmp_path: Path) -> None:
    train_run(recipe(name), tmp_path)
    assert (tmp_path / "inferred-parts.parquet").exists() == (parts > 0)
    if parts:
        table = pd.read_parquet(tmp_path / "inferred-parts.parquet")
        assert list(table) == ["row", "part"]
        assert table["row"].tolist() == list(range(32))
        assert table["part"].nunique() == parts


def test_a_fall_by_more_than_ten_points_is_told(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_fall("XRM", 0.9, 0.81, "compare")
    assert not caplog.text
    warn_of_fall("XRM", 0.9, 0.79, "compare this")
    assert "XRM lowers the accuracy on validation from 90.0% to 79.0%" in caplog.text
    assert "merely hard: compare this" in caplog.text


# A known truth: one number tells the class weakly, another strongly where the shortcut holds; 18 tell nothing.
def numbers(count: int, agree: float, seed: int, blurred: bool) -> tuple[Examples, Tensor]:
    """Return rows of which a share ``agree`` follows the shortcut, and which do; 18 numbers more tell nothing."""
    x, labels, follows = drawn(count, agree, seed, *((0.7, 1.5) if blurred else (0.3, 3)), noise=18)
    rows = Pictures(torch.from_numpy(x).float(), "x")
    return Examples(rows, torch.from_numpy(labels), ("no", "yes"), "drawn"), torch.from_numpy(follows)


METHODS: dict[str, Method] = {
    "erm": ERM(),
    "xrm": XRM(),
    "spare": SPARE(),
    "cnc": CnC(),
    "george": GEORGE(most_clusters=4),
}


@functools.cache
def accuracy(name: str, agree: float, blurred: bool = False) -> tuple[float, float]:
    """Train on rows with the shortcut; return the accuracy on rows that follow it, and on those that do not."""
    train, validation = numbers(2000, agree, 0, blurred)[0], numbers(1000, agree, 1, blurred)[0]
    options = {"epochs": 20, "batch_size": 250, "learning_rate": 1e-2, "select": "last"}
    lab = lab_of(train, validation, functools.partial(Small, 20), **options)
    test, follows = numbers(4000, 0.5, 2, blurred)
    right = lab.predict(fit(METHODS[name], lab), test.inputs).argmax(-1) == test.labels
    return right[follows].double().mean().item(), right[~follows].double().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "agree", "blurred", "low", "high"),
    [
        ("xrm", 0.95, False, 0.5, 0.7),
        ("spare", 0.95, False, -0.05, 0.05),  # no cure
        ("cnc", 0.95, False, 0.2, 0.4),
        ("george", 0.95, False, 0.5, 0.7),
        ("spare", 0.8, False, 0.1, 0.2),
        ("xrm", 0.95, True, 0.25, 0.45),
        ("cnc", 0.95, True, -0.12, -0.04),
        ("george", 0.95, True, -0.1, 0.05),  # where the shortcut forms no clusters, none are found
    ],
)
@pytest.mark.long
def test_rows_against_a_shortcut_are_served_better_or_not(
    name: str, agree: float, blurred: bool, low: float, high: float
) -> None:
    """Plain training gets 20% of them right at 95%, 59% at 80%, and 35% at 95% where the shortcut is blurred."""
    gain = accuracy(name, agree, blurred)[1] - accuracy("erm", agree, blurred)[1]
    assert low < gain < high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("xrm", 0.05, 0.1), ("cnc", 0.03, 0.07), ("spare", -0.01, 0.01), ("george", -0.01, 0.01)],
)
@pytest.mark.long
def test_what_they_cost_where_there_is_no_shortcut(name: str, low: float, high: float) -> None:
    """Plain training gets 84% right; XRM and CnC give weight to rows that are merely hard."""
    assert low < np.mean(accuracy("erm", 0.5)) - np.mean(accuracy(name, 0.5)) < high
