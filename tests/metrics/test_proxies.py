"""Proxies that agree: populations whose truth is known, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from levelhead.metrics.proxies import by_proxies, closed_form

Array = NDArray[np.float64]
CLOSE = 1e-6


def world(n: float = 1.0) -> Array:
    """P(three proxies, label, prediction) where proxies err independently."""
    accuracy = np.array([[[0.8, 0.2], [0.3, 0.7]], [[0.75, 0.25], [0.1, 0.9]], [[0.65, 0.35], [0.4, 0.6]]])
    share = np.array([0.6, 0.4])
    positive = np.array([0.3, 0.5])
    selected = np.array([[0.2, 0.7], [0.35, 0.9]])  # (group, label)
    label = np.stack([1 - positive, positive], -1)
    cells = share[:, None, None] * label[..., None] * np.stack([1 - selected, selected], -1)
    return n * np.einsum("gi,gj,gk,gyh->ijkyh", *accuracy, cells)


def test_closed_form_finds_shares_and_errors_of_three_proxies() -> None:
    solved = closed_form(world().sum((-1, -2)))
    np.testing.assert_allclose(solved.covariance, [0.078, 0.03, 0.039], atol=CLOSE)
    third = 0.4 * 0.6 * (1 - 0.8) * 0.5 * 0.65 * 0.25
    assert third / np.sqrt(0.078 * 0.03 * 0.039) == pytest.approx(0.408248, abs=CLOSE)
    assert solved.share == pytest.approx(0.4, abs=1e-12)
    np.testing.assert_allclose(solved.low, [0.2, 0.25, 0.35], atol=1e-12)
    np.testing.assert_allclose(solved.low + solved.gain, [0.7, 0.9, 0.6], atol=1e-12)


@pytest.mark.parametrize("mode", ["global", "local", "auto"])
def test_both_modes_return_the_truth_and_proxies_alone_do_not(mode: str) -> None:
    answer = by_proxies(world(2e6), mode=mode, replicates=200)
    truth = {"demographic_parity": 0.275, "equal_opportunity": 0.2, "false_positive_rate": 0.15}
    for gap, value in truth.items():
        assert answer.gaps[gap][1, 0].value == pytest.approx(value, abs=1e-9)
    naive = [answer.naive[gap][1, 0] for gap in truth]
    np.testing.assert_allclose([one[0] for one in naive], [0.1375, 0.100267, 0.071023], atol=CLOSE)
    assert naive[0][1:] == pytest.approx([0.171669, 0.066667], abs=CLOSE)
    assert answer.mode == ("local" if mode == "local" else "global")


@pytest.mark.parametrize("proxies", [3, 4])
def test_em_recovers_four_groups_or_four_proxies(proxies: int) -> None:
    groups = 4 if proxies == 3 else 2
    rng = np.random.default_rng(3)
    accuracy = np.eye(groups) * 0.7 + 0.3 * rng.dirichlet(np.ones(groups) * 3, (proxies, groups))
    cells = rng.dirichlet(np.full(groups * 4, 5.0)).reshape(groups, 4)
    letters = "ijkl"[:proxies]
    spec = ",".join(f"g{x}" for x in letters) + f",gc->{letters}c"
    joint = 1e6 * np.einsum(spec, *accuracy, cells)
    answer = by_proxies(joint.reshape(*joint.shape[:-1], 2, 2), replicates=5)
    rate = cells[:, [1, 3]].sum(1) / cells.sum(1)
    for (a, b), figure in answer.gaps["demographic_parity"].items():
        assert figure.value == pytest.approx(rate[a] - rate[b], abs=CLOSE)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (np.einsum("i,j,k,yh->ijkyh", *np.full((3, 2), 500.0), np.full((2, 2), 1e-6)), "may not agree more often"),
        (np.pad(np.full((1, 2, 2, 2, 2), 50.0), ((0, 1), *((0, 0),) * 4)), "proxy 1 never says one of the groups"),
        (np.einsum("ij,ikyh->ijkyh", np.eye(2), np.full((2, 2, 2, 2), 50.0)), "proxies 1 and 2 are equal in every row"),
    ],
)  # fmt: skip
def test_proxies_that_cannot_answer_are_refused(counts: Array, reason: str) -> None:
    answer = by_proxies(counts, mode="global", replicates=100)
    assert reason in answer.refused
    for by_pair in answer.gaps.values():
        assert by_pair[1, 0].refused
        assert np.isnan(by_pair[1, 0].value)
        assert reason in (by_pair[1, 0].reason or "")
