"""What a method's training costs beside plain training: ratios of seconds, all methods interleaved in one process.

    python benchmarks/method_cost.py

Small ViT (8 layers, width 192) on random pictures of 64x64, four epochs of eight steps of 64. Each repeat runs all
methods, in turns from the first to the last and back; the ratio to ERM is taken within a repeat, and the median over
repeats is shown with its 95% interval. ERM stands there twice: its ratio to itself is what the machine's
noise alone does. JTT's first training is as long as its second here, the most that it can cost. DSA changes the
pictures once, however long the training is, so in these four epochs it is dearer beside ERM than in more.

    python benchmarks/method_cost.py --only tadet dsa    # these and ERM; other rows stay as they are
"""

from __future__ import annotations

import argparse
import functools

import measure
import torch
from rich.console import Console

from levelhead.data.base import Examples
from levelhead.data.images import ImageInputs
from levelhead.data.views import View
from levelhead.methods import Method
from levelhead.methods.afr import AFR
from levelhead.methods.arl import ARL
from levelhead.methods.bias_only import LearnedMixin, PoE, ViewReweight
from levelhead.methods.cnc import CnC
from levelhead.methods.dam import DAM
from levelhead.methods.decorrelation import Decorrelation
from levelhead.methods.dfr import DFR
from levelhead.methods.dro import DRO
from levelhead.methods.dsa import DSA
from levelhead.methods.eiil import EIIL
from levelhead.methods.erm import ERM
from levelhead.methods.few_label import FewLabel
from levelhead.methods.fit import fit
from levelhead.methods.george import GEORGE
from levelhead.methods.jtt import JTT
from levelhead.methods.kd import KD
from levelhead.methods.lff import LfF
from levelhead.methods.spare import SPARE
from levelhead.methods.tadet import TADeT
from levelhead.methods.xrm import XRM
from levelhead.models.networks import ScratchViT
from levelhead.training.config import TrainConfig
from levelhead.training.lab import Lab

CPU = torch.device("cpu")
EPOCHS, BATCH, ROWS = 4, 64, 512
VIEW = View("region", box=(0, 0, 0.5, 0.5))
METHODS: dict[str, Method] = {
    "erm": ERM(),
    "erm again": ERM(),
    "dam": DAM(),
    "dro": DRO(eta=0.1),
    "arl": ARL(),
    "kd": KD(),
    "jtt, weights": JTT(identification_epochs=EPOCHS, repeat="weights"),
    "lff": LfF(),
    "eiil": EIIL(),
    "xrm": XRM(single_part="keep"),
    "spare": SPARE(),
    "cnc": CnC(),
    "george": GEORGE(),
    "afr": AFR(),
    "poe": PoE(view=VIEW),
    "learned-mixin": LearnedMixin(view=VIEW),
    "view-reweight": ViewReweight(view=VIEW),
    "few-label": FewLabel(),
    "decorrelation": Decorrelation(),
    "dfr": DFR(),
    "tadet": TADeT(),
    "dsa": DSA(),
}
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


def main() -> None:
    """Measure, print, and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=12, help="passes over all methods")
    parser.add_argument("--only", nargs="*", choices=METHODS, help="methods to measure beside ERM; all by default")
    measure.destinations(parser, json=measure.LATEST)
    arguments = parser.parse_args()
    names = [name for name in METHODS if arguments.only is None or name == "erm" or name in arguments.only]
    measure.with_environment()
    torch.set_num_threads(1)
    train, validation = examples(ROWS), examples(256)
    works: dict[str, Lab] = {}

    def call(name: str) -> None:
        works[name] = trained(METHODS[name], train, validation)

    console = Console(stderr=True)
    times = measure.interleaved(
        {name: functools.partial(call, name) for name in names}, arguments.repeats, CPU, console.print
    )
    plain = works["erm"].work
    rows = []
    for name in names:
        if arguments.only is not None and name not in arguments.only:
            continue
        target = TARGETS.get(name)
        row = measure.row(f"training, {name} / erm", measure.paired(times, name, "erm"), target, device=CPU)
        forward, backward = works[name].work.forward / plain.forward, works[name].work.backward / plain.backward
        rows.append(row | {"forward_passes": forward, "backward_passes": backward})
    passes = {"forward_passes": "forward", "backward_passes": "backward"}
    measure.show(rows, "Seconds and passes of training, as multiples of ERM's", **passes)
    measure.merge(arguments.json, rows)


if __name__ == "__main__":
    main()
