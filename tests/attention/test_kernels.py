"""Standardising in one step: equal to the operations one by one, in results, gradients and statistics."""

import pytest
import torch
from torch.autograd import gradcheck

from levelhead.attention import QueryKeyStandardizer
from levelhead.attention.kernels import Replacement, standardize_batch


def explicit(x, eps, axes, absolute):
    mean = x.mean(dim=axes, keepdim=True)
    standard = (x - mean) / ((x - mean).square().mean(dim=axes, keepdim=True) + eps).sqrt()
    return standard.abs() if absolute else standard


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("per_position", [False, True])
def test_equals_the_operations_one_by_one(per_position, absolute):
    axes, results = (0,) if per_position else (0, 2), []
    for call in (
        lambda x: standardize_batch(x, 1e-5, per_position=per_position, absolute=absolute)[0],
        lambda x: explicit(x, 1e-5, axes, absolute),
    ):
        x = (3 * random(5, 4, 2, 3) + 1).transpose(1, 2).requires_grad_()  # (batch, heads, tokens, size)
        clean = call(x)
        (clean * random(5, 2, 4, 3, seed=1)).sum().backward()
        results.append((clean.detach(), x.grad))
    torch.testing.assert_close(results[0], results[1], atol=1e-12, rtol=1e-12)
    assert results[0][1].abs().max() > 0.01
    assert gradcheck(
        lambda x: standardize_batch(x, 1e-5, per_position=per_position, absolute=absolute)[0],
        random(4, 2, 3, 2).requires_grad_(),
    )


def test_a_mean_that_is_large_against_the_spread_costs_no_precision():
    x = (random(64, 1, 1, 8) + 1000).float()
    _, _, variance = standardize_batch(x, 1e-5, per_position=True, absolute=True)
    torch.testing.assert_close(variance.double(), x.double().var(dim=0, correction=0), atol=0, rtol=1e-4)


def test_what_does_not_vary_is_zero_without_a_gradient():
    x = torch.full((4, 1, 2, 3), 0.7, requires_grad=True)
    clean = standardize_batch(x, 1e-5, per_position=True, absolute=True)[0]
    clean.sum().backward()
    assert clean.abs().max() < 1e-3
    assert x.grad.abs().max() < 1e-3


def test_the_backward_pass_keeps_the_result_and_a_byte():
    kept = []
    x = torch.randn(8, 2, 4, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        clean = standardize_batch(x, 1e-5, per_position=True, absolute=True)[0]
    large = [tensor for tensor in kept if tensor.numel() == x.numel()]
    assert sorted(str(tensor.dtype) for tensor in large) == ["torch.float32", "torch.int8"]
    assert clean.untyped_storage().data_ptr() in {tensor.untyped_storage().data_ptr() for tensor in large}


def test_a_replaced_row_counts_in_the_moments_and_passes_its_gradient_on():
    at = torch.tensor([1, 0, 2])

    def replaced(x, row):
        return standardize_batch(x, 1e-5, per_position=False, absolute=True, replacement=Replacement(at, row))[0]

    x, row = random(3, 2, 4, 2), random(3, 2, 1, 2, seed=1).abs()
    expected = standardize_batch(x, 1e-5, per_position=False, absolute=True)[0]
    expected[torch.arange(3), :, at] = row[:, :, 0]
    torch.testing.assert_close(replaced(x, row), expected)
    assert gradcheck(replaced, (x.requires_grad_(), row.requires_grad_()))


def test_queries_whose_readout_row_has_statistics_of_its_own_are_kept_once():
    kept = []
    query, key = (torch.randn(8, 2, 4, 3, requires_grad=True) for _ in range(2))
    module = QueryKeyStandardizer(2, 3, statistics="cls_feature")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        clean = module(query, key, None, torch.zeros(8, dtype=torch.int64))
        (clean[0] * clean[1]).sum()
    large = {t.untyped_storage().data_ptr() for t in kept if t.numel() == query.numel() and t.is_floating_point()}
    assert large == {x.untyped_storage().data_ptr() for x in clean}


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
@pytest.mark.parametrize("running", ["variance", "std"])
@pytest.mark.parametrize("absolute", [False, True])
def test_the_standardizer_is_the_same_with_and_without_it(statistics, running, absolute, monkeypatch):
    results = []
    for one_step in (True, False):
        module = QueryKeyStandardizer(2, 3, length=4, statistics=statistics, running=running, absolute=absolute)
        if not one_step:
            monkeypatch.setattr(module, "_in_one_step", lambda x, valid: False)
        query, key = (random(6, 2, 4, 3, seed=seed).requires_grad_() for seed in (0, 1))
        found = module(query, key, None, torch.tensor([0, 1, 2, 3, 0, 1]))
        (found[0] * found[1].cumsum(dim=2)).sum().backward()
        module.commit()
        buffers = dict(module.named_buffers())
        results.append((*found, query.grad, key.grad, *(buffers[name] for name in sorted(buffers))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6 if one.dtype == torch.float32 else 1e-12, rtol=1e-6)
