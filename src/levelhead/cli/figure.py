"""The commands ``levelhead figure qk`` and ``levelhead figure attention``: from a run folder to pictures and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.options import FiguresFile, Run
from levelhead.storage import check_outputs, pictures_of, write_json
from levelhead.terminal import Terminal

if TYPE_CHECKING:  # importing torch takes seconds, and the other commands need not wait for it
    from levelhead.inspecting.source import RunFigure

figure_app = typer.Typer(
    help="Plot a finished run's attention, or its queries and keys, by group.", no_args_is_help=True
)


DataRoot = Annotated[Path | None, typer.Option(help="Folder that holds the data sets. Default: the run's own.")]
Attribute = Annotated[str | None, typer.Option(help="Sensitive attribute to group by. Default: the data set's first.")]
Out = Annotated[
    Path | None, typer.Option(help="The picture, .png or .svg; without an ending, both. Default: figures/VERB-RUN.")
]


def _check(run: Path, out: Path, json_file: Path | None) -> None:
    """Refuse outputs before any work."""
    pictures = {f"--out ({picture.suffix[1:]})": picture for picture in pictures_of(out)}
    check_outputs(pictures | {"--json": json_file}, runs=[run])


def _write(figure: RunFigure, out: Path, json_file: Path | None) -> None:
    written = figure.save(out)
    if json_file is not None:
        write_json(json_file, figure.to_dict())
        written.append(json_file)
    console = Terminal()
    for path in written:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)


@figure_app.command("qk")
def qk_command(
    run: Run,
    head: Annotated[int, typer.Option(help="Attention head, from 0.")] = 0,
    dimension: Annotated[int, typer.Option(help="Dimension within the head, from 0.")] = 0,
    token: Annotated[int, typer.Option(help="Token whose key is drawn; 0 is the CLS token.")] = 10,
    attribute: Attribute = None,
    data_root: DataRoot = None,
    out: Out = None,
    json_file: FiguresFile = None,
) -> None:
    """Draw one dimension of the readout query and of a token's key by group (the paper's figure 3).

    A debiased run is drawn before and after debiasing. One dimension is an example: the lower panels show the same
    statistic for all heads and dimensions, and for shuffled groups. Existing files are replaced.
    """
    out = out or Path("figures") / f"qk-{run.resolve().name}"
    _check(run, out, json_file)
    from levelhead.inspecting.qk import qk_figure

    figure = qk_figure(run, data_root=data_root, attribute=attribute, head=head, dimension=dimension, token=token)
    _write(figure, out, json_file)


@figure_app.command("attention")
def attention_command(
    run: Run,
    attribute: Attribute = None,
    data_root: DataRoot = None,
    out: Out = None,
    json_file: FiguresFile = None,
) -> None:
    """Draw the readout row's mean attention over patches by group and label (the paper's figure 4).

    `levelhead inspect` measures the share of attention on parts of pictures. Existing files are replaced.
    """
    out = out or Path("figures") / f"attention-{run.resolve().name}"
    _check(run, out, json_file)
    from levelhead.inspecting.patches import attention_figure

    figure = attention_figure(run, data_root=data_root, attribute=attribute)
    _write(figure, out, json_file)
