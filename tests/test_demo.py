from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from PIL import Image
from rich.console import Console

from levelhead import demo
from levelhead.runs.recipe import find_recipe, read_recipe


@pytest.mark.slow
def test_the_demo_prints_tables_and_saves_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = []
    for name in demo.RECIPES:
        recipe = read_recipe(find_recipe(name))
        recipe["data"] |= {"train_size": 128, "validation_size": 64, "test_size": 400}
        recipe["model"] |= {"hidden_size": 16, "layers": 2, "heads": 2}
        recipe["train"] |= {"epochs": 1}
        recipes.append(str(tmp_path / f"{name}.yaml"))
        Path(recipes[-1]).write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(demo, "RECIPES", tuple(recipes))
    monkeypatch.setattr(demo, "CORRELATIONS", (0.0, 0.5))
    console = Console(width=120, record=True)
    demo.run_demo(tmp_path / "demo", seeds=2, workers=2, console=console)
    text = console.export_text()
    assert "correlation 0.5" in text
    assert "EOd gap of dam AT CHANCE against erm: measured" in text
    for name in ("portraits.png", "comparison.png"):
        with Image.open(tmp_path / "demo" / name) as picture:
            assert picture.width > 300
    table = json.loads((tmp_path / "demo" / "table.json").read_text())
    assert [comparison["data"]["correlation"] for comparison in table["comparisons"]] == [0.0, 0.5]
    assert table["comparisons"][0]["seeds"] == {"erm": [0, 1], "dam": [0, 1]}

    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "demo").rglob("metrics.json")}
    demo.run_demo(tmp_path / "demo", seeds=2, workers=1, console=Console(quiet=True))
    assert finished == {path: path.stat().st_mtime_ns for path in finished}
