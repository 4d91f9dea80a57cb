"""A training loop that leaves the alignment term out ends in an error; gradient accumulation is said once."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from test_trainer import Examples, InOrder, arguments
from tiny_models import LABELS, backbone, batch, build, make
from torch import nn
from torch.utils.checkpoint import checkpoint

from levelhead.attention import DebiasConfig, alignment, append_encoder, attach
from levelhead.attention.aligning import debiased_attention
from levelhead.types import LevelheadError

KINDS = [("attach", "vit"), ("attach", "bert"), ("append", "bert")]


class Weighted(InOrder):
    """The commonest recipe for class weights: the labels are read, not popped."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, inputs.get("labels"), torch.tensor([1.0, 2.0, 3.0]))
        return (loss, outputs) if return_outputs else loss


class WeightedWithAlignment(InOrder):
    """What the error tells to do."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, labels, torch.tensor([1.0, 2.0, 3.0]))
        if model.training:
            loss = loss + alignment(model, labels)
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_the_way_that_the_error_names_trains(kind, family, tmp_path):
    model = make(kind, family)
    trainer = WeightedWithAlignment(model, arguments(tmp_path), train_dataset=Examples(family))
    logged = trainer.train().training_loss
    reference = make(kind, family).train()
    logits = reference(**Examples(family).inputs[0]).logits
    expected = F.cross_entropy(logits, LABELS, torch.tensor([1.0, 2.0, 3.0])) + alignment(reference, LABELS)
    assert logged == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_with_alpha_0_an_own_loss_trains(kind, family, tmp_path):
    Weighted(make(kind, family, DebiasConfig(alpha=0)), arguments(tmp_path), train_dataset=Examples(family)).train()


LOSSES = {
    "logits": lambda outputs: outputs.logits.square().mean(),
    "one logit": lambda outputs: outputs.logits[0, 0],
    "hidden states": lambda outputs: outputs.hidden_states[-1].square().mean(),
    "a tuple": lambda outputs: F.cross_entropy(outputs[1], LABELS),
}


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
@pytest.mark.parametrize("how", ["all is trained", "the head alone is trained", "checkpointing"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_on_any_output_is_seen(family, loss, how):
    model = make("attach", family).train()
    if how == "checkpointing":
        model.gradient_checkpointing_enable()
    elif how == "the head alone is trained":
        model.requires_grad_(False)
        model.classifier.requires_grad_(True)
        model.alignment_head.requires_grad_(True)
        if loss == "hidden states":
            return  # nothing below the head has a gradient
    tuples = {"return_dict": False} if loss == "a tuple" else {"output_hidden_states": True}
    outputs = model(**batch(family), labels=LABELS, **tuples)
    with pytest.raises(LevelheadError, match="is not part of it"):
        LOSSES[loss](outputs).backward()


def test_a_loss_beside_that_of_the_model_is_free(family, labels):
    model = make("attach", family).train()
    outputs = model(**batch(family), labels=labels, output_hidden_states=True)
    (outputs.loss + sum(loss(outputs) for loss in LOSSES.values())).backward()
    outputs = model(**batch(family), labels=labels)  # the gradient of a part, as for weights of several losses
    torch.autograd.grad(outputs.loss, model.classifier.weight)
    model.zero_grad()
    outputs = model(**batch(family), labels=labels)
    outputs.loss.backward(retain_graph=True)
    outputs.logits.sum().backward()  # a second look, such as a gradient of one class


def test_a_part_trained_alone_is_refused(family, labels):
    model = make("attach", family).train()
    hidden = model.base_model(**batch(family)).last_hidden_state
    with pytest.raises(LevelheadError, match="Call the whole model"):
        hidden.square().mean().backward()
    model = append_encoder(backbone("bert"), 3).train()
    with pytest.raises(LevelheadError, match="Call the whole model"):
        model.block(torch.randn(4, 5, 16)).sum().backward()
    model(**batch("bert"), labels=labels)
    model.eval()
    model.block(torch.randn(4, 5, 16, requires_grad=True)).sum().backward()  # a saliency map, for instance


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_model_run_under_a_checkpoint_of_ones_own_trains(family, reentrant):
    model = attach(build(family), DebiasConfig(alpha=0)).train()
    inputs = batch(family)
    anchor = torch.zeros(1, requires_grad=True)  # the reentrant kind needs an input with a gradient
    logits = checkpoint(lambda x: model(**inputs).logits + x, anchor, use_reentrant=reentrant)
    logits.sum().backward()
    assert model.classifier.weight.grad is not None


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_gradient_accumulation_is_said_once(kind, family, tmp_path):
    options = arguments(tmp_path, gradient_accumulation_steps=2)
    options.max_steps = 3
    with pytest.warns(UserWarning, match="accumulated") as caught:
        InOrder(make(kind, family), options, train_dataset=Examples(family)).train()
    assert len([one for one in caught if "accumulated" in str(one.message)]) == 1


@pytest.mark.parametrize("alpha", [0, 1])
@pytest.mark.parametrize("to_none", [True, False])
def test_a_loop_without_accumulation_is_quiet_and_one_with_it_is_not(family, labels, alpha, to_none):
    model = make("attach", family, DebiasConfig(alpha=alpha)).train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(12):  # the gradient of the step before still lies there in the forward pass
        loss = model(**batch(family), labels=labels).loss
        optimizer.zero_grad(set_to_none=to_none)
        loss.backward()
        optimizer.step()
    model = make("attach", family, DebiasConfig(alpha=alpha)).train()
    model(**batch(family), labels=labels).loss.backward()
    with pytest.warns(UserWarning, match="micro-batch alone"):
        model(**batch(family), labels=labels).loss.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(**batch(family), labels=labels).loss.backward()


def test_a_weight_behind_the_attention_does_not_look_like_accumulation(labels):
    model = attach(build("bert"), DebiasConfig(alpha=0)).train()
    model.requires_grad_(False)
    attention = debiased_attention(model)
    model.bert.embeddings.requires_grad_(True)
    attention.register_module("after", nn.Linear(16, 16))  # as an adapter on the output projection would be
    model.bert.encoder.layer[1].register_forward_hook(lambda module, args, output: attention.after(output))
    for _ in range(3):
        model.zero_grad()
        model(**batch("bert"), labels=labels).loss.backward()


def test_two_passes_in_one_loss_are_no_accumulation(family, labels):
    model = make("attach", family).train()
    for _ in range(2):
        model.zero_grad()
        first, second = (model(**batch(family, seed), labels=labels).loss for seed in (1, 2))
        (first + second).backward()


def test_alignment_finds_its_head_below_a_wrapper(family, labels):
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, **inputs):
            return self.module(**inputs)

    model = Wrapper(make("attach", family).train())
    logits = model(**batch(family)).logits
    (F.cross_entropy(logits, labels) + alignment(model, labels)).backward()
    assert model.module.alignment_head.hidden.weight.grad is not None
