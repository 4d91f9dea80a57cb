"""The device and the processes that a training runs on, as accelerate sees them."""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import os
import signal
import sys
from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, DistributedType, InitProcessGroupKwargs

from levelhead.training.config import TrainConfig
from levelhead.training.trackers import check_installed
from levelhead.types import ConfigError

logger = logging.getLogger(__name__)


def begin_worker() -> None:
    """Prepare a process that another one started to train: it ends when that one ends, however that was killed."""
    gc.freeze()  # what is imported stays: no search for garbage need go over it again, nor the one as Python ends
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@functools.cache
def warn_of_slow_bfloat16() -> None:
    """Say once a process that bfloat16 can be slow on a processor."""
    logger.warning(
        "train.precision is bf16 on a CPU: without instructions for bfloat16 it is tens of times slower than float32. "
        "If steps are slow, use --set train.precision=no."
    )


def forget_training() -> None:
    """Let the next training of this process choose its device and precision again, and give back a GPU's memory.

    Only for a process whose earlier trainings are over: their networks would compute in the new precision, too.
    """
    AcceleratorState._reset_state(reset_partial_state=True)  # accelerate has no public way
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def refuse_several(accelerator: Accelerator, what: str) -> None:
    """Raise :class:`~levelhead.types.ConfigError` in several processes, for ``what`` trains in one alone."""
    if accelerator.num_processes > 1:
        raise ConfigError(f"{what} trains in one process: start it without accelerate launch or torchrun.")


def make_accelerator(config: TrainConfig) -> Accelerator:
    """Return accelerate's view of device and processes; every call in one process gives the same.

    Raises :class:`~levelhead.types.ConfigError` for a device, a precision or a launcher that cannot be used.
    """
    check_installed(config.trackers)  # before hours of reading data
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    cpu = config.device == "cpu" or (config.device == "auto" and launched > 1 and not torch.cuda.is_available())
    handlers = [
        # A step may leave parameters alone, such as those of an adversary that has not begun.
        DistributedDataParallelKwargs(find_unused_parameters=True),
        InitProcessGroupKwargs(timeout=timedelta(hours=2)),  # one process reads the data while the others wait
    ]
    try:
        accelerator = Accelerator(cpu=cpu, mixed_precision=config.precision, kwargs_handlers=handlers)
    except ValueError as error:  # what this device, or an earlier lab of this process, rules out
        raise ConfigError(
            f"train.device={config.device} with train.precision={config.precision} cannot be used here: {error}"
        ) from None
    if accelerator.gradient_accumulation_steps != 1:
        raise ConfigError(
            "Gradient accumulation is set in accelerate's environment. levelhead does not accumulate: batch "
            "statistics and contrastive negatives are those of one batch. Unset it, and set train.batch_size."
        )
    kind = accelerator.distributed_type
    if kind not in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
        raise ConfigError(
            f"accelerate is set to {kind.value}, which levelhead has not been tried with: its running statistics are "
            "buffers and its objectives need whole logits. Use plain data-parallel training, without FSDP, DeepSpeed, "
            "Megatron or TPU: accelerate launch --multi-gpu --num-processes N, or torchrun --nproc-per-node N."
        )
    if launched > 1 and accelerator.num_processes == 1:
        raise ConfigError(
            f"The launcher started {launched} processes, and accelerate sees one, because an earlier lab of this "
            "process fixed that. Use a process of its own for each training."
        )
    wanted = "cuda" if config.device == "auto" and torch.cuda.is_available() else config.device
    if wanted not in ("auto", accelerator.device.type):
        raise ConfigError(
            f"train.device asks for {wanted!r} and accelerate gives {accelerator.device.type!r}: there is no "
            "such device, or an earlier lab of this process fixed the device. Use --set train.device=auto, or a "
            "process of its own."
        )
    if config.precision == "bf16" and accelerator.device.type == "cpu":
        warn_of_slow_bfloat16()
    return accelerator
