"""Every public name has an example in its docstring, and the example does what it says."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest
import torch

import levelhead as lh

NAMES = [name for name in lh.__all__ if not name.startswith("__") and not inspect.ismodule(getattr(lh, name))]


def test_nothing_public_is_left_out() -> None:
    left = set(lh.__all__) - set(NAMES)
    assert left == {"__version__", "lm"}


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    thing = getattr(lh, name)
    found = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", {}, f"levelhead.{name}", None, 0)
    assert found.examples, f"the docstring of levelhead.{name} has no example"
    assert "import levelhead as lh\n" in [example.source for example in found.examples], "it brings its own imports"
    said: list[str] = []
    failures, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=said.append)  # "..." is any text
    assert not failures, "".join(said)
