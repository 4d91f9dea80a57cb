"""Measure what ``micro_batch`` saves and costs: peak memory and processor time of a step that trains a backbone.

python benchmarks/micro_batch.py                    # BERT of six layers of width 384, untrained: 64 texts of 128 tokens
python benchmarks/micro_batch.py --batch 256 --layers 24 --width 1024 --tokens 128

Each step runs in a process of its own, one thread; kinds take turns. "checkpointing" is transformers' own, by layer.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

KINDS = ("whole batch", "checkpointing", "micro_batch 16", "micro_batch 4")


def step(kind: str, batch: int, tokens: int, layers: int, width: int) -> dict[str, float]:
    """Return the peak memory in MiB beyond the model's, the processor seconds and the loss of one training step."""
    import torch
    from transformers import BertConfig, BertModel

    import levelhead as lh

    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = lh.append_encoder(BertModel(size, add_pooling_layer=False), 2, freeze=False).train()
    ids = torch.randint(5, 1000, (batch, tokens))
    labels = torch.arange(batch) % 2
    if kind == "checkpointing":
        model.backbone.gradient_checkpointing_enable()
    elif kind != "whole batch":
        model.micro_batch = int(kind.split()[1])
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
    loss.backward()
    seconds = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"mib": (after - before) / 1024, "seconds": seconds, "loss": loss.item()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batch", 64), ("tokens", 128), ("layers", 6), ("width", 384), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kind", choices=KINDS, help="one step in this process")
    options = parser.parse_args()
    if options.kind:
        print(json.dumps(step(options.kind, options.batch, options.tokens, options.layers, options.width)))
        return
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    own = [sys.executable, str(Path(__file__)), *sys.argv[1:]]
    for _ in range(options.repeats):
        for kind in KINDS:
            answer = subprocess.run([*own, "--kind", kind], check=True, capture_output=True, text=True).stdout
            found[kind].append(json.loads(answer.splitlines()[-1]))
    print(f"BERT, {options.layers} layers of width {options.width}, {options.batch} x {options.tokens} tokens a step")
    for kind, steps in found.items():
        ratios = [one["seconds"] / whole["seconds"] for one, whole in zip(steps, found["whole batch"], strict=True)]
        memory = statistics.median(one["mib"] for one in steps)
        spread = f"x {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
        print(f"{kind:15} {memory:7.0f} MiB  time {spread}  loss {steps[0]['loss']:.6f}")


if __name__ == "__main__":
    main()
