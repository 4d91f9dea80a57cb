"""What is in a recipe's data, for a look before training: counts, masked examples, and which columns are opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import torch

from levelhead.data import SPLITS
from levelhead.data.base import DataSet, as_names
from levelhead.data.texts import Texts
from levelhead.runs.recipe import Experiment
from levelhead.types import printable, quoted

SHOWN = 60  # characters of a text

# Options of data sets that name a column, and what it is for.
OPENED = {
    "text_column": "the text",
    "pair_column": "the second text",
    "file_column": "the picture's file",
    "image_column": "the picture",
    "target": "the class",
    "split_column": "the split",
}


@dataclass
class DataLook:
    """What :func:`look_at` saw: rows of each class by split, masked examples, and sentences."""

    title: str
    target: str
    counts: dict[str, list[int]]
    examples: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def look_at(experiment: Experiment) -> DataLook:
    """Read all splits as training does, and say what is there. No group is opened.

    Errors: those of the data set, such as :class:`~levelhead.types.DataError` for a column that is absent.
    """
    data, name = experiment.data, experiment.data_name
    data.check()
    target = str(getattr(data, "target", "class"))
    splits = {split: data.examples(split) for split in SPLITS}
    names = splits["train"].class_names
    counts = {
        printable(one): [int((examples.labels == code).sum()) for examples in splits.values()]
        for code, one in enumerate(names)
    }
    look = DataLook(f"{name}: rows of each class", target, counts)
    first = splits["train"]
    for row in range(min(3, len(first.labels))):
        label = printable(names[int(first.labels[row])])
        look.examples.append(f"Example {row + 1}, {label}: {_masked(first.inputs, row)}")
    of_texts = getattr(data, "text_column", None) is not None
    options = [option for option in OPENED if not (of_texts and option == "image_column")]
    opened = {getattr(data, option, None): OPENED[option] for option in options}
    columns = [f"{quoted(column)} ({use})" for column, use in opened.items() if column]
    if columns:
        look.said.append(f"Training opens {', '.join(columns)}.")
    identifier = getattr(data, "id_column", None)
    closed = [quoted(one) for one in as_names(getattr(data, "sensitive", ()) or ())]
    closed += [f"{quoted(identifier)} (the id)"] if identifier else []
    if closed:
        look.said.append(f"Only evaluation opens {', '.join(closed)}.")
    elif not hasattr(data, "sensitive"):  # a data set with groups of its own
        look.said.append(f"Only evaluation opens the groups ({data.card.groups}).")
    else:
        look.said.append(
            "No groups are named (data.sensitive): an evaluation gives figures by class, and groups can be joined to "
            "its predictions later."
        )
    look.said += _people(data)
    if isinstance(first.inputs, Texts):
        look.said += _repeated({split: cast(Texts, examples.inputs) for split, examples in splits.items()})
    smallest = min(min(column) for column in counts.values())
    if smallest < 30:
        look.said.append(f"A class has {smallest} rows in one of the splits: its figures will have wide intervals.")
    batch = experiment.train.batch_size
    if batch > len(first.labels):
        look.said.append(
            f"train.batch_size is {batch} and there are {len(first.labels)} training rows: lower it, or training stops."
        )
    return look


def _people(data: DataSet) -> list[str]:
    """Say how many people there are, where the data set knows: opens whom rows are of, and no group."""
    known = [data.people(split) for split in SPLITS]
    if any(people is None for people in known):
        return []
    times = Counter(person for people in known for person in people or ())
    several = sum(count > 1 for count in times.values())
    said = [f"{sum(times.values()):,} rows of {len(times):,} people, {several:,} of whom have two rows or more."]
    if column := getattr(data, "person_column", None):
        said.append(
            f"Evaluation, folds and methods of people open {quoted(column)} (the person). Other training opens it only "
            "where levelhead deals rows to splits, by person."
        )
    times = Counter(person for people in known for person in set(people or ()))
    if shared := sum(count > 1 for count in times.values()):
        said.append(f"{shared:,} people have rows in several splits: the test rows are not all of new people.")
    return said


def _masked(inputs: object, row: int) -> str:
    """Return an example that shows its form and not what it says."""
    if isinstance(inputs, Texts):
        found = masked_text(inputs.texts[row])
        return found if inputs.pairs is None else f"{found} | {masked_text(inputs.pairs[row])}"
    batch = inputs.batch(torch.tensor([row]))  # type: ignore[attr-defined]
    return ", ".join(f"{name} {' x '.join(map(str, tensor.shape[1:]))}" for name, tensor in batch.items())


def masked_text(text: str) -> str:
    """Return a text with the first letter of each word, dots for the others, and its length."""
    start = " ".join(text[: 2 * SHOWN].split())[:SHOWN]
    shown = "".join(
        letter if not letter.isalnum() or place == 0 or not start[place - 1].isalnum() else "·"
        for place, letter in enumerate(start)
    )
    return f"{printable(shown)}{'…' if len(text) > SHOWN else ''} ({len(text):,} characters)"


def _repeated(inputs: Mapping[str, Texts]) -> list[str]:
    """Say which texts stand in more than one split: a test on what was trained on is none."""
    known, said = set(inputs["train"].keys()), []
    for split in ("validation", "test"):
        keys = inputs[split].keys()
        if count := sum(key in known for key in keys):
            said.append(
                f"{count:,} of {len(keys):,} {split} rows hold a text that training sees, too: drop them, or "
                "leave out data.split_column, so that equal texts go to one split."
            )
    return said
