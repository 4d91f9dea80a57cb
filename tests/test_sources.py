"""Docstrings that name a paper name it so that it can be found: by arXiv id, DOI, or its page on OpenReview."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import levelhead
from levelhead.methods import METHODS

ROOT = Path(levelhead.__file__).parent
FOUND_BY = re.compile(r"arXiv:\d{4}\.\d{4,5}|DOI\s+10\.\d{4,}/\S+|openreview\.net/forum\?id=\w+")
FILES = [file for part in ("attention", "objectives", "methods") for file in sorted((ROOT / part).glob("*.py"))]


def sources(file: Path) -> list[str]:
    """Paragraphs that begin with "Source:", in the docstrings of public classes and functions."""
    tree = ast.parse(file.read_text("utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    docstrings = [ast.get_docstring(node) or "" for node in nodes if not node.name.startswith("_")]
    return [part for text in docstrings for part in re.findall(r"Source: .*?(?:\n\n|\Z)", text, flags=re.DOTALL)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_source_can_be_found(file: Path) -> None:
    for source in sources(file):
        assert FOUND_BY.search(source), source


def test_there_are_sources() -> None:
    assert sum(len(sources(file)) for file in FILES) > 30


@pytest.mark.parametrize("name", [name for name in METHODS if name != "erm"])
def test_every_method_names_its_paper(name: str) -> None:
    source = re.search(r"Source: .*", inspect.getdoc(METHODS[name]) or "", flags=re.DOTALL)
    assert source, name
    assert FOUND_BY.search(source[0]), source[0]
