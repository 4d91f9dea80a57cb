"""Pictures of comparisons, readable in greyscale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from levelhead.bench.tables import COLUMNS, Comparison
from levelhead.storage import write_atomically

_MARKERS = "os^Dv<>Ph"


def draw_comparisons(
    comparisons: Sequence[Comparison],
    titles: Sequence[str],
    path: Path,
    metrics: Sequence[str] = ("accuracy", "equalized_odds", "demographic_parity"),
) -> None:
    """Draw each metric as a panel: one mark a method and comparison, with its joint interval, in percent."""
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(3.4 * len(metrics), 1.5 + 0.3 * sum(len(comparison.table.rows) for comparison in comparisons)),
        layout="constrained",
    )
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    methods = list(dict.fromkeys(method for comparison in comparisons for method in comparison.table.rows))
    shades = [str(0.1 + 0.5 * position / max(1, len(methods) - 1)) for position in range(len(methods))]
    for panel, metric in zip(panels, metrics, strict=True):
        for row, comparison in enumerate(comparisons):
            for position, method in enumerate(methods):
                if method not in comparison.table.rows:
                    continue
                estimate = comparison.table.rows[method][metric].estimate
                if not estimate.defined:
                    continue
                height = row + 0.24 * (position - (len(methods) - 1) / 2)
                panel.errorbar(
                    100 * estimate.value,
                    height,
                    xerr=[[100 * (estimate.value - estimate.low)], [100 * (estimate.high - estimate.value)]],
                    fmt=_MARKERS[position % len(_MARKERS)],
                    color=shades[position],
                    capsize=3,
                    label=comparison.label(method) if row == 0 else None,
                )
        panel.set_title(COLUMNS[metric])
        panel.set_xlabel("percent")
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(comparisons)), titles)
    panels[0].invert_yaxis()
    panels[-1].legend(loc="best", frameon=False)
    level, sources = f"{comparisons[0].table.level:.0%}", comparisons[0].sources
    figure.supxlabel(f"marks: mean over seeds; bars: {level} interval over {sources}", fontsize="small")
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=150, format="png"))
