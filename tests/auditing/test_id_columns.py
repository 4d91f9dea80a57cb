"""A column of ids passes for no column of groups, strata or a rule's groups: its values are never printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.types import DataError

ROWS = 400


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    table = {name: draw.integers(0, 2, ROWS) for name in ("y", "decision")}
    frame = pd.DataFrame(table).assign(
        score=draw.random(ROWS), sex=draw.choice(["f", "m"], ROWS), id=[f"person-{row // 2:03}" for row in range(ROWS)]
    )
    frame.to_csv("people.csv", index=False)
    return frame


def test_many_small_groups_beside_two_large_ones_are_groups(people: pd.DataFrame) -> None:
    """Neither are few small ones ids, nor many that min_count lets be compared."""
    with pytest.raises(DataError, match="'id' has 200 different groups, and no two of them have 10 rows"):
        lh.audit(people.y, people.decision, sensitive_features=people.id)
    large = people.id.where(people.index > 60, people.sex)
    found = lh.audit(people.y, people.decision, sensitive_features=large).to_dict()
    assert len(found["by_attribute"]["id"]["groups"]) > 30
    few = people[:40]
    lh.audit(few.y, few.decision, sensitive_features=few.id)
    lh.audit(people.y, people.decision, sensitive_features=people.id, min_count=2)
