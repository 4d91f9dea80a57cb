"""Refit the last layer of a finished run by another method: what the layer gets is computed once, the rest is seconds.

The outcome is a run folder as if its recipe had been trained: the same weights but for the last layer, the recipe with
the other method, predictions, and the network for Hugging Face. Methods that can be reached in this way say so by
:attr:`levelhead.methods.Method.refits`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from levelhead.auditing.options import MIN_COUNT
from levelhead.data import Examples, Split
from levelhead.methods.dam import DAM
from levelhead.methods.last_layer import HeldOut, LastLayerMethod, last_layer, watching_last_layer
from levelhead.runs.evaluate import write_evaluation
from levelhead.runs.finished import FinishedRun, open_finished
from levelhead.runs.folder import work_of
from levelhead.runs.joined import Join, groups_of, required_groups
from levelhead.runs.recipe import Experiment
from levelhead.runs.train import keep_result
from levelhead.storage import hash_tensors, load_tensors, read_json, read_metrics, save_tensors
from levelhead.terminal import Progress, silent
from levelhead.training.finite import refuse_not_finite
from levelhead.training.lab import predict_logits
from levelhead.training.work import OUTSIDE
from levelhead.types import ConfigError, DataError


@dataclass(frozen=True)
class LastInputs:
    """A split as the last layer sees it: ``features`` (rows, width) float32, and the rows' labels in ``examples``.

    ``seconds`` is how long the features took when they were computed.
    """

    features: Tensor
    examples: Examples
    seconds: float


class Refitting:
    """A finished run whose last layer is refitted.

    Args:
        folder: of the run.
        data_root: where its data is, if not where it was.
        progress: called as the inputs of the last layer are computed.
        join: groups that stand in another file, for methods that get some, and for the evaluation.

    Raises:
        DataError: the run is not finished, or its data is not there.
        UnsupportedModelError: the network ends in no linear layer.
    """

    def __init__(
        self, folder: Path, data_root: Path | None = None, progress: Progress = silent, join: Join | None = None
    ) -> None:
        self.run, self.join = open_finished(folder, data_root), join
        self.model = self.run.load_model().eval()
        last_layer(self.model)
        self._progress = progress
        self._known: dict[Split, LastInputs] = {}

    def inputs(self, split: Split) -> LastInputs:
        """Return what the last layer gets for the rows of ``split``: computed once, and kept in the run folder."""
        if split not in self._known:
            examples = self.run.prepared(split, self.model)
            features, seconds = self._features(split, examples)
            refuse_not_finite(features, f"inputs of the last layer of {self.run.folder}", f"of the {split} split")
            self._known[split] = LastInputs(features, examples, seconds)
        return self._known[split]

    def _features(self, split: Split, examples: Examples) -> tuple[Tensor, float]:
        digest = hashlib.sha256(examples.fingerprint.encode())
        hash_tensors(digest, self.model.state_dict())
        key, file = digest.hexdigest(), self.run.folder / f"last-layer-{split}.safetensors"
        if file.exists():
            with contextlib.suppress(DataError):  # cut short: they are computed again
                tensors, about = load_tensors(file)
                if about.keys() == {"key", "seconds"} and about["key"] == key:
                    return tensors["features"], float(about["seconds"])
        parts: list[Tensor] = []
        began = time.monotonic()
        chunks = torch.arange(len(examples.labels)).split(self.run.experiment.train.evaluation_batch_size)
        with watching_last_layer(self.model) as inputs:
            for some in chunks:
                batch = {name: value.to(self.run.device) for name, value in examples.inputs.batch(some).items()}
                parts.append(inputs(batch).cpu())
                self._progress(f"{split}: what the last layer gets", len(parts), len(chunks), "")
        features, seconds = torch.cat(parts), time.monotonic() - began
        save_tensors(file, {"features": features}, {"key": key, "seconds": seconds})
        return features, seconds

    def held_out(self, method: LastLayerMethod) -> HeldOut:
        """Return what ``method`` refits on: the validation rows, and the groups or people that it gets."""
        seed, held = self.run.experiment.seed, self.inputs("validation")
        groups = method.validation_groups(
            lambda: required_groups(self.run.experiment.data, "validation", self.join)[0].values,
            len(held.examples.labels),
            seed,
        )
        train = None
        if method.uses_people:
            people, rows = self.run.experiment.data.training_people(), self.inputs("train")
            train = rows.features, rows.examples.labels, people
        return HeldOut.of(self.model, held.features, held.examples.labels, groups, seed, train, held.examples.inputs)

    def logits(self, model: Any, split: Split, whole: bool = False) -> Tensor:
        """Return the logits (rows, classes) of a refitted network; without ``whole``, from what is kept of the run.

        The latter is for a network that differs from the run's in the last layer alone.
        """
        if whole:
            inputs, size = self.inputs(split).examples.inputs, self.run.experiment.train.evaluation_batch_size
            return predict_logits(model, inputs, size, self.run.device)
        layer, features = last_layer(model), self.inputs(split).features
        with torch.no_grad():
            return layer(features.to(layer.weight.device, layer.weight.dtype)).float().cpu()

    def refitted(self, method: LastLayerMethod) -> tuple[Any, float, int]:
        """Return a copy of the run's network with the last layer that ``method`` gives it, and what that cost.

        That is the seconds, and the rows that passed through the network: both as if no feature had been kept.
        """
        held, model = self.held_out(method), copy.deepcopy(self.model)
        began = time.monotonic()
        method.put(model, held)
        seconds = time.monotonic() - began
        passed = [self.inputs(split) for split in (("validation", "train") if method.uses_people else ("validation",))]
        return model, seconds + sum(each.seconds for each in passed), sum(len(each.features) for each in passed)


def training_of(experiment: Experiment) -> str:
    """Return what decides the weights below the last layer, as a text: equal where one run refits the other.

    Neither a row's name nor the place of the data is in it.
    """
    options = replace(experiment, method=experiment.method.refits or experiment.method).to_dict()
    del options["name"], options["data"]["root"], options["train"]["trackers"]
    return str(options)


def refit_run(
    refitting: Refitting,
    experiment: Experiment,
    folder: Path,
    *,
    evaluate: bool = True,
    min_count: int = MIN_COUNT,
) -> None:
    """Write the run folder that training ``experiment`` would give, from a finished run of what it refits.

    Args:
        refitting: the finished run.
        experiment: the same but for its method, which only has to refit that run.
        folder: the new run folder; one of the same experiment is written again.
        evaluate: evaluate it on the test split as well, which opens the groups.
        min_count: of that evaluation, as :func:`levelhead.audit` takes it.

    Raises:
        ConfigError: ``experiment`` cannot be reached from the run.
        DataError: groups that the method gets cannot be read, or are too few.
    """
    source = refitting.run
    if experiment.method.refits is None or training_of(source.experiment) != training_of(experiment):
        raise ConfigError(
            f"{source.folder} cannot be refitted by {experiment.method_name}: give a run of erm (or dam, for "
            "dam+METHOD) with the same data, network, training options and seed."
        )
    method = experiment.method.base if isinstance(experiment.method, DAM) else experiment.method
    assert isinstance(method, LastLayerMethod), "it says what it refits"
    refitting.inputs("validation")
    if changed := source.changed():
        raise DataError(
            f"The {' and '.join(changed)} rows have changed since {source.folder} was trained, and some may be rows "
            "that it has trained on. Restore the data, or train again."
        )
    model, seconds, rows = refitting.refitted(method)  # before the folder is made: rows can be too few for a method
    passes = rows / read_json(source.folder / "data.json")["train"]["rows"]
    work, files = work_of(folder), [source.folder / name for name in OUTSIDE]
    with work.locked():
        work.refuse_changes(experiment.recipe)
        work.keep(experiment.recipe, {file.name: read_json(file) for file in files if file.exists()})
        cost = read_json(source.folder / "cost.json")
        cost |= {"seconds": cost["seconds"] and cost["seconds"] + seconds, "refit_seconds": seconds}
        keep_result(
            experiment,
            folder,
            model,
            refitting.inputs("validation").examples,
            refitting.logits(model, "validation", method.changes_body),
            cost | {"forward_passes": cost["forward_passes"] + passes},
            read_metrics(source.folder)["history"],
            source.device,
        )
        if evaluate:
            groups, test = groups_of(experiment.data, "test", refitting.join), refitting.inputs("test").examples
            logits = refitting.logits(model, "test", method.changes_body)
            write_evaluation(FinishedRun(folder, experiment), "test", test, groups, logits, min_count=min_count)
