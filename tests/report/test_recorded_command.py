"""What a page and a JSON tell of the machine that made them: names of files, and no folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import evaluated_run, run
from levelhead.report.page import recorded_command
from levelhead.terminal import RUNNING


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        ("audit /home/ann/secret/loans.csv --json=/tmp/x/a.json", "audit loans.csv --json=a.json"),
        ("audit ~/secret/loans.csv ../../ann/b.csv", "audit loans.csv b.csv"),
        ("audit '/home/ann/my files/loans 1.csv'", "audit 'loans 1.csv'"),
        ("train r --set data.root=/srv/a/ --set 'data={name: x, root: /srv/b, file: c.csv}'",
         "train r --set data.root=a --set 'data={name: x, root: b, file: c.csv}'"),
        ("table runs/a runs/b", "table runs/a runs/b"),
        ("lm bench bbq --endpoint http://localhost:8000/v1 --model org/name", None),
        ("audit a.csv --label-map '>50K.=>50K' --group n/a --fail-if 'race: a < 1/2'", None),
    ],
)  # fmt: skip
def test_paths_elsewhere_are_recorded_by_their_last_name(typed: str, recorded: str | None) -> None:
    token = RUNNING.set(shlex.split(typed))
    assert recorded_command() == f"levelhead {recorded or typed}"
    RUNNING.reset(token)


@pytest.mark.parametrize(
    "line",
    [
        "audit {0}/rows.csv --label y --prediction decision --group sex --time month",
        "audit {0}/rows.csv --label y --prediction decision --group sex --against {0}/other.csv",
        "audit {0}/rows.csv --label y --score score --group sex --fail-if 'equalized_odds>.9'",
        "audit {0}/rows.csv --prediction decision --favourable 1 --group sex",
        "audit {0}/run --group sex",
        "explain {0}/rows.csv --label y --score score --group sex",
        "postprocess {0}/rows.csv --label y --score score --group sex --metric demographic_parity --rule {0}/new.json",
    ],
)
def test_no_page_or_json_names_a_folder_of_the_machine(line: str, tmp_path: Path) -> None:
    draw, rows = np.random.default_rng(0), 400
    evaluated_run(tmp_path / "run")
    table = {name: draw.integers(0, 2, rows) for name in ("y", "decision")}
    sex, month = draw.choice(["f", "m"], rows), [f"2024-0{1 + at % 4}" for at in range(rows)]
    frame = pd.DataFrame(table).assign(score=draw.random(rows), sex=sex, month=month)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.assign(decision=draw.integers(0, 2, rows)).to_csv(tmp_path / "other.csv", index=False)
    line += " --json {0}/found.json --html {0}/found.html"
    assert run(*shlex.split(line.format(tmp_path))) == 0
    for name in ("found.json", "found.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert str(tmp_path.parent) not in text, name
        assert f"--json {Path('found.json')}" in text, name
