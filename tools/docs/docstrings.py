"""Docstrings as the code has them, read as the site needs them: roles of reStructuredText become links."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`(?P<short>~?)(?P<path>[\w.]+)`")
ERRORS = "levelhead.types"  # docstrings name errors by the package


class Docstrings(griffe.Extension):
    """Rewrite all docstrings once the package is read.

    A role becomes a link where the API pages have its target, and plain code elsewhere. The two colons that announce a
    literal block become one.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of a package."""
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        text = ROLE.sub(lambda match: _link(match, obj), obj.docstring.value)
        obj.docstring.value = re.sub(r"(?m)::$(?=\n\n +)", ":", text)
    for member in obj.members.values():
        if not member.is_alias:
            _rewrite(member)  # type: ignore[arg-type]


def _link(match: re.Match[str], obj: griffe.Object) -> str:
    path = match["path"]
    name = path.rsplit(".", 1)[-1]
    shown = name if match["short"] else path
    for candidate in (path, f"{obj.path}.{path}", f"{obj.module.path}.{path}", f"{ERRORS}.{name}"):
        try:
            target = obj.modules_collection[candidate].canonical_path
        except (KeyError, griffe.AliasResolutionError):
            continue
        return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'
    return f"<code>{shown}</code>"
