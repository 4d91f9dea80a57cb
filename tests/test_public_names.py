"""The names that ``import levelhead as lh`` gives."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import levelhead as lh


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(lh.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(lh.__all__) - {"__version__", "lm"}


def test_completion_offers_the_public_names_alone() -> None:
    assert dir(lh) == sorted(lh.__all__)
    # Jupyter also offers what the module holds.
    held = {
        name for name, value in vars(lh).items() if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert held <= set(lh.__all__)
    assert not {"importlib", "typing", "warnings"} & set(vars(lh))
