"""What debiased attention costs in a training step: time and memory beside ordinary training, with and without one row.

    python benchmarks/step.py            # about 40 minutes on one core
    python benchmarks/step.py --quick    # at most 10 minutes: smaller batches
    python benchmarks/step.py --smoke    # seconds: does it run? its figures mean nothing

Before anything is timed, losses and gradients are compared in float64, so that a fast wrong variant fails. All variants
run interleaved in one process, from the first to the last and back, after two warm-ups; ratios are taken within a
repeat, and the median is shown with its 95% interval. One variant stands there twice: what the machine's
noise alone does. Memory is measured in a run of its own: weights, the optimiser's state, and all that the step holds.
Pictures are noise; the arithmetic of a step does not depend on what it sees. Where there is a GPU, it is measured too.

Rows go into build/measured. With --record, they replace those of the same name in benchmarks/latest.json.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import torch
import typer
from rich.console import Console
from torch import Tensor, distributed, multiprocessing
from torch.utils.flop_counter import FlopCounterMode

from levelhead.attention import DebiasConfig, QueryKeyStandardizer, attach, readout_only
from levelhead.attention.aligning import Tap
from levelhead.attention.block import BlockAttention
from levelhead.attention.standardize import RunningMoments
from levelhead.models.networks import ScratchViT

CPU = torch.device("cpu")
Rows = list[dict[str, Any]]
Variant = Callable[[], Any]


@dataclass(frozen=True)
class Sizes:
    """What is measured: ``step`` is (batch, tokens, width, heads) of the ViT, ``texts`` of the attention module."""

    step: tuple[int, int, int, int] = (256, 17, 768, 8)
    layers: int = 8
    texts: tuple[int, int, int, int] = (64, 128, 768, 12)
    repeats: int = 21
    name: str = ""


FULL = Sizes()
QUICK = Sizes(step=(64, 17, 768, 8), texts=(16, 128, 768, 12), repeats=11, name="quick")
SMOKE = Sizes(step=(16, 17, 192, 4), layers=2, texts=(4, 32, 192, 4), repeats=2, name="smoke")


@dataclass
class Bench:
    """Where a script measures, and what it has found."""

    sizes: Sizes
    device: torch.device
    note: Callable[[str], None]
    rows: Rows = field(default_factory=list)

    def add(self, name: str, ratios: list[float], target: float | None = None, better: str = "lower") -> None:
        """Keep a row; its name says where and at which size it was measured, so that others stay beside it."""
        place = "GPU" if self.device.type == "cuda" else "CPU"
        where = ", ".join(part for part in (place, self.sizes.name) if part)
        self.rows.append(measure.row(f"{name} ({where})", ratios, target, better, device=self.device))


def vit(sizes: Sizes) -> Any:
    """Build the plain network, with weights that are the same each time."""
    _, tokens, width, heads = sizes.step
    side = int((tokens - 1) ** 0.5)
    torch.manual_seed(0)
    return ScratchViT(hidden_size=width, layers=sizes.layers, heads=heads, image_size=16 * side, patch_size=16).build(
        ("no", "yes")
    )


def networks(sizes: Sizes) -> dict[str, Any]:
    """Build what is compared; all from the same weights."""
    found = {
        "ERM": vit(sizes),
        "ERM, one row": readout_only(vit(sizes), True),
        "DAM": attach(vit(sizes), DebiasConfig(readout_only=False)),
        "DAM, one row": attach(vit(sizes), DebiasConfig(readout_only=True)),
    }
    found["DAM, one row"].alignment_head.load_state_dict(found["DAM"].alignment_head.state_dict())
    return found


def pictures(sizes: Sizes, batch: int) -> dict[str, Tensor]:
    """Noise pictures with labels of two classes."""
    side = 16 * int((sizes.step[1] - 1) ** 0.5)
    generator = torch.Generator().manual_seed(0)
    return {"pixel_values": torch.randn(batch, 3, side, side, generator=generator), "labels": torch.arange(batch) % 2}


def check_equal(sizes: Sizes) -> None:
    """Compare losses and gradients of one row and all rows in float64; raise where they differ."""
    small = Sizes(step=(8, *sizes.step[1:]), layers=1)
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in pictures(small, 8).items()}
    found = {}
    for name, network in networks(small).items():
        network.double().train()(**inputs).loss.backward()
        found[name] = {path: parameter.grad for path, parameter in network.named_parameters()}
    for name in ("ERM", "DAM"):
        for path, gradient in found[name].items():
            other = found[f"{name}, one row"][path]
            if (gradient is None) != (other is None) or (
                gradient is not None and not torch.allclose(gradient, other, rtol=1e-9, atol=1e-11)
            ):
                raise SystemExit(f"One row and all rows of {name} do not have the same gradient of {path}.")
    x = torch.randn(4, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    standardizer = QueryKeyStandardizer(2, 2, length=3)
    torch.autograd.gradcheck(lambda x: standardizer(x, x)[0], x)


def trained(network: Any, optimizer: torch.optim.Optimizer, inputs: dict[str, Tensor]) -> None:
    """Take a whole training step: forward, loss, backward, AdamW."""
    optimizer.zero_grad()
    network(**inputs).loss.backward()
    optimizer.step()


def step(bench: Bench) -> None:
    """Time of a whole training step, all variants in turns."""
    batch, tokens, width, _ = bench.sizes.step
    inputs = {name: x.to(bench.device) for name, x in pictures(bench.sizes, batch).items()}
    variants: dict[str, Variant] = {}
    for name, network in networks(bench.sizes).items():
        network.to(bench.device).train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
        variants[name] = functools.partial(trained, network, optimizer, inputs)
    variants["ERM again"] = variants["ERM"]
    times = measure.interleaved(variants, bench.sizes.repeats, bench.device, bench.note)
    what = f"ViT {bench.sizes.layers}x{width}, {batch}x{tokens}"
    bench.add(f"step, {what}: ERM again / ERM", measure.paired(times, "ERM again", "ERM"))
    for above, below, target in (
        ("DAM", "ERM", 1.02),
        ("DAM, one row", "ERM", 0.93),
        ("DAM, one row", "ERM, one row", 1.02),
        ("ERM, one row", "ERM", None),
    ):
        bench.add(f"step, {what}: {above} / {below}", measure.paired(times, above, below), target)


def step_memory(bench: Bench) -> None:
    """Peak memory of a whole training step, one network at a time."""
    batch, tokens, width, _ = bench.sizes.step
    inputs = {name: x.to(bench.device) for name, x in pictures(bench.sizes, batch).items()}
    peaks = {}
    for name, network in networks(bench.sizes).items():
        network.to(bench.device).train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
        train = functools.partial(trained, network, optimizer, inputs)
        train()  # from here on the optimiser has its state
        optimizer.zero_grad()
        peaks[name] = measure.peak_memory(train, bench.device, measure.resident_bytes(network, optimizer))
        network.cpu()
    what = f"ViT {bench.sizes.layers}x{width}, {batch}x{tokens}"
    for above, below, target in (("DAM", "ERM", 1.015), ("DAM, one row", "ERM", 1.0), ("ERM, one row", "ERM", None)):
        bench.add(f"peak memory, {what}: {above} / {below}", [peaks[above] / peaks[below]], target)


def operations(bench: Bench) -> None:
    """Floating-point operations of a step's matrix products: what no noise changes. Fused attention is not counted."""
    inputs = pictures(bench.sizes, bench.sizes.step[0])
    counts = {}
    for name, network in networks(bench.sizes).items():
        with FlopCounterMode(display=False) as counter:
            network.train()(**inputs).loss.backward()
        counts[name] = counter.get_total_flops()
    batch, tokens, width, _ = bench.sizes.step
    what = f"operations of matrix products, ViT {bench.sizes.layers}x{width}, {batch}x{tokens}"
    for above, below in (("DAM", "ERM"), ("DAM, one row", "ERM"), ("DAM, one row", "ERM, one row")):
        bench.add(f"{what}: {above} / {below}", [counts[above] / counts[below]])


def attention_module(bench: Bench) -> None:
    """Time and memory of self-attention with its projections, forward and backward, debiased by plain."""
    pictures_size, texts = bench.sizes.step, bench.sizes.texts
    _module(bench, pictures_size, "position", None, 1.08)
    _module(bench, texts, "cls_feature", None, 1.05)
    batch, tokens = texts[:2]
    lengths = torch.randint(tokens // 6, tokens + 1, (batch,), generator=torch.Generator().manual_seed(0))
    _module(bench, texts, "cls_feature", torch.arange(tokens) < lengths[:, None], 1.05)


def _module(
    bench: Bench, size: tuple[int, int, int, int], statistics: str, valid: Tensor | None, target: float
) -> None:
    batch, tokens, width, heads = size
    config = DebiasConfig(statistics=statistics, readout="first", alpha=0)  # type: ignore[arg-type]
    standardizer = config.standardizer(heads, width // heads, length=tokens)
    torch.manual_seed(0)
    plain = BlockAttention(width, heads, None, Tap("first"))
    tap = Tap(config.readout, config)
    tap.watch = lambda output, attention: None  # the layer is timed alone, which training refuses
    debiased = BlockAttention(width, heads, standardizer, tap)
    debiased.load_state_dict(plain.state_dict(), strict=False)
    hidden = torch.randn(batch, tokens, width, device=bench.device, requires_grad=True)
    row = torch.zeros(batch, dtype=torch.int64, device=bench.device)
    if valid is not None:
        valid = valid.to(bench.device)
    variants: dict[str, Variant] = {}
    for name, module in (("plain", plain), ("debiased", debiased)):
        module.to(bench.device).train()

        def run(module: Any = module) -> None:
            output = module(hidden) if valid is None else module.read_row(hidden, valid, row)
            output.sum().backward()
            module.zero_grad()
            hidden.grad = None

        variants[name] = run
    times = measure.interleaved(variants, bench.sizes.repeats, bench.device, bench.note)
    rows = "all rows" if valid is None else "one row, padded"
    what = f"attention {batch}x{tokens}x{width}, {rows}"
    bench.add(f"time, {what}: debiased / plain", measure.paired(times, "debiased", "plain"), target)
    peaks = {name: measure.peak_memory(call, bench.device) for name, call in variants.items()}
    bench.add(f"peak memory, {what}: debiased / plain", [peaks["debiased"] / peaks["plain"]], 1.2)


def standardising(bench: Bench) -> None:
    """Normalise and drop the sign, forward and backward: the kernel against the operations one by one."""
    batch, tokens, width, heads = bench.sizes.step
    modules = {"one step": QueryKeyStandardizer(heads, width // heads, length=tokens).to(bench.device)}
    modules["one by one"] = copy.deepcopy(modules["one step"])
    vars(modules["one by one"])["_in_one_step"] = lambda x, valid: False
    shape = (batch, tokens, heads, width // heads)
    query, key = (torch.randn(shape, device=bench.device).transpose(1, 2).requires_grad_() for _ in range(2))
    variants: dict[str, Variant] = {}
    for name, module in modules.items():

        def run(module: Any = module) -> None:
            clean = module(query, key)
            torch.autograd.backward(clean, clean)
            query.grad = key.grad = None

        variants[name] = run
    times = measure.interleaved(variants, bench.sizes.repeats, bench.device, bench.note)
    what = f"standardising {batch}x{tokens}x{width}"
    bench.add(f"time, {what}: one step / one by one", measure.paired(times, "one step", "one by one"), 1.0)
    peaks = {name: measure.peak_memory(call, bench.device) for name, call in variants.items()}
    bench.add(f"peak memory, {what}: one step / one by one", [peaks["one step"] / peaks["one by one"]], 1.0)


def moments(bench: Bench) -> None:
    """Running moments after one batch on two processes, against those of one: the largest relative difference."""
    with tempfile.TemporaryDirectory() as folder:
        # Forked, while no thread runs and no GPU is in use: starting anew would import everything twice more.
        multiprocessing.start_processes(_moments_of_half, (folder,), nprocs=2, start_method="fork")
        found = torch.load(Path(folder) / "moments.pt")
    expected = _moments(_far_from_zero())
    worst = max(((a - b).abs() / b.abs()).max().item() for a, b in zip(found, expected, strict=True))
    bench.add("moments, 2 processes against 1: relative difference", [worst], 1e-5)


def _far_from_zero() -> Tensor:
    return torch.randn(64, 4, 17, 8, generator=torch.Generator().manual_seed(0)) + 10


def _moments(x: Tensor) -> list[Tensor]:
    standardizer = QueryKeyStandardizer(4, 8, length=17)
    standardizer(x, x)
    standardizer.commit()
    return [moment for child in standardizer.children() if isinstance(child, RunningMoments) for moment in (
        child.mean, child.get_buffer("variance")
    )]  # fmt: skip


def _moments_of_half(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = _moments(_far_from_zero().split([40, 24])[rank])
    if rank == 0:
        torch.save(found, Path(folder) / "moments.pt")
    distributed.destroy_process_group()


def main(quick: bool = False, smoke: bool = False, record: bool = False) -> None:
    """Measure, print, and write rows: with ``quick`` of smaller batches in 11 repeats, with ``smoke`` in seconds."""
    measure.with_environment()
    torch.set_num_threads(1)
    sizes = SMOKE if smoke else QUICK if quick else FULL
    rows: Rows = []
    silent = Bench(sizes, CPU, lambda text: None, rows)
    moments(silent)
    operations(silent)
    check_equal(sizes)
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    with Console(stderr=True).status("Comparing in float64") as status:
        for device in map(torch.device, devices):
            bench = Bench(sizes, device, status.update, rows)
            for part in (step, step_memory, attention_module, standardising):
                part(bench)
    measure.show(rows, "Ratios measured side by side")
    measure.merge(measure.destination(measure.LATEST, record), rows)


if __name__ == "__main__":
    typer.run(main)
