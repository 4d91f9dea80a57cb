"""``levelhead info``: what a bug report needs."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from levelhead._version import __version__, commit
from levelhead.machine import cpu_name, system, versions
from levelhead.terminal import Terminal


def info_command() -> None:
    """Print versions, hardware and data folders, for a bug report.

    It prints folders from your environment: remove what you do not want to share.
    """
    known = commit()
    lines = {
        "levelhead": __version__ + ("" if known is None else f" (commit {known})"),
        "Python": f"{platform.python_version()}, {system()}",
        "CPU": f"{cpu_name()}, {os.cpu_count()} cores{_memory()}",
        "GPU": _gpus(),
    }
    packages = _packages()
    there = versions(packages)
    lines["packages"] = ", ".join(f"{name} {version}" for name, version in there.items())
    lines["absent"] = ", ".join(name for name in packages if name not in there) or "none"
    for name in ("LEVELHEAD_DATA", "LEVELHEAD_MODELS", "LEVELHEAD_CACHE"):
        lines[name] = _folder(os.environ.get(name, ""))
    width = max(map(len, lines))
    terminal = Terminal()
    for name, text in lines.items():
        terminal.print(f"{name:<{width}}  {text}", highlight=False, markup=False, soft_wrap=True)


def _packages() -> list[str]:
    """Return the packages that pyproject.toml names, but for those of tests, checks and pages."""
    try:
        required = requires("levelhead") or ()
    except PackageNotFoundError:  # run from its source, without installation
        required = ["numpy", "pandas", "scipy", "torch", "transformers"]
    ours = ("'test'", "'docs'", "'check'", "'dev'", "'release'", "'coverage'")
    named = [one for one in required if not one.endswith(ours)]
    plain = {one.partition(";")[0].strip().split(">")[0].split("[")[0] for one in named}
    return sorted(plain - {"levelhead"})


def _memory() -> str:
    if not hasattr(os, "sysconf"):
        return ""
    return f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory"


def _gpus() -> str:
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"unknown, torch cannot be imported: {error}"
    names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    return f"{', '.join(names)}; CUDA {torch.version.cuda}" if names else "none that torch sees"


def _folder(place: str) -> str:
    if not place:
        return "not set"
    return place if place == "off" or Path(place).is_dir() else f"{place}, which is not there"
