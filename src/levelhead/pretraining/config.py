"""What is pretrained, and how: :class:`PretrainConfig`, and the recipes that hold it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from levelhead.arrays import check_fields
from levelhead.data import DataSet
from levelhead.runs.options import assign, build_data, build_options, override, section
from levelhead.runs.recipe import data_recipe, find_recipe, plain_options, read_recipe
from levelhead.training.config import TrainConfig, check_step_size
from levelhead.types import ConfigError, check_numbers, check_seed, nearest, quoted, refuse_absurd_network

FOLDER = "pretraining"
"""Of the recipes, and in the folder of a checkpoint: what was asked, and how far the training has come."""


@dataclass(frozen=True)
class MaskedViT:
    """A vision transformer, and the decoder that fills in masked patches while it is pretrained.

    Pictures of ``image_size`` pixels a side are cut into square patches of ``patch_size``. Of these ``mask_share`` are
    hidden, drawn again for each picture and step. The encoder (``hidden_size``, ``layers``, ``heads``,
    ``intermediate_size``; None: four times the hidden size) sees the others alone. The decoder predicts the pixels of
    the hidden ones; it is not kept. ``normalize_patches`` predicts each patch minus its mean, divided by its standard
    deviation.

    Source: He et al., CVPR 2022, arXiv:2111.06377, section 3; the ViT is that of transformers.
    """

    hidden_size: int = 192
    layers: int = 6
    heads: int = 6
    intermediate_size: int | None = None
    image_size: int = 64
    patch_size: int = 16
    mask_share: float = 0.75
    normalize_patches: bool = True
    decoder_hidden_size: int = 96
    decoder_layers: int = 2
    decoder_heads: int = 4

    def __post_init__(self) -> None:
        check_fields(self, "model")
        sizes = ("hidden_size", "layers", "heads", "intermediate_size", "image_size", "patch_size")
        of_decoder = ("decoder_hidden_size", "decoder_layers", "decoder_heads")
        check_numbers("model", self, at_least_one=(*sizes, *of_decoder))
        for size, heads in (("hidden_size", "heads"), ("decoder_hidden_size", "decoder_heads")):
            if getattr(self, size) % getattr(self, heads):
                raise ConfigError(
                    f"model.{size} {getattr(self, size)} is not a multiple of model.{heads} {getattr(self, heads)}: "
                    "change one of them."
                )
            if getattr(self, size) % 4:  # sines and cosines of two coordinates
                raise ConfigError(f"model.{size} is {getattr(self, size)}; positions need a multiple of 4.")
        if self.image_size % self.patch_size:
            raise ConfigError(
                f"model.image_size {self.image_size} is not a multiple of model.patch_size {self.patch_size}: patches "
                "must fill the picture. Change one of them."
            )
        if not 0 < self.mask_share < 1 or not 0 < self.visible < self.patches:
            raise ConfigError(
                f"model.mask_share is {self.mask_share}; of {self.patches} patches a picture at least one must be "
                "hidden and one seen. Choose another share between 0 and 1, or a smaller model.patch_size."
            )
        refuse_absurd_network("model (hidden_size, layers, intermediate_size)", self.weights, self.layers)

    @property
    def weights(self) -> int:
        """About how many weights encoder and decoder have."""
        wide, narrow = self.hidden_size, self.decoder_hidden_size
        between = self.intermediate_size or 4 * wide
        of_patches = (self.patches + 1) * (wide + narrow) + 3 * self.patch_size**2 * (wide + narrow) + wide * narrow
        return self.layers * (4 * wide**2 + 2 * wide * between) + self.decoder_layers * 12 * narrow**2 + of_patches

    @property
    def patches(self) -> int:
        """How many patches a picture has."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def visible(self) -> int:
        """How many patches the encoder sees of a picture in pretraining."""
        return int(self.patches * (1 - self.mask_share) + 1e-9)  # 10 x (1 - 0.9) is a little less than 1


@dataclass(frozen=True)
class PretrainTrain:
    """How it is trained: AdamW with betas 0.9 and 0.95, a warm-up in steps, then a cosine to zero.

    ``flip`` mirrors each picture with probability 1/2. ``precision`` bf16 is mixed precision. ``threads`` None keeps
    torch's number. ``checkpoint_seconds`` is the most work, in seconds, that a killed training loses. The last,
    incomplete batch of an epoch is left out.
    """

    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup_steps: int = 200
    gradient_clip: float | None = None
    flip: bool = True
    precision: Literal["no", "bf16"] = "no"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    checkpoint_seconds: float = 60.0
    log_every: int = 10

    def __post_init__(self) -> None:
        check_fields(self, "train")
        check_numbers(
            "train",
            self,
            at_least_one=("epochs", "batch_size", "log_every"),
            positive=("learning_rate", "gradient_clip", "threads"),
            at_least_zero=("weight_decay", "warmup_steps", "checkpoint_seconds"),
        )
        check_step_size(self.learning_rate, self.weight_decay)

    def schedule(self) -> TrainConfig:
        """Return what knows the learning rate at each step, and what chooses the device."""
        return TrainConfig(schedule="cosine", warmup_steps=self.warmup_steps, device=self.device)


@dataclass(frozen=True)
class PretrainConfig:
    """What is pretrained (``model``), how (``train``), and the ``seed`` of weights, order, masks and mirroring.

    Examples:
        >>> import levelhead as lh
        >>> from levelhead.pretraining import MaskedViT
        >>> lh.PretrainConfig(model=MaskedViT(patch_size=8), seed=1).model.visible  # of 64 patches
        16
    """

    model: MaskedViT = field(default_factory=MaskedViT)
    train: PretrainTrain = field(default_factory=PretrainTrain)
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Return the sections of a recipe that make this training, with every default written out."""
        return dict(plain_options(self))


def load_pretraining(
    recipe: str | Path | None = None,
    settings: Iterable[str] = (),
    *,
    data: str | None = None,
    data_root: Path | None = None,
) -> tuple[DataSet, PretrainConfig]:
    """Read a pretraining recipe: a path, or a name in ``recipes/pretraining``. ``settings`` override its keys.

    Sections: ``data`` (as in any recipe; target and sensitive columns mean nothing here), ``model``, ``train`` and
    ``seed``. Instead of a recipe, or to replace its data, ``data`` names a data set, as in ``levelhead compare
    --data``: the data of its recipe is taken. Errors: :class:`~levelhead.ConfigError` that names the key.
    """
    content: dict[str, Any] = {} if recipe is None else read_recipe(find_recipe(recipe, FOLDER), running=True)
    if data is not None:
        content = content | {"data": section(data_recipe(data), "data")}
    content = override(content, settings)
    if "data" not in content:
        raise ConfigError("Say which pictures: a RECIPE, --data with a data set, or --set data.name=NAME.")
    if data_root is not None:
        content = assign(content, "data.root", str(data_root))
    check_seed(content.get("seed", 0))  # before true becomes 1
    rest = {key: value for key, value in content.items() if key != "data"}
    known = ("data", "model", "train", "seed")
    for key in rest:
        if key not in known:
            raise ConfigError(f"Unknown section {quoted(key)} of a pretraining recipe. {nearest(str(key), known)}")
    config: PretrainConfig = build_options(PretrainConfig, rest, "recipe")
    return build_data(content["data"]), config
