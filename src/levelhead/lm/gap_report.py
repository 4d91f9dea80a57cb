"""The attention gap of a language model on target terms that it was not trained on, with intervals.

Beside the gap stand two guards. Equal attention everywhere has no gap and has learnt nothing: entropy shows it. A model
that now prefers the anti-stereotype as strongly as the stereotype before is polarised the other way: the difference of
log-probabilities shows it, signed and absolute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from levelhead.lm.base import model_name
from levelhead.lm.gap_analysis import PairGaps, pair_gaps
from levelhead.lm.intervals import estimated, paired_difference, ratio
from levelhead.lm.klaad import collate
from levelhead.lm.stereoset.data import read_terms, same_term
from levelhead.lm.triplets import HELD_OUT_TERMS, Triplet, terms_held_out
from levelhead.metrics import estimate_to_dict
from levelhead.types import ConfigError, DataError, Estimate, quoted

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel

PUBLISHED: Mapping[str, Any] = {
    "model": "Llama-3.2-3B",
    "share": 0.4845,
    "chance": 0.0910,
    "bearing_gap": 0.0022,
    "other_gap": 0.0010,
}
"""The KLAAD paper's values; its pairs and its matching of tokens are not known."""

UNITS: Mapping[str, str] = {
    "share": "share of pairs whose largest gap lies on bias-bearing tokens",
    "chance": "the same share if the largest gap fell on any token alike",
    "share_minus_chance": "difference of the two shares",
    "bearing_gap": "mean attention gap of bias-bearing tokens, attention received per query",
    "other_gap": "mean attention gap of all other tokens, attention received per query",
    "entropy": "entropy of the last layer's attention, 1 if all visible tokens are looked at alike",
    "likelihood_difference": "log-probability of stereotype minus anti-stereotype, mean, nats a sentence",
    "likelihood_difference_absolute": "its absolute value, mean, nats a sentence",
}
Values = NDArray[np.float64]


@dataclass(frozen=True)
class GapReport:
    """The figures of a model, and of the model before it was trained, if that was requested.

    ``figures`` map "after", and where it was requested "before", to the estimates by the names of :data:`UNITS`, whose
    intervals draw target terms again; "difference" is after minus before over the same terms. ``about`` is plain JSON:
    ``models``, ``selection``, numbers of ``pairs``, ``left_out`` and ``terms``, and ``notes``.
    """

    figures: Mapping[str, Mapping[str, Estimate]]
    about: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the aggregates; nothing in it belongs to a single pair."""
        figures = {
            name: {"unit": unit} | {side: estimate_to_dict(found[name]) for side, found in self.figures.items()}
            for name, unit in UNITS.items()
        }
        return {"kind": "attention gap", **self.about, "figures": figures, "published": dict(PUBLISHED)}


def gap_report(
    model: LanguageModel,
    triplets: Sequence[Triplet],
    *,
    against: LanguageModel | None = None,
    selection: str = "",
) -> GapReport:
    """Measure ``model``, and ``against`` (the model before) on the same pairs.

    ``selection`` says in words which ``triplets`` they are. Pairs that one of the two models cannot use (no replaced
    token, or nothing else) are left out for both.

    Raises :class:`~levelhead.types.DataError` if no pair can be used or if a sentence is beyond a model's limit,
    :class:`~levelhead.types.ConfigError` for a masked model and for two of one name, and
    :class:`~levelhead.types.UnsupportedModelError` for a model that gives no attention weights.
    """
    sides = {"after": model} | ({} if against is None else {"before": against})
    names = {side: model_name(one.name) for side, one in sides.items()}
    if len({*names.values()}) < len(sides):
        raise ConfigError(f"Both models are called {quoted(names['after'])}. Compare with another one, or rename one.")
    pairs = {side: _measured(one, triplets) for side, one in sides.items()}
    rows = [row for row in range(len(triplets)) if all(found[row].used for found in pairs.values())]
    if not rows:
        raise DataError("No pair has both replaced and common tokens: the attention gap is undefined.")
    named = all(triplets[row].term.strip() for row in rows)
    clusters = [same_term(triplets[row].term) if named else str(row) for row in rows]
    figures = {side: _figures([found[row] for row in rows], clusters) for side, found in pairs.items()}
    if against is not None:
        before, after = figures["before"], figures["after"]
        figures["difference"] = {name: paired_difference(before[name], after[name]) for name in before}
    notes = [str(model.beginning)]
    if not named:
        notes.append("Triplets have no target terms, so intervals draw pairs: too narrow if pairs share a term.")
    about = {
        "models": names,
        "selection": selection,
        "pairs": len(rows),
        "left_out": len(triplets) - len(rows),
        "terms": len(set(clusters)),
        "notes": notes,
    }
    return GapReport(figures, about)


def _measured(model: LanguageModel, triplets: Sequence[Triplet]) -> list[PairGaps]:
    if not model.causal:
        raise ConfigError(f"{model.name} is a masked language model: attention gaps are those of a causal one.")
    for row, triplet in enumerate(triplets):
        length = int(collate(model.tokenizer, [triplet]).attention_mask[:2].sum(1).max())
        if model.longest is not None and length > model.longest:
            raise DataError(
                f"Pair {row} (term {quoted(triplet.term)}) has a sentence of {length} tokens, and {model.name} "
                f"takes {model.longest}: leave it out."
            )
    return pair_gaps(model.network, model.tokenizer, triplets)


def _figures(pairs: Sequence[PairGaps], clusters: Sequence[str]) -> dict[str, Estimate]:
    ones = [1.0] * len(pairs)
    hits, chances = [pair.hit for pair in pairs], [pair.chance for pair in pairs]
    likelihoods = [pair.likelihood for pair in pairs]

    def mean(values: Sequence[float], weights: Sequence[float] = ones) -> Estimate:
        return estimated(np.stack([values, weights], axis=1), clusters, ratio)

    def gap(bearing: bool) -> Estimate:
        kinds = [pair.bearing == bearing for pair in pairs]
        sums = [float(pair.gaps[kind].double().sum()) for pair, kind in zip(pairs, kinds, strict=True)]
        return mean(sums, [float(kind.sum()) for kind in kinds])

    return {
        "share": mean(hits),
        "chance": mean(chances),
        "share_minus_chance": mean([hit - chance for hit, chance in zip(hits, chances, strict=True)]),
        "bearing_gap": gap(True),
        "other_gap": gap(False),
        "entropy": mean([pair.entropy for pair in pairs]),
        "likelihood_difference": mean(likelihoods),
        "likelihood_difference_absolute": mean([abs(value) for value in likelihoods]),
    }


def held_out_triplets(
    triplets: Sequence[Triplet], places: Sequence[str], terms: Path | None = None
) -> tuple[list[Triplet], str]:
    """Return the triplets of terms that no model of ``places`` was trained on, and in words which these are.

    Those of a file of ``terms``; else of the terms that the trainings of these models have held out; else all.

    Raises :class:`~levelhead.types.DataError` for a model that may have been trained on all terms, and if no triplet is
    left.
    """
    held_out = {place: those for place in places if (those := terms_held_out(place)) is not None}
    if terms is not None:
        kept, how = frozenset(map(same_term, read_terms(terms))), f"the terms of {terms.name}"
        if seen := kept - kept.intersection(*held_out.values()):
            how += f", {len(seen)} of which a training may have seen"
    elif unknown := [place for place, those in held_out.items() if not those]:
        raise DataError(
            f"{unknown[0]} was trained by KLAAD without {HELD_OUT_TERMS}: its held-out terms are unknown. Give --terms "
            "with a file of such terms, one per line."
        )
    elif held_out:
        kept, how = frozenset.intersection(*held_out.values()), "the terms that the training held out"
    else:
        return list(triplets), "no model was trained by KLAAD"
    found = [triplet for triplet in triplets if same_term(triplet.term) in kept]
    if not found:
        raise DataError(f"No triplet is about {how}. Give --terms with terms that no training has seen.")
    return found, how
