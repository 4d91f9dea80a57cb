"""Prompt noise: how much scores change with the wording of a prompt and the order of its options.

A benchmark is asked in each of a fixed set of wordings (:meth:`~levelhead.lm.base.Benchmark.wordings`), on the same
items. Of a wording with several orders, the mean over the orders counts. The interval over items and wordings takes the
wordings as a sample of those that somebody might have written: its variance is that of the mean under joint draws of
the items, plus what wordings differ by beyond the noise of (wording x item), divided by their number
(:func:`~levelhead.lm.intervals.over_seeds`). The first wording's answers lie in the run folder as ever, those of the
others below ``prompts/``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.lm.base import Answer, Benchmark, Headline, Item, Scores
from levelhead.lm.intervals import SHARE, estimated, over_seeds, paired_difference, pooled, ratio
from levelhead.lm.runner import rescored, scores_file
from levelhead.metrics import estimate_to_dict
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, Estimate

APART = "apart"
UNDER_PROMPT_NOISE = "not distinguishable under prompt noise"
NOT_APART = "not distinguishable"
UNDECIDED = "no interval"


@dataclass(frozen=True)
class Prompt:
    """One wording with one order of the options; ``folder`` is where its answers lie in a run folder."""

    wording: str
    benchmark: Benchmark
    folder: Path


def prompts_of(benchmark: Benchmark, folder: Path = Path()) -> list[Prompt]:
    """Return the prompts of a benchmark, itself first.

    Raises :class:`~levelhead.types.ConfigError` for a benchmark of which no other wording is known.
    """
    wordings = benchmark.wordings()
    if len(wordings) < 2:
        raise ConfigError(f"--prompt-noise: {benchmark.name} has no other wordings: leave it out, or the option.")
    every = [(wording, one) for wording, variants in wordings.items() for one in variants]
    return [
        Prompt(wording, one, folder / "prompts" / f"{at:02}" if at else folder)
        for at, (wording, one) in enumerate(every)
    ]


def prompt_noise(benchmark: Benchmark, folder: Path, root: Path | None, limit: int | None) -> dict[str, Any]:
    """Sum up the answers to all prompts, and write it into the scores of ``folder``.

    Returns a dict with the keys::

        prompts, wordings   numbers of prompts, and of prompts by wording
        scores              list of {"score", "ideal", "first", "items", "both", "deviation", "across", "verdict"}: the
                            first wording's figure; the mean over wordings with an interval over items, and over items
                            and wordings; the standard deviation between wordings; how many prompts lie on the other
                            side of the ideal than their mean
        consistency         {"prompts"}: share of items with one answer under all of them
    """
    prompts, answered, scores = _scored(benchmark, folder, root, limit)
    found = {
        "prompts": len(prompts),
        "wordings": {name: len(some) for name, some in _by_wording(prompts, prompts).items()},
        "scores": [_spread(name, known, scores, prompts) for name, known in benchmark.headlines.items()
                   if name in scores[0].overall],
        "consistency": _consistency(prompts, answered),
    }  # fmt: skip
    file = scores_file(folder, benchmark.name)
    write_json(file, read_json(file) | {"prompt_noise": found})
    return found


def prompt_differences(
    benchmark: Benchmark, first: Path, second: Path, root: Path | None, limit: int | None
) -> list[dict[str, Any]]:
    """Return each main score's difference between two run folders, second minus first, over items and wordings.

    A list of {"benchmark", "score", "items", "both", "deviation", "verdict"}; differences are taken prompt by prompt on
    the same items.
    """
    prompts, _, before = _scored(benchmark, first, root, limit)
    _, _, after = _scored(benchmark, second, root, limit)
    found = []
    for score in (name for name in benchmark.headlines if name in before[0].overall and name in after[0].overall):
        pairs = [paired_difference(a.overall[score], b.overall[score]) for a, b in zip(before, after, strict=True)]
        items, both, deviation = _joint(pairs, prompts)
        about = {"benchmark": benchmark.name, "score": score, "items": estimate_to_dict(items)}
        verdict = _verdict(0.0, [pairs[0], items], both)
        found.append({**about, "both": estimate_to_dict(both), "deviation": deviation, "verdict": verdict})
    return found


def _scored(
    benchmark: Benchmark, folder: Path, root: Path | None, limit: int | None
) -> tuple[list[Prompt], list[list[tuple[Item, Answer]]], list[Scores]]:
    """Return the prompts, the items of each with their answers, and the scores."""
    prompts = prompts_of(benchmark, folder)
    found = [rescored(prompt.benchmark, prompt.folder, root, limit) for prompt in prompts]
    return prompts, [answered for answered, _ in found], [scores for _, scores in found]


def _by_wording(prompts: Sequence[Prompt], each: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for prompt, one in zip(prompts, each, strict=True):
        found.setdefault(prompt.wording, []).append(one)
    return found


def _joint(figures: Sequence[Estimate], prompts: Sequence[Prompt]) -> tuple[Estimate, Estimate, float | None]:
    """Return the mean over wordings over items, the same over items and wordings, and the standard deviation."""
    wordings = [some[0] if len(some) == 1 else pooled(some) for some in _by_wording(prompts, figures).values()]
    both = over_seeds(wordings)
    values = [figure.value for figure in wordings]
    return pooled(wordings), both, float(np.std(values, ddof=1)) if np.isfinite(values).all() else None


def _spread(name: str, known: Headline, scores: Sequence[Scores], prompts: Sequence[Prompt]) -> dict[str, Any]:
    _, _, ideal = known
    figures = [one.overall[name] for one in scores]
    items, both, deviation = _joint(figures, prompts)
    values = [figure.value for figure in figures if figure.defined]
    return {
        "score": name,
        "ideal": ideal,
        "first": estimate_to_dict(figures[0]),
        "items": estimate_to_dict(items),
        "both": estimate_to_dict(both),
        "deviation": deviation,
        "across": None if ideal is None else sum((value - ideal) * (items.value - ideal) < 0 for value in values),
        "verdict": None if ideal is None else _verdict(ideal, [figures[0], items], both),
    }


def _verdict(ideal: float, narrow: Sequence[Estimate], both: Estimate) -> str:
    """Say whether a figure is apart from its ideal, and whether prompts are why it is not."""
    if not both.defined or math.isnan(both.low):
        return UNDECIDED
    if not both.low <= ideal <= both.high:
        return APART
    # Of the same form as the interval over wordings: a percentile interval alone may exclude what both would hold.
    by_items = any(one.defined and abs(one.value - ideal) > (one.high - one.low) / 2 for one in narrow)
    return UNDER_PROMPT_NOISE if by_items else NOT_APART


def _consistency(prompts: Sequence[Prompt], answered: Sequence[Sequence[tuple[Item, Answer]]]) -> dict[str, Any]:
    """Return the share of items that get one answer; intervals draw what the benchmark's cells name, or items."""
    choices = [
        [prompt.benchmark.choice(item, answer) for item, answer in own]
        for prompt, own in zip(prompts, answered, strict=True)
    ]
    keys = [key for key in prompts[0].benchmark.cell_keys if key not in ("condition", "polarity")]
    items = [item for item, _ in answered[0]]
    clusters = ["/".join(str(item.content[key]) for key in keys) for item in items] if keys else None

    rows = [(float(len({*own}) == 1 and own[0] is not None), 1.0) for own in zip(*choices, strict=True)]
    return {"prompts": estimate_to_dict(estimated(rows, clusters, ratio, ends=SHARE))}
