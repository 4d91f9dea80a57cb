"""Count how the parts of levelhead depend on each other: python tools/imports.py [--list] [--source src/levelhead].

A part is a folder or a file directly under ``src/levelhead``. An arrow runs from a part to another that it imports,
also where the import stands inside a function; imports for type checkers alone do not count. An arrow is upward where
the imported part stands later in :data:`ORDER`. A circle is a set of parts that all reach each other. A private name
is one with a leading underscore, taken from another part.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ORDER = (
    ("_version", "types", "extras", "machine", "arrays", "spelling"),
    ("plain_yaml", "terminal", "storage", "csv_form", "registry", "distributed", "loading"),
    ("appended", "auto_classes"),
    ("metrics", "report", "tables"),
    ("data", "auditing"),
    ("attention", "objectives"),
    ("models", "training", "methods"),
    ("own", "runs", "pretraining"),
    ("bench", "inspecting", "lm"),
    ("__init__",),
    ("paper",),
    ("cli",),
    ("__main__",),
)
"""Floors from the ground up. On one floor, a part may import those that stand before it."""

Arrow = tuple[str, str]


@dataclass
class Imports:
    """What was found: ``arrows`` with the places (file:line) where they are drawn, and ``private`` names likewise."""

    parts: set[str] = field(default_factory=set)
    arrows: dict[Arrow, list[str]] = field(default_factory=dict)
    private: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, source: Path) -> Imports:
        """Read all modules under ``source``, the folder of the package."""
        found = cls()
        files = sorted(source.rglob("*.py"))
        found.parts = {part_of(file.relative_to(source)) for file in files}
        for file in files:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node, module, name in imported(tree, source.name, file.relative_to(source)):
                found.add(source, file, node, module, name)
        return found

    def add(self, source: Path, file: Path, node: ast.stmt, module: list[str], name: str | None) -> None:
        """Note one import of ``name`` (None: the module itself) from ``module``, its path below the package."""
        own = part_of(file.relative_to(source))
        if not module and name is not None and name in self.parts:
            module, name = [name], None
        other = module[0] if module else "__init__"
        if other == own or other not in self.parts:
            return
        place = f"{file.relative_to(source)}:{node.lineno}"
        places = self.arrows.setdefault((own, other), [])
        if place not in places:
            places.append(place)
        taken = [*module[1:], *([name] if name else [])]
        if any(word.startswith("_") and not word.endswith("__") for word in taken):
            self.private.append(f"{place} takes {'.'.join([other, *taken])}")

    def upward(self) -> list[Arrow]:
        """Arrows to a part that stands later in :data:`ORDER`."""
        place = {part: position for position, part in enumerate(part for floor in ORDER for part in floor)}
        unknown = sorted(self.parts - set(place))
        if unknown:
            return [arrow for arrow in sorted(self.arrows) if set(arrow) & set(unknown)]
        return [(own, other) for own, other in sorted(self.arrows) if place[other] > place[own]]

    def circles(self) -> list[list[str]]:
        """Sets of parts that all reach each other."""
        reached = {part: {other for own, other in self.arrows if own == part} for part in self.parts}
        for middle in self.parts:
            for part in self.parts:
                if middle in reached[part]:
                    reached[part] |= reached[middle]
        sets = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in self.parts if a in reached[a]}
        return [list(one) for one in sorted(sets)]


def part_of(path: Path) -> str:
    """First name of a path below the package: its folder, or its file without the ending."""
    return path.parts[0].removesuffix(".py")


def imported(tree: ast.Module, package: str, path: Path) -> Iterator[tuple[ast.stmt, list[str], str | None]]:
    """Yield (statement, module below the package, name or None) for each import that runs."""
    for node in running(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, *rest = alias.name.split(".")
                if first == package:
                    yield node, rest, None
        elif isinstance(node, ast.ImportFrom):
            parents = list(path.parent.parts)[: len(path.parent.parts) - node.level + 1] if node.level else []
            module = [*([package, *parents] if node.level else []), *(node.module or "").split(".")]
            if module[0] == package:
                for alias in node.names:
                    yield node, [word for word in module[1:] if word], alias.name


def running(node: ast.AST) -> Iterator[ast.stmt]:
    """Walk through all statements but those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from running(child)


def main() -> int:
    """Print the counts; 1 if an arrow runs upward, in a circle or to a private name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src" / "levelhead")
    parser.add_argument("--list", action="store_true", help="name every arrow")
    options = parser.parse_args()
    found = Imports.read(options.source)
    upward, circles = found.upward(), found.circles()
    print(
        f"{len(found.parts)} parts, {len(found.arrows)} arrows, {len(upward)} upward, {len(circles)} circles, "
        f"{len(found.private)} private names taken from another part"
    )
    if options.list:
        for own, others in grouped(found.arrows).items():
            print(f"{own}: {', '.join(others)}")
    for own, other in upward:
        print(f"upward: {own} -> {other} ({', '.join(found.arrows[own, other])})")
    for circle in circles:
        print(f"circle: {', '.join(circle)}")
    for line in found.private:
        print(f"private: {line}")
    return 1 if upward or circles or found.private else 0


def grouped(arrows: dict[Arrow, list[str]]) -> dict[str, list[str]]:
    """Arrows by the part where they start."""
    parts = sorted({own for own, _ in arrows})
    return {part: sorted(other for own, other in arrows if own == part) for part in parts}


if __name__ == "__main__":
    sys.exit(main())
