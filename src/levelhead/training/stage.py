"""A stage of a method: an objective, and the rows, weights and groups that it is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from levelhead.data.base import Inputs
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from torch import Tensor

    from levelhead.objectives.base import Objective


@dataclass(frozen=True)
class Stage:
    """One pass of the training loop.

    ``epochs`` and ``select`` override the recipe's; ``weights`` (train,) float and ``groups`` (train,) int64 reach the
    objective through the batch. Groups given here are either inferred by the method itself or, where the method
    declares ``uses_groups``, read from ``lab.groups``. ``rows`` (any length) int64 are the training rows of an epoch,
    with repetitions where a row counts several times; ``sampling`` (train,) float instead draws as many rows as there
    are, with replacement, with chances in these proportions. ``inputs`` are what the network sees of the training and
    of the validation rows instead of the lab's own inputs. ``validation_parts`` (validation,) int64 are parts of the
    validation split that the method itself has inferred, for the selector ``val_worst_inferred``. ``scored`` False
    leaves the validation split alone: for a network that answers another question than the labels, whose last epoch is
    then kept.

    Errors: :class:`~levelhead.ConfigError` for ``rows`` and ``sampling`` at once, for a stage that is not scored and
    selects another epoch than the last, and for weights that the objective cannot use.
    """

    objective: Objective
    epochs: int | None = None
    weights: Tensor | None = None
    groups: Tensor | None = None
    rows: Tensor | None = None
    sampling: Tensor | None = None
    inputs: tuple[Inputs, Inputs] | None = None
    validation_parts: Tensor | None = None
    select: str | None = None
    scored: bool = True

    def __post_init__(self) -> None:
        check_numbers("Stage", self, at_least_one=("epochs",))
        if self.rows is not None and self.sampling is not None:
            raise ConfigError(
                "A Stage got both rows and sampling, and each says which rows an epoch has: give rows to take them one "
                "by one, or sampling to draw them by chance."
            )
        if not self.scored and self.select != "last":
            raise ConfigError(f"A Stage that is not scored keeps its last epoch: select='last', not {self.select!r}.")
        if self.weights is not None:
            self.objective.check_weights(self.weights)
