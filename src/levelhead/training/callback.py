"""What debiasing does while the Hugging Face Trainer trains: ``lh.DebiasLog``."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from levelhead.attention.aligning import Tap, debiased_attention, standardizers_of
from levelhead.attention.standardize import RunningMoments
from levelhead.types import ConfigError


class DebiasLog(TrainerCallback):
    """Adds to what Trainer logs what alignment and the running statistics do. It changes no training.

    Every ``logging_steps`` the log, ``trainer.state.log_history`` and the printed line get:

    - ``alignment``: the alignment term, mean over the batches since the last log, without its weight alpha. It falls
      while values of one class come together; with classes that never meet in a batch it says nothing.
    - ``task_loss``: Trainer's ``loss`` less alpha times that mean.
    - ``statistics_batches``: training batches that the running statistics have seen.
    - ``statistics_shift``: how far the running means of queries and keys moved since the last log, root mean square,
      in units of their deviations. Near 0: what evaluation uses is what training sees; if it stays large to the end,
      lower the learning rate or call :func:`levelhead.calibrate`.

    All of it comes from inputs and labels: no group is read. Trackers (TensorBoard and others) get these entries where
    the callback stands before them: ``trainer.callback_handler.callbacks.insert(0, lh.DebiasLog())``.

    Examples:
        >>> import torch
        >>> from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8)
        >>> rows = [{"pixel_values": torch.randn(3, 16, 16), "labels": row % 2} for row in range(8)]
        >>> arguments = TrainingArguments(
        ...     "out", max_steps=2, per_device_train_batch_size=4, logging_steps=1, report_to="none", use_cpu=True,
        ...     save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        ... )
        >>> model = lh.attach(ViTForImageClassification(config))
        >>> trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[lh.DebiasLog()])
        >>> _ = trainer.train()
        {...
        >>> [row["statistics_batches"] for row in trainer.state.log_history[:2]]
        [1, 2]
    """

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count = 0
        self._seen: Tap | None = None
        self._before: list[Tensor] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Find the debiased layer; a plain model is warned of, and nothing is logged for it."""
        self._sum, self._count, self._seen, self._before = None, 0, None, []
        try:
            attention = debiased_attention(model)
        except ConfigError:
            attention = nn.Module()
        tap = getattr(attention, "tap", None)
        if not isinstance(tap, Tap) or tap.debias is None:
            warnings.warn(
                f"{type(model).__name__} has no debiased attention: DebiasLog logs nothing of it.",
                UserWarning,
                stacklevel=2,
            )
            return
        tap.aligned = None
        self._seen, self._before = tap, _means(attention)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the alignment of one micro-batch, where gradients are accumulated."""
        tap = self._seen
        if tap is None or tap.aligned is None:
            return
        value = tap.aligned.float()
        self._sum = value if self._sum is None else self._sum + value
        self._count += 1
        tap.aligned = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the alignment of the last batch of a step."""
        self.on_substep_end(args, state, control)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, model: Any = None, **kwargs: Any
    ) -> None:
        """Add the figures to a log of training; logs of evaluation, and the last summary, stay as they are."""
        if self._seen is None or logs is None or "loss" not in logs:
            return
        found = self._figures(model, logs)
        logs.update(found)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(found)

    def _figures(self, model: Any, logs: dict[str, Any]) -> dict[str, float]:
        assert self._seen is not None
        found: dict[str, float] = {}
        if self._sum is not None:
            alignment = float(self._sum / self._count)
            found["alignment"] = round(alignment, 4)
            found["task_loss"] = round(float(logs["loss"]) - self._seen.alpha * alignment, 4)
            self._sum, self._count = None, 0
        attention = debiased_attention(model)
        standardizers = standardizers_of(attention)
        if standardizers:
            found["statistics_batches"] = max(int(one.key.num_batches_tracked.max()) for one in standardizers)
            moments = _moments(attention)
            shifts = [
                ((one.mean - before) / one.remembered(torch.float32)[1].clamp(min=1e-6)).square().mean()
                for one, before in zip(moments, self._before, strict=True)
                if one.num_batches_tracked.max() > 0  # a layer that computes one row has none of other rows' queries
            ]
            if shifts:
                found["statistics_shift"] = round(float(torch.stack(shifts).mean().sqrt()), 4)
            self._before = _means(attention)
        return found


def _moments(attention: nn.Module) -> list[RunningMoments]:
    return [
        module for one in standardizers_of(attention) for module in one.modules() if isinstance(module, RunningMoments)
    ]


def _means(attention: nn.Module) -> list[Tensor]:
    return [one.mean.detach().clone() for one in _moments(attention)]
