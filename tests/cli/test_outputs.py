"""No output takes the place of an input, of another output, or of what is no file; the old file stays until the end."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from command_line import VERBS, run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import check_outputs, write_atomically, write_text, writing
from levelhead.types import ConfigError, DataError, LevelheadError, UnwritableError

OUTPUTS = ("--json", "--html", "--out")


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def writers() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every option of every command that names an output, with what else the command cannot do without."""
    for verb, command in VERBS.items():
        for option in command.params:
            if chosen := [name for name in option.opts if name in OUTPUTS]:
                line = verb.split()
                for other in command.params:
                    if other.required and other is not option:
                        value = "0.3" if other.opts[0] == "--rate" else "nothing"  # no number is no use of it
                        line += [value] if other.param_type_name == "argument" else [other.opts[0], value]
                yield tuple(line), chosen[0]


WRITERS = list(writers())


@pytest.mark.parametrize(("line", "option"), WRITERS, ids=[" ".join([*line, option]) for line, option in WRITERS])
def test_every_command_refuses_a_pipe_before_any_work(
    line: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("out.png")
    assert run(*line, option, "out.png") == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert re.match(rf"Error: {option}.* out\.png.*(a pipe or a socket|is not a folder)", said)
    assert names(tmp_path) == ["out.png"]


@pytest.mark.parametrize(
    "line", [line for line, option in WRITERS if option == "--html" and (line, "--json") in WRITERS], ids=" ".join
)
def test_two_outputs_of_a_command_are_two_files(
    line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*line, "--html", "page", "--json", "./page") == 2
    assert "--json and --html are the same, page: give each a path of its own." in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["itself", "another spelling", "a symbolic link", "a hard link"])
def test_an_input_is_never_an_output(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table, other = Path("table.csv"), Path("other")
    table.write_text("label,prediction,group\n" + "1,1,a\n0,0,b\n" * 20)
    before = table.read_bytes()
    if kind == "itself":
        other = table
    elif kind == "another spelling":
        other = Path("..") / tmp_path.name / "table.csv"
    elif kind == "a symbolic link":
        other.symlink_to(table)
    else:
        other.hardlink_to(table)
    audit = ("audit", table, "--label", "label", "--prediction", "prediction", "--group", "group")
    for line in (
        (*audit, "--json", other),
        (*audit, "--html", other),
        ("lm", "bench", "bbq", "--predictions", table, "--json", other),
        ("lm", "bench", "perplexity", "--model", "m", "--file", table, "--html", other),
        ("lm", "gap", "--model", "m", "--out", "gap", "--triplets", table, "--html", other),
        ("compare", "--recipe", table, "--html", other),
        ("report", table, "--html", other),
    ):
        assert run(*line) == 2
        assert "is an input of the same command: it would be lost" in capsys.readouterr().err
    assert table.read_bytes() == before
    assert not Path("gap").exists()


PARTS_OF_A_RUN = (
    *("config.yaml", "metrics.json", "predictions-test.parquet", "evaluation-test.json", "cost.json", "log.jsonl"),
    *("environment.json", "inferred-parts.parquet", ".lock"),
    *("model/config.json", "model/README.md", "model/model.safetensors", "model/new.html"),
    "checkpoints/stage-0.safetensors",
)


@pytest.fixture
def whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run folder, which is as it was at the end of the test."""
    monkeypatch.chdir(tmp_path)
    there = [tmp_path / "run" / name for name in PARTS_OF_A_RUN if "new" not in name]
    for file in there:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("kept")
    yield
    assert [file.read_text() for file in there] == ["kept"] * len(there)


@pytest.mark.usefixtures("whole_run")
@pytest.mark.parametrize(("line", "option"), [each for each in WRITERS if each[1] != "--out"], ids=str)
def test_no_command_writes_a_file_of_a_run_that_it_does_not_read(
    line: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*line, option, "run/model/README.md") == 2
    assert f"{option} run/model/README.md is a file of the saved model" in capsys.readouterr().err


@pytest.mark.usefixtures("whole_run")
@pytest.mark.parametrize("name", PARTS_OF_A_RUN)
def test_no_part_of_a_run_is_an_output(name: str) -> None:
    Path("link").symlink_to("run")
    for folder in ("run", "link", "run/../run", f"../{Path.cwd().name}/run"):
        with pytest.raises(ConfigError, match=r"is a file of the (run folder|saved model)"):
            check_outputs({"--json": Path(folder) / name})


def test_pages_may_stand_beside_a_run_and_in_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    for name in ("config.yaml", "metrics.json"):
        (tmp_path / "run" / name).write_text("{}")
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "config.yaml").write_text("{}")
    for name in ("run/page.html", "run/audit.json", "run/pages/metrics.json", "mine/metrics.json", "mine/model/a.json"):
        check_outputs({"--json": tmp_path / name})
    check_outputs({}, folders={"--out": tmp_path / "run"})


def test_files_of_saved_models_grids_and_answers_are_no_output(tmp_path: Path) -> None:
    there = ["model/config.json", "model/model.safetensors", "model/merges.txt", "grid/grid.yaml", "klaad/klaad.json"]
    there += ["lm/answers-bbq.jsonl", "lm/scores-bbq.json", "klaad/model/tokenizer.json"]
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("{}")
    for name in {*there, "model/tokenizer.json", "lm/scores-bold.json", "klaad/model/any.txt"} - {there[1]}:
        with pytest.raises(ConfigError, match="is a file of the"):
            check_outputs({"--json": tmp_path / name})
    for name in ("model/audit.json", "grid/page.html", "lm/page.html", "scores-bbq.json"):
        check_outputs({"--html": tmp_path / name})


def test_evaluating_other_data_never_writes_into_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    for name in ("config.yaml", "metrics.json"):
        (tmp_path / "other" / name).write_text("kept")
    line = ("evaluate", tmp_path / "other", "--set", "data.file=x.csv", "--out", tmp_path / "other")
    assert run(*line) == 2
    assert "is a run folder: its own figures would be lost" in capsys.readouterr().err
    triplets = tmp_path / "triplets.csv"
    triplets.write_text("stereo,anti,unrelated\n" + "".join(f"a {i},b {i},c {i}\n" for i in range(9)))
    line = ("lm", "train", "klaad_small", "--triplets", triplets, "--out", tmp_path / "other")
    assert run(*line) == 2
    assert sorted(names(tmp_path / "other")) == ["config.yaml", "metrics.json"]


@pytest.mark.parametrize(
    "other", [("--set", "data.file=x.csv"), ("--join", "people.csv", "--on", "id", "--group", "a")]
)
def test_a_page_of_a_run_is_not_offered_for_figures_of_another_folder(
    other: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --join the page showed what the run had been evaluated on before."""
    line = ("evaluate", tmp_path, *other, "--split", "validation", "--out", tmp_path / "new")
    assert run(*line, "--html", tmp_path / "page.html") == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "--html shows a run with its own figures. For those of --out: levelhead audit" in text
    assert "new/predictions-validation.parquet --label label" in text


def test_paths_that_cannot_be_written_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    Path("loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for path, reason in (
            ("folder", "is a folder, a device"),
            ("", "is a folder, a device"),
            ("socket", "a pipe or a socket, not a file"),
            ("file/x.json", f"lies below {tmp_path / 'file'}, which is not a folder"),
            ("file/x/y.json", "which is not a folder"),
            ("x" * 256, "cannot be written: File name too long"),
            ("new/" + "x" * 256 + "/y.json", "cannot be written: File name too long"),
            ("a/" * 3000 + "b", "cannot be written: File name too long"),
            ("loop", "cannot be written: Too many levels of symbolic links"),
            ("a\0b", "cannot be written: "),
        ):
            with pytest.raises(ConfigError, match=re.escape(reason)) as no:
                check_outputs({"--json": Path(path)})
            assert len(str(no.value)) < 400
    for path, reason in (("file", "is not a folder"), ("file/x", "which is not a folder")):
        with pytest.raises(ConfigError, match=reason):
            check_outputs({}, folders={"--out": Path(path)})
    with pytest.raises(ConfigError, match=r"--html .*page/x lies below --json page, which will be a file"):
        check_outputs({"--json": Path("page"), "--html": Path("page/x")})
    with pytest.raises(ConfigError, match="--json and --out are the same"):
        check_outputs({"--json": Path("new")}, folders={"--out": Path("new")})
    check_outputs({"--json": Path("new/deeper/x.json"), "--html": Path("file")}, folders={"--out": Path("new")})
    assert names(tmp_path) == ["file", "folder", "loop", "socket"]  # nothing is made by looking


def test_what_may_not_be_written_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("kept")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write everywhere
    with pytest.raises(ConfigError, match="kept is write-protected"):
        check_outputs({"--json": tmp_path / "kept"})
    with pytest.raises(ConfigError, match=r"cannot be made, because .* may not be written into"):
        check_outputs({"--json": tmp_path / "new" / "x"})
    with pytest.raises(ConfigError, match="may not be written into"):
        check_outputs({}, folders={"--out": tmp_path})
    with pytest.raises(UnwritableError, match="kept is write-protected"):
        write_text(tmp_path / "kept", "new")
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file, link, absent = tmp_path / "folder" / "file", tmp_path / "link", tmp_path / "absent"
    file.write_text("old")
    link.symlink_to(Path("folder") / "file")
    absent.symlink_to(tmp_path / "new" / "file")
    write_text(link, "new")
    write_text(absent, "made")
    assert (link.is_symlink(), file.read_text()) == (True, "new")
    assert (absent.is_symlink(), (tmp_path / "new" / "file").read_text()) == (True, "made")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_file_is_replaced(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "there")
    (tmp_path / "link").symlink_to("there")
    before = (tmp_path / "there").stat()
    for name in ("there", "link"):
        with pytest.raises(UnwritableError, match="is a folder, a device, a pipe or a socket"):
            write_atomically(tmp_path / name, lambda temporary: pytest.fail("it was written"))
    assert (tmp_path / "there").stat() == before
    assert names(tmp_path) == ["link", "there"]


def test_a_full_disk_is_one_line_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, result = tmp_path / "table.csv", tmp_path / "result.json"
    table.write_text("label,prediction,group\n" + "1,1,a\n0,0,b\n" * 20)
    result.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    arguments = ("--label", "label", "--prediction", "prediction", "--group", "group", "--json", result)
    assert run("audit", table, *arguments) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said == f"Error: {result} cannot be written: No space left on device."
    assert result.read_text() == "old"
    assert names(tmp_path) == ["result.json", "table.csv"]
    # Whoever can do without the file, as for what a run has cost so far, catches the usual error.
    with pytest.raises(OSError, match="No space left"):
        write_text(result, "new")
    with pytest.raises(LevelheadError, match=r"model cannot be written: I/O error: full\."), writing(Path("model")):
        raise SafetensorError("I/O error: full")


def test_any_other_error_of_the_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/some/log.jsonl")

    monkeypatch.setattr("levelhead.runs.train.train_run", fails)
    assert run("train", "portraits_erm", "--out", tmp_path / "run") == 2
    assert capsys.readouterr().err.strip().splitlines()[-1] == "Error: Permission denied: /some/log.jsonl."


def test_a_folder_that_is_no_run_is_left_as_it_is(tmp_path: Path) -> None:
    """Nothing is made in it, and no file is taken for what a killed run left behind."""
    experiment = build_experiment({"data": {"name": "portraits"}, "method": {"name": "erm"}})
    (tmp_path / "home" / "deeper").mkdir(parents=True)
    for name in (".notes.tmp", "deeper/.letter.tmp"):
        (tmp_path / "home" / name).write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not a run folder"):
        train_run(experiment, tmp_path / "home")
    assert sorted(str(file.relative_to(tmp_path / "home")) for file in (tmp_path / "home").rglob("*")) == [
        ".notes.tmp",
        "deeper",
        "deeper/.letter.tmp",
    ]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a folder"):
        train_run(experiment, tmp_path / "file")
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / ".lock")
    with pytest.raises(DataError, match="is a pipe, a socket or a device"):
        train_run(experiment, tmp_path / "run")
