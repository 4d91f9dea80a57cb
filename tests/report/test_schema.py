"""The JSON Schema of audits holds for what audits write, and its page is of today."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner

import levelhead as lh
from levelhead.cli.app import app
from scripts import load_script

SCHEMA = json.loads(files("levelhead.report").joinpath("audit.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DRAW = np.random.default_rng(0)
ROWS = 240
LABEL, SEX = DRAW.integers(0, 2, ROWS), DRAW.choice(["women", "men"], ROWS)
SCORE, SITE = DRAW.random(ROWS), DRAW.choice(["a", "b", "c"], ROWS)
PREDICTION = (SCORE > 0.5).astype(int)
FEW = {"replicates": 100}
AUDITS = {
    "classes": lambda: lh.audit(
        LABEL, PREDICTION, sensitive_features={"sex": SEX, "site": SITE}, intersect=True, **FEW
    ),
    "scores": lambda: lh.audit(LABEL, sensitive_features={"sex": SEX}, scores=SCORE, costs=None, **FEW),
    "three classes": lambda: lh.audit(LABEL + (SCORE > 0.8), PREDICTION, sensitive_features={"sex": SEX}, **FEW),
    "weights": lambda: lh.audit(LABEL, PREDICTION, sensitive_features={"sex": SEX}, sample_weight=SCORE + 1, **FEW),
    "people": lambda: lh.audit(
        LABEL,
        PREDICTION,
        sensitive_features={"sex": SEX},
        cluster=np.arange(ROWS) // 3,
        **FEW,
    ),
    "one group": lambda: lh.audit(LABEL, PREDICTION, sensitive_features={"sex": ["women"] * ROWS}, **FEW),
    "few rows": lambda: lh.audit([1, 0], [1, 1], sensitive_features={"sex": ["a", "b"]}, **FEW),
    "decisions": lambda: lh.audit_decisions(PREDICTION, sensitive_features={"sex": SEX}, favourable=1, **FEW),
    "favourable": lambda: lh.audit(LABEL, PREDICTION, sensitive_features={"sex": SEX}, favourable=0, **FEW),
}


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", AUDITS)
def test_what_an_audit_writes_fits(name: str) -> None:
    VALIDATOR.validate(json.loads(json.dumps(AUDITS[name]().to_dict())))


def test_a_file_of_the_command_fits_and_a_changed_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    assert CliRunner().invoke(app, ["audit", "--example", "--json", str(path)]).exit_code == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    VALIDATOR.validate(found)
    assert found["made"]["schema"] == 1
    broken = (
        {"level": "95%"},
        {"kind": "something"},
        {"pairs": [{"attribute": 1}]},
        {"made": {**found["made"], "schema": 2}},
        {"by_attribute": {"sex": {"columns": ["sex"], "metrics": {"accuracy": {"value": 1}}, "groups": {}}}},
    )
    assert not any(VALIDATOR.is_valid(found | change) for change in broken)


def test_the_page_is_of_this_schema() -> None:
    tool = load_script(Path(__file__).parents[2] / "tools" / "schema_page.py")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(SCHEMA), "run python tools/schema_page.py"
