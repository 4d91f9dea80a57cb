"""Places inside a classifier: nothing changes without a change, all kinds of classifiers."""

from __future__ import annotations

import pytest
import torch
from tiny_models import named, trained

import levelhead as lh
from levelhead.attention.places import NO_MOVE, PLACES, Dissection
from tiny import tiny_appended, tiny_bert, tiny_vit

MOVED = [place for place in PLACES if place != NO_MOVE]


def texts() -> dict[str, torch.Tensor]:
    ids = torch.randint(4, 40, (6, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[2, 5:], mask[3, 7:] = 0, 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def pictures() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))}


KINDS = {
    "vit": lambda: (tiny_vit(), pictures()),
    "debiased vit": lambda: (trained(lh.attach(tiny_vit()), pictures(), None), pictures()),
    "bert": lambda: (tiny_bert(), texts()),
    "debiased bert": lambda: (trained(lh.attach(tiny_bert()), texts(), None), texts()),
    "appended": lambda: (tiny_appended(), texts()),
    "two appended": lambda: (tiny_appended(2), texts()),
    "llama": lambda: (named("llama").classify(), texts()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_places_of_every_kind_of_classifier(kind):
    torch.manual_seed(0)
    model, batch = KINDS[kind]()
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        plain = model(**batch).logits
    opened = Dissection(model, batch)
    seen = opened.look(batch)
    anchor = seen.anchor
    torch.testing.assert_close(anchor.logits, plain)
    assert len(seen.layers) == len(opened.layers)
    torch.testing.assert_close(seen.layers[-1], seen.vectors["output"])
    torch.testing.assert_close(seen.attention.sum(1), torch.ones(6))
    still = {place: torch.zeros_like(seen.vectors[place]) for place in MOVED}
    torch.testing.assert_close(opened.without(batch, anchor, still), plain)
    draw = torch.Generator().manual_seed(2)
    for place in MOVED:
        size = seen.vectors[place].abs().mean()
        direction = torch.randn(seen.vectors[place].shape, generator=draw) * size
        assert not torch.equal(opened.without(batch, anchor, {place: direction}), plain)
    torch.testing.assert_close(model(**batch).logits.detach(), plain)
    assert not any("forward" in vars(layer) for layer in opened.layers)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_what_is_added_to_all_keys_never_reaches_the_softmax():
    query, key = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 7, 5)
    one, other = ((query @ (key + shift).transpose(2, 3)).softmax(-1) for shift in (0, torch.randn(2, 3, 1, 5)))
    torch.testing.assert_close(one, other)


def test_selected_values_alone_move_with_their_shift():
    torch.manual_seed(0)
    model, batch = tiny_vit().eval(), pictures()
    opened = Dissection(model, batch)
    seen = opened.look(batch)
    anchor = seen.anchor
    with torch.no_grad():
        own, all_places = seen.vectors["selected"], torch.ones_like(seen.vectors["selected"])
        both = {"selected": all_places, "other": torch.ones_like(seen.vectors["other"])}
        context = {"context": torch.ones_like(seen.vectors["context"])}
    assert own.shape == (6, 2 * 16)
    # What is taken off selected and other values alike is taken off the output of attention.
    torch.testing.assert_close(opened.without(batch, anchor, both), opened.without(batch, anchor, context))
