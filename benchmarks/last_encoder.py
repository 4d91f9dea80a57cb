"""Training the last encoder on a frozen backbone: what keeping its features, bucketing and one row are worth.

    python benchmarks/last_encoder.py --backbone NAME_OR_FOLDER --data-root DATA

Texts of HateXplain's train split. Each step of the ladder trains one epoch in steps of 128 texts, through the same
engine as ``levelhead train``. DAM is not bucketed: its statistics need batches of mixed length. All steps run
interleaved in one process, from the first to the last and back; ratios are taken within a pass, and the median is shown
with its 95% interval. One step stands there twice: what the machine's noise alone does. Before anything is
timed, the losses of all steps are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
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


class Padded(Inputs):
    """Token ids padded to one length, as the authors' code does; like lengths cannot share a batch then."""

    def __init__(self, inner: Inputs, length: int) -> None:
        self.inner, self.length = inner, length

    def __len__(self) -> int:
        return len(self.inner)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return a batch with every column padded to the length."""
        batch = self.inner.batch(index)
        return {name: pad(column, (0, self.length - column.shape[1])) for name, column in batch.items()}


class First(Inputs):
    """The first two examples: an epoch ends with scoring a validation split, which is not what is measured."""

    def __init__(self, inner: Inputs) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return 2

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return the inner batch."""
        return self.inner.batch(index)


@dataclass
class Step:
    """One step of the ladder: how inputs are made, with which method, and whether the layer computes all rows."""

    inputs: Inputs
    model: BackboneModel
    method: Method
    whole: bool = False
    bucketing: bool = False
    seen: float = 0.0  # seconds in batch()

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

    def tokens(options: dict[str, Any]) -> Inputs:
        return BackboneModel(**options, features=False).prepare(texts, CPU, {}).inputs

    run = BackboneModel(**short, features=False)
    run_long = BackboneModel(**long, features=False)
    kept = BackboneModel(**short)
    began = time.process_time()
    features = kept.prepare(texts, CPU, {"data": "hatexplain", "split": "benchmark"}).inputs
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


TARGETS: tuple[tuple[str, str, float], ...] = (
    ("ERM, backbone run, padded to 160", "ERM, backbone run, bucketed up to 160", 4.0),
    ("ERM, backbone run, padded to 64", "ERM, features kept, bucketed", 5.0),
    ("ERM, backbone run, padded to 64", "ERM, features kept, bucketed, one row", 25.0),
    ("DAM, backbone run, padded to 64", "DAM, features kept", 5.0),
    ("DAM, backbone run, padded to 64", "DAM, features kept, one row", 25.0),
    ("ERM, backbone run, padded to 64", "ERM, backbone run, padded to 64, again", 1.0),
)


def check_losses(steps: dict[str, Step], labels: Tensor, class_names: tuple[str, ...]) -> dict[str, float]:
    """Return each step's loss with the same weights on the same texts; raise if they are not equal.

    Steps that cut texts at 160 tokens see more of a few texts than those that cut at 64.
    """
    index = (steps["ERM, features kept, bucketed"].inputs.lengths < 60).nonzero()[:64, 0]
    losses = {}
    for name, step in steps.items():
        torch.manual_seed(0)
        network = step.network(class_names).eval()
        with torch.no_grad():
            losses[name] = cross_entropy(network(**step.inputs.batch(index)).logits, labels[index]).item()
    spread = max(losses.values()) - min(losses.values())
    if spread > 2e-3:
        raise SystemExit(f"The steps of the ladder do not compute the same: {losses}")
    return losses


def timed(call: Callable[[Tensor], dict[str, Tensor]], step: Step) -> Callable[[Tensor], dict[str, Tensor]]:
    """Add the time spent in ``call`` to ``step.seen``."""

    def batch(index: Tensor) -> dict[str, Tensor]:
        began = time.process_time()
        result = call(index)
        step.seen += time.process_time() - began
        return result

    return batch


def epoch(step: Step, labels: Tensor, class_names: tuple[str, ...]) -> tuple[float, float]:
    """Train one epoch; return its seconds and those spent reading batches."""
    examples = Examples(step.inputs, labels, class_names, "benchmark")
    few = Examples(First(step.inputs), labels[:2], class_names, "benchmark")
    lab = Lab(
        new_model=lambda: step.network(class_names),
        train=examples,
        validation=few,
        config=TrainConfig(
            epochs=1, batch_size=BATCH, learning_rate=1e-4, device="cpu", select="last", length_bucketing=step.bucketing
        ),
    )
    step.seen = 0.0
    original = step.inputs.batch
    step.inputs.batch = timed(original, step)  # type: ignore[method-assign]
    try:
        began = time.process_time()
        fit(step.method, lab)
        return time.process_time() - began, step.seen
    finally:
        step.inputs.batch = original  # type: ignore[method-assign]


def main() -> None:
    """Measure, print, and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=6, help="pairs of passes over all steps")
    measure.destinations(parser, json=measure.LATEST)
    arguments = parser.parse_args()
    measure.with_environment()
    torch.set_num_threads(1)
    everything = HateXplain(root=arguments.data_root).examples("train")
    inputs = everything.inputs
    assert isinstance(inputs, Texts)
    labels, names = everything.labels[: arguments.texts], everything.class_names
    texts = Examples(Texts(inputs.texts[: arguments.texts]), labels, names, "benchmark")
    with tempfile.TemporaryDirectory() as cache:  # features are made here and now
        os.environ["LEVELHEAD_CACHE"] = cache
        measured(arguments, texts)


def measured(arguments: argparse.Namespace, texts: Examples) -> None:
    """Measure the ladder, print, and keep the rows."""
    labels, names = texts.labels, texts.class_names
    steps, build = ladder(arguments.backbone, texts)
    losses = check_losses(steps, labels, names)
    console = Console()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    reading: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        epoch(step, labels, names)  # warm up
    order = [list(steps), list(reversed(steps))] * arguments.repeats
    for passage in track(order, description="Passes over the ladder", console=Console(stderr=True)):
        for name in passage:
            spent, read = epoch(steps[name], labels, names)
            seconds[name].append(spent)
            reading[name].append(read / spent)
    table = Table(title=f"One epoch of {arguments.texts} texts in batches of {BATCH}, one thread")
    for column in ("step", "seconds", "share of reading", "loss before training"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name in steps:
        middle = statistics.median(seconds[name])
        share = statistics.median(reading[name])
        table.add_row(name, f"{middle:.3f}", f"{100 * share:.1f}%", f"{losses[name]:.5f}")
    console.print(table)
    rows = []
    for slow, fast, target in TARGETS:
        found = measure.paired(seconds, slow, fast)
        again = fast.endswith("again")
        rows.append(measure.row(f"epoch: {slow} / {fast}", found, None if again else target, "higher", device=CPU))
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
        rows.append(measure.row(f"reading features / epoch: {name}", reading[name], 0.05, device=CPU))
    kept = steps["ERM, features kept, bucketed"].inputs
    assert kept.lengths is not None
    width = kept.batch(torch.tensor([0]))["features"].shape[-1]
    share = count_bytes(kept.lengths, width) / (arguments.texts * 160 * width * 4)
    rows.append(measure.row("bytes of features / float32 padded to 160", [share], 0.1, device=CPU))
    measure.show(rows, "Ratios of the steps")
    measure.merge(arguments.json, [row | {"texts": arguments.texts} for row in rows])


if __name__ == "__main__":
    main()
