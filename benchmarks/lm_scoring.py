"""Scoring the options of BBQ: what running a context once, and batches by length, are worth.

    OMP_NUM_THREADS=1 python benchmarks/lm_scoring.py --model NAME_OR_FOLDER --data-root DATA --json results/lm.json

The loop runs the whole text of every item and option by itself, with all logits, as a first script would. "Batched"
batches whole texts by length, and keeps no context. All run interleaved in one process, from the first to the last and
back; ratios are taken within a pass, and the median is shown with the smallest and the largest. The loop stands there
twice: what the machine's noise alone does. Before anything is timed, all scores are compared. Time on a CPU is
processor time of one thread, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from levelhead.lm.bbq import BBQ
from levelhead.lm.model import LanguageModel
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
    model._caches = False
    try:
        return dict(model.option_log_likelihoods(contexts, options))
    finally:
        model._caches = True


STEPS: dict[str, Callable[[LanguageModel, list[str], list[list[str]]], Scores]] = {
    "loop": loop,
    "loop, again": loop,
    "batched": batched,
    "batched, context once": shared,
}


def largest_difference(first: Scores, second: Scores) -> float:
    """Return the largest difference of a score; raise if token counts differ."""
    apart = 0.0
    for index, scores in first.items():
        for (a, count), (b, other) in zip(scores, second[index], strict=True):
            if count != other:
                raise SystemExit(f"Item {index}: options of {count} and of {other} tokens.")
            apart = max(apart, abs(a - b))
    return apart


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", type=int, default=200, help="of each category: more of them share a length")
    parser.add_argument("--repeats", type=int, default=2, help="pairs of passes over all steps")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    benchmark = BBQ()
    items = take(benchmark, benchmark.read(arguments.data_root), arguments.items)
    contexts = [benchmark.prompt(item) for item in items]
    options = [[f" {text}" for text in item.content["options"]] for item in items]
    model = LanguageModel.load(arguments.model, arguments.device, long_texts="cut")
    scores = {name: step(model, contexts, options) for name, step in STEPS.items()}  # warms up, too
    apart = {name: largest_difference(scores["loop"], found) for name, found in scores.items()}
    if max(apart.values()) > 1e-3:
        raise SystemExit(f"The steps do not compute the same: {apart}")
    console = Console()
    clock = time.process_time if model.device.type == "cpu" else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in STEPS}
    order = [list(STEPS), list(reversed(STEPS))] * arguments.repeats
    for passage in track(order, description="Passes", console=Console(stderr=True)):
        for name in passage:
            began = clock()
            STEPS[name](model, contexts, options)
            seconds[name].append(clock() - began)
    table = Table(title=f"{len(items)} items of BBQ with {sum(map(len, options))} options")
    for column in ("step", "seconds", "items a second", "largest difference", "loop / step", "least", "most"):
        table.add_column(column, justify="left" if column == "step" else "right")
    rows: dict[str, Any] = {}
    for name, spent in seconds.items():
        ratios = [a / b for a, b in zip(seconds["loop"], spent, strict=True)]
        middle, ratio = statistics.median(spent), statistics.median(ratios)
        rows[name] = {"seconds": middle, "difference": apart[name], "ratio": ratio}
        rows[name] |= {"low": min(ratios), "high": max(ratios)}
        numbers = (f"{middle:.3f}", f"{len(items) / middle:.1f}", f"{apart[name]:.1e}", f"{ratio:.2f}")
        table.add_row(name, *numbers, f"{min(ratios):.2f}", f"{max(ratios):.2f}")
    console.print(table)
    fast = rows["batched, context once"]
    held = "yes" if fast["low"] >= TARGET else "no" if fast["high"] < TARGET else "unresolved"
    console.print(f"At least {TARGET:g} times as fast as the loop: {held}")
    if arguments.json:
        about = {"items": len(items), "repeats": len(order), "target": TARGET, "held": held}
        write_json(arguments.json, {"steps": rows, **about, "environment": environment(model.device)})


if __name__ == "__main__":
    main()
