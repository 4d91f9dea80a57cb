"""Trackers get losses and label-only scores by step, and nothing about groups."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import accelerate.tracking
import pytest
import torch
from accelerate.tracking import GeneralTracker
from test_engine import make_lab

from levelhead.methods import Method
from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM
from levelhead.methods.fit import fit
from levelhead.methods.group_dro import GroupDRO
from levelhead.training.lab import Lab
from levelhead.types import ConfigError
from tiny import told_groups


class Notebook(GeneralTracker):
    """A tracker that remembers what it is told."""

    name = "notebook"
    requires_logging_directory = True
    made: ClassVar[list[Notebook]] = []

    def __init__(self, run_name: str, logging_dir: str) -> None:
        super().__init__()
        self.run_name, self.folder, self.finished = run_name, logging_dir, False
        self.options: dict[str, Any] = {}
        self.rows: list[tuple[int | None, dict[str, Any]]] = []
        self.made.append(self)

    @property
    def tracker(self) -> Notebook:
        return self

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.options = values

    def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
        self.rows.append((step, values))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Notebook]]:
    if tuple(map(int, accelerate.__version__.split(".")[:2])) < (1, 15):
        pytest.skip("before accelerate 1.15, a test cannot name a tracker of its own")
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "notebook", Notebook)
    Notebook.made.clear()
    yield Notebook.made
    Notebook.made.clear()


def train(method: Method, folder: Path | None, *, select: str = "val_loss", trackers: tuple[str, ...]) -> Any:
    groups = torch.arange(20) % 2 if "ORACLE" in select else None
    told = {**told_groups(method), "validation_groups": groups}
    return fit(method, make_lab(folder, epochs=2, log_every=2, select=select, trackers=trackers, **told))


def test_losses_and_scores_by_step_and_no_weight_changes(tmp_path: Path, notebook: list[Notebook]) -> None:
    quiet, told = train(DAM(), None, trackers=()), train(DAM(), tmp_path, trackers=("notebook",))
    for name, tensor in quiet.state_dict().items():
        assert torch.equal(told.state_dict()[name], tensor), name
    (book,) = notebook
    assert book.folder == str(tmp_path)
    assert book.options["learning_rate"] == 3e-3
    assert book.options["gradient_clip"] == "None"
    assert book.finished
    # Three batches an epoch, a row every two steps and one at the end of an epoch.
    assert [step for step, row in book.rows if "train/loss" in row] == [2, 3, 4, 6]
    assert [step for step, row in book.rows if "validation/val_loss" in row] == [3, 6]
    assert all({"train/task", "train/align"} <= row.keys() for _, row in book.rows if "train/loss" in row)
    with pytest.raises(ConfigError, match="needs a run folder"):
        train(DAM(), None, trackers=("notebook",))


def test_nothing_about_groups_is_told(tmp_path: Path, notebook: list[Notebook]) -> None:
    train(GroupDRO(), tmp_path, select="ORACLE_val_equalized_odds", trackers=("notebook",))
    told = {name for _, row in notebook[0].rows for name in row}
    scores = {f"validation/val_{name}" for name in ("loss", "accuracy", "worst_class")}
    assert told == {"stage", "train/loss"} | scores


def test_a_tracker_is_closed_when_training_breaks(tmp_path: Path, notebook: list[Notebook]) -> None:
    class Broken(ERM):
        def stages(self, lab: Lab) -> Iterator[Any]:
            yield from super().stages(lab)
            raise RuntimeError("after the first stage")

    with pytest.raises(RuntimeError, match="after the first stage"):
        train(Broken(), tmp_path, trackers=("notebook",))
    assert notebook[0].finished


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_writes_below_the_run_folder(tmp_path: Path) -> None:
    train(ERM(), tmp_path, trackers=("tensorboard",))
    assert list(tmp_path.rglob("events.out.tfevents.*"))
