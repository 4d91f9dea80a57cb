"""The command ``levelhead klaad``: attention alignment of a language model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

console = Console()


def klaad_command(
    recipe: Annotated[str, typer.Argument(help="A KLAAD recipe: its path, or a name in recipes/lm.")],
    triplets: Annotated[Path, typer.Option(help="StereoSet's file, or a table: stereo, anti, unrelated, ....")],
    out: Annotated[Path, typer.Option(help="Folder of the training; the same folder goes on.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="e.g. klaad.margin=0.5")] = None,
    held_out_share: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of target terms that is not trained on; 0: none.")
    ] = 0.2,
) -> None:
    """Fine-tune a language model so that attention is alike in stereotypical and anti-stereotypical sentences."""
    import torch

    main = os.environ.get("RANK", "0") == "0"  # of several processes one speaks and writes
    console.quiet = not main
    from levelhead.lm.klaad_training import load_klaad, load_language_model, train_klaad
    from levelhead.lm.triplets import HELD_OUT_TERMS, TRAINING, read_triplets, split_terms, write_terms
    from levelhead.progress import training_progress

    config = load_klaad(recipe, settings or [])
    rows = read_triplets(triplets)
    train, held_out = tuple(rows), tuple(rows[:0])
    if held_out_share:
        split = split_terms(rows, seed=config.seed, share=held_out_share)
        train, held_out = split.train, split.held_out
        if main and not (out / TRAINING).exists():  # another training's folder is refused below, as it stands
            out.mkdir(parents=True, exist_ok=True)
            write_terms(out / HELD_OUT_TERMS, split.held_out_terms)
    torch.manual_seed(config.seed)  # LoRA's matrices are drawn before the training
    model, tokenizer = load_language_model(config.model)
    with training_progress(console) as report:
        train_klaad(model, tokenizer, train, config, out, held_out=held_out, progress=report)
    console.print(f"Model, tokenizer and log are in {escape(str(out))}.", soft_wrap=True)
