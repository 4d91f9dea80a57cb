"""Methods and data sets that are not ours: in a file of the user's own, or in an installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import run, said
from levelhead.data import DATASETS
from levelhead.methods import METHODS
from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM
from levelhead.runs.folder import load_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import ConfigError, DemographicsHidden
from test_blindness import assert_equal, faces, recipe, trained

pytestmark = pytest.mark.usefixtures("own_modules")

TINY = [
    *("--set", "data.train_size=64", "--set", "data.validation_size=32", "--set", "data.test_size=80"),
    *("--set", "model.hidden_size=16", "--set", "model.layers=2", "--set", "model.heads=2"),
    *("--set", "train.epochs=1", "--set", "train.batch_size=16", "--set", "train.threads=1"),
]
HEAD = """
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from levelhead.data.portraits import Portraits
from levelhead.methods import Method, Stage
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
"""
FOCAL = (
    HEAD
    + """
class Kind(StrEnum):
    soft = "soft"
    hard = "hard"


@dataclass(frozen=True)
class Focal(Method):
    summary: ClassVar[str] = "a method of my own"
    gamma: float = 2.0
    kind: Kind = Kind.soft

    def stages(self, lab):
        yield Stage(WeightedCrossEntropy(lab.new_model()))


@dataclass(frozen=True)
class Peeking(Focal):
    def stages(self, lab):
        lab.groups
        yield Stage(WeightedCrossEntropy(lab.new_model()))


@dataclass(frozen=True)
class Declared(Peeking):
    uses_groups: ClassVar[bool] = True


@dataclass(frozen=True)
class MyPortraits(Portraits):
    note: str = "mine"

    def groups(self, split):
        if split != "test":
            raise AssertionError("training requested groups")
        return super().groups(split)
"""
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of the user's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "focal.py").write_text(FOCAL)
    return tmp_path


def install(folder: Path, package: str, points: str, code: str = FOCAL) -> None:
    """Lay out a package as pip would have installed it."""
    (folder / f"{package}.py").write_text(code)
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)


def plan(method: str, data: str = "portraits") -> dict[str, Any]:
    return {
        "data": {"name": data, "train_size": 64, "validation_size": 32, "test_size": 80},
        "method": {"name": method},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {"epochs": 1, "batch_size": 16, "device": "cpu", "threads": 1},
    }


@pytest.mark.slow  # it starts a process, which imports torch
def test_a_method_and_a_data_set_in_the_current_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--set", "method={name: focal:Focal, gamma: 1.5, kind: hard}", "--set", "data.name=focal:MyPortraits"]
    arguments = ["train", "portraits_erm", *TINY, *own, "--out", "run"]
    assert run(*arguments) == 0
    written = load_run(here / "run").to_dict()
    assert written["method"] == {"name": "focal:Focal", "gamma": 1.5, "kind": "hard"}
    assert (written["data"]["name"], written["data"]["note"]) == ("focal:MyPortraits", "mine")
    assert run(*arguments, "--resume") == 0  # the same recipe is recognised
    # Another process, which knows the classes by their names alone.
    command = [sys.executable, "-m", "levelhead", "evaluate", "run"]
    done = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
    assert f": running the code of {here / 'focal.py'}" in done.stderr
    assert read_json(here / "run" / "evaluation-test.json")["run"]["method"] == "focal:Focal"
    assert run("table", "run", "--baseline", "focal:Focal (gamma=1.5, kind=hard)", "--all") == 0
    assert "focal:MyPortraits" in said(capsys)
    assert "a method of my own" in (here / "run" / "model" / "README.md").read_text()


def test_debiased_attention_goes_on_top_of_a_method_of_ones_own(here: Path) -> None:
    experiment = build_experiment(
        {"data": {"name": "portraits"}, "method": {"name": "dam+focal:Focal", "base": {"gamma": 3}}}
    )
    assert isinstance(experiment.method, DAM)
    assert type(experiment.method.base).__name__ == "Focal"
    method = experiment.to_dict()["method"]
    assert (method["name"], method["base"]) == ("dam+focal:Focal", {"gamma": 3.0, "kind": "soft"})
    assert build_experiment(experiment.to_dict()) == experiment


def test_a_folder_that_another_one_names_says_where_it_looked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_run(build_experiment(plan("focal:Focal")), here / "run")
    del sys.modules["focal"]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(here)])
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    with pytest.raises(ConfigError, match=r"no module 'focal'\. Looked in the current folder .*elsewhere and Python's"):
        load_run(here / "run")


def test_no_method_of_ones_own_sees_groups_that_it_does_not_declare(here: Path) -> None:
    with pytest.raises(DemographicsHidden, match="does not declare"):
        train_run(build_experiment(plan("focal:Peeking")), here / "peeking")
    # This data set fails where training asks it for groups.
    blind = train_run(build_experiment(plan("focal:Focal", "focal:MyPortraits")), here / "blind")
    assert blind["oracle"] is None
    with pytest.raises(AssertionError, match="training requested groups"):
        train_run(build_experiment(plan("focal:Declared", "focal:MyPortraits")), here / "declared")
    assert train_run(build_experiment(plan("focal:Declared")), here / "oracle")["oracle"] == "method"


def test_the_sensitive_columns_change_nothing_for_a_method_of_ones_own(here: Path) -> None:
    weights = {}
    for sensitive in ("kept", "shuffled", "deleted"):
        plan = recipe(faces(here / sensitive, sensitive), "focal:Focal")
        _, weights[sensitive] = trained(plan, here / f"run-{sensitive}")
    assert_equal(weights)


def test_an_installed_package_offers_short_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    points = "[levelhead.methods]\nfocal = focalkit:Focal\n[levelhead.datasets]\nmine = focalkit:MyPortraits\n"
    install(tmp_path, "focalkit", points)
    monkeypatch.syspath_prepend(tmp_path)
    assert run("list", "methods") == 0
    text = said(capsys)
    assert "focal │ a method of my own │ no │ focalkit 1.2 (focalkit:Focal)" in text
    assert "levelhead │" in text
    assert run("list", "datasets") == 0
    assert "focalkit 1.2 (focalkit:MyPortraits)" in said(capsys)
    experiment = build_experiment({"data": {"name": "mine"}, "method": {"name": "focal"}})
    assert (experiment.to_dict()["data"]["name"], experiment.to_dict()["method"]["name"]) == ("mine", "focal")
    # One class has one name, however it was requested.
    assert METHODS.name_of(METHODS["focalkit:Focal"]) == "focal"
    assert [METHODS.offers(name) for name in ("focal", "group-dro", "focalkit:Focal")] == [True, True, False]
    assert METHODS.name_of(METHODS["focalkit:Peeking"]) == "focalkit:Peeking"
    with pytest.raises(ConfigError, match=r"Unknown method.name 'focall'\. Did you mean 'focal'"):
        build_experiment({"data": {"name": "mine"}, "method": {"name": "focall"}})
    assert len(list(METHODS)) == len(METHODS)


def test_no_package_takes_a_name_of_ours_or_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "one", "[levelhead.methods]\nerm = one:Focal\nshared = one:Peeking\na+b = one:Declared\n")
    install(tmp_path, "two", "[levelhead.methods]\nshared = two:Peeking\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert METHODS["erm"] is ERM
    assert {"one:Focal", "one:Peeking", "two:Peeking", "one:Declared"} <= set(METHODS)
    assert "shared" not in METHODS
    assert METHODS.name_of(METHODS["two:Peeking"]) == "two:Peeking"


def test_a_broken_package_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    install(
        tmp_path, "broken", "[levelhead.methods]\nbroken = broken:Focal\nodd = broken\n", "import nothing_like_this"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert run("list", "methods") == 0
    text = said(capsys)
    assert "group-dro" in text
    assert "cannot be used: 'broken:Focal': broken cannot be imported: ModuleNotFoundError" in text
    with pytest.raises(ConfigError, match=r"No module named 'nothing_like_this' \(.*broken\.py, line 1\)"):
        METHODS["broken"]


def test_no_file_of_the_current_folder_takes_the_place_of_an_installed_module(here: Path) -> None:
    (here / "json.py").write_text(FOCAL)
    (here / "typer.py").write_text(FOCAL)
    with pytest.raises(ConfigError, match=r"json \(.*\) has no method 'Focal'. None is known"):
        METHODS["json:Focal"]
    assert str(here) not in sys.path[:-1]


def test_our_own_classes_have_short_names() -> None:
    assert METHODS.name_of(ERM) == "erm"
    assert METHODS.source("erm") == "levelhead"
    assert "nothing" not in DATASETS
    with pytest.raises(KeyError):
        DATASETS["nothing"]
