"""What networks and the features of backbones refuse: refusals.txt beside this file."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_features import Hashed, texts
from test_models import WORDS
from torch import Tensor

from levelhead.data.texts import TokenInputs
from refusals import Row, check, rows
from words import save_tiny_backbone


class Lying(TokenInputs):
    """Other rows than its lengths say."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return texts().batch(index)


class Silent(Hashed):
    """Rows of several lengths, and no word about them."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return texts().batch(index)


def one_less(row: int) -> Tensor:
    lengths = texts().lengths.clone()
    lengths[row] -= 1
    return lengths


def five_in_row_22() -> TokenInputs:
    inputs = texts()
    ids, ends = inputs.columns["input_ids"], inputs.lengths.cumsum(0)
    ids[ids == 5] = 6
    ids[int(ends[22]) - 2] = 5
    return inputs


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(
    row: Row, folder_of_its_own: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(Path("cache").resolve()))
    save_tiny_backbone(Path("bert"), WORDS)
    capsys.readouterr()  # the bars of what was saved
    check(row, globals(), capsys)
    assert not [file for file in Path("cache").rglob("*") if file.is_file()], "a refused row left features"
