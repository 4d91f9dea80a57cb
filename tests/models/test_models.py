"""Networks on pretrained backbones: what they take, what they refuse, what is saved."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertForSequenceClassification, GPT2Config, GPT2Model, ViTConfig, ViTModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from levelhead.attention import DebiasConfig, attach
from levelhead.data.base import Examples
from levelhead.data.images import ImageInputs
from levelhead.data.texts import Texts
from levelhead.data.views import View
from levelhead.models.networks import BackboneModel, ScratchViT, load_backbone, load_model, load_tokenizer
from levelhead.runs.recipe import build_experiment
from tiny import bert_config
from words import save_tiny_backbone, word_tokenizer

WORDS = ["a", "big", "small", "dog", "cat", "sat", "on", "the", "mat", "and", "ran", "far", "away"]
CPU = torch.device("cpu")
TEXTS = ["the dog sat on the mat", "a cat ran", "the small cat sat and the big dog ran far away", "a dog"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_backbone(tmp_path_factory.mktemp("bert"), WORDS)


def texts() -> Examples:
    return Examples(Texts(TEXTS), torch.tensor([0, 1, 0, 1]), ("calm", "loud"), "few")


def pictures(side: int = 16) -> Examples:
    pixels = torch.randint(256, (4, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Examples(ImageInputs(pixels), torch.tensor([0, 1, 0, 1]), ("dark", "bright"), "few")


def prepare(model: Any, examples: Examples) -> Examples:
    return model.prepare(examples, CPU, {"data": "few", "split": "train"})


@pytest.mark.parametrize("debiased", [False, True])
def test_features_give_the_logits_of_the_whole_network(bert: Path, debiased: bool, tmp_path: Path) -> None:
    config = BackboneModel(str(bert))
    torch.manual_seed(0)
    model = config.build(("calm", "loud"))
    if debiased:
        attach(model, DebiasConfig())
        model.train()(**prepare(config, texts()).inputs.batch(torch.arange(4)), labels=torch.tensor([0, 1, 0, 1]))
    model.eval()
    assert model.backbone is None
    from_features = model(**prepare(config, texts()).inputs.batch(torch.arange(4))).logits
    config.save(model, tmp_path / "saved")
    tokens = prepare(config.whole(), texts()).inputs.batch(torch.arange(4))
    assert "input_ids" in tokens
    loaded = load_model(tmp_path / "saved")
    assert (loaded(**tokens).logits - from_features).abs().max() < 2e-3
    assert not any(parameter.requires_grad for parameter in loaded.backbone.parameters())
    assert loaded.config.id2label == {0: "calm", 1: "loud"}


def test_fine_tuning_gives_each_network_a_backbone_of_its_own(bert: Path) -> None:
    config = BackboneModel(str(bert), mode="fine_tune")
    first, second = config.build(("a", "b")), config.build(("a", "b"))
    assert first.backbone is not second.backbone
    assert all(parameter.requires_grad for parameter in first.parameters())
    assert "pooler" not in dict(first.backbone.named_children())
    frozen = BackboneModel(str(bert), features=False)
    assert frozen.build(("a", "b")).backbone is frozen.build(("a", "b")).backbone
    drawn = []
    for clear in (load_backbone.cache_clear, lambda: None):  # loaded by then, or not
        clear()
        torch.manual_seed(1)
        drawn.append(config.build(("a", "b")).classifier.weight)
    assert torch.equal(*drawn)


def test_options_reach_the_network(bert: Path) -> None:
    options = {"mode": "fine_tune", "length_parts": 2, "micro_batch": 3, "layers": 3, "heads": 4}
    model = BackboneModel(str(bert), intermediate_size=8, **options).build(("a", "b"))
    assert (model.length_parts, model.micro_batch, len(model.below)) == (2, 3, 2)
    assert model.block.attention.num_heads == 4
    assert model.block.feed_forward[0].out_features == 8


def test_a_classifiers_checkpoint_serves_as_a_backbone(bert: Path, tmp_path: Path) -> None:
    BertForSequenceClassification(bert_config()).save_pretrained(tmp_path)
    assert type(BackboneModel(str(tmp_path), features=False).build(("a", "b")).backbone).__name__ == "BertModel"


def test_a_causal_backbone_without_a_padding_token(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    tokenizer.save_pretrained(tmp_path / "gpt")
    size = GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=len(tokenizer))
    GPT2Model(size).save_pretrained(tmp_path / "gpt")
    config = BackboneModel(str(tmp_path / "gpt"))
    model = config.build(("calm", "loud")).eval()
    assert model.config.levelhead["readout"] == "last"
    inputs = prepare(config, texts()).inputs
    together = model(**inputs.batch(torch.arange(4))).logits
    alone = torch.cat([model(**inputs.batch(torch.tensor([row]))).logits for row in range(4)])
    assert torch.allclose(together, alone, atol=1e-5)
    config.save(model, tmp_path / "saved")
    assert '"pad_token": "[SEP]"' in (tmp_path / "saved" / "tokenizer_config.json").read_text()


def test_pictures_are_processed_as_the_checkpoint_says(tmp_path: Path) -> None:
    options = {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 16}
    ViTModel(ViTConfig(hidden_size=16, intermediate_size=16, **options)).save_pretrained(tmp_path)
    processor = ViTImageProcessorPil(size={"height": 32, "width": 32}, image_mean=[0.4] * 3, image_std=[0.2] * 3)
    processor.save_pretrained(tmp_path)
    config = BackboneModel(str(tmp_path), features=False)
    prepared = prepare(config, pictures()).inputs
    made = prepared.batch(torch.tensor([2, 0]))["pixel_values"]
    assert made.shape == (2, 3, 32, 32)
    picture = Image.fromarray(pictures().inputs.pixels[2].permute(1, 2, 0).numpy())
    expected = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR), np.float32) / 255
    assert np.allclose(made[0].permute(1, 2, 0).numpy(), (expected - 0.4) / 0.2, atol=1e-4)
    model = BackboneModel(str(tmp_path)).build(("a", "b")).eval()
    assert attach(model, DebiasConfig(alpha=0)).config.levelhead["debias"]["statistics"] == "position"
    assert prepared.fingerprint() != ImageInputs(pictures().inputs.pixels).fingerprint()
    view = View("chroma")
    seen = prepare(config, replace(pictures(), inputs=view(pictures().inputs))).inputs
    alike = prepare(config, replace(pictures(), inputs=ImageInputs(view.of_pictures(pictures().inputs.pixels)))).inputs
    assert torch.equal(*(each.batch(torch.arange(4))["pixel_values"] for each in (seen, alike)))
    assert len({each.fingerprint() for each in (prepared, seen, alike)}) == 3


def test_long_texts_are_cut_with_a_warning(bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    short = BackboneModel(str(bert), max_length=7, features=False)
    assert prepare(short, texts()).inputs.lengths.max() == 7
    assert "2 of 4 texts fill all 7 tokens" in caplog.text
    short.save(short.build(("a", "b")), tmp_path / "saved")  # leaves the tokenizer of later runs alone
    assert prepare(replace(short, max_length=16), texts()).inputs.lengths.max() > 8


def test_a_recipe_with_a_backbone() -> None:
    recipe: dict[str, Any] = {"data": {"name": "portraits"}, "method": {"name": "erm"}}
    experiment = build_experiment({**recipe, "model": {"backbone": "somewhere", "mode": "fine_tune"}})
    assert experiment.model == BackboneModel("somewhere", mode="fine_tune")
    assert build_experiment(experiment.to_dict()) == experiment
    assert build_experiment(recipe).model == ScratchViT()


def test_one_spelling_of_a_folder(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bert.parent)
    names = {BackboneModel(name).backbone for name in (str(bert), f"{bert}/", bert.name, f"./{bert.name}")}
    assert names == {str(bert.resolve())}


def test_a_trained_network_brings_its_own_backbone_and_tokenizer(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "backbone")
    config = BackboneModel(str(tmp_path / "backbone"), max_length=7)
    model = config.build(("calm", "loud"))
    before = prepare(config, texts()).inputs.batch(torch.arange(4))["features"]
    fingerprint = config.fingerprint()
    config.save(model, tmp_path / "saved")
    save_tiny_backbone(tmp_path / "backbone", [*WORDS, "another"])
    load_backbone.cache_clear()
    load_tokenizer.cache_clear()
    assert config.fingerprint() != fingerprint
    trained = load_model(tmp_path / "saved")
    after = config.prepare(texts(), CPU, {"data": "few", "split": "test"}, trained).inputs.batch(torch.arange(4))
    assert torch.equal(after["features"], before)


def test_patches_by_one_product_are_those_of_the_convolution(tmp_path: Path) -> None:
    options = {"hidden_size": 16, "layers": 1, "heads": 2, "image_size": 32, "patch_size": 8}
    found = []
    for product in (False, True):
        torch.manual_seed(0)
        model = ScratchViT(**options, patch_product=product).build(("dark", "bright")).double().eval()
        rows = torch.randn(3, 3, 32, 32, dtype=torch.float64)
        logits = model(pixel_values=rows).logits
        logits.square().sum().backward()
        found.append((model, logits, dict(model.named_parameters())))
    (plain, expected, weights), (_, logits, others) = found
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name
        torch.testing.assert_close(others[name].grad, weight.grad, rtol=1e-10, atol=1e-12, msg=name)
    found[1][0].float().save_pretrained(tmp_path / "saved")
    saved = load_model(tmp_path / "saved").state_dict()
    assert torch.equal(saved["classifier.weight"], plain.float().classifier.weight)
