"""The same model, batches and optimiser give the same training in any loop: the model knows nothing of its loop."""

import pytest
import torch
from accelerate import Accelerator
from test_trainer import Examples, InOrder, arguments
from tiny_models import batch, fit, make

from levelhead.attention.aligning import debiased_attention

STEPS = 6


def optimizer_of(model):
    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)


def with_torch(model, folder):
    return fit(model, Examples("bert").inputs * (STEPS // 2))


def with_accelerate(model, folder):
    accelerator, losses = Accelerator(cpu=True), []
    loader = torch.utils.data.DataLoader(Examples("bert"), batch_size=6)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer_of(model), loader)
    prepared.train()
    for _ in range(STEPS // 2):
        for inputs in loader:
            loss = prepared(**inputs).loss
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
    return losses


def with_trainer(model, folder):
    losses = []

    class Spy(InOrder):
        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            losses.append(loss.item())
            return loss

    optimizer = optimizer_of(model)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    given = arguments(folder, max_steps=STEPS)
    Spy(model, given, train_dataset=Examples("bert"), optimizers=(optimizer, schedule)).train()
    return losses


@pytest.fixture(scope="module", params=["attach", "append"])
def reference(request):
    """What the bare loop does to each kind of model: losses, weights and statistics, logits."""
    model = make(request.param, "bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses = with_torch(model, None)
    assert len(losses) == STEPS
    assert losses[-1] < losses[0], "nothing was learnt, so nothing is compared"
    moved = {name.split(".")[0] for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"bert", "classifier", "alignment_head"} if request.param == "attach" else "backbone" not in moved
    return request.param, losses, model.eval()


@pytest.mark.parametrize("loop", [with_accelerate, with_trainer], ids=["accelerate", "trainer"])
def test_every_loop_trains_the_same_model(loop, reference, tmp_path):
    kind, expected, other = reference
    model = make(kind, "bert")
    losses = loop(model, tmp_path)
    assert losses == pytest.approx(expected, abs=1e-5)
    model.eval()
    assert debiased_attention(model).debias.key.num_batches_tracked.max() == STEPS
    torch.testing.assert_close(model.state_dict(), other.state_dict(), atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(model(**batch("bert", 9)).logits, other(**batch("bert", 9)).logits)
