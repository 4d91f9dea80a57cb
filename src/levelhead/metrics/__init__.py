"""Accuracy and group gaps on count tables, with intervals that cover."""

from levelhead.metrics.between import holm, proportion
from levelhead.metrics.counts import Counts, JointCounts
from levelhead.metrics.group import (
    accuracy,
    balanced_accuracy,
    demographic_parity,
    demographic_parity_mean,
    equal_opportunity,
    equal_opportunity_mean,
    equalized_odds,
    equalized_odds_mean,
    equalized_odds_worst,
    equalized_odds_worst_mean,
    false_positive_rate,
    gaps_by_class,
    group_accuracy,
    selection_rate,
    true_positive_rate,
    worst_group_accuracy,
)
from levelhead.metrics.intervals import (
    estimate,
    estimate_all,
    estimate_to_dict,
    metric_names,
    undefined_reason,
    worst_class,
)
from levelhead.metrics.joint import JointRow, JointTable, compare, joint
from levelhead.metrics.names import METRICS, Metric, gaps

__all__ = [
    "METRICS",
    "Counts",
    "JointCounts",
    "JointRow",
    "JointTable",
    "Metric",
    "accuracy",
    "balanced_accuracy",
    "compare",
    "demographic_parity",
    "demographic_parity_mean",
    "equal_opportunity",
    "equal_opportunity_mean",
    "equalized_odds",
    "equalized_odds_mean",
    "equalized_odds_worst",
    "equalized_odds_worst_mean",
    "estimate",
    "estimate_all",
    "estimate_to_dict",
    "false_positive_rate",
    "gaps",
    "gaps_by_class",
    "group_accuracy",
    "holm",
    "joint",
    "metric_names",
    "proportion",
    "selection_rate",
    "true_positive_rate",
    "undefined_reason",
    "worst_class",
    "worst_group_accuracy",
]
