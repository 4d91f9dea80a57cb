from __future__ import annotations

import math

import pytest
import torch
from tiny_models import Rows, batch, build
from torch import nn
from transformers import (
    CLIPConfig,
    CLIPForImageClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

import levelhead as lh
from levelhead.attention.capture import attention_weights, capture


def heads(x: torch.Tensor, count: int = 2) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def trained(model: nn.Module, name: str, steps: int = 3) -> nn.Module:
    """Running statistics that are not those of the start."""
    model.train()
    with torch.no_grad():
        for seed in range(steps):
            model(**batch(name, seed))
    return model.eval()


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
        model = trained(lh.attach(model), "vit")
    attention = vit_attention(model)
    hidden, _ = seen_by(linear(attention, "q"), model.eval(), inputs)
    query, key = (heads(linear(attention, letter)(hidden)).detach() for letter in "qk")
    (captured,) = capture(model, Rows(inputs), 6, "cpu")
    torch.testing.assert_close(captured.query, query)
    torch.testing.assert_close(captured.key, key)
    assert captured.scaling == pytest.approx(1 / math.sqrt(8))
    assert captured.valid is None
    assert captured.readout is not None
    assert captured.readout.tolist() == [0] * 6
    if debiased:
        for raw, clean, moments in (
            (query, captured.debiased_query, attention.debias.query),
            (key, captured.debiased_key, attention.debias.key),
        ):
            expected = ((raw - moments.mean) / (moments.variance + 1e-5).sqrt()).abs()
            torch.testing.assert_close(clean, expected)
        assert not torch.equal(captured.query, captured.debiased_query)
    else:
        assert torch.equal(captured.query, captured.debiased_query)
        assert torch.equal(captured.key, captured.debiased_key)


@pytest.mark.parametrize(
    "kind", ["plain", "attached", "attached released", "appended", "appended released", "appended plain"]
)
def test_weights_explain_what_the_attention_layer_puts_out(kind: str, family: str) -> None:
    """Readout row of softmax(q k) v, by hand from the captured weights, is what the layer hands on."""
    model, inputs = build(family), batch(family)
    released = kind.endswith("released")
    debias = (
        lh.DebiasConfig(notebook={"attention_temperature": 0.07, "padding_mask": False})
        if released
        else lh.DebiasConfig()
    )
    if kind.startswith("attached"):
        model = trained(lh.attach(model, debias), family)
    elif kind.startswith("appended"):
        backbone = model.base_model
        model = trained(lh.append_encoder(backbone, 3, debias=None if "plain" in kind else debias), family)
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
    (captured,) = capture(model, Rows(inputs), 6, "cpu")
    weights = attention_weights(captured)
    assert weights.shape == value.shape[:3]
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 2))
    by_hand = (weights[:, :, None] @ value)[:, :, 0].flatten(1)
    torch.testing.assert_close(by_hand, mixed[:, 0])
    if released:
        assert captured.valid is None
        assert captured.scaling == pytest.approx(1 / math.sqrt(8) / 0.07)
    elif family == "bert":
        assert captured.valid is not None
        assert torch.equal(captured.valid, inputs["attention_mask"].bool())
        assert weights.masked_select(~captured.valid[:, None].expand_as(weights)).abs().max() == 0


@pytest.mark.parametrize("debiased", [False, True])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_capturing_leaves_a_model_as_it_was(debiased: bool, implementation: str, family: str) -> None:
    model, inputs = build(family, attn_implementation=implementation), batch(family)
    if debiased:
        model = trained(lh.attach(model), family)
    model.eval()
    with torch.no_grad():
        before = model(**inputs).logits
    model.train()
    model.classifier.eval()  # modes are restored one by one
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attends_by = model.config._attn_implementation
    stream = capture(model, Rows(inputs), 2, "cpu")
    next(stream)
    assert model.training, "a reader who stops early leaves the model as it was, too"
    assert not model.classifier.training
    assert torch.is_grad_enabled()
    assert len(list(stream)) == 2
    assert model.config._attn_implementation == attends_by
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        assert torch.equal(model.eval()(**inputs).logits, before)


def test_the_pass_itself_computes_what_the_plain_model_computes(family: str) -> None:
    model, inputs = build(family).eval(), batch(family)
    with torch.no_grad():
        before = model(**inputs).logits
    during = []
    handle = model.classifier.register_forward_hook(lambda module, args, output: during.append(output))
    list(capture(model, Rows(inputs), 6, "cpu"))
    handle.remove()
    assert torch.equal(during[0].reshape(before.shape[0], -1)[:, -3:], before) or torch.allclose(
        during[0], before, atol=1e-6
    )


def test_batches_do_not_matter(family: str) -> None:
    model, inputs = trained(lh.attach(build(family)), family), batch(family)
    (whole,) = capture(model, Rows(inputs), 6, "cpu")
    parts = list(capture(model, Rows(inputs), 4, "cpu"))
    assert [len(part.query) for part in parts] == [4, 2]
    torch.testing.assert_close(torch.cat([part.debiased_query for part in parts]), whole.debiased_query)
    torch.testing.assert_close(
        torch.cat([attention_weights(part) for part in parts]), attention_weights(whole), atol=1e-6, rtol=1e-5
    )


def decoder(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "gpt2":
        config = GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=16, vocab_size=50, num_labels=3, pad_token_id=0)
        return GPT2ForSequenceClassification(config)
    return LlamaForSequenceClassification(
        LlamaConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=16,
            vocab_size=50,
            num_labels=3,
            pad_token_id=0,
        )
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_decoder_is_read_at_its_last_real_token(kind: str) -> None:
    model, inputs = decoder(kind).eval(), batch("bert")
    (captured,) = capture(model, Rows(inputs), 6, "cpu")
    assert captured.readout is not None
    assert captured.readout.tolist() == [3, 6, 6, 1, 6, 6]
    weights = attention_weights(captured)
    assert weights.shape == (6, captured.query.shape[1], 7)
    assert weights[0, :, 4:].abs().max() == 0
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True).attentions[-1]
    torch.testing.assert_close(weights, expected[torch.arange(6), :, captured.readout], atol=1e-6, rtol=1e-5)


def test_a_causal_layer_without_padding_still_looks_back_only() -> None:
    model = decoder("gpt2").eval()
    inputs = {"input_ids": batch("bert")["input_ids"][1:3]}
    (captured,) = capture(model, Rows(inputs), 2, "cpu")
    early = attention_weights(type(captured)(**{**vars(captured), "readout": torch.tensor([2, 2])}))
    assert early[:, :, 3:].abs().max() == 0


def test_mean_pooling_has_no_readout_row_and_gives_the_mean_over_rows() -> None:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = CLIPConfig(
        vision_config={**small, "image_size": 8, "patch_size": 4}, text_config={**small, "vocab_size": 50}
    )
    config.num_labels = 3
    torch.manual_seed(0)
    model = CLIPForImageClassification(config).eval()
    (captured,) = capture(model, Rows(batch("vit")), 6, "cpu")
    assert captured.readout is None
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(**batch("vit"), output_attentions=True).attentions[-1]
    torch.testing.assert_close(attention_weights(captured), expected.mean(dim=2), atol=1e-6, rtol=1e-5)


def test_the_mean_over_rows_leaves_padding_out() -> None:
    model, inputs = build("bert").eval(), batch("bert")
    (captured,) = capture(model, Rows(inputs), 6, "cpu")
    weights = attention_weights(type(captured)(**{**vars(captured), "readout": None}))
    one = type(captured)(**{**vars(captured), "readout": torch.zeros(6, dtype=torch.int64)})
    two = type(captured)(**{**vars(captured), "readout": torch.ones(6, dtype=torch.int64)})
    expected = (attention_weights(one)[3] + attention_weights(two)[3]) / 2  # row 3 has two real tokens
    torch.testing.assert_close(weights[3], expected)


@pytest.mark.parametrize("debiased", [False, True])
def test_an_appended_layer_is_read_at_its_first_real_token(debiased: bool) -> None:
    inputs = {name: tensor.flip(1) for name, tensor in batch("bert").items()}  # padding on the left
    debias = lh.DebiasConfig() if debiased else None
    model = trained(lh.append_encoder(build("bert").base_model, 3, debias=debias), "bert")
    (captured,) = capture(model, Rows(inputs), 6, "cpu")
    assert captured.readout is not None
    assert captured.readout.tolist() == [3, 0, 0, 5, 0, 0]
