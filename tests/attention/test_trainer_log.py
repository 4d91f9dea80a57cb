"""``lh.DebiasLog`` under the Hugging Face Trainer: its figures are those of the pass, and it changes no training."""

from contextlib import nullcontext

import pytest
import torch
from test_trainer import Examples, InOrder, arguments
from tiny_models import LABELS, build, make

import levelhead as lh
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.standardize import RunningMoments


@pytest.mark.parametrize(("kind", "family"), [("attach", "vit"), ("attach", "bert"), ("append", "bert")])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_log_holds_alignment_and_statistics(kind, family, accumulated, tmp_path):
    rows = Examples(family)
    reference = make(kind, family).train()
    standardizer = debiased_attention(reference).debias
    terms, tasks = [], []
    for inputs in rows.inputs[:accumulated]:
        output = reference(**inputs)
        terms.append(lh.alignment(reference, LABELS).item())
        tasks.append(torch.nn.functional.cross_entropy(output.logits, LABELS).item())

    trainer = InOrder(
        make(kind, family),
        arguments(tmp_path, gradient_accumulation_steps=accumulated),
        train_dataset=rows,
        callbacks=[lh.DebiasLog()],
    )
    with pytest.warns(UserWarning, match="accumulated") if accumulated > 1 else nullcontext():
        trainer.train()
    logged = next(row for row in trainer.state.log_history if "loss" in row)
    assert logged["alignment"] == pytest.approx(sum(terms) / accumulated, abs=1e-3)
    assert logged["task_loss"] == pytest.approx(sum(tasks) / accumulated, abs=1e-3)
    assert logged["statistics_batches"] == accumulated
    # The running means started at 0. In float64, by hand.
    seen = [
        part for part in standardizer.modules() if isinstance(part, RunningMoments) and part.num_batches_tracked.any()
    ]
    moved = [(one.mean.double().square() / (one.variance.double() + one.eps)).mean().item() for one in seen]
    assert logged["statistics_shift"] == pytest.approx((sum(moved) / len(moved)) ** 0.5, rel=1e-3)
    assert not any("alignment" in row for row in trainer.state.log_history if "loss" not in row)


def test_it_changes_no_training(tmp_path):
    weights = []
    for callbacks in ([], [lh.DebiasLog()]):
        model = make("attach", "bert")
        torch.manual_seed(0)
        given = arguments(tmp_path, num_train_epochs=2, max_steps=-1, learning_rate=1e-2)
        InOrder(model, given, train_dataset=Examples("bert"), callbacks=callbacks).train()
        weights.append(model.state_dict())
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_a_plain_model_is_warned_of_and_trains(tmp_path):
    trainer = InOrder(build("vit"), arguments(tmp_path), train_dataset=Examples("vit"), callbacks=[lh.DebiasLog()])
    with pytest.warns(UserWarning, match="has no debiased attention: DebiasLog logs nothing"):
        trainer.train()
    assert not any("alignment" in row for row in trainer.state.log_history)


def test_without_alignment_the_statistics_are_logged(tmp_path):
    model = lh.attach(build("bert"), lh.DebiasConfig(alpha=0))
    trainer = InOrder(model, arguments(tmp_path), train_dataset=Examples("bert"), callbacks=[lh.DebiasLog()])
    trainer.train()
    logged = next(row for row in trainer.state.log_history if "loss" in row)
    assert "alignment" not in logged
    assert logged["statistics_batches"] == 1


def test_one_log_serves_two_trainings(tmp_path):
    log = lh.DebiasLog()
    found = []
    for _ in range(2):
        trainer = InOrder(make("attach", "vit"), arguments(tmp_path), train_dataset=Examples("vit"), callbacks=[log])
        trainer.train()
        found.append(next(row["alignment"] for row in trainer.state.log_history if "loss" in row))
    assert found[0] == found[1]
