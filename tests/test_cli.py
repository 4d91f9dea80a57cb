from __future__ import annotations

import json
from pathlib import Path

import pytest

from levelhead.cli.app import app, main
from levelhead.data import DATASETS
from levelhead.methods import METHODS
from levelhead.training.select import SELECTORS

TINY = [
    *("--set", "data.train_size=64", "--set", "data.validation_size=32", "--set", "data.test_size=80"),
    *("--set", "model.hidden_size=16", "--set", "model.layers=2", "--set", "model.heads=2"),
    *("--set", "train.epochs=1", "--set", "train.batch_size=16", "--set", "train.threads=1"),
]


def run(*arguments: str) -> int:
    """Return the exit status, as a shell would see it."""
    try:
        main(list(arguments))
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


def test_train_evaluate_and_table_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for method in ("erm", "dam"):
        assert run("train", f"portraits_{method}", "--seed", "1", *TINY) == 0
        assert run("evaluate", f"runs/portraits_{method}-seed1", "--json", f"{method}.json", "--html", "page.html") == 0
    assert "Next: levelhead evaluate runs/portraits_dam-seed1" in capsys.readouterr().out
    assert json.loads(Path("dam.json").read_text())["metrics"]["accuracy"]["n"] == 80
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert run("table", "runs", "--json", "table.json") == 0
    assert run("table", "runs", "--markdown") == 0
    out = capsys.readouterr().out
    assert "dam AT CHANCE minus erm" in out
    (comparison,) = json.loads(Path("table.json").read_text())["comparisons"]
    assert comparison["seeds"] == {"dam": [1], "erm": [1]}


def test_an_existing_run_is_one_clear_sentence_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("train", "portraits_erm", *TINY, "--out", str(tmp_path / "run"))
    assert run(*arguments) == 0
    assert run(*arguments) == 2
    assert "Add --resume" in capsys.readouterr().err
    assert run(*arguments, "--resume") == 0


@pytest.mark.parametrize(("kind", "names"), [("methods", METHODS), ("datasets", DATASETS), ("selectors", SELECTORS)])
def test_list_names_everything(kind: str, names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", kind) == 0
    out = capsys.readouterr().out
    for name in names:
        assert name[:12] in out


def test_list_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "recipes") == 0
    assert "utkface64_dam_small" in capsys.readouterr().out


VERBS = [
    "train",
    "evaluate",
    "audit",
    "table",
    "grid",
    "compare",
    "report",
    "demo",
    "list",
    "figure pareto",
    "figure qk",
    "figure attention",
    "figure bounds",
    "features list",
    "features prune",
    "features build",
    "lm bench",
    "lm train",
    "lm compare",
    "lm gap",
]
OLD_VERBS = ["bounds", "card", "certify", "klaad", "lm-bias", "lm-compare", "lm-gap", "pareto"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*verb.split(), "--help") == 0
    assert len(capsys.readouterr().out) > 300


@pytest.mark.parametrize("verb", OLD_VERBS)
def test_old_verbs_are_hidden_and_do_what_they_did(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert f"│ {verb} " not in capsys.readouterr().out
    assert run(verb, "--help") == 0
    assert len(capsys.readouterr().out) > 300


def test_a_page_and_a_card_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", str(tmp_path)) == 2
    assert "--html FILE for a page, or --card" in capsys.readouterr().err
    assert run("report", str(tmp_path), "--print") == 2
    assert "give --card as well" in capsys.readouterr().err


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "portraits_damm") == 2
    assert "Did you mean 'portraits_dam'?" in capsys.readouterr().err
    assert run("train", "portraits_dam", "--set", "train.epoch=1") == 2
    assert "Did you mean 'epochs'?" in capsys.readouterr().err
    assert run("train", "utkface64_erm_small", "--data-root", str(tmp_path)) == 2
    assert "--data-root" in capsys.readouterr().err
    assert run("evaluate", str(tmp_path)) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert run("list", "nonsense") == 2


def test_every_command_of_the_app_has_a_test_of_its_help() -> None:
    shown = [command for command in app.registered_commands if not command.hidden]
    commands = {command.name or command.callback.__name__ for command in shown}  # type: ignore[union-attr]
    groups = {group.name for group in app.registered_groups}
    assert commands | groups == {verb.split()[0] for verb in VERBS}
