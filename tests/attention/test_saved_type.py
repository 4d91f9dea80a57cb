"""What `attach` made is not served undebiased by accident, and what was appended loads by the Auto classes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import backbone, batch, make, trained
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BertConfig,
    BertTokenizer,
    ViTConfig,
    pipeline,
)

import levelhead as lh


def attached(family: str, folder: Path) -> Any:
    """Save a debiased model that has statistics."""
    model = trained(make("attach", family), batch(family))
    model.save_pretrained(folder)
    return model


def test_auto_classes_and_pipelines_refuse_the_folder(family: str, tmp_path: Path) -> None:
    attached(family, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == f"levelhead-{family}"
    auto: Any = AutoModelForImageClassification if family == "vit" else AutoModelForSequenceClassification
    task: Any = "image-classification" if family == "vit" else "text-classification"
    for load in (auto.from_pretrained, AutoModel.from_pretrained, AutoConfig.from_pretrained):
        with pytest.raises(ValueError, match=f"`levelhead-{family}`"):
            load(tmp_path)
    with pytest.raises(ValueError, match=f"`levelhead-{family}`"):
        pipeline(task, model=str(tmp_path))


def test_levelhead_loads_it_and_saves_it_again_and_detached_it_is_plain(family: str, tmp_path: Path) -> None:
    model, kind = attached(family, tmp_path), {"vit": ViTConfig, "bert": BertConfig}[family]
    assert type(model.config) is kind  # in memory it is what it was
    assert "model_type" not in vars(model.config)
    expected, folder = model(**batch(family)).logits, tmp_path
    for _ in range(2):
        loaded = lh.from_pretrained(folder)
        assert type(loaded.config) is kind
        assert loaded.config.model_type == kind.model_type
        assert torch.equal(loaded(**batch(family)).logits, expected)
        folder = tmp_path / "again"
        loaded.save_pretrained(folder)
    plain = lh.detach(loaded)
    plain.save_pretrained(tmp_path / "plain")
    auto: Any = AutoModelForImageClassification if family == "vit" else AutoModelForSequenceClassification
    again = auto.from_pretrained(tmp_path / "plain")
    assert torch.equal(again(**batch(family)).logits, plain(**batch(family)).logits)


SCRIPT = """
import sys
from pathlib import Path
{first}
def refused():
    from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification
    for auto, name in ((AutoModelForImageClassification, "vit"), (AutoModelForSequenceClassification, "bert")):
        try:
            auto.from_pretrained(Path(sys.argv[1]) / name)
        except ValueError as error:
            assert f"model type `levelhead-{{name}}" in str(error)
        else:
            raise AssertionError(name)
refused()
{second}
refused()
from transformers import AutoConfig, AutoModelForImageClassification, AutoModelForSequenceClassification, pipeline
folder = Path(sys.argv[1]) / "appended"
assert AutoConfig.from_pretrained(folder).model_type == "levelhead_appended"
model = AutoModelForSequenceClassification.from_pretrained(folder)
assert type(model).__name__ == "AppendedClassifier" and not any(p.requires_grad for p in model.backbone.parameters())
AutoModelForImageClassification.from_pretrained(folder)
print(pipeline("text-classification", model=str(folder))("plain words")[0]["label"])
"""
ORDERS = {
    "levelhead first": ("import levelhead", "import transformers"),
    "transformers first": ("import transformers", "import levelhead"),
    "inside transformers": ("from transformers import AutoConfig", "import levelhead"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        pytest.param("levelhead first", marks=pytest.mark.long),
        pytest.param("transformers first", marks=pytest.mark.long),
        "inside transformers",
    ],
)
def test_a_process_refuses_what_was_attached_and_knows_what_was_appended(order: str, tmp_path: Path) -> None:
    """Without levelhead, attached models are refused, too; with it, an appended one is served."""
    for family in ("vit", "bert"):
        attached(family, tmp_path / family)
    model = lh.append_encoder(backbone("bert"), 2, id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1})
    trained(model, batch("bert"), torch.tensor([0, 1] * 3)).save_pretrained(tmp_path / "appended")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "plain", "words"]
    BertTokenizer(vocab=dict(zip(words, range(7), strict=True))).save_pretrained(tmp_path / "appended")
    first, second = ORDERS[order]
    script = SCRIPT.format(first=first, second=second)
    ended = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() in ("a", "b")


def test_importing_levelhead_imports_neither_torch_nor_transformers() -> None:
    script = "import sys, levelhead; assert not {'torch', 'transformers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)
