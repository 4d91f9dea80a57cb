"""Learning from failure (Nam et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from levelhead.methods.base import Method
from levelhead.objectives.failure import LearningFromFailure
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class LfF(Method):
    """Train a network on what is easy, and beside it the kept one on what the first fails at.

    ``q`` is the exponent of the generalised cross-entropy, ``decay`` the share of the old average of a row's loss.
    ``form``: ``surrogate`` is the loss of the authors' code, ``exact`` that of their paper, larger by 1/q in gradient.

    Source: Nam, Cha, Ahn, Lee, Shin, "Learning from failure: training debiased classifier from biased classifier",
    NeurIPS 2020, arXiv:2007.02561.
    """

    summary: ClassVar[str] = "learning from failure: a biased network's errors weight the examples (NeurIPS 2020)"
    q: float = 0.7
    decay: float = 0.7
    form: Literal["exact", "surrogate"] = "surrogate"

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1 or not 0 <= self.decay < 1:
            raise ConfigError("method lff needs 0 < q <= 1 and 0 <= decay < 1")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train both networks together once."""
        model, biased = lab.new_model(), lab.new_auxiliary()
        yield Stage(LearningFromFailure(model, biased, lab.labels, q=self.q, decay=self.decay, form=self.form))
