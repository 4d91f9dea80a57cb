"""Rows that are kept in memory, and the tables that they come from."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.tables.rows import MOST_VALUES, Rows, matched
from levelhead.tables.source import Arrays, Wanted
from levelhead.types import DataError


def rows_of(labels: str, predictions: str, **more: np.ndarray) -> Rows:
    rows = Rows({"label": "the labels", "id": "the ids"})
    for role, texts in (("label", labels), ("prediction", predictions)):
        values = sorted(set(texts))
        rows.add({role: (np.array([values.index(one) for one in texts]), values)})
    rows.add(more)
    return rows


def test_a_code_takes_a_byte_and_codes_of_batches_agree() -> None:
    rows = Rows({"label": "the labels"})
    rows.add({"label": (np.array([0, 1, 1]), ["a", "b", "never"]), "score": np.array([0.1, 0.2, 0.3])})
    rows.add({"label": (np.array([1, 0]), ["c", "a"]), "score": np.array([0.4, 0.5])})
    assert [part.dtype for part in rows.parts["label"]] == [np.uint8, np.uint8]
    assert rows.known["label"] == {"a": 0, "b": 1, "c": 2}
    assert [batch["label"].tolist() for batch in rows.batches()] == [[0, 1, 1], [0, 2]]
    assert rows.whole("label").tolist() == [0, 1, 1, 0, 2]
    assert rows.counts("label") == {"a": 2, "b": 2, "c": 1}
    assert len(rows) == 5


def test_a_column_with_a_title_may_not_hold_ids() -> None:
    codes, values = np.arange(MOST_VALUES + 1), list(range(MOST_VALUES + 1))
    rows = Rows({"label": "the labels"})
    rows.add({"cluster": (codes, values)})
    assert rows.parts["cluster"][0].dtype == np.uint16
    with pytest.raises(DataError, match="the labels has more than 32,000 different values"):
        rows.add({"label": (codes, values)})


def test_rows_are_matched_by_their_ids_and_keep_the_other_prediction() -> None:
    new = rows_of("yyn", "yny", id=np.array(["1", "2", "3"], object))
    old = rows_of("nyy", "nny", id=np.array(["3", "1", "4"], object))
    both, said = matched(new, old)
    assert both.whole("id").tolist() == ["1", "3"]
    codes, values = both.column("other")
    assert [values[code] for code in codes] == ["n", "n"]
    assert said == ["1 rows of the new file and 1 of the old have no partner and are left out; 2 rows are compared."]
    assert len(new) == 3  # nothing is taken from the rows themselves
    assert "other" not in new.known
    with pytest.raises(DataError, match="1 of 2 rows have another label"):
        matched(new, rows_of("ny", "yy", id=np.array(["1", "2"], object)))


def test_arrays_are_as_long_as_their_labels() -> None:
    source = Arrays()
    source.add_outcomes({"label": (np.array([0, 1]), ["a", "b"])})
    source.add_numbers("age", [1, 2], "The age", "ages")
    assert source.title("The label") == "The label"
    assert source.add_words({"The label": ["x", "y"]}) == ("The label",)
    (batch,) = source.batches(Wanted(["The label"], ["The label"], ["age"]))
    assert batch.outcomes["The label"][1] == ["a", "b"]
    assert batch.words["The label"][1][:2] == ["x", "y"]
    assert batch.numbers["age"].tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match="2 labels and 3 ages"):
        source.add_numbers("other", [1, 2, 3], "The age", "ages")
    with pytest.raises(DataError, match="Two columns of numbers are named 'age'"):
        source.add_numbers("age", [1, 2], "The age", "ages")
