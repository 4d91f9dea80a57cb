from __future__ import annotations

import json
import re
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import rich
import torch

from scripts import load_script

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """Run an example as ``python examples/NAME`` does, and return what it prints.

    In this process, because another takes seconds to import torch and transformers.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LEVELHEAD_QUICK", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(rich, "_console", None)  # it has requested the width already

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
        with torch.random.fork_rng():
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.long
def test_the_lora_example_runs(run: Callable[..., str]) -> None:
    pytest.importorskip("peft")
    assert "equal outputs after loading: True" in run("lora.py")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_way_from_trainer_to_a_page(run: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    printed = run("trainer_to_page.py", "--out", str(tmp_path / "out"), "--texts", "200")
    assert "statistics_shift" in printed
    assert "The page is" in printed
    page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert "the larger part of the equalized-odds gap changed from" in page
    card = (tmp_path / "out" / "debiased" / "README.md").read_text(encoding="utf-8")
    assert "- Classes: x, y" in card
    assert "| Equalized odds gap" in card
    assert str(tmp_path) not in card


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("example", "printed"),
    [
        ("trainer_text.py", "accuracy on other texts 1.00"),
        ("own_network.py", "80 training batches seen(.|\n)*accuracy on other pictures (1.00|0.9)"),
        pytest.param("export.py", "largest difference [0-9.]+e(-0[7-9]|[+]00)", marks=pytest.mark.long),  # by rounding
    ],
)
def test_examples_for_texts_and_serving_run(example: str, printed: str, run: Callable[..., str]) -> None:
    assert re.search(printed, run(example))


@pytest.mark.parametrize(
    ("notebook", "printed"),
    [
        pytest.param("notebook_vision.py", "A dimension that is chosen for its picture", marks=pytest.mark.slow),
        ("notebook_text.py", "Groups by trade"),
    ],
)
def test_notebooks_run_as_scripts(notebook: str, printed: str, run: Callable[..., str]) -> None:
    text = run(notebook)  # here a warning is an error
    assert printed in text
    assert "erm did not learn: " in " ".join(text.split())  # so few rows teach nothing


def test_the_notebook_for_colab_has_the_cells_of_the_script_that_is_run_above() -> None:
    made = load_script(EXAMPLES.parent / "tools" / "notebook.py")
    assert made.NOTEBOOK.read_text(encoding="utf-8") == made.notebook(made.SCRIPT.read_text(encoding="utf-8"))
    title, install, *others = json.loads(made.NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert "".join(title["source"]).startswith("# Pictures")
    assert "levelhead[torch]" in "".join(install["source"])
    code = "\n\n".join("".join(cell["source"]) for cell in others if cell["cell_type"] == "code")
    script = [line for line in made.SCRIPT.read_text(encoding="utf-8").splitlines() if line]
    assert [line for line in code.splitlines() if line] == [
        *script[script.index("# %%") + 1 : script.index("# %% [markdown]", 1)],
        *(line for line in script[script.index("# %% [markdown]", 1) :] if not line.startswith("# ")),
    ]
