"""The command ``levelhead lm train``: attention alignment of a language model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from levelhead.storage import check_outputs, is_run, read_json, write_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError

if TYPE_CHECKING:  # importing torch takes seconds
    from levelhead.lm.klaad_training import KlaadConfig
    from levelhead.lm.triplets import TermSplit

console = Terminal()
HELD_OUT_FIGURES, YARDSTICK = "held-out.json", "measured_with"
LEGEND = """\
CE, KL, triplet: cross-entropy, divergence of attention, triplet loss. Entropy: of attention.
Likelier: by how many nats a token the stereotype is likelier than the anti-stereotype.
* no other training has both a smaller cross-entropy and a smaller divergence."""


def train_command(
    recipe: Annotated[str, typer.Argument(help="A KLAAD recipe: its path, or a name in recipes/lm.")],
    triplets: Annotated[Path, typer.Option(help="StereoSet's file, or a table: stereo, anti, unrelated, ....")],
    out: Annotated[Path, typer.Option(help="Folder of the training; training resumes in the same folder.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="e.g. klaad.margin=0.5")] = None,
    held_out_share: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of target terms held out; 0: none.")
    ] = 0.2,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the held-out terms; independent of --set seed.")] = 0,
) -> None:
    """Fine-tune a language model so that attention is alike in stereotypical and anti-stereotypical sentences.

    A recipe with a grid (klaad_tuning) trains each combination in a folder below --out, and prints a table of all.
    """
    console.quiet = os.environ.get("RANK", "0") != "0"  # of several processes one speaks and writes
    check_outputs({}, folders={"--out": out})
    from levelhead.lm.klaad_training import refuse_other_training
    from levelhead.lm.klaad_tuning import held_out_figures, read_cells, tuning_table, yardstick_of
    from levelhead.lm.loading import place_of
    from levelhead.lm.triplets import TRAINING, TermSplit, read_triplets, refuse_trained_terms, split_terms

    cells = read_cells(recipe, settings or [])
    yardstick = yardstick_of(cells)
    grid = "" not in cells  # one training without a grid has no name
    if grid and not held_out_share:
        raise ConfigError("A grid is compared on held-out terms: give --held-out-share more than 0.")
    rows = tuple(read_triplets(triplets))
    split = split_terms(rows, seed=split_seed, share=held_out_share) if held_out_share else TermSplit(rows, ())
    if held_out_share:
        console.print(f"{split}, by --split-seed {split_seed}.", soft_wrap=True, markup=False)
    for config in cells.values():
        refuse_trained_terms(place_of(config.model.name), split)
    figures = {}
    for number, (name, config) in enumerate(cells.items(), start=1):
        measured = out / name / HELD_OUT_FIGURES
        if grid:
            console.print(f"{number} of {len(cells)}: {escape(name)}", soft_wrap=True)
            if measured.exists():
                refuse_other_training(out / name, config, split.train)
                kept = read_json(measured)
                if kept.get(YARDSTICK) == yardstick:
                    figures[name] = kept
                    continue
        if is_run(out / name) and not (out / name / TRAINING).exists():
            raise ConfigError(f"{out / name} holds a run of another kind, which would be lost. Choose another --out.")
        model, tokenizer = _train(config, split, out / name)
        if grid:
            size, longest = config.train.batch_size, yardstick["max_length"]
            figures[name] = held_out_figures(model, tokenizer, split.held_out, size, longest)
            if not console.quiet:
                write_json(measured, {**figures[name], YARDSTICK: yardstick})
    if figures:
        console.print(tuning_table(figures))
        console.print(LEGEND, soft_wrap=True)
    console.print(f"Model, tokenizer and log are in {escape(str(out))}.", soft_wrap=True)


def _train(config: KlaadConfig, split: TermSplit, out: Path) -> tuple[Any, Any]:
    """Train once; return model and tokenizer."""
    import torch

    from levelhead.lm.klaad_training import load_language_model, train_klaad
    from levelhead.lm.loading import Beginning
    from levelhead.lm.triplets import HELD_OUT_TERMS, TRAINING, write_terms
    from levelhead.terminal import training_progress

    # Another training's folder is refused below, as it stands.
    if split.held_out and not console.quiet and not (out / TRAINING).exists():
        out.mkdir(parents=True, exist_ok=True)
        write_terms(out / HELD_OUT_TERMS, split.held_out_terms)
    torch.manual_seed(config.seed)  # LoRA's matrices are drawn before the training
    model, tokenizer = load_language_model(config.model)
    console.print(str(Beginning.of(tokenizer)), soft_wrap=True, markup=False)
    with training_progress(console) as report:
        train_klaad(model, tokenizer, split.train, config, out, held_out=split.held_out, progress=report)
    return model, tokenizer
