"""Every option of every command with values that nobody should type: a result or one sentence, soon, nothing lost.

The options come from the commands themselves, so that a new one is covered without a new line. A new command needs a
line in :data:`LINES`.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import shutil
import signal
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any

import pytest
from shares import cases

from command_line import VERBS, run
from words import save_tiny_backbone, word_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("no_hub")]

LONGEST = 10  # seconds of the processor that a command may take
STUCK = 120  # seconds of the clock after which it waits for something that never comes
NUMBERS = ["0", "-1", "1", "1.5", "nan", "inf", "-inf", "1e-320", "1e308", str(10**19), "1e", "", " ", "٣", "0x10"]
TEXTS = ["", " ", "-1", "1e308", "a=nan\n٣", "=", "pipe"]
PATHS = ["pipe", "folder", "no/such", "empty", "a\nb", "", "given/run/metrics.json"]
RAW = re.compile(r"Traceback|\[Errno|<class '|object at 0x|\b[A-Z]\w+(Error|Exception)\b|invalid literal|must be real")
WRITTEN = re.compile(r"^(predictions-|evaluation-|last-layer-|README\.md|\.lock)|\.(png|svg)$")  # may change in a run

SMALL = "data={name: portraits, train_size: 32, validation_size: 32, test_size: 80, correlation: 0.5}"
NETWORK = "model={hidden_size: 16, layers: 2, heads: 2}"
TRAIN = "train={epochs: 1, batch_size: 16, device: cpu, threads: 1}"
RECIPE = [SMALL, NETWORK, TRAIN]
COLUMNS = {"label": "y", "groups": "g"}
RUNS = {"runs": ["given/run", "given/run-1"], "min_count": "1"}
LINES: dict[str, list[dict[str, Any]]] = {
    "app": [{}],
    "apply": [{"rule": "given/rule.json", "rows": "given/rows.csv", "out": "decided.csv"}],
    "audit": [
        COLUMNS | {"predictions": "given/rows.csv", "prediction": "d"},
        COLUMNS | {"predictions": "given/rows.csv", "score": "p", "threshold": "0.5"},
        COLUMNS | {"predictions": "given/rows.csv", "prediction": "d", "along": "p"},
    ],
    "indirect-audit": [
        {"predictions": "given/rows.csv", "label": "y", "prediction": "d", "labelled_group": "g", "proxy": "p"},
        {"predictions": "given/rows.csv", "prediction": "d", "shares": "a=0.5"},
        COLUMNS | {"predictions": "given/rows.csv", "prediction": "d", "randomized_response": "epsilon=1"},
        {"predictions": "given/rows.csv", "prediction": "d", "proxy_probabilities": "a=p"},
    ],
    "plan": [{"gap": "5", "rate": "0.3", "shares": "0.5,0.5", "comparisons": "1"}, {"rows": "200", "rate": "0.3"}],
    "compare": [{"data": "portraits", "methods": "erm", "seeds": "0", "settings": RECIPE}],
    "data check": [{"recipe": "portraits_erm", "settings": RECIPE}],
    "demo": [{}],
    "evaluate": [{"run": "given/run"}],
    "explain": [COLUMNS | {"scores": "given/rows.csv", "score": "p"}],
    "figure": [{"run": "given/run"}],
    "info": [{}],
    "init": [{"path": "given/texts.csv"}],
    "inspect": [{"runs": ["given/run", "given/run-1"], "permutations": "39"}],
    "list": [{"kind": "methods"}],
    "lm bench": [
        {"benchmarks": "bbq", "predictions": "given/answers.jsonl", "data_root": "given"},
        {"benchmarks": "perplexity", "model": "given/lm", "file": "given/documents.txt", "out": "bench"},
    ],
    "lm compare": [{"models": ["given/bench", "given/bench-1"]}],
    "lm gap": [{"model": "given/lm", "out": "gap", "triplets": "given/triplets.csv"}],
    "lm train": [{"recipe": "given/klaad.yaml", "triplets": "given/triplets.csv", "out": "klaad"}],
    "postprocess": [
        COLUMNS | {"scores": "given/rows.csv", "score": "p", "metric": "demographic_parity", "rule": "rule.json"},
    ],
    "predict": [{"run": "given/run", "file": "given/rows.csv", "out": "predictions.csv"}],
    "pretrain": [{"recipe": "given/pretraining.yaml", "out": "given/pretrained"}],
    "refit": [{"run": "given/run", "methods": "few-label", "options": ["method.rows=16"], "out": "refit"}],
    "report": [{"source": "given/run", "html_file": "page.html"}],
    "reproduce": [{"what": "table2", "data_root": "folder"}],
    "table": [RUNS],
    "train": [{"recipe": "portraits_erm", "settings": RECIPE, "out": "given/run"}],
}
"""A line for each command, as values of its parameters; of several, an option is tried in the first that names it."""

CHECKED = {"compare": 1, "demo": 1, "predict": 2, "pretrain": 2, "reproduce": 2, "train": 2}
"""Status of the lines that end at the last check, before a long work; the others end with a result."""


class Late(BaseException):
    """A command took too long; no ``except`` of a command catches it."""


def kind_of(annotation: Any) -> type:
    """Return the type of one value: of ``list[Path] | None``, Path."""
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is typing.Union:
        annotation = next(one for one in typing.get_args(annotation) if one is not type(None))
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else annotation


def words_of(verb: str, values: dict[str, Any]) -> list[str]:
    """Return a command line: options first, so that a value may begin with a dash."""
    options, arguments = [], []
    for one in VERBS[verb].params:
        value = values.get(one.name, [])
        many = [value] if isinstance(value, str) else value
        if one.param_type_name == "argument":
            arguments += many
        else:
            options += [f"{one.opts[0]}={each}" for each in many]
    assert values.keys() <= {one.name for one in VERBS[verb].params}
    return [*verb.split(), *options, "--", *arguments]


def lines_of(verb: str) -> list[list[str]]:
    """Return the lines of a command with one value replaced, in an order that is always the same."""
    hints = typing.get_type_hints(inspect.unwrap(VERBS[verb].callback))
    found = []
    for one in VERBS[verb].params:
        kind = kind_of(hints[one.name])
        if kind is bool or issubclass(kind, Enum):
            continue
        values = NUMBERS if kind in (int, float) else PATHS if kind is Path else TEXTS
        row = next((row for row in LINES[verb] if one.name in row), LINES[verb][0])
        found += [words_of(verb, {**row, one.name: value}) for value in values]
    random.Random(verb).shuffle(found)
    return found


@contextmanager
def watched() -> Iterator[None]:
    def late(*_: object) -> None:
        raise Late

    before = {kind: signal.signal(kind, late) for kind in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.alarm(STUCK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for kind, handler in before.items():
            signal.signal(kind, handler)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds what the lines of :data:`LINES` read."""
    place = tmp_path_factory.mktemp("commands")
    given = place / "given"
    given.mkdir()
    (given / "rows.csv").write_text(
        "id,y,d,p,g\n" + "".join(f"{n},{n % 2},{n % 3 % 2},{n % 7 / 7:.2f},{'ab'[n % 5 % 2]}\n" for n in range(80))
    )
    words = ["the", "red", "bird", "sings", "sleeps", "stone"]
    (given / "texts.csv").write_text("text,kind\n" + "".join(f"the bird {n},{'ab'[n % 2]}\n" for n in range(40)))
    (given / "documents.txt").write_text("the red bird sings\n" * 4)
    (given / "triplets.csv").write_text(
        "stereo,anti,unrelated,term\n"
        + "".join(f"the {t} bird sings,the {t} bird sleeps,the {t} bird stone,{t}\n" for t in (*words, "a", "b"))
    )
    save_tiny_backbone(given / "backbone", words)
    save_language_model(given / "lm", words)
    (given / "klaad.yaml").write_text(
        "klaad: {preset: gpt-neo-2.7b}\nmodel: {name: given/lm}\ntrain: {epochs: 1, batch_size: 4, device: cpu}\n"
    )
    (given / "pretraining.yaml").write_text(
        "data: {name: portraits, train_size: 32, validation_size: 32, test_size: 40}\n"
        "model: {hidden_size: 16, layers: 1, heads: 2, decoder_hidden_size: 16, decoder_heads: 2}\n"
        "train: {epochs: 1, batch_size: 16, device: cpu, threads: 1}\n"
    )
    answers(given)
    (place / "folder").mkdir()
    (place / "empty").touch()
    os.mkfifo(place / "pipe")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for folder, seed in (("given/run", "0"), ("given/run-1", "1")):
            assert run(*words_of("train", LINES["train"][0] | {"out": folder, "seed": seed})) == 0
            assert run("evaluate", folder) == 0
        assert run(*words_of("pretrain", LINES["pretrain"][0])) == 0
        for folder, limit in (("given/bench", "4"), ("given/bench-1", "3")):
            assert run(*words_of("lm bench", LINES["lm bench"][1] | {"out": folder, "limit": limit})) == 0
        assert run(*words_of("postprocess", LINES["postprocess"][0] | {"rule": "given/rule.json"})) == 0
    return place


def save_language_model(folder: Path, words: list[str]) -> None:
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    size = GPTNeoConfig(
        vocab_size=40, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]],
        max_position_embeddings=32, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    GPTNeoForCausalLM(size).save_pretrained(folder)
    word_tokenizer(words).save_pretrained(folder)


def answers(given: Path) -> None:
    """Write an item of BBQ, and an answer to it."""
    item = {
        "example_id": 0, "question_index": "1", "question_polarity": "neg", "context_condition": "ambig",
        "category": "Things", "context": "A lamp stood here.", "question": "Which one was loud?", "label": 1,
        "answer_info": {"ans0": ["lamp", "lamp"], "ans1": ["Not known", "unknown"], "ans2": ["kettle", "kettle"]},
        "additional_metadata": {"stereotyped_groups": ["Lamp"]},
        "ans0": "The lamp", "ans1": "Not known", "ans2": "The kettle",
    }  # fmt: skip
    (given / "bbq").mkdir()
    (given / "bbq" / "Things.jsonl").write_text(json.dumps(item) + "\n")
    (given / "answers.jsonl").write_text(json.dumps({"id": "Things/0", "content": {"answer": 1}}) + "\n")


def state_of(given: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file that no command may change."""
    files = [path for path in given.rglob("*") if path.is_file() and not WRITTEN.search(path.name)]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_every_command_has_a_line() -> None:
    assert set(LINES) == set(VERBS), "a new command needs a line in LINES, with files from the fixture"


@pytest.mark.parametrize("verb", LINES)
def test_odd_values_end_in_a_result_or_one_sentence(
    verb: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    # Behind all checks, and longer than all tests together: runs of other processes, and pictures.
    monkeypatch.setattr("levelhead.cli.browser.build", lambda: SimpleNamespace(close=lambda **_: None))
    monkeypatch.setattr("levelhead.cli.browser.serve", lambda *_, **options: None)
    monkeypatch.setattr("levelhead.bench.running.run_all", lambda *_, **options: 1)
    if verb == "demo":  # which looks at the groups of thousands of pictures
        blank = lambda draws, noise, *_: (noise.transpose(0, 3, 1, 2), noise[..., 0])  # noqa: E731
        monkeypatch.setattr("levelhead.data.portraits._paint", blank)
    before, lines, wrong = state_of(place / "given"), lines_of(verb), []
    for row in LINES[verb]:
        assert run(*words_of(verb, row)) == CHECKED.get(verb, 0), (row, capfd.readouterr().err)
    for words in (lines[at] for at in cases(len(lines), 6)):
        if problem := problem_of(words, capfd):
            wrong.append(f"{[word[:60] for word in words]}: {problem}")
        for path in place.iterdir():
            if path.name not in ("given", "pipe", "folder", "empty"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not wrong, "\n".join(wrong)
    assert state_of(place / "given") == before


def problem_of(words: list[str], capfd: pytest.CaptureFixture[str]) -> str | None:
    """Run a command; return what is wrong with its end, None if nothing is."""
    try:
        with watched():
            status = run(*words)
    except Late:
        return f"takes more than {LONGEST} s of the processor, or {STUCK} s of the clock"
    except Exception as error:
        return f"ends in {type(error).__name__}: {error}"
    said = capfd.readouterr().err
    if status not in (0, 1, 2, 3):
        return f"exit status {status}"
    if found := RAW.search(said):
        return f"{found[0]!r} in {said[-500:]}"
    if status == 2 and "Error" not in said:
        return f"no error is said: {said[-500:]}"
    return None
