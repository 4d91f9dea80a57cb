"""The README's Python runs, and so does that of the site's pages; links between pages hold, and the site builds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import pytest
import typer

from levelhead.cli.app import app, main
from levelhead.metrics.names import METRICS
from scripts import load_script

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("*.md")])
# Python in these pages speaks of things that a reader brings along, so it cannot run as it stands.
NOT_RUN = {
    "CONTRIBUTING.md": "predictions; tests/test_templates.py runs its files",
    "docs/klaad.md": "a tokenizer and triplets",
    "docs/presets.md": "a backbone and a batch of its inputs",
}


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


RUN_BY_ITSELF = ["README.md", *NOT_RUN]
WITH_PYTHON = [page for page in PAGES if python_blocks(page) and str(page.relative_to(ROOT)) not in RUN_BY_ITSELF]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 110
    assert not [line for line in lines if len(line) > 120]


@pytest.fixture
def folder_with_the_readmes_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which README's model name is a small saved model: a path comes before the hub."""
    from transformers import ViTConfig, ViTModel

    monkeypatch.chdir(tmp_path)
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    ViTModel(config).save_pretrained("google/vit-base-patch16-224")
    return tmp_path


def test_the_readme_python_debiases_a_pretrained_model_and_loads_it(folder_with_the_readmes_model: Path) -> None:
    import torch

    blocks = python_blocks(ROOT / "README.md")
    assert len(blocks) == 1
    assert len([line for line in blocks[0].splitlines() if line]) <= 11
    names: dict[str, Any] = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    model, saved = names["model"], names["lh"].from_pretrained(folder_with_the_readmes_model / "out")
    assert model.config.levelhead["debias"]["absolute"] is True
    model.eval(), saved.eval()
    pictures = torch.stack([row["pixel_values"] for row in names["rows"][:2]])
    trained = names["trainer"].model.eval()
    assert torch.equal(trained(pixel_values=pictures).logits, saved(pixel_values=pictures).logits)


def test_the_readme_shows_what_the_example_really_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from levelhead.auditing.example import EXAMPLE

    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["audit", "--example"])
    lines = capsys.readouterr().out.replace(f"{EXAMPLE.parent}{os.sep}", "").splitlines()
    printed = "\n".join(line.rstrip() for line in lines)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)\n```", text, flags=re.DOTALL)
    (shown,) = (block for block in blocks if "--prediction predicted" in block)
    assert printed.startswith(shown), "the headline stands first"


def commands_in_blocks(text: str) -> list[str]:
    """Return the commands of levelhead in a page's blocks of code; a backslash joins a line to the next."""
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("levelhead ")]


def commands_in_sentences(text: str) -> list[str]:
    """Return what stands in backticks; often an option without its value, so only verb and options are known."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.findall(r"`(levelhead [a-z-][^`{|\n]*)`", prose)


def verb_of(line: str) -> tuple[Any, list[str]]:
    """Return the command line's own parser of the verb in ``line``, and the words behind it."""
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    return command, words


def parse(line: str) -> None:
    """Parse a command; an unknown verb or option, a missing value or a value too many raises."""
    command, words = verb_of(line)
    if "--help" not in words:
        command.make_context(command.name, words)


def name_only(line: str) -> None:
    """Look up verb and options of a command; an unknown one raises."""
    command, words = verb_of(line)
    known = {"--help"} | {option for parameter in command.params for option in parameter.opts}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    if unknown:
        raise LookupError(f"no option {unknown}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_pages_are_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = [(parse, line) for line in commands_in_blocks(text)]
    lines += [(name_only, line) for line in commands_in_sentences(text)]
    for read, line in lines:
        try:
            read(line)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{page.name}: {line}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_pages_runs_and_prints_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page from top to bottom, in one namespace; ``print(...)  # text`` prints that text."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with patch.dict(METRICS):  # a page may add one, and no other test may meet it
        for block in python_blocks(page):
            exec(compile(block, page.name, "exec"), names)
            printed = capsys.readouterr().out
            for said in re.findall(r"^print\(.*\)  # (.+)$", block, flags=re.MULTILINE):
                value = re.split(r"[:;]", said)[0]
                assert value in printed, f"{page.name} says that {said!r} is printed"


def test_the_first_pages_have_python_that_runs() -> None:
    assert {ROOT / "docs" / "index.md", ROOT / "docs" / "concepts.md"} <= set(WITH_PYTHON)
    for name in NOT_RUN:
        assert python_blocks(ROOT / name), f"{name} has no Python; take it off the list"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_recipes_of_pages_are_there(page: Path) -> None:
    from levelhead.runs.recipe import find_recipe

    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert re.match(r"https?:", link) or (page.parent / link).exists(), f"{page.name} links to {link}"
    for recipe in re.findall(r"levelhead train (\S+)", text):
        if "$" in recipe or recipe.startswith(("-", ".")):
            continue
        if "/" in recipe:
            assert (ROOT / recipe).exists(), f"{page.name} names {recipe}"
        elif "_" in recipe:
            find_recipe(recipe)


def test_every_method_has_a_page_that_names_all_its_options() -> None:
    from dataclasses import fields

    from levelhead.methods import METHODS

    overview = (ROOT / "docs" / "methods" / "index.md").read_text()
    for key, method in METHODS.items():
        name = key.replace("-", "_")
        page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
        assert f"]({name}.md)" in overview
        for heading in ("**Paper.**", "## Equation", "## Cost", "## When it fails", "## Command"):
            assert heading in page, f"{name}.md lacks {heading}"
        missing = [field.name for field in fields(method) if f"`{field.name}`" not in page]
        assert not missing or (name == "dam" and missing == ["debias"]), f"{name}.md does not name {missing}"
        assert method().uses_groups == method.uses_groups, f"levelhead list does not say what {key} sees"
        if method.uses_groups:
            assert "ORACLE" in page


def test_the_measured_table_is_that_of_the_benchmarks() -> None:
    measure = load_script(ROOT / "benchmarks" / "measure.py")
    table = measure.measured()
    assert "| yes |" in table
    assert table in (ROOT / "benchmarks" / "measured.md").read_text("utf-8"), "run python benchmarks/measure.py"
    chosen = (ROOT / "results" / "performance.md").read_text(encoding="utf-8").split("## Measured")[1]
    assert not {line for line in chosen.splitlines() if line.startswith("| ")} - set(table.splitlines())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(needed, reason="the site needs: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Page(HTMLParser):
    """What a page of the site links to, loads, and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given["href"])


@pytest.mark.long
def test_the_site_holds_together_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 40
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if re.match(r"https?:|mailto:", link):
                assert link not in page.loads, f"{path.name} loads {link}"
                continue
            place, _, anchor = unquote(link).partition("#")
            target = (path.parent / place).resolve() if place else path
            assert target.exists(), f"{path.relative_to(site)} links to {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{path.relative_to(site)} links to {link}"


@pytest.mark.long
def test_the_site_shows_equations_linked_scripts_and_docstrings(site: Path) -> None:
    theory = (site / "theory.html").read_text()
    assert theory.count("<math") > 50
    assert "arithmatex" not in theory
    assert "WordLevel" in (site / "repository" / "examples" / "notebook_text.py.html").read_text()
    api = (site / "api" / "attention.html").read_text()
    assert "number of most attended tokens" in api
    for room in sorted((site / "api").glob("*.html")):
        assert not re.search(r":(class|func|meth):|(<|&lt;)autoref", room.read_text()), room.name


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("page", ["index.html", "methods/dam.html"])
def test_the_search_works_on_pages_opened_from_disk(site: Path, page: str, tmp_path: Path) -> None:
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    command = [chromium, *options, f"--user-data-dir={tmp_path}", (site / page).as_uri() + "?q=gradient+accumulation"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout
    found = re.search(r"(\d+) matching documents", shown)
    assert found is not None
    assert int(found[1]) > 1
    assert "footguns.html" in shown[found.start() :]
