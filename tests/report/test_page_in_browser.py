"""The page in headless Chromium: nothing runs, nothing sticks out on a phone, and there is something to see."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from levelhead.auditing.audit import audit
from levelhead.auditing.decisions import audit_decisions
from levelhead.bench.page import Compared, Comparisons
from levelhead.report import render
from page_reading import difference, made_up

pytestmark = pytest.mark.e2e

HOSTILE = [
    "<script>top.taken = true</script>",
    "<img src=x onerror='top.taken = true'>",
    "\u202eevil",
    "x" * 10_000,
    "👩‍👩‍👧" * 30,
]
WIDTHS = (360, 1280)
MEASURE = """
onload = () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement
    page.querySelectorAll("details").forEach(one => { one.open = true })
    return {
      width: +frame.width, inner: root.clientWidth, needed: root.scrollWidth, high: root.scrollHeight,
      scripts: page.scripts.length, pictures: page.images.length,
      heading: page.querySelector("h1").getBoundingClientRect().height,
    }
  })
  document.body.dataset.seen = JSON.stringify(seen)
  document.body.dataset.taken = String(window.taken)
}
"""


@pytest.fixture(scope="module")
def chromium() -> str:
    names = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


def browse(chromium: str, folder: Path, page: Path, *options: str) -> str:
    """Return what Chromium prints; it keeps nothing and asks nobody."""
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
        *(f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    chance = np.random.default_rng(0)
    label, predicted = chance.integers(0, 2, (2, 300))
    groups = np.array(HOSTILE, dtype=object)[np.arange(300) % len(HOSTILE)]
    result = audit(label, predicted, sensitive_features={HOSTILE[3]: groups}, replicates=100)
    row = difference(-0.02, 0.03)
    others = {name[:3000]: {"accuracy": row, "equalized_odds": row} for name in HOSTILE}
    sizes = {name: {name: 3, "b": 50} for name in HOSTILE}
    return {
        "audit": render(result.page(source=HOSTILE[0], command=HOSTILE[3])),
        "comparison": render(Comparisons([Compared(made_up(others), sizes)]).page(command="levelhead table runs")),
    }


def test_hostile_names_run_nothing_and_break_nothing(chromium: str, pages: dict[str, str], tmp_path: Path) -> None:
    # A frame of a given width is a phone; without the page's own policy its names alone decide whether scripts run.
    bare = [re.sub(r"<meta http-equiv=[^>]*>", "", page) for page in pages.values()]
    frames = "".join(
        f'<iframe width="{width}" height="800" srcdoc="{html.escape(page)}"></iframe>'
        for page in bare
        for width in WIDTHS
    )
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}<script>{MEASURE}</script>", encoding="utf-8")
    dom = browse(chromium, tmp_path, wrapper, "--dump-dom")
    assert 'data-taken="undefined"' in dom, "a name ran as a script"
    seen = json.loads(html.unescape(re.search(r'data-seen="([^"]*)"', dom)[1]))  # type: ignore[index]
    assert len(seen) == len(pages) * len(WIDTHS)
    for frame in seen:
        assert frame["scripts"] == frame["pictures"] == 0
        assert frame["needed"] <= frame["inner"] <= frame["width"], f"the page is wider than {frame['width']} pixels"
        assert frame["high"] > 1000
        assert 20 < frame["heading"] < 700


def test_there_is_something_to_see(chromium: str, pages: dict[str, str], tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text(pages["comparison"], encoding="utf-8")
    browse(chromium, tmp_path, page, f"--screenshot={picture}", "--window-size=390,844")
    image = Image.open(io.BytesIO(picture.read_bytes())).convert("L")
    assert image.width == 390
    shades = image.getcolors(256)
    assert shades is not None
    assert len(shades) > 20, "an empty page has one shade"
    dark = sum(count for count, shade in shades if shade < 100)  # type: ignore[operator]
    assert 0.005 < dark / (image.width * image.height) < 0.4


@pytest.mark.parametrize("name", ["audit", "decisions"])
def test_without_its_appendix_a_page_prints_as_two_sheets(chromium: str, name: str, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    label, predicted = chance.integers(0, 2, (2, 900))
    names = [f"<b>group</b> {at}, a long name" for at in range(40)]
    by = {f"column {at}": chance.choice(names, 900) for at in range(4)}
    page = (
        audit(label, predicted, sensitive_features=by, favourable=1, replicates=100)
        if name == "audit"
        else audit_decisions(predicted, sensitive_features=by, favourable=1)
    ).page(command="levelhead audit " + "x " * 200)
    file, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    for parts, least, most in (([], 2, 2), (page["parts"], 3, 100)):
        shown = page | {"parts": parts, "cautions": page["cautions"][: None if parts else 2]}
        shown["brief"] = page["brief"] | {"lines": page["brief"]["lines"][: None if parts else 3]}
        file.write_text(render(shown), encoding="utf-8")
        browse(chromium, tmp_path, file, f"--print-to-pdf={printed}")
        assert least <= len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= most
