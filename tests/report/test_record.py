"""What findings become in a JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from levelhead.report.record import Finding, as_json
from levelhead.types import Estimate


@dataclass(frozen=True)
class Inner(Finding):
    at: tuple[float, float]
    decided: bool = True


@dataclass(frozen=True)
class Outer(Finding):
    figure: Estimate
    groups: dict[str | tuple[str, ...], Inner | None]
    rows: int = 3
    lines: list[str] = field(default_factory=list)
    missing: float = math.nan


def test_fields_stand_under_their_names_whatever_they_hold() -> None:
    found = Outer(Estimate(0.5, 0.1, 0.9, 10), {("a", "b & c"): Inner((0.25, math.inf)), "d": None}, lines=["One."])
    assert found.to_dict() == {
        "figure": {"value": 0.5, "low": 0.1, "high": 0.9, "n": 10},
        "groups": {'a & "b & c"': {"at": [0.25, None], "decided": True}, "d": None},
        "rows": 3,
        "lines": ["One."],
        "missing": None,
    }
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()


def test_what_is_plain_stays_as_it_is() -> None:
    assert as_json([True, 1, "text", None, 0.5]) == [True, 1, "text", None, 0.5]
    assert as_json(Estimate.undefined("no rows")) == {
        "value": None, "low": None, "high": None, "n": 0, "reason": "no rows",
    }  # fmt: skip
