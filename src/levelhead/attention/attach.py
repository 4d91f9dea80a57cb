"""Debias the last attention layer of a Hugging Face classifier in place: ``attach`` and ``detach``.

Follows Lu, Wang, Wang, ICLR 2024, for models trained from scratch: the last encoder layer is debiased and its loss
becomes task + alpha * alignment. Nothing is looked up by class name: one run of the model finds its attention
modules, and noise on the output of the last layer proves which row the classifier reads.
"""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from levelhead.attention import interface, one_row
from levelhead.attention.aligning import Tap, align, check_labels, refuse_lost_labels, training_pass
from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.objectives.contrastive import AlignmentHead, Selection
from levelhead.types import ConfigError, LevelheadError, UnsupportedModelError

AnyModel = TypeVar("AnyModel", bound=nn.Module)

# Statistics stay float32 in a bfloat16 model. Not just "debias": the counts would become float as well.
KEEP_FLOAT32 = ["debias.*mean", "debias.*variance", "debias.*deviation"]


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

    ``attention_temperature`` to ``queue`` serve one purpose: to reproduce the authors' notebooks (:meth:`preset`,
    docs/presets.md).

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


def attach(
    model: AnyModel, config: DebiasConfig | None = None, *, example_inputs: Mapping[str, Any] | None = None
) -> AnyModel:
    """Debias the last attention layer of ``model`` in place and return it.

    A model from ``append_encoder(..., debias=None)`` gets its appended layer debiased.

    The model stays an ordinary Hugging Face model: train it with any trainer, in training mode with labels its
    loss is task + alpha * alignment (in evaluation the task loss alone), ``save_pretrained`` keeps everything and
    :func:`from_pretrained` loads it. Made for models trained from scratch: a pretrained layer loses what its
    queries and keys mean until it is trained again, and a warning says so.

    Args:
        model: a Hugging Face classifier with one integer class per example.
        config: options; None means the defaults.
        example_inputs: one batch without padding, for the run that finds the attention modules, where it cannot be
            guessed from the model's configuration.

    Errors: :class:`~levelhead.UnsupportedModelError` when the attention of this model cannot be reached;
    :class:`~levelhead.ConfigError` for a model that is debiased already, or not a single-label classifier. The
    model is unchanged after an error.

    Source: Lu, Wang, Wang, ICLR 2024.
    """
    config = config or DebiasConfig()
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a Hugging Face model, and attach debiases no other. In a network of your "
            "own, use levelhead.attention.DebiasedBlock as the last layer."
        )
    if is_debiased(model):
        raise ConfigError(
            f"{type(model).__name__} is debiased already: call detach(model) first to change its options."
        )
    if getattr(model.config, "levelhead", None):  # append_encoder(..., debias=None) made it
        return cast(AnyModel, model.debias(config))
    _check_task(model)
    before = vars(model).get("one_row")
    if before is not None and before.wanted is False and config.cls_only == "auto":
        config = replace(config, cls_only=False)
    found, config, because = _probe(model, config, example_inputs)
    if getattr(model.config, "_name_or_path", ""):
        warnings.warn(
            f"{type(model).__name__} looks pretrained ({model.config._name_or_path}). attach changes what the queries "
            "and keys of its last layer mean, so its predictions are worth nothing until it is trained further. "
            "For a pretrained model, append_encoder(backbone, num_labels) adds a debiased layer on top instead; if "
            "you do attach, calibrate(model, loader) sets the running statistics to those of your data.",
            UserWarning,
            stacklevel=2,
        )
    record = {"kind": "attach", "debias": asdict(config), **found}
    parts = _parts(model, record)  # whatever cannot be built fails here, before the model is changed
    _all_rows(model)
    _own_config(model)
    model.config.levelhead = record
    model.__class__ = debiased_class(cast(Any, type(model)))
    _put(model, parts, because)
    return cast(AnyModel, model)


def read_one_row(
    model: AnyModel, wanted: bool | Literal["auto"] = "auto", *, example_inputs: Mapping[str, Any] | None = None
) -> AnyModel:
    """Compute the last layer of a plain classifier for the row that it reads, in place, and return the model.

    This is what ``DebiasConfig.cls_only`` does to a debiased model, done to its plain twin, for a fair comparison of
    costs. Outputs and gradients stay equal to rounding; with dropout they stay equal in distribution. All rows are
    computed where hidden states or attentions are asked for, where somebody hooks into the layer, with LoRA, quantised
    projections or gradient checkpointing; ``print(model)`` says what is done. What is saved is a plain model. A
    model of :func:`append_encoder` needs no such call: it computes one row by itself.

    Args:
        model: a Hugging Face classifier that is not debiased.
        wanted: ``auto`` computes all rows where one is not enough, True makes that an error, False undoes an earlier
            call, and holds for a later :func:`attach` with ``cls_only="auto"``.
        example_inputs: as for :func:`attach`.

    Errors: :class:`~levelhead.ConfigError` for a debiased model, or where ``wanted`` is True and one row is not enough.
    """
    if wanted not in (True, False, "auto"):
        raise ConfigError(f"wanted={wanted!r}; choose True, False or 'auto'")
    if not isinstance(model, PreTrainedModel) or getattr(model.config, "levelhead", None):
        raise ConfigError(
            f"{type(model).__name__} is not a plain Hugging Face model: for a debiased one, set DebiasConfig.cls_only."
        )
    _all_rows(model)
    if wanted is False:
        model.one_row = one_row.OneRow(False, because=NOT_WANTED)
        return cast(AnyModel, model)
    path: str = ""
    because: str | None = one_row.UNKNOWN
    if any(one_row.family_of(module) for module in model.modules()):
        with _as_probed(model):
            inputs = probe_inputs(model, example_inputs)
            with interface.recorded() as calls:
                model(**inputs)
            attention = next(path for path, module in model.named_modules() if module is calls[-1].module)
            path, because = _one_row(model, attention, inputs, calls[-1].query[2])
    if wanted is True and because is not None:
        raise ConfigError(f"The last layer of {type(model).__name__} has to compute all rows: {because}.")
    one_row.install(model, model.get_submodule(path), one_row.OneRow(wanted, path, because))
    if because is None:
        model.__class__ = one_row_class(cast(Any, type(model)))
    return cast(AnyModel, model)


NOT_WANTED = "cls_only is False"


def _all_rows(model: Any) -> None:
    """Undo :func:`read_one_row`."""
    state = one_row.remove(model)
    if state is not None and state.because is None:
        model.__class__ = type(model).__mro__[1]


def _one_row(
    model: PreTrainedModel, attention: str, inputs: dict[str, Any], tokens: int, readout: str | None = None
) -> tuple[str, str | None]:
    """Return the path of the last layer, and why it has to compute all rows, or None.

    ``readout`` is the row that was proved to be read, if that was done; it is done here only for a layer that is known.
    """
    try:
        layer = _layer_of(model, attention)
    except UnsupportedModelError:
        return "", one_row.UNKNOWN
    path = next(path for path, module in model.named_modules() if module is layer)
    if readout is None and one_row.family_of(layer) is not None:
        readout = _find_readout(model, attention, inputs, tokens)
    return path, one_row.why_all_rows(layer, readout or "none")


@functools.cache
def one_row_class(base: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Subclass ``base`` so that its forward lets the last layer compute one row; the same class each time."""
    signature = inspect.signature(base.forward)

    class OneRowModel(base):
        @functools.wraps(base.forward)
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with one_row.reading_one_row(self, signature.bind(self, *args, **kwargs).arguments):
                return super().forward(*args, **kwargs)

        def extra_repr(self) -> str:
            return one_row.describe(self)

    OneRowModel.__name__, OneRowModel.__qualname__ = base.__name__, base.__qualname__
    OneRowModel.__module__ = base.__module__
    return OneRowModel


def is_debiased(model: Any) -> bool:
    """Return whether a network (of any kind) carries debiased attention made by this package."""
    record = getattr(getattr(model, "config", None), "levelhead", None)
    return bool(record and record["debias"] is not None)


def detach(model: AnyModel) -> AnyModel:
    """Undo :func:`attach` in place: class, attention and config become plain again; trained weights stay.

    The projector and the running statistics are dropped, and all rows are computed again. Raises
    :class:`~levelhead.ConfigError` for a model that :func:`attach` did not make.
    """
    record = getattr(getattr(model, "config", None), "levelhead", None)
    if not record or record["kind"] != "attach":
        raise ConfigError(f"{type(model).__name__} was not made by attach: there is nothing to detach.")
    attention = model.get_submodule(record["attention"])
    one_row.remove(model)
    del attention.tap
    for owner, name in ((attention, "debias"), (model, "alignment_head")):
        if name in owner._modules:
            delattr(owner, name)
    model.__class__ = type(model).__mro__[1]
    interface.switch(model, record["attention_implementation"])
    delattr(model.config, "levelhead")
    return model


@functools.cache
def debiased_class(base: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Subclass ``base`` so that its forward adds alignment and commits statistics; the same class each time.

    Its ``__init__`` rebuilds what ``config.levelhead`` records, without a probe, so that the inherited
    ``from_pretrained`` loads every saved weight.
    """
    signature = inspect.signature(base.forward)

    class Debiased(base):
        # Trainer would otherwise divide the task term, but not the alignment, by the accumulation steps.
        accepts_loss_kwargs = False
        # transformers reads this list by name.
        _keep_in_fp32_modules_strict = [*(base._keep_in_fp32_modules_strict or []), *KEEP_FLOAT32]  # noqa: RUF012

        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(copy.deepcopy(config), *args, **kwargs)
            _put(self, _parts(self, self.config.levelhead), None)

        @functools.wraps(base.forward)
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(self, *args, **kwargs).arguments
            labels = arguments.get("labels", arguments.get("kwargs", {}).get("labels"))
            with one_row.reading_one_row(self, arguments):
                return forward_with_alignment(self, labels, lambda: super(Debiased, self).forward(*args, **kwargs))

        def extra_repr(self) -> str:
            return one_row.describe(self)

    # Pipelines, the saved "architectures" entry and plain AutoModel loading all go by the name of the class.
    Debiased.__name__, Debiased.__qualname__, Debiased.__module__ = base.__name__, base.__qualname__, base.__module__
    return Debiased


def forward_with_alignment(model: PreTrainedModel, labels: Tensor | None, forward: Any) -> Any:
    """Run ``forward()``, commit the running statistics once, and add the alignment term in training.

    The result is that of ``forward()``: a ``ModelOutput`` or a tuple whose first element is the loss when there are
    labels.
    """
    if getattr(model, "_is_replica", False):
        raise LevelheadError(
            "torch.nn.DataParallel (which the Hugging Face Trainer uses when it sees several GPUs) would give each "
            "replica statistics of its own share of the batch and lose most of them. Let the process see one GPU: "
            "CUDA_VISIBLE_DEVICES=0."
        )
    with training_pass(model) as tap:
        alpha = tap.alpha
        if labels is not None and alpha:
            check_labels(labels)
        output = forward()
    if not model.training or not alpha:
        return output
    if labels is None:
        refuse_lost_labels(tap, output[0])
        return output
    added = alpha * align(model, tap, labels)
    if isinstance(output, tuple):
        return (output[0] + added, *output[1:])
    output["loss"] = output["loss"] + added
    return output


@dataclass(frozen=True)
class _Parts:
    """What :func:`attach` adds to a model, and the attention module that gets it."""

    attention: nn.Module
    tap: Tap
    debias: QueryKeyStandardizer | None
    alignment_head: AlignmentHead | None


def _parts(model: PreTrainedModel, record: dict[str, Any]) -> _Parts:
    """Build what ``record`` describes, or say why that cannot be; ``model`` stays as it is."""
    config = DebiasConfig(**record["debias"])  # a record of an earlier version lacks the newer options
    attention = model.get_submodule(record["attention"])
    if not config.padding_mask and getattr(attention, "is_causal", False):
        raise ConfigError("debias.padding_mask=False would also take away the causal mask of this decoder")
    if config.selection == "per_head" and record["key_heads"] != record["heads"]:
        raise ConfigError("debias.selection='per_head' needs as many key heads as query heads")
    # Not next(model.parameters()): an embedding may be kept in another type or on another device.
    like = next(parameter for parameter in attention.parameters() if parameter.is_floating_point())
    standardizer, head = None, None
    if config.normalize:
        standardizer = config.standardizer(
            record["heads"], record["head_size"], key_heads=record["key_heads"], length=record["length"]
        )
        standardizer.to(like.device).train(attention.training)
    if config.alpha:
        head = config.alignment_head(record["key_heads"] * record["value_size"])
        head.to(like.device, like.dtype).train(model.training)
    return _Parts(attention, config.tap(), standardizer, head)


def _put(model: PreTrainedModel, parts: _Parts, because: str | None) -> None:
    """Put the parts in their places and switch the attention; ``because`` says why all rows are computed, if known."""
    parts.attention.tap = parts.tap  # type: ignore[assignment]
    if parts.debias is not None:
        parts.attention.debias = parts.debias
    if parts.alignment_head is not None:
        model.alignment_head = parts.alignment_head
    interface.switch(model, interface.NAME)
    record = model.config.levelhead
    wanted = record["debias"].get("cls_only")
    if wanted is not True:  # a record of an earlier version lacks it
        model.one_row = one_row.OneRow(False, because=because or NOT_WANTED)
        return
    layer = _layer_of(model, record["attention"])
    path = next(path for path, module in model.named_modules() if module is layer)
    if one_row.family_of(layer) is None:
        because = f"{type(layer).__name__} is built otherwise in this version of transformers"
    one_row.install(model, layer, one_row.OneRow(True, path, because))


def _check_task(model: PreTrainedModel) -> None:
    config = model.config
    if getattr(config, "problem_type", None) in ("regression", "multi_label_classification"):
        raise ConfigError(
            f"config.problem_type is {config.problem_type!r}: alignment needs one class per example. Debiased "
            "attention is built for single-label classification only."
        )
    if "labels" not in inspect.signature(type(model).forward).parameters:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a classifier (its forward takes no labels): pass the "
            "ForSequenceClassification or ForImageClassification model, or use append_encoder(backbone, num_labels)."
        )
    if config.num_labels < 2:
        raise ConfigError("config.num_labels is 1, which transformers trains as a regression; use at least 2 classes.")


def _own_config(model: PreTrainedModel) -> None:
    """Give ``model`` copies of its configs: another network may have been built from the same objects."""
    copies: dict[int, Any] = {}
    copy.deepcopy(model.config, copies)
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            module.config = copies.get(id(config)) or copy.deepcopy(config, copies)


def probe_inputs(model: PreTrainedModel, example_inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make one example that ``model`` can run on, or move the given one to its device (labels left out)."""
    name, device = type(model).__name__, model.device
    if example_inputs is not None:
        return {
            key: value.to(device) if isinstance(value, Tensor) else value
            for key, value in example_inputs.items()
            if key not in ("labels", "label")
        }
    config = model.config
    if model.main_input_name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None)
        if size is not None:
            height, width = (size, size) if isinstance(size, int) else size
            shape = (1, getattr(vision, "num_channels", 3), height, width)
            generator = torch.Generator().manual_seed(0)
            return {"pixel_values": torch.randn(shape, generator=generator).to(device, model.dtype)}
    elif model.main_input_name == "input_ids":
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        length = min(8, getattr(text, "max_position_embeddings", 8) or 8)
        padding = getattr(text, "pad_token_id", None)
        tokens = [token for token in range(text.vocab_size) if token != padding][-length:]
        return {"input_ids": torch.tensor([tokens], device=device)}
    raise UnsupportedModelError(
        f"No example input for {name} can be guessed from its configuration: pass example_inputs={{...}}, one batch "
        "as the model takes it."
    )


@contextmanager
def _as_probed(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode and recording attention for the time of the block, whatever happens in it."""
    modes = {module: module.training for module in model.modules()}
    configs = {
        id(module.config): module.config
        for module in model.modules()
        if hasattr(getattr(module, "config", None), "_attn_implementation_internal")
    }
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    model.eval()
    interface.switch(model, interface.NAME)
    try:
        with torch.no_grad():
            yield
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]
        for module, training in modes.items():
            module.training = training


def _probe(
    model: PreTrainedModel, config: DebiasConfig, example_inputs: Mapping[str, Any] | None
) -> tuple[dict[str, Any], DebiasConfig, str | None]:
    """Run the model, find its last attention module and its readout row, and resolve what is ``auto``.

    The last of what is returned says why its last layer computes all rows, or is None.
    """
    name = type(model).__name__
    way_out = "For this model, append_encoder(backbone, num_labels) puts a debiased layer on top instead."
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is an encoder-decoder, which attach does not debias yet. {way_out}")
    inputs = probe_inputs(model, example_inputs)
    batch = next(value.shape[0] for value in inputs.values() if isinstance(value, Tensor))
    implementation = model.config._attn_implementation
    with _as_probed(model):
        with interface.recorded() as calls:
            try:
                model(**inputs)
            except ValueError as error:
                if "sdpa" not in str(error):
                    raise
                raise UnsupportedModelError(
                    f"{name} needs an attention that sdpa, to which levelhead delegates, cannot do ({error}). {way_out}"
                ) from error
        if not calls:
            raise UnsupportedModelError(
                f"{name} computes attention by itself, not through the attention interface of transformers, so its "
                f"queries and keys cannot be reached. {way_out}"
            )
        last = calls[-1]
        if sum(call.module is last.module for call in calls) > 1:
            raise UnsupportedModelError(
                f"{name} shares one attention module over several depths, so its last layer cannot be debiased "
                f"alone. {way_out}"
            )
        if last.query[0] != batch or last.query[2] != last.key[2]:
            raise UnsupportedModelError(
                f"The last attention of {name} does not see one sequence per example (windows or cross-attention): "
                f"query {tuple(last.query)}, key {tuple(last.key)} for a batch of {batch}. {way_out}"
            )
        # A window wider than the probe's input shows in no mask, only on the module.
        if not config.padding_mask and (last.local or getattr(last.module, "sliding_window", None)):
            raise ConfigError(
                f"debias.padding_mask=False would take the whole mask away, and in the last layer of {name} it also "
                "keeps tokens from others that are no padding (a sliding window, or causality). Leave padding_mask "
                f"at True. {way_out}"
            )
        path = next(path for path, module in model.named_modules() if module is last.module)
        readout: Any = config.readout
        proved = _find_readout(model, path, inputs, last.query[2]) if readout == "auto" else None
        readout = proved or readout
        because: str | None = NOT_WANTED
        if config.cls_only is not False:
            because = _one_row(model, path, inputs, last.query[2], proved)[1]

    statistics = config.statistics
    if statistics == "auto":
        image = model.main_input_name == "pixel_values"
        statistics = "position" if image else "feature" if readout == "none" else "cls_feature"
    if statistics == "cls_feature" and readout == "none":
        raise ConfigError(f"debias.statistics='cls_feature', but the classifier of {name} reads no single row.")
    check_off_by_one(config, readout, f"the classifier of {name}")
    if statistics == "position" and model.main_input_name != "pixel_values" and example_inputs is None:
        raise ConfigError(
            "debias.statistics='position' ties the model to one number of tokens: pass example_inputs of that length."
        )
    text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    rotary = bool(getattr(text, "rope_parameters", None) or getattr(text, "rope_theta", None))
    absolute = not rotary if config.absolute in ("auto", None) else config.absolute
    if rotary and config.normalize and config.absolute is not False:
        choice = (
            "as absolute=True asks (presets set it as well). absolute=False keeps relative position."
            if absolute
            else "so absolute=False is used. Set absolute=False to choose it yourself."
        )
        warnings.warn(
            f"{name} uses rotary position embeddings: absolute values of rotated keys destroy relative position, "
            + choice,
            UserWarning,
            stacklevel=3,
        )
    if because is None:
        because = one_row.why_pooled(replace(config, statistics=statistics, readout=readout))
    if config.cls_only is True and because is not None:
        raise ConfigError(f"debias.cls_only=True, but the last layer of {name} has to compute all rows: {because}.")
    found = {
        "attention": path,
        "attention_implementation": implementation,
        "heads": last.query[1],
        "key_heads": last.key[1],
        "head_size": last.query[3],
        "value_size": last.value[3],
        "length": last.query[2] if statistics == "position" else None,
    }
    config = replace(config, statistics=statistics, absolute=absolute, readout=readout, cls_only=because is None)
    return found, config, because


def check_off_by_one(config: DebiasConfig, readout: str, reader: str) -> None:
    """Refuse ``off_by_one`` where the probe found that ``reader`` does not read the first row."""
    if config.off_by_one and readout != "first":
        found = "the last real token" if readout == "last" else "no single row"
        raise ConfigError(f"debias.off_by_one is defined for readout 'first' alone, and {reader} reads {found}.")


def _find_readout(model: PreTrainedModel, path: str, inputs: dict[str, Any], tokens: int) -> str:
    """Prove which row of the last layer's output the classifier reads: ``first``, ``last`` or ``none``.

    Noise on all rows but one leaves the logits bit-equal only if no other row is read.
    """
    layer = _layer_of(model, path)
    kept: int | None = None

    def disturb(module: nn.Module, args: Any, output: Any) -> Any:
        if kept is None:
            return output
        hidden = output[0] if isinstance(output, tuple) else output
        generator = torch.Generator().manual_seed(1)
        noise = torch.randn(hidden.shape, generator=generator).to(hidden)
        noise[:, kept] = 0
        return (hidden + noise, *output[1:]) if isinstance(output, tuple) else hidden + noise

    handle = layer.register_forward_hook(disturb)
    try:
        clean = model(**inputs)[0]
        for row, name in ((0, "first"), (tokens - 1, "last")):
            kept = row
            if torch.equal(model(**inputs)[0], clean):
                return name
    finally:
        handle.remove()
    return "none"


def _layer_of(model: nn.Module, path: str) -> nn.Module:
    """Find the layer around an attention module: the innermost member of a ``ModuleList`` on its path."""
    parts = path.split(".")
    for depth in range(len(parts), 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: depth - 1])), nn.ModuleList):
            return model.get_submodule(".".join(parts[:depth]))
    raise UnsupportedModelError(
        f"{type(model).__name__} keeps its layers in no ModuleList, so its last layer ({path}) cannot be told apart. "
        "Pass DebiasConfig(readout=...) to say which row its classifier reads."
    )
