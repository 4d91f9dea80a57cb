"""The command ``levelhead lm gap``: where the attention of a language model differs within stereotype pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from levelhead.cli.finishing import write_files
from levelhead.cli.options import DataRoot, HtmlFile, MismatchedWeights, Precision
from levelhead.storage import check_outputs, write_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError

console = Terminal()
RESULT = "result.json"


def gap_command(
    model: Annotated[str, typer.Option(help="A causal language model: a folder, or a name on the Hub.")],
    out: Annotated[Path, typer.Option(help="Folder of the result.")],
    against: Annotated[str | None, typer.Option(help="The model before, to compare with.")] = None,
    data_root: DataRoot = None,
    triplets: Annotated[
        Path | None, typer.Option(help="Triplets other than StereoSet's: a table of stereo, anti, unrelated.")
    ] = None,
    terms: Annotated[
        Path | None,
        typer.Option(help="Target terms to use, one per line. Default: all that no training has seen."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N pairs.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Precision, typer.Option(help="Number type; auto: the model's own on a GPU.")
    ] = Precision.float32,
    allow_mismatched_weights: MismatchedWeights = False,
    html_file: HtmlFile = None,
) -> None:
    """Measure how often the largest attention gap of a pair lies on the bias-bearing words, and how large it is.

    Of a model that KLAAD trained, only pairs of held-out target terms are used. Entropy and log-probabilities are
    reported, too: a model with uniform attention has no gap, but has learnt nothing.

    Example: levelhead lm gap --model runs/klaad --against MODEL --data-root DATA --out runs/gap
    """
    check_outputs(
        {f"--out {RESULT}": out / RESULT, "--html": html_file},
        folders={"--out": out},
        inputs=[triplets, terms],
        runs=[model, against],
    )
    from levelhead.lm.gap_report import gap_report, held_out_triplets
    from levelhead.lm.loading import place_of
    from levelhead.lm.model import LanguageModel
    from levelhead.lm.page import gap_page
    from levelhead.lm.triplets import read_triplets, stereoset_triplets
    from levelhead.report.terminal import drawn

    if triplets is not None and data_root is not None:
        raise ConfigError("Give --triplets (a file) or --data-root (where StereoSet is), not both.")
    rows = read_triplets(triplets) if triplets is not None else stereoset_triplets(data_root)
    places = [place_of(name) for name in (model, against) if name is not None]
    chosen, selection = held_out_triplets(rows, places, terms)
    options: Any = {"dtype": precision.value, "allow_mismatched_weights": allow_mismatched_weights}
    after = LanguageModel.load(model, device, **options)
    before = None if against is None else LanguageModel.load(against, device, **options)
    report = gap_report(after, chosen[:limit], against=before, selection=selection).to_dict()
    write_json(out / RESULT, report)
    write_files(None, None, html_file, lambda: gap_page(report))
    console.print(drawn(gap_page(report), everything=False))
    console.print(f"Written: {escape(str(out / RESULT))}", soft_wrap=True)
