"""What the words of a page mean: shown at a column's head, and in full in the last fold."""

from __future__ import annotations

from levelhead.metrics.names import METRICS
from levelhead.report import marks

DEFINITIONS = {name: (metric.heading, metric.definition) for name, metric in METRICS.items()}
"""Title and definition of each metric. With several classes each is set against the rest; the worst class counts."""

STATISTICS = {
    "interval": (
        "Interval",
        "A range that contains the true value in 95 of 100 such studies (at 95%), if rows "
        "and seeds are a fair sample. For gaps it inverts tests of signed differences, so it can contain 0. An "
        "interval that contains 0 is inconclusive; its upper end is the largest gap that fits the rows.",
    ),
    "interval_over_items": (
        "Interval",
        "A range that contains the true value in 95 of 100 such studies (at 95%), if the "
        "benchmark’s items are a fair sample: computed over items, in clusters where items share a template.",
    ),
    "corrected": (
        "Bias-corrected",
        "Corrected for the upward bias of a maximum over groups, by the bootstrap.",
    ),
    "distinguishable": (
        "Distinguishable",
        "The interval of the paired difference excludes 0, and its Holm-adjusted p-value is below the error "
        "probability. “Inconclusive” does not mean equal.",
    ),
    "undefined": (
        "Undefined",
        "A figure that these rows cannot give, for example a rate with denominator 0. It is never shown as 0.",
    ),
    "group": (
        "Group",
        "The annotators’ label of a person, for example perceived gender as annotated. It says nothing about how "
        "anyone identifies.",
    ),
    "pareto": (
        "Pareto set",
        "Variants without a mark that no other such variant beats in both columns, by measured means.",
    ),
    **{mark: (mark, meaning) for mark, meaning in marks.MEANINGS.items()},
}

CAUTION = (
    "These are findings about these rows and groups. A smaller measured gap here does not make a model fair or lawful, "
    "and no tool can."
)


def help_for(metric: str) -> str:
    """Return a metric's definition; empty for what has none."""
    return DEFINITIONS.get(metric.removesuffix("_mean"), ("", ""))[1]
