"""Padding on either side of a text, and what it holds, change nothing that is computed from its real tokens."""

import pytest
import torch
from tiny_models import LABELS, TEXTS, make, named

from levelhead.attention.aligning import debiased_attention
from levelhead.attention.probe import layer_of

CASES = [
    pytest.param(family, kind, left, id=f"{family}-{kind}-{'left' if left else 'right'}")
    for family in TEXTS
    for kind in ("attach", "append")
    for left in (False, True)
    # These classifiers read row 0 to the letter, padding or not: see the last test.
    if not (left and kind == "attach" and family.readout == "first")
]


@pytest.mark.parametrize(("family", "kind", "left"), CASES)
def test_padding_changes_nothing(family, kind, left):
    inputs = family.batch()
    results = []
    padded = family.padded(inputs, left)
    dirty = {**padded, "input_ids": padded["input_ids"] + 9 * (1 - padded["attention_mask"])}
    # RoBERTa and the classifiers of decoders look for the token itself.
    looks = not family.positions or (kind == "attach" and family.readout == "last")
    for variant in (inputs, padded, *([] if looks else [dirty])):
        model = make(kind, family).train()
        trained = model(**variant, labels=LABELS)
        trained.loss.backward()
        attention = debiased_attention(model)
        gradients = [parameter.grad for parameter in model.alignment_head.parameters()]
        evaluated = model.eval()(**variant, labels=LABELS)
        results.append(
            (trained.loss, trained.logits, gradients, attention.debias.state_dict(), evaluated.loss, evaluated.logits)
        )
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
def test_attached_encoders_debias_the_row_that_their_classifier_reads(name):
    """With padding on the left, that row is padding. It is so without levelhead, and attach must not hide it."""
    family = named(name)
    inputs = family.padded(family.batch(), left=True)
    plain = family.classify().eval()
    assert not torch.allclose(plain(**inputs).logits, plain(**family.batch()).logits, atol=1e-3)
    model = make("attach", family).train()
    model(**inputs)
    assert torch.equal(debiased_attention(model).tap.reading.readout, torch.zeros(6, dtype=torch.int64))
    model.eval()
    clean = model(**inputs).logits

    def disturb(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        noise = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))
        noise[:, 0] = 0
        return (hidden + noise, *output[1:]) if isinstance(output, tuple) else hidden + noise

    layer_of(model, model.config.levelhead["attention"]).register_forward_hook(disturb)
    # A hooked layer computes all rows, in another order of sums than one row alone.
    torch.testing.assert_close(model(**inputs).logits, clean, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "modernbert-mean"])
def test_why_rotary_families_need_positions_under_left_padding(name):
    """A plain rotary model does not mind where positions start; the mean of rotated keys does."""
    family = named(name)
    inputs = family.batch()
    shifted = family.padded(inputs, left=True)
    del shifted["position_ids"]
    plain = family.classify().eval()
    torch.testing.assert_close(plain(**shifted).logits, plain(**inputs).logits, atol=1e-5, rtol=1e-4)
    model = make("attach", family).train()
    model(**inputs, labels=LABELS)
    model.eval()
    assert not torch.allclose(model(**shifted).logits, model(**inputs).logits, atol=1e-4)
