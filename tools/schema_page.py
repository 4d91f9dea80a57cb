"""Write docs/json.md from the JSON Schema of audits: `python tools/schema_page.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "src/levelhead/report/audit.schema.json"
PAGE = ROOT / "docs/json.md"
HEAD = """# The JSON of an audit

Read and check what `levelhead audit FILE ... --json audit.json` writes.

The [JSON Schema](https://json-schema.org) comes with the package, as `levelhead/report/audit.schema.json`. Keys with a
star are always there. Keys are only added to version 1; readers must ignore unknown keys. `result.to_dict()` in Python
has the same keys without `made`.

```python
import json
from importlib.resources import files

schema = json.loads(files("levelhead.report").joinpath("audit.schema.json").read_text(encoding="utf-8"))
print(schema["properties"]["kind"]["enum"])  # ['audit', 'decisions']
# jsonschema.validate(json.load(open("audit.json")), schema)
```

"""


def kind(one: dict[str, Any]) -> str:
    """Return what a value is, in a word or two."""
    if "$ref" in one:
        return one["$ref"].rpartition("/")[2]
    if "const" in one or "enum" in one:
        return " or ".join(f"`{value}`" for value in one.get("enum", [one.get("const")]))
    types = one.get("type", "any")
    inner = one.get("items") or one.get("additionalProperties")
    of = f" of {kind(inner)}" if isinstance(inner, dict) and inner != {"type": "object"} else ""
    return " or ".join([types] if isinstance(types, str) else types) + of


def rows(one: dict[str, Any]) -> Iterator[str]:
    """Yield a table of an object's keys."""
    yield from ("| key | value | meaning |", "|---|---|---|")
    for name, value in one["properties"].items():
        always = "\\*" if name in one.get("required", ()) else ""
        yield f"| `{name}`{always} | {kind(value)} | {value.get('description', '')} |"


def page(schema: dict[str, Any]) -> str:
    """Return the page."""
    lines = ["## Every file", *rows(schema), ""]
    for one in schema["oneOf"]:
        lines += [f"## Of kind `{one['properties']['kind']['const']}`", *rows(one), ""]
    for name, one in schema["$defs"].items():
        lines += [f"## {name}", one.get("description", ""), "", *rows(one), ""]
    return HEAD + "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(SCHEMA.read_text(encoding="utf-8"))), encoding="utf-8")
