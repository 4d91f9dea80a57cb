"""What the words of a page mean: shown at a column's head, and in full in the last fold."""

from __future__ import annotations

from levelhead.metrics.names import METRICS

DEFINITIONS = {name: (metric.heading, metric.definition) for name, metric in METRICS.items()}
"""Title and definition of each metric. With several classes each is set against the rest; the worst class counts."""

UNDEFINED = "A figure that these rows cannot give, for example a rate with denominator 0. It is never shown as 0."
CAUTION = (
    "These are findings about these rows and groups. A smaller measured gap here does not make a model fair or lawful, "
    "and no tool can."
)
