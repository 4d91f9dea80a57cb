"""What `attach` made is not served undebiased by accident: Auto classes and pipelines refuse the saved folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
    pipeline,
)

import levelhead as lh

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(params=["vit", "bert"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any, Any]:
    """Return the folder of a debiased model, the model, and the Auto class of its task."""
    if request.param == "vit":
        model: Any = ViTForImageClassification(ViTConfig(**SIZE, image_size=32, patch_size=16))
        auto: Any = AutoModelForImageClassification
    else:
        model, auto = (
            BertForSequenceClassification(BertConfig(**SIZE, vocab_size=50)),
            AutoModelForSequenceClassification,
        )
    model = lh.attach(model)
    model.train()(**batch(model), labels=torch.tensor([0, 1]))  # so that it has statistics
    model.save_pretrained(tmp_path)
    return tmp_path, model, auto


def batch(model: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=generator)}
    return {"input_ids": torch.arange(12).reshape(2, 6)}


def outputs(model: Any) -> torch.Tensor:
    logits: torch.Tensor = model.eval()(**batch(model)).logits
    return logits


def test_auto_classes_and_pipelines_refuse_the_folder(saved: tuple[Path, Any, Any]) -> None:
    folder, model, auto = saved
    own = f"levelhead-{model.config.model_type}"
    assert json.loads((folder / "config.json").read_text())["model_type"] == own
    task = "image-classification" if own == "levelhead-vit" else "text-classification"
    for load in (auto.from_pretrained, AutoModel.from_pretrained, AutoConfig.from_pretrained):
        with pytest.raises(ValueError, match=f"`{own}`"):
            load(folder)
    with pytest.raises(ValueError, match=f"`{own}`"):
        pipeline(task, model=str(folder))


def test_levelhead_loads_it_and_saves_it_again(saved: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, model, _ = saved
    kind = type(model.config)
    assert kind in (ViTConfig, BertConfig)  # in memory it is what it was
    assert "model_type" not in vars(model.config)
    expected = outputs(model)
    for _ in range(2):
        loaded = lh.from_pretrained(folder)
        assert type(loaded.config) is kind
        assert loaded.config.model_type == kind.model_type
        assert torch.allclose(outputs(loaded), expected, atol=1e-6)
        folder = tmp_path / "again"
        loaded.save_pretrained(folder)
    assert lh.describe(loaded).made_by == "levelhead.attach"


def test_a_detached_model_is_a_plain_one_again(saved: tuple[Path, Any, Any], tmp_path: Path) -> None:
    _, model, auto = saved
    plain = lh.detach(model)
    plain.save_pretrained(tmp_path / "plain")
    assert torch.allclose(outputs(auto.from_pretrained(tmp_path / "plain")), outputs(plain), atol=1e-6)


@pytest.mark.slow
def test_a_process_that_never_imports_levelhead_refuses_it_too(saved: tuple[Path, Any, Any]) -> None:
    folder, _, auto = saved
    code = f"import sys; from transformers import {auto.__name__} as auto; auto.from_pretrained(sys.argv[1])"
    ended = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert ended.returncode
    assert "model type `levelhead-" in ended.stderr
