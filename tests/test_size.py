"""The tool that counts what each room holds."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from scripts import load_script

ROOT = Path(__file__).parents[1]
LONG = 'def long():\n    """Say it.\n\n    In words."""\n' + "    a = 1\n" * 61
WIDE = "class A:\n    def _wide(self, " + ", ".join(f"x{at}" for at in range(16)) + "):\n        pass\n"


def counted(source: Path, *options: str) -> list[list[str]]:
    command = [sys.executable, str(ROOT / "tools" / "size.py"), "--source", str(source), *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.replace(",", "").split() for line in printed.splitlines()]


def test_rooms_are_counted(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "metrics/a.py": '"""A room."""\n\n# Why.\nimport levelhead.metrics.b\n\nX = 1\n"""What it is."""\n',
        "metrics/b.py": "def f():\n    from levelhead.metrics import a\n" + LONG + WIDE,
        "data/c.py": "X = '''\n# no comment\n'''\n" + "\n" * 500,
    }
    for name, text in files.items():
        (tmp_path / "levelhead" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "levelhead" / name).write_text(text, encoding="utf-8")
    lines = {line[0]: line[1:] for line in counted(tmp_path / "levelhead", "--list") if line}
    # files, lines, code, files over 500, functions over 60, over 100, over 15 parameters public and not, circles
    assert lines["metrics"] == ["2", "77", "69", "0", "1", "0", "0", "1", "1"]
    assert lines["data"] == ["1", "503", "3", "1", "0", "0", "0", "0", "0"]
    assert lines["all"] == ["4", "580", "72", "1", "1", "0", "0", "1", "1"]
    assert lines["metrics.a"] == ["metrics.b"]
    assert lines["metrics/b.py:3"] == ["long", "62"]


def test_it_counts_the_package() -> None:
    total = counted(ROOT / "src" / "levelhead")[-1]
    assert total[0] == "all"
    assert total[-1] == "0", "two modules of a room import each other: tools/size.py --list names them"
    assert int(total[2]) == sum(
        file.read_text(encoding="utf-8").count("\n") for file in (ROOT / "src" / "levelhead").rglob("*.py")
    )


def test_one_line_too_many_breaks_the_ceiling(tmp_path: Path) -> None:
    size = load_script(ROOT / "tools" / "size.py")
    (room := tmp_path / "data").mkdir()
    (room / "a.py").write_text("x = 1\n")
    (room / "b.py").write_text("x = 2\n")

    def counted() -> dict[str, dict[str, int]]:
        return {"code": size.rooms_of_code(tmp_path), "options": {"audit": 30}}

    ceilings = tomllib.loads(size.lowered(counted(), {"code": {"data": 9, "gone": 7}}))
    assert ceilings == {"code": {"data": 2, "all": 2}, "options": {"audit": 30}}
    assert size.over(counted(), ceilings) == []
    (room / "b.py").write_text("x = 2\n# Why.\ny = 3\n")
    assert size.over(counted(), ceilings) == ["code: all is 3, 2 at most", "code: data is 3, 2 at most"]
    assert tomllib.loads(size.lowered(counted(), ceilings)) == ceilings  # only falls
    assert size.over({"code": {"data": 1}}, {"code": {"gone": 1}}) == [
        "code: data has no ceiling",
        "code: gone is gone; delete its ceiling",
    ]


def test_each_number_has_a_ceiling() -> None:
    ceilings = tomllib.loads((ROOT / "tools" / "ceilings.toml").read_text(encoding="utf-8"))
    assert set(ceilings) == {"code", "outside", "options", "public", "words"}
    assert set(ceilings["code"]) >= {"all", "auditing", "metrics", "lm"}
    assert set(ceilings["options"]) >= {"all", "audit", "lm bench"}


def test_tests_lie_as_the_package_does() -> None:
    """A folder of tests is called after a room; pytest imports test files by their base name, so each has its own."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert len({file.name for file in files}) == len(files)
    rooms = {file.parent.relative_to(ROOT / "tests").as_posix() for file in files}
    own = {".", "fuzz", "golden", "attention/families"}
    assert not [room for room in rooms - own if not (ROOT / "src" / "levelhead" / room / "__init__.py").is_file()]
