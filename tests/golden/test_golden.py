"""Small audits and pages of every kind say what they said before, to the last figure, and keep to one contract.

``python tests/golden/update.py`` writes the files again and prints what changed.
"""

from __future__ import annotations

import difflib
import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from cases import CASES, OF_FILES
from kept import FOLDER, figures_of, path_of, written
from rich.cells import cell_len

from levelhead.cli.report import kind_of, page_of
from levelhead.report import render
from levelhead.report.result import COLUMNS, Report
from levelhead.storage import write_json
from levelhead.terminal import plain_text

AUDITS = files("levelhead.report").joinpath("audit.schema.json").read_text(encoding="utf-8")
SCHEMA = jsonschema.Draft202012Validator(json.loads(AUDITS))


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_is_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CASES[name]()
    is_kept(written(found), path_of(name).read_text(encoding="utf-8"))
    if isinstance(found, Report):
        keeps_to_the_contract(found)


@pytest.mark.parametrize("name", OF_FILES)
def test_a_file_has_the_figures_of_its_arrays(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arrays, make = OF_FILES[name]
    is_kept(figures_of(written(make())), figures_of(path_of(arrays).read_text(encoding="utf-8")))


def is_kept(new: str, old: str) -> None:
    assert old == new, "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "kept", "now", n=2))


def test_every_file_is_of_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CASES)


def keeps_to_the_contract(found: Report) -> None:
    """One JSON, of which its page can be made, and a text that fits."""
    record = found.to_dict()
    assert record["kind"] == found.kind
    if found.kind in ("audit", "decisions"):
        SCHEMA.validate(json.loads(json.dumps(record)))
    assert kind_of(record) == found.kind
    write_json(Path("found.json"), found.to_dict())
    assert json.loads(Path("found.json").read_text()) == json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert page_of(Path("found.json"), command="c") == found.page(source="found.json", command="c")
    assert found.page()["finding"] in plain_text(found.table(), 2000)
    for width in (80, 60):
        assert max(map(cell_len, found.text(all=True, width=width).splitlines())) <= width
    if found.page()["brief"]:
        assert len(lines := found.text().splitlines()) <= 24
        assert max(map(cell_len, lines)) <= 80
    if found.page()["headline"]:
        _is_one_page(found)
    assert "<pre" in found._repr_html_()
    assert render(found.page()).startswith("<!doctype html>")
    frame = found.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert all(frame["reason"][frame["value"].isna()].notna())
    assert all(frame["low"][frame["value"].notna() & frame["reason"].notna()].isna())


def _is_one_page(found: Report) -> None:
    """A chart or a reason comes before any fold, and the groups that a short headline names are marked in both."""
    page, html = found.page(), render(found.page())
    assert html.count("<details") <= 4
    chart = html.find('<div class="panels">') if page["chart"] and page["chart"][0]["type"] == "panels" else 0
    assert chart < html.index("<details")
    assert page["chart"] or not any(one.defined for _, group, _, one in found.figures() if group is not None)
    names = [piece["text"] for piece in page["headline"] if piece["mark"]]
    head = "".join(piece["text"] for piece in page["headline"])
    assert len(head.split()) - sum(len(name.split()) - 1 for name in names) <= 20
    assert not set("()[]") & set(head)
    marks = [
        line["mark"]
        for block in page["chart"]
        for one in block.get("panels", [])[:1]
        for line in one["rows"]
        if "mark" in line
    ]
    assert len(set(marks) - {""}) >= min(len(names), 2) or page["chart"][0]["type"] == "curves"
    shown, table = found.text(), page["brief"]["table"]["rows"]
    cells = [cell for row in table for cell in row["cells"]]
    assert not table or any(not cell.get("undefined") and not cell.get("quiet") for cell in cells)
    assert all(str(table[at]["head"])[:17] in " ".join(shown.split()) for at in page["brief"]["named"][0])
    assert len(shown.splitlines()) <= 21
    sure = page["sure"][0]["answer"]
    assert not ("inconclusive" in head and "unlikely" in sure), sure
