"""The network of an experiment: a vision transformer trained from scratch, or an encoder on a pretrained backbone."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelhead.attention import append_encoder, from_pretrained, readout_only
from levelhead.data import Examples, Inputs
from levelhead.data.images import ImageInputs
from levelhead.data.texts import Texts, TokenInputs, tokenize
from levelhead.loading import (
    classifier_class,
    explained,
    load_config,
    load_image_processor_of,
    load_tokenizer_of,
    load_weights,
    refuse_unknown_tokens,
    without_bars,
)
from levelhead.storage import hash_tensors
from levelhead.types import ConfigError, check_numbers, refuse_absurd_network

BACKBONE = "model.backbone"  # how the user names it
COUNTS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "longformer")  # positions start behind the padding index

HIDES_PATCHES = ("vit_mae",)


@dataclass(frozen=True)
class ModelConfig(ABC):
    """How the network of an experiment is made, and what it takes as input."""

    def check(self) -> None:  # noqa: B027  (a network from scratch has nothing to look for)
        """Raise :class:`~levelhead.types.ConfigError` early and cheaply for what a network cannot be made of here."""

    @abstractmethod
    def prepare(
        self, examples: Examples, device: torch.device, describe: dict[str, str], trained: Any = None
    ) -> Examples:
        """Return the examples with inputs as this network takes them.

        ``describe`` names the data in lists of kept features. A ``trained`` network from a run folder brings what it
        was trained with, whatever stands at the recipe's place of the backbone now. Raises
        :class:`~levelhead.types.ConfigError` for examples that the network cannot read.
        """

    @abstractmethod
    def build(self, class_names: tuple[str, ...]) -> Any:
        """Return a fresh network; what is not pretrained is drawn from torch's global generator."""

    def why_no_pixels(self) -> str | None:
        """Say why no gradient reaches the pixels of pictures in this network, or None where one does."""
        return None

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of what the network takes from outside the recipe and a checkpoint does not hold."""
        return {}

    def whole(self) -> ModelConfig:
        """Return the config whose network takes what a user has, not something that was computed before."""
        return self

    def save(self, model: Any, folder: Path) -> None:
        """Write a trained network so that :func:`load_model` and transformers can load it."""
        with without_bars():
            model.save_pretrained(folder)


@dataclass(frozen=True)
class ScratchViT(ModelConfig):
    """A ViT classifier trained from scratch. The paper's has 8 layers, 8 heads, and 64x64 pictures in 16.

    The paper states no width; its notebooks have 768. ``intermediate_size`` None means the hidden size, as in the
    notebooks; ``dropout`` is a probability. ``readout_only`` computes the last layer for the row that the classifier
    reads alone, with and without debiased attention: equal outputs and gradients to rounding, for less work
    (docs/performance.md). ``patch_product`` embeds all patches by one matrix product instead of a convolution: equal to
    rounding, too, and on a CPU much quicker where patches are large.
    """

    hidden_size: int = 768
    layers: int = 8
    heads: int = 8
    intermediate_size: int | None = None
    image_size: int = 64
    patch_size: int = 16
    dropout: float = 0.0
    readout_only: bool = False
    patch_product: bool = False

    def __post_init__(self) -> None:
        check_numbers("model", self, at_least_one=("hidden_size", "layers", "heads", "image_size", "patch_size"))
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it must lie in [0, 1).")
        if self.hidden_size % self.heads:
            raise ConfigError(
                f"model.hidden_size {self.hidden_size} is not a multiple of model.heads {self.heads}: "
                "change one of them."
            )
        wide, tokens = self.intermediate_size or self.hidden_size, (self.image_size // self.patch_size) ** 2 + 1
        refuse_absurd_network(
            "model (hidden_size, layers, intermediate_size, image_size, patch_size)",
            self.layers * self.hidden_size * (4 * self.hidden_size + 2 * wide)
            + self.hidden_size * (tokens + 3 * self.patch_size**2),
            self.layers,
        )
        if self.image_size % self.patch_size:
            raise ConfigError(
                f"model.image_size {self.image_size} is not a multiple of model.patch_size {self.patch_size}."
            )

    def prepare(
        self, examples: Examples, device: torch.device, describe: dict[str, str], trained: Any = None
    ) -> Examples:
        """Return the examples as they are, if they are pictures of the size that the network takes."""
        if isinstance(examples.inputs, Texts):
            raise ConfigError(
                "The data holds texts, and this model reads pictures: name a pretrained one, e.g. "
                "--set model.backbone=bert-base-uncased, and take a recipe for texts (`levelhead list recipes`)."
            )
        height, width = next(iter(examples.inputs.batch(torch.tensor([0])).values())).shape[-2:]
        if (height, width) != (self.image_size, self.image_size):
            raise ConfigError(
                f"The pictures are {width}x{height} and model.image_size is {self.image_size}: set model.image_size."
            )
        return examples

    def build(self, class_names: tuple[str, ...]) -> Any:
        """Return a freshly initialised ``ViTForImageClassification``; draws from torch's global generator."""
        from transformers import ViTConfig, ViTForImageClassification

        model = ViTForImageClassification(
            ViTConfig(
                hidden_size=self.hidden_size,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                intermediate_size=self.intermediate_size or self.hidden_size,
                image_size=self.image_size,
                patch_size=self.patch_size,
                hidden_dropout_prob=self.dropout,
                attention_probs_dropout_prob=self.dropout,
                num_labels=len(class_names),
                **_names(class_names),
            )
        )
        if self.patch_product:
            model.vit.embeddings.patch_embeddings.projection.__class__ = PatchProduct
        return readout_only(model, self.readout_only)


class PatchProduct(nn.Conv2d):
    """A convolution whose patches do not overlap, as one matrix product; weights and their names stay the same."""

    def forward(self, pictures: Tensor) -> Tensor:
        """Return (batch, width, rows, columns) of ``pictures`` (batch, channels, height, width)."""
        height, width = self.kernel_size
        patches = pictures.unflatten(-2, (-1, height)).unflatten(-1, (-1, width))
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)  # (batch, rows, columns, channels x height x width)
        return F.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class BackboneModel(ModelConfig):
    """A pretrained backbone with one more encoder layer and a linear head on top.

    ``backbone`` is a name on the Hugging Face Hub (with ``revision``) or a folder. ``mode`` ``last_encoder`` freezes it
    and trains the rest alone (section 3.4 of the paper); ``fine_tune`` trains everything. A frozen backbone runs once:
    its features are computed in batches of ``feature_batch_size`` and kept on disk (``features: false`` runs it in
    every step instead). ``layers``, ``heads`` (None: as many as the backbone has), ``intermediate_size`` (None: the
    hidden size), ``norm`` and ``activation`` are those of the appended encoder. Texts longer than ``max_length`` tokens
    are cut (None: what the backbone can take). Where the backbone runs in every step, ``length_parts`` divides each
    batch of texts by length for it: the same hidden states with less padding; and ``micro_batch`` has it run on at most
    this many rows at a time, and again in the backward pass, where a batch does not fit into memory: the same
    gradients.
    A checkpoint whose weights do not fit its own config.json is refused, unless ``allow_mismatched_weights``.

    Source: Lu, Wang, Wang, ICLR 2024, section 3.4.
    """

    backbone: str
    mode: Literal["last_encoder", "fine_tune"] = "last_encoder"
    revision: str | None = None
    layers: int = 1
    heads: int | None = None
    intermediate_size: int | None = None
    norm: Literal["pre", "post"] = "pre"
    activation: str = "gelu"
    max_length: int | None = None
    features: bool = True
    feature_batch_size: int = 64
    length_parts: int = 1
    micro_batch: int | None = None
    allow_mismatched_weights: bool = False

    def __post_init__(self) -> None:
        if not self.backbone:
            raise ConfigError("model.backbone is empty: give a name on the Hugging Face Hub, or a folder.")
        folder = Path(self.backbone).expanduser()
        if folder.is_dir():  # one spelling for one folder: runs and model cards compare and publish it
            object.__setattr__(self, "backbone", str(folder.resolve()))
        sizes = ("layers", "heads", "intermediate_size", "max_length", "feature_batch_size", "length_parts")
        check_numbers("model", self, at_least_one=(*sizes, "micro_batch"))
        refuse_absurd_network("model.layers", 0, self.layers)

    def check(self) -> None:
        """Read the backbone's configuration, and its tokenizer or picture processor; no weights."""
        if load_backbone_class(self.backbone, self.revision)[0].main_input_name == "input_ids":
            self._longest()
        else:
            load_image_processor(self.backbone, self.revision)

    def why_no_pixels(self) -> str | None:
        """Say that the backbone is frozen, or reads texts."""
        if load_backbone_class(self.backbone, self.revision)[0].main_input_name != "pixel_values":
            return f"model.backbone {self.backbone} reads texts"
        return "model.mode is last_encoder, which freezes the backbone" if self.mode == "last_encoder" else None

    @property
    def from_features(self) -> bool:
        """Whether the network is trained on kept features of its backbone."""
        return self.mode == "last_encoder" and self.features

    def prepare(
        self, examples: Examples, device: torch.device, describe: dict[str, str], trained: Any = None
    ) -> Examples:
        """Return the examples as token ids or normalised pictures, or as features of the frozen backbone."""
        inputs: Inputs = examples.inputs
        kind = load_backbone_class(self.backbone, self.revision)[0] if trained is None else trained
        wanted = "input_ids" if isinstance(inputs, Texts) else "pixel_values"
        if kind.main_input_name != wanted:
            names = {"input_ids": "texts", "pixel_values": "pictures"}
            raise ConfigError(
                f"The data holds {names[wanted]}, and model.backbone {self.backbone} reads "
                f"{names.get(kind.main_input_name, kind.main_input_name)}: choose another backbone, or other data."
            )
        if isinstance(inputs, Texts):
            inputs = self._tokenized(inputs, trained)
        elif isinstance(inputs, ImageInputs):
            load = load_image_processor if trained is None else load_image_processor.__wrapped__
            place = (self.backbone, self.revision) if trained is None else (trained.name_or_path, None)
            inputs = ProcessedPictures(inputs, load(*place))
            with explained(BACKBONE, place[0], place[1], "image processor that can be used"):
                first = inputs.batch(torch.tensor([0]))["pixel_values"]
                if first.ndim != 4 or not bool(first.isfinite().all()):
                    raise ValueError("what it makes of a picture is no picture")
        if self.from_features:
            from levelhead.models.features import feature_inputs

            if trained is None:
                with torch.random.fork_rng(devices=[]):
                    self.build(examples.class_names)  # a mistake in its options shows before an hour of features
            backbone = self._backbone() if trained is None else trained.backbone
            described = {"backbone": Path(self.backbone).name, **describe}
            inputs = feature_inputs(
                inputs, backbone, describe=described, device=device, batch_size=self.feature_batch_size
            )
        return replace(examples, inputs=inputs)

    def build(self, class_names: tuple[str, ...]) -> Any:
        """Return a plain encoder layer and head on the backbone, or without it where features take its place."""
        frozen = self.mode == "last_encoder"
        model = append_encoder(
            self._backbone(shared=frozen),
            len(class_names),
            frozen,
            None,
            layers=self.layers,
            num_heads=self.heads,
            intermediate_size=self.intermediate_size,
            norm=self.norm,
            activation=self.activation,
            **_names(class_names),
        )
        model.length_parts, model.micro_batch = self.length_parts, self.micro_batch
        if self.from_features:
            model.backbone = None
        return model

    def fingerprint(self) -> dict[str, str]:
        """Return a hash of the frozen backbone's weights, and of the tokenizer's vocabulary."""
        found = {}
        if self.mode == "last_encoder":
            digest = hashlib.blake2b(digest_size=16)
            hash_tensors(digest, self._backbone().state_dict())
            found["backbone"] = digest.hexdigest()
        if load_backbone_class(self.backbone, self.revision)[0].main_input_name == "input_ids":
            words = sorted(load_tokenizer(self.backbone, self.revision).get_vocab().items())
            found["vocabulary"] = hashlib.blake2b(repr(words).encode(), digest_size=16).hexdigest()
        return found

    def whole(self) -> BackboneModel:
        """Return the config whose network runs its backbone."""
        return replace(self, features=False) if self.from_features else self

    def save(self, model: Any, folder: Path) -> None:
        """Write the whole network, backbone included, with its tokenizer or picture processor."""
        if model.backbone is None:
            model.backbone = self._backbone()
        super().save(model, folder)
        if model.main_input_name == "input_ids":
            tokenizer = copy.deepcopy(load_tokenizer(self.backbone, self.revision))  # the next run takes the original
            if tokenizer.pad_token is None:  # pipelines cannot batch without; what stands there is masked
                tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
            tokenizer.model_max_length = self._longest()
            tokenizer.save_pretrained(folder)
        else:
            load_image_processor(self.backbone, self.revision).save_pretrained(folder)

    def _backbone(self, shared: bool = True) -> Any:
        """Return the pretrained backbone: one for all networks of a run, or one that belongs to its network alone."""
        load = load_backbone if shared else load_backbone.__wrapped__
        # Only where it is set: the cache takes a call with a default spelled out for another one.
        allowed = {"allow_mismatched_weights": True} if self.allow_mismatched_weights else {}
        return load(self.backbone, self.revision, **allowed)

    def _tokenized(self, texts: Texts, trained: Any) -> TokenInputs:
        """Return token ids that the backbone knows, made by its tokenizer or by that of a trained network."""
        if trained is None:
            tokenizer, longest = load_tokenizer(self.backbone, self.revision), self._longest()
        else:  # saving wrote the length into the tokenizer
            tokenizer = load_tokenizer.__wrapped__(trained.name_or_path, None)
            longest = tokenizer.model_max_length
        place = self.backbone if trained is None else trained.name_or_path
        if not isinstance(longest, int) or not 1 <= longest < 2**31:
            raise ConfigError(
                f"The tokenizer of {place} cuts texts at {str(longest)[:40]} tokens: fix model_max_length."
            )
        inputs = tokenize(texts, tokenizer, longest)
        kind = load_backbone_class(self.backbone, self.revision)[1] if trained is None else trained.backbone.config
        for column, size, what in (
            ("input_ids", "vocab_size", "token"),
            ("token_type_ids", "type_vocab_size", "token type"),
        ):
            known = getattr(kind.get_text_config(), size, None) or None  # 0 of no token types
            refuse_unknown_tokens(f"The tokenizer of {place}", inputs.highest(column), known, what)
        return inputs

    def _longest(self) -> int:
        """Return the number of tokens at which texts are cut."""
        config = load_backbone_class(self.backbone, self.revision)[1]
        limit = longest_text(config, load_tokenizer(self.backbone, self.revision))
        if self.max_length is not None and self.max_length > limit:
            raise ConfigError(
                f"model.max_length is {self.max_length}, and {self.backbone} takes {limit} tokens at most: set "
                f"model.max_length={limit}."
            )
        return self.max_length or limit


class ProcessedPictures(Inputs):
    """Pictures as a checkpoint's own image processor makes them."""

    def __init__(self, source: ImageInputs, processor: Any) -> None:
        self.source, self.processor = source, processor

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return ``pixel_values`` (batch, 3, side, side) float32: resized and normalised as the checkpoint says."""
        pictures = [picture.numpy() for picture in self.source.pictures(index)]
        return {
            "pixel_values": self.processor(
                pictures, return_tensors="pt", input_data_format="channels_first"
            ).pixel_values
        }

    def fingerprint(self) -> str:
        """Return a hash of the pixels and the processor's settings."""
        return f"{self.source.fingerprint()} {json.dumps(self.processor.to_dict(), sort_keys=True)}"


@functools.lru_cache(maxsize=2)
def load_backbone(name: str, revision: str | None, allow_mismatched_weights: bool = False) -> Any:
    """Load a pretrained encoder in float32, in evaluation mode, without touching torch's global generator.

    Raises :class:`~levelhead.types.ConfigError` if there is none under that name, or if it is not whole.
    """
    kind, config = load_backbone_class.__wrapped__(name, revision)  # the folder as it is now
    arguments: dict[str, Any] = {}
    if "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        arguments["add_pooling_layer"] = False  # the encoder on top reads tokens, nobody the pooled output
    return load_weights(
        kind,
        BACKBONE,
        name,
        config,
        revision=revision,
        backbone=True,
        allow_mismatched_weights=allow_mismatched_weights,
        dtype=torch.float32,
        **arguments,
    ).eval()


@functools.lru_cache(maxsize=2)
def load_backbone_class(name: str, revision: str | None) -> tuple[Any, Any]:
    """Return the class and the configuration of a pretrained encoder, without its weights.

    Raises :class:`~levelhead.types.ConfigError` if there is none under that name.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    config = load_config(BACKBONE, name, revision=revision)
    if config.model_type in HIDES_PATCHES:
        raise ConfigError(
            f"{BACKBONE} {name} is a {config.model_type}, whose encoder hides most patches of each picture at random, "
            "also after its pretraining. Give its encoder as a plain ViTModel, as `levelhead pretrain` saves it."
        )
    if getattr(config, "levelhead", None):
        raise ConfigError(f"{BACKBONE} {name} was trained by levelhead already: give the plain backbone.")
    kind = MODEL_MAPPING.get(type(config), None)
    if kind is None or isinstance(kind, tuple):
        raise ConfigError(f"{BACKBONE} {name} is of type {config.model_type}, for which transformers has no encoder.")
    return kind, config


@functools.lru_cache(maxsize=2)
def load_tokenizer(name: str, revision: str | None) -> Any:
    """Load the tokenizer of a pretrained model."""
    return load_tokenizer_of(BACKBONE, name, revision=revision)


def longest_text(config: Any, tokenizer: Any) -> int:
    """Return the number of tokens that a network of this configuration and its tokenizer take at most."""
    config = config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None)  # T5 has relative ones, and no limit
    if positions and config.model_type in COUNTS_FROM_PADDING:
        positions -= config.pad_token_id + 1
    return min(value for value in (tokenizer.model_max_length, positions) if value)


@functools.lru_cache(maxsize=2)
def load_image_processor(name: str, revision: str | None) -> Any:
    """Load the image processor of a pretrained model; the one that works on Pillow, without torchvision."""
    return load_image_processor_of(BACKBONE, name, revision=revision)


def _names(class_names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(class_names)),
        "label2id": {name: position for position, name in enumerate(class_names)},
    }


def load_model(folder: Path, *, allow_mismatched_weights: bool = False) -> Any:
    """Load a trained classifier, debiased or not, in evaluation mode.

    Raises :class:`~levelhead.types.ConfigError` for a folder that was altered: ``allow_mismatched_weights`` takes
    weights that do not fit its config.json all the same.
    """
    option, place = "The network in", str(folder)
    config = load_config(option, place)
    if sorted(config.id2label) != list(range(config.num_labels)):
        raise ConfigError(f"{option} {place} names classes in its config.json that do not count from 0.")
    if getattr(config, "levelhead", None):
        with without_bars():
            return from_pretrained(folder, allow_mismatched_weights=allow_mismatched_weights).eval()
    kind = classifier_class(option, place, config)
    return load_weights(kind, option, place, config, allow_mismatched_weights=allow_mismatched_weights).eval()


def classify_one(model: Any, inputs: dict[str, Tensor], folder: Path) -> Tensor:
    """Return a network's logits for a first batch of one; what was altered in its config.json may show only here.

    Raises :class:`~levelhead.types.ConfigError` if the network does not run on it.
    """
    with explained("The network in", str(folder), None, "logits"), torch.no_grad():
        logits: Tensor = model(**{name: tensor.to(model.device) for name, tensor in inputs.items()}).logits
        return logits
