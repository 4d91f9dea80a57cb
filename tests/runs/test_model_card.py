"""The model card says how to load a model, what saw groups and what was measured, whatever the data is called."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from test_runs import PORTRAITS, recipe
from transformers import BertConfig, BertModel, BertTokenizer

import levelhead as lh
from command_line import run
from levelhead.attention import DebiasConfig
from levelhead.loading import without_bars
from levelhead.models.networks import load_model
from levelhead.runs.card import model_card, write_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json


def train(method: str, folder: Path) -> Path:
    data = PORTRAITS | {"root": "/home/somebody/secret"}
    train_run(build_experiment(recipe(method, epochs=1) | {"data": data}), folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train("dam", tmp_path_factory.mktemp("runs") / "dam")


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def python_of(card: str, folder: Path) -> str:
    (block,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert len(block.splitlines()) == 3
    return block.replace('"FOLDER"', repr(str(folder)))


def replace_in(file: Path, **values: Any) -> None:
    write_json(file, read_json(file) | values)


def test_the_front_matter_is_what_the_hub_reads_and_the_card_says_what_it_must(folder: Path) -> None:
    card = ModelCard.load(write_card(folder))
    assert card.data.to_dict() == {
        "library_name": "levelhead",
        "pipeline_tag": "image-classification",
        "tags": ["levelhead", "debiased-attention", "dam", "portraits"],
        "metrics": ["accuracy"],
    }
    for words in (
        "hair colour: dark or light",
        "Its terms: Apache-2.0",
        "| Optimiser steps | 4 |",
        "levelhead train config.yaml --data-root DATA --out RUN",
        "a figure measured here says nothing about real people",
        "No tool makes a model fair or legal",
        "Lu, Wang, Wang: Debiasing Attention Mechanism in Transformer without Demographics",
        "`python -m pip install '.[torch]'` in a clone",
    ):
        assert words in card.text, words
    assert not re.search(r"\bfairer\b|\bis fair\b|\bunbiased\b(?!:)|pip install levelhead", card.text)
    assert "somebody" not in card.text


def test_hub_names_are_named_and_folders_are_not(folder: Path, tmp_path: Path) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"] = {"name": "hub", "path": "owner/faces"}
    for backbone, named in (("google/vit-base", True), (str(tmp_path), False)):
        config["model"] = {"backbone": backbone}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        card = model_card(folder)
        data = ModelCard(card).data
        assert data.datasets == ["owner/faces"]
        assert data.base_model == (backbone if named else None)
        assert str(tmp_path) not in card


def test_the_first_line_says_how_to_load_and_its_python_does(folder: Path, tmp_path: Path) -> None:
    pixels = torch.randn(3, 3, 64, 64)
    for made, line, library, cites in (
        (folder, "**Load this model with levelhead**", "levelhead", True),
        (train("erm", tmp_path / "erm"), "A plain model of transformers, without debiased", "transformers", False),
    ):
        card = model_card(made)
        first = ModelCard(card).text.strip().splitlines()[0]
        assert first.startswith(line)
        assert ("refuse its type" in first) == ("Lu, Wang, Wang" in card) == cites
        assert ModelCard(card).data.library_name == library
        names: dict[str, Any] = {"pixels": pixels}
        with torch.no_grad():
            exec(python_of(card, made / "model"), names)
            assert torch.equal(names["logits"], load_model(made / "model")(pixel_values=pixels).logits)


def test_a_text_model_on_a_backbone(folder: Path) -> None:
    shutil.rmtree(folder / "model")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    backbone = BertModel(BertConfig(**small, vocab_size=8, max_position_embeddings=16))
    model = lh.append_encoder(backbone, 2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    model.train()(input_ids=torch.tensor([[5, 6], [6, 7]]), labels=torch.tensor([0, 1]))
    vocabulary = {word: code for code, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])}
    with without_bars():
        model.eval().save_pretrained(folder / "model")
        BertTokenizer(vocab=vocabulary).save_pretrained(folder / "model")
        card = model_card(folder)
        assert ModelCard(card).data.pipeline_tag == "text-classification"
        names: dict[str, Any] = {}
        exec(python_of(card, folder / "model"), names)
        assert {row["label"] for row in names["classify"](["a b", "c"])} <= {"no", "yes"}


def test_groups_unseen_or_oracle(folder: Path) -> None:
    assert "Group labels were never used in this run's training or in the choice of its epoch" in model_card(folder)
    replace_in(folder / "metrics.json", oracle="method and selection")
    card = model_card(folder)
    assert "**ORACLE**: the method and selection of this run saw group labels" in card
    assert "never used" not in card
    assert "oracle" in ModelCard(card).data.tags


def test_figures_are_those_of_the_evaluation(folder: Path) -> None:
    assert "not evaluated yet. `levelhead evaluate RUN --split test`" in model_card(folder)
    evaluate_run(folder)
    card = model_card(folder)
    assert "not evaluated" not in card
    accuracy = read_json(folder / "evaluation-test.json")["metrics"]["accuracy"]
    value, low, high = (100 * accuracy[key] for key in ("value", "low", "high"))
    assert f"| Accuracy | {value:.1f} ({low:.1f}–{high:.1f}) | 80 |" in card
    for group in ("angular", "round"):
        assert re.search(rf"(?m)^\| {group} \| \d+ \| [\d.]+ \([\d.]+–", card)
    replace_in(folder / "evaluation-test.json", level=0.9)
    assert "90% intervals" in model_card(folder)


def test_the_recipe_in_the_card_is_the_run_s_own(folder: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", model_card(folder), flags=re.DOTALL)
    layer, shown = map(yaml.safe_load, blocks)
    expected = yaml.safe_load((folder / "config.yaml").read_text())
    del expected["data"]["root"]
    assert shown == expected
    assert layer["debias"].keys() == vars(DebiasConfig()).keys()


HOSTILE = "a|b `c`\n---\n# d <script>alert(1)</script> [e](https://evil.example) ![f](x.png) @someone"


def test_hostile_names_stay_text(folder: Path) -> None:
    evaluate_run(folder)
    clean = model_card(folder)
    network = read_json(folder / "model" / "config.json")
    replace_in(folder / "model" / "config.json", id2label={"0": HOSTILE, "1": network["id2label"]["1"]})
    result = read_json(folder / "evaluation-test.json")
    for row in result["figures"]["data"]:
        row[:2] = [HOSTILE, HOSTILE if row[1] == "round" else row[1]]
    result["by_attribute"][HOSTILE] = result["by_attribute"].pop("style")
    result["warnings"] = [HOSTILE]
    write_json(folder / "evaluation-test.json", result | {"positive": HOSTILE})
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"name": "```\n</pre># free\n```"}))

    card = model_card(folder)
    assert ModelCard(card).data.to_dict() == ModelCard(clean).data.to_dict()
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", card, flags=re.DOTALL | re.MULTILINE)
    for markup in ("<script", r"(?<!\\)\]\(", "https://evil", r"(?<!\\)!", r"(?<!\\)`c", "free", "@someone"):
        assert not re.search(markup, outside), markup
    headings = [line for line in outside.splitlines() if line.startswith(("#", "---"))]
    assert headings == [line for line in clean.splitlines() if line.startswith(("#", "---"))]
    rows = [line for line in outside.splitlines() if "alert" in line and line.startswith("|")]
    assert rows
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_the_command_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = folder / "model" / "README.md"
    readme.unlink()  # training wrote one
    assert run("report", folder, "--card") == 0
    assert "README.md" in capsys.readouterr().out.replace("\n", "")
    assert readme.read_text() == model_card(folder)
