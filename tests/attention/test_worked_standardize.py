"""The standardizer against means and deviations taken number by number, in all its modes; its memory; its processes."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from levelhead.attention import QueryKeyStandardizer, standardize
from levelhead.attention.contrastive import rank_tokens, readout_logits
from levelhead.attention.standardize import Moments, RunningMoments, pooled

BATCH, HEADS, TOKENS, SIZE = 5, 4, 3, 3
LAST = torch.tensor([2, 1, 2, 0, 1])
VALID = torch.arange(TOKENS) <= LAST[:, None]


def normal(seed: int, *, heads: int = HEADS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(BATCH, heads, TOKENS, SIZE, generator=generator, dtype=torch.float64) + 1


def make(statistics: str = "position", *, heads: int = HEADS, size: int = SIZE, **options: Any) -> QueryKeyStandardizer:
    length = TOKENS if statistics == "position" else None
    return QueryKeyStandardizer(heads, size, statistics=statistics, length=length, **options)


def moments_of(values: list[float], unbiased: bool = False) -> tuple[float, float]:
    """Mean and variance of a list, 0 for an empty one."""
    mean = sum(values) / max(len(values), 1)
    return mean, sum((value - mean) ** 2 for value in values) / max(len(values) - unbiased, 1)


def standardised(x: Tensor, valid: Tensor | None, per_position: bool, unbiased: bool, eps: float) -> Tensor:
    """Each number less the mean of its feature over what is no padding, by the root of variance + eps."""
    valid = torch.ones(x.shape[0], x.shape[2], dtype=torch.bool) if valid is None else valid
    result = torch.empty_like(x)
    for head in range(x.shape[1]):
        for feature in range(x.shape[3]):
            for token in range(x.shape[2]):
                seen = [token] if per_position else list(range(x.shape[2]))
                values = [float(x[row, head, at, feature]) for row in range(len(x)) for at in seen if valid[row, at]]
                mean, variance = moments_of(values, unbiased)
                result[:, head, token, feature] = (x[:, head, token, feature] - mean) / math.sqrt(variance + eps)
    return result


# ------------------------------------------------------------------------------------------------ published numbers


def worked_example() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of 4 rows, 2 heads, 3 tokens and 2 features."""
    index = torch.arange(4 * 2 * 3 * 2, dtype=torch.float64).view(4, 2, 3, 2)
    return (
        2 * torch.sin(1.3 * index + 0.7) + 0.5,
        1.5 * torch.cos(0.9 * index + 0.2) - 0.3,
        torch.sin(0.5 * index + 1),
    )


VECTORS = [
    ("position", False, [1.501682, 1.135085, 0.986678], [1.748514, 0.893954, 1.803014],
     [0.419777, 0.237020, 0.343203], [0.679308, 0.525061, -0.588303, -0.423355], 0.076076, 89.858588),
    ("position", True, [1.126261, 0.851314, 0.740009], [1.311386, 0.670466, 1.352261],
     [0.399648, 0.258259, 0.342093], [0.667466, 0.497583, -0.604643, -0.438040], -0.022089, 67.393941),
    ("feature", False, [1.971972, 1.589665, 1.148434], [1.380042, 0.674479, 1.385694],
     [0.435760, 0.259614, 0.304626], [0.718383, 0.590183, -0.604660, -0.443932], 0.591787, 84.531810),
    ("feature", True, [1.807641, 1.457193, 1.052731], [1.265038, 0.618272, 1.270220],
     [0.427658, 0.265517, 0.306826], [0.712045, 0.576776, -0.608911, -0.447149], 0.524998, 77.487493),
]  # fmt: skip


@pytest.mark.parametrize(("statistics", "unbiased", "head0", "head1", "mean", "out", "sum_out", "sum_w"), VECTORS)
def test_published_numbers(
    statistics: str, unbiased: bool, head0: Any, head1: Any, mean: Any, out: Any, sum_out: float, sum_w: float
) -> None:
    query, key, value = worked_example()
    query, key = make(statistics, heads=2, size=2, unbiased=unbiased, eps=0.0)(query, key)
    w = query @ key.transpose(-1, -2) / math.sqrt(2)
    attention = w.softmax(-1)
    result = (attention @ value).transpose(1, 2).flatten(2)

    def close(actual: Tensor, expected: Any) -> None:
        torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), atol=2e-6, rtol=0)

    close(w[0, 0, 0], head0)
    close(w[0, 1, 0], head1)
    close(attention[0, :, 0].mean(0), mean)
    close(result[0, 0], out)
    close(result.sum(), sum_out)
    close(w.sum(), sum_w)


@pytest.mark.parametrize("statistics", ["position", "feature"])
@pytest.mark.parametrize("unbiased", [False, True])
def test_published_selection(statistics: str, unbiased: bool) -> None:
    query, key, _ = worked_example()
    query, key = make(statistics, heads=2, size=2, unbiased=unbiased, eps=0.0)(query, key)
    readout = torch.zeros(4, dtype=torch.int64)
    logits = readout_logits(query[:, :, 0], key, 2**-0.5)
    for include, expected in ((True, [[0, 2], [1, 2], [0, 2], [1, 0]]), (False, [[2, 1], [1, 2], [2, 1], [1, 2]])):
        index, found = rank_tokens(logits, 2, readout=readout, include_readout=include)
        assert index[:, 0].tolist() == expected
        assert found.all()


@pytest.mark.parametrize(
    ("statistics", "unbiased", "expected"),
    [
        ("position", False, [1.723339, 2.080854]),
        ("position", True, [1.696294, 2.025849]),
        ("feature", False, [1.759934, 2.109262]),
        ("feature", True, [1.753111, 2.094089]),
    ],
)
def test_one_update_of_equation_6(statistics: str, unbiased: bool, expected: list[float]) -> None:
    query, key, _ = worked_example()
    standardizer = make(statistics, heads=2, size=2, unbiased=unbiased, eps=0.0, running="std")
    standardizer(query, key)
    standardizer.commit()
    result, _ = standardizer.eval()(query, key)
    torch.testing.assert_close(result[0, 0, 0], torch.tensor(expected).double(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("unbiased", [False, True])
def test_a_batch_of_one_stays_finite(unbiased: bool) -> None:
    query = normal(0)[:1].requires_grad_()
    result, _ = make(unbiased=unbiased)(query, normal(1)[:1])
    result.sum().backward()
    assert torch.isfinite(result).all()
    assert torch.isfinite(query.grad).all()


# ------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"unbiased": True}, {"absolute": False}, {"statistics_gradient": False}, {"eps": 0.5}]
)
def test_training_standardises_with_the_batch(statistics: str, padded: bool, options: dict[str, Any]) -> None:
    query, key, valid = normal(0), normal(1), VALID if padded else None
    unbiased, eps = bool(options.get("unbiased")), options.get("eps", 1e-5)
    found = make(statistics, **options)(query, key, valid, LAST)
    expected = [standardised(x, valid, statistics == "position", unbiased, eps) for x in (query, key)]
    if statistics == "cls_feature":
        rows = query[torch.arange(BATCH), :, LAST][:, :, None]
        own = standardised(rows, None, True, unbiased, eps)
        expected[0][torch.arange(BATCH), :, LAST] = own[:, :, 0]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other if "absolute" in options else other.abs())


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_scaling_can_be_left_out(scale: bool, eps: float) -> None:
    query, key = normal(0), normal(1)
    found, _ = make(scale=scale, eps=eps, absolute=False)(query, key)
    deviation = (query.var(0, correction=0) + eps).sqrt() if scale else 1
    torch.testing.assert_close(found, (query - query.mean(0)) / deviation)


@pytest.mark.parametrize("eps", [1e-5, 0.0])
def test_the_gradient_goes_through_the_statistics_unless_it_is_told_not_to(eps: float) -> None:
    query, key, direction = normal(0), normal(1), normal(2)
    for gradient in (True, False):
        for valid in (None, VALID):
            x = query.clone().requires_grad_()
            plain = query.clone().requires_grad_()
            found, _ = make("feature", statistics_gradient=gradient, absolute=False, eps=eps)(x, key, valid)
            real = plain if valid is None else plain * valid[:, None, :, None]
            count = BATCH * TOKENS if valid is None else int(valid.sum())
            mean = real.sum((0, 2), keepdim=True) / count
            away = plain - mean if valid is None else (plain - mean) * valid[:, None, :, None]
            deviation = (away.square().sum((0, 2), keepdim=True) / count + eps).sqrt()
            if not gradient:
                mean, deviation = mean.detach(), deviation.detach()
            expected = (plain - mean) / deviation
            for one in (found, expected):
                (one * direction).sum().backward()
            torch.testing.assert_close(x.grad, plain.grad)


def test_half_precision_is_standardised_in_single_and_given_back_as_it_came() -> None:
    query, key = normal(0).bfloat16(), normal(1).half()
    standardizer = make("cls_feature")
    found = standardizer(query, key, None, LAST)
    exact = copy.deepcopy(standardizer)(query.float(), key.float(), None, LAST)
    assert [one.dtype for one in found] == [torch.bfloat16, torch.float16]
    assert torch.equal(found[0], exact[0].bfloat16())
    assert torch.equal(found[1], exact[1].half())
    standardizer.commit()
    torch.testing.assert_close(standardizer.query.mean, query.float().mean((0, 2))[:, None])


def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record each call of the kernel that standardises a batch in one step."""
    calls: list[bool] = []
    real = standardize.standardize_batch

    def recorded(*arguments: Any, **options: Any) -> Any:
        calls.append(True)
        return real(*arguments, **options)

    monkeypatch.setattr(standardize, "standardize_batch", recorded)
    return calls


@pytest.mark.parametrize(
    ("options", "uses"),
    [
        ({}, True),
        ({"running": "std"}, True),
        ({"absolute": False}, True),
        ({"scale": False}, False),
        ({"eps": 0.0}, False),
        ({"unbiased": True}, False),
        ({"statistics_gradient": False}, False),
        ({"twice": True}, False),
    ],
)
def test_the_kernel_is_used_where_it_computes_what_is_asked(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], uses: bool
) -> None:
    calls = kernel_calls(monkeypatch)
    make(**options)(normal(0), normal(1))
    assert bool(calls) is uses


# ------------------------------------------------------------------------------------------------ memory


@pytest.fixture
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_by_default")
def test_what_is_remembered_has_names_shapes_and_start_values() -> None:
    for running, spread in (("variance", "variance"), ("std", "deviation")):
        moments = RunningMoments(2, 3, 4, running=running)
        assert {name: (tuple(one.shape), one.dtype) for name, one in moments.state_dict().items()} == {
            "mean": ((2, 3, 4), torch.float32),
            spread: ((2, 3, 4), torch.float32),
            "num_batches_tracked": ((3,), torch.int64),
        }
        assert (moments.mean == 0).all()
        assert (moments.get_buffer(spread) == 1).all()
        assert (moments.num_batches_tracked == 0).all()
    twice = RunningMoments(2, 3, 4, twice=True).get_buffer("absolute_mean")
    assert (tuple(twice.shape), twice.dtype) == ((2, 3, 4), torch.float32)
    assert (twice == 0).all()


@pytest.mark.parametrize("statistics", ["position", "feature"])
@pytest.mark.parametrize("running", ["variance", "std"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("unbiased", [False, True])
def test_averages_move_by_the_momentum(statistics: str, running: str, padded: bool, unbiased: bool) -> None:
    """After two batches: from 0 and 1 for the plain average, from nothing where the start is corrected."""
    standardizer = make(statistics, running=running, momentum=0.25, unbiased=unbiased, eps=0.5)
    valid = VALID if padded else None
    mean, spread = 0.0, 1.0
    for seed in (0, 1):
        standardizer(normal(seed), normal(9), valid)
        standardizer.commit()
        standardizer.commit()  # once only
        tokens = [0] if statistics == "position" else range(TOKENS)
        values = [
            float(normal(seed)[row, 1, at, 0]) for row in range(BATCH) for at in tokens if not padded or VALID[row, at]
        ]
        new_mean, variance = moments_of(values, unbiased)
        new_spread = variance if running == "variance" else math.sqrt(variance + 0.5)
        step = 0.25 / (1 - 0.75 ** (seed + 1)) if running == "variance" else 0.25
        mean, spread = mean + step * (new_mean - mean), spread + step * (new_spread - spread)
        assert standardizer.query.mean[1, 0, 0].item() == pytest.approx(mean, rel=1e-5)
        assert standardizer.query.get_buffer(standardizer.query.spread_name)[1, 0, 0].item() == pytest.approx(
            spread, rel=1e-5
        )
    assert standardizer.query.num_batches_tracked.tolist() == [2] * (TOKENS if statistics == "position" else 1)
    # Evaluation uses them: eps is added to a variance, a deviation stands as it is.
    found, _ = standardizer.eval()(normal(3), normal(9), valid)
    deviation = math.sqrt(spread + 0.5) if running == "variance" else spread
    expected = abs(float(normal(3)[0, 1, 0, 0]) - mean) / deviation
    assert found[0, 1, 0, 0].item() == pytest.approx(expected, rel=1e-5)


def test_a_position_that_no_batch_has_seen_keeps_its_start_and_its_count() -> None:
    standardizer = make(momentum=0.5)
    valid = torch.tensor([True, False, True]).expand(BATCH, -1)
    for _ in range(2):
        standardizer(normal(0), normal(1), valid)
        standardizer.commit()
    assert standardizer.key.num_batches_tracked.tolist() == [2, 0, 2]
    assert (standardizer.key.mean[:, 1] == 0).all()
    assert (standardizer.key.variance[:, 1] == 1).all()
    torch.testing.assert_close(standardizer.key.mean[:, 2], normal(1)[:, :, 2].mean(0).float())


def test_commit_has_no_graph_and_needs_a_batch() -> None:
    standardizer = make("cls_feature")
    standardizer.commit()
    assert all((child.num_batches_tracked == 0).all() for child in standardizer.children())
    query = normal(0).requires_grad_()
    for _ in range(2):  # a layer that is computed again, as checkpoints do, counts once
        standardizer(query, normal(1), None, LAST)
    standardizer.commit()
    for child in standardizer.children():
        assert child.num_batches_tracked.tolist() == [1]
        assert child.pending is None
        assert not child.mean.requires_grad
    standardizer.eval()(normal(0), normal(1), None, LAST)
    standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [1]  # evaluation leaves nothing to commit


@pytest.mark.parametrize("running", ["variance", "std"])
def test_without_eps_a_feature_that_does_not_vary_is_remembered_as_such(running: str) -> None:
    query = normal(0)
    query[:, 0, 1] = 7.0
    query.requires_grad_()
    standardizer = make(eps=0.0, running=running, momentum=1.0, absolute=False)
    found, _ = standardizer(query, normal(1))
    (found * normal(2)).sum().backward()
    assert (found[:, 0, 1] == 0).all()
    assert (query.grad[:, 0, 1] == 0).all()
    assert (query.grad[:, 1] != 0).any()
    assert make(eps=0.0)(query * torch.nan, normal(1))[0].isnan().all()
    standardizer.commit()
    assert (standardizer.query.get_buffer(standardizer.query.spread_name)[0, 1] == 0).all()
    assert (standardizer.eval()(query, normal(1))[0][:, 0, 1] == 0).all()


def test_a_move_changes_the_device_and_not_the_precision() -> None:
    precise = RunningMoments(2, 3, 4)
    precise.mean.fill_(1.001)
    assert precise.to(torch.bfloat16).mean[0, 0, 0] == torch.tensor(1.001)
    moved = RunningMoments(2, 3, 4).to("meta", torch.float16)
    assert {name: (one.device.type, one.dtype) for name, one in moved.state_dict().items()} == {
        "mean": ("meta", torch.float32),
        "variance": ("meta", torch.float32),
        "num_batches_tracked": ("meta", torch.int64),
    }


# ------------------------------------------------------------------------------------------------ one row


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("statistics", ["position", "cls_feature"])
@pytest.mark.parametrize("running", ["variance", "std"])
def test_one_row_is_that_row_of_all(statistics: str, padded: bool, training: bool, running: str) -> None:
    whole, part = make(statistics, running=running), make(statistics, running=running)
    first, valid = torch.zeros(BATCH, dtype=torch.int64), VALID if padded else None
    for standardizer in (whole, part):
        standardizer(normal(2), normal(3), valid, first)
        standardizer.commit()
        standardizer.train(training)
    query, key = normal(0).float(), normal(1).float()
    all_rows, keys = whole(query, key, valid, first)
    row, same_keys = part.one_row(query[:, :, 0].bfloat16().float(), key, valid)
    expected = whole(query.bfloat16().float(), key, valid, first)[0][:, :, 0]
    torch.testing.assert_close(row, expected)
    torch.testing.assert_close(same_keys, keys)
    assert all_rows.shape == query.shape
    narrow = query[:, :, 0].bfloat16(), key.half()
    row, keys = part.one_row(*(one.float() for one in narrow), valid)
    same_row, same_keys = part.one_row(*narrow, valid)
    assert (same_row.dtype, same_keys.dtype) == (torch.bfloat16, torch.float16)
    assert torch.equal(same_row, row.bfloat16())
    assert torch.equal(same_keys, keys.half())


def test_of_positions_one_row_moves_the_first_alone() -> None:
    standardizer = make(momentum=0.5)
    for valid in (None, VALID):
        standardizer.one_row(normal(0)[:, :, 0], normal(1), valid)
        standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [2, 0, 0]
    assert standardizer.key.num_batches_tracked.tolist() == [2, 2, 2]
    assert (standardizer.query.mean[:, 1:] == 0).all()
    assert (standardizer.query.variance[:, 1:] == 1).all()
    torch.testing.assert_close(standardizer.query.mean[:, 0], normal(0)[:, :, 0].mean(0).float())


def test_of_padded_first_tokens_one_row_keeps_nothing() -> None:
    valid = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    valid[:2, 0] = False
    standardizer = make()
    standardizer.one_row(normal(0)[:, :, 0], normal(1), valid)
    standardizer.commit()
    torch.testing.assert_close(standardizer.query.mean[:, 0], normal(0)[2:, :, 0].mean(0).float())


# ------------------------------------------------------------------------------------------------ refusals and warnings


def test_queries_of_another_length_than_keys_are_not_masked_by_the_keys_padding() -> None:
    query, key = normal(0)[:, :, :1], normal(1)
    found, _ = make("feature")(query, key, VALID)
    torch.testing.assert_close(found, standardised(query, None, False, False, 1e-5).abs())


def test_evaluation_before_training_warns_once_for_either_way() -> None:
    for standardizer, call in (
        (make(), lambda one: one(normal(0), normal(1))),
        (make(), lambda one: one.one_row(normal(0)[:, :, 0], normal(1))),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(standardizer.train())
        with pytest.warns(UserWarning, match="evaluated before any training step") as caught:
            call(standardizer.eval())
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(standardizer)
    trained = make()
    trained(normal(0), normal(1))
    trained.commit()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained.eval()(normal(0), normal(1))
        trained.key.num_batches_tracked.zero_()
        trained(normal(0), normal(1))  # known to be updated: not asked again
    partly = make()
    partly.key.num_batches_tracked[0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partly.eval()(normal(0), normal(1))


# ------------------------------------------------------------------------------------------------ several processes


class TwoProcesses:
    """Runs a computation as two processes would, one after the other: what one sends is recorded for the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Tensor] = []
        self.received: list[Tensor] | None = None
        monkeypatch.setattr(standardize, "process_count", lambda: 2)
        monkeypatch.setattr(standardize, "gather_rows", self.gather)

    def gather(self, rows: Tensor, counts: list[int]) -> Tensor:
        assert rows.shape[0] == 1
        assert counts == [1, 1]
        self.sent.append(rows.detach())
        return torch.cat([rows, rows if self.received is None else self.received.pop(0)])

    def first(self, own: Any, others: Any) -> Any:
        """Return what ``own()`` gives while another process computes ``others()``; both start again each time.

        What is sent second is based on what was received first, so it is right after two turns.
        """
        for run in (others, own, others, own):
            self.sent = []
            result = run()
            self.received = self.sent
        return result


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
@pytest.mark.parametrize("padded", [False, True])
def test_two_processes_standardise_with_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch, statistics: str, padded: bool
) -> None:
    query, key, valid = normal(0), normal(1) + 1000, VALID if padded else None
    alone = make(statistics, unbiased=True)
    expected = alone(query, key, torch.ones(BATCH, TOKENS, dtype=torch.bool) if valid is None else valid, LAST)
    alone.commit()
    mine, theirs = slice(0, 3), slice(3, 5)

    def part(rows: slice) -> tuple[QueryKeyStandardizer, Any]:
        standardizer = make(statistics, unbiased=True)
        masks = None if valid is None else valid[rows]
        return standardizer, standardizer(query[rows], key[rows], masks, LAST[rows])

    standardizer, found = TwoProcesses(monkeypatch).first(lambda: part(mine), lambda: part(theirs))
    for one, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(one, whole[mine])
    standardizer.commit()
    for name, value in standardizer.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name])


@pytest.mark.parametrize("statistics", ["position", "feature"])
def test_two_processes_average_the_absolute_values_of_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    alone = make(statistics, twice=True)
    alone(normal(0), normal(1), VALID)

    def part(rows: slice) -> QueryKeyStandardizer:
        standardizer = make(statistics, twice=True)
        standardizer(normal(0)[rows], normal(1)[rows], VALID[rows])
        return standardizer

    standardizer = TwoProcesses(monkeypatch).first(lambda: part(slice(0, 3)), lambda: part(slice(3, 5)))
    for child, whole in zip(standardizer.children(), alone.children(), strict=True):
        torch.testing.assert_close(child.pending_absolute, whole.pending_absolute)


def test_without_other_processes_moments_stay_as_they_are() -> None:
    parts = [Moments(torch.tensor([1]), torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))]
    assert pooled(parts) is parts
