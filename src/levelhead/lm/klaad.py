"""KLAAD: a language model attends alike in stereotypical and anti-stereotypical sentences.

::

    L = w1 CE + w2 KL + w3 Tri
    CE  = (CE_stereotype + CE_anti) / 2
    KL  = mean over query rows of KL(A_anti || A_stereotype), A = attention of the last layer
    Tri = max(0, |h_s - h_a|^2 - |h_s - h_u|^2 + margin), h = normalised last hidden states

Source: the KLAAD paper's equations, weights and margins. No code of its authors is known, and the description leaves
heads, pooling and sentences of different lengths open: ``docs/klaad.md`` lists what is published and what is a choice
made here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pad_sequence

from levelhead.arrays import check_fields, checked, shown
from levelhead.lm.batches import shared_positions
from levelhead.lm.capture import captured
from levelhead.lm.loading import Beginning
from levelhead.lm.triplets import Triplet
from levelhead.types import ConfigError, DataError, listed

IGNORED = -100  # label of a token that cross-entropy leaves out
SMALLEST = 1e-12  # probability inside a logarithm

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "llama-3.2-3b": {"weights": (0.7, 0.15, 0.15), "margin": 0.3},
    "gpt-neo-2.7b": {"weights": (0.5, 0.25, 0.25), "margin": 0.5},
    # Only the margin, and w1 between 0.5 and 0.9, are known for Gemma; the weights are Llama's.
    "gemma-2-2b": {"weights": (0.7, 0.15, 0.15), "margin": 0.5},
}
"""Weights and margin of Table 7 of the paper, by model."""


SENTENCES = ("stereotype", "anti_stereotype", "unrelated")


@dataclass(frozen=True)
class TripletBatch:
    """B triplets as one right-padded batch of 3B sentences: all stereotypes, all anti-stereotypes, all unrelated.

    Attributes:
        input_ids: (3B, L) int64.
        attention_mask: (3B, L) int64, 0 at padding.
        labels: (3B, L) int64, the token ids, -100 at padding.
        shared: (2, B, R) int64, positions of the tokens that stereotype (0) and anti-stereotype (1) have in common, in
            order; -1 where a pair has fewer than R.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    shared: Tensor

    def __len__(self) -> int:
        return len(self.input_ids) // 3

    def to(self, device: torch.device | str) -> TripletBatch:
        """Return the batch on ``device``."""
        return replace(self, **{name: tensor.to(device) for name, tensor in vars(self).items()})


@checked
def collate(tokenizer: Any, triplets: Sequence[Triplet]) -> TripletBatch:
    """Tokenize triplets into one batch.

    Texts begin as in scoring (:class:`~levelhead.lm.loading.Beginning`).

    Errors: :class:`~levelhead.types.DataError` for no triplets, and for a sentence that has no token.
    """
    check_triplets(tokenizer, triplets)
    if not triplets:
        raise DataError("There are no triplets to make a batch of.")
    beginning = Beginning.of(tokenizer)
    encoded = [
        _encode(tokenizer, beginning, triplet, getattr(triplet, part)) for part in SENTENCES for triplet in triplets
    ]
    count, padding = len(triplets), tokenizer.pad_token_id or 0  # masked, whatever stands there
    rows, pairs = [torch.tensor(ids) for ids in encoded], zip(encoded[:count], encoded[count : 2 * count], strict=True)
    input_ids = pad_sequence(rows, batch_first=True, padding_value=padding)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    positions = [torch.tensor(shared_positions(*pair, autojunk=False)).view(-1, 2).long() for pair in pairs]
    shared = pad_sequence(positions, batch_first=True, padding_value=-1).permute(2, 0, 1)
    return TripletBatch(input_ids, mask, input_ids.masked_fill(mask == 0, IGNORED), shared)


def check_triplets(tokenizer: Any, triplets: Sequence[Triplet]) -> None:
    """Raise :class:`~levelhead.types.ConfigError` or ``DataError`` for what is no tokenizer, or no triplet."""
    if not callable(tokenizer):
        raise ConfigError(f"tokenizer is {shown(tokenizer)}; it takes a tokenizer of transformers.")
    for place, triplet in enumerate(triplets):
        if not all(isinstance(getattr(triplet, part, None), str) for part in SENTENCES):
            raise DataError(f"triplets[{place}] is {shown(triplet)}; a triplet has the texts {listed(SENTENCES)}.")


def _encode(tokenizer: Any, beginning: Beginning, triplet: Triplet, sentence: str) -> list[int]:
    """Return the token ids of a sentence behind its context."""
    context = triplet.context if triplet.context.strip() and triplet.task.startswith("inter") else ""
    text = f"{context} {sentence}" if context else sentence
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not ids:
        raise DataError("A sentence of a triplet has no token. Leave empty sentences out before training.")
    return [*beginning.every, *(() if context else beginning.alone), *ids]


def cross_entropies(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed next-token cross-entropy of each sentence (n,) in nats, float32, and its token count (n,).

    ``logits`` (n, L, vocabulary) at a position predict the label at the next; ``labels`` (n, L), -100: left out.
    """
    following = labels[:, 1:]
    losses = cross_entropy(
        logits[:, :-1].float().flatten(0, 1), following.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return losses.view(following.shape).sum(-1), (following != IGNORED).sum(-1)


def attention_divergences(anti: Tensor, stereotype: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return KL(anti || stereotype) of each query row (B, R) in nats, and which rows count (B, R) bool.

    Both attentions (B, R, R) hold probabilities at positions that belong together; ``rows`` (B, R) bool says which
    positions are real in both sentences. A row is restricted to the real positions up to its own and made to sum to 1
    again. Rows that give less than :data:`SMALLEST` to these positions do not count, and have 0.
    """
    size = anti.shape[-1]
    past = torch.ones(size, size, dtype=torch.bool, device=anti.device).tril()
    allowed = past & rows[:, None, :]
    p, q = (side.float().masked_fill(~allowed, 0.0) for side in (anti, stereotype))
    p_mass, q_mass = p.sum(-1, keepdim=True), q.sum(-1, keepdim=True)
    counted = rows & (torch.minimum(p_mass, q_mass)[..., 0] >= SMALLEST)
    p, q = p / p_mass.clamp(min=SMALLEST), q / q_mass.clamp(min=SMALLEST)
    terms = p * (p.clamp(min=SMALLEST).log() - q.clamp(min=SMALLEST).log())
    return terms.sum(-1).masked_fill(~counted, 0.0), counted


def pooled(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return one vector a sentence (n, width), float32: the mean over real tokens, divided by its Euclidean length.

    ``hidden`` (n, L, width); ``mask`` (n, L), 0 at padding.
    """
    return normalize((hidden.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)


def triplet_losses(stereotype: Tensor, anti: Tensor, unrelated: Tensor, margin: float) -> Tensor:
    """Return max(0, |s - a|^2 - |s - u|^2 + margin) of each triplet (B,); all arguments are (B, width).

    Distances are squared, as published; torch's TripletMarginLoss has plain ones.
    """
    near, far = (stereotype - anti).square().sum(-1), (stereotype - unrelated).square().sum(-1)
    return (near - far + margin).clamp(min=0)


def attention_entropy(attention: Tensor, mask: Tensor) -> Tensor:
    """Return how even the attention of each sentence is (n,): 1 if all the past is looked at alike, 0 if one token is.

    ``attention`` (n, heads, L, L), ``mask`` (n, L), 0 at padding. The entropy of each row as a share of the largest
    possible one, mean over heads and real rows from the second on. Equal attention everywhere would make the KL term 0
    and teach nothing; a rise of this figure towards 1 shows it.
    """
    p = attention.float().mul(mask[:, None, None, :])
    seen = mask.cumsum(-1).float()
    entropy = torch.special.entr(p / p.sum(-1, keepdim=True).clamp(min=1e-12)).sum(-1).mean(1)
    rows = mask.bool() & (seen > 1)
    shares = torch.where(rows, entropy / seen.clamp(min=2).log(), 0.0)
    return shares.sum(-1) / rows.sum(-1).clamp(min=1)


def likelihood_gap(sums: Tensor, counts: Tensor) -> Tensor:
    """Return by how much the stereotype is likelier than the anti-stereotype (B,), in nats a token.

    Both arguments (2B,) are what :func:`cross_entropies` gives for all stereotypes, then all anti-stereotypes. Near 0
    with a rising cross-entropy is forgetting, not debiasing.
    """
    stereotype, anti = (sums / counts.clamp(min=1)).chunk(2)
    return anti - stereotype


def at_positions(attention: Tensor, index: Tensor) -> Tensor:
    """Return ``attention`` (B, L, L) at the positions ``index`` (B, R), those of padding 0: (B, R, R)."""
    index = index.clamp(min=0)
    across = index[:, None, :].expand(-1, attention.shape[1], -1)
    down = index[:, :, None].expand(-1, -1, index.shape[1])
    return attention.gather(2, across).gather(1, down)


@dataclass(frozen=True)
class Klaad:
    """The loss of KLAAD: ``loss, logs = Klaad()(model, batch)``.

    Attributes:
        weights: of cross-entropy, attention divergence and triplet loss; a part of weight 0 is not computed.
        margin: of the triplet loss, which is at most 4 + margin.
    """

    weights: tuple[float, float, float] = (0.7, 0.15, 0.15)
    margin: float = 0.3

    def __post_init__(self) -> None:
        check_fields(self, "klaad")
        if len(self.weights) != 3 or min(self.weights) < 0 or not 0 < sum(self.weights) < math.inf:
            raise ConfigError(
                f"klaad.weights is {self.weights}; it must be three numbers for cross-entropy, attention and triplet "
                "loss, each 0 or more and finite, not all 0."
            )
        if not 0 <= self.margin < math.inf:
            raise ConfigError(f"klaad.margin is {self.margin}; it must be 0 or more, and finite.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Klaad:
        """Return the published weights and margin for a model, with ``changes`` on top; see :data:`PRESETS`."""
        if name not in PRESETS:
            raise ConfigError(f"There is no KLAAD preset {name!r}; choose from {', '.join(PRESETS)}.")
        return cls(**{**PRESETS[name], **changes})

    def __call__(self, model: nn.Module, batch: TripletBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss, and detached scalars for the log.

        ``model`` is a Hugging Face causal language model on the batch's device, plain or under PEFT. The log has
        ``ce``, ``kl`` and ``triplet``, as far as they are computed, before their weights; with ``ce`` also
        ``likelihood_gap``; with ``kl`` also ``entropy`` of the attention, and ``shared``, the share of the tokens that
        is compared. Means run over the tokens (``ce``), rows (``kl``) or triplets of the whole batch.
        """
        of_ce, of_kl, of_triplet = self.weights
        pairs = 2 * len(batch)
        count = 3 * len(batch) if of_triplet else pairs  # the unrelated sentences serve the triplet loss alone
        ids, mask = batch.input_ids[:count], batch.attention_mask[:count]
        with captured(model, ids, attention=of_kl > 0, hidden=of_triplet > 0) as seen:
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        means: dict[str, Tensor] = {}
        if of_ce:
            costs, counts = cross_entropies(logits[:pairs], batch.labels[:pairs])
            both = zip(costs.chunk(2), counts.chunk(2), strict=True)
            means["ce"] = torch.stack([total.sum() / number.sum().clamp(min=1) for total, number in both]).mean()
            means["likelihood_gap"] = likelihood_gap(costs.detach(), counts).mean()
        if of_kl:
            assert seen.attention is not None
            weights = seen.attention[:pairs]
            sides = zip(weights.float().mean(1).chunk(2), batch.shared, strict=True)
            stereotype, anti = (at_positions(side, index) for side, index in sides)
            divergences, counted = attention_divergences(anti, stereotype, batch.shared[0] >= 0)
            means["kl"] = divergences.sum() / counted.sum().clamp(min=1)
            with torch.no_grad():
                means["entropy"] = attention_entropy(weights, mask[:pairs]).mean()
                means["shared"] = (batch.shared >= 0).sum() / mask[:pairs].sum()
        if of_triplet:
            assert seen.hidden is not None
            first, second, third = pooled(seen.hidden, mask).chunk(3)
            means["triplet"] = triplet_losses(first, second, third, self.margin).mean()
        parts = zip(("ce", "kl", "triplet"), self.weights, strict=True)
        loss = torch.stack([weight * means[name] for name, weight in parts if weight]).sum()
        return loss, {name: value.detach() for name, value in means.items()}
