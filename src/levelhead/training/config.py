"""How a stage is trained: :class:`TrainConfig`, the section ``train`` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from levelhead.arrays import check_fields
from levelhead.training.trackers import check_names
from levelhead.types import ConfigError, check_numbers


@dataclass(frozen=True)
class TrainConfig:
    """How a stage is trained; the same for every method of a comparison.

    ``learning_rate`` and ``weight_decay`` are AdamW's. ``schedule`` acts on each step after ``warmup_steps`` linear
    ones. ``gradient_clip`` bounds the global gradient norm (None: off). ``precision`` is accelerate's mixed precision.
    ``select`` names the rule that keeps a checkpoint (``levelhead list selectors``); ``keep_epochs`` keeps the weights
    of every epoch beside it, so that one run can be judged under other rules later; in a comparison they are deleted
    once each epoch has predicted the test split.
    ``patience`` ends a stage after that many epochs without a better one by its rule (None: off). The weights are those
    without it, bit for bit, unless a later epoch would have been better; it needs the constant schedule, because the
    rates of a cosine depend on all epochs.
    ``threads`` None keeps torch's number. ``checkpoint_seconds`` is the most work, in seconds, that a killed run loses.
    ``length_bucketing``, where examples differ in length, puts like lengths into one batch, which wastes less on
    padding; not for debiased attention, whose statistics then are those of one length, and differ from what evaluation
    needs. ``trackers`` are names that accelerate knows, such as ``tensorboard``; they get losses and label-only
    validation scores, no group. ``max_steps`` ends every stage after that many steps, for a rehearsal: what it gives is
    no result.

    There is no gradient accumulation: batch statistics and contrastive negatives are those of one micro-batch, so an
    accumulated batch is not a larger batch. The last, incomplete batch of an epoch is left out for the same reason;
    the next epoch draws a new order. In several processes ``batch_size`` is that of all of them together.

    Examples:
        >>> import levelhead as lh
        >>> config = lh.TrainConfig(epochs=3, batch_size=64, schedule="cosine")
        >>> round(config.learning_rate_factor(50, 100), 2)
        0.5
    """

    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = 0
    gradient_clip: float | None = None
    precision: Literal["no", "bf16", "fp16"] = "no"
    select: str = "val_loss"
    keep_epochs: bool = False
    patience: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    evaluation_batch_size: int = 512
    checkpoint_seconds: float = 60.0
    log_every: int = 10
    length_bucketing: bool = False
    trackers: tuple[str, ...] = ()
    max_steps: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, "train")
        check_names(self.trackers)
        check_numbers(
            "train",
            self,
            at_least_one=("epochs", "batch_size", "evaluation_batch_size", "log_every"),
            positive=("learning_rate", "gradient_clip", "threads", "max_steps", "patience"),
            at_least_zero=("weight_decay", "warmup_steps", "checkpoint_seconds"),
        )
        if self.patience is not None and self.schedule != "constant":
            raise ConfigError(
                f"train.patience needs train.schedule=constant: the rates of {self.schedule!r} depend on all epochs, "
                "so the weights would be others. Leave train.patience out."
            )
        if self.patience is not None and self.select == "last":
            raise ConfigError("train.patience with train.select=last never stops: choose another rule, e.g. val_loss.")
        check_step_size(self.learning_rate, self.weight_decay)
        if self.batch_size < 2:
            raise ConfigError("train.batch_size is 1; batch statistics need at least 2 examples.")

    def predicted_rows(self, rows: int) -> int:
        """Return how many of this many rows, the first ones, are predicted: in a rehearsal ``max_steps`` batches."""
        return rows if self.max_steps is None else min(rows, self.max_steps * self.batch_size)

    def learning_rate_factor(self, step: int, total: int) -> float:
        """Return the factor on the learning rate at ``step`` (from 0) of ``total``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        progress = (step - self.warmup_steps) / max(1, total - self.warmup_steps)
        return 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * progress, dtype=torch.float64))))


def check_step_size(learning_rate: float, weight_decay: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for numbers that torch's AdamW cannot put into a float32."""
    # The first step divides the rate by 1 - 0.9; decay multiplies weights by 1 - rate x decay.
    if learning_rate * max(10, weight_decay) > torch.finfo(torch.float32).max:
        raise ConfigError(
            f"train.learning_rate is {learning_rate:g} and train.weight_decay {weight_decay:g}: a step of AdamW does "
            "not fit into a float32. Lower them."
        )
