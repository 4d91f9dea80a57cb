"""Wording: no banned phrase in strings of src, README and docs; line and sentence length; every page in the nav.

That every command in the docs exists is tested in ``test_docs.py``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "levelhead"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
RESULTS = sorted((ROOT / "results").rglob("*.md"))

BANNED = (
    r"that which",
    r"so many",
    r"by (it|them)sel(f|ves)",
    r"goes? on",
    r"asked for",
    r"of ours",
    r"as good as none",
    r"with what (is|it|they|was)",
    r"whoever",
    r"none such",
    r"it is said|nothing is said|nobody says",
    r"in place of",
    r"stands? for",
    r"rests? on",
    r"rows enough",
    r"(is|are) worth",
    r"allows? for \S+ comparisons",
    r"dealt out",
    r"tells? (\S+ ){0,6}apart",
    r"however (large|small|many)",
    r"not seen below",
    r"nobody[’']s (business|group)",
    r"above why",
    r"under an earlier and",
    r"have one name",
    r"(is|are|was|were|be) told",
    r"in the direction that",
    r"anew",
)
"""Phrases that no text for a reader has; each stands for a construction with a better word in the field."""

UNCHECKED = {
    "docs/adr/": "records of decisions keep the words of their day",
    "results/README.md": "its commands have long lines",
    "results/ladder": "written by benchmarks/ladder.py, a line each",
    "results/lm_": "written by benchmarks/klaad_ablation.py",
    "results/paper/": "written by tools/paper_pages.py, with one line for each source",
    "docs/explain.md": "shows a terminal's output, which has no sentences",
    "docs/theory.md": "equations",
    "docs/methods/dam.md": "an equation has one line",
    "docs/methods/learned_mixin.md": "an equation has one line",
}
"""Pages that are not checked, by the beginning of their path, and why."""


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string constant and f-string in a module, docstrings included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            texts = [str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values]
            yield node.lineno, " ".join("".join(texts).split())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, " ".join(node.value.split())


def banned(text: str) -> list[str]:
    return [found[0] for phrase in BANNED for found in re.finditer(rf"\b(?:{phrase})(?!\w)", text, re.IGNORECASE)]


def prose(text: str) -> str:
    """Return a page's sentences and tables: no code, no front matter."""
    return re.sub(r"```.*?```|`[^`\n]*`|\A---\n.*?\n---\n|<[^>]*>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("room", sorted({path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")}))
def test_strings_of_the_package_have_no_banned_phrase(room: str) -> None:
    paths = [SOURCE / room] if room.endswith(".py") else sorted((SOURCE / room).rglob("*.py"))
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {phrase!r} in {text[:100]!r}"
        for path in paths
        for line, text in strings(path)
        for phrase in banned(text)
    ]
    assert not found, "\n".join(found)


def checked(pages: list[Path]) -> list[Path]:
    names = {page: page.relative_to(ROOT).as_posix() for page in pages}
    return [page for page in pages if not names[page].startswith(tuple(UNCHECKED))]


def longest_sentence(text: str) -> str:
    """Return the sentence with the most words; a list item, a table's cell and a heading end one, too."""
    text = re.sub(r"\]\([^)]*\)", "]", prose(text.replace("<br>", "|")))
    sentences = re.split(r"(?<=[.!?:])\s|\n\s*\n|\n\s*[-*#]|\n\s*\d\.|\|", text)
    return max(sentences, key=lambda one: len(re.findall(r"\w+", one)))


@pytest.mark.parametrize("page", checked([ROOT / "README.md", *DOCS, *RESULTS]), ids=lambda page: page.name)
def test_pages_have_no_banned_phrase_no_long_line_and_no_sentence_of_more_than_40_words(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not banned(" ".join(prose(text).split()))
    lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
    assert not [line for line in lines if len(line) > 170 and not line.startswith(("|", "!["))]
    longest = longest_sentence(text)
    assert len(re.findall(r"\w+", longest)) <= 40, longest


def pages_of(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    entries = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []
    return set().union(*map(pages_of, entries))


def test_every_page_is_in_the_nav_or_linked_from_a_page_that_is() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = pages_of(yaml.safe_load(text[text.index("\nnav:") :].partition("\nnot_in_nav:")[0])["nav"])
    assert len(nav) <= 45
    listed = {ROOT / "docs" / page for page in nav} | {
        ROOT / "results" / "README.md",
        ROOT / "results" / "paper" / "README.md",
    }
    linked = {
        (page.parent / link).resolve()
        for page in listed
        if page.exists()
        for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text(encoding="utf-8"))
    }
    missing = {str(page.relative_to(ROOT)) for page in {*DOCS, *RESULTS} - listed - linked}
    assert not missing, f"linked from no page of mkdocs.yml's nav: {sorted(missing)}"
