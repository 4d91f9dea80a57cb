"""Turn a debiased text classifier into one ONNX file with free batch and length, and run it with onnxruntime.

pip install "levelhead[onnx]"
python examples/export_onnx.py [--model FOLDER] [--out model.onnx]

Without --model, a small network with random weights stands for one that you have trained and saved. A few seconds.
"""

import argparse
from pathlib import Path

import onnxruntime
import torch
from transformers import BertConfig, BertForSequenceClassification

import levelhead as lh

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="a folder that save_pretrained wrote")
parser.add_argument("--out", type=Path, default=Path("model.onnx"))
options = parser.parse_args()


def texts(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Random tokens; the first text is padded."""
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[0, max(2, length // 2) :] = 0
    return {"input_ids": torch.randint(1, 100, (rows, length)) * mask, "attention_mask": mask}


def small() -> torch.nn.Module:
    """One step of training gives it statistics, without which a debiased model cannot be evaluated."""
    config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    model = lh.attach(BertForSequenceClassification(config)).train()
    model(**texts(16, 12), labels=torch.arange(16) % 2)
    return model


class Logits(torch.nn.Module):
    """Two tensors in, one out: ONNX knows no output classes of transformers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Classify (rows, length) tokens."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


torch.manual_seed(0)
model = (lh.from_pretrained(options.model) if options.model else small()).eval()
longest = min(512, getattr(getattr(model, "backbone", model).config, "max_position_embeddings", 512))
free = {0: torch.export.Dim("rows", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=longest)}
with torch.no_grad():
    program = torch.onnx.export(
        Logits(model).eval(),
        kwargs=texts(4, 12),  # without a mask here, the file would never take one
        dynamo=True,
        dynamic_shapes={"input_ids": free, "attention_mask": free},
        output_names=["logits"],
    )
program.save(options.out)

serve, worst = onnxruntime.InferenceSession(options.out, providers=["CPUExecutionProvider"]), 0.0
for batch in (texts(1, 5), texts(7, min(40, longest)), texts(32, 12)):
    (logits,) = serve.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
    expected = model(**batch).logits.detach()
    worst = max(worst, float(((torch.from_numpy(logits) - expected).abs() / expected.abs().max()).max()))
print(f"{options.out}: largest difference {worst:.1e} of the largest logit")
