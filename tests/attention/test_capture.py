"""Queries, keys and attention that are read from a model are those that its own layers compute."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_models import Rows, backbone, batch, build, make, trained
from torch import nn

import levelhead as lh
from levelhead.attention.capture import Captured, attention_weights, capture


def heads(x: torch.Tensor, count: int = 2) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def moved(model: Any, name: str) -> Any:
    """Running statistics that are not those of the start."""
    for seed in range(3):
        trained(model, batch(name, seed))
    return model


def captured(model: Any, inputs: dict[str, torch.Tensor]) -> Captured:
    (found,) = capture(model, Rows(inputs), 6, "cpu")
    return found


def seen_by(module: nn.Module, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Input and output of one module in a pass of its own."""
    kept = []
    handle = module.register_forward_hook(
        lambda module, args, kwargs, output: kept.append((args or tuple(kwargs.values()), output)), with_kwargs=True
    )
    with torch.no_grad():
        model(**inputs)
    handle.remove()
    args, output = kept[-1]
    return args[0], output[0] if isinstance(output, tuple) else output


def vit_attention(model: nn.Module) -> nn.Module:
    found = [module for path, module in model.named_modules() if path.endswith("1.attention")]
    return next(module for module in found[-1].modules() if len(dict(module.named_children())) >= 3)


def linear(attention: nn.Module, letter: str) -> nn.Module:
    """The projection of queries, keys or values, however this version of transformers spells it."""
    names = {"q": ("query", "q_proj"), "k": ("key", "k_proj"), "v": ("value", "v_proj")}[letter]
    return next(module for name, module in attention.named_children() if name in names)


@pytest.mark.parametrize("debiased", [False, True])
def test_a_vit_is_captured_as_its_own_layers_compute_it(debiased: bool) -> None:
    model, inputs = build("vit"), batch("vit")
    if debiased:
        model = moved(lh.attach(model), "vit")
    attention = vit_attention(model)
    hidden, _ = seen_by(linear(attention, "q"), model.eval(), inputs)
    found = captured(model, inputs)
    for letter, raw, clean in (
        ("q", found.query, found.debiased_query),
        ("k", found.key, found.debiased_key),
    ):
        by_hand = heads(linear(attention, letter)(hidden)).detach()
        torch.testing.assert_close(raw, by_hand)
        if debiased:
            moments = attention.debias.query if letter == "q" else attention.debias.key
            by_hand = ((by_hand - moments.mean) / (moments.variance + 1e-5).sqrt()).abs()
        torch.testing.assert_close(clean, by_hand)
    assert found.scaling == pytest.approx(1 / math.sqrt(8))
    assert found.valid is None
    assert found.readout is not None
    assert found.readout.tolist() == [0] * 6


@pytest.mark.parametrize(
    "kind", ["plain", "attached", "attached released", "appended", "appended released", "appended plain"]
)
def test_weights_explain_what_the_attention_layer_puts_out(kind: str, family: str) -> None:
    """Readout row of softmax(q k) v, by hand from the captured weights, is what the layer hands on."""
    model, inputs = build(family), batch(family)
    released = kind.endswith("released")
    notebook: Any = {"attention_temperature": 0.07, "padding_mask": False} if released else {}
    debias = lh.DebiasConfig(notebook=notebook)
    if kind.startswith("attached"):
        model = moved(lh.attach(model, debias), family)
    elif kind.startswith("appended"):
        model = moved(lh.append_encoder(model.base_model, 3, debias=None if "plain" in kind else debias), family)
    model.eval()
    if kind.startswith("appended"):
        attention = model.block.attention
        projection = attention.output
    elif family == "vit":
        attention = vit_attention(model)
        projection = next(
            m for n, m in model.named_modules() if n.endswith(("1.attention.output.dense", "1.attention.o_proj"))
        )
    else:
        attention = model.bert.encoder.layer[1].attention.self
        projection = model.bert.encoder.layer[1].attention.output.dense
    value = heads(seen_by(linear(attention, "v"), model, inputs)[1])
    mixed, _ = seen_by(projection, model, inputs)
    found = captured(model, inputs)
    weights = attention_weights(found)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 2))
    torch.testing.assert_close((weights[:, :, None] @ value)[:, :, 0].flatten(1), mixed[:, 0])
    if released:
        assert found.valid is None
        assert found.scaling == pytest.approx(1 / math.sqrt(8) / 0.07)
    elif family == "bert":
        assert found.valid is not None
        assert torch.equal(found.valid, inputs["attention_mask"].bool())
        assert weights.masked_select(~found.valid[:, None].expand_as(weights)).abs().max() == 0


@pytest.mark.parametrize("debiased", [False, True])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_capturing_leaves_a_model_as_it_was(debiased: bool, implementation: str, family: str) -> None:
    model, inputs = build(family, attn_implementation=implementation), batch(family)
    if debiased:
        model = moved(lh.attach(model), family)
    model.eval()
    with torch.no_grad():
        before = model(**inputs).logits
    model.train()
    model.classifier.eval()  # modes are restored one by one
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attends_by = model.config._attn_implementation
    during: list[torch.Tensor] = []
    handle = model.classifier.register_forward_hook(lambda module, args, output: during.append(output[..., -3:]))
    stream = capture(model, Rows(inputs), 2, "cpu")
    next(stream)
    assert model.training, "a reader who stops early leaves the model as it was, too"
    assert not model.classifier.training
    assert torch.is_grad_enabled()
    assert len(list(stream)) == 2
    handle.remove()
    torch.testing.assert_close(torch.cat([one for one in during if len(one) == 2]), before, atol=1e-6, rtol=1e-5)
    assert model.config._attn_implementation == attends_by
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        assert torch.equal(model.eval()(**inputs).logits, before)


def test_batches_do_not_matter(family: str) -> None:
    model, inputs = moved(make("attach", family), family), batch(family)
    whole, parts = captured(model, inputs), list(capture(model, Rows(inputs), 4, "cpu"))
    assert [len(part.query) for part in parts] == [4, 2]
    torch.testing.assert_close(torch.cat([part.debiased_query for part in parts]), whole.debiased_query)
    torch.testing.assert_close(
        torch.cat([attention_weights(part) for part in parts]), attention_weights(whole), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama", "clip"])
def test_weights_are_those_of_eager_attention_in_the_row_that_is_read(kind: str) -> None:
    """The last real token of a decoder; the mean over all rows where all are pooled."""
    model, inputs = build(kind).eval(), batch(kind)
    found = captured(model, inputs)
    weights = attention_weights(found)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True).attentions[-1]
    if kind == "clip":
        assert found.readout is None
        expected = expected.mean(dim=2)
    else:
        assert found.readout is not None
        assert found.readout.tolist() == [3, 6, 6, 4, 6, 6]
        expected = expected[torch.arange(6), :, found.readout]
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=1e-5)


def test_a_causal_layer_without_padding_still_looks_back_only() -> None:
    found = captured(build("gpt2").eval(), {"input_ids": batch("gpt2")["input_ids"][1:3]})
    early = attention_weights(replace(found, readout=torch.tensor([2, 2])))
    assert early[:, :, 3:].abs().max() == 0


def test_the_mean_over_rows_leaves_padding_out() -> None:
    found = captured(build("bert").eval(), batch("bert"))
    weights = attention_weights(replace(found, readout=None))
    rows = [attention_weights(replace(found, readout=torch.full((6,), row)))[3] for row in range(5)]
    torch.testing.assert_close(weights[3], torch.stack(rows).mean(0))  # row 3 has five real tokens


@pytest.mark.parametrize("debiased", [False, True])
def test_an_appended_layer_is_read_at_its_first_real_token(debiased: bool) -> None:
    inputs = {name: tensor.flip(1) for name, tensor in batch("bert").items()}  # padding on the left
    model = lh.append_encoder(backbone("bert"), 3, debias=lh.DebiasConfig() if debiased else None)
    found = captured(moved(model, "bert"), inputs)
    assert found.readout is not None
    assert found.readout.tolist() == [3, 0, 0, 2, 0, 0]
