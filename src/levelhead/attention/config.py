"""The options of debiased attention: :class:`DebiasConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from levelhead.arrays import check_fields
from levelhead.attention.contrastive import AlignmentHead, Ranking, Reduction
from levelhead.attention.presets import PRESETS
from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.types import ConfigError, check_numbers, listed, quoted

Readout = Literal["first", "last", "none"]
NOT_WANTED = "readout_only is False"


@dataclass(frozen=True)
class NotebookOptions:
    """What the authors' notebooks do and the paper does not; the defaults are the paper's.

    Attributes:
        attention_temperature: divides the attention logits of the debiased layer.
        padding_mask: False lets the debiased layer attend to padding, count it in its statistics and select it.
        statistics_gradient: let the gradient through the batch statistics.
        twice: centre |n(x)| a second time, in evaluation alone (see :class:`QueryKeyStandardizer`).
        off_by_one: align the value of the token before each selected one.
        normalize_projection: bring projections to length 1 before the contrastive term.
        contrastive_smoothing: added to every exponential of the contrastive term.
        queue: number of remembered projections that replace the batch in the contrastive term; they carry no
            gradient. 0 means no queue.

    Errors: :class:`~levelhead.ConfigError` for a value that cannot be right.

    Source: the code that the authors of Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, released;
    docs/presets.md says which notebook does what.

    Examples:
        >>> import levelhead as lh
        >>> lh.DebiasConfig(notebook=lh.NotebookOptions(queue=1536)).notebook.padding_mask
        True
        >>> lh.DebiasConfig.preset("released-multinli").notebook.queue
        1536
    """

    attention_temperature: float = 1.0
    padding_mask: bool = True
    statistics_gradient: bool = True
    twice: bool = False
    off_by_one: bool = False
    normalize_projection: bool = True
    contrastive_smoothing: float = 0.0
    queue: int = 0

    def __post_init__(self) -> None:
        check_fields(self, "debias.notebook")
        check_numbers(
            "debias.notebook",
            self,
            positive=("attention_temperature",),
            at_least_zero=("contrastive_smoothing", "queue"),
        )


@dataclass(frozen=True)
class Facts:
    """What :meth:`DebiasConfig.resolved` has to know of a model.

    Attributes:
        kind: ``attach`` for the model's own last layer, ``append`` for a layer on top of it.
        name: of the model's class, for errors.
        readout: the row that the classifier reads, as was proved.
        images: whether the inputs are pictures.
        length: number of tokens, or None where it is not fixed.
        rotary: whether positions are in the queries and keys.
        all_rows: why the layer has to compute all rows whatever the options, or None.
        wanted: False where the plain model was set to compute all rows.
    """

    kind: Literal["attach", "append"]
    name: str
    readout: Readout
    images: bool = False
    length: int | None = None
    rotary: bool = False
    all_rows: str | None = None
    wanted: bool = True


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
        reduction: of the alignment term over a batch's examples: ``mean``, or the ``sum`` of equation 7, with which one
            ``alpha`` weighs as many times more as there are examples.
        temperature: of the contrastive term (tau).
        projection_hidden: width of the hidden layer of the projector; None means the width of one token.
        projection_size: size of its output.
        include_readout: let the readout row select its own value.
        ranking: how a token's attention is ranked: ``mean_probability`` or ``mean_logit`` over heads, or
            ``per_head``, where each head selects for itself.
        readout: row that the classifier reads: ``first``, ``last`` (last real token), ``none`` (no single row), or
            ``auto``, which proves it with noise.
        readout_only: compute the last layer for the row that the classifier reads, and for no other: equal outputs,
            loss and gradients, for less work (docs/performance.md). ``auto`` does where that row is proved to be the
            only one read and the layer is known, unless :func:`levelhead.readout_only` was set to False for the plain
            model. True makes it an error if it cannot be done.
        notebook: what the authors' notebooks do beside the paper (:meth:`preset` sets it); a mapping gives single ones.

    Errors: :class:`~levelhead.ConfigError` for a value that cannot be right.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ; t = 2, tau = 0.07 and a projector of 512 and
    128 as in the authors' code.

    Examples:
        >>> import levelhead as lh
        >>> config = lh.DebiasConfig(top_t=4, alpha=0.5)
        >>> config.statistics  # decided when a model is known
        'auto'
        >>> lh.DebiasConfig.preset("paper", alpha=0.5).ranking
        'mean_logit'
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
    reduction: Reduction = "mean"
    temperature: float = 0.07
    projection_hidden: int | None = 512
    projection_size: int = 128
    include_readout: bool = False
    ranking: Ranking = "mean_probability"
    readout: Literal["auto", "first", "last", "none"] = "auto"
    readout_only: bool | Literal["auto"] = "auto"
    notebook: NotebookOptions = NotebookOptions()

    def __post_init__(self) -> None:
        if isinstance(self.notebook, Mapping):  # as a record or a recipe has it
            known = [field.name for field in fields(NotebookOptions)]
            if unknown := [name for name in self.notebook if name not in known]:
                raise ConfigError(f"debias.notebook has no option {quoted(unknown[0])}; it has {listed(known)}.")
            object.__setattr__(self, "notebook", NotebookOptions(**self.notebook))
        if not isinstance(self.notebook, NotebookOptions):
            raise ConfigError(f"debias.notebook={quoted(self.notebook)}; give NotebookOptions or a mapping of them")
        check_fields(self, "debias")
        check_numbers(
            "debias",
            self,
            at_least_one=("top_t", "projection_hidden", "projection_size"),
            positive=("temperature",),
            at_least_zero=("eps", "alpha"),
        )
        if not 0 < self.momentum <= 1:
            raise ConfigError(f"debias.momentum is {self.momentum}; it must be above 0 and at most 1.")
        if self.notebook.off_by_one and (self.include_readout or self.readout in ("last", "none")):
            raise ConfigError("debias.notebook.off_by_one is defined for readout 'first' without include_readout alone")
        usual = self.notebook.attention_temperature == 1 and self.notebook.padding_mask
        if not self.normalize and self.alpha == 0 and usual:
            raise ConfigError("debias.normalize=False with alpha=0 changes nothing: train the plain model instead")

    def resolved(self, facts: Facts) -> DebiasConfig:
        """Return these options for one model, with everything that is ``auto`` decided.

        Options that are spelled out stay as they are, so that resolving twice changes nothing.

        Errors: :class:`~levelhead.ConfigError` for options that this model cannot have.
        """
        readout, statistics = self._read(facts)
        if statistics == "cls_feature" and readout == "none":
            raise ConfigError(f"debias.statistics='cls_feature', but {facts.name} reads no single row.")
        if self.notebook.off_by_one and readout != "first":
            found = "the last real token" if readout == "last" else "no single row"
            raise ConfigError(
                f"debias.notebook.off_by_one is defined for readout 'first' alone, and {facts.name} reads {found}."
            )
        if statistics == "position" and self.normalize and facts.length is None:
            raise ConfigError(
                "debias.statistics='position' ties the model to one number of tokens: pass example_inputs of that "
                "length."
            )
        because = self.why_all_rows(facts)
        if self.readout_only is True and because is not None:
            raise ConfigError(f"debias.readout_only=True, but {facts.name} has to compute all rows: {because}.")
        absolute = not facts.rotary if self.absolute in ("auto", None) else self.absolute
        return replace(self, statistics=statistics, absolute=absolute, readout=readout, readout_only=because is None)

    def why_all_rows(self, facts: Facts) -> str | None:
        """Say why the debiased layer of a model computes all rows, or None if the readout row is enough."""
        if self.readout_only is False or (self.readout_only == "auto" and not facts.wanted):
            return NOT_WANTED
        if facts.all_rows is not None:
            return facts.all_rows
        readout, statistics = self._read(facts)
        if facts.kind == "attach" and readout != "first":
            return f"debias.readout is {readout!r}, which is not the row that the classifier reads"
        if readout == "none":
            return "no single row is read"
        if self.ranking == "per_head":
            return "debias.ranking is 'per_head'"
        if not self.normalize:
            return None
        if statistics == "feature":
            return "debias.statistics is 'feature', which needs the queries of all rows"
        if self.notebook.twice:
            return "debias.notebook.twice needs all rows"
        if statistics == "position" and facts.kind == "append":
            if readout != "first":
                return "debias.statistics is 'position', and the last real token stands at another one in each text"
            # Asked for by name only: its running statistics are then those of one row.
            if self.readout_only == "auto":
                return "debias.statistics is 'position', and readout_only is not set"
        return None

    def _read(self, facts: Facts) -> tuple[Readout, Literal["position", "cls_feature", "feature"]]:
        """Return the row that is read, and the statistics that are kept."""
        readout = facts.readout if self.readout == "auto" else self.readout
        if self.statistics != "auto":
            return readout, self.statistics
        return readout, "position" if facts.images else "feature" if readout == "none" else "cls_feature"

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
            statistics_gradient=self.notebook.statistics_gradient,
            twice=self.notebook.twice,
        )

    def alignment_head(self, value_width: int) -> AlignmentHead:
        """Build the projector for ``value_width`` features per token (all heads)."""
        return AlignmentHead(
            self.top_t * value_width,
            self.projection_hidden or value_width,
            self.projection_size,
            normalize=self.notebook.normalize_projection,
            queue=self.notebook.queue,
        )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> DebiasConfig:
        """Return the options that reproduce the paper (``paper``) or one of the authors' notebooks, by name.

        ``released-vision``, ``released-hatexplain``, ``released-multinli`` and ``released-dino`` repeat the deviations
        from the paper that are in the released code; docs/presets.md lists them. ``changes`` replace single options;
        a mapping ``notebook`` replaces single ones there.
        """
        if name not in PRESETS:
            raise ConfigError(f"There is no preset {name!r}. Known: {', '.join(PRESETS)}.")
        preset = cls(**PRESETS[name].debias)
        if isinstance(changes.get("notebook"), Mapping):
            changes["notebook"] = replace(preset.notebook, **changes["notebook"])
        return replace(preset, **changes)
