"""What model cards are made of: sections of Markdown whose words from data are escaped, and YAML for the Hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from levelhead.report.folds import of_columns, of_groups
from levelhead.report.markdown import escaped, markdown, markdown_table
from levelhead.report.rows import rows_of
from levelhead.report.text import level_text
from levelhead.report.titles import title_of

if TYPE_CHECKING:
    from levelhead.data.base import Card

PAPER = (
    "Lu, Wang, Wang: Debiasing Attention Mechanism in Transformer without Demographics, International Conference on "
    "Learning Representations (ICLR), 2024"
)
LIMITS = (
    "Measured on one data set and on the groups that it names. Other people, pictures, texts and groups were not "
    "measured.",
    "A smaller measured gap is a finding about these rows. No tool makes a model fair or legal.",
    "Labels and groups are annotations, not facts about a person. Do not use the model to decide about people, or to "
    "say who someone is.",
)
NOTE = (
    "Figures are findings about these rows and groups. An interval that contains 0 is inconclusive; its upper end is "
    "the largest gap that fits the rows."
)
INSTALL = "`python -m pip install '.[torch]'` in a clone of levelhead"
COST_TITLES = {
    "seconds": "Training, seconds",
    "steps": "Optimiser steps",
    "forward_passes": "Forward passes over the training rows",
    "backward_passes": "Backward passes over the training rows",
    "parameters": "Parameters",
    "process_peak_memory_mib": "Peak memory of the process, MiB",
    "peak_gpu_memory_mib": "Peak memory of the GPU, MiB",
    "energy_wh": "Energy, Wh",
}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def card_text(
    entries: dict[str, Any], terms: str, sections: Iterable[str], base: object = None, licence: str | None = None
) -> str:
    """Return a card: the front matter with ``entries``, then sections.

    ``base`` is what the model was trained from: an entry if it can be a name on the Hub, and is no folder. Without a
    ``licence`` a comment says that it is the user's to choose, within the ``terms`` named.
    """
    if isinstance(base, str) and len(base) < 200 and HUB_NAME.fullmatch(base) and not Path(base).exists():
        entries = {**entries, "base_model": base}
    if licence:
        entries = {**entries, "license": licence}
    comment = "" if licence else f"# license: yours to choose, within the terms of {terms}\n"
    return f"---\n{yaml.safe_dump(entries, sort_keys=False)}{comment}---\n" + "\n\n".join(sections) + "\n"


def hub_entries(kind: str, library: str, debiased: bool, tags: Iterable[str] = ()) -> dict[str, Any]:
    """Return what the Hub reads of a classifier of a ``kind`` of input, text or image; no licence."""
    return {
        "library_name": library,
        "pipeline_tag": f"{kind}-classification",
        "tags": ["levelhead", *["debiased-attention"] * debiased, *tags],
        "metrics": ["accuracy"],
    }


def loading(kind: str, *, ours: bool, debiased: bool, base: str | None = None, pixels: str = "") -> str:
    """Return the first section: what loads the model, and the Python that does.

    ``kind`` of input is text, which a pipeline reads, or image; ``ours`` says that levelhead wrote the model. ``base``
    is the Python for the base's name where the folder holds an adapter of PEFT, ``pixels`` a comment on the input.
    """
    auto = "AutoModelForSequenceClassification" if kind == "text" else "AutoModelForImageClassification"
    loader = "from_pretrained" if ours else f"{auto}.from_pretrained"
    python = [f"from {'levelhead' if ours else 'transformers'} import {loader.partition('.')[0]}"]
    load, first = f'{loader}("FOLDER")', "A plain model of transformers, without debiased attention."
    if base is not None:
        python.append("from peft import PeftModel")
        load, first = f'PeftModel.from_pretrained({loader}({base}), "FOLDER")', "An adapter of PEFT on a plain model."
    if ours:
        what = "Load this model" if base is None else "An adapter of PEFT. Load its base"
        why = "transformers alone does not know its type."
        if debiased:
            why = f"{auto} and pipelines of transformers refuse its type, so that its debiased attention is never lost."
        first = f"**{what} with levelhead** ({INSTALL}): {why}"
    if kind == "text":
        python.append("from transformers import AutoTokenizer, pipeline")
        tokenizer = 'AutoTokenizer.from_pretrained("FOLDER")'
        python.append(f'classify = pipeline("text-classification", model={load}, tokenizer={tokenizer})')
    else:
        python += [f"model = {load}.eval()", f"logits = model(pixel_values=pixels).logits{pixels and f'  # {pixels}'}"]
    code = "\n".join(python)
    return f"{first}\n\n```python\n{code}\n```\n\n`FOLDER` is this folder, or its name on the Hub."


def cost(title: str, costs: Mapping[str, Any], place: Mapping[str, Any]) -> str:
    """Return the section of what a training took, one row a figure, and the machine, of ``environment.json``."""
    rows = []
    for name, value in costs.items():
        shown = escaped(value) if isinstance(value, str) else "not measured"
        if isinstance(value, int | float):
            shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        rows.append([escaped(COST_TITLES.get(name, name.replace("_", " "))), shown])
    where = escaped(place["device"] if place["device"] != "cpu" else place["cpu"])
    return f"## {title}\n\n{markdown_table(['this run', ''], rows)}\n\nOn {where}; threads: {place['threads']}."


def made(command: str, words: str, recipe: Mapping[str, Any]) -> str:
    """Return the section that says which command makes the model again, from which recipe."""
    code = yaml_block(without_paths(recipe))
    return f"## How it was made\n\n```\nlevelhead {command}\n```\n\nwith {words}:\n\n{code}"


def data_lines(card: Card) -> list[str]:
    """Return what is said of a data set: title, terms and citation."""
    return [
        f"- Data set: {escaped(card.title)}" + (f", <{card.url}>" if card.url else ""),
        f"- Its terms: {escaped(card.licence)}. They may bind the weights, too.",
        f"- Its citation: {escaped(card.citation)}",
    ]


def bullets(title: str, lines: Iterable[str]) -> str:
    """Return a section that is a list of ``lines``, escaped already."""
    return "\n".join([f"## {title}", "", *(f"- {line}" for line in lines)])


def warned(warnings: Iterable[str]) -> list[str]:
    """Return a list of warnings; nothing where there is none."""
    lines = [f"- {escaped(warning)}" for warning in warnings]
    return ["\n".join(lines)] if lines else []


def citation(debiased: bool, data: str) -> str:
    """Return the section that says what to cite; ``data`` is escaped already."""
    return bullets("Citation", [*([f"The method: {PAPER}."] if debiased else []), f"The data: {data}."])


def figures(result: Mapping[str, Any]) -> str:
    """Return the tables of all figures of a result, from its JSON, and how to read them."""
    rows, level = rows_of(dict(result)), level_text(result["level"])
    return f"{NOTE}\n\n{markdown([*of_columns(rows, level, title_of), *of_groups(rows, level, 'group', title_of)])}"


def yaml_block(value: Any) -> str:
    """Return a fenced block of YAML that no line of the value can close."""
    content = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", content)), default=0))
    return f"{fence}yaml\n{content}{fence}"


def without_paths(value: Any) -> Any:
    """Leave of a path of the machine its last part."""
    if isinstance(value, Mapping):
        return {key: without_paths(inner) for key, inner in value.items() if key != "root"}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    if isinstance(value, str) and re.match(r"[/~\\.]|[A-Za-z]:[/\\]", value):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return value
