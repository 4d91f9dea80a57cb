"""Find out how a network attends and which row its classifier reads, by running it."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from levelhead.attention import interface, one_row
from levelhead.attention.config import DebiasConfig, Facts
from levelhead.types import ConfigError, UnsupportedModelError, listed


def readout_layer(
    model: PreTrainedModel, attention: str, inputs: dict[str, Any], tokens: int, readout: str | None = None
) -> tuple[str, str | None]:
    """Return the path of the last layer, and why it has to compute all rows, or None.

    ``readout`` is the row that was proved to be read, if that was done; it is done here only for a layer that is known.
    """
    try:
        layer = layer_of(model, attention)
    except UnsupportedModelError:
        return "", one_row.UNKNOWN
    path = path_of(model, layer)
    if readout is None and one_row.family_of(layer) is not None:
        readout = find_readout(model, attention, inputs, tokens)
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


def probe_inputs(model: PreTrainedModel, example_inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make one example that ``model`` can run on, or move the given one to its device (labels left out)."""
    name, device = type(model).__name__, model.device
    if example_inputs is not None:
        if not any(isinstance(value, Tensor) and value.ndim for value in example_inputs.values()):
            raise ConfigError(
                f"example_inputs has no tensor among {listed(example_inputs, 5)}. Pass a batch, such as "
                '{"input_ids": tokens}.'
            )
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
def as_probed(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode and recording attention for the time of the block, whatever happens in it."""
    with interface.evaluating(model), interface.switched(model), torch.no_grad():
        yield


def attended(model: Any, inputs: Mapping[str, Any] | None = None, *, most: int | None = None, way_out: str = "") -> Any:
    """Run a model as it is; return what its attention layers worked with, in order, or the last ``most`` of them.

    Without ``inputs`` an example is made.

    Errors: :class:`~levelhead.UnsupportedModelError`, which names the ``way_out``, for a model whose attention cannot
    be reached, or whose last attention does not see one sequence per example.
    """
    name = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", True):
        raise UnsupportedModelError(
            f"{name} is not a Hugging Face encoder or decoder: its attention cannot be read.{way_out}"
        )
    inputs = probe_inputs(model) if inputs is None else inputs
    seen: deque[interface.Attended] = deque(maxlen=most)  # the tensors of all layers would fill the memory
    with as_probed(model), interface.watched(seen.append):
        model(**inputs)
    refuse_unreachable(name, bool(seen), way_out)
    query, key = tuple(seen[-1].raw_query.shape), tuple(seen[-1].raw_key.shape)
    batch = next(value.shape[0] for value in inputs.values() if isinstance(value, Tensor))
    if query[0] != batch or query[2] != key[2]:
        raise UnsupportedModelError(
            f"The last attention of {name} does not see one sequence per example (windows or cross-attention): "
            f"query {query}, key {key} for a batch of {batch}.{way_out}"
        )
    return seen


def refuse_unreachable(name: str, seen: bool, way_out: str = "") -> None:
    """Raise :class:`~levelhead.UnsupportedModelError` for a network none of whose attention was seen."""
    if not seen:
        raise UnsupportedModelError(
            f"{name} does not use the attention interface of transformers, so its queries and keys cannot be "
            f"read.{way_out}"
        )


def path_of(model: nn.Module, part: nn.Module) -> str:
    """Return the path of a module in a model."""
    return next(path for path, module in model.named_modules() if module is part)


def probe_attention(
    model: PreTrainedModel, config: DebiasConfig, example_inputs: Mapping[str, Any] | None
) -> tuple[dict[str, Any], DebiasConfig, str | None]:
    """Run the model, find its last attention module and its readout row, and resolve what is ``auto``.

    The last of what is returned says why its last layer computes all rows, or is None.
    """
    name = type(model).__name__
    way_out = " For this model, append_encoder(backbone, num_labels) puts a debiased layer on top instead."
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is an encoder-decoder, which attach does not debias yet.{way_out}")
    inputs = probe_inputs(model, example_inputs)
    implementation = model.config._attn_implementation
    with as_probed(model):
        try:
            calls = attended(model, inputs, way_out=way_out)
        except UnsupportedModelError as error:
            if str(error).endswith(way_out):
                raise
            raise UnsupportedModelError(f"{name} cannot be debiased: {error}{way_out}") from error
        last = calls[-1]
        if sum(call.module is last.module for call in calls) > 1:
            raise UnsupportedModelError(
                f"{name} shares one attention module over several depths, so its last layer cannot be debiased "
                f"alone.{way_out}"
            )
        heads, tokens, head_size = last.raw_query.shape[1:]
        # A window wider than the probe's input shows in no mask, only on the module.
        if not config.notebook.padding_mask and (
            interface.is_local(last.mask) or getattr(last.module, "sliding_window", None)
        ):
            raise ConfigError(
                "debias.notebook.padding_mask=False would take the whole mask away, and in the last layer of "
                f"{name} it also keeps tokens from others that are no padding (a sliding window, or causality). Leave "
                f"padding_mask at True.{way_out}"
            )
        path = path_of(model, last.module)
        readout: Any = config.readout
        proved = find_readout(model, path, inputs, tokens) if readout == "auto" else None
        readout = proved or readout
        told = vars(model).get("one_row")
        wanted = told is None or told.wanted is not False
        all_rows = None
        if config.readout_only is True or (config.readout_only == "auto" and wanted):
            all_rows = readout_layer(model, path, inputs, tokens, proved)[1]

    text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    rotary = bool(getattr(text, "rope_parameters", None) or getattr(text, "rope_theta", None))
    images = model.main_input_name == "pixel_values"
    facts = Facts(
        "attach",
        name,
        readout,
        images=images,
        length=tokens if images or example_inputs is not None else None,
        rotary=rotary,
        all_rows=all_rows,
        wanted=wanted,
    )
    resolved, because = config.resolved(facts), config.why_all_rows(facts)
    if rotary and config.normalize and config.absolute is not False:
        choice = (
            "as absolute=True asks (presets set it as well). absolute=False keeps relative position."
            if resolved.absolute
            else "so absolute=False is used. Set absolute=False to choose it yourself."
        )
        warnings.warn(
            f"{name} uses rotary position embeddings: absolute values of rotated keys destroy relative position, "
            + choice,
            UserWarning,
            stacklevel=3,
        )
    found = {
        "attention": path,
        "attention_implementation": implementation,
        "heads": heads,
        "key_heads": last.raw_key.shape[1],
        "head_size": head_size,
        "value_size": last.value.shape[3],
        "length": tokens if resolved.statistics == "position" else None,
    }
    return found, resolved, because


def find_readout(model: PreTrainedModel, path: str, inputs: dict[str, Any], tokens: int) -> str:
    """Prove which row of the last layer's output the classifier reads: ``first``, ``last`` or ``none``.

    Noise on all rows but one leaves the logits bit-equal only if no other row is read.
    """
    layer = layer_of(model, path)
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


def layer_of(model: nn.Module, path: str) -> nn.Module:
    """Find the layer around an attention module: the innermost member of a ``ModuleList`` on its path."""
    parts = path.split(".")
    for depth in range(len(parts), 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: depth - 1])), nn.ModuleList):
            return model.get_submodule(".".join(parts[:depth]))
    raise UnsupportedModelError(
        f"{type(model).__name__} keeps its layers in no ModuleList, so its last layer ({path}) cannot be "
        "distinguished. "
        "Pass DebiasConfig(readout=...) to say which row its classifier reads."
    )
