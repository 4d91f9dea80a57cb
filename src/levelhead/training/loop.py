"""What every training does around a step: its checks, its clock, its log, and its checkpoints.

:class:`~levelhead.training.lab.Lab`, pretraining and KLAAD compute a gradient, each its own; the rest is here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from levelhead.distributed import agreed
from levelhead.terminal import Progress
from levelhead.training.checkpoint import Keeper
from levelhead.training.finite import advice
from levelhead.types import LevelheadError


class Loop:
    """The steps of one stage, from where its checkpoint stands to ``total``.

    ``module`` has the parameters, and all that a checkpoint keeps of the network. ``config`` has ``gradient_clip``,
    ``checkpoint_seconds``, ``log_every``, ``learning_rate`` and ``precision``, as
    :class:`~levelhead.training.config.TrainConfig` has. The caller computes gradients, and calls :meth:`step`.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        optimizer: Any,
        schedule: torch.optim.lr_scheduler.LambdaLR,
        keeper: Keeper,
        config: Any,
        total: int,
        progress: Progress,
    ) -> None:
        self.name, self.module, self.optimizer, self.schedule = name, module, optimizer, schedule
        self.keeper, self.config, self.total, self.progress = keeper, config, total, progress
        self.learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.position = keeper.restore(module, optimizer, schedule)
        self._earlier = self.position.seconds
        self._began = self._saved = time.monotonic()
        self._rate = 0.0  # of the latest step
        if self.position.finished:
            return
        keeper.forget_log_after(self.position.step)
        if self.position.step == 0:
            self.save()  # so that a training killed early resumes on as many threads

    def step(self, loss: Tensor | float, where: str) -> float:
        """Take a step with the gradients that there are, and return the loss.

        Raises :class:`~levelhead.types.LevelheadError` if the loss, the gradient or the weights are not finite;
        ``where`` says which rows they are of.
        """
        clip, accelerator = self.config.gradient_clip, self.keeper.accelerator
        if clip is None:
            norm = get_total_norm([one.grad for one in self.learnt if one.grad is not None])
        else:
            norm = accelerator.clip_grad_norm_(self.learnt, clip)
        # Figures are read off the device twice a step: here, and below after the optimiser.
        value, steepness = torch.stack([torch.as_tensor(loss, device=norm.device).detach(), norm]).tolist()
        where, first = f"step {self.position.step} ({where})", self.position.step == 0
        if not math.isfinite(value):
            raise LevelheadError(
                f"The loss is {value} at {where}. Weights were not updated by this step. "
                f"{advice(self.config, first=first)}"
            )
        if not math.isfinite(steepness) and not rescales(accelerator.scaler):
            raise LevelheadError(
                f"The gradient's norm is {steepness} at {where}, although the loss is finite: a derivative overflows, "
                "or the loss has none here. Weights were not updated by this step. "
                f"{advice(self.config, first=first, clip=False)}"
            )
        self._rate = float(self.schedule.get_last_lr()[0])
        self.optimizer.step()
        if not math.isfinite(size := get_total_norm(self.learnt).item()):
            raise LevelheadError(
                f"The weights' norm is {size} after {where}: this step updated them to numbers that are not finite, or "
                f"too large to compute with. Nothing of it was saved. {advice(self.config, clip=False)}"
            )
        self.schedule.step()
        self.position.step += 1
        self.position.seconds = self._earlier + time.monotonic() - self._began
        self.position.finished = self.position.step == self.total
        if accelerator.is_main_process:
            self.progress(self.name, self.position.step, self.total, f"loss {value:.4f}")
        return float(value)

    def log_due(self, last_of_epoch: bool) -> bool:
        """Return whether the latest step is logged: every ``config.log_every``-th is, and the last of an epoch."""
        return last_of_epoch or self.position.step % self.config.log_every == 0

    def log(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Log figures of the latest step, with its learning rate and the time so far."""
        position = self.position
        about = {"stage": position.stage, "epoch": epoch, "step": position.step}
        self.keeper.log({**about, **figures, "learning_rate": self._rate, "seconds": round(position.seconds, 3)})

    def save(self) -> None:
        """Write the progress."""
        self.keeper.save(self.module, self.optimizer, self.position)
        self._saved = time.monotonic()

    def save_if_due(self) -> None:
        """Write the progress of an unfinished training once ``config.checkpoint_seconds`` have passed."""
        if self.keeper.checkpoint is None or self.position.finished:
            return
        due = time.monotonic() - self._saved >= self.config.checkpoint_seconds
        if agreed(due, self.keeper.accelerator.device):
            self.save()


def rescales(scaler: Any) -> bool:
    """Say whether a gradient that overflows is that of a loss scaled up for fp16, whose step is left out."""
    return scaler is not None and scaler.get_scale() > 1


def mixed_seed(*words: int) -> int:
    """Return one seed for a generator of torch, a function of all words alone."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]) % 2**63


def epoch_generator(seed: int, stage: int, epoch: int) -> torch.Generator:
    """Return the generator of an epoch's order: a function of seed, stage and epoch alone."""
    return torch.Generator().manual_seed(mixed_seed(seed, stage, epoch))
