"""Write a script with cells as a notebook for Colab: python tools/notebook.py [SCRIPT NOTEBOOK].

A cell begins at each ``# %%``. The first cell of the notebook installs levelhead; the others are the script's, unrun.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPT, NOTEBOOK = EXAMPLES / "notebook_vision.py", EXAMPLES / "colab.ipynb"
INSTALL = (
    "# Until levelhead is on the package index: upload the wheel that `make release-check` builds, and type its name\n"
    "# in place of levelhead. Colab has torch already.\n"
    '%pip install --quiet "levelhead[torch]"'
)


def cells(script: str) -> list[tuple[str, str]]:
    """Return the kind (code or markdown) and the text of each cell."""
    found = []
    for head, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", script, flags=re.M):
        text = body.strip("\n")
        if kind := head.strip():
            text = re.sub(r"^# ?", "", text, flags=re.M).removeprefix('"""').removesuffix('"""').strip("\n")
        found.append((kind.strip("[]") or "code", text))
    return found


def notebook(script: str) -> str:
    """Return the notebook's JSON."""
    made: list[dict[str, Any]] = []
    first, *others = cells(script)
    for number, (kind, text) in enumerate([first, ("code", INSTALL), *others]):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell |= {"execution_count": None, "outputs": []} if kind == "code" else {}
        made.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:] or (SCRIPT, NOTEBOOK))
    target.write_text(notebook(source.read_text(encoding="utf-8")), encoding="utf-8")
