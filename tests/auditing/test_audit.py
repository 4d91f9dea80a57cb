from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run
from levelhead.auditing.audit import audit
from levelhead.storage import read_json


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


def test_the_public_function_gives_estimates() -> None:
    data = frame()
    result = lh.audit(data["y"], data["yhat"], sensitive_features=data["sex"])
    assert result.metrics["accuracy"].value == pytest.approx((data["y"] == data["yhat"]).mean())
    rates = data[data["y"] == 1].groupby("sex")["yhat"].mean()
    assert result.metrics["equal_opportunity"].value == pytest.approx(abs(rates["f"] - rates["m"]))
    assert result.positive == "1"
    assert "Positive class: 1." in result.text(all=True)
    assert result.groups["f"].n == (data["sex"] == "f").sum()
    assert result.groups["f"].rates["true_positive_rate"].value == pytest.approx(rates["f"])


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_the_command_reads_files_and_writes_json_and_html(folder_of_its_own: None, suffix: str) -> None:
    data, file = frame(), f"predictions{suffix}"
    data.to_parquet(file) if suffix == ".parquet" else data.to_csv(
        file, index=False, sep="\t" if suffix == ".tsv" else ","
    )
    assert run("audit", file, *COLUMNS, "--group", "race", "--json", "out.json", "--html", "out.html") == 0
    value = read_json(Path("out.json"))
    assert set(value["metrics"]["accuracy"]) >= {"value", "low", "high", "n"}
    assert {"accuracy", "demographic_parity", "equal_opportunity", "equalized_odds"} <= set(value["metrics"])
    assert {name: set(part["groups"]) for name, part in value["by_attribute"].items()} == {
        "sex": {"f", "m"}, "race": {"x", "y", "z"}
    }  # fmt: skip
    assert value["metrics"] == value["by_attribute"]["sex"]["metrics"]
    page = Path("out.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert f"{100 * value['metrics']['accuracy']['value']:.1f}" in page


def test_text_labels_several_groups_and_crossing() -> None:
    data = frame()
    words = data[["y", "yhat"]].replace({0: "normal", 1: "toxic"})
    options: dict[str, Any] = {"positive": "normal", "intersect": True}
    result = audit(words["y"], words["yhat"], sensitive_features=data[["sex", "race"]], **options)
    assert list(result.by_attribute) == ["sex", "race", ("sex", "race")]
    assert list(result.by_attribute["sex", "race"].groups) == [(sex, race) for sex in "fm" for race in "xyz"]
    assert list(result.to_dict()["by_attribute"]) == ["sex", "race", "sex & race"]
    numbers = audit(1 - data["y"], 1 - data["yhat"], sensitive_features=data["sex"])
    assert result.metrics["equal_opportunity"].value == pytest.approx(numbers.metrics["equal_opportunity"].value)


def test_three_classes_name_the_worst_class_and_the_mean() -> None:
    rng = np.random.default_rng(0)
    label, group = rng.integers(0, 3, 600), rng.integers(0, 2, 600)
    predicted = np.where(rng.random(600) < 0.3, rng.integers(0, 3, 600), label)
    result = audit(label, predicted, sensitive_features=group)
    part = result.by_attribute["group"]
    assert result.positive is None
    assert result.metrics["equalized_odds_mean"].value <= result.metrics["equalized_odds"].value
    assert part.worst_class["equalized_odds"] in {"0", "1", "2"}
    assert "worst class" in result.text(all=True)


def test_hostile_group_names_stay_text() -> None:
    names = np.array(["<script>alert(1)</script>", "[bold]x[/bold]", "\u202eabc", "\N{GRINNING FACE}" * 50])
    data = frame()
    result = audit(data["y"], data["yhat"], sensitive_features=names[np.arange(len(data)) % 4])
    page = result.to_html()
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    assert "[bold]x[/bold]" in result.text(all=True)


# ------------------------------------------------------------------------------------------------ bad input


def test_a_group_with_one_member_is_named_and_left_out() -> None:
    data = frame()
    data.loc[0, "sex"] = "other"
    result = audit(data["y"], data["yhat"], sensitive_features=data["sex"])
    assert any("group “other” has 1 row, fewer than 10, and is left out" in text for text in result.warnings)
    assert not result.groups["other"].included
    without = audit(data["y"][1:], data["yhat"][1:], sensitive_features=data["sex"][1:])
    assert result.metrics["equalized_odds"].value == pytest.approx(without.metrics["equalized_odds"].value)
    kept = audit(data["y"], data["yhat"], sensitive_features=data["sex"], min_count=1)
    assert kept.groups["other"].included


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
