"""Every public name has an example in its docstring, and all examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
import torch

import levelhead as lh

SOURCE = Path(lh.__file__).parents[1]
FILES = [file for file in sorted(SOURCE.rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")]
MODULES = [".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for file in FILES]
NAMES = [name for name in lh.__all__ if not name.startswith("__") and not inspect.ismodule(getattr(lh, name))]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may write a file
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)  # "..." is any text
    assert result.attempted > 0
    assert result.failed == 0


def test_no_public_name_is_left_out() -> None:
    assert set(lh.__all__) - set(NAMES) == {"__version__", "lm"}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    thing = getattr(lh, name)
    assert thing.__module__ in MODULES  # the test above runs it
    sources = [example.source for example in doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")]
    assert sources, f"the docstring of levelhead.{name} has no example"
    assert "import levelhead as lh\n" in sources, "an example brings its own imports"
    # Nobody calls these.
    returned = ("AuditResult", "Explanation", "IndirectAudit", "Inspection", "ModelComparison", "RegressionAudit")
    assert any(f"lh.{name}" in source or f"lh.{thing.__name__}" in source for source in sources) or name in returned
