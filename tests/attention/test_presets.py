"""The presets by name: that each option does what its notebook does, and which of them leave alignment idle."""

import math

import pytest
import torch
from tiny_models import LABELS, batch, build
from torch.nn.functional import normalize
from transformers import BertModel

from levelhead import DebiasConfig, alignment, append_encoder, attach, from_pretrained
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.contrastive import (
    AlignmentHead,
    rank_tokens,
    readout_logits,
    select_top_values,
    supervised_contrastive,
)
from levelhead.attention.presets import PRESETS
from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.runs.recipe import build_experiment
from levelhead.types import ConfigError

Z = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8], [-1, 0, 0]], dtype=torch.float64)
Y = torch.tensor([0, 0, 1, 1, 1])


def test_the_smoothed_loss_gives_the_published_number():
    assert supervised_contrastive(Z, Y, 0.07, smoothing=1e-5).item() == pytest.approx(1.57868361, abs=1e-6)


def test_smoothing_without_unit_length_has_no_gradient():
    z = (normalize(torch.randn(25, 128, generator=torch.Generator().manual_seed(0)), dim=1) * 3.4).requires_grad_()
    loss = supervised_contrastive(z, torch.arange(25) % 2, 0.07, smoothing=1e-5)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(24), abs=1e-4)
    assert z.grad.abs().max() == 0


@pytest.mark.parametrize(("length", "least", "most"), [(1.0, 1e-2, 1.0), (1.5, 1e-9, 1e-6), (2.5, 0.0, 1e-20)])
def test_how_the_gradient_of_the_smoothed_loss_fades_with_the_length(length, least, most):
    """For directions that are nearly orthogonal; parallel ones keep a gradient for longer."""
    z = torch.randn(25, 128, generator=torch.Generator().manual_seed(0))
    z = (normalize(z, dim=1) * length).requires_grad_()
    supervised_contrastive(z, torch.arange(25) % 2, 0.07, smoothing=1e-5).backward()
    assert least < z.grad.abs().max() <= most


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
        values = select_top_values(reading.logits, reading.value, 2, **{**common, **changed})
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
        found[reduction] = alignment(model, LABELS).item()
    anchors = sum(int((label == LABELS).sum()) for label in LABELS.unique() if (label == LABELS).sum() > 1)
    assert anchors > 1
    assert found["sum"] == pytest.approx(anchors * found["mean"], rel=1e-6)


def test_the_multinli_queue_alone_takes_the_gradient_away():
    with_queue = DebiasConfig.preset("released-multinli")
    without = DebiasConfig.preset("released-multinli", notebook={"queue": 0})
    losses = []
    for config in (with_queue, without):
        model = attach(build("vit"), config).train()
        model(**batch("vit"))
        losses.append(alignment(model, LABELS))
    assert not losses[0].requires_grad
    assert losses[1].requires_grad


def test_the_queue_holds_the_newest_projections():
    head = AlignmentHead(4, 4, 3, queue=5)
    z, labels = torch.arange(12.0).view(4, 3), torch.tensor([1, 2, 3, 4])
    head.enqueue(z[:3], labels[:3])
    queue, stored = head.enqueue(z[1:], labels[1:])
    assert stored.tolist() == [4, 2, 3, 2, 3]
    assert torch.equal(queue[0], z[3])
    big, newest = head.enqueue(torch.arange(21.0).view(7, 3), torch.arange(7))
    assert sorted(newest.tolist()) == [2, 3, 4, 5, 6]
    assert not big.requires_grad


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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(3):
        loss = model(**inputs, labels=LABELS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.isfinite(loss)
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


def test_statistics_without_a_gradient():
    x = torch.randn(6, 2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    results = []
    for through in (True, False):
        query = x.clone().requires_grad_()
        debias = QueryKeyStandardizer(2, 4, length=3, scale=False, statistics_gradient=through)
        out, _ = debias(query, x)
        out.pow(2).sum().backward()
        results.append(query.grad)
    centred = x - x.mean(0)
    assert torch.allclose(results[0], 2 * centred)  # its mean over the batch is zero either way
    assert torch.allclose(results[1], 2 * centred)
    cubes = []
    for through in (True, False):
        query = x.clone().requires_grad_()
        out, _ = QueryKeyStandardizer(2, 4, length=3, scale=False, statistics_gradient=through)(query, x)
        out.pow(3).sum().backward()
        cubes.append(query.grad)
    sign = centred.sign()
    direct = 3 * centred.square() * sign
    assert torch.allclose(cubes[1], direct)
    assert torch.allclose(cubes[0], direct - direct.mean(0))


def test_the_deviation_is_a_constant_as_well():
    x = torch.randn(6, 2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    query = x.clone().requires_grad_()
    out, _ = QueryKeyStandardizer(2, 4, length=3, eps=0.0, statistics_gradient=False)(query, x)
    out.pow(3).sum().backward()
    deviation = x.std(0, correction=0)
    standard = (x - x.mean(0)) / deviation
    torch.testing.assert_close(query.grad, 3 * standard.square() * standard.sign() / deviation)


def test_twice_remembers_like_the_other_averages():
    x = torch.randn(4000, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    debias = QueryKeyStandardizer(1, 2, length=2, twice=True)
    trained, _ = debias(x, x)
    debias.commit()
    # One update from anywhere must remember exactly that batch, as the mean and the variance do.
    torch.testing.assert_close(debias.query.absolute_mean, trained.mean(0))


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


def test_selection_per_head_and_by_logits():
    # Head 0 looks at token 1, head 1 at token 3.
    query = torch.ones(1, 2, 1)
    key = torch.zeros(1, 2, 4, 1)
    key[0, 0, 1], key[0, 1, 3] = 5.0, 4.0
    logits = readout_logits(query, key, 1.0)
    options = {"readout": torch.zeros(1, dtype=torch.int64)}
    assert rank_tokens(logits, 1, ranking="per_head", **options)[0].tolist() == [[[1], [3]]]
    assert rank_tokens(logits, 1, ranking="mean_logit", **options)[0].tolist() == [[[1]]]
    before, _ = rank_tokens(logits, 1, ranking="per_head", off_by_one=True, **options)
    assert before.tolist() == [[[0], [2]]]  # the readout token itself when token 1 wins
    value = torch.arange(8.0).view(1, 2, 4, 1)
    assert select_top_values(logits, value, 1, ranking="per_head", **options).tolist() == [[1.0, 7.0]]


def test_probabilities_and_logits_rank_differently():
    query = torch.ones(1, 2, 1)
    key = torch.zeros(1, 2, 3, 1)
    key[0, :, 1, 0] = torch.tensor([9.0, -9.0])
    key[0, :, 2, 0] = torch.tensor([1.0, 1.0])
    logits = readout_logits(query, key, 1.0)
    options = {"readout": torch.zeros(1, dtype=torch.int64)}
    assert rank_tokens(logits, 1, **options)[0].item() == 1
    assert rank_tokens(logits, 1, ranking="mean_logit", **options)[0].item() == 2


def test_padding_can_be_let_in():
    inputs = batch("bert")
    options = {"statistics": "feature", "alpha": 0.0}
    changed = {**inputs, "input_ids": torch.where(inputs["attention_mask"] == 1, inputs["input_ids"], 7)}
    for mask, same in ((True, True), (False, False)):
        model = attach(build("bert"), DebiasConfig(notebook={"padding_mask": mask}, **options)).train()
        logits = [model(**one).logits for one in (inputs, changed)]
        assert torch.allclose(*logits, atol=1e-6) == same


def test_recipes_name_presets():
    recipe = {
        "data": {"name": "portraits"},
        "method": {"name": "dam", "debias": {"preset": "released-dino", "top_t": 3}},
    }
    debias = build_experiment(recipe).method.debias
    assert debias == DebiasConfig.preset("released-dino", top_t=3)
    recipe["method"]["debias"]["preset"] = "released-dion"
    with pytest.raises(ConfigError, match="no preset 'released-dion'"):
        build_experiment(recipe)
