"""``output_attentions=True`` gives what an eager model gives, and the debiased probabilities of the last layer."""

import copy

import pytest
import torch
from tiny_models import LABELS, SMALL, Rows, backbone, batch, build, make, trained
from transformers import (
    DebertaV2Config,
    DebertaV2Model,
)

from levelhead.attention import append_encoder, attach, from_pretrained, interface
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.capture import attention_weights, capture
from levelhead.attention.watching import attention_map


@pytest.mark.filterwarnings("ignore:.*rotary position:UserWarning")
@pytest.mark.parametrize("family", ["vit", "bert", "llama", "gpt2"])
def test_attached_attentions_are_those_of_an_eager_model_and_the_debiased_ones(family):
    inputs, eager = batch(family), build(family)
    model = trained(attach(copy.deepcopy(eager)), inputs)
    eager.set_attn_implementation("eager")
    expected = eager.eval()(**inputs, output_attentions=True).attentions
    plain, output = model(**inputs), model(**inputs, output_attentions=True)
    torch.testing.assert_close(output.logits, plain.logits)
    assert len(output.attentions) == len(expected) == 2
    torch.testing.assert_close(output.attentions[0], expected[0])
    assert not torch.allclose(output.attentions[1], expected[1], atol=1e-4)
    torch.testing.assert_close(output.attentions[1].sum(-1), torch.ones(output.attentions[1].shape[:3]))
    (seen,) = capture(model, Rows(inputs), 6, "cpu")
    weights = output.attentions[1]
    torch.testing.assert_close(weights[torch.arange(6), :, seen.readout], attention_weights(seen))
    assert plain.attentions is None
    assert model(**inputs, output_attentions=True, return_dict=False)[-1][1].shape == output.attentions[1].shape


def test_a_configuration_that_asks_for_attentions_gets_them(family, tmp_path):
    eager = build(family)
    eager.set_attn_implementation("eager")
    eager.config.output_attentions = True
    model = attach(eager).train()
    output = model(**batch(family), labels=LABELS)
    assert len(output.attentions) == 2
    output.loss.backward()
    model.eval().save_pretrained(tmp_path)
    assert len(from_pretrained(tmp_path)(**batch(family)).attentions) == 2
    appended = append_encoder(backbone(family), 3)
    appended.config.output_attentions = True
    assert len(appended.train()(**batch(family), labels=LABELS).attentions) == 3
    appended.eval().save_pretrained(tmp_path / "appended")
    assert len(from_pretrained(tmp_path / "appended")(**batch(family)).attentions) == 3


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
@pytest.mark.parametrize("checkpointing", [False, True])
def test_attentions_in_training_have_a_gradient(family, checkpointing):
    model = make("attach", family).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    output = model(**batch(family), labels=LABELS, output_attentions=True)
    (output.loss + output.attentions[-1].square().sum()).backward()
    assert debiased_attention(model).debias.key.num_batches_tracked.max() == 1
    alone = make("attach", family).train()(**batch(family), labels=LABELS)
    torch.testing.assert_close(output.loss, alone.loss)


@pytest.mark.parametrize("layers", [1, 2])
def test_appended_attentions_and_hidden_states_are_those_of_the_backbone_and_its_own(family, layers):
    below = backbone(family)
    inputs = batch(family)
    model = trained(append_encoder(below, 3, layers=layers), inputs)
    model.micro_batch = 2
    output = model(**inputs, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(output.logits, model(**inputs).logits)
    eager = copy.deepcopy(below)
    eager.set_attn_implementation("eager")
    expected = eager(**inputs, output_attentions=True, output_hidden_states=True)
    assert len(output.attentions) == len(expected.attentions) + layers
    assert len(output.hidden_states) == len(expected.hidden_states) + layers
    torch.testing.assert_close(output.attentions[:-layers], expected.attentions)
    torch.testing.assert_close(output.hidden_states[:-layers], expected.hidden_states)
    (seen,) = capture(model, Rows(inputs), 6, "cpu")
    torch.testing.assert_close(output.attentions[-1][torch.arange(6), :, seen.readout], attention_weights(seen))
    torch.testing.assert_close(model.classifier(output.hidden_states[-1][:, 0]), output.logits)
    features = below(**inputs).last_hidden_state
    mask = {"attention_mask": inputs["attention_mask"]} if "attention_mask" in inputs else {}
    of_features = model(features=features, **mask, output_attentions=True)
    assert len(of_features.attentions) == layers
    assert of_features.hidden_states is None


def test_a_backbone_with_attention_of_its_own_gives_its_attentions():
    config = DebertaV2Config(**SMALL, vocab_size=50, max_position_embeddings=16)
    model = append_encoder(DebertaV2Model(config), 3).train()
    assert len(model(**batch("bert"), labels=LABELS, output_attentions=True).attentions) == 3


@pytest.mark.parametrize("kind", ["none", "causal", "boolean", "additive"])
def test_watched_attention_includes_a_position_bias(kind):
    torch.manual_seed(0)
    query, key, value, bias = *torch.randn(3, 2, 4, 5, 8), torch.randn(1, 4, 5, 5)
    allowed = torch.rand(2, 1, 5, 5) > 0.3
    allowed[..., 0] = True
    mask = {"boolean": allowed, "additive": torch.zeros(2, 1, 5, 5).masked_fill(~allowed, -1e30)}.get(kind)
    seen = []
    with interface.watched(seen.append):
        _, weights = interface.levelhead_attention(
            torch.nn.Identity(), query, key, value, mask, 0.3,
            is_causal=kind == "causal", position_bias=bias, output_attentions=True,
        )  # fmt: skip
    torch.testing.assert_close(attention_map(seen[0]), weights.mean(1).expand(2, -1, -1))
    valid = interface.valid_keys(seen[0].mask, 2)
    assert torch.equal(valid, torch.ones(2, 5, dtype=torch.bool) if mask is None else allowed.any(2).any(1))
