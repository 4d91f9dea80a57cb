"""The command ``levelhead predict``: rows without labels."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.options import Run
from levelhead.csv_form import harmless
from levelhead.storage import check_outputs, write_atomically
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, listed

if TYPE_CHECKING:
    import pandas as pd


def predict_command(
    run: Run,
    file: Annotated[Path, typer.Argument(help="Table of new rows: csv, tsv, jsonl or parquet.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Write the predictions here: .csv or .parquet.", show_default=False)],
) -> None:
    """Predict rows without labels with a finished run's network.

    The table needs the run's column of texts, or of picture files inside the table's folder. Labels and groups are not
    read. The output has the table's columns, the predicted class and the probability of each class.

    Example: levelhead predict runs/mine new.csv --out predictions.csv
    """
    check_outputs({"--out": out}, inputs=[file], runs=[run])
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise ConfigError(f"--out {out} must end in .csv or .parquet.")
    from levelhead.runs.predict import PREDICTION, PROBABILITY, predict_file

    frame = predict_file(run, file)
    write_atomically(out, lambda path: _write(frame, path, out.suffix.lower()))
    counts = frame[PREDICTION].value_counts()
    classes = [name.removeprefix(PROBABILITY) for name in frame.columns if name.startswith(PROBABILITY)]
    told = [f"{name}: {int(counts.get(name, 0)):,}" for name in classes if name in counts.index]
    terminal = Terminal()
    terminal.print(f"Predicted {len(frame):,} rows. {listed(told)}.", markup=False, soft_wrap=True)
    terminal.print(f"Wrote {out}", markup=False, soft_wrap=True)
    follow = f"levelhead audit {shlex.quote(str(out))} --prediction {PREDICTION} --favourable CLASS --group COLUMN"
    terminal.print(f"If the table has a column of groups, compare how often each is predicted: {follow}", markup=False)


def _write(frame: pd.DataFrame, path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        safe = frame.apply(lambda column: column.map(harmless) if column.dtype == object else column)
        safe.rename(columns=harmless).to_csv(path, index=False)
