"""CCL-K: its weights and loss in float64, plain alignment where Z is constant, and what it declares that it sees."""

import numpy as np
import pytest
import torch
from labs import lab_of

from levelhead.attention.contrastive import supervised_contrastive
from levelhead.methods.cclk import CCLK, conditioned
from levelhead.methods.dam import DAM
from levelhead.methods.fit import fit
from tiny import make_examples, tiny_vit

CODES, LABELS = torch.tensor([0, 1, 0, 2, 1, 0]), torch.tensor([0, 0, 1, 1, 1, 0])


def own_weights(bandwidth, ridge):
    codes, labels = CODES.numpy(), LABELS.numpy()
    kernel = np.where(codes[:, None] == codes, 1, np.exp(-2 / bandwidth))
    weights = np.maximum(np.linalg.inv(kernel + ridge * np.eye(6)) @ kernel, 0)
    for row in range(6):
        other = labels != labels[row]
        weights[row, other] *= other.sum() / max(weights[row, other].sum(), 1e-300)
        weights[row, ~other] = 1
    return weights


@pytest.mark.parametrize("bandwidth", [0.1, 1.0, 30.0])
def test_weights_and_loss_are_those_of_the_formula(bandwidth):
    weights = own_weights(bandwidth, 0.01)
    found = conditioned(CODES, LABELS, bandwidth, 0.01)
    assert found.numpy() == pytest.approx(weights, abs=1e-6)
    z = np.random.default_rng(0).normal(size=(6, 4))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    raised, losses = np.exp(z @ z.T / 0.07), []
    for row in range(6):
        rest = np.arange(6) != row
        positive = rest & (LABELS.numpy() == LABELS[row].item())
        share = raised[row, positive] / (weights[row] * raised[row])[rest].sum()
        losses.append(-np.log(share).mean())
    loss = supervised_contrastive(torch.tensor(z), LABELS, pairs=found)
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-6)


def test_only_rows_alike_in_z_are_contrasted():
    found = conditioned(CODES, LABELS, 0.1, 0.01)
    assert found[0].tolist() == pytest.approx([1, 1, 3, 0, 0, 1], abs=1e-5)
    z = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    z.requires_grad_()
    supervised_contrastive(z, LABELS, pairs=conditioned(torch.arange(6), LABELS, 0.1, 0.01)).backward()
    assert torch.isfinite(z.grad).all()  # nobody is alike: attraction alone


def test_a_constant_z_is_plain_alignment():
    constant = conditioned(torch.zeros(6, dtype=torch.int64), LABELS, 0.1, 0.01)
    assert torch.allclose(constant, torch.ones(6, 6).double(), atol=1e-12)
    kept = []
    for method in (DAM(), CCLK(), CCLK(condition="people"), CCLK(condition="Young")):
        told = dict.fromkeys(("groups", "people", "other_labels"), torch.zeros(48, dtype=torch.int64))
        kept.append(fit(method, lab_of(make_examples(48), network=tiny_vit, told=told)).state_dict())
    for other in kept[1:]:
        assert all(torch.allclose(other[name], value, atol=1e-6) for name, value in kept[0].items())


def test_a_z_that_is_the_group_is_declared_and_one_that_is_another_label_is_blind():
    seen = {name: CCLK(condition=name) for name in ("group", "people", "Young")}
    assert {name: one.group_splits for name, one in seen.items()} == {"group": ("train",), "people": (), "Young": ()}
    assert [(one.told, one.uses_people, one.other_label) for one in seen.values()] == [
        (None, False, None),
        ("IDENTITIES", True, None),
        (None, False, "Young"),
    ]
