"""The demonstration: ERM and DAM on drawn portraits, with the style ever more tied to the hair colour."""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from levelhead.bench.page import compared, comparison_page
from levelhead.bench.pictures import draw_comparisons
from levelhead.bench.tables import collect
from levelhead.report.page import command_line, write_page
from levelhead.storage import write_atomically, write_json

CORRELATIONS = (0.0, 0.5, 1.0)
RECIPES = ("portraits_erm", "portraits_dam")


def _train_one(recipe: str, correlation: float, seed: int, folder: Path) -> None:
    """Train and evaluate one run on one thread; a finished run is left as it is."""
    import torch

    from levelhead.runs.evaluate import evaluate_run
    from levelhead.runs.recipe import load_experiment
    from levelhead.runs.train import train_run

    torch.set_num_threads(1)
    experiment = load_experiment(recipe, [f"data.correlation={correlation}", "train.threads=1"], seed=seed)
    train_run(experiment, folder, resume=True)
    evaluate_run(folder)


def run_demo(out: Path, *, seeds: int, workers: int, console: Console) -> None:
    """Train every combination of recipe, correlation and seed, print the tables, and save the pictures in ``out``.

    Finished runs are kept: a second call, or one after an interruption, does only what is missing.
    """
    from levelhead.data.portraits import Portraits, contact_sheet

    write_atomically(out / "portraits.png", lambda temporary: contact_sheet(Portraits()).save(temporary, format="PNG"))
    cells = [  # one correlation after the other: a worker draws its portraits once
        (recipe, correlation, seed, out / "runs" / f"correlation-{correlation}" / f"{Path(recipe).stem}-seed{seed}")
        for correlation in CORRELATIONS
        for recipe in RECIPES
        for seed in range(seeds)
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=console) as bars,
        # A fresh interpreter for each worker: forking after torch has started threads can hang.
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        task = bars.add_task(f"training {len(cells)} small networks", total=len(cells))
        # Workers start at the first submission and inherit that Ctrl-C is not for them: a run in progress is kept.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        futures = [pool.submit(_train_one, *cell) for cell in cells]
        signal.signal(signal.SIGINT, interrupt)
        try:
            for future in as_completed(futures):
                future.result()
                bars.advance(task)
        except BaseException:
            for future in futures:
                future.cancel()
            console.print("Stopping as soon as the runs in progress are done; the same command goes on from there.")
            raise
    folders = [out / "runs" / f"correlation-{correlation}" for correlation in CORRELATIONS]
    groups = [collect([folder], "test")[0] for folder in folders]
    comparisons = [group.compare("erm") for group in groups]
    titles = [f"correlation {correlation}" for correlation in CORRELATIONS]
    for title, comparison in zip(titles, comparisons, strict=True):
        console.rule(f"Hair colour and style: {title}")
        for table in comparison.tables():
            console.print(table)
        console.print("\n".join(comparison.findings()))
    draw_comparisons(comparisons, titles, out / "comparison.png")
    write_json(out / "table.json", {"comparisons": [comparison.to_dict() for comparison in comparisons]})
    pages = [
        compared(group, comparison, title=title)
        for group, comparison, title in zip(groups, comparisons, titles, strict=True)
    ]
    write_page(out / "page.html", comparison_page(pages, command=command_line()))
    console.print(
        "Hair colour is the task; the drawing style (glasses, collar) is the group that nobody told ERM or DAM."
    )
    console.print(
        f"Saved {out / 'portraits.png'}, {out / 'comparison.png'}, {out / 'table.json'} and {out / 'page.html'}."
    )
