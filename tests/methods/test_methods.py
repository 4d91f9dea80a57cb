"""Every method on every kind of input, and numbers of single methods, worked by hand."""

import dataclasses

import pytest
import torch
from labs import lab_of, missing

from levelhead.attention.attach import is_debiased
from levelhead.methods import DAM, DRO, DSA, JTT, METHODS, XRM, Balanced, CnC, PoE, TADeT
from levelhead.methods.fit import fit
from levelhead.types import ConfigError
from tiny import make_examples, make_texts, slow_but, tiny_appended, tiny_bert, tiny_vit, told_groups

INPUTS = {
    "pictures": (make_examples, tiny_vit, 3e-3),
    "texts": (make_texts, tiny_bert, 1e-2),
    "texts on a frozen backbone": (make_texts, tiny_appended, 1e-2),
}
# Options that make a method cheap, or content with few rows of a group.
CHEAP = {"upweight": 3, "teacher_layers": 2, "attack_steps": 2, "rows": 20, "smallest_group": 2, "fewest_people": 20}
EASY = {"single_part": "keep"}  # these inputs hold nothing that contradicts the rest


def cheap(cls):
    """Make a method, with cheap options, and those for easy inputs, where it has them."""
    fields = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in (CHEAP | EASY).items() if name in fields})


EVERY = {name: cheap(cls) for name, cls in METHODS.items()} | {
    "dam+jtt": DAM(base=cheap(JTT)),
    "dam+dro": DAM(base=DRO()),
    "dam+tadet": DAM(base=TADeT()),
    "dam+poe": DAM(base=PoE()),
    "dam+dsa": DAM(base=cheap(DSA)),
    "dam+xrm": DAM(base=cheap(XRM)),
    "dam+cnc": DAM(base=CnC()),
}


@pytest.mark.parametrize("inputs", slow_but(["texts"], INPUTS, pytest.mark.long))
@pytest.mark.parametrize("name", EVERY)
def test_every_method_learns_from_every_kind_of_input(name, inputs):
    method = EVERY[name]
    make, network, rate = INPUTS[inputs]
    lab = lab_of(make(50), make(20, seed=1), network, epochs=8, learning_rate=rate, told=told_groups(method))
    if method.changes_pixels and inputs != "pictures":
        with pytest.raises(ConfigError, match="changes pixels, and the network gets input_ids"):
            fit(method, lab)
        assert lab.steps == 0
        return
    model = fit(method, lab)
    assert (lab.logits(model).argmax(-1) == lab.labels).double().mean() >= 0.8
    assert is_debiased(model) == name.startswith("dam")


def test_balanced_weights_make_every_class_count_the_same():
    examples = make_examples(48)
    examples.labels[:] = torch.tensor([0] * 36 + [1] * 12)
    lab = lab_of(examples)
    (stage,) = Balanced().stages(lab)
    assert torch.allclose(stage.weights.unique(), torch.tensor([2 / 3, 2.0]))
    assert torch.isclose(stage.weights[:36].sum(), stage.weights[36:].sum())


def second_stage_of_jtt(missed, monkeypatch, **options):
    """Return JTT's second stage when the first training missed these of 20 rows."""
    lab = missing(lab_of(make_examples(20), batch_size=4), missed, monkeypatch)
    return list(JTT(**options).stages(lab))[1]


@pytest.mark.parametrize("repeat", ["append", "weights"])
def test_jtt_that_missed_nothing_is_plain_erm_and_says_so(repeat, monkeypatch, caplog):
    stage = second_stage_of_jtt([], monkeypatch, repeat=repeat)
    assert stage.weights is None or (stage.weights == 1).all()
    assert stage.rows is None or stage.rows.tolist() == list(range(20))
    assert "made no errors" in caplog.text


@pytest.mark.parametrize(
    ("repeat", "upweight", "heavy"), [("append", 3, False), ("append", 4, True), ("weights", 5, True)]
)
def test_jtt_says_when_what_was_missed_weighs_more_than_the_rest(repeat, upweight, heavy, monkeypatch, caplog):
    stage = second_stage_of_jtt([1, 2, 5, 7], monkeypatch, repeat=repeat, upweight=upweight)
    if repeat == "append":
        assert torch.bincount(stage.rows)[[0, 1, 7]].tolist() == [1, upweight + 1, upweight + 1]
    else:
        assert stage.weights[[0, 1, 7]].tolist() == [1, upweight, upweight]
    assert ("missed 20% of the rows, which now outweigh" in caplog.text) == heavy
