"""A model that uses the groups beside one that does not: for whom it is worse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.cli.app import main
from levelhead.metrics.paired import paired_interval
from levelhead.types import ConfigError


def run(command: list[str]) -> object:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as stop:
        main(command)
    return stop.value.code


def made() -> pd.DataFrame:
    """Return predictions that the use of age and sex makes worse for old women alone."""
    chance = np.random.default_rng(0)
    sex, age, y = chance.choice(["f", "m"], 3000), chance.choice(["old", "young"], 3000), chance.integers(0, 2, 3000)
    generic = np.where(chance.random(3000) < 0.75, y, 1 - y)
    worse = (sex == "f") & (age == "old")
    flipped, corrected = chance.random(3000) < 0.15, chance.random(3000) < 0.3
    personal = np.where(worse, np.where(flipped, 1 - generic, generic), np.where(corrected, y, generic))
    return pd.DataFrame({"y": y, "generic": generic, "personal": personal, "sex": sex, "age": age})


def test_the_group_that_fares_worse_is_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, file, page, figures = made(), tmp_path / "p.csv", tmp_path / "a.html", tmp_path / "a.json"
    frame.to_csv(file, index=False)
    command = ["audit", str(file), "--label", "y", "--with", "personal", "--without", "generic", "--group", "age,sex"]
    assert run([*command, "--html", str(page), "--json", str(figures)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    part = frame[(frame["sex"] == "f") & (frame["age"] == "old")]
    new, old = (100 * (part["y"] == part[name]).mean() for name in ("personal", "generic"))
    gained = int(((part["personal"] == part["y"]) & (part["generic"] != part["y"])).sum())
    lost = int(((part["personal"] != part["y"]) & (part["generic"] == part["y"])).sum())
    low, high = paired_interval(gained, lost, len(part))
    told = (
        f"For group “old & f” of age & sex the model that uses the group is worse: right for {new:.1f}% of its "
        f"{len(part):,} rows, without it for {old:.1f}%, {old - new:.1f} points lower, interval {-100 * high:.1f} to "
        f"{-100 * low:.1f}, p "
    )
    assert said.startswith(told)
    against = json.loads(figures.read_text())["against"]
    assert against["personal"] is True
    assert against["by_attribute"]["age & sex"]["worse"] == ["old & f"]
    assert against["by_attribute"]["sex"]["worse"] == []
    assert "is worse" in page.read_text()
    file_result = lh.audit_file(file, "y", "personal", ["age", "sex"], without="generic", intersect=True)
    arrays = lh.audit(
        frame["y"],
        frame["personal"],
        without=frame["generic"],
        sensitive_features=frame[["age", "sex"]],
        intersect=True,
    )
    assert file_result.against is not None
    assert arrays.against is not None
    for key in (("age", "sex"), "sex"):
        assert file_result.against.sentences(key) == arrays.against.sentences(key)


def test_nobody_worse_and_too_few_rows_are_said() -> None:
    frame = made()
    frame["group"] = np.where(np.arange(3000) < 4, "few", "many")
    result = lh.audit(frame["y"], frame["y"], without=frame["generic"], sensitive_features=frame[["group"]])
    assert result.against is not None
    lines = result.against.sentences("group")
    assert lines[0] == "By group, the model that uses it is not measurably worse for any group."
    assert "For group “many” of group the model that uses the group is better: right for 100.0%" in lines[1]
    assert lines[-1] == "Too few rows, or no group:  “few”."
    same = lh.audit(frame["y"], frame["generic"], without=frame["generic"], sensitive_features=frame[["sex"]])
    assert same.against is not None
    assert same.against.sentences("sex")[1].startswith("Inconclusive for “f”, “m”: it may be worse by up to ")


def test_what_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = made()
    file = tmp_path / "p.csv"
    frame.to_csv(file, index=False)
    start = ["audit", str(file), "--label", "y", "--group", "sex"]
    for more in (
        ["--with", "personal"],
        ["--without", "generic", "--prediction", "personal"],
        ["--with", "personal", "--without", "generic", "--against", str(file)],
        ["--with", "personal", "--without", "generic", "--score", "y"],
    ):
        assert run([*start, *more]) != 0
        assert "--with and --without go together and replace --prediction" in " ".join(capsys.readouterr().err.split())
    assert run([*start, "--with", "personal", "--without", "personal"]) != 0
    assert "in two columns of one file" in " ".join(capsys.readouterr().err.split())
    assert run([*start, "--with", "personal", "--without", "nowhere"]) != 0
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="both name another model"):
        lh.audit(frame["y"], frame["personal"], without=frame["y"], against=frame["y"], sensitive_features=frame["sex"])
    with pytest.raises(ConfigError, match="without= cannot be used with weights"):
        lh.audit(
            frame["y"],
            frame["personal"],
            without=frame["y"],
            sample_weight=np.ones(3000),
            sensitive_features=frame["sex"],
        )
