"""The runs that a finished run can be refitted to, as cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelhead.bench.checks import check_told_groups
from levelhead.bench.grid import Cell, Grid, compare_methods, make_cells, parse_methods, parse_options
from levelhead.methods import METHODS
from levelhead.methods.afr import AFR
from levelhead.methods.dam import DAM
from levelhead.methods.few_label import FewGroups
from levelhead.methods.last_layer import LastLayerMethod
from levelhead.runs.finished import FinishedRun
from levelhead.runs.joined import Join
from levelhead.storage import read_record
from levelhead.types import ConfigError, listed, quoted


def refit_cells(
    run: FinishedRun,
    methods: str,
    out: Path,
    options: Sequence[str] = (),
    *,
    groups: Path | None = None,
    join: Join | None = None,
) -> list[Cell]:
    """Return the runs that a finished run is to be refitted to, in folders below ``out``.

    Args:
        run: of erm, or of dam: then each method goes under the same debiased attention.
        methods: names with commas between them.
        out: folder of the new runs.
        options: values to try, each as KEY=VALUE,VALUE.
        groups: file with the groups of a few rows, for few-label.
        join: groups that stand in another file than the run's data.

    Raises:
        ConfigError: a method that does not refit, an option that none of them has, or more group labels than rows.
        DataError: groups that a method gets cannot be read.
    """
    names = parse_methods(methods)
    known = [name for name in METHODS if issubclass(METHODS[name], LastLayerMethod)]
    for name in names:
        if name not in known:
            raise ConfigError(f"--method {quoted(name)} does not refit a last layer. Known: {listed(known)}.")
    told: dict[str, Any] = {"groups": str(groups.absolute())} if groups else {}
    if told and not any(issubclass(METHODS[name], FewGroups) for name in names):
        raise ConfigError("--groups is for few-label and bmft: name one with --method.")
    tried = parse_options(options)
    if told and (drawn := {"method.rows", "method.draw"} & tried.keys()):
        raise ConfigError(f"--try {listed(sorted(drawn))}: the file of --groups says which rows. Remove one.")
    base, prefix, shared = run.experiment.to_dict(), "", {}
    if isinstance(run.experiment.method, DAM):
        prefix, shared = "base.", {"method.debias": base["method"]["debias"]}
    named = [f"dam+{name}" if prefix else name for name in names]
    plan = compare_methods(base, named, [run.experiment.seed], tried)
    rows = {}
    for row, settings in plan.rows.items():
        method = METHODS[settings["method.name"].removeprefix("dam+")]
        # The run's network has seen all training rows.
        more = {"holdout": 0} if issubclass(method, AFR) else told if issubclass(method, FewGroups) else {}
        rows[row] = {**shared, **{f"method.{prefix}{key}": value for key, value in more.items()}, **settings}
    cells = make_cells(Grid(plan.base, rows, plan.seeds), out)
    known_rows = read_record(run.folder / "data.json", validation=dict)["validation"]["rows"]
    for cell in cells:  # before any work, and before a folder is made
        check_told_groups(cell.experiment, known_rows, join)
    return cells
