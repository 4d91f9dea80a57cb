"""Latency of a debiased classifier beside the plain one, with onnxruntime and torch (a few minutes, one thread).

    pip install "levelhead[onnx]"
    python benchmarks/onnx_latency.py

BERT with six layers of width 384 (the size of MiniLM), random weights, drawn token ids; no outside data. Each variant
answers the same batch, in turns within one run; a ratio is that of neighbours, shown as median with its 95% interval.
First the answers of torch and onnxruntime are compared; a file that answers otherwise is not measured. "plain" computes
all rows of its last layer, as transformers does, "plain, one row" the row that is read alone, as the debiased one does.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import measure
import onnxruntime
import torch
from rich.console import Console
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import levelhead as lh

CPU = torch.device("cpu")
SHAPES = ((1, 64), (32, 64))
SIZE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


class Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits


def batch(rows: int, length: int) -> dict[str, Tensor]:
    mask = (torch.arange(length) < torch.randint(length // 2, length + 1, (rows, 1))).long()
    mask[0] = 1
    return {"input_ids": torch.randint(1, 2000, (rows, length)) * mask, "attention_mask": mask}


def networks() -> dict[str, Any]:
    torch.manual_seed(0)
    plain = BertForSequenceClassification(BertConfig(vocab_size=2000, **SIZE))
    debiased = lh.attach(copy.deepcopy(plain)).train()
    debiased(**batch(32, 64), labels=torch.arange(32) % 2)  # statistics
    return {
        "plain": plain.eval(),
        "plain, one row": lh.readout_only(copy.deepcopy(plain), True).eval(),
        "debiased": debiased.eval(),
    }


def served(model: Any, file: Path) -> onnxruntime.InferenceSession:
    free = {0: torch.export.Dim("rows", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=512)}
    shapes = {"input_ids": free, "attention_mask": free}
    network = Logits(model).eval()
    torch.onnx.export(network, kwargs=batch(4, 12), dynamo=True, dynamic_shapes=shapes, verbose=False).save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def check(model: Any, session: onnxruntime.InferenceSession, inputs: Mapping[str, Tensor]) -> None:
    (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    expected = model(**inputs).logits
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-4)


def variants(
    models: Mapping[str, Any], sessions: Mapping[str, onnxruntime.InferenceSession], shape: tuple[int, int], times: int
) -> dict[str, Callable[[], Any]]:
    inputs = batch(*shape)
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    calls: dict[str, Callable[[], Any]] = {}
    for name, model in models.items():
        check(model, sessions[name], inputs)
        calls[f"ONNX {name}"] = lambda one=sessions[name]: [one.run(None, arrays) for _ in range(times)]
        calls[f"torch {name}"] = lambda one=model: [one(**inputs) for _ in range(times)]
    calls["ONNX plain again"] = lambda: [sessions["plain"].run(None, arrays) for _ in range(times)]
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=21)
    measure.destinations(parser, json=measure.LATEST)
    arguments = parser.parse_args()
    measure.with_environment()
    torch.set_num_threads(1)
    console, rows = Console(stderr=True), []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        models = networks()
        sessions = {name: served(model, Path(folder) / f"{at}.onnx") for at, (name, model) in enumerate(models.items())}
        for shape in SHAPES:
            calls = variants(models, sessions, shape, times=max(1, 8 // shape[0]))
            with console.status("") as status:
                times = measure.interleaved(calls, arguments.repeats, CPU, status.update)
            size = "x".join(map(str, shape))
            for above, below in (
                ("ONNX plain again", "ONNX plain"),
                ("ONNX debiased", "ONNX plain"),
                ("ONNX debiased", "ONNX plain, one row"),
                ("torch debiased", "torch plain, one row"),
                ("ONNX debiased", "torch debiased"),
            ):
                ratios = measure.paired(times, above, below)
                rows.append(measure.row(f"latency, BERT 6x384, {size}: {above} / {below} (CPU)", ratios, device=CPU))
    measure.show(rows, "Latency of one batch, one thread")
    measure.merge(arguments.json, rows)


if __name__ == "__main__":
    main()
