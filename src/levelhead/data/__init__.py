"""Data sets, one a file. A new one is a file here and a line in :data:`DATASETS`, or a user's own class."""

from levelhead.data.base import SPLITS, Card, DataSet, Examples, Groups, Inputs, Split
from levelhead.data.celeba import CelebA
from levelhead.data.celeba_folder import CelebAFolder
from levelhead.data.folds import Fold
from levelhead.data.hatexplain import HateXplain
from levelhead.data.hub import Hub
from levelhead.data.image_folder_csv import ImageFolderCsv
from levelhead.data.multinli import MultiNLI
from levelhead.data.phrases import Phrases
from levelhead.data.portraits import Portraits
from levelhead.data.text_csv import TextCsv
from levelhead.data.utkface import UTKFace
from levelhead.data.utkface_folder import UTKFaceFolder
from levelhead.data.views import View
from levelhead.registry import Registry

DATASETS: Registry[DataSet] = Registry(
    "data set",
    DataSet,
    "levelhead.datasets",
    "card",
    {
        "portraits": Portraits,
        "celeba64": CelebA,
        "celeba": CelebAFolder,
        "utkface64": UTKFace,
        "utkface": UTKFaceFolder,
        "hub": Hub,
        "image-folder-csv": ImageFolderCsv,
        "phrases": Phrases,
        "hatexplain": HateXplain,
        "multinli": MultiNLI,
        "text-csv": TextCsv,
    },
)

__all__ = [
    "DATASETS",
    "SPLITS",
    "Card",
    "CelebA",
    "CelebAFolder",
    "DataSet",
    "Examples",
    "Fold",
    "Groups",
    "HateXplain",
    "Hub",
    "ImageFolderCsv",
    "Inputs",
    "MultiNLI",
    "Phrases",
    "Portraits",
    "Split",
    "TextCsv",
    "UTKFace",
    "UTKFaceFolder",
    "View",
]
