"""A finding whose JSON is its fields, written once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from levelhead.metrics.intervals import estimate_to_dict, finite_or_none
from levelhead.metrics.names import by_names, group_name
from levelhead.types import Estimate


class Finding:
    """A dataclass with a JSON: every field under its name, and what :func:`as_json` makes of it.

    ``by_name``: the fields that are a group each, of which the JSON has the name.
    """

    by_name: ClassVar[Sequence[str]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are null with a ``reason``."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        found |= {name: group_name(found[name]) for name in self.by_name if found[name] is not None}
        return {name: as_json(one) for name, one in found.items()}


class Told(Finding, ABC):
    """A finding that puts itself into words, which its JSON ends with."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return what was found in full sentences, the most important first."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are null with a ``reason``."""
        return super().to_dict() | {"sentences": self.sentences()}


def as_json(value: Any) -> Any:
    """Return findings and figures as dicts, columns and groups as their names, and numbers not finite as null."""
    if isinstance(value, Finding):
        return value.to_dict()
    if isinstance(value, Estimate):
        return estimate_to_dict(value)
    if isinstance(value, Mapping):
        return {name: as_json(one) for name, one in by_names(value).items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return finite_or_none(value) if isinstance(value, float) else value
