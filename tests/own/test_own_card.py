"""``lh.model_card``: a card of a model of one's own, which loads as the card says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

import levelhead as lh

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
NAMES = {"id2label": {0: "cat", 1: "dog"}, "label2id": {"cat": 0, "dog": 1}}


def vit(**options: Any) -> Any:
    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(**SIZE, image_size=8, patch_size=4, **(NAMES | options)))


def test_the_card_of_a_debiased_model_says_how_to_load_it(tmp_path: Path) -> None:
    model = lh.attach(vit()).train()
    model(torch.randn(4, 3, 8, 8))
    model.save_pretrained(tmp_path)
    text = lh.model_card(model, task="Tells cats from dogs.", data="own pictures", folder=tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.to_dict() == {
        "library_name": "levelhead",
        "pipeline_tag": "image-classification",
        "tags": ["levelhead", "debiased-attention"],
        "metrics": ["accuracy"],
    }
    assert card.text.strip().splitlines()[0].startswith("**Load this model with levelhead**")
    for part in (
        "- Task: Tells cats from dogs.",
        "- Classes: cat, dog",
        "- Data: own pictures",
        "No groups were named. No figure was measured by group",
        "statistics of: 1 training batches",
        "levelhead.compare_models",
        "No tool makes a model fair or legal.",
    ):
        assert part in text, part
    (python,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {"pixels": torch.randn(2, 3, 8, 8)}
    exec(python.replace('"FOLDER"', repr(str(tmp_path))), names)
    assert torch.allclose(names["logits"], model.eval()(names["pixels"]).logits, atol=1e-6)


def test_measured_figures_and_training_stand_in_it() -> None:
    rows = [{"pixel_values": torch.randn(3, 8, 8), "labels": at % 2, "site": "ab"[at // 2 % 2]} for at in range(40)]
    debiased = lh.attach(vit()).train()
    debiased(torch.stack([row["pixel_values"] for row in rows]))
    found = lh.compare_models(vit(), debiased, rows, groups="site")
    arguments = TrainingArguments("/home/somebody/secret", learning_rate=3e-4, report_to="none", use_cpu=True)
    text = lh.model_card(debiased, measured=found, training=arguments, groups="site: a, b", licence="mit")
    assert "Groups of the data set, as annotated: site: a, b." in text
    assert "| Equalized odds gap" in text
    assert "learning_rate: 0.0003" in text
    assert "license: mit" in text
    assert "secret" not in text
    assert "| Accuracy |" in text
    assert "Each model was trained once." in text
    assert f"gaps are about “{found.positive}”." in text
    alone = lh.model_card(debiased, measured=found.audit)
    assert f"gaps are about “{found.positive}”." in alone
    mapped = lh.audit(["n", "y"] * 20, [0, 1] * 20, sensitive_features=["a", "b"] * 20, label_map={"n": 0, "y": 1})
    assert "gaps are about “y”." in lh.model_card(debiased, measured=mapped)
    assert "Groups of the evaluation, as annotated, by site." in alone
    assert yaml.safe_load(text.split("---")[1])["license"] == "mit"


def test_hostile_words_stay_words_and_the_install_line_is_that_of_the_documentation() -> None:
    hostile = "<script>x</script> [a](http://b) | `c`\n# d"
    text = lh.model_card(lh.attach(vit()), task=hostile, data=hostile, groups=hostile, limits=[hostile])
    for markup in ("<script>", "[a](", "\n# d"):
        assert markup not in text
    assert "http://" not in text.replace("https://", "")
    (line,) = re.findall(r"`(python -m pip install [^`]*)`", text)
    assert line in (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8")
    plain = lh.model_card(vit())
    assert "A plain model of transformers, without debiased attention." in plain
    assert "No attention is debiased." in plain


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")
def test_the_card_of_an_adapter_is_ours_and_loads(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    size = {**SIZE, "vocab_size": 30, "max_position_embeddings": 8}
    base = lh.attach(BertForSequenceClassification(BertConfig(**size, **NAMES)))
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(
        r=2, target_modules=r".*\.self\.(query|value)", modules_to_save=["classifier", "alignment_head", "debias"]
    )
    model = peft.get_peft_model(base, config).train()
    model(input_ids=torch.ones(2, 4, dtype=torch.int64), labels=torch.tensor([0, 1]))
    model.save_pretrained(tmp_path / "adapter")
    assert "[More Information Needed]" in (tmp_path / "adapter" / "README.md").read_text()
    text = lh.model_card(model, task="Tells cats from dogs.", folder=tmp_path / "adapter")
    assert "[More Information Needed]" not in (tmp_path / "adapter" / "README.md").read_text()
    assert ModelCard(text).data.to_dict()["library_name"] == "peft"
    assert "- Adapters of PEFT: default (LORA)" in text
    assert "- Trained from: base" in text
    assert str(tmp_path) not in text
    model.save_pretrained(tmp_path / "adapter")  # PEFT keeps the text of a card that is there
    assert "Tells cats from dogs." in (tmp_path / "adapter" / "README.md").read_text()
    named = lh.model_card(model, base_model="somebody/base")
    assert 'PeftModel.from_pretrained(from_pretrained("somebody/base"), "FOLDER")' in named
    assert ModelCard(named).data.to_dict()["base_model"] == "somebody/base"
