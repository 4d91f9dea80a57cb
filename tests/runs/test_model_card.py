"""The model card says how to load a model, what saw groups and what was measured, whatever the data is called."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typer
import yaml
from huggingface_hub import ModelCard
from transformers import BertConfig, BertModel, BertTokenizer
from typer.testing import CliRunner

import levelhead as lh
from levelhead.attention import DebiasConfig
from levelhead.cli.card import card_command
from levelhead.loading import without_bars
from levelhead.models.networks import load_model
from levelhead.runs.card import model_card, write_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import DataError

SIZES = {"train_size": 64, "validation_size": 32, "test_size": 80}


def train(method: str, folder: Path) -> Path:
    recipe = {
        "data": {"name": "portraits", **SIZES, "root": "/home/somebody/secret"},
        "method": {"name": method},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {"epochs": 1, "batch_size": 16, "device": "cpu", "threads": 1},
    }
    train_run(build_experiment(recipe), folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train("dam", tmp_path_factory.mktemp("runs") / "dam")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def first_text(card: str) -> str:
    return ModelCard(card).text.strip().splitlines()[0]


def python_of(card: str, folder: Path) -> str:
    (block,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert len(block.splitlines()) == 3
    return block.replace('"FOLDER"', repr(str(folder)))


def replace_in(file: Path, **values: Any) -> None:
    write_json(file, read_json(file) | values)


def test_the_front_matter_is_what_the_hub_reads(run: Path) -> None:
    card = ModelCard.load(write_card(run))
    assert card.data.to_dict() == {
        "library_name": "levelhead",
        "pipeline_tag": "image-classification",
        "tags": ["levelhead", "debiased-attention", "dam", "portraits"],
        "metrics": ["accuracy"],
    }
    assert not (set(card.data.to_dict()) & {"license", "datasets", "base_model"})


def test_hub_names_are_named_and_folders_are_not(run: Path, tmp_path: Path) -> None:
    recipe = yaml.safe_load((run / "config.yaml").read_text())
    recipe["data"] = {"name": "hub", "path": "owner/faces"}
    for backbone, named in (("google/vit-base", True), (str(tmp_path), False)):
        recipe["model"] = {"backbone": backbone}
        (run / "config.yaml").write_text(yaml.safe_dump(recipe))
        card = model_card(run)
        data = ModelCard(card).data
        assert data.datasets == ["owner/faces"]
        assert data.base_model == (backbone if named else None)
        assert str(tmp_path) not in card


def test_the_first_line_says_how_to_load_and_its_python_does(run: Path) -> None:
    card = model_card(run)
    assert first_text(card).startswith("**Load this model with levelhead**")
    assert "loads it without debiased attention" in first_text(card)
    pixels = torch.randn(3, 3, 64, 64)
    names: dict[str, Any] = {"pixels": pixels}
    with torch.no_grad():
        exec(python_of(card, run / "model"), names)
        assert torch.equal(names["logits"], load_model(run / "model")(pixel_values=pixels).logits)


def test_a_plain_model_is_loaded_by_transformers(tmp_path: Path) -> None:
    run = train("erm", tmp_path / "erm")
    card = model_card(run)
    assert ModelCard(card).data.library_name == "transformers"
    assert first_text(card).startswith("A plain model of transformers, without debiased attention")
    assert "Lu, Wang, Wang" not in card
    names: dict[str, Any] = {"pixels": torch.zeros(1, 3, 64, 64)}
    exec(python_of(card, run / "model"), names)
    assert names["logits"].shape == (1, 2)


def test_a_text_model_on_a_backbone(run: Path) -> None:
    shutil.rmtree(run / "model")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    backbone = BertModel(BertConfig(**small, vocab_size=8, max_position_embeddings=16))
    model = lh.append_encoder(backbone, 2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    model.train()(input_ids=torch.tensor([[5, 6], [6, 7]]), labels=torch.tensor([0, 1]))
    vocabulary = {word: code for code, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])}
    with without_bars():
        model.eval().save_pretrained(run / "model")
        BertTokenizer(vocab=vocabulary).save_pretrained(run / "model")
        card = model_card(run)
        assert ModelCard(card).data.pipeline_tag == "text-classification"
        names: dict[str, Any] = {}
        exec(python_of(card, run / "model"), names)
        assert {row["label"] for row in names["classify"](["a b", "c"])} <= {"no", "yes"}


def test_groups_unseen_or_oracle(run: Path) -> None:
    assert "Group labels were never used in this run's training or in the choice of its epoch" in model_card(run)
    replace_in(run / "metrics.json", oracle="method and selection")
    card = model_card(run)
    assert "**ORACLE**: the method and selection of this run saw group labels" in card
    assert "never used" not in card
    assert "oracle" in ModelCard(card).data.tags


def test_figures_are_those_of_the_evaluation(run: Path) -> None:
    assert "not evaluated yet. `levelhead evaluate RUN --split test`" in model_card(run)
    evaluate_run(run)
    card = model_card(run)
    assert "not evaluated" not in card
    accuracy = read_json(run / "evaluation-test.json")["metrics"]["accuracy"]
    value, low, high = (100 * accuracy[key] for key in ("value", "low", "high"))
    assert f"| Accuracy | {value:.2f} [{low:.2f}, {high:.2f}] | 80 |" in card
    for group in ("angular", "round"):
        assert re.search(
            rf"^\| {group} \(too few rows, left out of some gaps\) \| \d+ \| [\d.]+ \[", card, flags=re.MULTILINE
        )
    result = read_json(run / "evaluation-test.json")
    result["by_attribute"]["style"]["metrics"]["accuracy"] = {"value": None, "n": 80, "reason": "no rows"}
    result["level"] = 0.9
    write_json(run / "evaluation-test.json", result)
    assert "| Accuracy | undefined: no rows | 80 |" in model_card(run)
    assert "percent [90%]" in model_card(run)


def test_the_card_says_what_it_must(run: Path) -> None:
    card = model_card(run)
    for said in (
        "hair colour: dark or light",
        "Its terms: Apache-2.0",
        "| Optimiser steps | 4 |",
        "levelhead train config.yaml --data-root DATA --out RUN",
        "a figure measured here says nothing about real people",
        "No tool makes a model fair or legal",
        "Lu, Wang, Wang: Debiasing Attention Mechanism in Transformer without Demographics",
    ):
        assert said in card, said
    assert not re.search(r"\bfairer\b|\bis fair\b|\bunbiased\b(?!:)", card)
    assert "somebody" not in card


def test_the_recipe_in_the_card_is_the_run_s_own(run: Path) -> None:
    recipe = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", model_card(run), flags=re.DOTALL)[-1])
    expected = yaml.safe_load((run / "config.yaml").read_text())
    del expected["data"]["root"]
    again = build_experiment(recipe).to_dict()
    assert again["data"].pop("root") is None
    assert again == expected


def test_the_card_shows_only_options_that_differ_from_the_default(run: Path) -> None:
    card = model_card(run)
    recipe = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", card, flags=re.DOTALL)[-1])
    shortest = {section: set(options) for section, options in recipe.items() if isinstance(options, dict)}
    assert {"epochs"} <= shortest["train"]
    assert not {"weight_decay", "select", "precision"} & shortest["train"]
    usual = DebiasConfig()
    layer = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", card, flags=re.DOTALL)[0])
    assert layer["debias"]
    assert all(value != getattr(usual, key) for key, value in layer["debias"].items())


def test_the_card_names_a_way_to_install_that_works(run: Path) -> None:
    card = model_card(run)
    assert "pip install levelhead" not in card
    assert "`python -m pip install -e '.[torch]'` in a clone" in card


def test_files_and_log_hold_the_validation_loss_as_it_is(run: Path) -> None:
    metrics = read_json(run / "metrics.json")
    assert metrics["validation"]["val_loss"] > 0
    assert all(row["val_loss"] > 0 for row in metrics["history"])
    logged = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = [line["val_loss"] for line in logged if "val_loss" in line]
    assert losses == [row["val_loss"] for row in metrics["history"]]
    frame = pd.read_parquet(run / "predictions-validation.parquet")
    right = [row[f"probability_{row['label']}"] for _, row in frame.iterrows()]
    assert metrics["validation"]["val_loss"] == pytest.approx(-np.log(right).mean(), rel=1e-4)


HOSTILE = "a|b `c`\n---\n# d <script>alert(1)</script> [e](https://evil.example) ![f](x.png) @someone"


def test_hostile_names_stay_text(run: Path) -> None:
    evaluate_run(run)
    clean = model_card(run)
    network = read_json(run / "model" / "config.json")
    replace_in(run / "model" / "config.json", id2label={"0": HOSTILE, "1": network["id2label"]["1"]})
    result = read_json(run / "evaluation-test.json")
    style = result["by_attribute"].pop("style")
    style["groups"] = {HOSTILE: style["groups"]["round"], "round": style["groups"]["round"]}
    result["by_attribute"][HOSTILE] = style
    result["warnings"] = [HOSTILE]
    write_json(run / "evaluation-test.json", result | {"positive": HOSTILE})
    recipe = yaml.safe_load((run / "config.yaml").read_text())
    recipe["name"] = "```\n</pre># free\n```"
    (run / "config.yaml").write_text(yaml.safe_dump(recipe))

    card = model_card(run)
    assert ModelCard(card).data.to_dict() == ModelCard(clean).data.to_dict()
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", card, flags=re.DOTALL | re.MULTILINE)
    for markup in ("<script", r"(?<!\\)\]\(", "https://evil", r"(?<!\\)!", r"(?<!\\)`c", "free", "@someone"):
        assert not re.search(markup, outside), markup
    headings = [line for line in outside.splitlines() if line.startswith(("#", "---"))]
    assert headings == [line for line in clean.splitlines() if line.startswith(("#", "---"))]
    rows = [line for line in outside.splitlines() if "alert" in line and line.startswith("|")]
    assert rows
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)


def test_the_command_writes_or_prints(run: Path) -> None:
    app = typer.Typer()
    app.command()(card_command)
    (run / "model" / "README.md").unlink()  # training wrote one
    printed = CliRunner().invoke(app, [str(run), "--print"])
    assert printed.exit_code == 0
    assert printed.stdout == model_card(run)
    assert not (run / "model" / "README.md").exists()
    written = CliRunner().invoke(app, [str(run)])
    assert written.exit_code == 0
    assert "README.md" in written.stdout.replace("\n", "")
    assert (run / "model" / "README.md").read_text() == model_card(run)


def test_an_unfinished_run_has_no_card(run: Path, tmp_path: Path) -> None:
    (run / "metrics.json").unlink()
    with pytest.raises(DataError, match="is not finished"):
        model_card(run)
    with pytest.raises(DataError, match="is not a run folder"):
        model_card(tmp_path)
