"""What sentences of comparisons say: sentences.txt beside this file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from levelhead.report import sentences, text
from levelhead.report.sentences import Difference
from levelhead.types import Estimate
from sessions import check, renew

TEXT = Path(__file__).with_name("sentences.txt")


def method(name: str, value: float, low: float, high: float, p: float = 1.0, **options: Any) -> Difference:
    return Difference(name, Estimate(value, low, high, 1544, options.pop("reason", None)), p, **options)


NAMES = vars(sentences) | vars(text) | {"method": method, "Estimate": Estimate, "nan": math.nan}


def test_they_say_what_is_kept() -> None:
    check(TEXT, NAMES)


if __name__ == "__main__":
    renew(TEXT, NAMES)


def test_marks_stand_outside_quotation_marks() -> None:
    assert sentences.quoted_name("few-label, rows 20 FEW GROUPS") == "“few-label, rows 20” FEW GROUPS"
    assert sentences.quoted_name("dam+jtt ORACLE") == "dam+jtt ORACLE"
