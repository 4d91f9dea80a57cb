"""Data sets, one a file. A new one is a file here and a line in :data:`DATASETS`."""

from levelhead.data.base import SPLITS, Card, DataSet, Examples, Groups, Inputs, Split
from levelhead.data.celeba import CelebA
from levelhead.data.portraits import Portraits
from levelhead.data.utkface import UTKFace

DATASETS: dict[str, type[DataSet]] = {"portraits": Portraits, "celeba64": CelebA, "utkface64": UTKFace}

__all__ = [
    "DATASETS",
    "SPLITS",
    "Card",
    "CelebA",
    "DataSet",
    "Examples",
    "Groups",
    "Inputs",
    "Portraits",
    "Split",
    "UTKFace",
]
