"""Parts of the package import downwards alone: no upward arrow, no circle, no private name of another part."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def check(source: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "imports.py"), "--source", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_imports_run_downwards() -> None:
    result = check(ROOT / "src" / "levelhead")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 upward, 0 circles, 0 private names" in result.stdout


TREES = [
    ({"metrics/a.py": "from levelhead.data.b import c"}, "upward: metrics -> data"),
    ({"metrics/a.py": "def f():\n    import levelhead.data.b"}, "upward: metrics -> data"),
    ({"metrics/a.py": "from levelhead import data"}, "upward: metrics -> data"),
    ({"metrics/a.py": "from ..data.b import c"}, "upward: metrics -> data"),
    ({"metrics/a.py": "import levelhead"}, "upward: metrics -> __init__"),
    ({"data/a.py": "from levelhead.metrics.b import _c"}, "private: data/a.py:1 takes metrics.b._c"),
    ({"data/a.py": "from levelhead.metrics import _b"}, "private: data/a.py:1 takes metrics._b"),
    ({"unplanned/a.py": "from levelhead.metrics import b"}, "upward: unplanned -> metrics"),
    (
        {"metrics/a.py": "from levelhead.data import a", "data/a.py": "from levelhead.metrics import a"},
        "circle: data, metrics",
    ),
    ({"metrics/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from levelhead.data import b"}, None),
]
"""Files, and what the tool says of them; for type checkers alone everything may be imported."""


@pytest.mark.parametrize(("files", "said"), TREES)
def test_what_must_not_be_is_found(tmp_path: Path, files: dict[str, str], said: str | None) -> None:
    source = tmp_path / "levelhead"
    for name, content in ({"__init__.py": "", "metrics/b.py": "", "data/b.py": ""} | files).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content, encoding="utf-8")
    result = check(source)
    assert result.returncode == (said is not None)
    assert (said or "") in result.stdout


def test_the_picture_of_the_rooms_is_that_of_today(tmp_path: Path) -> None:
    """docs/images/house.svg; where rooms or arrows changed: python tools/house.py docs/images/house.svg."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "house.py"), str(tmp_path / "house.svg")], check=True)
    picture = (tmp_path / "house.svg").read_text(encoding="utf-8")
    assert picture == (ROOT / "docs" / "images" / "house.svg").read_text(encoding="utf-8")
    rooms = {file.parent.name for file in (ROOT / "src" / "levelhead").glob("*/__init__.py")}
    rooms |= {"lh.*", "files that every room may import"}
    assert set(re.findall(r'class="name"[^>]*>([^<]*)<', picture)) == rooms
    assert "></text>" not in picture, "each room has its words in tools/house.py"


def test_what_the_architecture_says_where_it_is_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `([\w/]+\.py)`: `(\w+)` \|", page, re.MULTILINE)
    assert len(rows) >= 12
    for file, name in rows:
        text = (ROOT / "src" / "levelhead" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(def |class )?{name}\b", text, re.MULTILINE), f"{file} has no {name}"
