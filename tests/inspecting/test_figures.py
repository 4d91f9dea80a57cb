from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from command_line import run
from levelhead.attention.capture import Captured, attention_weights, capture
from levelhead.data.base import Groups
from levelhead.data.portraits import Portraits
from levelhead.inspecting.figures import BINS, AttentionFigures, attention_figures
from levelhead.inspecting.patches import shares_of_patches
from levelhead.models.networks import load_model
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import ConfigError, DataError
from words import save_tiny_backbone

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
def debiased(runs: Path) -> AttentionFigures:
    return attention_figures(runs / "dam", head=1, dimension=3, token=5)


@pytest.fixture(scope="module")
def by_hand(runs: Path) -> Any:
    """The whole test split in one batch."""
    data = Portraits(correlation=0.3, **SIZES)
    (captured,) = capture(load_model(runs / "dam" / "model"), data.examples("test").inputs, 70, "cpu")
    return data, captured


def test_queries_and_keys_are_those_of_the_network(by_hand: Any, debiased: AttentionFigures) -> None:
    data, captured = by_hand
    groups = data.groups("test")[0].values.numpy()
    expected = {
        ("query", "before"): captured.query[:, 1, 0, 3],
        ("key", "before"): captured.key[:, 1, 5, 3],
        ("query", "after"): captured.debiased_query[:, 1, 0, 3],
        ("key", "after"): captured.debiased_key[:, 1, 5, 3],
    }
    assert [(panel.tensor, panel.debiasing) for panel in debiased.panels] == list(expected)
    for panel, values in zip(debiased.panels, expected.values(), strict=True):
        assert panel.value == pytest.approx(ks_2samp(values[groups == 0], values[groups == 1]).statistic)
        assert panel.bin_edges == pytest.approx(np.histogram_bin_edges(values.double(), BINS), abs=1e-6)
        widths = np.diff(panel.bin_edges)
        assert [(widths * density).sum() for density in panel.density.values()] == pytest.approx([1, 1])
        every = panel.all_dimensions
        assert every["count"] == 16
        assert 0 <= every["quantiles"]["0.05"] <= every["quantiles"]["0.95"] <= every["largest"] <= 1
        assert panel.rows == debiased.source.groups
    assert sum(debiased.source.groups.values()) == 70
    assert debiased.all_dimensions_with_groups_shuffled.keys() == {"query", "key"}
    record = json.loads(json.dumps(debiased.to_dict(), allow_nan=False))
    assert (record["method"], record["head"], record["dimension"], record["token"]) == ("dam", 1, 3, 5)


def test_attention_by_group_and_label_is_the_mean_over_rows(by_hand: Any, debiased: AttentionFigures) -> None:
    data, captured = by_hand
    weights = attention_weights(captured).mean(dim=1).double()
    on_patches = weights[:, 1:] / weights[:, 1:].sum(dim=1, keepdim=True)
    labels, groups = data.examples("test").labels, data.groups("test")[0].values
    assert sum(cell.rows for cell in debiased.cells) == 70
    places = product(enumerate(("dark hair", "light hair")), enumerate(("round", "angular")))
    for cell, ((at, label), (code, group)) in zip(debiased.cells, places, strict=True):
        members = (labels == at) & (groups == code)
        assert (cell.label, cell.group, cell.rows) == (label, group, int(members.sum()))
        shares = np.array(cell.attention_on_patches)
        assert shares.shape == (4, 4)
        assert shares.ravel() == pytest.approx(on_patches[members].mean(dim=0).numpy(), abs=1e-6)
        assert cell.share_outside_patches == pytest.approx(float(weights[members, 0].mean()), abs=1e-6)
    first, second, found = *debiased.cells[:2], debiased.differences[0]
    expected = np.array(second.attention_on_patches) - np.array(first.attention_on_patches)
    assert np.array_equal(found.difference, expected)
    assert found.what == "angular minus round"
    assert (np.array(found.standard_error) > 0).all()


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


def test_a_fine_grid_has_minus_signs_for_numbers(debiased: AttentionFigures) -> None:
    fine = [replace(one, difference=np.kron(one.difference, np.ones((3, 3))).tolist()) for one in debiased.differences]
    below = sum(value < 0 for one in fine for row in one.difference for value in row)
    assert replace(debiased, differences=fine).to_html().count(">−</text>") == below > 0


def three_groups(data: Portraits, split: str) -> tuple[Groups, ...]:
    values = torch.arange(getattr(data, f"{split}_size")) % 3
    return (data._draw(split), Groups("third", values, ("one", "two", "three")))[1:]


def test_three_groups_are_compared_by_pairs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Portraits, "groups", three_groups)
    found = attention_figures(runs / "erm")
    assert [(panel.tensor, panel.debiasing) for panel in found.panels] == [("query", "without"), ("key", "without")]
    assert found.panels[0].rows == {"one": 24, "two": 23, "three": 23}
    assert set(found.panels[0].pair) < {"one", "two", "three"}
    grids = np.array([cell.attention_on_patches for cell in found.cells if cell.label == "dark hair"])
    assert found.differences[0].difference == pytest.approx(grids.max(axis=0) - grids.min(axis=0))
    assert found.differences[0].standard_error is None
    assert found.to_html().count("<svg role") == 2 + 2 * 4


def test_the_command_writes_a_page_and_json_and_leaves_a_cell_without_rows_empty(
    runs: Path, monkeypatch: pytest.MonkeyPatch, folder_of_its_own: None, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_label(data: Portraits, split: str) -> tuple[Groups, ...]:
        return (Groups("copy", data._draw(split).labels, ("dark", "light")),)

    monkeypatch.setattr(Portraits, "groups", by_label)
    options = ("--attribute", "copy", "--head", "1", "--html", "a.html", "--json", "a.json")
    assert run("figure", runs / "erm", *options) == 0
    record = read_json(Path("a.json"))
    assert record["head"] == 1
    assert (record["cells"][1]["rows"], record["cells"][1]["attention_on_patches"][0][0]) == (0, None)
    assert "Given dark hair, attention is not compared" in capsys.readouterr().out
    page = Path("a.html").read_text()
    assert page.count(": undefined") == 4  # a cell and a difference, of each label
    assert str(runs) not in page
    assert run("report", "a.json", "--html", "b.html") == 0
    assert Path("b.html").read_text().count("<rect") == page.count("<rect") > 0


def test_a_run_on_texts_has_no_map_of_patches(tmp_path: Path) -> None:
    rows = [
        f"{word} one,{word},{group},{split}"
        for split in ("train", "validation", "test")
        for word in ("red", "blue")
        for group in "ab"
        for _ in range(4)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["text,colour,group,split", *rows]))
    backbone = save_tiny_backbone(tmp_path / "bert", ["red", "blue", "one"])
    data = {"name": "text-csv", "folder": str(tmp_path), "file": "rows.csv", "target": "colour", "sensitive": ["group"]}
    model = {"backbone": str(backbone), "mode": "last_encoder"}
    settings = recipe("erm") | {"data": data | {"split_column": "split"}, "model": model}
    train_run(build_experiment(settings), tmp_path / "run")
    found = attention_figures(tmp_path / "run", token=1)
    assert (len(found.panels), found.cells, found.differences) == (2, [], [])
    assert found.to_html().count("<svg role") == 2
    assert "With groups shuffled" in found.to_html()


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
        attention_figures(runs / "erm", **options)


def test_groups_that_cannot_be_drawn(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_sided = (Groups("style", torch.zeros(70, dtype=torch.int64), ("round", "angular")),)
    monkeypatch.setattr(Portraits, "groups", lambda *_: one_sided)
    with pytest.raises(DataError, match="no row of the test split belongs to 'angular'"):
        attention_figures(runs / "erm")
