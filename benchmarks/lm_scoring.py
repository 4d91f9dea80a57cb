"""Scoring the options of BBQ: what running a context once, and batches by length, are worth.

    OMP_NUM_THREADS=1 python benchmarks/lm_scoring.py --model NAME_OR_FOLDER --data-root DATA --json results/lm.json

The loop runs the whole text of every item and option by itself, with all logits, as a first script would. "Batched"
batches whole texts by length, and keeps no context. All run interleaved in one process, from the first to the last and
back; ratios are taken within a pass, and the median is shown with the smallest and the largest. The loop stands there
twice: what the machine's noise alone does. Before anything is timed, all scores are compared. Time on a CPU is
processor time of one thread, so that other work on the machine counts less.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import measure
import numpy as np
import torch
import typer
from rich.console import Console

from levelhead.lm.bbq import BBQ
from levelhead.lm.model import CONTINUED, LanguageModel
from levelhead.lm.runner import take
from levelhead.storage import write_json
from levelhead.training.work import environment

Scores = dict[int, list[tuple[float, int]]]
TARGET = 3.0


@torch.inference_mode()
def loop(model: LanguageModel, contexts: list[str], options: list[list[str]]) -> Scores:
    """Score with one forward pass of batch size 1 for each item and option."""
    found: Scores = {}
    begin = list(model.beginning.every)
    for index, (context, more) in enumerate(zip(contexts, options, strict=True)):
        head = begin + model.tokenizer(context, add_special_tokens=False).input_ids
        found[index] = []
        for option in more:
            row = begin + model.tokenizer(context + option, add_special_tokens=False).input_ids
            start = next((i for i, pair in enumerate(zip(head, row, strict=False)) if pair[0] != pair[1]), len(head))
            ids = torch.tensor([row], device=model.device)
            logits = model.network(input_ids=ids, use_cache=False).logits[0, :-1].float()
            values = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
            found[index].append((float(values[start - 1 :].sum()), len(row) - start))
    return found


def shared(model: LanguageModel, contexts: list[str], options: list[list[str]]) -> Scores:
    """Score as the benchmarks do."""
    return dict(model.option_log_likelihoods(contexts, options))


def batched(model: LanguageModel, contexts: list[str], options: list[list[str]]) -> Scores:
    """Score in the same batches with whole texts: as for a model without a cache."""
    with mock.patch.dict(model._quick, {CONTINUED: False}), mock.patch.object(model, "_caches", False):
        return dict(model.option_log_likelihoods(contexts, options))


STEPS: dict[str, Callable[[LanguageModel, list[str], list[list[str]]], Scores]] = {
    "loop": loop,
    "loop, again": loop,
    "batched": batched,
    "batched, context once": shared,
}


def largest_difference(first: Scores, second: Scores) -> float:
    """Return the largest difference of a score; raise if token counts differ."""
    one, other = (np.array([pair for index in sorted(found) for pair in found[index]]) for found in (first, second))
    if (one[:, 1] != other[:, 1]).any():
        raise SystemExit("Options differ in their numbers of tokens.")
    return float(np.abs(one[:, 0] - other[:, 0]).max())


def main(
    model: Annotated[str, typer.Option()],
    data_root: Path | None = None,
    device: str = "cpu",
    items: int = 200,
    repeats: int = 4,
    json: Path | None = None,
) -> None:
    """Measure, print, and write JSON: of ``items`` of each category, since more of them share a length."""
    torch.set_num_threads(1)
    benchmark = BBQ()
    chosen = take(benchmark, benchmark.read(data_root), items)
    network = LanguageModel.load(model, device)
    contexts, options = benchmark.contexts(network, chosen), [benchmark.options(item) for item in chosen]
    scores = {name: step(network, contexts, options) for name, step in STEPS.items()}
    apart = {name: largest_difference(scores["loop"], found) for name, found in scores.items()}
    if max(apart.values()) > 1e-3:
        raise SystemExit(f"The steps do not compute the same: {apart}")
    calls = {name: functools.partial(step, network, contexts, options) for name, step in STEPS.items()}
    seconds = measure.interleaved(calls, repeats, network.device, Console(stderr=True).print)
    rows: dict[str, Any] = {}
    for name, spent in seconds.items():
        ratios = measure.paired(seconds, "loop", name)
        rows[name] = {"seconds": statistics.median(spent), "difference": apart[name]}
        rows[name] |= {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
        print(name, rows[name])
    fast = rows["batched, context once"]
    held = "yes" if fast["low"] >= TARGET else "no" if fast["high"] < TARGET else "unresolved"
    print(f"At least {TARGET:g} times as fast as the loop: {held}")
    if json is not None:
        about = {"items": len(chosen), "repeats": repeats, "target": TARGET, "held": held}
        write_json(json, {"steps": rows, **about, "environment": environment(network.device)})


if __name__ == "__main__":
    typer.run(main)
