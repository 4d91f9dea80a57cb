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
from dataclasses import asdict
from numbers import Integral
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from levelhead.arrays import checked
from levelhead.attention import interface, one_row
from levelhead.attention.aligning import Tap, align, check_labels, training_pass
from levelhead.attention.config import NOT_WANTED, DebiasConfig
from levelhead.attention.probe import (
    as_probed,
    attended,
    layer_of,
    one_row_class,
    path_of,
    probe_attention,
    probe_inputs,
    readout_layer,
)
from levelhead.attention.saved_names import in_own_names
from levelhead.loading import OWN_TYPE, known_classifiers
from levelhead.types import ConfigError, LevelheadError, UnsupportedModelError

MOST_CLASSES = 1_000_000  # transformers makes a dictionary of their names before any weight

AnyModel = TypeVar("AnyModel", bound=nn.Module)

# Statistics stay float32 in a bfloat16 model. Not just "debias": the counts would become float as well.
KEEP_FLOAT32 = ["debias.*mean", "debias.*variance", "debias.*deviation"]


@checked
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

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import torch
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> model = lh.attach(network).train()
        >>> batch = {"pixel_values": torch.randn(4, 3, 224, 224), "labels": torch.tensor([0, 1, 0, 1])}
        >>> model(**batch).loss.backward()  # the loss is task + alpha * alignment
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
    found, config, because = probe_attention(model, config, example_inputs)
    if getattr(model.config, "_name_or_path", ""):
        warnings.warn(
            f"{type(model).__name__} looks pretrained ({model.config._name_or_path}). attach changes what the queries "
            "and keys of its last layer mean, so its predictions are useless until it is trained further. "
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


@checked
def readout_only(
    model: AnyModel, wanted: bool | Literal["auto"] = "auto", *, example_inputs: Mapping[str, Any] | None = None
) -> AnyModel:
    """Compute the last layer of a plain classifier for the row that it reads, in place, and return the model.

    This is what ``DebiasConfig.readout_only`` does to a debiased model, done to its plain twin, for a fair comparison
    of costs. Outputs and gradients stay equal to rounding; with dropout they stay equal in distribution. All rows are
    computed where hidden states or attentions are requested, where somebody hooks into the layer, with LoRA, quantised
    projections or gradient checkpointing; ``print(model)`` says what is done. What is saved is a plain model. A
    model of :func:`append_encoder` needs no such call: it computes one row alone.

    Args:
        model: a Hugging Face classifier that is not debiased.
        wanted: ``auto`` computes all rows where one is not enough, True makes that an error, False undoes an earlier
            call, and holds for a later :func:`attach` with ``readout_only="auto"``.
        example_inputs: as for :func:`attach`.

    Errors: :class:`~levelhead.ConfigError` for a debiased model, or where ``wanted`` is True and one row is not enough.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> print(lh.describe(lh.readout_only(network)))
        ViTForImageClassification: nothing is debiased
          last layer   computes ...
          parameters   220,626 trainable of 220,626 (100%), 0 added by levelhead
    """
    if not isinstance(model, PreTrainedModel) or getattr(model.config, "levelhead", None):
        raise ConfigError(
            f"{type(model).__name__} is not a plain Hugging Face model: for a debiased one, set "
            "DebiasConfig.readout_only."
        )
    _all_rows(model)
    if wanted is False:
        model.one_row = one_row.OneRow(False, because=NOT_WANTED)
        return cast(AnyModel, model)
    path: str = ""
    because: str | None = one_row.UNKNOWN
    if any(one_row.family_of(module) for module in model.modules()):
        with as_probed(model):
            inputs = probe_inputs(model, example_inputs)
            (last,) = attended(model, inputs, most=1)
            path, because = readout_layer(model, path_of(model, last.module), inputs, last.raw_query.shape[2])
    if wanted is True and because is not None:
        raise ConfigError(f"The last layer of {type(model).__name__} has to compute all rows: {because}.")
    one_row.install(model, model.get_submodule(path), one_row.OneRow(wanted, path, because))
    if because is None:
        model.__class__ = one_row_class(cast(Any, type(model)))
    return cast(AnyModel, model)


def _all_rows(model: Any) -> None:
    """Undo :func:`readout_only`."""
    state = one_row.remove(model)
    if state is not None and state.because is None:
        model.__class__ = type(model).__mro__[1]


def is_debiased(model: Any) -> bool:
    """Return whether a network (of any kind) carries debiased attention made by this package."""
    record = getattr(getattr(model, "config", None), "levelhead", None)
    return bool(record and record["debias"] is not None)


@checked
def detach(model: AnyModel) -> AnyModel:
    """Undo :func:`attach` in place: class, attention and config become plain again; trained weights stay.

    The projector and the running statistics are dropped, and all rows are computed again. Raises
    :class:`~levelhead.ConfigError` for a model that :func:`attach` did not make.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> model = lh.detach(lh.attach(network))
        >>> lh.describe(model).debias is None
        True
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
            wanted = one_row.is_asked(self, arguments, "output_attentions")
            with one_row.reading_one_row(self, arguments), interface.returning_weights(wanted):
                return forward_with_alignment(self, labels, lambda: super(Debiased, self).forward(*args, **kwargs))

        def extra_repr(self) -> str:
            return one_row.describe(self)

        def load_state_dict(self, state_dict: Any, *args: Any, **options: Any) -> Any:
            return super().load_state_dict(in_own_names(self, state_dict), *args, **options)

        def save_pretrained(self, *args: Any, **options: Any) -> Any:
            with _of_its_own_type(self.config):
                saved = super().save_pretrained(*args, **options)
            remember_place(self, *args, **options)
            return saved

    # Pipelines, the saved "architectures" entry and plain AutoModel loading all go by the name of the class.
    Debiased.__name__, Debiased.__qualname__, Debiased.__module__ = base.__name__, base.__qualname__, base.__module__
    return Debiased


def remember_place(model: Any, save_directory: Any, *_: Any, **__: Any) -> None:
    """Let a model that has no name yet be known by the folder where it was first saved.

    An adapter of PEFT then names it as its base, and can be loaded again.
    """
    if not model.name_or_path:
        model.name_or_path = str(save_directory)


@contextmanager
def _of_its_own_type(config: Any) -> Iterator[None]:
    """Give a configuration a type of levelhead's while it is saved.

    Otherwise ``pipeline(model=folder)`` and ``AutoModel`` would take the folder for a plain model, and serve it without
    debiasing, with a list of unexpected keys as the only sign. So they say that they do not know the type.
    """
    kind, implementation = type(config), config._attn_implementation_internal
    config.__class__ = type(kind.__name__, (kind,), {"model_type": OWN_TYPE + kind.model_type})
    if config.output_attentions:  # which transformers believes of its eager implementation alone; neither is saved
        config._attn_implementation_internal = "eager"
    try:
        yield
    finally:
        config.__class__ = kind
        config._attn_implementation_internal = implementation


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
    with training_pass(model, labels is not None) as tap:
        alpha, current = tap.alpha, tap.current
        if labels is not None and alpha:
            check_labels(labels)
        output = forward()
    if current is None or not alpha:
        return output
    # A trainer may take the labels away (label smoothing does), or take the logits and leave the loss. The model sees
    # it when the backward pass arrives. The attention sees it as well, unless nothing below it is trained.
    watched = not torch.compiler.is_compiling()
    logits = output[0 if labels is None else 1]
    if watched and isinstance(logits, Tensor) and logits.requires_grad:
        logits.register_hook(lambda _: tap.require_alignment(current))
    if labels is None:
        return output
    whole = (output[0] if isinstance(output, tuple) else output["loss"]) + alpha * align(model, tap, labels)
    if watched and whole.requires_grad:
        whole.register_hook(lambda _: vars(current).update(aligned=True))
    else:
        current.aligned = True
    if isinstance(output, tuple):
        return (whole, *output[1:])
    output["loss"] = whole
    return output


def _parts(model: PreTrainedModel, record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build what ``record`` adds to the attention and to the model, by names, or raise; ``model`` stays as it is."""
    config = DebiasConfig(**record["debias"])
    attention = model.get_submodule(record["attention"])
    if config.ranking == "per_head" and record["key_heads"] != record["heads"]:
        raise ConfigError("debias.ranking='per_head' needs as many key heads as query heads")
    # Not next(model.parameters()): an embedding may be kept in another type or on another device.
    like = next(parameter for parameter in attention.parameters() if parameter.is_floating_point())
    below: dict[str, Any] = {"tap": Tap(config.readout, config)}
    above = {}
    if config.normalize:
        standardizer = config.standardizer(
            record["heads"], record["head_size"], key_heads=record["key_heads"], length=record["length"]
        )
        below["debias"] = standardizer.to(like.device).train(attention.training)
    if config.alpha:
        head = config.alignment_head(record["key_heads"] * record["value_size"])
        above["alignment_head"] = head.to(like.device, like.dtype).train(model.training)
    return below, above


def _put(model: PreTrainedModel, parts: tuple[dict[str, Any], dict[str, Any]], because: str | None) -> None:
    """Put the parts in their places and switch the attention; ``because`` says why all rows are computed, if known."""
    record = model.config.levelhead
    for owner, added in zip((model.get_submodule(record["attention"]), model), parts, strict=True):
        for name, part in added.items():
            setattr(owner, name, part)
    interface.switch(model, interface.NAME)
    if DebiasConfig(**record["debias"]).readout_only is not True:
        model.one_row = one_row.OneRow(False, because=because or NOT_WANTED)
        return
    layer = layer_of(model, record["attention"])
    if one_row.family_of(layer) is None:
        because = f"{type(layer).__name__} is built otherwise in this version of transformers"
    one_row.install(model, layer, one_row.OneRow(True, path_of(model, layer), because))


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
    # Loading takes the class by its name from those that transformers knows.
    kind, known = type(model), {}
    if config.model_type in CONFIG_MAPPING:
        known = known_classifiers(CONFIG_MAPPING[config.model_type])
    if getattr(model, "one_row", None) is not None and model.one_row.because is None:
        kind = kind.__mro__[1]
    if known.get(kind.__name__) is not kind:
        raise UnsupportedModelError(
            f"{kind.__module__}.{kind.__name__} is not registered with transformers as a classifier of "
            f"{config.model_type!r}, so levelhead.from_pretrained could not load it. Register a configuration with a "
            "model_type of its own, and the class: AutoConfig.register, AutoModelForImageClassification.register or "
            "AutoModelForSequenceClassification.register."
        )
    check_classes(config.num_labels)


def check_classes(num_labels: Any) -> None:
    """Raise :class:`~levelhead.ConfigError` for a number of classes that no classifier can have."""
    if not isinstance(num_labels, Integral) or not 2 <= int(num_labels) <= MOST_CLASSES:
        raise ConfigError(
            f"num_labels is {str(num_labels)[:40]}; give a whole number, at least 2 classes and at most "
            f"{MOST_CLASSES:,}. One class would be a regression."
        )


def _own_config(model: PreTrainedModel) -> None:
    """Give ``model`` copies of its configs: another network may have been built from the same objects."""
    copies: dict[int, Any] = {}
    copy.deepcopy(model.config, copies)
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            module.config = copies.get(id(config)) or copy.deepcopy(config, copies)
