"""What the words of a page mean: shown at a column's head, and in full in the appendix."""

from __future__ import annotations

from levelhead.metrics.names import METRICS
from levelhead.report import marks

DEFINITIONS = {name: (metric.heading, metric.definition) for name, metric in METRICS.items()}
"""Title and definition of each metric. With several classes each is set against the rest; the worst class counts."""

STATISTICS = {
    "interval": (
        "Interval",
        "A range that holds the true value in as many such studies as its level says (in 95 of 100 at 95%), if rows "
        "and seeds are a fair sample. For gaps it inverts tests of signed differences, so that it can hold a true gap "
        "of 0; an interval that starts at 0 does not show a gap: a wide one cannot tell whether there is one, a narrow "
        "one says how large it is at most.",
    ),
    "interval_over_items": (
        "Interval",
        "A range that holds the true value in as many such studies as its level says (in 95 of 100 at 95%), if the "
        "benchmark’s items are a fair sample: from a bootstrap over items, in clusters where items share a template.",
    ),
    "corrected": (
        "Bias-corrected",
        "The largest of noisy differences is too large on average. This is the figure less the bootstrap estimate of "
        "that excess.",
    ),
    "distinguishable": (
        "Distinguishable",
        "The interval of the paired difference leaves out 0, and its p-value, adjusted over the methods by Holm, is "
        "below the error probability. “Not distinguishable” does not mean equal.",
    ),
    "half_width": (
        "Smallest difference seen",
        "Half the width of the interval: about the smallest difference that this many rows and seeds could have "
        "shown. Smaller ones may exist and would not be seen.",
    ),
    "undefined": (
        "Undefined",
        "A figure that these rows do not determine, for example a rate over no rows. It is never shown as 0.",
    ),
    "group": (
        "Group",
        "What the data’s annotators wrote down about a person, for example perceived gender as annotated. It is not a "
        "statement about how anyone sees themselves.",
    ),
    "pareto": (
        "Pareto set",
        "The variants without a mark that no other such variant beats in both columns, by the measured means alone.",
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
