"""A debiased model becomes an ONNX file with free batch and length, and answers the same."""

import logging
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from test_export import of_other_sizes, trained
from tiny_models import batch

from levelhead.attention.aligning import debiased_attention

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = "needs the extra: pip install 'levelhead[onnx]'"
onnx = pytest.importorskip("onnx", reason=NEEDED)
pytest.importorskip("onnxscript", reason=NEEDED)
onnxruntime = pytest.importorskip("onnxruntime", reason=NEEDED)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # warnings of the exporter's own code


@pytest.fixture(autouse=True)
def without_trace(monkeypatch):
    """Keep pytest from formatting every line of torch's own trace."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)


class Logits(torch.nn.Module):
    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def answers(file, inputs):
    serve = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (logits,) = serve.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return torch.from_numpy(logits)


TEXTS = [pytest.param(kind, "bert", marks=pytest.mark.long) for kind in ("attach", "append")]


@pytest.mark.parametrize(("kind", "name"), [("attach", "vit"), *TEXTS])
def test_an_onnx_file_gives_the_same_logits(kind, name, tmp_path):
    model, inputs, file = trained(kind, name), batch(name), tmp_path / "model.onnx"
    with torch.no_grad():
        model.classifier.weight.mul_(50)  # logits of about one, so that a difference would show
    free = {0: torch.export.Dim("rows", min=1, max=1024), 1: torch.export.Dim("length", min=2, max=16)}
    shapes = [{0: free[0]} if tensor.ndim == 4 else free for tensor in inputs.values()]
    with torch.no_grad():
        program = torch.onnx.export(
            Logits(model, list(inputs)).eval(),
            tuple(inputs.values()),
            dynamo=True,
            dynamic_shapes={"inputs": tuple(shapes)},
            input_names=list(inputs),
            verbose=False,
        )
    program.save(file)
    onnx.checker.check_model(str(file))
    for other in of_other_sizes(name):
        expected = model(**other).logits
        assert expected.abs().max() > 0.05
        torch.testing.assert_close(answers(file, other), expected, atol=1e-5, rtol=1e-5)
    # Else equal logits would prove nothing: other statistics give other logits.
    with torch.no_grad():
        mean = debiased_attention(model).debias.key.mean
        mean.add_(torch.linspace(-3, 3, mean.numel()).view_as(mean))
        assert (answers(file, other) - model(**other).logits).abs().max() > 1e-4


@pytest.mark.long
def test_the_example_runs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["export_onnx.py", "--out", str(tmp_path / "model.onnx")])
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / "export_onnx.py"), run_name="__main__")
    found = re.search(r"largest difference ([0-9.e+-]+) of the largest logit", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) < 1e-4
