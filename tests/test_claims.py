"""What README and docs claim is what the committed results say; a figure that changes must change on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def benchmark(name: str) -> dict[str, float]:
    rows = json.loads((ROOT / "benchmarks" / "latest.json").read_text(encoding="utf-8"))["rows"]
    return next(row for row in rows if row["name"] == f"step, ViT 8x768, 256x17: {name} (CPU)")


def shown(row: dict[str, float], digits: int) -> str:
    return f"{row['ratio']:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def test_the_saving_of_a_training_step_is_told_for_plain_and_debiased_models_alike() -> None:
    plain, debiased = benchmark("ERM, one row / ERM"), benchmark("DAM, one row / ERM")
    fair = benchmark("DAM, one row / ERM, one row")
    for row in (plain, debiased, fair):
        assert shown(row, 2) in README
    for row in (plain, debiased):
        assert f"{row['ratio']:.3f}" in PERFORMANCE
    assert fair["low"] < 1 < fair["high"], "debiasing adds or saves time now: say so"
    sentence = re.search(r"[^.]*saves 9 to 10% of a training step[^.]*", README)
    assert sentence is not None
    assert "plain and debiased models alike" in sentence[0]
    assert 0.895 < plain["ratio"] < 0.915
    assert 0.895 < debiased["ratio"] < 0.915


@pytest.mark.parametrize(
    ("task", "place"),
    [
        ("utkface64", "UTKFace, white / not white"),
        ("celeba64_attractive", "CelebA Attractive"),
        ("celeba64_blond", "CelebA Blond_Hair"),
    ],
)
def test_the_front_page_gives_one_figure_for_each_task_from_one_protocol(task: str, place: str) -> None:
    found = json.loads((ROOT / "results" / f"finding_{task}.json").read_text(encoding="utf-8"))["comparisons"]["own"]
    figure = found["methods"]["DAM"]["equalized_odds"]["difference"]
    value, low, high = (100 * figure[key] for key in ("value", "low", "high"))
    line = next(line for line in README.splitlines() if place in line)
    assert f"{value:+.1f} [{low:+.1f}, {high:+.1f}]" in line
    assert ("undecided" in line) == (low <= 0 <= high)
    seeds = len(found["seeds"]["DAM"])
    assert f"{seeds} seeds on UTKFace" in README if task == "utkface64" else f", {seeds} on CelebA" in README
    epochs = found["settings"]["DAM"]["train.epochs"]
    assert f"{epochs} epochs on UTKFace" in README if task == "utkface64" else f"{epochs} on CelebA)" in README
    faces = README[README.index("## Measured so far") : README.index("**Other methods**")]
    assert len([line for line in faces.splitlines() if place in line]) == 1


def test_the_first_page_reads_the_picture_as_the_results_are() -> None:
    """What the first page says of each setting of the demonstration holds in the committed figures."""
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    records = json.loads((ROOT / "results" / "portraits_demo.json").read_text(encoding="utf-8"))["comparisons"]
    none, shortcut, rates = (record["methods"] for record in records)
    for record in records:
        assert f"**{record['title']}.**" in page

    def sign(row: dict[str, dict[str, dict[str, float]]], metric: str) -> int:
        """Return the sign of a difference to plain training, 0 if its interval holds 0."""
        figure = row[metric]["difference"]
        return (figure["low"] > 0) - (figure["high"] < 0)

    assert max(sign(none[name], "accuracy") for name in list(none)[1:]) <= 0, "no method has anything to gain"
    for name in ("JTT (reweighting)", "GroupDRO"):
        assert sign(shortcut[name], "equalized_odds") == sign(rates[name], "equalized_odds") == -1
        assert (sign(shortcut[name], "accuracy"), sign(rates[name], "accuracy")) == (1, -1), "now it costs accuracy"
    for methods in (none, shortcut, rates):
        assert {sign(methods["debiased attention"], metric) for metric in ("accuracy", "equalized_odds")} == {0}


def test_no_page_or_test_looks_for_data_outside_the_project() -> None:
    """Data sets are found in $LEVELHEAD_DATA or ./data; a test run may have the variable set for it."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    pages += [file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__)]
    outside = re.compile(r"\.\./shared|[\"']shared[\"'] / [\"'](data|models)")
    assert not [str(page.relative_to(ROOT)) for page in pages if outside.search(page.read_text(encoding="utf-8"))]
