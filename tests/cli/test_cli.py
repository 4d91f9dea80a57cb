from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import levelhead
from command_line import VERBS, run
from levelhead._version import commit
from levelhead.data import DATASETS
from levelhead.methods import METHODS
from levelhead.report.page import command_line
from levelhead.runs.recipe import recipe_folder
from levelhead.training.select import SELECTORS
from test_plugins import TINY


def test_train_evaluate_and_table_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for method in ("erm", "dam"):
        train = ("train", f"portraits_{method}", "--seed", "1", *TINY)
        assert run(*train) == 0
        assert run(*train) == 2
        assert "Add --resume" in capsys.readouterr().err
        assert run(*train, "--resume") == 0
        assert run("evaluate", f"runs/portraits_{method}-seed1", "--json", f"{method}.json", "--html", "page.html") == 0
    assert "levelhead evaluate runs/portraits_dam-seed1" in capsys.readouterr().out
    assert json.loads(Path("dam.json").read_text())["metrics"]["accuracy"]["n"] == 80
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert run("table", "runs", "--json", "table.json") == 0
    assert run("table", "runs", "--markdown") == 0
    out = capsys.readouterr().out
    assert "AT CHANCE" in out
    assert "changes in points" in out
    (comparison,) = json.loads(Path("table.json").read_text())["comparisons"]
    assert comparison["seeds"] == {"dam": [1], "erm": [1]}


def test_the_page_names_its_command_and_one_line_says_what_to_type_next_unless_something_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("y,p,g\n" + "".join(f"{at % 2},{at % 3 % 2},{'ab'[at % 5 > 1]}\n" for at in range(60)))
    words = ["audit", str(rows), "--label", "y", "--prediction", "p", "--group", "g", "--html", f"{tmp_path}/a b.html"]
    assert run(*words) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Next: levelhead explain")
    recorded = ["rows.csv" if word == str(tmp_path / "rows.csv") else word for word in words[:-1]]
    assert shlex.join(["levelhead", *recorded, "a b.html"]) in html.unescape((tmp_path / "a b.html").read_text())
    assert command_line() == ""
    assert run(*words, "--min-count", "30") == 0
    assert "Next:" not in capsys.readouterr().out
    assert run("audit", str(rows), "--label", "y") == 2
    assert command_line() == ""  # after an error, too
    result = levelhead.audit([0, 1] * 30, [0, 0, 1] * 20, sensitive_features=["a", "b"] * 30, replicates=100)
    assert "Command" not in result.to_html()


@pytest.mark.parametrize(("kind", "names"), [("methods", METHODS), ("datasets", DATASETS), ("selectors", SELECTORS)])
def test_list_names_everything(kind: str, names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", kind) == 0
    out = capsys.readouterr().out
    for name in names:
        assert name[:12] in out


def test_recipes_and_grids_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("list", "recipes") == 0
    assert "utkface64_dam_small" in capsys.readouterr().out
    assert run("list", "grids") == 0
    out = capsys.readouterr().out
    files = [file for folder in ("grids", "paper") for file in (recipe_folder() / folder).glob("*.yaml")]
    assert len(files) > 5
    for file in files:
        assert file.stem in out
        assert file.read_text().splitlines()[0].removeprefix("# ") in out


def test_a_version_of_a_clone_names_its_commit(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(levelhead.__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("levelhead does not run from a clone here")
    assert run("--version") == 0
    found = re.fullmatch(r"(\S+) \(commit ([0-9a-f]+)(, changed)?\)", capsys.readouterr().out.strip())
    assert found is not None
    head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert found[1] == levelhead.__version__
    assert head.startswith(found[2])


def test_a_version_needs_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = commit()
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # as in a hook of another repository
    assert commit() == known
    for broken in ("exit 1", "sleep 10", "echo '\xff'"):
        (tmp_path / "git").write_text(f"#!/bin/sh\n{broken}\n", encoding="latin-1")
        (tmp_path / "git").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert commit() is None
    (tmp_path / "git").unlink()
    assert commit() is None
    # In a folder of somebody else's repository.
    copy = tmp_path / "theirs" / "src" / "levelhead" / "_version.py"
    copy.parent.mkdir(parents=True)
    (tmp_path / "theirs" / ".git").mkdir()
    monkeypatch.setattr("levelhead._version.__file__", str(copy))
    assert commit() is None


def test_help_and_version_load_no_heavy_library() -> None:
    code = (
        "import sys\nfrom levelhead.cli.app import main\n"
        "for arguments in (['--help'], ['--version'], ['compare', '--help']):\n"
        "    try:\n        main(arguments)\n    except SystemExit:\n        pass\n"
        "heavy = {'torch', 'pandas', 'numpy', 'transformers', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*verb.split(), "--help") == 0
    said = capsys.readouterr().out
    assert len(said) > 300
    assert ("--allow-mismatched-w" in said) == (verb in ("lm bench", "lm gap"))
