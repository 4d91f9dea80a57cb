"""Pretrain without labels, in a folder that a killed training resumes from, and save an ordinary checkpoint.

Not in a :class:`levelhead.training.lab.Lab`, which trains classifiers, whose validation is logits against class labels.
Both resume to the same weights, bit for bit, on the same CPU.

::

    config.json, model.safetensors       the encoder, a ViTModel of transformers
    preprocessor_config.json             how pictures become its input
    README.md                            the model card
    pretraining/config.yaml              the recipe with every default written out
    pretraining/data.json                how many pictures, and a hash of them
    pretraining/log.jsonl                losses by step
    pretraining/checkpoints/             progress; deleted in the end
    pretraining/cost.json, environment.json, result.json    written in the end
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from levelhead.arrays import checked
from levelhead.data import DATASETS, DataSet, Inputs
from levelhead.data.texts import Texts
from levelhead.loading import load_config, load_weights, without_bars
from levelhead.pretraining.card import checkpoint_card
from levelhead.pretraining.config import FOLDER, PretrainConfig
from levelhead.pretraining.masked import build_masked, encoder_of, processor
from levelhead.runs.recipe import name_of, plain_options, read_recipe
from levelhead.storage import check_outputs, write_json, write_text, writing
from levelhead.terminal import Progress, silent
from levelhead.training.checkpoint import Keeper, Position
from levelhead.training.cost import EnergyOption
from levelhead.training.loop import Loop, epoch_generator
from levelhead.training.processes import make_accelerator, refuse_several
from levelhead.training.work import CONFIG, Work, environment
from levelhead.types import ConfigError, quoted

RESULT = "result.json"
WEIGHTS = ("preprocessor_config.json", "model.safetensors", "config.json")
"""What a checkpoint consists of; without the last one there is none."""
FREE = ("data.root", "train.checkpoint_seconds", "train.log_every", "train.device", "train.threads")
"""Options that a training may be resumed with another value of; of threads, its checkpoint keeps the number."""


@checked
def pretrain(
    pictures: DataSet | Inputs,
    folder: str | Path,
    config: PretrainConfig | None = None,
    *,
    resume: bool = False,
    progress: Progress = silent,
    energy: EnergyOption = "counter",
) -> Any:
    """Pretrain a small vision transformer by reconstructing masked patches, and save it as an ordinary checkpoint.

    ::

        for each epoch, in a fresh order:
            for each batch: mirror some pictures; hide patches; predict their pixels from the others; step
        save the encoder

    The folder can then stand wherever a pretrained backbone can: ``model.backbone`` of recipes,
    :func:`~levelhead.append_encoder`, or transformers.

    Args:
        pictures: a data set, of which the pictures of the training split alone are opened, neither labels nor groups;
            or pictures of your own, whose batches hold ``pixel_values`` (batch, 3, image_size, image_size).
        folder: gets the checkpoint, and ``pretraining/`` with its recipe. Must be new, empty, or (with
            ``resume``) hold the same training.
        config: sizes, training and seed.
        resume: continue where the folder's training stopped; a finished one is loaded.
        progress: called after every step.
        energy: how a GPU's energy is measured, see :func:`levelhead.training.cost.measured_cost`.

    Returns:
        The encoder, a ``ViTModel`` of transformers without pooler, in evaluation mode.

    Errors: :class:`~levelhead.ConfigError` for pictures of another size, texts, and a folder that holds something else;
    :class:`~levelhead.LevelheadError` for a loss, a gradient or weights that are not finite.

    Source: He, Chen, Xie, Li, Dollár, Girshick, Masked Autoencoders Are Scalable Vision Learners, CVPR 2022,
    arXiv:2111.06377, section 3. Left out: random crops, and learning rates that fall with the size of the batch.

    Examples:
        >>> import levelhead as lh
        >>> from levelhead.data import DATASETS
        >>> from levelhead.pretraining import MaskedViT, PretrainTrain
        >>> config = lh.PretrainConfig(
        ...     model=MaskedViT(hidden_size=16, layers=1, heads=2, decoder_hidden_size=8, decoder_layers=1),
        ...     train=PretrainTrain(epochs=1, batch_size=16, device="cpu"),
        ... )
        >>> backbone = lh.pretrain(DATASETS["portraits"](train_size=32), "backbone", config)
        >>> lh.append_encoder(backbone, num_labels=2).config.levelhead["backbone_class"]
        'ViTModel'
    """
    config, folder = config or PretrainConfig(), Path(folder)
    accelerator = make_accelerator(config.train.schedule())
    refuse_several(accelerator, "pretraining")
    _refuse_folder(folder)
    recipe = {**_about(pictures), **config.to_dict()}
    inside = folder / FOLDER
    work = Work(inside, RESULT, lambda begun: read_recipe(begun / CONFIG), free=FREE, place=folder)
    with work.locked():
        work.begin(recipe, resume)
        if work.finished:
            work.tidy()  # left if it was killed right after its end
            return _load(folder)
        inputs = pictures.inputs("train") if isinstance(pictures, DataSet) else pictures
        _refuse_pictures(inputs, config)
        work.keep(recipe, {"data.json": {"rows": len(inputs), "fingerprint": inputs.fingerprint()}})
        devices = [accelerator.device] if accelerator.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(config.seed)
            if config.train.threads:
                torch.set_num_threads(config.train.threads)
            training = _Training(config, inputs, inside, accelerator, progress)
            with work.measured(accelerator.device, energy=energy) as measured:
                position = training.run()
            encoder = encoder_of(training.network, config.model)
        steps = position.step * config.train.batch_size
        write_json(inside / "cost.json", {**measured.result(rows=steps), "steps": position.step})
        write_json(inside / "environment.json", environment(accelerator.device))
        _save(encoder, folder, config)
        result = {"steps": position.step, "epoch_losses": [row["loss"] for row in position.history]}
        card = type(pictures).card if isinstance(pictures, DataSet) else None
        write_text(folder / "README.md", checkpoint_card(inside, recipe, result, card))
        write_json(inside / RESULT, result)  # last: it marks the training as finished
        work.tidy()
        return encoder


def _refuse_folder(folder: Path) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a folder that holds something else than a pretraining."""
    check_outputs({}, folders={"The folder": folder})
    if not folder.exists() or (folder / FOLDER / CONFIG).exists():
        return
    if others := sorted({file.name for file in folder.iterdir()} - {FOLDER}):
        raise ConfigError(
            f"{folder} holds {quoted(others[0])} and no pretraining: choose a folder that is new, or empty, with --out."
        )


def _about(pictures: DataSet | Inputs) -> dict[str, Any]:
    if isinstance(pictures, DataSet):
        return {"data": {"name": name_of(pictures, DATASETS), **plain_options(pictures)}}
    return {}


def _refuse_pictures(inputs: Inputs, config: PretrainConfig) -> None:
    """Raise an error unless these are pictures of the right size, and enough for a batch."""
    if isinstance(inputs, Texts):
        raise ConfigError("The data holds texts, and pretraining reconstructs patches of pictures: choose other data.")
    if len(inputs) < config.train.batch_size:
        raise ConfigError(
            f"train.batch_size is {config.train.batch_size} but there are only {len(inputs)} pictures: lower it."
        )
    first = inputs.batch(torch.tensor([0])).get("pixel_values")
    if first is None or first.ndim != 4 or first.shape[1] != 3:
        raise ConfigError("Pretraining needs batches with pixel_values (batch, 3, height, width): give pictures.")
    height, width = first.shape[-2:]
    size = config.model.image_size
    if (height, width) != (size, size):
        raise ConfigError(f"The pictures are {width}x{height} and model.image_size is {size}: set model.image_size.")


def _save(encoder: Any, folder: Path, config: PretrainConfig) -> None:
    """Write the checkpoint; config.json comes last, so that a folder without it is no checkpoint."""
    beside = folder / FOLDER / "unfinished"
    shutil.rmtree(beside, ignore_errors=True)  # of a training that was killed while it wrote
    with writing(folder), without_bars():
        encoder.save_pretrained(beside)
        write_json(beside / "preprocessor_config.json", processor(config.model.image_size))
        for name in WEIGHTS:
            (beside / name).replace(folder / name)
        shutil.rmtree(beside)


def _load(folder: Path) -> Any:
    """Return the encoder of a finished training."""
    from transformers import ViTModel

    what = "The checkpoint"
    return load_weights(ViTModel, what, str(folder), load_config(what, str(folder)), add_pooling_layer=False).eval()


class _Training:
    """One pretraining: what it works with, and its loop."""

    def __init__(
        self, config: PretrainConfig, inputs: Inputs, folder: Path, accelerator: Any, progress: Progress
    ) -> None:
        self.config, self.inputs, self.device, self.progress = config, inputs, accelerator.device, progress
        self.network = build_masked(config.model).to(self.device)
        self.keeper = Keeper(folder, 0, accelerator)
        self.batches = len(inputs) // config.train.batch_size

    def run(self) -> Position:
        """Train to the end, from where the folder's checkpoint stands."""
        train, network = self.config.train, self.network.train()
        total = train.epochs * self.batches
        learnt = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learnt, train.learning_rate, (0.9, 0.95), weight_decay=train.weight_decay)
        rate = train.schedule().learning_rate_factor
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, total))
        loop = Loop("pretraining", network, optimizer, schedule, self.keeper, train, total, self.progress)
        position = loop.position
        while not position.finished:
            epoch, number = divmod(position.step, self.batches)
            index = self._order(epoch)[number * train.batch_size : (number + 1) * train.batch_size]
            optimizer.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=train.precision == "bf16"):
                loss = network(pixel_values=self._pictures(index)).loss
            loss.backward()
            value = loop.step(loss, f"epoch {epoch}; first rows {index[:5].tolist()}")
            if number == 0:
                position.history.append({"epoch": epoch, "loss": 0.0})
            position.history[-1]["loss"] += value / self.batches  # the mean of its epoch
            if loop.log_due(number == self.batches - 1):
                loop.log(epoch, {"loss": value})
            loop.save_if_due()
            if position.finished:
                loop.save()
        return position

    def _order(self, epoch: int) -> Tensor:
        """Return the pictures of an epoch in order: a function of seed and epoch alone."""
        return torch.randperm(len(self.inputs), generator=epoch_generator(self.config.seed, 0, epoch))

    def _pictures(self, index: Tensor) -> Tensor:
        """Return pictures (batch, 3, side, side), each mirrored with probability 1/2 if that is requested."""
        pictures = self.inputs.batch(index)["pixel_values"]
        if self.config.train.flip:
            mirrored = torch.rand(len(index)) < 0.5
            pictures = torch.where(mirrored[:, None, None, None], pictures.flip(-1), pictures)
        return pictures.to(self.device)
