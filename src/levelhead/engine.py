"""The one training loop. It knows no method by name: a method yields stages, the lab trains them.

Resuming ends in the same weights, bit for bit, on the same CPU: the order of the examples is a function of
(seed, stage, epoch), the checkpoint holds model, optimiser, generator state, position and thread count, and Python
between two stages is run again on the restored weights.
"""

from __future__ import annotations

import json
import logging
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from levelhead.data.base import Examples, Inputs
from levelhead.methods.base import Method, Stage
from levelhead.select import SELECTORS
from levelhead.storage import load_tensors, save_tensors, write_text
from levelhead.types import Batch, ConfigError, DemographicsHidden, LevelheadError

logger = logging.getLogger(__name__)

EPOCHS = "epochs"
"""Folder inside a run folder that ``train.keep_epochs`` fills."""


@dataclass(frozen=True)
class TrainConfig:
    """How a stage is trained; the same for every method of a comparison.

    ``learning_rate`` and ``weight_decay`` are AdamW's. ``schedule`` acts on each step after ``warmup_steps`` linear
    ones. ``gradient_clip`` bounds the global gradient norm (None: off). ``precision`` is accelerate's mixed precision.
    ``select`` names the rule that keeps a checkpoint (``levelhead list selectors``); ``keep_epochs`` keeps the
    weights of every epoch beside it, so that one run can be judged under other rules later. ``threads`` None keeps
    torch's number. ``checkpoint_seconds`` is the most work, in seconds, that a killed run loses.

    There is no gradient accumulation: batch statistics and contrastive negatives are those of one micro-batch, so an
    accumulated batch is not a larger batch. The last, incomplete batch of an epoch is left out for the same reason;
    the next epoch draws a new order.
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
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    evaluation_batch_size: int = 512
    checkpoint_seconds: float = 60.0
    log_every: int = 10

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "evaluation_batch_size", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("learning_rate", "gradient_clip", "threads"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"train.{name} is {value}; it must be positive and finite.")
        for name in ("weight_decay", "warmup_steps", "checkpoint_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"train.{name} is {getattr(self, name)}; it must be 0 or more, and finite.")
        if self.batch_size < 2:
            raise ConfigError("train.batch_size is 1; batch statistics need at least 2 examples.")

    def learning_rate_factor(self, step: int, total: int) -> float:
        """Return the factor on the learning rate at ``step`` (from 0) of ``total``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        progress = (step - self.warmup_steps) / max(1, total - self.warmup_steps)
        return 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * progress, dtype=torch.float64))))


Progress = Callable[[str, int, int, str], None]
"""Called as ``progress(stage, done_steps, all_steps, text)`` after every step."""


def _silent(stage: str, done: int, total: int, text: str) -> None:
    """Report nothing."""


@torch.no_grad()
def predict_logits(model: nn.Module, inputs: Inputs, batch_size: int, device: torch.device) -> Tensor:
    """Return fp32 logits (n, classes) on the CPU, in row order, with ``model`` in evaluation mode meanwhile."""
    was_training = model.training
    model.eval()
    chunks = [
        model(**{name: tensor.to(device) for name, tensor in inputs.batch(index).items()}).logits.float().cpu()
        for index in torch.arange(len(inputs)).split(batch_size)
    ]
    model.train(was_training)
    return torch.cat(chunks)


def peak_memory_mib() -> float:
    """Return the largest resident set of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@dataclass
class Work:
    """Rows that went through networks, forward and backward, each row times the network's parameters."""

    forward: float = 0.0
    backward: float = 0.0


@dataclass
class Position(Work):
    """Where a stage's training stands; everything that a checkpoint keeps beside tensors."""

    stage: int = 0
    step: int = 0
    finished: bool = False
    best_score: float | None = None
    best_epoch: int | None = None
    seconds: float = 0.0
    threads: int = 1
    torch_version: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)


class Lab:
    """Where a method's stages are trained.

    ``new_model`` builds a fresh network from torch's global generator; keyword arguments change its size. ``groups``
    and ``validation_groups`` are given only where the method or the selector declares ``uses_groups``; otherwise the
    lab holds no demographic column at all, and :attr:`groups` raises :class:`DemographicsHidden`. With ``folder``,
    progress is kept on disk and an interrupted run goes on where it stopped.
    """

    def __init__(
        self,
        *,
        new_model: Callable[..., nn.Module],
        train: Examples,
        validation: Examples,
        config: TrainConfig,
        seed: int = 0,
        groups: Tensor | None = None,
        validation_groups: Tensor | None = None,
        folder: Path | None = None,
        progress: Progress = _silent,
    ) -> None:
        if config.select not in SELECTORS:
            raise ConfigError(f"train.select {config.select!r} is unknown; choose from {', '.join(SELECTORS)}.")
        if len(train.labels) < config.batch_size:
            raise ConfigError(
                f"train.batch_size is {config.batch_size} but there are only {len(train.labels)} training rows: "
                "lower it."
            )
        if SELECTORS[config.select].uses_groups and validation_groups is None:
            raise ConfigError(
                f"train.select={config.select} looks at groups: pass validation_groups, or choose another."
            )
        if config.threads:
            torch.set_num_threads(config.threads)
        self.config = config
        self.seed = seed
        self.labels = train.labels
        self.rng = torch.Generator().manual_seed(seed)
        try:
            self.accelerator = Accelerator(cpu=config.device == "cpu", mixed_precision=config.precision)
        except ValueError as error:  # what this device, or an earlier lab of this process, rules out
            raise ConfigError(
                f"train.device={config.device} with train.precision={config.precision} cannot be used here: {error}"
            ) from None
        if self.accelerator.gradient_accumulation_steps != 1:
            raise ConfigError(
                "Gradient accumulation is set in accelerate's environment. levelhead does not accumulate: batch "
                "statistics and contrastive negatives are those of one batch. Unset it, and set train.batch_size."
            )
        if self.accelerator.num_processes > 1:
            raise ConfigError(
                "Training in several processes is not supported yet: batch statistics and contrastive negatives would "
                "be those of one process. Start it without 'accelerate launch', or with --num-processes 1."
            )
        wanted = "cuda" if config.device == "auto" and torch.cuda.is_available() else config.device
        if wanted not in ("auto", self.accelerator.device.type):
            raise ConfigError(
                f"train.device asks for {wanted!r} and accelerate gives {self.accelerator.device.type!r}: there is no "
                "such device, or an earlier lab of this process fixed the device. Use --set train.device=auto, or a "
                "process of its own."
            )
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.steps = 0
        self.work = Work()
        self._new_model = new_model
        self._train, self._validation = train, validation
        self._groups, self._validation_groups = groups, validation_groups
        self._folder = folder
        self._progress = progress
        self._stage_number = 0
        self._counting: Work | None = None
        self._prepare: Callable[[Any], Any] = lambda model: model

    @property
    def device(self) -> torch.device:
        """The device that training runs on."""
        return self.accelerator.device

    @property
    def groups(self) -> Tensor:
        """The training rows' demographic groups (train,) int64, for methods that declare ``uses_groups``."""
        if self._groups is None:
            raise DemographicsHidden(
                "This method asked for lab.groups but does not declare `uses_groups = True`. A method free of "
                "demographics must not see them; declare it, and every table will mark the method ORACLE."
            )
        return self._groups

    def new_model(self) -> nn.Module:
        """Return a freshly initialised network on the lab's device: the one that a stage trains to be kept."""
        return self._watched(self._prepare(self._new_model()))

    def new_auxiliary(self, **size: Any) -> nn.Module:
        """Return a network that will not be kept: a scout, a teacher, an adversary.

        ``size`` changes the recipe's model, e.g. ``layers=2``. It is always a plain one, also under ``dam+...``.
        """
        return self._watched(self._new_model(**size))

    @contextmanager
    def prepared(self, prepare: Callable[[Any], Any]) -> Iterator[None]:
        """Let :meth:`new_model` return ``prepare(network)`` inside the block."""
        before, self._prepare = self._prepare, prepare
        try:
            yield
        finally:
            self._prepare = before

    def logits(self, model: nn.Module) -> Tensor:
        """Return the model's logits on the training rows (train, classes), in evaluation mode."""
        with self._counted(self.work):
            return predict_logits(model, self._train.inputs, self.config.evaluation_batch_size, self.device)

    @contextmanager
    def _counted(self, work: Work) -> Iterator[None]:
        """Count the passes of all networks of this lab; scoring the validation split is not work of a method."""
        before, self._counting = self._counting, work
        try:
            yield
        finally:
            self._counting = before

    def _watched(self, model: nn.Module) -> nn.Module:
        size = sum(parameter.numel() for parameter in model.parameters())

        def count(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._counting is not None:
                rows = next(value.shape[0] for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
                self._counting.forward += rows * size
                self._counting.backward += rows * size if torch.is_grad_enabled() else 0

        model.register_forward_pre_hook(count, with_kwargs=True)
        return model.to(self.device)

    def train(self, stage: Stage) -> None:
        """Train one stage to its end.

        ::

            for each epoch:
                for each batch of a fresh order:
                    loss = objective(batch); stop if it is not finite
                    backward, clip, step
                score the validation split; keep the model if the selector likes it best
            load the kept model

        A stage that a stopped run had finished is loaded instead; one that it had begun goes on.
        """
        number, self._stage_number = self._stage_number, self._stage_number + 1
        config, objective = self.config, stage.objective.to(self.device)
        optimizer = torch.optim.AdamW(
            objective.param_groups(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        trained, optimizer = self.accelerator.prepare(objective, optimizer)
        select = stage.select or config.select
        if SELECTORS[select].uses_groups and self._validation_groups is None:
            raise DemographicsHidden(f"A stage asks for the selector {select}, which looks at groups.")
        batches = (len(self.labels) if stage.rows is None else len(stage.rows)) // config.batch_size
        total = (stage.epochs or config.epochs) * batches
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer.optimizer, lambda step: config.learning_rate_factor(step, total)
        )
        keeper = _Keeper(self._folder, number)
        position = keeper.restore(objective, optimizer, schedule)
        if position.finished:
            keeper.forget_best()  # left over if the run was killed right after its last checkpoint
        else:
            self._loop(stage, trained, optimizer, schedule, keeper, position, batches, total)
        self.history += position.history
        self.seconds += position.seconds
        self.steps += position.step
        self.work.forward += position.forward
        self.work.backward += position.backward

    def _loop(
        self,
        stage: Stage,
        trained: nn.Module,
        optimizer: Any,
        schedule: torch.optim.lr_scheduler.LambdaLR,
        keeper: _Keeper,
        position: Position,
        batches: int,
        total: int,
    ) -> None:
        config, objective, name = self.config, stage.objective, f"stage {position.stage + 1}"
        began, saved, earlier = time.monotonic(), time.monotonic(), position.seconds
        keeper.forget_log_after(position.step)
        if position.step == 0:
            keeper.save(objective, optimizer, position)  # so that a run killed early resumes on as many threads
        while position.step < total:
            epoch, start = divmod(position.step, batches)
            order = self._order(stage, position.stage, epoch)
            trained.train()
            for number in range(start, batches):
                index = order[number * config.batch_size : (number + 1) * config.batch_size]
                with self._counted(position):
                    loss, logs = trained(self._batch(index, stage))
                if not torch.isfinite(loss):
                    raise LevelheadError(
                        f"The loss is {loss.item()} at step {position.step} ({name}, epoch {epoch}, batch {number}; "
                        f"first rows {index[:5].tolist()}). Weights were not updated. Lower train.learning_rate, set "
                        "train.gradient_clip=1.0, or train with train.precision=no."
                    )
                optimizer.zero_grad()
                self.accelerator.backward(loss)
                if config.gradient_clip is not None:
                    self.accelerator.clip_grad_norm_(trained.parameters(), config.gradient_clip)
                optimizer.step()
                schedule.step()
                position.step += 1
                position.seconds = earlier + time.monotonic() - began
                last_of_epoch = number == batches - 1
                self._progress(name, position.step, total, f"loss {loss.item():.4f}")
                if position.step % config.log_every == 0 or last_of_epoch:
                    keeper.log(
                        {"stage": position.stage, "epoch": epoch, "step": position.step, "loss": loss.item()}
                        | {key: value.item() for key, value in logs.items()}
                        | {"learning_rate": schedule.get_last_lr()[0], "seconds": round(position.seconds, 3)}
                    )
                if last_of_epoch:
                    self._end_epoch(objective.model, stage.select or config.select, keeper, position, epoch)
                position.finished = position.step == total
                if not position.finished and time.monotonic() - saved >= config.checkpoint_seconds:
                    keeper.save(objective, optimizer, position)
                    saved = time.monotonic()
        keeper.load_best(objective.model)
        keeper.save(objective, optimizer, position)
        keeper.forget_best()

    def _order(self, stage: Stage, number: int, epoch: int) -> Tensor:
        """Return the training rows of an epoch in order: a function of the stage, its number, seed and epoch alone."""
        mixed = np.random.SeedSequence((self.seed, number, epoch)).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(mixed) % 2**63)
        if stage.sampling is not None:
            chances = stage.sampling.cpu().double()
            return torch.multinomial(chances, len(self.labels), replacement=True, generator=generator)
        if stage.rows is None:
            return torch.randperm(len(self.labels), generator=generator)
        return stage.rows.cpu()[torch.randperm(len(stage.rows), generator=generator)]

    def _batch(self, index: Tensor, stage: Stage) -> Batch:
        device = self.device
        weight = torch.ones(len(index)) if stage.weights is None else stage.weights.cpu()[index].float()
        return Batch(
            inputs={name: tensor.to(device) for name, tensor in self._train.inputs.batch(index).items()},
            labels=self.labels[index].to(device),
            index=index.to(device),
            weight=weight.to(device),
            group=None if stage.groups is None else stage.groups.cpu()[index].to(device),
        )

    def _end_epoch(self, model: nn.Module, select: str, keeper: _Keeper, position: Position, epoch: int) -> None:
        """Score the validation split by every rule there is data for, and keep the model if it is the best so far."""
        validation = self._validation
        logits = predict_logits(model, validation.inputs, self.config.evaluation_batch_size, self.device)
        scores = {
            name: selector.score(logits, validation.labels, self._validation_groups)
            for name, selector in SELECTORS.items()
            if name != "last" and (self._validation_groups is not None or not selector.uses_groups)
        }
        row = {"stage": position.stage, "epoch": epoch, "step": position.step, **scores}
        keeper.log(row)
        position.history.append(row)
        score = float(epoch) if select == "last" else scores[select]
        if math.isnan(score):  # undefined on this split: no reason to prefer the epoch
            score = -math.inf
        if position.best_score is None or score > position.best_score:
            position.best_score, position.best_epoch = score, epoch
            keeper.keep(model)
        if self.config.keep_epochs:
            keeper.keep_epoch(model, epoch)


class _Keeper:
    """Keeps one stage's best model, and its progress on disk where there is a folder."""

    def __init__(self, folder: Path | None, stage: int) -> None:
        self.stage = stage
        self.checkpoint = folder and folder / "checkpoints" / f"stage-{stage}.safetensors"
        self.best = folder and folder / "checkpoints" / f"stage-{stage}-best.safetensors"
        self.epochs = folder and folder / EPOCHS
        self.log_file = folder and folder / "log.jsonl"
        self._memory: dict[str, Tensor] = {}

    def restore(self, objective: nn.Module, optimizer: Any, schedule: Any) -> Position:
        """Load the stage's progress, if there is any, into the objective and the optimiser."""
        if self.checkpoint is None or not self.checkpoint.exists():
            return Position(stage=self.stage, threads=torch.get_num_threads(), torch_version=torch.__version__)
        tensors, metadata = load_tensors(self.checkpoint)
        position = Position(**metadata["position"])
        if position.torch_version != torch.__version__:
            logger.warning(
                "The checkpoint was written by torch %s; this is %s. The run goes on, but its weights may differ in "
                "the last bits from an uninterrupted run.",
                position.torch_version,
                torch.__version__,
            )
        objective.load_state_dict(_without_prefix(tensors, "objective."))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _without_prefix(tensors, "optimizer.").items():
            number, key = name.split(".", 1)
            state.setdefault(int(number), {})[key] = tensor
        plain = getattr(optimizer, "optimizer", optimizer)
        plain.load_state_dict({"state": state, "param_groups": metadata["param_groups"]})
        schedule.last_epoch = position.step
        schedule._last_lr = [group["lr"] for group in plain.param_groups]
        if metadata["scaler"] is not None and optimizer.scaler is not None:
            optimizer.scaler.load_state_dict(metadata["scaler"])
        # The number of threads decides how sums are split, hence their last bits.
        torch.set_num_threads(position.threads)
        torch.set_rng_state(tensors["generator.cpu"])
        if "generator.cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["generator.cuda"])
        return position

    def save(self, objective: nn.Module, optimizer: Any, position: Position) -> None:
        """Write the stage's progress."""
        if self.checkpoint is None:
            return
        plain = getattr(optimizer, "optimizer", optimizer)
        tensors = {f"objective.{name}": tensor for name, tensor in objective.state_dict().items()}
        state = plain.state_dict()
        if not position.finished:  # a finished stage never steps again
            tensors |= {
                f"optimizer.{number}.{name}": tensor
                for number, entries in state["state"].items()
                for name, tensor in entries.items()
            }
        tensors["generator.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["generator.cuda"] = torch.cuda.get_rng_state()
        scaler = getattr(optimizer, "scaler", None)
        save_tensors(
            self.checkpoint,
            tensors,
            {
                "position": vars(position),
                "param_groups": state["param_groups"],
                "scaler": None if scaler is None else scaler.state_dict(),
            },
        )

    def keep(self, model: nn.Module) -> None:
        """Keep the model as the best so far."""
        if self.best is None:
            self._memory = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        else:
            save_tensors(self.best, model.state_dict(), {})

    def keep_epoch(self, model: nn.Module, epoch: int) -> None:
        """Keep the model as it is after this epoch, whatever the selector says; only on disk."""
        if self.epochs is not None:
            save_tensors(self.epochs / f"stage-{self.stage}-epoch-{epoch}.safetensors", model.state_dict(), {})

    def load_best(self, model: nn.Module) -> None:
        """Load the best model so far."""
        model.load_state_dict(self._memory if self.best is None else load_tensors(self.best)[0])

    def forget_best(self) -> None:
        """Delete the best model: the finished stage's checkpoint, already on disk, holds it."""
        self._memory.clear()
        if self.best is not None:
            self.best.unlink(missing_ok=True)

    def log(self, row: dict[str, Any]) -> None:
        """Append one JSON line."""
        if self.log_file is not None:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
            with self.log_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def forget_log_after(self, step: int) -> None:
        """Drop lines that a killed run wrote after its last checkpoint: they will be written again."""
        if self.log_file is None or not self.log_file.exists():
            return
        kept = []
        for line in self.log_file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the line that was being written when the run was killed
                continue
            if row["stage"] < self.stage or (row["stage"] == self.stage and row["step"] <= step):
                kept.append(line + "\n")
        write_text(self.log_file, "".join(kept))


def _without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fit(method: Method, lab: Lab) -> nn.Module:
    """Run every stage of ``method`` and return the trained network, in evaluation mode on the lab's device."""
    torch.manual_seed(lab.seed)
    stage: Stage | None = None
    stages: Iterator[Stage] = method.stages(lab)
    for stage in stages:
        lab.train(stage)  # the generator resumes with trained weights
    if stage is None:
        raise LevelheadError(f"{type(method).__name__}.stages yielded no stage: there is nothing to train.")
    return stage.objective.model.eval()
