"""What figures are called and what they are of, for every kind of result: one name for one quantity."""

from __future__ import annotations

from collections.abc import Mapping

from levelhead.metrics.names import METRICS, RATE_TITLES
from levelhead.report.sentences import Words
from levelhead.report.text import short

UNDEFINED = (
    "undefined",
    "A figure that these rows cannot give, for example a rate with denominator 0; never shown as 0.",
)
CAUTION = (
    "These are findings about these rows and groups. A smaller measured gap here does not make a model fair or lawful, "
    "and no tool can."
)
FIGURES: Mapping[str, tuple[str, str]] = {
    "selection_rate": ("Selection rate", "Share of a group’s rows with the positive or favourable prediction."),
    "true_positive_rate": ("True positive rate", "The same share among rows whose label is the positive class."),
    "false_positive_rate": ("False positive rate", "The same share among all other rows."),
    "precision": ("Precision", "Share of predicted positives that are positive."),
    "false_negative_rate": ("False negative rate", "Share of positives that are missed."),
    "balanced_error": ("Balanced error", "Mean of the false negative and the false positive rate."),
    "selection_ratio": (
        "Impact ratio",
        "A group’s selection rate divided by that of the reference group. The four-fifths rule (US EEOC 1978) asks "
        "whether it is below 0.8. It is a rule of thumb, not a finding of discrimination.",
    ),
    "ratio_of_rates": ("Ratio of rates", "A group’s selection rate divided by that of the reference group."),
    "true_positive_ratio": ("Ratio of true positive rates", "A group’s rate divided by that of the reference group."),
    "predictive_parity": ("Predictive parity gap", "The largest difference of two groups in precision."),
    "bias_amplification": (
        "Bias amplification",
        "How much further predictions go than labels, in the direction of the association of group and class.",
    ),
    "area": ("AUC", "Share of pairs of a positive and a negative in which the positive has the higher score."),
    "area_gap": ("AUC gap", "The largest difference of two groups in AUC."),
    "crossed_area": ("AUC of one group’s positives above the other’s negatives", "Away from 0, one group is favoured."),
    "residual": ("Label minus score", "Above 0: the score is too low for this group, on average."),
    "slope": ("Slope", "Calibration: 1 if calibrated; below 1, scores are too extreme. Along a number: change a unit."),
    "intercept": ("Intercept", "0 if calibrated; in log odds, with the slope held at 1."),
    "kolmogorov_smirnov": ("Kolmogorov-Smirnov", "Largest distance of the score’s distributions in both classes."),
    "gini": ("Gini", "Twice the AUC less 1."),
    "brier": ("Brier score", "Mean squared distance of score and label."),
    "cost": ("Cost a row", "What false positives and false negatives cost, over all rows."),
    "share_of_rows": ("Share of all rows", ""),
    "share_of_top": ("Share of the top", "The group’s share of the top places. The open mark is its share of rows."),
    "decided_differently": ("Decided differently", "Share of matched pairs with two decisions."),
    "chosen_alone": ("Chosen alone", "Share of pairs in which this group alone has the decision."),
    "mean_score": ("Mean score", "In the unit of the score."),
    "representation": ("Representation", "Share of the top divided by share of all rows; 1 is proportional."),
    "exposure": ("Exposure", "As representation, with place j weighted by 1 / log2(1 + j)."),
    "mean_error": ("Mean error", "Prediction minus label, in the label’s unit. Above 0: predicted too high."),
    "mean_absolute_error": ("Mean absolute error", "Mean distance of prediction and label, in the label’s unit."),
    "mean_prediction": ("Mean prediction", "In the label’s unit."),
    "explained_variance": ("R squared", "Share of the label’s variance that the predictions explain."),
    "base_rate": ("Base rate", "Share of a group’s rows whose label is the positive class."),
    "measured": ("Measured gap", "Gap in equalized odds (mean of both parts)."),
    "implied": (
        "Implied by base rates",
        "The gap of a score that is calibrated in every group and ranks as well as this one. It is no lower bound and "
        "no excuse: labels can be unjust.",
    ),
    "rho": ("Share used (rho)", "Share of the base-rate difference that the score uses."),
    "predicted": ("Predicted from the share used", "The gap that the formula gives with this share."),
    "rest": ("Rest", "Measured minus predicted."),
    "recall": ("Recall", "Share of a class’s rows that are found."),
    "calibration": ("Calibration", "Mean probability of a class minus its share of rows; 0 is calibrated."),
}
"""Titles and definitions by the name of a figure; those of :data:`~levelhead.metrics.METRICS` stand there."""
_ENDINGS = {
    "_by_chance": ", expected by chance",
    "_difference": ", difference",
    "_difference_within_levels": ", difference within strata",
    "_change": ", change",
    "_slope": ", change a period",
    "_bounds": ", bounds",
    "_old": ", old",
    "_new": ", new",
    "_mean": ", mean over classes",
    "_weighted": ", weighted by probability",
    "_labelled_rows_alone": ", labelled rows alone",
    "_detectable": ", smallest detectable gap",
    "_range": ", range over groups",
    "_range_by_chance": ", range under permutation",
}


def title_of(figure: str, own: Mapping[str, str] | None = None) -> str:
    """Return what a figure is called: words for its name, and its class, period or threshold as they are.

    ``own`` are names of the result itself, which go first.
    """
    own = own or {}
    if figure in own:
        return own[figure]
    name, _, of_class = figure.partition("[")
    name, _, threshold = name.partition("@")
    name, by, proxy = name.partition("_by_") if not name.endswith("_by_chance") else (name, "", "")
    ending = next((one for one in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(one)), "")
    plain = name.removesuffix(ending)
    title = own.get(plain) or _plain(plain)
    title += _ENDINGS.get(ending, "")
    title += f", naive by {short(proxy, 40)}" if by else ""
    title += f" [{short(of_class, 60)}" if of_class else ""
    return title + (f" at {threshold}" if threshold else "")


def _plain(name: str) -> str:
    if name in METRICS:
        return METRICS[name].title
    return FIGURES[name][0] if name in FIGURES else RATE_TITLES.get(name, short(name, 60))


def definition_of(figure: str) -> str:
    """Return what a figure is; empty for one of the user's own."""
    return METRICS[figure].definition if figure in METRICS else FIGURES.get(figure, ("", ""))[1]


def question(figure: str, words: Words) -> tuple[str, str]:
    """Return the head of a chart's panel: what the figure says in the user's words, and what it is of."""
    name, _, of_class = figure.partition("[")
    chosen = of_class.removesuffix("]") or words.favourable or words.positive
    if chosen is None or name not in ("selection_rate", "true_positive_rate", "false_positive_rate"):
        return title_of(figure), definition_of(name) if name in FIGURES else ""
    outcome, label = short(chosen, 40), str(chosen)
    if name == "selection_rate":
        return f"Predicted {outcome}", "of all rows (selection rate)"
    if name == "true_positive_rate":
        return f"Rightly predicted {outcome}", f"of {words.those(label)} (true positive rate)"
    return f"Wrongly predicted {outcome}", f"of {words.others(label)} (false positive rate)"
