"""``levelhead app``: audit a file of predictions in a browser, without typing a command."""

from __future__ import annotations

import functools
import html
import inspect
import json
import os
import secrets
import signal
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from levelhead.extras import explained
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, LevelheadError, listed

if TYPE_CHECKING:
    from levelhead.report.result import Report

LOCAL = "Nothing leaves this machine: the page is served to this machine alone, and files are deleted when it ends."
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "levelhead"
NONE = "(none)"
MOST_CHOICES = 50
"""Most values of a column offered; others can be typed."""
KINDS = [".csv", ".tsv", ".jsonl", ".gz", ".parquet", ".xlsx"]
FORM = {
    "label": "Label: the true outcome, if known",
    "prediction": "Prediction or decision",
    "score": "Score",
    "groups": "Groups to compare",
    "favourable": "Favourable outcome",
    "threshold": "Threshold: scores at or above it are positive",
    "reference": "Reference group, such as Male",
    "time": "Time: dates or periods",
    "control": "Strata, such as department",
}
"""The options of the form and their labels; a field takes what :func:`levelhead.audit_table` takes."""
BASIC = 5
"""The first fields, which most audits need; the others stand below."""
STYLE = """
footer {display: none !important}
#finding p {font-size: 1.2rem; font-weight: 600}
iframe {width: 100%; height: 75vh; border: 1px solid #bbb; background: white}
"""
# Gradio's own page may ask other hosts for fonts or scripts. The browser is told to ask this server alone.
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob:; frame-ancestors 'self'"
)


def columns_of(path: str) -> list[str]:
    """Return the names of a file's columns."""
    from levelhead.tables.files import table_at

    return table_at(path).header()


def values_of(path: str, column: str) -> list[str]:
    """Return the values of a column as texts, in order, at most :data:`MOST_CHOICES`; none of an unusable column."""
    from levelhead.tables.files import table_at
    from levelhead.tables.source import Wanted

    found: dict[str, None] = {}
    try:
        for batch in table_at(path).batches(Wanted(words=[column])):
            found |= dict.fromkeys(str(value) for value in batch.words[column][1] if value is not None)
            if len(found) > MOST_CHOICES:
                return []
    except LevelheadError:
        return []
    return sorted(found)


def hints_of_form() -> dict[str, Any]:
    """Return the type of each field of the form, as the function that audits has it."""
    from levelhead.auditing.door import Options, audit_table

    hints = typing.get_type_hints(audit_table) | typing.get_type_hints(Options)
    return {name: hints[name] for name in FORM}


def measured(path: str | None, asked: Mapping[str, Any], explain: bool = False) -> Report:
    """Audit a file, or explain its gaps: the call that ``levelhead audit`` or ``levelhead explain`` makes.

    Args:
        path: the file.
        asked: the filled fields of :data:`FORM`.
        explain: say what the gaps are made of, by those fields that this takes.

    Raises:
        LevelheadError: with the words of the command.
    """
    from levelhead.auditing.door import audit_table
    from levelhead.auditing.exclusions import Refused
    from levelhead.auditing.explain import explain as explained_gap

    if not path:
        raise ConfigError("Choose a file first, or press “Use the example”.")
    taken = inspect.signature(explained_gap).parameters if explain else FORM
    try:
        call: Any = explained_gap if explain else audit_table
        found: Report = call(path, **{name: value for name, value in asked.items() if name in taken})
        return found
    except Refused as error:
        names = FORM | {"data": "File"}
        raise ConfigError(error.said(lambda name: f"“{names.get(name, name).partition(':')[0]}”")) from None


def framed(page: str) -> str:
    """Return a page in a frame that runs no script."""
    return f'<iframe sandbox="" title="The whole page" srcdoc="{html.escape(page)}"></iframe>'


def _told(call: Callable[[], Any], path: str | None) -> Any:
    """Show the command's own sentence for what cannot be done, without the server's folder of the file."""
    import gradio as gr

    try:
        return call()
    except LevelheadError as error:
        said = str(error)
        for place in () if path is None else (Path(path), Path(path).resolve()):
            said = said.replace(f"{place.parent}{os.sep}", "")
        raise gr.Error(html.escape(said), duration=None, print_exception=False) from None


def _field(name: str, hint: Any) -> Any:
    """Return the empty field of an option: a column, several columns, a number, or a word."""
    import gradio as gr

    if hint == (str | None):
        return gr.Dropdown([NONE], value=NONE, label=FORM[name])
    if hint == Sequence[str]:
        return gr.Dropdown([], multiselect=True, label=FORM[name])
    if float in typing.get_args(hint):
        return gr.Number(value=None, label=FORM[name])
    return gr.Dropdown([], label=FORM[name], allow_custom_value=True)


def _filled(names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """Offer columns to the fields that take one, and put values there."""
    import gradio as gr

    found = []
    for name, hint in hints_of_form().items():
        choices, empty = {(str | None): ([NONE, *names], NONE), Sequence[str]: ([*names], [])}.get(hint, (None, None))
        found.append(gr.update(value=values.get(name, empty), **({} if choices is None else {"choices": choices})))
    return found


def _chosen(path: str | None) -> list[Any]:
    return _filled(_told(lambda: columns_of(path), path) if path else [], {})


def _offered(path: str | None, label: str, prediction: str) -> Any:
    import gradio as gr

    column = next((one for one in (prediction, label) if one not in (None, NONE)), None)
    return gr.update(choices=values_of(path, column) if path and column else [], value=None)


def _example() -> list[Any]:
    from levelhead.auditing.example import EXAMPLE, GROUP, LABEL, POSITIVE, PREDICTION

    values = {"label": LABEL, "prediction": PREDICTION, "groups": [GROUP], "favourable": POSITIVE}
    return [str(EXAMPLE), *_filled(columns_of(str(EXAMPLE)), values)]


def _answered(explain: bool, path: str | None, *given: Any) -> Iterator[list[Any]]:
    """Yield what the page shows of an audit. Gradio copies the files into its cache, which it empties."""
    import gradio as gr

    from levelhead.report.page import render

    asked = {name: one for name, one in zip(FORM, given, strict=True) if one not in (NONE, "", None, [])}
    result = _told(lambda: measured(path, asked, explain), path)
    page = result.page(source=Path(str(path)).name)
    drawn, files = render(page), []
    with tempfile.TemporaryDirectory() as folder:  # not in that cache: there, nothing would be copied
        for name, text in (("audit.html", drawn), ("audit.json", json.dumps(result.to_dict(), indent=2))):
            Path(folder, name).write_text(text, encoding="utf-8")
            files.append(gr.update(value=str(Path(folder, name)), interactive=True))
        yield [f'<p role="status">{html.escape(page["finding"])}</p>', framed(drawn), *files]


def build() -> Any:
    """Return the app, a ``gradio.Blocks``.

    Raises:
        ConfigError: gradio is not installed.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    try:
        import gradio as gr
    except ModuleNotFoundError as error:
        raise explained(error, "levelhead app") from error

    fields = hints_of_form().items()
    with gr.Blocks(title="levelhead", analytics_enabled=False, delete_cache=(300, 3000)) as app:
        gr.Markdown(f"# levelhead\nAudit a file of predictions for gaps between groups. {LOCAL}")
        with gr.Row():
            with gr.Column():
                file = gr.File(label="A table, one row a prediction", file_types=KINDS, height=140)
                fill = gr.Button("Use the example")
            with gr.Column():
                basic = [_field(*one) for one in list(fields)[:BASIC]]
        with gr.Accordion("More questions", open=False):
            more = [_field(*one) for one in list(fields)[BASIC:]]
        with gr.Row():
            audit = gr.Button("Audit", variant="primary")
            explain = gr.Button("Explain the gap")
        finding = gr.HTML(elem_id="finding", padding=True)
        with gr.Row():
            page_file = gr.DownloadButton("Download the page", interactive=False)
            json_file = gr.DownloadButton("Download the JSON", interactive=False)
        page = gr.HTML()
        roles, out = [*basic, *more], [finding, page, page_file, json_file]
        label, prediction, _, _, favourable = basic
        file.upload(_chosen, file, roles, api_name="chosen")
        file.clear(_chosen, file, roles)
        for column in (label, prediction):
            column.input(_offered, [file, label, prediction], favourable)
        fill.click(_example, None, [file, *roles])
        audit.click(functools.partial(_answered, False), [file, *roles], out, api_name="audit")
        explain.click(functools.partial(_answered, True), [file, *roles], out, api_name="explain")
    return app


def serve(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int | None = 7860,
    block: bool = True,
    token: str | None = None,
) -> Any:
    """Serve the app. On loopback, a browser is answered only under a name of loopback: any page can take another.

    Args:
        app: what :func:`build` returns.
        host: address to listen on.
        port: port to listen on; None: the first free one from 7860 on.
        block: wait until the server ends; otherwise it runs in a thread.
        token: what the address must hold as ``?token=`` at first; None: nothing.

    Returns:
        the address of the server.
    """
    import gradio as gr
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse

    from levelhead.auditing.example import EXAMPLE

    async def guarded(request: Any, forward: Any) -> Any:
        name = request.headers.get("host", "")
        origin = urlsplit(request.headers.get("origin", f"//{name}")).netloc
        if host in LOOPBACK and (urlsplit(f"//{name}").hostname not in LOOPBACK or origin != name):
            return PlainTextResponse("Open the address that levelhead printed.", 403)
        given = request.query_params.get("token", request.cookies.get(COOKIE, ""))
        starts = request.url.path.endswith("/startup-events")  # Gradio's own request, which opens nothing
        if token and not starts and not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("Open the whole address that levelhead printed, with its token.", 401)
        response = await forward(request)
        response.headers["Content-Security-Policy"] = POLICY
        if token and "token" in request.query_params:
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response

    _, address, _ = app.launch(
        server_name=host,
        server_port=port,
        share=False,
        quiet=True,
        prevent_thread_lock=not block,
        max_file_size=500 * 10**6,
        enable_monitoring=False,
        allowed_paths=[str(EXAMPLE)],
        footer_links=[],
        css=STYLE,
        theme=gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        app_kwargs={"middleware": [Middleware(BaseHTTPMiddleware, dispatch=guarded)]},
    )
    return address


def app_command(
    host: Annotated[str, typer.Option(help="Address to listen on. Any but loopback is open to your network.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 7860,
) -> None:
    """Audit files of predictions in a browser: choose a file and its columns, read the finding, download the page.

    Nothing leaves this machine. Uploads and pages are kept in a temporary folder, which is deleted when the app ends.

    Example: levelhead app
    """
    token = secrets.token_urlsafe(24)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(ending, lambda number, _: sys.exit(128 + number))  # leaves the folder below, as Ctrl-C does
    before = tempfile.tempdir, os.environ.get("GRADIO_TEMP_DIR")
    with tempfile.TemporaryDirectory(prefix="levelhead-app-") as folder:
        tempfile.tempdir, os.environ["GRADIO_TEMP_DIR"] = folder, str(Path(folder, "gradio"))
        app = None
        try:
            app = build()
            _announce(host, port, token)
            serve(app, host=host, port=port, token=token)
        except OSError:
            raise ConfigError(f"Port {port} of {host} cannot be used. Choose another with --port.") from None
        finally:
            if app is not None:
                app.close(verbose=False)
            tempfile.tempdir = before[0]
            os.environ.pop("GRADIO_TEMP_DIR")
            os.environ |= {} if before[1] is None else {"GRADIO_TEMP_DIR": before[1]}


def _announce(host: str, port: int, token: str) -> None:
    """Print where the app is, and who reaches it."""
    terminal = Terminal()
    if host not in LOOPBACK:
        terminal.print(
            f"Everyone who reaches {host} and knows the token can upload files. Loopback: {listed(LOOPBACK)}."
        )
    shown = f"[{host}]" if ":" in host else host
    terminal.print(
        f"Open http://{shown}:{port}/?token={token} in a browser. End with Ctrl-C.", markup=False, soft_wrap=True
    )
