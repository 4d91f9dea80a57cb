"""No file of the folder that levelhead is started in is imported, but a module that the user named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import run
from levelhead.registry import _CurrentFolder
from test_plugins import FOCAL, TINY

NAMES = (
    *("random", "numpy", "json", "pynvml", "torch", "yaml", "logging", "secrets", "pandas", "pyarrow", "rich", "click"),
    *("transformers", "matplotlib", "scipy", "PIL", "peft", "ray", "wandb", "psutil", "triton", "tensorflow", "socket"),
    *("sitecustomize", "usercustomize", "typing_extensions", "jax", "datasets", "vaderSentiment", "codecarbon"),
)
IN_TURN = """
import os, runpy, sys
sys.path[0] = os.getcwd()
for line in sys.argv.pop(1).splitlines():
    sys.argv[1:] = line.split("|")
    try:
        runpy.run_module("levelhead", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
"""
"""Run lines one after the other, as ``python -m levelhead`` does: to import torch for each would take seconds."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of common names that note that they were imported."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'taken')!r}, 'a').write({name!r} + ' ')\n")
    rows = "".join(f"{row % 2},{row % 3 % 2},{row % 5 / 4},{'ab'[row % 7 % 2]}\n" for row in range(400))
    (folder / "rows.csv").write_text("label,prediction,score,group\n" + rows)
    texts = "".join(f"the {'good' if row % 2 else 'bad'} book number {row},{row % 2}\n" for row in range(100))
    (folder / "texts.csv").write_text("text,stars\n" + texts)
    return folder


def start(folder: Path, *command: str) -> None:
    """Start Python in a folder, as a user would, and look whether a file of the folder was imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    taken = (folder / "taken").read_text() if (folder / "taken").exists() else ""
    assert (taken, done.returncode) == ("", 0), done.stdout + done.stderr


def in_turn(folder: Path, *lines: str) -> None:
    """Run commands; the word TINY of one is for options of a small training."""
    words = [[one for word in line.split() for one in (TINY if word == "TINY" else [word])] for line in lines]
    start(folder, "-c", IN_TURN, "\n".join(map("|".join, words)))


@pytest.mark.slow
def test_no_audit_imports_a_file_of_the_current_folder(hostile: Path) -> None:
    start(hostile, "-m", "levelhead", "audit", "--example")
    in_turn(
        hostile,
        "--version",
        "list datasets",
        "audit rows.csv --label label --prediction prediction --group group --html audit.html --json audit.json",
        "plan --gap 5 --rate 0.3",
        "explain rows.csv --label label --score score --group group",
        "postprocess rows.csv --label label --score score --group group --rule rule",
        "init texts.csv --out recipe.yaml",
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_training_or_reading_of_runs_imports_a_file_of_the_current_folder(hostile: Path) -> None:
    in_turn(
        hostile,
        "train portraits_dam TINY --out run",
        "evaluate run --json evaluation.json",
        "report run --html run.html",
        "audit run/predictions-test.parquet --label label --prediction prediction --group style",
        "figure run --html attention.html",
        "refit run --method afr --out refitted",
        "reproduce list",
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_worker_of_a_comparison_imports_a_file_of_the_current_folder(hostile: Path) -> None:
    (hostile / "focal.py").write_text("import beside\n" + FOCAL)
    (hostile / "beside.py").write_text("")
    in_turn(
        hostile,
        "compare --data portraits --methods erm,focal:Focal --seeds 0 --workers 2 TINY --out runs --html runs.html",
        "table runs",
    )


@pytest.mark.slow
def test_no_process_of_a_pool_imports_a_file_of_the_current_folder(hostile: Path) -> None:
    (hostile / "aside").mkdir()
    script = hostile / "aside" / "pool.py"
    script.write_text(
        "from concurrent.futures import ProcessPoolExecutor\nfrom contextlib import suppress\n"
        "from multiprocessing import get_context\nfrom levelhead.cli import main\n"
        "if __name__ == '__main__':\n    with suppress(SystemExit):\n        main(['--version'])\n"
        "    with ProcessPoolExecutor(1, mp_context=get_context('spawn')) as pool:\n"
        "        pool.submit(abs, -3).result()\n"
    )
    start(hostile, str(script))


def test_a_module_that_the_user_names_may_import_those_beside_it_and_nobody_else_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_by_user.py").write_text("import imported_beside\n\ndef later():\n    import imported_later\n")
    for name in ("imported_beside", "imported_later", "optional_library"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "json.py").write_text("raise SystemExit\n")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    before = list(sys.path)
    finder = _CurrentFolder()
    finder.load("named_by_user", str(tmp_path)).later()
    assert {"imported_beside", "imported_later"} <= set(sys.modules)
    assert sys.path == before
    with pytest.raises(ModuleNotFoundError):
        __import__("optional_library")
    assert finder.load("json", str(tmp_path)).__file__ != str(tmp_path / "json.py")


def test_what_the_command_starts_has_a_safe_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert run("--version") == 0
    assert os.environ["PYTHONSAFEPATH"] == "1"
