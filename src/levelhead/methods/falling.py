"""Say when a method costs much accuracy: labels alone do not tell whether a shortcut is given up for it."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

FALL = 0.1  # of the accuracy on validation, from which a warning is due


def warn_of_fall(method: str, before: float, after: float, advice: str) -> None:
    """Log a warning where the accuracy on validation falls by more than 10 points.

    Args:
        method: its name, for the warning.
        before: the accuracy of the method's first network, a fraction.
        after: that of the network that is kept.
        advice: what else to compare.
    """
    if after < before - FALL:
        logger.warning(
            "%s lowers the accuracy on validation from %.1f%% to %.1f%%. Without a shortcut in the data it upweights "
            "rows that are merely hard: %s",
            method,
            100 * before,
            100 * after,
            advice,
        )
