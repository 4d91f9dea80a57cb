"""Training with KLAAD: resuming, accumulation, recipes, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from klaad_examples import TRIPLETS, language_model, tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from levelhead.cli.klaad import train_command
from levelhead.lm.klaad import Klaad, collate
from levelhead.lm.klaad_training import (
    KlaadConfig,
    KlaadModel,
    KlaadTrain,
    load_klaad,
    load_language_model,
    train_klaad,
)
from levelhead.lm.loading import load_checkpoint
from levelhead.lm.model import LanguageModel
from levelhead.runs.recipe import recipe_folder
from levelhead.types import ConfigError, LevelheadError

TRAIN = KlaadTrain(epochs=2, batch_size=1, accumulate=2, learning_rate=1e-3, device="cpu", log_every=1)
CONFIG = KlaadConfig(train=TRAIN)


class Killed(Exception):  # noqa: N818
    """Stands for the signal that ends a run."""


def same(first: Any, second: Any) -> bool:
    others = second.state_dict()
    return all(tensor.equal(others[name]) for name, tensor in first.state_dict().items())


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stop", [1, 3])
def test_a_killed_training_ends_in_the_same_weights(stop: int, tmp_path: Path) -> None:
    config = replace(CONFIG, train=replace(TRAIN, checkpoint_seconds=0))
    whole = train_klaad(language_model("gpt2", dropout=0.1), tokenizer(), TRIPLETS, config, tmp_path / "whole")
    untouched = language_model("gpt2", dropout=0.1)
    assert not same(whole, untouched)

    def kill(stage: str, done: int, total: int, text: str) -> None:
        assert total == 4
        if done == stop + 1:  # after the step, before its checkpoint
            raise Killed

    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        train_klaad(language_model("gpt2", dropout=0.1), tokenizer(), TRIPLETS, config, folder, progress=kill)
    assert not (folder / "model").exists()
    torch.rand(7)  # whatever happened to the generator meanwhile
    resumed = train_klaad(language_model("gpt2", dropout=0.1), tokenizer(), TRIPLETS, config, folder)
    assert same(resumed, whole)
    assert [row["step"] for row in rows(folder)] == [1, 2, 3, 4]
    assert [row["kl"] for row in rows(folder)] == [row["kl"] for row in rows(tmp_path / "whole")]
    checkpoints = [one / "checkpoints" / "stage-0.safetensors" for one in (folder, tmp_path / "whole")]
    assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()  # they say nothing of how long it took
    saved = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert same(saved, whole)
    assert len(AutoTokenizer.from_pretrained(folder / "model")) == len(tokenizer())
    again = train_klaad(language_model("gpt2", dropout=0.1), tokenizer(), TRIPLETS, config, folder, progress=kill)
    assert same(again, whole)  # finished: loaded, not trained
    faster = replace(config, train=replace(config.train, checkpoint_seconds=5))
    assert same(train_klaad(language_model("gpt2", dropout=0.1), tokenizer(), TRIPLETS, faster, folder), whole)
    assert same(load_language_model(KlaadModel(str(folder)))[0], whole)  # a folder stands for its model
    loaded = LanguageModel.load(folder, "cpu")
    assert same(loaded.network, whole)
    assert loaded.name == str(folder / "model")


def test_the_log_has_every_part(tmp_path: Path) -> None:
    model = language_model("llama")
    held_out = [replace(TRIPLETS[0], term="robin")]
    train_klaad(model, tokenizer(), TRIPLETS, CONFIG, tmp_path, held_out=held_out)
    assert not model.training
    assert model.config._attn_implementation == "sdpa"  # it attends as it did
    first = rows(tmp_path)[0]
    assert {"loss", "ce", "kl", "triplet", "likelihood_gap", "entropy", "shared", "learning_rate"} <= first.keys()
    expected = 0.7 * first["ce"] + 0.15 * first["kl"] + 0.15 * first["triplet"]
    assert first["loss"] == pytest.approx(expected, rel=1e-5)
    last = rows(tmp_path)[-1]
    assert last["held_out_ce"] == pytest.approx(
        CONFIG.klaad(model, collate(tokenizer(), held_out))[1]["ce"].item(), rel=1e-5
    )


def test_accumulated_batches_step_as_one(tmp_path: Path) -> None:
    # All four triplets are the same one, so that means over tokens and over triplets agree.
    triplets = [TRIPLETS[0]] * 4
    weights = []
    for batch_size, accumulate in ((4, 1), (1, 4), (3, 2)):
        train = replace(TRAIN, epochs=1, batch_size=batch_size, accumulate=accumulate)
        model = train_klaad(language_model("llama"), tokenizer(), triplets, replace(CONFIG, train=train))
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    start = torch.cat([parameter.flatten() for parameter in language_model("llama").parameters()])
    assert (weights[0] - start).abs().mean() > 5e-4
    for other in weights[1:]:
        assert (other - weights[0]).abs().mean() < 2e-5


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_training(broken: str) -> None:
    model = language_model()
    if broken == "loss":
        model.lm_head.weight.data[0, 0] = torch.nan
    else:
        model.lm_head.weight.register_hook(lambda gradient: gradient * math.nan)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(LevelheadError, match="Weights were not updated"):
        train_klaad(model, tokenizer(), TRIPLETS, CONFIG)
    assert all(tensor.allclose(before[name], equal_nan=True) for name, tensor in model.state_dict().items())
    assert model.config._attn_implementation == "sdpa"


PUBLISHED = {
    "klaad_llama32_3b": ((0.7, 0.15, 0.15), 0.3),
    "klaad_gpt_neo_27b": ((0.5, 0.25, 0.25), 0.5),
    "klaad_gemma2_2b": ((0.7, 0.15, 0.15), 0.5),
    "klaad_small": ((0.5, 0.25, 0.25), 0.5),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_are_valid_and_as_published(name: str) -> None:
    path = recipe_folder() / "lm" / f"{name}.yaml"
    config = load_klaad(name)
    assert config == load_klaad(path)
    assert (config.klaad.weights, config.klaad.margin) == PUBLISHED[name]
    assert (config.train.epochs, config.train.learning_rate) == (1, 1e-5)
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# KLAAD on ")
    assert f"recipes/lm/{path.name}" in lines[1]
    changed = load_klaad(name, ["klaad.weights=[1, 0, 0]", "train.learning_rate=1e-4", "seed=3"])
    assert (changed.klaad.weights, changed.klaad.margin, changed.seed) == ((1, 0, 0), config.klaad.margin, 3)
    assert changed.train.learning_rate == 1e-4


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*enable_input_require_grads.*:FutureWarning")
def test_a_low_rank_model_trains_with_checkpointing_and_resumes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("peft")
    AcceleratorState._reset_state(True)  # another precision than the tests before
    request.addfinalizer(lambda: AcceleratorState._reset_state(True))
    language_model("llama").save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    source = KlaadModel(str(tmp_path / "base"), lora_rank=2, gradient_checkpointing=True)
    train = replace(TRAIN, precision="bf16", epochs=1)
    config = KlaadConfig(klaad=Klaad(), train=train, model=source)
    torch.manual_seed(0)
    model, words = load_language_model(source)
    learnt = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learnt
    assert all("lora_" in name for name in learnt)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train_klaad(model, words, TRIPLETS, config, tmp_path / "run")
    after = model.state_dict()
    assert {name for name in before if not before[name].equal(after[name])} <= learnt
    assert any(not before[name].equal(after[name]) for name in learnt if "layers.1." in name)
    fresh, _ = load_language_model(source)
    assert same(train_klaad(fresh, words, TRIPLETS, config, tmp_path / "run"), model)
    loaded = LanguageModel.load(tmp_path / "run", "cpu")  # with its matrices merged
    ids = collate(words, TRIPLETS).input_ids
    with torch.no_grad():
        expected, base = (one.eval()(input_ids=ids).logits for one in (model, language_model("llama")))
        assert (base - expected).abs().max() > 1e-3
        torch.testing.assert_close(loaded.network(input_ids=ids).logits, expected, atol=1e-4, rtol=1e-3)
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(ConfigError, match=r"The base model of --model .*base gives no configuration: .*no such folder"):
        LanguageModel.load(tmp_path / "run", "cpu")


def test_peft_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    language_model("llama").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match="needs peft"):
        load_language_model(KlaadModel(str(tmp_path), lora_rank=2))
    (tmp_path / "config.json").rename(tmp_path / "adapter_config.json")
    with pytest.raises(ConfigError, match="which need peft"):
        load_checkpoint("--model", str(tmp_path))


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_cannot_be_reached_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> Any:
        raise OSError("We couldn't connect to 'https://huggingface.co'\nand a long trace")

    monkeypatch.setattr(AutoConfig, "from_pretrained", unreachable)
    with pytest.raises(ConfigError, match="can the Hub be reached") as caught:
        load_language_model(KlaadModel("somebody/some-model", revision="v2"))
    assert "somebody/some-model (revision v2)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__  # no trace of transformers


@pytest.fixture
def train_own(tmp_path: Path) -> Callable[..., str]:
    """Train into a folder on the first triplet under ten terms of two kinds; return what is held out."""
    language_model("llama").save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    first = f"{TRIPLETS[0].stereotype},{TRIPLETS[0].anti_stereotype},{TRIPLETS[0].unrelated}"
    lines = [f"{first},{kind}{number},{kind}" for kind in ("fruit", "nuts") for number in range(5)]
    (tmp_path / "own.csv").write_text("\n".join(["stereo,anti,unrelated,term,bias_type", *lines]) + "\n")

    def train(out: str, *options: str, model: str = "base", share: float = 0.2, split_seed: int = 0) -> str:
        given = [f"model.name={tmp_path / model}", "train.device=cpu", *options]
        train_command("klaad_small", tmp_path / "own.csv", tmp_path / out, given, share, split_seed)
        return (tmp_path / out / "held-out-terms.txt").read_text()

    return train


def test_held_out_terms_follow_the_split_seed_and_stay(
    train_own: Callable[..., str], tmp_path: Path, capsys: Any
) -> None:
    first = train_own("a")
    found = "2 of 10 target terms held out: 1 of 5 fruit, 1 of 5 nuts, by --split-seed 0."
    assert found in capsys.readouterr().out.replace("\n", " ")
    with pytest.raises(ConfigError, match="other settings"):
        train_own("a", "seed=1")
    assert (tmp_path / "a" / "held-out-terms.txt").read_text() == first
    assert train_own("b", "seed=1") == first  # the seed of a training does not choose
    assert train_own("c", split_seed=1) != first
    with pytest.raises(ConfigError, match="was trained by KLAAD, on terms to hold out here: give the model before"):
        train_own("d", model="a")
