"""The command ``levelhead pretrain``: a small backbone from pictures alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from levelhead.cli.options import DataRoot, Resume, Settings
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal


def pretrain_command(
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint, for model.backbone of recipes.")],
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A pretraining recipe: a YAML file, or a name in recipes/pretraining. Default: --data with default "
            "settings."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data set with the pictures, e.g. celeba64_attractive.")] = None,
    data_root: DataRoot = None,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Pretrain a small vision transformer on the pictures of a training split, without labels.

    It learns to fill in hidden patches (MAE-like, arXiv:2111.06377). Neither labels nor groups are read. The folder is
    an ordinary transformers checkpoint: set it as model.backbone in recipes. Use it if no published checkpoint, such
    as DINO, is available. Its figures are not comparable with those of a published one.

    Example: levelhead pretrain celeba64_mae_small --data-root DATA --out models/celeba64_mae
    """
    check_outputs({}, folders={"--out": out}, inputs=[recipe])
    from levelhead.pretraining import load_pretraining, pretrain
    from levelhead.terminal import training_progress

    pictures, config = load_pretraining(recipe, settings or (), data=data, data_root=data_root)
    console = Terminal()
    try:
        with training_progress(console) as progress:
            pretrain(pictures, out, config, resume=resume, progress=progress)
    except KeyboardInterrupt:
        console.print(f"\nStopped. Resume with the same command and --resume; progress is in {escape(str(out))}.")
        raise typer.Exit(130) from None
    console.print(f"The checkpoint is in {escape(str(out))}, with a README.md.", soft_wrap=True)
    console.print(
        f"Next: levelhead train RECIPE --set 'model={{backbone: {escape(str(out))}, mode: last_encoder}}'",
        soft_wrap=True,
    )
