"""Altered run folders and model folders: each gives a result, or one clear sentence, soon, and nothing is changed.

A seeded loop, in one process for speed: a file of a small, whole folder is cut short, emptied, replaced, or changed in
one place, and then read in every way that levelhead has.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from shares import attempt, cases
from transformers import GPT2Config, GPT2LMHeadModel

from levelhead.attention import attach
from levelhead.bench.page import Comparisons
from levelhead.bench.tables import collect
from levelhead.cli.report import page_of
from levelhead.lm.model import LanguageModel
from levelhead.models.networks import classify_one, load_model
from levelhead.runs.card import model_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from tiny import tiny_appended, tiny_bert, tiny_vit
from words import save_tiny_backbone, word_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # that a model is odd may be said

CASES = 20  # of each of the tests below, which are numbered by their seeds
WORDS = ["a", "red", "bird", "sings"]
WRITTEN = re.compile(r"predictions-test(-epochs)?\.parquet|evaluation-test\.json|README\.md|\.lock")
VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 10**7, 10**40, -(10**9), 0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "pipeline", "../../x", "\x1b[31mred\x1b[0m", "none", "1", "é" * 300),
    *([], {}, [1], [[]], {"a": 1}, [None, -1], {"kind": "attach"}),
]


def recipe(**model: Any) -> dict[str, Any]:
    return {
        "data": {"name": "portraits", "train_size": 32, "validation_size": 16, "test_size": 40, "correlation": 0.5},
        "method": {"name": "dam"},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2, **model},
        "train": {"epochs": 1, "batch_size": 16, "device": "cpu", "threads": 1}
        | {"keep_epochs": True, "checkpoint_seconds": 0, "log_every": 1},
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders that are altered: two runs, one that was killed, and models of every kind."""
    place = tmp_path_factory.mktemp("whole")
    train_run(build_experiment(recipe()), place / "run")
    evaluate_run(place / "run")

    def kill(what: str, done: int, total: int, text: str) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(build_experiment(recipe()), place / "killed run", progress=kill)
    backbone = save_tiny_backbone(place / "backbone", [*WORDS, "the", "was", "and"])
    texts = recipe() | {
        "data": {"name": "phrases", "train_size": 32, "validation_size": 32, "test_size": 40},
        "model": {"backbone": str(backbone), "mode": "fine_tune"},
    }
    train_run(build_experiment(texts), place / "run of texts")
    evaluate_run(place / "run of texts")
    torch.manual_seed(0)
    for name, model in {
        "plain": tiny_vit(),
        "attached": attach(tiny_vit()),
        "attached to text": attach(tiny_bert()),
        "appended": tiny_appended(layers=2),
    }.items():
        model.save_pretrained(place / name)
    size = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=16, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(size).save_pretrained(place / "language model")
    word_tokenizer(WORDS).save_pretrained(place / "language model")
    return place


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all entries of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in [(*path, key), *places(item, (*path, key))]]


def altered(document: Any, draw: random.Random) -> Any:
    """Return a document with one entry replaced, deleted, renamed, wrapped, or one more."""
    found = places(document)
    if not found:
        return draw.choice(VALUES)
    document = json.loads(json.dumps(document))
    path = draw.choice(found)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    change, last = draw.choice(["replace", "replace", "replace", "delete", "rename", "wrap", "more"]), path[-1]
    if change == "delete":
        del parent[last]
    elif change == "rename" and isinstance(parent, dict):
        parent[f"{last}_"] = parent.pop(last)
    elif change == "wrap":
        parent[last] = [parent[last]]
    elif change == "more" and isinstance(parent, dict):
        parent[draw.choice(["extra", "auto_map", "levelhead", "num_labels"])] = draw.choice(VALUES)
    else:
        old = parent[last]
        numbers = [-old, 2 * old, old + 1, old * 10**6] if isinstance(old, int) and not isinstance(old, bool) else []
        parent[last] = draw.choice([*VALUES, *numbers])
    return document


def alter_bytes(file: Path, draw: random.Random) -> None:
    """Cut a file, empty it, exchange bytes of it, or put something else in its place."""
    content = file.read_bytes()
    change = draw.choice(["cut", "empty", "exchange", "other", "remove", "folder"])
    if change == "remove":
        file.unlink()
    elif change == "folder":
        file.unlink()
        file.mkdir()
    elif change == "exchange" and content:
        place = draw.randrange(len(content))
        file.write_bytes(content[:place] + draw.randbytes(8) + content[place + 8 :])
    elif change == "other":
        file.write_bytes(
            draw.choice([b"[]", b"{}", b"7", b"null", b"\xff\xfe", b"[" * 9000, b"\x80\x04.", draw.randbytes(400)])
        )
    else:
        file.write_bytes(b"" if change == "empty" else content[: draw.randrange(len(content) + 1)])


def alter_weights(file: Path, draw: random.Random) -> None:
    """Drop, add, rename, reshape, retype or spoil one tensor."""
    weights = load_file(file)
    name = draw.choice(sorted(weights))
    change = draw.choice(["drop", "more", "rename", "grow", "flat", "type", "infinite", "all"])
    value = weights[name]
    if change in ("drop", "rename"):
        del weights[name]
    if change in ("more", "rename"):
        weights[draw.choice([f"{name}.more", f"x.{name}", name.replace("0", "7"), ""])] = value.clone()
    if change == "grow":
        weights[name] = torch.cat([value, value]) if value.ndim else value[None]
    if change == "flat":
        weights[name] = value.flatten()[:1].clone()
    if change == "type":
        weights[name] = value.to(draw.choice([torch.int8, torch.float16, torch.bool, torch.float64]))
    if change == "infinite" and value.is_floating_point():
        weights[name] = torch.full_like(value, float("nan"))
    save_file({} if change == "all" else weights, file, {"format": "pt"})


def alter(file: Path, draw: random.Random) -> None:
    """Alter a file in a way that fits its kind, or as bytes."""
    if file.suffix in (".json", ".yaml") and draw.random() < 0.8:
        text = file.read_text()
        document = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
        for _ in range(draw.choice([1, 1, 1, 2, 4])):
            document = altered(document, draw)
        file.write_text(json.dumps(document) if file.suffix == ".json" else yaml.safe_dump(document))
    elif file.suffix == ".safetensors" and draw.random() < 0.7 and "epoch" not in file.name:
        alter_weights(file, draw)
    else:
        alter_bytes(file, draw)


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and not WRITTEN.fullmatch(file.name))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def check(folder: Path, use: Callable[[], object], what: str, writes: bool = False) -> None:
    """Use an altered folder, and demand a result or a sentence, with all files as they were unless it writes."""
    before = contents(folder)
    attempt(what, use)
    assert writes or contents(folder) == before, what


def use_run(folder: Path, draw: random.Random) -> Callable[[], object]:
    """Return one of the ways to read a run."""
    resume = [lambda: train_run(build_experiment(recipe()), folder, resume=True)]
    return draw.choice(
        [
            *(resume if (folder / "metrics.json").exists() else []),  # without it, a run is trained to its end again
            lambda: evaluate_run(folder),
            lambda: [Comparisons.of(group.compare("dam")).table() for group in collect([folder], "test")],
            lambda: [group.compare("dam", selection="val_loss").to_dict() for group in collect([folder], "test")],
            lambda: model_card(folder),
            lambda: page_of(folder),
            lambda: page_of(folder / "evaluation-test.json"),
        ]
    )


def use_model(folder: Path) -> object:
    """Load a model as levelhead does, and let it classify or score something."""
    if folder.name == "language model":
        return list(LanguageModel.load(folder, "cpu").option_log_likelihoods(["a red"], [[" bird sings", " bird"]]))
    model = load_model(folder)
    if model.main_input_name == "pixel_values":
        return classify_one(model, {"pixel_values": torch.zeros(1, 3, 16, 16)}, folder)
    return classify_one(model, {"input_ids": torch.tensor([[1, 2, 3]])}, folder)


@pytest.mark.parametrize("seed", range(10))
def test_altered_runs(seed: int, whole: Path, tmp_path: Path) -> None:
    draw = random.Random(seed)
    for case in cases(CASES):
        source = whole / draw.choice(["run", "run", "run of texts"])
        folder = tmp_path / str(case)
        shutil.copytree(source, folder)
        files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != ".lock")
        file = draw.choice(files)
        alter(file, draw)
        check(folder, use_run(folder, draw), f"seed {seed}, case {case}: {source.name}/{file.relative_to(folder)}")


@pytest.mark.parametrize("seed", range(2))
def test_altered_checkpoints_of_a_run_that_goes_on(seed: int, whole: Path, tmp_path: Path) -> None:
    draw = random.Random(2000 + seed)
    for case in cases(CASES):
        folder = tmp_path / str(case)
        shutil.copytree(whole / "killed run", folder)
        file = draw.choice([*sorted((folder / "checkpoints").iterdir()), folder / "log.jsonl", folder / "data.json"])
        alter(file, draw)
        resume = lambda: train_run(build_experiment(recipe()), folder, resume=True)  # noqa: B023, E731
        check(folder, resume, f"seed {2000 + seed}, case {case}: {file.relative_to(folder)}", writes=True)


@pytest.mark.parametrize("seed", range(15))
def test_altered_models(seed: int, whole: Path, tmp_path: Path) -> None:
    draw = random.Random(1000 + seed)
    for case in cases(CASES):
        name = draw.choice(["plain", "attached", "attached to text", "appended", "language model"])
        folder = tmp_path / str(case) / name
        shutil.copytree(whole / name, folder)
        file = draw.choice([folder / "config.json", *sorted(folder.iterdir())])
        alter(file, draw)
        check(folder, lambda: use_model(folder), f"seed {seed}, case {case}: {name}/{file.name}")  # noqa: B023
