"""What a method's training costs beside plain training: ratios of seconds, all methods interleaved in one process.

    python benchmarks/method_cost.py

Small ViT (8 layers, width 192) on random pictures of 64x64, four epochs of eight steps of 64. Each repeat runs all
methods, in turns from the first to the last and back; the ratio to ERM is taken within a repeat, and the median over
repeats is shown with its 95% interval. ERM stands there twice: its ratio to itself is what the machine's
noise alone does. JTT's first training is as long as its second here, the most that it can cost. DSA changes the
pictures once, however long the training is, so in these four epochs it is dearer beside ERM than in more.

    python benchmarks/method_cost.py --only tadet --only dsa    # these and ERM; other rows stay as they are
"""

from __future__ import annotations

import functools
from typing import Any

import measure
import torch
import typer
from rich.console import Console

from levelhead.data.base import Examples
from levelhead.data.images import ImageInputs
from levelhead.data.views import View
from levelhead.methods import METHODS as KNOWN
from levelhead.methods import Method
from levelhead.methods.fit import fit
from levelhead.models.networks import ScratchViT
from levelhead.training.config import TrainConfig
from levelhead.training.lab import Lab

CPU = torch.device("cpu")
EPOCHS, BATCH, ROWS = 4, 64, 512
VIEW = View("region", box=(0, 0, 0.5, 0.5))
NAMES = (
    "erm dam dro arl kd jtt lff eiil xrm spare cnc george afr poe learned-mixin view-reweight few-label decorrelation "
    "dfr tadet dsa"
)
OPTIONS: dict[str, dict[str, Any]] = {
    "dro": {"eta": 0.1},
    "jtt": {"identification_epochs": EPOCHS, "repeat": "weights"},
    "xrm": {"single_part": "keep"},
    **{name: {"view": VIEW} for name in ("poe", "learned-mixin", "view-reweight")},
}
METHODS: dict[str, Method] = {name: KNOWN[name](**OPTIONS.get(name, {})) for name in NAMES.split()}
METHODS = {"erm": METHODS["erm"], "erm again": METHODS["erm"]} | METHODS
METHODS["jtt, weights"] = METHODS.pop("jtt")
TARGETS = {"dro": 1.02, "arl": 1.35, "lff": 2.1, "kd": 2.3, "jtt, weights": 2.05}


def examples(rows: int) -> Examples:
    """Random pictures with random labels: the arithmetic of a step does not depend on what it sees."""
    generator = torch.Generator().manual_seed(rows)
    pixels = torch.randint(256, (rows, 3, 64, 64), dtype=torch.uint8, generator=generator)
    return Examples(ImageInputs(pixels), torch.arange(rows) % 2, ("no", "yes"), "random")


def trained(method: Method, train: Examples, validation: Examples) -> Lab:
    """Train once."""
    lab = Lab(
        new_model=lambda **size: ScratchViT(hidden_size=192, **size).build(train.class_names),
        train=train,
        validation=validation,
        config=TrainConfig(epochs=EPOCHS, batch_size=BATCH, device="cpu"),
        groups=torch.arange(ROWS) // 2 % 2 if method.uses_groups else None,
        known_groups=method.validation_groups(
            lambda: torch.arange(len(validation.labels)) // 2 % 2, len(validation.labels), 0
        ),
        viewed=lambda view: (view(train.inputs), view(validation.inputs)),
    )
    fit(method, lab)
    return lab


def main(only: list[str] | None = None, repeats: int = 12, record: bool = False) -> None:
    """Measure, print, and keep the rows, of ``only`` these methods beside ERM, in ``repeats`` passes over them."""
    asked = only or list(METHODS)
    names = [name for name in METHODS if name == "erm" or name in asked]
    measure.with_environment()
    torch.set_num_threads(1)
    train, validation = examples(ROWS), examples(256)
    works: dict[str, Lab] = {}

    def call(name: str) -> None:
        works[name] = trained(METHODS[name], train, validation)

    calls = {name: functools.partial(call, name) for name in names}
    times = measure.interleaved(calls, repeats, CPU, Console(stderr=True).print)
    plain = works["erm"].work
    rows = []
    for name in asked:
        ratios = measure.paired(times, name, "erm")
        row = measure.row(f"training, {name} / erm", ratios, TARGETS.get(name), device=CPU)
        forward, backward = works[name].work.forward / plain.forward, works[name].work.backward / plain.backward
        rows.append(row | {"forward_passes": forward, "backward_passes": backward})
    passes = {"forward_passes": "forward", "backward_passes": "backward"}
    measure.show(rows, "Seconds and passes of training, as multiples of ERM's", **passes)
    measure.merge(measure.destination(measure.LATEST, record), rows)


if __name__ == "__main__":
    typer.run(main)
