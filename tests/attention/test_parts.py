"""A backbone that runs on parts of a batch gives the same model: logits, loss, gradients and running statistics."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny_models import backbone

from levelhead.attention import DebiasConfig, append_encoder
from levelhead.attention.parts import last_hidden_state

LENGTHS = (3, 9, 5, 9, 2, 7, 4)


def batch(left: bool = False) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(9) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.randint(3, 20, mask.shape, generator=generator) * mask
    found = {"input_ids": ids, "attention_mask": mask}
    return {name: x.flip(1) for name, x in found.items()} if left else found


def appended(kind: str = "bert", debias: DebiasConfig | None = DebiasConfig()) -> Any:  # noqa: B008  (frozen)
    below = backbone(kind)
    torch.manual_seed(1)
    return append_encoder(below, 3, False, debias).double()


def assert_the_same(whole: Any, other: Any, outputs: list[Any]) -> None:
    """Logits, loss, gradients, and the statistics, which are those of one batch."""
    torch.testing.assert_close(outputs[1].logits, outputs[0].logits, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(outputs[1].loss, outputs[0].loss, rtol=1e-10, atol=1e-12)
    for output in outputs:
        output.loss.backward()
    gradients = [{n: p.grad for n, p in model.named_parameters() if p.grad is not None} for model in (whole, other)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(dict(other.named_buffers()), dict(whole.named_buffers()))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("parts", [2, 3, 50])
def test_loss_gradients_and_statistics_are_the_same(kind: str, parts: int) -> None:
    whole = appended(kind).train()
    divided = copy.deepcopy(whole)
    divided.length_parts = parts
    labels = torch.arange(len(LENGTHS)) % 3
    rows: list[int] = []
    divided.backbone.register_forward_hook(lambda _, __, output: rows.append(output.last_hidden_state[..., 0].numel()))
    outputs = [model(**batch(), labels=labels) for model in (whole, divided)]
    assert len(rows) == min(parts, len(LENGTHS))
    assert sum(rows) < len(LENGTHS) * 9  # less padding
    assert_the_same(whole, divided, outputs)


@pytest.mark.parametrize("kind", ["bert", "roberta", "padding is text", "position ids", "pictures"])
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_few_rows_at_a_time_give_the_gradients_of_the_whole_batch(kind: str, rows: int) -> None:
    inputs: dict[str, torch.Tensor] = batch()
    if kind == "pictures":
        whole = appended("vit").train()
        inputs = {"pixel_values": torch.randn(7, 3, 8, 8, dtype=torch.float64)}
    else:
        whole = appended("roberta" if kind == "roberta" else "bert").train()
    if kind == "position ids":  # one row for all
        inputs["position_ids"] = torch.arange(9)[None]
    chunked = copy.deepcopy(whole)
    for model in (whole, chunked):
        model.block.attention.tap.padding_mask = kind != "padding is text"
    chunked.micro_batch = rows
    sizes: list[int] = []
    chunked.backbone.register_forward_pre_hook(
        lambda _, __, given: sizes.append(len(given[chunked.main_input_name])), with_kwargs=True
    )
    labels = torch.arange(7) % 3
    outputs = [model(**inputs, labels=labels) for model in (whole, chunked)]
    assert sum(sizes) == 7
    assert max(sizes) <= rows
    assert_the_same(whole, chunked, outputs)
    assert sum(sizes) == (14 if rows < 7 else 7)  # every part ran once more


def test_dropout_is_the_same_in_the_second_pass() -> None:
    model = appended(debias=None).train()
    model.backbone.embeddings.dropout.p = 0.5
    model.micro_batch = 2
    seen: list[torch.Tensor] = []
    model.backbone.embeddings.dropout.register_forward_hook(lambda _, __, output: seen.append(output.detach()))
    model(**batch(), labels=torch.arange(7) % 3).loss.backward()
    assert len(seen) == 8
    for first in seen[:4]:
        assert sum(torch.equal(first, again) for again in seen[4:]) == 1


def test_a_frozen_backbone_runs_once_in_few_rows_at_a_time() -> None:
    model = appended(debias=None)
    model.backbone.requires_grad_(False)
    model.frozen, model.micro_batch = True, 3
    sizes: list[int] = []
    model.backbone.register_forward_hook(lambda _, __, output: sizes.append(len(output.last_hidden_state)))
    model.train()(**batch(), labels=torch.arange(7) % 3).loss.backward()
    assert sizes == [3, 2, 2]


def test_what_cannot_be_cut_runs_whole() -> None:
    model = appended(debias=None)
    sizes: list[tuple[int, ...]] = []
    model.backbone.register_forward_hook(lambda _, __, output: sizes.append(tuple(output.last_hidden_state.shape[:2])))
    ids, mask = batch().values()
    for inputs in (
        batch(left=True),
        {"input_ids": ids},
        {"input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(9)[None]},
    ):
        last_hidden_state(model.backbone, inputs, 3)
    assert sizes == [(7, 9)] * 3
    model.block.attention.tap.padding_mask = False  # padding is read as text
    model.length_parts = 3
    model(**batch())
    assert sizes == [(7, 9)] * 4
