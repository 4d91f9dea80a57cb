"""The last layer for the one row that its classifier reads: the same outputs and gradients, for less work.

Such a layer needs the keys of all tokens, the query of one, and everything after attention for one row. Values are
folded: the attention's mean of W x is W times the mean of x, so that W meets one row for each head. This holds for a
plain layer as for a debiased one, if the statistics of that row's query are its own.

A Hugging Face model gets such a layer by a change of class, and only where the layer's class is known to
:data:`FAMILIES`; it computes all rows again whenever anything but the logits is requested.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.aligning import Reading, Tap
from levelhead.attention.contrastive import readout_logits
from levelhead.attention.standardize import QueryKeyStandardizer


class Projections(NamedTuple):
    """The linear layers in front of attention, and the number of heads that their outputs are split into."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    heads: int


def attend_from_row(
    attention: nn.Module,
    hidden: Tensor,
    row: Tensor | int,
    projections: Projections,
    *,
    scaling: float,
    valid: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return the mixed values of one row of self-attention, (batch, heads x value size), before the output projection.

    Args:
        attention: the module that attends, whose ``debias`` and ``tap`` count, where it has them. In training no keys
            are computed at padding.
        hidden: (batch, tokens, width), what the projections take.
        row: (batch,) int64, or the same number for all.
        projections: plain linear layers, see :func:`is_plain`.
        scaling: factor on the logits.
        valid: (batch, tokens) bool, False at padding; for statistics, and for ranking tokens.
        mask: of this row, broadcastable to (batch, heads, tokens): boolean (True: may look) or additive.
        dropout: probability of dropping an attention weight, as in training. The bias of the values then counts with
            the sum of the weights that are left: a full layer's output has the same distribution.
    """
    tap: Tap | None = getattr(attention, "tap", None)
    debias = cast(QueryKeyStandardizer | None, attention._modules.get("debias"))
    if tap is not None:
        tap.used = True
        if not tap.padding_mask:
            mask = valid = None
        scaling = scaling / tap.attention_temperature
    heads = projections.heads
    if isinstance(row, int):
        one, where = hidden[:, row], torch.full(hidden.shape[:1], row, device=hidden.device)
    else:
        one, where = hidden[torch.arange(hidden.shape[0], device=hidden.device), row], row
    query = projections.query(one).unflatten(-1, (heads, -1))
    # Statistics per position need every token at its place; a graph for export must have a fixed number of rows.
    whole = torch.compiler.is_compiling() or (debias is not None and debias.statistics == "position")
    packed = valid if attention.training and not whole else None
    tokens = hidden if packed is None else hidden[packed][None]
    key = projections.key(tokens).unflatten(-1, (heads, -1)).transpose(1, 2)
    if debias is not None:
        query, key = debias.one_row(query, key, valid if packed is None else None)
    if packed is None:
        logits = readout_logits(query, key, scaling)
    else:
        of_each = query.index_select(0, packed.nonzero()[:, 0])
        each = readout_logits(of_each, key[0].transpose(0, 1)[:, :, None], scaling)
        logits = each.new_zeros(*hidden.shape[:2], heads).index_put((packed,), each[..., 0]).transpose(1, 2)
    if tap is not None:
        tap.take_row(Reading(logits.detach(), hidden[:, None], where, valid, project=projections.value))
    if mask is not None:
        # Not -inf: an example of padding alone would be NaN, and so would be the gradient of its batch.
        least = torch.finfo(logits.dtype).min
        logits = logits.masked_fill(~mask, least) if mask.dtype == torch.bool else logits + mask
    weights = logits.softmax(dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    weights = weights.to(hidden.dtype)
    mean = weights @ hidden  # (batch, heads, width)
    mixed = torch.einsum("bhd,hkd->bhk", mean, projections.value.weight.unflatten(0, (heads, -1)))
    if projections.value.bias is not None:
        bias = projections.value.bias.unflatten(0, (heads, -1))
        mixed = mixed + (weights.sum(dim=-1, keepdim=True) * bias if dropout else bias)
    mixed = mixed.flatten(1)
    if tap is not None:
        tap.watch(mixed, attention)
    return mixed


def is_plain(linear: Any) -> bool:
    """Whether a layer is a linear one and nothing else: no LoRA, no quantised or divided weight, no offloading."""
    return (
        type(linear) is nn.Linear
        and "forward" not in vars(linear)  # offloading replaces it
        and not hasattr(type(linear.weight), "__tensor_flatten__")  # a tensor made of others: quantised, or divided
    )


def is_hooked(module: nn.Module) -> bool:
    """Whether a hook is registered on the module.

    The hooks that transformers leaves on a layer once hidden states were requested do nothing when they are not.
    """
    if module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return True
    return any(
        getattr(hook, "__module__", "") != "transformers.utils.output_capturing"
        for hook in module._forward_hooks.values()
    )


@dataclass(frozen=True)
class Family:
    """How the layers of one kind of model are built.

    Attributes:
        children: names of a layer's modules. A layer with others is of a version that this was not written for.
        attention: path from the layer to the module that attends.
        projections: names of query, key and value on that module.
        enter: takes a layer and its input to what the projections take.
        leave: takes a layer, the mixed values and the layer's input, both (batch, 1, width), to the layer's output.
        dropout: gives the probability of dropping an attention weight in training.
    """

    children: frozenset[str]
    attention: str
    projections: tuple[str, str, str]
    enter: Callable[[Any, Tensor], Tensor]
    leave: Callable[[Any, Tensor, Tensor], Tensor]
    dropout: Callable[[Any], float]


def _leave_vit(layer: Any, mixed: Tensor, hidden: Tensor) -> Tensor:
    hidden = hidden + layer.dropout(layer.attention.o_proj(mixed))
    return cast(Tensor, hidden + layer.dropout(layer.mlp(layer.layernorm_after(hidden))))


def _leave_bert(layer: Any, mixed: Tensor, hidden: Tensor) -> Tensor:
    return cast(Tensor, layer.feed_forward_chunk(layer.attention.output(mixed, hidden)))


_VIT = Family(
    frozenset({"attention", "layernorm_before", "layernorm_after", "mlp", "dropout"}),
    "attention",
    ("q_proj", "k_proj", "v_proj"),
    lambda layer, hidden: layer.layernorm_before(hidden),
    _leave_vit,
    lambda attention: attention.attention_dropout,
)
_BERT = Family(
    frozenset({"attention", "intermediate", "output"}),
    "attention.self",
    ("query", "key", "value"),
    lambda layer, hidden: hidden,
    _leave_bert,
    lambda attention: attention.dropout.p,
)

# By name, so that no model is imported for being known.
FAMILIES: dict[str, Family] = {
    "transformers.models.vit.modeling_vit.ViTLayer": _VIT,
    "transformers.models.deit.modeling_deit.DeiTLayer": _VIT,
    "transformers.models.bert.modeling_bert.BertLayer": _BERT,
    "transformers.models.roberta.modeling_roberta.RobertaLayer": _BERT,
}

UNKNOWN = "its layers are none that levelhead can take apart"

# What a layer may be called with besides hidden states and mask, and what does not change its output.
_HARMLESS = {"position_ids", "output_hidden_states", "output_attentions", "return_dict", "use_cache"}
_HARMLESS |= {"num_items_in_batch"}


def family_of(layer: nn.Module) -> Family | None:
    """Return the family of a layer of exactly a known class (or of the one that computes a row), otherwise None."""
    kind = type(layer)
    if getattr(kind, "computes_one_row", False):
        kind = kind.__mro__[1]
    family = FAMILIES.get(f"{kind.__module__}.{kind.__qualname__}")
    if family is None or frozenset(dict(layer.named_children())) != family.children:
        return None
    return family


class OneRow:
    """Sits on a model, and on its last layer where that computes one row.

    ``wanted`` is what was requested; ``path`` leads to the layer, and ``because`` says why it is not used if it is not.
    ``armed`` while a pass of the whole model runs that needs no more than the row: called alone, a layer or a
    backbone gives all rows.
    """

    def __init__(self, wanted: bool | Literal["auto"], path: str = "", because: str | None = None) -> None:
        self.wanted, self.path, self.because = wanted, path, because
        self.armed = False


def why_all_rows(layer: nn.Module, readout: str) -> str | None:
    """Say why a layer has to compute all rows whatever happens, or None; ``readout`` is the row proved to be read."""
    family = family_of(layer)
    if family is None:
        return UNKNOWN
    if readout != "first":
        return f"the classifier reads {'the last real token' if readout == 'last' else 'no single row'}"
    attention: Any = layer.get_submodule(family.attention)
    if getattr(attention, "is_causal", False) or getattr(layer, "is_decoder", False):
        return "it looks back only"
    return None


def _why_not_now(layer: Any, family: Family, attention: Any) -> str | None:
    """Say why a layer has to compute all rows as it stands, or None."""
    debias = attention._modules.get("debias")
    if debias is not None and (type(debias) is not QueryKeyStandardizer or not debias.knows_one_row):
        return "its standardizer is wrapped"
    if not all(is_plain(getattr(attention, name)) for name in family.projections):
        return "a projection is no plain linear layer"
    if any(map(is_hooked, layer.modules())):
        return "a hook is registered on it"
    if getattr(layer, "gradient_checkpointing", False):
        return "gradient checkpointing is on"
    if getattr(layer, "chunk_size_feed_forward", 0):
        return "its feed-forward layer is computed in chunks"
    # A debiased layer whose attention was switched must run into the error that says so.
    allowed = (interface.NAME,) if hasattr(attention, "tap") else (interface.NAME, "sdpa", "eager")
    if attention.config._attn_implementation not in allowed:
        return f"attention is computed by {attention.config._attn_implementation}"
    return None


@functools.cache
def one_row_layer(base: type[nn.Module]) -> type[nn.Module]:
    """Subclass a layer's class so that its forward computes one row where it may; the same class each time."""

    class OneRowLayer(base):  # type: ignore[misc, valid-type]
        computes_one_row = True

        def forward(
            self, hidden_states: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any
        ) -> Any:
            others = {name for name, value in kwargs.items() if value is not None and name not in _HARMLESS}
            family = family_of(self) if self.one_row.armed else None
            if family is not None and not others and all(value is None for value in args):
                attention = self.get_submodule(family.attention)
                if _why_not_now(self, family, attention) is None:
                    return _first_row(self, family, attention, hidden_states, attention_mask)
            return super().forward(hidden_states, attention_mask, *args, **kwargs)

    OneRowLayer.__name__, OneRowLayer.__qualname__ = base.__name__, base.__qualname__
    OneRowLayer.__module__ = base.__module__
    return OneRowLayer


def _first_row(layer: Any, family: Family, attention: Any, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Return row 0 of the layer's output, (batch, 1, width)."""
    query, key, value = (getattr(attention, name) for name in family.projections)
    mixed = attend_from_row(
        attention,
        family.enter(layer, hidden),
        0,
        Projections(query, key, value, query.out_features // _head_size(attention)),
        scaling=attention.scaling,
        valid=interface.valid_keys(mask, hidden.shape[0]),
        mask=None if mask is None else mask[:, :, 0],
        dropout=family.dropout(attention) if layer.training else 0.0,
    )
    return family.leave(layer, mixed[:, None], hidden[:, :1])


def _head_size(attention: Any) -> int:
    size: int = attention.head_dim if hasattr(attention, "head_dim") else attention.attention_head_size
    return size


@contextmanager
def reading_one_row(model: Any, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Let the last layer compute one row for the time of a pass that needs only logits.

    ``arguments`` are those of the pass. Hidden states, attentions, and watchers of the attention function
    (:func:`interface.watched`) need all rows.
    """
    state = getattr(model, "one_row", None)
    if state is None:
        yield
        return
    asked = any(is_asked(model, arguments, name) for name in ("output_hidden_states", "output_attentions"))
    state.armed = state.because is None and not asked and not interface.is_observed()
    try:
        yield
    finally:
        state.armed = False


def is_asked(model: Any, arguments: Mapping[str, Any], name: str) -> bool:
    """Return whether a pass, or else the model's configuration, asks for the output that ``name`` switches on."""
    value = {**arguments, **arguments.get("kwargs", {})}.get(name)
    return bool(getattr(model.config, name, False) if value is None else value is not False)


def install(model: Any, layer: nn.Module, state: OneRow) -> None:
    """Put ``state`` on the model, and make its last layer compute one row unless ``state`` says why not."""
    model.one_row = state
    if state.because is None:
        layer.one_row = state  # type: ignore[assignment]
        layer.__class__ = one_row_layer(cast(Any, type(layer)))


def remove(model: Any) -> OneRow | None:
    """Make a model's last layer compute all rows again; return what :func:`install` had put on the model."""
    state: OneRow | None = vars(model).pop("one_row", None)
    if state is not None and state.because is None:
        layer = model.get_submodule(state.path)
        layer.__class__ = type(layer).__mro__[1]
        del layer.one_row
    return state


def describe(model: Any) -> str:
    """Say in a few words whether the last layer computes one row, or why not; empty where nobody asked."""
    return "" if getattr(model, "one_row", None) is None else f"last layer {rows_in_words(why_all_rows_now(model))}"


def why_all_rows_now(model: Any) -> str | None:
    """Say why the last layer of a model that carries a :class:`OneRow` computes all rows as it stands, or None."""
    state: OneRow = model.one_row
    if state.because is not None:
        return state.because
    layer = model.get_submodule(state.path)
    family = cast(Family, family_of(layer))
    return _why_not_now(layer, family, layer.get_submodule(family.attention))


def rows_in_words(because: str | None) -> str:
    """Say what a layer computes; ``because`` says why all rows, or is None."""
    return f"computes {'the readout row alone' if because is None else f'all rows: {because}'}"
