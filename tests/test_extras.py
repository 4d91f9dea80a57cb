"""The core, without torch: what it does, and what a name or a command says that needs more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from levelhead.extras import EXTRAS, MissingExtraError, explained

ROOT = Path(__file__).parents[1]
COMPARISON = ROOT / "results" / "portraits_demo.json"
ABSENT = sorted(module for modules in EXTRAS.values() for module in modules)
WITHOUT = (
    "import sys\n"
    "class Absent:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    f"        if name.partition('.')[0] in {ABSENT}:\n"
    "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
    "sys.meta_path.insert(0, Absent())\n"
    "import levelhead as lh\n"
    "from levelhead.cli import main\n"
)


NEEDS_TORCH = "needs torch, which is not installed. Type: pip install 'levelhead[torch]'"


def without(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("module", "extra"), [("torch.nn", "torch"), ("PIL", "torch"), ("openpyxl", "excel"), ("datasets", "hub")]
)
def test_the_error_says_what_to_type(module: str, extra: str) -> None:
    told = explained(ModuleNotFoundError(name=module), "levelhead.attach")
    assert isinstance(told, MissingExtraError)
    assert isinstance(told, ImportError)
    said = f"levelhead.attach needs {module.partition('.')[0]}, which is not installed. Type: pip install "
    assert str(told) == f"{said}'levelhead[{extra}]'"


@pytest.mark.parametrize("name", ["numpi", "", None])
def test_a_module_of_no_extra_is_reported_as_it_was(name: str | None) -> None:
    error = ModuleNotFoundError(name=name)
    assert explained(error, "levelhead.attach") is error


@pytest.mark.slow
def test_a_name_or_a_command_that_needs_torch_says_so(tmp_path: Path) -> None:
    names = ["attach", "fit", "Lab", "compare_models", "pretrain", "lm.load_klaad"]
    commands = ["demo", "list recipes", "compare x", "train x", "lm bench", "table ."]
    done = without(
        f"import operator, os; os.chdir({str(tmp_path)!r})\n"
        f"for name in {names}:\n"
        "    try: operator.attrgetter(name)(lh)\n"
        "    except ImportError as error: print(error)\n"
        f"for line in {commands}:\n"
        "    try: main(line.split())\n"
        "    except SystemExit as end: print(line, end.code)\n"
    )
    assert done.stdout.splitlines() == [
        *(f"levelhead.{name} {NEEDS_TORCH}" for name in names),
        *(f"{line} 2" for line in commands),
    ], done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("Type: pip install 'levelhead[torch]'") == done.stderr.count("levelhead[") > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_first_recipe_of_any_form_is_written_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"some words of row {row},{'ab'[row % 2]},{'mf'[row // 2 % 2]}" for row in range(80)]
    for name in ("reviews", "tables/train", "tables/dev", "tables/test"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(f"{name}.csv").write_text("\n".join(["text,label,gender", *rows]))
    for name in ("cat/0.png", "cat/1.png", "dog/2.png"):
        Path("pets", name).parent.mkdir(parents=True, exist_ok=True)
        Path("pets", name).touch()
    Path("faces.csv").write_text("file,label\npets/cat/0.png,yes\npets/dog/2.png,no\n")
    for form in ("reviews.csv --method dam+jtt", "tables", "pets", "faces.csv"):
        assert without(f"main('init {form}'.split())").stderr == ""
    assert without("main('data check reviews.yaml'.split())").stderr == f"Error: This command {NEEDS_TORCH}\n"
    assert {path.stem for path in tmp_path.glob("*.yaml")} == {"reviews", "tables", "pets", "faces"}


@pytest.mark.slow
def test_the_core_audits_explains_and_writes_pages(tmp_path: Path) -> None:
    done = without(
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "def run(*words):\n"
        "    try: main([*words])\n"
        "    except SystemExit as end: assert not end.code, words\n"
        "run('audit', '--example', '--html', 'a.html', '--json', 'a.json')\n"
        "run('report', 'a.json', '--html', 'b.html')\n"
        f"run('report', {str(COMPARISON)!r}, '--html', 'c.html')\n"
        f"run('table', {str(COMPARISON)!r}, '--html', 'd.html', '--latex', 'd.tex')\n"
        "run('plan', '--gap', '5', '--rate', '0.3')\n"
        "import numpy as np\n"
        "r = np.random.default_rng(0)\n"
        "y, p, g = r.integers(0, 2, 400), r.random(400), r.integers(0, 2, 400)\n"
        "import pandas as pd\n"
        "lh.explain(pd.DataFrame({'y': y, 'p': p, 'g': g}), label='y', score='p', groups=['g']).to_html()\n"
        "audit = lh.audit(y, p > 0.5, sensitive_features=g)\n"
        "audit.to_frame(), audit.to_html()\n"
    )
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"a.html", "a.json", "b.html", "c.html", "d.html", "d.tex"}
