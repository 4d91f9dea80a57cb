from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_the_trainer_example_runs() -> None:
    command = [sys.executable, str(EXAMPLES / "huggingface_trainer.py"), "--pictures", "256", "--epochs", "1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Equalized odds gap" in result.stdout


def test_the_lora_example_runs() -> None:
    pytest.importorskip("peft")
    result = subprocess.run([sys.executable, str(EXAMPLES / "lora.py")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "equal outputs after loading: True" in result.stdout


@pytest.mark.parametrize(
    ("example", "printed"),
    [("trainer_text.py", "accuracy on other texts 1.00"), ("export.py", "largest difference 0.0e+00")],
)
def test_examples_for_texts_and_serving_run(example: str, printed: str) -> None:
    result = subprocess.run([sys.executable, str(EXAMPLES / example)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert printed in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notebook", "printed"),
    [("notebook_vision.py", "attention.svg"), ("notebook_text.py", "Groups of trade")],
)
def test_notebooks_run_as_scripts(notebook: str, printed: str, tmp_path: Path) -> None:
    quick = os.environ | {"LEVELHEAD_QUICK": "1", "TMPDIR": str(tmp_path), "COLUMNS": "120"}
    command = [sys.executable, "-W", "error", str(EXAMPLES / notebook)]
    result = subprocess.run(command, capture_output=True, text=True, env=quick)
    assert result.returncode == 0, result.stderr
    assert printed in result.stdout
    assert "EOd gap of dam AT CHANCE against erm" in result.stdout


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("notebook_*.py")), ids=lambda file: file.name)
def test_notebooks_begin_every_cell_with_a_marker(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert lines[0] == "# %% [markdown]"
    cells = [number for number, line in enumerate(lines) if line.startswith("# %%")]
    assert len(cells) >= 8
    for number in cells[1:]:
        assert lines[number - 1] == "", f"{file.name}:{number}: an empty line stands before each cell"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_examples_stay_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 70
