"""BOLD (Dhamala et al., FAccT 2021): the beginnings of Wikipedia sentences about people of 43 groups, in five domains.

::

    bold/gender_prompt.json.gz, ...                 or .json; also in prompts/, as in the owners' repository

A file nests group, entity (the article), prompts. A few prompts are released empty; they are left out, with a warning.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from levelhead.data.base import dataset_folder
from levelhead.lm.base import Item
from levelhead.lm.files import json_of, text_of
from levelhead.types import DataError

FOLDERS = ("bold", "BOLD", "bold-main")
DOMAINS = ("gender", "political_ideology", "profession", "race", "religious_ideology")

logger = logging.getLogger(__name__)


def read_items(root: Path | None) -> list[Item]:
    """Read the prompts of the domains that are there; content: ``domain``, ``group``, ``entity``, ``prompt``.

    The id is domain/group/entity/position of the prompt, from 0, counting empty ones.

    Raises :class:`~levelhead.types.DataError` if there is no file; for a broken one it names the file.
    """
    folder = dataset_folder(root, *FOLDERS)
    places = [folder / part / f"{domain}_prompt.json{ending}" for domain in DOMAINS for part in ("", "prompts")
              for ending in ("", ".gz")]  # fmt: skip
    files = {path.name.partition("_prompt")[0]: path for path in places if path.is_file()}
    if not files:
        raise DataError(f"{folder} holds no prompts of BOLD (gender_prompt.json, ..., here or in prompts/).")
    items: list[Item] = []
    for domain, path in files.items():
        items += _items(domain, json_of(text_of(path), str(path)), path)
    return items


def _items(domain: str, groups: Any, path: Path) -> list[Item]:
    items: list[Item] = []
    try:
        lists = {(group, entity): prompts for group, some in groups.items() for entity, prompts in some.items()}
    except AttributeError:
        lists = {}
    texts = [text for prompts in lists.values() for text in (prompts if isinstance(prompts, list) else [None])]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{path} must hold an object of groups, of entities, of lists of prompts.")
    for (group, entity), prompts in lists.items():
        for position, prompt in enumerate(prompts):
            content = {"domain": domain, "group": group, "entity": entity, "prompt": prompt}
            if prompt.strip():
                items.append(Item(f"{domain}/{group}/{entity}/{position}", content))
    if empty := len(texts) - len(items):
        logger.warning("%s: left out %d empty prompts of %d.", path, empty, len(texts))
    return items
