from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from command_line import run, said
from levelhead import lm
from levelhead.cli.report import page_of
from levelhead.data.base import Card
from levelhead.lm.base import Answer, Benchmark, Item, Scores
from levelhead.lm.bbq import BBQ
from levelhead.lm.benchmarks import class_of, make_benchmark, recorded_class
from levelhead.lm.bold import BOLD
from levelhead.lm.comparison import benchmarks_of, comparison_summary
from levelhead.lm.intervals import estimated, ratio
from levelhead.lm.loading import place_of
from levelhead.lm.model import LanguageModel
from levelhead.lm.runner import (
    Given,
    answers_file,
    options_of,
    run_benchmark,
    scores_file,
    scores_to_dict,
)
from levelhead.lm.stereoset import StereoSet
from levelhead.registry import Registry
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, DataError

PROCESSES = multiprocessing.get_context("fork")
COUNT = 12


@dataclass(frozen=True)
class Parity(Benchmark):
    """Whether a number is even; ``offset`` is added before the model is asked, ``bonus`` when answers are scored."""

    offset: int = 0
    bonus: float = 0.0
    words: frozenset[str] = frozenset()

    free_options: ClassVar[frozenset[str]] = frozenset({"bonus", "words"})
    name: ClassVar[str] = "parity"
    card: ClassVar[Card] = Card("Parity", "even numbers", "none", "CC0", "none", "none", "a toy")

    def read(self, root: Path | None) -> list[Item]:
        shift = 0
        if root is not None:
            if not root.is_dir():
                raise DataError(f"{root} is missing.")
            shift = int((root / "shift").read_text()) if (root / "shift").exists() else 0
        return [
            Item(f"n{number}", {"number": number + shift, "category": "low" if number < 4 else "high"})
            for number in range(COUNT)
        ]

    def ask(self, model: Any, items: Sequence[Item]) -> Iterator[Answer]:
        for item in reversed(items):
            yield Answer(item.id, {"even": model.even(item.content["number"] + self.offset)})

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        given = {answer.id: answer.content["even"] for answer in answers}
        missing = [item.id for item in items if item.id not in given]
        if missing:
            raise DataError(f"There is no answer to {missing[0]}.")
        rows = np.array([[given[item.id] == (item.content["number"] % 2 == 0), 1] for item in items], dtype=float)
        rows[:, 0] += self.bonus
        low = np.array([item.content["category"] == "low" for item in items])
        return Scores(
            self.name,
            {"accuracy": estimated(rows, None, ratio), "nothing": estimated(0 * rows, None, ratio, reason="never")},
            {"low": {"accuracy": estimated(rows[low], None, ratio)}},
            {"accuracy": "share"},
            ("a note",),
        )


class Oracle:
    """Answers right, up to ``wrong_from``; after ``stop`` answers it is stopped as ``how`` says."""

    causal = True
    beginning = "Texts begin somehow."
    has_chat_template = False

    def __init__(self, name: str = "oracle", wrong_from: int = 99, stop: int = 99, how: str = "raise") -> None:
        self.name, self.wrong_from, self.stop, self.how, self.asked = name, wrong_from, stop, how, 0

    def fingerprint(self) -> str:
        return f"{self.name}{self.wrong_from}"

    def even(self, number: int) -> bool:
        if self.asked == self.stop:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt
        self.asked += 1
        return (number % 2 == 0) == (number < self.wrong_from)


def ask(
    folder: Path, model: Any, benchmark: Benchmark | None = None, root: Path | None = None, limit: int | None = None
) -> Scores:
    return run_benchmark(benchmark or Parity(), model, root, folder, limit=limit)


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answers_file(folder, "parity").read_text().splitlines()]


def test_answers_and_scores_are_kept(tmp_path: Path) -> None:
    scores = ask(tmp_path, Oracle(wrong_from=9))
    assert scores.overall["accuracy"].value == 0.75
    header, *answers = kept(tmp_path)
    assert (header["model"], header["options"]) == ("oracle9", {"offset": 0})  # no other matters to an answer
    assert [answer["id"] for answer in answers] == [f"n{number}" for number in reversed(range(COUNT))]
    record = read_json(scores_file(tmp_path, "parity"))
    assert (record["items"], record["asked"], record["model"], record["limit"]) == (12, 12, "oracle", None)
    assert record["overall"]["nothing"] == {"value": None, "low": None, "high": None, "n": 12, "reason": "never"}
    assert record.items() >= scores_to_dict(scores).items()


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    killed = PROCESSES.Process(target=ask, args=(tmp_path / "cut", Oracle(stop=5, how="kill")))
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    file = answers_file(tmp_path / "cut", "parity")
    assert len(kept(tmp_path / "cut")) == 1 + 5
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])  # the kill came in the middle of a write
    model = Oracle()
    ask(tmp_path / "cut", model)
    assert model.asked == COUNT - 4
    ask(tmp_path / "whole", Oracle())
    assert kept(tmp_path / "cut") == kept(tmp_path / "whole")
    record = read_json(scores_file(tmp_path / "cut", "parity"))
    assert (record["items"], record["asked"]) == (12, 8)
    file.write_bytes(whole[:9])  # not even the first line is whole
    model = Oracle()
    ask(tmp_path / "cut", model)
    assert model.asked == COUNT


def test_a_finished_run_asks_nothing_and_a_larger_limit_asks_the_rest(tmp_path: Path) -> None:
    for limit, asked, count in ((2, 4, 4), (2, 0, 4), (3, 2, 6), (1, 0, 2), (None, 6, 12)):
        model = Oracle()
        scores = ask(tmp_path, model, limit=limit)
        assert (model.asked, scores.overall["accuracy"].n) == (asked, count)
    before = kept(tmp_path)
    for other, benchmark in ((Oracle("other"), Parity()), (Oracle(), Parity(offset=2))):
        with pytest.raises(ConfigError):
            ask(tmp_path, other, benchmark)
    model = Oracle()  # an option that only scores
    assert ask(tmp_path, model, Parity(bonus=2.0, words=frozenset("ba"))).overall["accuracy"].value == 3.0
    assert (model.asked, kept(tmp_path)) == (0, before)
    options = read_json(scores_file(tmp_path, "parity"))["options"]
    assert (options["bonus"], options["words"]) == (2.0, ["a", "b"])  # a set's order differs between processes


def test_half_a_character_in_an_answer_is_stored_as_a_replacement(tmp_path: Path) -> None:
    class Halved(Parity):
        def ask(self, model: Any, items: Sequence[Item]) -> Iterator[Answer]:
            for answer in super().ask(model, items):
                yield Answer(answer.id, {**answer.content, "texts": ["so good \ud83d", "\ud83d\ude00 é"]})

    ask(tmp_path, Oracle(), Halved())
    assert kept(tmp_path)[1]["content"]["texts"] == ["so good \ufffd", "\U0001f600 é"]
    assert ask(tmp_path, Oracle(stop=0), Halved()).overall["accuracy"].value == 1  # nothing is asked again


def test_answers_of_another_chat_template_are_another_models(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Chatted(Parity):
        chat: bool = True

    def asks(template: str, benchmark: Benchmark) -> Scores:
        model = Oracle()
        model.tokenizer = SimpleNamespace(chat_template=template)  # type: ignore[attr-defined]
        return ask(tmp_path, model, benchmark)

    asks("<user>{{ text }}", Chatted())
    asks("<user>{{ text }}", Chatted())
    with pytest.raises(ConfigError, match="another model"):
        asks("[INST]{{ text }}", Chatted())


@pytest.mark.parametrize("made", [BBQ(per_template=2), BOLD(per_group=3), StereoSet(terms=frozenset("ab"))])
def test_the_options_of_each_benchmark_are_fields_and_come_back(tmp_path: Path, made: Any) -> None:
    assert made.free_options <= {field.name for field in dataclasses.fields(made)}
    record = {"options": json.loads(json.dumps(options_of(made)))}
    write_json(scores_file(tmp_path, made.name), record)
    assert benchmarks_of(tmp_path) == {made.name: made}


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    class Nested(Parity):
        def ask(self, model: Any, items: Sequence[Item]) -> Iterator[Answer]:
            with pytest.raises(ConfigError, match="Another process is writing"):
                ask(tmp_path, Oracle())
            yield from super().ask(model, items)

    assert ask(tmp_path, Oracle(), Nested()).overall["accuracy"].value == 1.0


def test_answers_of_any_system_are_scored(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    lines = [json.dumps({"id": f"n{number}", "content": {"even": True}}) for number in range(COUNT)]
    file.write_text("\n".join(lines))  # no newline at the end
    scores = run_benchmark(Parity(), Given(file), None, tmp_path / "given")
    assert (scores.overall["accuracy"].value, scores.overall["accuracy"].n) == (0.5, 12)
    ask(tmp_path / "run", Oracle())
    kept = Given(answers_file(tmp_path / "run", "parity"))
    assert run_benchmark(Parity(), kept, None, tmp_path / "again").overall["accuracy"].value == 1
    both = comparison_summary([tmp_path / "given", tmp_path / "run"])["pairs"] if "parity" in lm.BENCHMARKS else []
    assert not both  # a benchmark of this file alone is none that another process can score


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The two verbs, with the toy benchmark as the only one there is, and an oracle in the place of a model."""
    own = Registry("benchmark", Benchmark, "levelhead.benchmarks", "card", {"parity": Parity})
    monkeypatch.setattr(lm, "BENCHMARKS", own, raising=False)

    def load(name: str, device: str, **_: Any) -> Oracle:
        return Oracle(Path(name).name, wrong_from=int(Path(name).name))

    monkeypatch.setattr(LanguageModel, "load", load)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("few_are_enough", "commands")
def test_the_verbs_from_model_to_comparison(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("lm", "bench", "parity", "--model", "models/6", "--json", "out.json", "--html", "out.html") == 0
    out = said(capsys)
    for source in ("runs/lm-6", "out.json", "runs/lm-6/scores-parity.json"):
        assert page_of(Path(source))["finding"] in Path("out.html").read_text()
    for text in ("accuracy", "0.500", "Next: levelhead lm compare runs/lm-6"):
        assert text in out
    assert read_json(Path("out.json"))["benchmarks"][0]["overall"]["accuracy"]["value"] == 0.5
    answers = ["--predictions", "runs/lm-6/answers-parity.jsonl", "--json", "given.json"]
    assert run("lm", "bench", "parity", *answers) == 0
    given, out = (read_json(Path(f"{name}.json"))["benchmarks"][0]["overall"] for name in ("given", "out"))
    assert given == out
    assert page_of(Path("given.json"))["finding"] in said(capsys)
    assert run("lm", "bench", "parity", "--model", "models/9", "--out", "after", "--limit", "8") == 0
    assert run("lm", "compare", "runs/lm-6", "after", "--json", "both.json") == 0
    assert page_of(Path("both.json"))["finding"] in said(capsys)
    both = read_json(Path("both.json"))
    (found,), pairs = both["benchmarks"], {(one["part"], one["score"]): one["difference"] for one in both["pairs"]}
    assert [figure["value"] for figure in found["scores"][0]["figures"]] == [0.5, 0.75]
    accuracy = pairs["", "accuracy"]
    assert accuracy["value"] == 0.25
    assert accuracy["low"] < 0 < 0.25 < accuracy["high"]  # two of eight items differ
    assert pairs["", "nothing"]["value"] is None
    assert pairs["low", "accuracy"]["reason"] == "no interval: all items agree"
    with pytest.raises(DataError, match="absent is missing"):
        comparison_summary(["runs/lm-6", "after"], "absent")
    answers = ["--predictions", "runs/lm-6/answers-parity.jsonl", "--out", "given"]
    assert run("lm", "bench", "parity", *answers) == 0
    assert run("lm", "compare", "given", "after", "runs/lm-6", "--json", "three.json") == 0
    assert read_json(Path("three.json"))["models"] == ["given", "after", "lm-6"]
    record = read_json(Path("given/scores-parity.json"))
    assert record["model"] == "answers-parity.jsonl"
    assert {"version", "date", "fingerprint", "options"} <= record.keys()
    monkeypatch.setattr(lm, "BENCHMARKS", Registry("benchmark", Benchmark, "levelhead.benchmarks", "card", {}))
    summary = comparison_summary(["runs/lm-6", "after"])
    assert summary["benchmarks"] == []
    assert "there is no such benchmark" in summary["notes"][0]


@pytest.mark.usefixtures("commands")
def test_a_stopped_verb_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LanguageModel, "load", lambda *_, **__: Oracle(stop=3))
    assert run("lm", "bench", "parity", "--model", "1", "--out", "run") == 130
    assert "The same command resumes from there" in said(capsys)
    assert len(kept(Path("run"))) == 4


@pytest.mark.usefixtures("commands")
def test_a_model_in_a_folder_of_that_name_is_called_after_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("klaad", "org"):
        Path("runs", name, "model").mkdir(parents=True)
        Path("runs", name, "model", "config.json").write_text("{}")
    monkeypatch.setattr(LanguageModel, "load", lambda name, *_, **__: Oracle(str(place_of(name))))
    for typed, called in (("runs/klaad", "klaad"), ("runs/org/model", "org"), ("org/model", "model")):
        assert run("lm", "bench", "parity", "--model", typed, "--json", "out.json") == 0
        assert f"{called}: parity: accuracy" in said(capsys)
        assert read_json(Path("out.json"))["benchmarks"][0]["model"] == called
        assert read_json(Path("runs", f"lm-{called}", "scores-parity.json"))["model"] == called


OWN = """
from dataclasses import dataclass
from typing import ClassVar

from levelhead.data import Card
from levelhead.lm.bbq import BBQ
from levelhead.lm.perplexity import Perplexity


@dataclass(frozen=True)
class Mine(Perplexity):
    name: ClassVar[str] = "mine"
    card: ClassVar[Card] = Card("My text", "foresee", "none", "CC0", "none", "none", "An example.")


@dataclass(frozen=True)
class Twin(BBQ):
    pass


@dataclass(frozen=True)
class Outside(Mine):
    name: ClassVar[str] = "../mine"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(OWN)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_a_benchmark_of_the_users_own_is_found_again(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = make_benchmark("mine:Mine", {"file": own / "text"})
    (own / "text").write_text("one\ntwo\n")
    assert recorded_class(made) == {"class": "mine:Mine"}
    assert recorded_class(BBQ()) == {}
    kept = {"benchmark": "mine", "class": "mine:Mine", "options": options_of(made)}
    write_json(scores_file(own / "kept", "mine"), kept)
    assert benchmarks_of(own / "kept") == {"mine": made}
    del sys.modules["mine"]
    assert class_of(kept) is None  # a page runs no code
    assert "mine" not in sys.modules
    (own / "mine.py").unlink()
    assert benchmarks_of(own / "kept") == {}
    assert "there is no module 'mine'" in caplog.text
