"""Figure 3 of the paper: queries and keys of the last layer, by group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from levelhead.attention.capture import Captured
from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.data import Split
from levelhead.types import ConfigError, DataError, UnsupportedModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from levelhead.inspecting.source import Array, RunFigure, Source, open_run

BINS = 30
LINES = ["-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3))]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class DimensionByGroup:
    """One dimension of queries or keys by group, beside the same statistic of all the others.

    ``values`` (rows,) and ``groups`` (rows,) int; ``statistic`` is the largest Kolmogorov-Smirnov statistic over
    pairs of groups, ``pair`` being the two; ``all_statistics`` (heads x dimensions,) the same for every dimension.
    """

    values: Array
    groups: NDArray[np.int64]
    statistic: float
    pair: tuple[str, str]
    all_statistics: Array

    @property
    def edges(self) -> Array:
        """Edges of the histogram's bins (bins + 1,)."""
        return np.histogram_bin_edges(self.values, BINS)

    def by_group(self, names: Iterable[str]) -> dict[str, tuple[int, Array]]:
        """Rows and density (bins,) of each group, whose names are in the order of their codes."""
        own = {name: self.values[self.groups == group] for group, name in enumerate(names)}
        return {name: (len(one), np.histogram(one, self.edges, density=True)[0]) for name, one in own.items()}


@dataclass(frozen=True)
class QkFigure(RunFigure):
    """Histograms of one dimension of the readout query and of one token's key, by group.

    ``samples`` by (``query`` or ``key``, ``before`` or ``after`` debiasing); ``after`` only for a debiased run.
    ``shuffled`` (heads x dimensions,) by ``query`` and ``key``: the statistics with group membership shuffled once,
    which is how large they are when the groups do not differ.
    """

    source: Source
    head: int
    dimension: int
    token: int
    samples: dict[tuple[str, str], DimensionByGroup]
    shuffled: dict[str, Array]

    @property
    def stages(self) -> list[str]:
        """``before``, and ``after`` for a debiased run."""
        return [stage for stage in ("before", "after") if ("query", stage) in self.samples]

    def to_dict(self) -> dict[str, Any]:
        """Return histograms, statistics and their quantiles over all heads and dimensions."""
        panels = []
        for (tensor, stage), sample in self.samples.items():
            groups = sample.by_group(self.source.groups)
            panels.append(
                {
                    "tensor": tensor,
                    "debiasing": stage,
                    "statistic": "two-sample Kolmogorov-Smirnov, largest over pairs of groups",
                    "value": sample.statistic,
                    "pair": list(sample.pair),
                    "all_dimensions": _quantiles(sample.all_statistics),
                    "share_of_dimensions_below_this_one": float((sample.all_statistics < sample.statistic).mean()),
                    "bin_edges": sample.edges.tolist(),
                    "density": {name: density.tolist() for name, (_, density) in groups.items()},
                    "rows": {name: rows for name, (rows, _) in groups.items()},
                }
            )
        return {
            "figure": "qk",
            **asdict(self.source),
            "head": self.head,
            "dimension": self.dimension,
            "token": self.token,
            "panels": panels,
            "all_dimensions_with_groups_shuffled": {
                tensor: _quantiles(values) for tensor, values in self.shuffled.items()
            },
        }

    def draw(self) -> Figure:
        """Return one row of histograms a stage, and below them the statistic of all heads and dimensions."""
        from matplotlib.figure import Figure

        rows = len(self.stages) + 1
        figure = Figure(figsize=(8.4, 2.6 * rows), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False)
        for column, tensor in enumerate(("query", "key")):
            name = "query of the readout row" if tensor == "query" else f"key of token {self.token}"
            for row, stage in enumerate(self.stages):
                sample, panel = self.samples[tensor, stage], panels[row, column]
                self._histograms(panel, sample)
                when = "" if self.stages == ["before"] else f", {stage} debiasing"
                one, two = sample.pair
                rows_of = {group: members for group, (members, _) in sample.by_group(self.source.groups).items()}
                between = "" if len(rows_of) == 2 else f"{one} and {two}, "
                panel.set_title(
                    f"{name}{when}\nKS = {sample.statistic:.3f} ({between}n = {rows_of[one]:,} and {rows_of[two]:,})",
                    fontsize=9,
                )
                panel.set_xlabel(f"head {self.head}, dimension {self.dimension}")
            self._boxes(panels[-1, column], tensor)
        for row in range(rows - 1):
            panels[row, 0].set_ylabel("density within group")
        sizes = self.source.groups
        handles, _ = panels[0, 0].get_legend_handles_labels()
        labels = [f"{name} (n = {sizes[name]:,})" for name in sizes]
        figure.legend(
            handles,
            labels,
            title=self.source.legend,
            loc="outside lower center",
            ncols=min(4, len(sizes)),
            frameon=False,
        )
        figure.suptitle(self.source.title)
        return figure

    def _histograms(self, panel: Axes, sample: DimensionByGroup) -> None:
        groups = sample.by_group(self.source.groups)
        for group, (name, (_, density)) in enumerate(groups.items()):
            shade = str(0.45 * group / max(1, len(groups) - 1))
            if len(groups) == 2 and group == 0:
                panel.stairs(density, sample.edges, fill=True, color="0.87")
            panel.stairs(
                density, sample.edges, color=shade, linestyle=LINES[group % len(LINES)], linewidth=1.4, label=name
            )
        panel.set_ylim(bottom=0)

    def _boxes(self, panel: Axes, tensor: str) -> None:
        names = ["as trained"] if len(self.stages) == 1 else self.stages
        panel.boxplot(
            [*(self.samples[tensor, stage].all_statistics for stage in self.stages), self.shuffled[tensor]],
            orientation="horizontal",
            whis=(0, 100),
            widths=0.55,
            tick_labels=[*names, "groups\nshuffled"],
            medianprops={"color": "black", "linewidth": 1.8},
        )
        for height, stage in enumerate(self.stages, start=1):
            panel.plot(self.samples[tensor, stage].statistic, height, "D", color="white", markeredgecolor="black")
        panel.invert_yaxis()
        every = [*(sample.all_statistics for sample in self.samples.values()), *self.shuffled.values()]
        panel.set_xlim(0, 1.05 * max(float(one.max()) for one in every))
        count = len(self.shuffled[tensor])
        panel.set_xlabel(f"KS of all {count} dimensions (diamond: as above)")


def qk_figure(
    folder: Path,
    split: Split = "test",
    *,
    data_root: Path | None = None,
    attribute: str | None = None,
    head: int = 0,
    dimension: int = 0,
    token: int = 10,
) -> QkFigure:
    """Compare queries of the readout row and keys of one token between groups, before and after debiasing.

    Tokens, heads and dimensions count from 0; in a vision transformer token 0 is the CLS token. The head of the key is
    the one that the head of the query meets. Give dimension and head before looking: a dimension chosen for its
    picture proves nothing, which is why the statistic of all of them is reported beside it, without a p-value.

    Errors: :class:`~levelhead.DataError` for an unfinished run or an empty group; :class:`~levelhead.ConfigError` for
    a head, dimension, token or attribute that there is not; :class:`~levelhead.UnsupportedModelError` for a network
    whose classifier reads no single row.

    Source: Lu, Wang, Wang, ICLR 2024, figure 3 (there: the CLS query, and the key of token 10).
    """
    opened = open_run(folder, split, data_root, attribute)
    debiased = any(isinstance(module, QueryKeyStandardizer) for module in opened.model.modules())
    parts: dict[tuple[str, str], list[torch.Tensor]] = {}
    present, places = [], {}
    for captured in opened.passes():
        batch, heads, tokens, size = captured.query.shape
        _refuse_what_there_is_not(captured, head=(head, heads), dimension=(dimension, size), token=(token, tokens))
        stages = {"before": (captured.query, captured.key), "after": (captured.debiased_query, captured.debiased_key)}
        for stage in ("before", "after") if debiased else ("before",):
            query, key = stages[stage]
            parts.setdefault(("query", stage), []).append(query[torch.arange(batch), :, captured.readout])
            parts.setdefault(("key", stage), []).append(key[:, :, token])
        valid = captured.valid
        present.append(torch.ones(batch, dtype=torch.bool) if valid is None else valid[:, token])
        key_head = head // (heads // captured.key.shape[1])
        places = {"query": head * size + dimension, "key": key_head * size + dimension}
    rows = {"query": torch.ones(len(opened.groups.values), dtype=torch.bool), "key": torch.cat(present)}
    names = list(opened.source.groups)
    samples, shuffled = {}, {}
    for (tensor, stage), several in parts.items():
        values = torch.cat(several)[rows[tensor]].flatten(1).numpy()
        groups = opened.groups.values[rows[tensor]].numpy()
        if len(np.unique(groups)) < len(names):
            raise DataError(f"Token {token} is padding in every row of a group; choose an earlier --token.")
        shown = values[:, places[tensor]].astype(np.float64)
        statistic, pair = _largest_difference(shown, groups, names)
        samples[tensor, stage] = DimensionByGroup(shown, groups, statistic, pair, kolmogorov_smirnov(values, groups))
        if stage == "before":
            shuffled[tensor] = kolmogorov_smirnov(values, np.random.default_rng(0).permutation(groups))
    return QkFigure(opened.source, head, dimension, token, samples, shuffled)


def _refuse_what_there_is_not(captured: Captured, **options: tuple[int, int]) -> None:
    """Raise for a network without a row that is read, or an option whose value is not below its count."""
    if captured.readout is None:
        raise UnsupportedModelError("The classifier of this run reads no single row, so there is no query to draw.")
    for option, (value, count) in options.items():
        if not 0 <= value < count:
            raise ConfigError(f"--{option} {value}: this network has {option}s 0 to {count - 1}.")


def _largest_difference(values: Array, groups: NDArray[np.int64], names: list[str]) -> tuple[float, tuple[str, str]]:
    found = {}
    for one, two in combinations(range(len(names)), 2):
        own = np.isin(groups, (one, two))
        found[names[one], names[two]] = float(kolmogorov_smirnov(values[own, None], groups[own])[0])
    pair = max(found, key=found.__getitem__)
    return found[pair], pair


def kolmogorov_smirnov(values: NDArray[Any], groups: NDArray[np.int64], width: int = 64) -> Array:
    """Two-sample Kolmogorov-Smirnov statistic of each column of ``values`` (rows, features), all columns at once.

    ``groups`` (rows,) int; with more than two groups the largest over pairs. Equal to ``scipy.stats.ks_2samp`` column
    by column, which would take minutes for hundreds of columns. ``width`` columns are in memory at a time.
    """
    present = np.unique(groups)
    results = []
    for start in range(0, values.shape[1], width):
        part = values[:, start : start + width]
        order = part.argsort(axis=0, kind="stable")
        ordered = np.take_along_axis(part, order, axis=0)
        # Distribution functions may be compared only after the last of equal values.
        settled = np.ones(part.shape, dtype=bool)
        settled[:-1] = ordered[1:] != ordered[:-1]
        members = groups[order]
        reached = [(members == group).cumsum(axis=0) / (groups == group).sum() for group in present]
        gaps = [np.where(settled, np.abs(one - two), 0).max(axis=0) for one, two in combinations(reached, 2)]
        results.append(np.max(gaps, axis=0))
    return cast(Array, np.concatenate(results))


def _quantiles(values: Array) -> dict[str, Any]:
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "quantiles": {str(level): float(np.quantile(values, level)) for level in QUANTILES},
        "largest": float(values.max()),
    }
