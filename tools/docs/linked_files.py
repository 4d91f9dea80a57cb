"""Pages link to files outside docs/, such as an example; here those files get a place in the site as well.

So one relative link holds both on a repository host and in the site. Markdown becomes a page, a script or a recipe a
page with its text, a folder a list of what is in it; anything else is copied. What nothing links to is left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ALWAYS = ("CONTRIBUTING.md",)  # the navigation names it
PLACE = "repository"  # folder of the site that holds what comes from outside docs/
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "sh"}
LINK = re.compile(r"(?<=\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file outside docs/ that a page links to, and those that they link to in turn."""
    root, docs = _folders(config)
    waiting = [root / name for name in ALWAYS]
    for file in files.documentation_pages():
        waiting += _targets(Path(docs, file.src_uri), root)
    done: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in done or path.is_relative_to(docs):
            continue
        done.add(path)
        files.append(_generated(path, root, config))
        if path.is_dir():
            waiting += _pages(path)
        elif path.suffix == ".md":
            waiting += _targets(path, root)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/, and all links of a page from outside it, to their places in the site."""
    root, docs = _folders(config)
    place = page.file.src_uri
    here = root / place.removeprefix(f"{PLACE}/") if place.startswith(f"{PLACE}/") else docs / place

    def replaced(match: re.Match[str]) -> str:
        path = _resolved(here, match["target"], root)
        if path is None:
            return match[0]
        uri = path.relative_to(docs).as_posix() if path.is_relative_to(docs) else _uri(path, root)
        return os.path.relpath(uri, Path(place).parent) + (match["anchor"] or "")

    return LINK.sub(replaced, markdown)


def _folders(config: MkDocsConfig) -> tuple[Path, Path]:
    return Path(config.config_file_path).resolve().parent, Path(config.docs_dir).resolve()


def _resolved(page: Path, target: str, root: Path) -> Path | None:
    """Return the file or folder of the repository that a link means, or None for anything else."""
    if re.match(r"[a-z]+:", target):
        return None
    path = (page.parent / target).resolve()
    return path if path.exists() and path.is_relative_to(root) else None


def _targets(page: Path, root: Path) -> list[Path]:
    if not page.is_file():  # a page that another plugin made
        return []
    found = (_resolved(page, match["target"], root) for match in LINK.finditer(page.read_text(encoding="utf-8")))
    return [path for path in found if path is not None]


def _uri(path: Path, root: Path) -> str:
    """Return the place of a file from outside docs/ among the sources of the site."""
    ending = "/index.md" if path.is_dir() else ".md" if path.suffix in LANGUAGES else ""
    return f"{PLACE}/{path.relative_to(root).as_posix()}{ending}"


def _generated(path: Path, root: Path, config: MkDocsConfig) -> File:
    uri, level = _uri(path, root), InclusionLevel.NOT_IN_NAV
    if path.is_dir():
        text = "".join(f"- {name}\n" for name in _entries(path))
    elif path.suffix in LANGUAGES:
        text = f"````{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}````\n"
    else:
        return File.generated(config, uri, abs_src_path=str(path), inclusion=level)
    return File.generated(config, uri, content=f"# {path.relative_to(root).as_posix()}\n\n{text}", inclusion=level)


def _pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.md"))


def _entries(folder: Path) -> list[str]:
    """Return what a folder holds: its pages, at any depth, as links, and then the names of its other files."""
    pages = [f"[{page.relative_to(folder)}]({page.relative_to(folder).as_posix()})" for page in _pages(folder)]
    others = [f"`{file.name}`" for file in sorted(folder.iterdir()) if file.is_file() and file.suffix != ".md"]
    return pages + others
