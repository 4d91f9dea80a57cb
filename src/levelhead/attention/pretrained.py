"""Load what ``model.save_pretrained(folder)`` wrote, with its debiased attention.

Saving needs no function of its own: ``config.json`` carries a ``levelhead`` entry, and the weights carry projector
and statistics. Loading rebuilds the model from that entry, without the probing run of :func:`attach`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from levelhead.arrays import checked
from levelhead.attention.adapters import is_adapter, load_adapter
from levelhead.attention.attach import check_classes, debiased_class
from levelhead.attention.block import AppendedClassifier
from levelhead.loading import PLACES, classifier_class, load_config, load_weights
from levelhead.types import ConfigError, LevelheadError

OPTION = "The debiased model"
OWN_OPTIONS = {"backbone", "config", "levelhead", "model_type", "output_loading_info", "trust_remote_code"}
WHY_NOT = "the folder says what the model is, no code in it is run, and weights that do not fit are an error"
NOT_IN_CONFIG = {"dtype", "torch_dtype", "attn_implementation"}


@checked
def from_pretrained(path: str | Path, *, allow_mismatched_weights: bool = False, **options: Any) -> PreTrainedModel:
    """Load a model made by :func:`attach` or :func:`append_encoder` and saved with ``save_pretrained``.

    The folder of an adapter of PEFT on such a model gives a ``PeftModel``: its base is loaded first, from the folder
    or the name that the adapter's configuration has.

    Args:
        path: the folder, or a name on the Hugging Face Hub.
        allow_mismatched_weights: take weights all the same that do not fit the recorded model; a warning says which.
        options: as for ``from_pretrained`` of transformers, such as ``dtype=torch.bfloat16`` (the statistics stay
            float32), or entries of the configuration. ``num_labels=3, ignore_mismatched_sizes=True`` gives a new head
            of three classes. Code that comes with a model is never run.

    Returns:
        The model in evaluation mode, giving the same outputs as the saved one.

    Errors: :class:`~levelhead.LevelheadError` for a folder without a debiased model, for damaged weights (naming the
    file), for weights that do not fit the recorded model, and for a model that cannot be debiased.

    Examples:
        >>> import tempfile
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lh.attach(network).save_pretrained(folder)
        ...     loaded = lh.from_pretrained(folder)
        >>> lh.describe(loaded).made_by
        'levelhead.attach'
    """
    place = str(path)
    if is_adapter(place):
        base_options = {**options, "allow_mismatched_weights": allow_mismatched_weights}
        wrapped: PreTrainedModel = load_adapter(place, lambda base: from_pretrained(base, **base_options))
        return wrapped
    for name in OWN_OPTIONS & options.keys():
        raise ConfigError(f"levelhead.from_pretrained takes no {name}: {WHY_NOT}. Leave it out.")
    config = load_config(OPTION, place, **{name: value for name, value in options.items() if name in PLACES})
    record = getattr(config, "levelhead", None)
    if not record:
        raise LevelheadError(
            f"{path} holds a plain model: its config.json has no levelhead entry. Load it with transformers, then use "
            "levelhead.attach or levelhead.append_encoder."
        )
    appended = isinstance(config, AppendedClassifier.config_class)
    if not isinstance(record, dict) or record.get("kind") != ("append" if appended else "attach"):
        raise LevelheadError(f"{path} has a levelhead entry in its config.json that levelhead did not write.")
    _change(config, place, options)
    body = {"backbone", "below", "block"} if appended else {str(record.get("attention")).partition(".")[0]}
    new_outside = body if options.pop("ignore_mismatched_sizes", False) else None
    kind = AppendedClassifier if appended else debiased_class(classifier_class(OPTION, place, config))
    model: PreTrainedModel = load_weights(
        kind,
        OPTION,
        place,
        config,
        allow_mismatched_weights=allow_mismatched_weights,
        new_outside=new_outside,
        **options,
    )
    return model


def _change(config: Any, place: str, options: dict[str, Any]) -> None:
    """Move entries of the configuration from ``options`` into ``config``, as transformers does; check the classes."""
    before = config.num_labels
    check_classes(options.get("num_labels", before))  # the configuration names each class as soon as it is told
    for name in [name for name in options if name not in NOT_IN_CONFIG and hasattr(config, name)]:
        setattr(config, name, options.pop(name))
    check_classes(config.num_labels)
    if config.problem_type not in (None, "single_label_classification"):
        raise ConfigError(f"problem_type={config.problem_type!r}: alignment needs one class per example.")
    if config.num_labels != before and not options.get("ignore_mismatched_sizes"):
        raise ConfigError(
            f"{place} has a head of {before} classes, not {config.num_labels}. For a new head, pass "
            "ignore_mismatched_sizes=True, too."
        )
