"""JSON requests to a server, several at a time, with back-off: what an endpoint sends and gets, whatever it means.

A request is repeated after a timeout, a broken connection, a status of 408, 425, 429 or 5xx, and an answer that is no
whole JSON object or that its reader cannot read. The pause doubles from half a second on, or is the server's
``Retry-After``, which holds back all requests. The key stands in one header of the client, and in no error: errors name
the kind of a failure, and quote of a server's words only what holds no part of the key or of the prompt.

HTTP clients limit the time between two bytes, not that of a request, so requests run in one event loop, which can
cancel them, and which reads their answers: without compression, so that none is larger than its bytes on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import json
import random
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Generic, TypeVar

from levelhead.types import ConfigError, LevelheadError, printable

Key = TypeVar("Key")
Found = TypeVar("Found")
Record = dict[str, Any]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds
LONGEST_WAIT = 900.0  # seconds: of a Retry-After, before it is an error
LONGEST_ANSWER = 2**26  # bytes
# Characters in a row, of letters and digits, by which a server's message repeats the key or a prompt.
OF_KEY, OF_PROMPT = 4, 12
REPEATED = (408, 425, 429)


class UnreadableAnswerError(LevelheadError):
    """An answer of the right status that does not hold what it should; another try may give it."""


class RefusedError(LevelheadError):
    """A status that a second try would not change; ``status``, and the server's ``words`` where they can be shown."""

    def __init__(self, status: int, words: str, where: str) -> None:
        super().__init__(f"{where}: the server answers with status {status}{f' ({words})' if words else ''}.")
        self.status, self.words = status, words


@dataclass(frozen=True)
class Request(Generic[Key, Found]):
    """A ``payload`` for ``path``; ``read`` makes of the answer what is wanted, and ``name`` is for errors.

    ``patient``: an answer that cannot be read is requested again.
    """

    key: Key
    path: str
    payload: Record
    read: Callable[[Record], Found]
    name: str
    patient: bool = True


class Transport:
    """A client of one server.

    ``concurrency`` requests are under way at a time, each is tried ``tries`` times, and each try ends within
    ``timeout`` seconds. ``repeats`` counts second tries.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        concurrency: int = 8,
        tries: int = 6,
        timeout: float = 120.0,
    ) -> None:
        self._http, self._loop = _library(), _loop()
        self._key, self.concurrency, self.tries, self.timeout = key, concurrency, tries, timeout
        self._next, self.repeats, self._stop = 0.0, 0, asyncio.Event()
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        limits = self._http.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        nothing = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        self._client = self._http.AsyncClient(
            base_url=url, headers=headers, timeout=None, limits=limits, cookies=nothing
        )

    def send(self, request: Request[Any, Found]) -> Found:
        """Send one request, and again where that can help.

        Raises:
            RefusedError: for a status that no second try changes.
            LevelheadError: where all tries fail; it says how the last one did.
        """
        return self._begun(request).result()

    def each(self, requests: Iterable[Request[Key, Found]]) -> Iterator[tuple[Key, Found]]:
        """Yield ``(key, what was read)`` of each request as it is done; several are under way at a time.

        After a failure no further request begins; those under way are yielded, then the failure is raised.
        """
        failure: BaseException | None = None
        under_way: dict[futures.Future[Found], Key] = {}
        feed = iter(requests)
        try:
            while True:
                while failure is None and len(under_way) < self.concurrency and (request := next(feed, None)):
                    under_way[self._begun(request)] = request.key
                if not under_way:
                    break
                for done in futures.wait(under_way, return_when=futures.FIRST_COMPLETED).done:
                    key = under_way.pop(done)
                    if error := done.exception():
                        failure = failure or error
                        self._loop.call_soon_threadsafe(self._stop.set)
                    else:
                        yield key, done.result()
        finally:
            for left in under_way:
                left.cancel()
            self._loop.call_soon_threadsafe(self._stop.clear)
        if failure is not None:
            raise failure

    def _begun(self, request: Request[Any, Found]) -> futures.Future[Found]:
        return asyncio.run_coroutine_threadsafe(self._send(request), self._loop)

    async def _send(self, request: Request[Any, Found]) -> Found:
        for turn in range(self.tries):
            await self._pause(self._next - time.monotonic())
            wait = 0.0
            try:
                status, headers, body = await asyncio.wait_for(self._exchange(request), self.timeout)
                if status == 200:
                    return request.read(_object(body))
                words = self._words(body, request.payload)
                if status not in REPEATED and status < 500:
                    raise RefusedError(status, words, request.name)
                failure, wait = f"status {status}{f' ({words})' if words else ''}", _retry_after(headers)
            except UnreadableAnswerError as error:
                if not request.patient:
                    raise
                failure = str(error).rstrip(".")
            except TimeoutError:
                failure = f"no answer within {self.timeout:g} seconds"
            except self._http.RequestError as error:  # its text is not shown: it can hold a header
                failure = f"a broken connection ({type(error).__name__})"
            if wait > LONGEST_WAIT:
                raise LevelheadError(f"{request.name}: {failure}; the server asks to wait {wait:,.0f} seconds.")
            if turn + 1 == self.tries or self._stop.is_set():
                break
            self.repeats += 1
            self._next = max(self._next, time.monotonic() + wait) if wait else self._next
            await self._pause(max(wait, min(LONGEST_PAUSE, FIRST_PAUSE * 2**turn) * random.uniform(0.75, 1.25)))
        times = f"{turn + 1} tries" if turn else "one try"
        raise LevelheadError(
            f"{request.name}: {failure}, after {times}. The same command resumes once the server answers."
        )

    async def _pause(self, seconds: float) -> None:
        """Wait, unless another request has failed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), max(0.0, seconds))

    async def _exchange(self, request: Request[Any, Any]) -> tuple[int, Any, bytes]:
        body = bytearray()
        async with self._client.stream("POST", request.path, json=request.payload) as response:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > LONGEST_ANSWER:
                    raise UnreadableAnswerError(f"an answer of more than {LONGEST_ANSWER >> 20} MiB")
        return response.status_code, response.headers, bytes(body)

    def _words(self, body: bytes, payload: Record) -> str:
        """Return a server's message if it holds no part of the key or of the prompt; otherwise nothing."""
        try:
            record = _object(body)
        except UnreadableAnswerError:
            return ""
        error = record.get("error", record)
        said = error.get("message") if isinstance(error, dict) else error
        said = str(said or "")
        prompts = [payload.get("prompt", ""), *(one["content"] for one in payload.get("messages", ()))]
        secret = _repeats(said, self._key, OF_KEY) or any(_repeats(said, prompt, OF_PROMPT) for prompt in prompts)
        return "" if secret else printable(" ".join(said.split()), 160)


def _repeats(said: str, secret: str, run: int) -> bool:
    """Whether a message holds ``run`` characters in a row of a secret, or all: in any case, spaced, or backwards."""
    plain = [unicodedata.normalize("NFKC", text).casefold() for text in (said, secret)]
    for heard, hidden in (plain, [re.sub(r"[\W_]+", "", text) for text in plain]):
        length = min(run, len(hidden))
        runs = {hidden[at : at + length] for at in range(len(hidden) - length + 1)} - {""}
        if any(one in heard or one[::-1] in heard for one in runs):
            return True
    return False


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all requests, which runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _object(body: bytes) -> Record:
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise UnreadableAnswerError("an answer that is no whole, uncompressed JSON object")
    return record


def _retry_after(headers: Any) -> float:
    """Return the seconds that a server asks to wait, 0 where it does not say, or names a date."""
    try:
        return max(0.0, min(float(headers.get("retry-after", "")), 1e9))
    except ValueError:
        return 0.0


def _library() -> Any:
    """Return the HTTP client that huggingface_hub brings: httpx, or httpx2 from its version 2 on."""
    for name in ("httpx2", "httpx"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigError("--endpoint needs an HTTP client: pip install 'levelhead[torch]', or httpx.")
