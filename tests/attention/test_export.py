"""A trained model becomes one graph: torch.export with free batch size and length, and torch.compile without breaks."""

import copy
import logging
import shutil
import warnings

import pytest
import torch
from tiny_models import LABELS, batch, build, make
from tiny_models import trained as with_statistics

from levelhead.attention import attach, from_pretrained, readout_only
from levelhead.attention.aligning import debiased_attention

EXACT = {"atol": 1e-6, "rtol": 1e-6}
ONE = {"num_hidden_layers": 1}  # the one that is debiased; tracing costs seconds a layer
CPP = pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="inductor needs C++")


@pytest.fixture(autouse=True)
def without_trace(monkeypatch):
    """Keep pytest from formatting every line of torch's own trace."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)


def trained(kind, family):
    """A network of one layer; plain, it computes one row, too."""
    if kind == "plain":
        return readout_only(build(family, **ONE), True).eval()
    return with_statistics(make(kind, family, **ONE), batch(family))


def shapes_of(inputs):
    """Free the batch size, and the length of texts."""
    rows = torch.export.Dim("rows", min=1, max=1024)
    length = torch.export.Dim("length", min=2, max=16)
    return {name: {0: rows} if tensor.ndim == 4 else {0: rows, 1: length} for name, tensor in inputs.items()}


def of_other_sizes(family):
    """Yield more rows, fewer, one alone, and shorter texts."""
    inputs, more = batch(family, 2), batch(family, 3)
    yield {name: torch.cat([inputs[name], more[name]]) for name in inputs}
    yield {name: tensor[:1] for name, tensor in inputs.items()}
    yield {name: tensor[:4] if family == "vit" else tensor[:4, :5].contiguous() for name, tensor in inputs.items()}


@pytest.mark.parametrize(("kind", "family"), [("attach", "vit"), ("append", "bert")])
@pytest.mark.slow
def test_an_exported_model_gives_the_same_logits(kind, family, tmp_path):
    trained(kind, family).save_pretrained(tmp_path)
    # Loaded, so that it has not run before: its first pass is the one that is exported.
    model = from_pretrained(tmp_path)
    with torch.no_grad():
        exported = torch.export.export(model, args=(), kwargs=batch(family), dynamic_shapes=shapes_of(batch(family)))
        if kind == "attach":  # its one layer computes one row, without the attention of many
            assert "scaled_dot_product_attention" not in exported.graph_module.code
        torch.export.save(exported, tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2")
        for inputs in of_other_sizes(family):
            expected = model(**inputs).logits
            torch.testing.assert_close(exported.module()(**inputs).logits, expected, **EXACT)
            torch.testing.assert_close(loaded.module()(**inputs).logits, expected, **EXACT)
        # Else equal logits would prove nothing: the statistics are in the graph, and they matter.
        (mean,) = (tensor for name, tensor in loaded.state_dict.items() if name.endswith("debias.key.mean"))
        mean.add_(torch.linspace(-3, 3, mean.numel()).view_as(mean))
        assert (loaded.module()(**inputs).logits - expected).abs().max() > 1e-5


@pytest.mark.slow
def test_decoders_are_exported_without_their_cache():
    """transformers returns a cache object from an attached decoder, which torch.export cannot describe."""
    model = with_statistics(make("attach", "gpt2", n_layer=1), batch("gpt2"))
    model.config.use_cache = False
    with torch.no_grad():
        exported = torch.export.export(model, args=(), kwargs=batch("gpt2"), dynamic_shapes=shapes_of(batch("gpt2")))
        for inputs in of_other_sizes("gpt2"):
            torch.testing.assert_close(exported.module()(**inputs).logits, model(**inputs).logits, **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "family", "backend"),
    [
        ("attach", "bert", "eager"),
        ("append", "vit", "eager"),
        ("plain", "bert", "eager"),
        pytest.param("attach", "vit", "inductor", marks=CPP),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.long
def test_a_compiled_model_has_no_graph_breaks(kind, family, backend):
    model = trained(kind, family)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)  # a break would be an error
    first, _, last = of_other_sizes(family)
    close = EXACT if backend == "eager" else {"atol": 1e-5, "rtol": 1e-5}
    with torch.no_grad():
        for inputs in (first, last):
            torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits, **close)


def test_the_warning_of_an_untrained_model_stays(family, monkeypatch):
    """Compiling leaves the question out, and does not take it for answered."""
    model = attach(build(family)).eval()
    with torch.no_grad():
        with warnings.catch_warnings(), monkeypatch.context() as compiling:
            warnings.simplefilter("error")
            compiling.setattr(torch.compiler, "is_compiling", lambda: True)
            debias = debiased_attention(model).debias
            debias(torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 5, 8), None, torch.zeros(1, dtype=torch.int64))
        with pytest.warns(UserWarning, match="before any training step"):
            model(**batch(family))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "family"), [("attach", "vit"), ("append", "bert")])
@pytest.mark.long
def test_compiled_training_has_no_graph_breaks_and_takes_the_same_steps(kind, family):
    # Two layers: before the first, the query of row 0 is the same for every picture, and which tokens align is chance.
    model = with_statistics(make(kind, family), batch(family)).train()
    other = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(other, fullgraph=True, backend="eager")  # a break would be an error
    for forward, network in ((model, model), (compiled, other)):
        optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
        for seed in (2, 3):
            optimizer.zero_grad()
            forward(**batch(family, seed), labels=LABELS).loss.backward()
            optimizer.step()
    after, expected = other.state_dict(), model.state_dict()
    assert after.keys() == expected.keys()
    for part, tensor in expected.items():  # weights and running statistics
        torch.testing.assert_close(
            after[part], tensor, atol=1e-5, rtol=1e-5, msg=lambda text, part=part: f"{part}: {text}"
        )
    assert any(part.endswith("debias.key.mean") for part in expected)
