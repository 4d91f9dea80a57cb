"""TADeT and DSA, which see groups, against numbers worked by hand."""

import math

import pytest
import torch
from labs import SIZE, lab_of
from torch.nn.functional import cross_entropy
from transformers import (
    Dinov2Config,
    Dinov2ForImageClassification,
    ViTConfig,
    ViTModel,
)

from levelhead.attention import append_encoder, attach, readout_only
from levelhead.attention.watching import attending, attention_map, readout_query
from levelhead.methods.dsa import pixel_range
from levelhead.objectives.patches import PatchAttack, patch_layout, replace_patch, without_conflict
from levelhead.objectives.queries import TargetedAlignment, query_distance, reversal_strength, reversed_gradient
from levelhead.objectives.self_attention import DebiasedSelfAttention, attention_divergence
from levelhead.types import Batch
from tiny import make_examples, make_texts, tiny_appended, tiny_bert, tiny_vit

QUERY = torch.tensor([[1.0, 0], [3, 2], [0, 1], [2, 2], [4, 0], [1, 1]], dtype=torch.float64)
LABELS, GROUP = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 0, 1, 1])
ONES = torch.ones(6, dtype=torch.float64)
PICTURE = torch.zeros(1, 3, 16, 16)


def distance(query=QUERY, labels=LABELS, group=GROUP, weight=ONES, *, classes=2, groups=2, means="by_class"):
    return query_distance(query, labels, group, weight, classes=classes, groups=groups, means=means).item()


def test_mean_queries_are_compared_within_each_class_where_shifts_that_cancel_out_are_seen():
    assert distance() == pytest.approx(6.5)
    assert distance(means="scalar") == pytest.approx(0.25)
    query = torch.tensor([[1.0, -1], [1, -1], [-1, 1], [-1, 1]])
    labels, group, ones = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]), torch.ones(4)
    assert distance(query, labels, group, ones) == pytest.approx(16)
    assert distance(query, labels, group, ones, means="scalar") == 0


def test_with_three_groups_it_is_the_mean_over_the_pairs_that_are_there():
    query, labels = torch.tensor([[0.0], [3], [1], [5], [7]]), torch.tensor([0, 0, 0, 1, 1])
    group = torch.tensor([0, 1, 2, 0, 2])  # group 1 has no row of class 1
    found = distance(query, labels, group, torch.ones(5), groups=3)
    assert found == pytest.approx((9 + 1 + 4) / 3 + 4)


def test_a_pair_that_is_not_there_gives_no_gradient_that_is_not_finite():
    query = QUERY.clone().requires_grad_()
    loss = query_distance(query, LABELS, torch.zeros(6, dtype=torch.int64), ONES, classes=3, groups=2)
    loss.backward()
    assert loss.item() == 0
    assert not query.grad.any()


def test_the_reversal_grows_from_none_to_all():
    done = torch.tensor([0, 0.1, 1.0], dtype=torch.float64)
    found = reversal_strength(done)
    assert found.tolist() == pytest.approx([0, 0.462117, 2 / (1 + math.exp(-10)) - 1], abs=1e-6)
    x = torch.tensor([2.0], requires_grad=True)
    (3 * reversed_gradient(x, torch.tensor(0.5))).sum().backward()
    assert x.grad.item() == pytest.approx(-1.5)


def objective_batch(rows=6, groups=2):
    examples, index = make_examples(rows), torch.arange(rows)
    return Batch(examples.inputs.batch(index), examples.labels, index, torch.ones(rows), index // 2 % groups)


def test_tadet_is_the_sum_of_its_terms_and_reverses_the_gradient_of_the_network_alone():
    torch.manual_seed(0)
    model = tiny_vit(dropout=0.0)
    objective = TargetedAlignment(model, 2, 10, adversary=0.5, alignment=0.0)
    objective.steps += 1
    batch = objective_batch()
    loss, logs = objective(batch)
    loss.backward()
    assert logs["strength"].item() == pytest.approx(0.462117, abs=1e-6)
    assert objective.steps.item() == 2
    captured = []
    hook = model.vit.layers[-1].attention.q_proj.register_forward_hook(lambda m, args, output: captured.append(output))
    task = cross_entropy(model(**batch.inputs).logits, batch.labels)
    hook.remove()
    query = captured[0][:, 0]  # heads next to each other, as they are flattened
    guessed = cross_entropy(objective.group_head(query), batch.group)
    assert loss.item() == pytest.approx((task + 0.5 * guessed).item(), abs=1e-6)
    of_head = torch.autograd.grad(guessed, objective.group_head.weight, retain_graph=True)[0]
    assert torch.allclose(objective.group_head.weight.grad, 0.5 * of_head, atol=1e-7)
    layer = model.vit.layers[0].mlp.fc1.weight
    plain, adversarial = (torch.autograd.grad(part, layer, retain_graph=True)[0] for part in (task, guessed))
    assert adversarial.abs().max() > 1e-6
    assert torch.allclose(layer.grad, plain - 0.5 * logs["strength"] * adversarial, atol=1e-7)


@pytest.mark.parametrize("kind", ["vit", "vit, one row", "dam", "bert", "dam bert", "appended", "dam appended"])
def test_the_query_is_that_of_the_row_that_is_read(kind):
    torch.manual_seed(0)
    network = {"bert": tiny_bert, "appended": tiny_appended}.get(kind.split()[-1], tiny_vit)()
    make = make_examples if "vit" in kind or kind == "dam" else make_texts
    if kind.startswith("dam"):
        attach(network)
    if kind == "vit, one row":
        readout_only(network, True)
    rows = torch.arange(6)
    before = network.config._attn_implementation
    readout = readout_query(network)
    with attending(network.eval()) as seen:
        network.train()(**make(6).inputs.batch(rows))
    assert readout(seen[-1]).shape == (6, 16)
    assert readout(seen[-1]).requires_grad
    assert torch.allclose(readout(seen[-1]), seen[-1].query[:, :, 0].flatten(1))
    assert network.config._attn_implementation == before
    assert len(seen) == {"appended": 3}.get(kind.split()[-1], 2)


def test_where_no_row_is_read_the_query_is_the_mean():
    network = Dinov2ForImageClassification(Dinov2Config(**SIZE))
    readout = readout_query(network)
    assert readout.tap.readout == "none"
    with attending(network) as seen:
        network(**make_examples(4).inputs.batch(torch.arange(4)))
    assert torch.allclose(readout(seen[-1]), seen[-1].query.mean(dim=2).flatten(1))


def test_attention_that_is_equal_diverges_least():
    target = torch.tensor([[0.2, 0.5, 0.1]], dtype=torch.float64)
    found = attention_divergence(torch.tensor([[0.4, 0.3, 0.1]], dtype=torch.float64), target)
    assert found.item() == pytest.approx(0.656906, abs=1e-6)
    assert attention_divergence(target, target).item() == pytest.approx(0, abs=1e-12)
    assert attention_divergence(2 * target, target).item() == pytest.approx(0, abs=1e-12)
    everywhere = torch.rand(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (attention_divergence(everywhere, target.expand(200, -1)) > 0).all()


def test_attention_on_one_patch_alone_stays_finite():
    plain = torch.tensor([[0.0, 1.0, 0.0]], requires_grad=True)
    loss = attention_divergence(plain, torch.tensor([[0.5, 0.0, 0.5]]))
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(plain.grad).all()


def test_the_map_is_what_the_model_reports_as_its_attention():
    torch.manual_seed(0)
    model = tiny_vit().eval()
    inputs = make_examples(3).inputs.batch(torch.arange(3))
    with attending(model) as seen:
        model(**inputs)
    model.set_attn_implementation("eager")
    told = model(**inputs, output_attentions=True).attentions
    for layer, weights in zip(seen, told, strict=True):
        assert torch.allclose(attention_map(layer), weights.mean(dim=1), atol=1e-6)


def test_a_patch_is_replaced_in_its_place_and_nowhere_else():
    pixels = torch.randn(3, 2, 16, 24, generator=torch.Generator().manual_seed(0))
    content, place = torch.full((3, 2, 8, 8), 9.0), torch.tensor([0, 4, 5])
    found = replace_patch(pixels, place, content)
    for picture, (row, column) in enumerate([(0, 0), (1, 1), (1, 2)]):
        inside = torch.zeros(16, 24, dtype=torch.bool)
        inside[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = True
        assert (found[picture][:, inside] == 9).all()
        assert torch.equal(found[picture][:, ~inside], pixels[picture][:, ~inside])


def test_a_conflicting_gradient_loses_what_works_against_the_other():
    one, other = torch.tensor([[1.0, -1], [1, 1], [-3, 0]]), torch.tensor([[0.0, 2], [0, 2], [0, 0]])
    found = without_conflict(one, other)
    assert found.tolist() == [[1, 0], [1, 1], [-3, 0]]
    assert ((found * other).sum(dim=1) >= 0).all()


def attack_on(model, **options):
    layout = patch_layout(model, PICTURE)
    low, high = torch.full((3,), -2.0), torch.full((3,), 2.0)
    return PatchAttack(model, layout, low, high, **{"layer": 0, "steps": 5, **options})


def test_a_vision_transformer_is_attacked_through_all_its_layers_and_those_of_a_backbone_that_is_trained():
    layout = patch_layout(tiny_vit(layers=3), PICTURE)
    assert (layout.size, layout.count, layout.prefix, layout.layers) == (8, 4, 1, 3)
    torch.manual_seed(0)
    model = append_encoder(ViTModel(ViTConfig(**SIZE), add_pooling_layer=False), 2, freeze=False, debias=None)
    layout = patch_layout(model, PICTURE)
    assert (layout.count, layout.prefix, layout.layers) == (4, 1, 4)
    pixels, noise = torch.randn(3, 3, 16, 16), torch.rand(3, 3, 8, 8)
    content = attack_on(model)(pixels, torch.tensor([0, 1, 1]), noise)[1]
    assert not torch.allclose(content, 4 * noise - 2)


@pytest.fixture
def attacked():
    """A network of which layer 1 is in the lower half, and pictures, answers and noise for an attack on it."""
    torch.manual_seed(0)
    pixels = make_examples(6).inputs.batch(torch.arange(6))["pixel_values"]
    return tiny_vit(layers=4), pixels, torch.arange(6) % 2, torch.rand(6, 3, 8, 8)


def test_the_attack_makes_the_network_err_more_in_the_patch_with_most_attention_and_draws_it_in_if_asked(attacked):
    model, pixels, answers, noise = attacked
    generator = torch.get_rng_state()
    place, content = attack_on(model, steps=10)(pixels, answers, noise)
    assert model.training
    assert torch.equal(torch.get_rng_state(), generator)  # training continues as if nothing had been drawn
    drawn_in = attack_on(model, steps=10, attention=1000.0)(pixels, answers, noise)[1]
    model.eval()
    with torch.no_grad(), attending(model) as seen:
        model(pixel_values=pixels)
    assert torch.equal(place, attention_map(seen[0])[:, :, 1:].mean(dim=1).argmax(dim=1))
    assert content.abs().max() <= 2

    def outcome(inside):
        with torch.no_grad(), attending(model) as seen:
            logits = model(pixel_values=replace_patch(pixels, place, inside)).logits
        given = attention_map(seen[1]).gather(2, (place + 1)[:, None, None].expand(-1, 5, 1))
        return cross_entropy(logits, answers, reduction="none"), given.log().mean()

    assert (outcome(content)[0] > outcome(4 * noise - 2)[0]).all()
    assert outcome(drawn_in)[1] > outcome(content)[1]


def test_no_row_of_an_attack_depends_on_the_others(attacked):
    model, *inputs = attacked
    attack = attack_on(model, steps=3, attention=0.5)
    place, content = attack(*inputs)
    for row in range(6):
        alone = attack(*(each[row : row + 1] for each in inputs))
        assert torch.equal(alone[0], place[row : row + 1])
        assert torch.allclose(alone[1], content[row : row + 1], atol=1e-4)


def test_dsa_is_the_sum_of_its_terms():
    torch.manual_seed(0)
    model = tiny_vit(dropout=0.0)
    batch, place = objective_batch(), torch.tensor([0, 1, 2, 3, 0, 1])
    content = torch.randn(6, 3, 8, 8)
    objective = DebiasedSelfAttention(model, place, content, adversarial=0.5, alignment=2.0)
    loss, _ = objective(batch)
    pixels = batch.inputs["pixel_values"]
    model.set_attn_implementation("eager")
    passes = [model(pixel_values=pictures, output_attentions=True)
              for pictures in (pixels, replace_patch(pixels, place, content))]  # fmt: skip
    maps = [[weights.mean(dim=(1, 2))[:, 1:] for weights in one.attentions] for one in passes]
    divergence = sum(attention_divergence(*layer) for layer in zip(*maps, strict=True)).mean()
    terms = [cross_entropy(one.logits, batch.labels) for one in passes]
    expected = terms[0] + 0.5 * terms[1] + 2 * divergence
    assert divergence > 1e-6
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert set(objective.state_dict()) == {f"model.{name}" for name in model.state_dict()}


def told_lab(examples=None, **options):
    """A lab that is told groups."""
    examples = examples or make_examples(20)
    return lab_of(examples, examples, told={"groups": torch.arange(len(examples.labels)) % 2}, batch_size=4, **options)


def test_the_range_of_pixels_is_that_of_the_data():
    examples = make_examples(20)
    low, high, picture = pixel_range(told_lab(examples))
    assert picture.shape == (1, 3, 16, 16)
    assert torch.equal(low, examples.inputs.pixels.amin(dim=(0, 2, 3)))
    assert torch.equal(high, examples.inputs.pixels.amax(dim=(0, 2, 3)))
