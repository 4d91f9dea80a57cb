"""Compare two trained models on the user's own labelled rows: ``lh.compare_models``.

For those who train with the Hugging Face Trainer, or any other loop, and have two models instead of a folder of runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from levelhead.arrays import array_of, check_path, checked
from levelhead.attention import describe, from_pretrained
from levelhead.attention.adapters import is_adapter
from levelhead.attention.capture import unwrapped
from levelhead.attention.description import Description
from levelhead.auditing.door import audit
from levelhead.auditing.options import AS_GROUP, AuditOptions
from levelhead.auditing.paired import compare_rows
from levelhead.auditing.paired_answer import Change
from levelhead.auditing.result import AuditResult
from levelhead.data.base import Inputs
from levelhead.loading import load_tokenizer_of
from levelhead.metrics.clustered import FEWEST
from levelhead.metrics.intervals import check_options
from levelhead.models.networks import load_model
from levelhead.own.page import WHOLE, two_models_page
from levelhead.own.rows import GroupColumns, OwnRows
from levelhead.report.result import Report
from levelhead.report.text import Record, clustered_sentence, counted, number
from levelhead.tables.columns import outcome_of
from levelhead.tables.rows import Rows
from levelhead.tables.vocabulary import LabelMap
from levelhead.training.finite import refuse_not_finite
from levelhead.training.lab import predict_logits
from levelhead.types import ConfigError, DataError, check_seed, in_quotes, listed, nearest, printable, quoted

ALL = "all rows"
BY_GROUP = (
    "intersect", "min_count", "bins", "missing", "reference", "favourable",
    "metrics", "parts", "control_features", "time", "costs",
)  # fmt: skip
"""Options of :func:`levelhead.audit` that are about figures by group alone."""
FEW_CLUSTERS = (
    "The rows of a class come from fewer than %d clusters: take the change of its rates over all rows with caution."
)
ONE_TRAINING = (
    "Each model was trained once. The intervals cover the sampling of rows, not the training seed; levelhead compare "
    "trains several seeds."
)


@dataclass(frozen=True)
class ModelComparison(Report):
    """What :func:`compare_models` found; ``print`` it, show it in a notebook, or write its page.

    Attributes:
        names: what the old and the new model are called. None: "plain" and "debiased" where only the new one has
            debiased attention, else "old model" and "new model".
        rows: how many rows were predicted.
        classes: names of the classes.
        changes: figures over all rows of both models, with the paired difference (new less old): ``accuracy``,
            ``balanced_accuracy``, and by class the rates of :func:`levelhead.audit`.
        agreement: rows by who is right: ``both_right``, ``only_new_right``, ``only_old_right``, ``both_wrong``.
        audit: the new model's audit by groups, with the changes from the old one in ``audit.against``; None without
            groups.
        models: what :func:`levelhead.describe` says of each.
        predictions: one row each: ``label``, and by model ``prediction`` and ``probability_`` of each class, in
            columns that begin with the model's name. Join groups to it later, and audit it.
        warnings: full sentences.
        level: of the intervals.
        positive: the class that rates are about; None where each class is set against the rest.

    Examples:
        >>> import torch
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
        >>> rows = [{"pixel_values": torch.randn(3, 16, 16), "labels": row % 2} for row in range(40)]
        >>> found = lh.compare_models(ViTForImageClassification(config), ViTForImageClassification(config), rows)
        >>> sum(found.agreement.values()), list(found.changes)[0]
        (40, 'accuracy')
    """

    kind: ClassVar[str] = "two models"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(two_models_page)

    names: tuple[str, str]
    rows: int
    classes: tuple[str, ...]
    changes: dict[str, Change]
    agreement: dict[str, int]
    audit: AuditResult | None
    models: tuple[Description, Description]
    predictions: pd.DataFrame
    warnings: tuple[str, ...]
    level: float
    positive: str | None

    @property
    def different(self) -> int:
        """Rows for which the two predict different classes."""
        old, new = (self.predictions[f"{name}_prediction"] for name in self.names)
        return int((old != new).sum())

    @property
    def sentence(self) -> str:
        """Say in one sentence which model is right more often, or that these rows cannot tell."""
        one, (old, new) = self.changes["accuracy"], map(printable, self.names)
        if not self.different:
            return (
                f"{new} and {old} predict the same class for all {self.rows:,} rows, {100 * one.new:.1f}% correct: no "
                "difference on these rows."
            )
        change = one.difference
        value, low, high = (number(100 * end, signed=True) for end in (change.value, change.low, change.high))
        first = (
            f"{new} is right for {100 * one.new:.1f}% of {self.rows:,} rows, {old} for {100 * one.old:.1f}%: a change "
            f"of {value} points, interval {low} to {high}"
        )
        return f"{first}." if change.excludes_zero else f"{first}; inconclusive."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict, without the predictions; undefined figures are null."""
        return {
            "kind": self.kind,
            "old": self.names[0],
            "new": self.names[1],
            "rows": self.rows,
            "classes": list(self.classes),
            "positive": self.positive,
            "level": self.level,
            "sentence": self.sentence,
            "changes": {name: change.to_dict() for name, change in self.changes.items()},
            "agreement": dict(self.agreement),
            "different": self.different,
            "models": [one.to_dict() for one in self.models],
            "audit": None if self.audit is None else self.audit.to_dict(),
            "warnings": list(self.warnings),
        }


@checked
def compare_models(
    plain: Any,
    debiased: Any,
    dataset: Any,
    *,
    groups: Any = None,
    label: str | None = None,
    text: str | Sequence[str] | None = None,
    tokenizer: Any = None,
    max_length: int | None = None,
    names: tuple[str, str] | None = None,
    batch_size: int = 64,
    level: float = 0.95,
    positive: Hashable = None,
    cluster: Any = None,
    replicates: int = 1000,
    seed: int = 0,
    **audit_options: Any,
) -> ModelComparison:
    """Predict the same labelled rows with two models, and say what differs, with paired intervals.

    Group labels are opened for the audit alone, after all rows are predicted.

    Args:
        plain: the old model: a classifier of transformers, of levelhead, or wrapped by PEFT; or the folder where one
            was saved, or its name on the Hub.
        debiased: the new model, likewise.
        dataset: labelled rows that neither model was trained on: what Trainer takes as ``eval_dataset`` (rows by
            position, each a dict of inputs and label), a ``datasets.Dataset``, a list of dicts, or a pandas frame.
        groups: names of group columns of ``dataset``, or a dict or frame of columns with a value for each row. None: no
            figure by group.
        label: name of the label's column: positions of classes, or their names. None: ``labels``, else ``label``.
        text: the column of raw texts, or two for pairs. None: the rows hold what the models take already.
        tokenizer: for ``text``, and for its padding token. None: that of each model's folder.
        max_length: texts are cut at this many tokens, as in training; it needs ``text``. None: at what the model takes.
        names: what the old and the new model are called.
        batch_size: rows at once.
        level: confidence level of the intervals.
        positive: the class that rates are about, by its name or its position; at least one label must be it. None: the
            second of two.
        cluster: (rows,) what rows that belong together have in common, such as a person's id. All intervals, also
            those over all rows, then allow for the correlation within clusters.
        replicates: bootstrap replicates.
        seed: of the bootstrap.
        audit_options: of the audit by group, as :func:`levelhead.audit` takes them: ``intersect``, ``min_count``,
            ``bins``, ``missing``, ``reference``, ``favourable``, ``about``,
            ``metrics``, ``parts``, ``control_features``, ``time`` and ``costs``. They need ``groups``.

    Returns:
        the :class:`~levelhead.own.compare.ModelComparison`.

    Errors: :class:`~levelhead.types.ConfigError` for what is no classifier, for two models of other classes, or an
    option that is unknown, needs groups or is out of range; :class:`~levelhead.types.DataError` for rows without
    labels or inputs, or groups or clusters that do not fit them. Both come before anything is predicted.

    Examples:
        >>> import torch
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
        >>> plain, debiased = ViTForImageClassification(config), lh.attach(ViTForImageClassification(config))
        >>> rows = [{"pixel_values": torch.randn(3, 16, 16), "labels": row % 2} for row in range(40)]
        >>> _ = debiased.train()(torch.stack([row["pixel_values"] for row in rows]))  # statistics, for evaluation
        >>> found = lh.compare_models(plain, debiased, rows, groups={"site": ["a", "b"] * 20})
        >>> found.rows, sorted(found.audit.groups)
        (40, ['a', 'b'])
    """
    if names is not None and (len(names) != 2 or names[0] == names[1]):
        raise ConfigError(f"names={names!r}: give two names that differ.")
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} is below 1.")
    check_options(level, replicates)
    check_seed(seed)
    closed = GroupColumns.of(groups, dataset)
    _refuse_options(audit_options, closed is not None)
    rows = OwnRows.of(dataset if closed is None else closed.hidden(), label, text, max_length)
    if closed is not None and rows.label in (*closed.names, *closed.passed):
        raise ConfigError(f"{quoted(rows.label)} is both the label and a group. Name another group column.")
    given = (plain, debiased)
    models = [open_model(one, name) for one, name in zip(given, names or ("plain", "debiased"), strict=True)]
    described = (describe(models[0]), describe(models[1]))
    if names is None:
        turned = described[0].debias is None and described[1].debias is not None
        names = ("plain", "debiased") if turned else ("old model", "new model")
    classes, numbered = matched_classes(models, names, rows.class_names())
    labels = rows.labels(classes, numbered)
    chosen = classes[1] if positive is None and len(classes) == 2 else positive
    asked = {"positive": chosen, "level": level, "replicates": replicates, "seed": seed} | audit_options
    there = [classes[place] for place in labels.unique().tolist()]
    for name, wanted in (("positive", chosen), ("favourable", audit_options.get("favourable"))):
        if wanted is not None:
            asked[name] = _named_class(name, wanted, classes, numbered)
            if asked[name] not in there:
                raise ConfigError(
                    f"The {name} class {quoted(asked[name])} is not among the classes of the labels: {listed(there)}."
                )
    if cluster is not None:
        asked["cluster"] = _clusters(cluster, len(rows))
    if closed is not None:  # so that nobody waits for predictions that cannot be audited
        named = [asked[name] for name in ("favourable", "positive") if asked.get(name) is not None]
        first = [*dict.fromkeys([*named, *classes])]  # the named ones, also where rows are fewer than classes
        placeholder = np.array(first)[np.arange(len(rows)) % len(first)]
        _audited(placeholder, placeholder, closed, asked)
    inputs = [rows.inputs(model, _tokenizer_of(one, tokenizer, rows)) for model, one in zip(models, given, strict=True)]
    logits = [_logits(model, of, batch_size, name) for model, of, name in zip(models, inputs, names, strict=True)]
    frame = _frame(classes, labels, logits, names)
    truth = frame["label"].to_numpy()
    old, new = (frame[f"{name}_prediction"].to_numpy() for name in names)
    found, about = None, asked["positive"]
    if closed is not None:
        found = _audited(truth, new, closed, asked, against=old)
        about = found.positive
        assert found.against is not None
        against = replace(found.against, old=names[0], new=names[1])
        found = replace(found, findings=found.findings | {"against": against})
    changes, agreement, said = _whole(truth, old, new, asked | {"positive": about})
    if found is not None:
        said = [*said, *(one for one in found.warnings if one not in said)]
    elif cluster is not None and (number := len(set(asked["cluster"]))) < len(rows):
        said = [f"{clustered_sentence(len(rows), number)}.", *said]
    constant = [
        f"{printable(name)} predicts {in_quotes(one[0])} for every row: its gaps of 0 say nothing."
        for name, one in zip(names, (old, new), strict=True)
        if len(rows) > 1 and len(set(one)) == 1
    ]
    lent = [
        f"{printable(name)} has no class names: its positions are read as {listed(classes, 5)}."
        for name, model in zip(names, models, strict=True)
        if unnamed(class_names_of(model)) and not unnamed(classes)
    ]
    warnings = (*lent, *constant, *_of_models(models, described, names), *said, ONE_TRAINING)
    return ModelComparison(
        names, len(rows), classes, changes, agreement, found, described, frame, tuple(warnings), level, about
    )


def _refuse_options(options: Mapping[str, Any], by_group: bool) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for an option that is unknown, or would change nothing."""
    for name, value in options.items():
        if name not in BY_GROUP:
            known = [*list(inspect.signature(compare_models).parameters)[3:-1], *BY_GROUP]
            of_audit = name in inspect.signature(audit).parameters
            way_out = "Audit the predictions it returns with levelhead.audit." if of_audit else nearest(name, known)
            raise ConfigError(f"compare_models takes no {name}=. {way_out}")
        if not by_group and value is not None:
            raise ConfigError(f"{name}= is about figures by group: pass groups= as well, or leave it out.")


def _clusters(cluster: Any, rows: int) -> NDArray[np.int64]:
    """Return the codes (rows,) of what rows have in common."""
    codes, values = outcome_of(array_of(cluster, "The cluster column"), "cluster")
    if len(codes) != rows:
        raise DataError(f"{rows:,} rows and {len(codes):,} clusters. Pass one for every row.")
    if len(values) < FEWEST:
        raise ConfigError(f"cluster= has {counted(len(values), 'value')}: intervals need at least {FEWEST} clusters.")
    return codes


def open_model(model: Any, name: str) -> Any:
    """Return a classifier in evaluation mode: as it was given, or loaded from its folder.

    Raises :class:`~levelhead.types.ConfigError` for what is no classifier of one class a row.
    """
    if isinstance(model, str | Path):
        check_path("The model's folder", model)
        model = from_pretrained(model) if is_adapter(model) else load_model(Path(model))
    if not isinstance(model, nn.Module):
        raise ConfigError(f"The model {quoted(name)} is a {type(model).__name__}: give a model, or its folder.")
    config = getattr(unwrapped(model), "config", None)
    if config is None or getattr(config, "num_labels", 0) < 2:
        raise ConfigError(
            f"The model {quoted(name)} is a {type(model).__name__}, which is no classifier of transformers with two "
            "classes or more."
        )
    if getattr(config, "problem_type", None) in ("regression", "multi_label_classification"):
        raise ConfigError(f"The model {quoted(name)} has the problem_type {config.problem_type}: rows need one class.")
    return model


def class_names_of(model: Any) -> tuple[str, ...]:
    """Return the names of a model's classes, by position."""
    config = unwrapped(model).config
    return tuple(str(config.id2label.get(place, f"LABEL_{place}")) for place in range(config.num_labels))


def unnamed(classes: Sequence[str]) -> bool:
    """Return whether classes have the names that transformers gives where nobody named them."""
    return all(name == f"LABEL_{place}" for place, name in enumerate(classes))


def matched_classes(
    models: Sequence[Any], names: Sequence[str], of_data: tuple[str, ...] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Match the classes of two models and of the rows by name; a model without names has those of the rows, or theirs.

    Returns the names of the classes in the models' order, and in the order that numbers as labels count.
    """
    known = [class_names_of(model) for model in models]
    if len(known[0]) != len(known[1]):
        raise ConfigError(
            f"{names[0]} has {len(known[0])} classes and {names[1]} {len(known[1])}: they cannot be compared."
        )
    if of_data is not None and of_data == tuple(map(str, range(len(of_data)))):
        of_data = None  # these are positions
    lent = [own for own in (of_data, *known) if own is not None and len(own) == len(known[0]) and not unnamed(own)]
    known = [lent[0] if lent and unnamed(own) else own for own in known]
    for own in known:
        if len(set(own)) < len(own):
            raise ConfigError(f"Class names must be unique; fix id2label: {listed(own)}.")
    classes = known[0]
    if classes != known[1]:
        raise ConfigError(
            f"The classes of {names[0]} are {listed(classes)}, those of {names[1]} {listed(known[1])}. Give both the "
            "same id2label."
        )
    numbered = of_data or classes
    if unknown := [name for name in numbered if name not in classes]:
        raise ConfigError(
            f"The rows have the class {quoted(unknown[0])}, and the models know {listed(classes)}. Give the models an "
            "id2label with the names of the rows."
        )
    return classes, numbered


def _named_class(option: str, wanted: Any, classes: Sequence[str], numbered: Sequence[str]) -> str:
    """Return the name of a class that is given by its name or its position."""
    if str(wanted) in classes:
        return str(wanted)
    if type(wanted) is int and 0 <= wanted < len(numbered):
        return numbered[wanted]
    raise ConfigError(f"{option}={wanted!r} is no class; the models know {listed(classes)}.")


def _tokenizer_of(given: Any, tokenizer: Any, rows: OwnRows) -> Any:
    if tokenizer is not None or not rows.texts or not isinstance(given, str | Path):
        return tokenizer
    return load_tokenizer_of("The tokenizer of", str(given))


def _logits(model: Any, inputs: Inputs, batch_size: int, name: str) -> Tensor:
    """Return fp32 logits (rows, classes) in evaluation mode, on the device where the model lies."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    logits = predict_logits(model, inputs, batch_size, device)
    refuse_not_finite(logits, f"logits of {printable(name)}", "to compare")
    return logits


def _frame(classes: tuple[str, ...], labels: Tensor, logits: Sequence[Tensor], names: Sequence[str]) -> pd.DataFrame:
    words = np.array(classes, object)
    columns: dict[str, Any] = {"label": words[labels.numpy()]}
    for name, one in zip(names, logits, strict=True):
        columns[f"{name}_prediction"] = words[one.argmax(dim=1).numpy()]
        probabilities = one.double().softmax(dim=1).numpy()
        columns |= {f"{name}_probability_{word}": probabilities[:, place] for place, word in enumerate(classes)}
    return pd.DataFrame(columns)


def _audited(
    truth: Any, predicted: Any, groups: GroupColumns, options: Mapping[str, Any], against: Any = None
) -> AuditResult:
    """Audit with the group columns opened."""
    known = {*truth, *predicted}.union(() if against is None else against)
    return audit(
        truth,
        predicted,
        sensitive_features=groups.open(),
        against=against,
        label_map={name: name for name in known},  # all are the models' own classes
        **options,
    )


def _whole(
    truth: Any, old: Any, new: Any, options: Mapping[str, Any]
) -> tuple[dict[str, Change], dict[str, int], list[str]]:
    """Return the changes over all rows, rows by who is right, and warnings."""
    rows, given = Rows({}), {"label": truth, "prediction": new, "other": old}
    rows.add({role: outcome_of(one, role) for role, one in given.items()})
    rows.add({f"group {ALL}": (np.zeros(len(truth), np.int64), [ALL])})
    if "cluster" in options:
        rows.add({"cluster": options["cluster"]})
    asked = AuditOptions(
        min_count=1, missing=AS_GROUP, label_map=LabelMap({one: one for one in {*truth, *old, *new}}),
        **{name: options[name] for name in ("level", "replicates", "seed")},
    )  # fmt: skip
    compared = compare_rows(rows, {ALL: [ALL]}, asked, positive=options["positive"])
    part = compared.by_attribute[ALL]
    group = part.groups[ALL]
    changes = {name: part.metrics[name] for name in WHOLE}
    # Accuracy by Bonett and Price, whose interval holds at the ends of the range, too.
    changes["accuracy"] = group.rates["accuracy"]
    changes |= {name: change for name, change in group.rates.items() if name != "accuracy"}
    agreement = {
        name: int(getattr(group, name)) for name in ("both_right", "only_new_right", "only_old_right", "both_wrong")
    }
    of_clusters = f"{ALL}: group "  # said of groups' gaps, of which there are none here
    said = [FEW_CLUSTERS % FEWEST if one.startswith(of_clusters) else one for one in compared.warnings]
    return changes, agreement, said


def _of_models(networks: Sequence[nn.Module], models: Sequence[Description], names: Sequence[str]) -> list[str]:
    """Say which of the two models has no statistics yet, and that they are not of one size where they are not."""
    said = [
        f"{printable(name)} has seen no training batch: its statistics are untrained."
        for name, one in zip(names, models, strict=True)
        if one.debias is not None and one.debias.normalize and one.batches == 0
    ]
    sizes = [
        sum(part.numel() for name, part in network.named_parameters() if "alignment_head" not in name)
        for network in networks
    ]
    if sizes[0] != sizes[1]:
        said.append(
            f"The networks differ in size ({sizes[0]:,} and {sizes[1]:,} parameters without the projector of "
            "alignment), so a difference may come from size."
        )
    return said
