"""Texts: read once as strings, turned into token ids by the tokenizer of the network that will read them.

A data set gives :class:`Texts`; a network with a tokenizer makes :class:`TokenInputs` of them before training begins.
Token ids are kept end to end without padding; a batch is padded to its own longest text.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from levelhead.data.base import Inputs
from levelhead.data.text_files import read_columns
from levelhead.terminal import tracked
from levelhead.types import DataError, LevelheadError

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1000  # texts tokenised at once: enough for the tokenizer's threads, few enough for a bar that moves
SHOW_PROGRESS_FROM = 20_000  # texts; fewer take about a second

logger = logging.getLogger(__name__)


class Texts(Inputs):
    """The texts of one split, or pairs of texts (premise and hypothesis), as strings.

    ``where`` says where they were read, for errors. Raises :class:`~levelhead.types.DataError` for a text that is
    missing or blank.
    """

    def __init__(self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, where: str = "the data") -> None:
        for column in (texts, pairs or ()):
            blank = [row for row, text in enumerate(column) if not isinstance(text, str) or not text.strip()]
            if blank:
                raise DataError(
                    f"{where}: {len(blank)} of {len(column)} texts are empty, the first in row {blank[0]} (from 0). "
                    "Drop these rows, or fill them."
                )
        if pairs is not None and len(pairs) != len(texts):
            raise DataError(f"{where}: {len(texts)} first texts and {len(pairs)} second ones.")
        self.texts, self.pairs, self.where = list(texts), None if pairs is None else list(pairs), where

    def __len__(self) -> int:
        return len(self.texts)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Raise: a network takes token ids, see :func:`tokenize`."""
        raise LevelheadError("Texts must be tokenised before a network can read them: use a model with a backbone.")

    def fingerprint(self) -> str:
        """Return a hash of the texts."""
        digest = hashlib.blake2b(digest_size=16)
        for column in (self.texts, self.pairs or ()):
            digest.update(len(column).to_bytes(8, "little"))
            for text in column:
                encoded = text.encode("utf-8", "surrogatepass")
                # The length first: two texts must not hash as one when letters move from the one to the other.
                digest.update(len(encoded).to_bytes(8, "little"))
                digest.update(encoded)
        return digest.hexdigest()

    def keys(self) -> list[str]:
        """Return a hash of each text, or pair of texts."""
        found = []
        for row, text in enumerate(self.texts):
            first = text.encode("utf-8", "surrogatepass")
            second = b"" if self.pairs is None else self.pairs[row].encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(len(first).to_bytes(8, "little") + first + second, digest_size=16)
            found.append(digest.hexdigest())
        return found

    def chosen(self, index: Tensor) -> Texts:
        """Return the texts at ``index`` (n,) int64."""
        rows = index.tolist()
        pairs = None if self.pairs is None else [self.pairs[row] for row in rows]
        return Texts([self.texts[row] for row in rows], pairs, where=self.where)

    def joined(self, others: Sequence[Texts]) -> Texts:
        """Return these texts and ``others``."""
        every = (self, *others)
        pairs = None if self.pairs is None else [text for one in every for text in one.pairs or ()]
        return Texts([text for one in every for text in one.texts], pairs, where=self.where)


def texts_of(table: Path, columns: Sequence[str]) -> Texts:
    """Return the texts of a table's column, or the pairs of two; opens no other column."""
    found = read_columns(table, columns)
    return Texts(*(found[name] for name in columns), where=str(table))


class TokenInputs(Inputs):
    """Token ids of one split without padding.

    ``columns`` are what the tokenizer returns for each token (``input_ids``, ``token_type_ids``), each (all tokens,)
    int32, the texts one after another; ``lengths`` (n,) int64 their numbers of tokens. A batch is padded to its longest
    text, on the right, with an ``attention_mask``.
    """

    lengths: Tensor

    def __init__(self, columns: dict[str, Tensor], lengths: Tensor, padding: dict[str, int]) -> None:
        self.columns, self.lengths, self.padding = columns, lengths, padding
        self._ends = lengths.cumsum(0)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return each column and the ``attention_mask``, all (batch, longest) int64."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        lengths = self.lengths[index]
        ends = self._ends[index]
        spans = [slice(end - length, end) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
        batch = {
            name: pad_sequence([column[span] for span in spans], True, self.padding.get(name, 0)).long()
            for name, column in self.columns.items()
        }
        batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return batch

    def highest(self, name: str) -> int:
        """Return the highest number in a column, padding included; -1 where there is no such column."""
        if name not in self.columns:
            return -1
        return max(int(self.columns[name].max()), self.padding.get(name, 0))

    def fingerprint(self) -> str:
        """Return a hash of the token ids and their lengths."""
        digest = hashlib.blake2b(digest_size=16)
        for name, column in (*sorted(self.columns.items()), ("lengths", self.lengths)):
            digest.update(f"{name} {len(column)} {self.padding.get(name, 0)}".encode())
            digest.update(np.ascontiguousarray(column.numpy()).data)
        return digest.hexdigest()


def tokenize(texts: Texts, tokenizer: Any, max_length: int) -> TokenInputs:
    """Turn texts into token ids, at most ``max_length`` each; a warning counts those that reach it.

    ``tokenizer`` is one of transformers; it tokenises many texts at once. One without a padding token is fine: padded
    places are masked, whatever stands there. Raises :class:`~levelhead.types.DataError` for a text without any token.
    """
    import torch

    columns: dict[str, list[Tensor]] = {}
    lengths: list[int] = []
    for start in tracked(range(-(-len(texts) // CHUNK)), "Tokenising texts", shown=len(texts) >= SHOW_PROGRESS_FROM):
        part = slice(start * CHUNK, (start + 1) * CHUNK)
        firsts, seconds = texts.texts[part], None if texts.pairs is None else texts.pairs[part]
        encoded = tokenizer(firsts, seconds, truncation=True, max_length=max_length, return_attention_mask=False)
        here = [len(ids) for ids in encoded["input_ids"]]
        empty = [row for row, length in enumerate(here) if length == 0]
        if empty:
            raise DataError(
                f"{texts.where}: the tokenizer makes no token of the text in row {part.start + empty[0]} (from 0). "
                "Drop it."
            )
        lengths += here
        for name, rows in encoded.items():
            columns.setdefault(name, []).append(
                torch.tensor([value for row in rows for value in row], dtype=torch.int32)
            )
    if full := sum(length >= max_length for length in lengths):
        said = "%s: %d of %d texts fill all %d tokens; what is longer is cut."
        logger.warning(said, texts.where, full, len(texts), max_length)
    padding = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
    return TokenInputs({name: torch.cat(parts) for name, parts in columns.items()}, torch.tensor(lengths), padding)
