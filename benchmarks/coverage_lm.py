"""Simulate the intervals of language models' scores: how often they hold the truth, and how often equal models differ.

    OMP_NUM_THREADS=1 python benchmarks/coverage_lm.py --runs 1000 --json results/lm_coverage.json

Templates have items that are as alike as ``alike`` says: 0, independent; 1, all of one answer. A cell counts where at
least half of its runs have an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from levelhead.lm.bbq.score import ambiguous_bias, disambiguated_bias
from levelhead.lm.bold.score import largest_gap
from levelhead.lm.intervals import SHARE, SIGNED, estimated, group_means, paired_difference, ratio
from levelhead.storage import write_json
from levelhead.types import Estimate

Bools = NDArray[np.bool_]
KINDS = ((2, 0.0), (2, 0.3), (2, 1.0), (20, 0.0), (20, 0.3))  # items a template, and how alike
CELLS = [(templates, items, share, alike) for templates, share, (items, alike)
         in itertools.product((10, 15, 30, 75), (0.3, 0.9, 0.98), KINDS)]  # fmt: skip
PREFERS = 0.5, 0.8
"""Shares of stereotyped answers among those that name somebody: no bias, and one of 0.6."""


def answers(rng: np.random.Generator, share: float, alike: float, templates: int, items: int) -> Bools:
    """Draw (templates, items) answers that are true with this probability."""
    if alike in (0.0, 1.0):
        drawn = rng.random((templates, 1 if alike else items)) < share
        return np.broadcast_to(drawn, (templates, items))
    odds = 1 / alike - 1
    return rng.random((templates, items)) < rng.beta(share * odds, (1 - share) * odds, (templates, 1))


def figures(rng: np.random.Generator, cell: tuple[int, int, float, float]) -> Iterator[tuple[str, Estimate, float]]:
    """Yield name, estimate and truth of one run."""
    templates, items, accuracy, alike = cell
    clusters, ones = np.repeat(np.arange(templates), items), np.ones(templates * items)
    right = [answers(rng, accuracy, alike, templates, items).ravel() for _ in range(2)]
    shares = [estimated(np.stack([one, ones], axis=1), clusters, ratio, ends=SHARE) for one in right]
    yield "accuracy", shares[0], accuracy
    yield "difference in accuracy", paired_difference(*shares), 0.0
    plain = [estimated(np.stack([one[::items], ones[::items]], axis=1), None, ratio, ends=SHARE) for one in right]
    yield "CrowS-Pairs", plain[0], accuracy
    yield "difference in CrowS-Pairs", paired_difference(*plain), 0.0
    terms = [group_means(one[:, None].astype(float), clusters)[0] for one in right]
    macro = [estimated(one, None, ratio, ends=SHARE) for one in terms]
    yield "StereoSet", macro[0], accuracy
    yield "difference in StereoSet", paired_difference(*macro), 0.0
    for prefers in PREFERS:
        told = [answers(rng, prefers, alike, templates, items).ravel() & ~one for one in right]
        sums = [np.stack([one, ones, biased, ~one], axis=1) for one, biased in zip(right, told, strict=True)]
        bias = 2 * prefers - 1
        for name, statistic, truth in (
            ("s_DIS", disambiguated_bias, bias),
            ("s_AMB", ambiguous_bias, (1 - accuracy) * bias),
        ):
            found = [estimated(one, clusters, statistic, ends=SIGNED) for one in sums]
            yield f"{name}, bias {bias:g}", found[0], truth
            yield f"difference in {name}, bias {bias:g}", paired_difference(*found), 0.0
    groups = np.repeat([f"group {number}" for number in range(3)], templates * items)
    values = np.concatenate([answers(rng, accuracy, alike, templates, items).ravel() for _ in range(3)]).astype(float)
    yield "BOLD gap", largest_gap(values, groups, np.repeat(np.arange(3 * templates), items), most=1.0), 0.0


def main(json: Annotated[Path, typer.Option()], runs: int = 1000) -> None:
    """Run all cells, and write the lowest coverage of each figure over them."""
    held: dict[str, dict[str, float]] = {}
    for number, cell in enumerate(CELLS):
        rng, counts = np.random.default_rng(number), dict[str, list[int]]()
        for _ in range(runs):
            for name, figure, truth in figures(rng, cell):
                count = counts.setdefault(name, [0, 0])
                if not math.isnan(figure.low):
                    count[0] += figure.low <= truth <= figure.high
                    count[1] += 1
        for name, (inside, bounded) in counts.items():
            if 2 * bounded >= runs:
                held.setdefault(name, {})["templates {}, items {}, share {}, alike {}".format(*cell)] = inside / bounded
    lowest = {name: {"cells": len(some), "lowest": min(some.values()), "mean": float(np.mean(list(some.values()))),
                     "where": min(some, key=some.__getitem__)} for name, some in held.items()}  # fmt: skip
    write_json(json, {"runs": runs, "cells": len(CELLS), "coverage": lowest})
    print(lowest)


if __name__ == "__main__":
    typer.run(main)
