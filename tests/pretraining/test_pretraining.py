"""Pretraining on masked patches: the checkpoint, what is read for it, resuming, and what is trained on top of it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import ViTConfig, ViTModel

from command_line import run, said
from levelhead.bench.grid import make_cells, read_grid
from levelhead.data import DATASETS
from levelhead.data.images import ImageInputs
from levelhead.models.networks import load_backbone
from levelhead.pretraining import MaskedViT, PretrainConfig, PretrainTrain, load_pretraining, pretrain
from levelhead.pretraining.masked import build_masked, encoder_of, positions
from levelhead.pretraining.train import WEIGHTS
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import find_recipe, load_experiment, recipe_folder
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError
from test_blindness import LAYOUTS, draw

PICTURES = DATASETS["portraits"](train_size=64, validation_size=32, test_size=80)
VIT = MaskedViT(
    hidden_size=16, layers=2, heads=2, intermediate_size=16, decoder_hidden_size=8, decoder_layers=1, decoder_heads=2
)


def tiny(**train: Any) -> PretrainConfig:
    options: dict[str, Any] = {"epochs": 2, "batch_size": 16, "warmup_steps": 2, "device": "cpu", "threads": 1}
    return PretrainConfig(VIT, PretrainTrain(**{**options, **train}))


def result(folder: Path, name: str = "result") -> dict[str, Any]:
    return dict(read_json(folder / "pretraining" / f"{name}.json"))


def weights(folder: Path) -> dict[str, Tensor]:
    return dict(ViTModel.from_pretrained(folder, add_pooling_layer=False).state_dict())


def assert_identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert not [name for name, tensor in expected.items() if not tensor.equal(found[name])]


@pytest.mark.parametrize("epochs", [2, 3])
def test_the_cost_of_an_attempt_with_another_recipe_is_not_counted(tmp_path: Path, epochs: int) -> None:
    inside = tmp_path / "m" / "pretraining"
    pretrain(PICTURES, tmp_path / "m", tiny(epochs=epochs))
    begun = {"parts": 1, "killed_parts": 0, "running": True, "seconds": 900.0}
    for file in sorted(tmp_path.rglob("*"), reverse=True):  # as a kill before the first checkpoint leaves it
        if file.is_file() and file != inside / "config.yaml":
            file.unlink()
    write_json(inside / "cost-so-far.json", begun)
    pretrain(PICTURES, tmp_path / "m", tiny())
    assert (result(tmp_path / "m", "cost")["seconds"] >= 900) == (epochs == 2)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    pretrain(PICTURES, folder, tiny())
    return folder


# The objective


@pytest.mark.parametrize(("share", "patch", "visible"), [(0.75, 16, 4), (0.5, 16, 8), (0.9, 8, 6), (0.3, 32, 2)])
def test_the_encoder_sees_as_many_patches_as_are_asked_for(share: float, patch: int, visible: int) -> None:
    model = MaskedViT(**{**vars(VIT), "mask_share": share, "patch_size": patch})
    network = build_masked(model)
    found = network(pixel_values=torch.zeros(2, 3, 64, 64))
    assert model.visible == visible
    assert ((found.mask == 0).sum(1) == visible).all()


def test_positions_of_hand() -> None:
    found = positions(2, 8)[0]
    assert found.shape == (5, 8)
    assert not found[0].any()
    first, second = math.sin(1), math.sin(0.01)  # w is 1 and 10000^(-1/2)
    beside = torch.tensor([0, 0, 1, 1, first, second, math.cos(1), math.cos(0.01)])
    assert torch.allclose(found[2], beside)  # row 0, column 1
    assert torch.allclose(found[3], beside.roll(4))  # row 1, column 0


def test_weights_are_counted_about_right() -> None:
    for model in (VIT, MaskedViT(), MaskedViT(patch_size=8, decoder_layers=4)):
        exact = sum(parameter.numel() for parameter in build_masked(model).parameters())
        assert model.weights == pytest.approx(exact, rel=0.1)


def test_encoder_and_decoder_know_where_a_patch_is() -> None:
    """transformers 5.23 leaves positions, and the tokens, zero in a new network."""
    network = build_masked(VIT)
    for places in (network.vit.embeddings.position_embeddings, network.decoder.decoder_pos_embed):
        assert not places.requires_grad
        assert len(places[0].unique(dim=0)) == 17
    assert network.vit.embeddings.cls_token.any()
    assert network.decoder.mask_token.any()
    pictures = torch.rand(1, 3, 64, 64)
    found = network.eval()(pixel_values=pictures)
    hidden = found.logits[0][found.mask[0] == 1]
    assert len(hidden.unique(dim=0)) == 12  # not one guess for all of them


def test_the_loss_is_the_squared_error_of_hidden_normalised_patches() -> None:
    network = build_masked(VIT).eval()
    pictures = torch.rand(3, 3, 64, 64)
    found = network(pixel_values=pictures)
    patches = pictures.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 4, 5, 1).reshape(3, 16, -1)
    wanted = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()
    errors = (found.logits - wanted).square().mean(-1)
    assert found.loss.item() == pytest.approx((errors * found.mask).sum().item() / found.mask.sum().item(), rel=1e-5)


def test_the_kept_encoder_is_the_pretrained_one_without_masks() -> None:
    network = build_masked(VIT).eval()
    pictures = torch.rand(3, 3, 64, 64)
    network.vit.config.mask_ratio = 0.0
    in_order = torch.arange(16.0).expand(3, 16)
    whole = network.vit(pictures, noise=in_order).last_hidden_state
    assert torch.allclose(encoder_of(network, VIT)(pictures).last_hidden_state, whole, atol=1e-5)


@pytest.mark.parametrize("train", [{"precision": "bf16", "gradient_clip": 1e-3}, {"flip": False}])
def test_options_of_the_training_are_used(train: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    pretrain(PICTURES, tmp_path / "m", tiny(**train, epochs=4, learning_rate=3e-3))
    losses = result(tmp_path / "m")["epoch_losses"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    found, before = weights(tmp_path / "m"), weights(checkpoint)
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert not found["layernorm.weight"].equal(before["layernorm.weight"])


# The checkpoint


def test_it_is_an_ordinary_checkpoint_with_a_card(checkpoint: Path) -> None:
    loaded, report = ViTModel.from_pretrained(checkpoint, add_pooling_layer=False, output_loading_info=True)
    assert not any(report.values())
    assert loaded.embeddings.patch_embeddings.num_patches == 16
    card = (checkpoint / "README.md").read_text()
    for words in ("MAE-like", "no DINO", "64 pictures", "2 epochs", "seed 0", "| Optimiser steps | 8 |", "2111.06377"):
        assert words in card
    assert str(checkpoint.parent) not in card
    inside = {file.name for file in (checkpoint / "pretraining").iterdir()} - {".lock"}
    written = {"config.yaml", "data.json", "log.jsonl", "cost.json", "environment.json", "result.json"}
    assert inside == written
    cost = result(checkpoint, "cost")
    assert cost["process_peak_memory_mib"] > 0
    assert ("peak_gpu_memory_mib" in cost) == torch.cuda.is_available()


def test_its_recipe_or_the_same_pictures_make_it_again(checkpoint: Path, tmp_path: Path) -> None:
    data, config = load_pretraining(checkpoint / "pretraining" / "config.yaml")
    assert (data, config) == (PICTURES, tiny())
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    pretrain(ImageInputs(PICTURES.inputs("train").pixels), tmp_path / "m", tiny())  # type: ignore[attr-defined]
    assert torch.rand(1).equal(expected), "the user's generator is left alone"
    assert_identical(weights(tmp_path / "m"), weights(checkpoint))
    assert "without the name of a data set" in (tmp_path / "m" / "README.md").read_text()


# What is read


@pytest.mark.parametrize("name", LAYOUTS)
def test_labels_and_groups_are_never_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set whose labels and groups raise gives the same pictures as its examples."""
    if name == "hub":
        pytest.importorskip("datasets")
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "library")
    data = DATASETS[name](root=tmp_path, **LAYOUTS[name](tmp_path, draw("kept"), False))
    fingerprint = data.examples("train").inputs.fingerprint()

    def poison(*arguments: Any, **ignored: Any) -> Any:
        raise AssertionError("labels or groups were requested")

    for method in ("examples", "groups", "check"):
        monkeypatch.setattr(type(data), method, poison)
    pretrain(data, tmp_path / "m", tiny(epochs=1))
    known = result(tmp_path / "m", "data")
    assert known == {"rows": 48 if name != "utkface" else known["rows"], "fingerprint": fingerprint}


def test_poisoned_columns_change_no_weight(tmp_path: Path) -> None:
    found = {}
    for state in ("kept", "poisoned", "deleted"):
        root = tmp_path / state
        LAYOUTS["celeba64"](root, draw("kept"), state == "deleted")
        for file in (root / "celeba64").glob("*.parquet"):
            frame = pd.read_parquet(file)
            if state == "poisoned":
                frame = frame.assign(Blond_Hair="no truth value", Male="no truth value")
            frame[["image"] if state == "deleted" else [*frame]].to_parquet(file)
        pretrain(DATASETS["celeba64"](root=root), tmp_path / f"m-{state}", tiny(epochs=1))
        found[state] = weights(tmp_path / f"m-{state}")
    assert_identical(found["poisoned"], found["kept"])
    assert_identical(found["deleted"], found["kept"])


# Resuming


class Killed(Exception):  # noqa: N818  (reads as what has happened)
    pass


def killer(at_step: int) -> Any:
    def progress(stage: str, done: int, total: int, text: str) -> None:
        if done == at_step:
            raise Killed

    return progress


def half_pretrained() -> None:
    """Leave a training in ``m`` that was killed at its third step."""
    with pytest.raises(Killed):
        pretrain(PICTURES.inputs("train"), Path("m"), tiny(), progress=killer(3))


def with_another_pixel() -> ImageInputs:
    """The pictures, but for the last bit of one pixel."""
    pixels = PICTURES.inputs("train").pixels.clone()  # type: ignore[attr-defined]
    pixels[0, 0, 0, 0] ^= 1
    return ImageInputs(pixels)


@pytest.mark.parametrize("killed_at", [1, 5])
def test_a_resumed_training_ends_in_the_same_weights(killed_at: int, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    with pytest.raises(Killed):
        pretrain(PICTURES, folder, tiny(checkpoint_seconds=0), progress=killer(killed_at))
    assert not (folder / "config.json").exists()
    torch.manual_seed(99)
    backbone = pretrain(PICTURES, folder, tiny(), resume=True)
    assert_identical(weights(folder), weights(checkpoint))
    assert_identical(dict(backbone.state_dict()), weights(checkpoint))
    assert (folder / "pretraining" / "log.jsonl").read_text().count("\n") == 2  # the last step of each epoch
    assert result(folder) == result(checkpoint)


@pytest.mark.slow
@pytest.mark.long
def test_kill_minus_nine(checkpoint: Path, tmp_path: Path) -> None:
    """A process of its own, killed between two checkpoints, and resumed."""
    folder = tmp_path / "m"
    (tmp_path / "recipe.yaml").write_text((checkpoint / "pretraining" / "config.yaml").read_text())
    code = (
        "import os, signal, sys\n"
        "import levelhead.pretraining as p\n"
        "data, config = p.load_pretraining(sys.argv[1], ['train.checkpoint_seconds=0'])\n"
        "end = lambda stage, done, total, text: done == 6 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "p.pretrain(data, sys.argv[2], config, progress=end)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "recipe.yaml"), str(folder)]
    assert subprocess.run(command, check=False).returncode == -9
    assert run("pretrain", str(tmp_path / "recipe.yaml"), "--out", str(folder)) == 2
    assert run("pretrain", str(tmp_path / "recipe.yaml"), "--out", str(folder), "--resume") == 0
    assert_identical(weights(folder), weights(checkpoint))
    assert result(folder, "cost")["killed_parts"] == 1


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_training_killed_while_it_saves(
    written: int, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, moves = tmp_path / "m", 0
    replace = Path.replace

    def stop(self: Path, target: Any) -> Any:
        nonlocal moves
        if self.parent.name == "unfinished" and self.name in WEIGHTS:
            if moves == written:
                raise Killed
            moves += 1
        return replace(self, target)

    def end(*arguments: Any) -> str:
        raise Killed

    monkeypatch.setattr(Path, "replace", stop)
    monkeypatch.setattr("levelhead.pretraining.train.checkpoint_card", end)
    with pytest.raises(Killed):
        pretrain(PICTURES, folder, tiny())
    assert (folder / "config.json").exists() == (written == 3)
    monkeypatch.undo()
    pretrain(PICTURES, folder, tiny(), resume=True)
    assert_identical(weights(folder), weights(checkpoint))
    assert not (folder / "pretraining" / "unfinished").exists()
    assert not (folder / "pretraining" / "checkpoints").exists()


def test_a_finished_training_is_loaded(checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "m"
    shutil.copytree(checkpoint, copy)
    before = (copy / "model.safetensors").stat().st_mtime_ns
    backbone = pretrain(PICTURES, copy, tiny(checkpoint_seconds=5, log_every=3), resume=True)
    assert_identical(dict(backbone.state_dict()), weights(checkpoint))
    assert (copy / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"train\.epochs: 2 then, 3 now"):
        pretrain(PICTURES, copy, tiny(epochs=3), resume=True)


def test_a_refused_training_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lower it"):
        pretrain(PICTURES, tmp_path / "new" / "m", tiny(batch_size=5000))
    assert list(tmp_path.iterdir()) == []


# On top of it


def settings(folder: Path | str, mode: str, **more: Any) -> list[str]:
    options = {
        "data": "{name: portraits, train_size: 64, validation_size: 32, test_size: 80}",
        "model.backbone": folder,
        "model.mode": mode,
        "train.epochs": 1,
        "train.batch_size": 16,
        "train.warmup_steps": 0,
        "train.device": "cpu",
        "train.threads": 1,
        **more,
    }
    return [f"{key}={value}" for key, value in options.items()]


@pytest.mark.parametrize(("method", "mode"), [("dam", "last_encoder"), ("erm", "fine_tune")])
def test_methods_train_on_it(method: str, mode: str, checkpoint: Path, tmp_path: Path) -> None:
    chosen = [*settings(checkpoint, mode), f"method.name={method}"]
    experiment = load_experiment("celeba64_attractive_erm_le_small", chosen)
    train_run(experiment, tmp_path / "run")
    assert evaluate_run(tmp_path / "run").metrics["accuracy"].n == 80
    trained, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run" / "model", checkpoint))
    same = [trained[f"backbone.{key}"].equal(tensor) for key, tensor in before.items()]
    assert all(same) == (mode == "last_encoder")
    assert any("debias" in key for key in trained) == (method == "dam")


def test_the_verbs_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = [f"model.{key}={value}" for key, value in vars(VIT).items() if key != "image_size"]
    small = [word for each in ["data.train_size=64", "train.batch_size=16", *sizes] for word in ("--set", each)]
    assert run("pretrain", "portraits_mae", "--out", "models/own", "--set", "train.epochs=1", *small) == 0
    assert "Next: levelhead train RECIPE --set 'model={backbone: models/own, mode: last_encoder}'" in said(capsys)
    chosen = [word for each in settings("models/own", "last_encoder") for word in ("--set", each)]
    assert run("train", "celeba64_attractive_dam_le_small", *chosen, "--out", "runs/le") == 0
    assert run("evaluate", "runs/le") == 0
    assert run("pretrain", "--data", "portraits", "--out", "models/own") == 2
    assert "Add --resume" in said(capsys)


def legacy_dino(folder: Path) -> Path:
    """Write a checkpoint in the form in which DINO's ViT-S/16 lies on the Hub, but tiny."""
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=16
    )
    model = ViTModel(config, add_pooling_layer=True)
    model.save_pretrained(folder)
    tensors = {}
    names = {
        r"^layers\.": "encoder.layer.",
        r"attention\.q_proj": "attention.attention.query",
        r"attention\.k_proj": "attention.attention.key",
        r"attention\.v_proj": "attention.attention.value",
        r"attention\.o_proj": "attention.output.dense",
        r"mlp\.fc1": "intermediate.dense",
        r"mlp\.fc2": "output.dense",
    }
    for key, tensor in model.state_dict().items():
        for pattern, earlier in names.items():
            key = re.sub(pattern, earlier, key)
        tensors[key] = tensor.clone()
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    written = json.loads((folder / "config.json").read_text())
    earlier = {key: value for key, value in written.items() if key not in ("dtype", "pooler_act", "pooler_output_size")}
    (folder / "config.json").write_text(json.dumps({**earlier, "torch_dtype": "float32"}))
    processor = {"do_normalize": True, "do_resize": True, "feature_extractor_type": "ViTFeatureExtractor"}
    processor |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 2, "size": 32}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.mark.parametrize("mode", ["last_encoder", "fine_tune"])
def test_a_checkpoint_in_the_form_of_dino_works_by_path_in_the_same_recipes(mode: str, tmp_path: Path) -> None:
    folder = legacy_dino(tmp_path / "dino-vits16")
    expected = torch.load(folder / "pytorch_model.bin")["encoder.layer.1.attention.attention.key.weight"]
    assert load_backbone(str(folder), None).layers[1].attention.k_proj.weight.equal(expected)
    chosen = [*settings(folder, mode), "method.name=dam"]
    train_run(load_experiment("celeba_blond_erm_le", chosen), tmp_path / "run")
    evaluate_run(tmp_path / "run")
    train_run(load_experiment("celeba64_attractive_erm_le_small", settings(folder, mode)), tmp_path / "small")


# Recipes


@pytest.mark.parametrize("path", sorted((recipe_folder() / "pretraining").glob("*.yaml")), ids=lambda path: path.stem)
def test_pretraining_recipes_are_valid_and_say_how_they_are_run(path: Path) -> None:
    for name in (path.stem, path.name, f"recipes/pretraining/{path.name}"):
        assert find_recipe(name, "pretraining").resolve() == path.resolve()
    load_pretraining(path.stem)
    lines = path.read_text().splitlines()
    assert "MAE-like" in lines[0]
    assert lines[1].startswith(f"# levelhead pretrain recipes/pretraining/{path.name} ")


@pytest.mark.parametrize("name", ["table5", "table5_small"])
def test_table_5(name: str, tmp_path: Path) -> None:
    grid = read_grid(recipe_folder() / "paper" / f"{name}.yaml")
    assert read_grid(name) == grid
    cells = {cell.row: cell.experiment for cell in make_cells(grid, tmp_path, data_root=tmp_path, seeds=[0])}
    for mode, written in (("FT", "fine_tune"), ("LE", "last_encoder")):
        presets = ["paper", "levelhead", "released-vision", *["released-dino"] * (mode == "LE")]
        rows = [f"ERM-{mode}", *(f"DAM ({preset})-{mode}" for preset in presets)]
        assert [row for row in cells if row.endswith(mode)] == rows
        erm, dam = cells[rows[0]], cells[rows[2]]
        first, second = (one.to_dict() | {"method": 0, "name": 0} for one in (erm, dam))
        assert first == second  # the two differ in the method alone
        small = name.endswith("small")
        recipe = "celeba64_attractive_erm_le_small" if small else "celeba_blond_erm_le"
        longer = ["train.epochs=2", "train.learning_rate=3.0e-4"] * (small and mode == "FT")
        for who, experiment in (("erm", erm), ("dam", dam)):
            chosen = [f"method.name={who}", f"model.mode={written}", *longer]
            alone = load_experiment(recipe, chosen, data_root=tmp_path)
            assert replace(alone.data, target="Blond_Hair") == experiment.data
            assert alone.method == experiment.method
            assert alone.model == replace(experiment.model, features=alone.model.features)
            for option in ("epochs", "batch_size", "learning_rate"):
                assert getattr(alone.train, option) == getattr(experiment.train, option)


def test_a_data_set_gives_its_pictures(tmp_path: Path) -> None:
    data, config = load_pretraining(None, ["train.epochs=3", "seed=4"], data="celeba64_attractive", data_root=tmp_path)
    assert (data.root, type(data)) == (tmp_path, DATASETS["celeba64"])
    assert (config.train.epochs, config.seed) == (3, 4)
    data, config = load_pretraining("portraits_mae", data="utkface64")
    assert type(data) is DATASETS["utkface64"]
    assert config.model.patch_size == 8


# What is refused


def test_a_checkpoint_without_all_weights_is_named(checkpoint: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    kept = {key: tensor for key, tensor in load_file(broken / "model.safetensors").items() if ".1." not in key}
    save_file(kept, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match="holds no weights for"):
        load_backbone(str(broken), None)
