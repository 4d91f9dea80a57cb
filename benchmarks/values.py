"""Does debiased attention lower a gap further if the values lose their sign, too?

    python benchmarks/values.py --seeds 10 --json results/values_portraits.json    # about 20 minutes of one core

``levelhead inspect`` found one leak on portraits with a shortcut (results/inside.md): queries and keys are
standardised, values are not, and DAM's gap falls by 25 points without the group in the values that attention did not
select.

The protocol, fixed before the first run:

- Data and network: those of recipes/portraits_erm_shortcut.yaml, with patches of 16 pixels; 20 epochs, the last one
  counts, so that nothing is selected.
- Variants: ``ERM``; ``DAM``; ``DAM, no sign``: values of the last layer are standardised as queries and keys are, and
  their absolute values taken; ``DAM, standardised`` is its placebo: the same statistics, with the sign, which the next
  linear layer can undo.
- Figure: the gap in equalized odds (mean form) of 1,500 test pictures, one training for each of ten seeds.
- Answer: the mean paired difference over seeds between ``no sign`` and its placebo, with Student's 95% interval. The
  sign of values matters if the interval excludes 0. One look. Accuracy stands beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from rich.progress import track
from scipy import stats
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification, get_cosine_schedule_with_warmup

import levelhead as lh
from levelhead.attention.interface import edited
from levelhead.data.portraits import Portraits
from levelhead.storage import write_json

VARIANTS = ("ERM", "DAM", "DAM, no sign", "DAM, standardised")
EPOCHS, BATCH, RATE, PATCH = 20, 64, 2e-3, 16
DATA = Portraits(
    test_correlation=0.0,
    angular_rate=0.5,
    light_given_round=0.9,
    light_given_angular=0.1,
    backdrop=1.0,
    difficulty=0.6,
    train_size=1600,
    test_size=1500,
)


def standardise(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Standardise the values of a layer that has statistics for them; its ``drops_sign`` says whether the sign goes."""
    if "of_values" in module._modules:
        flat = module.of_values(value.flatten(1))  # type: ignore[operator]
        value = (flat.abs() if module.drops_sign else flat).view_as(value)
    return query, key, value


def network(variant: str) -> Any:
    """Return a new network of a variant."""
    size = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192}
    model: Any = ViTForImageClassification(ViTConfig(**size, image_size=64, patch_size=PATCH, num_labels=2))
    if variant == "ERM":
        return model
    model = lh.attach(model)
    if variant != "DAM":
        layer = next(module for module in model.modules() if "debias" in module._modules)
        tokens = (64 // PATCH) ** 2 + 1
        layer.of_values = nn.BatchNorm1d(tokens * size["hidden_size"], affine=False)  # a statistic for each feature
        layer.drops_sign = variant.endswith("no sign")
    return model


def run(variant: str, seed: int) -> tuple[float, float]:
    """Train once; return gap and accuracy on the test pictures."""
    train, test = DATA.examples("train"), DATA.examples("test")
    torch.manual_seed(seed)
    model = network(variant)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    steps = EPOCHS * (len(train.labels) // BATCH)
    schedule = get_cosine_schedule_with_warmup(optimizer, 20, steps)
    with edited(standardise):
        model.train()
        for _ in range(EPOCHS):
            for index in torch.randperm(len(train.labels))[: steps // EPOCHS * BATCH].split(BATCH):
                loss = model(**train.inputs.batch(index), labels=train.labels[index]).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            rows = torch.arange(len(test.labels)).split(500)
            predicted = torch.cat([model(**test.inputs.batch(index)).logits.argmax(-1) for index in rows])
    (groups,) = DATA.groups("test")
    found = lh.audit(test.labels.numpy(), predicted.numpy(), sensitive_features=groups.values.numpy(), replicates=100)
    return found.metrics["equalized_odds"].value, found.metrics["accuracy"].value


def interval(values: np.ndarray) -> dict[str, float]:
    """Return the mean over seeds with Student's 95% interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return {"value": values.mean(), "low": values.mean() - half, "high": values.mean() + half}


def main(seeds: int = 10, json: Path | None = None) -> None:
    """Train all variants, and say the answer."""
    torch.set_num_threads(1)
    plan = [(variant, seed) for seed in range(seeds) for variant in VARIANTS]
    found = {one: run(*one) for one in track(plan, description="trainings")}
    gap, accuracy = (np.array([[found[variant, seed][at] for seed in range(seeds)] for variant in VARIANTS])
                     for at in (0, 1))  # fmt: skip
    answers = {
        f"{first} less {second}": interval(gap[VARIANTS.index(first)] - gap[VARIANTS.index(second)])
        for first, second in (("DAM, no sign", "DAM, standardised"), ("DAM, standardised", "DAM"), ("DAM", "ERM"))
    }
    record = {
        "seeds": seeds,
        "gap": {variant: interval(gap[at]) for at, variant in enumerate(VARIANTS)},
        "accuracy": {variant: interval(accuracy[at]) for at, variant in enumerate(VARIANTS)},
        "differences": answers,
    }
    if json is not None:
        write_json(json, record)
    for title, figures in (("Gap", record["gap"]), ("Accuracy", record["accuracy"]), ("Difference", answers)):
        for name, one in figures.items():  # type: ignore[attr-defined]
            print(f"{title}, {name}: {100 * one['value']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]")


if __name__ == "__main__":
    typer.run(main)
