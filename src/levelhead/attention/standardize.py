"""The debiasing step: standardise queries and keys with batch statistics, then drop the sign.

Follows Lu, Wang, Wang, ICLR 2024: ``x_de = |(x - mean) / deviation|`` for queries and keys, never for values, with
the moving averages of equation 6 in evaluation. ``twice`` and ``statistics_gradient=False`` are what some of the
authors' notebooks do (docs/presets.md).

In data-parallel training (``torch.distributed`` with several processes) the statistics are those of the whole batch,
and so are their gradient and the moving averages. Each process may hold another number of rows or real tokens.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.arrays import checked
from levelhead.attention.kernels import Replacement, standardize_batch
from levelhead.distributed import gather_rows, process_count
from levelhead.types import ConfigError, check_sizes

Statistics = Literal["position", "cls_feature", "feature"]
Running = Literal["variance", "std"]


def in_backward() -> bool:
    """Return whether a backward pass is running in this thread: gradient checkpointing computes a layer again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class LengthError(ConfigError, ValueError):
    """Statistics kept per position met another number of tokens than they were made for."""


class Moments(NamedTuple):
    """Of the rows that one process holds: ``counts`` (rows,) int64, ``mean`` and ``squares`` (heads, rows, head size).

    ``squares`` is the sum of squared deviations from the mean; ``residual`` is the mean of the deviations, which
    rounding keeps from being 0, or None where nobody asks.
    """

    counts: Tensor
    mean: Tensor
    squares: Tensor
    residual: Tensor | None = None


def merged(counts: Tensor, means: Tensor, squares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Merge moments along their first axis: count (rows,), mean and squares (heads, rows, head size).

    With n_r, m_r, s_r of part r and n = sum n_r: mean = sum n_r m_r / n, squares = sum (s_r + n_r (m_r - mean)^2). In
    float64: in float32 the second term would carry the rounding errors of means that are large against the spread.

    Source: T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", 1983, DOI
    10.1080/00031305.1983.10483115.
    """
    share, total = counts[:, None, :, None], counts.sum(dim=0)
    mean = (share * means).sum(dim=0) / total.clamp(min=1)[:, None]
    spread = (squares + share * (means - mean).square()).sum(dim=0).clamp(min=0)  # rounding can go below
    return total, mean, spread


def pooled(parts: list[Moments]) -> list[Moments]:
    """Merge the moments of all processes, in one exchange; without several processes they stay as they are.

    Means are corrected by their residuals. Every process computes the same numbers from the same bits.
    """
    if process_count() == 1:
        return parts
    flat = []
    for part in parts:
        assert part.residual is not None
        exact, count = part.mean.double() + part.residual.double(), part.counts.double()
        squares = part.squares.double() - count[:, None] * part.residual.double().square()
        flat += [count, exact.flatten(), squares.flatten()]
    gathered = gather_rows(torch.cat(flat)[None], [1] * process_count())
    columns = iter(gathered.split([len(column) for column in flat], dim=1))
    found = []
    for part in parts:
        count = next(columns).detach()
        means, squares = (next(columns).unflatten(1, part.mean.shape) for _ in range(2))
        total, mean, spread = merged(count, means, squares)
        found.append(Moments(total.long(), mean.to(part.mean), spread.to(part.mean)))
    return found


class RunningMoments(nn.Module):
    """Mean and spread of one tensor: of the batch in training, remembered for evaluation.

    ``rows`` is the number of token positions that keep statistics of their own: the length for per-position
    statistics, 1 where positions share them. Buffers, all in ``state_dict`` and always float32 (an average that
    moves by a tenth of a small difference gets stuck in bfloat16):

    - ``mean`` (heads, rows, head size);
    - ``variance``, or ``deviation`` with ``running="std"``, of the same shape;
    - ``num_batches_tracked`` (rows,) int64, because padding can hide a position from some batches.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, equation 6, which is ``running="std"`` to the
    letter: start at mean 0 and deviation 1, move by ``momentum``. The default remembers the variance, whose average
    over small batches is not biased low as that of the deviation is, and corrects the start: after k updates the start
    values have the weight 0, where the plain average would leave them (1 - momentum)^k.
    """

    mean: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        heads: int,
        rows: int,
        size: int,
        *,
        unbiased: bool = False,
        running: Running = "variance",
        momentum: float = 0.1,
        eps: float = 1e-5,
        gradient: bool = True,
        twice: bool = False,
    ):
        super().__init__()
        check_sizes(heads=heads, rows=rows, size=size)
        self.unbiased, self.running, self.momentum, self.eps = unbiased, running, momentum, eps
        self.gradient = gradient
        self.spread_name = "variance" if running == "variance" else "deviation"
        self.register_buffer("mean", torch.zeros(heads, rows, size, dtype=torch.float32))
        self.register_buffer(self.spread_name, torch.ones(heads, rows, size, dtype=torch.float32))
        self.register_buffer("num_batches_tracked", torch.zeros(rows, dtype=torch.int64))
        # Batch statistics wait here, without their graph, until `commit`: gradient checkpointing runs a layer
        # twice and must not move the averages twice.
        self.pending: tuple[Tensor, Tensor, Tensor] | None = None
        self.pending_absolute: Tensor | None = None
        if twice:
            self.register_buffer("absolute_mean", torch.zeros(heads, rows, size, dtype=torch.float32))

    def extra_repr(self) -> str:
        """Say what helps where PEFT takes this for a projection of its name, and prints it in an error."""
        return "for LoRA, use levelhead.lora_config"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningMoments:
        def move_only(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move_only, recurse)

    def remembered(self, dtype: torch.dtype, rows: int | None = None) -> tuple[Tensor, Tensor]:
        """Running mean and deviation, which standardise in evaluation; both (heads, rows, head size).

        ``rows`` asks for the first ones only.
        """
        mean, spread = self.mean[:, :rows], self.get_buffer(self.spread_name)[:, :rows]
        deviation = (spread + self.eps).sqrt() if self.running == "variance" else spread
        return mean.to(dtype), deviation.to(dtype)

    def clean(self, x: Tensor, per_position: bool, absolute: bool, replacement: Replacement | None = None) -> Tensor:
        """Standardise a batch without padding in one step; its moments wait for :meth:`commit`. See ``kernels.py``."""
        clean, mean, variance = standardize_batch(
            x, self.eps, per_position=per_position, absolute=absolute, replacement=replacement
        )
        spread = variance if self.running == "variance" else (variance + self.eps).sqrt()
        self._wait(mean, spread, torch.ones(mean.shape[1], dtype=torch.bool, device=x.device))
        return clean

    def of_rows(self, x: Tensor, valid: Tensor | None, per_position: bool) -> Moments:
        """Moments of the rows that this process holds of a batch.

        ``x`` (batch, heads, tokens, head size) in float32 or better; ``valid`` (batch, tokens) bool, or None.
        """
        if not self.gradient:
            x = x.detach()
        axes = (0,) if per_position else (0, 2)
        if valid is None:
            count = torch.full((x.shape[2],), x.shape[0], device=x.device)
            weight = None
        else:
            count = valid.sum(dim=0)
            weight = valid[:, None, :, None].to(x.dtype)
            x = x * weight
        if not per_position:
            count = count.sum(dim=0, keepdim=True)
        size = count.clamp(min=1).to(x.dtype)[:, None]
        mean = x.sum(dim=axes, keepdim=True).squeeze(0) / size
        centred = x - mean if weight is None else (x - mean) * weight
        squares = centred.square().sum(dim=axes, keepdim=True).squeeze(0)
        if process_count() == 1:
            return Moments(count, mean, squares)
        return Moments(count, mean, squares, centred.detach().sum(dim=axes, keepdim=True).squeeze(0) / size)

    def of_batch(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Mean and deviation of a whole batch from its moments; they wait for :meth:`commit`.

        Both (heads, rows, head size), to broadcast against a batch without its first axis.
        """
        count, mean, squares, _ = moments
        size = count.clamp(min=1).to(mean.dtype)[:, None]
        freedom = (size - 1).clamp(min=1) if self.unbiased else size
        variance = squares / freedom
        deviation = _root(variance + self.eps) if self.eps == 0 else (variance + self.eps).sqrt()
        spread = variance if self.running == "variance" else deviation
        self._wait(mean.detach(), spread.detach(), count > 0)
        return mean, deviation

    def _wait(self, mean: Tensor, spread: Tensor, seen: Tensor) -> None:
        """Keep a batch's moments; those of the first rows alone leave the others unseen."""
        if in_backward():  # the same batch again, which has been committed
            return
        unseen = self.mean.shape[1] - mean.shape[1]
        if unseen:
            mean, spread = (F.pad(moment, (0, 0, 0, unseen)) for moment in (mean, spread))
            seen = F.pad(seen, (0, unseen))
        self.pending = (mean, spread, seen)

    def centre_again(self, absolute: Tensor, valid: Tensor | None, per_position: bool) -> Tensor:
        """Remember the mean of |n(x)| in training; in evaluation subtract it and take absolute values again."""
        if not self.training:
            return (absolute - self.get_buffer("absolute_mean").to(absolute.dtype)).abs()
        weight = torch.ones_like(absolute[:1, :1, :, :1]) if valid is None else valid[:, None, :, None].to(absolute)
        weight = weight.expand(len(absolute), 1, -1, 1)
        axes = (0,) if per_position else (0, 2)
        total = (absolute.detach() * weight).sum(dim=axes, keepdim=True).squeeze(0)
        count = weight.sum(dim=axes, keepdim=True).squeeze(0)
        if process_count() > 1:
            both = torch.cat([total.flatten(), count.flatten()])
            both = gather_rows(both[None], [1] * process_count()).sum(dim=0)
            total, count = both[: total.numel()].view_as(total), both[total.numel() :].view_as(count)
        if not in_backward():
            self.pending_absolute = total / count.clamp(min=1)
        return absolute

    def commit(self) -> None:
        """Move the running averages by the batch statistics that wait, once."""
        with torch.no_grad():
            if self.pending is None:
                return
            mean, spread, seen = self.pending
            self.pending = None
            self.num_batches_tracked += seen
            if self.running == "variance":
                # The same numbers as a plain average divided by 1 - (1 - momentum)^k, without a second set of buffers.
                step = self.momentum / (1 - (1 - self.momentum) ** self.num_batches_tracked.clamp(min=1))
            else:
                step = torch.full(seen.shape, self.momentum, device=seen.device)
            step = (step * seen).to(torch.float32)[:, None]
            if self.pending_absolute is not None:
                self.get_buffer("absolute_mean").lerp_(self.pending_absolute.float(), step)
                self.pending_absolute = None
            self.mean.lerp_(mean.float(), step)
            self.get_buffer(self.spread_name).lerp_(spread.float(), step)


def _root(variance: Tensor) -> Tensor:
    """Square root whose gradient at 0 is 0: that of ``sqrt`` is infinite, and infinity times 0 is NaN."""
    varies = variance != 0  # true of NaN, which must not pass for 0
    return torch.where(varies, torch.where(varies, variance, 1).sqrt(), 0)


class QueryKeyStandardizer(nn.Module):
    """Debias queries and keys: ``|(x - mean) / deviation|``, elementwise.

    Training uses the statistics of the batch, with the gradient through them as in batch normalisation; evaluation
    uses the running ones. Statistics are computed and kept in float32 whatever the type of the model; results have
    the type of the input. Padding (``valid`` False) enters no statistic.

    Args:
        num_heads: attention heads of the query.
        head_size: features per head.
        num_key_value_heads: heads of the key where it has fewer (grouped queries); statistics are per key head.
        length: number of tokens, needed by ``statistics="position"`` and by nothing else.
        statistics: over what mean and deviation are taken, always per head and feature.
            ``position``: over the batch, each token position apart. The paper's bound on logit differences then
            holds for each pair of positions, and the module is tied to one length.
            ``feature``: over batch and positions.
            ``cls_feature``: as ``feature``, but the readout row of the query has statistics of its own.
        scale: divide by the deviation.
        absolute: take the absolute value.
        unbiased: divide the sum of squares by n - 1.
        running: what the running average is taken of; see :class:`RunningMoments`.
        momentum: share of the newest batch in the running average.
        eps: added to the variance. With 0, a feature that does not vary at all becomes 0 and has no gradient.
        statistics_gradient: let the gradient through the statistics of the batch, as batch normalisation does.
        twice: in evaluation alone, subtract the running mean of ``|n(x)|`` and take absolute values again. Training
            does not, so both modes differ; only the authors' HateXplain notebook does this.

    Errors: :class:`~levelhead.ConfigError` for an impossible option; :class:`LengthError` (also a ``ValueError``)
    when per-position statistics meet another length. A ``UserWarning``, once, on evaluation before any update.

    In training, every process of ``torch.distributed`` must make its pass: the statistics are exchanged.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ: the debiased attention and equation 6.

    Examples:
        >>> import torch
        >>> import levelhead as lh
        >>> debias = lh.QueryKeyStandardizer(2, 8, statistics="feature")
        >>> query, key = debias(torch.randn(4, 2, 5, 8), torch.randn(4, 2, 5, 8))
        >>> bool((query >= 0).all())
        True
        >>> debias.commit()  # once per training step: moves the running statistics
    """

    @checked
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        *,
        num_key_value_heads: int | None = None,
        length: int | None = None,
        statistics: Statistics = "position",
        scale: bool = True,
        absolute: bool = True,
        unbiased: bool = False,
        running: Running = "variance",
        momentum: float = 0.1,
        eps: float = 1e-5,
        statistics_gradient: bool = True,
        twice: bool = False,
    ):
        super().__init__()
        if not 0 < momentum <= 1 or eps < 0:
            raise ConfigError(f"need 0 < momentum <= 1 and eps >= 0; got momentum={momentum}, eps={eps}")
        if statistics == "position" and length is None:
            raise ConfigError("statistics='position' needs length=, the fixed number of tokens")
        if twice and (statistics == "cls_feature" or not absolute):
            raise ConfigError("twice=True needs absolute=True and statistics 'position' or 'feature'")
        self.statistics, self.length, self.eps = statistics, length, eps
        self.scale, self.absolute, self.twice = scale, absolute, twice
        moments = functools.partial(
            RunningMoments,
            rows=length if statistics == "position" and length is not None else 1,
            size=head_size,
            unbiased=unbiased,
            running=running,
            momentum=momentum,
            eps=eps,
            gradient=statistics_gradient,
            twice=twice,
        )
        self.query = moments(num_heads)
        self.key = moments(num_key_value_heads or num_heads)
        self.readout = moments(num_heads) if statistics == "cls_feature" else None
        self._known_updated = False  # asking the buffer costs a device synchronisation, so ask until it says yes

    def forward(
        self, query: Tensor, key: Tensor, valid: Tensor | None = None, readout: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Debias (batch, heads, tokens, head size) queries and (batch, key heads, tokens, head size) keys.

        ``valid`` (batch, tokens) bool is False at padding; ``readout`` (batch,) int64 is the index of the row
        that the classifier reads, needed by ``cls_feature`` only. Returns both, shapes and types unchanged. The
        running averages move only at :meth:`commit`.
        """
        self._check_length(key)
        if self.statistics == "cls_feature" and readout is None:
            raise ConfigError("statistics='cls_feature' needs readout=, the (batch,) index of the readout row")
        self._warn_before_update()
        query_valid = valid if query.shape[2] == key.shape[2] else None
        exact_query, exact_key = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (query, key))
        parts = [(self.query, exact_query, query_valid), (self.key, exact_key, valid)]
        if self.readout is None or readout is None:
            clean_query, clean_key = self._clean(parts)
        else:
            # Not gather(), which would keep all queries for the backward pass.
            row = exact_query[torch.arange(query.shape[0], device=query.device), :, readout]
            parts.append((self.readout, row[:, :, None], None))
            clean_query, clean_key = self._clean(parts, readout)
        if self.twice:
            per_position = self.statistics == "position"
            clean_query = self.query.centre_again(clean_query, query_valid, per_position)
            clean_key = self.key.centre_again(clean_key, valid, per_position)
        return clean_query.to(query.dtype), clean_key.to(key.dtype)

    def one_row(self, query: Tensor, key: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Debias the readout row (batch, heads, head size) and keys (batch, key heads, tokens, head size).

        Equal to :meth:`forward` in that row and all keys, without the other queries; the statistics of those are not
        kept then. Only where :attr:`knows_one_row`; with ``statistics="position"`` the row is the first one.
        """
        self._check_length(key)
        self._warn_before_update()
        exact_query, exact_key = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (query[:, :, None], key))
        running, query_valid = self.readout, None
        if running is None:
            running, query_valid = self.query, None if valid is None else valid[:, :1]
        clean_query, clean_key = self._clean([(running, exact_query, query_valid), (self.key, exact_key, valid)])
        return clean_query[:, :, 0].to(query.dtype), clean_key.to(key.dtype)

    @property
    def knows_one_row(self) -> bool:
        """Whether :meth:`one_row` can represent :meth:`forward`: the row's query has statistics of its own."""
        return self.statistics == "cls_feature" or (self.statistics == "position" and not self.twice)

    def _check_length(self, key: Tensor) -> None:
        if self.statistics == "position" and key.shape[2] != self.length:
            raise LengthError(
                f"statistics='position' was made for {self.length} tokens and got {key.shape[2]}. Keep the input "
                "size fixed (same image size, padding to a fixed length) or use statistics='cls_feature'."
            )

    def _clean(
        self, parts: list[tuple[RunningMoments, Tensor, Tensor | None]], readout: Tensor | None = None
    ) -> list[Tensor]:
        """Standardise each part and drop its sign; with ``readout``, the last part takes these rows of the first."""
        if self.training and all(self._in_one_step(x, valid) for _, x, valid in parts):
            per_position = self.statistics == "position"
            found = [running.clean(x, per_position, self.absolute) for running, x, _ in parts[1:]]
            replacement = None if readout is None else Replacement(readout, found.pop())
            running, x, _ = parts[0]
            return [running.clean(x, per_position, self.absolute, replacement), *found]
        found = []
        for (_, x, _), moments in zip(parts, self._statistics(parts), strict=True):
            standard = self._standardize(x, *moments)
            found.append(standard.abs() if self.absolute else standard)
        if readout is not None:
            row = found.pop()
            found[0] = found[0].scatter(2, readout[:, None, None, None].expand_as(row), row)
        return found

    def _in_one_step(self, x: Tensor, valid: Tensor | None) -> bool:
        """Whether the kernel of batch normalisation computes what the options ask for."""
        usual = self.scale and self.eps > 0 and not self.twice
        if not usual or self.key.unbiased or not self.key.gradient or valid is not None or process_count() > 1:
            return False
        if torch.compiler.is_compiling():  # which joins single operations alone
            return False
        return x.shape[0] * (1 if self.statistics == "position" else x.shape[2]) > 1

    def _statistics(self, parts: list[tuple[RunningMoments, Tensor, Tensor | None]]) -> list[tuple[Tensor, Tensor]]:
        """Mean and deviation of each part: of the batch in training, the running ones in evaluation."""
        per_position = self.statistics == "position"
        if not self.training:
            return [running.remembered(x.dtype, x.shape[2] if per_position else None) for running, x, _ in parts]
        merged = pooled([running.of_rows(x, valid, per_position) for running, x, valid in parts])
        return [running.of_batch(moments) for (running, _, _), moments in zip(parts, merged, strict=True)]

    def _standardize(self, x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        centred = x - mean
        if not self.scale:
            return centred
        if self.eps:
            return centred / deviation
        varies = deviation != 0  # true of NaN, which must not pass for 0
        return torch.where(varies, centred / torch.where(varies, deviation, 1), 0)

    def _warn_before_update(self) -> None:
        # A question about a value breaks the graph of torch.compile, and cannot be asked in torch.export.
        if self.training or self._known_updated or torch.compiler.is_compiling():
            return
        self._known_updated = True
        if bool((self.key.num_batches_tracked == 0).all()):
            warnings.warn(
                "Debiased attention is evaluated before any training step: its running statistics still have their "
                "start values (mean 0, spread 1). Train first, load trained weights with levelhead.from_pretrained, or "
                "take the statistics from data with levelhead.calibrate(model, loader).",
                UserWarning,
                stacklevel=3,
            )

    def commit(self) -> None:
        """Move all running averages by the last batch, once; without a new batch nothing happens."""
        for child in self.children():
            if isinstance(child, RunningMoments):
                child.commit()
