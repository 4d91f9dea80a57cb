"""compare_models matches classes by name and groups by index, whatever the positions are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

import levelhead as lh
from levelhead.own.compare import ModelComparison

ROWS = 40
LABEL = np.arange(ROWS) % 2
SEX = np.where(np.arange(ROWS) % 3 == 0, "women", "men")


def network(classes: tuple[str, ...] | None) -> ViTForImageClassification:
    """Return a network of fixed weights."""
    torch.manual_seed(0)
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
    if classes is not None:
        config.id2label = dict(enumerate(classes))
        config.label2id = {name: place for place, name in enumerate(classes)}
    return ViTForImageClassification(config).eval()


def rows(label: Any) -> list[dict[str, Any]]:
    torch.manual_seed(1)
    pictures = torch.randn(ROWS, 3, 8, 8)
    return [{"pixel_values": picture, "labels": one} for picture, one in zip(pictures, label, strict=True)]


def data_set(names: list[str], codes: list[int]) -> Any:
    datasets = pytest.importorskip("datasets")
    content = {"pixel_values": [row["pixel_values"].numpy() for row in rows(codes)], "label": codes}
    kinds = {"pixel_values": datasets.Array3D((3, 8, 8), "float32"), "label": datasets.ClassLabel(names=names)}
    return datasets.Dataset.from_dict(content, features=datasets.Features(kinds)).with_format("torch")


def figures(found: ModelComparison) -> tuple[float, float]:
    return found.changes["accuracy"].old, found.changes["accuracy"].new


def test_class_labels_of_the_rows_are_matched_by_name() -> None:
    model = network(("no", "yes"))
    expected = figures(lh.compare_models(model, model, rows(LABEL)))
    for names, codes in (
        (["yes", "no"], 1 - LABEL),
        (["no", "yes"], LABEL),
        (["0", "1"], LABEL),
    ):
        assert figures(lh.compare_models(model, model, data_set(names, codes.tolist()))) == expected, names


def test_positions_of_a_model_without_names_are_those_of_the_rows() -> None:
    expected = figures(lh.compare_models(network(("no", "yes")), network(("no", "yes")), rows(LABEL)))
    found = lh.compare_models(network(None), network(("no", "yes")), data_set(["no", "yes"], LABEL.tolist()))
    assert figures(found) == expected
    lent = lh.compare_models(network(None), network(("no", "yes")), rows(LABEL))
    assert figures(lent) == expected
    assert any("no class names" in one for one in lent.warnings)


def test_groups_keep_names_integers_and_masks() -> None:
    model = network(("no", "yes"))
    datasets = pytest.importorskip("datasets")
    table = data_set(["no", "yes"], LABEL.tolist())
    codes = (SEX == "women").astype(int).tolist()
    table = table.add_column("sex", codes).cast_column("sex", datasets.ClassLabel(names=["men", "women"]))
    assert set(lh.compare_models(model, model, table, groups="sex").audit.groups) == {"men", "women"}
    big = pd.Series([2**53 + row % 2 for row in range(ROWS - 1)] + [None], dtype="Int64")
    found = lh.compare_models(model, model, rows(LABEL), groups={"id": big}).audit
    assert set(found.groups) == {str(2**53), str(2**53 + 1), "(missing)"}
    masked = np.ma.masked_array(SEX, np.arange(ROWS) < 3)
    for given in ({"sex": masked}, masked, torch.arange(ROWS) % 2):
        found = lh.compare_models(model, model, rows(LABEL), groups=given).audit
        assert ("(missing)" in found.groups) == (not isinstance(given, torch.Tensor))
