from __future__ import annotations

import html
import importlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from command_line import run
from levelhead.cli.report import PAGES, WITHOUT_KIND, kind_of, page_of
from levelhead.report.page import render
from levelhead.runs.recipe import load_experiment
from levelhead.storage import read_json

ROOT = Path(__file__).parents[2]
WITH_A_PAGE = [file for file in sorted((ROOT / "results").glob("*.json")) if kind_of(read_json(file))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds each, as if they had been trained and evaluated."""
    folder = tmp_path_factory.mktemp("runs")
    chance = np.random.default_rng(0)
    label, style = chance.integers(0, 2, 2000), chance.integers(0, 2, 2000)
    for method in ("erm", "dam"):
        for seed in range(2):
            place = folder / f"{method}-{seed}"
            place.mkdir()
            experiment = load_experiment(f"portraits_{method}", [], seed=seed)
            (place / "config.yaml").write_text(yaml.safe_dump(experiment.to_dict()))
            guess = np.where(chance.random(2000) < 0.8, label, 1 - label)
            names = np.array(["dark", "light"])
            frame = pd.DataFrame({"label": names[label], "prediction": names[guess]})
            frame["probability_dark"], frame["probability_light"] = 1.0 - guess, guess.astype(float)
            frame["style"] = np.array(["angular", "round"])[style]
            frame.to_parquet(place / "predictions-test.parquet")
            files = {
                "evaluation-test": {"run": {"attribute": "style"}},
                "environment": {"device": "cpu", "packages": {}},
                "cost": {"seconds": 2.0 + seed},
            }
            for name, content in files.items():
                (place / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_folder_of_runs_is_a_comparison(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", str(runs), "--html", str(tmp_path / "page.html")) == 0
    html = (tmp_path / "page.html").read_text()
    assert html.startswith("<!doctype html>")
    assert "the gap in equalized odds" in html
    assert "best post-processing of erm (FACT)" in html
    assert "the gap in equalized odds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "options",
    [
        ("audit", "--prediction", "p", "--group", "g"),
        ("indirect-audit", "--prediction", "p", "--shares", "a=0.3"),
        ("indirect-audit", "--prediction", "p", "--proxy", "g"),
        ("audit", "--score", "s", "--threshold", "0.5", "--group", "g"),
        ("explain", "--score", "s", "--group", "g"),
    ],
)
def test_every_audit_is_recognised_by_its_json(tmp_path: Path, options: tuple[str, ...]) -> None:
    table = pd.DataFrame({"y": [0, 1] * 20, "p": [0, 1, 1, 1] * 10, "g": ["a", "b", "b", "a"] * 10})
    table.assign(s=np.linspace(0, 1, 40)).to_csv(tmp_path / "p.csv")
    json_file, html_file, again = (tmp_path / name for name in ("audit.json", "audit.html", "again.html"))
    verb, *rest = options
    told = ("--label", "y", *rest, "--json", str(json_file), "--html", str(html_file))
    assert run(verb, str(tmp_path / "p.csv"), *told) == 0
    assert run("report", str(json_file), "--html", str(again)) == 0
    assert page_of(json_file)["finding"] in html.unescape(again.read_text())
    assert page_of(json_file)["kind"] in html_file.read_text()
    assert "p.csv" in page_of(json_file)["title"]


def test_rules_and_plans_have_pages_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"y": rng.integers(0, 2, 400), "s": rng.random(400), "g": rng.choice(["a", "b"], 400)})
    table.to_csv(tmp_path / "p.csv")
    chosen, plan, written = (tmp_path / name for name in ("rule.json", "plan.json", "page.html"))
    told = ("--score", "s", "--group", "g", "--label", "y", "--json", str(chosen), "--html", str(written))
    assert run("postprocess", str(tmp_path / "p.csv"), *told) == 0
    assert page_of(chosen)["finding"].startswith("On 20")
    assert "USES GROUPS: this rule reads" in written.read_text()
    assert run("plan", "--gap", "5", "--rate", "0.3", "--json", str(plan), "--html", str(written)) == 0
    assert page_of(plan)["finding"].startswith("3,414 rows detect a gap of 5.0 points")
    assert page_of(plan)["finding"] in written.read_text()


@pytest.mark.parametrize("kind", WITHOUT_KIND)
def test_a_result_without_a_kind_is_known_by_its_key(kind: str) -> None:
    key, of = WITHOUT_KIND[kind]
    assert kind_of({key: of()}) == kind_of({"kind": kind}) == kind
    assert kind_of({key: 1}) is kind_of({"kind": "a stranger", key: of()}) is kind_of({"kind": ["audit"]}) is None
    module, _, name = PAGES[kind].partition(":")
    assert callable(getattr(importlib.import_module(f"levelhead.{module}"), name))


@pytest.mark.parametrize("file", WITH_A_PAGE, ids=lambda file: file.stem)
def test_every_measured_result_of_a_kind_has_a_page(file: Path) -> None:
    page = page_of(file)
    assert page["finding"]
    assert "<h1" in render(page)
    if page["kind"] == "Comparison":
        assert len(page["finding"].split()) <= 30  # names of methods have several words
        assert "AT CHANCE" not in page["finding"]
        assert page["chart"]
        assert 4 <= len(page["parts"]) <= 5
