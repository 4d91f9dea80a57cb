"""What an audit shows first: a screen of 24 lines, two printed sheets, and the favourable outcome in every word."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import levelhead as lh

NAMES = ["x" * 10_000, "\x1b[31mred", "<b>bold</b>", "a", "1", "\N{FAMILY}" * 40, "Amer-Indian-Eskimo"]


def rows(count: int = 900, groups: int = 7, columns: int = 2) -> tuple[Any, Any, dict[str, Any]]:
    chance = np.random.default_rng(0)
    label = chance.choice(["yes", "no"], count)
    predicted = np.where(chance.random(count) < 0.7, label, "no")
    names = [*NAMES, *(f"group {at}" for at in range(groups))][:groups]
    by = {("sex", "race", "z" * 300, "w")[at]: chance.choice(names, count) for at in range(columns)}
    return label, predicted, by


def screen(result: Any) -> list[str]:
    lines = str(result).splitlines()
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= 80
    assert "\x1b" not in str(result)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize(("groups", "columns"), [(2, 1), (1, 1), (7, 2), (30, 4)])
def test_it_fits_a_screen_whatever_groups_are_called(groups: int, columns: int) -> None:
    label, predicted, by = rows(groups=groups, columns=columns)
    options: dict[str, Any] = {"sensitive_features": by, "favourable": "yes"}
    audit = lh.audit(label, predicted, replicates=100, intersect=columns == 2, **options)
    for result in (audit, lh.audit(None, predicted, **options)):
        assert " ".join(screen(result)).endswith("--html, --json, or print(result.text(all=True)).")
    three = np.r_[label, ["maybe"] * 9]
    screen(
        lh.audit(three, np.r_[predicted, ["yes"] * 9], sensitive_features=np.r_[by["sex"], ["a"] * 9], replicates=100)
    )


def test_groups_that_are_not_shown_are_counted_and_the_lowest_ratio_is_shown() -> None:
    chance = np.random.default_rng(1)
    group = chance.choice([f"state {at:02}" for at in range(51)], 20_000)
    predicted = (chance.random(20_000) < np.where(group == "state 37", 0.2, 0.5)).astype(int)
    lines = screen(lh.audit(predicted, predicted, sensitive_features=group, favourable=1, replicates=100))
    shown = [line for line in lines if re.match(r"state \d\d +\d", line)]
    assert any(line.startswith("state 37") for line in shown)
    assert f"{51 - len(shown)} more groups" in " ".join(lines[-2:])
    assert len(shown) >= 4


LOANS = {"sensitive_features": {"sex": ["women", "men"] * 200}, "replicates": 100}
REPAID = ["repaid", "repaid", "repaid", "repaid", "defaulted", "defaulted", "defaulted", "defaulted"] * 50
SCORES = [0.4, 0.8, 0.7, 0.9, 0.7, 0.3, 0.2, 0.1] * 50


def test_the_favourable_outcome_is_in_sentences_errors_page_and_json() -> None:
    """Half of the women who repay get no loan; half of those who default get one. 1 is a default: rates are turned."""
    label = [int(one == "defaulted") for one in REPAID]
    predicted = [int(one < 0.5) for one in SCORES]
    result = lh.audit(label, predicted, favourable=0, **LOANS)  # type: ignore[arg-type]
    text = " ".join(str(result).split())
    assert "Among rows with label = 1, 50.0% of women and 0.0% of men are predicted “0”: 50.0 points higher" in text
    assert result.to_dict()["favourable"] == "0"
    heads = [column["title"] for column in result.page()["brief"]["table"]["columns"]]
    assert heads[:3] == ["Group", "Rows", "Base rate"]
    errors = [heads.index(f"{rate} positive rate") - 1 for rate in ("False", "True")]
    table = result.page()["brief"]["table"]
    assert "rates of 0" in table["caption"]
    found = {row["head"]: [row["cells"][at]["text"] for at in errors] for row in table["rows"]}
    assert found == {"women": ["50.0", "50.0"], "men": ["0.0", "100.0"]}
