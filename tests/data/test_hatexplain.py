"""HateXplain in its two layouts, on harmless made-up posts; the counts of the real set where it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from levelhead.data import SPLITS
from levelhead.data.hatexplain import LABELS, HateXplain
from levelhead.data.texts import Texts
from levelhead.types import DataError

N, H, O = "normal", "hatespeech", "offensive"  # noqa: E741
NOBODY = ["None"]
W = ["Women"]

# The labels and the named communities of the three annotators, and what follows: y, a.
CASES: list[tuple[list[str], list[list[str]], int, int]] = [
    ([N, N, O], [NOBODY, NOBODY, W], 0, 0),  # one annotator alone names women
    ([H, H, O], [W, ["Women", "Other"], NOBODY], 1, 1),
    ([N, O, H], [W, ["Men"], ["Other"]], 1, 0),  # three different labels
    ([N, N, N], [W, W, W], 0, 1),
    ([O, N, O], [["Other"], ["Other"], NOBODY], 1, 0),
    ([N, N, H], [["Men", "Women"], ["Men"], W], 0, 1),
    ([H, N, O], [NOBODY, NOBODY, NOBODY], 1, 0),  # two of three are not normal, and they differ
    ([N, O, N], [["Women", "Women"], NOBODY, ["Men"]], 0, 1),  # named twice by one: the owners' code counts it
]
NAMES = {"train": "train", "validation": "val", "test": "test"}


def post(row: int, labels: list[str], named: list[list[str]]) -> dict[str, Any]:
    notes = [
        {"label": label, "annotator_id": row + place, "target": names}
        for place, (label, names) in enumerate(zip(labels, named, strict=True))
    ]
    words = ["apples", "grow", f"w{row}"]
    return {"post_id": f"{row}_pond", "annotators": notes, "rationales": [], "post_tokens": words}


def corpus() -> dict[str, list[dict[str, Any]]]:
    """Every case in every split."""
    return {
        split: [post(100 * place + row, *case[:2]) for row, case in enumerate(CASES)]
        for place, split in enumerate(SPLITS)
    }


def write_owners(root: Path, posts: dict[str, list[dict[str, Any]]]) -> Path:
    folder = root / "hatexplain"
    folder.mkdir(parents=True)
    # Another order than the splits': these must follow their own lists.
    records = [record for split in reversed(SPLITS) for record in posts[split]]
    (folder / "dataset.json").write_text(json.dumps({record["post_id"]: record for record in records}))
    divisions = {NAMES[split]: [record["post_id"] for record in posts[split]] for split in SPLITS}
    (folder / "post_id_divisions.json").write_text(json.dumps(divisions))
    return root


def write_csv(root: Path) -> Path:
    (root / "hatexplain").mkdir(parents=True)
    for place, split in enumerate(SPLITS):
        columns = {"text": [f"apples grow w{100 * place + row}" for row in range(len(CASES))], "label3": LABELS[0]}
        women = [None if split == "train" else case[3] for case in CASES]
        frame = pd.DataFrame({**columns, "y": [case[2] for case in CASES], "a_women": women})
        frame.to_csv(root / "hatexplain" / f"{NAMES[split]}.csv.gz", index=False)
    return root


def test_the_layouts_tell_the_same(tmp_path: Path) -> None:
    written = [
        HateXplain(write_owners(tmp_path / "owners", corpus())),
        HateXplain(write_csv(tmp_path / "csv")),
    ]
    for data in written:
        data.check()
        for place, split in enumerate(SPLITS):
            examples = data.examples(split)
            assert isinstance(examples.inputs, Texts)
            assert examples.inputs.texts == [f"apples grow w{100 * place + row}" for row in range(len(CASES))]
            assert examples.labels.tolist() == [case[2] for case in CASES]
            assert examples.class_names == ("normal", "hateful or offensive")
            assert examples.fingerprint == written[0].examples(split).fingerprint
            if data is written[1] and split == "train":
                continue
            (group,) = data.groups(split)
            assert group.values.tolist() == [case[3] for case in CASES]
            assert (group.attribute, group.names[1]) == ("women_targeted", "women targeted")


def test_without_communities_training_goes_on_and_an_evaluation_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = HateXplain(write_owners(tmp_path / "whole", corpus())).examples("train")
    posts = corpus()
    for record in (record for split in SPLITS for record in posts[split]):
        for note in record["annotators"]:
            del note["target"]
    data = HateXplain(write_owners(tmp_path / "bare", posts))
    data.check()
    assert "has no column 'target' (data.sensitive): training does not need it" in caplog.text
    assert data.examples("train").fingerprint == whole.fingerprint
    with pytest.raises(DataError, match="'target'"):
        data.groups("train")


def both(root: Path) -> Path:
    """Write two layouts into one folder."""
    write_csv(root)
    for file in write_owners(root / "more", corpus()).glob("hatexplain/*"):
        file.rename(root / "hatexplain" / file.name)
    return root


def test_of_several_layouts_one_is_chosen(tmp_path: Path) -> None:
    assert HateXplain(both(tmp_path), layout="owners").groups("train")[0].values.sum() == 4


@pytest.mark.data
def test_the_real_set_has_the_published_counts(real_data: Path) -> None:
    if not (real_data / "hatexplain").is_dir():
        pytest.skip(f"no HateXplain: there is no folder hatexplain in {real_data}")
    data = HateXplain(real_data)
    data.check()
    assert [len(data.examples(split).labels) for split in SPLITS] == [15383, 1922, 1924]
    assert data.examples("train").labels.bincount().tolist() == [6251, 9132]
    labels, (group,) = data.examples("test").labels, data.groups("test")
    counts = [[int(((group.values == a) & (labels == y)).sum()) for y in (1, 0)] for a in (1, 0)]
    assert counts == [[126, 21], [1016, 761]]
