"""Rows with a score: what it can be, which class it is about, and the decisions at a threshold."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.scale import AUTO, Scale, find_scale
from levelhead.metrics.clustered_scores import ScoredRows
from levelhead.metrics.names import Key
from levelhead.tables.columns import Column, FloatArray
from levelhead.tables.rows import Rows
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import LabelMap, agree, check_labels, in_order
from levelhead.types import ConfigError, DataError, listed


class ScoreRows(Rows):
    """Rows with a ``label``, a ``score`` and groups, and perhaps a ``prediction`` and a ``cluster``."""

    @property
    def labels(self) -> dict[Hashable, int]:
        """The labels, with their codes."""
        return self.known["label"]

    def settle(self, wanted: str = AUTO) -> Scale:
        """Check the scores, find their scale (:func:`find_scale`), and keep probabilities between 0 and 1."""
        self.check()
        scale = find_scale((batch["score"] for batch in self.batches()), self.titles["score"], wanted)
        self.parts["score"] = [scale.clip(part) for part in self.parts["score"]]
        return scale

    def ends(self) -> tuple[float, float]:
        """Return the lowest and the highest score."""
        each = [(batch["score"].min(), batch["score"].max()) for batch in self.batches()]
        return float(min(low for low, _ in each)), float(max(high for _, high in each))

    def merge(self, label_map: LabelMap) -> dict[Hashable, Hashable]:
        """Join labels of one class under one of them, and return the class of each that is left.

        Raises:
            DataError: two labels are alike, and the map does not say what they are; or as :meth:`LabelMap.apply`.
        """
        predictions = dict.fromkeys(self.known.get("prediction", ()), 1)
        as_label, _, classes, _ = agree(dict.fromkeys(self.labels, 1), predictions, label_map)
        check_labels(classes, label_map.kept)
        first: dict[Hashable, Hashable] = {}
        for label in sorted(self.labels, key=lambda label: str(label) != str(as_label[label])):
            first.setdefault(as_label[label], label)
        if len(first) < len(self.labels):
            kept = {label: at for at, label in enumerate(first.values())}
            codes = np.array([kept[first[as_label[label]]] for label in self.labels], np.int64)
            self.parts["label"] = [codes.astype(part.dtype)[part] for part in self.parts["label"]]
            self.known["label"] = kept
        return {label: as_label[label] for label in self.labels}

    def positive(
        self, wanted: Hashable, class_of: Mapping[Hashable, Hashable], label_map: LabelMap
    ) -> tuple[Hashable, Hashable]:
        """Return the label that scores are about, and the other; ``class_of`` is what :meth:`merge` returned."""
        labels = {class_of[label]: label for label in self.labels}
        known = in_order(labels)
        classes = [labels[one] for one in known]
        if len(classes) != 2:
            raise DataError(
                f"{self.titles['label']} has {len(classes)} {'class' if len(classes) == 1 else 'classes'}: "
                f"{listed(classes, 10)}. A score orders two classes; with more, audit predicted classes."
            )
        at = label_map.place(wanted, known)
        return (classes[1], classes[0]) if at is None else (classes[at], classes[1 - at])

    def decided(
        self,
        scale: Scale,
        threshold: float,
        label: Hashable,
        label_map: LabelMap,
        scores: Sequence[FloatArray] | None = None,
    ) -> Column:
        """Return the classes of scores, these or others, that are about a label."""
        class_of = self.merge(label_map)
        low, high = (0.0, 1.0) if scale.probabilities else (-np.inf, np.inf)
        parts = self.parts["score"] if scores is None else scores
        reached = [np.clip(part, low, high) >= threshold for part in parts]
        (other,) = set(class_of.values()) - {class_of[label]}
        return np.concatenate(reached).astype(np.int64), [other, class_of[label]]

    def check_finite(self) -> None:
        """Raise :class:`DataError` where there are no rows, or a score is missing or infinite."""
        rows, wrong, first = 0, 0, 0
        for batch in self.batches():
            if len(found := np.flatnonzero(~np.isfinite(batch["score"]))):
                first, wrong = first if wrong else rows + int(found[0]) + 1, wrong + len(found)
            rows += len(batch["score"])
        if not rows:
            raise DataError("There are no rows to audit. Pass at least one labelled score.")
        if wrong:
            raise DataError(
                f"{self.titles['score']}: {wrong} scores are missing or not finite, first in row {first} (counted "
                "from 1). Fill them in or leave those rows out."
            )

    def check(self) -> None:
        """Raise :class:`DataError` for scores that are none."""
        self.check_finite()
        decisions = all(
            np.isin(batch["score"][:1000], (0.0, 1.0)).all() and np.isin(batch["score"], (0.0, 1.0)).all()
            for batch in self.batches()
        )
        if decisions and self.ends() == (0.0, 1.0):
            raise DataError(
                f"{self.titles['score']} has only 0 and 1: these are decisions, not scores. Pass the scores "
                "behind them, or audit them as the prediction."
            )

    def tally(self, tally: Tally, threshold: float, positive: Hashable, other: Hashable) -> None:
        """Count rows by label, group and prediction: the given one, or whether the score reaches the threshold.

        ``positive`` and ``other`` are classes of predictions.
        """
        for batch in self.batches():
            decided = (batch["score"] >= threshold).astype(np.int64), [other, positive]
            tally.add(
                self.column("label", batch),
                self.column("prediction", batch) if "prediction" in batch else decided,
                {name: self.column(f"group {name}", batch) for name in tally.groups},
                cluster=self.column("cluster", batch) if "cluster" in batch else None,
            )

    def scored(self, positive: Hashable, key: Key, there: Sequence[Key]) -> ScoredRows | None:
        """Return the rows and their clusters, with the place of the group among ``there``; None where none repeats."""
        if not 0 < len(self.known.get("cluster", ())) < len(self):
            return None
        label, score, group = map(np.concatenate, zip(*self.parted(positive, key, there), strict=True))
        return ScoredRows(label, score, group.astype(np.int64), self.whole("cluster").astype(np.int64))

    def parted(
        self, positive: Hashable, key: Key, there: Sequence[Key]
    ) -> Iterator[tuple[NDArray[np.bool_], FloatArray, NDArray[np.int16]]]:
        """Yield label (True for positives), score, and the place of the group among ``there``, some rows at a time."""
        group_of = self.members(key, there)
        for batch in self.batches():
            yield batch["label"] == self.labels[positive], batch["score"], group_of(batch)


def check_thresholds(threshold: float | Sequence[float] | None) -> tuple[float, ...]:
    """Return thresholds, each once, in the order given; raise :class:`ConfigError` for what is none."""
    given = () if threshold is None else threshold if isinstance(threshold, Sequence) else (threshold,)
    for one in given:
        if not math.isfinite(one):
            raise ConfigError(f"threshold={one} is not a finite number. Pass one in the units of the score.")
    return tuple(dict.fromkeys(float(one) for one in given))
