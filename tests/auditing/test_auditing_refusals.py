"""What is refused, and in which words: refusals.txt beside this file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from test_bias_rule import made as loans

import levelhead as lh
from levelhead.auditing.postprocess_audit import postprocess
from levelhead.storage import read_json
from refusals import Row, check, rows

RULE = "loan_rule.json"


def read_changed(**changes: object) -> lh.BiasRule:
    """Return the rule of the file in which something else is written."""
    record = read_json(Path(RULE))
    rule = {name: change for name, change in changes.items() if name not in record}
    Path(RULE).write_text(json.dumps({**record, "rule": {**record["rule"], **rule}, **changes}))
    return lh.BiasRule.load(RULE)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write decisions of three groups, rows of which some have no label, and labels of the other sign, and people."""
    folder = tmp_path_factory.mktemp("files")
    decision = ["yes"] * 80 + ["no"] * 20 + ["yes"] * 40 + ["no"] * 60 + ["yes"] * 75 + ["no"] * 25
    table = {"decision": decision, "y": ["yes", "no"] * 150, "race": ["a"] * 100 + ["b"] * 100 + ["c"] * 100}
    table |= {"month": ["spring", "summer", "fall"] * 100}
    pd.DataFrame(table).to_csv(folder / "rows.csv", index=False)
    hired = pd.DataFrame({"y": [0, 1, -1, 1] * 50, "q": [0, 1, 1, 0] * 50, "g": ["f", "f", "m", "m"] * 50})
    hired = hired.assign(p=hired["q"] * 0.4 + 0.2 + hired.index % 7 / 100)
    hired.to_csv(folder / "some.csv", index=False)
    hired.assign(y=-1).to_csv(folder / "none.csv", index=False)
    hired.assign(y=1 - hired["y"].abs()).to_csv(folder / "turned.csv", index=False)
    people = pd.DataFrame({"y": [0, 1] * 200, "decision": [0, 1, 1, 0] * 100, "sex": ["f", "m", "m", "f"] * 100})
    people = people.assign(id=[f"person-{row // 2:03}" for row in range(400)], score=people.index * 37 % 400 / 401)
    people.to_csv(folder / "people.csv", index=False)
    new = loans(100, 9).astype({"sex": object})
    for name, column, value in (
        ("loan", "p", 0.5),
        ("x", "sex", "x"),
        ("nobody", "sex", None),
        ("no_score", "p", None),
    ):
        new.assign(**{column: new[column].where(new.index != 3, value)}).to_csv(folder / f"{name}.csv", index=False)
    new.assign(repaid=new["repaid"].map({"yes": "paid", "no": "late"})).to_csv(folder / "words.csv", index=False)
    rule = postprocess(folder / "loan.csv", score="p", groups=["sex"], label="repaid", metric="demographic_parity")
    (folder / RULE).write_text(json.dumps(rule.to_dict()))
    return folder


@pytest.fixture
def files(written: Path, folder_of_its_own: None) -> None:
    """Copy these files into the folder of a row."""
    shutil.copytree(written, Path(), dirs_exist_ok=True)


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, files: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
