"""What was published, and the arithmetic that sets ours beside it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from levelhead.bench import tables
from levelhead.bench.comparison import LEAKING
from levelhead.bench.tables import RunSet
from levelhead.paper.published import Published, present_row, published, published_row
from levelhead.paper.results import choice_of_epochs, minus_published, published_gain
from levelhead.report.text import cell_lines
from levelhead.types import Estimate


def test_published_figures_are_the_paper_s() -> None:
    assert published("table1")["DAM"]["equalized_odds"] == Published(7.76, 0.41)
    assert published("table2")["JTT"]["energy_wh"] == Published(936.24)
    assert published("table3", "BERT large")["DAM"]["equalized_odds"] == Published(3.51, 1.08)
    assert published("table4", "BERT base")["ERM"]["accuracy"] == Published(81.48, 0.53)
    assert published("table5")["DAM-LE"]["peak_gpu_memory_mib"] == Published(3210)
    assert published("table6", "BERT base")["DAM-LE"]["accuracy"] == Published(76.12, 0.05)
    assert published("table6", "BERT base")["ERM-FT"]["accuracy"] == published("table3", "BERT base")["ERM"]["accuracy"]
    assert published("table7")["DAM"]["equalized_odds"] == Published(19.47)
    assert published("figure2") == {}
    for table, methods in (("table1", 7), ("table2", 7), ("table5", 4), ("table7", 5)):
        assert len(published(table)) == methods


@pytest.mark.parametrize(
    ("row", "present", "theirs"),
    [
        ("DAM", "DAM (levelhead)", "DAM"),
        ("DAM-LE", "DAM (levelhead)-LE", "DAM-LE"),
        ("DAM, t = 4", "DAM (levelhead), t = 4", "DAM, t = 4"),
        ("DAM without alignment", "DAM (levelhead) without alignment", "DAM without alignment"),
        ("DAM (paper)-FT", "DAM (paper)-FT", "DAM-FT"),
        ("DAM (released-vision)", "DAM (released-vision)", "DAM"),
        ("JTT, weight 2", "JTT, weight 2", "JTT, weight 2"),
    ],
)
def test_rows_have_their_present_names_and_find_their_published_ones(row: str, present: str, theirs: str) -> None:
    assert present_row(row) == present
    assert published_row(present) == theirs


def test_the_interval_of_a_published_mean_is_student_s_over_three_seeds() -> None:
    assert Published(10, 1).half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert math.isnan(Published(10).half_width)
    assert str(Published(10, 1)) == "10.00 ± 1.00"
    assert str(Published(10)) == "10.00"


def test_a_difference_joins_both_intervals() -> None:
    here = Estimate(0.30, 0.27, 0.34, 100)
    theirs = Published(25.0, 1.0)
    half = theirs.half_width / 100
    found = minus_published(here, theirs)
    assert found.value == pytest.approx(0.05)
    assert found.low == pytest.approx(0.05 - math.hypot(0.03, half))
    assert found.high == pytest.approx(0.05 + math.hypot(0.04, half))
    exact = minus_published(here, Published(25.0))
    assert (exact.low, exact.high) == (pytest.approx(0.02), pytest.approx(0.09))
    undefined = Estimate.undefined("no positives")
    assert not minus_published(undefined, theirs).defined


def test_the_same_epochs_are_called_so() -> None:
    assert cell_lines(choice_of_epochs(Estimate(0.0, 0.0, 0.0, 100))) == ["same epochs"]
    assert cell_lines(choice_of_epochs(Estimate(0.0, -0.01, 0.01, 100))) == ["0.00", "[−1.00, +1.00]"]
    assert cell_lines(choice_of_epochs(Estimate.undefined("no positives"))) == ["undefined"]
    assert cell_lines(choice_of_epochs(None)) == [""]


def test_a_published_gain_takes_the_two_as_independent() -> None:
    value, low, high = published_gain(Published(7.76, 0.41), Published(9.50, 0.92))
    half = 4.302653 * math.hypot(0.41, 0.92) / math.sqrt(3)
    assert (value, low, high) == pytest.approx((-1.74, -1.74 - half, -1.74 + half), rel=1e-5)
    assert math.isnan(published_gain(Published(1), Published(2))[1])


def test_what_selection_alone_changes_is_paired_over_rows_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seeds that differ much, and a rule that flips the same few rows in each: the seeds' noise cancels."""
    rng = np.random.default_rng(0)
    labels = np.tile(["no", "yes"], 300)
    frame = pd.DataFrame({"label": labels, "sex": np.repeat(["f", "m"], 300), "probability_no": 0.5})
    frame["probability_yes"] = 0.5
    runs = [SimpleNamespace(predictions=frame) for _ in range(3)]
    rates = (0.6, 0.75, 0.9)
    before = np.stack([np.where(rng.random(600) < rate, labels == "yes", labels == "no") for rate in rates])
    after = before.copy()
    after[:, :20] = labels[:20] == "no"

    def probabilities(self: RunSet, chosen: Any, selection: str | None = None, min_count: int = 0) -> np.ndarray:
        called = before if selection is None else after
        return np.stack([1.0 - called, called], -1)

    monkeypatch.setattr(RunSet, "probabilities", probabilities)
    monkeypatch.setattr(RunSet, "rows", lambda self: {"ERM": runs})
    monkeypatch.setattr(RunSet, "attribute", "sex")
    found = RunSet("test", runs).between_selections(None, LEAKING)["ERM"].rows["second"]["accuracy"].difference  # type: ignore[arg-type]
    assert found is not None
    same = RunSet("test", runs).between_selections("val_loss", LEAKING)["ERM"].rows["second"]  # type: ignore[arg-type]
    for name in ("accuracy", "equalized_odds"):
        assert cell_lines(choice_of_epochs(same[name].difference)) == ["same epochs"]
    called = {name: np.where(values, "yes", "no") for name, values in (("first", before), ("second", after))}
    alone = tables.joint(labels, frame["sex"].to_numpy(), called, baseline="first", positive=1)
    independent = alone.rows["second"]["accuracy"].difference
    assert independent is not None
    assert found.value == pytest.approx(independent.value)
    assert found.high - found.low < 0.5 * (independent.high - independent.low)
    frame["cluster"] = np.arange(600) // 20  # the 20 rows that change are of one person
    person = RunSet("test", runs).between_selections(None, LEAKING)["ERM"].rows["second"]["accuracy"].difference  # type: ignore[arg-type]
    assert person is not None
    assert person.high - person.low > 1.2 * (found.high - found.low)
