"""Automatic feature reweighting: weights and solution worked by hand, what it does to a shortcut, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from labs import drawn, lab_of, recipe

from levelhead.bench.tables import collect
from levelhead.methods.afr import AFR, row_weights
from levelhead.methods.dam import DAM
from levelhead.methods.fit import fit
from levelhead.methods.last_layer import HeldOut, last_layer, solve, watching_last_layer
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.train import train_run
from levelhead.types import DataError
from tiny import make_examples

LOGITS = np.array([[2.0, 0], [1, 0], [-1, 0], [0, 3], [0, 1], [0.5, 0]])
LABELS = np.array([0, 0, 0, 1, 1, 1])
SCORE = np.array([2.0, 1, -1, -3, -1, 0.5])[:, None]
HALF = (np.array([[0.5], [-0.5]]), np.zeros(2))


def test_weights_are_those_worked_by_hand() -> None:
    found = row_weights(LOGITS, LABELS, 4)
    assert found == pytest.approx([0.040924, 0.074491, 0.473025, 0.030711, 0.074491, 0.306357], abs=1e-6)
    assert 1 / (found**2).sum() == pytest.approx(3.0182, abs=1e-4)
    assert 1 / (row_weights(LOGITS, LABELS, 10) ** 2).sum() == pytest.approx(1.66, abs=5e-3)
    loss = np.log1p(np.exp(-np.array([2.0, 1, -1, 3, 1, -0.5])))
    assert found @ loss == pytest.approx(0.972978, abs=1e-6)


def test_a_gamma_of_0_balances_the_classes_and_a_large_one_does_not_underflow() -> None:
    found = row_weights(LOGITS, np.array([0, 0, 0, 0, 0, 1]), 0)
    assert found[:5].sum() == pytest.approx(0.5)
    large = row_weights(LOGITS, LABELS, 1e5)
    assert np.isfinite(large).all()
    assert large.sum() == pytest.approx(1)


def test_the_last_layer_is_that_worked_by_hand() -> None:
    weights = row_weights(np.hstack([SCORE / 2, -SCORE / 2]), LABELS, 4)
    weight, bias = solve(SCORE, LABELS, weights, HALF, 0.1)
    assert (weight[0, 0], bias[0]) == pytest.approx((-0.042729, 0.116970), abs=1e-6)
    assert (weight[1, 0], bias[1]) == pytest.approx((0.042729, -0.116970), abs=1e-6)
    logits = SCORE @ weight.T + bias
    loss = np.logaddexp(logits[:, 0], logits[:, 1]) - logits[np.arange(6), LABELS]
    away = ((weight - HALF[0]) ** 2).sum() + ((bias - HALF[1]) ** 2).sum()
    assert weights @ loss + 0.1 * away == pytest.approx(0.730637, abs=1e-6)


def test_no_step_away_from_the_solution_is_better() -> None:
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(200, 30)), generator.integers(3, size=200)
    start = (generator.normal(size=(3, 30)), np.zeros(3))
    weights = np.full(200, 1 / 200)
    weight, bias = solve(features, labels, weights, start, 0.01)

    def objective(weight: np.ndarray, bias: np.ndarray) -> float:
        logits = features @ weight.T + bias
        loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(200), labels]
        return float(weights @ loss + 0.01 * (((weight - start[0]) ** 2).sum() + ((bias - start[1]) ** 2).sum()))

    best = objective(weight, bias)
    for _ in range(20):
        assert best < objective(weight + 1e-3 * generator.normal(size=(3, 30)), bias)


def test_the_held_out_rows_are_not_trained_on_and_the_last_layer_alone_moves() -> None:
    place = lab_of(make_examples(64), epochs=6)
    stages = AFR(holdout=0.25).stages(place)
    stage = next(stages)
    assert stage.rows is not None
    assert len(stage.rows.unique()) == 48
    place.train(stage)
    model = stage.objective.model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert next(stages, None) is None
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}


def test_what_the_last_layer_gets_gives_the_logits() -> None:
    place = lab_of(make_examples(40), epochs=6)
    model = place.new_model()
    rows = torch.tensor([5, 0, 17, 39])
    with watching_last_layer(model) as inputs:
        features = place.compute(lambda batch, some: inputs(batch), rows=rows)
    assert torch.allclose(last_layer(model)(features), place.logits(model)[rows], atol=1e-5)
    assert model.training


def plain_layer(agree: float) -> tuple[HeldOut, tuple[np.ndarray, np.ndarray]]:
    """Return held-out rows of which a share ``agree`` follows the shortcut, and the layer trained on more of them."""
    train, labels, _ = drawn(2000, agree, 0)
    plain = solve(train, labels, np.full(2000, 1 / 2000), (np.zeros((2, 2)), np.zeros(2)), 1e-4)
    return HeldOut(*drawn(1000, agree, 1)[:2], *plain), plain


def right(layer: tuple[np.ndarray, np.ndarray], features: np.ndarray, labels: np.ndarray) -> float:
    return float(((features @ layer[0].T + layer[1]).argmax(1) == labels).mean())


@pytest.mark.parametrize(("agree", "better"), [(0.95, True), (0.8, False)])
def test_it_helps_against_a_strong_shortcut_and_harms_where_it_is_weak(agree: float, better: bool) -> None:
    """Right among rows that contradict the shortcut: plain training has 37 and 66%, AFR 80 and 6%."""
    held, plain = plain_layer(agree)
    weights = row_weights(held.features @ held.weight.T + held.bias, held.labels, 4)
    refitted = solve(held.features, held.labels, weights, plain, 0.01)
    against = drawn(4000, 0.0, 2)[:2]
    gain = right(refitted, *against) - right(plain, *against)
    assert gain > 0.3 if better else gain < -0.3


@pytest.mark.parametrize("agree", [0.95, 0.9, 0.8])
def test_the_default_keeps_the_accuracy_where_a_large_gamma_turns_the_scores_around(agree: float) -> None:
    held, plain = plain_layer(agree)
    default, large, before = (
        right(layer, held.features, held.labels)
        for layer in (AFR(penalty=0.01).refit(held), AFR(gamma=4, penalty=0.01).refit(held), plain)
    )
    assert default > before - 0.005
    assert large < before - (0.5 if agree == 0.8 else 0.05)


def test_it_warns_where_few_rows_carry_a_class(caplog: pytest.LogCaptureFixture) -> None:
    fit(AFR(gamma=1000.0), lab_of(make_examples(64), epochs=6))
    assert "held-out rows; the last layer will overfit them" in caplog.text


def test_no_epoch_can_be_chosen_anew_for_it(tmp_path: Path) -> None:
    for name in ("erm", "afr"):
        train = {"epochs": 1, "batch_size": 16, "keep_epochs": True, "device": "cpu"}
        data = {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 64}
        train_run(recipe(name, train=train, data=data), tmp_path / name)
        evaluate_run(tmp_path / name)
    (found,) = collect([tmp_path], "test")
    assert list(found.compare("erm").table.rows) == ["erm", "afr"]
    with pytest.raises(DataError, match="changes the network after its last epoch"):
        found.compare("erm", selection="val_accuracy")


def test_it_goes_under_debiased_attention() -> None:
    assert DAM(base=AFR()).changes_at_end
    assert not DAM().changes_at_end
