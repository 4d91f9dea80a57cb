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
from levelhead.attention.standardize import Moments, RunningMoments, _root, pooled

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


def test_the_kernel_is_not_used_for_padding_or_fewer_than_two_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = kernel_calls(monkeypatch)
    trained = make()
    for moments in trained.children():
        moments.num_batches_tracked += 1
    trained.eval()(normal(0), normal(1))
    make()(normal(0), normal(1), VALID)
    make()(normal(0)[:1], normal(1)[:1])
    make("feature")(normal(0)[:1, :, :1], normal(1)[:1, :, :1])
    assert not calls
    make()(normal(0)[:2], normal(1)[:2])
    assert len(calls) == 2
    make("feature")(normal(0)[:1], normal(1)[:1])
    make("feature")(normal(0)[:2, :, :1], normal(1)[:2, :, :1])
    assert len(calls) == 6
    with monkeypatch.context() as patched:
        patched.setattr(torch.compiler, "is_compiling", lambda: True)
        make("feature")(normal(0), normal(1))
    monkeypatch.setattr(standardize, "process_count", lambda: 2)
    monkeypatch.setattr(standardize, "gather_rows", lambda rows, counts: torch.cat([rows, rows]))
    make("feature")(normal(0), normal(1))
    assert len(calls) == 6


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
@pytest.mark.parametrize("running", ["variance", "std"])
@pytest.mark.parametrize("padded", [False, True])
def test_nothing_is_computed_where_the_default_device_is(statistics: str, running: str, padded: bool) -> None:
    """Tensors of another device than the inputs' would stop the sum: here the default device holds no numbers."""
    plain = make(statistics, running=running, twice=statistics != "cls_feature")
    away, valid = copy.deepcopy(plain), VALID if padded else None
    for training in (True, False):
        expected = plain.train(training)(normal(0), normal(1), valid, LAST)
        plain.commit()
        with torch.device("meta"):
            found = away.train(training)(normal_on_cpu(0), normal_on_cpu(1), valid, LAST)
            away.commit()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def normal_on_cpu(seed: int) -> Tensor:
    with torch.device("cpu"):
        return normal(seed)


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


def test_a_standardizer_without_options_is_the_papers_with_a_corrected_start() -> None:
    standardizer = QueryKeyStandardizer(2, 4, length=3)
    assert set(dict(standardizer.named_children())) == {"query", "key"}
    own = (standardizer.statistics, standardizer.scale, standardizer.absolute, standardizer.twice)
    assert own == ("position", True, True, False)
    for moments in (standardizer.query, standardizer.key, RunningMoments(2, 3, 4)):
        assert moments.mean.shape == (2, 3, 4)
        options = (moments.unbiased, moments.running, moments.momentum, moments.eps, moments.gradient)
        assert options == (False, "variance", 0.1, 1e-5, True)
        assert "absolute_mean" not in moments.state_dict()
    shared = QueryKeyStandardizer(4, 8, num_key_value_heads=2, statistics="cls_feature", length=9)
    shapes = {name: tuple(child.mean.shape) for name, child in shared.named_children()}
    assert shapes == {"query": (4, 1, 8), "key": (2, 1, 8), "readout": (4, 1, 8)}


def test_options_reach_all_that_is_remembered() -> None:
    options = {"unbiased": True, "running": "std", "momentum": 0.25, "eps": 0.5, "statistics_gradient": False}
    for moments in QueryKeyStandardizer(2, 4, statistics="cls_feature", **options).children():
        found = (moments.unbiased, moments.running, moments.momentum, moments.eps, moments.gradient)
        assert found == (True, "std", 0.25, 0.5, False)


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


@pytest.mark.parametrize("statistics", ["position", "feature"])
@pytest.mark.parametrize("padded", [False, True])
def test_evaluation_may_centre_the_absolute_values_a_second_time(statistics: str, padded: bool) -> None:
    standardizer, valid = make(statistics, twice=True, momentum=0.25), VALID if padded else None
    once = make(statistics, momentum=0.25)
    query, key = normal(0), normal(1)
    trained = standardizer(query, key, valid)
    plain = once(query, key, valid)
    for one, other in zip(trained, plain, strict=True):
        torch.testing.assert_close(one, other)  # training does not
    standardizer.commit()
    once.commit()
    shown = torch.ones(BATCH, TOKENS, dtype=torch.bool) if valid is None else valid
    for child, values in ((standardizer.query, plain[0]), (standardizer.key, plain[1])):
        assert child.pending_absolute is None
        for token in range(TOKENS):
            seen = [token] if statistics == "position" else list(range(TOKENS))
            kept = [float(values[row, 1, at, 0]) for row in range(BATCH) for at in seen if shown[row, at]]
            mean = child.get_buffer("absolute_mean")[1, token if statistics == "position" else 0, 0].item()
            assert mean == pytest.approx(sum(kept) / len(kept), rel=1e-5)
    for x, child, found, other in zip(
        "qk",
        standardizer.children(),
        standardizer.eval()(query, key, valid),
        once.eval()(query, key, valid),
        strict=True,
    ):
        torch.testing.assert_close(found, (other - child.get_buffer("absolute_mean").double()).abs(), msg=x)
    standardizer.train()
    standardizer(query + 1, key, valid)
    standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist()[0] == 2


def test_a_position_that_one_row_shows_remembers_that_row() -> None:
    valid = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    valid[1:, 2] = False
    standardizer = make(twice=True)
    query, _ = standardizer(normal(0), normal(1) + 1, valid)
    torch.testing.assert_close(standardizer.query.pending_absolute[:, 2], query[0, :, 2])
    standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [1, 1, 1]
    torch.testing.assert_close(standardizer.query.mean[:, 2], normal(0)[0, :, 2].float())


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


def test_the_root_has_no_gradient_at_zero() -> None:
    variance = torch.tensor([0.0, 4.0], requires_grad=True)
    root = _root(variance)
    root.sum().backward()
    assert root.tolist() == [0, 2]
    assert variance.grad.tolist() == [0, 0.25]


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


@pytest.mark.parametrize(
    ("statistics", "options", "knows"),
    [("position", {}, True), ("position", {"twice": True}, False), ("feature", {}, False), ("cls_feature", {}, True)],
)
def test_who_knows_one_row(statistics: str, options: dict[str, Any], knows: bool) -> None:
    assert make(statistics, **options).knows_one_row is knows


# ------------------------------------------------------------------------------------------------ refusals and warnings


def test_the_ends_of_what_is_possible() -> None:
    assert QueryKeyStandardizer(2, 2, statistics="feature", momentum=1.0, eps=0.0).query.momentum == 1
    assert QueryKeyStandardizer(2, 2, statistics="feature", twice=True).twice
    assert QueryKeyStandardizer(2, 2, statistics="position", length=1).query.mean.shape == (2, 1, 2)


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


def test_two_processes_share_the_gradient_of_their_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of the gradient that lies in the first process's rows, its own outputs alone being requested."""
    query, key, direction = normal(0), normal(1), normal(2)
    whole = query.clone().requires_grad_()
    alone, _ = make(absolute=False)(whole, key, torch.ones(BATCH, TOKENS, dtype=torch.bool))
    (alone[:3] * direction[:3]).sum().backward()
    own = query[:3].clone().requires_grad_()
    processes = TwoProcesses(monkeypatch)
    found, _ = processes.first(
        lambda: make(absolute=False)(own, key[:3]), lambda: make(absolute=False)(query[3:], key[3:])
    )
    (found * direction[:3]).sum().backward()
    torch.testing.assert_close(own.grad, whole.grad[:3])


def test_pooled_moments_are_exact_where_means_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded means of 4096 and a bit, with the residuals that rounding left, in parts of 1 and 3 rows."""
    x = torch.tensor([0.1, 0.4, 0.35, 0.9], dtype=torch.float64) + 4096

    def moments(values: Tensor, rounded: float) -> Moments:
        away = values - rounded
        return Moments(
            torch.tensor([len(values)]),
            torch.full((1, 1, 1), rounded, dtype=torch.float64),
            away.square().sum().view(1, 1, 1),
            away.mean().view(1, 1, 1),
        )

    one, other = moments(x[:1], 4096.0), moments(x[1:], 4096.5)
    processes = TwoProcesses(monkeypatch)
    (found,) = processes.first(lambda: pooled([one]), lambda: pooled([other]))
    assert found.counts.tolist() == [4]
    assert found.counts.dtype == torch.int64
    assert found.mean.item() == pytest.approx(x.mean().item(), rel=1e-15)
    assert found.squares.item() == pytest.approx((x - x.mean()).square().sum().item(), rel=1e-9)
    assert found.residual is None
    narrow = [Moments(part.counts, *(one.float() for one in part[1:])) for part in (one, other)]
    (found,) = TwoProcesses(monkeypatch).first(lambda: pooled(narrow[:1]), lambda: pooled(narrow[1:]))
    assert found.mean.dtype == found.squares.dtype == torch.float32


@pytest.mark.parametrize("per_position", [False, True])
def test_what_rounding_leaves_of_a_mean_is_told_to_the_other_processes(
    monkeypatch: pytest.MonkeyPatch, per_position: bool
) -> None:
    monkeypatch.setattr(standardize, "process_count", lambda: 2)
    x = (normal(0) + 10_000).float()
    found = RunningMoments(HEADS, TOKENS, SIZE).of_rows(x, None, per_position)
    exact = x.double().mean(0) if per_position else x.double().mean((0, 2))[:, None]
    assert found.residual is not None
    assert found.residual.abs().max() > 1e-5
    torch.testing.assert_close(found.mean.double() + found.residual.double(), exact, rtol=0, atol=1e-6)


def test_a_position_that_one_process_pads_is_that_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    valid = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    valid[:, 0] = False  # nobody sees it
    valid[:3, 1] = False  # the first process sees nothing of it
    valid[:4, 2] = False  # one row of the second process shows it
    alone = make()
    expected = alone(normal(0), normal(1), valid)

    def part(rows: slice) -> tuple[QueryKeyStandardizer, Any]:
        standardizer = make()
        return standardizer, standardizer(normal(0)[rows], normal(1)[rows], valid[rows])

    standardizer, found = TwoProcesses(monkeypatch).first(lambda: part(slice(0, 3)), lambda: part(slice(3, 5)))
    torch.testing.assert_close(found[0], expected[0][:3])
    standardizer.commit()
    alone.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [0, 1, 1]
    torch.testing.assert_close(standardizer.query.mean, alone.query.mean)


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
