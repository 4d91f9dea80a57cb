"""The debiased attention mechanism (Lu, Wang, Wang, ICLR 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from levelhead.attention import DebiasConfig, attach
from levelhead.methods.base import Method, Stage
from levelhead.objectives.debiased import DebiasedCrossEntropy

if TYPE_CHECKING:
    from levelhead.engine import Lab


@dataclass(frozen=True)
class DAM(Method):
    """Debias the last layer's attention and align its values; nobody's group is needed.

    The paper's ingredients are switches of ``debias``: normalise only is ``absolute=False, alpha=0``, no alignment is
    ``alpha=0``, alignment only is ``normalize=False``.
    """

    summary: ClassVar[str] = "debiased attention in the last layer, and alignment of its values (ICLR 2024)"
    debias: DebiasConfig = field(default_factory=DebiasConfig)

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model with debiased attention once."""
        model = attach(lab.new_model(), self.debias)
        yield Stage(DebiasedCrossEntropy(model, self.debias.alpha))
