"""What the figures of an audit are called in words, for every page and table that shows them."""

from collections.abc import Sequence

TITLES = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "worst_group_accuracy": "Worst (group, label) accuracy",
    "demographic_parity": "Demographic parity gap",
    "equal_opportunity": "Equal opportunity gap",
    "equalized_odds": "Equalized odds gap (mean of |dTPR|, |dFPR|)",
    "equalized_odds_worst": "Equalized odds gap (larger of |dTPR|, |dFPR|)",
}
RATE_TITLES = {
    "accuracy": "Accuracy",
    "selection_rate": "Selection rate",
    "true_positive_rate": "True positive rate",
    "false_positive_rate": "False positive rate",
}
NOTE = (
    "Figures are findings about these rows and groups, in percent with confidence intervals. An interval that "
    "reaches 0 means that these rows cannot tell whether there is a gap."
)


def metric_title(name: str, worst: str | None = None) -> str:
    """Say a metric's name in words; ``worst`` is the class that it is about, where several are compared."""
    plain = name.removesuffix("_mean")
    mean = ", mean over classes" if name.endswith("_mean") else ""
    return TITLES.get(plain, plain) + mean + (f", worst class: {worst}" if worst is not None else "")


def left_out_words(included: bool, left_out: Sequence[str]) -> str:
    """Say whether gaps count a group out, from ``GroupFigures.included`` and ``left_out``; the warnings say which."""
    if not included:
        return "left out of the gaps"
    return "left out of some gaps" if left_out else ""
