"""The protocols of the sign for ids of people, and of the map of shortcuts, on drawn data whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from levelhead.methods.directions import regression_within
from levelhead.methods.identities import between_people
from levelhead.methods.last_layer import FloatArray
from levelhead.storage import read_json
from scripts import load_script

ROOT = Path(__file__).parents[2]
sign, shortcuts = (load_script(ROOT / "benchmarks" / f"{name}.py") for name in ("sign", "shortcuts"))


def cosine(first: FloatArray, second: FloatArray) -> float:
    return float(abs(first @ second) / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.mark.parametrize("trait", [0.0, 3.0])
def test_along_the_score_is_the_group_where_the_score_uses_nothing_else_of_people(
    monkeypatch: pytest.MonkeyPatch, trait: float
) -> None:
    """Rows and people stand at both ends of every axis, so that scatters are exact: docs/theory.md says why."""
    monkeypatch.setattr(sign, "PENALTY", 0.0)
    axes = np.random.default_rng(0).normal(size=(4, 4))
    ends = np.vstack([axes, -axes])
    person = np.repeat(np.arange(64), 8)  # eight of each class, group and value of a trait
    labels, group, other = person // 32, person // 16 % 2, person // 8 % 2
    group_moves, trait_moves = np.array([1.0, 0.5, 0.0, 0.2]), np.array([0.0, 0.0, trait, 0.0])
    features = np.tile(ends, (64, 1)) + ends[person % 8] / np.sqrt(7)  # as far as means of eight rows vary
    features += np.outer(group, group_moves) + np.outer(other, trait_moves) + np.outer(labels, [0.3, 1.0, 0.5, 0.4])
    weight = np.array([1.0, 2.0, 0.0, 1.0])  # the trait does not enter the score
    fisher = np.linalg.solve(axes.T @ axes, group_moves)
    (found,) = sign.along_score(features, labels, person, weight).T
    assert cosine(found, fisher) == pytest.approx(1)
    (first,) = between_people(features, labels, person, 1, 1e-9).T
    assert (cosine(first, fisher) > 1 - 1e-6) == (trait == 0)
    if trait == 0:  # the whole step then leaves no difference between the groups inside a class
        signal, score = features @ found[:, None], (features @ weight)[:, None]
        left = (score - signal @ regression_within(signal, score, labels))[:, 0]
        for label in (0, 1):
            means = [left[(labels == label) & (group == code)].mean() for code in (0, 1)]
            assert means[1] == pytest.approx(means[0], abs=1e-12)


@pytest.mark.parametrize("entry", shortcuts.VISIBLE)
def test_marks_tell_the_label_of_the_stated_share_of_training_rows_and_of_no_test_row(entry: str) -> None:
    data = shortcuts.Marked(entry=entry, contradicting=0.2, visible=40, train_size=400, test_size=400)
    unmarked = replace(data, visible=0)
    shares = []
    for split in ("train", "test"):
        examples, (mark,) = data.examples(split), data.groups(split)
        shares.append(float((mark.values != examples.labels).float().mean()))
        rows = np.arange(len(examples.labels))
        moved = examples.inputs.pixels[rows].int() - unmarked.examples(split).inputs.pixels[rows].int()
        first, second = (moved[mark.values == code].float().mean(0) for code in (0, 1))
        assert (first - second).abs().max() > 20
        assert not (first[:, 30:] - second[:, 30:]).any()
    assert shares == pytest.approx([0.2, 0.5], abs=0.07)


def test_the_page_is_that_of_the_aggregate() -> None:
    record = read_json(ROOT / "results" / "sign.json")
    assert sign.table(record) in (ROOT / "results" / "sign.md").read_text(encoding="utf-8")
    assert [one["name"] for one in record["verdicts"] if one["holds"]] == ["score between people"]
    assert sum(task["networks"] for task in record["tasks"].values()) == 16


def test_the_page_of_the_map_is_that_of_its_figures() -> None:
    cells = read_json(ROOT / "results" / "shortcuts.json")["cells"]
    assert len(cells) == 9
    page = (ROOT / "results" / "shortcuts.md").read_text(encoding="utf-8")
    assert shortcuts.table(cells) in page
