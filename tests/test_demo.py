from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path

import pytest
import yaml
from PIL import Image
from rich.console import Console

from levelhead import demo
from levelhead.auditing.audit import audit_file
from levelhead.bench import pictures
from levelhead.bench.comparison import Comparison
from levelhead.bench.grid import comparison_grid, make_cells
from levelhead.runs.folder import CONFIG, load_run
from levelhead.runs.recipe import find_recipe, flatten, read_recipe
from levelhead.types import ConfigError

ROOT = Path(__file__).parents[1]
COMMITTED = json.loads((ROOT / "results" / "portraits_demo.json").read_text(encoding="utf-8"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo's networks and data tiny: two methods, one epoch."""
    recipe = read_recipe(find_recipe(demo.RECIPE))
    recipe["data"] |= {"train_size": 96, "validation_size": 48, "test_size": 200}
    recipe["model"] |= {"hidden_size": 16, "layers": 1, "heads": 2}
    recipe["train"] |= {"epochs": 1}
    file = tmp_path / "tiny_erm.yaml"
    file.write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(demo, "RECIPE", str(file))
    monkeypatch.setattr(demo, "EXAMPLE_ROWS", {"train": 40, "validation": 20, "test": 20})
    monkeypatch.setattr(demo, "METHODS", {name: demo.METHODS[name] for name in ("plain training", "GroupDRO")})


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.long
def test_the_demo_prints_tables_and_writes_what_it_names(tmp_path: Path) -> None:
    out = tmp_path / "my demo"
    console = Console(width=80, record=True)
    demo.run_demo(out, seeds=2, workers=2, console=console)
    text = console.export_text()
    for setting in demo.SETTINGS:
        assert f"{setting.title}\n{setting.truth}" in text
    assert text.count("GroupDRO ORACLE") == 3
    assert max(map(len, text.partition("Wrote")[0].splitlines())) <= 80
    for name in demo.FILES:
        assert (out / name).stat().st_size > 100
    with Image.open(out / "comparison.png") as picture:
        assert picture.width > 1000

    records = json.loads((out / "table.json").read_text())["comparisons"]
    assert [record["title"] for record in records] == [setting.title for setting in demo.SETTINGS]
    drawn = [(record["data"]["correlation"], record["data"]["test_correlation"]) for record in records]
    assert drawn == [(0.0, 0.0), (1.0, 0.0), (1.0, None)]
    assert records[0]["seeds"] == {"plain training": [0, 1], "GroupDRO": [0, 1]}
    assert records[1]["methods"] != records[2]["methods"], "the test pictures are not the same"

    # Settings with the same training pictures share their networks: the copies have nothing of a training.
    for run in (out / "runs" / "shortcut").iterdir():
        copy = out / "runs" / "base-rates" / run.name
        weights = "model/model.safetensors"
        assert (copy / weights).read_bytes() == (run / weights).read_bytes()
        assert (copy / "cost.json").read_bytes() == (run / "cost.json").read_bytes(), "its seconds are those of one run"

    # What it says to type next is right for what it wrote.
    audit, compare = (shlex.split(line) for line in text.splitlines() if line.startswith("  levelhead "))
    options = dict(zip(audit[3::2], audit[4::2], strict=True))
    assert audit_file(Path(audit[2]), options["--label"], options["--prediction"], [options["--group"]]).table()
    options = dict(zip(compare[2::2], compare[3::2], strict=True))
    grid = comparison_grid(None, recipe=options["--recipe"], methods=options["--methods"])
    data = make_cells(grid, Path(options["--out"]))[0].experiment.data
    data.check()
    assert len(data.examples("test").labels) == 20
    assert data.groups("test")[0].names == ("angular", "round")

    # A second call trains nothing, leaves one's own pictures alone, and takes the seeds that are requested.
    (out / demo.EXAMPLE / "labels.csv").write_text("mine")
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("metrics.json")}
    again = Console(width=80, record=True)
    demo.run_demo(out, seeds=2, workers=1, console=again)
    assert kept == {path: path.stat().st_mtime_ns for path in out.rglob("metrics.json")}
    assert (out / demo.EXAMPLE / "labels.csv").read_text() == "mine"
    assert "Training" not in again.export_text()
    assert records == json.loads((out / "table.json").read_text())["comparisons"]


def test_a_copy_of_a_run_appears_whole_and_without_what_belongs_to_the_other_test(tmp_path: Path) -> None:
    (experiment, trained), (other, folder) = (demo._runs(setting, tmp_path, 1)[0] for setting in demo.SETTINGS[1:])
    kept = ["metrics.json", "predictions-validation.parquet", "model/model.safetensors"]
    left = ["evaluation-test.json", "predictions-test.parquet", "checkpoints/stage-1.safetensors", ".lock"]
    for name in [*kept, *left]:
        (trained / name).parent.mkdir(parents=True, exist_ok=True)
        (trained / name).write_text(name)
    (trained / CONFIG).write_text(yaml.safe_dump(experiment.to_dict()))
    half = folder.with_name(f".{folder.name}.tmp")
    half.mkdir(parents=True)
    (half / "of-a-killed-demo").write_text("")
    demo._copy_run(trained, folder, other)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {CONFIG, *kept}
    assert load_run(folder) == other
    assert not half.exists()


def test_the_picture_has_a_hollow_dot_for_the_method_that_sees_groups_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(pictures, "_draw_dot", lambda panel, row, height, *, hollow: drawn.append((height, hollow)))
    records = COMMITTED["comparisons"]
    comparisons = [Comparison.from_dict(record) for record in records]
    titles, truths = ([record[key] for record in records] for key in ("title", "truth"))
    with tempfile.TemporaryDirectory() as folder:
        pictures.draw_comparisons(comparisons, titles, truths, Path(folder) / "drawn.png")
    assert drawn == [(height, height == 3) for _ in records for _ in demo.METRICS for height in range(4)]


def test_the_committed_figures_are_those_of_the_demo() -> None:
    for record, setting in zip(COMMITTED["comparisons"], demo.SETTINGS, strict=True):
        runs = demo._runs(setting, Path("demo"), 3)
        assert (record["title"], record["truth"]) == (setting.title, setting.truth)
        assert record["data"] == {key: value for key, value in runs[0][0].to_dict()["data"].items() if key != "root"}
        for experiment, _ in runs:
            for part in ("method", "model", "train"):
                for key, value in flatten({part: experiment.to_dict()[part]}).items():
                    if (committed := record["settings"][experiment.name].get(key)) is None:
                        # So the figures may be older than the option.
                        assert value == {"method.debias.reduction": "mean"}.get(key), key
                        continue
                    assert committed == value
        assert record["seeds"] == {name: [0, 1, 2] for name in demo.METHODS}


def test_the_pages_show_the_committed_figures() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for record in COMMITTED["comparisons"]:
        for method, row in record["methods"].items():
            cells = [record["title"], method]
            for metric in demo.METRICS:
                cells.append(f"{100 * row[metric]['estimate']['value']:.1f}")
                figure = row[metric]["difference"]
                value, low, high = (100 * figure[key] for key in ("value", "low", "high")) if figure else (0, 0, 0)
                cells.append(f"{value:+.1f} [{low:+.1f}, {high:+.1f}]" if figure else "")
            assert f"| {' | '.join(cells)} |" in page


def test_what_cannot_be_written_is_an_error_before_any_training(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ConfigError, match="runs is a file, not a folder"):
        demo.run_demo(tmp_path, seeds=2, workers=1, console=Console(quiet=True))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_runs_with_other_settings_are_an_error_before_any_training(tmp_path: Path) -> None:
    experiment, folder = demo._runs(demo.SETTINGS[2], tmp_path, 1)[-1]
    folder.mkdir(parents=True)
    recipe = experiment.to_dict()
    recipe["train"]["epochs"] = 3
    (folder / CONFIG).write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=r"train\.epochs: 3 then, 8 now"):
        demo.run_demo(tmp_path, seeds=1, workers=1, console=Console(quiet=True))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
