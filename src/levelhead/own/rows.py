"""A user's own labelled rows, as the Hugging Face Trainer takes them, made into inputs and labels for an evaluation.

The rows are a torch ``Dataset`` or a list of dicts, a ``datasets.Dataset``, or a pandas frame. Only the label and what
a network reads is taken from a row; :class:`GroupColumns` opens group columns, for the audit alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from levelhead.arrays import array_of
from levelhead.attention.block import AppendedClassifier
from levelhead.attention.capture import unwrapped
from levelhead.data.base import Inputs
from levelhead.data.texts import Texts, TokenInputs, tokenize
from levelhead.loading import refuse_unknown_tokens
from levelhead.models.networks import longest_text
from levelhead.tables.columns import by_name
from levelhead.types import ConfigError, DataError, listed, quoted

LABELS = ("labels", "label")
"""Default label columns: Trainer's, and that of data sets."""
LONGEST = 100_000  # tokens, where neither tokenizer nor network says how long a text may be


@dataclass(frozen=True)
class OwnRows:
    """Rows by position, and the name of the column with their label.

    ``label`` holds positions of classes, or their names. ``texts`` names the one or two columns of raw texts, which are
    cut at ``max_length`` tokens; empty: the rows hold what the network takes already.
    """

    dataset: Any
    label: str
    texts: tuple[str, ...] = ()
    max_length: int | None = None

    @classmethod
    def of(
        cls, dataset: Any, label: str | None, text: str | Sequence[str] | None, max_length: int | None = None
    ) -> OwnRows:
        """Check what can be checked without reading the rows; the first row is read.

        Raises :class:`~levelhead.types.DataError` for what holds no rows by position, is empty or lacks a column;
        :class:`~levelhead.types.ConfigError` for a ``max_length`` that is below 1, or cuts nothing.
        """
        texts = () if text is None else (text,) if isinstance(text, str) else tuple(text)
        if len(texts) > 2:
            raise ConfigError(f"text names {len(texts)} columns: give one, or two for pairs of texts.")
        if max_length is not None and not texts:
            raise ConfigError("max_length= cuts raw texts: pass text= as well, or leave it out.")
        if max_length is not None and max_length < 1:
            raise ConfigError(f"max_length={max_length} is below 1. Leave it out to cut texts at what the model takes.")
        if isinstance(dataset, Mapping):  # a DatasetDict, or columns
            raise DataError(
                f'The data set is a dict with {listed(list(dataset)[:5])}. Give one split, as dataset["test"]; of '
                "columns, make rows: pandas.DataFrame(columns)."
            )
        try:
            first = _row(dataset, 0) if len(dataset) else None
        except (TypeError, KeyError, IndexError, RuntimeError):
            raise DataError(
                f"A {type(dataset).__name__} gives no rows by position, from 0. From a stream, take rows first: "
                "list(dataset.take(10_000))."
            ) from None
        if first is None:
            raise DataError("The data set has no rows. Give at least one labelled row.")
        if not isinstance(first, Mapping):
            raise DataError(
                f"Row 0 of the data set is a {type(first).__name__}. Trainer and this function take rows that are "
                'dicts, as {"input_ids": ..., "labels": ...}.'
            )
        there = [name for name in ([label] if label is not None else LABELS) if name in first]
        if not there:
            wanted = "labels, and none label" if label is None else quoted(label)
            raise DataError(f"The rows have no column {wanted}. They have {listed([str(name) for name in first])}.")
        absent = [name for name in texts if name not in first]
        if absent:
            raise DataError(
                f"The rows have no column {quoted(absent[0])} of texts. They have {listed([str(n) for n in first])}."
            )
        return cls(dataset, there[0], texts, max_length)

    def __len__(self) -> int:
        return len(self.dataset)

    def class_names(self) -> tuple[str, ...] | None:
        """Return the names of the classes that a ``datasets.Dataset`` knows of its label column, or None."""
        feature = (getattr(self.dataset, "features", None) or {}).get(self.label)
        names = getattr(feature, "names", None)
        return None if names is None else tuple(map(str, names))

    def inputs(self, model: Any, tokenizer: Any = None) -> Inputs:
        """Return the rows as ``model`` takes them; raw texts need its ``tokenizer``."""
        if self.texts:
            if tokenizer is None:
                raise ConfigError(
                    f"The column {quoted(self.texts[0])} holds texts, and no tokenizer is known: pass tokenizer=, or "
                    "give folders that hold model and tokenizer."
                )
            return self._tokens(model, tokenizer)
        taken = taken_by(model)
        names = [name for name in _row(self.dataset, 0) if name in taken and name != self.label]
        if not names:
            raise DataError(
                f"No column of the rows is an input of {type(model).__name__}, which takes "
                f"{listed(sorted(taken)[:6])}. For a column of raw texts pass text=; pictures must be processed, as "
                "for Trainer."
            )
        if "input_ids" in names and "attention_mask" in taken and "attention_mask" not in names:
            names.append("attention_mask")  # made of the lengths
        pad = getattr(model.config, "pad_token_id", None)
        if tokenizer is not None and getattr(tokenizer, "pad_token_id", None) is not None:
            pad = tokenizer.pad_token_id
        return RowInputs(self.dataset, tuple(names), pad if isinstance(pad, int) else 0)

    def _tokens(self, model: Any, tokenizer: Any) -> Inputs:
        columns = [list(_column(self.dataset, name)) for name in self.texts]
        longest = min(longest_text(backbone_of(model).config, tokenizer), LONGEST)
        texts = Texts(columns[0], columns[1] if len(columns) > 1 else None, where="The data set")
        tokens = tokenize(texts, tokenizer, min(longest, longest if self.max_length is None else self.max_length))
        known = backbone_of(model).get_input_embeddings().num_embeddings
        refuse_unknown_tokens("The tokenizer", tokens.highest("input_ids"), known)
        taken = taken_by(model)
        kept = {name: column for name, column in tokens.columns.items() if name in taken}
        return TokenInputs(kept, tokens.lengths, tokens.padding)

    def labels(self, class_names: Sequence[str], numbered: Sequence[str]) -> Tensor:
        """Return (n,) int64 positions in ``class_names``; a label is a name, or a position in ``numbered``.

        Raises :class:`~levelhead.types.DataError` for a label that is missing, or none of the classes.
        """
        places = {name: place for place, name in enumerate(class_names)}
        order = [places[name] for name in numbered]
        found = np.empty(len(self), np.int64)
        for row, value in enumerate(_column(self.dataset, self.label)):
            found[row] = _class(value, places, order, row, self.label)
        return torch.from_numpy(found)


class RowInputs(Inputs):
    """Model inputs of rows that are dicts. Sequences that differ in length are padded on the right."""

    def __init__(self, dataset: Any, names: tuple[str, ...], padding: int) -> None:
        self.dataset, self.names, self.padding = dataset, names, padding

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return the inputs at ``index`` (batch,) int64; texts without an attention mask get one by their lengths."""
        rows = [_row(self.dataset, position) for position in index.tolist()]
        found = {}
        for name in self.names:
            if name not in rows[0]:  # the mask that the rows lack
                parts = [torch.ones(len(row["input_ids"]), dtype=torch.int64) for row in rows]
            else:
                parts = [torch.as_tensor(row[name]) for row in rows]
            if len({part.shape for part in parts}) == 1:
                found[name] = torch.stack(parts)
            elif all(part.ndim == 1 for part in parts):
                found[name] = pad_sequence(parts, True, self.padding if name == "input_ids" else 0)
            else:
                shapes = sorted({tuple(part.shape) for part in parts})
                raise DataError(f"{name} has rows of the shapes {listed([str(s) for s in shapes[:3]])}: make them one.")
        return found


@dataclass(frozen=True)
class GroupColumns:
    """Group labels of the rows, still closed: ``names`` of columns of the data set, or values that were passed."""

    dataset: Any
    names: tuple[str, ...] = ()
    passed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Any, dataset: Any) -> GroupColumns | None:
        """Look at what the user gave as ``groups``, at no value of it; None for nothing."""
        if groups is None or (isinstance(groups, (list, tuple, Mapping)) and not groups):
            return None
        names = (groups,) if isinstance(groups, str) else groups
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            if isinstance(names, (list, tuple, set)):
                raise ConfigError(
                    'groups takes names of columns of the data set, or a dict of columns: groups={"age": values}.'
                )
            return cls(dataset, passed=by_name(groups, "group"))
        names = tuple(names)
        first = _row(dataset, 0)
        absent = [name for name in names if name not in first]
        if absent:
            raise DataError(f"The rows have no group column {quoted(absent[0])}. They have {listed(list(first))}.")
        return cls(dataset, names)

    def hidden(self) -> Any:
        """Return the data set without these columns, where that can be done without reading it."""
        if isinstance(self.dataset, pd.DataFrame):
            return self.dataset.drop(columns=list(self.names))
        transformed = getattr(self.dataset, "format", {}) if hasattr(self.dataset, "remove_columns") else None
        if self.names and transformed is not None and transformed.get("type") != "custom":
            return self.dataset.remove_columns(list(self.names))
        return self.dataset  # rows are dicts, or made by a function of the user's, which may read any column

    def open(self) -> dict[str, Any]:
        """Return the values by column, (n,) each."""
        rows = len(self.dataset)
        given = dict(self.passed) or {name: _group_column(self.dataset, name) for name in self.names}
        found = {name: array_of(values, f"The group column {quoted(name)}") for name, values in given.items()}
        for name, values in found.items():
            if len(values) != rows:
                raise DataError(f"{rows:,} rows and {len(values):,} groups of {quoted(name)}. Pass one for every row.")
        return found


def taken_by(model: Any) -> set[str]:
    """Return the names of the inputs that a network's forward takes, without its labels."""
    base = unwrapped(model)
    taken = set(inspect.signature(base.forward).parameters)
    if isinstance(base, AppendedClassifier) and base.backbone is not None:
        taken |= set(inspect.signature(base.backbone.forward).parameters)
    return taken - {"self", "args", "kwargs", "labels", "return_dict", "output_attentions", "output_hidden_states"}


def backbone_of(model: Any) -> Any:
    """Return the network that reads the inputs: the backbone of an appended encoder, else the model itself."""
    base = unwrapped(model)
    return base.backbone if isinstance(base, AppendedClassifier) and base.backbone is not None else base


def _row(dataset: Any, position: int) -> Any:
    if isinstance(dataset, pd.DataFrame):
        return {str(name): dataset[name].iloc[position] for name in dataset}
    return dataset[position]


def _column(dataset: Any, name: str) -> Any:
    """Return one column; of rows that are no table, each row is read."""
    if isinstance(dataset, pd.DataFrame):
        return dataset[name].tolist()
    if hasattr(dataset, "column_names") and name in dataset.column_names:
        return dataset[name]
    return (dataset[position][name] for position in range(len(dataset)))


def _group_column(dataset: Any, name: str) -> Any:
    """Return one column in the type that it has."""
    if isinstance(dataset, pd.DataFrame):
        return dataset[name]
    column = _column(dataset, name)
    return column if hasattr(column, "__len__") else list(column)


def _plain(value: Any) -> Hashable:
    """Return a value as Python has it: of a tensor or an array of one number, the number."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def _class(value: Any, places: Mapping[str, int], order: Sequence[int], row: int, column: str) -> int:
    value = _plain(value)
    if isinstance(value, str) and value in places:
        return places[value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and 0 <= value < len(order):  # truth values, too
        return order[value]
    names = listed([quoted(name) for name in list(places)[:6]])
    raise DataError(
        f"Row {row} (from 0) has the label {quoted(value)} in column {quoted(column)}. The models know "
        f"{len(places)} classes: positions 0 to {len(places) - 1}, or the names {names}."
    )
