"""Learn beside a network that sees only a part of the input that should not decide (Clark et al., EMNLP 2019)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from levelhead.data import Inputs
from levelhead.data.views import View
from levelhead.methods.base import Method
from levelhead.methods.last_layer import last_layer
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.objectives.experts import LearnedProduct, ProductOfExperts
from levelhead.report import marks
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

SMALLEST_WEIGHT = 1e-6
"""Of a row that the bias-only network is sure of: a batch of such rows still has a mean."""


def trained_on(
    lab: Lab, inputs: tuple[Inputs, Inputs], rows: Tensor | None = None, *, layers: int = 1, epochs: int | None = None
) -> Generator[Stage, None, nn.Module]:
    """Yield the stage of a bias-only network, and return the network when it is trained.

    Take the answer in a method's stages: ``network = yield from trained_on(lab, lab.viewed(view))``, and then
    ``lab.predict(network, others)`` for other inputs. Its epoch is the one with the smallest cross-entropy on
    validation, where it sees the same view.

    Args:
        lab: where it is trained.
        inputs: what it sees of the training and of the validation rows, see :meth:`~levelhead.training.lab.Lab.viewed`.
        rows: (some,) int64 training rows, None: all.
        layers: of the recipe's network.
        epochs: None: the recipe's number.
    """
    network = lab.new_auxiliary(layers=layers)
    yield Stage(WeightedCrossEntropy(network), epochs=epochs, rows=rows, select="val_loss", inputs=inputs)
    return network


def cross_fitted(lab: Lab, view: View, *, layers: int = 1, epochs: int | None = None) -> Generator[Stage, None, Tensor]:
    """Yield the stages of two bias-only networks, and return log-probabilities of a view, (train, classes) float32.

    The lab's seed deals the training rows into two halves. Each network is trained on one and asked about the other, so
    that no row's log-probabilities come from a network that was trained on that row. In a method's stages:
    ``bias = yield from cross_fitted(lab, view)``. ``layers`` and ``epochs`` as in :func:`trained_on`.

    Errors: :class:`~levelhead.ConfigError` where half the training rows are fewer than a batch.
    """
    inputs, half = lab.viewed(view), torch.randperm(len(lab.labels), generator=lab.rng) % 2
    if len(half) // 2 < lab.config.batch_size:
        raise ConfigError(
            f"A bias-only network is trained on half of the {len(half)} training rows, fewer than a batch of "
            f"{lab.config.batch_size}: lower train.batch_size."
        )
    answers = []
    for part in (0, 1):
        network = yield from trained_on(lab, inputs, (half == part).nonzero()[:, 0], layers=layers, epochs=epochs)
        answers.append(lab.logits(network, inputs[0]).log_softmax(dim=-1))
    return torch.where((half == 0)[:, None], answers[1], answers[0])


@dataclass(frozen=True)
class BiasOnly(Method):
    """Base of the methods that train beside a bias-only network.

    ``view`` is the part of the input that should not decide, see :class:`~levelhead.data.views.View`: what the user
    knows, and every table says so. Without one the bias-only network sees the whole input, and what sets it apart is
    that it is small (Sanh, Wolf, Belinkov, Rush, ICLR 2021, arXiv:2012.01300). It has ``view_layers`` layers of the
    recipe's network and is trained for ``view_epochs`` epochs (None: the recipe's number), on one half of the rows for
    the other half and the other way round.
    """

    knowledge: ClassVar[str | None] = marks.DECLARES
    view: View = field(default_factory=View)
    view_layers: int = 1
    view_epochs: int | None = None

    def __post_init__(self) -> None:
        check_numbers("method", self, at_least_one=("view_layers", "view_epochs"))

    @property
    def declared_view(self) -> View | None:
        """The view, unless it is the whole input."""
        return None if self.view.kind == "whole" else self.view

    @property
    def told(self) -> str | None:
        """The mark with the view, e.g. "DECLARES hypothesis"; None where the view is the whole input."""
        return None if self.declared_view is None else f"{marks.DECLARES} {self.declared_view}"

    def bias(self, lab: Lab) -> Generator[Stage, None, Tensor]:
        """Yield the stages of the bias-only networks, and return their log-probabilities (train, classes)."""
        return cross_fitted(lab, self.view, layers=self.view_layers, epochs=self.view_epochs)


@dataclass(frozen=True)
class PoE(BiasOnly):
    """Train the product of the kept network and a bias-only one; predict by the kept one alone.

    ``strength`` is lambda, the exponent of the bias-only network's probabilities: 1 in the papers, 0 is ERM.

    Source: Clark, Yatskar, Zettlemoyer, "Don't take the easy way out: ensemble based methods for avoiding known dataset
    biases", EMNLP 2019, arXiv:1909.03683; He, Zha, Wang, "Unlearn dataset bias in natural language inference by fitting
    the residual", 2019, arXiv:1908.10763.
    """

    summary: ClassVar[str] = "product of experts with a network on a declared view (EMNLP 2019)"
    strength: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("method", self, at_least_zero=("strength",))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the bias-only networks, then the kept one beside their answers."""
        bias = yield from self.bias(lab)
        yield Stage(ProductOfExperts(lab.new_model(), bias, self.strength))


@dataclass(frozen=True)
class LearnedMixin(BiasOnly):
    """The product of experts with an exponent of each row, which is learned.

    ``entropy_weight`` weighs the entropy of the bias-only network's probabilities under that exponent, so that the
    network gains nothing by an exponent near 0.

    Source: Clark, Yatskar, Zettlemoyer, EMNLP 2019, arXiv:1909.03683.
    """

    summary: ClassVar[str] = "product of experts with a declared view, learned weights (EMNLP 2019)"
    entropy_weight: float = 0.03

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("method", self, at_least_zero=("entropy_weight",))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the bias-only networks, then the kept one and the exponents."""
        bias = yield from self.bias(lab)
        model = lab.new_model()
        yield Stage(LearnedProduct(model, last_layer(model), bias, self.entropy_weight))


def doubted(bias: Tensor, labels: Tensor) -> Tensor:
    """Return weights 1 - p_i[y_i], scaled to mean 1, (rows,): less for what the view tells already.

    ``bias`` (rows, classes) are log-probabilities, ``labels`` (rows,) int64.

    Examples:
        >>> import torch
        >>> doubted(torch.tensor([[0.7, 0.2, 0.1], [0.9, 0.05, 0.05]]).log(), torch.tensor([0, 0]))
        tensor([1.5000, 0.5000])
    """
    weights = -bias.gather(1, labels[:, None])[:, 0].expm1()
    weights = weights.clamp(min=SMALLEST_WEIGHT)
    return weights / weights.mean()


@dataclass(frozen=True)
class ViewReweight(BiasOnly):
    """Weight each row by 1 - p(y), p being the bias-only network's probability; the mean weight is 1.

    Source: the reweighting of Clark, Yatskar, Zettlemoyer, EMNLP 2019, arXiv:1909.03683.
    """

    summary: ClassVar[str] = "downweights rows that a declared view predicts (EMNLP 2019)"

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the bias-only networks, then the kept one with these weights."""
        bias = yield from self.bias(lab)
        yield Stage(WeightedCrossEntropy(lab.new_model()), weights=doubted(bias, lab.labels))
