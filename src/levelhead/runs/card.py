"""The model card of a run: ``model/README.md``, as the Hugging Face Hub shows it.

Everything in it comes from the run folder. Its first line says how to load the model, because transformers alone loads
an attached one without its debiased attention. It measures and warns; it does not call a model fair.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from levelhead.data import DATASETS
from levelhead.data.base import Card, as_names
from levelhead.methods import METHODS
from levelhead.report import card as cards
from levelhead.report.card import bullets, without_paths, yaml_block
from levelhead.report.markdown import escaped
from levelhead.report.marks import meaning
from levelhead.runs.folder import require_finished
from levelhead.runs.recipe import read_recipe
from levelhead.runs.stand_in import NOT_RECORDED, recorded_card, recorded_of
from levelhead.storage import REHEARSED, as_written, read_json, read_metrics, read_record, rehearsed, write_text

CARD = Path("model") / "README.md"
"""Where :func:`write_card` puts the card, inside the run folder: it goes to the Hub with the weights."""

OWN_DATA = ("hub", "image-folder-csv", "text-csv")
"""Data sets whose columns the user names."""


def model_card(run: Path) -> str:
    """Return the model card of a finished run: YAML front matter, then Markdown.

    Figures by group are there if ``levelhead evaluate`` wrote them; names from the data are escaped, and paths of the
    machine are left out. Raises :class:`~levelhead.types.DataError` for a folder that is no finished run.
    """
    require_finished(run)
    with as_written(run):
        return _model_card(run)


def _model_card(run: Path) -> str:
    recipe = read_recipe(run / "config.yaml")
    steps = rehearsed(recipe)
    metrics = read_metrics(run)
    network = read_record(run / "model" / "config.json")
    record = network.get("levelhead") or {}
    card = _data_card(recipe, metrics)
    packages = read_json(run / "environment.json")["packages"]
    made = f"{escaped(', '.join(' '.join(one) for one in packages.items()))}, and this config.yaml"
    size = recipe["model"].get("image_size")
    pixels = "from the folder's AutoImageProcessor" if size is None else f"(n, 3, {size}, {size}) in [-1, 1]"
    kind, ours, debiased = _kind(network, record), bool(record), bool(record.get("debias"))
    sections = [
        cards.loading(kind, ours=ours, debiased=debiased, pixels=f"pixels {pixels}"),
        f"# {escaped(recipe['method']['name'])} on {escaped(card.title)}",
        _task(run, recipe, network, card),
        _groups(run, recipe, metrics["oracle"], metrics.get("told"), card),
        _method(recipe, record, metrics),
        _measured(run, metrics),
        cards.cost("Cost", read_json(run / "cost.json"), read_json(run / "environment.json")),
        bullets("Limits", [*([] if steps is None else [REHEARSED % steps]), escaped(card.caution), *cards.LIMITS]),
        cards.made("train config.yaml --data-root DATA --out RUN", made, recipe),
        cards.citation(debiased, escaped(card.citation)),
    ]
    tags = [recipe["method"]["name"], recipe["data"]["name"], *["oracle"] * bool(metrics["oracle"])]
    # Not transformers for a debiased model: the Hub would show a snippet that cannot load it.
    entries = cards.hub_entries(kind, "levelhead" if ours else "transformers", debiased, tags)
    # Names of ours are no ids of the Hub, where they could belong to another data set.
    if recipe["data"]["name"] == "hub" and cards.HUB_NAME.fullmatch(path := str(recipe["data"].get("path", ""))):
        entries["datasets"] = [path]
    return cards.card_text(entries, "the data set (see below)", sections, recipe["model"].get("backbone"))


def write_card(run: Path) -> Path:
    """Write :func:`model_card` of ``run`` beside its weights, and return the file."""
    write_text(run / CARD, model_card(run))
    return run / CARD


def _data_card(recipe: Mapping[str, Any], metrics: Mapping[str, Any]) -> Card:
    name = recipe["data"]["name"]
    if DATASETS.offers(name):
        return DATASETS[name].card
    return recorded_card(name, recorded_of(metrics, "data"))


def _kind(network: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Return ``text`` or ``image``, what the network reads."""
    import transformers

    name = record.get("backbone_class") or (network.get("architectures") or [""])[0]
    reads = getattr(getattr(transformers, name, None), "main_input_name", "pixel_values")
    return "text" if reads == "input_ids" else "image"


def _task(run: Path, recipe: Mapping[str, Any], network: Mapping[str, Any], card: Card) -> str:
    classes = ", ".join(escaped(name) for name in network["id2label"].values())
    rows = []
    for split, part in read_json(run / "data.json").items():
        counts = ", ".join(f"{escaped(name)} {count:,}" for name, count in part["classes"].items())
        rows.append(f"{split} {part['rows']:,} ({counts})")
    lines = [
        f"- Task: {escaped(_own(recipe, 'target') or card.task)}",
        f"- Classes: {classes}",
        *cards.data_lines(card),
        f"- Rows: {'; '.join(rows)}",
    ]
    return "\n".join(["## Task and data", "", *lines])


def _groups(run: Path, recipe: Mapping[str, Any], oracle: str | None, told: str | None, card: Card) -> str:
    seen = (
        f"**ORACLE**: the {escaped(oracle)} of this run saw group labels, so it is not free of demographics."
        if oracle
        else escaped(meaning(told))
        if told
        else "Group labels were never used in this run's training or in the choice of its epoch; only evaluation reads "
        "them. A run does not record whether its options were chosen with groups in view."
    )
    named = _own(recipe, "sensitive")
    if named is not None and (every := _evaluations(run)):  # they know which columns there are; one may have none
        named = ", ".join(dict.fromkeys(name for file in every for name in read_json(file)["by_attribute"]))
    named = card.groups if named is None else named
    groups = f"Groups of the data set, as annotated: {escaped(named)}" if named else "No groups are known"
    return f"## Groups\n\n{groups}.\n\n{seen}"


def _own(recipe: Mapping[str, Any], option: str) -> str | None:
    """Return the column or columns that a user's own data names for this; None for a data set that says itself."""
    if recipe["data"]["name"] not in OWN_DATA:
        return None
    names = as_names(recipe["data"].get(option) or ())
    return ("predict the column " if option == "target" else "") + ", ".join(names) if names else ""


def _method(recipe: Mapping[str, Any], record: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    recorded = recorded_of(metrics, "method").get("summary", NOT_RECORDED)
    summaries = {
        part: METHODS[part].summary if METHODS.offers(part) else recorded
        for part in recipe["method"]["name"].split("+")
    }
    lines = [f"- `{part.replace('`', '')}`: {escaped(summary)}" for part, summary in summaries.items()]
    backbone = recipe["model"].get("backbone")
    if backbone:
        frozen = "frozen" if record.get("freeze") else "trained with the rest"
        lines.append(f"- Backbone: {escaped(without_paths(backbone))}, {frozen}")
    if record.get("debias"):
        shown = {key: value for key, value in record.items() if key != "backbone_arguments"}
        debias = f"\n\nThe debiased layer, with `auto` resolved:\n\n{yaml_block(shown)}"
    else:
        debias = "\n\nNo attention is debiased."
    return "## Method\n\n" + "\n".join(lines) + debias


def _measured(run: Path, metrics: Mapping[str, Any]) -> str:
    scores = ", ".join(f"{escaped(name)} {_score(value)}" for name, value in metrics["validation"].items())
    parts = [
        "## Measured",
        f"Validation, from labels alone: {scores}. The epoch was chosen by {escaped(metrics['selected_by'])}.",
    ]
    for file in _evaluations(run):
        parts += _evaluation(read_json(file))
    if len(parts) == 2:
        parts.append("By group: not evaluated yet. `levelhead evaluate RUN --split test` measures, and adds it here.")
    return "\n\n".join(parts)


def _evaluations(run: Path) -> list[Path]:
    every = [run / f"evaluation-{split}.json" for split in ("test", "validation", "train")]
    return [file for file in every if file.exists()]


def _evaluation(result: Mapping[str, Any]) -> list[str]:
    """Draw the figures of one split: metrics, then groups, for each sensitive attribute."""
    parts = [f"### The {escaped(result['run']['split'])} split"]
    if result.get("positive") is not None:
        parts.append(f"Selection, true and false positive rates are about the class {escaped(result['positive'])}.")
    parts.append(cards.figures(result))
    return [*parts, *cards.warned(result["warnings"])]


def _score(value: float | None) -> str:
    return "undefined" if value is None else f"{abs(value):.4f}"
