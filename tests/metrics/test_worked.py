"""Figures that were worked by hand or published: worked.txt beside this file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import special
from test_proxies import world
from test_worst_case import opportunity

from levelhead.metrics import between, contrasts, implied, names, proxies, ranking, responses, signed, worst_case
from sessions import check, renew

TEXT = Path(__file__).with_name("worked.txt")


def show(*values: object) -> None:
    """Print numbers to six digits."""
    rounded = [np.round(np.asarray(one, np.float64), 6) + 0.0 for one in values]
    print(*[one.tolist() for one in rounded], sep="  ")


MODULES = (between, contrasts, implied, names, proxies, ranking, responses, signed, worst_case)
NAMES = {name: one for module in MODULES for name, one in vars(module).items() if not name.startswith("__")}
NAMES |= {"show": show, "world": world, "opportunity": opportunity, "special": special}


def test_they_are_what_was_worked() -> None:
    check(TEXT, NAMES)


if __name__ == "__main__":
    renew(TEXT, NAMES)
