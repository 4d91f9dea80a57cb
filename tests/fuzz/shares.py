"""How many of the drawn cases run: the first third of each series, or all with LEVELHEAD_FUZZ=full (``make fuzz``)."""

from __future__ import annotations

import os

if os.environ.get("LEVELHEAD_FUZZ", "third") not in ("third", "full"):
    raise ValueError(f"LEVELHEAD_FUZZ is {os.environ['LEVELHEAD_FUZZ']!r}; it may be 'third' or 'full'")


def cases(count: int) -> range:
    """Return the numbers of the cases to run, of a series of ``count``: always the same, so that a failure repeats."""
    return range(count if os.environ.get("LEVELHEAD_FUZZ") == "full" else -(-count // 3))
