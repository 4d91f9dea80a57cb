"""BROAD against its formula in float64, plain adversarial debiasing, and a gap that an average hides."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from labs import Small
from torch.nn.functional import cross_entropy

from levelhead.methods.broad import BROAD
from levelhead.objectives.regions import RegionalDebiasing, boltzmann_weights
from levelhead.types import Batch, ConfigError

LABELS, GROUP = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
WEIGHT = torch.tensor([1.0, 1, 2, 1, 1, 1, 1, 1], dtype=torch.float64)
INPUTS = torch.tensor(np.random.default_rng(0).normal(size=(8, 3)), dtype=torch.float32)


def objective_of(tau, strength=0.7):
    torch.manual_seed(0)
    options = {"strength": strength, "tau": tau, "adversary_steps": 30, "adversary_rate": 0.1}
    return RegionalDebiasing(Small(3, 4), 2, 2, **options)


def gradients(tau, penalty=None):
    """Return the loss and the network's gradient; ``penalty`` makes the loss of the task and of the adversary's."""
    objective, batch = objective_of(tau), Batch({"x": INPUTS}, LABELS, torch.arange(8), WEIGHT, GROUP)
    if penalty is None:
        loss, _ = objective(batch)
    else:
        objective(batch)  # the adversary's steps
        objective.adversary.requires_grad_(False)
        logits = objective.model(INPUTS).logits
        losses = objective.adversary_losses(logits, batch)
        loss = penalty((WEIGHT * cross_entropy(logits, LABELS, reduction="none")).sum() / WEIGHT.sum(), losses)
    loss.backward()
    assert all(one.grad is None for one in objective.adversary.parameters())
    return loss.item(), torch.cat([one.grad.flatten() for one in objective.model.parameters()])


def own_weights(losses, tau):
    found = np.zeros(8)
    for rows in ([0, 1], [2, 3], [4, 5], [6, 7]):
        raised, mass = np.exp(-losses[rows] / tau), WEIGHT.numpy()[rows]
        found[rows] = raised / ((mass * raised).sum() / mass.sum())
    return found


@pytest.mark.parametrize("tau", [0.05, 0.5, 3.0])
def test_weights_are_those_of_the_formula_within_each_group_of_each_class(tau):
    losses = np.random.default_rng(1).uniform(0, 2, 8)
    found = boltzmann_weights(torch.tensor(losses), 2 * LABELS + GROUP, WEIGHT, tau)
    np.testing.assert_allclose(found, own_weights(losses, tau), rtol=1e-12)
    tiny = boltzmann_weights(torch.tensor(losses + 900), 2 * LABELS + GROUP, WEIGHT, 1e-3)
    assert torch.isfinite(tiny).all()


def test_a_large_tau_is_plain_adversarial_debiasing_in_its_gradients():
    plain = gradients(1e6, lambda task, losses: task - 0.7 * (WEIGHT * losses).sum() / WEIGHT.sum())
    loss, gradient = gradients(1e6)
    assert loss == pytest.approx(plain[0], abs=1e-5)
    assert torch.allclose(gradient, plain[1], atol=1e-5)
    assert not torch.allclose(gradients(0.05)[1], plain[1], atol=1e-3)


def test_a_gap_in_one_region_that_the_average_hides_gets_the_weight():
    # Groups differ at scores near 3, as much the other way near -3, and not at all near 0, where 80% of the rows are.
    centre = np.repeat([0.0, 0, 0, 0, 0, 0, 0, 0, 3, -3], 40)
    group = np.tile([0, 1], 200)
    score = centre + np.where(centre > 0, 0.5, -0.5) * np.where(centre == 0, 0, 2 * group - 1)
    assert score[group == 1].mean() == pytest.approx(score[group == 0].mean())
    local = centre != 0
    posterior = np.where(local, 0.95, 0.5)  # of the best adversary that gets the score
    weights = boltzmann_weights(
        torch.tensor(-np.log(posterior)), torch.from_numpy(group), torch.ones(400).double(), 0.2
    )
    raised = posterior**5
    assert weights[local].numpy() == pytest.approx(raised[local] / raised.mean())
    assert weights[local].mean() > 4 > 20 * weights[~local].mean() > 0


def test_the_adversary_learns_on_each_batch_and_no_optimiser_of_the_stage_moves_it():
    objective, batch = objective_of(0.5), Batch({"x": INPUTS}, LABELS, torch.arange(8), WEIGHT, GROUP)
    before = copy.deepcopy(objective.adversary.state_dict())
    objective(batch)
    assert any(not torch.equal(one, before[name]) for name, one in objective.adversary.state_dict().items())
    trained = {id(one) for group in objective.param_groups() for one in group["params"]}
    assert trained == {id(one) for one in objective.model.parameters()}


def test_several_processes_are_refused():
    with pytest.raises(ConfigError, match="trains in one process"):
        next(BROAD().stages(SimpleNamespace(accelerator=SimpleNamespace(num_processes=2))))
