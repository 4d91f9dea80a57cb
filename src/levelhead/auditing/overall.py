"""What is said of a model where no groups are known: accuracy, figures by class, and calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from levelhead.metrics.between import proportion
from levelhead.metrics.clustered import ClusteredCounts, means_within
from levelhead.metrics.intervals import estimate_to_dict
from levelhead.metrics.names import Key
from levelhead.metrics.scores import student
from levelhead.metrics.weighted import weighted_proportion
from levelhead.report.result import Report
from levelhead.report.text import clustered_sentence, percent
from levelhead.report.wide import Fraction
from levelhead.types import Estimate

NOBODYS_GROUP = (
    "No groups are known, so no gap was measured. Name a column in data.sensitive and evaluate again, join groups "
    "later (levelhead audit --join), or audit without groups (docs/missing-attributes.md)."
)


@dataclass(frozen=True)
class Overall(Report):
    """Figures of all rows together, with intervals.

    Attributes:
        rows: how many there are.
        classes: names of the classes.
        accuracy: share of rows that are classified correctly (Wilson's interval).
        by_class: for each class name ``recall`` and ``precision`` (Wilson's interval) and ``calibration``: the mean
            probability that the model gives the class, less the share of rows that are of it (calibration in the
            large, Student's interval); 0 is calibrated, above 0 the model expects the class too often.
        level: confidence level of the intervals.
        together: says how many clusters the rows come in, such as people; empty where rows are independent.
    """

    kind: ClassVar[str] = "evaluation"

    rows: int
    classes: tuple[str, ...]
    accuracy: Estimate
    by_class: dict[str, dict[str, Estimate]]
    level: float = 0.95
    together: str = ""

    @classmethod
    def of(
        cls,
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        classes: Sequence[str],
        level: float = 0.95,
        cluster: pd.Series | None = None,
    ) -> Overall:
        """Compute all figures from labels (n,) and probabilities (n, classes); the largest one is the answer.

        ``cluster`` (n,) is a number for each row, the same for rows that belong together, under the name of what they
        have in common.
        """
        answers = probabilities.argmax(-1)
        codes = None if cluster is None else np.unique(cluster.to_numpy(), return_inverse=True)[1]
        said_together = ""
        if codes is not None and cluster is not None:
            said_together = f"{clustered_sentence(len(codes), int(codes.max()) + 1, str(cluster.name))}."
        by_class = {}
        for code, name in enumerate(classes):
            own, said = labels == code, answers == code
            by_class[name] = {
                "recall": _share(own & said, own, "no row has this class", level, codes),
                "precision": _share(own & said, said, "the model never predicts this class", level, codes),
                "calibration": _mean(probabilities[:, code] - own, level, codes),
            }
        right = answers == labels
        accuracy = _share(right, np.ones(len(labels), bool), "no rows", level, codes)
        return cls(len(labels), tuple(classes), accuracy, by_class, level, said_together)

    def to_dict(self) -> dict[str, Any]:
        """Return plain figures, as ``evaluation-<split>.json`` holds them."""
        by_class = {
            name: {figure: estimate_to_dict(value) for figure, value in figures.items()}
            for name, figures in self.by_class.items()
        }
        overall = {"rows": self.rows, "accuracy": estimate_to_dict(self.accuracy), "by_class": by_class}
        together = [self.together] if self.together else []
        return {
            "kind": self.kind,
            "level": self.level,
            "by_attribute": {},
            "overall": overall,
            "warnings": [NOBODYS_GROUP, *together],
            "sentences": [f"Right for {percent(self.accuracy)}% of {self.rows:,} rows; no groups are known."],
            **self.figures_in_json(),
        }

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the accuracy, and the figures of each class."""
        yield "class", None, Fraction("accuracy"), self.accuracy
        for name, own in self.by_class.items():
            yield from (("class", name, Fraction(figure), one) for figure, one in own.items())


def _share(
    hit: NDArray[np.bool_], asked: NDArray[np.bool_], reason: str, level: float, cluster: NDArray[np.int64] | None
) -> Estimate:
    """Return the share of hits (n,) among the rows (n,) that are requested."""
    hits, rows = int((hit & asked).sum()), int(asked.sum())
    if not rows:
        return Estimate.undefined(reason)
    if cluster is None:
        return proportion(hits, rows, level=level)
    clustered = ClusteredCounts.from_rows(cluster, np.zeros_like(cluster), asked, hit, ("all",), (0, 1))
    return weighted_proportion(clustered.rate("true_positive_rate", 1), (0, 0), level)


def _mean(errors: NDArray[np.float64], level: float, cluster: NDArray[np.int64] | None) -> Estimate:
    """Return the mean of errors (n,) with Student's interval."""
    rows, mean = len(errors), float(errors.mean())
    if rows < 2:
        return Estimate.undefined("a single row", rows)
    if cluster is None:
        return student(mean, float(errors.var(ddof=1)) / rows, rows - 1, rows, level)
    found = means_within(cluster, np.zeros_like(cluster), 1, errors)
    if found.clusters[0] < 2:
        return Estimate.undefined("a single cluster", rows)
    return student(mean, float(found.variance[0]), max(1.0, float(found.freedom[0])), rows, level)
