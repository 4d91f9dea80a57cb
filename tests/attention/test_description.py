"""What ``lh.describe`` says, and that it says it of the model as it is."""

import json

import pytest
from tiny_models import LABELS, backbone, batch, build, make
from torch import nn
from transformers import GPT2Config, GPT2Model

import levelhead as lh


def test_a_plain_model():
    model = build("vit")
    found = lh.describe(model)
    assert (found.made_by, found.attention, found.debias, found.batches, found.added) == (None, None, None, None, 0)
    assert found.trainable == found.parameters == model.num_parameters()
    assert str(found).splitlines() == [
        "ViTForImageClassification: nothing is debiased",
        f"  parameters   {found.parameters:,} trainable of {found.parameters:,} (100%), 0 added by levelhead",
    ]
    assert "last layer   computes the readout row alone" in str(lh.describe(lh.readout_only(build("vit"))))
    assert "all rows: readout_only is False" in str(lh.describe(lh.readout_only(build("vit"), False)))


def test_an_attached_model(family):
    plain = build(family).num_parameters()
    model = lh.attach(build(family), lh.DebiasConfig(top_t=3, alpha=0.5)).train()
    found = lh.describe(model)
    assert found.made_by == "levelhead.attach"
    assert isinstance(model.get_submodule(found.attention).debias, lh.QueryKeyStandardizer)
    assert found.attention == model.config.levelhead["attention"]
    assert found.debias == model.get_submodule(found.attention).tap.debias
    assert found.added == sum(p.numel() for p in model.alignment_head.parameters()) == found.parameters - plain
    assert (found.batches, found.readout_only, found.all_rows) == (0, True, None)
    assert "no training batch seen yet" in str(found)
    assert "alpha 0.5, of the values of the 3 most attended tokens" in str(found)
    for _ in range(2):
        model(**batch(family), labels=LABELS)
    assert lh.describe(model).batches == 2
    assert "2 training batches seen" in str(lh.describe(model))
    assert json.loads(json.dumps(found.to_dict()))["debias"]["notebook"]["queue"] == 0
    assert "nothing is debiased" in str(lh.describe(lh.detach(model)))


def test_a_model_without_memory_is_described():
    assert lh.describe(lh.attach(build("vit")).to("meta")) == lh.describe(lh.attach(build("vit")))


def test_a_hook_shows_at_once():
    model = lh.attach(build("vit"))
    layer = model.get_submodule(lh.describe(model).attention)
    handle = layer.register_forward_hook(lambda *_: None)
    assert lh.describe(model).all_rows == "a hook is registered on it"
    assert not lh.describe(model).readout_only
    handle.remove()
    assert lh.describe(model).readout_only


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (lh.DebiasConfig(normalize=False), ["queries and keys stay as they are (normalize=False)"]),
        (lh.DebiasConfig(absolute=False, alpha=0), ["become (x - mean) / deviation", "alignment    none (alpha=0)"]),
        (lh.DebiasConfig(scale=False, top_t=1), ["become |x - mean|", "of the most attended token"]),
        (
            lh.DebiasConfig(statistics="feature"),
            ["one mean and deviation for each head and feature", "all rows: debias"],
        ),
        (lh.DebiasConfig.preset("released-vision"), ["notebook     padding_mask=False"]),
    ],
)
def test_options_are_told_in_words(config, words):
    text = str(lh.describe(lh.attach(build("vit"), config)))
    assert all(word in text for word in words), text
    assert ("statistics" in text.replace("statistics is", "")) is config.normalize
    assert ("notebook" in text) is (config.notebook != lh.NotebookOptions())


def test_an_appended_model(tmp_path):
    model = make("append", "bert")
    found = lh.describe(model)
    assert found.made_by == "levelhead.append_encoder"
    assert found.attention == "block.attention"
    assert found.readout_only
    assert found.added == found.trainable == found.parameters - model.backbone.num_parameters()
    model.save_pretrained(tmp_path)
    assert lh.describe(lh.from_pretrained(tmp_path)) == found
    text = str(lh.describe(lh.append_encoder(backbone("bert"), 3, debias=None)))
    assert "nothing is debiased (a plain layer of levelhead.append_encoder)" in text


def test_what_is_found_out_later_is_told_too():
    model = make("append", "bert")
    model.block.register_forward_hook(lambda *_: None)
    assert lh.describe(model).all_rows == "a hook is registered on it"
    model = make("append", "bert")
    model.block.attention.value = nn.Sequential(model.block.attention.value)
    assert lh.describe(model).all_rows == "a projection is no plain linear layer"


def test_the_last_token_of_a_decoder():
    gpt2 = GPT2Model(GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2))
    text = str(lh.describe(lh.append_encoder(gpt2, 2)))
    assert "readout      the last real token" in text
    assert "computes the readout row alone" in text


def test_a_block_in_a_network_of_ones_own():
    network = nn.Sequential(lh.DebiasedBlock(8, 2, lh.DebiasConfig(statistics="feature", readout="none")))
    found = lh.describe(network)
    assert (found.made_by, found.attention, found.batches) == ("levelhead.DebiasedBlock", "0.attention", 0)
    assert "Sequential: its last attention layer is debiased (levelhead.DebiasedBlock)" in str(found)
    assert "add alpha * levelhead.alignment(model, labels)" in str(found)
    assert found.added == sum(p.numel() for p in network[0].alignment_head.parameters())
    assert "nothing is debiased" in str(lh.describe(nn.Identity()))
