"""What training keeps on disk, so that a killed run ends in the same weights, bit for bit."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from levelhead.distributed import gather_rows
from levelhead.storage import load_tensors, save_tensors, write_text, writing
from levelhead.training.weights import load_trained_state, trained_state
from levelhead.types import ConfigError, DataError

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
"""Folder inside a run folder that holds its progress."""

LOG = "log.jsonl"
"""File inside a run folder with losses by step, and scores by epoch."""

EPOCHS = "epochs"
"""Folder inside a run folder that ``train.keep_epochs`` fills."""


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
    processes: int = 1
    device: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Answers(Work):
    """What a function gave for rows, batch by batch, with the work of it; on disk where there is a ``stem``.

    Each file holds the batches since the one before, so that a long computation does not write all of it every time.
    ``written`` batches are on disk.
    """

    stem: Path | None = None
    batches: list[Tensor] = field(default_factory=list)
    written: int = 0

    def restore(self) -> None:
        """Load what an earlier part of the run has computed."""
        while self.stem is not None and (file := self._next_file()).exists():
            tensors, metadata = load_tensors(file)
            self.batches += [tensors[str(number)] for number in range(len(tensors))]
            self.forward, self.backward = metadata["forward"], metadata["backward"]
            self.written = len(self.batches)

    def save(self) -> None:
        """Write the batches that are not on disk."""
        new = {str(number): batch for number, batch in enumerate(self.batches[self.written :])}
        if self.stem is not None and new:
            save_tensors(self._next_file(), new, {"forward": self.forward, "backward": self.backward})
            self.written = len(self.batches)

    def _next_file(self) -> Path:
        assert self.stem is not None
        return self.stem.with_name(f"{self.stem.name}-{self.written:07}.safetensors")


def answers_stem(folder: Path, number: int, process: int) -> Path:
    """Return how the files of a run's ``number``-th computation begin; each process has its own."""
    return folder / CHECKPOINTS / f"answers-{number}-{process}"


def forget_progress(folder: Path) -> None:
    """Delete the checkpoints of a finished run: its model is kept beside them."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def forget_epochs(folder: Path) -> None:
    """Delete the weights of each epoch, after which no part of them can be taken for all."""
    with writing(folder / EPOCHS):
        unwanted = folder / f".{EPOCHS}-unwanted"
        shutil.rmtree(unwanted, ignore_errors=True)  # of a process that was killed here
        if (folder / EPOCHS).exists():
            (folder / EPOCHS).rename(unwanted)
            shutil.rmtree(unwanted)


class Keeper:
    """Keeps one stage's best model, and its progress on disk where there is a folder; the main process alone writes.

    With ``every_epoch`` each epoch's model is kept there, of which the best is one.
    """

    def __init__(
        self,
        folder: Path | None,
        stage: int,
        accelerator: Accelerator,
        *,
        every_epoch: bool = False,
    ) -> None:
        self.stage, self.accelerator = stage, accelerator
        self.writes, self.on_gpu = accelerator.is_main_process, accelerator.device.type == "cuda"
        self.device = torch.cuda.get_device_name(accelerator.device) if self.on_gpu else accelerator.device.type
        self.checkpoint = folder and folder / CHECKPOINTS / f"stage-{stage}.safetensors"
        self.best = folder and folder / CHECKPOINTS / f"stage-{stage}-best.safetensors"
        self.epochs = folder / EPOCHS if folder and every_epoch else None
        self.log_file = folder and folder / LOG
        self._memory: dict[str, Tensor] = {}

    def restore(self, objective: nn.Module, optimizer: Any, schedule: Any) -> Position:
        """Load the stage's progress, if there is any, into the objective and the optimiser."""
        if self.checkpoint is None or not self.checkpoint.exists():
            return Position(
                stage=self.stage,
                threads=torch.get_num_threads(),
                torch_version=torch.__version__,
                processes=self.accelerator.num_processes,
                device=self.device,
            )
        tensors, metadata = load_tensors(self.checkpoint)
        position = Position(**metadata["position"])
        if position.processes != self.accelerator.num_processes:
            raise ConfigError(
                f"{self.checkpoint} was written by a training in {position.processes} process(es) and cannot be "
                f"resumed in {self.accelerator.num_processes}: random numbers belong to processes. Start it in as "
                "many as then (--num-processes of accelerate launch, --nproc-per-node of torchrun), or choose another "
                "folder."
            )
        for written, then, now in (
            ("by torch", position.torch_version, torch.__version__),
            ("on", position.device, self.device),
        ):
            if then not in ("", now):
                logger.warning(
                    "The checkpoint was written %s %s; this is %s. The run is resumed, but its weights may differ in "
                    "the last bits from an uninterrupted run.",
                    written,
                    then,
                    now,
                )
        position.device = self.device
        load_trained_state(objective, _without_prefix(tensors, "objective."), f"Checkpoint {self.checkpoint}")
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

        def own(name: str) -> Tensor:  # a copy: torch reads a generator's state from the start of its storage
            return tensors[name].view(position.processes, -1)[self.accelerator.process_index].clone()

        torch.set_rng_state(own("generator.cpu"))
        if "generator.cuda" in tensors and self.on_gpu:
            torch.cuda.set_rng_state(own("generator.cuda"))
        return position

    def save(self, objective: nn.Module, optimizer: Any, position: Position) -> None:
        """Write the stage's progress."""
        if self.checkpoint is None:
            return
        generators = {"generator.cpu": self._of_processes(torch.get_rng_state())}
        if self.on_gpu:  # on a CPU, asking would take memory of a GPU that may be full
            generators["generator.cuda"] = self._of_processes(torch.cuda.get_rng_state())
        if not self.writes:
            return
        plain = getattr(optimizer, "optimizer", optimizer)
        tensors = {f"objective.{name}": tensor for name, tensor in trained_state(objective).items()} | generators
        state = plain.state_dict()
        if not position.finished:  # a finished stage never steps again
            tensors |= {
                f"optimizer.{number}.{name}": tensor
                for number, entries in state["state"].items()
                for name, tensor in entries.items()
            }
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

    def _of_processes(self, state: Tensor) -> Tensor:
        """Return the generator states (processes, bytes) of all processes."""
        return gather_rows(state[None].to(self.accelerator.device), [1] * self.accelerator.num_processes)

    def keep(self, model: nn.Module, epoch: int, epochs: int, *, best: bool) -> None:
        """Keep the model as it is after this of ``epochs`` epochs if it is the ``best`` so far, or if every epoch is.

        Raises :class:`~levelhead.types.DataError` after the first epoch if the others would not fit on the disk.
        """
        if self.best is None:
            if best:
                self._memory = {name: tensor.detach().clone() for name, tensor in trained_state(model).items()}
        elif self.writes and self.epochs is not None:
            save_tensors(self._epoch_file(self.epochs, epoch), trained_state(model), {})
            if epoch == 0:
                self._make_room(self.epochs, epochs)
        elif self.writes and best:
            save_tensors(self.best, trained_state(model), {})

    def _epoch_file(self, folder: Path, epoch: int) -> Path:
        return folder / f"stage-{self.stage}-epoch-{epoch}.safetensors"

    def _make_room(self, folder: Path, epochs: int) -> None:
        """Delete the epochs of earlier stages: the last stage gives the network that rules choose an epoch of.

        Raises :class:`~levelhead.types.DataError` if not as many as ``epochs`` fit on the disk.
        """
        for other in folder.glob("stage-*-epoch-*.safetensors"):
            if not other.name.startswith(f"stage-{self.stage}-"):
                other.unlink()
        size, free = self._epoch_file(folder, 0).stat().st_size, shutil.disk_usage(folder).free
        needed = size * (epochs - 1)
        if needed > free:
            raise DataError(
                f"train.keep_epochs keeps {epochs} epochs of {size / 2**20:,.1f} MiB in {folder}: "
                f"{needed / 2**20:,.1f} MiB more, and {free / 2**20:,.1f} MiB are free. Make room, choose another "
                "--out, or train without it (train.keep_epochs=false)."
            )

    def load_best(self, model: nn.Module, epoch: int) -> None:
        """Load the best model so far, which is that of ``epoch``."""
        self.accelerator.wait_for_everyone()  # until the main process has written it
        file = self.best if self.epochs is None else self._epoch_file(self.epochs, epoch)
        tensors = self._memory if file is None else load_tensors(file)[0]
        load_trained_state(model, tensors, f"The best model in {file or 'memory'}")

    def forget_best(self) -> None:
        """Delete the best model: the finished stage's checkpoint, already on disk, holds it."""
        self._memory.clear()
        if self.best is not None and self.writes:
            self.best.unlink(missing_ok=True)

    def log(self, row: dict[str, Any]) -> None:
        """Append one JSON line."""
        if self.log_file is not None and self.writes:
            with writing(self.log_file):
                self.log_file.parent.mkdir(parents=True, exist_ok=True)
                with self.log_file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")

    def forget_log_after(self, step: int) -> None:
        """Drop lines that a killed run wrote after its last checkpoint: they will be written again."""
        if self.log_file is None or not self.writes or not self.log_file.is_file():
            return
        kept = []
        for line in self.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
                if row["stage"] < self.stage or (row["stage"] == self.stage and row["step"] <= step):
                    kept.append(line + "\n")
            except (ValueError, TypeError, KeyError):  # the line that was being written when the run was killed
                continue
        write_text(self.log_file, "".join(kept))


def _without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
