"""What is refused of what users write themselves: classes that are no methods, and texts that are no recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelhead.plain_yaml import LONGEST_DOCUMENT, MOST_NODES
from levelhead.runs.recipe import build_experiment
from refusals import Row, check, rows
from test_plugins import FOCAL

OWN = {
    "focal": FOCAL,
    "raises": "\n1 / 0\n",
    "syntax": "class\n",
    "script": "raise SystemExit(3)\n",
    "wrong": FOCAL
    + """
class NoDataclass(Focal):
    beta: float = 1.0

@dataclass(frozen=True)
class Abstract(Method):
    summary: ClassVar[str] = "x"

@dataclass(frozen=True)
class Nameless(Method):
    def stages(self, lab):
        yield from ()

@dataclass(frozen=True)
class Bare(Method):
    gamma: float
    summary: ClassVar[str] = "x"

    def stages(self, lab):
        yield from ()

@dataclass(frozen=True)
class Named(Focal):
    name: str = "x"

@dataclass(frozen=True)
class Untyped(Focal):
    beta: "Nothing" = 1.0
""",
}


@pytest.fixture
def modules(folder_of_its_own: None, own_modules: None) -> None:
    for name, code in OWN.items():
        Path(f"{name}.py").write_text(code)
    Path("texts.csv").write_text("text,label\n" + '"the diagnosis of patient 4711",1\n' * 7000)
    Path("bomb.yaml").write_text(bomb(12))


def method(name: str) -> None:
    build_experiment({"data": {"name": "portraits"}, "method": {"name": name}})


def bomb(levels: int, width: int = 9) -> str:
    """Return lists of aliases of lists: few lines, and ``width`` to the power of ``levels`` values."""
    lines = ["a0: &a0 [" + ", ".join(["x"] * width) + "]"]
    lines += [f"a{at}: &a{at} [" + ", ".join([f"*a{at - 1}"] * width) + "]" for at in range(1, levels)]
    return "\n".join(lines)


MANY = "[" + "1, " * MOST_NODES + "1]"
LONG = "x" * (LONGEST_DOCUMENT + 1)


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, modules: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
