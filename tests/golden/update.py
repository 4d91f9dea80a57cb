"""Write the golden files again, and print what changed: PYTHONPATH=src python tests/golden/update.py [CASE ...]."""

from __future__ import annotations

import contextlib
import difflib
import sys
import tempfile

from cases import CASES
from kept import FOLDER, path_of, written


def main(names: list[str]) -> None:
    for name in names or list(CASES):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            new = written(CASES[name]())
        old = path_of(name).read_text(encoding="utf-8") if path_of(name).exists() else ""
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, name, n=2))
        path_of(name).write_text(new, encoding="utf-8")
    for path in FOLDER.glob("*.txt"):
        if path.stem not in CASES:
            print(f"removed {path.stem}")
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
