"""Names that were renamed: what a deprecated one says, and options of saved files, which are read for good."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from levelhead.types import ConfigError


def deprecated(old: str, new: str) -> str:
    """Return what a deprecated name says: as a ``DeprecationWarning`` in Python, on stderr in the command line.

    It is the one sentence for names that go (docs/stability.md). ``old`` and ``new`` are what is typed.
    """
    return f"{old} is deprecated and goes with the next minor version. Use {new}."


def renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of nested options in which each key of ``names`` has the name that ``names`` gives it.

    Args:
        options: mappings within mappings, as read from YAML or JSON.
        names: from the earlier dotted key to the present one, such as ``queue`` to ``notebook.queue``.

    Errors: :class:`~levelhead.ConfigError` where an option stands under both names.
    """
    result = copy.deepcopy(dict(options))
    for earlier, present in names.items():
        *parents, last = earlier.split(".")
        place: Any = result
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last not in place:
            continue
        value = place.pop(last)
        *parents, last = present.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last in place:
            raise ConfigError(f"{earlier} is the earlier name of {present}, and both are given: leave one of them out.")
        place[last] = value
    return result
