"""What README and docs claim is what the committed results say; a figure that changes must change on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[1]
RESULTS, CLAIMS = ((ROOT / "results" / f"{name}.md").read_text(encoding="utf-8") for name in ("results", "claims"))
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in CLAIMS.splitlines() if line.startswith('| "')]
VERDICTS = {"undecided": "inconclusive", "within": "equal within 2 points"}


def result(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))
    return record


def test_the_tables_of_the_results_are_those_of_the_files() -> None:
    written = load_script(ROOT / "tools" / "results_page.py").written(RESULTS)
    assert written == RESULTS, "run python tools/results_page.py"


def estimate(file: str, path: str) -> tuple[dict[str, float], str | None]:
    """Return the estimate at a path such as `DAM > equalized_odds > difference` in a committed file, and a verdict."""
    if path.endswith(" > adjusted"):
        page = load_script(ROOT / "tools" / "results_page.py")
        return page.adjusted(file.removesuffix(".json"), path.removesuffix(" > adjusted")), None
    value: Any = result(file)
    if path.split(" > ")[0] not in value and (own := value.get("comparisons")) is not None:
        value = (own[0] if isinstance(own, list) else own["own"])["methods"]
    verdict = None
    for step in path.split(" > "):
        if isinstance(value, list):
            (value,) = (each for each in value if each["name"] == step and each.get("within_budget", True))
        else:
            verdict = value.get("verdict")
            value = value[step]
    return value, verdict


def shown(estimate: dict[str, float]) -> set[str]:
    """Return an estimate in points as pages write it: with a sign, without, and turned round ("smaller by")."""
    value, low, high = (100 * estimate[end] for end in ("value", "low", "high"))
    ends = sorted((abs(low), abs(high)))
    turned = "larger" if value > 0 else "smaller"
    return {
        f"{value:+.1f} [{low:+.1f}, {high:+.1f}]",
        f"{value:.1f} [{low:.1f}, {high:.1f}]",
        f"{turned} by {abs(value):.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]",
    }


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_sentence_is_on_its_pages_with_the_figure_and_verdict_of_its_file(row: list[str]) -> None:
    quoted, pages, file, path, scope = row
    text = quoted.strip('"')
    for page in pages.split(", "):
        target = re.fullmatch(r"\[.+\]\((.+)\)", page)
        assert target, f"{page} is no link"
        content = (ROOT / "results" / target[1]).read_text(encoding="utf-8")
        assert text in " ".join(content.split()).replace("**", ""), f"{page} does not say {text}"
    name = re.fullmatch(r"\[(.+)\]\(\1\)", file)
    assert name, f"{file} is no link to a committed result"
    figure, verdict = estimate(name[1], path.strip("`"))
    assert any(each in text for each in shown(figure)), shown(figure)
    if verdict and "], " in text:
        assert f"], {VERDICTS.get(verdict, verdict)}" in text
    assert scope


def test_refitted_layers_are_claimed_by_the_rule_that_refit_has() -> None:
    refits = [row for row in ROWS if row[3].startswith(("`few-label", "`identities"))]
    assert len(refits) > 5
    assert all("(rungs_" in row[2] for row in refits), "decide_*.json has another stopping rule"


def test_every_figure_of_the_front_page_is_a_claim() -> None:
    claimed = " ".join(row[0] for row in ROWS)
    for name, end in (("README.md", "## Do not use"), ("results/results.md", "## Protocol")):
        page = (ROOT / name).read_text(encoding="utf-8")
        evidence = page[page.index("## Evidence") : page.index(end)]
        figures = set(re.findall(r"[+-]?\d+\.\d [a-z]*\s*\[[+-]?\d+\.\d, [+-]?\d+\.\d\]", evidence))
        assert figures, name
        assert not {each for each in figures if " ".join(each.split()) not in claimed}, name


def test_no_page_or_test_looks_for_data_outside_the_project() -> None:
    """Data sets are found in $LEVELHEAD_DATA or ./data; a test run may have the variable set for it."""
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "results").rglob("*.md"),
        *(ROOT / "src").rglob("*.py"),
    ]
    pages += [file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__)]
    outside = re.compile(r"\.\./shared|[\"']shared[\"'] / [\"'](data|models)")
    assert not [str(page.relative_to(ROOT)) for page in pages if outside.search(page.read_text(encoding="utf-8"))]
