"""What cannot be debiased is refused by name, and the way out that the message names leads somewhere."""

import warnings

import pytest
import torch
import transformers
from tiny_models import LABELS, SMALL, Rows, batch

import levelhead as lh
from levelhead.attention import interface
from levelhead.attention.capture import capture
from levelhead.attention.watching import attending, readout_query
from levelhead.types import UnsupportedModelError

BY_ITSELF, SHARED = "does not use the attention interface", "shares one attention module"
GROUPED = {**SMALL, "num_key_value_heads": 1, "head_dim": 8}
# The prefix of its classes, options, and why it is refused.
REFUSED = {
    "deberta-v2": ("DebertaV2", SMALL, BY_ITSELF),
    "deberta-v3": (
        "DebertaV2",
        {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
         "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False},
        BY_ITSELF,
    ),
    "mpnet": ("MPNet", SMALL, BY_ITSELF),
    "xlnet": ("XLNet", {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 16}, BY_ITSELF),
    "albert": ("Albert", {**SMALL, "embedding_size": 16}, SHARED),
    "longformer": ("Longformer", {**SMALL, "attention_window": 4, "max_position_embeddings": 32}, BY_ITSELF),
    "gemma2": ("Gemma2", GROUPED, "softcap"),
    "gpt-oss": (
        "GptOss", {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1}, r"attention sinks \(s_aux\)"
    ),
    "axk2": (
        "AXK2",
        {**SMALL, "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 1, "kv_lora_rank": 16,
         "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8, "qk_nope_head_dim": 8, "head_dim": 8,
         "num_key_value_heads": 2, "index_head_dim": 8, "index_n_heads": 2, "gated_norm_rank": 4,
         "bos_token_id": 1, "eos_token_id": 2},
        r"an indexer selects \(indices\)",
    ),
}  # fmt: skip


def refused(name):
    """Configuration, classifier, backbone, and the reason that is given."""
    prefix, options, reason = REFUSED[name]
    if not hasattr(transformers, f"{prefix}Config"):
        pytest.skip(f"this version of transformers has no {prefix}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # older transformers use torch.jit.script here
        classes = [getattr(transformers, prefix + end) for end in ("Config", "ForSequenceClassification", "Model")]
    return classes[0](**options, vocab_size=50, num_labels=3, pad_token_id=0), *classes[1:], reason


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_and_the_way_out_works(name, tmp_path):
    config, classifier, backbone, reason = refused(name)
    model = classifier(config)
    implementation = model.config._attn_implementation
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        lh.attach(model)
    assert (type(model), model.config._attn_implementation) == (classifier, implementation)
    assert classifier.__name__ in str(caught.value)
    assert "append_encoder" in str(caught.value)

    inputs = batch("bert")
    for freeze in (False, True):
        model = lh.append_encoder(backbone(config), 3, freeze=freeze).train()
        model(**inputs, labels=LABELS).loss.backward()
        assert all(parameter.grad is None for parameter in model.backbone.parameters()) is freeze
    model.eval()
    logits = model(**inputs).logits
    model.save_pretrained(tmp_path)
    assert torch.equal(lh.from_pretrained(tmp_path)(**inputs).logits, logits)
    longer = {key: torch.nn.functional.pad(value, (0, 3)) for key, value in inputs.items()}
    torch.testing.assert_close(model(**longer).logits, logits)


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss", "axk2"])
def test_attention_that_sdpa_would_change_is_not_read_either(name):
    config, classifier, _, reason = refused(name)
    inputs = batch("bert")
    model = classifier(config).eval()
    implementation, logits = config._attn_implementation, model(**inputs).logits
    with pytest.raises(UnsupportedModelError, match=reason):
        next(capture(model, Rows(inputs), 6, "cpu"))
    with pytest.raises(UnsupportedModelError, match=reason), attending(model):
        model(**inputs)
    with pytest.raises(UnsupportedModelError, match=reason):
        readout_query(model)
    assert config._attn_implementation == implementation
    assert torch.equal(model(**inputs).logits, logits)


@pytest.mark.parametrize("name", interface.IGNORED)
def test_an_argument_that_sdpa_ignores_is_refused_where_it_is_given(name):
    layer, heads = torch.nn.Identity(), torch.rand(1, 2, 3, 4)
    interface.levelhead_attention(layer, heads, heads, heads, None, **{name: None})
    for forms_weights in (False, True):
        with pytest.raises(UnsupportedModelError, match=rf"Identity attends with .* \({name}\)"):
            interface.levelhead_attention(
                layer, heads, heads, heads, None, output_attentions=forms_weights, **{name: torch.ones(2)}
            )


@pytest.mark.parametrize(
    "make",
    [
        lambda: transformers.SwinModel(transformers.SwinConfig(
            image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2
        )),
        lambda: transformers.T5EncoderModel(
            transformers.T5Config(d_model=16, d_ff=16, d_kv=8, num_heads=2, num_layers=1, vocab_size=50)
        ),
    ],
)  # fmt: skip
def test_backbones_that_attach_refuses_can_be_appended_to(make):
    """Other heads at each stage need a number; of an encoder-decoder, the encoder is taken."""
    backbone = make()
    model = lh.append_encoder(backbone, 3, num_heads=2).train()
    inputs = batch("bert") if "T5" in type(backbone).__name__ else {"pixel_values": torch.rand(6, 3, 16, 16)}
    model(**inputs, labels=LABELS).loss.backward()
    assert (model.config.levelhead["num_heads"], model.config.levelhead["readout"]) == (2, "first")
