"""Supervised contrastive alignment of the values that the readout row attends to most.

Follows Lu, Wang, Wang, ICLR 2024: section on local alignment, equation 7 (the supervised contrastive loss of
Khosla et al., 2020). Two choices differ from the letter of the paper: the mean over anchors replaces the sum
(so does the authors' code; ``reduction="sum"`` takes the sum), and an anchor without a positive is left out where the
formula would divide by zero.
The options ``smoothing``, ``queue``, ``normalize=False`` and ``off_by_one`` are what the authors' text notebooks do;
docs/presets.md says what each changes, and which of them leave alignment without a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.types import ConfigError, refuse_absurd_network

Ranking = Literal["mean_probability", "mean_logit", "per_head"]
Reduction = Literal["mean", "sum"]

NO_LABEL = -100
"""The label of a row that a loss leaves out: torch's cross-entropy does so by default."""


def supervised_contrastive(
    z: Tensor,
    labels: Tensor,
    temperature: float = 0.07,
    weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: Reduction = "mean",
    pairs: Tensor | None = None,
) -> Tensor:
    """Pull rows with equal labels together and push the others apart.

    For anchor i with positives P(i) (same label, not i itself) its loss is
    ``-1/|P(i)| sum_{p in P(i)} log( exp(z_i.z_p / temperature) / sum_{k != i} exp(z_i.z_k / temperature) )``.

    Args:
        z: (batch, size), each row of length 1 (see :class:`AlignmentHead`); computed in float32 or better.
        labels: (batch,) integer classes; a row of class -100 is as if it were not there, as in torch's cross-entropy.
        temperature: positive; the paper's is 0.07.
        weight: (batch,) non-negative importance of each anchor, or None for equal importance.
        smoothing: added to every exponential, after the largest similarity of the row, that of the anchor with itself
            included, was subtracted. The authors' text code adds 1e-5. Rows longer than about 2.5 then drown in it,
            unless they are nearly parallel, and the loss is log(batch - 1) without a gradient; short rows do not.
        reduction: over anchors: ``mean``, or the ``sum`` of equation 7, which grows with the batch.
        pairs: (batch, batch) non-negative weights of the exponentials that an anchor, a row of it, is contrasted with;
            1 for positives. None for 1 everywhere.

    Returns:
        Scalar: the (weighted) mean or sum over the anchors that have a positive. A zero that still carries a graph
        when there is none, or when all their weights are zero.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, equation 7; Khosla et al., "Supervised
    contrastive learning", NeurIPS 2020, arXiv:2004.11362.
    """
    if z.ndim != 2 or labels.shape != z.shape[:1]:
        raise ConfigError(
            f"z must be (batch, size) and labels (batch,); got {tuple(z.shape)} and {tuple(labels.shape)}"
        )
    if weight is not None and weight.shape != labels.shape:
        raise ConfigError(f"weight must be (batch,) = {tuple(labels.shape)}; got {tuple(weight.shape)}")
    # Autocast would silently take the similarities back to bfloat16.
    with torch.autocast(z.device.type, enabled=False):
        z = z.to(torch.promote_types(z.dtype, torch.float32))
        if len(z) < 2:  # a row of -inf alone has no log-softmax
            return z.sum() * 0.0
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        similarity = z @ z.T / temperature
        if pairs is not None:
            similarity = similarity + pairs.to(z).clamp(min=torch.finfo(z.dtype).tiny).log()
        absent = (labels == NO_LABEL)[None, :].expand_as(itself)
        # Of a row that would have nobody left, whose loss does not count, all are kept: no softmax of -inf alone.
        left_out = itself | (absent & ~(itself | absent).all(dim=1, keepdim=True))
        if smoothing:
            highest = similarity.detach().masked_fill(left_out & ~itself, -torch.inf).amax(dim=1, keepdim=True)
            raised = ((similarity - highest).exp() + smoothing).masked_fill(left_out, 0.0)
            log_share = raised.masked_fill(left_out, 1.0).log() - raised.sum(dim=1, keepdim=True).log()
            log_share = log_share.masked_fill(left_out, 0.0)
        else:
            # What is left out is -inf after the log-softmax as well: it must not meet a zero in a product.
            log_share = similarity.masked_fill(left_out, -torch.inf).log_softmax(dim=1).masked_fill(left_out, 0.0)
        positive = (labels[:, None] == labels[None, :]) & ~itself & ~absent
        count = positive.sum(dim=1)
        per_anchor = -(log_share.masked_fill(~positive, 0.0)).sum(dim=1) / count.clamp(min=1)
        importance = (count > 0).to(z.dtype)
        if weight is not None:
            importance = importance * weight.detach().to(z)
        total = importance.sum()
        if reduction == "sum":
            return (importance * per_anchor).sum()
        return (importance * per_anchor).sum() / torch.where(total > 0, total, torch.ones_like(total))


class AlignmentHead(nn.Module):
    """Projector g: Linear (no bias), ReLU, Linear (no bias), then length 1 (unless ``normalize`` is False).

    Input (batch, t * width): the selected value vectors, all heads, side by side. Output (batch, size), each row
    of Euclidean length 1. Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, section on local
    alignment (z = g(v_selected)).

    With ``queue`` above 0, :meth:`enqueue` remembers that many detached projections, as the authors' text code does.
    """

    queued: Tensor
    queued_labels: Tensor
    queue_end: Tensor

    def __init__(
        self, input_size: int, hidden_size: int = 512, size: int = 128, *, normalize: bool = True, queue: int = 0
    ):
        super().__init__()
        refuse_absurd_network(
            "debias (top_t, projection_hidden, projection_size, notebook.queue)",
            hidden_size * (input_size + size) + queue * size,
        )
        self.hidden = nn.Linear(input_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, size, bias=False)
        self.normalize, self.queue = normalize, queue
        if queue:
            self.register_buffer("queued", F.normalize(torch.randn(queue, size), dim=-1))
            self.register_buffer("queued_labels", torch.zeros(queue, dtype=torch.int64))
            self.register_buffer("queue_end", torch.zeros((), dtype=torch.int64))

    def forward(self, values: Tensor) -> Tensor:
        """Project (batch, t * width) to (batch, size)."""
        values = values.to(self.hidden.weight.dtype)
        z = self.output(F.relu(self.hidden(values))).float()
        return F.normalize(z, dim=-1) if self.normalize else z

    def enqueue(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Put (batch, size) projections and (batch,) labels instead of the oldest; return the whole queue.

        What returns has no graph: a contrastive loss of it trains nothing.
        """
        with torch.no_grad():
            z, labels = z[-self.queue :].detach(), labels[-self.queue :]
            place = (self.queue_end + torch.arange(len(z), device=z.device)) % self.queue
            self.queued[place] = z.to(self.queued)
            self.queued_labels[place] = labels
            self.queue_end.copy_((self.queue_end + len(z)) % self.queue)
            return self.queued.clone(), self.queued_labels.clone()


def readout_logits(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """Return the attention logits of one row, (batch, heads, tokens): O(tokens), never tokens x tokens.

    ``query`` (batch, heads, head size) is that row's, ``key`` (batch, key-value heads, tokens, head size) everybody's,
    ``scaling`` a factor on the dot products, usually 1 / sqrt(head size). In float32 at least, also under autocast, as
    inside the fused kernels: half precision rounds large logits by percents, or overflows.
    """
    with torch.autocast(query.device.type, enabled=False):
        exact = torch.promote_types(query.dtype, torch.float32)
        key = key.to(exact)
        if key.shape[1] != query.shape[1]:
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        query = query.to(exact) * scaling
        if key.device.type == "cpu":  # a product of matrices would copy the keys, which lie tokens first, and keep them
            return (key * query[:, :, None]).sum(dim=-1)
        return (key @ query[..., None]).squeeze(-1)


def rank_tokens(
    logits: Tensor,
    top_t: int,
    *,
    readout: Tensor | None,
    valid: Tensor | None = None,
    include_readout: bool = False,
    ranking: Ranking = "mean_probability",
    off_by_one: bool = False,
) -> tuple[Tensor, Tensor]:
    """Find the tokens that the readout row attends to most.

    Args:
        logits: (batch, heads, tokens), that row's, see :func:`readout_logits`.
        top_t: how many tokens.
        readout: (batch,) index of the readout row, or None when no single row is read.
        valid: (batch, tokens) bool, False at padding; None when nothing is padded.
        include_readout: let the readout row select itself.
        ranking: a token's score: its attention probability averaged over heads, its logit averaged over heads, or
            each head choosing for itself.
        off_by_one: return the token before each chosen one, as the authors' text code does by mistake.

    Returns:
        ``(index, found)``, both (batch, heads or 1, top_t): token indices by falling score, ties by rising index, and
        whether there was a token left to take.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, section on local alignment (s* = the t
    largest w_i).
    """
    logits = logits.detach()  # a choice has no gradient
    batch, _, tokens = logits.shape
    selectable = torch.ones(batch, tokens, dtype=torch.bool, device=logits.device) if valid is None else valid.clone()
    if valid is not None:
        logits = logits.masked_fill(~valid[:, None], torch.finfo(logits.dtype).min)
    if ranking == "per_head":
        score = logits.softmax(dim=-1)
    elif ranking == "mean_logit":
        score = logits.mean(dim=1, keepdim=True)
    else:
        score = logits.softmax(dim=-1).mean(dim=1, keepdim=True)
    if readout is not None and not include_readout:
        selectable[torch.arange(batch, device=logits.device), readout] = False
    score = score.masked_fill(~selectable[:, None], -torch.inf)
    index = score.sort(dim=-1, descending=True, stable=True).indices[..., :top_t]
    if off_by_one:
        index = (index - 1).clamp(min=0)
    index = F.pad(index, (0, top_t - index.shape[-1]))
    ordinal = torch.arange(top_t, device=logits.device)
    return index, (ordinal < selectable.sum(dim=1, keepdim=True))[:, None].expand_as(index)


def select_values(
    value: Tensor, index: Tensor, found: Tensor, *, project: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Take the value vectors of chosen tokens, side by side.

    ``value`` is (batch, key-value heads, tokens, value size); ``index`` and ``found`` are those of :func:`rank_tokens`.
    With ``project`` (not for ``ranking="per_head"``), ``value`` is (batch, 1, tokens, width) and only the chosen rows
    become values: ``project`` takes (batch, top_t, width) to (batch, top_t, values of all heads). Returns (batch,
    top_t * key-value heads * value size): the vectors of all heads side by side, most attended token first, zeros where
    fewer than ``top_t`` tokens can be selected. The gradient reaches ``value`` (and ``project``) alone, because a
    choice has none.
    """
    heads, size = value.shape[1], value.shape[3]
    chosen = value.gather(2, index[..., None].expand(-1, heads, -1, size))
    if project is not None:
        chosen = project(chosen[:, 0])[:, None]
    chosen = chosen.masked_fill(~found[..., None], 0.0)
    return chosen.transpose(1, 2).flatten(1)
