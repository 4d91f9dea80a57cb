"""Data sets, one a file. A new one is a file here and a line in :data:`DATASETS`, or a user's own class."""

from levelhead.data.base import SPLITS, Card, DataSet, Examples, Groups, Inputs, Split
from levelhead.registry import Registry

DATASETS: Registry[DataSet] = Registry(
    "data set",
    DataSet,
    "levelhead.datasets",
    "card",
    {
        "portraits": "levelhead.data.portraits:Portraits",
        "celeba64": "levelhead.data.celeba:CelebA",
        "celeba": "levelhead.data.celeba_folder:CelebAFolder",
        "utkface64": "levelhead.data.utkface:UTKFace",
        "utkface": "levelhead.data.utkface_folder:UTKFaceFolder",
        "hub": "levelhead.data.hub:Hub",
        "image-folder-csv": "levelhead.data.image_folder_csv:ImageFolderCsv",
        "phrases": "levelhead.data.phrases:Phrases",
        "hatexplain": "levelhead.data.hatexplain:HateXplain",
        "multinli": "levelhead.data.multinli:MultiNLI",
        "text-csv": "levelhead.data.text_csv:TextCsv",
    },
)

__all__ = ["DATASETS", "SPLITS", "Card", "DataSet", "Examples", "Groups", "Inputs", "Split"]
