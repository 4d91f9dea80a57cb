"""What is left of a gap, by knowledge: the steps of a comparison, their order, and the picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelhead.bench.ladder import RUNGS, Step, draw_ladder, steps_of
from levelhead.metrics import JointRow
from levelhead.types import DataError, Estimate
from page_reading import difference, figure, made_up


def row(gap: float, accuracy: float) -> dict[str, JointRow]:
    """Differences to a baseline whose gap is 0.1."""
    return {"equalized_odds": difference(gap, 0.02), "accuracy": difference(accuracy, 0.01)}


def test_steps_are_shares_of_the_baselines_gap_and_go_up_in_knowledge() -> None:
    rows = {"dfr": row(-0.05, -0.01), "few": row(-0.025, -0.004), "dam": row(0.0025, 0), "poe": row(-0.01, 0)}
    rows["ids"] = row(-0.02, -0.001)
    comparison = made_up(
        rows,
        oracle={**dict.fromkeys(["erm", *rows]), "dfr": "method"},
        told={"few": "FEW GROUPS 200", "poe": "DECLARES hypothesis", "ids": "IDENTITIES"},
    )
    steps = steps_of(comparison, "a task")
    names = ["dam", "poe DECLARES hypothesis", "ids IDENTITIES", "few FEW GROUPS 200", "dfr ORACLE"]
    assert [step.name for step in steps] == names
    assert [step.rung for step in steps] == [0, 1, 2, 3, 4]
    assert [step.left.value for step in steps] == pytest.approx([1.025, 0.9, 0.8, 0.75, 0.5])
    assert steps[3].left.low == pytest.approx(1 - 0.045 / 0.1)
    assert steps[4].to_dict()["knew"] == RUNGS[4]


def test_the_picture_is_the_same_each_time_and_takes_any_name(tmp_path: Path) -> None:
    steps = [
        Step(task, name, rung, figure(left, left - 0.1, left + 0.1), change)
        for task, left in (("one $task$", 0.8), ("another", 0.6))
        for name, rung, change in (("plain", 0, 0.0), ("a very long name of a variant, option 7" * 2, 2, -0.02))
    ]
    undefined = Step("one $task$", "lost", 3, Estimate.undefined("no rows"), 0.0)
    for name in ("a.svg", "b.svg"):
        draw_ladder([*steps, undefined], tmp_path / name, title="A title", notes=["A note."])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "lost" not in (tmp_path / "a.svg").read_text()
    with pytest.raises(DataError, match="No variant's gap"):
        draw_ladder([undefined], tmp_path / "c.png", title="")
