"""What made a result, and of what: version, command, time and input files, in the last fold of its page."""

from __future__ import annotations

from levelhead._version import __version__
from levelhead.report import blocks
from levelhead.report.text import Record


def provenance(result: Record) -> Record:
    """Return the section, from what the result's JSON says of itself in ``made`` and ``options``."""
    made = result.get("made") or {}
    items = [("Tool", f"levelhead {made.get('version', __version__)}")]
    if command := made.get("command"):
        items.append(("Command", command))
    if "time" in made:
        items.append(("Time", made["time"]))
    for one in made.get("inputs", []):
        size = f"{one['bytes']:,} bytes"
        items.append((f"Input {one['file']}", f"{size}, SHA-256 {one['sha256']}"))
    told = [f"{name.replace('_', ' ')} {value}" for name, value in (result.get("options") or {}).items() if value != ""]
    if told:
        items.append(("Options", ", ".join(told)))
    return blocks.section([blocks.terms(items)])
