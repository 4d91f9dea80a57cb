"""What a signal knows of the group beyond label and score: known truth, the command, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from levelhead.auditing.signal import SignalArea, signal_area
from levelhead.cli.app import app
from levelhead.storage import read_json
from levelhead.types import ConfigError, DataError


def drawn(rows: int = 5000, seed: int = 0) -> dict[str, Any]:
    """The group shifts the score; a loss is a function of label and score, a view is not."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    label = (rng.random(rows) < np.where(group == 1, 0.6, 0.3)).astype(int)
    score = 1.5 * label + group + rng.normal(size=rows)
    loss = np.logaddexp(0, np.where(label == 1, -score, score))
    return {
        "y": label,
        "p": score,
        "sex": np.where(group == 1, "m", "f"),
        "loss": loss,
        "view": group + rng.normal(size=rows),
    }


def test_a_loss_knows_the_group_by_itself_and_adds_nothing() -> None:
    rows = drawn()
    loss = signal_area(rows["y"], rows["p"], rows["loss"], group=rows["sex"])
    assert loss.group == "m"
    assert loss.alone.value > 0.55
    assert loss.difference.low < 0.003
    assert abs(loss.difference.value) < 0.005
    view = signal_area(rows["y"], rows["p"], rows["view"], group=rows["sex"])
    assert view.difference.low > 0.03
    assert view.with_signal.value == pytest.approx(view.without.value + view.difference.value)
    numbered = signal_area(rows["y"] + 9, rows["p"], rows["view"], group=np.where(rows["sex"] == "m", 10, 9))
    assert numbered.group == "10"
    assert numbered.difference.value == view.difference.value


@pytest.mark.parametrize("rows", [300, 3000])
def test_a_loss_adds_nothing_where_the_groups_differ_in_the_spread_of_their_scores(rows: int) -> None:
    rng = np.random.default_rng(0)
    group, label = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    odds = rng.normal(1.5 * label - 0.75) * (1 + group)
    loss = np.logaddexp(0, np.where(label == 1, -odds, odds))
    found = signal_area(label, 1 / (1 + np.exp(-odds)), loss, group=group)
    assert found.difference.low < 0 < found.difference.high
    assert abs(found.difference.value) < 0.02


def test_noise_is_told_apart_no_more_often_than_it_should() -> None:
    told = 0
    for seed in range(60):
        rows = drawn(400, seed)
        noise = np.random.default_rng(1000 + seed).normal(size=400)
        told += signal_area(rows["y"], rows["p"], noise, group=rows["sex"]).difference.low > 0
    assert told <= 5  # 2.5% of 60, and its own noise


def test_the_command_prints_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "scores.csv", tmp_path / "out.json"
    pd.DataFrame(drawn(1000)).to_csv(file, index=False)
    options = ["--label", "y", "--score", "p", "--group", "sex", "--signal", "view", "--json", str(out)]
    app(["explain", str(file), *options], standalone_mode=False)
    assert "Label and score predict the group with an AUC of" in " ".join(capsys.readouterr().out.split())
    assert read_json(out)["signals"]["view"]["difference"]["low"] > 0


def test_the_command_answers_for_each_column_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out, page = tmp_path / "scores.csv", tmp_path / "out.json", tmp_path / "out.html"
    chance = np.random.default_rng(2)
    rows = pd.DataFrame(drawn(1000)).assign(
        side=chance.choice(["left", "right"], 1000), race=chance.choice(["a", "b", "c"], 1000)
    )
    rows.to_csv(file, index=False)
    options = ["explain", str(file), "--label", "y", "--score", "p", "--signal", "view", "--json", str(out)]
    options += ["--html", str(page)]
    app([*options, "--group", "sex", "--group", "side", "--group", "race"], standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    for column in ("sex", "side"):
        assert f"By {column}, label and score predict the group with an AUC of" in said
    assert "By race, no signal was measured: that takes two groups." in said
    record = read_json(out)
    by_column = record["signals_by_attribute"]
    assert list(by_column) == ["sex", "side", "race"]
    assert by_column["sex"]["signals"] == record["signals"]
    assert by_column["race"]["signals"] == {}
    text = page.read_text(encoding="utf-8")
    assert text.count("label and score predict the group with an AUC of") == 2
    monkeypatch.setattr("levelhead.auditing.explain.explain_file", lambda *_, **__: pytest.fail("drawn too early"))
    with pytest.raises(DataError, match=r"'race' has 3 groups: .*A signal is measured between two groups"):
        app([*options, "--group", "race"], standalone_mode=False)


def width(found: SignalArea) -> float:
    return found.difference.high - found.difference.low


def test_rows_of_one_person_are_guessed_and_count_together() -> None:
    rows = {name: np.repeat(column, 6) for name, column in drawn(400).items()}
    person = np.repeat(np.arange(400), 6)
    noise = np.repeat(np.random.default_rng(1).normal(size=400), 6)

    def measured(order: np.ndarray, cluster: np.ndarray | None) -> SignalArea:
        y, p, sex = (rows[name][order] for name in ("y", "p", "sex"))
        return signal_area(y, p, noise[order], group=sex, cluster=None if cluster is None else cluster[order])

    as_read, mixed = np.arange(2400), np.random.default_rng(2).permutation(2400)
    together, apart = measured(as_read, person), measured(as_read, None)
    assert width(together) > 1.8 * width(apart)
    assert together.difference.low < 0 < together.difference.high
    assert measured(mixed, person).difference == together.difference
    assert measured(as_read, np.arange(2400)).difference == apart.difference
    with pytest.raises(DataError, match="The smaller group has 1 cluster; at least 20 are needed"):
        measured(as_read, (rows["sex"] == "m").astype(int))
    with pytest.raises(DataError, match="2400 labels and 5 clusters"):
        signal_area(rows["y"], rows["p"], noise, group=rows["sex"], cluster=person[:5])


def test_the_command_keeps_a_persons_rows_together(tmp_path: Path) -> None:
    file, out = tmp_path / "scores.csv", tmp_path / "out.json"
    rows = pd.DataFrame(drawn(400)).assign(person=range(400))
    pd.concat([rows] * 6).to_csv(file, index=False)
    options = ["explain", str(file), "--label", "y", "--score", "p", "--group", "sex", "--signal", "view"]
    found = {}
    for name, more in (("apart", []), ("together", ["--cluster", "person"])):
        app([*options, "--json", str(out), *more], standalone_mode=False)
        one = read_json(out)["signals"]["view"]["difference"]
        found[name] = one["high"] - one["low"]
    assert found["together"] > 1.8 * found["apart"]
    with pytest.raises(ConfigError, match="'view' is the cluster column and also"):
        app([*options, "--cluster", "view"], standalone_mode=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": [1.0] * 100}, "The signal is 1 in every row"),
        ({"loss": [np.nan] + [1.0] * 99}, "1 missing or infinite"),
        ({"loss": ["a"] * 100}, "no finite number"),
        ({"loss": [1.0] * 99}, "100 labels and 99 numbers of the signal"),
        ({"sex": ["a"] * 100}, "The group must have two values; it has 1"),
        ({"sex": ["a"] * 90 + ["b"] * 10}, "The smaller group has 10 rows"),
        ({"y": list(range(100))}, "The label must have two values; it has 100"),
        ({"sex": ["a"] * 99}, "100 labels and 99 groups"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(change: dict[str, Any], message: str) -> None:
    rows = drawn(100) | change
    with pytest.raises(DataError, match=message):
        signal_area(rows["y"], rows["p"], rows["loss"], group=rows["sex"])
