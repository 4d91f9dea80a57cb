"""What weighting up the missed rows does where they are hidden by a shortcut, and where their labels are wrong."""

import functools

import pytest
import torch
from labs import Small

from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.objectives.failure import LearningFromFailure
from levelhead.types import Batch

ROWS, SIZE, EPOCHS = 4000, 21, 20
pytestmark = [pytest.mark.slow, pytest.mark.long]


def draw(*, agreement, wrong, seed):
    """Return rows, labels as written, true labels and a shortcut that agrees with the truth in a share of the rows."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, 2, (ROWS,), generator=generator)
    shortcut = torch.where(torch.rand(ROWS, generator=generator) < agreement, truth, 1 - truth)
    written = torch.where(torch.rand(ROWS, generator=generator) < wrong, 1 - truth, truth)
    told = 2 * shortcut - 1 + 0.1 * torch.randn(ROWS, generator=generator)
    rest = 0.3 * torch.randn(ROWS, SIZE - 1, generator=generator) + 0.112 * (2 * truth - 1)[:, None]
    return torch.cat([told[:, None], rest], 1), written, truth, shortcut


def train(objective, x, labels, weights, epochs=EPOCHS):
    """Train all of an objective's networks, and return a function that predicts with the kept one."""
    optimizer = torch.optim.AdamW(objective.parameters(), 1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(ROWS).split(64):
            loss, _ = objective(Batch({"x": x[rows]}, labels[rows], rows, weights[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return lambda inputs: objective.model(inputs).logits.argmax(-1)


def predictor(method, x, labels):
    torch.manual_seed(0)
    ones = torch.ones(ROWS)
    if method == "erm":
        return train(WeightedCrossEntropy(Small(SIZE, 64)), x, labels, ones)
    if method == "lff":
        return train(LearningFromFailure(Small(SIZE, 64), Small(SIZE, 64), labels), x, labels, ones)
    missed = train(WeightedCrossEntropy(Small(SIZE, 64)), x, labels, ones, epochs=1)(x) != labels
    upweight = float(method.removeprefix("jtt "))
    return train(WeightedCrossEntropy(Small(SIZE, 64)), x, labels, torch.where(missed, upweight, 1.0))


@functools.cache
def accuracy(method, agreement, wrong):
    """Train on such rows; return the accuracy on rows against the shortcut, and on all."""
    x, labels, _, _ = draw(agreement=agreement, wrong=wrong, seed=0)
    predict = predictor(method, x, labels)
    x, _, truth, shortcut = draw(agreement=0.5, wrong=0, seed=1)
    right = (predict(x) == truth).float()
    return right[truth != shortcut].mean().item(), right.mean().item()


@pytest.mark.parametrize("method", ["lff", "jtt 10"])
def test_what_a_shortcut_hides_is_learnt_better_than_by_erm(method):
    assert accuracy(method, 0.97, 0)[0] > accuracy("erm", 0.97, 0)[0] + 0.03


@pytest.mark.parametrize(("method", "low", "high"), [("lff", 0, 0.3), ("jtt 50", 0, 0.3), ("jtt 2", 0.85, 1)])
def test_rows_with_wrong_labels_turn_the_answers_round_and_a_small_weight_does_not(method, low, high):
    """Not a fault of the code: the weights put the wrong labels above the right ones (docs/methods/lff.md, jtt.md)."""
    assert accuracy("erm", 0.5, 0.2)[1] > 0.85
    assert low < accuracy(method, 0.5, 0.2)[1] < high
