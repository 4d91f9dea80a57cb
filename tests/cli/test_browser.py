"""`levelhead app`: what a person who drops a csv on a page chooses, reads and downloads."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from levelhead.cli.browser import columns_of, framed, measured, values_of
from levelhead.types import ConfigError, DataError

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def loans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(0)
    sex = draw.choice(["women", "men"], 800)
    approved = np.where(draw.random(800) < np.where(sex == "men", 0.7, 0.4), "approved", "declined")
    score = draw.random(800).round(3)
    path = tmp_path_factory.mktemp("loans") / "loans.csv"
    rows = {"decision": approved, "sex": sex, "repaid": draw.choice(["yes", "no"], 800), "p": score, EVIL: sex}
    rows["guess"] = draw.choice(["yes", "no"], 800)
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def test_columns_and_values_are_offered(loans: Path, tmp_path: Path) -> None:
    assert columns_of(str(loans)) == ["decision", "sex", "repaid", "p", EVIL, "guess"]
    assert values_of(str(loans), "decision") == ["approved", "declined"]
    assert values_of(str(loans), "p") == []  # too many to choose from
    assert values_of(str(loans), "absent") == []
    (tmp_path / "x.txt").write_text("a")
    with pytest.raises(DataError, match="unknown kind"):
        columns_of(str(tmp_path / "x.txt"))


def test_the_form_asks_what_the_commands_ask(loans: Path) -> None:
    import levelhead as lh

    path, scored = str(loans), {"label": "repaid", "score": "p", "groups": ["sex"], "favourable": "yes"}
    decided = {"prediction": "decision", "groups": ["sex"], "favourable": "approved"}
    more = {"label": "repaid", "score": "p", "groups": ["sex"], "threshold": 0.3, "reference": "men"}
    within = {"label": "repaid", "prediction": "guess", "groups": ["sex"], "control": ["decision"]}
    for asked in (decided, scored, more, within):
        assert measured(path, asked).to_dict() == lh.audit_table(path, **asked).to_dict()
    assert measured(path, scored | {"control": ["decision"]}, explain=True).to_dict()["kind"] == "explanation"
    with pytest.raises(ConfigError, match=r"“Prediction or decision” and “Threshold” both decide the rows"):
        measured(path, more | {"prediction": "decision"})


def test_a_favourable_outcome_is_not_the_class_of_a_score(tmp_path: Path) -> None:
    import levelhead as lh

    rows = [f"{at % 2},{0.2 + 0.6 * (at % 2) + 0.05 * (at % 3 - 1) * (at % 4)},{'ab'[at % 8 > 4]}" for at in range(240)]
    path = tmp_path / "loans.csv"
    path.write_text("\n".join(["default,p,sex", *rows]) + "\n")
    asked = {"label": "default", "score": "p", "groups": ["sex"]}
    told = asked | {"favourable": "0"}
    assert measured(str(path), told).to_dict() == lh.audit_table(str(path), **told).to_dict()
    assert measured(str(path), told, explain=True).to_dict() == lh.explain(str(path), **asked).to_dict()


def test_a_page_cannot_leave_its_frame() -> None:
    assert framed(f'"{EVIL}').count("<script") == 0
    assert framed('"><b>').count('"') == framed("").count('"')


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser's page on a server that runs."""
    pytest.importorskip("gradio")
    driver = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium is installed")
    from levelhead.cli.browser import build, serve

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        app = build()
        address = serve(app, port=None, block=False)
        with driver.sync_playwright() as player:
            browser = player.chromium.launch(executable_path=found, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.asked = asked = []
            page.on("request", lambda request: asked.append(request.url))
            page.set_default_timeout(120_000)
            page.goto(address)
            yield page
            browser.close()
        app.close()
    del page, browser, app
    with warnings.catch_warnings():  # the server's and the driver's loops leave sockets for the next search for garbage
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a server with a token, and the cookie that it gives for the token."""
    pytest.importorskip("gradio")
    from levelhead.cli.browser import COOKIE, build, serve

    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    (tmp_path / "uploads").mkdir()
    app = build()
    yield serve(app, port=None, block=False, token="secret"), {"Cookie": f"{COOKIE}=secret"}
    app.close(verbose=False)
    del app
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_the_page_answers_its_own_address_with_its_token_alone(served: Any, loans: Path, tmp_path: Path) -> None:
    import gradio_client
    import httpx

    address, cookie = served
    port = httpx.URL(address).port
    assert httpx.get(address).status_code == 401
    assert httpx.get(address, params={"token": "other"}).status_code == 401
    let_in = httpx.get(address, params={"token": "secret"})
    assert (let_in.status_code, "samesite=strict" in let_in.headers["set-cookie"].lower()) == (200, True)
    assert httpx.get(address, headers=cookie).status_code == 200
    for name in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        headers = cookie | {"Host": name, "Origin": f"http://{name}"}
        assert httpx.get(address, headers=headers).status_code == 200, name
    for host, origin in (
        (f"evil.example:{port}", f"http://evil.example:{port}"),  # after a rebinding of its name
        (f"localhost.evil.example:{port}", None),
        (f"127.0.0.1:{port}", "http://evil.example"),
        (f"127.0.0.1:{port}", "http://127.0.0.1:1"),
        (f"127.0.0.1:{port}", "null"),
        ("", None),
    ):
        headers = cookie | {"Host": host} | ({} if origin is None else {"Origin": origin})
        assert httpx.get(address, headers=headers).status_code in (400, 403), (host, origin)
    client = gradio_client.Client(address, headers=cookie, verbose=False)
    chosen = ["(none)", "decision", "(none)", ["sex"], "approved", None, None, "(none)", []]
    client.predict(gradio_client.handle_file(loans), api_name="/chosen")  # the page offers its columns
    found = client.predict(gradio_client.handle_file(loans), *chosen, api_name="/audit")
    assert "women" in found[0]
    kept = [file for file in (tmp_path / "uploads").rglob("*") if file.name.startswith("audit")]
    assert {file.name for file in kept} == {"audit.html", "audit.json"}
    assert len(kept) == 2  # of Gradio's cache, which it empties, and none beside it
    for path in (loans, Path("/etc/hostname"), tmp_path / "uploads" / "absent.csv"):  # nobody uploaded them
        data = {"data": [{"path": str(path), "meta": {"_type": "gradio.FileData"}}]}
        asked = httpx.post(f"{address}gradio_api/call/chosen", json=data, headers=cookie).json()["event_id"]
        told = httpx.get(f"{address}gradio_api/call/chosen/{asked}", headers=cookie).text
        assert told.startswith("event: error"), path
        assert "decision" not in told
    (tmp_path / "bad.csv").write_text("a\n")
    with pytest.raises(gradio_client.exceptions.AppError, match="bad") as caught:
        client.predict(gradio_client.handle_file(tmp_path / "bad.csv"), *chosen, api_name="/audit")
    assert str(tmp_path) not in str(caught.value)
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_uploads_are_deleted_however_the_app_ends(ending: signal.Signals, tmp_path: Path) -> None:
    pytest.importorskip("gradio")
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "levelhead", "app", "--port", str(port)]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(ending, signal.SIG_DFL),  # tests may run where it is ignored, as under nohup
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert f"Open http://127.0.0.1:{port}/?token=" in line
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        (folder,) = tmp_path.glob("levelhead-app-*")
        (folder / "upload.csv").write_text("private")
        server.send_signal(ending)
        try:
            server.wait(120)
        finally:
            server.kill()
    assert not list(tmp_path.glob("levelhead-app-*"))


def drop(page: Any, path: Path) -> None:
    """Drop a file until the page has it: the field is there before the page's script listens to it.

    A file that arrives after a wait has ended takes the field away. Its name as a text passes: its cell stays.
    """
    driver = pytest.importorskip("playwright.sync_api")
    field, shown = page.locator("input[type=file]").first, page.get_by_label(path.name, exact=True)
    for seconds in (3, 10, 30, 60):
        with contextlib.suppress(driver.TimeoutError):
            if not shown.is_visible():
                field.set_input_files(str(path), timeout=1000 * seconds)
            return shown.wait_for(timeout=1000 * seconds)
    raise AssertionError(f"the page never showed {path.name}")


def choose(page: Any, label: str, value: str) -> None:
    page.get_by_label(label).fill(value)
    # The list of the field filled before may still be closing, with an option of the same name: the last is ours.
    page.get_by_role("option", name=value, exact=True).last.wait_for()
    page.get_by_label(label).press("Enter")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_file_is_dropped_chosen_read_and_downloaded(opened: Any, loans: Path, tmp_path: Path) -> None:
    page = opened
    drop(page, loans)
    choose(page, "Prediction or decision", "decision")
    page.get_by_role("button", name="Audit", exact=True).click()
    page.get_by_text("missing: “Groups to compare”").wait_for()
    choose(page, "Groups to compare", EVIL)
    choose(page, "Favourable outcome", "approved")
    page.get_by_role("button", name="Audit", exact=True).click()
    page.locator("iframe").wait_for()
    assert "women" in page.locator("#finding p").inner_text()
    for button, check in (("Download the page", "</html>"), ("Download the JSON", '"kind": "decisions"')):
        with page.expect_download() as download:
            page.get_by_role("button", name=button).click()
        download.value.save_as(tmp_path / "file")
        text = (tmp_path / "file").read_text(encoding="utf-8")
        assert check in text
    assert json.loads(text)["kind"] == "decisions"
    # A file that cannot be read, and a wrong column: the command's own sentence.
    choose(page, "Label: the true outcome, if known", "p")
    page.get_by_role("button", name="Audit", exact=True).click()
    page.locator(".toast-body", has_text="Map each to one class").first.wait_for()
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert {url.split("/")[2] for url in page.asked if url.startswith("http")} == {page.url.split("/")[2]}
