"""Views: a part of the input that should not decide, declared by the user; a bias-only network sees it alone.

A view is taken of what a data set gives, texts as strings and pictures as pixels, before a tokenizer, a picture
processor or a frozen backbone has read them. So no data set needs to know of views, and a network reads a view as it
reads the whole input.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from levelhead.csv_form import refuse_irregular
from levelhead.data.base import Inputs
from levelhead.data.images import ImageInputs
from levelhead.data.texts import Texts
from levelhead.types import ConfigError, DataError, printable, quoted, reason_of

OF_TEXTS, OF_PICTURES = ("hypothesis", "words"), ("region", "chroma")
KINDS = ("whole", *OF_TEXTS, *OF_PICTURES)
NOTHING = "."  # represents a text of which a view leaves nothing: every tokenizer makes a token of it
GREY = 128  # nearest to the middle of a channel
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue, ITU-R BT.601


@dataclass(frozen=True)
class View:
    """A part of each input.

    ``kind`` is one of:

    - ``whole``: all of it; nothing is declared.
    - ``hypothesis``, of pairs of texts: the second text alone.
    - ``words``, of texts: the words listed in ``file``, one a line in UTF-8, whatever their case; the others are left
      out. A word is what stands between blanks, without ASCII punctuation around it. Where none is left, there is a
      full stop.
    - ``region``, of pictures: what lies in ``box``, as shares of width and height: left, top, right, bottom, from the
      upper left corner. All else is grey.
    - ``chroma``, of pictures: colour without luminance. Each channel becomes 128 + half its difference from the
      luminance 0.299 R + 0.587 G + 0.114 B; half, so that none leaves 0 to 255.

    Errors: :class:`~levelhead.ConfigError` for options that cannot be right.

    Examples:
        >>> from levelhead.data.texts import Texts
        >>> View("hypothesis")(Texts(["A man sleeps."], ["Nobody sleeps."])).texts
        ['Nobody sleeps.']
    """

    kind: str = "whole"
    file: Path | None = None
    box: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"Unknown method.view.kind {quoted(self.kind)}. Known: {', '.join(KINDS)}.")
        for option, kind in (("file", "words"), ("box", "region")):
            if (getattr(self, option) is not None) != (self.kind == kind):
                raise ConfigError(
                    f"method.view.kind is {self.kind}; method.view.{option} belongs to kind {kind}, and only there: "
                    f"{'give' if self.kind == kind else 'leave out'} method.view.{option}."
                )
        if self.box is not None:
            object.__setattr__(self, "box", tuple(self.box))  # a list has no hash
            left, top, right, bottom = self.box if len(self.box) == 4 else (0.0,) * 4
            if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
                raise ConfigError(
                    f"method.view.box is {list(self.box)}; it must be left, top, right, bottom as shares of width and "
                    "height, 0 to 1, with left < right and top < bottom."
                )

    def __str__(self) -> str:
        """Name the view as tables show it: without folders."""
        if self.file is not None:
            return f"words of {printable(self.file.name)}"
        return self.kind if self.box is None else f"region {', '.join(f'{share:g}' for share in self.box)}"

    def __call__(self, inputs: Inputs) -> Inputs:
        """Return the view of the inputs of a split, as many rows in the same order.

        Errors: :class:`~levelhead.ConfigError` for inputs that have no such view, and for a view that leaves nothing of
        any of them; :class:`~levelhead.DataError` for a list of words that cannot be read.
        """
        if self.kind == "whole":
            return inputs
        wanted = Texts if self.kind in OF_TEXTS else ImageInputs
        if not isinstance(inputs, wanted):
            raise ConfigError(
                f"method.view.kind {self.kind} is a view of {wanted.__name__}, and the data gives "
                f"{type(inputs).__name__}: choose another view, or leave it out."
            )
        if isinstance(inputs, Texts):
            return self._of_texts(inputs)
        assert isinstance(inputs, ImageInputs)
        if self.box is not None:
            self._pixels(*inputs.pixels.shape[-2:])  # which refuses a box without any
        return _ViewedPictures(inputs.pixels, self)

    def fingerprint(self) -> dict[str, str]:
        """Return a hash of what the view takes from outside the recipe: the words that are kept."""
        if self.file is None:
            return {}
        return {"words": hashlib.blake2b("\n".join(sorted(self._words())).encode(), digest_size=16).hexdigest()}

    def of_pictures(self, pictures: Tensor) -> Tensor:
        """Return the view of ``pictures`` (batch, 3, height, width) uint8, of the same shape and type."""
        if self.kind == "chroma":
            weights = torch.tensor(LUMINANCE, device=pictures.device)[:, None, None]
            colours = pictures.float()
            luminance = (weights * colours).sum(1, keepdim=True)
            return (GREY + (colours - luminance) / 2).round().to(torch.uint8)
        rows, columns = self._pixels(*pictures.shape[-2:])
        result = torch.full_like(pictures, GREY)
        result[..., rows, columns] = pictures[..., rows, columns]
        return result

    def _pixels(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the rows and the columns of pixels that the box holds."""
        assert self.box is not None
        left, top, right, bottom = self.box
        rows = slice(round(top * height), round(bottom * height))
        columns = slice(round(left * width), round(right * width))
        if rows.start == rows.stop or columns.start == columns.stop:
            raise ConfigError(
                f"method.view.box {list(self.box)} holds no pixel of pictures of {width}x{height}: make it larger."
            )
        return rows, columns

    def _of_texts(self, texts: Texts) -> Texts:
        if self.kind == "hypothesis":
            if texts.pairs is None:
                raise ConfigError(
                    f"method.view.kind hypothesis keeps the second of two texts, and {texts.where} has one a row: "
                    "choose data of pairs (text-csv: set data.pair_column), or another view."
                )
            return Texts(texts.pairs, where=texts.where)
        words = self._words()
        firsts, seconds = (None if column is None else _only(words, column) for column in (texts.texts, texts.pairs))
        assert firsts is not None
        if all(text == NOTHING for text in (*firsts, *(seconds or ()))):
            raise ConfigError(f"None of the words in {self.file} (method.view.file) occurs in {texts.where}.")
        return Texts(firsts, seconds, where=texts.where)

    def _words(self) -> frozenset[str]:
        assert self.file is not None
        refuse_irregular(self.file)
        try:
            words = frozenset(map(_bare, self.file.read_text(encoding="utf-8-sig").split())) - {""}
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.file} (method.view.file) cannot be read: {reason_of(error)}.") from None
        if not words:
            raise DataError(f"{self.file} (method.view.file) lists no word. Write one word per line.")
        return words


class _ViewedPictures(ImageInputs):
    """A view of pictures, taken batch by batch: pixels that are mapped from a file stay there."""

    def __init__(self, pixels: Tensor, view: View) -> None:
        super().__init__(pixels)
        self.view = view

    def pictures(self, index: Tensor) -> Tensor:
        return self.view.of_pictures(super().pictures(index))

    def on(self, device: torch.device) -> ImageInputs:
        return _ViewedPictures(super().on(device).pixels, self.view)

    def fingerprint(self) -> str:
        return f"{super().fingerprint()} {self.view!r}"


def _bare(word: str) -> str:
    return word.strip(string.punctuation).lower()


def _only(words: frozenset[str], texts: Sequence[str]) -> list[str]:
    """Return the texts without all words but these."""
    return [" ".join(word for word in map(_bare, text.split()) if word in words) or NOTHING for text in texts]
