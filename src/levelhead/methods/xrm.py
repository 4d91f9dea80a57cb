"""Cross risk minimisation, then GroupDRO (Pezeshki et al., ICML 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from levelhead.methods.base import Method
from levelhead.methods.clusters import rows_of_classes
from levelhead.methods.falling import warn_of_fall
from levelhead.methods.group_dro import worst_group_stage
from levelhead.methods.last_layer import last_layer
from levelhead.objectives.cross_risk import CrossRisk
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers, listed, quoted

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


def infer_mistakes(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Return part 1 for the rows that one of the twins gets wrong, and part 0 for all others: (rows,) int64.

    ``first`` and ``second`` are the twins' logits (rows, classes), ``labels`` (rows,) the labels as written.

    Source: Pezeshki et al., ICML 2024, arXiv:2309.16748.
    """
    return ((first.argmax(-1) != labels) | (second.argmax(-1) != labels)).long()


@dataclass(frozen=True)
class XRM(Method):
    """Train twins that correct each other's labels; then serve what they get wrong as well as what they get right.

    Each twin learns from one half of the rows, drawn by the seed, for ``twin_epochs`` (None: the recipe's number), and
    may change the labels of the other half. What one of them gets wrong in the end, by the labels as written, is one
    part of its class, all else the other. GroupDRO with ``step`` then trains the kept network on classes and parts,
    each drawn equally often. A class that ends in a single part says that nothing was found in it: that is an error,
    or with ``single_part="keep"`` the class counts as one part.

    The authors draw ten settings of learning rate, batch size and weight decay for the twins and keep the one that
    changes most labels; here the twins have the recipe's.

    Source: Pezeshki, Bouchacourt, Ibrahim, Ballas, Vincent, Lopez-Paz, "Discovering environments with XRM", ICML 2024,
    arXiv:2309.16748.
    """

    summary: ClassVar[str] = "cross risk minimisation: GroupDRO on twin networks' errors (ICML 2024)"
    trains_twice: ClassVar[bool] = True
    infers_parts: ClassVar[bool] = True
    twin_epochs: int | None = None
    step: float = 0.01
    single_part: Literal["refuse", "keep"] = "refuse"

    def __post_init__(self) -> None:
        check_numbers("method", self, at_least_one=("twin_epochs",), positive=("step",))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the twins, infer the parts, train the kept network on them."""
        classes = rows_of_classes(lab.labels, 2, "xrm", lab.validation.class_names)
        first, second = (_with_blank_head(lab.new_auxiliary()) for _ in range(2))
        side = torch.rand(len(lab.labels), generator=lab.rng) < 0.5
        yield Stage(CrossRisk(first, second, lab.labels, side, lab.seed), epochs=self.twin_epochs, select="last")
        parts = infer_mistakes(lab.logits(first), lab.logits(second), lab.labels)
        names = lab.validation.class_names
        self._check({name: parts[rows] for name, rows in zip(names, classes, strict=False)})
        before = lab.validation_accuracy(first)
        inputs, labels = lab.validation.inputs, lab.validation.labels
        held_out = infer_mistakes(lab.predict(first, inputs), lab.predict(second, inputs), labels)
        stage = worst_group_stage(
            lab,
            2 * lab.labels + parts,
            self.step,
            adjustment=0.0,
            balanced=True,
            validation_parts=2 * labels + held_out,
        )
        yield stage
        warn_of_fall("XRM", before, lab.validation_accuracy(stage.objective.model), "compare it with method erm")

    def _check(self, parts: Mapping[str, Tensor]) -> None:
        """Refuse a class, by its name, whose rows are all of one part."""
        alone = [quoted(name) for name, own in parts.items() if len(own.unique()) < 2]
        if alone and self.single_part == "refuse":
            raise ConfigError(
                f"Method xrm found a single part in class {listed(alone)}: the twins get all of its rows right, or all "
                "wrong, and no row contradicts the others. Change method.twin_epochs or train.learning_rate, choose "
                "another method, or let such a class count as one part (method.single_part=keep)."
            )


def _with_blank_head(model: Any) -> nn.Module:
    """Set the last layer of ``model`` to 0, in place, so that a twin begins without an opinion."""
    for parameter in last_layer(model).parameters():
        nn.init.zeros_(parameter)
    network: nn.Module = model
    return network
