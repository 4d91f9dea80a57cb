"""A list may follow a line of text at once, as on a repository host; Python-Markdown wants an empty line between."""

from __future__ import annotations

import re
from typing import Any

ITEM = re.compile(r"([-*]|\d+\.) ")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Add the empty line, outside code."""
    lines: list[str] = []
    code = False
    for line in markdown.splitlines():
        before = lines[-1] if lines else ""
        if ITEM.match(line) and not code and before.strip() and not re.match(r"[-*#\s]|\d+\. ", before):
            lines.append("")
        code ^= line.lstrip().startswith("```")
        lines.append(line)
    return "\n".join(lines)
