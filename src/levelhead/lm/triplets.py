"""Triplets of sentences that attention alignment trains on, and a split that never trains on a term it evaluates.

StereoSet's public development set is both the usual training source and the usual evaluation. So split by target term:

>>> triplets = [Triplet("A ate pears.", "A ate plums.", "A ate clouds.", "", term, "fruit") for term in "abcdefgh"]
>>> split = split_terms(triplets, seed=0, share=0.5)
>>> split.held_out_terms & {triplet.term for triplet in split.train}
frozenset()

Score the trained model with ``StereoSet(terms=split.held_out_terms)``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from levelhead.data.text_files import TABLE_SUFFIXES
from levelhead.lm.files import filled_columns
from levelhead.lm.stereoset.data import INTER, INTRA, read_stereoset, read_terms, same_term, stereoset_file
from levelhead.storage import write_text
from levelhead.types import ConfigError, DataError

COLUMNS = ("stereo", "anti", "unrelated")
OPTIONAL = ("context", "term", "bias_type")
TRAINING = "klaad.json"  # the settings of a training, see levelhead.lm.klaad_training
HELD_OUT_TERMS = "held-out-terms.txt"  # beside a trained model: the terms that it was not trained on


@dataclass(frozen=True)
class Triplet:
    """Three sentences about one target term.

    ``context`` is the sentence before in an "intersentence" triplet, and the template (or nothing) in an
    "intrasentence" one. ``term`` and ``bias_type`` are empty where they are not known.
    """

    stereotype: str
    anti_stereotype: str
    unrelated: str
    context: str = ""
    term: str = ""
    bias_type: str = ""
    task: str = INTRA


@dataclass(frozen=True)
class TermSplit:
    """Triplets to train on and triplets held out, which have no target term in common."""

    train: tuple[Triplet, ...]
    held_out: tuple[Triplet, ...]

    @property
    def held_out_terms(self) -> frozenset[str]:
        """The target terms to evaluate on."""
        return frozenset(triplet.term for triplet in self.held_out)

    def __str__(self) -> str:
        """Say how many terms are held out, in all and of each bias type."""
        types = _bias_types([*self.train, *self.held_out])
        every = Counter(types.values())
        held = Counter(types[same_term(term)] for term in {same_term(term) for term in self.held_out_terms})
        parts = [f"{held[kind]} of {count} {kind}" for kind, count in sorted(every.items()) if kind]
        return f"{held.total()} of {every.total()} target terms held out" + (f": {', '.join(parts)}" if parts else "")


def stereoset_triplets(root: Path | None) -> list[Triplet]:
    """Read the triplets of StereoSet below ``root`` (None: ``$LEVELHEAD_DATA``, then ``data``), in either layout."""
    return read_triplets(stereoset_file(root))


def read_triplets(path: Path) -> list[Triplet]:
    """Read triplets from a StereoSet file in either layout, or from an own table (csv or tsv, also gzipped).

    A table has the columns ``stereo``, ``anti`` and ``unrelated``, and may have ``context``, ``term`` and
    ``bias_type``. A row with a context is an intersentence triplet.

    Raises :class:`~levelhead.types.DataError` that names file and item or row, never a sentence.
    """
    if path.name.endswith(TABLE_SUFFIXES):
        return _table(path)
    fields = ("stereotype", "anti_stereotype", "unrelated", "context", "target", "bias_type", "task")
    return [Triplet(*(item.content[field] for field in fields)) for item in read_stereoset(path)]


def split_terms(triplets: Sequence[Triplet], *, seed: int, share: float) -> TermSplit:
    """Split triplets by target term: within each bias type, hold out the ``share`` of terms with the smallest hashes.

    Each bias type holds out ``share`` times its number of terms, rounded, and never all of them. So every type with at
    least 0.5 / ``share`` terms has some. A term of several types counts in the first by name. The hash is of the seed
    and the term, so neither order nor machine matter, and a larger share holds out all the terms of a smaller one. Case
    and outer spaces do not make another term. A sentence may still mention a term that it is not about.

    Raises :class:`~levelhead.types.ConfigError` for a share that is not between 0 and 1, and
    :class:`~levelhead.types.DataError` for triplets without a term, or if one side is empty.
    """
    if not 0 < share < 1:
        raise ConfigError(f"share is {share}; the share of held-out terms must be between 0 and 1.")
    without = sum(not triplet.term.strip() for triplet in triplets)
    if without:
        raise DataError(
            f"{without} of {len(triplets)} triplets have no term, so they cannot be split by term. Fill it."
        )
    types = _bias_types(triplets)
    chosen: set[str] = set()
    for kind in set(types.values()):
        terms = sorted((term for term in types if types[term] == kind), key=lambda term: _hash(term, seed))
        chosen.update(terms[: min(math.floor(share * len(terms) + 0.5), len(terms) - 1)])
    train = tuple(triplet for triplet in triplets if same_term(triplet.term) not in chosen)
    held_out = tuple(triplet for triplet in triplets if same_term(triplet.term) in chosen)
    if not held_out:
        raise DataError(f"A share of {share} of {len(types)} terms holds out none: give a larger share or more terms.")
    return TermSplit(train, held_out)


def _hash(term: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}\n{term}".encode(), digest_size=8).digest()


def _bias_types(triplets: Iterable[Triplet]) -> dict[str, str]:
    """Return the bias type of each term, the first by name where a term has several."""
    types: dict[str, str] = {}
    for triplet in triplets:
        term = same_term(triplet.term)
        types[term] = min(types.get(term, triplet.bias_type), triplet.bias_type)
    return types


def write_terms(path: Path, terms: frozenset[str]) -> None:
    """Write target terms, one a line and sorted: the file that ``--terms`` names."""
    write_text(path, "".join(f"{term}\n" for term in sorted(terms)))


def terms_held_out(place: str) -> frozenset[str] | None:
    """Return the terms that the KLAAD training of a model has held out, in one spelling; None if there was none.

    Empty where the training left no record of them: it may have seen every term.
    """
    folder = Path(place).resolve().parent
    if (folder / HELD_OUT_TERMS).is_file():
        return frozenset(map(same_term, read_terms(folder / HELD_OUT_TERMS)))
    return frozenset() if Path(place).is_dir() and (folder / TRAINING).is_file() else None


def refuse_trained(place: str) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a model that KLAAD has trained: it has seen other terms."""
    if terms_held_out(place) is not None:
        raise ConfigError(f"model.name {place} was trained by KLAAD, on terms to hold out here: give the model before.")


def _table(path: Path) -> list[Triplet]:
    columns = filled_columns(path, COLUMNS, OPTIONAL)
    rows = len(columns["stereo"])
    context, term, bias_type = (columns.get(name, [""] * rows) for name in OPTIONAL)
    stereo, anti, unrelated = (columns[name] for name in COLUMNS)
    sentences, about = zip(stereo, anti, unrelated, strict=True), zip(context, term, bias_type, strict=True)
    return [
        Triplet(*texts, *more, task=INTER if more[0].strip() else INTRA)
        for texts, more in zip(sentences, about, strict=True)
    ]
