"""From one training forward pass to its alignment term, for attached and appended models alike.

Follows Lu, Wang, Wang, ICLR 2024: the values of the tokens that the readout row attends to most are projected and
pulled together by class; the whole loss is task + alpha * alignment.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from levelhead.arrays import checked
from levelhead.attention.contrastive import (
    AlignmentHead,
    rank_tokens,
    readout_logits,
    select_values,
    supervised_contrastive,
)
from levelhead.attention.standardize import QueryKeyStandardizer, in_backward
from levelhead.distributed import gather_rows, process_count, row_counts
from levelhead.types import ConfigError, LevelheadError

if TYPE_CHECKING:
    from levelhead.attention.config import DebiasConfig


@dataclass
class Pass:
    """One training pass of a whole model: whether it got labels, its alignment term is in a loss, and it went back."""

    labelled: bool
    aligned: bool
    went_back: bool = False


@dataclass
class Reading:
    """What alignment needs of one forward pass.

    ``logits`` (batch, heads, tokens): the debiased readout row's, without a mask; ``value`` (batch, key heads, tokens,
    value size): the only one with a graph; ``readout`` (batch,) or None; ``valid`` (batch, tokens) or None. With
    ``project``, ``value`` is instead what values are made of, (batch, 1, tokens, width), and ``project`` makes them,
    (batch, t, width) to (batch, t, heads x value size): a layer that computes one row has no need of the values of all
    tokens. ``of`` is the pass that it was taken in.
    """

    logits: Tensor
    value: Tensor
    readout: Tensor | None
    valid: Tensor | None
    project: Callable[[Tensor], Tensor] | None = None
    of: Pass | None = None


class Tap:
    """Sits on one attention module and keeps a :class:`Reading` of the pass that armed it.

    ``readout`` is the rule for the row that the classifier reads: ``first``, ``last`` (last real token) or ``none``.
    Hugging Face classifiers read row 0 even where padding on the left has put padding there, so ``first`` is row 0 to
    the letter; ``first_real`` makes it the first row that is no padding. ``debias`` holds the model's options, or None
    where nothing is debiased. A plain object, so that no reading enters ``state_dict``; copies start empty, because
    tensors with a graph cannot be copied.
    ``attention_temperature`` divides the layer's logits; without ``padding_mask`` the layer treats padding as text.
    """

    def __init__(self, readout: str, debias: DebiasConfig | None = None, first_real: bool = False) -> None:
        self.readout, self.debias, self.first_real = readout, debias, first_real
        self.attention_temperature = 1.0 if debias is None else debias.notebook.attention_temperature
        self.padding_mask = debias is None or debias.notebook.padding_mask
        self.current: Pass | None = None  # while a whole model trains
        self.used = False
        self.reading: Reading | None = None
        self.steps: int | None = 0  # backward passes looked at for gradient accumulation; None once that is settled
        self.aligned: Tensor | None = None  # the latest alignment term, without its graph: for who watches training

    def __reduce__(self) -> tuple[Any, ...]:
        return Tap, (self.readout, self.debias, self.first_real)

    @property
    def alpha(self) -> float:
        """Weight of the alignment term; 0 where nothing is aligned."""
        return 0.0 if self.debias is None else self.debias.alpha

    def row(self, x: Tensor, valid: Tensor | None) -> Tensor | None:
        """Index (batch,) of the readout row of ``x`` (batch, heads, tokens, size); None when no row is read."""
        batch, tokens = x.shape[0], x.shape[2]
        if self.readout == "none":
            return None
        if self.readout == "first":
            if self.first_real and valid is not None:
                return valid.to(torch.int64).argmax(dim=1)  # the first of several equal maxima
            return torch.zeros(batch, dtype=torch.int64, device=x.device)
        if valid is None:
            return torch.full((batch,), tokens - 1, dtype=torch.int64, device=x.device)
        return torch.where(valid, torch.arange(tokens, device=x.device), 0).amax(dim=1)

    def take(
        self, query: Tensor, key: Tensor, value: Tensor, row: Tensor | None, valid: Tensor | None, scaling: float
    ) -> None:
        """Keep what alignment needs, when a top-level training pass requested it."""
        # A layer that gradient checkpointing runs again in the backward pass finds the tap without a pass.
        if self.current is None or not self.alpha:
            return
        query = row_of(query.detach(), row, valid)
        self.reading = Reading(readout_logits(query, key.detach(), scaling), value, row, valid, of=self.current)

    def take_row(self, reading: Reading) -> None:
        """Keep what a layer that computed the readout row alone has for alignment, when it is requested."""
        if self.current is not None and self.alpha:
            reading.of = self.current
            self.reading = reading

    def watch(self, output: Tensor, attention: nn.Module) -> None:
        """Check the training loop when the backward pass arrives at ``output``, what the layer's attention returns.

        Raises :class:`~levelhead.LevelheadError` there if the loss leaves alignment out, or if a part of the model
        ran alone. Warns once of gradient accumulation. Gradient checkpointing runs a layer again within the backward
        pass, and torch.compile knows no such hooks: neither is checked.
        """
        if self.debias is None or not output.requires_grad or torch.compiler.is_compiling() or in_backward():
            return
        current = self.current
        if current is None and not attention.training:
            return

        def check(gradient: Tensor) -> None:
            if current is None:
                raise LevelheadError(PART_ALONE)
            self.require_alignment(current)
            if not current.went_back:
                current.went_back = True
                self._note_accumulation(attention)

        output.register_hook(check)

    def require_alignment(self, current: Pass) -> None:
        """Raise :class:`~levelhead.LevelheadError` for a pass whose alignment term no loss has."""
        if not current.aligned:
            self.reading, current.aligned = None, True  # say it once
            raise LevelheadError(OWN_LOSS if current.labelled else NO_LABELS)

    def _note_accumulation(self, attention: nn.Module) -> None:
        """Warn once if a gradient of an earlier backward pass still lies in a weight of ``attention``.

        A weight that has a gradient at the first look is one behind the attention: it says nothing, ever.
        """
        if self.steps is None:
            return
        weight = next((weight for weight in attention.parameters() if weight.requires_grad), None)
        gradient = None if weight is None else weight.grad
        before, self.steps = self.steps, self.steps + 1
        if gradient is None:
            return
        if type(gradient) is not Tensor or before > 8:  # of FSDP; or zeroed in each step, which is costly to see
            self.steps = None
        elif bool(gradient.any()):
            self.steps = None
            if before:
                warnings.warn(ACCUMULATION, UserWarning, stacklevel=2)


WITHOUT_STATISTICS = (
    "The adapter of PEFT on this model has no running statistics of the debiased layer: it would be saved without "
    "them, and predicts with those of its base. Make it with peft.get_peft_model(model, levelhead.lora_config(model))."
)
NO_LABELS = (
    "This model is trained without its alignment term: its forward pass got no labels and "
    "levelhead.alignment(model, labels) was not called. Label smoothing in the Hugging Face Trainer removes "
    "the labels: set label_smoothing_factor=0. With a loss of your own, add "
    "alpha * levelhead.alignment(model, labels). Without alignment, use alpha=0."
)
OWN_LOSS = (
    "This model is trained without its alignment term: the loss is your own, and outputs.loss is not part of it. Call "
    "the model without labels and add alpha * levelhead.alignment(model, labels). Without alignment, use alpha=0."
)
PART_ALONE = (
    "A part of this debiased model is trained alone, so its statistics and its alignment are lost. Call the whole "
    "model: model(**inputs), not its encoder."
)
ACCUMULATION = (
    "Gradients of several batches are accumulated. Debiased attention takes statistics and alignment pairs from each "
    "micro-batch alone, which changes the method. Use one larger batch with gradient checkpointing or, for an "
    "appended model, model.micro_batch."
)


def row_of(x: Tensor, row: Tensor | None, valid: Tensor | None) -> Tensor:
    """Return (batch, heads, size), each ``row`` of (batch, heads, tokens, size); None: the mean over real tokens."""
    if row is not None:
        # Not len(): torch.export would fix the number of rows.
        return x[torch.arange(x.shape[0], device=x.device), :, row]
    if valid is None:
        return x.mean(dim=2)
    weight = valid[:, None, :, None].to(x.dtype)
    return (x * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1)


def running(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield path and module of all that runs: PEFT's modules_to_save keeps an untrained copy beside each."""
    return ((path, module) for path, module in model.named_modules() if "original_module" not in path)


def standardizers_of(attention: nn.Module) -> list[QueryKeyStandardizer]:
    """Return the standardizers of an attention module that run."""
    return [module for _, module in running(attention) if isinstance(module, QueryKeyStandardizer)]


def debiased_attention(model: nn.Module) -> nn.Module:
    """Find the module of ``model`` whose :class:`Tap` counts: that of its last attention."""
    found = [module for _, module in running(model) if isinstance(getattr(module, "tap", None), Tap)]
    if found:
        return found[-1]  # plain layers that were appended below it have taps, too
    raise ConfigError(
        f"{type(model).__name__} has no debiased attention: call levelhead.attach or levelhead.append_encoder first."
    )


@contextmanager
def training_pass(model: nn.Module, labelled: bool = False) -> Iterator[Tap]:
    """Wrap one top-level forward pass: take its reading, then move the running statistics exactly once."""
    attention = debiased_attention(model)
    if model.training and torch.distributed.is_available() and torch.distributed.is_initialized():
        refuse_sharded(model)
    tap: Tap = attention.tap  # type: ignore[assignment]
    _check_adapter(model, attention)
    if tap.reading is not None and tap.reading.of is not None:
        tap.reading.of.aligned = True  # of two passes without labels in one loss, the later one is aligned
    tap.used, tap.reading = False, None
    tap.current = Pass(labelled, aligned=not tap.alpha) if model.training else None
    # Searched for, because PEFT's modules_to_save wraps the standardizer; a copy that did not run has nothing new. And
    # before the pass: afterwards torch.compile would break its graph here.
    standardizers = [module for module in attention.modules() if isinstance(module, QueryKeyStandardizer)]
    try:
        yield tap
    finally:
        tap.current = None
    if not tap.used:
        raise ConfigError(
            "The debiased attention did not run: the attention implementation of this model was switched after attach. "
            "Leave it alone, or call detach(model) first."
        )
    if model.training:
        for standardizer in standardizers:
            standardizer.commit()


def _check_adapter(model: nn.Module, attention: nn.Module) -> None:
    """Refuse to train an adapter of PEFT beside running statistics that it does not save."""
    tuners: Any = sys.modules.get("peft.tuners.tuners_utils")
    if tuners is None or torch.compiler.is_compiling() or not model.training:
        return
    if not isinstance(attention._modules.get("debias"), QueryKeyStandardizer):  # wrapped, or there is none
        return
    adapted = saved = False
    for name, module in model.named_modules():
        adapted = adapted or isinstance(module, tuners.BaseTunerLayer)
        saved = saved or (module is attention and "modules_to_save" in name)
    if adapted and not saved:
        raise ConfigError(WITHOUT_STATISTICS)


@checked
def alignment(model: nn.Module, labels: Tensor, weight: Tensor | None = None, pairs: Tensor | None = None) -> Tensor:
    """Alignment term of the last training forward pass, before multiplication by ``alpha``.

    Call the model in training mode without labels, then this once; the sum of your task loss and ``alpha`` times
    the result is the method's loss. (With labels, the model adds the term alone.) A network of your own with
    several :class:`DebiasedBlock` needs this for each block: ``alignment(block, labels)``.

    With several data-parallel processes the rows of all of them are contrasted with each other, and every process gets
    the loss of the whole batch. ``labels`` and ``weight`` may then be those of the own rows or of all rows.

    Args:
        model: from :func:`attach` or :func:`append_encoder`, a :class:`DebiasedBlock`, or a network around one of
            these; with ``alpha`` above 0.
        labels: (batch,) integer classes.
        weight: (batch,) importance of each example, or None.
        pairs: (batch, batch) weight of each other row where an anchor, a row of it, is contrasted with the batch; 1
            for rows of its class. Of all rows with several processes, and not with a queue. None for 1 everywhere.

    Returns:
        Scalar with a graph to the values of the debiased layer and to the projector.

    Errors: :class:`~levelhead.ConfigError` when there is no pass to align, or the model has no alignment head.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, equation 7.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import torch
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> model = lh.attach(network).train()
        >>> pictures, labels = torch.randn(4, 3, 224, 224), torch.tensor([0, 1, 0, 1])
        >>> task = torch.nn.functional.cross_entropy(model(pixel_values=pictures).logits, labels)
        >>> (task + 1.0 * lh.alignment(model, labels)).backward()
    """
    check_labels(labels)
    # Searched for: a wrapper (PEFT, DDP), or a network of one's own around a block.
    owners = [module for _, module in running(model) if "alignment_head" in module._modules]
    if not owners:
        raise ConfigError("This model has no alignment head: it was made with alpha=0, or is not debiased.")
    owner = owners[-1]
    tap: Tap = debiased_attention(owner).tap  # type: ignore[assignment]
    current = None if tap.reading is None else tap.reading.of
    loss = align(owner, tap, labels, weight, pairs)
    if current is not None:
        current.aligned = True
    return loss


def align(
    model: nn.Module, tap: Tap, labels: Tensor, weight: Tensor | None = None, pairs: Tensor | None = None
) -> Tensor:
    """Do what :func:`alignment` says, with the model's tap at hand: torch.compile cannot search for it after a pass."""
    head: AlignmentHead = model.alignment_head  # type: ignore[assignment]
    reading, tap.reading = tap.reading, None  # the graph lives no longer than its loss
    if reading is None:
        raise ConfigError(
            "There is no training forward pass to align: call model.train(), then model(**inputs) without labels, "
            "then alignment(model, labels) once."
        )
    options = tap.debias
    assert options is not None  # or nothing would have been read
    index, found = rank_tokens(
        reading.logits,
        options.top_t,
        readout=reading.readout,
        valid=reading.valid,
        include_readout=options.include_readout,
        ranking=options.ranking,
        off_by_one=options.notebook.off_by_one,
    )
    values = select_values(reading.value, index, found, project=reading.project)
    if torch.is_grad_enabled() and not values.requires_grad and _values_can_learn(model):
        raise LevelheadError(
            "The values of the debiased layer carry no graph, so alignment could not train them. Reentrant gradient "
            "checkpointing does this: pass gradient_checkpointing_kwargs={'use_reentrant': False}."
        )
    z, labels, weight = _of_all_processes(head(values), labels, weight)
    if head.queue:
        z, labels = head.enqueue(z, labels)
        weight = None  # what is in the queue has lost its weights
    smoothing = options.notebook.contrastive_smoothing
    loss = supervised_contrastive(z, labels, options.temperature, weight, smoothing, options.reduction, pairs)
    tap.aligned = loss.detach()
    return loss


def _of_all_processes(z: Tensor, labels: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return projections, labels and weights of the whole batch; labels and weights may be those of it already."""
    if process_count() == 1:
        return z, labels, weight
    counts = row_counts(z)
    if len(labels) == len(z):
        labels = gather_rows(labels, counts)
        weight = None if weight is None else gather_rows(weight.detach(), counts)
    elif len(labels) != sum(counts):
        raise ConfigError(
            f"alignment got {len(labels)} labels; this process holds {len(z)} rows of a batch of {sum(counts)}. Pass "
            "the labels of its own rows, or those of the whole batch."
        )
    return gather_rows(z, counts), labels, weight


def refuse_sharded(model: nn.Module) -> None:
    """Raise :class:`~levelhead.ConfigError` for a model whose parameters FSDP's first version has divided.

    The second one, ``fully_shard``, keeps modules and buffers as they are: all processes compute the same statistics.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel

    # Within a forward pass the shards are whole again, and only modules and marks still tell.
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False)
        for parameter in model.parameters()
    ):
        raise ConfigError(
            "levelhead has not been tried with FullyShardedDataParallel, the first version of FSDP. Use "
            "torch.distributed.fsdp.fully_shard, which keeps modules as they are, or data-parallel (DDP)."
        )


def _values_can_learn(model: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in debiased_attention(model).parameters())


def check_labels(labels: Tensor) -> None:
    """Refuse targets for which "same class" has no meaning."""
    if not isinstance(labels, Tensor):
        raise ConfigError(f"Labels must be a tensor with one integer class per example; got a {type(labels).__name__}.")
    if labels.ndim != 1 or labels.is_floating_point():
        raise ConfigError(
            f"Alignment needs one integer class per example; got labels of shape {tuple(labels.shape)} and type "
            f"{labels.dtype}. Multi-label and regression targets have no single class and are not supported."
        )
