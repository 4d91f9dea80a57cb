"""What is said of a model where nobody's group is known: accuracy, figures by class, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from levelhead.metrics.intervals import estimate_to_dict, proportion
from levelhead.metrics.scores import student
from levelhead.terminal import plain_text
from levelhead.types import Estimate, printable

NOBODYS_GROUP = (
    "Nobody's group is known, so nothing is said about gaps. To look at them: name a column in data.sensitive and "
    "evaluate again, or join groups later (levelhead audit --join), or audit without the attribute "
    "(docs/missing-attributes.md)."
)
TITLES = {
    "recall": "of its rows found (recall)",
    "precision": "of its answers right (precision)",
    "calibration": "mean probability less share of rows",
}


@dataclass(frozen=True)
class Overall:
    """Figures of all rows together, with intervals.

    Attributes:
        rows: how many there are.
        classes: names of the classes.
        accuracy: share of rows that are classified correctly (Wilson's interval).
        by_class: for each class name ``recall`` and ``precision`` (Wilson's interval) and ``calibration``: the mean
            probability that the model gives the class, less the share of rows that are of it (calibration in the
            large, Student's interval); 0 is calibrated, above 0 the model expects the class too often.
        level: confidence level of the intervals.
    """

    rows: int
    classes: tuple[str, ...]
    accuracy: Estimate
    by_class: dict[str, dict[str, Estimate]]
    level: float = 0.95

    @classmethod
    def of(
        cls, labels: NDArray[np.int64], probabilities: NDArray[np.float64], classes: Sequence[str], level: float = 0.95
    ) -> Overall:
        """Compute all figures from labels (n,) and probabilities (n, classes); the largest one is the answer."""
        answers = probabilities.argmax(-1)
        by_class = {}
        for code, name in enumerate(classes):
            own, said = labels == code, answers == code
            hits, errors = int((own & said).sum()), probabilities[:, code] - own
            by_class[name] = {
                "recall": _share(hits, int(own.sum()), "no row is of this class", level),
                "precision": _share(hits, int(said.sum()), "the model never answers this class", level),
                "calibration": student(
                    float(errors.mean()), float(errors.var(ddof=1)) / len(errors), len(errors) - 1, len(errors), level
                )
                if len(errors) > 1
                else Estimate.undefined("a single row", len(errors)),
            }
        right = int((answers == labels).sum())
        return cls(len(labels), tuple(classes), _share(right, len(labels), "no rows", level), by_class, level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain figures, as ``evaluation-<split>.json`` holds them."""
        by_class = {
            name: {figure: estimate_to_dict(value) for figure, value in figures.items()}
            for name, figures in self.by_class.items()
        }
        overall = {"rows": self.rows, "accuracy": estimate_to_dict(self.accuracy), "by_class": by_class}
        return {"level": self.level, "by_attribute": {}, "overall": overall, "warnings": [NOBODYS_GROUP]}

    def table(self) -> Group:
        """Return a table that ``rich`` can print."""
        table = Table(title=f"{self.rows:,} rows, accuracy {_text(self.accuracy)}", title_justify="left")
        table.add_column("Class", overflow="fold")
        for title in TITLES.values():
            table.add_column(title.capitalize(), justify="right")
        for name, figures in self.by_class.items():
            table.add_row(
                Text(printable(name)), *(_text(figures[figure], figure == "calibration") for figure in TITLES)
            )
        table.caption, table.caption_justify = Text(f"percent [{100 * self.level:g}% interval]"), "left"
        return Group(table, Text(NOBODYS_GROUP))

    def __str__(self) -> str:
        return plain_text(self.table())


def _share(hits: int, rows: int, reason: str, level: float) -> Estimate:
    return proportion(hits, rows, level=level) if rows else Estimate.undefined(reason)


def _text(figure: Estimate, signed: bool = False) -> str:
    if figure.reason:
        return f"undefined: {figure.reason}"
    sign = "+" if signed else ""
    value, low, high = (f"{100 * end:{sign}.1f}" for end in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]"
