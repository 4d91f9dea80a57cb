"""Open a finished run: one check and one message for all that read what a run left."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from levelhead.data import SPLITS, Examples, Split
from levelhead.data.texts import Texts
from levelhead.models.networks import load_model
from levelhead.runs.folder import load_run, require_finished
from levelhead.runs.recipe import Experiment
from levelhead.runs.train import device_of, prepared
from levelhead.storage import as_written, read_json, warn_of_rehearsal
from levelhead.types import DataError, LevelheadError, listed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinishedRun:
    """A run folder whose training came to its end, and whose data is in place."""

    folder: Path
    experiment: Experiment

    @property
    def about(self) -> dict[str, Any]:
        """Return the names of data set and method, and the seed."""
        run = self.experiment
        return {"data": run.data_name, "method": run.method_name, "seed": run.seed}

    @property
    def device(self) -> torch.device:
        """Return the device that the run's network is put on here."""
        return device_of(self.experiment)

    def load_model(self) -> Any:
        """Return the kept network, on :attr:`device`; see :func:`levelhead.models.networks.load_model`."""
        return load_model(self.folder / "model").to(self.device)

    def prepared(self, split: Split, model: Any) -> Examples:
        """Return a split with inputs as ``model``, the run's own network, takes them; no sensitive column is opened.

        Raises :class:`~levelhead.types.DataError` if the classes are others than those that it was trained to tell.
        """
        examples = prepared(self.experiment, split, model)
        trained = tuple(str(model.config.id2label[position]) for position in range(model.config.num_labels))
        if trained != examples.class_names:
            raise DataError(
                f"{self.folder} was trained to tell {listed(trained)}, and the {split} split now has "
                f"{listed(examples.class_names)}: restore the data, or train again. Where words alone differ, evaluate "
                "takes --set 'data.label_map={THERE: TRAINED}' --out FOLDER."
            )
        return examples

    def changed(self) -> list[str]:
        """Return which of the training and validation splits hold other inputs or labels than in training.

        No sensitive column is opened. A split that cannot be read any more has changed. Of pictures, which take long to
        decode, the validation split alone is looked at.
        """
        file, data = self.folder / "data.json", self.experiment.data
        if not file.exists():
            return []
        with as_written(file):
            recorded = {split: about["fingerprint"] for split, about in read_json(file).items()}
        found: list[str] = []
        for split in SPLITS[1::-1]:
            try:
                examples = data.examples(split)
            except LevelheadError:
                found.insert(0, split)
                continue
            if split in recorded and examples.fingerprint != recorded[split]:
                found.insert(0, split)
            if not isinstance(examples.inputs, Texts):
                break
        return found

    def warn_of_changes(self, split: Split) -> None:
        """Log where rows of ``split`` may be some that the run was trained on, because its data have changed."""
        if changed := self.changed():
            logger.warning(
                "The %s rows have changed since %s was trained: it may have been trained on rows of the %s split. "
                "Restore the data, or train again.",
                " and ".join(changed),
                self.folder,
                split,
            )


def open_finished(
    folder: Path,
    data_root: Path | None = None,
    settings: Iterable[str] = (),
    *,
    running: Collection[str] = ("data", "method"),
) -> FinishedRun:
    """Open a finished run, with its data in ``data_root`` if given, or other data by ``settings`` (``data.…=…``).

    ``running`` is as :func:`levelhead.runs.folder.load_run` takes it.

    Raises:
        DataError: the folder is not one of a finished run, or its data is not there.
        ConfigError: its recipe cannot be used, e.g. because a user's own class is not found.
    """
    require_finished(folder)
    experiment = load_run(folder, data_root, settings, running=running)
    warn_of_rehearsal(experiment.train.max_steps)
    experiment.data.check()
    return FinishedRun(folder, experiment)
