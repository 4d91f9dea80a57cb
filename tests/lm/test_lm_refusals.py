"""What is refused, and in which words: refusals.txt beside this file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import test_bold
import test_crows_pairs
import torch
from klaad_examples import language_model, tokenizer
from test_model import TEXTS, make, make_masked
from test_prompts import Ruled, things
from test_runner import OWN, Oracle, Parity, ask, kept
from test_stereoset import RECORDS, owners
from typer.testing import CliRunner

from levelhead.cli.lm import lm_app
from levelhead.lm.base import Answer, Benchmark, Item
from levelhead.lm.bold.score import TextClassifier
from levelhead.lm.model import LanguageModel
from levelhead.lm.samples import read_log
from levelhead.lm.stereoset.data import read_stereoset
from levelhead.registry import Registry
from refusals import Row, check, rows

NAMES = ["first", "Age/7"]
LONG = " ".join(TEXTS * 3)


def named(*pairs: tuple[str, str]) -> tuple[TextClassifier, ...]:
    """Classifiers by name and labels, which are never loaded."""
    return tuple(TextClassifier(name, "x", tuple(labels.split(","))) for name, labels in pairs)


def masked() -> Any:
    """A masked model that answers nothing."""
    model = Ruled(lambda prompt, options: 0)
    model.causal = False
    return model


def bench(*arguments: str, model: Any = None, only: Any = None) -> None:
    """Run the verb with ``model`` in place of what --model names, and the toy benchmark ``only``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModel, "load", lambda *_, **__: model or Oracle())
        if only is not None:
            toy = Registry("benchmark", Benchmark, "levelhead.benchmarks", "card", {"parity": type(only)})
            patch.setattr("levelhead.lm.BENCHMARKS", toy, raising=False)
        try:
            CliRunner().invoke(lm_app, ["bench", *arguments], catch_exceptions=False)
        finally:
            assert not Path("run").exists()


def toy(*arguments: str) -> None:
    """Run the verb where the toy benchmark is the only one there is."""
    bench(*arguments, only=Parity())


def broken(kind: str = "causal") -> Any:
    """A model whose weights hold NaN."""
    if kind == "gaps":
        network = language_model()
        weights: Any = next(network.parameters())
    else:
        model = make() if kind == "causal" else make_masked("bert")
        weights = model.network.model.norm.weight[0] if kind == "causal" else model.network.cls.predictions.bias[0]
    with torch.no_grad():
        weights.fill_(math.nan)
    return network if kind == "gaps" else model


def base(folder: str = "base") -> str:
    """Save a small model with its tokenizer."""
    language_model("llama").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def cut(folder: str) -> str:
    """Cut the weights of a saved model."""
    weights = Path(folder, "model.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    return folder


def log(*lines: str, name: str = "samples_sums_2026-01-02T03-04-05.678901.jsonl") -> Any:
    """Read a log of these lines."""
    Path(name).write_text("".join(lines))
    return read_log(Path(name))


def stereoset_file(content: Any, name: str = "dev.json") -> Any:
    """Read a file of StereoSet."""
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_stereoset(Path(name))


def sentences(*gold: str | None) -> dict[str, Any]:
    """The release of StereoSet whose first example has sentences of these labels only."""
    content = owners(RECORDS)
    example = content["data"]["intrasentence"][0]
    first = example["sentences"][0]
    example["sentences"] = None if gold == (None,) else [first | {"gold_label": label} for label in gold]
    return content


def answers_of(given: Sequence[Answer]) -> None:
    """Ask a model that answers ``given``."""

    @dataclass(frozen=True)
    class Other(Parity):
        def ask(self, model: Any, items: Sequence[Item]) -> Iterator[Answer]:
            yield from given

    try:
        ask(Path(), Oracle(), Other())
    finally:
        assert len(kept(Path())) == 1  # the header


def own() -> None:
    """Write a module of benchmarks."""
    sys.modules.pop("mine", None)
    Path("mine.py").write_text(OWN)


def given() -> None:
    """Make small data sets in the folder of that name."""
    data = things(Path("given"))
    test_crows_pairs.write(data)
    test_bold.write(data)
    (data / "text").write_text("A lamp.\n", encoding="utf-8")
    (data / "answers.jsonl").write_text("")


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "mine:" in row.asked:
        monkeypatch.syspath_prepend(str(tmp_path))
    if "given" in row.asked:
        given()
    check(row, globals(), capsys)
