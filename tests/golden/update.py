"""Write the golden files again, and print what changed: PYTHONPATH=src python tests/golden/update.py [CASE ...]."""

from __future__ import annotations

import difflib
import sys

from cases import AS_ARRAYS, CASES
from kept import FOLDER, joined, written


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or [name for name in CASES if name not in AS_ARRAYS]:
        path, new = FOLDER / f"{name}.txt", joined(written(name))
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, name, n=2))
        path.write_text(new, encoding="utf-8")
    for path in FOLDER.glob("*.txt"):
        if path.stem not in CASES:
            print(f"removed {path.stem}")
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
