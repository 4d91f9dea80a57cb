"""What a data set gives to a trainer, and what it gives to an evaluator alone.

The two sides never meet: :meth:`DataSet.examples` opens only the input and the target column, and
:meth:`DataSet.groups` opens only the sensitive columns. The training path calls the first; the second is called
by the evaluator, and by methods that declare ``uses_groups``.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from levelhead.storage import data_home
from levelhead.types import ConfigError, DataError, LevelheadError, quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
ID = "id"
LARGEST_SIDE = 4096  # in pixels, that pictures are resized to
TAKEN = (ID, "label", "prediction", "epoch", "row", "cluster")  # columns of a run's predictions, beside probability_*


@dataclass(frozen=True)
class Card:
    """Who made a data set, for what task, with which groups, under which terms, and how to cite it."""

    title: str
    task: str
    groups: str
    licence: str
    citation: str = "none"
    url: str = ""
    caution: str = "Say who labelled the rows, and how, with every figure."


class Inputs(ABC):
    """The model inputs of one split, in memory or on disk, addressed by position.

    ``lengths`` (n,) int64 is the number of tokens of each example where they differ, otherwise None: the trainer then
    puts examples of like length into one batch, which wastes less on padding.
    """

    lengths: Tensor | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of examples."""

    @abstractmethod
    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return the model inputs at ``index`` (batch,) int64, e.g. ``{"pixel_values": (batch, 3, H, W)}``."""

    def on(self, device: torch.device) -> Inputs:
        """Return the same inputs, on ``device`` if :meth:`batch` is quicker there and they fit; others stay."""
        return self

    def fingerprint(self) -> str:
        """Return a hash of everything that :meth:`batch` can return, and of nothing else: the key of a feature cache.

        Raises :class:`~levelhead.types.LevelheadError` for inputs that cannot be hashed.
        """
        raise LevelheadError(f"{type(self).__name__} has no fingerprint, so no features of it can be kept.")

    def with_labels(self, labels: Tensor, class_names: tuple[str, ...]) -> Examples:
        """Return the examples of a split: these inputs with the classes ``labels`` (n,) int64."""
        return Examples(self, labels, class_names, hash_of(self, labels))

    def keys(self) -> list[str]:
        """Return for each example a hash of what it holds: equal ones have equal keys.

        Raises :class:`~levelhead.types.LevelheadError` for inputs that cannot be split into folds.
        """
        raise LevelheadError(f"{type(self).__name__} cannot be split into folds: it has no keys.")

    def chosen(self, index: Tensor) -> Inputs:
        """Return the examples at ``index`` (n,) int64, in that order. Errors: as :meth:`keys`."""
        raise LevelheadError(f"{type(self).__name__} cannot be split into folds: it cannot be divided.")

    def joined(self, others: Sequence[Any]) -> Inputs:
        """Return these examples and those of ``others``, of the same kind, one after another. Errors: as above."""
        raise LevelheadError(f"{type(self).__name__} cannot be split into folds: it cannot be joined.")


def hash_of(inputs: Inputs, labels: Tensor) -> str:
    """Return a hash of inputs and labels (n,) int64, and of nothing else."""
    digest = hashlib.blake2b(inputs.fingerprint().encode(), digest_size=16)
    digest.update(labels.numpy().astype("<i8").data)
    return digest.hexdigest()


def fits(device: torch.device, size: int) -> bool:
    """Whether ``size`` bytes are at most a quarter of what is free in a GPU's memory; False where there is no GPU."""
    import torch

    return device.type == "cuda" and size <= torch.cuda.mem_get_info(device)[0] / 4


@dataclass(frozen=True)
class Examples:
    """One split as the trainer sees it: no sensitive column, no file name, no identifier.

    ``labels`` is (n,) int64; ``class_names`` names the classes by position; ``fingerprint`` is a hash of inputs
    and labels alone, so that it does not change when file names or sensitive columns do.
    """

    inputs: Inputs
    labels: Tensor
    class_names: tuple[str, ...]
    fingerprint: str

    def on(self, device: torch.device) -> Examples:
        """Return the same examples, their inputs on ``device`` where that is quicker and they fit."""
        return replace(self, inputs=self.inputs.on(device))


@dataclass(frozen=True)
class Groups:
    """One sensitive attribute of one split: ``values`` (n,) int64, ``names`` by value, ``attribute`` its name.

    A value of -1 is a row without a group.
    """

    attribute: str
    values: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True)
class DataSet(ABC):
    """Base of every data set: a frozen dataclass of its options.

    ``root`` is the folder that holds the data sets, as a path or a text (None: ``$LEVELHEAD_DATA``, then ``data``);
    an embedded data set ignores it.
    """

    card: ClassVar[Card]
    root: Path | None = None

    @property
    def _sensitive(self) -> tuple[str, ...]:
        """The columns that the option ``sensitive`` names."""
        return as_names(getattr(self, "sensitive", ()))

    @abstractmethod
    def check(self) -> None:
        """Raise a :class:`~levelhead.types.LevelheadError` early and cheaply if the data is absent or cannot be used.

        An absent sensitive column is a logged warning: training does without it.
        """

    @abstractmethod
    def examples(self, split: Split) -> Examples:
        """Return inputs and labels of ``split``; opens no sensitive column."""

    def with_target(self, column: str) -> DataSet:
        """Return the same rows with another target.

        Raises :class:`~levelhead.types.ConfigError` for a sensitive column, and for data whose target is fixed.
        """
        if column in self._sensitive:
            raise ConfigError(f"{quoted(column)} is a sensitive column, and this needs another label: name another.")
        if not hasattr(self, "target"):
            raise ConfigError(f"{type(self).__name__} has one target: there is no other label in it.")
        changed: dict[str, Any] = {"target": column}
        return replace(self, **changed)

    def inputs(self, split: Split) -> Inputs:
        """Return the inputs of ``split`` alone, for training without labels; every picture set opens no target either.

        A data set that does not say how takes them from :meth:`examples`, which opens the target, and forgets it.
        """
        return self.examples(split).inputs

    @abstractmethod
    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attributes of ``split`` in row order, first the task's main one.

        Empty where the data set names none: it can be trained on and evaluated, but not by group.
        """

    def require_groups(self, split: Split, *, partly: bool = False, attribute: str | None = None) -> tuple[Groups, ...]:
        """Return :meth:`groups`, or raise :class:`~levelhead.types.ConfigError` where there are none.

        Raises :class:`~levelhead.types.DataError` if rows have no group in ``attribute`` (None: the main one), unless
        ``partly``.
        """
        found = self.groups(split)
        if not found:
            raise ConfigError(
                "This needs groups: name their column in data.sensitive (training does not open it), or join them "
                "later: levelhead audit --join."
            )
        asked = next((one for one in found if one.attribute == attribute), found[0])
        without = int((asked.values < 0).sum())
        if without and not partly:
            raise DataError(
                f"{without} of {len(asked.values)} rows of the {split} split have no group in "
                f"{quoted(asked.attribute)}, and this needs the group of each. Fill these fields, or drop the rows."
            )
        return found

    def ids(self, split: Split) -> Sequence[str] | None:
        """Return what the user knows each row of ``split`` by, (n,); None where there is no such thing.

        Written beside predictions, so that groups can be joined later; training never sees it.
        """
        return None

    @property
    def numbered_by_split(self) -> bool:
        """Whether :meth:`ids` are row numbers that begin again in another split: rows of two splits may share one."""
        return False

    def new_rows(self, table: Path) -> Inputs:
        """Return the inputs of a table of new rows, in its order; opens the columns of inputs and no other.

        Raises:
            ConfigError: the data set reads no table of a user's own.
            DataError: the table lacks a column, or an input is empty or cannot be read.
        """
        raise ConfigError(
            "New rows can be predicted for text-csv, image-folder-csv and texts of hub. Else use the model in "
            "the run's folder model/ (docs/serving.md)."
        )

    @property
    def id_name(self) -> str:
        """The column of predictions that holds :meth:`ids`: what the user calls it, else "id"."""
        return ID

    def people(self, split: Split) -> Sequence[str] | None:
        """Return whom each row of ``split`` is of, (n,); None where the data set does not know.

        It decides what must stay on one side of a split, and which rows an interval takes together. Only methods that
        declare ``uses_people`` see it in training.
        """
        return None

    def training_people(self) -> Tensor:
        """Return a code, from 0, for whom each training row is of, (train,) int64.

        Raises:
            ConfigError: the data set does not know.
            DataError: somebody is in the validation split, too, which is to be a test of new people.
        """
        train, validation = self.people("train"), self.people("validation")
        if train is None or validation is None:
            raise ConfigError(
                "This method needs to know which rows belong to one person, and the data set does not say. Name the "
                "column of ids: data.person_column (text-csv, image-folder-csv, hub)."
            )
        if both := set(train) & set(validation):
            raise DataError(
                f"{len(both)} people are in both the training and the validation split. Split by person, e.g. with "
                "levelhead compare --folds."
            )
        return codes_of(train, tuple(dict.fromkeys(train)))


def dataset_folder(root: str | Path | None, *names: str) -> Path:
    """Return the folder of a data set: below ``root``, else ``$LEVELHEAD_DATA``, else ``./data``.

    The first of ``names`` that is there is taken, and a whole path is taken as it is; raises
    :class:`~levelhead.types.DataError` if none is there.
    """
    place = data_home(root)
    for name in names:
        if (place / name).is_dir():
            return place / name
    if Path(names[0]).is_absolute():
        raise DataError(f"There is no folder {names[0]}. Check the path.")
    raise DataError(
        f"There is no folder {place / names[0]}. Give the folder that holds {names[0]}/ with --data-root, or set "
        "LEVELHEAD_DATA."
    )


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple; an empty name is none."""
    return tuple(name for name in ((names,) if isinstance(names, str) else names) if name)


GROUP = "group"
"""Default column of groups."""


def codes_of(values: Iterable[str], names: Sequence[str]) -> Tensor:
    """Return the position in ``names`` of each value, (n,) int64; -1 for an empty one, which is no name."""
    import torch

    code = {"": -1} | {name: position for position, name in enumerate(names)}
    return torch.tensor([code[value] for value in values], dtype=torch.int64)


def people_of(cells: Iterable[str], places: Iterable[str]) -> list[str]:
    """Return whom each row is of, (n,): its cell to the letter. A row with an empty cell is of somebody of its own.

    Such rows are called by their ``places``, which are all different.
    """
    empty = ("", "nan")
    return [
        f"(nobody is named in {place})" if cell.strip().lower() in empty else cell
        for cell, place in zip(cells, places, strict=True)
    ]


def refuse_one_class(labels: Tensor, class_names: tuple[str, ...], target: str, where: str) -> None:
    """Raise :class:`~levelhead.types.DataError` if the labels (n,) int64 of a split are not of two classes at least."""
    present = labels.unique().tolist()
    if len(present) < 2:
        names = ", ".join(quoted(class_names[value]) for value in present) or "of no class"
        raise DataError(f"{where}: all {len(labels)} rows are {names} in {target!r}; there is nothing to learn.")


def check_roles(sensitive: tuple[str, ...], **opened: str | None) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless every column of a table has one role alone.

    ``opened`` are the columns that training may read, by the names of their options; None means no such column.
    """
    refuse_taken_names(sensitive)
    options: dict[str, str] = {}
    for option, column in [*opened.items(), *(("sensitive", name) for name in sensitive)]:
        if column in options:
            raise ConfigError(f"data.{option} {column!r} is also data.{options[column]}. Choose different columns.")
        if column is not None:
            options[column] = option


def check_image_size(image_size: int) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless pictures can have this side, in pixels."""
    if not 1 <= image_size <= LARGEST_SIDE:
        raise ConfigError(f"data.image_size is {image_size}; it must be 1 to {LARGEST_SIDE} pixels.")


def refuse_taken_names(sensitive: tuple[str, ...]) -> None:
    """Raise :class:`~levelhead.types.ConfigError` if a sensitive attribute would overwrite a column of predictions."""
    for name in sensitive:
        if name in TAKEN or name.startswith("probability_"):
            raise ConfigError(
                f"data.sensitive {name!r} is also a column of a run's predictions ({', '.join(TAKEN)}, probability_*) "
                "and would overwrite it. Rename the column in the data."
            )
