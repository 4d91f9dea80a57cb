"""A simulated design whose truth is known, and the runner of all of them: see coverage.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

LOWEST, HIGHEST = 0.94, 0.985
Record = dict[str, Any]
Once = Callable[[np.random.Generator], list[bool | None]]
"""Simulate an audit; say for each figure whether its interval held the truth, None if it is undefined."""
Row = tuple[Any, ...]
"""What makes a design of figures and an audit of it, with the arguments: a line of a table."""


def titled(title: str | Callable[..., str]) -> Callable[[Any], Any]:
    """Give what makes designs a title, of their arguments."""

    def mark(make: Any) -> Any:
        make.title = title.format if isinstance(title, str) else title
        return make

    return mark


def too_low(record: Record) -> bool:
    """Whether intervals cover too little; of a figure with a star no coverage is required."""
    return bool(record["coverage"] < LOWEST and not record.get("figure", "").endswith("*"))


@dataclass(frozen=True)
class Design:
    """A way to draw audits.

    ``start`` makes from a generator what simulates one audit, by its number; ``records`` sums many up, each record with
    its "coverage". ``missed`` says whether a record fails.
    """

    name: str
    seed: tuple[int, ...]
    start: Callable[[np.random.Generator], Callable[[int], Any]]
    records: Callable[[list[Any]], list[Record]]
    missed: Callable[[Record], bool] = too_low


def simulated(design: Design, trials: int, seed: int) -> list[Record]:
    """Return the records of a design. One that misses is simulated four times as often, and all its trials count."""
    once = design.start(np.random.default_rng((seed, *design.seed)))
    found = [once(trial) for trial in range(trials)]
    records = design.records(found)
    if any(map(design.missed, records)):
        records = design.records(found + [once(trial) for trial in range(trials, 4 * trials)])
    return records


def of_figures(rows: Iterable[Row]) -> Iterator[Design]:
    """Yield the designs of a table; the place of one decides its draws, so that new ones come last."""
    for place, (make, *arguments) in enumerate(rows):
        yield _of_figures(make.title(*arguments), place, make, arguments)


def _of_figures(title: str, place: int, make: Callable[..., Any], arguments: list[Any]) -> Design:
    def start(rng: np.random.Generator) -> Callable[[int], Any]:
        figures, once = make(*arguments)
        return lambda trial: dict(zip(figures, once(rng), strict=True))

    def records(found: list[dict[str, bool | None]]) -> list[Record]:
        kept = {figure: [one[figure] for one in found if one[figure] is not None] for figure in found[0]}
        return [
            {"design": title, "figure": figure, "trials": len(found), "coverage": float(np.mean(held))}
            for figure, held in kept.items()
        ]

    return Design(title, (99, place), start, records)
