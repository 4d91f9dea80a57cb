"""The appended layer computes the readout row alone: equal to the whole layer, in outputs, gradients and statistics."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from levelhead.attention import DebiasConfig, append_encoder, attach
from levelhead.attention.capture import capture
from levelhead.data.texts import TokenInputs


def backbone() -> BertModel:
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertModel(config, add_pooling_layer=False)


def make(debias: DebiasConfig | None, **options: Any) -> Any:
    torch.manual_seed(1)
    model = append_encoder(backbone(), 3, debias=debias, **options).double()
    for name, parameter in model.named_parameters():  # biases start at 0, where folding them would not show
        if name.endswith("bias") and "backbone" not in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def batch(padded: bool) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(9, 7, 16, dtype=torch.float64, generator=generator)
    if not padded:
        return {"features": features}
    lengths = torch.tensor([7, 3, 5, 4, 7, 2, 6, 5, 3])
    return {"features": features, "attention_mask": (torch.arange(7) < lengths[:, None]).long()}


def whole(model: Any) -> Any:
    """Make the layer compute all rows: somebody looks at them."""
    model.block.register_forward_hook(lambda *_: None)
    return model


CONFIGS = {
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


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", CONFIGS)
def test_one_row_equals_the_whole_layer(name: str, norm: str, padded: bool) -> None:
    labels = torch.tensor([0, 1, 2] * 3)
    results = []
    for change in (lambda model: model, whole):
        model = change(make(CONFIGS[name], norm=norm)).train()
        assert ("alone" in repr(model)) == (change is not whole)
        inputs = batch(padded)
        inputs["features"].requires_grad_()
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        gradients = {key: value.grad for key, value in model.named_parameters() if value.grad is not None}
        buffers = {key: value for key, value in model.named_buffers() if "debias.query" not in key}
        with torch.no_grad():
            evaluated = model.eval()(**batch(padded)).logits
        results.append({"loss": loss.detach(), "features": inputs["features"].grad, "eval": evaluated, **gradients})
        results[-1] |= {key: value.double() for key, value in buffers.items()}
    one, full = results
    assert one.keys() == full.keys()
    for key, value in one.items():
        # Running statistics are float32; the key's bias shifts all logits of a row alike and has no gradient.
        close = 1e-6 if "debias" in key else 1e-12
        assert torch.allclose(value, full[key], atol=close, rtol=close), key


def test_what_needs_the_whole_layer_gets_it() -> None:
    assert not make(DebiasConfig(statistics="feature")).block.reads_one_row()
    assert not make(DebiasConfig(ranking="per_head")).block.reads_one_row()
    assert "all rows" in repr(make(DebiasConfig(readout="none")))
    model = make(DebiasConfig())
    assert model.block.reads_one_row()

    class Adapted(nn.Linear):
        """Stands for LoRA, quantisation and the like."""

    model.block.attention.value = Adapted(16, 16).double()
    assert not model.block.reads_one_row()
    model = make(None)
    handle = model.block.attention.key.register_forward_hook(lambda *_: None)
    assert not model.block.reads_one_row()
    handle.remove()
    assert model.block.reads_one_row()


def test_what_was_trained_on_one_row_says_so_when_it_is_captured() -> None:
    model = append_encoder(backbone(), 2)
    lengths = torch.tensor([4, 6, 3, 5])
    ids = torch.randint(1, 50, (int(lengths.sum()),), generator=torch.Generator().manual_seed(0)).int()
    inputs = TokenInputs({"input_ids": ids}, lengths, {})
    model.train()(**inputs.batch(torch.arange(4)), labels=torch.tensor([0, 1, 0, 1]))
    (seen,) = capture(model, inputs, 4, "cpu")
    assert not seen.other_rows
    model = append_encoder(backbone(), 2)
    whole(model).train()(**inputs.batch(torch.arange(4)), labels=torch.tensor([0, 1, 0, 1]))
    (seen,) = capture(model, inputs, 4, "cpu")
    assert seen.other_rows


def test_a_row_of_padding_alone_spoils_nothing() -> None:
    model = make(DebiasConfig()).train()
    inputs = batch(True)
    inputs["attention_mask"][3] = 0
    loss = model(**inputs, labels=torch.tensor([0, 1, 2] * 3)).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    assert torch.isfinite(model.eval()(**inputs).logits).all()


def test_half_precision_is_as_good_as_the_whole_layers() -> None:
    debias = DebiasConfig(alpha=0, notebook={"attention_temperature": 0.07})
    exact = make(debias).train()
    exact(**batch(True))
    expected = exact.eval()(**batch(True)).logits.detach()
    errors = []
    for change in (lambda model: model, whole):
        model = make(debias).requires_grad_(False)
        model.load_state_dict(exact.state_dict())
        found = change(model).bfloat16().eval()(**batch(True)).logits
        errors.append((found - expected).abs().mean().item())
    assert errors[0] < 1.5 * errors[1]


def test_large_logits_do_not_overflow_in_half_precision() -> None:
    model = make(None).half().eval()
    with torch.no_grad():
        for projection in (model.block.attention.query, model.block.attention.key):
            projection.weight.mul_(3e3)
    assert torch.isfinite(model(**batch(True)).logits).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_alignment_trains_on_features_without_a_graph(norm: str) -> None:
    model = make(DebiasConfig(), norm=norm).train()
    model(**batch(True), labels=torch.tensor([0, 1, 2] * 3)).loss.backward()
    assert model.alignment_head.output.weight.grad.abs().sum() > 0
    assert model.block.attention.value.weight.grad.abs().sum() > 0


def test_the_last_of_several_layers_is_debiased() -> None:
    labels = torch.tensor([0, 1, 2] * 3)
    model = make(DebiasConfig(), layers=3).train()
    output = model(**batch(True), labels=labels)
    assert output.loss > nn.functional.cross_entropy(output.logits.float(), labels)
    assert model.block.attention.debias.key.num_batches_tracked.max() == 1
    output.loss.backward()
    assert model.alignment_head.output.weight.grad.abs().sum() > 0
    assert model.below[0].attention.value.weight.grad.abs().sum() > 0


def test_debiasing_a_plain_layer_keeps_its_type_and_what_is_frozen() -> None:
    model = append_encoder(backbone().bfloat16(), 2, debias=None)
    model.block.float()
    model.block.norm_attention.requires_grad_(False)
    attach(model, DebiasConfig())
    assert model.block.attention.key.weight.dtype == model.alignment_head.output.weight.dtype == torch.float32
    assert not model.block.norm_attention.weight.requires_grad


def test_offloaded_layers_are_called() -> None:
    model = make(None).eval()
    expected = model(**batch(True)).logits
    forward = model.block.attention.value.forward
    model.block.attention.value.forward = lambda x: forward(x)  # as accelerate's offloading does
    assert not model.block.reads_one_row()
    torch.testing.assert_close(model(**batch(True)).logits, expected)
