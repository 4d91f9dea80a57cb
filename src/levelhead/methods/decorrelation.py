"""Take the group out of a score along one direction, found from all validation rows: a reference that sees groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from levelhead.methods.few_label import without_group
from levelhead.methods.last_layer import FloatArray, HeldOut, LastLayerMethod
from levelhead.types import ConfigError


@dataclass(frozen=True)
class Decorrelation(LastLayerMethod):
    """Do what :class:`~levelhead.methods.FewLabel` does with the groups of all validation rows.

    It shows what more labels would buy, and is marked ORACLE. ``budget`` is the share of the validation rows by which
    accuracy may fall.

    Source: derived here, as few-label is, from Ravfogel et al., ACL 2020, arXiv:2004.07667.
    """

    summary: ClassVar[str] = "few-label with all validation groups; a reference that sees groups"
    uses_validation_groups: ClassVar[bool] = True
    budget: float = 0.005

    def __post_init__(self) -> None:
        if not 0 < self.budget < 1:
            raise ConfigError("method decorrelation needs 0 < budget < 1")

    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the layer without the direction that distinguishes groups."""
        return without_group(held, self.budget)
