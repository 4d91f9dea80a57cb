"""One table says what does not go together: every pair and many triples of options are in it, or work."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.auditing.exclusions import NEEDS, PAIRS, Refused, as_markdown, dashed

LONG = "LEVELHEAD_LONG" in os.environ
ROWS = 240
CHANCE = np.random.default_rng(0)
LABEL = np.repeat(CHANCE.integers(0, 2, ROWS // 2), 2)
TABLE = pd.DataFrame(
    {
        "id": np.arange(ROWS), "y": LABEL, "yhat": np.where(CHANCE.random(ROWS) < 0.7, LABEL, 1 - LABEL),
        "p": CHANCE.random(ROWS).round(3), "g": ["a", "b"] * (ROWS // 2), "h": ["c", "c", "d", "d"] * (ROWS // 4),
        "w": CHANCE.random(ROWS) + 0.5, "n": CHANCE.integers(1, 3, ROWS), "who": np.arange(ROWS) // 3,
        "age": CHANCE.integers(20, 60, ROWS), "month": np.arange(ROWS) % 3, "site": ["e", "f", "f"] * (ROWS // 3),
        "some": np.where(CHANCE.random(ROWS) < 0.6, ["a", "b"] * (ROWS // 2), None), "chance": 0.5,
        "proxy": CHANCE.random(ROWS).round(2), "q": CHANCE.random(ROWS), "two": np.arange(ROWS) // 2,
    }
)  # fmt: skip
OTHER = TABLE.assign(yhat=TABLE["yhat"].sample(frac=1, random_state=0).to_numpy())
OPTIONS: dict[str, Any] = {
    "label": "y", "prediction": "yhat", "score": "p", "groups": ["g", "h"], "threshold": 0.4, "scale": "probability",
    "top": "10%", "numbers": True, "against": OTHER, "on": "id", "join": TABLE[["id"]].assign(team=TABLE["g"]),
    "along": ["age"], "weight": "w", "count": "n", "cluster": "who", "control": ["site"], "time": "month",
    "intersect": True, "bins": ["team=values"], "reference": ["g=a"], "min_count": 2, "positive": 1, "favourable": 1,
    "label_map": {0: 0, 1: 1}, "ignore_label": 7, "costs": "1:5", "missing": "group",
    "pairs": "two", "labelled_group": "some", "proxy": ["proxy"], "proxy_probabilities": {"a": "q"},
    "shares": {"a": 0.5}, "randomized_response": "flip=0.1",
}  # fmt: skip
BASES: list[dict[str, Any]] = [
    {"label": "y", "prediction": "yhat", "groups": ["g", "h"]},
    {"label": "y", "score": "p", "groups": ["g", "h"]},
    {"prediction": "yhat", "groups": ["g", "h"], "favourable": 1},
    {"score": "p", "groups": ["g", "h"], "top": 20},
    {"prediction": "yhat", "groups": ["g"], "pairs": "two"},
    {"label": "age", "prediction": "q", "groups": ["g", "h"], "numbers": True},
    {"label": "y", "prediction": "yhat", "shares": {"a": 0.5}},
]


def outcome(options: dict[str, Any]) -> str:
    """Return what became of an audit."""
    if "join" in options:
        options = options | {"groups": ["team", *options.get("groups", ["g"])]}
    elif "bins" in options:
        options = options | {"bins": ["g=values"]}
    if "pairs" in options and "groups" in options:
        options = options | {"groups": ["team" if "join" in options else "g"]}
    try:
        lh.audit_table(TABLE, replicates=100, **options)
    except Refused:
        return "refused"
    return "works"


@pytest.mark.parametrize(
    "base", BASES, ids=["classes", "scores", "decisions", "ranking", "pairs", "numbers", "unrecorded"]
)
def test_every_option_and_pair_of_options_is_refused_by_the_table_or_works(base: dict[str, Any]) -> None:
    pairs = list(itertools.combinations(OPTIONS, 2))
    triples = random.Random(0).sample(list(itertools.combinations(OPTIONS, 3)), 400 if LONG else 40)
    drawn = random.Random(1).sample(pairs, len(pairs) if LONG else 60) + triples + [(name,) for name in OPTIONS]
    wrong = []
    for names in drawn:
        try:
            outcome(base | {name: OPTIONS[name] for name in names if name not in base})
        except Exception as error:
            wrong.append(f"{names}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a_row_refuses_each_of_its_pairs_in_a_sentence_that_names_both() -> None:
    for row, other in [(one, other) for one in PAIRS for other in one.others]:
        said = Refused(row.why, [other]).typed
        assert dashed(other) in said or "{given}" not in row.why
        assert "{" not in said, said
    assert all("{" not in Refused(one.why, [one.option]).typed for one in NEEDS)


def test_the_docs_show_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "audit-refusals.md"
    assert as_markdown() in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("given", [{"groups": ["a"]}, {}])
def test_groups_of_arrays_are_sensitive_features(given: dict[str, Any]) -> None:
    with pytest.raises(lh.LevelheadError, match="sensitive_features="):
        lh.audit([0, 1], [0, 1], **given)
    with pytest.raises(lh.LevelheadError, match="sensitive_features="):
        lh.audit([0, 1], [0, 1], ["a", "b"])
