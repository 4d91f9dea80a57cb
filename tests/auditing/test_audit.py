from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from command_line import run
from levelhead.auditing.door import audit


def frame(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    return pd.DataFrame(
        {
            "y": label,
            "yhat": np.where(rng.random(rows) < 0.2, 1 - label, label),
            "sex": rng.choice(["f", "m"], rows),
            "race": rng.choice(["x", "y", "z"], rows),
        }
    )


COLUMNS = ("--label", "y", "--prediction", "yhat", "--group", "sex")


# ------------------------------------------------------------------------------------------------ bad input


def test_a_group_without_positives_is_undefined_in_json_not_zero() -> None:
    data = frame()
    result = audit(data["y"].where(data["sex"] == "f", 0), data["yhat"], sensitive_features=data["sex"])
    assert math.isnan(result.metrics["equal_opportunity"].value)
    assert any("equal_opportunity is undefined: no rows with label “1”" in text for text in result.warnings)
    value = json.loads(json.dumps(result.to_dict(), allow_nan=False))["metrics"]
    assert value["equal_opportunity"]["value"] is None
    assert "m: 0" in value["equal_opportunity"]["reason"]
    assert value["demographic_parity"]["value"] is not None
    one = audit(np.ones(len(data), int), data["yhat"], sensitive_features=data["sex"])
    assert any("Every label is '1'" in text for text in one.warnings)
    assert one.metrics["accuracy"].defined
    assert not one.metrics["equalized_odds"].defined


def test_a_failed_audit_leaves_the_old_result(folder_of_its_own: None) -> None:
    Path("out.json").write_text("old")
    Path("p.csv").write_text("y,yhat,sex\n0,,f\n")
    assert run("audit", "p.csv", *COLUMNS, "--json", "out.json") == 2
    assert Path("out.json").read_text() == "old"
