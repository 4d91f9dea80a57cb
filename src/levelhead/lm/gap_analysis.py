"""Where attention differs most between a stereotypical and an anti-stereotypical sentence.

The motivation of KLAAD: its authors report that the largest gap lies on bias-bearing tokens in 48.45% of pairs, where
9.10% are expected by chance. How they match tokens is unpublished; here difflib does, on token ids.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelhead.attention.interface import evaluating
from levelhead.lm.capture import attending_plainly, captured
from levelhead.lm.klaad import attention_entropy, check_triplets, collate, cross_entropies
from levelhead.lm.triplets import Triplet
from levelhead.training.finite import refuse_not_finite


@dataclass(frozen=True)
class PairGaps:
    """What :func:`pair_gaps` measures of one pair.

    Attributes:
        gaps: of the units (U,), see :func:`token_gaps`.
        bearing: which units bear the bias (U,) bool.
        entropy: of the last layer's attention, mean over both sentences, heads and query rows from the second on; the
            logarithm of the number of visible keys is 1.
        likelihood: by how much the stereotype's log-probability is above the anti-stereotype's, in nats a sentence.
    """

    gaps: Tensor
    bearing: Tensor
    entropy: float
    likelihood: float

    @property
    def used(self) -> bool:
        """Whether there are both kinds of units."""
        return bool(self.bearing.any()) and not bool(self.bearing.all())

    @property
    def hit(self) -> float:
        """1 if the largest gap lies on a unit that bears the bias, 0 if not; the share of such units among ties."""
        return float(self.bearing[self.gaps == self.gaps.max()].double().mean())

    @property
    def chance(self) -> float:
        """What :attr:`hit` is on average if the largest gap falls on any unit alike."""
        return float(self.bearing.double().mean())


def attention_received(attention: Tensor, mask: Tensor) -> Tensor:
    """Return the attention that each token gets (n, L): mean over heads and real query rows.

    ``attention`` (n, heads, L, L), ``mask`` (n, L), 0 at padding.
    """
    rows = mask[:, None, :, None].float()
    return (attention.float().mean(1, keepdim=True) * rows).sum(2).squeeze(1) / mask.sum(-1, keepdim=True)


def token_gaps(
    stereotype: Tensor, anti: Tensor, stereotype_ids: Sequence[int], anti_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the gaps |anti - stereotype| of the units of a pair (U,), and which units bear the bias (U,) bool.

    ``stereotype`` (N,) and ``anti`` (M,) hold the attention that each token gets. A unit is a token that both
    sentences have, or a run of tokens that was replaced by another, which bears the bias; a run's attention is the mean
    over its tokens, so that long words are not favoured. Tokens that are only inserted have no counterpart and are
    left out.
    """
    gaps: list[Tensor] = []
    bearing: list[bool] = []
    matcher = difflib.SequenceMatcher(None, stereotype_ids, anti_ids, autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind == "equal":
            gaps += list((stereotype[i:i_end] - anti[j:j_end]).abs())
            bearing += [False] * (i_end - i)
        elif kind == "replace":
            gaps.append((stereotype[i:i_end].mean() - anti[j:j_end].mean()).abs())
            bearing.append(True)
    return (torch.stack(gaps) if gaps else stereotype.new_zeros(0)), torch.tensor(bearing, dtype=torch.bool)


@torch.no_grad()
def pair_gaps(model: nn.Module, tokenizer: Any, triplets: Sequence[Triplet], batch_size: int = 16) -> list[PairGaps]:
    """Measure each pair of stereotype and anti-stereotype, in the order of ``triplets``.

    The model is run in evaluation mode on the device where its first parameter lies; its mode and its way of attending
    are put back. Long and short pairs go in batches of like length. Errors:
    :class:`~levelhead.UnsupportedModelError` for a model that gives no attention weights.
    """
    check_triplets(tokenizer, triplets)
    device = next(model.parameters()).device
    order = sorted(range(len(triplets)), key=lambda row: len(f"{triplets[row].context} {triplets[row].stereotype}"))
    found: dict[int, PairGaps] = {}
    with evaluating(model), attending_plainly(model):
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = collate(tokenizer, [triplets[row] for row in rows])
            count, lengths = len(batch), batch.attention_mask.sum(-1).tolist()
            ids, mask = batch.input_ids[: 2 * count].to(device), batch.attention_mask[: 2 * count].to(device)
            with captured(model, ids, hidden=False) as seen:
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            assert seen.attention is not None
            received = attention_received(seen.attention, mask).cpu()
            entropies = attention_entropy(seen.attention, mask).tolist()
            costs = cross_entropies(logits, batch.labels[: 2 * count].to(device))[0].tolist()
            # Of both sentences of a pair: stereotypes come first.
            refuse_not_finite(
                torch.tensor(costs).view(2, count).T, "cross-entropies", f"from pair {start} by length on"
            )
            for first, row in enumerate(rows):
                second = count + first
                got = [received[at, : lengths[at]] for at in (first, second)]
                read = [batch.input_ids[at, : lengths[at]].tolist() for at in (first, second)]
                gaps, bearing = token_gaps(got[0], got[1], read[0], read[1])
                entropy = (entropies[first] + entropies[second]) / 2
                found[row] = PairGaps(gaps, bearing, entropy, costs[second] - costs[first])
    return [found[row] for row in range(len(triplets))]
