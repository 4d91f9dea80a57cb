"""The sentence of consequence and the command that verbs end with."""

from __future__ import annotations

import html
import math
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import levelhead as lh
from command_line import run
from levelhead.cli import app, following
from levelhead.report.page import command_line
from levelhead.report.sentences import Difference
from levelhead.storage import read_json
from levelhead.types import Estimate

VERBS = {*(one.name for one in app.registered_groups), *(command.name for command in app.registered_commands)}


def audit(rows: int, shift: float) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    group, label = chance.choice(["a", "b"], rows), chance.integers(0, 2, rows)
    predicted = np.where(chance.random(rows) < 0.8 - shift * (group == "a"), label, 1 - label)
    return lh.audit(label, predicted, sensitive_features=group, replicates=100).to_dict()


def test_an_audit_of_few_rows_says_how_many_would_tell() -> None:
    sentence, words = following.after_audit(audit(120, 0.0))
    assert "cannot tell; about " in sentence
    total = int(sentence.split("about ")[1].split()[0].replace(",", ""))
    assert 1_000 < total < 100_000
    assert words[:3] == ["plan", "--gap", "5"]


def test_a_shown_gap_leads_to_its_explanation_or_its_page() -> None:
    found = audit(4_000, 0.3)
    assert following.after_audit(found, ["explain", "file.csv"])[1] == ["explain", "file.csv"]
    assert "--html" in following.after_audit(found)[1]
    assert "--fail-if" in following.after_audit(found, page=True)[1]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("--prediction=d", ["--favourable=yes"]),
        ("--rank=p", ["--top=10"]),
        ("--label=y", ["--prediction=p", "--regression"]),
    ],
)
def test_the_gate_that_is_offered_is_one_that_the_audit_has(columns: str, options: list[str], tmp_path: Path) -> None:
    rows = [f"{at % 2},{(at % 7) / 7},{'yes' if at % 3 else 'no'},{'ab'[at // 40]}" for at in range(80)]
    (tmp_path / "p.csv").write_text("\n".join(["y,p,d,g", *rows]))
    line = ["audit", str(tmp_path / "p.csv"), columns, *options, "--group=g", "--json", str(tmp_path / "p.json")]
    assert run(*line) == 0
    gate = following.GATES[read_json(tmp_path / "p.json")["kind"]]
    assert run(*line, "--fail-if", gate) in (0, 1, 3)  # 2: no such figure


def test_what_follows_takes_the_options_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = np.random.default_rng(0)
    odds, group = chance.normal(size=1_200), chance.choice(["a", "b"], 1_200)
    odds += 1.5 * (group == "a")
    label = np.where(chance.random(1_200) < 1 / (1 + np.exp(-odds)), "Yes.", "No.")
    rows = [f"{one},{odd},{name},{at // 2}" for at, (one, odd, name) in enumerate(zip(label, odds, group, strict=True))]
    (tmp_path / "p.csv").write_text("\n".join(["y,l,g,id", *rows]))
    words: list[str] = ["audit", str(tmp_path / "p.csv"), "--label", "y", "--score", "l", "--group", "g"]
    words += ["--label-map", "Yes.=1,No.=0", "--positive", "1", "--scores", "log-odds", "--threshold", "0.5"]
    for verb, more in (("explain", ["--cluster", "id"]), ("postprocess", ["--cluster", "id"])):
        assert run(*words, *more) == 0
        words = shlex.split(capsys.readouterr().out.splitlines()[-1])[1:]
        assert words[0] == verb
        assert {"--label-map", "--threshold", "--scores", *more[:1]} <= {*words}
    assert run(*words, "--rule", tmp_path / "rule.json") == 0
    (tmp_path / "g.csv").write_text("\n".join(["id,side", *(f"{at},{'ab'[at % 2]}" for at in range(600))]))
    words = ["explain", str(tmp_path / "p.csv"), "--label", "y", "--score", "l", "--group", "side"]
    words += ["--join", str(tmp_path / "g.csv"), "--on", "id", "--label-map", "Yes.=1,No.=0", "--positive", "1"]
    assert run(*words) == 0
    assert "postprocess --" not in capsys.readouterr().out.splitlines()[-1].replace("postprocess --help", "")


def test_the_rule_is_of_the_column_with_the_clearest_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = np.random.default_rng(0)
    race = chance.choice(["A", "B"], 4000)
    rate = np.where(race == "A", 0.25, 0.65)
    label = chance.random(4000) < rate
    odds = chance.normal(np.where(label, 1, -1), np.sqrt(2)) + np.log(rate / (1 - rate))
    rows = zip(label * 1, 1 / (1 + np.exp(-odds)), chance.choice(["f", "m"], 4000), race, strict=True)
    (tmp_path / "p.csv").write_text("\n".join(["y,p,sex,race", *(",".join(map(str, one)) for one in rows)]))
    words = ["explain", tmp_path / "p.csv", "--label", "y", "--score", "p", "--group", "sex", "--group", "race"]
    assert run(*words) == 0
    step = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert step[1] == "postprocess"
    assert step[step.index("--group") + 1] == "race"


def test_a_score_of_the_other_class_takes_no_side() -> None:
    chance = np.random.default_rng(0)
    score, group = chance.random(900), np.repeat(["a", "b"], 450)
    label = (chance.random(900) > np.clip(score - 0.3 * (group == "a"), 0, 1)).astype(int)
    found = lh.explain_gap(label, score, sensitive_features=group)
    sentence, words = following.after_explanation(found, ["postprocess"], ["list", "methods"])
    assert sentence.startswith("These rows do not say which side the gap is on: the score does not rank the classes")
    assert sentence.endswith("?")
    assert words == ["explain", "--help"]


@pytest.mark.parametrize("shortcut", [False, True])
def test_an_explanation_names_the_side(shortcut: bool) -> None:
    chance = np.random.default_rng(0)
    group = chance.integers(0, 2, 20_000)
    rate = np.where(group == 1, 0.5, 0.5 if shortcut else 0.2)
    label = (chance.random(20_000) < rate).astype(int)
    logit = np.log(rate / (1 - rate)) + 2 * label - 1 + chance.normal(0, 1.4, 20_000) + 1.5 * shortcut * group
    found = lh.explain_gap(label, 1 / (1 + np.exp(-logit)), sensitive_features=group)
    sentence, words = following.after_explanation(found, ["postprocess"], ["compare"])
    assert sentence.startswith("Shortcut side" if shortcut else "Base-rate side")
    assert words == (["compare"] if shortcut else ["postprocess"])


def test_base_rates_do_not_explain_a_gap_that_runs_against_them() -> None:
    chance = np.random.default_rng(0)
    group = chance.integers(0, 2, 4000)
    rate = np.where(group == 1, 0.6, 0.3)
    label = (chance.random(4000) < rate).astype(int)
    odds = chance.normal(label - 0.5) - np.log(rate / (1 - rate))
    found = lh.explain_gap(label, odds, sensitive_features=group, scale="log-odds", replicates=200)
    assert "it runs against the base rates, so they do not explain this gap." in " ".join(found.sentences())
    said = following.after_explanation(found, ["postprocess"], ["compare"])[0]
    assert said.startswith("Shortcut side: the score runs against the base rates.")
    unknown = replace(found.pairs[0], rho=Estimate(0.0, -0.2, 0.2, 4000))
    part = replace(next(iter(found.by_attribute.values())), pairs=(unknown,))
    found = replace(found, by_attribute={"group": part})
    assert following.after_explanation(found, ["postprocess"], ["compare"])[0].startswith("Inconclusive")


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.09, -0.01, "reduced the gap of this one training; refit runs of other seeds"),
        (-0.03, 0.02, "did not measurably help in this one training; refit runs of other seeds"),
        (math.nan, math.nan, "in any draw"),
    ],
)
def test_a_refit_says_whether_labels_help(low: float, high: float, said: str) -> None:
    figure = Estimate(float(np.nan_to_num(low + high)) / 2, low, high, 4_000, "one seed: more are not known")
    comparison: Any = SimpleNamespace(differences=lambda: [Difference("few-label", figure)], rows=4_000)
    sentence, words = following.after_refit(comparison, {"few-label": "200 group labels"}, Path("run"), Path("out"))
    assert said in sentence
    assert words[0] == "table"


def test_one_training_that_changed_says_what_it_leaves_open() -> None:
    reason = "one seed: its variance over seeds is unknown and not in the interval"
    change = Difference("few-label", Estimate(-0.09, -0.12, -0.06, 1_500, reason))
    comparison: Any = SimpleNamespace(
        differences=lambda: [change],
        rows=1_500,
        seeds={"erm": [0], "few-label": [0]},
        table=SimpleNamespace(baseline="erm"),
    )
    sentence, _ = following.after_refit(comparison, {"few-label": "200 group labels"}, Path("run"), Path("out"))
    assert sentence.startswith("200 group labels reduced the gap of this one training; refit runs of other seeds")
    dearer = replace(change, accuracy=Estimate(-0.077, -0.09, -0.06, 1_500))
    priced: Any = SimpleNamespace(differences=lambda: [dearer], rows=1_500)
    sentence, _ = following.after_refit(priced, {"few-label": "200 group labels"}, Path("run"), Path("out"))
    assert "of this one training, and lowered accuracy by 7.7 points;" in sentence
    untaught: Any = SimpleNamespace(**vars(comparison) | {"differences": lambda: [replace(change, learned=False)]})
    sentence, words = following.after_comparison(untaught, Path("out"), page=False)
    assert sentence.startswith("erm did not learn: ")
    assert "--plan" not in words
    sentence, words = following.after_comparison(comparison, Path("out"), page=False)
    assert sentence == "few-label reduced the gap on one seed; a plan says what more seeds would show."
    assert words[-2:] == ["--seeds", "0-5"]
    comparison.differences = lambda: [Difference("few-label", Estimate(0.0, math.nan, math.nan, 1_500, "no draw"))]
    comparison.table.rows = {"erm": {"equalized_odds": SimpleNamespace(estimate=Estimate(0.0, 0.0, 0.01, 1_500))}}
    sentence, _ = following.after_comparison(comparison, Path("out"), page=False)
    assert sentence == "erm has no measured gap to reduce; a plan says what more seeds would show."
    comparison.differences = list
    sentence, words = following.after_comparison(comparison, Path("out"), page=False)
    assert sentence == "A second variant gives something to compare."
    assert words == ["compare", Path("out"), "--resume", "--methods", "dam"]


def test_page_and_next_step_name_the_command_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("y,p,g\n" + "".join(f"{at % 2},{at % 3 % 2},{'ab'[at % 5 > 1]}\n" for at in range(60)))
    words = ["audit", rows, "--label", "y", "--prediction", "p", "--group", "g", "--html", tmp_path / "a b.html"]
    assert run(*words) == 0
    command = shlex.join(["levelhead", *map(str, words)])
    assert command in html.unescape((tmp_path / "a b.html").read_text())
    assert command_line() == ""
    assert run("audit", rows, "--label", "y") == 2
    assert command_line() == ""  # after an error, too
    result = lh.audit([0, 1] * 30, [0, 0, 1] * 20, sensitive_features=["a", "b"] * 30, replicates=100)
    assert "Command" not in result.to_html()


def test_a_gate_that_was_given_is_not_offered_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("y,p,g\n" + "".join(f"{at % 2},{at % 3 % 2},{'ab'[at % 5 > 1]}\n" for at in range(60)))
    words = ["audit", rows, "--label", "y", "--prediction", "p", "--group", "g", "--html", tmp_path / "a.html"]
    run(*words, "--fail-if", "selection_ratio < 0.01")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.count("--fail-if") <= 1


def test_every_command_is_a_verb() -> None:
    steps = [following.after_audit(audit(120, 0.0)), following.after_evaluation(None, Path("run"), explained=False)]
    steps += [following.after_evaluation(Estimate(0.1, 0.05, 0.2, 9), Path("run"), explained=one) for one in (0, 1)]
    few = following.after_evaluation(Estimate.undefined("a gap needs at least two groups"), Path("run"), explained=True)
    assert few[0].startswith("No gap was measured: a gap needs at least two groups.")  # not: gaps need groups
    steps.append(few)
    assert {str(words[0]) for _, words in steps} <= VERBS
