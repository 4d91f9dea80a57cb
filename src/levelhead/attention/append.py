"""Appending a debiased encoder layer: what the backbone must be, which row is read, and the record of both."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from levelhead.appended import AppendedConfig
from levelhead.arrays import checked
from levelhead.attention.attach import check_classes
from levelhead.attention.block import AppendedClassifier, debiased_record
from levelhead.attention.config import DebiasConfig, Readout
from levelhead.attention.interface import evaluating
from levelhead.attention.probe import probe_inputs
from levelhead.types import ConfigError, UnsupportedModelError, refuse_absurd_network


@checked
def append_encoder(
    backbone: PreTrainedModel,
    num_labels: int,
    freeze: bool = True,
    debias: DebiasConfig | None = DebiasConfig(),  # noqa: B008  (frozen)
    *,
    layers: int = 1,
    num_heads: int | None = None,
    intermediate_size: int | None = None,
    norm: Literal["pre", "post"] = "pre",
    activation: str = "gelu",
    example_inputs: Mapping[str, Any] | None = None,
    **config: Any,
) -> AppendedClassifier:
    """Put a debiased encoder layer and a linear head on a pretrained backbone.

    Args:
        backbone: a Hugging Face model that returns ``last_hidden_state``, such as ``AutoModel.from_pretrained(...)``;
            it becomes part of the result, not a copy.
        num_labels: classes, at least 2.
        freeze: never train the backbone, and keep it in evaluation mode.
        debias: options; None gives the plain layer of the same size, to compare with. ``statistics="auto"`` is
            ``position`` for pictures and ``cls_feature`` for text; ``readout="auto"`` is the last real token where
            the first one does not see those after it (a causal decoder), otherwise the first real token. The linear
            head reads that row by construction, so only the backbone needs a look, and gets one.
        layers: how many encoder layers, 1 in the paper; the last one is debiased, those below it are plain.
        num_heads: attention heads of the layer; None means as many as the backbone has.
        intermediate_size: width of its feed-forward layer; None means the hidden size.
        norm: ``pre`` or ``post``.
        activation: of the feed-forward layer.
        example_inputs: one batch, where it cannot be guessed from the backbone's configuration.
        config: further entries of the result's config, such as ``id2label``.

    Errors: :class:`~levelhead.UnsupportedModelError` for a backbone without a sequence of hidden states;
    :class:`~levelhead.ConfigError` for options that cannot be right.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, the experiments with pretrained backbones.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> import torch
        >>> import levelhead as lh
        >>> backbone = BertModel(BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> model = lh.append_encoder(backbone, num_labels=3).train()  # or a backbone of AutoModel.from_pretrained
        >>> model(input_ids=torch.tensor([[101, 7, 8, 102], [101, 9, 5, 102]])).logits.shape
        torch.Size([2, 3])
    """
    check_classes(num_labels)
    if layers < 1:
        raise ConfigError(f"layers={layers!r}; at least one encoder layer is appended")
    refuse_absurd_network("layers", 0, layers)
    if config.get("problem_type") not in (None, "single_label_classification"):
        raise ConfigError(
            f"problem_type={config['problem_type']!r}: alignment needs one class per example, so append_encoder is "
            "built for single-label classification only."
        )
    hidden, readout = _probe_backbone(backbone, example_inputs)
    text = backbone.config.get_text_config()
    tokens, hidden_size = hidden.shape[1:]
    heads = num_heads or getattr(text, "num_attention_heads", None)
    if not isinstance(heads, int):  # none, or one for each stage
        raise ConfigError(f"The config of {type(backbone).__name__} names no one number of heads: pass num_heads=")
    refuse_absurd_network(
        f"layers={layers}, intermediate_size={intermediate_size}, num_labels={num_labels}",
        hidden_size * (layers * (4 * hidden_size + 2 * (intermediate_size or hidden_size)) + num_labels),
    )
    image = backbone.main_input_name == "pixel_values"
    arguments = {}
    if "add_pooling_layer" in inspect.signature(type(backbone).__init__).parameters:
        arguments["add_pooling_layer"] = getattr(backbone, "pooler", None) is not None
    record = {
        "kind": "append",
        "debias": None,
        "backbone_class": type(backbone).__name__,
        "backbone_arguments": arguments,
        "freeze": freeze,
        "hidden_size": hidden_size,
        "num_heads": heads,
        "layers": layers,
        "tokens": tokens if image or example_inputs is not None else None,
        "readout": readout,
        "intermediate_size": intermediate_size,
        "norm": norm,
        "activation": activation,
    }
    if debias is not None:
        record = debiased_record(record, debias, image)
    described = {**backbone.config.to_dict(), "model_type": backbone.config.model_type}
    appended = AppendedConfig(described, record, num_labels=int(num_labels), **config)
    appended.pad_token_id = getattr(text, "pad_token_id", None)
    model = AppendedClassifier(appended, backbone).to(backbone.device)
    for part in (model.below, model.block, model.classifier, getattr(model, "alignment_head", None)):
        if part is not None:
            part.to(backbone.dtype)
    return model


def _probe_backbone(backbone: PreTrainedModel, example_inputs: Mapping[str, Any] | None) -> tuple[Tensor, Readout]:
    """Run the backbone; return its last hidden states (batch, tokens, hidden size) and the row to read."""
    name = type(backbone).__name__
    refusal = f"{name} cannot carry a debiased layer: "
    if not isinstance(backbone, PreTrainedModel) or getattr(transformers, name, None) is not type(backbone):
        raise UnsupportedModelError(
            f"{refusal}it is not a model class of transformers, so levelhead.from_pretrained could not load it."
        )
    if getattr(backbone.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{refusal}it is an encoder-decoder; pass its encoder as a model of its own.")
    inputs = probe_inputs(backbone, example_inputs)
    with evaluating(backbone), torch.no_grad():
        try:
            output = backbone(**inputs)
        except (AttributeError, TypeError, ValueError) as error:
            if example_inputs is not None:
                raise
            raise UnsupportedModelError(
                f"{refusal}it does not run on {', '.join(inputs)} alone ({error}). Pass example_inputs={{...}}, or "
                "the one tower of it that is wanted, such as CLIPVisionModel."
            ) from error
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            raise UnsupportedModelError(f"{refusal}it returns no last_hidden_state. Load it with AutoModel instead.")
        if hidden.ndim != 3:
            raise UnsupportedModelError(
                f"{refusal}its last_hidden_state has shape {tuple(hidden.shape)}, not (batch, tokens, hidden size)."
            )
        return hidden, _row_to_read(backbone, inputs, hidden)


def _row_to_read(backbone: PreTrainedModel, inputs: dict[str, Any], hidden: Tensor) -> Readout:
    """Choose the first row, unless no row before the last one sees the last: then it alone knows the whole text.

    Proved by another last token, which must leave all of those rows bit-equal: a single one may merely see no
    further than a window around it.
    A flag such as ``is_causal`` does not tell: the CLIP text tower looks back only, and its layers say otherwise.
    Pictures have no such order.
    """
    kind = "input_ids" if "input_ids" in inputs else "inputs_embeds"
    if kind not in inputs:
        return "first"
    mask = inputs.get("attention_mask")
    real = torch.arange(hidden.shape[1], device=hidden.device) if mask is None else mask[0].nonzero().flatten()
    before, end = real[:-1], real[-1]
    changed = inputs[kind].clone()
    changed[:, end] = (changed[:, end] - 1).abs()  # another token, and one that exists: 0 becomes 1
    other = backbone(**{**inputs, kind: changed}).last_hidden_state
    return "last" if len(before) and torch.equal(other[0, before], hidden[0, before]) else "first"
