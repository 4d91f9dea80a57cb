"""Every method on every kind of input, and numbers of single methods, worked by hand."""

from typing import Any

import pytest
import torch
from labs import lab_of, missing

from kinds import KINDS
from levelhead.attention.attach import is_debiased
from levelhead.methods import METHODS
from levelhead.methods.balanced import Balanced
from levelhead.methods.fit import fit
from levelhead.methods.jtt import JTT
from levelhead.types import ConfigError
from tiny import make_examples, make_texts, tiny_appended, tiny_bert, tiny_vit, told_groups

# What makes the inputs, the network for them, its learning rate, the epochs, and the accuracy to reach.
INPUTS: dict[str, Any] = {
    "pictures": (make_examples, tiny_vit, 3e-3, 15, 0.95),
    "texts": (make_texts, tiny_bert, 1e-2, 8, 0.8),
    "texts on a frozen backbone": (make_texts, tiny_appended, 1e-2, 8, 0.8),
}
PLAIN = [name for name in KINDS if name in METHODS or name.startswith("dam+")]
CASES = [
    pytest.param(name, inputs, marks=[] if inputs == "texts" else [pytest.mark.slow, pytest.mark.long])
    for inputs in INPUTS
    for name in (KINDS if inputs == "pictures" else PLAIN)
]


@pytest.mark.parametrize(("name", "inputs"), CASES)
def test_every_method_learns_from_every_kind_of_input(name, inputs):
    method = KINDS[name]
    make, network, rate, epochs, least = INPUTS[inputs]
    lab = lab_of(make(50), make(20, seed=1), network, epochs=epochs, learning_rate=rate, told=told_groups(method))
    if method.changes_pixels and inputs != "pictures":
        with pytest.raises(ConfigError, match="changes pixels, and the network gets input_ids"):
            fit(method, lab)
        assert lab.steps == 0
        return
    model = fit(method, lab)
    assert (lab.logits(model).argmax(-1) == lab.labels).double().mean() >= least
    assert is_debiased(model) == name.startswith(("dam", "ccl-k"))
    assert not model.training


def test_balanced_weights_make_every_class_count_the_same():
    examples = make_examples(48)
    examples.labels[:] = torch.tensor([0] * 36 + [1] * 12)
    lab = lab_of(examples)
    (stage,) = Balanced().stages(lab)
    assert torch.allclose(stage.weights.unique(), torch.tensor([2 / 3, 2.0]))
    assert torch.isclose(stage.weights[:36].sum(), stage.weights[36:].sum())


def second_stage_of_jtt(missed, **options):
    """Return JTT's second stage when the first training missed these of 20 rows."""
    lab = missing(lab_of(make_examples(20), batch_size=4), missed)
    return list(JTT(**options).stages(lab))[1]


@pytest.mark.parametrize("repeat", ["append", "weights"])
def test_jtt_that_missed_nothing_is_plain_erm_and_says_so(repeat, caplog):
    stage = second_stage_of_jtt([], repeat=repeat)
    assert stage.weights is None or (stage.weights == 1).all()
    assert stage.rows is None or stage.rows.tolist() == list(range(20))
    assert "made no errors" in caplog.text


@pytest.mark.parametrize(
    ("repeat", "upweight", "heavy"), [("append", 3, False), ("append", 4, True), ("weights", 5, True)]
)
def test_jtt_says_when_what_was_missed_weighs_more_than_the_rest(repeat, upweight, heavy, caplog):
    stage = second_stage_of_jtt([1, 2, 5, 7], repeat=repeat, upweight=upweight)
    if repeat == "append":
        assert torch.bincount(stage.rows)[[0, 1, 7]].tolist() == [1, upweight + 1, upweight + 1]
    else:
        assert stage.weights[[0, 1, 7]].tolist() == [1, upweight, upweight]
    assert ("missed 20% of the rows, which now outweigh" in caplog.text) == heavy
