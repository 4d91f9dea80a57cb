"""The losses by hand, on four families, and what a forward pass keeps."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from klaad_examples import FAMILIES, TRIPLETS, Triplet, checkpointed, language_model, tokenizer
from test_model import make, whole_scores
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from levelhead.lm.capture import attending_plainly, captured
from levelhead.lm.gap_analysis import attention_received
from levelhead.lm.klaad import (
    Klaad,
    TripletBatch,
    attention_divergences,
    attention_entropy,
    collate,
    cross_entropies,
    likelihood_gap,
    pooled,
    triplet_losses,
)

STEREOTYPE = torch.tensor([[[1.0, 0, 0], [0.6, 0.4, 0], [0.7, 0.2, 0.1]]])
ANTI = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0.3, 0.2]]])
ALL = torch.ones(1, 3, dtype=torch.bool)


@pytest.fixture(scope="module")
def batch() -> TripletBatch:
    return collate(tokenizer(), TRIPLETS)


def reference_attention(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """The last layer's weights as transformers gives them, from an eager twin."""
    twin = language_model(model.config.model_type, attention="eager")
    twin.load_state_dict(model.state_dict())
    twin.train(model.training)
    weights: Tensor = twin(input_ids=ids, attention_mask=mask, output_attentions=True).attentions[-1]
    return weights


def attention_kl(anti: Tensor, stereotype: Tensor, rows: Tensor) -> Tensor:
    """The mean over all rows that count."""
    found, counted = attention_divergences(anti, stereotype, rows)
    return found.sum() / counted.sum().clamp(min=1)


def test_divergence_of_attention_by_hand() -> None:
    found, counted = attention_divergences(ANTI, STEREOTYPE, ALL)
    assert counted.all()
    torch.testing.assert_close(found, torch.tensor([[0, 0.020411, 0.092033]]), atol=1e-6, rtol=0)
    assert attention_kl(ANTI, STEREOTYPE, ALL).item() == pytest.approx(0.037481, abs=1e-6)


def test_divergence_is_restricted_to_positions_that_belong_together() -> None:
    rows = torch.tensor([[True, False, True]])
    found, counted = attention_divergences(ANTI, STEREOTYPE, rows)
    p, q = 0.5 / 0.7, 0.7 / 0.8  # the middle column is left out, the rest sums to 1 again
    by_hand = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert found[0].tolist() == pytest.approx([0, 0, by_hand], abs=1e-6)
    assert counted.tolist() == [[True, False, True]]
    assert attention_kl(ANTI, STEREOTYPE, rows).item() == pytest.approx(by_hand / 2, abs=1e-6)
    nothing = attention_kl(ANTI.requires_grad_(), STEREOTYPE, torch.zeros(1, 3, dtype=torch.bool))
    nothing.backward()
    assert nothing.item() == 0
    assert ANTI.grad is not None
    assert ANTI.grad.isfinite().all()
    ANTI.requires_grad_(False).grad = None


def test_triplet_loss_and_pooling_by_hand() -> None:
    s, a, u = torch.tensor([[1.0, 0]]), torch.tensor([[0.0, 1]]), torch.tensor([[0.6, 0.8]])
    assert [triplet_losses(s, a, u, margin).item() for margin in (0.3, 0.5)] == pytest.approx([1.5, 1.7])
    assert triplet_losses(s, s, u, 0.1).tolist() == [0]  # near enough
    hidden, mask = torch.tensor([[[3.0, 0], [0, 8], [99, 99]]]), torch.tensor([[1, 1, 0]])
    length = math.hypot(1.5, 4)
    assert pooled(hidden, mask)[0].tolist() == pytest.approx([1.5 / length, 4 / length])


def test_batch_has_three_sentences_a_triplet(batch: TripletBatch) -> None:
    words = tokenizer()
    texts = [words.decode(ids[mask.bool()]) for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]
    assert texts[0] == TRIPLETS[0].stereotype
    assert texts[6] == "a bird came by it sleeps"
    assert texts[8] == TRIPLETS[0].unrelated
    assert len(batch) == 4
    assert (batch.labels == -100).equal(batch.attention_mask == 0)
    assert batch.attention_mask.sort(descending=True).values.equal(batch.attention_mask)  # padding is on the right
    assert batch.shared[:, 1].T.tolist()[:3] == [[0, 0], [1, 1], [2, 2]]
    assert (batch.shared[0] >= 0).sum(-1).tolist() == [5, 3, 5, 6]  # pair 1 has 4 and 6 tokens, three in common


@pytest.mark.parametrize("options", [{}, {"adds": False}, {"bos": False}])
def test_a_triplet_is_read_in_training_as_it_is_scored(options: dict[str, Any]) -> None:
    model = make("gpt2", **options)
    alone = Triplet("a red bird", "a red dog", "the boat")
    given = Triplet(" sings", " sleeps", " sails", context="a red bird", task="intersentence")
    batch = collate(model.tokenizer, [alone, given])
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]
    plain = model.tokenizer("a red bird", add_special_tokens=False).input_ids
    first = {"adds": [0], "bos": [1]}.get(next(iter(options), ""), [0])
    assert rows[0] == [*first, *plain]
    assert rows[1][0] == (0 if not options else plain[0])  # behind a context nothing but what the tokenizer adds
    costs, _ = cross_entropies(model.network(input_ids=batch.input_ids[:1]).logits.detach(), batch.labels[:1])
    assert -costs.item() == pytest.approx(whole_scores(model, ["a red bird"])[0], abs=1e-4)


def network(family: str, attention: str) -> Any:
    """A model of a family of these tests or of another one; its weights are the same for every ``attention``."""
    if family in FAMILIES:
        model = language_model(family, attention="eager" if family == "gemma2" else attention).eval()
        model.config._attn_implementation_internal = attention  # transformers does not make a capped one with sdpa
        return model
    size = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size": 16}
    shape = {
        "gpt_oss": experts | {"num_key_value_heads": 2, "head_dim": 8},
        "falcon": {"alibi": False},
        "falcon alibi": {"alibi": True},
    }[family]
    config = AutoConfig.for_model(family.split()[0], **size, **shape)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):  # they take a share of the attention
            parameter.data.fill_(2.0)
    return model.eval()


@pytest.mark.parametrize(
    ("family", "attention"),
    [
        *((family, "eager") for family in (*FAMILIES, "gpt_oss")),
        *((family, "sdpa") for family in ("llama", "gpt2", "gemma2", "falcon", "falcon alibi")),
        ("llama", "levelhead"),
    ],
)
def test_captured_attention_and_hidden_states_are_those_of_transformers(
    family: str, attention: str, batch: TripletBatch
) -> None:
    given: Any = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    eager = network(family, "eager")(**given, output_attentions=True)
    expected = eager.attentions[-1]
    assert expected.std() > 0.01  # or a wrong layer or mask would not show
    model = network(family, attention)
    with attending_plainly(model):
        with captured(model, batch.input_ids) as seen:
            after = model(**given).logits
        whole = model(**given, output_hidden_states=True).hidden_states[-1]
    assert seen.attention is not None
    assert seen.hidden is not None
    real = batch.attention_mask.bool()
    pick = real[:, None, :, None].expand_as(expected)
    torch.testing.assert_close(seen.attention[pick], expected[pick], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(seen.hidden[real], whole[real], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(after[real], eager.logits[real], atol=1e-4, rtol=1e-4)
    assert model.config._attn_implementation == attention


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_its_parts(family: str, batch: TripletBatch) -> None:
    model = language_model(family, attention="eager").eval()
    loss, logs = Klaad(weights=(0.7, 0.2, 0.1), margin=0.4)(model, batch)
    ids, mask, labels = batch.input_ids, batch.attention_mask, batch.labels
    ce = [model(input_ids=ids[r], attention_mask=mask[r], labels=labels[r]).loss for r in (slice(4), slice(4, 8))]
    torch.testing.assert_close(logs["ce"], (ce[0] + ce[1]) / 2, rtol=1e-4, atol=1e-5)

    output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    attention = reference_attention(model, ids, mask).mean(1)
    rows = []
    for pair in range(4):
        one, other = (index[index >= 0] for index in batch.shared[:, pair])
        for i in range(len(one)):
            p, q = attention[4 + pair, other[i], other[: i + 1]], attention[pair, one[i], one[: i + 1]]
            p, q = p / p.sum(), q / q.sum()
            rows.append((p * (p / q).log()).sum())
    torch.testing.assert_close(logs["kl"], torch.stack(rows).mean(), rtol=1e-3, atol=1e-5)
    assert logs["kl"] > 1e-3

    hidden = output.hidden_states[-1]
    means = [hidden[row, : mask[row].sum()].mean(0) for row in range(12)]
    s, a, u = torch.stack([mean / mean.norm() for mean in means]).chunk(3)
    triplet = ((s - a).square().sum(-1) - (s - u).square().sum(-1) + 0.4).clamp(min=0).mean()
    torch.testing.assert_close(logs["triplet"], triplet, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(loss, 0.7 * logs["ce"] + 0.2 * logs["kl"] + 0.1 * logs["triplet"])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_reach_the_last_queries_and_keys(family: str, checkpointing: bool, batch: TripletBatch) -> None:
    def gradients(repeat: bool) -> dict[str, Tensor]:
        model = language_model(family).train()
        if repeat:
            checkpointed(model)
        loss, _ = Klaad(weights=(0, 1, 0))(model, batch)
        loss.backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    half, logs = Klaad()(language_model(family).to(torch.bfloat16), batch)
    assert half.dtype == logs["kl"].dtype == torch.float32
    assert half.isfinite()
    found = gradients(checkpointing)
    last = [name for name in found if ".1." in name and any(part in name for part in ("q_proj", "k_proj", "c_attn.w"))]
    assert last
    for name in last:
        assert found[name].isfinite().all()
        assert found[name].abs().max() > 0
    if checkpointing:
        plain = gradients(False)
        assert plain.keys() == found.keys()
        for name, gradient in plain.items():
            torch.testing.assert_close(found[name], gradient, msg=name)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neo"])
def test_dropout_does_not_make_holes_in_the_weights(family: str, batch: TripletBatch) -> None:
    model = language_model(family, dropout=0.5).train()
    torch.manual_seed(0)
    with captured(model, batch.input_ids, hidden=False) as seen:
        first = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    second = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    assert seen.attention is not None
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones_like(seen.attention[..., 0]))
    assert not first.equal(second)


@pytest.mark.parametrize("weights", [(1, 0, 0), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 1, 1)])
def test_a_part_of_weight_zero_is_not_computed(weights: Any, batch: TripletBatch) -> None:
    parts = {name: weight for name, weight in zip(("ce", "kl", "triplet"), weights, strict=True) if weight}
    model = language_model("llama", attention="sdpa")
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda module, args, kw: sizes.append(len(kw["input_ids"])), with_kwargs=True)
    loss, logs = Klaad(weights=weights)(model, batch)
    assert parts.keys() == {"ce", "kl", "triplet"} & logs.keys()
    assert sizes[-1] == (12 if "triplet" in parts else 8)
    assert (model.config._attn_implementation == "eager") == ("kl" in parts)
    assert loss.item() == pytest.approx(sum(weight * logs[name].item() for name, weight in parts.items()), rel=1e-5)


def test_likelihood_gap_attention_received_and_entropy_by_hand() -> None:
    logits = torch.zeros(2, 3, 2)
    logits[0, :, 1] = math.log(3)  # the first sentence's words have probability 3/4, the second's 1/2
    labels = torch.tensor([[0, 1, 1], [0, 1, -100]])
    sums, counts = cross_entropies(logits, labels)
    assert likelihood_gap(sums, counts).tolist() == pytest.approx([math.log(1.5)])
    assert counts.tolist() == [2, 1]
    assert sums.tolist() == pytest.approx([2 * math.log(4 / 3), math.log(2)])
    attention = torch.tensor([[[1.0, 0, 0], [0.4, 0.6, 0], [9, 9, 9]]])  # a padded query
    heads = torch.stack([attention, attention], dim=1)
    assert attention_received(heads, torch.tensor([[1, 1, 0]])).tolist() == [pytest.approx([0.7, 0.3, 0])]
    even, sink, mask = torch.ones(4, 4).tril(), torch.eye(4)[[0] * 4], torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    even = even / even.sum(-1, keepdim=True)
    for one, entropy in ((even, 1), (sink, 0)):
        assert attention_entropy(one.expand(2, 3, 4, 4), mask).tolist() == pytest.approx([entropy] * 2)
