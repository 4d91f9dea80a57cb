"""Layers compute the readout row alone: equal to all rows, for plain, debiased and appended ones."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tiny_models import LABELS, SMALL, TEXT, backbone, batch, build, step
from torch import nn
from transformers import (
    ElectraConfig,
    ElectraForSequenceClassification,
    ViTForImageClassification,
)

from levelhead.attention import (
    DebiasConfig,
    append_encoder,
    attach,
    detach,
    readout_only,
)
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.one_row import Projections, attend_from_row, describe
from levelhead.attention.probe import layer_of
from levelhead.models.networks import ScratchViT
from levelhead.types import ConfigError

CONFIGS = {
    "plain": None,
    "plain, eager": None,
    "debiased": DebiasConfig(),
    "no alignment": DebiasConfig(alpha=0, absolute=False),
    "alignment only": DebiasConfig(normalize=False, top_t=3),
    "as the paper": DebiasConfig(running="std", ranking="mean_logit"),
    "as released": DebiasConfig(
        statistics="position", unbiased=True, eps=0.0, running="std", include_readout=True,
        notebook={"padding_mask": False, "attention_temperature": 0.3, "statistics_gradient": False},
    ),
}  # fmt: skip
APPENDED = {
    "plain": None,
    "debiased": DebiasConfig(),
    "normalise only": DebiasConfig(absolute=False, alpha=0),
    "alignment only": DebiasConfig(normalize=False),
    "last row, three tokens": DebiasConfig(readout="last", top_t=3),
    "no padding mask": DebiasConfig(
        include_readout=True, notebook={"padding_mask": False, "attention_temperature": 0.3}
    ),
    "more tokens than there are": DebiasConfig(top_t=6),
}


def with_biases(model):
    """In double precision; biases start at 0, where folding them would not show."""
    for parameter in model.parameters():
        if parameter.ndim == 1 and parameter.requires_grad:
            nn.init.normal_(parameter, std=0.3)
    return model.double()


def attached(name, debias, one_row):
    model = with_biases(build(name))
    torch.manual_seed(1)
    if debias is None:
        return readout_only(model, one_row)
    example = inputs_of(name) if debias.statistics == "position" and "pixel_values" not in inputs_of(name) else None
    return attach(model, replace(debias, readout_only=one_row), example_inputs=example)


def appended(debias, **options):
    below = backbone("bert")
    torch.manual_seed(1)
    return with_biases(append_encoder(below, 3, debias=debias, **options))


def inputs_of(name):
    return {key: value.double() if value.is_floating_point() else value for key, value in batch(name).items()}


def features_of(padded):
    """Nine texts of up to seven tokens, as a frozen backbone gives them."""
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(9, 7, 16, dtype=torch.float64, generator=generator)
    if not padded:
        return {"features": features}
    lengths = torch.tensor([7, 3, 5, 4, 7, 2, 6, 5, 3])
    return {"features": features, "attention_mask": (torch.arange(7) < lengths[:, None]).long()}


THREE = torch.tensor([0, 1, 2] * 3)


def whole(model):
    """Make an appended layer compute all rows: somebody looks at them."""
    model.block.register_forward_hook(lambda *_: None)
    return model


@pytest.fixture
def rows(monkeypatch):
    """Count how often one row was computed."""
    calls = []

    def spy(*args, **kwargs):
        calls.append(args)
        return attend_from_row(*args, **kwargs)

    monkeypatch.setattr("levelhead.attention.one_row.attend_from_row", spy)
    return calls


def outcome(model, inputs, labels=LABELS):
    """Loss, gradients, running statistics that both ways keep, and the logits of evaluation."""
    found = {"loss": step(model, inputs, labels).detach()}
    found |= {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    for name, buffer in model.named_buffers():
        if ".debias." in name and ".debias.query" not in name:
            found[name] = buffer.double()
        elif ".debias.query" in name and len(buffer.shape) == 3 and buffer.shape[1] > 1:
            found[name] = buffer[:, 0].double()
    with torch.no_grad():
        found["logits"] = model.eval()(**inputs).logits
    return found


def assert_equal(one, full, close):
    """Running statistics are float32."""
    assert one.keys() == full.keys()
    for key, value in one.items():
        bound = 1e-6 if "debias" in key else close
        torch.testing.assert_close(value, full[key], atol=bound, rtol=bound, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["vit", "deit", "bert", "roberta"])
def test_one_row_equals_all_rows(name, config, rows):
    results = []
    for one_row in (False, True):
        model = attached(name, CONFIGS[config], one_row)
        if config == "plain, eager":
            model.set_attn_implementation("eager")
        results.append(outcome(model, inputs_of(name)))
        assert len(rows) == 2 * one_row
    # Eager attention is in single precision; without eps, small deviations enlarge what rounding leaves.
    assert_equal(results[1], results[0], {"plain, eager": 1e-6, "as released": 1e-9}.get(config, 1e-12))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", APPENDED)
def test_one_row_of_an_appended_layer_equals_all_rows(name, norm, padded):
    results = []
    for change in (lambda model: model, whole):
        model = change(appended(APPENDED[name], norm=norm)).train()
        assert ("alone" in repr(model)) == (change is not whole)
        inputs = features_of(padded)
        inputs["features"].requires_grad_()
        results.append({**outcome(model, inputs, THREE), "features": inputs["features"].grad})
    assert_equal(*results, 1e-12)


def test_unknown_layers_and_other_readers_compute_all_rows():
    torch.manual_seed(0)
    electra = ElectraForSequenceClassification(ElectraConfig(**SMALL, **TEXT, embedding_size=16))
    for other in (electra, build("distilbert")):
        assert not attach(other).config.levelhead["debias"]["readout_only"]
        assert "none that levelhead can take apart" in describe(other)

    class Mean(ViTForImageClassification):
        def forward(self, pixel_values, labels=None, **kwargs):
            output = super().forward(pixel_values, **kwargs)
            return (self.classifier(self.vit(pixel_values).last_hidden_state.mean(dim=1)), output)

    with pytest.raises(ConfigError, match="no single row"):
        readout_only(Mean(build("vit").config), True)


@pytest.mark.parametrize("debias", [None, DebiasConfig()])
def test_all_rows_where_more_than_the_logits_is_asked_for(family, debias, rows):
    model = readout_only(build(family)) if debias is None else attach(build(family)).train()
    inputs = batch(family)
    model(**inputs)
    model.eval()
    tokens = 5 if family == "vit" else 7
    expected = model(**inputs).logits
    assert len(rows) == 2
    hidden = model(**inputs, output_hidden_states=True)
    assert hidden.hidden_states[-1].shape[1] == tokens
    torch.testing.assert_close(hidden.logits, expected)
    model.config.output_hidden_states = True
    assert model(**inputs).hidden_states[-1].shape[1] == tokens
    model.config.output_hidden_states = False
    assert model.base_model(**inputs).last_hidden_state.shape[1] == tokens
    if debias is None:
        model.set_attn_implementation("eager")
        assert model(**inputs, output_attentions=True).attentions[-1].shape[-2:] == (tokens, tokens)
        model.set_attn_implementation("sdpa")
    assert len(rows) == 2
    # The hooks that transformers has left on the layers are no reason alone.
    torch.testing.assert_close(model(**inputs).logits, expected)
    assert len(rows) == 3


@pytest.mark.parametrize("change", ["hook", "subclass", "offloading", "checkpointing", "chunks"])
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
def test_all_rows_where_the_layer_is_not_what_it_was(change, rows):
    model = attach(build("bert")).train()
    expected = model(**batch("bert"), labels=LABELS).loss
    layer = layer_of(model, model.config.levelhead["attention"])
    attention = layer.attention.self
    if change == "hook":
        layer.output.dense.register_forward_hook(lambda *_: None)
    elif change == "subclass":

        class Adapted(nn.Linear):
            """Stands for LoRA, quantisation and the like."""

        attention.value.__class__ = Adapted
    elif change == "offloading":
        forward = attention.key.forward
        attention.key.forward = lambda x: forward(x)
    elif change == "checkpointing":
        model.gradient_checkpointing_enable()
    else:
        layer.chunk_size_feed_forward = 1
    torch.testing.assert_close(model(**batch("bert"), labels=LABELS).loss, expected)
    assert len(rows) == 1
    assert "all rows: " in repr(model)


def test_a_later_attach_follows_what_the_plain_model_was_told(family):
    for wanted, expected in ((True, True), ("auto", True), (False, False)):
        model = attach(readout_only(build(family), wanted))
        assert model.config.levelhead["debias"]["readout_only"] is expected
    model = attach(readout_only(build(family), False), DebiasConfig(readout_only=True))
    assert "readout row alone" in repr(model)


def test_everything_can_be_undone(family, rows):
    plain = build(family).eval()
    kind, layer = type(plain), type(layer_of(plain, {"vit": "vit.layers.1", "bert": "bert.encoder.layer.1"}[family]))
    expected = plain(**batch(family)).logits
    for undo in (lambda model: readout_only(readout_only(model), False), lambda model: detach(attach(model))):
        model = undo(build(family)).eval()
        assert type(model) is kind
        assert layer in {type(module) for module in model.modules()}
        assert not any(getattr(type(module), "computes_one_row", False) for module in model.modules())
        assert torch.equal(model(**batch(family)).logits, expected)
    assert not rows


@pytest.mark.parametrize("debias", [None, DebiasConfig()])
def test_copies_work_and_are_apart(family, debias, rows):
    model = readout_only(build(family)) if debias is None else attach(build(family))
    model.train()(**batch(family), labels=LABELS)
    twin = copy.deepcopy(model)
    assert torch.equal(twin.eval()(**batch(family)).logits, model.eval()(**batch(family)).logits)
    assert len(rows) == 3
    assert twin.one_row is not model.one_row
    assert twin.one_row is twin.get_submodule(twin.one_row.path).one_row


@pytest.mark.parametrize("debias", [None, DebiasConfig()])
def test_an_error_in_a_pass_leaves_nothing_armed(debias):
    model = readout_only(build("vit")) if debias is None else attach(build("vit"))
    with pytest.raises(ValueError, match="channel"):
        model(torch.zeros(1, 1, 8, 8))
    assert not model.one_row.armed


def test_bfloat16_keeps_float32_statistics(family, rows):
    exact = attach(build(family)).train()
    model = copy.deepcopy(exact).to(torch.bfloat16)
    inputs = {k: v.bfloat16() if v.is_floating_point() else v for k, v in batch(family).items()}
    expected, found = (one(**given, labels=LABELS) for one, given in ((exact, batch(family)), (model, inputs)))
    found.loss.backward()
    assert torch.isfinite(found.loss)  # its alignment term may differ: tokens that almost tie change places
    torch.testing.assert_close(found.logits.float(), expected.logits, atol=0.1, rtol=0.1)
    debias = debiased_attention(model).debias
    assert {buffer.dtype for buffer in debias.buffers()} == {torch.float32, torch.int64}
    close = debiased_attention(exact).debias.key.variance
    torch.testing.assert_close(debias.key.variance, close, atol=1e-4, rtol=0.05)
    assert torch.isfinite(model.eval()(**inputs).logits).all()
    assert len(rows) == 3


def test_a_plain_model_that_is_saved_loads_as_what_it_was(family, tmp_path, rows):
    plain = readout_only(build(family)).eval()
    plain.save_pretrained(tmp_path)
    loaded = build(family).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(**batch(family)).logits, plain(**batch(family)).logits)
    assert type(loaded) is type(build(family))
    assert len(rows) == 1


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_row_of_padding_alone_spoils_nothing(norm):
    model, inputs = appended(DebiasConfig(), norm=norm), features_of(True)
    inputs["attention_mask"][3] = 0
    assert torch.isfinite(step(model, inputs, THREE))
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    # Alignment trains, though nothing below has a graph.
    assert model.alignment_head.output.weight.grad.abs().sum() > 0
    assert model.block.attention.value.weight.grad.abs().sum() > 0
    assert torch.isfinite(model.eval()(**inputs).logits).all()


def test_dropped_weights_have_the_distribution_of_the_whole_layer():
    """Mean and spread of the mixed values over many draws, with a bias that must count with the weights left."""
    torch.manual_seed(0)
    draws, tokens, width = 20000, 4, 6
    query, key, value = (nn.Linear(width, width) for _ in range(3))
    nn.init.constant_(value.bias, 1.5)
    hidden = torch.randn(1, tokens, width).expand(draws, -1, -1)
    with torch.no_grad():
        one = attend_from_row(nn.Module(), hidden, 0, Projections(query, key, value, 2), scaling=0.5, dropout=0.4)
        heads = [layer(hidden).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (query, key, value)]
        full = F.scaled_dot_product_attention(*heads, dropout_p=0.4, scale=0.5)[:, :, 0].flatten(1)
    torch.testing.assert_close(one.mean(0), full.mean(0), atol=0.03, rtol=0)
    torch.testing.assert_close(one.T.cov(), full.T.cov(), atol=0.06, rtol=0)
    assert full.T.cov().diagonal().min() > 0.2


def test_dropout_is_applied_and_ends_with_training(family, rows):
    torch.manual_seed(0)
    model = attach(build(family, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)).train()
    first, second = (model(**batch(family)).logits for _ in range(2))
    assert (first - second).abs().max() > 1e-4
    model.eval()
    assert torch.equal(model(**batch(family)).logits, model(**batch(family)).logits)
    assert len(rows) == 4


def test_recipes_compute_all_rows_unless_they_say_otherwise():
    weights = []
    for alone in (False, True):
        torch.manual_seed(0)
        size = {"hidden_size": 16, "layers": 1, "heads": 2, "image_size": 8, "patch_size": 4}
        model = ScratchViT(**size, readout_only=alone).build(("no", "yes"))
        assert ("readout row alone" in repr(model)) is alone
        weights.append(copy.deepcopy(model.state_dict()))
        assert attach(model).config.levelhead["debias"]["readout_only"] is alone
    torch.testing.assert_close(weights[0], weights[1], atol=0, rtol=0)
    assert ScratchViT().readout_only is False


def test_an_appended_layer_with_statistics_of_positions_computes_one_row_if_asked(rows):
    results = []
    for alone in (False, True):
        torch.manual_seed(0)
        model = append_encoder(backbone("vit"), 3, debias=DebiasConfig(readout_only=alone)).double()
        assert ("alone" in repr(model)) is alone
        results.append(outcome(model, inputs_of("vit"), LABELS))
    for key, value in results[1].items():
        torch.testing.assert_close(value, results[0][key], atol=1e-6, rtol=1e-6, msg=key)
    model = append_encoder(backbone("vit"), 3)
    assert "all rows" in repr(model)


def test_half_precision_is_as_good_as_the_whole_layers():
    debias = DebiasConfig(alpha=0, notebook={"attention_temperature": 0.07})
    exact = appended(debias).train()
    exact(**features_of(True))
    expected = exact.eval()(**features_of(True)).logits.detach()
    errors = []
    for change in (lambda model: model, whole):
        model = appended(debias).requires_grad_(False)
        model.load_state_dict(exact.state_dict())
        found = change(model).bfloat16().eval()(**features_of(True)).logits
        errors.append((found - expected).abs().mean().item())
    assert errors[0] < 1.5 * errors[1]


def test_large_logits_do_not_overflow_in_half_precision():
    model = appended(None).half().eval()
    with torch.no_grad():
        for projection in (model.block.attention.query, model.block.attention.key):
            projection.weight.mul_(3e3)
    assert torch.isfinite(model(**features_of(True)).logits).all()


def test_the_last_of_several_layers_is_debiased():
    labels = THREE
    model = appended(DebiasConfig(), layers=3).train()
    output = model(**features_of(True), labels=labels)
    assert output.loss > nn.functional.cross_entropy(output.logits.float(), labels)
    assert model.block.attention.debias.key.num_batches_tracked.max() == 1
    output.loss.backward()
    assert model.alignment_head.output.weight.grad.abs().sum() > 0
    assert model.below[0].attention.value.weight.grad.abs().sum() > 0


def test_debiasing_a_plain_layer_keeps_its_type_and_what_is_frozen():
    model = append_encoder(backbone("bert").bfloat16(), 2, debias=None)
    model.block.float()
    model.block.norm_attention.requires_grad_(False)
    attach(model, DebiasConfig())
    assert model.block.attention.key.weight.dtype == model.alignment_head.output.weight.dtype == torch.float32
    assert not model.block.norm_attention.weight.requires_grad


def test_offloaded_layers_are_called():
    model = appended(None).eval()
    expected = model(**features_of(True)).logits
    forward = model.block.attention.value.forward
    model.block.attention.value.forward = lambda x: forward(x)  # as accelerate's offloading does
    assert not model.block.reads_one_row()
    torch.testing.assert_close(model(**features_of(True)).logits, expected)
