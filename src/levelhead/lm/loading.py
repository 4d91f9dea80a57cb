"""Language models from the Hugging Face Hub or a folder, with one clear error for whatever is wrong with them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from levelhead.loading import (
    ADAPTER,
    explained,
    load_config,
    load_tokenizer_of,
    load_weights,
    refuse_adapter_mismatch,
    refuse_strange_adapter,
    refuse_unknown_tokens,
)
from levelhead.types import ConfigError, visible


def place_of(name: str | Path) -> str:
    """Return where a model is read from: the folder (of a KLAAD training, its ``model``), or the name on the Hub."""
    folder = Path(name).expanduser()
    if _holds_model(folder / "model") and not _holds_model(folder):
        folder /= "model"
    return str(folder) if folder.is_dir() else str(name)


def _holds_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", ADAPTER))


def load_checkpoint(
    option: str,
    place: str,
    *,
    revision: str | None = None,
    dtype: torch.dtype | Literal["auto"] = torch.float32,
    masked: bool = False,
    allow_mismatched_weights: bool = False,
) -> tuple[Any, Any, bool]:
    """Return a language model, its tokenizer, and whether it is a causal one; torch's generator is left alone.

    ``option`` is how the user named the model. ``masked`` says whether a masked model will do as well; then a type that
    can be both (such as BERT) is causal only if its checkpoint names the causal class. A folder of LoRA's matrices,
    as PEFT saves them, gives its base model with them merged in.
    ``allow_mismatched_weights`` takes a checkpoint all the same whose weights do not fit its config.json.

    Raises :class:`~levelhead.types.ConfigError` if there is no such model, if it is no language model, if it would see
    the tokens that it is to predict, or if its weights or its tokenizer are not whole.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if place.endswith(".gguf"):
        raise ConfigError(
            f"{option} {place} is a GGUF file: convert it with transformers' gguf_file option and give the folder, "
            "see docs/lm-bias.md."
        )
    if (Path(place) / ADAPTER).is_file() and not (Path(place) / "config.json").exists():
        options: Any = {"dtype": dtype, "masked": masked}
        return _with_adapter(option, place, allow_mismatched_weights=allow_mismatched_weights, **options)
    config = load_config(option, place, revision=revision)
    if getattr(config, "levelhead", None):
        raise ConfigError(f"{option} {place} is a classifier that levelhead trained, not a language model.")
    causal_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    masked_class = MODEL_FOR_MASKED_LM_MAPPING.get(type(config), None)
    if getattr(config, "is_encoder_decoder", False) or (causal_class is None and not (masked and masked_class)):
        kinds = "a causal or a masked" if masked else "a causal"
        raise ConfigError(f"{option} {place} is of type {config.model_type}: give {kinds} language model.")
    named = (config.architectures or [""])[0]
    causal = masked_class is None or (causal_class is not None and named == causal_class.__name__)
    if masked_class is not None and not getattr(config, "is_decoder", False) and (causal or not masked):
        raise ConfigError(
            f"{option} {place}, of type {config.model_type}, reads in both directions, and a causal model must not see "
            f"the tokens that it predicts: give a causal language model{', or a masked one' if masked else ''}."
        )
    kind: Any = causal_class if causal else masked_class
    network = load_weights(
        kind,
        option,
        place,
        config,
        revision=revision,
        allow_mismatched_weights=allow_mismatched_weights,
        dtype=dtype,
    )
    tokenizer = load_tokenizer_of(option, place, revision=revision)
    # What was added may never be used: texts are looked at when they are read.
    base = [token for word, token in tokenizer.get_vocab().items() if word not in tokenizer.get_added_vocab()]
    special = [getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "mask")]
    highest = max(token for token in [*base, *special, 0] if token is not None)
    refuse_unknown_tokens(f"The tokenizer of {option} {place}", highest, tokens_known(network))
    return network, tokenizer, causal


def tokens_known(network: Any) -> int | None:
    """Return how many tokens a network has an embedding for, or None where that is unknown."""
    return getattr(network.get_input_embeddings(), "num_embeddings", None)


@dataclass(frozen=True)
class Beginning:
    """The token ids that a text is read behind, in training and in scoring.

    ``every``: what the tokenizer puts before a text when it is requested special tokens. ``alone``: where that is
    nothing, what predicts the first token of a text without a context: the beginning-of-sequence token, otherwise the
    end-of-sequence token, which stands between documents in training. lm-evaluation-harness does the same.
    """

    every: tuple[int, ...]
    alone: tuple[int, ...]
    words: str

    @classmethod
    def of(cls, tokenizer: Any) -> Beginning:
        """Return the beginning that a tokenizer asks for."""
        plain, whole = (list(tokenizer("a", add_special_tokens=special).input_ids) for special in (False, True))
        at = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
        every = tuple(whole[:at])
        if every:
            words = f"Every text is read behind {_names(tokenizer, every)}, which the tokenizer adds."
            return cls(every, (), words)
        first = [token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None][:1]
        behind = f"is read behind {_names(tokenizer, first)}" if first else "has no score for its first token"
        words = f"The tokenizer adds no token before a text; a text without a context {behind}."
        return cls(every, tuple(map(int, first)), words)

    def __str__(self) -> str:
        """Say it in a sentence."""
        return self.words


def _names(tokenizer: Any, tokens: Sequence[int]) -> str:
    return " ".join(map(visible, tokenizer.convert_ids_to_tokens(list(tokens))))


def _with_adapter(option: str, place: str, **options: Any) -> tuple[Any, Any, bool]:
    """Load the base model that ``place`` names, and merge the adapter in ``place`` into it."""
    try:
        from peft import PeftConfig, PeftModel, get_peft_model_state_dict
    except ImportError:
        raise ConfigError(
            f"{option} {place} holds LoRA's matrices, which need peft: pip install 'levelhead[peft]'"
        ) from None
    refuse_strange_adapter(option, place)
    with explained(option, place, None, "adapter"):
        adapter = PeftConfig.from_pretrained(place)
    base = str(adapter.base_model_name_or_path)
    network, tokenizer, causal = load_checkpoint(
        f"The base model of {option} {place},", place_of(base), revision=adapter.revision, **options
    )
    with explained(option, place, None, "adapter"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found missing adapter keys")  # an error below
        # Without memory at first: matrices of another rank than those in the file are noticed before they take any.
        network = PeftModel.from_pretrained(network, place, low_cpu_mem_usage=True)
        refuse_adapter_mismatch(f"{option} {place}", get_peft_model_state_dict(network), place)
        network = network.merge_and_unload()
    return network, tokenizer, causal


def to_device(network: Any, device: str) -> None:
    """Move a network; ``auto`` is a GPU where there is one.

    Raises :class:`~levelhead.types.ConfigError` if the device cannot be used.
    """
    wanted = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        network.to(wanted)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        first = str(error).strip().splitlines()[0]
        raise ConfigError(f"--device {wanted} cannot be used: {first} Take auto or cpu.") from None
