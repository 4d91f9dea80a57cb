"""The model card of a model that was trained outside of levelhead's own runs: ``lh.model_card``.

:mod:`levelhead.runs.card` writes the card of a run, where everything is on record; here the user says what was done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from levelhead._version import __version__
from levelhead.arrays import check_path, checked
from levelhead.attention import describe
from levelhead.attention.capture import unwrapped
from levelhead.attention.description import Description
from levelhead.auditing.paired_answer import Change
from levelhead.auditing.result import AuditResult
from levelhead.own.compare import ModelComparison, class_names_of, open_model, unnamed
from levelhead.report import card
from levelhead.report.markdown import escaped, markdown_table
from levelhead.report.titles import title_of
from levelhead.storage import refuse_strange_files, write_text
from levelhead.types import ConfigError, in_quotes, listed

NOT_SAID = "not said"
TRAINING = (
    "num_train_epochs", "max_steps", "learning_rate", "weight_decay", "warmup_steps", "lr_scheduler_type", "optim",
    "per_device_train_batch_size", "gradient_accumulation_steps", "seed", "bf16", "fp16",
)  # fmt: skip


@checked
def model_card(
    model: Any,
    *,
    task: str | None = None,
    groups: str | None = None,
    data: str | None = None,
    training: Any = None,
    measured: ModelComparison | AuditResult | None = None,
    limits: Sequence[str] = (),
    base_model: str | None = None,
    licence: str | None = None,
    folder: Path | str | None = None,
) -> str:
    """Return a model card, as the Hugging Face Hub shows it, of a model that you trained yourself.

    It says first how to load the model, then what it does, for whom it was measured and for whom not, what is debiased,
    and the figures with their intervals. What you do not say stands there as not said. It calls no model fair.

    Args:
        model: a classifier, also one wrapped by PEFT; or its folder.
        task: what it decides, in a sentence.
        groups: the groups of the data, in words, such as ``perceived gender as annotated: female, male``.
        data: what it was trained on, in words, with its terms.
        training: ``TrainingArguments``, or a dict of what matters.
        measured: what :func:`compare_models` or :func:`audit` returned.
        limits: sentences on what it must not be used for, beside those that every card has.
        base_model: name on the Hub, or folder, of what it was trained from. None: of an adapter, the one that it names.
        licence: of the weights, as the Hub names it. None: left to you.
        folder: writes the card there as ``README.md``, over one that is there (PEFT's placeholder).

    Errors: :class:`~levelhead.types.ConfigError` for what is no classifier, or classes without names in ``id2label``.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> names = {"id2label": {0: "cat", 1: "dog"}, "label2id": {"cat": 0, "dog": 1}}
        >>> config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, **names)
        >>> model = lh.attach(ViTForImageClassification(config))
        >>> card = lh.model_card(model, task="Tells cats from dogs.")
        >>> print(card[card.index("## Task") :][:60])
        ## Task and data
        <BLANKLINE>
        - Task: Tells cats from dogs.
        - Class...
    """
    model = open_model(model, "model")
    named = class_names_of(model)
    if unnamed(named):
        raise ConfigError(
            f"The classes have no names ({listed(named)}): give the model an id2label, which pipelines show, too."
        )
    if isinstance(measured, ModelComparison) and set(measured.classes) != set(named) and not unnamed(measured.classes):
        raise ConfigError(f"measured is about the classes {listed(measured.classes)}, not {listed(named)}.")
    found = describe(model)
    ours, debiased, adapter = found.made_by is not None, found.debias is not None, bool(found.adapters)
    check_path("base_model", base_model or "")
    if adapter and not base_model:
        base_model = next(iter(model.peft_config.values())).base_model_name_or_path
    base = '"BASE"' if not base_model or Path(base_model).exists() else f'"{escaped(base_model)}"'
    kind = "image" if unwrapped(model).main_input_name == "pixel_values" else "text"
    sections = [
        card.loading(kind, ours=ours, debiased=debiased, base=base if adapter else None),
        f"# {escaped(task or f'{found.model} with levelhead')}",
        _task(task, named, data),
        _groups(groups, measured),
        _method(found, base_model, training),
        _measured(measured),
        card.bullets("Limits", [*map(escaped, limits), *card.LIMITS]),
        card.citation(debiased, "cite its owners"),
    ]
    # Not transformers for a debiased model: the Hub would show a snippet that cannot load it.
    library = "peft" if adapter else "levelhead" if ours else "transformers"
    entries = card.hub_entries(kind, library, debiased, ["lora"] * adapter)
    text = card.card_text(entries, "the data set", sections, base_model, licence)
    if folder is not None:
        if not Path(folder).is_dir():
            raise ConfigError(f"There is no folder {folder}: save the model there first, then write its card.")
        refuse_strange_files(Path(folder))
        write_text(Path(folder) / "README.md", text)
    return text


def _task(task: str | None, classes: Sequence[str], data: str | None) -> str:
    named = ", ".join(map(escaped, classes))
    lines = [f"Task: {escaped(task or NOT_SAID)}", f"Classes: {named}", f"Data: {escaped(data or NOT_SAID)}"]
    return card.bullets("Task and data", lines)


def _groups(groups: str | None, measured: ModelComparison | AuditResult | None) -> str:
    audit = measured.audit if isinstance(measured, ModelComparison) else measured
    if groups:
        said = f"Groups of the data set, as annotated: {escaped(groups)}."
    elif audit is not None:
        names = map(escaped, audit.to_dict()["by_attribute"])
        said = f"Groups of the evaluation, as annotated, by {', '.join(names)}."
    else:
        said = "No groups were named."
    if audit is None:
        said += " No figure was measured by group."
    seen = (
        "Debiased attention reads labels and no group. Only the owner knows whether another part of the training saw "
        "groups."
    )
    return f"## Groups\n\n{said}\n\n{seen}"


def _method(found: Description, base_model: str | None, training: Any) -> str:
    lines = [f"- Network: {escaped(found.model)}, {found.parameters:,} parameters"]
    if base_model:
        lines.append(f"- Trained from: {escaped(card.without_paths(base_model))}")
    if found.adapters:
        lines.append(f"- Adapters of PEFT: {escaped(', '.join(found.adapters))}")
    lines.append(f"- Made with: levelhead {__version__}")
    parts = ["\n".join(lines)]
    if found.debias is None:
        parts.append("No attention is debiased.")
    else:
        seen = "none were kept" if found.batches is None else f"{found.batches:,} training batches"
        layer = {"attention": found.attention, "made_by": found.made_by, "debias": asdict(found.debias)}
        parts.append(f"The debiased layer, with `auto` resolved; statistics of: {seen}.\n\n{card.yaml_block(layer)}")
    options = _training(training)
    if options:
        parts.append(f"Training:\n\n{card.yaml_block(options)}")
    return "## Method\n\n" + "\n\n".join(parts)


def _training(training: Any) -> dict[str, Any]:
    """Return what matters of ``TrainingArguments``, or the user's own dict, without paths of the machine."""
    if training is None:
        return {}
    if isinstance(training, Mapping):
        found: dict[str, Any] = {str(key): value for key, value in training.items()}
    elif is_dataclass(training):
        found = {name: getattr(training, name) for name in TRAINING if hasattr(training, name)}
    else:
        raise ConfigError(f"training is a {type(training).__name__}: give TrainingArguments, or a dict.")
    plain = {
        key: value if isinstance(value, bool | int | float | type(None)) else str(getattr(value, "value", value))
        for key, value in found.items()
    }
    return dict(card.without_paths(plain))


def _measured(measured: ModelComparison | AuditResult | None) -> str:
    if measured is None:
        return (
            "## Measured\n\nNothing yet. `levelhead.compare_models` or `levelhead.audit` measures; pass what it "
            "returns as `measured`."
        )
    parts = ["## Measured"]
    if isinstance(measured, ModelComparison):
        old, new = map(escaped, measured.names)
        parts.append(f"{escaped(measured.sentence)} This card is about the model that is called {new} here.")
        parts += _about_rates(measured.positive, {})
        head = ["percent", old, new, f"change [{100 * measured.level:g}%]"]
        rows = [[escaped(title_of(name)), *_change(change)] for name, change in measured.changes.items()]
        parts.append(markdown_table(head, rows))
        audit = measured.audit
    else:
        parts += _about_rates(measured.positive, (measured.words or {}).get("classes", {}))
        audit = measured
    if audit is not None:
        parts.append(card.figures(audit.to_dict()))
    return "\n\n".join([*parts, *card.warned(measured.warnings)])


def _about_rates(positive: str | None, written: Mapping[str, str]) -> list[str]:
    """Name the class that rates are about, as it is ``written`` in the labels; nothing where there are several."""
    if positive is None:
        return []
    of_class = in_quotes(written.get(positive, positive))
    return [escaped(f"Selection rates, true and false positive rates and their gaps are about {of_class}.")]


def _change(change: Change) -> list[str]:
    one = change.difference
    if not one.defined:
        return ["undefined", "undefined", escaped(one.reason or "")]
    span = f"{100 * one.value:+.2f} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
    return [f"{100 * change.old:.2f}", f"{100 * change.new:.2f}", span]
