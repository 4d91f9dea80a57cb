"""Verdicts: smaller, larger, equal within a margin, undecided; and comparisons that stop once something is known."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

from fold_runs import answers, fake, grid
from levelhead.bench.grid import GRID, Grid, make_cells, read_grid, remember, run_grid
from levelhead.bench.ladder import steps_of
from levelhead.bench.looks import LOOKS, begin, comparisons_of, level_of, levels, look, margin_of, parse_target, spent
from levelhead.bench.tables import collect
from levelhead.cli.app import main
from levelhead.cli.report import page_of
from levelhead.metrics.seeds import OverSeeds
from levelhead.runs.folder import CONFIG
from levelhead.storage import read_json, write_json, write_text
from levelhead.types import ConfigError
from scripts import load_script

ROOT = Path(__file__).parents[2]


def test_the_arms_of_the_two_tests_are_those_of_the_interval() -> None:
    over_seeds = OverSeeds.of([np.array([0.01, 0.03, 0.02, 0.05])], [0.0])
    arms = over_seeds.join(0.01**2)
    # At the margin that the interval of level 90% just reaches, the one-sided p-value is 5%.
    assert arms.p_value(arms.arm(0.9)) / 2 == pytest.approx(0.05)


def test_all_of_the_error_is_spent_at_the_end_and_little_before() -> None:
    assert spent(1.0) == pytest.approx(0.05)
    assert spent(0.2) < 1e-4
    assert levels(2) == (0.95,)
    # O'Brien and Fleming's spending for five looks, from tables of the method (Lan and DeMets 1983): the later four.
    rng = np.random.default_rng(1)
    assert max(levels(40)) < 1  # a level of 1 has no interval
    for seeds in (3, 5, 10):
        ends = stats.norm.isf((1 - np.array(levels(seeds))) / 2)
        assert (np.diff(ends) < 0).all()
        walks = rng.standard_normal((100_000, seeds)).cumsum(1) / np.sqrt(np.arange(1, seeds + 1))
        assert (np.abs(walks[:, 1:]) > ends).any(1).mean() == pytest.approx(0.05, abs=0.002)


def test_targets_are_read() -> None:
    rows = ["erm", "dam", "dam, t 2"]
    target = parse_target("EOd difference of dam known to 1.5", rows)
    assert (target.metric, target.method, target.points) == ("equalized_odds", "dam", 1.5)
    assert parse_target(" eod  difference of dam, t 2 decided ", ["erm", "dam, t 2"]).points is None
    assert parse_target("worst group accuracy difference of dam known to 3 points", rows).points == 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dam known to 1.5", "is not understood. Write for instance"),
        ("EOd difference of dam", "is not understood"),
        ("EOd difference of dam known to -1", "is not understood"),
        ("EOx difference of dam decided", "names the metric 'EOx'. Known: accuracy,"),
        ("EOd difference of erm decided", "'erm' is the baseline itself. Name one of: dam."),
        ("EOd difference of jtt decided", "'jtt' is no variant here. Name one of: dam."),
        ("EOd difference of dam known to 0", "0 points is out of range"),
        ("EOd difference of dam known to 100", "100 points is out of range"),
    ],
)
def test_targets_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_target(text, ["erm", "dam"])


def test_a_target_is_compared_with_the_first_variant_on_its_data() -> None:
    tables = (["erm, 60", "dam, 60"], ["erm, 90", "dam, 90"])
    assert parse_target("EOd difference of dam, 90 decided", *tables).method == "dam, 90"
    with pytest.raises(ConfigError, match="'erm, 90' is the first variant on its data, the baseline"):
        parse_target("EOd difference of erm, 90 decided", *tables)
    with pytest.raises(ConfigError, match="Name one of: none"):
        parse_target("EOd difference of b decided", ["a"], ["b"])


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("looked")
    plan = remember(grid(3, (0, 1, 2, 3)), out)
    cells = make_cells(plan, out)
    run_grid([cell for cell in cells if cell.experiment.seed < 3], launch=fake)
    target = parse_target("EOd difference of dam known to 60", ["erm", "dam"])
    for done in (2, 3):
        folders = [cell.folder for cell in cells if cell.experiment.seed < done]
        reached, said = look(target, *collect(folders, "test"), out, (0, 1, 2, 3), done)
        assert said.startswith(f"Look after {done} of 4 seeds: EOd difference of dam ")
    assert reached
    assert said.endswith("reached, no further seed is trained.")
    return out


def test_looks_are_written_down_and_make_every_later_interval_wider(looked: Path, tmp_path: Path) -> None:
    kept = read_json(looked / LOOKS)
    assert kept["target"] == "EOd difference of dam known to 60"
    assert [one["seeds"] for one in kept["looks"]] == [[0, 1], [0, 1, 2]]
    assert [one["level"] for one in kept["looks"]] == list(levels(4)[:2])
    assert level_of([looked]) == levels(4)[1] > 0.95
    assert level_of([tmp_path]) == 0.95
    with pytest.raises(SystemExit) as ended:
        main(["table", str(looked), "--json", str(tmp_path / "t.json"), "--margin", "5"])
    assert not ended.value.code
    record = read_json(tmp_path / "t.json")
    assert record["looks"] == [kept]
    (comparison,) = record["comparisons"]
    assert comparison["level"] == levels(4)[1]
    assert comparison["margin"] == 0.05
    assert comparison["methods"]["dam"]["equalized_odds"]["verdict"] in ("undecided", "smaller", "larger", "within")
    wide = comparison["methods"]["dam"]["equalized_odds"]["difference"]
    (group,) = collect([looked], "test")
    narrow = replace(group, level=0.95).compare("erm").table.rows["dam"]["equalized_odds"].difference
    assert narrow is not None
    assert wide["high"] - wide["low"] > narrow.high - narrow.low


@pytest.mark.parametrize("what", ["parent", "runs", "variants"])
def test_whatever_way_runs_are_named_they_keep_margin_and_level(looked: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "several" / "out"
    shutil.copytree(looked, out)
    write_text(out / GRID, yaml.safe_dump(replace(read_grid(out / GRID), margin=99.0).to_dict()))
    folders = {"parent": [out.parent], "variants": sorted(out.glob("*-*")), "runs": sorted(out.glob("*/seed-*"))}[what]
    assert comparisons_of(folders) == [out]
    (group,) = collect(folders, "test")
    assert (group.margin, group.level) == (0.99, levels(4)[1])
    assert collect(folders, "test", margin=0.05)[0].margin == 0.05
    assert margin_of([tmp_path / "nothing"]) == 0.02
    with pytest.raises(SystemExit) as ended:
        main(["table", *map(str, folders), "--json", str(tmp_path / "t.json")])
    assert not ended.value.code
    record = read_json(tmp_path / "t.json")
    assert (record["comparisons"][0]["level"], record["comparisons"][0]["margin"]) == (levels(4)[1], 0.99)
    assert record["looks"] == [read_json(looked / LOOKS)]


def test_a_grid_file_above_runs_of_their_own_is_not_theirs(tmp_path: Path) -> None:
    write_text(tmp_path / GRID, yaml.safe_dump(replace(grid(), margin=9.0).to_dict()))
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / CONFIG).touch()
    for folder in (tmp_path / "runs" / "mine", tmp_path / "runs"):
        assert comparisons_of([folder]) == []
        assert margin_of(comparisons_of([folder])) == 0.02


def test_pages_and_pictures_have_the_margin_and_the_level_of_the_comparison(looked: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(looked, out)
    write_text(out / GRID, yaml.safe_dump(replace(read_grid(out / GRID), margin=99.0).to_dict()))
    files = {name: tmp_path / name for name in ("r.html", "p.html", "p.json", "p.svg", "l.json", "l.svg")}
    for command in (
        ["report", out, "--html", files["r.html"]],
        ["figure", "pareto", out, "--html", files["p.html"], "--json", files["p.json"], "--out", files["p.svg"]],
        ["figure", "ladder", out, "--json", files["l.json"], "--out", files["l.svg"]],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, command)])
        assert not ended.value.code
    for name in ("r.html", "p.html"):
        page = files[name].read_text(encoding="utf-8")
        assert f"{100 * levels(4)[1]:g}% intervals" in page
        assert "95% intervals" not in page
        assert "(within 99.0 points)" in page
    assert read_json(files["p.json"])["pictures"][0]["level"] == levels(4)[1]
    (group,) = collect([out], "test")
    wide, narrow = (replace(group, level=one).compare("erm", threshold="matched") for one in (levels(4)[1], 0.95))
    drawn = read_json(files["l.json"])["steps"]
    assert drawn == [step.to_dict() for step in steps_of(wide, wide.title.partition(": ")[0])]
    assert drawn != [step.to_dict() for step in steps_of(narrow, wide.title.partition(": ")[0])]


def test_a_page_of_two_margins_is_refused_with_the_command_that_takes_one(looked: Path, tmp_path: Path) -> None:
    for name, margin in (("a", 2.0), ("b", 3.0)):
        shutil.copytree(looked, tmp_path / name)
        write_text(tmp_path / name / GRID, yaml.safe_dump(replace(read_grid(looked / GRID), margin=margin).to_dict()))
    with pytest.raises(ConfigError, match=r"margins, 2\.0, 3\.0 points: name one with `levelhead table --margin"):
        page_of(tmp_path)


def test_a_plan_that_changes_after_looking_is_refused(looked: Path) -> None:
    same = parse_target("EOd difference of dam known to 60", ["erm", "dam"])
    assert len(begin(same, looked, (0, 1, 2, 3))["looks"]) == 2
    other = parse_target("EOd difference of dam known to 1", ["erm", "dam"])
    for target, seeds in ((other, (0, 1, 2, 3)), (same, (0, 1, 2, 3, 4))):
        with pytest.raises(ConfigError, match="A stopping rule must not change after a look"):
            begin(target, looked, seeds)


def test_the_command_trains_no_seed_after_the_target_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("levelhead.bench.grid.LocalProcesses.__call__", lambda self, cell: fake(cell))
    command = ["compare", "--data", "portraits", "--methods", "erm,dam", "--seeds", "0-5", "--folds", "3"]
    command += [f"--set=data.{split}_size=60" for split in ("train", "validation", "test")]
    command += ["--out", str(tmp_path / "out"), "--margin", "3"]
    for until, message in (
        ("EOd difference of dam", "is not understood"),
        ("EOd difference of xrm decided", "is no variant"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--until", until])
        assert ended.value.code == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit) as ended:
        main([*command, "--until", "EOd difference of dam known to 90"])
    assert not ended.value.code
    printed = " ".join(capsys.readouterr().out.split())
    # Even this target waits for the third look: the first seeds cannot vouch for their variance.
    seeds = read_json(tmp_path / "out" / LOOKS)["looks"][-1]["seeds"]
    assert len(seeds) < 6
    assert len(list((tmp_path / "out").glob("*/seed-*"))) == 2 * 3 * len(seeds)
    assert "reached, no further seed is trained." in printed
    write_json(tmp_path / "out" / LOOKS, {"target": "x", "looks": []})
    with pytest.raises(SystemExit) as ended:
        main([*command, "--resume", "--until", "EOd difference of dam known to 90"])
    assert ended.value.code == 2


def test_the_command_looks_at_the_data_of_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("levelhead.bench.grid.LocalProcesses.__call__", lambda self, cell: fake(cell))
    command = ["compare", "--data", "portraits", "--methods", "erm,dam", "--seeds", "0-2", "--folds", "2"]
    command += ["--set=data.train_size=60", "--set=data.validation_size=60", "--try", "data.test_size=60,90"]
    command += ["--out", str(tmp_path / "out"), "--until"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "EOd difference of erm, test_size 90 decided"])
    assert ended.value.code == 2
    assert "is the first variant on its data, the baseline" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit) as ended:
        main([*command, "EOd difference of dam, test_size 90 known to 99"])
    assert not ended.value.code
    printed = " ".join(capsys.readouterr().out.split())
    assert "Look after 2 of 3 seeds: EOd difference of dam, test_size 90 " in printed
    kept = read_json(tmp_path / "out" / LOOKS)["looks"][-1]
    groups = collect([tmp_path / "out"], "test")
    (group,) = [one for one in groups if "dam, test_size 90" in one.rows()]
    comparison = replace(group, level=kept["level"]).compare("erm, test_size 90")
    difference = comparison.table.rows["dam, test_size 90"]["equalized_odds"].difference
    assert difference is not None
    assert (kept["value"], kept["low"], kept["high"]) == (difference.value, difference.low, difference.high)


def test_a_look_at_two_equal_variants_says_why_there_is_no_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fold_runs.answers", lambda cell, rows: answers(replace(cell, row="erm"), rows))
    cells = make_cells(grid(3, (0, 1, 2)), tmp_path)
    run_grid([cell for cell in cells if cell.experiment.seed < 2], launch=fake)
    target = parse_target("EOd difference of dam decided", ["erm", "dam"])
    folders = [cell.folder for cell in cells if cell.experiment.seed < 2]
    reached, said = look(target, *collect(folders, "test"), tmp_path, (0, 1, 2), 2)
    assert not reached
    assert said.startswith("Look after 2 of 3 seeds: EOd difference of dam +0.0, no interval: every draw of the rows")


def test_a_grid_file_holds_the_margin(tmp_path: Path) -> None:
    plan = Grid({"data": {"name": "portraits"}}, {"erm": {"method.name": "erm"}}, margin=1.5)
    assert remember(plan, tmp_path).margin == 1.5
    with pytest.raises(ConfigError, match=r"other settings \('margin'"):
        remember(Grid(plan.base, plan.rows), tmp_path)
    for margin in (0, 100, True, "2"):
        with pytest.raises(ConfigError, match="it must be a number of points between 0 and 100"):
            Grid(plan.base, plan.rows, margin=margin)  # type: ignore[arg-type]


def test_the_page_on_deciding_says_what_was_simulated() -> None:
    cells = read_json(ROOT / "results" / "deciding.json")["cells"]
    page = (ROOT / "docs" / "deciding.md").read_text()

    def of(key: str, what: str, seeds: int | None = None) -> list[float]:
        return [one[key] for one in cells if one["what"] == what and seeds in (None, one["seeds"])]

    shown = {
        "looks after each of five seeds: a true null rejected": [
            c["difference_found"] for c in cells if c["what"] == "stopped" and c["seeds"] == 5
        ],
        "the same without sharing the 5%": [
            c["without_spending"] for c in cells if c["what"] == "stopped" and c["seeds"] == 5
        ],
        "a difference as large as the margin called equal within it": [
            c["margin_called_smaller"] for c in cells if c["what"] == "equal"
        ],
        "four rows per person: a true null rejected": of("rejected", "people"),
        "four rows per person: the interval holds a true difference": of("held", "people"),
    }
    for title, values in shown.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {title}"))
        assert line.endswith(f"| {100 * min(values):.1f} to {100 * max(values):.1f} |")
    load_script(ROOT / "benchmarks" / "seeds.py")  # which it takes its simulation from
    deciding = load_script(ROOT / "benchmarks" / "deciding.py")
    assert deciding.failures(cells) == []
    assert {cell["trials"] for cell in cells} == {1000}
