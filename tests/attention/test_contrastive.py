import pytest
import torch

from levelhead.attention.contrastive import (
    AlignmentHead,
    rank_tokens,
    readout_logits,
    select_top_values,
    supervised_contrastive,
)

Z = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8], [-1, 0, 0]], dtype=torch.float64)


def test_published_numbers():
    labels = torch.tensor([0, 0, 1, 1, 1])
    assert supervised_contrastive(Z, labels, 0.07).item() == pytest.approx(2.00956585, abs=1e-7)
    assert supervised_contrastive(Z, labels, 1.0).item() == pytest.approx(1.10606994, abs=1e-7)
    assert supervised_contrastive(Z, labels, 0.07, reduction="sum").item() == pytest.approx(10.04782924, abs=5e-7)
    per_anchor = [2.176e-5, 0.05760393, 4.97905096, 4.31799965, 0.69315293]
    for anchor, expected in enumerate(per_anchor):
        only = torch.zeros(5)
        only[anchor] = 2.0
        assert supervised_contrastive(Z, labels, 0.07, only).item() == pytest.approx(expected, abs=1e-7)


def test_an_anchor_without_a_positive_is_left_out():
    labels = torch.tensor([0, 0, 1, 1, 2])
    assert supervised_contrastive(Z, labels, 1.0).item() == pytest.approx(0.97365080, abs=1e-7)
    assert supervised_contrastive(Z, labels, 1.0, reduction="sum").item() == pytest.approx(4 * 0.97365080, abs=4e-7)


def test_without_any_positive_the_loss_is_a_zero_with_a_graph():
    for rows in (1, 3):
        z = Z[:rows].clone().requires_grad_()
        loss = supervised_contrastive(z, torch.arange(rows))
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.parametrize("smoothing", [0.0, 1e-5])
@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [0, 1, 3], [2], []])
def test_rows_whose_label_is_to_be_ignored_are_as_if_they_were_not_there(kept, smoothing):
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


def test_weighted_mean_and_gradient():
    labels = torch.tensor([0, 0, 1, 1, 1])
    weight = torch.tensor([1.0, 2.0, 0.0, 3.0, 4.0])
    parts = torch.tensor([2.176e-5, 0.05760393, 4.97905096, 4.31799965, 0.69315293])
    expected = (weight * parts).sum() / weight.sum()
    assert supervised_contrastive(Z, labels, 0.07, weight).item() == pytest.approx(expected.item(), abs=1e-6)
    assert supervised_contrastive(Z, labels, 0.07, torch.zeros(5)).item() == 0
    assert torch.autograd.gradcheck(
        lambda z: supervised_contrastive(z, labels, 0.5, weight), Z.clone().requires_grad_()
    )


def test_bfloat16_is_computed_in_float32():
    labels = torch.tensor([0, 0, 1, 1, 1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = supervised_contrastive(Z.bfloat16(), labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(2.0096, abs=0.05)


def test_projector_gives_unit_rows():
    torch.manual_seed(0)  # ReLU can leave a row of nothing
    z = AlignmentHead(6, 5, 4)(torch.randn(3, 6))
    assert z.shape == (3, 4)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(3))


def inputs(batch=1, heads=1, tokens=4, size=2):
    return torch.zeros(batch, heads, size), torch.zeros(batch, heads, tokens, size)


def test_ties_go_to_the_lowest_index():
    query, key = inputs(tokens=40)
    index, _ = rank_tokens(readout_logits(query, key, 1.0), 3, readout=torch.tensor([1]))
    assert index[:, 0].tolist() == [[0, 2, 3]]


def test_scores_are_probabilities_averaged_over_heads():
    # Head 0 is nearly sure of token 1 by a huge logit; by the mean of logits token 1 would win, by probability 2 does.
    query = torch.ones(1, 3, 1)
    key = torch.tensor([[[0.0, 30, 0], [0, 0, 4], [0, 0, 4]]])[..., None]
    index, _ = rank_tokens(readout_logits(query, key, 1.0), 1, readout=torch.tensor([0]))
    assert index[:, 0].tolist() == [[2]]


def test_missing_tokens_are_zeros_and_pads_are_never_taken():
    query, key = inputs(batch=2)
    value = torch.arange(1.0, 17).view(2, 1, 4, 2).requires_grad_()
    valid = torch.tensor([[True, True, False, False], [True, True, True, True]])
    chosen = select_top_values(readout_logits(query, key, 1.0), value, 2, readout=torch.zeros(2).long(), valid=valid)
    assert chosen.tolist() == [[3, 4, 0, 0], [11, 12, 13, 14]]
    chosen.sum().backward()
    assert value.grad[0, 0].tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]
    more = select_top_values(readout_logits(query, key, 1.0), value, 6, readout=None)
    assert more.shape == (2, 12)
    assert (more[:, 8:] == 0).all()


def test_heads_lie_side_by_side():
    query, key = inputs(heads=2)
    value = torch.arange(16.0).view(1, 2, 4, 2)
    chosen = select_top_values(readout_logits(query, key, 1.0), value, 1, readout=torch.tensor([0]))
    assert chosen.tolist() == [[2, 3, 10, 11]]


def test_grouped_queries():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 4, 3, generator=generator), torch.randn(2, 2, 5, 3, generator=generator)
    index, _ = rank_tokens(readout_logits(query, key, 1.0), 2, readout=None)
    repeated, _ = rank_tokens(readout_logits(query, key[:, [0, 0, 1, 1]], 1.0), 2, readout=None)
    assert torch.equal(index, repeated)
