"""KLAAD in two gloo processes on this machine against one: the same losses and weights, also for uneven batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from klaad_examples import TRIPLETS, language_model, tokenizer
from torch import distributed

from levelhead.lm.klaad import Klaad, collate
from levelhead.lm.klaad_training import KlaadConfig, KlaadTrain, train_klaad
from levelhead.types import ConfigError
from ranks import join_ranks, start_ranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # three interpreters import torch and transformers
PROCESSES = 2
# Five triplets an epoch: batches of 3 and 2, so shares of 2 + 1 and 1 + 1 (or of 1 + 0 where a batch holds one alone).
ROWS = [*TRIPLETS, replace(TRIPLETS[0], stereotype="they sings", term="robin")]
HELD_OUT = [replace(TRIPLETS[1], term="wren"), replace(TRIPLETS[2], term="tit"), replace(TRIPLETS[0], term="jay")]
TRAIN = KlaadTrain(epochs=1, batch_size=3, learning_rate=1e-3, device="cpu", log_every=1)
CASES: dict[str, KlaadConfig] = {
    "whole": KlaadConfig(klaad=Klaad(), train=TRAIN),
    "accumulated": KlaadConfig(klaad=Klaad(), train=replace(TRAIN, batch_size=2, accumulate=2, gradient_clip=0.5)),
    "choices": KlaadConfig(klaad=Klaad(per_head=True, pooling="last", target_only=True), train=TRAIN),
    "ce": KlaadConfig(klaad=Klaad(weights=(1, 0, 0)), train=replace(TRAIN, batch_size=4)),
}


class Killed(Exception):  # noqa: N818
    pass


def train(name: str, folder: Path, rank: int = 0) -> dict[str, Any]:
    model = language_model("llama")
    if rank:  # the weights of the main process are taken
        model.model.embed_tokens.weight.data += 1
    train_klaad(model, tokenizer(), ROWS, CASES[name], folder, held_out=HELD_OUT)
    return dict(model.state_dict())


def work(rank: int, folder: Path) -> None:
    join_ranks(rank, PROCESSES, folder)
    usual = torch.optim.AdamW
    # With the usual epsilon Adam turns rounding errors of gradients that are truly 0 into steps.
    torch.optim.AdamW = partial(usual, eps=1e-3)  # type: ignore[misc, assignment]
    found: dict[str, Any] = {name: train(name, folder / name, rank) for name in CASES}
    torch.optim.AdamW = usual  # type: ignore[misc]
    found |= resumed(rank, folder)
    torch.save(found, folder / f"found-{rank}.pt")
    distributed.destroy_process_group()


def resumed(rank: int, folder: Path) -> dict[str, Any]:
    """Train with dropout to the end, and once more with a kill on all processes; then with other settings."""
    config = KlaadConfig(train=replace(TRAIN, checkpoint_seconds=0))
    make = partial(language_model, "gpt2", dropout=0.1)
    whole = train_klaad(make(), tokenizer(), ROWS, config, folder / "undisturbed")
    seen: list[int] = []

    def kill(stage: str, done: int, total: int, text: str) -> None:
        seen.append(done)

    original, steps = torch.optim.AdamW.step, iter(range(99))

    def step(*args: Any, **options: Any) -> Any:
        if next(steps) == 1:
            raise Killed
        return original(*args, **options)

    torch.optim.AdamW.step = step  # type: ignore[method-assign]
    with pytest.raises(Killed):
        train_klaad(make(), tokenizer(), ROWS, config, folder / "killed", progress=kill)
    torch.optim.AdamW.step = original  # type: ignore[method-assign]
    distributed.barrier()
    torch.manual_seed(99 + rank)
    again = train_klaad(make(), tokenizer(), ROWS, config, folder / "killed")
    with pytest.raises(ConfigError, match="other settings"):
        train_klaad(make(), tokenizer(), ROWS, replace(config, seed=4), folder / "killed")
    return {"undisturbed": dict(whole.state_dict()), "again": dict(again.state_dict()), "reported": seen}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ranks")
    start_ranks(work, PROCESSES, place)
    return place


@pytest.fixture
def smooth_adam(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.optim, "AdamW", partial(torch.optim.AdamW, eps=1e-3))
    return  # type: ignore[return-value]


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("smooth_adam")
@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_as_one(name: str, folder: Path, tmp_path: Path) -> None:
    first, second = (torch.load(folder / f"found-{rank}.pt")[name] for rank in range(PROCESSES))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    alone = train(name, tmp_path)
    start = dict(language_model("llama").state_dict())
    assert max(float((alone[key] - start[key]).abs().max()) for key in alone) > 5e-4  # it has learnt something
    torch.testing.assert_close(first, alone, rtol=0, atol=1e-5)
    there, expected = rows(folder / name), rows(tmp_path)
    assert len(there) == len(expected) == 2 + 1
    for row, other in zip(there, expected, strict=True):
        row.pop("seconds", None), other.pop("seconds", None)
        assert row == pytest.approx(other, abs=1e-5, rel=1e-5)


def test_means_of_means_would_be_something_else() -> None:
    """The test above could not fail if halves of a batch had the loss of the whole."""
    model, words, klaad = language_model("llama"), tokenizer(), Klaad()
    whole = klaad(model, collate(words, ROWS[:3]))[0].item()
    halves = [klaad(model, collate(words, part))[0].item() for part in (ROWS[:2], ROWS[2:3])]
    assert abs(whole - (2 * halves[0] + halves[1]) / 3) > 1e-3
    sums = sum(klaad.sums(model, collate(words, part)) for part in (ROWS[:2], ROWS[2:3]))
    assert isinstance(sums, torch.Tensor)
    assert klaad.combined(sums)[0].item() == pytest.approx(whole, abs=1e-5)


def test_a_killed_training_goes_on_with_the_dropout_of_each_process(folder: Path) -> None:
    first, second = (torch.load(folder / f"found-{rank}.pt") for rank in range(PROCESSES))
    for found in (first, second):
        torch.testing.assert_close(found["undisturbed"], found["again"], rtol=0, atol=0)
    torch.testing.assert_close(first["again"], second["again"], rtol=0, atol=0)
    assert (first["reported"], second["reported"]) == ([1], [])  # the main process alone


def test_a_training_of_two_processes_does_not_go_on_in_one(folder: Path) -> None:
    config = KlaadConfig(train=replace(TRAIN, checkpoint_seconds=0))
    with pytest.raises(ConfigError, match="2 process"):
        train_klaad(language_model("gpt2", dropout=0.1), tokenizer(), ROWS, config, folder / "killed")
