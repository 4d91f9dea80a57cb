"""Further families, more briefly: what the probe finds, and one training step."""

import contextlib

import pytest
import torch
import transformers
from tiny_models import LABELS, SMALL, TEXT

import levelhead as lh

WORDS = {**SMALL, **TEXT, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**WORDS, "num_key_value_heads": 1, "head_dim": 8}
PICTURE = {**SMALL, "image_size": 8, "patch_size": 4}
# Name of the classes, options, readout row, and whether positions are rotary.
TABLE = [
    ("XLMRoberta", WORDS, "first", False),
    ("Electra", {**WORDS, "embedding_size": 16}, "first", False),
    ("NomicBert", WORDS, "first", True),
    ("EuroBert", GROUPED, "none", True),
    ("Mistral", GROUPED, "last", True),
    ("Qwen2", GROUPED, "last", True),
    ("Qwen3", GROUPED, "last", True),
    ("Gemma", GROUPED, "last", True),
    ("GPTNeoX", WORDS, "last", True),
    ("OPT", {**WORDS, "ffn_dim": 16, "word_embed_proj_dim": 16}, "last", False),
    ("ViTMSN", PICTURE, "first", False),
    ("Dinov2WithRegisters", PICTURE, "none", False),
    ("Beit", PICTURE, "none", False),
]


@pytest.mark.parametrize("kind", ["attach", "append"])
@pytest.mark.parametrize(("name", "options", "readout", "rotary"), TABLE, ids=[row[0] for row in TABLE])
def test_further_families(name, options, readout, rotary, kind):
    image = "image_size" in options
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this version of transformers has no {name}")
    config = getattr(transformers, f"{name}Config")(**options, num_labels=3)
    if kind == "attach":
        classifier = getattr(transformers, f"{name}For{'Image' if image else 'Sequence'}Classification")
        with pytest.warns(UserWarning, match="rotary") if rotary else contextlib.nullcontext():
            model = lh.attach(classifier(config))
        assert model.config.levelhead["debias"]["readout"] == readout
    else:
        model = lh.append_encoder(getattr(transformers, f"{name}Model")(config), 3)
        assert model.config.levelhead["readout"] == ("last" if readout == "last" else "first")
    inputs = {"pixel_values": torch.randn(6, 3, 8, 8)} if image else {"input_ids": torch.randint(3, 50, (6, 7))}
    model.train()(**inputs, labels=LABELS).loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert model.alignment_head.output.weight.grad.abs().sum() > 0
