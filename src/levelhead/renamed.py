"""The warning for a deprecated name."""

from __future__ import annotations


def deprecated(old: str, new: str) -> str:
    """Return the warning for a deprecated name: as a ``DeprecationWarning`` in Python, on stderr in the command line.

    All deprecated names use this sentence (docs/stability.md). ``old`` and ``new`` are what is typed.
    """
    return f"{old} is deprecated and will be removed in the next minor version. Use {new}."
