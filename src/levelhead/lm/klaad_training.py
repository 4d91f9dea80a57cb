"""Train a language model with KLAAD, in a folder that a killed run can continue from.

Not in a :class:`levelhead.training.lab.Lab`, which trains classifiers, whose validation is logits against class labels,
and which refuses gradient accumulation, because of batch statistics that KLAAD does not have. Both resume to the same
weights, bit for bit, on the same CPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from levelhead.arrays import check_fields, checked
from levelhead.lm.capture import attending_plainly
from levelhead.lm.klaad import Klaad, check_triplets, collate
from levelhead.lm.loading import Beginning, load_checkpoint, place_of
from levelhead.lm.stereoset.data import same_term
from levelhead.lm.triplets import HELD_OUT_TERMS, TRAINING, TermSplit, Triplet, write_terms
from levelhead.loading import without_bars
from levelhead.runs.options import build_options, override
from levelhead.runs.recipe import find_recipe, plain_options, read_recipe
from levelhead.storage import read_json, writing
from levelhead.terminal import Progress, silent
from levelhead.training.checkpoint import Keeper
from levelhead.training.config import TrainConfig, check_step_size
from levelhead.training.loop import Loop, epoch_generator
from levelhead.training.processes import make_accelerator, refuse_several
from levelhead.training.work import Work
from levelhead.types import ConfigError, DataError, check_numbers, check_seed

FREE = ("train.checkpoint_seconds", "train.log_every", "train.device")
"""Settings that a training may be continued with another value of."""


@dataclass(frozen=True)
class KlaadModel:
    """Which language model is trained, and which part of it.

    ``name`` is a name on the Hugging Face Hub, or a folder that ``save_pretrained`` wrote. ``lora_rank`` 0 trains
    everything; otherwise only low-rank matrices of that rank on all linear layers but the output (needs ``peft``).
    ``weights`` is the type that parameters are kept in; at a rate of 1e-5 most updates are lost in bfloat16, unless
    LoRA's own matrices, which stay float32, are all that learns. A checkpoint whose weights do not fit its own
    config.json is refused, unless ``allow_mismatched_weights``.
    """

    name: str = "EleutherAI/gpt-neo-125m"
    revision: str | None = None
    lora_rank: int = 0
    weights: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    allow_mismatched_weights: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.lora_rank < 0:
            raise ConfigError(f"model.lora_rank is {self.lora_rank}; it must be 0 (train everything) or more.")


@dataclass(frozen=True)
class KlaadTrain:
    """How it is trained. Published: one epoch, learning rate 1e-5; everything else is a choice made here.

    ``batch_size`` triplets (three sentences each) go through the model at once, ``accumulate`` such batches make one
    step of AdamW; the gradient is the mean over micro-batches by their number of triplets. ``precision`` bf16 is mixed
    precision; the divergence is float32 anyway. ``checkpoint_seconds`` is
    the most work, in seconds, that a killed run loses.
    """

    epochs: int = 1
    batch_size: int = 8
    accumulate: int = 1
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    warmup_steps: int = 0
    gradient_clip: float | None = None
    precision: Literal["no", "bf16"] = "no"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    checkpoint_seconds: float = 600.0
    log_every: int = 10

    def __post_init__(self) -> None:
        check_fields(self, "train")
        check_numbers(
            "train",
            self,
            at_least_one=("epochs", "batch_size", "accumulate", "log_every"),
            positive=("learning_rate", "gradient_clip"),
            at_least_zero=("weight_decay", "warmup_steps", "checkpoint_seconds"),
        )
        check_step_size(self.learning_rate, self.weight_decay)


@dataclass(frozen=True)
class KlaadConfig:
    """A KLAAD training: its loss, its training and its model; ``seed`` decides order and dropout."""

    klaad: Klaad = field(default_factory=Klaad)
    train: KlaadTrain = field(default_factory=KlaadTrain)
    model: KlaadModel = field(default_factory=KlaadModel)
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe that makes this training, with every default written out."""
        return dict(plain_options(self))


@checked
def load_klaad(recipe: str | Path, settings: Iterable[str] = ()) -> KlaadConfig:
    """Read a KLAAD recipe (a path, or the name of one in ``recipes/lm``) with ``--set`` overrides on top.

    Sections: ``klaad`` (fields of :class:`~levelhead.lm.klaad.Klaad`; ``preset`` names published weights), ``train``,
    ``model`` and ``seed``. Errors: :class:`~levelhead.types.ConfigError` that names the key.
    """
    path = find_recipe(recipe, "lm")
    config: KlaadConfig = build_options(KlaadConfig, override(read_recipe(path), settings), "recipe")
    return config


def load_language_model(config: KlaadModel) -> tuple[nn.Module, Any]:
    """Return the model and its tokenizer, read from the hub or a folder, ready to be trained.

    Raises :class:`~levelhead.types.ConfigError` if there is no such model, if it is no causal language model, or if
    PEFT is requested and missing.
    """
    model, tokenizer, _ = load_checkpoint(
        "model.name",
        place_of(config.name),
        revision=config.revision,
        dtype=getattr(torch, config.weights),
        allow_mismatched_weights=config.allow_mismatched_weights,
    )
    if config.gradient_checkpointing:
        # transformers has renamed it
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
        model.enable_input_require_grads()  # a frozen embedding would end the chain under LoRA
    if config.lora_rank:
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise ConfigError("model.lora_rank needs peft: pip install 'levelhead[peft]', or set it to 0.") from None
        model = get_peft_model(
            model, LoraConfig(r=config.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
        )
    return model, tokenizer


def refuse_shared_terms(train: Sequence[Triplet], held_out: Sequence[Triplet]) -> None:
    """Raise :class:`~levelhead.types.DataError` if a target term is on both sides: the held-out one was trained."""
    nameless = sum(not triplet.term.strip() for triplet in [*train, *held_out])
    if held_out and nameless:
        raise DataError(f"{nameless} triplets have no target term, so held-out terms cannot be checked.")
    common = {same_term(triplet.term) for triplet in train} & {same_term(triplet.term) for triplet in held_out}
    if common:
        raise DataError(
            f"{len(common)} target terms are both in the training and in the held-out triplets, so the held-out "
            "figures would measure memorisation. Split by target term (levelhead.lm.triplets.split_terms)."
        )


@checked
def train_klaad(
    model: nn.Module,
    tokenizer: Any,
    triplets: Sequence[Triplet],
    config: KlaadConfig | None = None,
    folder: Path | None = None,
    *,
    held_out: Sequence[Triplet] = (),
    progress: Progress = silent,
) -> nn.Module:
    """Train ``model`` on ``triplets`` and return it, in evaluation mode.

    ::

        for each epoch, in a fresh order:
            for each step of accumulate x batch_size triplets:
                add up the gradients of its micro-batches; clip; step
            score the held-out triplets, if there are any

    ``folder`` gets ``klaad.json`` (the settings), the held-out terms, ``log.jsonl`` (each part of the loss),
    ``checkpoints`` and in the end ``model``, for ``from_pretrained``. Started again with the same arguments and the
    *untrained* model, a killed training continues, and a finished one is loaded. No checkpoint is selected: the last
    one is kept.

    Errors: :class:`~levelhead.types.ConfigError` for a folder of another training, and for several processes;
    :class:`~levelhead.types.DataError` for target terms on both sides of the split;
    :class:`~levelhead.types.LevelheadError` for a loss, a gradient or weights that are not finite.
    """
    config = config or KlaadConfig()
    check_triplets(tokenizer, [*triplets, *held_out])
    if not triplets:
        raise DataError("There are no triplets to train on.")
    refuse_shared_terms(triplets, held_out)
    accelerator = make_accelerator(TrainConfig(device=config.train.device, precision=config.train.precision))
    refuse_several(accelerator, "KLAAD")
    work = folder and Work(folder, "model", lambda begun: read_json(begun / TRAINING), TRAINING, FREE)
    with work.locked() if work else contextlib.nullcontext():
        if work:
            settings = _settings(config, triplets, Beginning.of(tokenizer))
            work.refuse_changes(settings)
            work.keep(settings, {})
            if held_out:
                write_terms(work.folder / HELD_OUT_TERMS, TermSplit((), tuple(held_out)).held_out_terms)
        with attending_plainly(model):
            _Training(model, tokenizer, triplets, held_out, config, folder, accelerator, progress).run()
        if folder is not None:
            with without_bars(), writing(folder / "model"):
                getattr(model, "save_pretrained")(folder / "model")  # noqa: B009  (nn.Module does not declare it)
                tokenizer.save_pretrained(folder / "model")
        return model.eval()


def _settings(config: KlaadConfig, triplets: Sequence[Triplet], beginning: Beginning) -> dict[str, Any]:
    """Return what a training's folder says about it."""
    texts = [[one.stereotype, one.anti_stereotype, one.unrelated, one.context, one.term, one.task] for one in triplets]
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    alone = {"begin_alone": list(beginning.alone)} if beginning.alone else {}
    return {**config.to_dict(), "triplets": len(triplets), "triplets_sha256": digest, **alone}


@dataclass
class _Training:
    """One training: what it works with, and its loop."""

    model: nn.Module
    tokenizer: Any
    triplets: Sequence[Triplet]
    held_out: Sequence[Triplet]
    config: KlaadConfig
    folder: Path | None
    accelerator: Any
    progress: Progress

    def __post_init__(self) -> None:
        self.model = self.model.to(self.accelerator.device)
        self.keeper = Keeper(self.folder, 0, self.accelerator)
        self.per_step = self.config.train.batch_size * self.config.train.accumulate
        self.steps = math.ceil(len(self.triplets) / self.per_step)  # of an epoch; its last one may be smaller

    def run(self) -> None:
        """Train to the end, from where the folder's checkpoint stands."""
        train = self.config.train
        learnt = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learnt, lr=train.learning_rate, weight_decay=train.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / max(1, train.warmup_steps))
        )
        torch.manual_seed(self.config.seed)
        total = train.epochs * self.steps
        loop = Loop("KLAAD", self.model, optimizer, schedule, self.keeper, train, total, self.progress)
        position = loop.position
        self.model.train()
        while not position.finished:
            epoch, number = divmod(position.step, self.steps)
            # An epoch's order is a function of seed and epoch alone.
            order = torch.randperm(len(self.triplets), generator=epoch_generator(self.config.seed, 0, epoch)).tolist()
            rows = order[number * self.per_step : (number + 1) * self.per_step]
            optimizer.zero_grad()
            logs = self._figures([self.triplets[row] for row in rows])
            loss = logs.pop("loss")
            parts = ", ".join(f"{name} {value:.4g}" for name, value in logs.items())
            loop.step(loss, f"epoch {epoch}; {parts}; first triplets {rows[:5]}")
            last_of_epoch = number == self.steps - 1
            if loop.log_due(last_of_epoch):
                loop.log(epoch, {"loss": loss, **logs})
            if last_of_epoch and self.held_out:
                self.model.eval()
                with torch.no_grad():
                    found = {f"held_out_{name}": value for name, value in self._figures(self.held_out).items()}
                self.model.train()
                self.keeper.log({"stage": 0, "epoch": epoch, "step": position.step, **found})
            loop.save_if_due()
            if position.finished:
                position.seconds = 0.0  # nothing continues from here, and equal trainings leave equal files
                loop.save()

    def _figures(self, triplets: Sequence[Triplet]) -> dict[str, float]:
        """Return the mean loss and its parts, batch by batch; where gradients are on, add them up."""
        figures: dict[str, float] = {}
        size = self.config.train.batch_size
        for start in range(0, len(triplets), size):
            part = triplets[start : start + size]
            batch = collate(self.tokenizer, part).to(self.accelerator.device)
            with self.accelerator.autocast():
                loss, logs = self.config.klaad(self.model, batch)
            share = len(part) / len(triplets)
            if torch.is_grad_enabled():
                (loss * share).backward()
            for name, value in {"loss": loss.detach(), **logs}.items():
                figures[name] = figures.get(name, 0.0) + share * value.item()
        return figures
