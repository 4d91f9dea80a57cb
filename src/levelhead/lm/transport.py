"""JSON requests to a server, several at a time, with back-off: what an endpoint sends and gets, whatever it means.

A request is repeated after a timeout, a broken connection, a status of 408, 425, 429 or 5xx, and an answer that is no
whole JSON object or that its reader cannot read. The pause doubles from half a second on, or is the server's
``Retry-After``, which holds back all requests. The key stands in one header of the client, and in no error: errors name
the kind of a failure, and quote of a server's words only what holds neither the key nor a part of the prompt.
"""

from __future__ import annotations

import difflib
import email.utils
import importlib
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from levelhead.types import ConfigError, LevelheadError, printable

Key = TypeVar("Key")
Found = TypeVar("Found")
Record = dict[str, Any]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds
LONGEST_WAIT = 900.0  # seconds: of a Retry-After, before it is an error
LONGEST_ANSWER = 2**26  # bytes
SHARED_WORDS = 16  # characters that a server's message may share with a prompt
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

    ``concurrency`` requests are under way at a time, at most ``per_minute`` begin in a minute (None: no limit), each is
    tried ``tries`` times, and waits ``timeout`` seconds for its answer. ``repeats`` counts second tries.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        concurrency: int = 8,
        per_minute: float | None = None,
        tries: int = 6,
        timeout: float = 120.0,
    ) -> None:
        self._http = _library()
        self._key, self.concurrency, self.tries, self.timeout = key, concurrency, tries, timeout
        self._gap = 60 / per_minute if per_minute else 0.0
        self._next, self._lock, self._stop = 0.0, threading.Lock(), threading.Event()
        self.repeats = 0
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = self._http.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        self._client = self._http.Client(base_url=url, headers=headers, timeout=timeout, limits=limits)

    def send(self, request: Request[Key, Found]) -> Found:
        """Send one request, and again where that can help.

        Raises:
            RefusedError: for a status that no second try changes.
            LevelheadError: where all tries fail; it says how the last one did.
        """
        for turn in range(self.tries):
            self._wait_turn()
            wait = 0.0
            try:
                status, headers, body = self._post(request)
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
            except self._http.TimeoutException:
                failure = f"no answer within {self.timeout:g} seconds"
            except self._http.TransportError as error:  # its text is not shown: it can hold a header
                failure = f"a broken connection ({type(error).__name__})"
            if wait > LONGEST_WAIT:
                raise LevelheadError(f"{request.name}: {failure}; the server asks to wait {wait:,.0f} seconds.")
            if turn + 1 == self.tries or self._stop.is_set():
                break
            with self._lock:
                self.repeats += 1
                self._next = max(self._next, time.monotonic() + wait) if wait else self._next
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**turn) * random.uniform(0.75, 1.25)
            self._stop.wait(max(wait, pause))
        times = f"{turn + 1} tries" if turn else "one try"
        raise LevelheadError(
            f"{request.name}: {failure}, after {times}. The same command resumes once the server answers."
        )

    def each(self, requests: Iterable[Request[Key, Found]]) -> Iterator[tuple[Key, Found]]:
        """Yield ``(key, what was read)`` of each request as it is done; several are under way at a time.

        After a failure no further request begins; those under way are yielded, then the failure is raised.
        """
        todo: queue.SimpleQueue[Request[Key, Found] | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[Key, Any]] = queue.SimpleQueue()

        def work() -> None:
            while (request := todo.get()) is not None:
                try:
                    done.put((request.key, self.send(request)))
                except BaseException as error:
                    done.put((request.key, error))

        self._stop.clear()
        failure: BaseException | None = None
        waiting, workers, feed = 0, 0, iter(requests)
        try:
            while True:
                while failure is None and waiting < self.concurrency and (request := next(feed, None)) is not None:
                    todo.put(request)
                    waiting += 1
                    if workers < waiting:  # daemons: Ctrl-C need not wait for a slow server
                        threading.Thread(target=work, daemon=True).start()
                        workers += 1
                if not waiting:
                    break
                key, found = done.get()
                waiting -= 1
                if isinstance(found, BaseException):
                    failure = failure or found
                    self._stop.set()
                else:
                    yield key, found
        finally:
            self._stop.set()
            for _ in range(workers):
                todo.put(None)
        self._stop.clear()
        if failure is not None:
            raise failure

    def _post(self, request: Request[Any, Any]) -> tuple[int, Any, bytes]:
        latest, body = time.monotonic() + self.timeout, bytearray()
        with self._client.stream("POST", request.path, json=request.payload) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > LONGEST_ANSWER:
                    raise UnreadableAnswerError(f"an answer of more than {LONGEST_ANSWER >> 20} MiB")
                if time.monotonic() > latest:
                    raise TimeoutError
        return response.status_code, response.headers, bytes(body)

    def _wait_turn(self) -> None:
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + self._gap
        self._stop.wait(begin - now)

    def _words(self, body: bytes, payload: Record) -> str:
        """Return a server's message if it holds neither the key nor a part of the prompt; otherwise nothing."""
        try:
            record = _object(body)
        except UnreadableAnswerError:
            return ""
        error = record.get("error", record)
        said = error.get("message") if isinstance(error, dict) else error
        said = printable(" ".join(str(said or "").split()), 160)
        prompt = json.dumps(payload, ensure_ascii=False)
        match = difflib.SequenceMatcher(None, said, prompt, autojunk=False).find_longest_match()
        secret = bool(self._key) and (self._key in said or self._key[:4] in said)
        return "" if secret or match.size >= SHARED_WORDS else said


def _object(body: bytes) -> Record:
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise UnreadableAnswerError("an answer that is no whole JSON object")
    return record


def _retry_after(headers: Any) -> float:
    """Return the seconds that a server asks to wait, 0 where it does not say."""
    said = str(headers.get("retry-after", "")).strip()
    try:
        return max(0.0, min(float(said), 1e9))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _library() -> Any:
    """Return the HTTP client that huggingface_hub brings: httpx, or httpx2 from its version 2 on."""
    for name in ("httpx2", "httpx"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigError("--endpoint needs an HTTP client: pip install 'levelhead[torch]', or httpx.")
