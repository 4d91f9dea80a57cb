"""Figures 3 and 4 of the paper: queries, keys and attention of a run's last layer, by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.inspecting.page import attention_page
from levelhead.inspecting.patches import patch_grid, shares_of_patches
from levelhead.inspecting.source import Array, OpenedRun, Source, open_run
from levelhead.report.record import Finding
from levelhead.report.result import Report
from levelhead.report.text import Record
from levelhead.types import ConfigError, DataError, UnsupportedModelError

BINS = 30
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Panel(Finding):
    """One dimension of queries or keys by group, beside the same statistic of all dimensions.

    ``value`` is the largest statistic over pairs of groups, ``pair`` those two; ``density`` (bins,) and ``rows`` by
    group, between ``bin_edges`` (bins + 1,).
    """

    tensor: str
    debiasing: str
    value: float
    pair: tuple[str, str]
    all_dimensions: dict[str, Any]
    bin_edges: list[float]
    density: dict[str, list[float]]
    rows: dict[str, int]
    statistic: str = "two-sample Kolmogorov-Smirnov, largest over pairs of groups"


@dataclass(frozen=True)
class Cell(Finding):
    """Mean attention over the rows of one group with one label.

    ``attention_on_patches`` (patches down, patches across): the mean share of the attention on patches, summing to 1,
    NaN where there are no rows, or where the network's attention is not finite; ``standard_error`` of the same shape;
    ``share_outside_patches``: share of all attention on tokens that are no patch (the CLS token).
    """

    group: str
    label: str
    rows: int
    attention_on_patches: list[list[float]]
    standard_error: list[list[float]]
    share_outside_patches: float


@dataclass(frozen=True)
class Difference(Finding):
    """How mean attention differs between groups within a label, (patches down, patches across).

    Two groups: the second minus the first. More: the largest difference of any two, a patch at a time, without a
    standard error, as a largest of several has none that is simple.
    """

    label: str
    what: str
    difference: list[list[float]]
    standard_error: list[list[float]] | None


@dataclass(frozen=True)
class AttentionFigures(Report):
    """Histograms of queries and keys, and mean attention over patches, by group.

    ``panels`` by tensor (``query`` or ``key``) and ``before`` or ``after`` debiasing, or ``without`` it; none where the
    classifier reads no single row. ``all_dimensions_with_groups_shuffled`` by tensor: how large the statistics are
    when the groups do not differ. ``cells`` by label and group, and ``differences`` by label: none where the network
    does not cut pictures into patches. Nothing in it belongs to a single row.
    """

    kind: ClassVar[str] = "attention"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(attention_page)

    source: Source
    head: int
    dimension: int
    token: int
    panels: list[Panel]
    all_dimensions_with_groups_shuffled: dict[str, dict[str, Any]]
    cells: list[Cell]
    differences: list[Difference]

    def to_dict(self) -> dict[str, Any]:
        """Return the aggregates behind the pictures, with the run's name beside them."""
        found = super().to_dict()
        return {"kind": found["kind"], **found.pop("source"), **found}


def attention_figures(
    folder: Path,
    *,
    data_root: Path | None = None,
    attribute: str | None = None,
    head: int = 0,
    dimension: int = 0,
    token: int = 10,
) -> AttentionFigures:
    """Compare queries of the readout row, keys of one token, and attention over patches between groups of test rows.

    Tokens, heads and dimensions count from 0; in a vision transformer token 0 is the CLS token. The head of the key is
    the one that the head of the query meets. Give dimension and head before looking: a dimension chosen for its
    picture proves nothing, which is why the statistic of all of them is reported beside it, without a p-value.

    Attention is that after debiasing, averaged over heads, as shares of the attention on patches. Without a readout
    row the mean over query rows is used.

    Errors: :class:`~levelhead.DataError` for an unfinished run or an empty group; :class:`~levelhead.ConfigError` for
    a head, dimension, token or attribute that there is not; :class:`~levelhead.UnsupportedModelError` for a network
    with neither a row that is read nor patches.

    Source: Lu, Wang, Wang, ICLR 2024, figures 3 (there: the CLS query, and the key of token 10) and 4.
    """
    opened = open_run(folder, "test", data_root, attribute)
    debiased = any(isinstance(module, QueryKeyStandardizer) for module in opened.model.modules())
    grid, vectors, present = patch_grid(opened.model), defaultdict(list), []
    shares, places = [], {"query": 0, "key": 0}
    for captured in opened.passes():
        batch, heads, tokens, size = captured.query.shape
        if captured.readout is not None:
            _refuse_what_there_is_not(head=(head, heads), dimension=(dimension, size), token=(token, tokens))
            stages = {"before" if debiased else "without": (captured.query, captured.key)}
            stages |= {"after": (captured.debiased_query, captured.debiased_key)} if debiased else {}
            for stage, (query, key) in stages.items():
                vectors["query", stage].append(query[torch.arange(batch), :, captured.readout])
                vectors["key", stage].append(key[:, :, token])
            present.append(torch.ones(batch, dtype=torch.bool) if captured.valid is None else captured.valid[:, token])
            key_head = head // (heads // captured.key.shape[1])
            places = {"query": head * size + dimension, "key": key_head * size + dimension}
        if grid is not None and (outside := captured.key.shape[2] - grid[0] * grid[1]) >= 0:
            shares.append(torch.column_stack(shares_of_patches(captured, outside)))
    if not vectors and not shares:
        raise UnsupportedModelError("The classifier of this run reads no single row and has no patches to draw.")
    there = {"query": np.ones(len(opened.groups.values), dtype=bool)}
    there |= {"key": torch.cat(present).numpy()} if present else {}
    panels, shuffled = [], {}
    for (tensor, stage), parts in vectors.items():
        values = torch.cat(parts).flatten(1).numpy()[there[tensor]]
        groups = opened.groups.values.numpy()[there[tensor]]
        if len(np.unique(groups)) < len(opened.groups.names):
            raise DataError(f"Token {token} is padding in every row of a group; choose an earlier --token.")
        panels.append(_panel(tensor, stage, values, groups, list(opened.groups.names), places[tensor]))
        if stage != "after":
            chance = _statistics(values, np.random.default_rng(0).permutation(groups), list(opened.groups.names))
            shuffled[tensor] = _quantiles(np.max(list(chance.values()), axis=0))
    cells = _cells(opened, torch.cat(shares).numpy(), grid) if shares and grid else []
    labels = opened.examples.class_names if cells else ()
    differences = [_difference([cell for cell in cells if cell.label == label]) for label in labels]
    return AttentionFigures(opened.source, head, dimension, token, panels, shuffled, cells, differences)


def _refuse_what_there_is_not(**options: tuple[int, int]) -> None:
    """Raise for an option whose value is not below its count."""
    for option, (value, count) in options.items():
        if not 0 <= value < count:
            raise ConfigError(f"--{option} {value}: this network has {option}s 0 to {count - 1}.")


def _panel(tensor: str, stage: str, values: NDArray[Any], groups: Ints, names: list[str], place: int) -> Panel:
    """Describe the column ``place`` of ``values`` (rows, heads x dimensions) by group."""
    shown = values[:, place].astype(np.float64)
    found = _statistics(values, groups, names)
    pair = max(found, key=lambda one: float(found[one][place]))
    every = np.max(list(found.values()), axis=0)
    edges = np.histogram_bin_edges(shown, BINS)
    members = {name: shown[groups == group] for group, name in enumerate(names)}
    return Panel(
        tensor,
        stage,
        float(every[place]),
        pair,
        _quantiles(every),
        edges.tolist(),
        {name: np.histogram(one, edges, density=True)[0].tolist() for name, one in members.items()},
        {name: len(one) for name, one in members.items()},
    )


def _statistics(values: NDArray[Any], groups: Ints, names: list[str]) -> dict[tuple[str, str], Array]:
    """Two-sample Kolmogorov-Smirnov statistic of each column of ``values`` (rows, features), by pair of groups."""
    members = {name: values[groups == group] for group, name in enumerate(names)}
    return {
        (one, two): stats.ks_2samp(members[one], members[two], axis=0, method="asymp").statistic
        for one, two in combinations(names, 2)
    }


def _quantiles(values: Array) -> dict[str, Any]:
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "quantiles": {str(level): float(np.quantile(values, level)) for level in QUANTILES},
        "largest": float(values.max()),
    }


def _cells(opened: OpenedRun, found: Array, grid: tuple[int, int]) -> list[Cell]:
    """Average ``found`` (rows, patches + 1) over the rows of each label and group; the last column is the rest."""
    cells = []
    for at, label in enumerate(opened.examples.class_names):
        for code, group in enumerate(opened.groups.names):
            own = found[((opened.examples.labels == at) & (opened.groups.values == code)).numpy()]
            unknown = np.full(own.shape[1], np.nan)
            mean = own.mean(axis=0) if len(own) else unknown
            error = own.std(axis=0, ddof=1) / np.sqrt(len(own)) if len(own) > 1 else unknown
            shares, errors = (each[:-1].reshape(grid).tolist() for each in (mean, error))
            cells.append(Cell(group, label, len(own), shares, errors, float(mean[-1])))
    return cells


def _difference(cells: list[Cell]) -> Difference:
    """Compare the groups of one label."""
    maps = np.array([cell.attention_on_patches for cell in cells])
    if len(cells) == 2:
        error = np.hypot(cells[0].standard_error, cells[1].standard_error).tolist()
        return Difference(
            cells[0].label, f"{cells[1].group} minus {cells[0].group}", (maps[1] - maps[0]).tolist(), error
        )
    there = maps[[cell.rows > 0 for cell in cells]] if any(cell.rows for cell in cells) else maps
    return Difference(cells[0].label, "largest over pairs of groups", np.ptp(there, axis=0).tolist(), None)
