"""What cannot be debiased is refused by name, and the way out that the message names leads somewhere."""

import warnings

import pytest
import torch
import transformers
from tiny_models import LABELS, SMALL, Rows, named

import levelhead as lh
from levelhead.attention import interface
from levelhead.attention.capture import capture
from levelhead.attention.watching import attending, readout_query
from levelhead.types import ConfigError, UnsupportedModelError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # older transformers use torch.jit.script here
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification, DebertaV2Model

BY_ITSELF, SHARED = "does not use the attention interface", "shares one attention module"
REFUSED = {
    "deberta-v2": (DebertaV2Config, SMALL, DebertaV2ForSequenceClassification, DebertaV2Model, BY_ITSELF),
    "deberta-v3": (
        DebertaV2Config,
        {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
         "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False},
        DebertaV2ForSequenceClassification, DebertaV2Model, BY_ITSELF,
    ),
    "mpnet": (
        transformers.MPNetConfig, SMALL, transformers.MPNetForSequenceClassification, transformers.MPNetModel,
        BY_ITSELF,
    ),
    "xlnet": (
        transformers.XLNetConfig, {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 16},
        transformers.XLNetForSequenceClassification, transformers.XLNetModel, BY_ITSELF,
    ),
    "albert": (
        transformers.AlbertConfig, {**SMALL, "embedding_size": 16}, transformers.AlbertForSequenceClassification,
        transformers.AlbertModel, SHARED,
    ),
    "longformer": (
        transformers.LongformerConfig, {**SMALL, "attention_window": 4, "max_position_embeddings": 32},
        transformers.LongformerForSequenceClassification, transformers.LongformerModel, BY_ITSELF,
    ),
    "gemma2": (
        transformers.Gemma2Config, {**SMALL, "num_key_value_heads": 1, "head_dim": 8},
        transformers.Gemma2ForSequenceClassification, transformers.Gemma2Model, "softcap",
    ),
    "gpt-oss": (
        transformers.GptOssConfig,
        {**SMALL, "num_key_value_heads": 1, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
        transformers.GptOssForSequenceClassification, transformers.GptOssModel, r"attention sinks \(s_aux\)",
    ),
}  # fmt: skip
if hasattr(transformers, "AXK2Config"):  # younger than the oldest transformers that levelhead takes
    options = {
        **SMALL, "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 1, "kv_lora_rank": 16,
        "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8, "qk_nope_head_dim": 8, "head_dim": 8,
        "num_key_value_heads": 2, "index_head_dim": 8, "index_n_heads": 2, "gated_norm_rank": 4,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    REFUSED["axk2"] = (
        transformers.AXK2Config, options, transformers.AXK2ForSequenceClassification, transformers.AXK2Model,
        r"an indexer selects \(indices\)",
    )  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_and_the_way_out_works(name, tmp_path):
    config_class, options, classifier, backbone, reason = REFUSED[name]
    config = config_class(**options, vocab_size=50, num_labels=3, pad_token_id=0)
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        lh.attach(classifier(config))
    assert classifier.__name__ in str(caught.value)
    assert "append_encoder" in str(caught.value)

    inputs = named("bert").batch()
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
    if name not in REFUSED:
        pytest.skip("needs a younger transformers")
    config_class, options, classifier, _, reason = REFUSED[name]
    config, inputs = config_class(**options, vocab_size=50, num_labels=3, pad_token_id=0), named("bert").batch()
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


@pytest.mark.parametrize("name", ["bert", "vit", "llama"])
@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_other_targets_are_refused(name, problem):
    family = named(name)
    with pytest.raises(ConfigError, match=problem):
        lh.attach(family.classify(problem_type=problem))
    with pytest.raises(ConfigError, match=problem):
        lh.append_encoder(family.encoder(), 3, problem_type=problem)
    with pytest.raises(ConfigError, match="2 classes"):
        lh.append_encoder(family.encoder(), 1)


@pytest.mark.parametrize("kind", ["attach", "append"])
def test_targets_of_another_shape_are_refused_in_training(kind):
    family = named("bert")
    model = lh.attach(family.classify()) if kind == "attach" else lh.append_encoder(family.encoder(), 3)
    with pytest.raises(ConfigError, match="one integer class"):
        model.train()(**family.batch(), labels=torch.rand(6, 3))
    lh.append_encoder(family.encoder(), 3, problem_type="single_label_classification")


def test_a_backbone_with_other_heads_at_each_stage_needs_a_number():
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2
    )
    with pytest.raises(ConfigError, match="num_heads="):
        lh.append_encoder(transformers.SwinModel(config), 3)
    model = lh.append_encoder(transformers.SwinModel(config), 3, num_heads=2)
    assert model.config.levelhead["num_heads"] == 2


def test_a_model_of_two_towers_is_refused_and_one_tower_taken():
    vision = {**SMALL, "image_size": 8, "patch_size": 4}
    config = transformers.CLIPConfig(text_config={**SMALL, "vocab_size": 50, "eos_token_id": 2}, vision_config=vision)
    with pytest.raises(UnsupportedModelError, match="one tower"):
        lh.append_encoder(transformers.CLIPModel(config), 3)
    lh.append_encoder(transformers.CLIPVisionModel(config.vision_config), 3)


def test_the_encoder_of_an_encoder_decoder_can_be_appended_to():
    config = transformers.T5Config(d_model=16, d_ff=16, d_kv=8, num_heads=2, num_layers=1, vocab_size=50)
    model = lh.append_encoder(transformers.T5EncoderModel(config), 3).train()
    model(**named("bert").batch(), labels=LABELS).loss.backward()
    assert model.config.levelhead["readout"] == "first"
