"""The debiased attention mechanism (Lu, Wang, Wang, ICLR 2024)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from levelhead.attention import DebiasConfig, attach
from levelhead.attention.attach import is_debiased
from levelhead.methods.base import Method
from levelhead.methods.erm import ERM
from levelhead.objectives.debiased import WithAlignment
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from levelhead.data.views import View
    from levelhead.training.lab import Lab
    from levelhead.types import Batch

FLAGS = (
    "uses_groups",
    "uses_validation_groups",
    "knowledge",
    "uses_people",
    "changes_pixels",
    "infers_parts",
    "trains_twice",
    "changes_at_end",
)


@dataclass(frozen=True)
class DAM(Method):
    """Debias the last layer's attention and align its values; no groups are needed.

    The paper's ingredients are switches of ``debias``: normalise only is ``absolute=False, alpha=0``, no alignment is
    ``alpha=0``, alignment only is ``normalize=False``. ``base`` is the method that trains the debiased network, plain
    cross-entropy in the paper; in a recipe, ``name: dam+jtt`` with JTT's options under ``base``. Only the network that
    is kept is debiased: scouts, teachers and adversaries are plain.

    Source: Lu, Wang, Wang, "Debiasing attention mechanism in transformer without demographics", ICLR 2024,
    openreview.net/forum?id=jLIUfrAcMQ.
    """

    summary: ClassVar[str] = "debiased attention in the last layer, and alignment of its values (ICLR 2024)"
    debias: DebiasConfig = field(default_factory=DebiasConfig)
    base: Method = field(default_factory=ERM)

    def __post_init__(self) -> None:
        if isinstance(self.base, DAM):
            raise ConfigError("method dam+dam: attention can be debiased once; choose another base.")
        # On the instance: the class itself is blind, and dam+group-dro is not.
        for flag in FLAGS:
            object.__setattr__(self, flag, getattr(self.base, flag))

    @property
    def told(self) -> str | None:
        """What the base method gets."""
        return self.base.told

    @property
    def refits(self) -> Method | None:
        """Debiased attention on what the base method refits."""
        return None if self.base.refits is None else replace(self, base=self.base.refits)

    @property
    def declared_view(self) -> View | None:
        """What the base method is given as undecisive."""
        return self.base.declared_view

    @property
    def group_splits(self) -> tuple[str, ...]:
        """The splits whose sensitive column is opened for the base method."""
        return self.base.group_splits

    def validation_groups(self, read: Callable[[], Tensor], rows: int, seed: int) -> Tensor | None:
        """Return the groups of validation rows that the base method gets."""
        return self.base.validation_groups(read, rows, seed)

    def pairs(self, lab: Lab) -> Callable[[Batch], Tensor] | None:
        """Return what weights an anchor's contrast in a batch, as :func:`levelhead.alignment` takes it; None: equal."""
        return None

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Run the base method's stages with debiased networks, each loss with the alignment of its network."""
        pairs = self.pairs(lab)
        with lab.prepared(lambda model: attach(model, self.debias)):
            for stage in self.base.stages(lab):
                debiased = is_debiased(stage.objective.model)
                objective = WithAlignment(stage.objective, self.debias.alpha, pairs) if debiased else stage.objective
                yield replace(stage, objective=objective)
