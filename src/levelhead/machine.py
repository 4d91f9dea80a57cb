"""Versions and hardware, as run folders and bug reports hold them; no names of people, machines or folders."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import platform
from collections.abc import Iterable
from pathlib import Path

version = functools.cache(importlib.metadata.version)
"""The version of a package; its files are looked for once."""


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package that is installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = version(package)
    return found


def system() -> str:
    """Return the operating system and the processor's family, e.g. ``Linux x86_64``."""
    return f"{platform.system()} {platform.machine()}"


def cpu_name() -> str:
    """Return the processor's name, or ``unknown``."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
