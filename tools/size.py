"""Count what the rooms of levelhead hold: python tools/size.py [--list] [--check | --lower] [--source src/levelhead].

A room is a folder directly under ``src/levelhead``; files that lie beside them are the room ``.``. Code lines are those
without blank lines, comments and docstrings. A function's lines run from ``def`` to its end, without its docstring. A
circle is a set of modules of one room that all import each other, also where the import stands inside a function.

``--check`` fails where the repository is larger than ``tools/ceilings.toml`` allows: code lines of each room and of the
tests, options of each verb, public names, parameters of a public function, words of the docs. ``--lower`` writes
today's numbers there, where they are smaller. Raising a ceiling needs a decision record that names the user it is for.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

from imports import Imports, imported

ROOT = Path(__file__).parents[1]
CEILINGS = ROOT / "tools" / "ceilings.toml"
Counts = dict[str, dict[str, int]]
"""Today's number, or a ceiling, by table and name: the shape of ``ceilings.toml``."""
LONG_FILE, LONG, LONGER, MANY = 500, 60, 100, 15
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Size:
    """Counts of a room; what is too large is named."""

    files: int = 0
    lines: int = 0
    code: int = 0
    long_files: list[str] = field(default_factory=list)
    over_60: list[str] = field(default_factory=list)
    over_100: list[str] = field(default_factory=list)
    public_over_15: list[str] = field(default_factory=list)
    private_over_15: list[str] = field(default_factory=list)
    circles: list[str] = field(default_factory=list)

    def add(self, other: Size) -> None:
        """Add the counts of another room."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def counts(self) -> list[int]:
        """Return a number for each column."""
        values = [getattr(self, one.name) for one in fields(self)]
        return [value if isinstance(value, int) else len(value) for value in values]


def docstring_of(node: ast.AST) -> range:
    """Return the lines of a docstring, or of a text that stands alone below what it explains."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def code_lines(text: str, tree: ast.Module) -> int:
    """Count lines that hold code."""
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in quiet:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held.difference(*map(docstring_of, ast.walk(tree))))


def functions(tree: ast.AST, before: str = "") -> Iterator[tuple[str, Function]]:
    """Yield every function with its dotted name."""
    for node in ast.iter_child_nodes(tree):
        name = f"{before}{node.name}" if isinstance(node, Function | ast.ClassDef) else before.rstrip(".")
        if isinstance(node, Function):
            yield name, node
        yield from functions(node, f"{name}." if name else "")


def parameters(node: Function) -> int:
    """Count the parameters of a function but for ``self`` and ``cls``."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in every)


def measure(source: Path) -> dict[str, Size]:
    """Return the size of each room under ``source``, the folder of the package."""
    found: dict[str, Size] = defaultdict(Size)
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        size, text = found[relative.parts[0] if len(relative.parts) > 1 else "."], path.read_text(encoding="utf-8")
        tree, lines = ast.parse(text), text.count("\n")
        size.files, size.lines, size.code = size.files + 1, size.lines + lines, size.code + code_lines(text, tree)
        size.long_files += [f"{relative} {lines}"] if lines > LONG_FILE else []
        for name, node in functions(tree):
            length = (node.end_lineno or 0) - node.lineno + 1 - len(docstring_of(node.body[0]))
            place = f"{relative}:{node.lineno} {name}"
            size.over_60 += [f"{place} {length}"] if length > LONG else []
            size.over_100 += [f"{place} {length}"] if length > LONGER else []
            many = (
                size.private_over_15 if any(part.startswith("_") for part in name.split(".")) else size.public_over_15
            )
            many += [f"{place} {parameters(node)}"] if parameters(node) > MANY else []
    for room, size in found.items():
        size.circles += circles(source, room) if room != "." else []
    return dict(found)


def circles(source: Path, room: str) -> list[str]:
    """Return the sets of modules inside a room that import each other."""
    modules = {path: module_name(path.relative_to(source)) for path in (source / room).rglob("*.py")}
    known = Imports(parts=set(modules.values()))
    for path, own in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for _, module, name in imported(tree, source.name, path.relative_to(source)):
            inside = ".".join([*module, *([name] if name else [])])
            other = inside if inside in known.parts else ".".join(module)
            if other in known.parts and other != own:
                known.arrows.setdefault((own, other), [])
    return [", ".join(one) for one in known.circles()]


def module_name(path: Path) -> str:
    """Return the dotted name of a file below the package."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def rooms_of_code(source: Path) -> dict[str, int]:
    """Return the code lines of each room under ``source``, and of all."""
    rooms = {room: size.code for room, size in measure(source).items()}
    return dict(sorted(rooms.items())) | {"all": sum(rooms.values())}


def options_of_verbs() -> dict[str, int]:
    """Return how many options each verb has, and all verbs, counted from the app; a hidden one only refuses."""
    import typer

    from levelhead.cli.app import app

    def verbs(command: typer.core.TyperCommand, name: str) -> Iterator[tuple[str, int]]:
        yield name, sum(one.param_type_name == "option" and not one.hidden for one in command.params)
        for own, inner in getattr(command, "commands", {}).items():
            yield from verbs(inner, f"{name} {own}".strip())

    counted = {name or "levelhead": count for name, count in verbs(typer.main.get_command(app), "") if count}
    return dict(sorted(counted.items())) | {"all": sum(counted.values())}


def public_parameters() -> int:
    """Return how many parameters the public function with most of them has."""
    import inspect

    import levelhead

    public = [getattr(levelhead, name) for name in levelhead.__all__]
    return max(len(inspect.signature(one).parameters) for one in public if inspect.isfunction(one))


def words(*paths: Path) -> int:
    """Count the words of Markdown files."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


def today(root: Path = ROOT) -> Counts:
    """Return today's number for each ceiling."""
    import levelhead

    return {
        "code": rooms_of_code(root / "src" / "levelhead"),
        "outside": {folder: rooms_of_code(root / folder)["all"] for folder in ("tests", "benchmarks", "tools")},
        "options": options_of_verbs(),
        "public": {"names": len(levelhead.__all__), "parameters": public_parameters()},
        "words": {"docs": words(*(root / "docs").rglob("*.md")), "changelog": words(root / "CHANGELOG.md")},
    }


def over(counts: Counts, ceilings: Counts) -> list[str]:
    """Return a line for each number above its ceiling, each without one, and each ceiling of what is gone."""
    found = []
    for table in counts.keys() | ceilings.keys():
        have, most = counts.get(table, {}), ceilings.get(table, {})
        found += [
            f"{table}: {name} is {have[name]:,}, {most[name]:,} at most"
            for name in have.keys() & most.keys()
            if have[name] > most[name]
        ]
        found += [f"{table}: {name} has no ceiling" for name in have.keys() - most.keys()]
        found += [f"{table}: {name} is gone; delete its ceiling" for name in most.keys() - have.keys()]
    return sorted(found)


def lowered(counts: Counts, ceilings: Counts) -> str:
    """Return the text of ``ceilings.toml`` with today's numbers where they are smaller or new, and no others."""
    lines = [
        "# The most that the repository may hold: python tools/size.py --check, and --lower after each merge.",
        "# Raising a number needs a record in docs/adr/ that names the user, and what was left out instead.",
    ]
    for table, have in counts.items():
        lines += ["", f"[{table}]"]
        for name, count in have.items():
            key = name if name.replace("_", "").isalnum() else f'"{name}"'
            lines.append(f"{key} = {min(count, ceilings.get(table, {}).get(name, count))}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print a line for each room, and their sum; or compare the repository with its ceilings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src" / "levelhead")
    parser.add_argument("--list", action="store_true", help="name what is too large, and the circles")
    ask = parser.add_mutually_exclusive_group()
    ask.add_argument("--check", action="store_true", help="fail where the repository is larger than its ceilings")
    ask.add_argument("--lower", action="store_true", help="lower the ceilings to today's numbers")
    options = parser.parse_args()
    if options.check or options.lower:
        ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.is_file() else {}
        counts = today()
        if options.lower:
            CEILINGS.write_text(lowered(counts, ceilings), encoding="utf-8")
        found = over(counts, tomllib.loads(CEILINGS.read_text(encoding="utf-8")))
        print("\n".join(found) or "within all ceilings")
        return int(bool(found))
    rooms, total = measure(options.source), Size()
    for size in rooms.values():
        total.add(size)
    heads = ["files", "lines", "code", ">500", "fn>60", "fn>100", "par>15", "_par>15", "circles"]
    print(f"{'room':<14}" + "".join(f"{head:>9}" for head in heads))
    for room, size in [*sorted(rooms.items(), key=lambda one: -one[1].lines), ("all", total)]:
        print(f"{room:<14}" + "".join(f"{count:>9,}" for count in size.counts()))
    if options.list:
        for one in fields(total):
            if isinstance(named := getattr(total, one.name), list):
                print("\n".join([f"\n{one.name}", *(f"  {line}" for line in named)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
