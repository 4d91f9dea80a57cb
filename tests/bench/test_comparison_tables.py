"""Tables of runs: whose rows are compared, in which order, which row is marked best, and how it is printed."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_runs import answered, rows_of, write_run
from rich.console import Console, RenderableType

import levelhead as lh
from command_line import run, said
from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.of_runs import compared
from levelhead.bench.page import Compared, Comparisons, titles_of
from levelhead.bench.tables import choose_epoch, collect
from levelhead.report.terminal import DrawnTable
from levelhead.report.text import cell_lines
from levelhead.storage import read_json


def drawn_at_80(table: RenderableType) -> list[str]:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text().split("\n")


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three methods with two seeds each on the same rows."""
    rows = rows_of()
    errors = {"dam": 0.2, "erm": 0.15, "jtt": 0.3}
    return [
        write_run(tmp_path / f"{method}-{seed}", answered(rows, error, 10 * place + seed), method, seed)
        for place, (method, error) in enumerate(errors.items())
        for seed in (0, 1)
    ]


def write_runs(place: Path, rows: pd.DataFrame, **errors: float) -> list[Path]:
    """Write a run of one seed for each method, which errs in this share of the rows."""
    every = enumerate(errors.items())
    return [write_run(place / method, answered(rows, error, at), method) for at, (method, error) in every]


def tabled(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    """Run `table`, and return the only comparison of its JSON."""
    assert run("table", *arguments, "--json", tmp_path / "table.json") == 0
    (one,) = read_json(tmp_path / "table.json")["comparisons"]
    return dict(one)


def test_a_runs_interval_is_the_same_whatever_stands_beside_it_in_the_order_that_was_asked_for(
    runs: list[Path], tmp_path: Path
) -> None:
    found = []
    for order in ((0, 1, 2, 3), (2, 3), (4, 2, 3, 0)):
        chosen = [runs[place] for place in order]
        one = tabled(tmp_path, *chosen)
        found.append({name: figure["estimate"] for name, figure in one["methods"]["erm"].items()})
        assert list(one["methods"]) == list(dict.fromkeys(folder.name.partition("-")[0] for folder in chosen))
        assert one["baseline"] == "erm"
        assert list(Comparison.from_dict(one).table.rows) == list(one["methods"])
    assert found[0] == found[1] == found[2]
    # In a folder nobody requested an order: the baseline comes first.
    (group,) = collect([tmp_path], "test")
    assert list(group.compare("erm").table.rows) == ["erm", "dam", "jtt"]


def test_the_variants_of_a_comparison_keep_its_order(tmp_path: Path) -> None:
    rows = rows_of()
    (tmp_path / "grid.yaml").write_text(
        "base: {data: {name: text-csv, folder: texts}}\nseeds: [0]\nrows: {jtt: {method.name: jtt}, "
        "'a, dam': {method.name: dam}, erm: {method.name: erm}}\n"
    )
    for place, (name, method) in enumerate({"a, dam": "dam", "erm": "erm", "jtt": "jtt"}.items()):
        write_run(tmp_path / f"{place}" / "seed-0", answered(rows, seed=place), method, name=name)
    (found,) = collect([tmp_path], "test")
    assert list(found.compare("erm").table.rows) == ["jtt", "a, dam", "erm"]


def test_a_stored_table_is_shown_without_its_runs(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "table.json"
    assert run("table", *runs, "--markdown", "--json", stored) == 0
    first = capsys.readouterr().out
    assert run("table", stored, "--markdown", "--html", tmp_path / "a.html") == 0
    assert capsys.readouterr().out == first
    assert "<html" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("positives", [0, 3])
def test_a_group_without_a_class_is_left_out_and_named_as_an_audit_does(
    positives: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(groups=("a", "b", "c"))
    of_c = np.flatnonzero(rows["group"] == "c")
    rows.loc[of_c, "label"] = "no"
    rows.loc[of_c[:positives], "label"] = "yes"
    folders = write_runs(tmp_path, rows, erm=0.1, dam=0.3)
    one = tabled(tmp_path, *folders, "--html", tmp_path / "table.html")
    dam, compared = pd.read_parquet(folders[1] / "predictions-test.parquet"), one["methods"]["dam"]
    audited = lh.audit(dam["label"], dam["prediction"], sensitive_features=dam["group"])
    for name in audited.metrics.keys() & compared.keys():
        assert compared[name]["estimate"]["value"] == pytest.approx(audited.metrics[name].value)
        assert compared[name]["difference"]["value"] is not None
    sentence = f"group “c” has {'no rows' if not positives else '3 rows'} with label “yes”, fewer than 10, and is left"
    assert any(sentence in warning for warning in one["warnings"])
    assert sentence in said(capsys)
    assert "group “c” has" in (tmp_path / "table.html").read_text()
    # The option moves the limit.
    one = tabled(tmp_path, *folders, "--min-count", 2)
    assert bool([text for text in one["warnings"] if "equal opportunity" in text]) == (positives == 0)


@pytest.mark.parametrize("missing", ["leave-out", "group"])
def test_rows_without_a_group_are_compared_as_an_audit_compares_them(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, page = rows_of(), tmp_path / "table.html"
    rows.loc[:49, "group"] = None
    folders = write_runs(tmp_path, rows, erm=0.2, dam=0.2)
    one = tabled(tmp_path, *folders, "--missing", missing, "--html", page)
    erm, compared = pd.read_parquet(folders[0] / "predictions-test.parquet"), one["methods"]["erm"]
    told = missing.replace("-", " ")
    audited = lh.audit(erm["label"], erm["prediction"], sensitive_features=erm["group"], missing=told)
    for name in audited.metrics.keys() & compared.keys():
        assert compared[name]["estimate"]["value"] == pytest.approx(audited.metrics[name].value)
    assert ("(missing)" in one["area_under_roc"]["erm"]) == (missing == "group")
    assert "group: 50 of 400 rows (12.5%) have no group" in said(capsys)
    assert "(missing)" in page.read_text()


@pytest.mark.parametrize(("missing", "epoch"), [("leave out", 0), ("group", 1)])
def test_the_epoch_of_the_smallest_gap_counts_rows_without_a_group_where_they_are_one(
    missing: str, epoch: int, tmp_path: Path
) -> None:
    rows = rows_of(groups=("a", "b", "c"))
    frames = [answered(rows, 0.0), answered(rows, 0.0)]
    for frame, group in zip(frames, ("c", "b"), strict=True):  # first c is answered wrongly, then half of b
        wrong = (frame["group"] == group) & (rows.index % (1 if group == "c" else 2) == 0)
        columns = ["probability_no", "probability_yes"]
        frame.loc[wrong, columns] = frame.loc[wrong, columns[::-1]].to_numpy()
        frame["group"] = frame["group"].replace("c", None)
    (found,) = collect([write_run(tmp_path / "erm", frames[0], epochs=frames)], "test", missing=missing)
    assert choose_epoch(found, found.runs[0], LEAKING)[0] == epoch


def test_where_a_rule_is_undefined_in_every_epoch_the_last_one_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = rows_of(60, groups=("a",)).assign(group=["a"] * 55 + ["b"] * 5)
    epochs = [answered(rows, 0.4), answered(rows, 0.1)]
    (found,) = collect([write_run(tmp_path / "erm", epochs[0], epochs=epochs)], "test")
    assert choose_epoch(found, found.runs[0], LEAKING)[0] == 1
    assert "LEAKING_equalized_odds is undefined in every epoch: the last one is taken." in caplog.text


def test_a_row_that_lost_accuracy_by_a_decided_amount_is_never_marked_best(tmp_path: Path) -> None:
    rows = rows_of(1500)
    erm = answered(rows, 0.1)
    of_b = (rows["group"] == "b").to_numpy()
    # erm is wrong more often for b; the other answers at random for both, which leaves no gap, and loses 30 points.
    worse = answered(rows, 0.35, 1)
    erm.loc[of_b] = answered(rows, 0.25, 2)[of_b]
    folders = [write_run(tmp_path / "erm", erm), write_run(tmp_path / "dam", worse, "dam")]
    (found,) = collect(folders, "test")
    comparison = found.compare("erm")
    gaps = {name: row["equalized_odds"].estimate.value for name, row in comparison.table.rows.items()}
    assert gaps["dam"] < gaps["erm"]
    assert comparison.table.less_accurate == ("dam",)
    table = Comparisons.of(comparison).tables()[0]
    marks = {row["head"]: [cell["mark"] for cell in row["cells"]] for row in table["rows"]}
    assert not any(marks["dam"])
    gap = [column["title"] for column in table["columns"]].index("EOd gap")
    assert marks["erm"][gap - 1] == "best"
    less = "dam: measurably less accurate than erm, so never marked best."
    assert less in table["notes"]
    # A loss that is not decided does not take the mark; the page says in which comparison it is decided.
    (alike,) = collect(write_runs(tmp_path / "alike", rows_of(300), erm=0.2, dam=0.2), "test")
    other = alike.compare("erm")
    assert other.table.less_accurate == ()
    seeds = "Every variant: one seed only. The intervals leave out the variance over seeds."
    page = Comparisons([Compared(comparison, title="one"), Compared(other, title="two")]).page()
    assert page["cautions"][:2] == [f"one: {less}", seeds]
    page = str(Comparisons([compared(found, comparison)]).page())
    assert "dam: measurably less accurate than erm" in page
    record = comparison.to_dict()
    del record["less_accurate"]  # it follows from the changes of accuracy
    again = Comparison.from_dict(record)
    assert again.table.less_accurate == ("dam",)
    assert Comparisons.of(again).tables()[0] == table


def test_a_comparison_has_figures_and_conditions_as_an_audit_has(tmp_path: Path) -> None:
    (found,) = collect(write_runs(tmp_path, rows_of(600), erm=0.2, dam=0.05), "test")
    report = Comparisons.of(found.compare("erm"))
    frame = report.to_frame().set_index("figure")
    change = frame.loc["dam: change of accuracy", "value"]
    assert change == pytest.approx(frame.loc["dam: accuracy", "value"] - frame.loc["erm: accuracy", "value"])
    report.require("dam: change of accuracy > 0.05")
    with pytest.raises(AssertionError, match=r"group: dam: change of accuracy"):
        report.require("dam: change of accuracy < 0")


def test_tables_at_80_columns_break_no_words_and_have_marks(tmp_path: Path) -> None:
    errors = {"erm": 0.1, "decorrelation": 0.15, "group-dro": 0.2, "poe": 0.25}
    (found,) = collect(write_runs(tmp_path, rows_of(600), **errors), "test")
    for table in Comparisons.of(found.compare("erm")).tables():
        lines = drawn_at_80(DrawnTable(table))
        assert max(map(len, lines)) <= 80
        words = {word for line in lines for word in line.split()}
        for at, column in enumerate(table["columns"]):
            shown = [cell_lines(row["cells"][at - 1]) if at else [row["head"]] for row in table["rows"]]
            assert {word for lines in [[column["title"]], *shown] for word in " ".join(lines).split()} <= words
        names = [row["head"] for row in table["rows"]]
        assert {"poe", "group-dro ORACLE"} <= set(names)


def test_titles_and_captions_hold_no_path(tmp_path: Path) -> None:
    rows = rows_of()
    data = {"name": "text-csv", "folder": str(tmp_path / "secret"), "file": str(tmp_path / "secret" / "rows.csv")}
    data |= {"sensitive": "group"}
    few = {"name": "few-label", "groups": str(tmp_path / "secret" / "groups.csv")}
    folders = [
        write_run(tmp_path / "erm", answered(rows), data=data),
        write_run(tmp_path / "few", answered(rows, seed=1), data=data, method={"name": "few-label"} | few),
    ]
    (found,) = collect(folders, "test")
    comparison = found.compare("erm")
    assert "file rows.csv" in comparison.title
    texts = [Comparisons.of(comparison).to_markdown()]
    page = Comparisons([compared(found, comparison)]).page()
    texts += [page["title"], page["about"], *comparison.sentences()]
    assert not [text for text in texts if str(tmp_path) in text or "secret/" in text]


def test_the_positive_class_is_the_data_sets_second_where_nobody_predicts_it(tmp_path: Path) -> None:
    rows = rows_of()
    frame = answered(rows).assign(label="no", prediction="no", probability_no=0.9, probability_yes=0.1)
    (found,) = collect([write_run(tmp_path / "erm", frame)], "test")
    row = found.compare("erm").table.rows["erm"]
    assert row["demographic_parity"].estimate.value == 0
    assert not row["equal_opportunity"].estimate.defined


def test_many_methods_fit_a_screen_and_all_shows_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows, names = rows_of(), ["erm", "dam", "jtt", "dro", "arl", "kd", "lff", "cnc", "spare", "eiil", "xrm", "afr"]
    for place, method in enumerate(names):
        frame = answered(rows, 0.2, place)
        if method == "xrm":  # errs in one group alone: its gap is the largest
            frame.loc[(rows["group"] == "a") & (rows["label"] == "yes"), "prediction"] = "no"
        for seed in (0, 1):
            write_run(tmp_path / "runs" / f"{method}-{seed}", frame, method, seed)
    assert run("table", tmp_path / "runs", "--json", tmp_path / "table.json") == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) <= 22
    assert all(len(line) <= 80 for line in lines)
    assert {"xrm", "erm"} <= {line.partition(" ")[0] for line in lines}
    assert "levelhead table --all" in "".join(lines[-3:])
    assert run("table", tmp_path / "table.json", "--all") == 0
    everything = capsys.readouterr().out
    assert "changes in points" in everything
    assert all(f"\n{name} " in everything for name in names)
    assert "Cost of training" in everything


@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_ties_at_a_matched_threshold_make_no_gap(tmp_path: Path, order: str) -> None:
    """Scores of two values say nothing of the group: in a file sorted by group, row order made a decided gap of it."""
    rng = np.random.default_rng(0)
    rows = rows_of(2000)
    rows = rows.sort_values("group", ignore_index=True) if order == "sorted" else rows
    for seed in range(3):
        for method, fine in (("erm", True), ("dam", False)):
            score = rng.random(2000) if fine else np.where(rng.random(2000) < 0.6, 0.9, 0.1)
            frame = rows[["label"]].assign(prediction=np.where(score >= 0.5, "yes", "no"))
            frame["probability_no"], frame["probability_yes"], frame["group"] = 1 - score, score, rows["group"]
            write_run(tmp_path / f"{method}-{seed}", frame, method, seed)
    (found,) = collect(sorted(tmp_path.iterdir()), "test")
    gap = found.compare("erm", threshold="matched").table.rows["dam"]["demographic_parity"].estimate
    assert gap.value < 0.05


def test_a_page_of_validation_rows_never_calls_them_test_rows(runs: list[Path], tmp_path: Path) -> None:
    for folder in runs:
        for file in list(folder.glob("*-test.*")):
            file.rename(file.with_name(file.name.replace("test", "validation")))
    page = tmp_path / "page.html"
    assert run("table", *runs[:5], "--split", "validation", "--html", page) == 0
    assert "test rows" not in page.read_text().lower()
    assert "Validation rows by group of group" in page.read_text()
    assert "one seed" in page.read_text()


def test_a_page_says_who_saw_groups(tmp_path: Path) -> None:
    rows = rows_of()
    write_run(tmp_path / "erm", answered(rows, 0.2))
    (found,) = collect([tmp_path], "test")
    said_of_groups = "seen by no variant except those marked "
    assert f"{said_of_groups}ORACLE<" in Comparisons.of(found.compare("erm")).to_html()
    write_run(tmp_path / "few", answered(rows, 0.1, 1), {"name": "few-label", "rows": 50})
    (found,) = collect([tmp_path], "test")
    assert f"{said_of_groups}ORACLE or FEW GROUPS<" in Comparisons.of(found.compare("erm")).to_html()


def test_a_table_names_the_rows_whose_trainings_were_stopped(tmp_path: Path) -> None:
    plan: dict[str, dict[str, object]] = {"erm": {}, "jtt": {"train": {"max_steps": 3}}}
    folders = [write_run(tmp_path / name, answered(rows_of()), name, **more) for name, more in plan.items()]
    warning = tabled(tmp_path, *folders)["warnings"][-1]
    assert warning.startswith("jtt (train.max_steps=3): A rehearsal: each stage stopped after 3 steps")


def test_several_comparisons_are_titled_by_what_their_variants_begin_with_else_by_their_options() -> None:
    def named(start: str, correlation: float | None) -> Any:
        rows, data = {f"{start}ERM": None, f"{start}JTT": None}, {"name": "portraits", "correlation": correlation}
        return SimpleNamespace(title="", comparison=SimpleNamespace(table=SimpleNamespace(rows=rows), data=data))

    assert titles_of([named("shortcut: ", 0.0), named("base rates: ", None)]) == ["shortcut", "base rates"]
    assert titles_of([named("", 0.0), named("", None)]) == ["correlation 0.0", "no correlation"]
