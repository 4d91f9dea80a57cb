"""The commands ``levelhead features list``, ``prune`` and ``build``: what the feature cache holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from levelhead.cli.options import DataRoot, Recipe, Settings, SplitName
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, printable

if TYPE_CHECKING:  # importing torch takes seconds, and the other commands need not wait for it
    from levelhead.models.features_store import Stored

features_app = typer.Typer(
    help="List, prune and build cached features of frozen backbones.",
    no_args_is_help=True,
)
console = Terminal()

DAY = 86400.0  # seconds


def _stored() -> list[Stored]:
    """Return what is there; says so if nothing is."""
    from levelhead.data.cache_folder import VARIABLE, cache_folder
    from levelhead.models.features_store import stored_features

    folder = cache_folder()
    if folder is None:
        console.print(f"The cache is off ({VARIABLE}=off, or no home folder): no features are kept on disk.")
        return []
    found = stored_features(folder)
    if not found:
        console.print(f"There are no features in {escape(str(folder / 'features'))}.", soft_wrap=True)
    return found


def _age(seconds: float) -> str:
    for unit, length in (("days", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _draw(found: list[Stored], title: str) -> Table:
    table = Table(title=f"{title}: {sum(stored.size for stored in found) / 2**20:,.1f} MiB", title_justify="left")
    for name in ("key", "of", "rows", "type", "MiB", "state", "used"):
        right = name in ("rows", "MiB", "used")
        table.add_column(
            name, justify="right" if right else "left", overflow="fold", no_wrap=name not in ("of", "state")
        )
    for stored in found:
        record = stored.record
        of, rows, kind = "?", "", ""
        if record is not None:
            of, rows, kind = (
                escape(", ".join(map(printable, record.describe.values()))),
                f"{record.rows:,}",
                record.dtype,
            )
        share = "" if stored.state in ("complete", "damaged") else f", {100 * stored.share:.0f}%"
        used = _age(time.time() - stored.used)
        table.add_row(stored.key[:8], of, rows, kind, f"{stored.size / 2**20:,.1f}", stored.state + share, used)
    return table


@features_app.command("list")
def list_command() -> None:
    """List cached features, most recently used first. Contents are not read.

    Unfinished features resume when they are requested again; damaged ones are rebuilt.

    Example: levelhead features list
    """
    found = _stored()
    if found:
        console.print(_draw(found, escape(str(found[0].place.parent))))


@features_app.command("prune")
def prune_command(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys as `levelhead features list` shows them.")] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Not used for this many days.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete features from the cache. Lists them with their size and asks first. They can always be recomputed.

    Keys and --older-than combine. Features that a process is building are kept; a process that is reading some keeps
    its open files.

    Example: levelhead features prune --older-than 30
    """
    from levelhead.models.features_store import remove

    if everything == bool(keys or older_than is not None):
        raise ConfigError("Nothing selected: give keys, --older-than DAYS, or --all alone.")
    found = _stored()
    if not found:
        return
    if keys:
        found = [_named(key, found) for key in dict.fromkeys(keys)]
    if older_than is not None:
        found = [stored for stored in found if time.time() - stored.used > older_than * DAY]
    if not found:
        console.print("There is nothing to delete: no features match.")
        return
    console.print(_draw(found, "To be deleted"))
    if not yes and not typer.confirm(f"Delete {len(found)}?"):
        console.print("Nothing was deleted.")
        raise typer.Exit(1)
    deleted = [stored for stored in found if remove(stored)]
    console.print(f"Deleted {len(deleted)}: {sum(stored.size for stored in deleted) / 2**20:,.1f} MiB.")
    kept = [stored for stored in found if stored not in deleted]
    if kept:
        console.print(f"A process is building {', '.join(stored.key[:8] for stored in kept)} right now: not deleted.")
        raise typer.Exit(1)


@features_app.command("build")
def build_command(
    recipe: Recipe,
    data_root: DataRoot = None,
    settings: Settings = None,
) -> None:
    """Compute a recipe's features before its first run.

    The runs of a grid then share them; otherwise the first run computes them and the others wait. A stopped command
    resumes.

    Example: levelhead features build recipes/hatexplain_erm_le_small.yaml --data-root DATA
    """
    from levelhead.data.cache_folder import VARIABLE, cache_folder
    from levelhead.models.features import FeatureInputs
    from levelhead.runs.recipe import load_experiment
    from levelhead.runs.train import prepared

    if cache_folder() is None:
        raise ConfigError(f"The cache is off, so features cannot be kept. Set {VARIABLE} to a folder.")
    experiment = load_experiment(recipe, settings or (), data_root=data_root)
    if not getattr(experiment.model, "from_features", False):
        raise ConfigError(
            f"{recipe} uses no cached features: its model needs a backbone, mode last_encoder and features true."
        )
    experiment.data.check()
    for name in SplitName:
        try:
            inputs = prepared(experiment, name.value).inputs
        except KeyboardInterrupt:
            console.print("\nStopped. The same command resumes from there.")
            raise typer.Exit(130) from None
        assert isinstance(inputs, FeatureInputs)
        tokens, width = inputs.values.shape
        console.print(f"{name.value}: {len(inputs):,} rows, {tokens:,} tokens of width {width:,}.")


def _named(key: str, found: list[Stored]) -> Stored:
    matches = [stored for stored in found if stored.key.startswith(key)]
    if len(matches) != 1:
        there = ", ".join(stored.key[:8] for stored in found)
        raise ConfigError(f"{len(matches)} features have a key that begins with {key!r}. There: {there}.")
    return matches[0]
