"""An OpenAI-compatible endpoint, asked on loopback: a server that answers well, or in each of the wrong ways."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from test_bbq import record, write
from test_model import whole_scores

from command_line import run, said
from levelhead.lm import transport
from levelhead.lm.base import CUT, FILTERED
from levelhead.lm.bbq import BBQ
from levelhead.lm.endpoint import PROBE, Dialogue, Endpoint
from levelhead.lm.runner import run_benchmark
from levelhead.types import ConfigError, DataError, LevelheadError

KEY = "sk-very-secret-key"
Reply = tuple[int, Any, dict[str, str]]


def tokens_of(text: str) -> list[str]:
    return re.findall(r"\s?\w+|\s?[^\w\s]|\s", text)


def value_of(token: str) -> float:
    return -0.5 - (sum(map(ord, token)) % 40) / 10


def completion(payload: dict[str, Any]) -> dict[str, Any]:
    """What a server of the full interface answers."""
    usage = {"prompt_tokens": 7, "completion_tokens": 1}
    if "messages" in payload:
        message = {"role": "assistant", "content": "Answer: B"}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    if not payload.get("echo"):
        return {"choices": [{"text": " Answer: (b)", "finish_reason": "stop"}], "usage": usage}
    tokens = tokens_of(payload["prompt"])
    values = [None, *map(value_of, tokens[1:]), -0.3]
    tokens = [*tokens, " more"]
    offsets = [sum(map(len, tokens[:at])) for at in range(len(tokens))]
    logprobs = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets, "top_logprobs": None}
    return {"choices": [{"text": "".join(tokens), "logprobs": logprobs}], "usage": usage}


class Server:
    """``reply`` answers each request (None: as it should be); requests are kept with their headers."""

    def __init__(self) -> None:
        self.reply: Callable[[dict[str, Any], int], Reply | None] = lambda payload, number: None
        self.seen: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.most = self.now = 0
        self.pause = 0.0
        lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.seen.append((self.path, payload, dict(self.headers)))
                    number = len(outer.seen)
                    outer.now += 1
                    outer.most = max(outer.most, outer.now)
                time.sleep(outer.pause)
                status, body, headers = outer.reply(payload, number) or (200, completion(payload), {})
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                with lock:
                    outer.now -= 1
                try:
                    self.send_response(status)
                    for name, value in ({"Content-Length": str(len(content))} | headers).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    pass  # the client has left

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def texts(self) -> list[str]:
        return [payload.get("prompt") or payload["messages"][-1]["content"] for _, payload, _ in self.seen]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.001)
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def asked(server: Server, **options: Any) -> Endpoint:
    return Endpoint(server.url, "model", **({"tries": 3, "timeout": 5.0} | options))


def test_options_are_scored_behind_their_context(server: Server) -> None:
    options = [[" lamp", " red kettle"], [" lamp"], []]
    found = dict(asked(server).option_log_likelihoods(["It is the", "So a", "No"], options))
    lamp, red, kettle = map(value_of, (" lamp", " red", " kettle"))
    assert found[0] == [(pytest.approx(lamp), 1), (pytest.approx(red + kettle), 2)]
    assert found[1] == [(pytest.approx(lamp), 1)]
    assert found[2] == []
    assert server.seen[0][0] == "/v1/completions"
    assert server.texts()[0] == PROBE
    ((_, across),) = asked(server).option_log_likelihoods(["The lam"], [["p burns"]])
    assert across == [(pytest.approx(value_of(" lamp") + value_of(" burns")), 2)]  # a token across the boundary
    assert Endpoint("http://a:1/v1/chat/completions", "m").url == "http://a:1/v1/"
    assert [Endpoint(url, "m").unencrypted for url in ("http://a/v1", "https://a/v1")] == [True, False]


def test_a_text_without_context_needs_a_score_of_its_first_token(server: Server) -> None:
    with pytest.raises(ConfigError, match="--begin-with"):
        whole_scores(asked(server), ["The lamp"])
    found = whole_scores(asked(server, begin_with="#"), ["The lamp", "A lamp"])
    assert found == pytest.approx([value_of(first) + value_of(" lamp") for first in ("The", "A")])

    def with_bos(payload: dict[str, Any], number: int) -> Reply:
        answer = completion(payload)
        logprobs = answer["choices"][0]["logprobs"]
        logprobs["token_logprobs"][0] = -1.25
        logprobs["tokens"].insert(0, "<s>")
        logprobs["token_logprobs"].insert(0, None)
        return 200, answer, {}

    server.reply = with_bos
    assert whole_scores(asked(server), ["The lamp"]) == pytest.approx([-1.25 + value_of(" lamp")])


def test_tokens_that_spell_no_characters_are_placed_by_their_offsets(server: Server) -> None:
    def bytes_for_a_letter(payload: dict[str, Any], number: int) -> Reply | None:
        if "ü" not in payload["prompt"]:
            return None
        logprobs = {
            "tokens": ["Die", " T", "bytes:\\xc3", "bytes:\\xbc", "r", "x"],
            "token_logprobs": [None, -1.0, -2.0, -3.0, -4.0, -9.0],
            "text_offset": [0, 3, 5, 5, 6, 7],
        }
        return 200, {"choices": [{"text": "Die Türx", "logprobs": logprobs}]}, {}

    server.reply = bytes_for_a_letter
    reached = asked(server)
    assert dict(reached.option_log_likelihoods(["Die"], [[" Tür"]]))[0] == [(-10.0, 4)]
    assert reached.used.uncounted == 1


NOTHING = {"choices": [{"text": "", "logprobs": None}]}
LAST = {"choices": [{"text": "x", "logprobs": {"tokens": ["x"], "token_logprobs": [-1.0]}}]}


def zeros(payload: dict[str, Any]) -> dict[str, Any]:
    answer = completion(payload)
    answer["choices"][0]["logprobs"]["token_logprobs"] = [0.0] * (len(tokens_of(payload["prompt"])) + 1)
    return answer


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda payload: (200, NOTHING, {}), "echo and logprobs are accepted, and no logprobs are given"),
        (lambda payload: (200, LAST, {}), "do not spell the prompt"),
        (lambda payload: (200, zeros(payload), {}), "no real log-probabilities"),
        (lambda payload: (200, {"choices": []}, {}), "an answer without choices"),
        (lambda payload: (200, b"<html>hello</html>", {}), "no whole, uncompressed JSON object"),
        (lambda payload: (400, {"error": {"message": "echo is not supported"}}, {}), "echo is not supported"),
        (lambda payload: (404, b"gone", {}), "status 404"),
        (lambda payload: (401, {"error": {"message": f"bad key {KEY}"}}, {}), "status 401"),
        (lambda payload: (307, b"", {"Location": "http://127.0.0.1:9/"}), "status 307"),
        (lambda payload: (503, {"error": "busy"}, {}), r"status 503 \(busy\), after 3 tries"),
    ],
)
def test_a_server_without_log_probabilities_is_refused_with_the_reason(
    server: Server, reply: Callable[[Any], Reply], message: str
) -> None:
    server.reply = lambda payload, number: reply(payload)
    with pytest.raises(ConfigError, match=message) as caught:
        next(asked(server, key=KEY).option_log_likelihoods(["a"], [[" b"]]))
    assert KEY not in str(caught.value)
    assert "--choose generate" in str(caught.value)


def test_passing_failures_are_asked_again(server: Server) -> None:
    faults: list[Reply] = [
        (429, {"error": {"message": "slow down"}}, {"Retry-After": "0.2"}),
        (500, b"", {}),
        (200, b'{"choices": [{"te', {}),
        (200, b"{}", {"Content-Length": "900"}),  # half an answer: the connection ends before
    ]
    server.reply = lambda payload, number: faults.pop() if faults and payload["prompt"] != PROBE else None
    reached = asked(server, concurrency=1, tries=6)
    began = time.monotonic()
    assert dict(reached.option_log_likelihoods(["a"], [[" b"]]))[0] == [(pytest.approx(value_of(" b")), 1)]
    assert time.monotonic() - began > 0.2
    used = reached.used
    assert (used.repeats, used.requests) == (4, 2)
    assert "4 asked again" in str(used)


def test_a_slow_server_times_out_and_the_item_is_named(server: Server) -> None:
    reached = asked(server, timeout=1.5, tries=2)
    reached.probe()
    server.pause = 3.0
    with pytest.raises(LevelheadError, match=r"Things/3: no answer within 1\.5 seconds, after 2 tries.*resumes"):
        list(reached.option_log_likelihoods(["a"], [[" b"]], ["Things/3"]))
    reached = asked(server)
    server.pause = 0.0
    server.reply = lambda payload, number: (429, b"", {"Retry-After": "86400"})
    with pytest.raises(LevelheadError, match="asks to wait 86,400 seconds"):
        list(reached.generate(["a"], seed=0, max_new_tokens=3))


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_trickle_of_bytes_ends_with_the_time_of_the_request(where: str) -> None:
    """Each byte comes within the timeout, the answer does not."""
    trickle = b"HTTP/1.1 200 OK\r\nX: " if where == "header" else b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            with listening.accept()[0] as client, contextlib.suppress(OSError):
                client.sendall(trickle)
                for _ in range(40):  # 8 s at most
                    client.sendall(b"a")
                    time.sleep(0.2)

        threading.Thread(target=drip, daemon=True).start()
        reached = Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "model", tries=1, timeout=1.0)
        began = time.monotonic()
        with pytest.raises(ConfigError, match="no answer within 1 seconds, after one try"):
            reached.probe()
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd"])
def test_an_encoding_that_lies_does_no_harm_and_no_cookie_is_kept(server: Server, encoding: str) -> None:
    headers = {"Content-Encoding": encoding, "Set-Cookie": "a=\x80"}
    server.reply = lambda payload, number: (200, completion(payload), headers)
    assert dict(asked(server).option_log_likelihoods(["a"], [[" b"]]))[0] == [(pytest.approx(value_of(" b")), 1)]
    assert {sent["Accept-Encoding"] for *_, sent in server.seen} == {"identity"}
    assert not any("Cookie" in sent for *_, sent in server.seen)
    packed = gzip.compress(bytes(2**22))  # never unpacked
    server.reply = lambda payload, number: (200, packed, {"Content-Encoding": encoding})
    with pytest.raises(ConfigError, match=r"no whole, uncompressed JSON object"):
        asked(server).probe()


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, (5, 2, 0)),
        ({"prompt_tokens": 5}, (5, 0, 0)),
        ({"prompt_tokens": -5, "completion_tokens": 2}, (0, 0, 1)),
        ({"prompt_tokens": 5, "completion_tokens": -2}, (0, 0, 1)),
        ({"prompt_tokens": 10**400, "completion_tokens": 2}, (0, 0, 1)),
        ({"prompt_tokens": True, "completion_tokens": 2}, (0, 0, 1)),
        ([5, 2], (0, 0, 1)),
    ],
)
def test_usage_that_cannot_be_is_not_counted(server: Server, usage: Any, counted: tuple[int, int, int]) -> None:
    server.reply = lambda payload, number: (200, completion(payload) | {"usage": usage}, {})
    reached = asked(server)
    reached.probe()
    used = reached.used
    assert (used.prompt_tokens, used.completion_tokens, used.uncounted) == counted
    assert ("no usable counts for 1" in str(used)) == bool(counted[2])


PLACES = [
    {"tokens": ["\ufffd"] * 3, "text_offset": [at] * 3, "token_logprobs": [-1.0] * 3} for at in (10**400, True, 1.0)
]
VALUES = [{"token_logprobs": [None, bad, -0.3]} for bad in (None, float("nan"), 0.5, "x", -(10**400), -1e308, -9999.0)]


@pytest.mark.parametrize("spoilt", [*PLACES, *VALUES])
def test_a_half_answer_is_never_scored(server: Server, spoilt: dict[str, Any]) -> None:
    def reply(payload: dict[str, Any], number: int) -> Reply | None:
        answer = completion(payload)
        if payload["prompt"] != PROBE:
            answer["choices"][0]["logprobs"] |= spoilt
        return 200, answer, {}

    server.reply = reply
    with pytest.raises(LevelheadError, match=r"Things/3: .*after 3 tries"):
        list(asked(server).option_log_likelihoods(["a"], [[" b"]], ["Things/3"]))


def test_what_was_answered_before_a_failure_is_kept(server: Server, tmp_path: Path) -> None:
    write(tmp_path, [record(row) for row in range(8)])
    answered = threading.Semaphore(9)  # the probe, and two items and a bit

    def breaks(payload: dict[str, Any], number: int) -> Reply | None:
        return None if answered.acquire(blocking=False) else (500, b"", {})

    server.reply = breaks
    with pytest.raises(LevelheadError, match="after 3 tries"):
        run_benchmark(BBQ(), asked(server, concurrency=1), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    kept = (tmp_path / "run" / "answers-bbq.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(kept) == 3  # the header and two items
    server.reply, server.seen[:] = lambda payload, number: None, []
    run_benchmark(BBQ(), asked(server), tmp_path, tmp_path / "run")
    assert len(server.seen) == 1 + 6 * 3


def test_requests_run_side_by_side_within_their_limits(server: Server) -> None:
    server.pause = 0.3
    reached = asked(server, concurrency=4)
    found = dict(reached.generate([f"prompt {at}" for at in range(12)], seed=0, max_new_tokens=3))
    assert sorted(found) == list(range(12))
    assert server.most == 4


def test_free_answers_come_from_a_chat_where_one_is_wanted(server: Server) -> None:
    reached = asked(server)
    prompts = reached.dialogues(["Who was it?"], "Be brief.")
    assert dict(reached.generate(prompts, seed=0, max_new_tokens=9, greedy=True)) == {0: "Answer: B"}
    path, payload, _ = server.seen[-1]
    assert path == "/v1/chat/completions"
    assert payload["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who was it?"},
    ]
    assert payload["temperature"] == 0
    assert payload["max_tokens"] == 9
    list(reached.generate(["a"], seed=0, max_new_tokens=9))
    assert (server.seen[-1][1]["temperature"], server.seen[-1][1]["top_p"]) == (1, 1)  # the whole distribution
    with pytest.raises(ConfigError, match="--choose generate"):
        next(reached.option_log_likelihoods([Dialogue("a")], [[" b"]]))


def test_fields_that_a_server_refuses_are_renamed_or_left_out(server: Server) -> None:
    def newer(payload: dict[str, Any], number: int) -> Reply | None:
        for name in ("top_p", "max_tokens", "temperature"):
            if name in payload:
                return 400, {"error": {"message": f"Unsupported: '{name}'. See the manual."}}, {}
        return None

    server.reply = newer
    reached = asked(server)
    assert len(dict(reached.generate(reached.dialogues(["a", "b"]), seed=0, max_new_tokens=9))) == 2
    assert {"max_completion_tokens", "seed"} < server.seen[-1][1].keys()
    assert "takes no temperature and no top_p: another run may get other answers." in reached.beginning
    assert "takes no" not in asked(server).beginning
    server.reply = lambda payload, number: (404, b"", {})
    with pytest.raises(ConfigError, match="--chat"):
        list(asked(server).generate(["a"], seed=0, max_new_tokens=9))


def test_withheld_empty_and_refused_answers_are_texts(server: Server) -> None:
    choices = [
        {"message": {"content": None}, "finish_reason": "content_filter"},
        {"message": {"content": None, "refusal": "I refuse."}, "finish_reason": "stop"},
        {"message": {"content": "", "reasoning_content": "B"}, "finish_reason": "length"},
        {"message": {"content": [{"type": "text", "text": "B"}]}, "finish_reason": "stop"},
    ]
    server.reply = lambda payload, number: (200, {"choices": [choices[(number - 2) % 4]], "usage": None}, {})
    reached = asked(server, concurrency=1)
    found = dict(reached.generate(reached.dialogues(list("abcd")), seed=0, max_new_tokens=9))
    assert [found[at] for at in range(4)] == [FILTERED, "I refuse.", CUT, "B"]
    assert reached.used.uncounted == 5


def test_the_key_is_sent_and_stands_nowhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [record(row) for row in range(8)])
    out, json_file, html = tmp_path / "run", tmp_path / "out.json", tmp_path / "out.html"
    line = ["lm", "bench", "bbq", "--endpoint", server.url, "--api-model", "model", "--data-root", tmp_path]
    line += ["--out", out, "--json", json_file, "--html", html]
    monkeypatch.setenv("LEVELHEAD_API_KEY", KEY)
    assert run(*line) == 0
    printed = said(capsys)
    assert {headers.get("Authorization") for *_, headers in server.seen} == {f"Bearer {KEY}"}
    assert "At most 24 texts scored" in printed
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 5
    assert not any(KEY.encode() in path.read_bytes() for path in files)
    assert KEY not in printed
    assert "Asked this time: 25 requests" in printed
    assert json.loads(json_file.read_text(encoding="utf-8"))["usage"]["requests"] == 25


@pytest.mark.parametrize(
    "words",
    [
        KEY[-20:],
        KEY[-4:],
        KEY[:4],
        KEY.upper()[-6:],
        KEY[::-1],
        " ".join(KEY[-6:]),
        "\u200b".join(KEY[-6:]),
        "ｓｅｃｒｅｔ",
    ],
)
def test_no_part_of_the_key_is_shown(server: Server, words: str) -> None:
    server.reply = lambda payload, number: (401, {"error": {"message": f"Wrong: {words}"}}, {})
    with pytest.raises(ConfigError, match=r"status 401\. It") as caught:
        asked(server, key=KEY).probe()
    assert "Wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Ann Lee", "Wrong: Ann Lee"),
        ("Ann Lee", "Wrong: A-N-N L-E-E"),
        ("Who was late, Ann or Tom?", "NO WAS LATE, ANN OR"),
        ("The lamp was late again", "too long: The lamp was late again\x1b[2J"),
    ],
)
def test_short_and_changed_prompts_are_not_shown(server: Server, prompt: str, words: str) -> None:
    server.reply = lambda payload, number: (
        None if PROBE in server.texts()[number - 1] else (400, {"error": {"message": words}}, {})
    )
    for dialogue in (False, True):
        reached = asked(server)
        prompts = reached.dialogues([prompt]) if dialogue else [prompt]
        with pytest.raises(LevelheadError, match=r"status 400\.$"):
            list(reached.generate(prompts, seed=0, max_new_tokens=3))
    with pytest.raises(LevelheadError, match=r"Things/1: the server answers with status 400"):
        list(asked(server).option_log_likelihoods([prompt], [[" b"]], ["Things/1"]))
    with pytest.raises(LevelheadError, match=r"status 400 \((?:Wrong|NO|too long)"):
        list(asked(server).generate(["Nobody came by"], seed=0, max_new_tokens=3))
    with pytest.raises(DataError, match="no tokens"):
        list(asked(server).option_log_likelihoods(["a"], [[""]]))
    with pytest.raises(ConfigError, match="give --model"):
        asked(server).window_log_likelihoods(["a"])
