"""A network whose answers are no finite numbers is refused by every command that scores, and nothing is saved."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from command_line import run, said
from levelhead.bench.tables import collect
from levelhead.runs.folder import predictions_table
from levelhead.runs.refit import Refitting
from levelhead.training.finite import refuse_not_finite
from levelhead.types import LevelheadError
from tiny import make_examples


@pytest.mark.parametrize(("value", "part"), [(math.inf, "classifier"), (math.nan, "layernorm")])
def test_an_evaluation_names_the_first_rows_and_saves_nothing(
    value: float, part: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("*-test*"))
    file = folder / "model" / "model.safetensors"
    tensors = load_file(file)
    for name in [name for name in tensors if part in name]:
        tensors[name][..., -1] = value
    save_file(tensors, file, {"format": "pt"})
    assert run("evaluate", folder) == 2
    assert "for 300 of 300 rows of the test split (rows 0, 1, 2, 3, 4, ..., counted from 0)" in said(capsys)
    assert not list(folder.glob("*-test*"))
    with pytest.raises(LevelheadError):
        collect([folder], "test")
    if part == "layernorm":  # a refit refuses what the last layer gets
        with pytest.raises(LevelheadError, match=r"inputs of the last layer of .* are not finite for 120 of 120 rows"):
            Refitting(folder).inputs("validation")


def test_no_table_of_predictions_holds_probabilities_that_are_not_finite() -> None:
    logits = torch.zeros(48, 2)
    logits[7, 1] = math.nan
    with pytest.raises(LevelheadError, match=r"for 1 of 48 rows to predict \(rows 7, counted from 0\)"):
        predictions_table(make_examples(), logits)
    refuse_not_finite(torch.zeros(0, 2), "logits", "")
    refuse_not_finite(torch.full((2, 2), -3e38), "logits", "")
