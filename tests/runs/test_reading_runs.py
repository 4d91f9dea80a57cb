"""Whoever reads the results of a run runs no code that its config.yaml names: somebody else may have sent it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from command_line import run, said
from levelhead.bench.page import Comparisons
from levelhead.bench.tables import collect
from levelhead.bench.tuning import tune
from levelhead.cli.report import page_of, runs_page
from levelhead.inspecting.figures import attention_figures
from levelhead.runs.card import model_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.folder import load_run, read_run
from levelhead.runs.page import run_page
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import ConfigError

CODE = """
from dataclasses import dataclass

from levelhead.data import Card
from levelhead.data.portraits import Portraits
from levelhead.methods.erm import ERM

@dataclass(frozen=True)
class Mine(ERM):
    summary = "a method of their own"
    knowledge = "FEW GROUPS"
    told = "FEW GROUPS 12"
    gamma: float = 2.0
    kinds: tuple[str, ...] = ("a", "b")

@dataclass(frozen=True)
class Seeing(Mine):
    uses_groups = changes_at_end = True

@dataclass(frozen=True)
class Faces(Portraits):
    card = Card("Their faces", "find the hat", "age", "theirs", "They 2026", "", "Ask them first.")
    note: str = "theirs"
"""
HOSTILE = "from pathlib import Path\nPath({!r}).write_text('the code ran')\n" + CODE
FACES = {
    **{"correlation": 0.2, "light_given_round": 0.6, "light_given_angular": 0.3},
    **{"train_size": 64, "validation_size": 40, "test_size": 120},
}
RUNS = {
    "theirs/mine": ({"name": "evil.stuff:Mine", "gamma": 1.5}, "portraits"),
    "theirs/seeing": ({"name": "dam+evil.stuff:Seeing"}, "portraits"),
    "ours/erm": ({"name": "erm"}, "portraits"),
    "faces/mine": ({"name": "evil.stuff:Mine"}, "evil.stuff:Faces"),
    "faces/erm": ({"name": "erm"}, "evil.stuff:Faces"),
}


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "evil"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs that were trained and evaluated where their code was."""
    place = tmp_path_factory.mktemp("trained")
    (place / "evil").mkdir()
    (place / "evil" / "stuff.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for folder, (method, data) in RUNS.items():
            recipe: dict[str, Any] = {
                "data": {"name": data, **FACES, **({} if data == "portraits" else {"note": "loud"})},
                "method": method,
                "model": {"hidden_size": 16, "layers": 1, "heads": 2},
                "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1, "keep_epochs": True},
            }
            train_run(build_experiment(recipe), place / folder)
            evaluate_run(place / folder)
            evaluate_run(place / folder, "validation")
    shutil.rmtree(place / "evil")
    forget()
    return place


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: the runs, and code that tells that it ran; in the end it has not run."""
    place = Path(shutil.copytree(trained, tmp_path / "here"))
    (place / "evil").mkdir()
    (place / "evil" / "stuff.py").write_text(HOSTILE.format(str(place / "marker")))
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "250")
    yield place
    assert not (place / "marker").exists()
    assert "evil" not in sys.modules
    forget()


VERBS = """
table theirs/mine theirs/seeing ours/erm --json t.json --html t.html --latex t.tex
table theirs ours --threshold matched --tune val_loss --markdown
table theirs/mine ours/erm --select val_loss
table faces --split validation
table faces --tune val_loss
figure theirs/mine --dimension 1 --token 2 --html f.html
report theirs/mine --html r.html --card
report theirs/seeing --card
report faces/mine --card --html r.html
report faces --html r.html
report theirs/mine/evaluation-test.json --html r.html
audit theirs/mine --html a.html
explain faces/mine --threshold 0.513 --html e.html
"""


def test_no_verb_that_reads_results_runs_their_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS.strip().splitlines():
        assert run(*verb.split()) == 0, (verb, said(capsys))
        assert not (here / "marker").exists(), verb


def test_no_function_that_reads_results_runs_their_code(here: Path) -> None:
    assert read_run(Path("theirs/seeing")).to_dict()
    groups = collect([Path("theirs"), Path("ours")], "test")
    assert Comparisons.of(*(group.compare("erm") for group in groups)).to_markdown()
    assert tune(collect([Path("faces")], "test")[0])
    assert [run_page(Path("faces/mine")), page_of(Path("faces")), runs_page([Path("theirs"), Path("ours")])]


def test_a_table_has_the_names_options_and_marks_that_the_runs_recorded(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("table", "theirs/mine", "theirs/seeing", "ours/erm", "--json", "t.json") == 0
    (one,) = read_json(here / "t.json")["comparisons"]
    assert list(one["methods"]) == ["evil.stuff:Mine (gamma=1.5)", "dam+evil.stuff:Seeing", "erm"]
    assert one["marks"]["evil.stuff:Mine (gamma=1.5)"][:1] == ["FEW GROUPS"]
    assert one["told"]["evil.stuff:Mine (gamma=1.5)"] == "FEW GROUPS 12"
    assert one["marks"]["dam+evil.stuff:Seeing"][:1] == ["ORACLE"]
    assert one["settings"]["dam+evil.stuff:Seeing"]["method.base.kinds"] == ["a", "b"]
    assert run("table", "faces", "--all", "--json", "t.json") == 0
    options = ", ".join(f"{key} {value}" for key, value in {**FACES, "note": "loud"}.items())
    assert f"evil.stuff:Faces ({options}): test split, 120 rows" in said(capsys)
    (one,) = read_json(here / "t.json")["comparisons"]
    assert list(one["methods"]) == ["erm", "evil.stuff:Mine"]
    assert set(one["data_changed"]) == {*FACES, "note"}
    page = page_of(here / "t.json")  # whose title knows the defaults, too
    assert f"evil.stuff:Faces ({options}): test split" in str(page)


def test_a_card_has_what_the_run_recorded(here: Path) -> None:
    card = model_card(here / "faces/mine")
    for words in ("`evil.stuff:Mine`: a method of their own", "Their faces", "find the hat", "Ask them first", "age"):
        assert words in card
    shown = yaml.safe_load(card.partition("and this config.yaml:\n\n```yaml\n")[2].partition("```")[0])
    assert shown["data"].keys() >= {"name", *FACES, "note"}
    assert "- `evil.stuff:Seeing`: a method of their own" in model_card(here / "theirs/seeing")


def test_only_what_the_run_recorded_can_be_chosen_by(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("table", "theirs/seeing", "ours/erm", "--select", "val_loss") == 2
    assert "changes the network after its last epoch" in said(capsys)
    second = here / "faces" / "other"
    shutil.copytree(here / "faces" / "mine", second)
    config = yaml.safe_load((second / "config.yaml").read_text())
    config["method"]["gamma"] = 3.0
    config["name"] = "gamma 3"
    (second / "config.yaml").write_text(yaml.safe_dump(config))  # its options in another order
    assert run("table", "faces", "--tune", "val_loss") == 0
    file = second / "predictions-validation.parquet"
    pd.read_parquet(file).drop(columns="style").to_parquet(file)  # as training leaves it
    assert run("table", "faces", "--tune", "val_loss") == 2
    assert "Run `levelhead evaluate faces/other --split validation`" in said(capsys)


def test_other_names_are_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "\u2118.py").write_text(HOSTILE.format(str(here / "marker")))
    file = here / "theirs/mine/config.yaml"
    kept = yaml.safe_load(file.read_text())
    changes: list[dict[str, Any]] = [{"train": kept["train"] | {"select": "evil.stuff:Rule"}}]
    changes += [{"method": {"name": name}} for name in ("evil.stuff:Mine\x1b[31m", "\u2118:Mine", "evil/stuff:Mine")]
    for change in changes:
        file.write_text(yaml.safe_dump(kept | change))
        assert run("table", "theirs/mine", "ours/erm") == 2
        text = capsys.readouterr().err
        assert text.startswith("Error: ")
        assert "\x1b" not in text
        assert "Traceback" not in text


def test_an_evaluation_runs_the_code(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(shutil.copytree(trained, tmp_path / "here"))
    monkeypatch.chdir(place)
    for needs in (evaluate_run, attention_figures):  # which draws rows of the data set
        with pytest.raises(ConfigError, match="no module 'evil'"):
            needs(place / "faces/mine")
    (place / "evil").mkdir()
    (place / "evil" / "stuff.py").write_text(HOSTILE.format(str(place / "marker")))
    try:
        assert load_run(place / "faces/mine").method.told == "FEW GROUPS 12"
        evaluate_run(place / "faces/mine")
    finally:
        forget()
    assert (place / "marker").exists()
    assert "a method of their own" in model_card(place / "faces/mine")
