"""What compiling, one row of the last layer, and a fused optimiser save of a training step on one core.

    python benchmarks/compiled.py            # about 4 minutes

The network of the small recipes, DAM, 8 layers of width 192, batches of 64 pictures of 64x64. All variants run
interleaved in one process; ratios are taken within a repeat, and the median is shown with its 95% interval. Rows go
into benchmarks/latest.json. The seconds that compiling takes are printed, and belong to every run of their own.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import measure
import torch
from torch import nn

from levelhead.attention import DebiasConfig, attach
from levelhead.models.networks import ScratchViT

CPU = torch.device("cpu")
STEPS = 4  # a timing: one step is short beside what else a machine does
WHAT = "step, DAM on a small ViT, 64x17x192"


def network(fast: bool) -> nn.Module:
    """Build the network of the small recipes; ``fast`` computes the row that is read, and embeds by a product."""
    torch.manual_seed(0)
    size = ScratchViT(hidden_size=192, layers=8, heads=8, image_size=64, patch_size=16, patch_product=fast)
    return attach(size.build(("no", "yes")), DebiasConfig(readout_only=fast)).train()


def main() -> None:
    """Measure, print, and write rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=21)
    measure.destinations(parser, json=measure.LATEST)
    arguments = parser.parse_args()
    measure.with_environment()
    torch.set_num_threads(1)
    inputs = {"pixel_values": torch.randn(64, 3, 64, 64), "labels": torch.arange(64) % 2}

    def variant(fast: bool = False, fused: bool = False, compiled: bool = False) -> Any:
        model = network(fast)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=fused)
        call = torch.compile(model) if compiled else model

        def train() -> float:
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = call(**inputs).loss
                loss.backward()
                optimizer.step()
            return loss.item()

        return train

    variants = {
        "plain": variant(),
        "plain again": variant(),
        "one row and a product": variant(fast=True),
        "fused AdamW": variant(fused=True),
        "compiled": variant(compiled=True),
        "all of them": variant(fast=True, fused=True, compiled=True),
    }
    first = {}
    for name, train in variants.items():
        began = time.perf_counter()
        loss = train()
        first[name] = time.perf_counter() - began
        print(f"{name}: loss {loss:.6f} after {STEPS} steps, which took {first[name]:.1f} s with what came before them")
    times = measure.interleaved(variants, arguments.repeats, CPU, lambda text: None)
    rows = [
        measure.row(f"{WHAT}: {name} / plain (CPU)", measure.paired(times, name, "plain"), target, device=CPU)
        for name, target in zip(list(variants)[1:], (None, None, None, None, 0.8), strict=True)
    ]
    measure.show(rows, "Ratios measured side by side")
    measure.merge(arguments.json, rows)


if __name__ == "__main__":
    main()
