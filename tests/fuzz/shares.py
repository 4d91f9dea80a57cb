"""What drawn hostile input shares: how many of its cases run, and how each may end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from levelhead.types import LONGEST_MESSAGE, LevelheadError, visible

SECONDS = 10
"""Of the processor, that a case may take."""

if os.environ.get("LEVELHEAD_FUZZ", "some") not in ("some", "full"):
    raise ValueError(f"LEVELHEAD_FUZZ is {os.environ['LEVELHEAD_FUZZ']!r}; it may be 'some' or 'full'")


def cases(count: int, share: int = 3) -> range:
    """Return the numbers of the cases to run of ``count``: the first of ``share``, or all with LEVELHEAD_FUZZ=full.

    They are always the same, so that a failure repeats; ``make fuzz`` runs all.
    """
    return range(count if os.environ.get("LEVELHEAD_FUZZ") == "full" else -(-count // share))


def attempt(case: str, action: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of a case, or the one short sentence in which levelhead refuses it; soon. All else fails."""
    found, said, began = None, "", time.process_time()
    try:
        found = action()
    except LevelheadError as error:
        said = str(error)
        assert 0 < len(said) <= LONGEST_MESSAGE, (case, said)
        assert visible(said) == said, (case, said)
        assert "Traceback" not in said, (case, said)
        assert " object at 0x" not in said, (case, said)
    except Exception as error:
        raise AssertionError(f"{case} ended in {type(error).__name__}: {str(error)[:300]}") from error
    assert time.process_time() - began < SECONDS, case
    return found, said
