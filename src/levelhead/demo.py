"""The demonstration: four methods in three settings where it is known by construction why a gap arises.

Synthetic portraits: hair colour is the task, the drawing style is the group. Two sets of training pictures serve three
settings. A shortcut and a difference of base rates look the same in training and differ in the test alone, so those
networks are trained once and evaluated twice. Labels alone cannot distinguish the two, and neither can a method that
sees nothing else.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image
from rich.console import Console

from levelhead.bench.comparison import Comparison
from levelhead.bench.grid import is_done
from levelhead.bench.page import Comparisons, brief, compared
from levelhead.bench.pictures import draw_comparisons
from levelhead.bench.tables import RunSet, collect
from levelhead.data import SPLITS
from levelhead.data.portraits import Portraits, contact_sheet
from levelhead.report.page import write_page
from levelhead.report.terminal import DrawnTable
from levelhead.report.text import level_text
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.folder import CONFIG, refuse_changes
from levelhead.runs.recipe import Experiment, build_experiment, find_recipe, read_recipe, section
from levelhead.runs.train import train_run
from levelhead.storage import check_outputs, write_atomically, write_json, write_text
from levelhead.terminal import counted
from levelhead.training.processes import begin_worker
from levelhead.types import LevelheadError

RECIPE = "portraits_erm_shortcut"
"""Pictures, network and training of every run, chosen by the figures of ERM, JTT and GroupDRO alone."""

BASELINE = "plain training"
METHODS: dict[str, dict[str, Any]] = {
    BASELINE: {"name": "erm"},
    "debiased attention": {"name": "dam"},
    "JTT (reweighting)": {"name": "jtt", "identification_epochs": 2, "upweight": 5, "repeat": "weights"},
    "GroupDRO": {"name": "group-dro"},
}
METRICS = ("accuracy", "equalized_odds")
FILES = ("page.html", "comparison.png", "portraits.png", "table.json", "predictions.csv")
EXAMPLE = "your-pictures"
EXAMPLE_ROWS = {"train": 400, "validation": 100, "test": 300}


@dataclass(frozen=True)
class Setting:
    """Pictures of which we know why a gap arises: ``truth`` says it, and the options ``data`` draw them.

    ``training`` names the training pictures: settings that share them share the networks.
    """

    folder: str
    title: str
    truth: str
    data: dict[str, Any]
    training: str


SETTINGS = (
    Setting(
        "no-shortcut",
        "No shortcut",
        "Hair colour and style are independent, in training and in the test.",
        {"correlation": 0.0},
        training="independent",
    ),
    Setting(
        "shortcut",
        "A shortcut that some training rows contradict",
        "The style predicts hair colour in 9 of 10 training pictures, not in the test.",
        {"correlation": 1.0, "test_correlation": 0.0},
        training="tied",
    ),
    Setting(
        "base-rates",
        "Different base rates, and no shortcut",
        "The same training pictures, but the style predicts hair colour in the test, too.",
        {"correlation": 1.0, "test_correlation": None},
        training="tied",
    ),
)

SHORTCUT = SETTINGS[1]

Run = tuple[Experiment, Path]
"""What is trained or evaluated, and its run folder."""


def run_demo(out: Path, *, seeds: int, workers: int, console: Console) -> None:
    """Train what is missing, print one table a setting, and write :data:`FILES` and an example folder into ``out``.

    Finished runs are kept: a second call, or one after an interruption, does only what is missing. ``workers``
    processes train side by side, each on one thread.

    Raises:
        ConfigError: ``out`` or something in it cannot be written, or holds runs with other settings; before any work.
        LevelheadError: a training process was ended from outside.
    """
    outputs = {f"--out {name}": out / name for name in FILES}
    folders = {f"--out {name}": out / name for name in ("runs", EXAMPLE)}
    check_outputs(outputs, folders={"--out": out} | folders)
    runs = [_runs(setting, out, seeds) for setting in SETTINGS]
    for experiment, folder in [run for each in runs for run in each]:
        refuse_changes(folder, experiment)
    console.print(
        "Synthetic portraits. The task is the hair colour, light or dark. The groups are two drawing styles, round and "
        "angular, which say nothing about anybody."
    )
    _write_example(out)
    _train(runs, workers, console)

    groups = [collect([folder for _, folder in each], "test")[0] for each in runs]
    comparisons = [group.compare(BASELINE) for group in groups]
    for setting, comparison in zip(SETTINGS, comparisons, strict=True):
        console.print(f"\n[bold]{setting.title}[/bold]\n{setting.truth}")
        if shown := brief(comparison):
            console.print(DrawnTable(shown["table"], plain=True))
    console.print("\n".join(_notes(comparisons[0])), markup=False)
    _write(out, groups, comparisons)
    console.print(f"\nWrote {', '.join(str(out / name) for name in FILES)}.", markup=False, soft_wrap=True)
    for line in _next(out):
        console.print(line, markup=False, soft_wrap=True)


def _runs(setting: Setting, out: Path, seeds: int) -> list[Run]:
    """Return the runs of a setting, always in the same order."""
    base = read_recipe(find_recipe(RECIPE))
    recipe = base | {"data": section(base, "data") | setting.data}
    folder = out / "runs" / setting.folder
    return [
        (
            build_experiment(recipe | {"method": options, "seed": seed, "name": name}),
            folder / f"{options['name']}-seed{seed}",
        )
        for name, options in METHODS.items()
        for seed in range(seeds)
    ]


def _train(runs: Sequence[list[Run]], workers: int, console: Console) -> None:
    """Train and evaluate what is missing of each setting's ``runs``, with a bar."""
    networks: dict[tuple[str, int], list[Run]] = {}  # each with all of its runs
    for setting, its_runs in zip(SETTINGS, runs, strict=True):
        for place, run in enumerate(its_runs):
            networks.setdefault((setting.training, place), []).append(run)
    missing = [network for network in networks.values() if not all(is_done(folder) for _, folder in network)]
    if not missing:
        return
    total, sets = len(networks), len({training for training, _ in networks})
    console.print(
        f"Training {total} small networks: {len(METHODS)} methods, {sets} sets of training pictures, "
        f"{total // len(METHODS) // sets} seeds. It takes one to two minutes on two cores. If it is stopped, the same "
        "command continues."
    )
    # Fresh interpreters: forking after torch has started threads can hang. They keep the pictures that they drew.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker)
    with counted(console, "training", total, done=total - len(missing)) as advance, pool:
        # Workers start at the first submission and inherit that Ctrl-C is not for them: a run in progress is kept.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        futures = [pool.submit(_train_one, network) for network in missing]
        signal.signal(signal.SIGINT, interrupt)
        try:
            for future in as_completed(futures):
                future.result()
                advance()
        except KeyboardInterrupt:
            console.print("Stopping as soon as the runs in progress are done. The same command continues from there.")
            raise
        except BrokenProcessPool:
            raise LevelheadError(
                "A training process was killed, perhaps because memory ran out. Finished work is kept: the same "
                "command continues. With --workers 1 it needs less memory."
            ) from None
        finally:
            for future in futures:
                future.cancel()


def _begin_worker() -> None:
    begin_worker()
    parent = parent_process()
    if parent is not None and not parent.is_alive():  # it was killed while this process started
        os._exit(1)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # they advise on options, which are fixed here, and would break the bar


def _train_one(network: Sequence[Run]) -> None:
    """Train a network and evaluate it in all its settings; what is finished is left as it is."""
    (experiment, trained), *others = network
    train_run(experiment, trained, resume=True)
    for other, folder in others:
        if not folder.exists():
            _copy_run(trained, folder, other)
    for _, folder in network:
        if not is_done(folder):
            evaluate_run(folder)


def _copy_run(trained: Path, folder: Path, experiment: Experiment) -> None:
    """Copy a trained run for other test pictures, in one step: if it is killed, no half of a run is left."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(trained, temporary, ignore=shutil.ignore_patterns("checkpoints", "*-test.*", ".*"))
    write_text(temporary / CONFIG, yaml.safe_dump(experiment.recipe, sort_keys=False))
    temporary.replace(folder)


def _notes(comparison: Comparison) -> list[str]:
    """Say how to read the tables."""
    level, methods = comparison.table.level, len(comparison.table.rows) - 1
    return [
        "",
        f"Percent, mean over seeds. In brackets: {level_text(level)} intervals over {comparison.sources}.",
        "EOd gap: difference between the styles in right and wrong calls of light hair.",
        f"* distinguishable from {BASELINE}: p < {1 - level:.2g}, adjusted for {methods} methods.",
        "ORACLE: saw the groups in training. The other methods saw labels alone.",
        "The last two settings look the same in training, and share their networks.",
    ]


def _write(out: Path, groups: Sequence[RunSet], comparisons: Sequence[Comparison]) -> None:
    """Write the picture, the page, the table, and the predictions of one network."""
    titles, truths = [setting.title for setting in SETTINGS], [setting.truth for setting in SETTINGS]
    draw_comparisons(comparisons, titles, truths, out / "comparison.png", METRICS)
    pages = [
        compared(group, comparison, title=title)
        for group, comparison, title in zip(groups, comparisons, titles, strict=True)
    ]
    write_page(out / "page.html", Comparisons(pages).page())
    records = [
        {"title": title, "truth": truth, **comparison.to_dict()}
        for title, truth, comparison in zip(titles, truths, comparisons, strict=True)
    ]
    write_json(out / "table.json", {"kind": "comparison", "comparisons": records})
    frame = groups[SETTINGS.index(SHORTCUT)].rows()[BASELINE][0].predictions
    write_atomically(out / "predictions.csv", lambda temporary: frame.to_csv(temporary, index=False))


def _write_example(out: Path) -> None:
    """Write a sheet of portraits, and a folder with pictures, csv and recipe, as one's own pictures would have them.

    The folder appears in one step. One that is there is left as it is: it may hold somebody's own pictures.
    """
    recipe = read_recipe(find_recipe(RECIPE))
    options = section(recipe, "data") | SHORTCUT.data | {f"{split}_size": rows for split, rows in EXAMPLE_ROWS.items()}
    portraits = Portraits(**{key: value for key, value in options.items() if key != "name"})
    write_atomically(out / "portraits.png", lambda file: contact_sheet(portraits).save(file, format="PNG"))
    folder = out / EXAMPLE
    if folder.exists():
        return
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    rows = ["file,hair,style,split"]
    for split in SPLITS:
        examples, (groups,) = portraits.examples(split), portraits.groups(split)
        pixels = examples.inputs.batch(torch.arange(len(examples.labels)))["pixel_values"]
        pictures = ((pixels + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
        for row, picture in enumerate(pictures):
            name = f"{split}-{row:03}.png"
            Image.fromarray(picture).save(temporary / name)
            hair = examples.class_names[int(examples.labels[row])]
            rows.append(f"{name},{hair},{groups.names[int(groups.values[row])]},{split}")
    write_text(temporary / "labels.csv", "\n".join(rows) + "\n")
    data = {"name": "image-folder-csv", "folder": str(folder.absolute()), "csv": "labels.csv", "file_column": "file"}
    data |= {"target": "hair", "sensitive": "style", "split_column": "split"}
    write_text(temporary / "recipe_erm.yaml", yaml.safe_dump(recipe | {"data": data}, sort_keys=False))
    temporary.replace(folder)


def _next(out: Path) -> list[str]:
    """Return what to type next."""
    audit = ["levelhead", "audit", str(out / "predictions.csv")]
    audit += ["--label", "label", "--prediction", "prediction", "--group", "style"]
    recipe = out / EXAMPLE / "recipe_erm.yaml"
    compare = ["levelhead", "compare", "--recipe", str(recipe), "--methods", "erm,dam", "--workers", "2"]
    compare += ["--out", str(out / "your-runs"), "--html", str(out / "your-page.html")]
    return [
        "",
        "Type next, to audit the predictions of one plainly trained network where there is a shortcut:",
        f"  {shlex.join(audit)}",
        f"and to compare methods on your own pictures; {recipe.parent} holds examples to replace:",
        f"  {shlex.join(compare)}",
    ]
