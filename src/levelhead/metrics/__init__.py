"""Accuracy and group gaps on count tables, with intervals that cover."""

from levelhead.metrics.between import holm, proportion
from levelhead.metrics.contrasts import measured
from levelhead.metrics.counts import Counts, JointCounts
from levelhead.metrics.intervals import (
    estimate,
    estimate_all,
    estimate_to_dict,
    metric_names,
    undefined_reason,
)
from levelhead.metrics.joint import JointRow, JointTable, joint
from levelhead.metrics.names import METRICS, Metric, gaps

__all__ = [
    "METRICS",
    "Counts",
    "JointCounts",
    "JointRow",
    "JointTable",
    "Metric",
    "estimate",
    "estimate_all",
    "estimate_to_dict",
    "gaps",
    "holm",
    "joint",
    "measured",
    "metric_names",
    "proportion",
    "undefined_reason",
]
