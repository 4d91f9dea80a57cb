import json

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import batch, bert_config, build, vit_config
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    BertModel,
    ViTModel,
)

from levelhead.attention import DebiasConfig, append_encoder, attach, from_pretrained
from levelhead.attention.aligning import debiased_attention
from levelhead.types import LevelheadError


def make(kind, family):
    if kind == "attach":
        return attach(build(family))
    torch.manual_seed(0)
    return append_encoder(ViTModel(vit_config()) if family == "vit" else BertModel(bert_config()), 3)


@pytest.fixture(params=["attach", "append"])
def kind(request):
    return request.param


@pytest.fixture
def saved(kind, family, labels, tmp_path):
    model = make(kind, family).train()
    for step in range(2):
        model(**batch(family, step), labels=labels)
    model.eval().save_pretrained(tmp_path)
    return model, tmp_path


def test_round_trip(saved, kind, family, labels):
    model, folder = saved
    loaded = from_pretrained(folder)
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert torch.equal(loaded(**batch(family)).logits, model(**batch(family)).logits)
    assert loaded.config.levelhead == model.config.levelhead
    torch.testing.assert_close(
        loaded.train()(**batch(family), labels=labels).loss, model.train()(**batch(family), labels=labels).loss
    )
    assert loaded.config.num_labels == 3


def test_the_folder_holds_nothing_unusual(saved):
    _, folder = saved
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text())
    assert str(folder) not in json.dumps(config)
    assert isinstance(config["levelhead"], dict)


def test_a_second_round_trip_is_the_same(saved, tmp_path):
    _, folder = saved
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


def test_running_std_round_trip(tmp_path, labels):
    model = attach(build("vit"), DebiasConfig(running="std", alpha=0)).train()
    model(**batch("vit"), labels=labels)
    model.eval().save_pretrained(tmp_path)
    assert torch.equal(from_pretrained(tmp_path)(**batch("vit")).logits, model(**batch("vit")).logits)


NEWER = ["notebook", "ranking"]


def test_a_model_of_an_earlier_version_trains_on(kind, family, labels, tmp_path):
    """Its record lacks the newer options, which then have their defaults."""
    model = make(kind, family)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for option in NEWER:
        del config["levelhead"]["debias"][option]
    (tmp_path / "config.json").write_text(json.dumps(config))
    losses = []
    for one in (model, from_pretrained(tmp_path)):
        losses.append(one.train()(**batch(family), labels=labels).loss)
        losses[-1].backward()
    assert torch.equal(*losses)


def test_a_class_named_outright_gives_an_undebiased_model_and_says_so(family, labels, tmp_path):
    """A trap worth knowing: the Auto classes refuse the folder, and a class of transformers drops the method."""
    model = attach(build(family)).train()
    model(**batch(family), labels=labels)
    model.eval().save_pretrained(tmp_path)
    plain, report = type(build(family)).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert any("debias" in key for key in report["unexpected_keys"])
    assert any("alignment_head" in key for key in report["unexpected_keys"])
    assert not torch.allclose(plain(**batch(family)).logits, model(**batch(family)).logits)


def test_auto_classes_load_an_appended_model(tmp_path, labels):
    model = make("append", "bert").train()
    model(**batch("bert"), labels=labels)
    model.eval().save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded(**batch("bert")).logits, model(**batch("bert")).logits)


def test_plain_folders_are_refused(tmp_path):
    BertForSequenceClassification(bert_config()).save_pretrained(tmp_path)
    with pytest.raises(LevelheadError, match="plain model"):
        from_pretrained(tmp_path)


def test_missing_folders_are_refused(tmp_path):
    with pytest.raises(LevelheadError, match="gives no configuration"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("size", [0, 5, 2000])
def test_truncated_weights_name_the_file(saved, size):
    _, folder = saved
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(LevelheadError, match=r"model\.safetensors"):
        from_pretrained(folder)


def test_missing_weights_are_refused(saved):
    _, folder = saved
    (folder / "model.safetensors").unlink()
    with pytest.raises(LevelheadError, match="gives no weights"):
        from_pretrained(folder)


def test_weights_of_another_model_are_refused(saved, kind, family, tmp_path):
    _, folder = saved
    build(family).save_pretrained(tmp_path / "other")
    (folder / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(LevelheadError, match="does not fit"):
        from_pretrained(folder)
