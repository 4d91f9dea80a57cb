"""The outside of the repository: workflows run what the Makefile has, and its files hold together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_line import run

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w./-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def jobs(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"])


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_runs_what_the_makefile_has(file: Path) -> None:
    steps = [step for job in jobs(file).values() for step in job["steps"]]
    assert steps
    for step in steps:
        if "run" not in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])  # a tag can be moved, a commit cannot
            if step["uses"].startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            continue
        program, target, *_ = step["run"].split()
        assert program == ".venv/bin/python" or (program == "make" and target in TARGETS | {".venv/.installed"})


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_only_what_runs_none_of_our_code_may_write(file: Path) -> None:
    """The token for Pages and for the package index is asked for in the jobs that deploy, which run actions alone."""
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    for job in jobs(file).values():
        if "write" in job.get("permissions", {}).values():
            assert job["environment"]
            assert not any("run" in step for step in job["steps"])
        if any("upload-artifact" in step.get("uses", "") for step in job["steps"]):
            assert [step["run"] for step in job["steps"] if "run" in step] == ["make dist"]


def test_the_container_is_built_from_what_the_makefile_has() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    docker = (folder / settings["build"]["dockerfile"]).read_text(encoding="utf-8")
    assert re.findall(r"^RUN make (\S+)", docker, flags=re.M) == ["demo"]
    assert 'CMD ["make", "test"]' in docker
    assert docker.index("USER levelhead") < docker.index("COPY --chown=levelhead . .") < docker.index("RUN make")
    assert settings["remoteUser"] == "levelhead"
    assert ".git" in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert settings["build"]["args"].keys() == {*re.findall(r"^ARG (\w+)", docker, flags=re.M)}
    assert settings["postCreateCommand"] == "make .venv/.installed"
    assert {"demo", "test"} <= TARGETS


def test_the_tests_of_a_pull_request_are_those_of_ci() -> None:
    commands = re.findall(r"^ *(make .*)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), flags=re.M)
    ran = [step.get("run") for job in jobs(ROOT / ".github/workflows/test.yml").values() for step in job["steps"]]
    assert commands == [step for step in ran if step] == ["make check", "make test", "make test-long"]


def test_the_pythons_that_are_tried_are_those_of_the_package() -> None:
    tried = jobs(ROOT / ".github/workflows/test.yml")["test"]["strategy"]["matrix"]["python"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'Python :: (3\.\d+)"', project) == tried


def test_info_prints_what_a_bug_report_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEVELHEAD_DATA", str(tmp_path))
    monkeypatch.setenv("LEVELHEAD_MODELS", str(tmp_path / "gone[bold]\x1b"))
    monkeypatch.delenv("LEVELHEAD_CACHE", raising=False)
    assert run("info") == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(lines) == {
        *("levelhead", "Python", "CPU", "GPU", "packages", "absent"),
        *("LEVELHEAD_DATA", "LEVELHEAD_MODELS", "LEVELHEAD_CACHE"),
    }
    assert "numpy " in lines["packages"]
    assert lines["LEVELHEAD_DATA"] == str(tmp_path)
    assert lines["LEVELHEAD_MODELS"] == f"{tmp_path / 'gone[bold]'}\\x1b, which is not there"
    assert lines["LEVELHEAD_CACHE"] == "not set"
