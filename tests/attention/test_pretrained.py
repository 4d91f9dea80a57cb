import json

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import batch, build, make, named, trained
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    BertModel,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from levelhead.attention import append_encoder, attach, from_pretrained, readout_only
from levelhead.attention.aligning import debiased_attention
from levelhead.types import UnsupportedModelError


@pytest.fixture(params=["attach", "append"])
def kind(request):
    return request.param


@pytest.fixture
def saved(kind, family, tmp_path):
    """A debiased model that has seen two batches, and its folder."""
    model = make(kind, family)
    for seed in range(2):
        trained(model, batch(family, seed))
    model.save_pretrained(tmp_path)
    return model, tmp_path


def test_the_folder_holds_nothing_unusual_and_is_saved_again_as_it_is(saved, tmp_path):
    _, folder = saved
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text())
    assert str(folder) not in json.dumps(config)
    assert isinstance(config["levelhead"], dict)
    again = tmp_path / "again"
    from_pretrained(folder).save_pretrained(again)
    first, second = load_file(folder / "model.safetensors"), load_file(again / "model.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_statistics_stay_float32(saved, family):
    model, folder = saved
    loaded = from_pretrained(folder, dtype=torch.bfloat16)
    attention = debiased_attention(loaded)
    assert next(attention.parameters()).dtype == torch.bfloat16
    for name, buffer in attention.debias.named_buffers():
        assert torch.equal(buffer, debiased_attention(model).debias.get_buffer(name)), name
        assert buffer.dtype == (torch.int64 if "num_batches" in name else torch.float32)
    inputs = {k: v.bfloat16() if v.is_floating_point() else v for k, v in batch(family).items()}
    assert torch.isfinite(loaded(**inputs).logits).all()


def test_a_class_named_outright_gives_an_undebiased_model_and_says_so(family, tmp_path):
    """A trap worth knowing: the Auto classes refuse the folder, and a class of transformers drops the method."""
    model = trained(make("attach", family), batch(family))
    model.save_pretrained(tmp_path)
    plain, report = type(build(family)).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert any("debias" in key for key in report["unexpected_keys"])
    assert any("alignment_head" in key for key in report["unexpected_keys"])
    assert not torch.allclose(plain(**batch(family)).logits, model(**batch(family)).logits)


def test_a_new_head_of_another_number_of_classes(saved, family, labels, caplog):
    model, folder = saved
    with caplog.at_level("WARNING", logger="levelhead"):
        loaded = from_pretrained(folder, num_labels=5, ignore_mismatched_sizes=True)
    assert "2 weights of another shape, such as classifier.bias" in caplog.text
    assert loaded(**batch(family)).logits.shape == (6, 5)
    assert loaded.classifier.weight.abs().max() < 1
    assert loaded.classifier.weight.std() > 0
    for name, tensor in model.state_dict().items():
        assert name.startswith("classifier.") or torch.equal(loaded.state_dict()[name], tensor), name
    loaded.train()(**batch(family), labels=labels).loss.backward()
    kept = from_pretrained(folder, ignore_mismatched_sizes=True)
    assert torch.equal(kept(**batch(family)).logits, model(**batch(family)).logits)
    names = {0: "a", 1: "b", 2: "c"}
    assert from_pretrained(folder, id2label=names).config.id2label == names


class Own(ViTForImageClassification):
    """A class of one's own that nobody registered."""


class OwnBackbone(BertModel):
    """Likewise."""


def test_a_class_that_could_not_be_loaded_is_refused(family):
    with pytest.raises(UnsupportedModelError, match="Own is not registered with transformers"):
        attach(Own(build("vit").config))
    same_name = type("ViTForImageClassification", (ViTForImageClassification,), {})
    with pytest.raises(UnsupportedModelError, match="is not registered with transformers"):
        attach(same_name(build("vit").config))
    for kind in (OwnBackbone, type("BertModel", (BertModel,), {})):
        with pytest.raises(UnsupportedModelError, match="from_pretrained could not load it"):
            append_encoder(kind(named("bert").config()), 3)
    attach(readout_only(build(family)))


class OwnConfig(ViTConfig):
    model_type = "own-vit"


class OwnForImageClassification(ViTForImageClassification):
    config_class = OwnConfig


def test_a_registered_class_of_ones_own_loads(tmp_path):
    network = OwnForImageClassification(OwnConfig(**build("vit").config.to_dict() | {"model_type": "own-vit"}))
    with pytest.raises(UnsupportedModelError, match="'own-vit'"):
        attach(network)
    AutoConfig.register("own-vit", OwnConfig)
    AutoModelForImageClassification.register(OwnConfig, OwnForImageClassification)
    try:
        model = trained(attach(network), batch("vit"))
        model.save_pretrained(tmp_path)
        loaded = from_pretrained(tmp_path)
        assert isinstance(loaded, OwnForImageClassification)
        assert torch.equal(loaded(**batch("vit")).logits, model(**batch("vit")).logits)
    finally:
        del CONFIG_MAPPING._extra_content["own-vit"]
        del AutoModelForImageClassification._model_mapping._extra_content[OwnConfig]
