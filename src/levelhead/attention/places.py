"""Places inside a classifier's last layer: what stands there, and what the classifier answers if it is changed.

Works for plain and debiased models, of recipes and of users. A network is run once to find its layers; a change of the
last layer runs that layer and the head alone, because the layers below give again what they gave before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.aligning import row_of
from levelhead.attention.block import AppendedClassifier
from levelhead.attention.capture import (
    Captured,
    attention_logits,
    attention_weights,
    captured,
    readout_of,
    settled,
    unwrapped,
)
from levelhead.attention.contrastive import rank_tokens, select_values
from levelhead.attention.probe import as_probed, attended, layer_of

PLACES = {
    "input": "input of the last layer",
    "query": "query",
    "key": "keys",
    "selected": "values selected by attention",
    "other": "other values",
    "context": "output of attention",
    "output": "output of the last layer",
}
"""From the bottom up, all of the row that the classifier reads; keys and other values are means over tokens."""

ONLY_READ = {
    "query before": "query before debiasing",
    "key before": "keys before debiasing",
    "scores": "attention logits",
}
"""Places that are not changed: before debiasing, and the readout row's logits by head and token."""

NO_MOVE = "key"
"""A constant added to all keys shifts all logits of a query equally, and the softmax removes it again."""


@dataclass(frozen=True)
class Anchor:
    """What a change of one batch starts from: little enough to be kept for every batch.

    ``row`` (batch,) is the row that the classifier reads, None where it reads no single one; ``selected`` (batch,
    top_t); ``logits`` (batch, classes); ``below`` what the last layer but one returned, in its own type and place.
    """

    row: Tensor | None
    selected: Tensor
    logits: Tensor
    below: Any


@dataclass(frozen=True)
class Inside:
    """One batch, float32 on the CPU.

    ``vectors`` has (batch, width) for each of :data:`PLACES`, and of :data:`ONLY_READ` where there is one;
    ``layers`` the same for the output of every layer from the first; ``attention`` (batch, tokens) is the mean over
    heads of the readout row's attention.
    """

    captured: Captured
    vectors: dict[str, Tensor]
    layers: list[Tensor]
    attention: Tensor
    anchor: Anchor


class Dissection:
    """A classifier whose layers are known, and which of its rows is read.

    ``top_t`` is how many tokens are selected: as the model aligns them, else 2. ``standardized`` says whether the last
    layer's queries and keys are, ``absolute`` whether their absolute values are taken then.

    Errors: :class:`~levelhead.types.UnsupportedModelError` for a network whose attention cannot be reached, or whose
    last attention does not see one sequence per example.
    """

    def __init__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> None:
        self.model: Any = model
        seen = attended(self.model, batch)
        paths = {id(module): path for path, module in self.model.named_modules()}
        self.attentions = [one.module for one in seen]
        inner = unwrapped(model)
        block = [inner.block] if isinstance(inner, AppendedClassifier) else []
        own = self.attentions[: len(self.attentions) - len(block)]
        self.layers: list[nn.Module] = [*(layer_of(self.model, paths[id(one)]) for one in own), *block]
        self.tap = readout_of(self.model, self.attentions[-1])
        options = getattr(getattr(self.attentions[-1], "tap", None), "debias", None)
        self.top_t = 2 if options is None else options.top_t
        self.standardized = bool(options and options.normalize and options.scale)
        self.absolute = bool(self.standardized and options and options.absolute)
        self.debiased = "debias" in self.attentions[-1]._modules and self.attentions[-1].debias is not None

    def look(self, batch: Mapping[str, Tensor]) -> Inside:
        """Run a batch as it is."""
        seen: list[interface.Attended] = []
        outputs: list[Any] = []
        entered: list[Tensor] = []

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            outputs.append(output)

        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            entered.append(_hidden(args, kwargs))

        with ExitStack() as stack:
            stack.enter_context(as_probed(self.model))
            stack.enter_context(interface.watched(seen.append))
            for layer in self.layers:
                stack.callback(layer.register_forward_hook(keep).remove)
            stack.callback(self.layers[-1].register_forward_pre_hook(enter, with_kwargs=True).remove)
            logits = self.model(**batch).logits
        last = seen[-1]
        caught = captured(self.tap, last)
        assert last.value is not None  # in every call that is watched
        value, row = settled(last.value), caught.readout
        scores = attention_logits(caught)
        attention = attention_weights(caught, scores)
        of_selection = scores.mean(2) if row is None else scores[:, :, 0]
        selected, found = rank_tokens(of_selection, self.top_t, readout=row, valid=caught.valid)
        key = caught.debiased_key
        rest = torch.ones(key.shape[0], key.shape[2]) if caught.valid is None else caught.valid.float()
        tokens = rest.clone()
        rest.scatter_(1, selected[:, 0], torch.where(found[:, 0], 0.0, rest.gather(1, selected[:, 0])))
        shared = attention.unflatten(1, (value.shape[1], -1)).mean(2)  # query heads that share a value
        vectors = {
            "input": _at(settled(entered[-1]), row, caught.valid),
            "query": _at(caught.debiased_query.transpose(1, 2).flatten(2), row, caught.valid),
            "key": _mean(key.transpose(1, 2).flatten(2), tokens),
            "selected": select_values(value, selected, found),
            "other": _mean(value.transpose(1, 2).flatten(2), rest),
            "context": (shared[:, :, None] @ value).flatten(1),
            "output": _at(settled(_tensor(outputs[-1])), row, caught.valid),
        }
        if self.debiased:
            vectors["query before"] = _at(caught.query.transpose(1, 2).flatten(2), row, caught.valid)
            vectors["key before"] = _mean(caught.key.transpose(1, 2).flatten(2), tokens)
        if row is not None and caught.valid is None and caught.mask is None:
            vectors["scores"] = of_selection.flatten(1)
        return Inside(
            caught,
            vectors,
            [_at(settled(_tensor(one)), row, caught.valid) for one in outputs],
            attention.mean(1),
            Anchor(row, selected[:, 0], settled(logits), outputs[-2] if len(outputs) > 1 else None),
        )

    def answer(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the logits (batch, classes) of other inputs."""
        with as_probed(self.model):
            logits: Tensor = self.model(**batch).logits.float()
        return logits

    def without(self, batch: Mapping[str, Tensor], seen: Anchor, shifts: Mapping[str, Tensor]) -> Tensor:
        """Return the logits (batch, classes) after ``shifts`` (batch, width) are taken off at their places."""
        with self._shifted(seen, shifts):
            return self.model(**batch).logits.float()

    @contextmanager
    def _shifted(self, seen: Anchor, shifts: Mapping[str, Tensor]) -> Iterator[None]:
        """Take shifts off inside the block; the layers below return what they returned before."""
        device = next(self.model.parameters()).device
        moved = {place: shift.to(device) for place, shift in shifts.items()}
        row = None if seen.row is None else seen.row.to(device)
        here = torch.arange(len(seen.logits), device=device)
        chosen = seen.selected.to(device)

        def at_row(hidden: Tensor, shift: Tensor) -> Tensor:
            if row is None:
                return hidden - shift[:, None]
            hidden = hidden.clone()
            hidden[here, row] = hidden[here, row] - shift
            return hidden

        def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
            hidden = at_row(_hidden(args, kwargs), moved["input"])
            return ((hidden, *args[1:]), kwargs) if args else ((), kwargs | {"hidden_states": hidden})

        def leave(module: nn.Module, args: Any, output: Any) -> Any:
            hidden = at_row(_tensor(output), moved["output"])
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        def change(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            if module is not self.attentions[-1]:
                return query, key, value
            if "query" in moved:
                query = at_row(query.transpose(1, 2), moved["query"].unflatten(1, query.shape[1:4:2])).transpose(1, 2)
            heads, size = value.shape[1], value.shape[3]
            if "context" in moved:  # attention sums to 1: what is taken off all values is taken off their mean
                value = value - moved["context"].unflatten(1, (heads, 1, size))
            if "selected" in moved or "other" in moved:
                value = value.clone()
                own = value[here[:, None], :, chosen]
                if "other" in moved:
                    value = value - moved["other"].unflatten(1, (heads, 1, size))
                if "selected" in moved:
                    own = own - moved["selected"].unflatten(1, (self.top_t, heads, size))
                value[here[:, None], :, chosen] = own
            return query, key, value

        with ExitStack() as stack:
            stack.enter_context(as_probed(self.model))
            stack.enter_context(interface.edited(change))
            stack.enter_context(_returning(self.layers[:-1], seen.below))
            if "input" in moved:
                stack.callback(self.layers[-1].register_forward_pre_hook(enter, with_kwargs=True).remove)
            if "output" in moved:
                stack.callback(self.layers[-1].register_forward_hook(leave).remove)
            yield


@contextmanager
def _returning(layers: list[nn.Module], output: Any) -> Iterator[None]:
    """Let layers return ``output`` without computing anything inside the block: the last of them is what is read."""
    for layer in layers:
        vars(layer)["forward"] = lambda *args, **kwargs: output
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _tensor(output: Any) -> Tensor:
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


def _hidden(args: Any, kwargs: Any) -> Tensor:
    found: Tensor = args[0] if args else kwargs["hidden_states"]
    return found


def _at(hidden: Tensor, row: Tensor | None, valid: Tensor | None) -> Tensor:
    """The readout row of (batch, tokens, width); the mean over tokens where the classifier reads no single row."""
    if hidden.ndim == 2:  # a last layer that computed its one row alone
        return hidden
    return row_of(hidden[:, None], row, valid)[:, 0]


def _mean(hidden: Tensor, weight: Tensor) -> Tensor:
    return (hidden * weight[:, :, None]).sum(1) / weight.sum(1, keepdim=True).clamp(min=1)
