"""Logs in the shape that lm-evaluation-harness 0.4.9 and 0.4.13 write; all documents are made up."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_bbq import record as released

from command_line import run, said
from levelhead.cli.report import page_of
from levelhead.lm.comparison import comparison_summary
from levelhead.lm.intervals import paired_difference
from levelhead.lm.page import language_model_page
from levelhead.lm.runner import scores_to_dict
from levelhead.lm.samples import read_log
from levelhead.report import render
from levelhead.types import DataError

DATE = "2026-01-02T03-04-05.678901"


def line(number: int, doc: Mapping[str, Any], responses: Sequence[Any], **metrics: Any) -> dict[str, Any]:
    """A line as 0.4.13 writes it: numbers of responses are texts, truth values too."""
    choices = isinstance(responses[0], float)
    resps = [[[str(value), "False"]] for value in responses] if choices else [[responses[0]]]
    text = json.dumps(doc, indent=2, ensure_ascii=False)
    return {
        "doc_id": number,
        "doc": dict(doc),
        "target": "0",
        "arguments": {"gen_args_0": {"arg_0": "a prompt", "arg_1": " a choice"}},
        "resps": resps,
        "filtered_resps": [one[0] for one in resps],
        "filter": "none",
        "metrics": list(metrics),
        "doc_hash": hashlib.sha256(text.encode()).hexdigest(),
        "prompt_hash": "p",
        "target_hash": "t",
    } | metrics


def early(record: Mapping[str, Any]) -> dict[str, Any]:
    """The same line of an early version: numbers are numbers, and some fields are not there."""
    names = ("filter", "metrics", "doc_hash", "prompt_hash", "target_hash")
    found = {name: value for name, value in record.items() if name not in names}
    found["arguments"] = [["a prompt", " a choice"]]
    found["resps"] = [[[float(one[0][0]), False]] if isinstance(one[0], list) else one for one in record["resps"]]
    return found


def write(folder: Path, records: Sequence[Any], task: str = "sums", model: str = "org__small") -> Path:
    path = folder / model / f"samples_{task}_{DATE}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def sums(right: Sequence[float]) -> list[dict[str, Any]]:
    docs = [{"question": f"{n} + 1", "subject": "even" if n % 2 == 0 else "odd"} for n in range(len(right))]
    return [
        line(n, doc, [-1.0, -2.0], acc=value, acc_norm=1.0)
        for n, (doc, value) in enumerate(zip(docs, right, strict=True))
    ]


RIGHT = [1.0, 0.0, 1.0, 1.0] * 10


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_metric_that_one_of_three_logs_lacks_is_compared_between_the_others(tmp_path: Path, without: int) -> None:
    logs = []
    for at in range(3):
        records = sums(RIGHT[at:] + RIGHT[:at])
        for record in records if at == without else ():
            record["metrics"].remove("acc_norm")
            del record["acc_norm"]
        logs.append(write(tmp_path, records, model=f"org__m{at}"))
    record = comparison_summary(logs)
    pairs: dict[str, list[tuple[str, str]]] = {score: [] for score in ("acc", "acc_norm")}
    for one in record["pairs"]:
        pairs[one["score"]].append((one["first"], one["second"]))
    first, second = (f"m{at}" for at in range(3) if at != without)
    assert pairs == {"acc": [("m0", "m1"), ("m0", "m2"), ("m1", "m2")], "acc_norm": [(first, second)]}
    assert f"m{without} has no acc_norm to compare." in record["notes"]
    (found,) = record["benchmarks"]
    assert {one["score"] for one in found["scores"] if one["main"]} == {"acc", "acc_norm"}
    assert f"m{second[1]} minus m{first[1]}" in render(language_model_page(record))


def test_lines_of_an_early_version_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, sums(RIGHT))
    new = read_log(path)
    assert (new.name, new.task, len(new.rows.keys()), new.notes) == ("small", "sums", 40, [])
    scores = new.rows.score("sums", None)
    assert {name: figure.value for name, figure in scores.overall.items()} == {"acc": 0.75, "acc_norm": 1.0}
    assert scores.overall["acc"].low < 0.75 - 0.09 < 0.75 + 0.09 < scores.overall["acc"].high
    assert {part: some["acc"].value for part, some in scores.parts.items()} == {"even": 1.0, "odd": 0.5}
    old = read_log(write(tmp_path, [early(one) for one in sums(RIGHT)], model="org__old"))
    first, second = (log.rows.score("sums", None).overall["acc"] for log in (new, old))
    assert (first.value, first.low, first.high) == pytest.approx((second.value, second.low, second.high))
    path.write_text(path.read_text()[:-40])
    log = read_log(path)
    assert (len(log.rows.keys()), log.notes) == (39, [f"The last line of {path.name} is cut off and left out."])
    assert language_model_page(comparison_summary([new.path]))["finding"].startswith(
        "small: sums: acc 0.744, interval "
    )


def test_unknown_fields_and_values_that_are_no_numbers_are_left_alone(tmp_path: Path) -> None:
    records = [one | {"mystery": {"a": 1}, "pair": [1.0, "False"], "acc": math.nan if n == 0 else 1.0}
               for n, one in enumerate(sums(RIGHT))]  # fmt: skip
    for record in records:
        record["metrics"] += ["pair", "absent"]
    records += [one | {"filter": "strict", "acc": 0.0} for one in records]  # a score of its own
    found = read_log(write(tmp_path, records)).rows.score("sums", None)
    assert set(found.overall) == {"acc", "acc_norm", "acc (strict)", "acc_norm (strict)"}
    assert found.overall["acc (strict)"].value == 0
    assert (found.overall["acc"].value, found.overall["acc"].n) == (1.0, 39)
    assert found.notes == ("1 values are not finite and left out.",)


def thing(number: int, condition: str) -> dict[str, Any]:
    return released(number, condition=condition, question_index=str(number // 4), biased_answers=["The lamp"])


def choice(best: int) -> list[float]:
    """The harness offers both people, and ten words for unknown."""
    return [-1.0 if at == best else -2.0 - at for at in range(12)]


def test_bbq_is_scored_by_templates_and_every_word_for_unknown_is_unknown(tmp_path: Path) -> None:
    records = [
        line(n, thing(n, "ambig" if n < 20 else "disambig"), choice(best), acc=0.0)
        for n, best in enumerate([2, 11, 7, 0, 1] * 4 + [1, 1, 0, 1, 5] * 4)
    ]
    log = read_log(write(tmp_path, records, "bbq"))
    found = log.rows.score("bbq", None)
    values = {name: figure.value for name, figure in found.overall.items()}
    assert values["accuracy_ambiguous"] == pytest.approx(0.6)
    assert values["accuracy_disambiguated"] == pytest.approx(0.6)
    assert values["bias_disambiguated"] == pytest.approx(2 * 4 / 16 - 1)  # 4 lamps of 16 that are named
    assert values["bias_ambiguous"] == pytest.approx(0.0)
    assert len(found.overall["accuracy_ambiguous"].sample.sums) == 5
    assert set(found.parts) == {"Things"}


def test_free_answers_of_bbq_are_read_anew_from_the_responses(tmp_path: Path) -> None:
    texts = ["I don't know.", "The lamp", "<think>The lamp</think> Not known"] * 6 + ["mumble", "mumble"]
    records = [line(n, thing(n, "ambig"), [text], acc=0.0) for n, text in enumerate(texts)]
    found = read_log(write(tmp_path, records, "bbq_generate")).rows.score("bbq_generate", None)
    assert found.overall["answers_unknown"].value == pytest.approx(12 / 20)
    assert found.overall["answers_person"].value == pytest.approx(6 / 20)
    assert found.overall["accuracy_ambiguous"].value == pytest.approx(12 / 20)
    unread = [line(n, thing(n, "ambig"), ["mumble"], acc=0.0) for n in range(20)]
    found = read_log(write(tmp_path, unread, "bbq_generate")).rows.score("bbq_generate", None)
    assert found.overall["answers_unreadable"].value == 1.0
    assert not found.overall["accuracy_ambiguous"].defined  # the harness takes the last option for each of them


@pytest.mark.parametrize("task", ["bbq_generate", "crows_pairs_english"])
@pytest.mark.parametrize("by_document", [True, False])
def test_documents_under_several_filters_count_once(tmp_path: Path, task: str, by_document: bool) -> None:
    if task == "bbq_generate":
        records = [line(n, thing(n, "ambig"), ["The lamp" if n % 3 else "Not known"], acc=0.0) for n in range(12)]
    else:
        pairs = [{"sent_more": f"a {n}", "sent_less": f"b {n}", "bias_type": "color"} for n in range(12)]
        records = [line(n, doc, [-5.0, -6.0 + 2 * (n % 4 == 0)]) for n, doc in enumerate(pairs)]
    filters = ("strict-match", "flexible-extract", "none")
    if by_document:
        several = [one | {"filter": kind} for one in records for kind in filters]
    else:
        several = [one | {"filter": kind} for kind in filters for one in records]
    once = read_log(write(tmp_path / "once", records, task)).rows.score(task, None)
    if task != "bbq_generate":
        assert once.overall["causal_stereotype_likelier"].value == 0.75
        assert set(once.parts) == {"color"}
    found = read_log(write(tmp_path, several, task)).rows.score(task, None)
    assert scores_to_dict(found) == scores_to_dict(once)
    with pytest.raises(DataError, match="line 37 is a second line of one document"):
        read_log(write(tmp_path, [*several, several[4]], task))


def test_sentences_of_winogender_that_differ_in_the_pronoun_are_drawn_together(tmp_path: Path) -> None:
    records = [
        line(n, {"occupation": f"job {n // 3}", "participant": "guest", "gender": gender}, [-1.0, -2.0], acc=1.0)
        for n, gender in enumerate(["male", "female", "neutral"] * 12)
    ]
    found = read_log(write(tmp_path, records, "winogender_all")).rows.score("winogender_all", None)
    assert len(found.overall["acc"].sample.sums) == 12
    assert set(found.parts) == {"male", "female", "neutral"}


def test_discrimination_is_a_difference_of_log_odds_between_groups(tmp_path: Path) -> None:
    records = []
    for question in range(12):
        for race in ("white", "Black"):
            for gender in ("male", "female"):
                odds = 0.5 * (race == "Black") - 0.25 * (gender == "female") + question / 7
                yes, no = -math.log1p(math.exp(-odds)), -math.log1p(math.exp(odds))
                doc = {"decision_question_id": question, "race": race, "gender": gender, "age": 20}
                half = math.log(0.5)
                responses = [yes + half, yes + half, no + half, no + half]
                records.append(line(len(records), doc, responses, black_bias=[["x"], "black_bias", 0.1]))
    records += [one | {"filter": "strict"} for one in records]  # on which no score depends
    log = read_log(write(tmp_path, records, "discrim_eval_explicit"))
    found = log.rows.score(log.task, None)
    values = {name: figure.value for name, figure in found.overall.items()}
    assert values == {
        "log odds of yes, black minus white": pytest.approx(0.5),
        "log odds of yes, female minus male": pytest.approx(-0.25),
    }
    assert len(found.overall["log odds of yes, female minus male"].sample.sums) == 12


def test_models_are_compared_over_common_documents_with_holms_correction(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    answers = {"a": rng.random(200) < 0.4, "b": rng.random(200) < 0.45, "c": rng.random(200) < 0.9}
    paths = [write(tmp_path, sums(found.astype(float)), model=f"x__{name}") for name, found in answers.items()]
    extra = sums([*answers["c"].astype(float), 1.0])
    for number, one in enumerate(extra):
        one["doc_id"] = number // 2  # as some versions write it, beside the right doc_hash
    paths[2] = write(tmp_path, extra, model="x__c")
    record, logs = comparison_summary(paths), [read_log(path) for path in paths]
    (found,) = record["benchmarks"]
    assert found["items"] == 200
    assert (found["scores"][0]["score"], found["scores"][0]["ranks"]) == ("acc", [[2, 3], [2, 3], [1, 1]])
    assert "c: 1 of 201 documents are not in every log and left out." in record["notes"]
    both = {f"{one['second']}-{one['first']}": one for one in record["pairs"] if one["score"] == "acc"}
    assert set(both) == {"b-a", "c-a", "c-b"}
    gap = answers["c"].astype(float) - answers["a"].astype(float)
    assert both["c-a"]["difference"]["value"] == pytest.approx(gap.mean())
    t = gap.mean() / (gap.std(ddof=1) / math.sqrt(200))
    plain = stats.t.sf(t, 199) * 2
    assert math.log10(both["c-a"]["p"]) == pytest.approx(math.log10(plain), rel=0.2)
    assert both["b-a"]["p"] == pytest.approx(
        stats.ttest_rel(answers["b"].astype(float), answers["a"].astype(float)).pvalue, abs=0.03
    )
    assert both["c-a"]["p_holm"] > both["c-a"]["p"]
    page = language_model_page(record)
    assert page["finding"].startswith("2 of 6 others")
    assert page["deck"].startswith("Namely sums: acc, c minus a +")
    html = render(page)
    assert "c minus a" in html
    assert "99 + 1" not in html  # no text of a document
    first, second = (log.rows.score("sums", logs[0].rows.keys()).overall["acc"] for log in logs[:2])
    assert paired_difference(first, second).defined


def test_two_logs_of_one_model_are_numbered_and_other_names_do_not_matter(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, sums(RIGHT)) for name in "ab"]
    record = comparison_summary(paths)
    assert record["models"] == ["small, log 1", "small, log 2"]
    assert f"small, log 2: {paths[1]}." in record["notes"]
    assert {one["p"] for one in record["pairs"]} == {1.0}
    record = comparison_summary([path.rename(path.parents[2] / f"{path.parts[-3]}.jsonl") for path in paths])
    assert (record["models"], record["benchmarks"][0]["items"]) == (["a", "b"], len(RIGHT))
    assert language_model_page(record)["finding"].startswith("0 of 2 others differ measurably between a and b")


def test_fields_of_a_document_are_clusters_and_categories_if_it_has_one(tmp_path: Path) -> None:
    path = write(tmp_path, sums(RIGHT))
    found = read_log(path, cluster="subject", by="question").rows.score("sums", None)
    assert len(found.overall["acc"].sample.sums) == 2
    assert len(found.parts) == 40
    kinds = ["A"] * 12 + ["B"] * 12 + [None] * 12  # the last ones counted as the first category that was read
    records = [line(n, {"q": n, "category": kind}, [-1.0], acc=float(kind == "A")) for n, kind in enumerate(kinds)]
    found = read_log(write(tmp_path, records)).rows.score("sums", None)
    assert {name: part["acc"].value for name, part in found.parts.items()} == {"A": 1.0, "B": 0.0}
    assert found.overall["acc"].value == pytest.approx(12 / 36)


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (
        str(write(tmp_path, sums(right), model=name)) for name, right in (("a", RIGHT), ("b", RIGHT[::-1]))
    )
    json_file, html_file = tmp_path / "out.json", tmp_path / "out.html"
    files = ["--json", json_file, "--html", html_file]
    assert run("lm", "compare", first, second, *files) == 0
    assert "between a and b" in said(capsys)
    record = json.loads(json_file.read_text())
    assert record["models"] == ["a", "b"]
    assert "b minus a" in html_file.read_text()
    assert page_of(json_file)["finding"] == language_model_page(record)["finding"]  # as `levelhead report` shows it


def test_a_metric_of_other_documents_has_no_difference(tmp_path: Path) -> None:
    """Each model lacks other documents of the same clusters: their means differ, and no pair does."""
    logs = []
    for model, absent in (("a", 0), ("b", 2)):
        records = []
        for number in range(40):
            value = math.nan if number % 4 == absent else float(number % 4 > 1)
            records.append(line(number, {"q": number, "block": number // 4}, [-1.0], acc=value, kept=1.0))
        logs.append(read_log(write(tmp_path, records, model=model), cluster="block"))
    first, second = (log.rows.score("sums", None).overall["acc"] for log in logs)
    assert not paired_difference(first, second).defined


@pytest.mark.parametrize(
    ("name", "content", "tool"),
    [
        ("log.eval", b"PK\x03\x04", "inspect_ai"),
        ("log.json", b'{"version": 2, "eval": {"eval_id": "x"}, "samples": []}', "inspect_ai"),
        ("scenario_state.json", b'{"adapter_spec": {}, "request_states": []}', "HELM"),
    ],
)
def test_logs_of_other_tools_are_named(tmp_path: Path, name: str, content: bytes, tool: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"is a log of {tool}: .* --predictions FILE"):
        read_log(tmp_path / name)


def test_several_responses_to_one_document_are_refused(tmp_path: Path) -> None:
    record = line(0, thing(0, "ambig"), ["The lamp"], acc=0.0) | {"resps": [["The lamp", "Not known"]]}
    with pytest.raises(DataError, match="holds 2 responses to one document"):
        read_log(write(tmp_path, [record], "bbq_generate"))
