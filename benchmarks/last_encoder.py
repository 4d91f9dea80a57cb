"""Training the last encoder on a frozen backbone: what keeping its features, bucketing and one row are worth.

    python benchmarks/last_encoder.py NAME_OR_FOLDER --data-root DATA

Texts of HateXplain's train split. Each step of the ladder trains one epoch in steps of 128 texts, through the same
engine as ``levelhead train``. DAM is not bucketed: its statistics need batches of mixed length. All steps run
interleaved in one process, from the first to the last and back; ratios are taken within a pass, and the median is shown
with its 95% interval. One step stands there twice: what the machine's noise alone does. Before anything is
timed, the losses of all steps are compared.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import torch
import typer
from rich.console import Console
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from levelhead.data.base import Examples, Inputs
from levelhead.data.hatexplain import HateXplain
from levelhead.data.texts import Texts
from levelhead.methods import Method
from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM
from levelhead.methods.fit import fit
from levelhead.models.features import count_bytes
from levelhead.models.networks import BackboneModel
from levelhead.training.config import TrainConfig
from levelhead.training.lab import Lab

CPU = torch.device("cpu")
BATCH = 128
EPOCHS = 50  # what the authors train on HateXplain


class Around(Inputs):
    """Inputs that are measured or changed; their lengths are those of ``inner``."""

    def __init__(self, inner: Inputs) -> None:
        self.inner, self.lengths, self.seconds = inner, inner.lengths, 0.0

    def __len__(self) -> int:
        return len(self.inner)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return the inner batch, and add up the seconds that this takes."""
        began = time.process_time()
        found = self.inner.batch(index)
        self.seconds += time.process_time() - began
        return found


class Padded(Around):
    """Token ids padded to one length, as the authors' code does; like lengths cannot share a batch then."""

    def __init__(self, inner: Inputs, length: int) -> None:
        super().__init__(inner)
        self.length, self.lengths = length, None

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return a batch with every column padded to the length."""
        return {name: pad(column, (0, self.length - column.shape[1])) for name, column in super().batch(index).items()}


class First(Around):
    """The first two examples: an epoch ends with scoring a validation split, which is not what is measured."""

    def __len__(self) -> int:
        return 2


@dataclass
class Step:
    """One step of the ladder: how inputs are made, with which method, and whether the layer computes all rows."""

    inputs: Around
    model: BackboneModel
    method: Method
    whole: bool = False
    bucketing: bool = False
    reading: list[float] = field(default_factory=list)  # shares of an epoch

    def network(self, class_names: tuple[str, ...]) -> Any:
        """Build the network; a hook that waits for the layer makes it compute all rows."""
        network = self.model.build(class_names)
        if self.whole:
            network.register_forward_pre_hook(_look_at_the_layer)
        return network


def _look_at_the_layer(network: Any, arguments: tuple[Any, ...]) -> None:
    # Not when it is built: debiasing puts another layer in its place.
    if not network.block._forward_hooks:
        network.block.register_forward_hook(lambda *_: None)


def ladder(backbone: str, texts: Examples) -> tuple[dict[str, Step], float]:
    """Return the steps by name, and the seconds that making the features took."""
    short = {"backbone": backbone, "max_length": 64}
    long = {"backbone": backbone, "max_length": 160}

    def tokens(options: dict[str, Any]) -> Around:
        return Around(BackboneModel(**options, features=False).prepare(texts, CPU, {}).inputs)

    run = BackboneModel(**short, features=False)
    run_long = BackboneModel(**long, features=False)
    kept = BackboneModel(**short)
    began = time.process_time()
    features = Around(kept.prepare(texts, CPU, {"data": "hatexplain", "split": "benchmark"}).inputs)
    build = time.process_time() - began
    steps = {
        "ERM, backbone run, padded to 160": Step(Padded(tokens(long), 160), run_long, ERM(), True),
        "ERM, backbone run, bucketed up to 160": Step(tokens(long), run_long, ERM(), True, True),
        "ERM, backbone run, padded to 64": Step(Padded(tokens(short), 64), run, ERM(), True),
        "ERM, backbone run, padded to 64, again": Step(Padded(tokens(short), 64), run, ERM(), True),
        "ERM, backbone run, bucketed": Step(tokens(short), run, ERM(), True, True),
        "ERM, features kept, bucketed": Step(features, kept, ERM(), True, True),
        "ERM, features kept, one row": Step(features, kept, ERM()),
        "ERM, features kept, bucketed, one row": Step(features, kept, ERM(), False, True),
        "DAM, backbone run, padded to 64": Step(Padded(tokens(short), 64), run, DAM(), True),
        "DAM, features kept": Step(features, kept, DAM(), True),
        "DAM, features kept, one row": Step(features, kept, DAM()),
    }
    return steps, build


TARGETS: tuple[tuple[str, str, float | None], ...] = (
    ("ERM, backbone run, padded to 160", "ERM, backbone run, bucketed up to 160", 4.0),
    ("ERM, backbone run, padded to 64", "ERM, features kept, bucketed", 5.0),
    ("ERM, backbone run, padded to 64", "ERM, features kept, bucketed, one row", 25.0),
    ("DAM, backbone run, padded to 64", "DAM, features kept", 5.0),
    ("DAM, backbone run, padded to 64", "DAM, features kept, one row", 25.0),
    ("ERM, backbone run, padded to 64", "ERM, backbone run, padded to 64, again", None),
)


def check_losses(steps: dict[str, Step], labels: Tensor, class_names: tuple[str, ...]) -> None:
    """Raise if the steps' losses with the same weights on the same texts are not equal.

    Steps that cut texts at 160 tokens see more of a few texts than those that cut at 64.
    """
    index = (steps["ERM, features kept, bucketed"].inputs.lengths < 60).nonzero()[:64, 0]
    losses = {}
    for name, step in steps.items():
        torch.manual_seed(0)
        network = step.network(class_names).eval()
        with torch.no_grad():
            losses[name] = cross_entropy(network(**step.inputs.batch(index)).logits, labels[index]).item()
    if max(losses.values()) - min(losses.values()) > 2e-3:
        raise SystemExit(f"The steps of the ladder do not compute the same: {losses}")


def epoch(step: Step, labels: Tensor, class_names: tuple[str, ...]) -> None:
    """Train one epoch, and keep the share of its seconds that is spent reading batches."""
    lab = Lab(
        new_model=lambda: step.network(class_names),
        train=Examples(step.inputs, labels, class_names, "benchmark"),
        validation=Examples(First(step.inputs), labels[:2], class_names, "benchmark"),
        config=TrainConfig(
            epochs=1, batch_size=BATCH, learning_rate=1e-4, device="cpu", select="last", length_bucketing=step.bucketing
        ),
    )
    step.inputs.seconds, began = 0.0, time.process_time()
    fit(step.method, lab)
    step.reading.append(step.inputs.seconds / (time.process_time() - began))


def main(
    backbone: str, data_root: Path | None = None, texts: int = 1024, repeats: int = 12, record: bool = False
) -> None:
    """Measure, print, and keep the rows, of ``repeats`` passes over all steps."""
    measure.with_environment()
    torch.set_num_threads(1)
    everything = HateXplain(root=data_root).examples("train")
    inputs = everything.inputs
    assert isinstance(inputs, Texts)
    first = Examples(Texts(inputs.texts[:texts]), everything.labels[:texts], everything.class_names, "benchmark")
    with tempfile.TemporaryDirectory() as cache:  # features are made here and now
        os.environ["LEVELHEAD_CACHE"] = cache
        rows = measured(backbone, first, repeats)
    measure.show(rows, "Ratios of the steps")
    measure.merge(measure.destination(measure.LATEST, record), [row | {"texts": texts} for row in rows])


def measured(backbone: str, texts: Examples, repeats: int) -> list[dict[str, Any]]:
    """Return the rows of the ladder on these texts."""
    labels, names = texts.labels, texts.class_names
    steps, build = ladder(backbone, texts)
    check_losses(steps, labels, names)
    epochs = {name: functools.partial(epoch, step, labels, names) for name, step in steps.items()}
    seconds = measure.interleaved(epochs, repeats, CPU, Console(stderr=True).print)
    rows = []
    for slow, fast, target in TARGETS:
        found = measure.paired(seconds, slow, fast)
        rows.append(measure.row(f"epoch: {slow} / {fast}", found, target, "higher", device=CPU))
    for method, fast in (("ERM", "features kept, bucketed, one row"), ("DAM", "features kept, one row")):
        slow, fast = f"{method}, backbone run, padded to 64", f"{method}, {fast}"
        pairs = zip(seconds[slow], seconds[fast], strict=True)
        found = [EPOCHS * a / (build + EPOCHS * b) for a, b in pairs]
        rows.append(measure.row(f"{EPOCHS} epochs, features made: {slow} / {fast}", found, 20, "higher", device=CPU))
    for name in (
        "ERM, features kept, bucketed",
        "ERM, features kept, bucketed, one row",
        "DAM, features kept, one row",
    ):
        rows.append(measure.row(f"reading features / epoch: {name}", steps[name].reading, 0.05, device=CPU))
    kept = steps["ERM, features kept, bucketed"].inputs
    assert kept.lengths is not None
    width = kept.batch(torch.tensor([0]))["features"].shape[-1]
    share = count_bytes(kept.lengths, width) / (len(labels) * 160 * width * 4)
    return [*rows, measure.row("bytes of features / float32 padded to 160", [share], 0.1, device=CPU)]


if __name__ == "__main__":
    typer.run(main)
