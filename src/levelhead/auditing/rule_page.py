"""The page of a rule that flips decisions: what it decides, what it does to a gap, and for whom."""

from __future__ import annotations

import itertools

from scipy import special

from levelhead.auditing.scale import LOG_ODDS
from levelhead.report.one_page import one_page
from levelhead.report.text import Record, number, short

USES_GROUPS = (
    "USES GROUPS: this rule reads each row's group to decide. In many places that is unlawful for decisions about "
    "people. It makes no model fair."
)


def rule_page(record: Record, *, source: str = "") -> Record:
    """Return the page of a rule, from its JSON or from what ``BiasRule.save`` wrote, which has no sentences."""
    uses = [USES_GROUPS] if record["rule"]["uses_groups"] else []
    warnings = [*uses, *(record.get("warnings") or [])]
    facts = [*_terms(record), *_cutoffs(record)]
    return one_page(
        {"kind": "rule", "sentences": [_finding(record)], **record, "warnings": warnings, "facts": facts}, source=source
    )


def _finding(result: Record) -> str:
    if "flipped" in result:
        return f"The rule flips {result['flipped']:,} decisions."
    return (
        f"The rule aims at a gap in {_bound(result)}, among {len(result['rule']['groups'])} groups. On the rows that "
        f"it was fitted on, the gap is {_fit_gap(result)}."
    )


def _bound(result: Record) -> str:
    rule = result["rule"]
    return f"{rule['metric'].replace('_', ' ')}, at most {100 * rule['delta']:g} points"


def _fit_gap(result: Record) -> str:
    """Return the gap on the rows that a rule was fitted on; rules without labels have none."""
    gap = result["rule"]["fit_gap"]
    return "unknown: fit the rule on rows with labels" if gap is None else f"{number(100 * gap)} points by their labels"


def _threshold(result: Record) -> float:
    """Return the threshold before any flip, in the units of the scores."""
    threshold: float = result.get("threshold", result["rule"]["threshold"])
    return threshold


def _terms(result: Record) -> list[tuple[str, str]]:
    rule, fitted = result["rule"], result.get("fitted") or {}
    measured = f", measured on {result['rows_to_measure']:,}" if "rows_to_measure" in result else ""
    terms = [
        ("Bound", f"{_bound(result)}, {'as the scores predict' if rule['uses_groups'] else 'by the labels'}"),
        ("Gap on the rows fitted on", _fit_gap(result)),
        ("Threshold before", f"{_threshold(result):g}"),
        ("Groups", ", ".join(map(short, rule["groups"]))),
        ("Rows", f"fitted on {fitted.get('rows', 0):,}{measured}"),
    ]
    if "one_threshold" in result:
        terms.insert(1, ("Threshold", f"{result['one_threshold']:.6g}"))
    elif columns := result.get("columns"):
        terms.insert(0, ("Reads", f"score {short(columns['score'])}, group {short(columns['group'])}"))
    if digest := fitted.get("sha256"):
        terms.append(("Fitted on the file with SHA-256", digest))
    return [*terms, ("Schema", str(rule.get("schema", 1)))]


def _cutoffs(result: Record) -> list[tuple[str, str]]:
    """From which score each group is decided positive; nothing of one threshold for all."""
    if not (found := result.get("cutoffs")):
        return []
    log_odds, positive = result.get("scale") == LOG_ODDS, short(str(result["classes"][1]))

    def at(value: float) -> str:
        return f"{special.logit(value):.3g}" if log_odds else f"{value:g}"

    def words(parts: list[tuple[float, float, bool]]) -> str:
        said = [
            (f"from {at(low)}" if high >= 1 else f"{at(low)} to {at(high)}") + (" by chance" if chance else "")
            for low, high, chance in parts
            if not chance or high - low > 0.0015  # less is the width of the noise, at every cut-off
        ]
        return "; ".join(said) or "never"

    told = [(f"Scores of {short(group)} decided {positive}", words(parts)) for group, parts in found.items()]
    if any(low > high for parts in found.values() for (_, high, _), (low, _, _) in itertools.pairwise(parts)):
        why = "Equalized odds can need this where scores rank one group better than another."
        told.append(("Between two ranges", f"A score is not decided {positive}, although a lower one is. {why}"))
    return told
