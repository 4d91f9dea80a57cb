"""What methods refuse: options that cannot be right, and rows or networks that they cannot learn from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labs import Small, lab_of, recipe
from torch import Tensor, nn

from levelhead.bench.checks import check_cells
from levelhead.bench.grid import compare_methods, make_cells
from levelhead.data.base import Examples
from levelhead.data.images import ImageInputs
from levelhead.data.texts import Texts
from levelhead.data.views import View
from levelhead.methods import Method
from levelhead.methods.few_label import read_few_groups
from levelhead.methods.fit import fit
from levelhead.methods.last_layer import HeldOut, PeopleRows
from levelhead.types import Batch
from refusals import Row, check, rows
from tiny import make_examples, tiny_vit

PICTURES = ImageInputs(torch.zeros(4, 3, 8, 8, dtype=torch.uint8))
TEXT = Texts(["a text"])


class Convolution(nn.Module):
    """A network without a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 16)


def examples(rows: int, classes: int = 2, of_the_last: int | None = None) -> Examples:
    """Pictures of so many classes; ``of_the_last`` leaves so many of class 1, and the others of class 0."""
    made = make_examples(rows)
    made.labels[:] = torch.arange(rows) % classes if of_the_last is None else torch.arange(rows) < of_the_last
    return made


def untrained(
    method: Method,
    train: Examples,
    *,
    groups: Tensor | None = None,
    people: Tensor | None = None,
    network: Any = tiny_vit,
    **more: Any,
) -> None:
    """Fit a method that must refuse before its first step."""
    lab = lab_of(train, network=network, told={"groups": groups, "people": people}, **{"epochs": 1, **more})
    try:
        fit(method, lab)
    finally:
        assert lab.steps == 0


def refit(method: Any, groups: Any = None, people: Any = None, rows: int = 200) -> None:
    """Refit a last layer of 20 inputs on noise."""
    draws = np.random.default_rng(0)
    features, labels = draws.normal(size=(rows, 20)), np.arange(rows) % 2
    train = None if people is None else PeopleRows(features, labels, people)
    method.refit(HeldOut(features, labels, draws.normal(size=(2, 20)), np.zeros(2), groups, train=train))


def variants_of_views() -> None:
    base = recipe("poe", {"view": {"kind": "whole"}}).to_dict()
    check_cells(make_cells(compare_methods(base, ["erm", "poe"], [0], {"method.view.kind": ["hypothesis"]}), Path("x")))


def few_groups(content: str) -> None:
    Path("groups.csv").write_text(content)
    read_few_groups(Path("groups.csv"), 10)


def words(content: bytes, *texts: str) -> None:
    Path("words.txt").write_bytes(content)
    View("words", Path("words.txt"))(Texts(texts or ["a text"]))


def several_vectors(objective: Callable[[nn.Module, nn.Linear], nn.Module], **inputs: Tensor) -> None:
    """Give a last layer three vectors a row."""
    model, rows = Small(2), torch.arange(2)
    objective(model, model.head)(Batch({"x": torch.zeros(2, 3, 2)}, rows, rows, torch.ones(2)))


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, folder_of_its_own: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
