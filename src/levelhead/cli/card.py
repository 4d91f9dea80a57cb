"""The model card of a run, for ``levelhead report --card``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from levelhead.cli.options import Run
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal


def card_command(
    run: Run,
    show: Annotated[bool, typer.Option("--print", help="Print the card instead of writing it.")] = False,
) -> None:
    """Write the model card of a run into its model folder, ready for the Hugging Face Hub.

    Says how to load the model, on what it was trained, what saw groups, what was measured with which intervals, what
    it cost and what it is not for. Training and evaluation write it, too; an existing card is replaced.
    """
    from levelhead.runs.card import CARD, model_card, write_card

    if show:
        sys.stdout.write(model_card(run))
    else:
        check_outputs({"The card": run / CARD})
        Terminal().print(f"Wrote {write_card(run)}", markup=False, soft_wrap=True)
