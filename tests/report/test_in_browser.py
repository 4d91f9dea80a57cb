"""Pages in headless Chromium: nothing runs or sticks out on a phone, keys reach everything, there is much to see."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_pages import PAGES

from levelhead import audit
from levelhead.report import render

pytestmark = pytest.mark.e2e

WIDTHS = (390, 1280)
KEYS = """
onload = () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement
    const closed = {inner: root.clientWidth, needed: root.scrollWidth}
    const folded = [...page.querySelectorAll("details")]
    const opened = folded.filter(one => {
      const head = one.querySelector("summary")
      head.focus()
      if (page.activeElement !== head) return false
      head.click()
      return one.open
    }).length
    const places = [...page.querySelectorAll("a[href], summary, [tabindex]")]
    const reached = places.filter(one => { one.focus(); return page.activeElement === one })
    const seen = reached.filter(one => {
      const style = view.getComputedStyle(one)
      return style.outlineStyle === "none" && one.matches(":focus-visible")
    }).length
    const texts = "th, td, p, li, h1, h2, h3, dd, dt, summary, .num, .across-ticks span"
    const cut = [...page.querySelectorAll(texts)].filter(one => {
      if (one.closest(".scroll") || one.closest(".unseen") || !one.getClientRects().length) return false
      const box = one.getBoundingClientRect()
      return box.right > root.clientWidth + 1 || box.left < -1
    }).map(one => one.textContent.trim().slice(0, 60))
    const beside = [...page.querySelectorAll(".panel")].filter(one => {
      const [row, rules] = [".row svg", ".rules div"].map(part => one.querySelector(part)?.getBoundingClientRect())
      return row && rules && (Math.abs(row.left - rules.left) > 1 || Math.abs(row.right - rules.right) > 1)
    }).map(one => one.querySelector("figcaption").textContent)
    return {width: +frame.width, ...closed, beside, opened: root.scrollWidth, folded: folded.length, unfolded: opened,
      places: places.length, reached: reached.length, unseen: seen, cut, high: root.scrollHeight,
      scripts: page.scripts.length, heading: page.querySelector("h1").getBoundingClientRect().height}
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


def test_a_phone_shows_whole_pages_names_run_nothing_and_keys_reach_everything(chromium: str, tmp_path: Path) -> None:
    # A frame of a given width is a phone; without the page's own policy its names alone decide whether scripts run.
    pages = {name: re.sub(r"<meta http-equiv=[^>]*>", "", render(page)) for name, page in PAGES.items()}
    frames = "".join(
        f'<iframe width="{width}" height="800" srcdoc="{html.escape(page)}"></iframe>'
        for page in pages.values()
        for width in WIDTHS
    )
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}<script>{KEYS}</script>", encoding="utf-8")
    dom = browse(chromium, tmp_path, wrapper, "--dump-dom")
    assert 'data-taken="undefined"' in dom, "a name ran as a script"
    found = re.search(r'data-seen="([^"]*)"', dom)
    assert found is not None
    seen = json.loads(html.unescape(found[1]))
    assert any(frame["folded"] for frame in seen)
    for frame, name in zip(seen, [name for name in pages for _ in WIDTHS], strict=True):
        where = f"{name}, {frame['width']} pixels"
        assert frame["inner"] in (frame["width"], frame["width"] - 15), f"{where}: laid out for another width"
        assert frame["needed"] <= frame["inner"], f"{where}: wider than the screen"
        assert frame["opened"] <= frame["inner"], f"{where}: wider than the screen with all parts open"
        assert frame["unfolded"] == frame["folded"], f"{where}: a part that keys do not open"
        assert frame["reached"] == frame["places"], f"{where}: a place that takes no focus"
        assert frame["unseen"] == 0, f"{where}: a focus that nobody sees"
        assert frame["cut"] == [], where
        assert frame["beside"] == [], f"{where}: marks are not drawn along the axis below them"
        assert (frame["scripts"], frame["high"] > 700) == (0, True), where
        assert 20 < frame["heading"] < 900, where


def test_without_its_folds_a_page_prints_as_one_sheet(chromium: str, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    label, predicted = chance.integers(0, 2, (2, 900))
    names = [f"<b>group</b> {at}, a long name" for at in range(8)]
    by = {f"column {at}": chance.choice(names, 900) for at in range(2)}
    found = audit(label, predicted, sensitive_features=by, favourable=1, replicates=100)
    page = found.page(command="levelhead audit " + "x " * 200)
    file, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    for parts, least, most in (([], 1, 1), (page["parts"], 2, 100)):
        file.write_text(render(page | {"parts": parts, "cautions": page["cautions"][:3]}), encoding="utf-8")
        browse(chromium, tmp_path, file, f"--print-to-pdf={printed}")
        assert least <= len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= most
