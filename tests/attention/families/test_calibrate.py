"""Running statistics from data: pooled exactly, for attached and appended models."""

import copy
import re

import pytest
import torch
from tiny_models import LABELS, make, named
from transformers import BatchEncoding

import levelhead as lh
from levelhead.attention.aligning import debiased_attention
from levelhead.types import ConfigError

KINDS = pytest.mark.parametrize("kind", ["attach", "append"])
NAMES = pytest.mark.parametrize("name", ["vit", "bert", "modernbert-mean", "llama"])


def pieces(inputs):
    """The batch in parts of 1, 3 and 2 examples."""
    parts = {name: tensor.split([1, 3, 2]) for name, tensor in inputs.items()}
    return [{name: tensors[part] for name, tensors in parts.items()} for part in range(3)]


def statistics(model):
    return {
        name: buffer.clone()
        for name, buffer in debiased_attention(model).debias.named_buffers()
        if not name.endswith("num_batches_tracked")
    }


@KINDS
@NAMES
def test_evaluation_equals_training_on_the_one_big_batch(name, kind):
    family = named(name)
    inputs = family.batch()
    model = make(kind, family)
    assert lh.calibrate(model, pieces({**inputs, "labels": LABELS})) is model
    big = make(kind, family).train()
    # Somebody looks at the layer, so that it computes all rows and keeps the statistics of all queries.
    debiased_attention(big).register_forward_hook(lambda *_: None)
    expected = big(**inputs).logits
    torch.testing.assert_close(model.eval()(**inputs).logits, expected)
    torch.testing.assert_close(statistics(model), statistics(big))
    for name, buffer in debiased_attention(model).debias.named_buffers():
        if name.endswith("num_batches_tracked"):
            # Each part has an example of full length, so that every position counts.
            assert (buffer == 3).all()


@pytest.mark.parametrize("running", ["variance", "std"])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("rule", ["position", "cls_feature", "feature"])
def test_by_hand_for_each_kind_of_statistics(running, unbiased, rule):
    family = named("bert")
    inputs = family.batch()
    config = lh.DebiasConfig(statistics=rule, running=running, unbiased=unbiased, readout="first", eps=0.5)
    model = lh.append_encoder(family.encoder(), 3, debias=config, example_inputs=inputs).eval()
    lh.calibrate(model, pieces(inputs))
    block = model.block
    hidden = block.norm_attention(model.backbone(**inputs).last_hidden_state)
    correction = int(unbiased)
    for name, layer in (("query", block.attention.query), ("key", block.attention.key)):
        x = layer(hidden).view(6, 7, 2, 8)
        moments = debiased_attention(model).debias.get_submodule(name)
        if rule == "position":
            columns = [x[inputs["attention_mask"][:, n].bool(), n] for n in range(7)]
        else:
            columns = [x[inputs["attention_mask"].bool()]]
        mean = torch.stack([column.mean(0) for column in columns], dim=1)
        spread = torch.stack([column.var(0, correction=correction) for column in columns], dim=1)
        torch.testing.assert_close(moments.mean, mean)
        torch.testing.assert_close(
            moments.get_buffer(moments.spread_name), spread if running == "variance" else (spread + 0.5).sqrt()
        )
    if rule == "cls_feature":
        row = block.attention.query(hidden)[:, 0].view(6, 2, 8)
        readout = debiased_attention(model).debias.readout
        torch.testing.assert_close(readout.mean[:, 0], row.mean(0))


@KINDS
def test_padding_is_left_out(kind):
    family = named("bert")
    inputs = family.batch()
    padded = family.padded(inputs, left=False)
    padded["input_ids"] = padded["input_ids"] + 9 * (1 - padded["attention_mask"])
    first, second = (lh.calibrate(make(kind, family), pieces(variant)) for variant in (inputs, padded))
    torch.testing.assert_close(statistics(first), statistics(second))


@KINDS
def test_positions_that_no_text_reaches_keep_their_statistics(kind):
    family = named("bert")
    inputs = family.batch()
    config = lh.DebiasConfig(statistics="position", readout="first")
    if kind == "attach":
        model = lh.attach(family.classify(), config, example_inputs=inputs)
    else:
        model = lh.append_encoder(family.encoder(), 3, debias=config, example_inputs=inputs)
    lh.calibrate(model, pieces(inputs)[:1])
    key = debiased_attention(model).debias.key
    assert key.num_batches_tracked.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert (key.mean[:, 4:] == 0).all()
    assert (key.variance[:, 4:] == 1).all()
    assert (key.mean[:, :4] != 0).all()


@KINDS
def test_nothing_else_changes(kind):
    family = named("bert")
    options = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    torch.manual_seed(0)
    if kind == "attach":
        model = lh.attach(family.classify(**options)).train()
    else:
        model = lh.append_encoder(family.encoder(**options), 3).train()
    model.classifier.eval()
    modes = [module.training for module in model.modules()]
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    lh.calibrate(model, pieces(family.batch()))
    first = statistics(model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor) is ("debias" not in name), name
    # Without dropout, a second time gives the same; and training continues from there.
    lh.calibrate(model, pieces(family.batch()))
    torch.testing.assert_close(statistics(model), first, atol=0, rtol=0)
    model(**family.batch(), labels=LABELS).loss.backward()
    assert debiased_attention(model).debias.key.num_batches_tracked.item() == 4


def test_batches_and_loaders():
    family = named("bert")
    parts = pieces(family.batch())
    model = lh.calibrate(make("attach", family), (BatchEncoding(part) for part in parts))
    assert debiased_attention(model).debias.key.num_batches_tracked.item() == 3
    # Enough batches for a progress bar.
    lh.calibrate(model, parts * 10)
    assert debiased_attention(model).debias.key.num_batches_tracked.item() == 30


@KINDS
def test_errors_leave_the_statistics_alone(kind):
    family = named("vit")
    model = make(kind, family)
    before = statistics(model)
    good = family.batch()
    with pytest.raises(ConfigError, match="gave no batch"):
        lh.calibrate(model, [])
    with pytest.raises(ConfigError, match="loader is a list; it takes"):
        lh.calibrate(model, [good, (good["pixel_values"], LABELS)])
    torch.testing.assert_close(statistics(model), before, atol=0, rtol=0)
    assert not debiased_attention(model).debias._forward_hooks
    with pytest.warns(UserWarning, match=re.escape("levelhead.calibrate(model, loader)")):
        model.eval()(**good)


def test_bfloat16(tmp_path):
    family = named("bert")
    model = lh.calibrate(make("attach", family).to(torch.bfloat16), pieces(family.batch()))
    exact = lh.calibrate(make("attach", family), pieces(family.batch()))
    torch.testing.assert_close(statistics(model), statistics(exact), atol=5e-3, rtol=5e-2)


def test_the_warning_for_pretrained_models_names_it(tmp_path):
    family = named("bert")
    family.classify().save_pretrained(tmp_path)
    model = type(family.classify()).from_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"append_encoder.*calibrate\(model, loader\)"):
        lh.attach(model)
    lh.calibrate(model, [family.batch()])
    model(**family.batch())  # a warning would be an error
