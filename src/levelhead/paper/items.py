"""Every table and figure of the paper: what it shows, the grids that represent it, what they need, what is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from levelhead.types import ConfigError, nearest, quoted

Scale = Literal["small", "paper"]
SCALES: tuple[Scale, ...] = ("small", "paper")


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    ``folders`` are its names below ``--data-root``, any of which serves; ``files`` is what they hold. ``reason`` says
    why figures on it differ from the published ones.
    """

    folders: tuple[str, ...]
    files: str
    owner: str
    reason: str = ""

    def is_below(self, root: Path) -> bool:
        """Whether one of its folders is there."""
        return any((root / folder).is_dir() for folder in self.folders)

    def __str__(self) -> str:
        return f"{self.folders[0]}/ with {self.files}"


PICTURES_64 = "64x64 pictures in parquet files"
_UTKFACE_OWNERS = "https://susanqq.github.io/UTKFace/"
_CELEBA_OWNERS = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"

SOURCES = {
    "utkface64": Source(
        ("utkface64",),
        f"{PICTURES_64}: train.parquet, validation.parquet, test.parquet with image, gender and race",
        _UTKFACE_OWNERS,
        "7,722 cleaned pictures instead of about 23,700",
    ),
    "utkface": Source(
        ("utkface", "UTKFace"),
        "the owners' aligned and cropped pictures, which are called [age]_[gender]_[race]_[date&time].jpg",
        _UTKFACE_OWNERS,
        "pictures are assigned to splits by the dates in their names",
    ),
    "celeba64": Source(
        ("celeba64",),
        f"{PICTURES_64}: train.parquet, validation.parquet, test.parquet with image and the 40 attributes",
        _CELEBA_OWNERS,
        "trained on 33,790 of the 162,770 training pictures, tested on 4,535 of the 19,867 pictures of CelebA's "
        "official validation partition, not of its test partition",
    ),
    "celeba": Source(
        ("celeba",),
        "the owners' layout: img_align_celeba/, list_attr_celeba.txt, list_eval_partition.txt",
        _CELEBA_OWNERS,
    ),
    "hatexplain": Source(
        ("hatexplain",), "dataset.json and post_id_divisions.json", "https://github.com/hate-alert/HateXplain"
    ),
    "multinli": Source(
        ("multinli", "multinli_1.0"),
        "multinli_1.0_train.jsonl, multinli_1.0_dev_matched.jsonl, multinli_1.0_dev_mismatched.jsonl",
        "https://cims.nyu.edu/~sbowman/multinli/",
    ),
}
UTKFACE, CELEBA = ("utkface64", "utkface"), ("celeba64", "celeba")
"""Of each the cut in parquet files, and the owners' files, which serve as well."""


@dataclass(frozen=True)
class Item:
    """A table or a figure.

    ``grids`` maps each scale to its grids, and each grid to the backbone whose published figures it is compared with
    ("" where there is one). ``data`` are data sets by scale, names in :data:`SOURCES`, of which the first that is there
    is taken. ``rows`` are the grid's rows that are needed (empty: all). ``reasons`` says for each scale why figures
    will differ from the published ones, whatever the data.
    ``cost`` is a sentence for each scale. ``results`` are committed aggregates, those of the small scale first.
    ``order`` says what ``levelhead reproduce all`` starts with: the smaller, the sooner. ``backbone`` names the
    pretrained network of a scale, and ``first`` what must be done before, where it is made here.
    """

    name: str
    title: str
    shows: str
    grids: Mapping[Scale, Mapping[str, str]]
    data: Mapping[Scale, tuple[str, ...]]
    reasons: Mapping[Scale, str]
    cost: Mapping[Scale, str]
    order: int
    rows: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    drawing: Literal["", "pareto", "qk", "attention"] = ""
    backbone: Mapping[Scale, str] = field(default_factory=dict)
    first: Mapping[Scale, str] = field(default_factory=dict)

    def source(self, scale: Scale, root: Path | None = None) -> str:
        """Return the first of its data sets that is below ``root``; the first of all if none is."""
        names = self.data[scale]
        return next((name for name in names if root is not None and SOURCES[name].is_below(root)), names[0])

    def reason(self, scale: Scale, source: str) -> str:
        """Return why figures on these data, also others than the item's, will differ from the published ones."""
        about = SOURCES[source].reason if source in SOURCES else ""
        return "; ".join(part for part in (self.reasons[scale], about) if part)


SMALL_VIT = "a ViT of width 192 instead of 768"
SELECTION = "epochs are chosen by validation loss; the released notebooks choose by the gap on the test rows"
_EPOCHS = f"30 epochs, which the paper does not state; {SELECTION}"


def _celeba(name: str, title: str, shows: str, costs: tuple[str, str], order: int, grid: str = "", **more: Any) -> Item:
    """Return an item on CelebA, Blond_Hair, by a ``grid`` that is called like it unless it is named."""
    grids: Mapping[Scale, Mapping[str, str]] = {"small": {f"{grid or name}_small": ""}, "paper": {grid or name: ""}}
    return Item(
        name,
        title,
        f"CelebA, Blond_Hair{shows}",
        grids,
        {"small": CELEBA, "paper": CELEBA},
        {"small": f"{SMALL_VIT}, 3 epochs, one seed; {SELECTION}", "paper": _EPOCHS},
        dict(zip(SCALES, costs, strict=True)),
        order,
        **more,
    )


def _texts(name: str, title: str, shows: str, data: str, small: str, costs: tuple[str, str], order: int) -> Item:
    """Return an item on texts: on two sizes of BERT in the paper, on MiniLM at the ``small`` scale."""
    table, task = (f"paper_{name}_small.json", f"paper_{name}_small_presets.json"), {"table6": "le"}.get(name, "ft")
    return Item(
        name,
        title,
        shows,
        {
            "small": {f"{name}_small": "BERT base"},
            "paper": {f"{name}_bert_large": "BERT large", f"{name}_bert_base": "BERT base"},
        },
        {"small": (data,), "paper": (data,)},
        {
            "small": f"MiniLM (6 layers, width 384) instead of BERT, {small}; {SELECTION}",
            "paper": f"the paper does not state its epochs; {SELECTION}".replace(
                "the gap on the test rows", "test figures"
            ),
        },
        dict(zip(SCALES, costs, strict=True)),
        order,
        results=(*table, f"{data}_{task}_small.json"),
        backbone={"small": "sentence-transformers/all-MiniLM-L6-v2"},
    )


GPU = "one GPU with 24 GiB"
NETWORKS = ("ERM", "DAM (paper)", "DAM (levelhead)")
ITEMS = {
    item.name: item
    for item in (
        Item(
            "table1",
            "Table 1",
            "UTKFace, perceived gender by white / not white as annotated: seven methods",
            {"small": {"table1_small": ""}, "paper": {"table1": ""}},
            {"small": UTKFACE, "paper": UTKFACE},
            {"small": f"{SMALL_VIT}, 6 epochs; {SELECTION}", "paper": _EPOCHS},
            {
                "small": "about 90 minutes of 2 cores",
                "paper": "one GPU; without one, about 72 minutes of a core for a training of ERM or DAM",
            },
            order=1,
            results=(
                "paper_table1_small.json",
                "paper_table1_small_dsa.json",
                "paper_table1_small_presets.json",
                "paper_table1_paper.json",
                "methods_utkface64.json",
            ),
        ),
        _celeba(
            "table2",
            "Table 2",
            " by Male as annotated: seven methods",
            ("about two hours of 2 cores, and one more for DSA", "one GPU"),
            order=2,
            results=(
                "paper_table2_small.json",
                "paper_table2_small_dsa.json",
                "paper_table2_small_presets.json",
                "finding_celeba64_blond.json",
            ),
        ),
        _texts(
            "table3",
            "Table 3",
            "HateXplain, posts that target women or not: four methods, everything trained",
            "hatexplain",
            "2 epochs, at most two seeds",
            ("about two hours of 2 cores", GPU),
            order=5,
        ),
        _texts(
            "table4",
            "Table 4",
            "MultiNLI, hypotheses with a negation or without: four methods, everything trained",
            "multinli",
            "2 epochs, two seeds; 20,000 training rows instead of 206,000",
            ("about two and a half hours of 2 cores", f"{GPU}; the longest of all"),
            order=7,
        ),
        Item(
            "table5",
            "Table 5",
            "CelebA, Blond_Hair, on a pretrained ViT: everything trained (FT) or the last encoder alone (LE)",
            {"small": {"table5_small": ""}, "paper": {"table5": ""}},
            {"small": CELEBA, "paper": ("celeba",)},
            {
                "small": "a small ViT pretrained on masked patches of the training pictures instead of DINO ViT-S/16, "
                f"64x64 pictures, 2 epochs (FT) or 6 (LE), one seed; {SELECTION}",
                "paper": f"the released notebook for this table does not divide by the deviation; {SELECTION}",
            },
            {"small": "about half an hour of 2 cores, after `levelhead pretrain`", "paper": "one GPU with 24 GiB"},
            order=6,
            results=("paper_table5_small.json", "table5_small.json", "table5_small_ft.json"),
            backbone={"paper": "facebook/dino-vits16"},
            first={
                "small": "Make one first: levelhead pretrain celeba64_mae_small --data-root DATA --out "
                "models/celeba64_mae"
            },
        ),
        _texts(
            "table6",
            "Table 6",
            "HateXplain: everything trained (FT) or the last encoder alone (LE)",
            "hatexplain",
            "2 epochs (FT) or 6 (LE), two seeds",
            ("about an hour of 2 cores, of which table3 shares most", GPU),
            order=5,
        ),
        _celeba(
            "table7",
            "Table 7",
            ": DAM with each ingredient left out",
            ("about 15 minutes of 2 cores beside table2", "one GPU"),
            order=3,
            results=("paper_table7_small.json", "finding_celeba64_blond.json"),
        ),
        _celeba(
            "figure2",
            "Figure 2",
            ": accuracy against the gap of equalized odds, options varied",
            ("about an hour of 2 cores beside table2", "one GPU"),
            order=4,
            drawing="pareto",
            results=("paper_figure2_small.json", "paper_figure2_small_presets.json"),
        ),
        _celeba(
            "figure3",
            "Figure 3",
            ": one dimension of the readout query and of a key, by group, of ERM and of DAM",
            ("three runs of table2",) * 2,
            order=8,
            grid="table2",
            rows=NETWORKS,
            drawing="qk",
            results=("paper_figure3_small.json",),
        ),
        _celeba(
            "figure4",
            "Figure 4",
            ": mean attention over the patches, by group and label, of ERM and of DAM",
            ("three runs of table2",) * 2,
            order=9,
            grid="table2",
            rows=NETWORKS,
            drawing="attention",
            results=("paper_figure4_small.json",),
        ),
    )
}
"""By name. Figure 1 is a drawing of the method: nothing is measured in it."""


def find_item(name: str) -> Item:
    """Return the item of this name, or raise :class:`~levelhead.types.ConfigError` that names the nearest."""

    key = name.lower().replace(" ", "").replace("-", "").replace("_", "")
    if key == "figure1":
        raise ConfigError("Figure 1 is a drawing of the method: there is nothing to run.")
    if key not in ITEMS:
        raise ConfigError(f"The paper has no {quoted(name)}. {nearest(key, ['list', 'all', *ITEMS])}")
    return ITEMS[key]
