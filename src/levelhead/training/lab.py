"""The one training loop. It knows no method by name: a method yields stages, the lab trains them.

Resuming ends in the same weights, bit for bit, on the same CPU: the order of the examples is a function of
(seed, stage, epoch), the checkpoint holds model, optimiser, generator state, position and thread count, and Python
between two stages is run again on the restored weights.

Started in several processes (``accelerate launch --multi-gpu`` or ``torchrun``), each computes its share of the rows
of every network, and every objective sees the logits of the whole batch: the result is that of one process (ADR 0003).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from levelhead.arrays import checked
from levelhead.attention.standardize import QueryKeyStandardizer
from levelhead.data.base import Examples, Inputs
from levelhead.data.views import View
from levelhead.distributed import gather_rows, shares
from levelhead.models.head import with_classes
from levelhead.terminal import Progress, silent
from levelhead.training.checkpoint import Answers, Keeper, Position, Work, answers_stem
from levelhead.training.config import TrainConfig
from levelhead.training.finite import advice
from levelhead.training.loop import Loop, epoch_generator, mixed_seed
from levelhead.training.processes import make_accelerator
from levelhead.training.select import FOR_ANY_METHOD, SELECTORS, measured
from levelhead.training.stage import Stage
from levelhead.training.trackers import tracked
from levelhead.types import Batch, ConfigError, DemographicsHidden, LevelheadError

logger = logging.getLogger(__name__)

STAGE = "stage"
"""What progress on the steps of a stage is reported under, with the stage's number from 1."""

BUCKET_WINDOW = 50  # batches whose rows are sorted by length together: little padding, and an order still random


@torch.no_grad()
def predict_logits(
    model: nn.Module, inputs: Inputs, batch_size: int, device: torch.device, *, rows: Tensor | None = None
) -> Tensor:
    """Return fp32 logits (n, classes) on the CPU, in row order, with ``model`` in evaluation mode meanwhile.

    ``rows`` (n,) int64 are the only ones wanted, in the order of the answer. Where examples differ in length, the
    longest go first: little padding, and too little memory shows at once.
    """
    was_training = model.training
    model.eval()
    if rows is None:
        rows = torch.arange(len(inputs))
    order = None if inputs.lengths is None else inputs.lengths[rows].argsort(descending=True, stable=True)
    chunks = [
        model(**{name: tensor.to(device) for name, tensor in inputs.batch(index).items()}).logits.float().cpu()
        for index in (rows if order is None else rows[order]).split(batch_size)
    ]
    model.train(was_training)
    found = torch.cat(chunks)
    return found if order is None else found[order.argsort()]


class Lab:
    """Where a method's stages are trained.

    ``new_model`` builds a fresh network from torch's global generator; keyword arguments change its size. ``groups``
    and ``validation_groups`` are given only where the method or the selector declares ``uses_groups``, ``known_groups``
    where the method gets groups of validation rows (-1 for a row without a known group); otherwise the lab
    holds no demographic column at all, and :attr:`groups` raises :class:`DemographicsHidden`. ``people`` are given
    only where it declares ``uses_people``, ``other_labels`` where it names an ``other_label``. ``viewed`` makes a view
    of the training and the validation inputs where it cannot be taken of the inputs themselves: token ids, and features
    of a frozen backbone. With ``folder``, progress is kept on disk and an interrupted run continues where it stopped.

    With several processes each makes the same lab and calls the same methods of it; the main one alone writes and
    reports progress, and all must be able to read ``folder``.

    ``inferred`` (train,) int64 are the parts that the method has divided the training rows into for its latest stage;
    None for a stage without, and where the method gets anybody's group.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> from levelhead.data import DATASETS
        >>> size = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=32)
        >>> data = DATASETS["portraits"](train_size=64, validation_size=32, test_size=32)
        >>> lab = lh.Lab(
        ...     new_model=lambda: ViTForImageClassification(size),
        ...     train=data.examples("train"),
        ...     validation=data.examples("validation"),
        ...     config=lh.TrainConfig(epochs=1, batch_size=32, device="cpu"),
        ... )
        >>> lab.labels.shape, lab.steps
        (torch.Size([64]), 0)
    """

    @checked
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
        known_groups: Tensor | None = None,
        people: Tensor | None = None,
        other_labels: Tensor | None = None,
        viewed: Callable[[View], tuple[Inputs, Inputs]] | None = None,
        folder: Path | None = None,
        progress: Progress = silent,
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
        self.config = config
        self.seed = seed
        self.labels = train.labels
        self.rng = torch.Generator().manual_seed(seed)
        self.accelerator = make_accelerator(config)
        if config.threads:  # after accelerate, which chooses a number itself when it starts several processes
            torch.set_num_threads(config.threads)
        if config.batch_size < self.accelerator.num_processes:
            raise ConfigError(
                f"train.batch_size is {config.batch_size}, less than one row for each of the "
                f"{self.accelerator.num_processes} processes. It is the size of the whole batch: raise it."
            )
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.steps = 0
        self.whole_steps: dict[str, int] = {}  # by what progress is reported of, as if max_steps were not
        self.whole_epochs = 0
        self.left_out_seconds = 0.0  # of predictions, because of max_steps
        self.work = Work()
        self.inferred: Tensor | None = None
        self._new_model = new_model
        self._train, self._validation = train.on(self.device), validation.on(self.device)
        self._groups, self._validation_groups, self._known_groups = groups, validation_groups, known_groups
        self._people, self._other_labels = people, other_labels
        self._viewed = viewed
        self._folder = folder
        self._progress = progress
        self._stage_number = 0
        self._computed = 0
        self._counting: Work | None = None
        self._sharing = False
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
                "This method requested lab.groups but does not declare `uses_groups = True`. A method free of "
                "demographics must not see them; declare it, and every table will mark the method ORACLE."
            )
        return self._groups

    @property
    def knows_groups(self) -> bool:
        """Whether the method gets groups of validation rows."""
        return self._known_groups is not None

    @property
    def known_groups(self) -> Tensor:
        """The groups of validation rows that the method gets, (validation,) int64; -1 for all other rows."""
        if self._known_groups is None:
            raise DemographicsHidden(
                "This method requested lab.known_groups, and its validation_groups() returns None: it gets no groups. "
                "Declare `uses_validation_groups = True`, and every table will mark the method ORACLE."
            )
        return self._known_groups

    @property
    def people(self) -> Tensor:
        """A code, from 0, for whom each training row is of, (train,) int64, for methods with ``uses_people``."""
        if self._people is None:
            raise DemographicsHidden(
                "This method requested lab.people but does not declare `uses_people = True`. Declare it, and give the "
                "method a mark in `knowledge`."
            )
        return self._people

    @property
    def other_labels(self) -> Tensor:
        """Another label of the training rows, (train,) int64, for methods that name its column in ``other_label``."""
        if self._other_labels is None or len(self._other_labels) != len(self.labels):
            raise ConfigError(f"This method needs another label of each of the {len(self.labels)} training rows.")
        return self._other_labels

    @property
    def validation(self) -> Examples:
        """Inputs and labels of the validation split."""
        return self._validation

    def new_model(self) -> nn.Module:
        """Return a freshly initialised network on the lab's device: the one that a stage trains to be kept."""
        return self._watched(self._prepare(self._new_model()))

    def new_auxiliary(self, *, classes: int | None = None, **size: Any) -> nn.Module:
        """Return a network that will not be kept: a scout, a teacher, an adversary.

        ``size`` changes the recipe's model, e.g. ``layers=2``; ``classes`` gives it another number of answers. It is
        always a plain one, also under ``dam+...``.
        """
        model = self._new_model(**size)
        return self._watched(model if classes is None else with_classes(model, classes))

    @contextmanager
    def prepared(self, prepare: Callable[[Any], Any]) -> Iterator[None]:
        """Let :meth:`new_model` return ``prepare(network)`` inside the block."""
        before, self._prepare = self._prepare, prepare
        try:
            yield
        finally:
            self._prepare = before

    def viewed(self, view: View) -> tuple[Inputs, Inputs]:
        """Return what a network sees of the training and of the validation rows if it sees a view alone.

        Errors: :class:`~levelhead.ConfigError` where the inputs have no such view.
        """
        own = self._train.inputs, self._validation.inputs
        if self._viewed is None or view.kind == "whole":
            return view(own[0]), view(own[1])
        train, validation = self._viewed(view)
        return train.on(self.device), validation.on(self.device)

    def logits(self, model: nn.Module, inputs: Inputs | None = None) -> Tensor:
        """Return the model's logits on the training rows (train, classes), in evaluation mode.

        ``inputs`` (train) are what it sees of them, None: the lab's own.
        """
        with self._counted(self.work):
            return self.predict(model, self._train.inputs if inputs is None else inputs)

    def compute(
        self,
        function: Callable[[dict[str, Tensor], Tensor], Tensor],
        title: str | None = None,
        *,
        rows: Tensor | None = None,
        split: Literal["train", "validation"] = "train",
    ) -> Tensor:
        """Return what ``function(inputs, rows)`` gives for all rows of a split, (rows, ...) on the CPU, in their order.

        ``rows`` (some,) int64 are the only ones wanted, in the order of the answer. The function is requested
        ``config.batch_size`` rows at a time: ``inputs`` are those of its ``rows`` (a few,) int64, on the lab's device,
        and its answer has as many rows. With several processes each asks for its share, and all get the whole; networks
        are ordinary ones meanwhile. With a ``title`` progress is reported under it and kept on disk as that of a stage
        is, and ``config.max_steps``, a rehearsal, is kept to: rows that are not requested get the answers of others.
        """
        examples = self._train if split == "train" else self._validation
        wanted = torch.arange(len(examples.labels)) if rows is None else rows
        own = wanted[self._share(len(wanted))]
        chunks, answers = own.split(self.config.batch_size), Answers()
        if title is not None:
            self.whole_steps[title] = self.whole_steps.get(title, 0) + len(chunks)
            chunks = chunks[: self.config.max_steps]
            self._computed += 1
            if self._folder is not None:
                answers.stem = answers_stem(self._folder, self._computed, self.accelerator.process_index)
            answers.restore()
        saved = time.monotonic()
        with self._counted(answers):
            for some in chunks[len(answers.batches) :]:
                batch = {name: tensor.to(self.device) for name, tensor in examples.inputs.batch(some).items()}
                answers.batches.append(function(batch, some).detach().cpu())
                if title is not None and self.accelerator.is_main_process:
                    self._progress(title, len(answers.batches), len(chunks), "")
                if time.monotonic() - saved > self.config.checkpoint_seconds:
                    answers.save()
                    saved = time.monotonic()
        if answers.written:  # it took long: a later stage that is resumed shall not have to wait for it again
            answers.save()
        found = torch.cat(answers.batches)
        if len(found) < len(own):
            found = found[torch.arange(len(own)) % len(found)]
        if self.accelerator.num_processes > 1:
            found = gather_rows(found.to(self.device)).cpu()
            both = torch.tensor([answers.forward, answers.backward], dtype=torch.float64, device=self.device)
            torch.distributed.all_reduce(both)
            answers.forward, answers.backward = both.tolist()
        self.work.forward += answers.forward
        self.work.backward += answers.backward
        return found

    def predict(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """Return fp32 logits (n, classes) on the CPU of one of the lab's networks, in evaluation mode.

        With several processes all must call it; each computes its share, and all get the whole. In a rehearsal
        (``config.max_steps``) only the first rows are predicted; the others get their answers.
        """
        whole, count, began = len(inputs), self.config.predicted_rows(len(inputs)), time.monotonic()
        with self._shared():
            found = predict_logits(
                model, inputs, self.config.evaluation_batch_size, self.device, rows=torch.arange(count)
            )
        if count < whole:
            self.left_out_seconds += (time.monotonic() - began) * (whole - count) / count
            found = found[torch.arange(whole) % count]
        return found

    def validation_accuracy(self, model: nn.Module) -> float:
        """Return the share of validation rows that ``model`` classifies correctly, in evaluation mode."""
        return float(
            (self.predict(model, self._validation.inputs).argmax(-1) == self._validation.labels).float().mean()
        )

    def tracked(self) -> AbstractContextManager[None]:
        """Send losses and label-only scores to ``config.trackers`` inside the block."""
        options = {**vars(self.config), "seed": self.seed}
        return tracked(self.accelerator, self.config.trackers, self._folder, options)

    @contextmanager
    def _counted(self, work: Work) -> Iterator[None]:
        """Count the passes of all networks of this lab; scoring the validation split is not work of a method."""
        before, self._counting = self._counting, work
        try:
            yield
        finally:
            self._counting = before

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """Share out the rows of every pass of this lab's networks; outside, a network is an ordinary one."""
        before, self._sharing = self._sharing, self.accelerator.num_processes > 1
        try:
            yield
        finally:
            self._sharing = before

    def _watched(self, model: nn.Module) -> nn.Module:
        size = sum(parameter.numel() for parameter in model.parameters())
        learnt = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        rows = 0

        def enter(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            nonlocal rows
            rows = next(value.shape[0] for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            if self._counting is not None:
                self._counting.forward += rows * size
                self._counting.backward += rows * learnt if torch.is_grad_enabled() else 0
            if not self._sharing:
                return args, kwargs
            own = self._share(rows)

            def cut(value: Any) -> Any:
                return value[own] if isinstance(value, Tensor) and value.shape[:1] == (rows,) else value

            return tuple(map(cut, args)), {name: cut(value) for name, value in kwargs.items()}

        def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._sharing:
                # Objectives compute in float32 anyway; the sum of gradients over processes should be that, too.
                logits = output.logits.to(torch.promote_types(output.logits.dtype, torch.float32))
                output.logits = gather_rows(logits, [max(1, count) for count in shares(rows)])[:rows]

        model.register_forward_pre_hook(enter, with_kwargs=True)
        model.register_forward_hook(leave)
        return model.to(self.device)

    def _share(self, rows: int) -> slice:
        """Return this process's part of ``rows``; where there are too few, a spare row that is cut off again."""
        counts, rank = shares(rows), self.accelerator.process_index
        if rows < len(counts):
            if torch.is_grad_enabled():
                raise LevelheadError(
                    f"A network got {rows} rows in training, less than one for each of {len(counts)} processes."
                )
            return slice(min(rank, rows - 1), min(rank, rows - 1) + 1)
        start = sum(counts[:rank])
        return slice(start, start + counts[rank])

    @contextmanager
    def _own_randomness(self, stage: int) -> Iterator[None]:
        """Give each of several processes random numbers of its own for a stage (dropout), and then common ones again.

        Networks are made of the common ones, so that they are equal everywhere.
        """
        several = self.accelerator.num_processes > 1
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=several):
            if several:
                torch.manual_seed(mixed_seed(self.seed, stage, self.accelerator.process_index))
            yield

    def train(self, stage: Stage) -> None:
        """Train one stage to its end.

        ::

            for each epoch:
                for each batch of a fresh order:
                    loss = objective(batch)
                    backward, clip; stop if the loss or the gradient's norm is not finite
                    step; stop if the weights' norm is not finite
                score the validation split; keep the model if the selector likes it best
                stop if the best is config.patience epochs old
            load the kept model

        A stage that a stopped run had finished is loaded instead; one that it had begun continues.
        """
        number, self._stage_number = self._stage_number, self._stage_number + 1
        with self._own_randomness(number):
            self._train_stage(stage, number)

    def _train_stage(self, stage: Stage, number: int) -> None:
        if number:
            self.accelerator.free_memory()  # it still holds the stage before, whose hooks would sum gradients again
        config, objective = self.config, stage.objective.to(self.device)
        batches = (len(self.labels) if stage.rows is None else len(stage.rows)) // config.batch_size
        epochs = stage.epochs or config.epochs
        total = whole = epochs * batches
        if config.max_steps is not None:
            total = min(total, config.max_steps)
        if config.warmup_steps >= total and config.max_steps is None:
            logger.warning(
                "%s %d has %d steps, and train.warmup_steps is %d: it never reaches its learning rate. Lower it.",
                STAGE,
                number + 1,
                total,
                config.warmup_steps,
            )
        plain = torch.optim.AdamW(objective.param_groups(), lr=config.learning_rate, weight_decay=config.weight_decay)
        # Before accelerate replaces the optimizer's step, as it does for fp16: torch would warn of that.
        schedule = torch.optim.lr_scheduler.LambdaLR(plain, lambda step: config.learning_rate_factor(step, total))
        trained, optimizer = self.accelerator.prepare(objective, plain)
        if isinstance(trained, DistributedDataParallel):
            # Every process computes the same buffers from the same logits, and some are as long as the data.
            trained.broadcast_buffers = False
        select = stage.select or config.select
        if SELECTORS[select].uses_groups and self._validation_groups is None:
            raise DemographicsHidden(f"A stage asks for the selector {select}, which looks at groups.")
        if SELECTORS[select].uses_parts and stage.validation_parts is None:
            raise ConfigError(
                f"train.select is {select}, and stage {number + 1} of this method infers no parts of the validation "
                f"split: choose a method that does (levelhead list methods), or {', '.join(FOR_ANY_METHOD)}."
            )
        self.inferred = stage.groups if self._groups is None and self._known_groups is None else None
        self.whole_steps[f"{STAGE} {number + 1}"] = whole
        self.whole_epochs += epochs
        keeper = Keeper(self._folder, number, self.accelerator, every_epoch=config.keep_epochs)
        loop = Loop(f"{STAGE} {number + 1}", objective, optimizer, schedule, keeper, config, total, self._progress)
        position = loop.position
        if not position.finished:
            self._loop(stage, trained, loop, batches)
        keeper.forget_best()  # a run that was killed right after its last checkpoint has left it over
        self.history += position.history
        self.seconds += position.seconds
        self.steps += position.step
        self.work.forward += position.forward
        self.work.backward += position.backward

    def _loop(self, stage: Stage, trained: nn.Module, loop: Loop, batches: int) -> None:
        config, objective, keeper, position = self.config, stage.objective, loop.keeper, loop.position
        while not position.finished:
            epoch, start = divmod(position.step, batches)
            order = self._order(stage, position.stage, epoch)
            trained.train()
            for number in range(start, batches):
                index = order[number * config.batch_size : (number + 1) * config.batch_size]
                with self._counted(position), self._shared():
                    loss, logs = trained(self._batch(index, stage))
                loop.optimizer.zero_grad()
                self.accelerator.backward(loss)
                where = f"{loop.name}, epoch {epoch}, batch {number}; first rows {index[:5].tolist()}"
                value = loop.step(loss, where)
                last_of_epoch = position.finished or number == batches - 1
                if loop.log_due(last_of_epoch):
                    parts = {key: part.item() for key, part in logs.items()}
                    loop.log(epoch, {"loss": value, **parts})
                    # The parts of a loss that saw groups may be groups' figures.
                    self._track("train", position, {"loss": value, **({} if self._groups is not None else parts)})
                if last_of_epoch:
                    self._end_epoch(objective.model, stage, keeper, position, epoch)
                    assert position.best_epoch is not None
                    waited = epoch - position.best_epoch
                    position.finished |= config.patience is not None and waited >= config.patience
                loop.save_if_due()
                if position.finished:  # also amid an epoch, by max_steps
                    break
        assert position.best_epoch is not None  # the last step ends an epoch
        if position.best_score == -math.inf:
            select = stage.select or config.select
            logger.warning("%s is undefined in every epoch: the last one is kept.", select)
        keeper.load_best(objective.model, position.best_epoch)
        loop.save()

    def _order(self, stage: Stage, number: int, epoch: int) -> Tensor:
        """Return the training rows of an epoch in order: a function of the stage, its number, seed and epoch alone.

        Where examples differ in length, rows of like length are next to each other (see :func:`bucketed`).
        """
        generator = epoch_generator(self.seed, number, epoch)
        if stage.sampling is not None:
            chances = stage.sampling.cpu().double()
            order = torch.multinomial(chances, len(self.labels), replacement=True, generator=generator)
        elif stage.rows is None:
            order = torch.randperm(len(self.labels), generator=generator)
        else:
            order = stage.rows.cpu()[torch.randperm(len(stage.rows), generator=generator)]
        lengths = self._inputs(stage)[0].lengths
        if lengths is None or not self.config.length_bucketing:
            return order
        if epoch == 0 and any(isinstance(module, QueryKeyStandardizer) for module in stage.objective.modules()):
            logger.warning(
                "train.length_bucketing with debiased attention: each batch has statistics of one length alone, and "
                "the running ones leave out how lengths differ. Train with --set train.length_bucketing=false."
            )
        return bucketed(order, lengths, self.config.batch_size, generator)

    def _inputs(self, stage: Stage) -> tuple[Inputs, Inputs]:
        """Return what a stage's network sees of the training and of the validation rows."""
        return (self._train.inputs, self._validation.inputs) if stage.inputs is None else stage.inputs

    def _batch(self, index: Tensor, stage: Stage) -> Batch:
        device = self.device
        weight = torch.ones(len(index)) if stage.weights is None else stage.weights.cpu()[index].float()
        return Batch(
            inputs={name: tensor.to(device) for name, tensor in self._inputs(stage)[0].batch(index).items()},
            labels=self.labels[index].to(device),
            index=index.to(device),
            weight=weight.to(device),
            group=None if stage.groups is None else stage.groups.cpu()[index].to(device),
        )

    def _track(self, split: str, position: Position, figures: dict[str, float]) -> None:
        """Send figures to the trackers, by the step counted over all stages."""
        named = {f"{split}/{name}": value for name, value in figures.items()}
        self.accelerator.log({"stage": position.stage, **named}, step=self.steps + position.step)

    def _end_epoch(self, model: nn.Module, stage: Stage, keeper: Keeper, position: Position, epoch: int) -> None:
        """Score the validation split by every rule there is data for, and keep the model if it is the best so far."""
        select = stage.select or self.config.select
        scores = (
            self._scores(model, self._inputs(stage)[1], position, epoch, stage.validation_parts) if stage.scored else {}
        )
        row = {"stage": position.stage, "epoch": epoch, "step": position.step, **scores}
        keeper.log(measured(row))
        position.history.append(row)
        blind = {name: value for name, value in measured(scores).items() if not SELECTORS[name].uses_groups}
        self._track("validation", position, blind)
        score = float(epoch) if select == "last" else scores[select]
        if math.isnan(score):  # undefined on this split: no reason to prefer the epoch
            score = -math.inf
        # Where no epoch has a score, the last one is kept, as if nothing chose.
        best = position.best_score is None or score > position.best_score or position.best_score == -math.inf
        if best:
            position.best_score, position.best_epoch = score, epoch
        keeper.keep(model, epoch, stage.epochs or self.config.epochs, best=best)

    def _scores(
        self, model: nn.Module, inputs: Inputs, position: Position, epoch: int, parts: Tensor | None
    ) -> dict[str, float]:
        """Score the validation split by every rule there is data for."""
        validation = self._validation
        logits = self.predict(model, inputs)
        if not torch.isfinite(logits).all():
            raise LevelheadError(
                f"After step {position.step - 1} (stage {position.stage + 1}, epoch {epoch}) the network's logits on "
                f"the validation split are not finite, so that no epoch can be chosen. {advice(self.config)}"
            )
        scores = {}
        for name, rule in SELECTORS.items():
            seen = self._validation_groups if rule.uses_groups else parts if rule.uses_parts else None
            if name != "last" and (seen is not None or name in FOR_ANY_METHOD):
                scores[name] = rule.score(logits, validation.labels, seen)
        return scores


def bucketed(order: Tensor, lengths: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """Return the rows of an epoch so that each batch holds like ``lengths`` (n,), in a new random order of batches.

    The incomplete batch at the end of the random ``order`` (rows,) is dropped first, so that the rows left out are
    random and not the longest. Then each window of 50 batches is sorted by length and cut into batches.
    """
    whole = order[: len(order) // batch_size * batch_size]
    windows = whole.split(BUCKET_WINDOW * batch_size)
    ordered = torch.cat([window[lengths[window].argsort(stable=True)] for window in windows])
    batches = ordered.view(-1, batch_size)
    return batches[torch.randperm(len(batches), generator=generator)].flatten()
