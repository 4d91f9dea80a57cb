"""The end of a verb's output: one sentence of consequence, and one command that can be typed as printed."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelhead.terminal import RUNNING
from levelhead.types import ConfigError, Estimate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from levelhead.auditing.explanation import ExplainedPair, Explanation
    from levelhead.bench.comparison import Comparison

Step = tuple[str, Sequence[object]]
"""A sentence, and the words of the command after ``levelhead``."""
GAP = 0.05
"""The gap that a next step plans for."""


def lines(step: Step) -> list[RenderableType]:
    """Return the two lines of a step; the command stays one line."""
    from rich.text import Text

    sentence, words = step
    return [f"Next: {sentence}", Text(f"  {shlex.join(['levelhead', *map(str, words)])}")]


def tell(console: Console, step: Step) -> None:
    """Print a step."""
    for line in lines(step):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def typed(*more: str) -> list[str]:
    """Return the words of the command that runs, and ``more``."""
    return [*(RUNNING.get() or ()), *more]


def words_of(options: Mapping[str, object]) -> list[str]:
    """Return the words of options that were given: neither None nor what the verbs take without them."""
    from levelhead.auditing.options import MIN_COUNT

    plain = {"--scores": "auto", "--min-count": MIN_COUNT}
    given = {name: value for name, value in options.items() if value is not None and value != plain.get(name)}
    return [
        word
        for name, value in given.items()
        for one in (value if isinstance(value, list) else [value])
        for word in (name, str(one))
    ]


def rows_for(rate: float, rows: Sequence[int], comparisons: int = 1) -> tuple[str, list[object]] | None:
    """Return how many rows would detect :data:`GAP`, and the words of that plan; None where no plan fits.

    Args:
        rate: of one group, a fraction.
        rows: the two denominators.
        comparisons: pairs that the intervals are adjusted for.
    """
    from levelhead.auditing.plan import plan_audit

    if min(rows) < 1:
        return None
    first = round(rows[0] / sum(rows), 3)
    rounded, shares = round(rate, 2), (first, round(1 - first, 3))
    words = ["plan", "--gap", f"{100 * GAP:g}", "--rate", rounded, "--shares", ",".join(map(str, shares))]
    words += ["--comparisons", comparisons] if comparisons != 2 else []
    with contextlib.suppress(ConfigError):
        plan = plan_audit(gap=GAP, rate=rounded, groups=shares, comparisons=comparisons)
        return f"{plan.total:,}", words
    return None


GATES = {
    "decisions": "selection_ratio < 0.8",
    "ranking": "selection_ratio < 0.8",
    "regression audit": "mean_error_difference > 1",
}
"""A condition by the kind of audit: without classes and outcomes there is no error rate."""


def after_audit(found: dict[str, Any], explained: Sequence[object] = (), *, page: bool = False) -> Step:
    """Say what an audit's headline means for its reader.

    Args:
        found: its JSON.
        explained: the words of the command that explains the gap, where there are scores.
        page: a page was written.
    """
    finding = found.get("finding") or {}
    pair = finding.get("pair")
    if found.get("kind") == "audit" and pair is None:
        return "A plan says how many rows each group needs.", ["plan", "--gap", "5", "--rate", "0.5"]
    if pair is not None and finding.get("constant") is None:
        plain = not (found.get("weights") or found.get("clusters"))
        low, high = pair["difference"]["low"], pair["difference"]["high"]
        if low is not None and low <= 0 <= high and (finding.get("at_most") or 1) > GAP:
            rows = [pair[side]["rows"] for side in ("first", "second")]
            plan = rows_for(pair["first"]["value"], rows, finding["comparisons"]) if plain else None
            if plan is not None:
                total, words = plan
                seen = f"These {sum(rows):,} rows cannot tell"
                text = f"{seen}; about {total} would detect a gap of {100 * GAP:g} points."
                return text, words
        elif low is not None and (low > 0 or high < 0) and explained:
            return "The explanation says whether base rates or a shortcut cause this gap.", explained
    if page and "--fail-if" in typed():
        return "The JSON holds every figure, for a later audit or a dashboard.", typed("--json", "audit.json")
    if page:
        gate = GATES.get(str(found.get("kind")), "equal_opportunity > 0.05")
        return "A gate in your tests fails when a gap is too large.", typed("--fail-if", gate)
    return "The page shows every rate, interval and definition, ready to send.", typed("--html", "audit.html")


def clearest_pair(found: Explanation) -> tuple[str, ExplainedPair] | None:
    """Return the column and the pair of groups whose gap is the clearest of all columns; None without any gap."""
    from levelhead.metrics.between import clearest

    pairs = [(name, pair) for name, part in found.by_attribute.items() for pair in part.pairs if pair.measured.defined]
    return min(pairs, key=lambda one: clearest(one[1].measured), default=None)


def after_explanation(found: Explanation, ruled: Sequence[object], compared: Sequence[object]) -> Step:
    """Say which side the clearest gap is on, base rates or a shortcut, and which method that speaks for.

    Args:
        found: the explanation.
        ruled: the words of the command that fits a rule to these scores.
        compared: the words of the command that compares methods, or lists them.
    """
    if (clear := clearest_pair(found)) is None:
        return "A plan says how many rows each group needs.", ["plan", "--gap", "5", "--rate", "0.5"]
    name, pair = clear
    groups = found.by_attribute[name].groups
    rates = [groups[name].true_positive_rate for name in pair.groups]
    plan = rows_for(rates[0].value, [rate.n for rate in rates], 2) if all(rate.defined for rate in rates) else None
    if not pair.measured.low > 0 and plan is not None:
        total, words = plan
        return f"These rows show no gap to explain; about {total} positives would detect one of 5 points.", words
    if not pair.implied.defined:
        why = str(pair.implied.reason)
        said = f"These rows do not say which side the gap is on: {why}{'' if why.endswith('?') else '.'}"
        return said, ["explain", "--help"]
    reasons = {
        "the score exaggerates base rates": pair.rho.low > 1,
        "the score runs against the base rates": pair.rho.high < 0,
        "base rates do not differ measurably": not pair.rho.defined and not pair.implied.low > 0,
    }
    if why := next((one for one, holds in reasons.items() if holds), ""):
        return f"Shortcut side: {why}. This speaks for methods that upweight errors, such as jtt.", compared
    if pair.implied.low > 0 and pair.rho.low > 0:
        text = "Base-rate side: do not expect training without groups to close it; a rule that reads the group can."
        return text, ruled
    return "Inconclusive between base rates and a shortcut; methods of both kinds deserve a comparison.", compared


def after_refit(comparison: Comparison, labels: dict[str, str], run: Path, out: Path) -> Step:
    """Say whether a few group labels help in this one training.

    Args:
        comparison: the refits against the run.
        labels: by row of the comparison that used group labels, what a sentence calls them.
        run: the run.
        out: the folder of the refits.
    """
    from levelhead.report.sentences import not_learned, price_sentence

    tried = [one for one in comparison.differences() if one.method in labels and one.estimate.defined]
    if not tried:
        words = ["refit", run, "--method", "few-label", "--few-groups", "200", "--out", f"{out}-few"]
        return "Test whether 200 group labels would reduce the gap here.", words
    words = ["table", run, out, "--threshold", "matched"]
    one = tried[0]
    said, others = labels[one.method], "refit runs of other seeds before you decide"
    if not one.learned:
        return not_learned(comparison.table.baseline), words
    if one.on_one_seed:
        verb = "reduced" if one.estimate.value < 0 else "increased"
        return f"{said} {verb} the gap of this one training{price_sentence(one)}; {others}.", words
    if math.isnan(one.estimate.low):
        return f"{said} did not change the gap in any draw of the {comparison.rows:,} test rows.", words
    return f"{said} did not measurably help in this one training; {others}.", words


def after_comparison(comparison: Comparison, folder: Path, page: bool) -> Step:
    """Say what a comparison's headline means for the choice of a method."""
    from levelhead.report.sentences import not_learned, price_sentence
    from levelhead.report.text import joined

    baseline = comparison.table.baseline
    if not (every := comparison.differences()):
        other = "erm" if baseline.lower().startswith("dam") else "dam"
        return "A second variant gives something to compare.", ["compare", folder, "--resume", "--methods", other]
    if not every[0].learned:
        return not_learned(baseline), ["compare", "--help"]
    smaller = [one for one in every if one.estimate.value < 0 and not one.marks]
    helped = [one for one in smaller if one.decided]
    if not helped:
        seeds = max((len(each) for each in comparison.seeds.values()), default=1)
        alone = joined([one.method for one in smaller if one.on_one_seed])
        found = f"{alone} reduced the gap on one seed" if alone else "No reduction without group labels is established"
        if not smaller and comparison.table.rows[baseline]["equalized_odds"].estimate.value == 0:
            found = f"{baseline} has no measured gap to reduce"
        return f"{found}; a plan says what more seeds would show.", [
            "compare",
            folder,
            "--resume",
            "--plan",
            "--seeds",
            f"0-{2 * seeds + 3}",
        ]
    best = min(helped, key=lambda one: one.estimate.value)
    text = f"{best.method} reduced the gap most{price_sentence(best)}; check accuracy and cost before you use it."
    if page:
        return text, ["table", folder, "--baseline", baseline, "--latex", "table.tex"]
    return text, ["report", folder, "--baseline", baseline, "--html", f"{folder}.html"]


def after_evaluation(gap: Estimate | None, run: Path, explained: bool) -> Step:
    """Say what a run's gap means; ``gap`` is None where no groups are known."""
    if gap is None:
        return "The page shows accuracy and calibration; gaps need groups.", ["report", run, "--html", f"{run}.html"]
    if not gap.defined:
        words = ["plan", "--gap", f"{100 * GAP:g}", "--rate", 0.5]
        return f"No gap was measured: {gap.reason}. A plan says how many rows a gap needs.", words
    if gap.low > 0 and explained:
        return "The explanation says whether base rates or a shortcut cause this gap.", ["explain", run]
    if gap.low > 0:
        return "The audit names the groups and rates behind this gap.", ["audit", run]
    return "Inconclusive; the audit says which gap this many rows can detect.", ["audit", run, "--all"]
