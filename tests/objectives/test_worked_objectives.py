"""Losses, gradients and logs of objectives, worked by hand on two or three rows or from their papers.

A row whose true class has the probability 1/2, 1/4 or 8/9 costs ln 2, 2 ln 2 or ln 9/8 nats.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

from levelhead.methods import Stage
from levelhead.methods.eiil import infer_environments
from levelhead.objectives import debiased
from levelhead.objectives.adversarial import AdversarialReweighting, adversarial_weights
from levelhead.objectives.cross_entropy import WeightedCrossEntropy, weighted_mean
from levelhead.objectives.debiased import WithAlignment
from levelhead.objectives.distillation import Distillation
from levelhead.objectives.failure import LearningFromFailure
from levelhead.objectives.group import InvariantRisk, WorstGroup, scale_slopes
from levelhead.objectives.robust import (
    DistributionallyRobust,
    chi_square_dual,
    chi_square_weights,
    conditional_value_at_risk,
)
from levelhead.types import Batch, ConfigError

LN2, LN3 = math.log(2), math.log(3)


class Fixed(nn.Module):
    """A network whose logits are its parameter, in double precision: row i of the batch is row ``rows[i]``."""

    def __init__(self, logits: list[list[float]] | Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.as_tensor(logits, dtype=torch.float32).clone())

    def forward(self, rows: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits[rows])


def probabilities(*true: float, labels: list[int]) -> Fixed:
    """A network that gives the true class of row i the probability ``true[i]``; two classes."""
    rows = [[math.log(p), math.log(1 - p)] for p in true]
    return Fixed([row if label == 0 else row[::-1] for row, label in zip(rows, labels, strict=True)])


def batch(labels: list[int], weight: list[float], *, group: list[int] | None = None, index: list[int] | None = None):
    rows = torch.arange(len(labels))
    return Batch(
        {"rows": rows},
        torch.tensor(labels),
        rows if index is None else torch.tensor(index),
        torch.tensor(weight),
        None if group is None else torch.tensor(group),
    )


def plain(logs: dict[str, Tensor]) -> dict[str, float]:
    assert not any(value.requires_grad for value in logs.values())
    return {name: value.item() for name, value in logs.items()}


def test_weighted_cross_entropy_divides_by_the_sum_of_weights() -> None:
    loss, logs = WeightedCrossEntropy(probabilities(1 / 2, 1 / 4, labels=[0, 1]))(batch([0, 1], [1.0, 3.0]))
    assert loss.item() == pytest.approx((1 * LN2 + 3 * 2 * LN2) / 4)
    assert logs == {}
    assert weighted_mean(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0])).item() == 3


def test_half_precision_logits_are_widened_before_the_logarithm() -> None:
    model = Fixed([[0.0, 8.0]])
    model.logits.data = model.logits.data.bfloat16()
    loss, _ = WeightedCrossEntropy(model)(batch([1], [1.0]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log1p(math.exp(-8)), rel=1e-3)


# Adversarial reweighting. The adversary's scores ln 3 and -ln 3 of the true classes give s = 3/4 and 1/4, mean 1/2:
# lambda = 1 + s / mean = 2.5 and 1.5.
def adversarial(pretrain: int = 0, rate: float | None = None) -> AdversarialReweighting:
    learner = probabilities(1 / 2, 1 / 4, labels=[0, 1])
    return AdversarialReweighting(learner, Fixed([[LN3, 9.0], [7.0, -LN3]]), pretrain, rate)


def test_learner_and_adversary_pull_at_the_same_sum_in_opposite_directions() -> None:
    objective = adversarial()
    loss, logs = objective(batch([0, 1], [1.0, 3.0]))
    learner = (1 * 2.5 * LN2 + 3 * 1.5 * 2 * LN2) / 4
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert plain(logs) == pytest.approx({"mean": 1.5 * LN2, "learner": learner, "largest_weight": 2.5})
    loss.backward()
    # weight x lambda x (p - 1[y = c]) / 4, lambda held fixed.
    assert objective.model.logits.grad.tolist() == [
        pytest.approx([-2.5 / 8, 2.5 / 8]),
        pytest.approx([3 * 1.5 * 3 / 16, -3 * 1.5 * 3 / 16]),
    ]
    # -(lambda_1 ln 2 + 6 lambda_2 ln 2) / 4 with d lambda_1 = (.5, -1.5) and d lambda_2 = (-.5, 1.5) by s, ds = 3/16.
    assert objective.adversary.logits.grad.tolist() == [
        pytest.approx([2.5 / 4 * LN2 * 3 / 16, 0]),
        pytest.approx([0, -7.5 / 4 * LN2 * 3 / 16]),
    ]


def test_the_adversary_begins_after_its_pretraining() -> None:
    objective = adversarial(pretrain=2)
    for _ in range(2):
        loss, logs = objective(batch([0, 1], [1.0, 3.0]))
        assert loss.item() == pytest.approx(7 / 4 * LN2)
        assert plain(logs) == pytest.approx({"mean": 1.5 * LN2})
    loss, logs = objective(batch([0, 1], [1.0, 3.0]))
    assert set(logs) == {"mean", "learner", "largest_weight"}
    assert objective.steps.item() == 3
    assert "steps" in objective.state_dict()
    assert objective.steps.dtype == torch.int64


def test_an_adversary_of_one_output_does_not_see_the_label() -> None:
    """The same scores as above from one output, whatever the labels are; ln 3 and -ln 3 give lambda 2.5 and 1.5."""
    learner = probabilities(1 / 2, 1 / 4, labels=[0, 1])
    objective = AdversarialReweighting(learner, Fixed([[LN3], [-LN3]]), 0, None)
    loss, logs = objective(batch([0, 1], [1.0, 3.0]))
    assert logs["learner"].item() == pytest.approx((1 * 2.5 * LN2 + 3 * 1.5 * 2 * LN2) / 4)
    loss.backward()
    assert objective.adversary.logits.grad.flatten().tolist() == pytest.approx(
        [2.5 / 4 * LN2 * 3 / 16, -7.5 / 4 * LN2 * 3 / 16]
    )
    other, _ = AdversarialReweighting(learner, Fixed([[LN3], [-LN3]]), 0, None)(batch([1, 0], [1.0, 3.0]))
    seen = AdversarialReweighting(learner, Fixed([[LN3, 9.0], [7.0, -LN3]]), 0, None)(batch([1, 0], [1.0, 3.0]))[1]
    assert other.item() == pytest.approx(0, abs=1e-6)
    assert seen["largest_weight"].item() != pytest.approx(2.5, abs=0.1), "one that sees labels has other scores here"


def test_the_adversary_has_a_learning_rate_of_its_own_where_one_is_given() -> None:
    objective = adversarial(rate=0.25)
    learner, adversary = objective.param_groups()
    assert learner == {"params": [objective.model.logits]}
    assert adversary == {"params": [objective.adversary.logits], "lr": 0.25}
    assert set(adversarial().param_groups()[1]) == {"params"}
    objective.model.logits.requires_grad_(False)
    assert objective.param_groups()[0] == {"params": []}


def test_adversarial_weights_of_scores_that_are_all_far_below_zero_stay_one() -> None:
    assert adversarial_weights(torch.full((2,), -100.0)).tolist() == [1, 1]
    # sigmoid(-9) = 1.234e-4 lies above the floor of 1e-4, sigmoid(-11) = 1.67e-5 below it.
    assert adversarial_weights(torch.full((2,), -9.0)).tolist() == pytest.approx([2, 2])
    assert adversarial_weights(torch.full((2,), -11.0)).tolist() == pytest.approx([1.1670, 1.1670], abs=1e-4)


def test_distillation_mixes_the_label_and_the_teachers_row_of_the_index() -> None:
    teacher = torch.tensor([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    objective = Distillation(probabilities(1 / 2, 1 / 4, labels=[0, 1]), teacher, soft=0.25)
    loss, logs = objective(batch([0, 1], [1.0, 3.0], index=[2, 0]))
    # The teacher is sure of class 0 for the first row and of class 1 for the second: as the labels.
    assert loss.item() == pytest.approx(7 / 4 * LN2)
    loss, logs = objective(batch([0, 1], [1.0, 3.0], index=[1, 2]))
    hard = 7 / 4 * LN2
    soft = (1 * LN2 + 3 * math.log(4 / 3)) / 4
    assert loss.item() == pytest.approx(0.75 * hard + 0.25 * soft)
    assert plain(logs) == pytest.approx({"hard": hard, "soft": soft})
    assert "teacher" not in objective.state_dict()


# Learning from failure. Losses of the kept network ln 2 and 2 ln 2, of the biased one 2 ln 2 and ln 2, both of class 1:
# scaled by the largest of the class (1/2, 1) and (1, 1/2), so weights 1 / 1.5 and .5 / 1.5.
@pytest.mark.parametrize("form", ["surrogate", "exact"])
def test_the_kept_network_learns_where_the_biased_one_fails(form: str) -> None:
    labels = [1, 1]
    kept, biased = probabilities(1 / 2, 1 / 4, labels=labels), probabilities(1 / 4, 1 / 2, labels=labels)
    objective = LearningFromFailure(kept, biased, torch.tensor([0, 1, 1]), form=form)
    loss, logs = objective(batch(labels, [1.0, 3.0], index=[1, 2]))
    of_kept = (2 / 3 * LN2 + 3 * 1 / 3 * 2 * LN2) / 4
    if form == "surrogate":
        easy = [0.7 * 4**-0.7 * 2 * LN2, 0.7 * 2**-0.7 * LN2]
    else:
        easy = [(1 - 4**-0.7) / 0.7, (1 - 2**-0.7) / 0.7]
    assert loss.item() == pytest.approx(of_kept + (easy[0] + 3 * easy[1]) / 4)
    assert plain(logs) == pytest.approx({"kept": of_kept, "mean_weight": 0.5})
    loss.backward()
    # The kept network: weight x (p - 1[y = c]), the weights held fixed.
    assert kept.logits.grad.tolist() == [
        pytest.approx([2 / 3 / 8, -2 / 3 / 8]),
        pytest.approx([3 / 3 * 3 / 16, -3 / 3 * 3 / 16]),
    ]
    assert objective.visited.tolist() == [False, True, True]
    assert objective.averages[:, 0].tolist() == [0, 0]


def test_each_row_is_compared_with_the_worst_row_of_its_class() -> None:
    objective = LearningFromFailure(nn.Identity(), nn.Identity(), torch.tensor([0, 1, 0, 1]), decay=0.75)
    weights = objective.weights(torch.tensor([0, 2, 3]), torch.tensor([0.2, 0.1, 0.3]), torch.tensor([0.1, 0.4, 0.3]))
    # Class 0: (1, .5) by (.25, 1); class 1 has one visited row, which is its worst.
    assert weights.tolist() == pytest.approx([1 / 1.25, 0.5 / 1.5, 0.5])
    weights = objective.weights(torch.tensor([2]), torch.tensor([0.5]), torch.tensor([0.0]))
    # Averages .75 x .1 + .25 x .5 = .2, the worst of class 0 together with row 0; and .3, the worst alone.
    assert objective.averages[:, 2].tolist() == pytest.approx([0.2, 0.3])
    assert weights.tolist() == pytest.approx([0.5])
    assert not weights.requires_grad


def test_the_size_adjustment_raises_q_of_small_groups() -> None:
    """q_g is proportional to exp(step (L_g + C / sqrt(n_g))): C / sqrt(n_g) is 2 / 2 and 2 / 4."""
    objective = WorstGroup(nn.Identity(), torch.tensor([4, 16]), step=0.5, adjustment=2.0)
    loss = objective.loss(torch.tensor([0.3, 0.3]), torch.tensor([0, 1]), torch.ones(2))
    small = math.exp(0.5 * 1.0) / (math.exp(0.5 * 1.0) + math.exp(0.5 * 0.5))
    assert objective.q.tolist() == pytest.approx([small, 1 - small])
    assert small > 0.5
    assert loss.item() == pytest.approx(0.3)  # the adjustment moves q alone


def test_small_weights_divide_by_their_own_sum() -> None:
    objective = WorstGroup(nn.Identity(), torch.tensor([4, 4, 4]), step=1.0)
    loss = objective.loss(torch.tensor([0.3, 0.6]), torch.tensor([0, 1]), torch.tensor([0.5, 0.25]))
    q = [math.exp(0.3), math.exp(0.6), 1.0]
    assert loss.item() == pytest.approx((q[0] * 0.3 + q[1] * 0.6) / sum(q))


def test_group_dro_weighs_rows_within_a_group_and_logs_the_plain_mean() -> None:
    objective = WorstGroup(probabilities(1 / 2, 1 / 4, 1 / 2, labels=[0, 1, 1]), torch.tensor([5, 5]), step=1.0)
    loss, logs = objective(batch([0, 1, 1], [1.0, 3.0, 2.0], group=[1, 1, 0]))
    # L_0 = ln 2; L_1 = (1 ln 2 + 3 x 2 ln 2) / 4 = 7/4 ln 2; q = (2, 2^(7/4)) normalised.
    q = [2 / (2 + 2**1.75), 2**1.75 / (2 + 2**1.75)]
    assert objective.q.tolist() == pytest.approx(q)
    assert loss.item() == pytest.approx(q[0] * LN2 + q[1] * 1.75 * LN2)
    assert plain(logs) == pytest.approx({"mean": 4 / 3 * LN2, "largest_q": q[1]})
    loss.backward()
    gradient = objective.model.logits.grad
    # Of the true classes: q_g x weight / weight of the group x (p - 1).
    assert [gradient[0, 0].item(), gradient[1, 1].item(), gradient[2, 1].item()] == pytest.approx(
        [-q[1] * 1 / 4 / 2, -q[1] * 3 / 4 * 3 / 4, -q[0] / 2]
    )
    assert set(objective.state_dict()) == {"q", "model.logits"}


# IRM on logits (0, ln 3), so that p = (1/4, 3/4): the slope is (3/4 - 1) ln 3 of class 1, and 3/4 ln 3 of class 0.
# Environment 0 holds one of each (mean ln 3 / 4), environment 2 one of class 1 (-ln 3 / 4), environment 1 none.
def invariant(**options: float) -> InvariantRisk:
    return InvariantRisk(Fixed([[0.0, LN3]] * 3), 3, **options)


IRM_BATCH = batch([1, 0, 1], [1.0, 1.0, 2.0], group=[0, 0, 2])
IRM_MEAN = (3 * math.log(4 / 3) + math.log(4)) / 4
IRM_PENALTY = ((LN3 / 4) ** 2 + (LN3 / 4) ** 2) / 2


def test_the_penalty_is_a_mean_over_the_environments_that_are_in_the_batch() -> None:
    objective = invariant(penalty=10.0, anneal_steps=1)
    loss, logs = objective(IRM_BATCH)
    assert plain(logs) == pytest.approx({"mean": IRM_MEAN, "penalty": IRM_PENALTY})
    assert loss.item() == pytest.approx(IRM_MEAN + IRM_PENALTY)


def test_after_annealing_the_loss_is_divided_by_the_weight_of_its_penalty() -> None:
    objective = invariant(penalty=10.0, anneal_steps=2)
    losses = [objective(IRM_BATCH)[0].item() for _ in range(3)]
    assert losses == pytest.approx([IRM_MEAN + IRM_PENALTY] * 2 + [(IRM_MEAN + 10 * IRM_PENALTY) / 10])
    assert objective.steps.item() == 3
    assert "steps" in objective.state_dict()
    assert objective.steps.dtype == torch.int64


def test_a_penalty_below_one_divides_nothing() -> None:
    objective = invariant(penalty=0.5, anneal_steps=0)
    assert objective(IRM_BATCH)[0].item() == pytest.approx(IRM_MEAN + 0.5 * IRM_PENALTY)
    assert (invariant().penalty, invariant().anneal_steps) == (1e4, 100)


def test_the_penalty_has_a_gradient() -> None:
    objective = invariant(penalty=1.0, anneal_steps=0)
    loss, _ = objective(IRM_BATCH)
    loss.backward()
    moved = objective.model.logits.detach().double().requires_grad_()
    p = moved.softmax(-1)
    labels = IRM_BATCH.labels
    mean = (IRM_BATCH.weight * -p[torch.arange(3), labels].log()).sum() / 4
    slope = (p * moved).sum(-1) - moved[torch.arange(3), labels]
    (mean + (((slope[0] + slope[1]) / 2) ** 2 + slope[2] ** 2) / 2).backward()
    assert torch.allclose(objective.model.logits.grad.double(), moved.grad, atol=1e-6)


def test_what_is_frozen_is_not_given_to_the_optimiser() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    assert WeightedCrossEntropy(model).param_groups() == [{"params": [model.weight]}]


class Task(WeightedCrossEntropy):
    """Cross-entropy with something to log and a parameter group of its own kind."""

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, _ = super().forward(batch)
        return loss, {"extra": torch.tensor(7.0)}

    def param_groups(self):
        return [{"params": [self.model.logits], "lr": 0.5}]


def test_alignment_is_added_alpha_times_with_the_batchs_labels_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = probabilities(1 / 2, 1 / 4, labels=[0, 1])

    def alignment(network: Fixed, labels: Tensor, weight: Tensor, pairs: Tensor | None) -> Tensor:
        assert network is model
        return (labels * weight).sum() * network.logits.sum() / network.logits.sum().detach()

    monkeypatch.setattr(debiased, "alignment", alignment)
    objective = WithAlignment(Task(model), alpha=0.5)
    assert objective.model is model
    assert objective.param_groups() == [{"params": [model.logits], "lr": 0.5}]
    loss, logs = objective(batch([0, 1], [1.0, 3.0]))
    assert loss.item() == pytest.approx(7 / 4 * LN2 + 0.5 * 3)
    assert plain(logs) == pytest.approx({"task": 7 / 4 * LN2, "align": 3, "extra": 7})
    monkeypatch.setattr(debiased, "alignment", None)  # not requested where it has no weight
    loss, logs = WithAlignment(Task(model), alpha=0)(batch([0, 1], [1.0, 3.0]))
    assert loss.item() == pytest.approx(7 / 4 * LN2)
    assert plain(logs) == pytest.approx({"task": 7 / 4 * LN2, "extra": 7})


# Distributionally robust: losses ln 2, 2 ln 2, 2 ln 2 and ln 4/3 of equal weights.
ROBUST = batch([0, 1, 0, 1], [1.0] * 4)


def robust(variant: str, **options: float) -> DistributionallyRobust:
    return DistributionallyRobust(probabilities(1 / 2, 1 / 4, 1 / 4, 3 / 4, labels=[0, 1, 0, 1]), variant, **options)


def test_above_a_fixed_eta_losses_count_by_their_power_and_weight() -> None:
    loss, logs = robust("fixed", eta=LN2, power=3.0)(batch([0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0]))
    assert loss.item() == pytest.approx((2 + 3) * LN2**3 / 10)
    assert plain(logs) == pytest.approx({"mean": (5 * LN2 + math.log(4 / 3)) / 4, "above_eta": 2 / 4})
    # ln 4/3 = .288 stands above .25 by a little, and by 1 / 16 of it squared.
    loss, logs = robust("fixed", eta=0.25)(ROBUST)
    losses = [LN2, 2 * LN2, 2 * LN2, math.log(4 / 3)]
    assert loss.item() == pytest.approx(sum((one - 0.25) ** 2 for one in losses) / 4)
    assert plain(logs)["above_eta"] == 1
    defaults = DistributionallyRobust(nn.Identity())
    assert (defaults.variant, defaults.eta, defaults.power, defaults.alpha) == ("fixed", 0.1, 2.0, 0.5)


def test_the_worst_share_of_a_batch() -> None:
    loss, logs = robust("cvar", alpha=0.625)(ROBUST)
    assert loss.item() == pytest.approx((2 * LN2 + 2 * LN2 + LN2 / 2) / 2.5)
    assert plain(logs) == pytest.approx({"mean": (5 * LN2 + math.log(4 / 3)) / 4})
    losses = torch.tensor([1.0, 3.0, 2.0, 0.0], requires_grad=True)
    conditional_value_at_risk(losses, 0.625).backward()
    assert losses.grad.tolist() == pytest.approx([0.5 / 2.5, 1 / 2.5, 1 / 2.5, 0])
    double = torch.tensor([1.0, 3.0], dtype=torch.float64)
    with torch.device("meta"):  # the default device does not matter
        value = conditional_value_at_risk(double, 0.75)
    assert value.item() == pytest.approx((3 + 1 / 2) / 1.5)
    assert value.dtype == torch.float64


def test_the_dual_of_two_losses_gives_the_larger_one_what_the_ball_allows() -> None:
    """Of two weights 1 - d and 1 + d the chi-square distance is d^2 / 2, and the radius (1/alpha - 1)^2."""
    for alpha in (0.7, 0.8, 0.95):
        d = math.sqrt(2) * (1 / alpha - 1)
        weights = chi_square_weights(torch.tensor([0.2, 1.0], dtype=torch.float64, requires_grad=True), alpha)
        assert weights.tolist() == pytest.approx([1 - d, 1 + d])
        assert not weights.requires_grad
        losses = torch.tensor([0.2, 1.0], dtype=torch.float64, requires_grad=True)
        value = chi_square_dual(losses, alpha)
        value.backward()
        assert value.item() == pytest.approx(0.6 + 0.4 * d)
        assert losses.grad.tolist() == pytest.approx([(1 - d) / 2, (1 + d) / 2])
    assert chi_square_weights(torch.tensor([0.2, 1.0]), 0.5).tolist() == [0, 2]  # the ball reaches d = 1
    assert chi_square_weights(torch.tensor([0.2, 1.0]), 1.0).tolist() == [1, 1]
    assert chi_square_weights(torch.tensor([0.2, 1.0]), 0.8).dtype == torch.float32


def test_the_dual_is_what_the_variant_minimises() -> None:
    loss, logs = robust("dual", alpha=0.8)(ROBUST)
    losses = torch.tensor([LN2, 2 * LN2, 2 * LN2, math.log(4 / 3)], dtype=torch.float64)
    assert loss.item() == pytest.approx(chi_square_dual(losses, 0.8).item())
    assert plain(logs) == pytest.approx({"mean": losses.mean().item()})
    # The weights meet the ball's edge: mean 1, squares on average 1 + 2 (1/alpha - 1)^2, none below 0.
    weights = chi_square_weights(losses, 0.8)
    assert weights.mean().item() == pytest.approx(1)
    assert weights.square().mean().item() == pytest.approx(1 + 2 * 0.25**2)
    assert (weights >= 0).all()


def test_variants_that_weigh_the_batch_refuse_other_weights_than_one() -> None:
    for variant in ("dual", "cvar"):
        objective = robust(variant)
        objective.check_weights(torch.ones(3))
        for call in (objective.check_weights, WithAlignment(objective, 1.0).check_weights):
            with pytest.raises(ConfigError, match=f"variant {variant} weighs the rows"):
                call(torch.tensor([1.0, 1.0, 0.5]))
        with pytest.raises(ConfigError, match="takes no importance weights"):  # before any step
            Stage(objective, weights=torch.tensor([1.0, 3.0]))
        with pytest.raises(ConfigError, match="takes no importance weights"):
            objective(batch([0, 1, 0, 1], [1.0, 1.0, 1.0, 2.0]))
    robust("fixed").check_weights(torch.tensor([0.5, 2.0]))
    WeightedCrossEntropy(nn.Identity()).check_weights(torch.tensor([0.5, 2.0]))


# Numbers worked out from the papers of the methods that are compared.
LOSSES = torch.tensor([0.05, 0.2, 0.5, 1.5], dtype=torch.float64)


def worst_weights(losses: np.ndarray, alpha: float) -> np.ndarray | None:
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
def test_value_and_gradient_of_the_dual_are_those_of_the_worst_weights(alpha: float) -> None:
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
        ([0.0, 5e-324], 0.5, None),
    ],
)
def test_the_dual_has_a_gradient_where_the_best_eta_is_the_largest_loss(
    numbers: list[float], alpha: float, weights: list[float] | None, dtype: torch.dtype
) -> None:
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
def test_the_dual_does_not_hide_a_broken_loss(broken: float) -> None:
    assert not math.isfinite(chi_square_dual(torch.tensor([0.1, broken, 0.3]), 0.5).item())


def test_environments_by_the_closed_form() -> None:
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


def test_the_slope_is_the_derivative_in_a_common_scale() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 1, 0])
    scale = torch.ones(5, 1, dtype=torch.float64, requires_grad=True)
    nn.functional.cross_entropy(scale * logits, labels, reduction="sum").backward()
    assert torch.allclose(scale.grad[:, 0], scale_slopes(logits, labels))


def test_group_dro_step() -> None:
    objective = WorstGroup(nn.Identity(), torch.ones(4)).double()
    losses, groups = torch.tensor([0.2, 0.5, 1.0, 2.0], dtype=torch.float64), torch.arange(4)
    loss = objective.loss(losses, groups, torch.ones(4, dtype=torch.float64))
    assert objective.q.tolist() == pytest.approx([0.248188, 0.248934, 0.250182, 0.252696], abs=1e-6)
    assert loss.item() == pytest.approx(0.929679, abs=1e-6)


def test_conditional_value_at_risk() -> None:
    assert conditional_value_at_risk(LOSSES, 0.5).item() == pytest.approx(1.0)
    assert conditional_value_at_risk(LOSSES, 0.375).item() == pytest.approx((1.5 + 0.5 * 0.5) / 1.5)
    assert conditional_value_at_risk(LOSSES, 1.0).item() == pytest.approx(LOSSES.mean().item())
