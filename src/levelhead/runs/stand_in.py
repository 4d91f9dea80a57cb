"""Stand-ins for a run's own method and data set: results are read without running code that a run names.

A run of a class that is not ours records what tables and cards show of it, under ``own_code`` in its metrics.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from levelhead.data import Card, DataSet, Examples, Groups, Split
from levelhead.data.folds import Fold
from levelhead.methods import Method
from levelhead.methods.dam import DAM
from levelhead.registry import Registry
from levelhead.training.lab import Lab
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

NAME = re.compile(r"[\w.:-]+")
"""What a name in a run's config.yaml may consist of."""
NOT_RECORDED = "not recorded by this run"

Chosen = Callable[[Registry[Any], str, Mapping[str, Any]], Any]
"""Makes a stand-in of a name and options; None where the class itself is to be loaded."""


@dataclass(frozen=True)
class StandIn:
    """What a run recorded of a class: its ``name`` and ``options``.

    ``changed`` names the options that differ from the defaults, with dots.
    """

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()

    def _refuse(self) -> NoReturn:
        raise ConfigError(f"This needs the code of {self.name}, which reading a run does not run.")


@dataclass(frozen=True)
class StandInMethod(StandIn, Method):
    """A run's own method, with ``was_told``, whether it ``saw_groups`` and ``ends_with_change``; it trains nothing."""

    was_told: str | None = None
    saw_groups: bool = False
    ends_with_change: bool = False

    def __post_init__(self) -> None:
        # The run was trained, so that its selector suited its method.
        flags = {"uses_groups": self.saw_groups, "infers_parts": True, "changes_at_end": self.ends_with_change}
        for flag, value in flags.items():
            object.__setattr__(self, flag, value)

    @property
    def told(self) -> str | None:
        """The recorded knowledge of the run's method."""
        return self.was_told

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Raise :class:`~levelhead.types.ConfigError`."""
        self._refuse()


@dataclass(frozen=True)
class StandInData(StandIn, DataSet):
    """A run's own data set: it has a name and options, and no rows."""

    def check(self) -> None:
        """Raise :class:`~levelhead.types.ConfigError`."""
        self._refuse()

    def examples(self, split: Split) -> Examples:
        """Raise :class:`~levelhead.types.ConfigError`."""
        self._refuse()

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Raise :class:`~levelhead.types.ConfigError`."""
        self._refuse()


def named(value: Method | DataSet) -> Any:
    """Return the method under debiased attention, or the data set that a fold is of; else ``value`` itself."""
    if type(value) is DAM:  # a class derived from it has a name of its own
        return value.base
    return value.data if isinstance(value, Fold) else value


def method_stand_in(name: str, options: Mapping[str, Any], metrics: Mapping[str, Any]) -> StandInMethod:
    """Return the stand-in of a method, from a run's metrics.json."""
    recorded, told, oracle = recorded_of(metrics, "method"), metrics.get("told"), metrics["oracle"] or ""
    if not isinstance(told, str | None) or not isinstance(oracle, str):
        raise TypeError("told and oracle are texts, or null")
    ends = bool(recorded.get("changes_at_end"))
    return StandInMethod(name, options, changed_of(recorded), told, "method" in oracle, ends)


def recorded_of(metrics: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return what a run recorded of its own ``method`` or ``data``; empty where it recorded nothing."""
    return dict(dict(metrics.get("own_code") or {}).get(part) or {})


def changed_of(recorded: Mapping[str, Any]) -> frozenset[str]:
    """Return the options that differ from the defaults."""
    return frozenset(map(str, recorded.get("changed", ())))


def recorded_card(name: str, recorded: Mapping[str, Any]) -> Card:
    """Return the card of a run's own data set; what the run does not record is said to be so."""
    known = {"title": name, "url": ""} | dict(recorded.get("card") or {})
    return Card(**{one.name: str(known.get(one.name, NOT_RECORDED)) for one in fields(Card)})
