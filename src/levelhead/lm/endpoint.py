"""A model behind an OpenAI-compatible endpoint, asked as a :class:`~levelhead.lm.model.LanguageModel` is.

Log-likelihoods need the log-probabilities of the *prompt*: ``/completions`` with ``echo`` and ``logprobs``. Servers may
accept both and give none, or those of the generated token alone; every option would then score alike. So a made-up
sentence is scored first (:meth:`Endpoint.probe`), and each answer is read with the same care: its tokens must spell the
prompt, and each token that is scored needs a log-probability between -1,000 and 0: servers write -9999 and the like
where they know none.

The server tokenises. A token belongs to an option if it ends behind the context, so one that spans the boundary does.
Free answers come from ``/completions``, or, for dialogues, from ``/chat/completions``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from levelhead.lm.base import CUT, FILTERED, TOOL_CALL
from levelhead.lm.batches import gathered, name_of
from levelhead.lm.transport import RefusedError, Request, Transport, UnreadableAnswerError
from levelhead.types import ConfigError, DataError, LevelheadError, printable, quoted

PROBE = "The kettle stands on the table, and the lamp stands on the shelf."
CHAT_SCORES = "--chat at an endpoint gives free answers, and scores no options: --choose generate."
NO_SCORES = "With --choose generate BBQ reads free answers instead."
LEAST, MOST = -1000.0, 1e-4  # nats: of a token's log-probability; servers round


class Dialogue(str):
    """A prompt that is to be sent as a user's message, behind a ``system`` prompt if there is one."""

    system = ""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages of a request."""
        before = [{"role": "system", "content": self.system}] if self.system else []
        return [*before, {"role": "user", "content": str(self)}]


@dataclass
class Usage:
    """Requests and tokens, as the server counts them; ``uncounted`` requests came without counts, or negative ones.

    ``repeats``: second tries.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    repeats: int = 0

    def __str__(self) -> str:
        """Say it in a sentence."""
        again = f" ({self.repeats:,} asked again)" if self.repeats else ""
        tokens = f"{self.prompt_tokens:,} prompt and {self.completion_tokens:,} completion tokens"
        lacking = f"; the server gave no usable counts for {self.uncounted:,}" if self.uncounted else ""
        return f"{self.requests:,} requests{again}: {tokens}{lacking}."


class Endpoint:
    """A causal model at ``url`` (up to ``/v1``), by its ``model`` name there.

    ``key`` is sent as a bearer token. ``begin_with`` is put before a text that has no context, and is not scored:
    servers that add no beginning-of-sequence token give the first token of a text no log-probability. Other options
    are those of :class:`~levelhead.lm.transport.Transport`.

    Raises :class:`~levelhead.types.ConfigError` for an address that is none, or that holds a name or a password.
    """

    causal, has_chat_template = True, False

    def __init__(self, url: str, model: str, *, key: str = "", begin_with: str = "", **options: Any) -> None:
        self.url, self.name, self.begin_with = _address(url), model, begin_with
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                "The key of --endpoint has characters that are not allowed in a header: check the variable."
            )
        self._transport = Transport(self.url, key, **options)
        self._usage, self._served = Usage(), ""
        self._scores_first: bool | None = None  # whether the first token of a text has a score: the probe tells
        self._spelling: dict[str, str] = {}  # of optional fields that this server knows by another name, or not ("")

    def fingerprint(self) -> str:
        """Return a hash of address, model name and ``begin_with``: what is served under a name cannot be known."""
        return hashlib.blake2b("\n".join((self.url, self.name, self.begin_with)).encode(), digest_size=16).hexdigest()

    @property
    def place(self) -> str:
        """The server's name, and its port."""
        return urlsplit(self.url).netloc

    @property
    def unencrypted(self) -> bool:
        """Whether what is sent can be read on its way: no https, and another machine."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")

    @property
    def beginning(self) -> str:
        """A sentence for notes: who was asked, and what stands before a text."""
        behind = f"; a text without a context is read behind {quoted(self.begin_with)}" if self.begin_with else ""
        left = [name for name in ("temperature", "seed", "top_p") if self._spelling.get(name) == ""]
        drawn = f" It takes no {' and no '.join(left)}: another run may get other answers." if left else ""
        return f"Asked at {self.place}, where the server makes the tokens{behind}.{drawn}"

    @property
    def told(self) -> dict[str, Any]:
        """What results record of the endpoint: the model's name as the server gives it."""
        return {"served": self._served or self.name}

    def probe(self) -> None:
        """Score a made-up sentence.

        Raises :class:`~levelhead.types.ConfigError` with the reason if the server gives no log-probabilities of a
        prompt.
        """
        if self._scores_first is not None:
            return
        try:
            probe = replace(self._echo(None, PROBE, "The probe of --endpoint"), patient=False)
            first, *others = self._transport.send(probe)
        except RefusedError as error:
            raise ConfigError(f"{error} It gives no log-probabilities of a prompt. {NO_SCORES}") from None
        except LevelheadError as error:
            reason = str(error).rstrip(".")
            raise ConfigError(f"No option can be scored at this endpoint: {reason}. {NO_SCORES}") from None
        values = [value for *_, value in others if _is_score(value)]
        if len(values) < max(4, len(others)) or sum(values) > -1:
            raise ConfigError(
                f"The endpoint gives no real log-probabilities of a prompt: a sentence of {len(PROBE.split())} words "
                f"has {len(others) + 1} tokens with {len(values)} numbers. {NO_SCORES}"
            )
        self._scores_first = _is_score(first[2])

    def option_log_likelihoods(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], names: Sequence[str] | None = None
    ) -> Iterator[tuple[int, list[tuple[float, int]]]]:
        """Yield ``(index, [(log-probability of the option given the context, its tokens), ...])`` as items are done.

        Raises:
            ConfigError: if the endpoint gives no log-probabilities of a prompt, for dialogues, and for texts without a
                context whose first token has no score.
            LevelheadError: if an item gets no readable answer, by name.
        """
        if any(isinstance(context, Dialogue) for context in contexts):
            raise ConfigError(CHAT_SCORES)
        self.probe()
        if not all(contexts) and not (self.begin_with or self._scores_first):
            raise ConfigError(
                "The endpoint gives the first token of a text no log-probability, and sentences can differ there: give "
                "--begin-with a token that texts begin with, e.g. '<|endoftext|>'."
            )
        yield from ((index, []) for index, more in enumerate(options) if not more)
        counts = {index: len(more) for index, more in enumerate(options)}
        yield from gathered(self._transport.each(self._asked(contexts, options, names)), counts)

    def generate(
        self,
        prompts: Sequence[str],
        *,
        seed: int,
        max_new_tokens: int,
        greedy: bool = False,
        names: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, str]]:
        """Yield ``(index, continuation)`` as they come; a seed is sent, and a server need not heed it."""

        def requests() -> Iterator[Request[int, str]]:
            for index, prompt in enumerate(prompts):
                digest = hashlib.blake2b(f"{seed}\n{prompt}".encode(), digest_size=4).digest()
                payload: dict[str, Any] = {
                    "model": self.name,
                    "max_tokens": max_new_tokens,
                    "temperature": 0 if greedy else 1,
                    "seed": int.from_bytes(digest, "big") >> 1,
                } | ({} if greedy else {"top_p": 1})  # servers take another from the checkpoint's own settings
                chat = isinstance(prompt, Dialogue)
                payload |= {"messages": prompt.messages} if isinstance(prompt, Dialogue) else {"prompt": prompt}
                path = "chat/completions" if chat else "completions"
                yield Request(index, path, self._spelt(payload), self._text, name_of(names, index))

        feed = requests()
        self._agree(next(requests(), None))
        yield from self._transport.each(feed)

    def dialogues(self, prompts: Sequence[str], system: str = "") -> list[str]:
        """Return each prompt as a user's message; the server has the template."""
        found = [Dialogue(prompt) for prompt in prompts]
        for one in found:
            one.system = system
        return [*found]

    def window_log_likelihoods(self, *_: Any, **__: Any) -> Iterator[tuple[int, tuple[float, int]]]:
        """Raise: windows need the model's tokens."""
        raise ConfigError("Perplexity reads windows of tokens, and an endpoint does not show its tokens: give --model.")

    @property
    def used(self) -> Usage:
        """What was used so far."""
        return replace(self._usage, repeats=self._transport.repeats)

    def _spelt(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return fields by their names at this server, without those that it does not take."""
        return {name: value for known, value in payload.items() if (name := self._spelling.get(known, known))}

    def _agree(self, request: Request[Any, str] | None) -> None:
        """Send a made-up prompt in the form of ``request``: rename or drop the fields that the server refuses."""
        if request is None or "agreed" in self._spelling:
            return
        for _ in range(4):
            payload = self._spelt(request.payload)
            payload |= {"messages": Dialogue(PROBE).messages} if "messages" in payload else {"prompt": PROBE}
            try:
                self._transport.send(Request(None, request.path, payload, self._text, "The probe of --endpoint"))
            except RefusedError as error:
                refused = next(
                    (name for name in ("top_p", "max_tokens", "temperature", "seed") if name in error.words), ""
                )
                if error.status != 400 or not refused or refused in self._spelling:
                    hint = " Is it chat-only? Then add --chat." if request.path == "completions" else ""
                    raise ConfigError(f"{error} It gives no free answers here.{hint}") from None
                self._spelling[refused] = "max_completion_tokens" if refused == "max_tokens" else ""
            else:
                break
        self._spelling["agreed"] = "agreed"

    def _asked(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], names: Sequence[str] | None
    ) -> Iterator[Request[tuple[int, int], tuple[float, int]]]:
        for index, (context, more) in enumerate(zip(contexts, options, strict=True)):
            for place, option in enumerate(more):
                name = name_of(names, index)
                if not option:
                    raise DataError(f"Option {place} of item {name} has no tokens: there is nothing to score.")
                before = context or self.begin_with
                echo = self._echo((index, place), before + option, name)
                read = partial(_scored, read=echo.read, behind=len(before))
                yield Request(echo.key, echo.path, echo.payload, read, echo.name)

    def _echo(self, key: Any, text: str, name: str) -> Request[Any, list[tuple[int, int, float | None]]]:
        payload = {"model": self.name, "prompt": text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        return Request(key, "completions", payload, partial(self._spans, text=text), name)

    def _spans(self, record: dict[str, Any], text: str) -> list[tuple[int, int, float | None]]:
        """Return begin and end in ``text``, and log-probability, of each token of a prompt."""
        choice = self._choice(record)
        given = choice.get("logprobs")
        if not isinstance(given, dict):
            raise UnreadableAnswerError("echo and logprobs are accepted, and no logprobs are given")
        tokens, values, offsets = (given.get(name) for name in ("tokens", "token_logprobs", "text_offset"))
        if not (isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values)):
            raise UnreadableAnswerError("the logprobs are not of the prompt: no tokens with as many token_logprobs")
        if any(isinstance(value, bool) or not isinstance(value, int | float | None) for value in values):
            raise UnreadableAnswerError("token_logprobs hold something that is no number")
        begins = _begins(list(map(str, tokens)), offsets, str(choice.get("text", "")), text)
        spans = zip(begins[:-1], begins[1:], values, strict=True)
        found = [(begin, end, value) for begin, end, value in spans if end > 0 and begin < len(text)]
        if not found:
            raise UnreadableAnswerError("no token lies within the prompt")
        return found

    def _choice(self, record: dict[str, Any]) -> dict[str, Any]:
        choices = record.get("choices")
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            raise UnreadableAnswerError("an answer without choices")
        usage = record.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens") or 0
        self._served = printable(str(record.get("model") or self._served), 100)
        self._usage.requests += 1
        if type(prompt) is type(completion) is int and 0 <= min(prompt, completion) <= max(prompt, completion) < 2**53:
            self._usage.prompt_tokens += prompt
            self._usage.completion_tokens += completion
        else:
            self._usage.uncounted += 1
        return choices[0]

    def _text(self, record: dict[str, Any]) -> str:
        choice = self._choice(record)
        message = choice.get("message")
        text = choice.get("text")
        if isinstance(message, dict):  # a refusal has a field of its own
            text = message.get("content") or message.get("refusal") or ""
        if isinstance(text, list):  # parts, as some servers write
            text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
        if not isinstance(text, str):
            raise UnreadableAnswerError("a choice without a text")
        ending = choice.get("finish_reason")
        if text.strip():
            return text
        calls = isinstance(message, dict) and message.get("tool_calls")
        return FILTERED if ending == "content_filter" else TOOL_CALL if calls else CUT if ending == "length" else text


def _begins(tokens: list[str], offsets: Any, echoed: str, text: str) -> list[int]:
    """Return where each token begins in ``text``, and where the last one ends; before the text: below 0.

    Raises :class:`UnreadableAnswerError` if the tokens do not spell the text, so that it was not echoed.
    """
    for spelt in (tokens, [token.replace("▁", " ").replace("Ġ", " ").replace("Ċ", "\n") for token in tokens]):
        shift = "".join(spelt).find(text)
        if shift >= 0:
            begins = [0]
            for token in spelt:
                begins.append(begins[-1] + len(token))
            return [begin - shift for begin in begins]
    # Tokens that are parts of a character spell nothing; then where they begin must be told, in an echoed text.
    shift = echoed.find(text)
    whole = isinstance(offsets, list) and len(offsets) == len(tokens) and all(type(at) is int for at in offsets)
    if shift < 0 or not whole or offsets != sorted(offsets) or not offsets:
        raise UnreadableAnswerError("the tokens of the answer do not spell the prompt, so it was not echoed whole")
    return [at - shift for at in offsets] + [max(len(echoed), offsets[-1]) - shift]


def _scored(record: dict[str, Any], read: Any, behind: int) -> tuple[float, int]:
    """Return the sum of the log-probabilities, and the number, of the tokens that end behind a context."""
    values = [value for _, end, value in read(record) if end > behind]
    if not values or not all(map(_is_score, values)):
        raise UnreadableAnswerError("a token of the option has no log-probability, or none between -1,000 and 0")
    if len(values) > 2 and not any(values):
        raise UnreadableAnswerError("every log-probability is 0")
    return math.fsum(values), len(values)


def _is_score(value: float | None) -> TypeGuard[float]:
    return value is not None and LEAST <= value <= MOST


def _address(url: str) -> str:
    parts = urlsplit(url.strip())
    more = parts.username or parts.password or parts.query or parts.fragment
    try:
        plain = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not more
    except ValueError:
        plain = False
    if not plain:
        raise ConfigError(
            "--endpoint must be an address such as http://localhost:8000/v1, without a query, a name or a password: "
            "the key goes into the variable LEVELHEAD_API_KEY."
        )
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat")
    return f"{parts.scheme}://{parts.netloc}{path}/"
