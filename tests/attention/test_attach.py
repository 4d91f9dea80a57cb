import copy
import gc
import warnings

import pytest
import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassFieldValidationError
from tiny_models import batch, build, make
from transformers import (
    ViTForImageClassification,
)

from levelhead.attention import DebiasConfig, alignment, attach, detach
from levelhead.attention.aligning import debiased_attention
from levelhead.types import ConfigError, LevelheadError


def updates(model):
    return debiased_attention(model).debias.key.num_batches_tracked.max().item()


def test_forward_matches_the_equations_written_out(labels):
    """The last layer of a one-layer ViT, computed by hand from its weights."""
    model = attach(build("vit", num_hidden_layers=1)).train()
    pixels = batch("vit")["pixel_values"]
    logits = model(pixels).logits
    layer = model.vit.layers[0]
    hidden = model.vit.embeddings(pixels)
    normed = layer.layernorm_before(hidden)
    query, key, value = (
        projection(normed).view(6, 5, 2, 8).transpose(1, 2)
        for projection in (layer.attention.q_proj, layer.attention.k_proj, layer.attention.v_proj)
    )
    query, key = (((x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()).abs() for x in (query, key))
    mixed = (query @ key.transpose(-1, -2) / 8**0.5).softmax(-1) @ value
    hidden = hidden + layer.attention.o_proj(mixed.transpose(1, 2).flatten(2))
    hidden = hidden + layer.mlp(layer.layernorm_after(hidden))
    expected = model.classifier(model.vit.layernorm(hidden)[:, 0])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_training_loss_is_task_plus_alignment_and_evaluation_loss_is_the_task(family, labels):
    model = attach(build(family), DebiasConfig(alpha=0.5)).train()
    whole = model(**batch(family), labels=labels)
    apart = model(**batch(family))
    term = alignment(model, labels)
    torch.testing.assert_close(whole.loss, F.cross_entropy(whole.logits, labels) + 0.5 * term)
    torch.testing.assert_close(whole.logits, apart.logits)
    assert term > 0
    assert updates(model) == 2  # with and without labels
    model.eval()
    out = model(**batch(family), labels=labels)
    assert updates(model) == 2
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, labels))


def test_positional_labels_and_tuples(family, labels):
    model = make("attach", family).train()
    inputs = batch(family)
    expected = model(**inputs, labels=labels).loss
    loss, logits = model(**inputs, labels=labels, return_dict=False)[:2]
    assert logits.shape == (6, 3)
    torch.testing.assert_close(loss, expected)
    if family == "vit":
        positional = model(inputs["pixel_values"], labels).loss
    else:
        positional = model(inputs["input_ids"], inputs["attention_mask"], None, None, None, labels).loss
    torch.testing.assert_close(positional, expected)
    assert updates(model) == 3


def test_gradients_reach_everything_that_alignment_trains(family, labels):
    model = make("attach", family).train()
    model(**batch(family))
    alignment(model, labels).backward()
    value = (
        model.vit.layers[1].attention.v_proj if family == "vit" else model.bert.encoder.layer[1].attention.self.value
    )
    for parameter in (value.weight, *model.alignment_head.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    assert model.classifier.weight.grad is None


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*use_reentrant.*:UserWarning")
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad.*:UserWarning")
def test_reentrant_checkpointing_is_refused(labels):
    model = attach(build("vit")).train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(LevelheadError, match="use_reentrant"):
        model(**batch("vit"), labels=labels)


def test_deepcopy_after_a_step_and_no_graph_stays_alive(family, labels):
    model = make("attach", family).train()
    model(**batch(family), labels=labels).loss.backward()
    model(**batch(family))  # a reading is waiting, with a graph that cannot be copied
    twin = copy.deepcopy(model).eval()
    torch.testing.assert_close(twin(**batch(family)).logits, model.eval()(**batch(family)).logits)
    model.train()(**batch(family), labels=labels)
    gc.collect()
    attention = debiased_attention(model)
    held = [*attention.debias.buffers(), *vars(attention.tap).values()]
    assert not any(isinstance(x, torch.Tensor) and x.grad_fn is not None for x in held)


def test_two_networks_from_one_config_do_not_share_the_switch(labels):
    config = build("vit").config
    torch.manual_seed(0)
    first, second = ViTForImageClassification(config), ViTForImageClassification(config)
    before = second(**batch("vit")).logits
    attach(first)
    assert second.config._attn_implementation == "sdpa"
    assert not hasattr(config, "levelhead")
    assert torch.equal(second(**batch("vit")).logits, before)
    attach(second, DebiasConfig(top_t=1))
    assert first.config.levelhead["debias"]["top_t"] == 2


def test_autocast(family, labels):
    model = make("attach", family).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**batch(family), labels=labels).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert updates(model) == 1


def test_alignment_weights(family, labels):
    model = make("attach", family).train()
    model(**batch(family))
    plain = alignment(model, labels)
    model(**batch(family))
    torch.testing.assert_close(alignment(model, labels, torch.full((6,), 3.0)), plain)
    model(**batch(family))
    assert alignment(model, labels, torch.zeros(6)).item() == 0


def test_alignment_needs_a_pass_of_its_own(family, labels):
    model = make("attach", family).train()
    with pytest.raises(ConfigError, match="no training forward pass"):
        alignment(model, labels)
    model(**batch(family))
    alignment(model, labels)
    with pytest.raises(ConfigError, match="no training forward pass"):
        alignment(model, labels)
    with pytest.raises(ConfigError, match="not debiased"):
        alignment(build(family), labels)


def test_training_without_the_alignment_term_is_refused(family, labels):
    """What label smoothing in Trainer does: labels are taken away, and the loss is computed outside."""
    model = make("attach", family).train()
    logits = model(**batch(family)).logits
    with pytest.raises(LevelheadError, match="label_smoothing_factor"):
        F.cross_entropy(logits, labels).backward()
    logits = model(**batch(family)).logits
    (F.cross_entropy(logits, labels) + alignment(model, labels)).backward()


def test_alpha_zero_has_no_projector_and_needs_no_labels(family, labels):
    model = attach(build(family), DebiasConfig(alpha=0)).train()
    assert not hasattr(model, "alignment_head")
    out = model(**batch(family), labels=labels)
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, labels))
    F.cross_entropy(model(**batch(family)).logits, labels).backward()
    assert updates(model) == 2
    with pytest.raises(ConfigError, match="alpha=0"):
        alignment(model, labels)


def test_normalize_false_leaves_queries_and_keys_alone(family, labels):
    plain = build(family)
    expected = plain(**batch(family), labels=labels)
    model = attach(build(family), DebiasConfig(normalize=False)).train()
    out = model(**batch(family), labels=labels)
    torch.testing.assert_close(out.logits, expected.logits)
    assert out.loss > expected.loss
    assert not any("debias" in name for name in model.state_dict())


def test_detach_restores(family, labels):
    model = build(family)
    kind, before = type(model), copy.deepcopy(model.config.to_dict())
    weights = copy.deepcopy(model.state_dict())
    logits = model.eval()(**batch(family)).logits
    detach(attach(model))
    assert type(model) is kind
    assert model.config.to_dict() == before
    assert model.config._attn_implementation == "sdpa"
    assert weights.keys() == model.state_dict().keys()
    assert torch.equal(model(**batch(family)).logits, logits)
    with pytest.raises(ConfigError, match="nothing to detach"):
        detach(model)


def test_saved_weights_have_these_names(family):
    """Checkpoints and saved models are loaded by them."""
    model = build(family)
    before = {*model.state_dict()}
    attach(model, DebiasConfig(projection_hidden=8, projection_size=4))
    added = {*model.state_dict()} - before
    place = {"vit": "vit.layers.1.attention", "bert": "bert.encoder.layer.1.attention.self"}[family]
    parts = {"vit": ("key", "query"), "bert": ("key", "query", "readout")}[family]
    statistics = ("mean", "variance", "num_batches_tracked")
    assert added == {f"{place}.debias.{part}.{name}" for part in parts for name in statistics} | {
        f"alignment_head.{part}.weight" for part in ("hidden", "output")
    }


def test_the_probe_changes_neither_random_numbers_nor_mode_nor_weights(family):
    model = build(family).train()
    state, mode = torch.get_rng_state(), model.training
    before = copy.deepcopy(model.state_dict())
    attach(model, DebiasConfig(alpha=0))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training is mode
    assert debiased_attention(model).debias.training is mode
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor)


@pytest.mark.filterwarnings("ignore:.*rotary position embeddings")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {"notebook": {"twice": True}}, "twice=True needs"),
        ("vit", {"absolute": False, "notebook": {"twice": True}}, "twice=True needs"),
        ("llama", {"ranking": "per_head"}, "as many key heads"),
        ("llama", {"notebook": {"padding_mask": False}}, "causality"),
        ("llama", {"notebook": {"off_by_one": True}}, "reads the last real token"),
        ("modernbert", {"notebook": {"padding_mask": False}}, "sliding window"),
    ],
)
def test_the_model_is_unchanged_after_an_error(name, options, message):
    model, config = build(name), DebiasConfig(**options)
    kind = type(model)
    before = model.config.to_dict(), list(model.state_dict()), model.config._attn_implementation
    with pytest.raises(ConfigError, match=message):
        attach(model, config)
    assert type(model) is kind
    assert (model.config.to_dict(), list(model.state_dict()), model.config._attn_implementation) == before
    attach(model)
    assert torch.isfinite(model.train()(**batch(name)).logits).all()


def test_padding_can_be_let_into_a_global_layer_between_local_ones():
    try:
        base = build("modernbert", num_hidden_layers=1)
    except StrictDataclassFieldValidationError:
        pytest.skip("this transformers makes no ModernBERT of one layer")
    with pytest.warns(UserWarning, match="rotary"):
        model = attach(base, DebiasConfig(alpha=0.0, notebook={"padding_mask": False}))
    assert torch.isfinite(model.train()(**batch("bert")).logits).all()


def test_absolute_values_of_rotated_keys_are_warned_about():
    with pytest.warns(UserWarning, match="as absolute=True asks"):
        model = attach(build("llama"), DebiasConfig.preset("paper"))
    assert model.config.levelhead["debias"]["absolute"] is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(build("llama"), DebiasConfig(absolute=False))
        attach(build("llama"), DebiasConfig(absolute=True, normalize=False))


def test_readout_none_aligns_by_the_mean_query(labels):
    model = attach(build("bert"), DebiasConfig(readout="none")).train()
    assert model.config.levelhead["debias"]["statistics"] == "feature"
    model(**batch("bert"), labels=labels).loss.backward()
