"""The comparison methods' losses against numbers worked out from their papers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize

from levelhead.methods import Stage
from levelhead.methods.eiil import infer_environments
from levelhead.objectives.adversarial import adversarial_weights
from levelhead.objectives.cross_entropy import cross_entropies
from levelhead.objectives.debiased import WithAlignment
from levelhead.objectives.distillation import soft_cross_entropies
from levelhead.objectives.failure import LearningFromFailure, generalised_cross_entropies
from levelhead.objectives.group import WorstGroup, scale_slopes
from levelhead.objectives.robust import (
    DistributionallyRobust,
    above_threshold,
    chi_square_dual,
    conditional_value_at_risk,
)
from levelhead.types import Batch, ConfigError
from tiny import make_examples, tiny_vit

LOSSES = torch.tensor([0.05, 0.2, 0.5, 1.5], dtype=torch.float64)
ONES = torch.ones(4, dtype=torch.float64)


def two_class(positive: torch.Tensor) -> torch.Tensor:
    """Logits (n, 2) whose softmax gives these probabilities of class 1."""
    return torch.stack([(1 - positive).log(), positive.log()], -1)


def test_dro_with_a_fixed_eta():
    assert above_threshold(LOSSES, 0.25, 2.0, ONES).item() == pytest.approx(0.40625)
    assert above_threshold(LOSSES, 0.25, 1.5, ONES).item() == pytest.approx(0.380636, abs=1e-6)


def test_dro_below_eta_is_a_zero_with_a_graph():
    losses = LOSSES.clone().requires_grad_()
    loss = above_threshold(losses, 2.0, 2.0, ONES)
    loss.backward()
    assert loss.item() == 0
    assert losses.grad.abs().sum() == 0


def test_the_chi_square_dual_and_its_weights():
    losses = LOSSES.clone().requires_grad_()
    value = chi_square_dual(losses, 0.5)
    value.backward()
    assert value.item() == pytest.approx(1.353553, abs=1e-6)
    # The gradient is w / n with the worst weights w.
    assert torch.allclose(4 * losses.grad, torch.tensor([0, 0, 0.5858, 3.4142], dtype=torch.float64), atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 10), min_size=2, max_size=12),
    st.floats(0.05, 1.0),
    st.integers(0, 10_000),
)
@example([0.0, 5e-324], 0.5, 0)
def test_no_weights_in_the_ball_are_worse_than_the_dual(losses, alpha, seed):
    values = torch.tensor(losses, dtype=torch.float64)
    dual = chi_square_dual(values, alpha)
    weights = torch.rand(len(losses), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1e-3
    weights = weights / weights.mean()
    distance = 0.5 * (weights - 1).square().mean()
    radius = (1 / alpha - 1) ** 2
    shrink = min(1.0, math.sqrt(radius / distance)) if distance > 0 else 1.0
    inside = 1 + shrink * (weights - 1)
    assert (inside * values).mean() <= dual + 1e-6


def worst_weights(losses, alpha):
    """The weights of the ball that make the mean largest, by scipy from the definition alone; None if it fails."""
    count, largest = len(losses), 1 + 2 * (1 / alpha - 1) ** 2
    found = optimize.minimize(
        lambda w: -(w @ losses) / count,
        np.ones(count),
        jac=lambda w: -losses / count,
        bounds=[(0, None)] * count,
        constraints=[
            {"type": "eq", "fun": lambda w: w.mean() - 1, "jac": lambda w: np.full(count, 1 / count)},
            {"type": "ineq", "fun": lambda w: largest - (w @ w) / count, "jac": lambda w: -2 * w / count},
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return found.x if found.success else None


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5, 0.8, 0.97])
def test_value_and_gradient_of_the_dual_are_those_of_the_worst_weights(alpha):
    generator = np.random.default_rng(0)
    compared = 0
    for count in (2, 3, 7, 20):
        for _ in range(5):
            numbers = generator.exponential(size=count)
            losses = torch.tensor(numbers, requires_grad=True)
            value = chi_square_dual(losses, alpha)
            value.backward()
            if (weights := worst_weights(numbers, alpha)) is not None:
                compared += 1
                assert value.item() == pytest.approx((weights * numbers).mean(), abs=1e-7)
                assert (count * losses.grad).tolist() == pytest.approx(weights.tolist(), abs=2e-3)
    assert compared >= 10  # scipy gives up now and then


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("numbers", "alpha", "weights"),
    [
        ([0.3] * 12 + [1.3] * 8, 0.5, [0] * 12 + [2.5] * 8),  # the ball lets the eight largest have all
        ([0.7] * 6, 0.5, [1] * 6),  # a constant predictor
        ([0.0] * 4, 0.2, [1] * 4),
        ([0.05, 0.2, 0.5, 1.5], 1e-9, [0, 0, 0, 4]),
        ([0.05, 0.2, 0.5, 1.5], 5e-324, [0, 0, 0, 4]),
        ([0.05, 1.5, 1.5, 1.5], 0.9, None),  # not the corner: three of four are too many for so small a ball
        ([0.05, 0.2, 0.5, 1.5], 1.0, [1] * 4),
        ([0.25], 0.5, [1]),
    ],
)
def test_the_dual_has_a_gradient_where_the_best_eta_is_the_largest_loss(numbers, alpha, weights, dtype):
    losses = torch.tensor(numbers, dtype=dtype, requires_grad=True)
    value = chi_square_dual(losses, alpha)
    value.backward()
    found = len(numbers) * losses.grad
    assert torch.isfinite(found).all()
    assert found.double().mean().item() == pytest.approx(1, abs=1e-2)
    if weights is not None:
        assert found.tolist() == pytest.approx(weights, abs=1e-6)
        expected = np.mean(np.array(weights) * losses.detach().double().numpy())
        assert value.item() == pytest.approx(expected, rel=1e-2 if dtype is torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_the_dual_does_not_hide_a_broken_loss(broken):
    assert not math.isfinite(chi_square_dual(torch.tensor([0.1, broken, 0.3]), 0.5).item())


@pytest.mark.parametrize("variant", ["dual", "cvar"])
def test_variants_that_weigh_the_batch_refuse_importance_weights(variant):
    objective = DistributionallyRobust(tiny_vit(), variant)
    batch = objective_batch(torch.tensor([1.0, 1.0, 2.0, 1.0]))
    with pytest.raises(ConfigError, match=f"variant {variant} weighs the rows of a batch itself"):
        objective(batch)
    with pytest.raises(ConfigError, match="takes no importance weights"):  # before any step
        Stage(objective, weights=torch.tensor([1.0, 3.0]))
    with pytest.raises(ConfigError, match="takes no importance weights"):
        Stage(WithAlignment(objective, 1.0), weights=torch.tensor([1.0, 3.0]))
    Stage(objective, weights=torch.ones(2))
    assert torch.isfinite(objective(objective_batch(torch.ones(4)))[0])
    fixed = DistributionallyRobust(tiny_vit(), "fixed")
    Stage(fixed, weights=torch.tensor([1.0, 3.0]))
    assert torch.isfinite(fixed(batch)[0])


def objective_batch(weight):
    examples = make_examples(4)
    index = torch.arange(4)
    return Batch(examples.inputs.batch(index), examples.labels, index, weight)


def test_conditional_value_at_risk():
    assert conditional_value_at_risk(LOSSES, 0.5).item() == pytest.approx(1.0)
    assert conditional_value_at_risk(LOSSES, 0.375).item() == pytest.approx((1.5 + 0.5 * 0.5) / 1.5)
    assert conditional_value_at_risk(LOSSES, 1.0).item() == pytest.approx(LOSSES.mean().item())


def test_arl_weights_and_both_terms():
    losses = torch.tensor([0.1, 0.2, 0.3, 1.0], dtype=torch.float64)
    weights = adversarial_weights(torch.tensor([0.0, 1, -1, 2], dtype=torch.float64))
    expected = torch.tensor([1.840055, 2.228259, 1.451851, 2.479836], dtype=torch.float64)
    assert torch.allclose(weights, expected, atol=1e-5)
    assert weights.mean().item() == pytest.approx(2)
    assert (weights * losses).mean().item() == pytest.approx(0.886262, abs=1e-5)


def test_distillation():
    student, teacher = two_class(torch.tensor([0.7])), torch.tensor([[0.1, 0.9]])
    soft = soft_cross_entropies(student, teacher)
    hard = cross_entropies(student, torch.tensor([1]))
    assert soft.item() == pytest.approx(0.441405, abs=1e-6)
    assert (0.5 * hard + 0.5 * soft).item() == pytest.approx(0.399040, abs=1e-6)


def test_generalised_cross_entropy():
    logits, labels = two_class(torch.tensor([0.9, 0.5, 0.1])), torch.ones(3, dtype=torch.int64)
    exact = generalised_cross_entropies(logits, labels, 0.7)
    surrogate = generalised_cross_entropies(logits, labels, 0.7, "surrogate")
    assert exact.tolist() == pytest.approx([0.101569, 0.549183, 1.143534], abs=1e-5)
    assert surrogate.tolist() == pytest.approx([0.068509, 0.298677, 0.321598], abs=1e-5)


def test_the_surrogate_has_q_times_the_gradient():
    gradients = []
    for form in ("exact", "surrogate"):
        logits = torch.tensor([[0.3, -0.2], [1.0, 2.0]], requires_grad=True)
        generalised_cross_entropies(logits, torch.tensor([0, 1]), 0.7, form).sum().backward()
        gradients.append(logits.grad)
    assert torch.allclose(0.7 * gradients[0], gradients[1], atol=1e-6)


def failure(labels):
    return LearningFromFailure(torch.nn.Identity(), torch.nn.Identity(), torch.tensor(labels))


def test_failure_averages_and_weights():
    one = failure([0])
    for value in (1.0, 3.0, 0.5):
        one.weights(torch.tensor([0]), torch.tensor([value]), torch.tensor([value]))
        if value == 3.0:
            assert one.averages[0, 0].item() == pytest.approx(1.6)
    assert one.averages[0, 0].item() == pytest.approx(1.27)
    three = failure([0, 0, 1])
    weights = three.weights(torch.arange(3), torch.tensor([0.2, 1, 2]), torch.tensor([1.0, 1, 0.5]))
    assert weights.tolist() == pytest.approx([0.1667, 0.5, 0.5], abs=1e-4)


def test_failure_before_a_first_visit_is_defined():
    two = failure([0, 0, 1, 1])
    weights = two.weights(torch.tensor([0]), torch.tensor([0.0]), torch.tensor([0.0]))
    assert torch.isfinite(weights).all()
    assert two.visited.tolist() == [True, False, False, False]


def test_environments_by_the_closed_form():
    z, labels = torch.tensor([2.0, -1, 0.5, -3], dtype=torch.float64), torch.tensor([1, 1, 0, 0])
    slopes = scale_slopes(torch.stack([torch.zeros(4, dtype=torch.float64), z], -1), labels)
    assert slopes.tolist() == pytest.approx([-0.238406, 0.731059, 0.311230, -0.142278], abs=1e-6)
    chosen = infer_environments(torch.stack([torch.zeros(4, dtype=torch.float64), z], -1), labels)
    assert chosen.tolist() == [0, 1, 1, 0]

    def objective(q):
        return -((q * slopes).mean() ** 2 + ((1 - q) * slopes).mean() ** 2) / 2

    assert objective(chosen.double()).item() == pytest.approx(-0.038478, abs=1e-6)
    corners = [torch.tensor([i >> k & 1 for k in range(4)], dtype=torch.float64) for i in range(16)]
    assert min(objective(corner).item() for corner in corners) == pytest.approx(objective(chosen.double()).item())


def test_the_slope_is_the_derivative_in_a_common_scale():
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 1, 0])
    scale = torch.ones(5, 1, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy(scale * logits, labels, reduction="sum").backward()
    assert torch.allclose(scale.grad[:, 0], scale_slopes(logits, labels))


def test_group_dro_step():
    objective = WorstGroup(torch.nn.Identity(), torch.ones(4)).double()
    losses, groups = torch.tensor([0.2, 0.5, 1.0, 2.0], dtype=torch.float64), torch.arange(4)
    loss = objective.loss(losses, groups, torch.ones(4, dtype=torch.float64))
    assert objective.q.tolist() == pytest.approx([0.248188, 0.248934, 0.250182, 0.252696], abs=1e-6)
    assert loss.item() == pytest.approx(0.929679, abs=1e-6)


def test_group_dro_with_an_empty_group_stays_finite():
    objective = WorstGroup(torch.nn.Identity(), torch.tensor([3, 0, 5]), adjustment=1.0)
    loss = objective.loss(torch.tensor([1.0, 2.0]), torch.tensor([0, 0]), torch.ones(2))
    assert torch.isfinite(loss)
    assert torch.isfinite(objective.q).all()
    assert objective.q.sum().item() == pytest.approx(1)
