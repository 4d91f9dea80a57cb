"""Names that go: what a deprecated one says."""

from __future__ import annotations


def deprecated(old: str, new: str) -> str:
    """Return what a deprecated name says: as a ``DeprecationWarning`` in Python, on stderr in the command line.

    It is the one sentence for names that go (docs/stability.md). ``old`` and ``new`` are what is typed.
    """
    return f"{old} is deprecated and goes with the next minor version. Use {new}."
