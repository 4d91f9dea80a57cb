"""``levelhead audit --example``: a real audit of a file that comes with the package."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pandas as pd
import pytest

from command_line import run
from levelhead.auditing.example import EXAMPLE, GROUP, LABEL, PREDICTION
from levelhead.data.portraits import GROUP_NAMES
from levelhead.runs.recipe import load_experiment


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    assert run("audit", *arguments) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_the_printed_command_gives_the_same_tables(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--example")
    assert "synthetic portraits" in lines[0]
    place = next(number for number, line in enumerate(lines) if line.startswith("levelhead audit "))
    tables = lines[place + 1 :]
    assert shown(capsys, *shlex.split(lines[place])[2:])[:-1] == tables[:-1]  # the last line repeats the command
    assert any("Groups by" in line for line in tables)


def test_the_example_is_audited_and_scores_are_explained_without_torch() -> None:
    code = (
        "import sys, levelhead as lh\n"
        "from levelhead.cli.app import main\n"
        "import pandas as pd\n"
        "rows = pd.DataFrame({'y': [0, 1] * 40, 'p': [-1, 2, 1, 0] * 20, 'g': ['a', 'b'] * 40})\n"
        "lh.explain(rows, label='y', score='p', groups=['g']).to_html()\n"
        "try:\n    main(['audit', '--example'])\nexcept SystemExit:\n    pass\n"
        "print('loaded:', {'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Groups by" in done.stdout
    assert done.stdout.endswith("loaded: set()\n")


def test_the_file_is_small_and_of_the_portraits_that_its_recipe_draws() -> None:
    assert EXAMPLE.stat().st_size <= 20_000
    table = pd.read_csv(EXAMPLE)
    assert list(table.columns) == [LABEL, PREDICTION, GROUP]
    assert len(table) == 1000
    data = load_experiment("portraits_erm_shortcut", [f"data.test_size={len(table)}"]).data
    examples = data.examples("test")
    assert [examples.class_names[code] for code in examples.labels] == [f"{hair} hair" for hair in table[LABEL]]
    assert [GROUP_NAMES[code] for code in data.groups("test")[0].values] == list(table[GROUP])
