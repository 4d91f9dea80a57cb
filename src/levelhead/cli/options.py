"""Options that several verbs share, and verbs that have a new name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from levelhead.storage import check_outputs
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:
    from levelhead.report.gate import Condition
    from levelhead.runs.joined import Join
    from levelhead.tables.files import Stored

TABLES = ".csv, .tsv, .jsonl (also .gz), .parquet or .xlsx, or a glob"
"""The tables that every audit reads (:mod:`levelhead.tables.files`)."""
Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None


def option(panel: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option of a panel of --help."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def given(values: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the options of a command that were given, but for ``others``, which its function does not take."""
    return {name: value for name, value in values.items() if value is not None and name not in others}


def conditions_of(texts: Sequence[str] | None) -> list[Condition]:
    """Read --fail-if, before any work."""
    if not texts:
        return []
    from levelhead.report.gate import Condition

    return [Condition.parse(text) for text in texts]


def opened(
    paths: Sequence[Path],
    others: Sequence[Path | None],
    json_file: Path | None,
    html_file: Path | None,
    check: Callable[[], None] = lambda: None,
) -> tuple[Stored | None, list[Path | None]]:
    """Return the table that paths name, and all files that are read; outputs are checked before and after it is open.

    ``others`` are further files that the command reads. ``check`` refuses options before a table is opened; those of a
    run, which names its columns, are checked by who reads it.
    """
    outputs = {"--json": json_file, "--html": html_file}
    check_outputs(outputs, inputs=[*paths, *others])
    from levelhead.auditing.of_run import names_run, paths_of, table_of

    if not names_run(list(paths)):
        check()
    table = table_of(list(paths)) if paths else None
    inputs = [*paths_of(table), *others]
    check_outputs(outputs, inputs=inputs)
    return table, inputs


HtmlFile = Annotated[Path | None, typer.Option("--html", help="Also write one standalone HTML page.")]
DataRoot = Annotated[
    Path | None, typer.Option(help="Folder that holds the data sets. Default: $LEVELHEAD_DATA, then ./data.")
]
MismatchedWeights = Annotated[
    bool, typer.Option("--allow-mismatched-weights", help="Accept a model whose weights do not fit its config.json.")
]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column with the true class.")]
FiguresFile = Annotated[
    Path | None, typer.Option("--json", help="Also write every figure as JSON (fractions, not percent).")
]
IgnoredLabel = Annotated[
    str | None, typer.Option("--ignore-label", help="Leave out rows with this label, e.g. -1 for no label.")
]
ClassOfLabel = Annotated[
    list[str] | None,
    typer.Option(
        "--label-map",
        help="Class of each label: '>50K.=>50K'. Put a class with = or a comma in double quotes. Repeatable.",
    ),
]
ClusterOfRun = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Column of the predictions with a person's id: clusters the intervals. Default: the data set's person "
        "column.",
    ),
]
ScoreColumn = Annotated[
    str | None, typer.Option(help="Column with the probability or the log odds of the positive class.")
]
ScoredClass = Annotated[str | None, typer.Option(help="Class that the score is about. Default: the second of two.")]
Threshold = Annotated[
    float | None,
    typer.Option(help="Decision threshold. Default: 0.5 for probabilities, 0 for log odds."),
]
SCALES = (
    "What scores are: probability, log-odds, other (needs --threshold), or auto: probability if all lie in 0 to "
    "1, log-odds if some are negative and most outside 0 to 1."
)
ScoreScale = Annotated[str, typer.Option(help=SCALES)]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here.")]


Run = Annotated[Path, typer.Argument(help="A finished run folder.", show_default=False)]
Recipe = Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe (`levelhead list recipes`).")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any key of the recipe, e.g. --set train.epochs=3."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Overrides the recipe's seed.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the folder where it stopped, also after kill -9.")]


class Missing(StrEnum):
    """How rows without a group are treated."""

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
        help="Smallest denominator for a rate to enter a gap. Smaller groups are left out with a warning.",
    ),
]
MissingGroups = Annotated[
    Missing, typer.Option(help="Rows without a group: 'leave-out' of the gaps, or treat as a 'group'.")
]


JoinedFile = Annotated[
    Path | None,
    typer.Option("--join", help="File with groups by id, one row per id; needs --on if the id columns differ in name."),
]
OnColumn = Annotated[
    str | None, typer.Option("--on", help="With --join: the column of ids, or LEFT=RIGHT: here, and in the other file.")
]


JoinedGroup = Annotated[
    list[str] | None, typer.Option("--group", help="With --join: a column of its file that holds groups. Repeatable.")
]


def run_join(run: Path, join: Path | None, on: str | None, columns: Sequence[str] | None) -> Join | None:
    """Return what is joined to the rows of a run; None without ``--join``."""
    if join is None:
        if on is not None or columns:
            raise ConfigError("--on and --group need a file with groups: name it with --join.")
        return None
    from levelhead.runs.folder import load_run
    from levelhead.runs.joined import Join
    from levelhead.tables.join import both_ids

    own = load_run(run).data.id_name
    left, right = (own, None) if on is None else both_ids(on, [own])
    if right is None:  # the column of the file; the run knows its own ids
        return Join(join, tuple(columns or ()), left)
    if left != own:
        raise ConfigError(f"--on {quoted(str(on))}: the run calls its ids {quoted(own)}, not {quoted(left)}.")
    return Join(join, tuple(columns or ()), right)


AllTables = Annotated[bool, typer.Option("--all", help="Print all sentences and tables.")]
Tried = Annotated[
    list[str] | None,
    typer.Option("--try", metavar="KEY=VALUE,VALUE", help="Values to try, e.g. method.upweight=20,50,100."),
]


class SplitName(StrEnum):
    """The splits of a data set."""

    train = "train"
    validation = "validation"
    test = "test"


class Precision(StrEnum):
    """The number types that a language model can be run in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
