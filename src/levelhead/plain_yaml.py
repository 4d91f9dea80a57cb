"""The YAML of recipes and grids: plain values, keys that are texts and stand once, nothing that grows when it is read.

Closer to YAML 1.2 than PyYAML is: only ``true`` and ``false`` are booleans, ``1:30`` is a text and not 90, ``010`` is
not 8, a date is a text, and ``<<`` is a key like any other. Aliases repeat what they name, within limits.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from levelhead.types import ConfigError, printable, quoted

LONGEST_DOCUMENT = 1_000_000  # bytes
MOST_NODES = 20_000  # values and keys, after every alias is written out
DEEPEST = 32


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that no recipe needs."""


def _refused(problem: str, mark: Any) -> _Refused:
    return _Refused(None, None, problem, mark)


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes, self._depth = 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if getattr(event, "tag", None) is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise _refused(f"the tag {quoted(tag)}: recipes hold plain values; leave it out", event.start_mark)
        self._nodes, self._depth = self._nodes + 1, self._depth + 1
        self._limit(self._nodes, self._depth, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_document(self) -> Any:
        node = super().compose_document()
        self._measure(node, {})
        return node

    def _limit(self, nodes: int, depth: int, mark: Any) -> None:
        if nodes > MOST_NODES:
            raise _refused(f"more than {MOST_NODES:,} values, aliases written out", mark)
        if depth > DEEPEST:
            raise _refused(f"values nested more than {DEEPEST} deep", mark)

    def _measure(self, node: Any, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
        """Return how many nodes a node is, and how deep, with every alias written out; small documents can be huge."""
        if id(node) in known:
            size = known[id(node)]
            if size is None:
                raise _refused("an alias inside the value that it repeats", node.start_mark)
            return size
        known[id(node)] = None
        inner = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            inner = [one for pair in inner for one in pair]
        nodes, depth = 1, 0
        for one in inner:
            more, deeper = self._measure(one, known)
            nodes, depth = nodes + more, max(depth, deeper)
            self._limit(nodes, depth + 1, one.start_mark)
        known[id(node)] = size = (nodes, depth + 1)
        return size

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused("a key that is a list or a mapping; a key is a word", key.start_mark)
            name = _text(self, key)
            if name in lines:
                raise _refused(f"the key {quoted(name)} stands twice, first in line {lines[name]}", key.start_mark)
            lines[name] = key.start_mark.line + 1
            mapping[name] = self.construct_object(value, deep=True)
        return mapping


def _text(loader: _Loader, node: Any) -> str:
    """Return a text; both halves of a character that JSON writes as two become one."""
    try:
        text: str = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _refused("half of a character (a lone surrogate)", node.start_mark) from None
    if "\0" in text:
        raise _refused("a text with the character NUL", node.start_mark)
    return text


def _whole_number(loader: _Loader, node: Any) -> int:
    # The length first: Python reads no number of more than 4,300 digits.
    if len(node.value) > 20 or not -(2**63) <= int(node.value) < 2**64:
        raise _refused("a whole number beyond 64 bits", node.start_mark)
    return int(node.value)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$", re.ASCII), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_constructor("tag:yaml.org,2002:str", _text)


def read_yaml(text: str, where: str) -> Any:
    """Return what a YAML document holds: None, booleans, numbers, texts, lists, and mappings whose keys are texts.

    Raises:
        ConfigError: the text is not YAML, or more than a recipe needs; it names ``where`` and the line.
    """
    if len(text) > LONGEST_DOCUMENT:
        raise ConfigError(f"{where} is longer than {LONGEST_DOCUMENT:,} characters: it is not a recipe.")
    try:
        return yaml.load(text, Loader=_Loader)
    except _Refused as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"{where}, line {line}: {error.problem}.") from None
    except yaml.MarkedYAMLError as error:
        # Not the whole error: it shows the line, and messages never quote file contents.
        mark = error.problem_mark or error.context_mark
        at = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        said = printable(error.problem or error.context or "it cannot be read")
        raise ConfigError(f"{where} is not valid YAML: {at}{said}.") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(
            f"{where} is not valid YAML: character {error.position + 1:,} is a control character. Is it a text file?"
        ) from None
    except (ValueError, OverflowError):  # PyYAML's own, for an escape such as \\UFFFFFFFF
        raise ConfigError(f"{where} is not valid YAML: an escape or a version has a number out of range.") from None
