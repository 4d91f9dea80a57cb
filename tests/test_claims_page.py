"""docs/claims.md: each sentence stands where the page says, and says the figure of the committed file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith('| "')]


def figure(file: str, path: str) -> dict[str, float]:
    """Return the estimate at a path such as `DAM > equalized_odds > difference` in a committed file."""
    value: Any = json.loads((ROOT / "results" / file).read_text(encoding="utf-8"))
    if path.split(" > ")[0] not in value and (own := value.get("comparisons")) is not None:
        value = (own[0] if isinstance(own, list) else own["own"])["methods"]
    for step in path.split(" > "):
        if isinstance(value, list):
            (value,) = (each for each in value if each["name"] == step and each.get("within_budget", True))
        else:
            value = value[step]
    found: dict[str, float] = value
    return found


def shown(estimate: dict[str, float]) -> set[str]:
    """Return an estimate in points as pages write it: with a sign, without, and turned round ("smaller by")."""
    value, low, high = (100 * estimate[end] for end in ("value", "low", "high"))
    ends = sorted((abs(low), abs(high)))
    return {
        f"{value:+.1f} [{low:+.1f}, {high:+.1f}]",
        f"{value:.1f} [{low:.1f}, {high:.1f}]",
        f"{abs(value):.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]",
    }


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_sentence_is_on_its_pages_with_the_figure_of_its_file(row: list[str]) -> None:
    quoted, pages, file, path, scope = row
    text = quoted.strip('"')
    for page in pages.split(", "):
        target = re.fullmatch(r"\[.+\]\((.+)\)", page)
        assert target, f"{page} is no link"
        content = (ROOT / "docs" / target[1]).read_text(encoding="utf-8")
        assert text in " ".join(content.split()).replace("**", ""), f"{page} does not say {text}"
    name = re.fullmatch(r"\[(.+)\]\(\.\./results/\1\)", file)
    assert name, f"{file} is no link to a committed result"
    forms = shown(figure(name[1], path.strip("`")))
    assert any(each in text for each in forms), forms
    assert scope


def test_every_figure_of_the_front_page_is_a_claim() -> None:
    claimed = " ".join(row[0] for row in ROWS)
    for name, end in (("README.md", "## Do not use"), ("docs/results.md", "## Protocol")):
        page = (ROOT / name).read_text(encoding="utf-8")
        evidence = page[page.index("## Evidence") : page.index(end)]
        figures = set(re.findall(r"[+-]?\d+\.\d [a-z]*\s*\[[+-]?\d+\.\d, [+-]?\d+\.\d\]", evidence))
        assert figures, name
        assert not {each for each in figures if " ".join(each.split()) not in claimed}, name
