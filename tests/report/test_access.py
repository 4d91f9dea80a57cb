"""The page for everybody: colours, tables, pictures, headings and keys, as accessibility checkers ask of them."""

from __future__ import annotations

import contextlib
import html
import itertools
import json
import os
import re
import select
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_page_in_browser import browse, chromium  # noqa: F401  (a fixture)
from test_pages import colours, contrast

from levelhead.auditing.audit import audit
from levelhead.auditing.page import audit_page
from levelhead.bench.page import Compared, Comparisons
from levelhead.report import render
from page_reading import Reader, difference, made_up, read

NAMED_BY_THEIR_WORDS = ("a", "button", "summary")
INTERACTIVE = ("a", "button", "input", "select", "textarea", "summary")


def made_pages() -> dict[str, str]:
    """An audit of classes, one of scores with small groups, two models on the same rows, and a comparison."""
    chance = np.random.default_rng(0)
    rows = 600
    label = chance.integers(0, 2, rows)
    score = np.clip(0.3 * label + 0.7 * chance.random(rows), 0, 1)
    groups = {
        "sex": np.array(["women", "men"])[chance.integers(0, 2, rows)],
        "region": np.array([f"region {letter}" for letter in "ABCDEFGH"])[chance.integers(0, 8, rows)],
    }
    groups["region"][:4] = "a very small region with a long name"
    old = np.where(chance.random(rows) < 0.8, label, 1 - label)
    results = {
        "audit": audit(label, old, sensitive_features=groups, replicates=100, intersect=True),
        "scores": audit(label, scores=score, threshold=[0.5, 0.7], sensitive_features=groups, replicates=100),
        "against": audit(label, (score > 0.5).astype(int), against=old, sensitive_features=groups, replicates=100),
        "constant": audit(label, np.zeros(rows, int), sensitive_features=groups, replicates=100),
    }
    made = {name: render(audit_page(one.to_dict(), source="rows")) for name, one in results.items()}
    row = difference(-0.02, 0.03)
    others = {name: {"accuracy": row, "equalized_odds": row} for name in ("dam", "jtt", "group_dro")}
    made["comparison"] = render(Comparisons([Compared(made_up(others), {"sex": {"women": 30, "men": 50}})]).page())
    return made


PAGES = made_pages()
each_page = pytest.mark.parametrize("name", PAGES)


@each_page
def test_a_page_says_its_language_and_its_title(name: str) -> None:
    page = read(PAGES[name])
    assert page.all("html")[0].attributes["lang"] == "en"
    assert page.all("title")[0].text.strip()
    assert len(page.all("main")) == len(page.all("header")) == len(page.all("footer")) == 1
    viewport = next(one for one in page.all("meta") if one.attributes.get("name") == "viewport")
    assert "user-scalable" not in str(viewport.attributes["content"]), "people may zoom"


@each_page
def test_headings_go_down_a_step_at_a_time(name: str) -> None:
    levels = [int(one.tag[1]) for one in read(PAGES[name]).all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels


@each_page
def test_ids_are_unique_and_what_points_to_one_finds_it(name: str) -> None:
    page = read(PAGES[name])
    ids = Counter(one.attributes["id"] for one in page.elements if "id" in one.attributes)
    assert [one for one, times in ids.items() if times > 1] == []
    for one in page.elements:
        for attribute in ("aria-labelledby", "aria-describedby", "for"):
            assert all(there in ids for there in (one.attributes.get(attribute) or "").split())
        if (one.attributes.get("href") or "").startswith("#"):
            assert str(one.attributes["href"])[1:] in ids


@each_page
def test_tables_have_captions_and_heads(name: str) -> None:
    page = read(PAGES[name])
    tables = page.all("table")
    assert tables
    assert len(page.all("caption")) == len(tables)
    assert all(one.text.strip() for one in page.all("caption"))
    for head in page.all("th"):
        assert head.attributes.get("scope") in ("col", "row"), head.text
        assert head.text.strip(), "a head without words"
    assert all("thead" in one.parents for one in page.all("th") if one.attributes["scope"] == "col")


@each_page
def test_pictures_have_words(name: str) -> None:
    page = read(PAGES[name])
    drawn = [one for one in page.all("svg", "img") if "svg" not in one.parents]
    assert drawn
    silent = hidden(page)
    for one in drawn:
        if id(one) in silent:
            continue
        words = one.attributes.get("alt") if one.tag == "img" else one.attributes.get("aria-label")
        assert len((words or "").split()) > 2, f"a picture without words: {one.attributes}"
        assert one.tag == "img" or one.attributes.get("role") == "img"


def hidden(page: Reader) -> set[int]:
    """Elements in or below one that is hidden from screen readers: their positions in the order of the page."""
    found: set[int] = set()
    depth: int | None = None
    for one in page.elements:
        if depth is not None and len(one.parents) > depth:
            found.add(id(one))
            continue
        depth = None
        if one.attributes.get("aria-hidden") == "true":
            found.add(id(one))
            depth = len(one.parents)
    return found


@each_page
def test_all_that_can_be_used_can_be_used_by_keys(name: str) -> None:
    page = read(PAGES[name])
    silent = hidden(page)
    for one in page.elements:
        assert not [key for key in one.attributes if key.startswith("on")], "nothing runs"
        assert "accesskey" not in one.attributes
        order = one.attributes.get("tabindex")
        assert order in (None, "0"), "an order of its own loses people"
        if order == "0" or one.tag in INTERACTIVE:
            assert id(one) not in silent, "what is hidden from screen readers takes no focus"
        if order == "0" and one.tag == "div":
            assert one.attributes.get("role") == "region"
            assert (one.attributes.get("aria-label") or "").strip()
        if one.tag == "a":
            assert one.attributes.get("href")
        if one.tag in NAMED_BY_THEIR_WORDS:
            assert one.text.strip() or one.attributes.get("aria-label")
        if one.tag in ("input", "select", "textarea"):
            assert one.attributes.get("aria-label") or one.attributes.get("id")
        assert one.tag != "summary" or one.parents[-1] == "details"
    # Every table that may be wider than the page can be scrolled by keys: its frame takes the focus.
    frames = [one for one in page.all("div") if "scroll" in (one.attributes.get("class") or "").split()]
    assert all(one.attributes.get("tabindex") == "0" for one in frames)


def rules(style: str) -> list[tuple[str, dict[str, str]]]:
    """The rules of the style sheet, those within @media too: selector and declarations."""
    bare = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    found = []
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", bare):
        pairs = (part.split(":", 1) for part in body.split(";") if ":" in part)
        found.append((" ".join(selector.split()), {key.strip(): value.strip() for key, value in pairs}))
    return found


def style_of(page: str) -> str:
    found = re.search(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(("theme", "palette"), colours(), ids=lambda one: one if isinstance(one, str) else "")
def test_every_colour_of_text_stands_out_from_every_ground_it_lies_on(theme: str, palette: dict[str, str]) -> None:
    # A rule that sets both is checked as a pair; one that sets the text alone, on the paper and in the folded parts.
    seen = 0
    for selector, body in rules(style_of(PAGES["audit"])):
        front = re.fullmatch(
            r"var\(--([\w-]+)\)", body.get("color", body.get("fill", "") if "text" in selector else "")
        )
        back = re.search(r"var\(--([\w-]+)\)", body.get("background", ""))
        if front is None:
            assert not re.match(r"#|rgb|hsl", body.get("color", "")), f"{selector}: a colour outside of the palette"
            continue
        ground = back[1] if back else "warn-paper" if "cautions" in selector else "paper"
        assert contrast(palette[front[1]], palette[ground]) >= 4.5, f"{theme}: {selector}"
        seen += 1
    assert seen > 20
    # Lines and marks that mean something, and the frame of what has the focus, need 3 to 1.
    for line in ("muted", "accent", "ink"):
        assert contrast(palette[line], palette["paper"]) >= 3


def test_the_focus_is_seen() -> None:
    found = rules(style_of(PAGES["audit"]))
    assert any(selector == ":focus-visible" and "2px solid" in body.get("outline", "") for selector, body in found)
    assert not [selector for selector, body in found if body.get("outline") in ("none", "0")]


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
    const cut = [...page.querySelectorAll("th, td, p, li, h1, h2, h3, dd, dt, summary")].filter(one => {
      if (one.closest(".scroll") || one.closest(".unseen") || !one.getClientRects().length) return false
      const box = one.getBoundingClientRect()
      return box.right > root.clientWidth + 1 || box.left < -1
    }).map(one => one.textContent.trim().slice(0, 60))
    return {width: +frame.width, ...closed, opened: root.scrollWidth, folded: folded.length, unfolded: opened,
      places: places.length, reached: reached.length, unseen: seen, cut}
  })
  document.body.dataset.seen = JSON.stringify(seen)
}
"""


@pytest.mark.e2e
def test_a_phone_shows_whole_pages_and_keys_reach_everything(chromium: str, tmp_path: Path) -> None:  # noqa: F811
    frames = "".join(
        f'<iframe width="{width}" height="800" srcdoc="{html.escape(page)}"></iframe>'
        for page in PAGES.values()
        for width in (390, 1280)
    )
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}<script>{KEYS}</script>", encoding="utf-8")
    dom = browse(chromium, tmp_path, wrapper, "--dump-dom")
    found = re.search(r'data-seen="([^"]*)"', dom)
    assert found is not None
    seen = json.loads(html.unescape(found[1]))
    assert len(seen) == 2 * len(PAGES)
    assert any(frame["folded"] for frame in seen)
    for frame, name in zip(seen, [name for name in PAGES for _ in range(2)], strict=True):
        where = f"{name}, {frame['width']} pixels"
        assert frame["inner"] in (frame["width"], frame["width"] - 15), f"{where}: laid out for another width"
        assert frame["needed"] <= frame["inner"], f"{where}: wider than the screen"
        assert frame["opened"] <= frame["inner"], f"{where}: wider than the screen with all parts open"
        assert frame["unfolded"] == frame["folded"], f"{where}: a part that keys do not open"
        assert frame["reached"] == frame["places"] > 5, f"{where}: a place that takes no focus"
        assert frame["unseen"] == 0, f"{where}: a focus that nobody sees"
        assert frame["cut"] == [], where


class Keyboard:
    """A page in Chromium as wide as a phone, and the keys that are pressed on it (DevTools protocol over pipes)."""

    def __init__(self, browser: str, folder: Path, page: Path) -> None:
        reads, commands = os.pipe()
        answers, writes = os.pipe()
        typed = [
            *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={folder / 'keys'}", "--remote-debugging-pipe", "about:blank"),
        ]
        # Chromium reads commands from descriptor 3 and answers on 4, whatever the numbers are here.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "bash", *typed],
            pass_fds=(reads, writes), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(reads)
        os.close(writes)
        self.commands, self.answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self.sent, self.session, self.read = 0, None, b""
        targets = self.ask("Target.getTargets")["targetInfos"]
        tab = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        self.ask("Emulation.setDeviceMetricsOverride", **phone)
        self.ask("Page.enable")
        self.ask("Page.navigate", url=page.as_uri())
        for _ in range(200):
            if self.value("document.readyState + location.protocol") == "completefile:":
                return
            time.sleep(0.05)
        raise AssertionError("the page was not loaded")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.sent += 1
        message: dict[str, Any] = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            while b"\0" not in self.read:
                ready, _, _ = select.select([self.answers], [], [], 60)
                assert ready, f"no answer to {method}"
                more = os.read(self.answers.fileno(), 1 << 16)
                assert more, "Chromium has ended"
                self.read += more
            one, self.read = self.read.split(b"\0", 1)
            answer: dict[str, Any] = json.loads(one)
            if answer.get("id") == self.sent:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.ask("Browser.close")
        self.commands.close()
        self.answers.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()


@pytest.mark.e2e
@pytest.mark.slow
def test_tab_walks_through_the_page_and_enter_opens_what_is_folded(chromium: str, tmp_path: Path) -> None:  # noqa: F811
    page = tmp_path / "page.html"
    page.write_text(PAGES["scores"], encoding="utf-8")
    keys = Keyboard(chromium, tmp_path, page)
    try:
        assert keys.value("document.documentElement.clientWidth") == 390
        assert keys.value("document.documentElement.scrollWidth") == 390
        places = keys.value("document.querySelectorAll('a[href], summary, [tabindex]').length")
        here = "document.activeElement.tagName"
        met, opened = [], 0
        for _ in range(places):
            keys.press("Tab", 9)
            met.append(keys.value(here))
            assert keys.value("getComputedStyle(document.activeElement).outlineStyle") == "solid", met
            if met[-1] == "SUMMARY":
                keys.press("Enter", 13, "\r")
                assert keys.value("document.activeElement.parentElement.open"), "Enter opens it"
                opened += 1
                break
        assert opened, f"no folded part was reached: {met}"
        assert "A" in met
        assert keys.value("document.documentElement.scrollWidth") == 390, "opened, it is no wider"
    finally:
        keys.close()
