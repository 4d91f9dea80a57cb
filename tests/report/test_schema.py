"""The JSON Schema of audits: that of a file; tests/golden holds it beside every kind of audit."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
from typer.testing import CliRunner

from levelhead.cli.app import app

SCHEMA = json.loads(files("levelhead.report").joinpath("audit.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


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
