"""The disparity of attention logits by group, against the plain way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from levelhead.attention.capture import Captured
from levelhead.inspecting import theory
from levelhead.inspecting.disparity import Disparity, Gap


def gap_of(
    query: Tensor,
    key: Tensor,
    members: Tensor,
    *,
    pair: tuple[int, int] = (0, 1),
    valid: Tensor | None = None,
    readout: Tensor | None = None,
    other_rows: bool = True,
    cut: bool = False,
) -> Gap:
    """Return what seven rows at a time give; ``cut``: each batch at its own longest row."""
    found = Disparity(int(members.max()) + 1)
    for start in range(0, len(query), 7):
        rows = slice(start, start + 7)
        there = None if valid is None else valid[rows]
        most = int(there.sum(1).max()) if cut and there is not None else query.shape[2]
        q, k = query[rows, :, :most], key[rows, :, :most]
        there = None if there is None else there[:, :most]
        row = None if readout is None else readout[rows]
        found.add(Captured(q, k, q, k, query.shape[-1] ** -0.5, there, row, other_rows=other_rows), members[rows])
    return found.between(*pair)


def logits(query: Tensor, key: Tensor) -> np.ndarray:
    key = key.double().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return (query.double() @ key.transpose(2, 3) / math.sqrt(query.shape[-1])).numpy()


def test_mean_logits_of_groups_with_shared_key_heads_as_in_the_plain_way() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(180, 4, 3, 5, generator=generator), torch.randn(180, 2, 3, 5, generator=generator)
    members = torch.arange(180) % 7 % 3
    query[members == 2] *= 3
    plain = logits(query, key)
    means = [plain[members == group].mean(0) for group in range(3)]
    for one, other in ((0, 1), (0, 2), (2, 1)):
        gap = gap_of(query, key, members, pair=(one, other), readout=torch.full((180,), 2))
        assert gap.delta[:, 1:] == pytest.approx(means[one] - means[other], rel=1e-6)
        assert gap.delta[:, 0] == pytest.approx(gap.delta[:, 3])
        assert (np.abs(gap.delta) < gap.bound).all()
        assert (gap.rows == min(int((members == group).sum()) for group in (one, other))).all()
    assert np.isnan(gap_of(query, key, members).delta[:, 0]).all()
    alone = gap_of(query, key, members, readout=torch.zeros(180, dtype=torch.int64), other_rows=False)
    assert np.isfinite(alone.delta[:, 0]).all()
    assert np.isnan(alone.delta[:, 1:]).all()


def test_the_bound_of_second_moments_of_1_depends_on_the_shares_alone() -> None:
    query, key = torch.randn(2, 240, 2, 3, 4, generator=torch.Generator().manual_seed(0)).double()
    query, key = ((x - x.mean(0)) / x.std(0, correction=0) for x in (query, key))
    gap = gap_of(query, key, (torch.arange(240) >= 60).long())
    assert gap.bound[:, 1:] == pytest.approx(theory.distribution_free_bound((0.25, 0.75), 4), rel=1e-6)


def test_statistics_over_all_positions_attain_the_measured_bound() -> None:
    """The counter-example of docs/theory.md: 170 at one pair of positions, 17 tokens and a share of a tenth."""
    query, key = torch.zeros(2, 1000, 1, 17, 1)
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).repeat(25, 1)
    query[:100, 0, 0, 0], key[:100, 0, 3, 0] = signs.T
    scale = math.sqrt(1000 * 17 / 100)  # deviation of the pooled values
    gap = gap_of(query.abs() * scale, key.abs() * scale, (torch.arange(1000) >= 100).long())
    assert np.nanmax(gap.delta) == gap.delta[0, 1, 3] == pytest.approx(170.0, rel=1e-5)
    assert gap.bound[0, 1, 3] == pytest.approx(170.0, rel=1e-5)


def test_padding_is_left_out_and_lengths_may_differ() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 240, 2, 4, 3, generator=generator)
    lengths = torch.randint(2, 5, (240,), generator=generator)
    valid, members, last = torch.arange(4) < lengths[:, None], torch.arange(240) % 2, lengths - 1
    noise = torch.where(valid[:, None, :, None], 0, 1e6)
    gap = gap_of(query + noise, key + noise, members, valid=valid, readout=last)
    plain = logits(query, key)
    read = plain[np.arange(240), :, last.numpy()]  # the last real token, another one in each row
    for position in range(4):
        there = [(valid[:, position] & (members == group)).numpy() for group in (0, 1)]
        expected = read[there[0], :, position].mean(0) - read[there[1], :, position].mean(0)
        assert gap.delta[:, 0, position] == pytest.approx(expected, rel=1e-6)
    shorter = gap_of(query, key, members, valid=valid, readout=last, cut=True)
    for one, other in zip(shorter, gap, strict=True):
        np.testing.assert_allclose(one, other)


def test_places_where_a_group_has_few_rows_are_not_compared() -> None:
    query, key = torch.randn(2, 140, 1, 4, 3, generator=torch.Generator().manual_seed(0))
    lengths = torch.full((140,), 4)
    lengths[103:] = 3
    query[100:103, :, 3], key[100:103, :, 3] = 50.0, 50.0  # three rows that would make the largest gap
    gap = gap_of(query, key, (torch.arange(140) >= 100).long(), valid=torch.arange(4) < lengths[:, None])
    assert gap.rows[0, 1].tolist() == [40, 40, 40, 3]
    assert np.isnan(gap.delta[0, 1:, 3]).all()
    assert np.isnan(gap.bound[0, 1:, 3]).all()
    assert np.nanmax(np.abs(gap.delta)) < 5


def test_logits_that_are_not_finite_stay_so() -> None:
    query, key = torch.rand(2, 80, 1, 2, 3)
    query[3] = torch.inf
    assert not np.isfinite(gap_of(query, key, torch.arange(80) % 2).delta).any()
