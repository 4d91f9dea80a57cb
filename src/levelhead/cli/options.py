"""Options that several verbs share, and verbs that have a new name."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from levelhead.terminal import Terminal

HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write one standalone HTML page.", show_default=False)
]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets. Default: $LEVELHEAD_DATA, then ./data.", show_default=False),
]
MismatchedWeights = Annotated[
    bool, typer.Option("--allow-mismatched-weights", help="Take a model whose weights do not fit its config.json.")
]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column with the true class.", show_default=False)]
FiguresFile = Annotated[
    Path | None,
    typer.Option("--json", help="Also write every figure as JSON (fractions, not percent).", show_default=False),
]
ClassOfLabel = Annotated[
    list[str] | None,
    typer.Option(
        "--label-map",
        help="Which class each label stands for: '>50K.=>50K'. A class that holds = or a comma may stand in double "
        "quotes. Repeatable.",
        show_default=False,
    ),
]
ScoreScale = Annotated[
    str,
    typer.Option(
        "--scores",
        "--scale",
        metavar="SCALE",
        help="What the scores are: probability, log-odds, other (needs --threshold), or auto: probability if all lie "
        "in 0 to 1, log-odds if some are negative and most lie outside 0 to 1.",
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here.", show_default=False)]


class Missing(StrEnum):
    """What becomes of rows without a group."""

    leave_out = "leave-out"
    group = "group"

    @property
    def words(self) -> str:
        """The value as Python takes it."""
        return self.value.replace("-", " ")


MinCount = Annotated[
    int,
    typer.Option(
        min=1,
        help="Smallest denominator for a rate to enter a gap. Groups with fewer rows, positives or negatives are named "
        "and left out.",
    ),
]
MissingGroups = Annotated[
    Missing,
    typer.Option(help="Rows without a group: 'leave-out' of the gaps, or compare them as a 'group'."),
]


class SplitName(StrEnum):
    """The splits of a data set."""

    train = "train"
    validation = "validation"
    test = "test"


def renamed(command: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """Return a verb under the name that it had: it says what it is called now, and does the same."""

    @wraps(command)
    def called_as_before(*args: Any, **options: Any) -> Any:
        told = f"`levelhead {old}` is called `levelhead {new}` now; the old name will go."
        Terminal(stderr=True).print(told, markup=False, soft_wrap=True)
        return command(*args, **options)

    return called_as_before
