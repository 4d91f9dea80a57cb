"""The network of an experiment: a vision transformer trained from scratch, or an encoder on a pretrained backbone."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor

from levelhead.attention import append_encoder, from_pretrained, read_one_row
from levelhead.data import Examples, Inputs
from levelhead.data.images import ImageInputs
from levelhead.data.texts import Texts, tokenize
from levelhead.storage import hash_tensors
from levelhead.types import ConfigError, check_numbers

COUNTS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "longformer")  # positions start behind the padding index


@dataclass(frozen=True)
class ModelConfig(ABC):
    """How the network of an experiment is made, and what it takes as input."""

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
    """A ViT classifier trained from scratch. The paper's has 8 layers, 8 heads, width 768, and 64x64 pictures in 16.

    ``intermediate_size`` None means the hidden size, as in the paper; ``dropout`` is a probability. ``cls_only``
    computes the last layer for the row that the classifier reads alone, with and without debiased attention: equal
    outputs and gradients to rounding, for less work (docs/performance.md).
    """

    hidden_size: int = 768
    layers: int = 8
    heads: int = 8
    intermediate_size: int | None = None
    image_size: int = 64
    patch_size: int = 16
    dropout: float = 0.0
    cls_only: bool = False

    def __post_init__(self) -> None:
        check_numbers("model", self, at_least_one=("hidden_size", "layers", "heads", "image_size", "patch_size"))
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it must lie in [0, 1).")
        if self.hidden_size % self.heads:
            raise ConfigError(
                f"model.hidden_size {self.hidden_size} is not a multiple of model.heads {self.heads}: "
                "change one of them."
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
        return read_one_row(model, self.cls_only)


@dataclass(frozen=True)
class BackboneModel(ModelConfig):
    """A pretrained backbone with one more encoder layer and a linear head on top.

    ``backbone`` is a name on the Hugging Face Hub (with ``revision``) or a folder. ``mode`` ``last_encoder`` freezes it
    and trains the rest alone (section 3.4 of the paper); ``fine_tune`` trains everything. A frozen backbone runs once:
    its features are computed in batches of ``feature_batch_size`` and kept on disk (``features: false`` runs it in
    every step instead). ``layers``, ``heads`` (None: as many as the backbone has), ``intermediate_size`` (None: the
    hidden size), ``norm`` and ``activation`` are those of the appended encoder. Texts longer than ``max_length`` tokens
    are cut (None: what the backbone can take). Where the backbone runs in every step, ``length_parts`` divides each
    batch of texts by length for it: the same hidden states with less padding.

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

    def __post_init__(self) -> None:
        if not self.backbone:
            raise ConfigError("model.backbone is empty: give a name on the Hugging Face Hub, or a folder.")
        folder = Path(self.backbone).expanduser()
        if folder.is_dir():  # one spelling for one folder: runs and model cards compare and publish it
            object.__setattr__(self, "backbone", str(folder.resolve()))
        counts = ("layers", "heads", "intermediate_size", "max_length", "feature_batch_size", "length_parts")
        check_numbers("model", self, at_least_one=counts)

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
            if trained is None:
                inputs = tokenize(inputs, load_tokenizer(self.backbone, self.revision), self._longest())
            else:  # saving wrote the length into the tokenizer
                tokenizer = load_tokenizer.__wrapped__(trained.name_or_path, None)
                inputs = tokenize(inputs, tokenizer, tokenizer.model_max_length)
        elif isinstance(inputs, ImageInputs):
            load = load_image_processor if trained is None else load_image_processor.__wrapped__
            place = (self.backbone, self.revision) if trained is None else (trained.name_or_path, None)
            inputs = ProcessedPictures(inputs.pixels, load(*place))
        if self.from_features:
            from levelhead.features import feature_inputs

            if trained is None:
                with torch.random.fork_rng(devices=[]):
                    self.build(examples.class_names)  # a mistake in its options shows before an hour of features
            backbone = load_backbone(self.backbone, self.revision) if trained is None else trained.backbone
            described = {"backbone": Path(self.backbone).name, **describe}
            inputs = feature_inputs(
                inputs, backbone, describe=described, device=device, batch_size=self.feature_batch_size
            )
            backbone.to("cpu")  # the network that is trained on features does not need it
        return replace(examples, inputs=inputs)

    def build(self, class_names: tuple[str, ...]) -> Any:
        """Return a plain encoder layer and head on the backbone, or without it where features take its place."""
        frozen = self.mode == "last_encoder"
        # One frozen backbone serves all networks of a run; one that is trained belongs to its network alone.
        load = load_backbone if frozen else load_backbone.__wrapped__
        model = append_encoder(
            load(self.backbone, self.revision),
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
        model.length_parts = self.length_parts
        if self.from_features:
            model.backbone = None
        return model

    def fingerprint(self) -> dict[str, str]:
        """Return a hash of the frozen backbone's weights, and of the tokenizer's vocabulary."""
        found = {}
        if self.mode == "last_encoder":
            digest = hashlib.blake2b(digest_size=16)
            hash_tensors(digest, load_backbone(self.backbone, self.revision).state_dict())
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
            model.backbone = load_backbone(self.backbone, self.revision)
        super().save(model, folder)
        if model.main_input_name == "input_ids":
            tokenizer = copy.deepcopy(load_tokenizer(self.backbone, self.revision))  # the next run takes the original
            if tokenizer.pad_token is None:  # pipelines cannot batch without; what stands there is masked
                tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
            tokenizer.model_max_length = self._longest()
            tokenizer.save_pretrained(folder)
        else:
            load_image_processor(self.backbone, self.revision).save_pretrained(folder)

    def _longest(self) -> int:
        """Return the number of tokens at which texts are cut."""
        config = load_backbone_class(self.backbone, self.revision)[1].get_text_config()
        positions = getattr(config, "max_position_embeddings", None)  # T5 has relative ones, and no limit
        if positions and config.model_type in COUNTS_FROM_PADDING:
            positions -= config.pad_token_id + 1
        limits = [
            value for value in (load_tokenizer(self.backbone, self.revision).model_max_length, positions) if value
        ]
        limit = min(limits)
        if self.max_length is not None and self.max_length > limit:
            raise ConfigError(
                f"model.max_length is {self.max_length}, and {self.backbone} takes {limit} tokens at most."
            )
        return self.max_length or limit


class ProcessedPictures(Inputs):
    """Pictures as a checkpoint's own image processor makes them; ``pixels`` (n, 3, height, width) uint8."""

    def __init__(self, pixels: Tensor, processor: Any) -> None:
        self.pixels, self.processor = pixels, processor

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return ``pixel_values`` (batch, 3, side, side) float32: resized and normalised as the checkpoint says."""
        pictures = [picture.numpy() for picture in self.pixels[index]]
        return {
            "pixel_values": self.processor(
                pictures, return_tensors="pt", input_data_format="channels_first"
            ).pixel_values
        }

    def fingerprint(self) -> str:
        """Return a hash of the pixels and the processor's settings."""
        return f"{ImageInputs(self.pixels).fingerprint()} {json.dumps(self.processor.to_dict(), sort_keys=True)}"


@functools.lru_cache(maxsize=2)
def load_backbone(name: str, revision: str | None) -> Any:
    """Load a pretrained encoder in float32, in evaluation mode, without touching torch's global generator.

    Raises :class:`~levelhead.types.ConfigError` if there is none under that name.
    """
    kind, _ = load_backbone_class(name, revision)
    arguments: dict[str, Any] = {}
    if "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        arguments["add_pooling_layer"] = False  # the encoder on top reads tokens, nobody the pooled output
    # A task head's name before each weight is no news, and what is missing altogether raises in append_encoder.
    with (
        explained("model.backbone", name, revision, "weights"),
        without_bars(),
        _quiet(),
        torch.random.fork_rng(devices=[]),
    ):
        model, report = kind.from_pretrained(
            name, revision=revision, dtype=torch.float32, output_loading_info=True, **arguments
        )
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ConfigError(
            f"model.backbone {name} holds no weights for {len(report['missing_keys'])} parameters of {kind.__name__}, "
            f"such as {sorted(map(str, report['missing_keys']))[:1]}: fetch the checkpoint again."
        )
    return model.eval()


@functools.lru_cache(maxsize=2)
def load_backbone_class(name: str, revision: str | None) -> tuple[Any, Any]:
    """Return the class and the configuration of a pretrained encoder, without its weights.

    Raises :class:`~levelhead.types.ConfigError` if there is none under that name.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    with explained("model.backbone", name, revision, "configuration"):
        config = AutoConfig.from_pretrained(name, revision=revision)
    if getattr(config, "levelhead", None):
        raise ConfigError(f"model.backbone {name} was trained by levelhead already: give the plain backbone.")
    kind = MODEL_MAPPING.get(type(config), None)
    if kind is None or isinstance(kind, tuple):
        raise ConfigError(
            f"model.backbone {name} is of type {config.model_type}, for which transformers has no encoder."
        )
    return kind, config


@functools.lru_cache(maxsize=2)
def load_tokenizer(name: str, revision: str | None) -> Any:
    """Load the tokenizer of a pretrained model."""
    from transformers import AutoTokenizer

    with explained("model.backbone", name, revision, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # transformers makes one of nothing
        raise ConfigError(f"model.backbone {name} has no tokenizer files: save its tokenizer into the same folder.")
    return tokenizer


@functools.lru_cache(maxsize=2)
def load_image_processor(name: str, revision: str | None) -> Any:
    """Load the image processor of a pretrained model; the one that works on Pillow, without torchvision."""
    # Not from the top: there some versions have a placeholder that demands torchvision.
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    with explained("model.backbone", name, revision, "image processor"), _quiet():
        return AutoImageProcessor.from_pretrained(name, revision=revision, backend="pil")


@contextmanager
def explained(option: str, name: str, revision: str | None, what: str) -> Iterator[None]:
    """Turn what transformers raises for an absent or broken checkpoint into an error that says what to do.

    ``option`` is how the user named the checkpoint, ``what`` the part of it that is being read.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        place = name if revision is None else f"{name} (revision {revision})"
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if Path(name).is_dir() or name.startswith((".", "/", "~")):
            advice = "Give a folder that save_pretrained wrote, with config.json and weights."
            if not Path(name).is_dir():
                advice = f"There is no such folder. {advice}"
        else:
            advice = "Is it a name on the Hugging Face Hub, and can the Hub be reached? A local folder works, too."
        raise ConfigError(f"{option} {place} gives no {what}: {first} {advice}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from advising to install torchvision, which this project does without."""
    from transformers.utils import logging as their

    before = their.get_verbosity()
    their.set_verbosity_error()
    try:
        yield
    finally:
        their.set_verbosity(before)


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars for a single small file."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _names(class_names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(class_names)),
        "label2id": {name: position for position, name in enumerate(class_names)},
    }


def load_model(folder: Path) -> Any:
    """Load a trained classifier, debiased or not, in evaluation mode."""
    from transformers import AutoConfig, AutoModelForImageClassification

    with without_bars():
        if getattr(AutoConfig.from_pretrained(folder), "levelhead", None):
            return from_pretrained(folder).eval()
        return AutoModelForImageClassification.from_pretrained(folder).eval()
