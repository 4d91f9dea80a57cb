"""What a GPU does otherwise: data in its memory, bfloat16, and its memory as a cost. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
import torch

from levelhead.data.portraits import Portraits
from levelhead.models.features import FeatureInputs
from levelhead.paper import reproduce
from levelhead.paper.items import ITEMS
from levelhead.paper.reproduce import Options, make_plan
from levelhead.training.processes import forget_training

DEVICE = "cuda"
with TemporaryDirectory() as folder:
    ROWS, LAST_ENCODER = (
        [cell.row for cell in make_plan(ITEMS[name], Options(Path(folder), quick=True)).cells if cell.row.endswith(end)]
        for name, end in (("table1", ""), ("table6", "-LE"))
    )
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.fixture(autouse=True)
def each_test_chooses_its_precision() -> None:
    forget_training()


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_table_1_trains_and_is_evaluated(row: str, precision: str, tmp_path: Path) -> None:
    settings = (f"train.device={DEVICE}", f"train.precision={precision}")
    options = Options(tmp_path, quick=True, settings=settings)
    cell = next(cell for cell in make_plan(ITEMS["table1"], options).cells if cell.row == row)
    assert reproduce.train_here(cell) is None
    assert json.loads((cell.folder / "cost.json").read_text())["peak_gpu_memory_mib"] > 0
    assert json.loads((cell.folder / "environment.json").read_text())["device"] == torch.cuda.get_device_name()
    found = pd.read_parquet(cell.folder / "predictions-test.parquet").filter(like="probability")
    assert found.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("row", LAST_ENCODER)
def test_the_last_encoder_trains_on_kept_features(row: str, tmp_path: Path) -> None:
    options = Options(tmp_path, quick=True, settings=(f"train.device={DEVICE}",))
    cell = next(cell for cell in make_plan(ITEMS["table6"], options).cells if cell.row == row)
    assert reproduce.train_here(cell) is None


def test_features_in_its_memory_give_the_same_batches() -> None:
    lengths = torch.tensor([3, 1, 4])
    kept = FeatureInputs(torch.randn(8, 6).half(), lengths)
    there = kept.on(torch.device(DEVICE))
    assert there is not kept
    index = torch.tensor([2, 0, 1])
    for name, tensor in kept.batch(index).items():
        torch.testing.assert_close(there.batch(index)[name].cpu(), tensor, rtol=0, atol=0)


def test_pictures_in_its_memory_give_the_same_batches() -> None:
    kept = Portraits(train_size=8, validation_size=8, test_size=8).examples("train").inputs
    there = kept.on(torch.device(DEVICE))
    index = torch.tensor([7, 0, 7])
    expected = kept.batch(index)["pixel_values"]
    torch.testing.assert_close(there.batch(index)["pixel_values"].cpu(), expected, rtol=0, atol=1e-6)
