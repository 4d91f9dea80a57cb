"""Numbers were computed once by hand from the definitions, in float64, and are repeated here as constants."""

import math
import warnings

import pytest
import torch

from levelhead.attention import QueryKeyStandardizer
from levelhead.attention.contrastive import rank_tokens, readout_logits

BATCH, HEADS, TOKENS, SIZE = 4, 2, 3, 2


def worked_example():
    index = torch.arange(BATCH * HEADS * TOKENS * SIZE, dtype=torch.float64).view(BATCH, HEADS, TOKENS, SIZE)
    return (
        2 * torch.sin(1.3 * index + 0.7) + 0.5,
        1.5 * torch.cos(0.9 * index + 0.2) - 0.3,
        torch.sin(0.5 * index + 1),
    )


def make(statistics, heads=HEADS, size=SIZE, length=TOKENS, **options):
    length = length if statistics == "position" else None
    return QueryKeyStandardizer(heads, size, statistics=statistics, length=length, **options)


def random_pair(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))


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
def test_published_numbers(statistics, unbiased, head0, head1, mean, out, sum_out, sum_w):
    query, key, value = worked_example()
    query, key = make(statistics, unbiased=unbiased, eps=0.0)(query, key)
    w = query @ key.transpose(-1, -2) / math.sqrt(SIZE)
    attention = w.softmax(-1)
    result = (attention @ value).transpose(1, 2).flatten(2)

    def close(actual, expected):
        torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), atol=2e-6, rtol=0)

    close(w[0, 0, 0], head0)
    close(w[0, 1, 0], head1)
    close(attention[0, :, 0].mean(0), mean)
    close(result[0, 0], out)
    close(result.sum(), sum_out)
    close(w.sum(), sum_w)


@pytest.mark.parametrize("statistics", ["position", "feature"])
@pytest.mark.parametrize("unbiased", [False, True])
def test_published_selection(statistics, unbiased):
    query, key, _ = worked_example()
    query, key = make(statistics, unbiased=unbiased, eps=0.0)(query, key)
    readout = torch.zeros(BATCH, dtype=torch.int64)
    logits = readout_logits(query[:, :, 0], key, SIZE**-0.5)
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
def test_one_update_of_equation_6(statistics, unbiased, expected):
    query, key, _ = worked_example()
    standardizer = make(statistics, unbiased=unbiased, eps=0.0, running="std")
    standardizer(query, key)
    standardizer.commit()
    result, _ = standardizer.eval()(query, key)
    torch.testing.assert_close(result[0, 0, 0], torch.tensor(expected).double(), atol=2e-6, rtol=0)


def test_running_variance_is_bias_corrected():
    query, key, _ = worked_example()
    standardizer = make("position", eps=0.0)
    trained, _ = standardizer(query, key)
    standardizer.commit()
    evaluated, _ = standardizer.eval()(query, key)
    # One update from anywhere must remember exactly that batch, not a tenth of it.
    torch.testing.assert_close(evaluated, trained, atol=1e-5, rtol=1e-5)
    standardizer.train()
    means = [query.mean(0)]
    for step in range(1, 4):
        standardizer(query + step, key)
        standardizer.commit()
        means.append((query + step).mean(0))
    weights = [0.1 * 0.9 ** (3 - step) for step in range(4)]
    expected = sum(w * m for w, m in zip(weights, means, strict=True)) / (1 - 0.9**4)
    torch.testing.assert_close(standardizer.query.mean, expected.float())
    assert standardizer.query.num_batches_tracked.tolist() == [4] * TOKENS


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
def test_affine_changes_of_a_feature_cancel(statistics):
    query, key, _ = worked_example()
    readout = torch.zeros(BATCH, dtype=torch.int64)
    standardizer = make(statistics, eps=0.0)
    plain = standardizer(query, key, None, readout)
    slope = torch.tensor([-3.0, 0.5]).double()  # the sign flip of one feature is undone by the absolute value only
    changed = standardizer(query * slope + 7, key * slope - 2, None, readout)
    for one, other in zip(plain, changed, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    signed = make(statistics, eps=0.0, absolute=False)
    assert not torch.allclose(signed(query, key, None, readout)[0], signed(query * slope + 7, key, None, readout)[0])


def test_second_moment_is_one():
    query, key = random_pair(16, 2, 5, 4)
    for statistics, axes in (("position", (0,)), ("feature", (0, 2))):
        result, _ = make(statistics, size=4, length=5, eps=0.0)(query, key)
        second = result.square().mean(axes)
        torch.testing.assert_close(second, torch.ones_like(second))
        assert (result >= 0).all()


def test_order_of_the_batch_does_not_matter():
    query, key = random_pair(8, 2, 5, 4)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    standardizer = make("position", size=4, length=5)
    torch.testing.assert_close(standardizer(query, key)[0][order], standardizer(query[order], key[order])[0])


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
@pytest.mark.parametrize("running", ["variance", "std"])
def test_state_dict_round_trip(statistics, running):
    query, key, _ = worked_example()
    readout = torch.zeros(BATCH, dtype=torch.int64)
    first, second = make(statistics, running=running), make(statistics, running=running)
    first(query, key, None, readout)
    first.commit()
    second.load_state_dict(first.state_dict())
    for one, other in zip(
        first.eval()(query, key, None, readout), second.eval()(query, key, None, readout), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("statistics", ["position", "feature", "cls_feature"])
def test_content_of_padding_changes_nothing(statistics):
    query, key = random_pair(6, 2, 5, 4)
    valid = torch.ones(6, 5, dtype=torch.bool)
    valid[0, 3:] = valid[1, 2:] = False
    readout = torch.zeros(6, dtype=torch.int64)
    noise, _ = random_pair(6, 2, 5, 4, seed=3)
    results = []
    for amount in (0.0, 100.0):
        standardizer = make(statistics, size=4, length=5)
        dirty = noise * amount * ~valid[:, None, :, None]
        outputs = standardizer(query + dirty, key + dirty, valid, readout)
        standardizer.commit()
        results.append((*(output.transpose(1, 2)[valid] for output in outputs), *standardizer.state_dict().values()))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_bound_on_logit_differences_between_any_two_groups():
    """|mean_i w - mean_j w| <= sqrt(d_k) max(n/n_i, n/n_j) for every head and pair of tokens, any grouping."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        n, size = (int(torch.randint(low, 13, (), generator=generator)) for low in (4, 1))
        query, key = (
            torch.randn(n, 2, 3, size, generator=generator, dtype=torch.float64)
            .mul(torch.rand(1, 2, 3, size, generator=generator, dtype=torch.float64) * 5)
            .exp()
            for _ in range(2)
        )
        query, key = make("position", size=size, eps=1e-12)(query, key)
        w = query @ key.transpose(-1, -2) / math.sqrt(size)
        group = torch.randint(2, (n,), generator=generator).bool()
        group[0], group[1] = True, False
        gap = (w[group].mean(0) - w[~group].mean(0)).abs().max()
        smallest = min(int(group.sum()), int((~group).sum()))
        assert gap <= math.sqrt(size) * n / smallest + 1e-9


def test_readout_rows_have_statistics_of_their_own():
    query, key = random_pair(8, 2, 5, 4)
    last = torch.tensor([4, 4, 2, 3, 4, 1, 4, 4])
    valid = torch.arange(5) <= last[:, None]
    result, _ = make("cls_feature", size=4, eps=0.0)(query, key, valid, last)
    rows = query[torch.arange(8), :, last]
    expected = ((rows - rows.mean(0)) / rows.std(0, correction=0)).abs()
    torch.testing.assert_close(result[torch.arange(8), :, last], expected)
    pooled, _ = make("feature", size=4, eps=0.0)(query, key, valid)
    torch.testing.assert_close(result[:, :, 0], pooled[:, :, 0])


def test_grouped_queries_keep_statistics_per_key_head():
    query, _ = random_pair(4, 4, 3, 2)
    _, key = random_pair(4, 2, 3, 2)
    standardizer = make("position", heads=4, num_key_value_heads=2)
    query, key = standardizer(query, key)
    assert query.shape == (4, 4, 3, 2)
    assert key.shape == (4, 2, 3, 2)
    assert standardizer.key.mean.shape == (2, 3, 2)


@pytest.mark.parametrize("unbiased", [False, True])
def test_batch_of_one_and_constant_features_stay_finite(unbiased):
    query, key = random_pair(1, 2, 3, 2)
    query.requires_grad_()
    result, _ = make("position", unbiased=unbiased)(query, key)
    result.sum().backward()
    assert torch.isfinite(result).all()
    assert torch.isfinite(query.grad).all()


@pytest.mark.parametrize("running", ["variance", "std"])
def test_without_eps_what_does_not_vary_is_zero_without_a_gradient(running):
    query, key = random_pair(4, 2, 3, 2)
    query[:, 0, 1] = 7.0
    query.requires_grad_()
    standardizer = make("position", eps=0.0, running=running, momentum=1.0)
    result, _ = standardizer(query, key)
    result.square().sum().mul(0.5).add(result.sum()).backward()
    standardizer.commit()
    assert (result[:, 0, 1] == 0).all()
    assert (query.grad[:, 0, 1] == 0).all()
    assert torch.isfinite(query.grad).all()
    assert (query.grad[:, 1] != 0).any()
    assert (standardizer.eval()(query, key)[0][:, 0, 1] == 0).all()
    broken, _ = make("position", eps=0.0)(query * torch.nan, key)
    assert broken.isnan().all()


@pytest.mark.parametrize("unbiased", [False, True])
def test_without_eps_everything_else_is_the_plain_quotient(unbiased):
    query, key = random_pair(5, 2, 3, 2)
    query, key = query.float().requires_grad_(), key.float()
    result, _ = make("position", eps=0.0, unbiased=unbiased)(query, key)
    centred = query - query.sum(0, keepdim=True).squeeze(0) / 5
    deviation = (centred.square().sum(0, keepdim=True).squeeze(0) / (4 if unbiased else 5)).sqrt()
    plain = (centred / deviation).abs()
    assert torch.equal(result, plain)
    gradients = [torch.autograd.grad(one.pow(3).sum(), query)[0] for one in (result, plain)]
    torch.testing.assert_close(*gradients)


def test_statistics_stay_float32_under_bfloat16_and_autocast():
    query, key = random_pair(8, 2, 3, 2)
    standardizer = make("position").to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, _ = standardizer(query.bfloat16() + 100, key.bfloat16())
    standardizer.commit()
    assert result.dtype == torch.bfloat16
    assert standardizer.query.mean.dtype == torch.float32
    assert standardizer.query.variance.dtype == torch.float32
    torch.testing.assert_close(standardizer.query.mean, (query.bfloat16() + 100).float().mean(0))
    assert standardizer.half().query.mean.dtype == torch.float32


def test_precision_survives_a_cast_of_the_model():
    standardizer = make("feature")
    standardizer.query.mean.fill_(1.001)
    standardizer.to(torch.bfloat16)
    assert standardizer.query.mean[0, 0, 0] == torch.tensor(1.001)


def test_switches():
    query, key, _ = worked_example()
    centred = query - query.mean(0)
    torch.testing.assert_close(make("position", scale=False)(query, key)[0], centred.abs())
    scaled = query / (query.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(make("position", centre=False, absolute=False)(query, key)[0], scaled)


def test_gradient_flows_through_the_statistics():
    query, key = random_pair(4, 1, 2, 2)
    standardizer = make("position", heads=1, length=2, absolute=False)
    assert torch.autograd.gradcheck(lambda q: standardizer(q, key)[0], query.requires_grad_())


def test_a_repeated_layer_moves_the_averages_once():
    query, key, _ = worked_example()
    standardizer = make("position")
    standardizer(query, key)
    standardizer(query, key)
    standardizer.commit()
    standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [1] * TOKENS
    standardizer.eval()(query, key)
    standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [1] * TOKENS


def test_a_position_hidden_by_padding_keeps_its_average():
    query, key = random_pair(4, 2, 3, 2)
    standardizer = make("position")
    valid = torch.tensor([True, True, False]).expand(4, -1)
    standardizer(query, key, valid)
    standardizer.commit()
    assert standardizer.query.num_batches_tracked.tolist() == [1, 1, 0]
    assert (standardizer.query.mean[:, 2] == 0).all()


def test_evaluation_before_training_warns_once():
    query, key, _ = worked_example()
    standardizer = make("position").eval()
    with pytest.warns(UserWarning, match="before any training step"):
        standardizer(query, key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        standardizer(query, key)
