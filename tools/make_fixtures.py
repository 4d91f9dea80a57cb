"""Write the small finished runs, models and tables that a later version must still read, with drawn pictures only.

    python tools/make_fixtures.py tests/fixtures/0.1.0

The folder is named for the version that wrote it and is never written anew: the tests in ``tests/test_old_files.py``
read it with the code of today.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification

import levelhead as lh
from levelhead.bench.grid import compare_methods, make_cells, remember
from levelhead.bench.tables import collect
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment, override
from levelhead.runs.train import train_run
from levelhead.storage import write_json

RECIPE = {
    "data": {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 80, "correlation": 0.5},
    "method": {"name": "erm"},
    "model": {"hidden_size": 16, "layers": 2, "heads": 2},
    "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1},
}
SMALL = {"method.debias.projection_hidden": 16, "method.debias.projection_size": 8}


class Stop(Exception):  # noqa: N818  (nothing went wrong)
    """Ends a training in the middle."""


def make(out: Path) -> None:
    """Write everything into ``out``, which must not exist yet."""
    out.mkdir(parents=True)
    (out / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False), encoding="utf-8")

    runs = out / "runs"
    grid = compare_methods(RECIPE, ["erm", "dam"], [0, 1], {key: [value] for key, value in SMALL.items()})
    for cell in make_cells(remember(grid, runs), runs):
        train_run(cell.experiment, cell.folder)
        evaluate_run(cell.folder)
    write_json(out / "table.json", {"comparisons": [collect([runs], "test", min_count=1)[0].compare("erm").to_dict()]})

    experiment = build_experiment(
        override(RECIPE | {"seed": 5}, ["method.name=dam", *(f"{key}={value}" for key, value in SMALL.items())])
    )
    whole, cut = out / "whole", out / "interrupted"
    train_run(experiment, whole)
    (whole / "model" / "model.safetensors").rename(out / "whole.safetensors")
    shutil.rmtree(whole)

    def stop_after_one_epoch(*_: object, **__: object) -> None:
        if any((cut / "checkpoints").glob("*")):
            raise Stop

    try:
        train_run(experiment, cut, progress=stop_after_one_epoch)
    except Stop:
        pass
    else:
        sys.exit("the training was not interrupted")

    small = {key.rpartition(".")[2]: value for key, value in SMALL.items()}
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    pictures = torch.randn(4, 3, 16, 16)
    for name, debias in (
        ("attached", lh.DebiasConfig(**small)),
        ("attached-all-rows", lh.DebiasConfig(readout_only=False, top_t=3, **small)),
        ("attached-notebook", lh.DebiasConfig.preset("released-vision", **small)),
    ):
        model = lh.attach(ViTForImageClassification(config), debias).train()
        for _ in range(3):
            model(pixel_values=torch.randn(8, 3, 16, 16), labels=torch.arange(8) % 2)  # moves the running statistics
        model.eval().save_pretrained(out / name)
        with torch.no_grad():
            logits = model(pixel_values=pictures).logits
        save_file({"pictures": pictures, "logits": logits}, out / f"{name}.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(Path(sys.argv[1]))
