"""Texts that differ in the group they name: templates with swapped words.

Templates are YAML; each holds the fields that a swap fills::

    templates:
      - "{person} requested a loan. The clerk said that"
      - id: loan
        text: "{person} requested a loan. Should it be granted? Answer:"
        options: [" yes", " no"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from levelhead.lm.base import Item, fields_of, filled
from levelhead.lm.files import text_of
from levelhead.plain_yaml import read_yaml
from levelhead.types import ConfigError, DataError, listed, quoted

GENERATED, ODDS = "generated", "log odds"


def swaps_of(texts: Sequence[str]) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Return the groups' names, and what each puts into the fields, of swaps such as "person=the man|the woman".

    Several swaps go side by side: the first words of all are one group. Groups bear the words of the first swap.

    Raises :class:`~levelhead.types.ConfigError` for a swap that is none, or of another number of words.
    """
    fields: dict[str, list[str]] = {}
    for text in texts:
        name, equals, words = text.partition("=")
        values = [word.strip() for word in words.split("|")]
        if not (equals and name.strip().isidentifier() and len(values) > 1 and all(values)):
            raise ConfigError(f"--swap {quoted(text)} must be a field and words, e.g. 'person=the man|the woman'.")
        if name.strip() in fields:
            raise ConfigError(f"--swap gives the field {quoted(name.strip())} twice: name each field once.")
        fields[name.strip()] = values
    counts = {len(values) for values in fields.values()}
    if len(counts) > 1:
        raise ConfigError(f"--swap: the fields have {listed(sorted(map(str, counts)))} words: give each as many.")
    if not fields:
        raise ConfigError("Templates need --swap, e.g. --swap 'person=the man|the woman'.")
    groups = tuple(next(iter(fields.values())))
    if len(set(groups)) < len(groups):
        raise ConfigError("--swap names one group twice: give different words.")
    return groups, [{name: values[at] for name, values in fields.items()} for at in range(len(groups))]


def read_templates(path: Path, swaps: Sequence[str], draws: int) -> list[Item]:
    """Return an item a template and group; a text without options ``draws`` times, the first group's twice as often.

    The second half of the first group's draws is the baseline: the same prompt with other seeds.

    Raises:
        DataError: for a file that cannot be read or holds no templates, naming the template.
        ConfigError: for swaps that do not fit the fields.
    """
    groups, words = swaps_of(swaps)
    record = read_yaml(text_of(path), str(path))
    templates = record.get("templates") if isinstance(record, dict) else None
    if not isinstance(templates, list) or not templates:
        raise DataError(f"{path} needs a list `templates` of texts with fields such as {{person}}.")
    items: list[Item] = []
    for number, template in enumerate(templates, start=1):
        where = f"{path}, template {number}"
        about = template if isinstance(template, dict) else {"text": template}
        text, options = about.get("text"), about.get("options")
        if not isinstance(text, str) or not text.strip() or about.keys() - {"id", "text", "options"}:
            raise DataError(f"{where} must be a text, or have `text`, and may have `id` and `options`.")
        if options is not None and not (
            isinstance(options, list) and len(options) == 2 and all(isinstance(one, str) and one for one in options)
        ):
            raise DataError(f"{where}: options must be two texts, e.g. [' yes', ' no'].")
        name = str(about.get("id", number))
        for at, (group, filling) in enumerate(zip(groups, words, strict=True)):
            content = {"category": "templates", "template": name, "group": group, "text": _filled(text, filling, where)}
            if options is not None:
                items.append(Item(f"{name}/{group}", {**content, "options": options, "kind": ODDS}))
                continue
            for draw in range(draws if at else 2 * draws):
                items.append(Item(f"{name}/{group}/{draw}", {**content, "draw": draw, "kind": GENERATED}))
    ids = Counter(item.id for item in items)
    if doubled := [name for name, count in ids.items() if count > 1]:
        raise DataError(f"{path}: {quoted(doubled[0])} is listed twice: give each template its own id.")
    return items


def _filled(text: str, filling: Mapping[str, str], where: str) -> str:
    fields = {*fields_of(text)}
    if not fields or fields - set(filling):
        raise ConfigError(
            f"{where} has the fields {listed(sorted(map(quoted, fields))) or 'none'}, and --swap gives "
            f"{listed(sorted(map(quoted, filling)))}: use those."
        )
    whole = filled(text, filling)
    return whole[0].upper() + whole[1:]
