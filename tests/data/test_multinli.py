"""MultiNLI in its three layouts, on made-up sentences; the counts of the real cut where it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from levelhead.data import SPLITS, Split
from levelhead.data.multinli import CLASS_NAMES, HUB_NAMES, MultiNLI, holds_negation
from levelhead.data.text_files import read_columns
from levelhead.data.texts import Texts

ROWS = 90
LABELS = ["neutral", "entailment", "contradiction"]


def rows(kind: str, count: int = ROWS) -> list[tuple[str, str, str]]:
    """Three hypotheses a premise, one of each class; every fourth hypothesis holds a negation."""
    return [
        (f"The {kind} lamp {row // 3} is on.", f"{'No' if row % 4 == 0 else 'A'} lamp, {row}.", LABELS[row % 3])
        for row in range(count)
    ]


MATCHED = Path("multinli_1.0", "multinli_1.0_dev_matched.jsonl")
FILES = {"train": rows("red"), "matched": rows("blue", 12), "mismatched": rows("green", 9)}


def write_owners(root: Path, without: tuple[str, str] = ("gold_label", "-"), name: str = "multinli_1.0") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for kind, pairs in FILES.items():
        lines = [
            json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis, "genre": "lamps"})
            for premise, hypothesis, label in pairs
        ]
        record = {"gold_label": "neutral", "sentence1": "A fox ran.", "sentence2": "It ran.", without[0]: without[1]}
        lines.insert(4, json.dumps(record))
        path = folder / f"multinli_1.0_{kind if kind == 'train' else f'dev_{kind}'}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def write_hub(root: Path) -> Path:
    folder = root / "multinli" / "data"
    folder.mkdir(parents=True)
    for kind, pairs in FILES.items():
        premises, hypotheses, labels = zip(*pairs, ("A fox ran.", "It ran.", None), strict=True)
        columns = {
            "promptID": list(range(len(labels))),
            "premise": premises,
            "hypothesis": hypotheses,
            "genre": ["lamps"] * len(labels),
            "label": [-1 if label is None else HUB_NAMES.index(label) for label in labels],
        }
        name = kind if kind == "train" else f"validation_{kind}"
        pq.write_table(pa.table(columns), folder / f"{name}-00000-of-00001.parquet")
    return root


def write_csv(root: Path, **changes: Any) -> Path:
    (root / "multinli").mkdir(parents=True)
    for name, kind in (("train", "train"), ("val", "matched")):
        frame = pd.DataFrame(FILES[kind], columns=["premise", "hypothesis", "label"]).assign(
            genre="lamps", a_negation=9
        )
        frame.assign(**changes).to_csv(root / "multinli" / f"{name}.csv.gz", index=False)
    return root


WRITERS = {"owners": write_owners, "hub": write_hub, "csv": write_csv}


@pytest.mark.parametrize("layout", WRITERS)
def test_pairs_labels_and_negations(tmp_path: Path, layout: str) -> None:
    data, plain = MultiNLI(WRITERS[layout](tmp_path)), MultiNLI(write_csv(tmp_path / "plain"))
    for split in SPLITS:
        assert data.examples(split).fingerprint == plain.examples(split).fingerprint
        assert torch.equal(data.groups(split)[0].values, plain.groups(split)[0].values)
    data.check()
    examples, (group,) = data.examples("test"), data.groups("test")
    assert isinstance(examples.inputs, Texts)
    assert examples.inputs.texts == [premise for premise, _, _ in FILES["matched"]]
    assert examples.inputs.pairs == [hypothesis for _, hypothesis, _ in FILES["matched"]]
    assert examples.class_names == ("contradiction", "entailment", "neutral")
    assert [CLASS_NAMES[label] for label in examples.labels] == [label for _, _, label in FILES["matched"]]
    assert group.values.tolist() == [int(row % 4 == 0) for row in range(12)]
    assert (group.attribute, group.names) == ("negation", ("no negation", "negation"))


def test_validation_is_carved_from_train_by_the_premise(tmp_path: Path) -> None:
    data = MultiNLI(write_csv(tmp_path))

    def pairs(split: Split) -> list[tuple[str, str]]:
        inputs = data.examples(split).inputs
        assert isinstance(inputs, Texts)
        assert inputs.pairs is not None
        return list(zip(inputs.texts, inputs.pairs, strict=True))

    train, validation = pairs("train"), pairs("validation")
    assert sorted(train + validation) == sorted((premise, hypothesis) for premise, hypothesis, _ in FILES["train"])
    assert 0 < len(validation) < ROWS // 4
    assert not {premise for premise, _ in train} & {premise for premise, _ in validation}
    # Labels do not decide: the same premises are set aside whatever they are.
    (tmp_path / "other").mkdir()
    other = MultiNLI(write_csv(tmp_path / "other", label=lambda frame: frame["label"].to_numpy()[::-1]))
    assert other.examples("validation").labels.tolist() != data.examples("validation").labels.tolist()
    inputs = other.examples("validation").inputs
    assert isinstance(inputs, Texts)
    assert inputs.texts == [premise for premise, _ in validation]


@pytest.mark.parametrize(
    ("text", "negation"),
    [
        ("Nobody came.", True),
        ("There is NO lamp", True),
        ('"Never!" said the baker', True),
        ("She saw nothing.", True),
        ("It is known and noted, nonetheless", False),
        ("They do not, cannot, and won't", False),
        ("a no-one place", False),  # as the reference: punctuation goes, and leaves no gap
        ("", False),
    ],
)
def test_negation_words(text: str, negation: bool) -> None:
    assert holds_negation(text) is negation


def test_pairs_with_a_blank_text_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = MultiNLI(write_owners(tmp_path, ("sentence2", " ")))
    assert len(data.examples("test").labels) == len(data.groups("test")[0].values) == 12
    assert "left out 1 pairs with a blank text" in caplog.text


@pytest.fixture(scope="module")
def real(real_data: Path) -> Path:
    if not (real_data / "multinli").is_dir():
        pytest.skip(f"no MultiNLI: there is no folder multinli in {real_data}")
    return real_data


@pytest.mark.data
def test_the_real_cut_has_its_counts(real: Path) -> None:
    data = MultiNLI(real)
    data.check()
    labels, negation = data.examples("test").labels, data.groups("test")[0].values
    assert labels.bincount().tolist() == [1664, 1784, 1552]
    assert torch.bincount(labels[negation == 1]).tolist() == [268, 48, 40]
    train, validation = data.examples("train"), data.examples("validation")
    assert len(train.labels) + len(validation.labels) == 20_000
    assert len(validation.labels) == 1989


@pytest.mark.data
@pytest.mark.parametrize(("name", "different"), [("val", 0), ("train", 2)])
def test_the_computed_negation_is_the_real_cuts(real: Path, name: str, different: int) -> None:
    """Two hypotheses of train hold a word of the list joined to others by a hyphen; only the cut's column counts it."""
    columns = read_columns(real / "multinli" / f"{name}.csv.gz", ["hypothesis", "a_negation"])
    computed = [str(int(holds_negation(text))) for text in columns["hypothesis"]]
    pairs = zip(columns["hypothesis"], computed, columns["a_negation"], strict=True)
    others = [text for text, ours, theirs in pairs if ours != theirs]
    assert len(others) == different
    assert all(any(word.lower().startswith("no-") for word in text.split()) for text in others)
