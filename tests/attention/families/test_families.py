"""Every family: attach and append, train, save, load; and the readout row that the probe proves."""

from functools import partial

import pytest
import torch
from tiny_models import FAMILIES, LABELS, SMALL, TEXT, make, named
from transformers import (
    BertConfig,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    LlamaConfig,
    LlamaModel,
    LongformerConfig,
    LongformerModel,
)

import levelhead as lh
from levelhead.attention.aligning import debiased_attention


@pytest.fixture(params=FAMILIES, ids=str)
def family(request):
    return request.param


@pytest.fixture(params=["attach", "append"])
def kind(request):
    return request.param


def debiased_layers(model, family, kind):
    """Weights of the query, key and value projection of the debiased layer."""
    names = family.projections if kind == "attach" else ("query", "key", "value")
    return [debiased_attention(model).get_submodule(name).weight for name in names]


def test_what_the_probe_finds(family, kind):
    model = make(kind, family)
    options = model.config.levelhead["debias"]
    readout = family.readout if kind == "attach" else family.appended_readout
    assert options["readout"] == readout
    text = "feature" if readout == "none" else "cls_feature"
    assert options["statistics"] == ("position" if family.image else text)
    # The appended layer has no rotation, so the sign may go there in any family.
    assert options["absolute"] is (kind == "append" or not family.rotary)
    debias = debiased_attention(model).debias
    assert debias.query.mean.shape[0] == family.heads
    assert debias.key.mean.shape[0] == (family.key_heads if kind == "attach" else family.heads)


def test_one_step_reaches_the_debiased_layer_and_the_projector(family, kind):
    model = make(kind, family).train()
    loss = model(**family.batch(), labels=LABELS).loss
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
    for weight in (*debiased_layers(model, family, kind), *model.alignment_head.parameters()):
        assert weight.grad is not None
    query, key, value = (weight.grad for weight in debiased_layers(model, family, kind))
    if query is value:  # one layer makes all three, side by side: by rows, or by columns in GPT-2
        query, key, value = query.chunk(3, dim=query.shape.index(48))
    assert all(gradient.abs().sum() > 0 for gradient in (query, key, value))
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.alignment_head.parameters())
    before = model.alignment_head.output.weight.clone()
    torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2).step()
    assert not torch.equal(model.alignment_head.output.weight, before)
    after = model(**family.batch(), labels=LABELS).loss
    assert torch.isfinite(after)
    assert after != loss
    assert debiased_attention(model).debias.key.num_batches_tracked.max() == 2


def test_save_and_load(family, kind, tmp_path):
    model = make(kind, family).train()
    model(**family.batch(), labels=LABELS).loss.backward()
    model.eval()
    model.save_pretrained(tmp_path)
    # Missing or unexpected keys raise here.
    loaded = lh.from_pretrained(tmp_path)
    assert torch.equal(loaded(**family.batch()).logits, model(**family.batch()).logits)
    assert not loaded.training
    assert loaded.config.levelhead == model.config.levelhead
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in model.parameters()]
    for part in ("query.mean", "query.variance", "key.mean", "key.variance", "key.num_batches_tracked"):
        assert any(name.endswith(f"debias.{part}") for name in ours), part


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["bert", "vit", "llama"])
@pytest.mark.parametrize("kind", ["attach", "append"])
def test_gradient_checkpointing_changes_nothing(name, kind):
    family = named(name)
    results = []
    for checkpointing in (False, True):
        torch.manual_seed(1)
        if kind == "append":
            model = lh.append_encoder(family.encoder(), 3, freeze=False).train()
        else:
            # All rows either way: a checkpointed layer computes them, and has then more to count.
            model = make(kind, family, lh.DebiasConfig(readout_only=False)).train()
        if checkpointing:
            (model.backbone if kind == "append" else model).gradient_checkpointing_enable()
        loss = model(**family.batch(), labels=LABELS).loss
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        attention = debiased_attention(model)
        assert attention.tap.reading is None
        results.append((loss, gradients, {name: part.clone() for name, part in attention.debias.named_buffers()}))
        model(**family.batch(), labels=LABELS)
        assert attention.debias.key.num_batches_tracked.max() == 2
    torch.testing.assert_close(results[0], results[1])


def test_appended_logits_read_one_row_only(family):
    """What the linear head reads is ours to decide, so noise on every other row must leave the logits bit-equal."""
    model = make("append", family).train()
    inputs = family.batch()
    model(**inputs, labels=LABELS)
    model.eval()
    clean = model(**inputs).logits
    first, last = torch.zeros(6, dtype=torch.int64), None
    if not family.image:
        last = inputs["attention_mask"].sum(1) - 1
    row = last if family.appended_readout == "last" else first

    def disturb(module, args, output):
        noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
        noise[torch.arange(6), row] = 0
        return output + noise

    model.block.register_forward_hook(disturb)
    # The hook makes the layer compute all rows: equal up to rounding, and the noise would be a million times larger.
    torch.testing.assert_close(model(**inputs).logits, clean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model_class", "config_class", "expected"),
    [
        (CLIPTextModel, CLIPTextConfig, "last"),
        (LlamaModel, LlamaConfig, "last"),
        (BertModel, BertConfig, "first"),
        # Its first row sees no further than its window.
        (LongformerModel, partial(LongformerConfig, attention_window=4), "first"),
    ],
)
def test_the_row_of_an_appended_layer_is_one_that_saw_the_whole_text(model_class, config_class, expected):
    """The text tower of CLIP looks back only, though the flags of its layers deny it."""
    backbone = model_class(config_class(**SMALL, **TEXT, bos_token_id=1, eos_token_id=2))
    assert lh.append_encoder(backbone, 3).config.levelhead["readout"] == expected
    # An example may be padded on either side, and consist of embeddings.
    tokens = torch.tensor([[5, 6, 7, 8, 9, 10]])
    for mask in ([1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]):
        example = {"input_ids": tokens, "attention_mask": torch.tensor([mask])}
        model = lh.append_encoder(backbone, 3, example_inputs=example)
        assert model.config.levelhead["readout"] == expected


def test_a_tower_is_probed_with_embeddings_too():
    backbone = LlamaModel(LlamaConfig(**SMALL, **TEXT))
    model = lh.append_encoder(backbone, 3, example_inputs={"inputs_embeds": torch.randn(1, 5, 16)})
    assert model.config.levelhead["readout"] == "last"
