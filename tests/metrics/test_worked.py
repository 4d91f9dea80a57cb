"""Figures that were worked by hand or published: worked.txt beside this file."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special
from test_proxies import world
from test_worst_case import opportunity

from levelhead import metrics
from sessions import check, renew

TEXT = Path(__file__).with_name("worked.txt")


def show(*values: object) -> None:
    """Print numbers to six digits."""
    rounded = [np.round(np.asarray(one, np.float64), 6) + 0.0 for one in values]
    print(*[one.tolist() for one in rounded], sep="  ")


NAMES: dict[str, Any] = {}
for one in pkgutil.iter_modules(metrics.__path__):
    NAMES |= vars(importlib.import_module(f"levelhead.metrics.{one.name}"))
NAMES |= {"show": show, "world": world, "opportunity": opportunity, "special": special}


def test_they_are_what_was_worked() -> None:
    check(TEXT, NAMES)


if __name__ == "__main__":
    renew(TEXT, NAMES)
