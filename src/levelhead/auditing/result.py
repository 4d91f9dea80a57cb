"""What an audit found, and how it is kept and shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from levelhead.auditing.continuous import ContinuousGap
from levelhead.auditing.figures import AttributeAudit, GroupFigures
from levelhead.auditing.finding import detectable_figure
from levelhead.auditing.over_time import OverTime
from levelhead.auditing.own_metrics import OwnMetric
from levelhead.auditing.paired_answer import PairedAudit
from levelhead.auditing.part import Answer
from levelhead.auditing.parts import leads
from levelhead.auditing.rates import MoreRates
from levelhead.auditing.scores import ScoreAudit
from levelhead.metrics.amplification import Amplification
from levelhead.metrics.names import METRICS, Key, attribute_names, by_names, parts_of
from levelhead.report import wide
from levelhead.report.headline import Lead, leads_in_json
from levelhead.report.result import Report
from levelhead.report.text import Record, estimate_from_dict
from levelhead.report.wide import Fraction, Pair
from levelhead.types import Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AuditResult(Report):
    """What :func:`audit` found.

    ``by_attribute`` has the figures of every sensitive column, and those of the crossing under the tuple of their
    names; ``metrics`` and ``groups`` are those of the first.
    ``warnings`` are full sentences. Figures are fractions. ``positive`` is the class that selection, true and false
    positive rates are about; None where every class is set against the rest. ``findings`` has what
    each part found by its name, as the properties below say it, and ``parts`` what parts of the user's own did.
    The other fields are JSON-able, None where there is nothing to say, and stand in the JSON under their names:
    ``headline`` has the finding, and the pairs, ranges and detectable gaps it was chosen from (four names of the JSON),
    ``words`` what label, classes and favourable outcome are called, ``missing`` the rows without a group, and
    ``reading`` how files were read.

    Examples:
        >>> import levelhead as lh
        >>> labels, predictions, groups = [1, 0] * 50, [1, 0, 1, 1] * 25, ["a", "a", "b", "b"] * 25
        >>> result = lh.audit(labels, predictions, sensitive_features={"sex": groups})
        >>> sorted(result.groups), result.groups["b"].n
        (['a', 'b'], 50)
        >>> list(result.by_attribute)
        ['sex']
    """

    kind: ClassVar[str] = "audit"

    by_attribute: dict[Key, AttributeAudit]
    warnings: list[str]
    level: float = 0.95
    positive: str | None = None
    findings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Answer] = field(default_factory=dict)
    headline: Record = field(default_factory=dict)
    words: Record | None = None
    replicates: int | None = None
    weights: Record | None = None
    clusters: Record | None = None
    missing: list[Record] | None = None
    reference: Record | None = None
    options: Record | None = None
    favourable: str | None = None
    reading: list[str] | None = None

    @property
    def more(self) -> Record:
        """What the JSON has beside ``by_attribute``: the headline, the fields behind it, and ``control``."""
        names = [one.name for one in fields(self)]
        named = {name: getattr(self, name) for name in names[names.index("headline") + 1 :]}
        named["control"] = self.findings.get("control")
        return self.headline | {name: found for name, found in named.items() if found is not None}

    @property
    def scores(self) -> ScoreAudit | None:
        """What scores show whatever the threshold; None without scores."""
        return self.findings.get("scores")

    @property
    def against(self) -> PairedAudit | None:
        """The changes from another model on the same rows; None without one."""
        return self.findings.get("against")

    @property
    def rates(self) -> dict[Key, MoreRates]:
        """Ratios, precision and balanced error by sensitive column, where one class is positive."""
        return self.findings.get("rates", {})

    @property
    def amplification(self) -> dict[Key, Amplification]:
        """By sensitive column, whether predictions exaggerate the differences in the labels."""
        return self.findings.get("amplification", {})

    @property
    def continuous(self) -> dict[str, ContinuousGap]:
        """The gaps along columns of numbers."""
        return self.findings.get("continuous", {})

    @property
    def over_time(self) -> OverTime | None:
        """How differences between groups change over time; None without periods."""
        return self.findings.get("over_time")

    @property
    def own_metrics(self) -> dict[Key, dict[str, OwnMetric]]:
        """The metrics that were passed in, by sensitive column and name."""
        return self.findings.get("own_metrics", {})

    @property
    def metrics(self) -> dict[str, Estimate]:
        """Metrics for the first sensitive column."""
        return next(iter(self.by_attribute.values())).metrics

    @property
    def groups(self) -> dict[Key, GroupFigures]:
        """Groups of the first sensitive column."""
        return next(iter(self.by_attribute.values())).groups

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict: ``metrics``, ``groups``, ``by_attribute``, ``warnings``, ``level``, ``positive``.

        Undefined figures are null with a ``reason``. A crossing lies under the names of its ``columns``, joined by
        " & ", and so do its groups; parts that hold that sign themselves are in quotes.
        """
        found = self._measured()
        return found | leads_in_json(leads(found, self.findings, self.parts)) | self.figures_in_json()

    @property
    def leads(self) -> list[Lead]:
        """What was found, the headline first."""
        return leads(self._measured(), self.findings, self.parts)

    def _measured(self) -> dict[str, Any]:
        """Return the JSON without sentences and the frame of figures."""
        names = attribute_names(self.by_attribute)
        by_attribute = {
            names[attribute]: {"columns": parts_of(attribute), **part.to_dict()}
            for attribute, part in self.by_attribute.items()
        }
        first = next(iter(by_attribute.values()))
        own = {name: {"sentences": one.sentences(), **one.to_dict()} for name, one in self.parts.items()}
        return {
            "kind": self.kind,
            **first,
            "by_attribute": by_attribute,
            "warnings": list(self.warnings),
            "level": self.level,
            "positive": self.positive,
            **self.more,
            **{name: one.to_dict() for name, one in self.findings.items()},
            **({"parts": own} if own else {}),
        }

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure with its attribute, its group (None: all of them) and its name."""
        parts = by_names(self.by_attribute)
        found = [one for part in (*self.findings.values(), *self.parts.values()) for one in part.figures()]
        for name, part in parts.items():
            yield from ((name, None, Fraction(metric), figure) for metric, figure in part.metrics.items())
            for group, of_group in part.groups.items():
                yield from ((name, group, Fraction(rate), figure) for rate, figure in of_group.rates.items())
            yield from (one for one in found if one[0] == name)
        for pair in self.headline.get("pairs", ()):
            ending = f"[{pair['class']}]" if self.positive is None else ""
            both = Pair(pair["first"]["group"], pair["second"]["group"])
            one = estimate_from_dict(pair["difference"])
            yield pair["attribute"], both, Fraction(f"{pair['rate']}_difference{ending}"), one
        yield from self._limits()
        yield from (one for one in found if one[0] not in parts)

    def _limits(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the range of each rate over many groups, beside that by chance, and the gaps that can be detected."""
        for one in self.headline.get("ranges", ()):
            for ending, value, high in (("", one["value"], math.nan), ("_by_chance", one["expected"], one["high"])):
                figure = Estimate(value, math.nan, high, 0, "the range of a rate has no interval")
                yield one["attribute"], None, Fraction(f"{one['rate']}_range{ending}"), figure
        for one in self.headline.get("detectable", ()):
            ending = f"[{one['class']}]" if self.positive is None else ""
            for pair in {one[which]["first"]: one[which] for which in ("best", "worst")}.values():
                both, name = Pair(pair["first"], pair["second"]), Fraction(f"{one['rate']}_detectable{ending}")
                yield one["attribute"], both, name, detectable_figure(pair["gap"])

    def compares(self, attribute: str, group: Key, figure: str) -> bool:
        """Whether a group has enough rows for the gaps of a rate."""
        part = by_names(self.by_attribute).get(attribute)
        if part is None or group not in (groups := part.groups):
            return True
        own, (rate, _, of_class) = groups[group], figure.partition("[")
        gaps = [gap for gap, one in METRICS.items() if rate in one.rates_used]
        return own.included and not {f"{gap}[{of_class}" if of_class else gap for gap in gaps} & {*own.left_out}

    def gap_of(self, attribute: str, figure: str) -> Estimate | None:
        """Return demographic parity, equal opportunity or predictive parity."""
        part = by_names(self.by_attribute).get(attribute)
        if part is None or self.positive is None:
            return None
        if figure == "precision":
            rates = by_names({key: self.rates.get(key) for key in self.by_attribute})[attribute]
            return None if rates is None else rates.predictive_parity
        opportunity = dict.fromkeys(("true_positive_rate", "false_negative_rate"), "equal_opportunity")
        found = ({"selection_rate": "demographic_parity"} | opportunity).get(figure, "")
        return part.metrics.get(found)

    @property
    def pairs(self) -> pd.DataFrame:
        """Differences of two groups, the clearest and largest first: first, second, figure, value, low, high."""
        return wide.pairs(self)
