"""Write the commit into wheels and source distributions, for `levelhead --version`."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "src/levelhead"


class Commit(BuildHookInterface[Any]):
    """Puts the commit beside ``_version.py``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to what is built; an editable installation asks git instead."""
        root = Path(self.root)
        found = runpy.run_path(str(root / SOURCE / "_version.py"))["commit"]()
        if version == "editable" or found is None or (root / SOURCE / "_commit.txt").exists():
            return
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "_commit.txt"
        file.write_text(f"{found}\n", encoding="ascii")
        build_data["force_include"][str(file)] = f"{SOURCE if self.target_name == 'sdist' else 'levelhead'}/_commit.txt"
