"""BMFT: its importances against float64 worked by hand, which weights it tunes, and what its new last layer is."""

import copy

import numpy as np
import pytest
import torch
from labs import Small
from torch.nn.functional import cross_entropy

from levelhead.data.base import Inputs
from levelhead.methods.bmft import BMFT, importance, largest_ratio, odds_gap
from levelhead.methods.last_layer import HeldOut, solve


class Numbers(Inputs):
    def __init__(self, x):
        self.x = torch.tensor(x, dtype=torch.float32)

    def __len__(self):
        return len(self.x)

    def batch(self, index):
        return {"x": self.x[index]}


def right_answers(model, x, labels):
    """Return in float64 the probability of each row's class, and its slopes in the weight and bias of the one unit."""
    one, head = (layer.state_dict() for layer in (model.body[0], model.head))
    weight, outer = (part["weight"].double().numpy() for part in (one, head))
    before = x @ weight.T + one["bias"].double().numpy()
    raised = np.exp(np.maximum(before, 0) @ outer.T + head["bias"].double().numpy())
    right = (raised / raised.sum(1, keepdims=True))[np.arange(len(x)), labels]
    margin = np.where(labels == 1, 1, -1) * (outer[1] - outer[0])
    inner = right * (1 - right) * margin * (before[:, 0] > 0)
    return right, inner[:, None] * np.hstack([x, np.ones((len(x), 1))])


def test_both_importances_are_those_worked_by_hand():
    torch.manual_seed(1)
    model = Small(2, 1)
    x = np.random.default_rng(0).normal(size=(12, 2))
    labels, groups = np.arange(12) % 2, np.arange(12) // 3 % 2
    right, inner = right_answers(model, x, labels)
    gap, slope = 0.0, np.zeros(3)
    for label in (0, 1):
        means = [(labels == label) & (groups == group) for group in (0, 1)]
        sign = np.sign(right[means[0]].mean() - right[means[1]].mean())
        gap += sign * (right[means[0]].mean() - right[means[1]].mean()) / 2
        slope += sign * (inner[means[0]].mean(0) - inner[means[1]].mean(0)) / 2
    told, inputs = (torch.from_numpy(labels), torch.from_numpy(groups)), torch.tensor(x, dtype=torch.float32)
    assert odds_gap(model(inputs).logits, *told).item() == pytest.approx(gap, abs=1e-6)
    of_loss = -(inner / right[:, None]).mean(0)
    for loss, expected in ((odds_gap, slope), (lambda logits, labels, _: cross_entropy(logits, labels), of_loss)):
        two = (part * loss(model(inputs).logits, *told) for part in (1, 3))  # of two batches: the mean of the squares
        found = torch.cat([each.flatten() for each in importance(list(model.body.parameters()), two)])
        assert found.numpy() == pytest.approx(5 * expected**2, rel=1e-4, abs=1e-9)


def test_the_largest_ratios_are_chosen_over_all_tensors():
    above, below = [torch.tensor([4.0, 1, 0]), torch.tensor([9.0])], [torch.tensor([2.0, 1, 0]), torch.tensor([3.0])]
    for share, chosen in ((0.25, [0, 0, 0, 1]), (0.5, [1, 0, 0, 1]), (0.75, [1, 1, 0, 1])):
        assert torch.cat(largest_ratio(above, below, share)).int().tolist() == chosen


def held_out(model, told=400):
    """Return rows whose second input is the group, which the network uses, beside the class in the first."""
    draws = np.random.default_rng(2)
    labels, groups = draws.integers(2, size=1000), draws.integers(2, size=1000)
    x = np.stack([2.0 * labels - 1, 2.0 * groups - 1], 1) + 0.7 * draws.normal(size=(1000, 2))
    features = model.body(torch.tensor(x, dtype=torch.float32)).detach()
    known = torch.from_numpy(np.where(np.arange(1000) < told, groups, -1))
    return HeldOut.of(model, features, torch.from_numpy(labels), known, 0, None, Numbers(x)), groups


def test_only_the_chosen_share_moves_and_the_gap_falls():
    torch.manual_seed(0)
    model = Small(2, 8)
    with torch.no_grad():
        model.head.weight.copy_(torch.stack([-model.head.weight[1], model.head.weight[1]]))
    held, groups = held_out(model)
    before, labels = copy.deepcopy(model.state_dict()), torch.from_numpy(held.labels)
    gap = odds_gap(torch.from_numpy(held.logits), labels, torch.from_numpy(groups))
    tuned = BMFT(share=0.25, rate=0.1, epochs=20).tune(model, held)
    moved = torch.cat([(one != before[name]).flatten() for name, one in model.body.state_dict(prefix="body.").items()])
    assert 0 < moved.sum() <= 6
    assert torch.equal(model.head.weight, before["head.weight"])
    assert tuned.features == pytest.approx(model.body(held.inputs.x).detach().double().numpy(), abs=1e-6)
    assert odds_gap(torch.from_numpy(tuned.logits), labels, torch.from_numpy(groups)) < 0.8 * gap


def test_the_new_layer_is_fitted_from_zero_where_groups_of_a_class_weigh_the_same():
    held = held_out(Small(2, 8))[0]
    known = held.known
    cell = 2 * known.labels + known.groups
    weights = np.bincount(known.labels)[known.labels] / 2 / np.bincount(cell)[cell] / len(cell)
    inputs = (known.features - known.features.mean(0)) / np.maximum(known.features.std(0), 1e-12)
    weight, bias = solve(inputs, known.labels, weights, (np.zeros((2, 8)), np.zeros(2)), 0.01)
    found = BMFT().refit(held)
    assert known.features @ found[0].T + found[1] == pytest.approx(inputs @ weight.T + bias, abs=1e-6)
