"""Accuracy and group gaps on count tables, with intervals that cover."""

from levelhead.metrics.between import holm, proportion
from levelhead.metrics.counts import Counts, JointCounts
from levelhead.metrics.intervals import estimate, estimate_all, estimate_to_dict
from levelhead.metrics.joint import JointRow, JointTable, joint
from levelhead.metrics.names import METRICS, Metric

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
    "holm",
    "joint",
    "proportion",
]
