"""Fairness by knowledge distillation (Chai, Jang, Wang, NeurIPS 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelhead.methods.base import Method
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.objectives.distillation import Distillation
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class KD(Method):
    """Overfit a bigger teacher, then train on its probabilities.

    ``soft`` is the weight of the teacher's probabilities (lambda; Lu, Wang, Wang, ICLR 2024, use 1 and try .3 and .7).
    ``teacher_layers`` and ``teacher_epochs`` (None: three quarters of the student's, as in their notebook) make the
    teacher, whose last epoch is taken: it is meant to overfit. ``temperature`` divides its logits.

    Source: Chai, Jang, Wang, "Fairness without demographics through knowledge distillation", NeurIPS 2022,
    openreview.net/forum?id=8gjwWnN5pfy.
    """

    summary: ClassVar[str] = "knowledge distillation: learn from an overfitted, bigger teacher (NeurIPS 2022)"
    trains_twice: ClassVar[bool] = True
    soft: float = 1.0
    teacher_layers: int = 12
    teacher_epochs: int | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.soft <= 1 or self.teacher_layers < 1 or self.temperature <= 0:
            raise ConfigError("method kd needs 0 <= soft <= 1, teacher_layers >= 1 and temperature > 0")
        check_numbers("method", self, at_least_one=("teacher_epochs",))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the teacher, take its probabilities once, train the student."""
        teacher = lab.new_auxiliary(layers=self.teacher_layers)
        epochs = self.teacher_epochs or max(1, round(0.75 * lab.config.epochs))
        yield Stage(WeightedCrossEntropy(teacher), epochs=epochs, select="last")
        probabilities = (lab.logits(teacher) / self.temperature).softmax(-1)
        yield Stage(Distillation(lab.new_model(), probabilities, self.soft))
