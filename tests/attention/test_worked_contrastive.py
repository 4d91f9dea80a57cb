"""The contrastive loss, its projector and its choice of tokens on small tensors, one number after the other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from levelhead.attention.contrastive import (
    AlignmentHead,
    rank_tokens,
    readout_logits,
    select_values,
    supervised_contrastive,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------------------ published numbers


Z = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8], [-1, 0, 0]], dtype=torch.float64)


def test_published_numbers() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1])
    assert supervised_contrastive(Z, labels, 0.07).item() == pytest.approx(2.00956585, abs=1e-7)
    assert supervised_contrastive(Z, labels, 1.0).item() == pytest.approx(1.10606994, abs=1e-7)
    assert supervised_contrastive(Z, labels, 0.07, reduction="sum").item() == pytest.approx(10.04782924, abs=5e-7)
    per_anchor = [2.176e-5, 0.05760393, 4.97905096, 4.31799965, 0.69315293]
    for anchor, expected in enumerate(per_anchor):
        only = torch.zeros(5)
        only[anchor] = 2.0
        assert supervised_contrastive(Z, labels, 0.07, only).item() == pytest.approx(expected, abs=1e-7)
    assert supervised_contrastive(Z, labels, 0.07, smoothing=1e-5).item() == pytest.approx(1.57868361, abs=1e-6)


def test_an_anchor_without_a_positive_is_left_out() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2])
    assert supervised_contrastive(Z, labels, 1.0).item() == pytest.approx(0.97365080, abs=1e-7)
    assert supervised_contrastive(Z, labels, 1.0, reduction="sum").item() == pytest.approx(4 * 0.97365080, abs=4e-7)


@pytest.mark.parametrize("smoothing", [0.0, 1e-5])
@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [0, 1, 3], [2], []])
def test_rows_whose_label_is_to_be_ignored_are_as_if_they_were_not_there(kept: list[int], smoothing: float) -> None:
    """-100 is what torch's cross-entropy leaves out: such rows are no class of their own, and nobody's negatives."""
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    ignored = torch.tensor([[0.0, 0, 1], [0.6, 0, 0.8]], dtype=torch.float64)
    labels, weight = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([1.0, 2.0, 0.5, 3.0, 4.0])
    z = Z.clone().requires_grad_()
    alone = supervised_contrastive(z[kept], labels[kept], 0.5, weight[kept], smoothing)
    (expected,) = torch.autograd.grad(alone, z)
    marked = torch.where(torch.isin(torch.arange(5), torch.tensor(kept, dtype=torch.int64)), labels, -100)
    everyone = torch.cat([z, ignored])[order]
    all_labels = torch.cat([marked, torch.tensor([-100, -100])])[order]
    loss = supervised_contrastive(everyone, all_labels, 0.5, torch.cat([weight, torch.ones(2)])[order], smoothing)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.item() == pytest.approx(alone.item(), abs=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------ the loss


def contrastive(
    z: list[list[float]],
    labels: list[int],
    temperature: float,
    weight: list[float],
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> float:
    """Equation 7 row by row; with smoothing, as documented, after the largest similarity of the row is subtracted."""
    rows = range(len(z))
    similar = [[sum(a * b for a, b in zip(z[i], z[j], strict=True)) / temperature for j in rows] for i in rows]
    total = weights = 0.0
    for i in rows:
        raised = [math.exp(similar[i][k] - max(similar[i])) + smoothing for k in rows]
        others = sum(raised[k] for k in rows if k != i)
        positives = [p for p in rows if p != i and labels[p] == labels[i]]
        if positives:
            total += weight[i] * -sum(math.log(raised[p] / others) for p in positives) / len(positives)
            weights += weight[i]
    if reduction == "sum":
        return total
    return total / weights if weights else 0.0


LABELS = [0, 1, 0, 2, 1, 0]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 1e-5, 0.25])
@pytest.mark.parametrize("temperature", [0.07, 2.0])
def test_each_anchor_averages_over_its_positives(smoothing: float, temperature: float, reduction: Any) -> None:
    z = normal(6, 3)
    for weight in (None, [1.0, 0.5, 2.0, 3.0, 0.0, 1.0]):
        given = None if weight is None else torch.tensor(weight)
        found = supervised_contrastive(z, torch.tensor(LABELS), temperature, given, smoothing, reduction)
        expected = contrastive(z.tolist(), LABELS, temperature, weight or [1.0] * 6, smoothing, reduction)
        assert found.item() == pytest.approx(expected)
        assert found.dtype == torch.float64


def test_the_temperature_is_that_of_the_paper_and_nothing_is_smoothed_unless_asked_for() -> None:
    z = torch.nn.functional.normalize(normal(6, 3), dim=1)
    found = supervised_contrastive(z, torch.tensor(LABELS))
    assert found.item() == pytest.approx(contrastive(z.tolist(), LABELS, 0.07, [1.0] * 6))


@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_smoothed_shares_have_the_right_gradient_though_what_is_subtracted_has_none(smoothing: float) -> None:
    z, labels = normal(5, 3).requires_grad_(), torch.tensor([0, 0, 1, 1, 1])

    def written_out(z: Tensor) -> Tensor:
        similar = z @ z.T / 0.5
        raised = (similar - similar.detach().max(dim=1, keepdim=True).values).exp() + smoothing
        others = raised.sum(1) - raised.diagonal()
        shares = [
            [(raised[i, p] / others[i]).log() for p in range(5) if p != i and labels[p] == labels[i]] for i in range(5)
        ]
        return -torch.stack([torch.stack(row).mean() for row in shares]).mean()

    found, expected = supervised_contrastive(z, labels, 0.5, None, smoothing), written_out(z)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, z)[0] for one in (found, expected)))


@pytest.mark.parametrize("smoothing", [0.0, 1e-5])
def test_similarities_far_beyond_the_range_of_the_exponential_stay_finite(smoothing: float) -> None:
    z = (40 * torch.nn.functional.normalize(normal(6, 3), dim=1)).float().requires_grad_()
    loss = supervised_contrastive(z, torch.tensor(LABELS), 0.07, None, smoothing)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(z.grad).all()


def test_weights_of_anchors_have_no_gradient_and_may_be_few() -> None:
    weight = torch.tensor([0.1, 0.2, 0.0, 0.0, 0.0, 0.0], requires_grad=True)
    z = normal(6, 3).requires_grad_()
    loss = supervised_contrastive(z, torch.tensor(LABELS), 0.5, weight)
    assert loss.item() == pytest.approx(contrastive(z.tolist(), LABELS, 0.5, weight.tolist()))
    loss.backward()
    assert weight.grad is None
    nothing = supervised_contrastive(z, torch.tensor(LABELS), 0.5, torch.zeros(6))
    assert nothing.item() == 0
    nothing.backward()


def test_a_single_row_and_no_row_give_a_zero_with_a_graph() -> None:
    for rows in (0, 1, 3):  # three rows of three classes
        z = normal(3, 3)[:rows].requires_grad_()
        loss = supervised_contrastive(z, torch.arange(rows))
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(z.grad, torch.zeros(rows, 3, dtype=torch.float64))
    two = supervised_contrastive(normal(2, 3), torch.tensor([1, 1]))
    assert two.item() == pytest.approx(0)  # nothing to push away


def test_half_precision_is_widened_under_autocast_too() -> None:
    z = normal(6, 3).bfloat16()
    expected = contrastive(z.tolist(), LABELS, 0.5, [1.0] * 6)
    assert supervised_contrastive(z, torch.tensor(LABELS), 0.5).item() == pytest.approx(expected, rel=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = supervised_contrastive(z.float(), torch.tensor(LABELS), 0.5)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected, rel=1e-5)


# ------------------------------------------------------------------------------------------------ the projector


def test_the_projector_is_two_layers_without_biases_and_has_rows_of_length_one() -> None:
    torch.manual_seed(0)
    head = AlignmentHead(6)
    assert {name: tuple(value.shape) for name, value in head.state_dict().items()} == {
        "hidden.weight": (512, 6),
        "output.weight": (128, 512),
    }
    head, values = AlignmentHead(6, 5, 4), normal(3, 6).float()
    plain = torch.relu(values @ head.hidden.weight.T) @ head.output.weight.T
    torch.testing.assert_close(head(values), plain / plain.norm(dim=1, keepdim=True))
    unnormalised = AlignmentHead(6, 5, 4, normalize=False)
    unnormalised.load_state_dict(head.state_dict())
    torch.testing.assert_close(unnormalised(values), plain)
    assert head.bfloat16()(values).dtype == torch.float32  # values take the type of the weights, rows do not
    assert not hasattr(head, "queued")


def test_the_queue_replaces_the_oldest_and_returns_all() -> None:
    torch.manual_seed(0)
    head = AlignmentHead(6, 5, 2, queue=4)
    assert set(head.state_dict()) == {"hidden.weight", "output.weight", "queued", "queued_labels", "queue_end"}
    start = head.queued.clone()
    assert start.shape == (4, 2)
    torch.testing.assert_close(start.norm(dim=1), torch.ones(4))
    assert head.queued_labels.tolist() == [0] * 4
    assert head.queued_labels.dtype == head.queue_end.dtype == torch.int64
    first = torch.tensor([[1.0, 2], [3, 4], [5, 6]], requires_grad=True)
    rows, labels = head.enqueue(first, torch.tensor([1, 2, 3]))
    assert rows.tolist() == [*first.tolist(), start[3].tolist()]
    assert labels.tolist() == [1, 2, 3, 0]
    assert not rows.requires_grad
    assert head.queue_end.item() == 3
    later, later_labels = head.enqueue(torch.tensor([[7.0, 8], [9, 10]]).double(), torch.tensor([4, 5]))
    assert later.tolist() == [[9, 10], [3, 4], [5, 6], [7, 8]]
    assert later_labels.tolist() == [5, 2, 3, 4]
    assert later.dtype == torch.float32
    assert head.queue_end.item() == 1
    assert rows[0].tolist() == [1, 2]  # what was returned before does not move
    assert labels.tolist() == [1, 2, 3, 0]


def test_of_more_rows_than_the_queue_holds_the_last_ones_stay() -> None:
    head = AlignmentHead(6, 5, 1, queue=2)
    rows, labels = head.enqueue(torch.tensor([[1.0], [2], [3]]), torch.tensor([1, 2, 3]))
    assert rows.tolist() == [[2], [3]]
    assert labels.tolist() == [2, 3]
    assert head.queue_end.item() == 0


# ------------------------------------------------------------------------------------------------ the choice


@pytest.mark.parametrize(("tokens", "size"), [(5, 3), (4, 2)])  # tokens as many as heads, features as key heads
def test_readout_logits_are_scaled_dot_products_with_shared_keys(tokens: int, size: int) -> None:
    query, key = normal(2, 4, size), normal(2, 2, tokens, size, seed=1)
    found = readout_logits(query, key, 0.25)
    assert found.shape == (2, 4, tokens)
    for row in range(2):
        for head in range(4):
            torch.testing.assert_close(found[row, head], 0.25 * key[row, head // 2] @ query[row, head])
    assert torch.equal(readout_logits(query, key.half(), 0.25), readout_logits(query, key.half().double(), 0.25))


def test_readout_logits_of_half_precision_are_single_also_under_autocast() -> None:
    query, key = (8 * normal(2, 4, 3)).bfloat16(), (8 * normal(2, 2, 5, 3, seed=1)).bfloat16()
    exact = readout_logits(query.double(), key.double(), 0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = readout_logits(query, key, 0.3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


# Of two heads: probabilities proportional to (16, 8, 4, 2) and (1, 8, 1, 8) in 30ths and 18ths.
LOGITS = torch.tensor([[[16.0, 8, 4, 2], [1, 8, 1, 8]]]).log()


def ranked(top_t: int, **options: object) -> tuple[list, list]:
    index, found = rank_tokens(LOGITS, top_t, **{"readout": None, **options})
    return index.tolist(), found.tolist()


def test_tokens_are_ranked_by_mean_probability_mean_logit_or_head_by_head() -> None:
    # Mean probabilities: (.294, .356, .094, .256); sums of logits: ln 16, ln 64, ln 4, ln 16.
    assert ranked(4) == ([[[1, 0, 3, 2]]], [[[True] * 4]])
    assert ranked(3, ranking="mean_logit")[0] == [[[1, 0, 3]]]
    assert ranked(2, ranking="per_head") == ([[[0, 1], [1, 3]]], [[[True, True], [True, True]]])


@pytest.mark.parametrize("ranking", ["mean_probability", "mean_logit", "per_head"])
def test_each_row_of_a_batch_is_ranked_by_itself(ranking: str) -> None:
    logits, readout = normal(3, 2, 4), torch.tensor([0, 2, 3])
    index, found = rank_tokens(logits, 2, readout=readout, ranking=ranking)
    for row in range(3):
        alone = rank_tokens(logits[row : row + 1], 2, readout=readout[row : row + 1], ranking=ranking)
        assert torch.equal(index[row], alone[0][0])
        assert torch.equal(found[row], alone[1][0])


def test_the_readout_row_is_left_out_unless_it_may_select_itself() -> None:
    assert ranked(2, readout=torch.tensor([1]))[0] == [[[0, 3]]]
    assert ranked(2, readout=torch.tensor([1]), include_readout=True)[0] == [[[1, 0]]]
    assert ranked(5, readout=torch.tensor([1])) == ([[[0, 3, 2, 1, 0]]], [[[True, True, True, False, False]]])


def test_padding_takes_no_probability_and_is_not_chosen() -> None:
    valid = torch.tensor([[True, False, True, True]])
    # Without token 1: (16, 4, 2) / 22 and (1, 1, 8) / 10, so .414, .141, .445.
    assert ranked(4, valid=valid) == ([[[3, 0, 2, 1]]], [[[True, True, True, False]]])
    assert valid.tolist() == [[True, False, True, True]]
    assert ranked(3, valid=valid, readout=torch.tensor([3])) == ([[[0, 2, 1]]], [[[True, True, False]]])
    assert valid.tolist() == [[True, False, True, True]]  # not written to
    assert ranked(2, valid=valid, ranking="mean_logit")[0] == [[[0, 3]]]


def test_the_authors_mistake_takes_the_token_before_each_chosen_one() -> None:
    assert ranked(4, off_by_one=True)[0] == [[[0, 0, 2, 1]]]


def selected(logits: Tensor, value: Tensor, top_t: int, *, project: Any = None, **options: Any) -> Tensor:
    return select_values(value, *rank_tokens(logits, top_t, **options), project=project)


def test_a_choice_has_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    index, _ = rank_tokens(logits, 2, readout=None)
    value = torch.arange(16.0).view(1, 2, 4, 2).requires_grad_()
    selected(logits, value, 2, readout=None).sum().backward()
    assert logits.grad is None
    assert not index.requires_grad
    assert value.grad[0, :, :, 0].tolist() == [[1, 1, 0, 0]] * 2


def test_chosen_values_lie_token_after_token_and_head_beside_head() -> None:
    value = torch.arange(16.0).view(1, 2, 4, 2)  # head h, token t: 8 h + 2 t and one more
    assert selected(LOGITS, value, 2, readout=None).tolist() == [[2, 3, 10, 11, 0, 1, 8, 9]]
    per_head = selected(LOGITS, value, 1, readout=None, ranking="per_head")
    assert per_head.tolist() == [[0, 1, 10, 11]]
    by_logit = selected(LOGITS[:, 1:], value, 1, readout=None, ranking="mean_logit", off_by_one=True)
    assert by_logit.tolist() == [[0, 1, 8, 9]]
    valid = torch.tensor([[True, False, False, True]])
    left = selected(LOGITS, value, 2, readout=torch.tensor([3]), valid=valid)
    assert left.tolist() == [[0, 1, 8, 9, 0, 0, 0, 0]]
    for include, expected in ((False, [[0, 1, 8, 9]]), (True, [[2, 3, 10, 11]])):
        found = selected(LOGITS, value, 1, readout=torch.tensor([1]), include_readout=include)
        assert found.tolist() == expected


def test_only_the_chosen_rows_are_projected() -> None:
    hidden = torch.arange(8.0).view(1, 1, 4, 2)
    asked = []

    def project(rows: Tensor) -> Tensor:
        asked.append(rows.tolist())
        return torch.cat([rows, -rows], dim=-1) + 1

    valid = torch.tensor([[True, True, False, True]])
    found = selected(LOGITS, hidden, 3, readout=torch.tensor([1]), valid=valid, project=project)
    # Without token 2: (16, 8, 2) / 26 and (1, 8, 8) / 17; token 1 reads, and a third one is not there.
    assert asked[0][0][:2] == [[0, 1], [6, 7]]
    assert found.tolist() == [[1, 2, 1, 0, 7, 8, -5, -6, 0, 0, 0, 0]]


def test_ties_go_to_the_lowest_index() -> None:
    index, _ = rank_tokens(torch.zeros(1, 1, 40), 3, readout=torch.tensor([1]))
    assert index[:, 0].tolist() == [[0, 2, 3]]
