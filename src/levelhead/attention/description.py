"""Say what was done to a model: ``describe``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from levelhead.attention import one_row
from levelhead.attention.aligning import Tap, running, standardizers_of
from levelhead.attention.block import AppendedClassifier
from levelhead.attention.config import DebiasConfig, NotebookOptions
from levelhead.types import ConfigError

READOUTS = {
    "first": "the first token",
    "last": "the last real token",
    "none": "no single token; the mean of queries ranks the others",
}
STATISTICS = {
    "position": "one mean and deviation for each head, token position and feature",
    "cls_feature": "one mean and deviation for each head and feature; the readout row has its own",
    "feature": "one mean and deviation for each head and feature",
}
ATTACHED = "levelhead.attach"
APPENDED = "levelhead.append_encoder"
BUILT_IN = "levelhead.DebiasedBlock"
UNTRAINED = "no training batch seen yet: train the model, or call levelhead.calibrate(model, loader)"
NOBODY_ASKED = "levelhead.readout_only was not called"


@dataclass(frozen=True)
class Description:
    """What :func:`describe` found; ``str`` of it is a short text.

    Attributes:
        model: name of the model's class.
        made_by: function or class of levelhead that the layer comes from, or None for a plain model.
        attention: path of the debiased attention module in the model, or None if nothing is debiased.
        debias: the options it has, with nothing left to ``auto``, or None.
        batches: training batches in the running statistics, or None where none are kept.
        readout_only: whether the last layer computes the row that the classifier reads alone.
        all_rows: why it computes all rows, or None.
        trainable: parameters that require a gradient.
        added: parameters that the model has because of levelhead.
        parameters: all parameters.
        adapters: what PEFT has put on the model, as ``default (LORA)``; empty without PEFT.
    """

    model: str
    made_by: str | None
    attention: str | None
    debias: DebiasConfig | None
    batches: int | None
    readout_only: bool
    all_rows: str | None
    trainable: int
    added: int
    parameters: int
    adapters: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [] if self.all_rows == NOBODY_ASKED else [("last layer", one_row.rows_in_words(self.all_rows))]
        peft = [("adapters", f"{', '.join(self.adapters)}, of PEFT")] if self.adapters else []
        lines = [*self._mechanism(), *rows, *peft, ("parameters", self._counts())]
        what = "its last attention layer is debiased" if self.debias else "nothing is debiased"
        if self.made_by:
            what += f" ({self.made_by})" if self.debias else f" (a plain layer of {self.made_by})"
        return "\n".join([f"{self.model}: {what}", *(f"  {name:<13}{text}" for name, text in lines)])

    def _mechanism(self) -> list[tuple[str, str]]:
        options = self.debias
        if options is None:
            return []
        lines = [("attention", str(self.attention)), ("readout", READOUTS[options.readout])]
        if options.normalize:
            centred = "(x - mean) / deviation" if options.scale else "x - mean"
            lines += [
                ("debiasing", f"queries and keys become {f'|{centred}|' if options.absolute else centred}"),
                ("statistics", f"{options.statistics}: {STATISTICS[options.statistics]}"),
                ("", f"{self.batches:,} training batches seen" if self.batches else UNTRAINED),
            ]
        else:
            lines.append(("debiasing", "none: queries and keys stay as they are (normalize=False)"))
        if options.alpha:
            tokens = f"the {options.top_t} most attended tokens" if options.top_t > 1 else "the most attended token"
            lines.append(("alignment", f"alpha {options.alpha:g}, of the values of {tokens}"))
            if self.made_by == BUILT_IN:
                lines.append(("", "not part of any loss: add alpha * levelhead.alignment(model, labels)"))
        else:
            lines.append(("alignment", "none (alpha=0)"))
        usual = vars(NotebookOptions())
        changed = [f"{name}={value}" for name, value in vars(options.notebook).items() if value != usual[name]]
        return [*lines, ("notebook", ", ".join(changed))] if changed else lines

    def _counts(self) -> str:
        share = 100 * self.trainable / self.parameters if self.parameters else 0.0
        return f"{self.trainable:,} trainable of {self.parameters:,} ({share:.4g}%), {self.added:,} added by levelhead"


def describe(model: nn.Module) -> Description:
    """Say what is debiased in a model, where, what its last layer computes, and how many parameters that adds.

    Looks and changes nothing; no pass is made. For a model of :func:`attach` or :func:`append_encoder` (also loaded
    by :func:`from_pretrained`, or wrapped by PEFT), for a network of your own with a :class:`DebiasedBlock`, and for
    a plain model, of which it says that nothing is debiased.

    ``added`` counts what a plain model would not have: the projector of alignment, and with ``append_encoder`` all
    that stands on the backbone. Running statistics are no parameters.

    Args:
        model: any torch module.

    Returns:
        A :class:`~levelhead.attention.description.Description`: ``print`` it, or take its ``to_dict()``.

    Errors: :class:`~levelhead.ConfigError` for anything but a torch module.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> print(lh.describe(lh.attach(network, lh.DebiasConfig(alpha=0))))
        ViTForImageClassification: its last attention layer is debiased (levelhead.attach)
          attention    vit...
          readout      the first token
          debiasing    queries and keys become |(x - mean) / deviation|
          statistics   position: one mean and deviation for each head, token position and feature
                       no training batch seen yet: train the model, or call levelhead.calibrate(model, loader)
          alignment    none (alpha=0)
          last layer   computes ...
          parameters   220,626 trainable of 220,626 (100%), 0 added by levelhead
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"describe takes a model, a torch.nn.Module; it got a {type(model).__name__}.")
    inner = next((part for part in model.modules() if _is_ours(part)), None)
    path, attention = _attention(model)
    tap: Tap | None = None if attention is None else attention.tap  # type: ignore[assignment]
    because = _why_all_rows(inner)
    return Description(
        model=type(model if inner is None else inner).__name__,
        made_by=_made_by(inner, attention),
        attention=path,
        debias=None if tap is None else tap.debias,
        batches=None if attention is None else _batches(attention),
        readout_only=because is None,
        all_rows=because,
        trainable=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        added=_added(model if inner is None else inner),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        adapters=_adapters(model),
    )


def _adapters(model: nn.Module) -> tuple[str, ...]:
    """Name the adapters of a PEFT model and their kinds."""
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, dict):
        return ()
    return tuple(f"{name} ({getattr(one.peft_type, 'value', one.peft_type)})" for name, one in configs.items())


def _is_ours(part: nn.Module) -> bool:
    """Whether a module is a model that attach or append_encoder made, or that readout_only changed."""
    return isinstance(part, AppendedClassifier) or (isinstance(part, PreTrainedModel) and "one_row" in vars(part))


def _attention(model: nn.Module) -> tuple[str | None, nn.Module | None]:
    """Return path and module of the last debiased attention, or None twice."""
    found: tuple[str | None, nn.Module | None] = None, None
    for path, module in running(model):
        tap = getattr(module, "tap", None)
        if isinstance(tap, Tap) and tap.debias is not None:
            found = path, module
    return found


def _made_by(inner: nn.Module | None, attention: nn.Module | None) -> str | None:
    if isinstance(inner, AppendedClassifier):
        return APPENDED
    if attention is None:
        return None
    return BUILT_IN if inner is None else ATTACHED


def _batches(attention: nn.Module) -> int | None:
    for standardizer in standardizers_of(attention):
        tracked = standardizer.key.num_batches_tracked
        return 0 if tracked.is_meta else int(tracked.max())
    return None


def _why_all_rows(inner: nn.Module | None) -> str | None:
    """Say why the last layer of a model computes all rows, or None."""
    if isinstance(inner, AppendedClassifier):
        return inner.why_all_rows()
    if inner is not None:
        return one_row.why_all_rows_now(inner)
    return NOBODY_ASKED


def _added(model: nn.Module) -> int:
    """Count the parameters that a model has because of levelhead."""
    parts = [part._modules.get("alignment_head") for part in model.modules()]
    if isinstance(model, AppendedClassifier):
        parts += [model.below, model.block, model.classifier]
    return sum(
        parameter.numel()
        for part in parts
        if part is not None
        for path, parameter in part.named_parameters()
        if "original_module" not in path and "lora_" not in path
    )
