"""The version of levelhead, and the commit of the clone that it runs from or was built from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__version__ = "0.1.0"
BUILT = Path(__file__).with_name("_commit.txt")  # in a wheel: what `hatch_build.py` wrote there


def commit() -> str | None:
    """Return the commit, e.g. ``fd9e42f`` or ``fd9e42f, changed``; None where it is not known.

    That is where git is absent or does not answer within two seconds, and in what was built without git.
    """
    root = Path(__file__).resolve().parents[2]
    try:
        if BUILT.exists():
            return BUILT.read_text("ascii").strip() or None
        if not (root / ".git").exists() or 'name = "levelhead"' not in (root / "pyproject.toml").read_text("utf-8"):
            return None
        # Of this clone, whatever repository the environment speaks of (as it does in a git hook).
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty=, changed"],
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=2,
        )
        return described.stdout.decode("ascii").strip() or None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
