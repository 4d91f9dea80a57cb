from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import ks_2samp

from command_line import run
from levelhead.attention.capture import Captured, attention_weights, capture
from levelhead.data.base import Groups
from levelhead.data.portraits import Portraits
from levelhead.inspecting.patches import AttentionFigure, attention_figure, shares_of_patches
from levelhead.inspecting.qk import QkFigure, kolmogorov_smirnov, qk_figure
from levelhead.models.networks import load_model
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import ConfigError, DataError

SIZES = {"train_size": 48, "validation_size": 24, "test_size": 70}


def recipe(method: str) -> dict[str, Any]:
    train = {"epochs": 1, "batch_size": 16, "evaluation_batch_size": 32, "device": "cpu", "threads": 1}
    return {
        "data": {"name": "portraits", "correlation": 0.3, **SIZES},
        "method": {"name": method},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": train,
        "seed": 0,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("erm", "dam"):
        train_run(build_experiment(recipe(method)), folder / method)
    return folder


@pytest.fixture(scope="module")
def debiased_qk(runs: Path) -> QkFigure:
    return qk_figure(runs / "dam", head=1, dimension=3, token=5)


@pytest.fixture(scope="module")
def attention(runs: Path) -> AttentionFigure:
    return attention_figure(runs / "dam")


@pytest.fixture(scope="module")
def by_hand(runs: Path) -> Any:
    """The whole test split in one batch."""
    data = Portraits(correlation=0.3, **SIZES)
    (captured,) = capture(load_model(runs / "dam" / "model"), data.examples("test").inputs, 70, "cpu")
    return data, captured


def of_pairs(values: np.ndarray, groups: np.ndarray, pairs: Any, **options: Any) -> float:
    """Return SciPy's largest statistic of two groups."""
    return max(ks_2samp(values[groups == one], values[groups == two], **options).statistic for one, two in pairs)


@pytest.mark.parametrize("count", [2, 3])
def test_the_fast_statistic_is_that_of_scipy_also_with_ties(count: int) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=(90, 3)), rng.integers(0, 4, (90, 3))], axis=1)
    groups, pairs = rng.integers(0, count, 90), list(combinations(range(count), 2))
    expected = [of_pairs(column, groups, pairs) for column in values.T]
    assert kolmogorov_smirnov(values, groups, width=4) == pytest.approx(expected)


def test_queries_and_keys_are_those_of_the_network(by_hand: Any, debiased_qk: QkFigure) -> None:
    data, captured = by_hand
    groups = data.groups("test")[0].values.numpy()
    expected = {
        ("query", "before"): captured.query[:, 1, 0, 3],
        ("key", "before"): captured.key[:, 1, 5, 3],
        ("query", "after"): captured.debiased_query[:, 1, 0, 3],
        ("key", "after"): captured.debiased_key[:, 1, 5, 3],
    }
    assert debiased_qk.samples.keys() == expected.keys()
    for key, values in expected.items():
        sample = debiased_qk.samples[key]
        assert sample.values == pytest.approx(values.numpy(), abs=1e-6)
        assert sample.statistic == pytest.approx(of_pairs(values, groups, [(0, 1)], method="asymp"))
        assert sample.all_statistics.shape == (16,)
        assert sample.all_statistics[8 + 3] == pytest.approx(sample.statistic)
    record = json.loads(json.dumps(debiased_qk.to_dict(), allow_nan=False))
    assert (record["head"], record["dimension"], record["token"]) == (1, 3, 5)
    assert sum(record["groups"].values()) == 70
    assert len(record["panels"]) == 4
    for panel in record["panels"]:
        widths = np.diff(panel["bin_edges"])
        assert [(widths * density).sum() for density in panel["density"].values()] == pytest.approx([1, 1])
        every = panel["all_dimensions"]
        assert every["count"] == 16
        assert 0 <= every["quantiles"]["0.05"] <= every["quantiles"]["0.95"] <= every["largest"] <= 1
        assert panel["rows"] == record["groups"]
    assert record["all_dimensions_with_groups_shuffled"].keys() == {"query", "key"}
    assert "p_value" not in json.dumps(record)


def test_a_plain_run_is_drawn_as_trained_only(runs: Path) -> None:
    figure = qk_figure(runs / "erm")
    assert figure.stages == ["before"]
    assert len(figure.to_dict()["panels"]) == 2
    drawn = figure.draw()
    assert len(drawn.axes) == 4
    assert [label.get_text() for label in drawn.axes[-1].get_yticklabels()] == ["as trained", "groups\nshuffled"]


def test_attention_by_group_and_label_is_the_mean_over_rows(by_hand: Any, attention: AttentionFigure) -> None:
    data, captured = by_hand
    weights = attention_weights(captured).mean(dim=1).double()
    on_patches = weights[:, 1:] / weights[:, 1:].sum(dim=1, keepdim=True)
    labels, groups = data.examples("test").labels, data.groups("test")[0].values
    assert sum(cell.rows for cell in attention.cells.values()) == 70
    places = list(product(enumerate(("dark hair", "light hair")), enumerate(("round", "angular"))))
    for (class_index, label), (group_index, group) in places:
        members = (labels == class_index) & (groups == group_index)
        cell = attention.cells[label, group]
        assert cell.rows == int(members.sum())
        assert cell.attention.shape == (4, 4)
        assert cell.attention.ravel() == pytest.approx(on_patches[members].mean(dim=0).numpy(), abs=1e-6)
        assert cell.outside == pytest.approx(float(weights[members, 0].mean()), abs=1e-6)
    difference, error = attention.difference("dark hair")
    expected = attention.cells["dark hair", "angular"].attention - attention.cells["dark hair", "round"].attention
    assert np.array_equal(difference, expected)
    assert error is not None
    assert (error > 0).all()


def test_attention_that_is_all_on_the_class_token_still_has_shares_of_patches() -> None:
    key = torch.full((2, 1, 5, 4), -1.0)
    key[:, :, 0] = 6.0
    key[:, :, 2, 0] = -0.99
    query = torch.full((2, 1, 5, 4), 60.0)
    for readout in (torch.zeros(2, dtype=torch.int64), None):
        captured = Captured(query, key, query, key, 0.5, None, readout)
        assert attention_weights(captured)[..., 1:].sum() == 0
        shares, outside = shares_of_patches(captured, 1)
        expected = torch.tensor([0, 0.3, 0, 0], dtype=torch.float64).softmax(dim=0).expand(2, -1)
        torch.testing.assert_close(shares, expected, atol=1e-4, rtol=0)
        assert outside.tolist() == [1.0, 1.0]


def test_attention_that_is_not_finite_is_not_called_empty(attention: AttentionFigure) -> None:
    key = ("dark hair", "round")
    cells = {**attention.cells, key: replace(attention.cells[key], attention=np.full((4, 4), np.nan))}
    drawn = replace(attention, cells=cells).draw()
    texts = [text.get_text() for panel in drawn.axes for text in panel.texts]
    assert texts.count("not finite") == 2  # the grid and the difference
    assert "no rows" not in texts
    assert any(len(panel.images) for panel in drawn.axes)


@pytest.mark.slow
@pytest.mark.long
def test_equal_figures_give_equal_bytes(
    runs: Path, debiased_qk: QkFigure, attention: AttentionFigure, tmp_path: Path
) -> None:
    figures = {
        "qk": (debiased_qk, qk_figure(runs / "dam", head=1, dimension=3, token=5)),
        "attention": (attention, attention_figure(runs / "dam")),
    }
    for name, (figure, again) in figures.items():
        first = figure.save(tmp_path / f"{name}-0.5")  # a dot in a name is no ending
        assert [path.name for path in first] == [f"{name}-0.5.png", f"{name}-0.5.svg"]
        assert again.save(tmp_path / "again.svg") == [tmp_path / "again.svg"]  # the one that was named
        second = again.save(tmp_path / "again")
        assert [path.name for path in second] == ["again.png", "again.svg"]
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
        assert str(runs) not in first[1].read_text()
    assert len(list(tmp_path.iterdir())) == 6


def three_groups(data: Portraits, split: str) -> tuple[Groups, ...]:
    values = torch.arange(getattr(data, f"{split}_size")) % 3
    return (data._draw(split), Groups("third", values, ("one", "two", "three")))[1:]


def test_three_groups_are_compared_by_pairs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Portraits, "groups", three_groups)
    figure = qk_figure(runs / "erm")
    sample, pairs = figure.samples["query", "before"], list(combinations(range(3), 2))
    assert sample.statistic == pytest.approx(of_pairs(sample.values, sample.groups, pairs, method="asymp"))
    assert set(sample.pair) < {"one", "two", "three"}
    figure.draw()
    attention = attention_figure(runs / "erm")
    difference, error = attention.difference("dark hair")
    grids = np.stack([attention.cells["dark hair", name].attention for name in ("one", "two", "three")])
    assert difference == pytest.approx(grids.max(axis=0) - grids.min(axis=0))
    assert error is None
    attention.draw()


def test_the_commands_write_pictures_and_json_and_leave_a_cell_without_rows_empty(
    runs: Path, monkeypatch: pytest.MonkeyPatch, folder_of_its_own: None
) -> None:
    assert run("figure", "qk", runs / "erm", "--head", "1", "--json", "numbers.json") == 0
    with Image.open("figures/qk-erm.png") as picture:
        assert picture.size[0] > 800
    assert Path("figures/qk-erm.svg").read_text().startswith("<?xml")
    assert read_json(Path("numbers.json"))["head"] == 1

    def by_label(data: Portraits, split: str) -> tuple[Groups, ...]:
        return (Groups("copy", data._draw(split).labels, ("dark", "light")),)

    monkeypatch.setattr(Portraits, "groups", by_label)
    assert run("figure", "attention", runs / "erm", "--attribute", "copy", "--out", "here/a", "--json", "a.json") == 0
    assert Path("here/a.png").exists()
    cell = read_json(Path("a.json"))["cells"][1]
    assert (cell["rows"], cell["attention_on_patches"][0][0]) == (0, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": 2}, r"--head 2: this network has heads 0 to 1\."),
        ({"dimension": 8}, r"--dimension 8: this network has dimensions 0 to 7\."),
        ({"token": 17}, r"--token 17: this network has tokens 0 to 16\."),
        ({"token": -1}, r"--token -1: "),
        ({"attribute": "age"}, "'age' is no sensitive attribute of this run; there is style"),
    ],
)
def test_what_there_is_not_is_named(runs: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        qk_figure(runs / "erm", **options)


def test_groups_that_cannot_be_drawn(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_sided = (Groups("style", torch.zeros(70, dtype=torch.int64), ("round", "angular")),)
    monkeypatch.setattr(Portraits, "groups", lambda *_: one_sided)
    with pytest.raises(DataError, match="no row of the test split belongs to 'angular'"):
        qk_figure(runs / "erm")


def test_a_fine_grid_hatches_what_is_negative(attention: AttentionFigure) -> None:
    def finer(grid: Any) -> Any:
        return np.kron(grid, np.ones((2, 2))) / 4

    cells = {
        key: replace(cell, attention=finer(cell.attention), standard_error=finer(cell.standard_error))
        for key, cell in attention.cells.items()
    }
    fine = AttentionFigure(attention.source, attention.labels, cells)
    panels = fine.draw().axes
    hatched = sum(len(panel.patches) for panel in panels if "minus" in panel.get_title())
    assert hatched == sum(int((fine.difference(label)[0] < 0).sum()) for label in fine.labels) > 0
    assert not any(panel.texts for panel in panels)
