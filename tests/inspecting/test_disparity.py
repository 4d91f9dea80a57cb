"""The disparity of attention logits by group, against the plain way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from levelhead.attention.capture import Captured
from levelhead.inspecting import theory
from levelhead.inspecting.disparity import Disparity


def gap_of(
    query: Tensor,
    key: Tensor,
    members: Tensor,
    readout: Tensor | None,
    *,
    valid: Tensor | None = None,
    cut: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what seven rows at a time give; ``cut``: each batch at its own longest row."""
    found = Disparity()
    for start in range(0, len(query), 7):
        rows = slice(start, start + 7)
        there = None if valid is None else valid[rows]
        most = int(there.sum(1).max()) if cut and there is not None else query.shape[2]
        q, k = query[rows, :, :most], key[rows, :, :most]
        there = None if there is None else there[:, :most]
        row = None if readout is None else readout[rows]
        found.add(Captured(q, k, q, k, query.shape[-1] ** -0.5, there, row), members[rows])
    return found.between()


def first(rows: int) -> Tensor:
    return torch.zeros(rows, dtype=torch.int64)


def logits(query: Tensor, key: Tensor) -> np.ndarray:
    key = key.double().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return (query.double() @ key.transpose(2, 3) / math.sqrt(query.shape[-1])).numpy()


def test_mean_logits_of_groups_with_shared_key_heads_as_in_the_plain_way() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(180, 4, 3, 5, generator=generator), torch.randn(180, 2, 3, 5, generator=generator)
    members = (torch.arange(180) % 7 > 4).long()
    query[members == 1] *= 3
    plain = logits(query, key)[:, :, 2]
    delta, bound = gap_of(query, key, members, torch.full((180,), 2))
    assert delta == pytest.approx(plain[members == 0].mean(0) - plain[members == 1].mean(0), rel=1e-6)
    assert (np.abs(delta) < bound).all()
    none, _ = gap_of(query, key, members, None)
    assert none.shape == (4, 3)
    assert np.isnan(none).all()


def test_the_bound_of_second_moments_of_1_depends_on_the_shares_alone() -> None:
    query, key = torch.randn(2, 240, 2, 3, 4, generator=torch.Generator().manual_seed(0)).double()
    query, key = ((x - x.mean(0)) / x.std(0, correction=0) for x in (query, key))
    _, bound = gap_of(query, key, (torch.arange(240) >= 60).long(), first(240))
    assert bound == pytest.approx(theory.distribution_free_bound((0.25, 0.75), 4), rel=1e-6)


def test_padding_is_left_out_and_lengths_may_differ() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 240, 2, 4, 3, generator=generator)
    lengths = torch.randint(2, 5, (240,), generator=generator)
    valid, members, last = torch.arange(4) < lengths[:, None], torch.arange(240) % 2, lengths - 1
    noise = torch.where(valid[:, None, :, None], 0, 1e6)
    gap = gap_of(query + noise, key + noise, members, last, valid=valid)
    plain = logits(query, key)
    read = plain[np.arange(240), :, last.numpy()]  # the last real token, another one in each row
    for position in range(4):
        there = [(valid[:, position] & (members == group)).numpy() for group in (0, 1)]
        expected = read[there[0], :, position].mean(0) - read[there[1], :, position].mean(0)
        assert gap[0][:, position] == pytest.approx(expected, rel=1e-6)
    shorter = gap_of(query, key, members, last, valid=valid, cut=True)
    for one, other in zip(shorter, gap, strict=True):
        np.testing.assert_allclose(one, other)


def test_places_where_a_group_has_few_rows_are_not_compared() -> None:
    query, key = torch.randn(2, 140, 1, 4, 3, generator=torch.Generator().manual_seed(0))
    lengths = torch.full((140,), 4)
    lengths[103:] = 3
    query[100:103, :, 3], key[100:103, :, 3] = 50.0, 50.0  # three rows that would make the largest gap
    delta, bound = gap_of(
        query, key, (torch.arange(140) >= 100).long(), first(140), valid=torch.arange(4) < lengths[:, None]
    )
    assert np.isnan(delta[0]).tolist() == np.isnan(bound[0]).tolist() == [False, False, False, True]
    assert np.nanmax(np.abs(delta)) < 5


def test_logits_that_are_not_finite_stay_so() -> None:
    query, key = torch.rand(2, 80, 1, 2, 3)
    query[3] = torch.inf
    assert not np.isfinite(gap_of(query, key, torch.arange(80) % 2, first(80))[0]).any()
