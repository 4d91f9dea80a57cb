"""The command ``levelhead lm train``: attention alignment of a language model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from levelhead.storage import check_outputs
from levelhead.terminal import Terminal

if TYPE_CHECKING:  # importing torch takes seconds
    from levelhead.lm.klaad_training import KlaadConfig
    from levelhead.lm.triplets import TermSplit

console = Terminal()


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
    """Fine-tune a language model so that attention is alike in stereotypical and anti-stereotypical sentences."""
    console.quiet = os.environ.get("RANK", "0") != "0"  # of several processes one speaks and writes
    check_outputs({}, folders={"--out": out})
    from levelhead.lm.klaad_training import load_klaad
    from levelhead.lm.loading import place_of
    from levelhead.lm.triplets import TermSplit, read_triplets, refuse_trained, split_terms

    config = load_klaad(recipe, settings or [])
    rows = tuple(read_triplets(triplets))
    split = split_terms(rows, seed=split_seed, share=held_out_share) if held_out_share else TermSplit(rows, ())
    if held_out_share:
        console.print(f"{split}, by --split-seed {split_seed}.", soft_wrap=True, markup=False)
    refuse_trained(place_of(config.model.name))
    _train(config, split, out)
    console.print(f"Model, tokenizer and log are in {escape(str(out))}.", soft_wrap=True)


def _train(config: KlaadConfig, split: TermSplit, out: Path) -> None:
    import torch

    from levelhead.lm.klaad_training import load_language_model, train_klaad
    from levelhead.lm.loading import Beginning
    from levelhead.terminal import training_progress

    torch.manual_seed(config.seed)  # LoRA's matrices are drawn before the training
    model, tokenizer = load_language_model(config.model)
    console.print(str(Beginning.of(tokenizer)), soft_wrap=True, markup=False)
    with training_progress(console) as report:
        train_klaad(model, tokenizer, split.train, config, out, held_out=split.held_out, progress=report)
