"""A question of one's own in one file, who gets no answer: its JSON, gate, text and refusals come along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.auditing.engine import Compared, Quantity, compare
from levelhead.auditing.part import Answer, Frame, Part
from levelhead.auditing.parts import PARTS
from levelhead.metrics import proportion
from levelhead.metrics.names import Key
from levelhead.metrics.weighted import WeightedRate
from levelhead.report.text import number
from levelhead.report.wide import Fraction, Pair
from levelhead.types import ConfigError, Estimate

# ------------------------------------------------------------------------------------------ the question, in one file


@dataclass(frozen=True)
class Abstentions(Answer):
    """The share of each group's rows without an answer, by sensitive column, and the pairs that differ most."""

    shares: dict[str, dict[Key, Estimate]]
    found: Compared

    def sentences(self) -> list[str]:
        """Return who gets no answer more often than whom."""
        if not self.found.pairs:
            return ["No two groups have enough rows to be compared."]
        pair, sure = self.found.pairs[0], self.found.pairs[0].difference
        shares = [f"{number(100 * side.value)}% of {side.group}" for side in (pair.first, pair.second)]
        size = f"{number(100 * sure.value)} points, interval {number(100 * sure.low)} to {number(100 * sure.high)}"
        return [f"By {pair.column}, {' and '.join(shares)} get no answer: {size}."]

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the share of each group, and the differences of pairs."""
        for column, shares in self.shares.items():
            yield from ((column, group, Fraction("abstained"), share) for group, share in shares.items())
        for pair in self.found.pairs:
            both = Pair(pair.first.group, pair.second.group)
            yield pair.column, both, Fraction("abstained_difference"), pair.difference


class Abstained(Part):
    """Whether the model abstains more often for some groups."""

    name = "abstained"
    keeps = ("prediction", "groups")
    word = "unsure"

    def find(self, frame: Frame) -> Abstentions:
        """Count the rows without an answer, and compare all groups that have enough rows."""
        silent = frame.rows.coded("prediction", {self.word: 1}) == 1
        shares: dict[str, dict[Key, Estimate]] = {}
        quantities = []
        for key, column in frame.names.items():
            members, groups = frame.members(key), list(map(str, frame.groups[key]))
            rows = np.bincount(members, minlength=len(groups))
            hits = np.bincount(members[silent], minlength=len(groups))
            shares[column] = {
                one: proportion(*each) for one, *each in zip(groups, hits.tolist(), rows.tolist(), strict=True)
            }
            kept = np.flatnonzero(rows >= frame.options.min_count)
            rate = WeightedRate(hits[kept] / rows[kept], rows[kept], rows[kept].astype(float))
            names, to = [groups[at] for at in kept], frame.references.get(column)
            quantities.append(Quantity(column, self.name, names, rate.value, rate.rows, rate.differences, reference=to))
        return Abstentions(shares, compare(quantities, level=frame.options.level))


# -------------------------------------------------------------------------------------------------- what comes along


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PARTS, "_registered", {})
    PARTS.register(Abstained)


def audited(**options: Any) -> lh.AuditResult:
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({"sex": draw.choice(["f", "m"], 2000), "y": draw.choice(["no", "yes"], 2000)})
    silent = draw.random(2000) < np.where(rows["sex"] == "f", 0.3, 0.1)
    answer = np.where(silent, "unsure", rows["y"])
    given: dict[str, Any] = {"sensitive_features": rows[["sex"]], "replicates": 100, "parts": ["abstained"]}
    return lh.audit(rows["y"], answer, **given, **options)


def test_its_answer_is_in_json_frame_text_and_page() -> None:
    result = audited()
    (pair,) = result.parts["abstained"].found.pairs
    assert (pair.first.group, pair.second.group, pair.decided) == ("f", "m", True)
    assert pair.difference.value == pytest.approx(0.2, abs=0.04)
    record = result.to_dict()["parts"]["abstained"]
    assert record["found"]["pairs"][0]["difference"]["value"] == pair.difference.value
    assert record["shares"]["sex"]["f"]["n"] == pair.first.rows
    frame = result.to_frame().set_index(["group", "figure"])["value"]
    assert frame["f", "abstained"] - frame["m", "abstained"] == pytest.approx(
        frame["f minus m", "abstained_difference"]
    )
    (said,) = record["sentences"]
    assert said in " ".join(result.text(all=True).split())
    assert said in result.to_html()
    assert audited(reference="f").parts["abstained"].found.pairs[0].second.group == "f"


def test_its_figures_can_be_gated_and_what_it_cannot_answer_is_refused() -> None:
    audited().require("sex:abstained_difference < 0.5")
    with pytest.raises(AssertionError, match="does not hold"):
        audited().require("abstained_difference < 0.1")
    with pytest.raises(ConfigError, match="cannot be used with sample_weight="):
        audited(sample_weight=np.ones(2000))
