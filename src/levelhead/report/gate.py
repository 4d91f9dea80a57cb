"""Limits on a result's figures, for a test or a pipeline: met, broken, or not decided by so few rows."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from levelhead.metrics.names import Key, group_name
from levelhead.report.wide import RATIO_OF_RATES, Fraction, GapSlope, Pair
from levelhead.types import ConfigError, Estimate, listed, printable, quoted

if TYPE_CHECKING:
    from levelhead.report.result import Report

Answer = Literal["yes", "no", "undecided"]
OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
ENDS = ("value", "low", "high")
EXAMPLE = "write for example 'selection_ratio < 0.8', 'sex: equal_opportunity > 0.05' or 'equal_opportunity.low > 5%'"
_WRITTEN = re.compile(
    r"\s*(?P<name>[^<>=]*[^<>=\s])\s*(?P<sign><=|>=|<|>)\s*(?P<bound>[^<>=\s%]+)\s*(?P<percent>%?)\s*"
)
EXIT = {"no": 0, "yes": 1, "undecided": 3}


@dataclass(frozen=True)
class Condition:
    """A figure's name, a sign and a number: a question about each figure of that name.

    The name of a figure asks about the quantity behind it: yes or no only if its whole interval says so. With
    ``.value``, ``.low`` or ``.high`` behind the name it asks about that number. Of a difference between two groups,
    whose order the audit chooses, a bound of 0 or more is one on its size, whichever group is ahead. Of its slope over
    time it asks how the size changes: above 0, the gap grows.
    """

    text: str
    name: str
    end: str | None
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read ``NAME < NUMBER``; NAME may begin with a sensitive column and a colon. ``5%`` is 0.05.

        Raises:
            ConfigError: if the text is not such a condition.
        """
        found = _WRITTEN.fullmatch(text)
        try:
            bound = float(found["bound"]) / (100 if found["percent"] else 1) if found else math.nan
        except ValueError:
            bound = math.nan
        if found is None or not math.isfinite(bound):
            raise ConfigError(f"{quoted(text)} is not a condition: {EXAMPLE}.")
        name, _, end = found["name"].rpartition(".")
        if not name or end not in ENDS:
            return cls(text.strip(), found["name"], None, found["sign"], bound)
        return cls(text.strip(), name, end, found["sign"], bound)

    def ask(self, figure: Estimate) -> Answer:
        """Say whether the condition holds of a figure; without the numbers that it asks about, it is undecided.

        Bounds have two ends and no value between them.
        """
        numbers = [figure.low, figure.high] if self.end is None else [getattr(figure, self.end)]
        if any(math.isnan(one) for one in numbers):
            return "undecided"
        held = {OPERATORS[self.sign](one, self.bound) for one in numbers}
        return "undecided" if len(held) == 2 else "yes" if held == {True} else "no"


@dataclass(frozen=True)
class Check:
    """One condition asked of one figure."""

    condition: str
    attribute: str
    group: str | None
    figure: str
    answer: Answer
    said: str

    @property
    def about(self) -> str:
        """What was asked about: the column, the group if there is one, and the figure."""
        group = "" if self.group is None else f", group {quoted(self.group)}"
        return f"{printable(self.attribute)}{group}: {printable(self.figure)} {self.said}"


@dataclass(frozen=True)
class Gate:
    """All checks of a result."""

    checks: list[Check]

    @property
    def answer(self) -> Answer:
        """``yes`` if any condition holds of any figure; else ``undecided`` if any is; else ``no``."""
        given = {check.answer for check in self.checks}
        return "yes" if "yes" in given else "undecided" if "undecided" in given else "no"

    @property
    def exit_code(self) -> int:
        """0: no condition holds; 1: one holds; 3: none holds, but one is undecided."""
        return EXIT[self.answer]

    def sentences(self) -> list[str]:
        """Return one sentence for each check that holds or is undecided, and one that counts them."""
        words = {"yes": "holds", "undecided": "is undecided"}
        said = [f"{one.condition} {words[one.answer]}: {one.about}." for one in self.checks if one.answer != "no"]
        if any(one.figure == "equalized_odds" for one in self.checks):
            said.append("equalized_odds is the mean of two gaps; an audit shows the larger one, equalized_odds_worst.")
        counts = {answer: sum(one.answer == answer for one in self.checks) for answer in EXIT}
        last = f"--fail-if: {counts['yes']} true, {counts['undecided']} undecided, {counts['no']} false."
        return [*said, last]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {"answer": self.answer, "checks": [asdict(check) for check in self.checks]}


def check(result: Report, conditions: Iterable[Condition]) -> Gate:
    """Ask each condition of each figure of its name.

    Raises:
        ConfigError: for a name that no figure of the result has; the text names those like it. Or for a limit in points
            on a fraction, which would never be reached.
    """
    every = [*result.figures()]
    checks = []
    for condition in conditions:
        found = [one for one in every if condition.name in _names(one[0], one[2])]
        if not found:
            raise ConfigError(_unknown(condition, [one[2] for one in every], getattr(result, "over_time", None)))
        if abs(condition.bound) > 1 and all(isinstance(one[2], Fraction) for one in found):
            raise ConfigError(
                f"{quoted(condition.text)}: {found[0][2]} is a fraction, at most 1. "
                f"For {condition.bound:g} points write {condition.bound:g}%."
            )
        for attribute, group, name, figure in found:
            if isinstance(name, GapSlope) and isinstance(group, Pair):
                group, figure = name.of_gap(group, figure)
            shown = None if group is None else group_name(group)
            asked = figure.size if condition.bound >= 0 and _is_difference(group, name) else figure
            checks.append(Check(condition.text, attribute, shown, str(name), condition.ask(asked), _said(figure)))
    return Gate(checks)


def _is_difference(group: Key | None, figure: str) -> bool:
    if isinstance(figure, GapSlope):
        return False
    return getattr(group, "joint", "") == " minus " or "difference" in figure


def _names(attribute: str, figure: str) -> Sequence[str]:
    return (figure, f"{attribute}:{figure}", f"{attribute}: {figure}")


def _said(figure: Estimate) -> str:
    if not figure.defined and not math.isnan(figure.low):
        return f"lies between {figure.low:.3g} and {figure.high:.3g}"
    if not figure.defined:
        return f"is undefined ({figure.reason})"
    if math.isnan(figure.low):
        return f"{figure.value:.3g}, without an interval"
    return f"{figure.value:.3g} [{figure.low:.3g}, {figure.high:.3g}]"


def _unknown(condition: Condition, names: Iterable[str], over_time: Any) -> str:
    there, name = list(dict.fromkeys(names)), condition.name.rpartition(":")[2].strip()
    if name == "selection_ratio" and RATIO_OF_RATES in there:
        return f"{quoted(condition.text)} is about the favourable outcome: --favourable CLASS (favourable= in Python)."
    if name.endswith("_slope") and over_time is not None and not any(one.endswith("_slope") for one in there):
        return f"{quoted(condition.text)}: {over_time.sentences()[0]}"
    kinds = {one.partition("[")[0]: one for one in reversed(there)}  # the first of several periods or classes
    near = difflib.get_close_matches(name, kinds.values(), 3)
    shown = f"Did you mean {listed(map(quoted, near))}?" if near else f"There are {listed(reversed(kinds.values()))}."
    return f"No figure is called {quoted(condition.name)}. {shown}"
