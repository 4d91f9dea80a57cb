"""Options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write one standalone HTML page.", show_default=False)
]


class SplitName(StrEnum):
    """The splits of a data set."""

    train = "train"
    validation = "validation"
    test = "test"
