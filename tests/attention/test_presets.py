"""The presets by name: that each option does what its notebook does, and which of them leave alignment idle."""

import math

import pytest
import torch
from tiny_models import LABELS, batch, build, fit
from torch.nn.functional import normalize
from transformers import BertModel

from levelhead import DebiasConfig, alignment, append_encoder, attach, from_pretrained
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.contrastive import (
    rank_tokens,
    select_values,
    supervised_contrastive,
)
from levelhead.attention.presets import PRESETS
from levelhead.attention.standardize import QueryKeyStandardizer


@pytest.mark.parametrize(("length", "least", "most"), [(1.0, 1e-2, 1.0), (1.5, 1e-9, 1e-6), (3.4, -1.0, 0.0)])
def test_how_the_gradient_of_the_smoothed_loss_fades_with_the_length(length, least, most):
    """For directions that are nearly orthogonal; parallel ones keep a gradient for longer."""
    z = torch.randn(25, 128, generator=torch.Generator().manual_seed(0))
    z = (normalize(z, dim=1) * length).requires_grad_()
    loss = supervised_contrastive(z, torch.arange(25) % 2, 0.07, smoothing=1e-5)
    loss.backward()
    assert least < z.grad.abs().max() <= most
    if most == 0:
        assert loss.item() == pytest.approx(math.log(24), abs=1e-4)


def trained_once(name, family="vit", long=False, **changes):
    """One training pass, and the gradient of the alignment term alone."""
    model = attach(build(family, **changes), DebiasConfig.preset(name)).train()
    if long:
        with torch.no_grad():  # projections of length 3 to 5, as at the size of BERT
            model.alignment_head.output.weight.mul_(60)
            model.alignment_head.hidden.weight.mul_(20)
    model(**batch(family))
    loss = alignment(model, LABELS)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not loss.requires_grad:
        return model, loss, 0.0
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return model, loss, max(gradient.abs().max().item() for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("long", [False, True], ids=["small weights", "long projections"])
@pytest.mark.parametrize("name", PRESETS)
def test_which_presets_leave_alignment_without_a_gradient(name, long):
    _, loss, largest = trained_once(name, long=long)
    assert torch.isfinite(loss)
    if name == "released-multinli" or (name == "released-hatexplain" and long):
        assert largest == 0
    else:
        assert largest > 1e-6


def test_alignment_follows_every_option_of_a_preset():
    model = attach(build("vit"), DebiasConfig.preset("released-hatexplain")).train()
    model(**batch("vit"))
    reading = debiased_attention(model).tap.reading
    with torch.no_grad():  # projections so long that smoothing matters, and not of length 1
        model.alignment_head.output.weight.mul_(8)
    common = {"readout": reading.readout, "ranking": "per_head", "off_by_one": True}
    expected = {}
    for changed in ({}, {"ranking": "mean_probability"}, {"off_by_one": False}, {"include_readout": True}):
        values = select_values(reading.value, *rank_tokens(reading.logits, 2, **{**common, **changed}))
        z = model.alignment_head(values)
        expected[str(changed)] = supervised_contrastive(z, LABELS, 0.07, smoothing=1e-5).item()
        if not changed:
            assert z.norm(dim=1).std() > 0.01
            expected["no smoothing"] = supervised_contrastive(z, LABELS, 0.07).item()
    found = alignment(model, LABELS).item()
    assert found == pytest.approx(expected.pop("{}"), rel=1e-6)
    assert all(abs(found - other) > 1e-5 for other in expected.values()), expected


@pytest.mark.parametrize("name", PRESETS)
def test_the_sum_over_anchors_is_the_mean_times_the_rows_that_have_one_of_their_class(name):
    found = {}
    for reduction in ("mean", "sum"):
        torch.manual_seed(0)
        model = attach(build("vit"), DebiasConfig.preset(name, reduction=reduction, notebook={"queue": 0})).train()
        model(**batch("vit"))
        term = alignment(model, LABELS)
        assert term.requires_grad  # of released-multinli, too: its queue alone takes the gradient away
        found[reduction] = term.item()
    anchors = sum(int((label == LABELS).sum()) for label in LABELS.unique() if (label == LABELS).sum() > 1)
    assert anchors > 1
    assert found["sum"] == pytest.approx(anchors * found["mean"], rel=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_a_batch_of_one_trains(name):
    model = attach(build("vit", num_hidden_layers=1), DebiasConfig.preset(name)).train()
    pixels = batch("vit")["pixel_values"]
    # The CLS token is the same for all before the first layer: a feature that never varies.
    for size in (1, 6):
        loss = model(pixels[:size], labels=LABELS[:size]).loss
        loss.backward()
        assert torch.isfinite(loss)
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert torch.isfinite(model.eval()(pixels).logits).all()


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("appended", [False, True], ids=["attach", "append"])
def test_every_preset_trains_saves_and_loads(name, appended, tmp_path):
    config, preset = DebiasConfig.preset(name), PRESETS[name]
    torch.manual_seed(0)
    if appended:
        backbone = BertModel(build("bert").config, add_pooling_layer=False)
        inputs = batch("bert")
        options = preset.block | {"num_heads": 2}
        model = append_encoder(backbone, 3, debias=config, example_inputs=inputs, **options)
    else:
        inputs = batch("vit")
        model = attach(build("vit"), config)
    assert math.isfinite(fit(model, [inputs] * 3)[-1])
    model.eval().save_pretrained(tmp_path)
    loaded = from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_temperature_divides_the_logits():
    plain, sharp = (
        attach(build("vit"), DebiasConfig(alpha=0, notebook={"attention_temperature": value})).train()
        for value in (1.0, 0.07)
    )
    inputs = batch("vit")
    assert not torch.allclose(plain(**inputs).logits, sharp(**inputs).logits)
    with torch.no_grad():  # the same logits again: standardising undoes any scale, so scale the temperature
        sharp.get_submodule(sharp.config.levelhead["attention"]).tap.attention_temperature = 1.0
    assert torch.equal(plain(**inputs).logits, sharp(**inputs).logits)


def test_twice_centres_again_in_evaluation_alone():
    x = torch.randn(4000, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    debias = QueryKeyStandardizer(1, 2, length=2, running="std", eps=0.0, twice=True)
    once = QueryKeyStandardizer(1, 2, length=2, running="std", eps=0.0)
    for _ in range(200):
        trained, _ = debias(x, x)
        plain, _ = once(x, x)
        debias.commit()
        once.commit()
    assert torch.equal(trained, plain)
    assert debias.query.absolute_mean.mean().item() == pytest.approx(math.sqrt(2 / math.pi), abs=0.01)
    again, _ = debias.eval()(x, x)
    assert torch.allclose(again, (once.eval()(x, x)[0] - debias.query.absolute_mean).abs())
    assert again.mean().item() == pytest.approx(0.483, abs=0.01)
    assert again.square().mean().item() == pytest.approx(1 - 2 / math.pi, abs=0.01)


def test_padding_can_be_let_in():
    inputs = batch("bert")
    options = {"statistics": "feature", "alpha": 0.0}
    changed = {**inputs, "input_ids": torch.where(inputs["attention_mask"] == 1, inputs["input_ids"], 7)}
    for mask, same in ((True, True), (False, False)):
        model = attach(build("bert"), DebiasConfig(notebook={"padding_mask": mask}, **options)).train()
        logits = [model(**one).logits for one in (inputs, changed)]
        assert torch.allclose(*logits, atol=1e-6) == same
