"""Runs on data that know people: evaluations and tables take a person's rows together, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_csv import RECIPE

from command_line import run, said
from levelhead.auditing.overall import Overall
from levelhead.bench.tables import collect
from levelhead.data.base import Split
from levelhead.data.portraits import Portraits
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json

ROWS, PEOPLE = 240, 60


def people_of(data: Portraits, split: Split) -> Sequence[str]:
    """Return the person of each row: every fourth is of one."""
    sizes = {"train": data.train_size, "validation": data.validation_size, "test": data.test_size}
    return [f"person {row % PEOPLE}" for row in range(sizes[split])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"train_size": 64, "validation_size": 32, "test_size": ROWS}
    train_run(
        build_experiment(RECIPE | {"data": {"name": "portraits", **sizes}}), place := tmp_path_factory.mktemp("a")
    )
    return place


def test_evaluate_goes_by_person_where_the_data_set_knows_people(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = evaluate_run(folder).to_dict()
    assert "clusters" not in alone
    monkeypatch.setattr(Portraits, "people", people_of)
    assert run("evaluate", folder) == 0
    assert f"Intervals are clustered by person: {ROWS} rows in {PEOPLE} clusters, the largest of 4." in said(capsys)
    frame = pd.read_parquet(folder / "predictions-test.parquet")
    assert frame["cluster"].nunique() == PEOPLE
    together = read_json(folder / "evaluation-test.json")
    assert together["clusters"]["column"] == "person"
    assert {*alone, "run", "clusters"} == {*together}
    explained = tmp_path / "explained.json"
    middle = frame.filter(like="probability_").iloc[:, 1].median()
    run("explain", folder, "--threshold", middle, "--json", explained)
    assert f"in {PEOPLE} clusters" in explained.read_text()
    assert f"{ROWS} rows in {PEOPLE} clusters" in collect([folder], "test")[0].compare("erm").warnings[0]


def test_a_column_of_the_predictions_can_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Portraits, "ids", people_of)
    assert evaluate_run(folder, cluster="id").to_dict()["clusters"]["column"] == "id"
    assert f"{PEOPLE} clusters" in collect([folder], "test")[0].compare("erm").warnings[0]
    evaluate_run(folder)
    assert not [one for one in collect([folder], "test")[0].compare("erm").warnings if "clusters" in one]


def test_figures_of_all_rows_are_by_person_where_nobodys_group_is_known() -> None:
    chance = np.random.default_rng(1)
    label, probability = chance.integers(0, 2, 200), chance.random(200)
    table = np.stack([1 - probability, probability], -1)
    plain = Overall.of(label, table, ("no", "yes"))
    who = np.repeat(np.arange(200), 4)
    copied = Overall.of(label[who], table[who], ("no", "yes"), cluster=pd.Series(who, name="person"))
    pairs = [(plain.accuracy, copied.accuracy)]
    pairs += [(one, copied.by_class[name][key]) for name, part in plain.by_class.items() for key, one in part.items()]
    for one, own in pairs:
        assert own.value == pytest.approx(one.value)
        assert own.high - own.low == pytest.approx(one.high - one.low, rel=0.05)
    assert copied.together == "Intervals are clustered by person: 800 rows in 200 clusters."
    assert copied.together in str(copied).replace("\n", " ")
