"""Checkpoints of transformers, read in one way for every part of levelhead.

Four rules hold for all of them. No code that comes with a checkpoint is run, and no question is asked at the terminal.
Nothing is built that is much larger than the weights in the files. Weights that have no place in the network, and
places that have no weights, are errors. Whatever else is wrong becomes one clear sentence.
"""

from __future__ import annotations

import json
import logging
import math
import pickle
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from levelhead.storage import refuse_strange_files
from levelhead.types import ConfigError, LevelheadError

OWN_TYPE = "levelhead-"  # before the model_type in the saved config.json of a model that `attach` has changed
ADAPTER = "adapter_config.json"  # of PEFT
MOST_LAYERS = 100_000  # and labels, experts, groups: transformers makes lists of them before anything can be looked at
COUNTED = re.compile(r"layer|label|depth|stage|block|expert|group")
MEASURE = re.compile(r"^(num|n)_|_(size|heads|layers|dim)$")
ELSEWHERE = re.compile(r"(hf[-_]hub|local-dir):", re.IGNORECASE)  # timm fetches what stands behind it
IMPLEMENTATION = re.compile(r"(attn|experts)_implementation$")
SPARE_NUMBERS, SPARE_TENSORS = 2**26, 256  # for tables that are computed (masks, positions), and for tied weights
PACKED = 8  # numbers of 4 bits in one of 32, in files of quantised weights
SHARD = re.compile(r"\w[\w.-]*")
CLASSIFICATIONS = ("IMAGE", "SEQUENCE", "AUDIO", "VIDEO")
# What pretraining left in a checkpoint beside the network that is used: no language model reads it.
OF_PRETRAINING = re.compile(r"(^|\.)(pooler|seq_relationship|sop_classifier)\.")
logger = logging.getLogger(__name__)

PLACES = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


def load_config(option: str, place: str, *, revision: str | None = None, **options: Any) -> Any:
    """Return the configuration of a checkpoint.

    ``option`` is how the user named the checkpoint, ``place`` a folder or a name on the Hugging Face Hub; ``options``
    are those of transformers' ``from_pretrained`` that say where it lies.

    Raises :class:`~levelhead.types.ConfigError` if there is none, if it needs code of its own, or if it cannot
    be right.
    """
    from transformers import AutoConfig, PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with explained(option, place, revision, "configuration"), _quiet():
        content, _ = PreTrainedConfig.get_config_dict(place, revision=revision, **options)
        if not isinstance(content, dict):
            raise ValueError("config.json holds no mapping.")
        kind = content.get("model_type")
        if not isinstance(kind, str):
            raise ValueError("config.json names no model_type.")
        own = kind.removeprefix(OWN_TYPE) if content.get("levelhead") else kind
        if own not in CONFIG_MAPPING:
            why = "needs code of its own, which is never run" if "auto_map" in content else "is not known here"
            raise ConfigError(
                f"{option} {place} is of type {kind[:40]!r}, which {why}: give a model that this version of "
                "transformers has itself."
            )
        _refuse_entries(content)
        if own != kind:  # what `attach` made, which only levelhead may load
            config = CONFIG_MAPPING[own].from_pretrained(place, revision=revision, **options)
            config.__dict__.pop("model_type", None)  # the class has it
            return config
        return AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=False, **options)


def _refuse_entries(content: Any) -> None:
    """Raise :class:`ValueError` for an entry, at any depth, that would run code from elsewhere or exhaust memory."""
    if isinstance(content, list):
        for value in content:
            _refuse_entries(value)
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if isinstance(value, int) and abs(value) > MOST_LAYERS and COUNTED.search(key):
            raise ValueError(f"{key[:40]} is {value:.3g} in config.json; at most {MOST_LAYERS:,} can be right.")
        if isinstance(value, int) and value < 0 and MEASURE.search(key):
            raise ValueError(f"{key[:40]} is negative in config.json.")
        if IMPLEMENTATION.search(key) and "/" in str(value):
            raise ValueError(f"config.json asks for {key[:40]} from the Hub, which is code, and never run.")
        if (key == "backbone" and isinstance(value, str)) or (key == "use_pretrained_backbone" and value):
            raise ValueError(f"{key} in config.json takes a network from another place, which is never fetched.")
        if isinstance(value, str) and ELSEWHERE.match(value):
            raise ValueError(f"{key[:40]} in config.json names another place, which is never opened.")
        _refuse_entries(value)


def load_weights(
    kind: Any,
    option: str,
    place: str,
    config: Any = None,
    *,
    revision: str | None = None,
    backbone: bool = False,
    allow_mismatched_weights: bool = False,
    new_outside: Collection[str] | None = None,
    **options: Any,
) -> Any:
    """Return a network of the class ``kind`` with the weights of a checkpoint; torch's generator is left alone.

    ``option`` and ``place`` are those of :func:`load_config`, ``options`` those of transformers' ``from_pretrained``. A
    ``backbone`` is read from the checkpoint of a whole model as well: what belongs to a head is left there. With
    ``allow_mismatched_weights`` weights that have no place are left out, and places without weights, or with weights of
    another shape, start at random; a warning says so. ``new_outside`` allows the last kind alone, outside of the parts
    of the network that it names.

    Raises :class:`~levelhead.types.ConfigError` if weights and network do not fit, or if either cannot be read.
    """
    if (Path(place) / ADAPTER).is_file():
        raise ConfigError(f"{option} {place} holds {ADAPTER} beside config.json: move one of the two away.")
    with (
        explained(option, place, revision, "weights"),
        without_bars(),
        _quiet(),
        torch.random.fork_rng(devices=[]),
        _no_larger_than(_weights_there(place, {**options, "revision": revision})),
    ):
        network, report = kind.from_pretrained(
            place,
            config=config,
            revision=revision,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # or transformers prints a page before it raises; the report tells
            **options,
        )
    missing, unexpected = sorted(map(str, report["missing_keys"])), sorted(map(str, report["unexpected_keys"]))
    bent = sorted(str(entry[0]) if isinstance(entry, tuple) else str(entry) for entry in report["mismatched_keys"])
    if new_outside is not None:
        new = [name for name in bent if name.partition(".")[0] not in new_outside]
        bent = sorted(set(bent) - set(new))
        if new:
            size = f"{len(new)} weights of another shape, such as {new[0]}"
            logger.warning("%s %s has %s: new ones start at random.", option, place, size)
    beside = _beside_backbone(network) if backbone else OF_PRETRAINING.search
    _refuse_mismatch(
        f"{option} {place}",
        kind.__name__,
        [name for name in unexpected if not beside(name)],
        missing,
        bent,
        allow_mismatched_weights,
    )
    return network


def _beside_backbone(network: Any) -> Any:
    """Return the function that tells whether a weight of a checkpoint lies outside of the backbone: in a head."""
    own = {name.partition(".")[0] for name in network.state_dict()}
    prefix = f"{network.base_model_prefix}."

    def beside(name: str) -> bool:
        first = name.removeprefix(prefix).partition(".")[0]
        return first == "pooler" if name.startswith(prefix) else first not in own

    return beside


def _refuse_mismatch(
    what: str, kind: str, unexpected: list[str], missing: list[str], bent: list[str], allowed: bool
) -> None:
    """Raise :class:`ConfigError` if weights and network do not fit, or log a warning where that is ``allowed``."""
    parts = []
    if unexpected:
        parts.append(f"it holds {len(unexpected)} weights that have no place in it, such as {unexpected[0]}")
    if missing:
        parts.append(f"it holds no weights for {len(missing)} parameters, such as {missing[0]}")
    if bent:
        parts.append(f"{len(bent)} weights have another shape, such as {bent[0]}")
    if not parts:
        return
    text = f"{what} does not fit the {kind} that its config.json describes: {'; '.join(parts)}."
    if not allowed:
        raise ConfigError(
            f"{text} Fetch the checkpoint again, or set allow_mismatched_weights (--allow-mismatched-weights) if you "
            "mean it."
        )
    logger.warning("%s It is used all the same, as allow_mismatched_weights says.", text)


def load_tokenizer_of(option: str, place: str, *, revision: str | None = None) -> Any:
    """Return the tokenizer of a checkpoint; raises :class:`~levelhead.types.ConfigError` if there is none."""
    from transformers import AutoTokenizer
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    with explained(option, place, revision, "tokenizer"), _quiet():
        for key, value in get_tokenizer_config(place, revision=revision).items():
            if key.endswith("_file") and value is not None and not SHARD.fullmatch(str(value)):
                raise ValueError(f"{key[:40]} in tokenizer_config.json leads out of its folder")
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=False)
        refuse_empty_tokenizer(option, place, tokenizer)
        longest = tokenizer.model_max_length
        if not isinstance(longest, int | float) or longest < 1:
            raise ValueError(f"its model_max_length is {str(longest)[:40]}")
    return tokenizer


def refuse_empty_tokenizer(option: str, place: str, tokenizer: Any) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for the tokenizer that transformers makes of no files at all."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ConfigError(f"{option} {place} has no tokenizer files: save its tokenizer into the same folder.")


def refuse_unknown_tokens(tokenizer: str, highest: int, known: int | None, kind: str = "token") -> None:
    """Raise :class:`~levelhead.types.ConfigError` if a tokenizer's ``highest`` id is none of the ``known`` ones."""
    if known is not None and highest >= known:
        raise ConfigError(
            f"{tokenizer} makes {kind} {highest}, and the network knows {known:,} {kind}s, from 0: they do not belong "
            "together. Take the tokenizer that was saved with the network."
        )


def load_image_processor_of(option: str, place: str, *, revision: str | None = None) -> Any:
    """Return the image processor of a checkpoint; the one that works on Pillow, without torchvision."""
    # Not from the top: there some versions have a placeholder that demands torchvision.
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    with explained(option, place, revision, "image processor"), _quiet():
        return AutoImageProcessor.from_pretrained(place, revision=revision, backend="pil", trust_remote_code=False)


def classifier_class(option: str, place: str, config: Any) -> Any:
    """Return the class of classifiers that a configuration names, if it is one that can be debiased.

    Only the classifiers that transformers itself has for this type of model are taken, whatever stands in the file.
    Raises :class:`~levelhead.types.ConfigError` for another one.
    """
    known = known_classifiers(type(config))
    named = config.architectures
    if not isinstance(named, list) or len(named) != 1 or str(named[0]) not in known:
        raise ConfigError(
            f"{option} {place} names {str(named)[:80]} as its architectures; of a {config.model_type} only "
            f"{', '.join(sorted(known)) or 'nothing'} can be a classifier here."
        )
    return known[str(named[0])]


def known_classifiers(config_class: Any) -> dict[str, Any]:
    """Return the classifiers, by name, that transformers knows for a class of configurations, or registered."""
    from transformers.models.auto import modeling_auto

    known: dict[str, Any] = {}
    for task in CLASSIFICATIONS:
        found = getattr(modeling_auto, f"MODEL_FOR_{task}_CLASSIFICATION_MAPPING").get(config_class, ())
        known |= {kind.__name__: kind for kind in (found if isinstance(found, tuple) else (found,))}
    return known


def adapter_tensors(place: str) -> dict[str, int]:
    """Return how many numbers each tensor of the adapter in ``place`` holds."""
    file = Path(place) / "adapter_model.safetensors"
    return _shapes(file if file.is_file() else file.with_suffix(".bin"))


def refuse_adapter_mismatch(what: str, expected: Iterable[str], place: str) -> None:
    """Raise :class:`ConfigError` unless the adapter file in ``place`` holds exactly the matrices ``expected``."""
    there, names = set(adapter_tensors(place)), set(expected)
    _refuse_mismatch(what, "adapter", sorted(there - names), sorted(names - there), [], False)


def refuse_strange_adapter(option: str, place: str) -> None:
    """Raise :class:`ConfigError` if an adapter, from ``place`` on, names code, other adapters, or itself as its base.

    The bases that adapters name are followed; PEFT would import the one and load the others.
    """
    seen: set[Path] = set()
    while (folder := _adapter_folder(place)) is not None:
        if folder.resolve() in seen:
            raise ConfigError(
                f"{option} {place} names an adapter as its base that stands on it in turn. Write the name or folder of "
                f"the trained model as base_model_name_or_path in {ADAPTER}."
            )
        seen.add(folder.resolve())
        try:
            settings = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
            if settings.get("megatron_core") not in (None, "megatron.core") or settings.get("peft_type") == "XLORA":
                raise ConfigError(
                    f"{option} {place}: {ADAPTER} names code or other adapters (megatron_core, XLORA), which are never "
                    "loaded. Give an adapter without them."
                )
            base = settings["base_model_name_or_path"]
            place = base if Path(base).is_dir() else str(folder / base)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):  # whoever loads it says so
            return


def _adapter_folder(place: str) -> Path | None:
    """Return the folder of an adapter that stands at ``place``, or in ``model`` below it, and not beside a model."""
    for folder in (Path(place), Path(place) / "model"):
        if (folder / "config.json").is_file():
            return None
        if (folder / ADAPTER).is_file():
            return folder
    return None


def _weights_there(place: str, options: Mapping[str, Any]) -> dict[str, int] | None:
    """Return how many numbers each tensor of a checkpoint holds, or None if its files go by other names."""
    from transformers.utils import cached_file

    def fetched(name: str) -> str | None:
        known = {key: value for key, value in options.items() if key in PLACES}
        quiet = {"_raise_exceptions_for_gated_repo": False, "_raise_exceptions_for_missing_entries": False}
        return cached_file(place, name, **quiet, **known)

    for single in ("model.safetensors", "pytorch_model.bin"):
        file = fetched(single)
        files = [file] if file else []
        if not file and (index := fetched(f"{single}.index.json")):
            shards = set(json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"].values())
            if strange := next((one for one in map(str, shards) if not SHARD.fullmatch(one)), None):
                raise ValueError(f"{single}.index.json names {strange[:80]!r}, which is no file beside it")
            files = [file for shard in sorted(shards) if (file := fetched(str(shard)))]
        if files:
            return {name: size for each in files for name, size in _shapes(Path(each)).items()}
    return None


def _shapes(file: Path) -> dict[str, int]:
    """Return how many numbers each tensor of a file of weights holds; of a safetensors file only the header is read."""
    try:
        if file.suffix != ".safetensors":
            found = _pickled(file)
            return {str(name): value.numel() for name, value in found.items() if isinstance(value, Tensor)}
        sizes = {}
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (not a dict)
                part = opened.get_slice(name)
                sizes[name] = math.prod(part.get_shape()) * (1 if part.get_dtype()[0] in "FB" else PACKED)
        return sizes
    except (SafetensorError, OSError) as error:
        raise OSError(f"{file} cannot be read: {error}") from error


def _pickled(file: Path) -> Any:
    """Return the tensors of a file that torch pickled, without their contents, and without unpickling anything else."""
    try:
        return torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{file} is a pickle of more than tensors, or is cut short") from error


@contextmanager
def _no_larger_than(there: Mapping[str, int] | None) -> Iterator[None]:
    """Raise :class:`ValueError` as soon as a network is built that is much larger than the weights that are there.

    transformers builds it without memory for its weights; those that the files lack would get some afterwards.
    """
    if there is None:
        yield
        return
    numbers, tensors = 2 * sum(there.values()) + SPARE_NUMBERS, 2 * len(there) + SPARE_TENSORS
    this_thread = threading.get_ident()
    built = {"numbers": 0, "tensors": 0}

    def count(module: nn.Module, name: str, value: Any) -> None:
        if threading.get_ident() != this_thread or not isinstance(value, Tensor) or value.device.type != "meta":
            return
        built["numbers"] += value.numel()
        built["tensors"] += 1
        if built["numbers"] > numbers or built["tensors"] > tensors:
            raise ValueError(
                f"config.json describes a network of more than {built['numbers']:,} numbers in {built['tensors']:,} "
                f"tensors, and the files hold {sum(there.values()):,} in {len(there):,}"
            )

    hooks = [
        torch_modules.register_module_parameter_registration_hook(count),
        torch_modules.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def explained(option: str, name: str, revision: str | None, what: str) -> Iterator[None]:
    """Turn whatever transformers raises for an absent or broken checkpoint into an error that says what to do.

    ``option`` is how the user named the checkpoint, ``what`` the part of it that is being read. Nothing of levelhead's
    own belongs inside: a mistake there would be taken for one in the checkpoint.
    """
    refuse_strange_files(Path(name))
    try:
        with nullcontext() if Path(name).is_dir() else hub_or_cache():
            yield
    except LevelheadError:
        raise
    except Exception as error:  # what a file with anything in it makes other libraries raise is not for us to list
        place = name if revision is None else f"{name} (revision {revision})"
        reason, advice = _first_words(error), "Give a folder that save_pretrained wrote, with config.json and weights."
        if not Path(name).is_dir():
            if name.startswith((".", "/", "~")):
                reason = "there is no such folder"
            elif isinstance(error, OSError):
                advice = "Is it a name on the Hugging Face Hub, and can the Hub be reached? A folder works, too."
            else:
                advice = "Fetch the checkpoint again."
        raise ConfigError(f"{option} {place} gives no {what}: {reason}. {advice}") from error


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Let Hugging Face's libraries look into their cache alone where the Hub does not answer.

    Else they try for half a minute, for each file.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _hub_answers(int(time.monotonic() // 60))
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@lru_cache(1)
def _hub_answers(minute: int) -> bool:
    """Whether the Hub answers within three seconds, by way of a proxy if there is one; asked once a ``minute``."""
    from huggingface_hub import constants, get_session

    try:
        return bool(get_session().head(constants.ENDPOINT, timeout=3).status_code < 500)
    except Exception:  # what the HTTP library raises differs by its version
        return False


def _first_words(error: Exception) -> str:
    """Return the first sentence of an error of another library, cut at 200 characters."""
    lines = str(error).strip().splitlines()
    first = re.split(r"[.!?](?:\s|$)", lines[0], maxsplit=1)[0] if lines else ""
    known = isinstance(error, OSError | ValueError) and first  # of another kind, the words alone may say nothing
    return first[:200] if known else f"{type(error).__name__} {first[:200]}".strip()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from advising to install torchvision, and from printing a table of keys beside our error."""
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
