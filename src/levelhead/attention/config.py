"""The options of debiased attention: :class:`DebiasConfig`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from levelhead.attention.aligning import Tap
from levelhead.attention.contrastive import AlignmentHead, Selection
from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.types import ConfigError


@dataclass(frozen=True)
class DebiasConfig:
    """How attention is debiased and values are aligned.

    Attributes:
        top_t: number of most attended tokens whose values are aligned.
        statistics: ``position``, ``cls_feature`` or ``feature`` (see :class:`QueryKeyStandardizer`); ``auto`` is
            ``position`` for images and ``cls_feature`` for text (``feature`` where no single row is read).
        normalize: debias at all; False leaves queries and keys alone and keeps alignment (the ablation).
        absolute: take absolute values. ``auto`` (or None) does, except for rotary position embeddings: the
            absolute value would destroy what a rotated key says about its position.
        scale: divide by the deviation.
        unbiased: variance by n - 1.
        running: running average of the ``variance``, or of the deviation (``std``, equation 6 to the letter).
        momentum: share of the newest batch in the running averages.
        eps: added to the variance.
        alpha: weight of the alignment term; 0 builds no alignment at all.
        temperature: of the contrastive term (tau).
        projection_hidden: width of the hidden layer of the projector; None means the width of one token.
        projection_size: size of its output.
        include_readout: let the readout row select its own value.
        selection: how a token's attention is ranked: ``mean_probability`` or ``mean_logit`` over heads, or
            ``per_head``, where each head selects for itself.
        readout: row that the classifier reads: ``first``, ``last`` (last real token), ``none`` (no single row), or
            ``auto``, which proves it with noise.
        attention_temperature: divides the attention logits of the debiased layer.
        padding_mask: False lets the debiased layer attend to padding, count it in its statistics and select it.
        statistics_gradient: let the gradient through the batch statistics.
        twice: centre |n(x)| a second time, in evaluation alone (see :class:`QueryKeyStandardizer`).
        off_by_one: align the value of the token before each selected one.
        normalize_projection: bring projections to length 1 before the contrastive term.
        contrastive_smoothing: added to every exponential of the contrastive term.
        queue: number of remembered projections that replace the batch in the contrastive term; they carry no
            gradient. 0 means no queue.
        cls_only: compute the last layer for the row that the classifier reads, and for no other: equal outputs, loss
            and gradients, for less work (docs/performance.md). ``auto`` does where that row is proved to be the only
            one read and the layer is known, unless :func:`~levelhead.attention.read_one_row` was told False for the
            plain model. True makes it an error if it cannot be done.

    The eight before the last are there to reproduce what the authors' notebooks do (:meth:`preset`, docs/presets.md).

    Errors: :class:`~levelhead.ConfigError` for a value that cannot be right.

    Source: Lu, Wang, Wang, ICLR 2024; t = 2, tau = 0.07 and a projector of 512 and 128 as in the authors' code.
    """

    top_t: int = 2
    statistics: Literal["auto", "position", "cls_feature", "feature"] = "auto"
    normalize: bool = True
    absolute: bool | Literal["auto"] | None = "auto"
    scale: bool = True
    unbiased: bool = False
    running: Literal["variance", "std"] = "variance"
    momentum: float = 0.1
    eps: float = 1e-5
    alpha: float = 1.0
    temperature: float = 0.07
    projection_hidden: int | None = 512
    projection_size: int = 128
    include_readout: bool = False
    selection: Selection = "mean_probability"
    readout: Literal["auto", "first", "last", "none"] = "auto"
    attention_temperature: float = 1.0
    padding_mask: bool = True
    statistics_gradient: bool = True
    twice: bool = False
    off_by_one: bool = False
    normalize_projection: bool = True
    contrastive_smoothing: float = 0.0
    queue: int = 0
    cls_only: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("statistics", ("auto", "position", "cls_feature", "feature")),
            ("absolute", (True, False, "auto", None)),
            ("running", ("variance", "std")),
            ("readout", ("auto", "first", "last", "none")),
            ("selection", ("mean_probability", "mean_logit", "per_head")),
            ("cls_only", (True, False, "auto")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"debias.{name}={getattr(self, name)!r}; choose one of {allowed}")
        for name, least in (("top_t", 1), ("projection_hidden", 1), ("projection_size", 1), ("queue", 0)):
            value = getattr(self, name)
            if name == "projection_hidden" and value is None:
                continue
            if not isinstance(value, int) or value < least:
                raise ConfigError(f"debias.{name}={value!r}; it must be a whole number of at least {least}")
        if not 0 < self.momentum <= 1:
            raise ConfigError(f"debias.momentum={self.momentum}; it must be above 0 and at most 1")
        if not self.eps >= 0:
            raise ConfigError(f"debias.eps={self.eps}; it must not be negative")
        if not 0 <= self.alpha < float("inf"):
            raise ConfigError(f"debias.alpha={self.alpha}; it must be finite and not negative")
        for name in ("temperature", "attention_temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"debias.{name}={getattr(self, name)}; it must be finite and above 0")
        if not 0 <= self.contrastive_smoothing < float("inf"):
            raise ConfigError(
                f"debias.contrastive_smoothing={self.contrastive_smoothing}; it must be finite and not negative"
            )
        if self.off_by_one and (self.include_readout or self.readout in ("last", "none")):
            raise ConfigError("debias.off_by_one is defined for readout 'first' without include_readout alone")
        if self.statistics == "cls_feature" and self.readout == "none":
            raise ConfigError("debias.statistics='cls_feature' needs a readout row, and debias.readout is 'none'")
        if not self.normalize and self.alpha == 0 and self.attention_temperature == 1 and self.padding_mask:
            raise ConfigError("debias.normalize=False with alpha=0 changes nothing: train the plain model instead")

    def standardizer(
        self, heads: int, head_size: int, *, key_heads: int | None = None, length: int | None = None
    ) -> QueryKeyStandardizer:
        """Build the standardizer that this (resolved) config describes."""
        return QueryKeyStandardizer(
            heads,
            head_size,
            num_key_value_heads=key_heads,
            length=length,
            statistics=cast(Any, self.statistics),
            absolute=bool(self.absolute),
            scale=self.scale,
            unbiased=self.unbiased,
            running=self.running,
            momentum=self.momentum,
            eps=self.eps,
            statistics_gradient=self.statistics_gradient,
            twice=self.twice,
        )

    def alignment_head(self, value_width: int) -> AlignmentHead:
        """Build the projector for ``value_width`` features per token (all heads)."""
        return AlignmentHead(
            self.top_t * value_width,
            self.projection_hidden or value_width,
            self.projection_size,
            normalize=self.normalize_projection,
            queue=self.queue,
        )

    def tap(self) -> Tap:
        """Build the tap that reads the debiased layer for alignment."""
        return Tap(self.readout, self)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> DebiasConfig:
        """Return the options that reproduce the paper (``paper``) or one of the authors' notebooks, by name.

        ``released-vision``, ``released-hatexplain``, ``released-multinli`` and ``released-dino`` repeat the deviations
        from the paper that are in the released code; docs/presets.md lists them. ``changes`` replace single options.
        """
        from levelhead.attention.presets import PRESETS, unknown_preset

        if name not in PRESETS:
            raise unknown_preset(name)
        return replace(PRESETS[name].debias, **changes)
