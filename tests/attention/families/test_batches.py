"""In evaluation a text's logits do not depend on the texts that share its batch, nor on its padding."""

import functools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TEXTS, batch, fit, make, named

# The same sums in another order: a few units in the last place of float32 on logits of about 0.1.
CLOSE = {"atol": 2e-6, "rtol": 1e-4}
COUNT = 10

CASES = [
    pytest.param(family.name, kind, left, id=f"{family}-{kind}-{'left' if left else 'right'}")
    for family in TEXTS
    for kind in ("attach", "append")
    for left in (False, True)
    # These classifiers read row 0 to the letter, padding or not (see test_padding).
    if not (left and kind == "attach" and family.readout == "first")
]


@functools.cache
def trained(name, kind):
    """A model whose statistics and weights have moved."""
    model = make(kind, name)
    fit(model, (batch(name, seed) for seed in range(3)))
    return model.eval()


@functools.cache
def texts():
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(3, 50, (3 + position % 5,), generator=generator) for position in range(COUNT)]


@functools.cache
def alone(name, kind):
    """The logits (texts, 3) of each text in a batch of its own, without padding."""
    model = trained(name, kind)
    with torch.no_grad():
        return torch.cat(
            [model(input_ids=text[None], attention_mask=torch.ones(1, len(text)).long()).logits for text in texts()]
        )


def together(family, rows, left, extra):
    """Pad texts to the longest of them and ``extra`` tokens more."""
    width = max(len(texts()[row]) for row in rows)
    ids, mask = torch.zeros(len(rows), width).long(), torch.zeros(len(rows), width).long()
    for place, row in enumerate(rows):
        ids[place, : len(texts()[row])], mask[place, : len(texts()[row])] = texts()[row], 1
    return family.padded({"input_ids": ids, "attention_mask": mask}, left, extra)


@pytest.mark.parametrize(("name", "kind", "left"), CASES)
def test_any_split_into_batches_gives_the_same_logits(name, kind, left):
    expected = alone(name, kind)
    assert expected.std(dim=0).max() > 1e-3, "the texts are distinguished, so that a mix-up would be seen"

    @settings(max_examples=8, deadline=None, derandomize=True, database=None)
    @given(seed=st.integers(0, 2**16), extra=st.integers(0, 4))
    def check(seed, extra):
        chance = random.Random(seed)
        order = chance.sample(range(COUNT), COUNT)
        cuts = sorted(chance.sample(range(1, COUNT), chance.randint(0, COUNT - 1)))
        for begin, end in zip([0, *cuts], [*cuts, COUNT], strict=True):
            rows = order[begin:end]
            with torch.no_grad():
                logits = trained(name, kind)(**together(named(name), rows, left, extra)).logits
            torch.testing.assert_close(logits, expected[rows], **CLOSE)

    check()
