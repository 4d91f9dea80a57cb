"""The page on audits without the attribute says what was simulated, and the simulation held."""

from __future__ import annotations

from pathlib import Path

from levelhead.storage import read_json

ROOT = Path(__file__).parents[3]
TITLES = {
    "labelled subset": "labelled rows and a proxy",
    "three proxies": "three proxies",
    "randomised responses": "randomised responses",
    "bounds": "bounds",
}


def test_every_figure_holds_where_the_assumption_does_and_few_audits_are_refused() -> None:
    figures = read_json(ROOT / "results" / "coverage.json")["missing_attributes"]
    assert {one["trials"] for one in figures} >= {1000}
    assert min(one["trials"] for one in figures) >= 1000
    held = [one for one in figures if one["assumption_holds"] and one["refused"] <= 0.5 and one["coverage"] is not None]
    page = (ROOT / "results" / "missing-attributes.md").read_text()
    assert f"({len(held)} of {len(figures)} figures)" in page
    for method, title in TITLES.items():
        shares = [one["coverage"] for one in held if one["method"] == method]
        assert min(shares) >= 0.94
        table = page.split("## How often the intervals hold the truth")[1]
        line = next(line for line in table.splitlines() if line.startswith(f"| {title}"))
        assert line.endswith(f"| {len(shares)} | {100 * min(shares):.1f} to {100 * max(shares):.1f} |")
