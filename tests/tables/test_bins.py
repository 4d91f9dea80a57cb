"""Columns of numbers are cut into ranges, which are then the groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import written
from levelhead.auditing.door import audit, audit_table
from levelhead.auditing.explain import explain
from levelhead.auditing.result import AuditResult
from levelhead.tables.bins import Cuts

AGES = np.arange(18, 78).repeat(10)


def audited(ages: object, bins: object, folder: Path | None = None) -> AuditResult:
    label = np.arange(len(AGES)) % 2
    if folder is None:
        return lh.audit(label, label, sensitive_features={"age": ages}, bins=bins, replicates=100)
    path = written(pd.DataFrame({"y": label, "yhat": label, "age": ages}), folder / "p.csv")
    return of_file(path, "age", bins=bins)


def of_file(path: Path, group: str, **options: Any) -> AuditResult:
    return audit_table(path, label="y", prediction="yhat", groups=[group], replicates=100, **options)


def sizes(result: AuditResult) -> dict[object, int]:
    return {group: figures.n for group, figures in result.groups.items()}


def test_cut_points_belong_to_the_range_above_and_ranges_are_in_order(tmp_path: Path) -> None:
    expected = {"under 25": 70, "25 to under 40": 150, "40 to under 60": 200, "60 and over": 180}
    for bins in ({"age": [25, 40, 60]}, {"age": "25,40,60"}, ["age=25,40,60"], "age=25,40,60"):
        found = audited(AGES, bins)
        assert sizes(found) == expected
        assert list(found.groups) == list(expected)
        assert sizes(audited(AGES, bins, tmp_path)) == expected
    assert list(sizes(audited(AGES, {"age": [0.5, 60]}))) == ["0.5 to under 60", "60 and over"]


def test_quantiles_make_groups_of_about_equal_size(tmp_path: Path) -> None:
    expected = {"under 33": 150, "33 to under 48": 150, "48 to under 63": 150, "63 and over": 150}
    assert sizes(audited(AGES, "age=quantiles:4")) == expected
    assert sizes(audited(AGES, "age=quantiles:4", tmp_path)) == expected
    skewed = np.where(np.arange(len(AGES)) < 400, 18, AGES)
    found = sizes(audited(skewed, "age=quantiles:4"))
    assert sum(found.values()) == len(AGES)
    assert 1 < len(found) <= 4


def test_a_missing_number_is_a_missing_group() -> None:
    ages = AGES.astype(float)
    ages[:30] = np.nan
    found = audited(ages, "age=40")
    assert sizes(found) == {"under 40": 190, "40 and over": 380, "(missing)": 30}
    assert found.warnings[0].startswith("age: 30 of 600 rows (5.0%) have no group and are left out of the gaps")
    assert sizes(audited(np.where(ages > 70, np.inf, ages), "age=40,75"))["75 and over"] == 70


def test_codes_of_groups_stay_what_they_are() -> None:
    assert len(audited(AGES, "age=values").groups) == 60
    codes = np.where(np.arange(len(AGES)) % 2, "1", "01")
    assert any("differ only in how a number" in warning for warning in audited(codes, "age=values").warnings)


def test_ranges_of_milliseconds_and_long_ids_stay_apart(tmp_path: Path) -> None:
    """Names of ten digits made one range of several: 3 groups for 4, and another gap."""
    start = 1_700_000_000_000
    for low in (start, 2**53, 10**17, 2**62, 10**30):
        values = [low + row % 4 for row in range(200)]
        cuts = [low + 1, low + 2, low + 3]
        table = pd.DataFrame({"y": np.arange(200) % 2, "yhat": np.arange(200) % 4 > 1, "when": list(map(str, values))})
        table = table.astype({"yhat": int})
        path = written(table, tmp_path / "p.csv")
        found = [
            audit(table["y"], table["yhat"], sensitive_features={"when": values}, bins={"when": cuts}),
            of_file(path, "when", bins=[f"when={','.join(map(str, cuts))}"]),
            of_file(path, "when", bins=["when=quantiles:4"]),
        ]
        if low < 2**63:
            whole = written(table.assign(when=values), tmp_path / "p.parquet")
            found.append(of_file(whole, "when", bins={"when": cuts}))
        for result in found:
            assert sizes(result) == {
                f"under {low + 1}": 50,
                f"{low + 1} to under {low + 2}": 50,
                f"{low + 2} to under {low + 3}": 50,
                f"{low + 3} and over": 50,
            }


def test_points_that_differ_late_have_names_of_their_own() -> None:
    for points in ([0.12345678901, 0.12345678902], [1e-300, 1.00000000001e-300], [1.0, 1.0 + 2**-52]):
        for bins in (Cuts("x", points), Cuts("x", ",".join(map(repr, points)))):
            assert len(set(bins.names)) == 3
        values = [points[0] / 2, *points, points[1] * 2]
        quantiles = Cuts("x", "quantiles:4")
        quantiles.find([((np.arange(4), list(values)), None)], "x")
        assert len(set(quantiles.names)) == 4


def test_a_zero_with_a_sign_is_zero() -> None:
    assert Cuts("x", "-0.0,1").names == Cuts("x", [0, 1]).names == ["under 0", "0 to under 1", "1 and over"]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_numbers_of_fewer_bits_are_compared_as_they_are_written(tmp_path: Path, kind: str) -> None:
    values = np.array([0.1, 0.3, 0.7, 0.9] * 50, kind)
    label = np.array([0, 1] * 100)
    table = pd.DataFrame({"y": label, "p": values, "g": ["a", "b"] * 100, "yhat": label})
    path = written(table, tmp_path / "p.parquet")
    for result in (
        audit_table(path, label="y", groups=["g"], score="p", threshold=0.7),
        audit(label, scores=values, threshold=0.7, sensitive_features=table["g"]),
    ):
        assert sum(group.rates["selection_rate"].value * group.n for group in result.groups.values()) == 100
    assert explain(path, label="y", score="p", groups=["g"], threshold=0.7).groups["a"].n == 100
    for result in (
        of_file(path, "p", bins=["p=0.3,0.7"]),
        audit(label, label, sensitive_features={"p": values}, bins={"p": np.array([0.3, 0.7], kind)}),
        audit(label, label, sensitive_features={"p": values}, bins={"p": [0.3, 0.7]}),
    ):
        names = ["under 0.3", "0.3 to under 0.7", "0.7 and over"]
        assert [result.groups[name].n for name in names] == [50, 50, 100]
    for result in (
        of_file(path, "p"),
        audit(label, label, sensitive_features=values),
    ):
        assert list(result.groups) == ["0.1", "0.3", "0.7", "0.9"]


def test_quantiles_of_a_frequency_table_are_those_of_its_people(tmp_path: Path) -> None:
    age = np.arange(20, 60)
    people = np.where(age < 25, 20, np.where(age == 40, 0, 1))
    table = pd.DataFrame({"y": age % 2, "yhat": age // 2 % 2, "age": age, "n": people})
    options: dict[str, Any] = {"bins": ["age=quantiles:4"], "min_count": 1}
    found = sizes(of_file(written(table, tmp_path / "p.csv"), "age", count="n", **options))
    long = written(table.loc[table.index.repeat(people)], tmp_path / "long.csv")
    assert found == sizes(of_file(long, "age", **options))
    assert max(found.values()) < 60
    ranked = lh.audit(
        None, scores=age, sensitive_features={"age": age}, counts=people, top=10, bins={"age": "quantiles:4"}
    )
    assert list(ranked.by_attribute["age"].groups) == list(found)
