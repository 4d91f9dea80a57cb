"""An experiment as frozen dataclasses, read from a YAML recipe with dotted overrides.

A recipe has five sections: ``data`` and ``method`` (``name`` picks the class in DATASETS and METHODS, a user's own as
``module:Class``; the other keys are its fields), ``model``, ``train`` and ``seed``, and may have a ``name`` for tables.
Every mistake is found before any work begins.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from levelhead.data import DATASETS, Card, DataSet
from levelhead.data.folds import Fold
from levelhead.methods import METHODS, Method
from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM
from levelhead.models.networks import BackboneModel, ModelConfig, ScratchViT
from levelhead.plain_yaml import LONGEST_DOCUMENT, read_yaml
from levelhead.registry import Registry
from levelhead.runs.options import assign, build_data, build_options, choose, override, section
from levelhead.runs.stand_in import Chosen, StandIn, named
from levelhead.training.config import TrainConfig
from levelhead.training.select import FOR_ANY_METHOD, SELECTORS
from levelhead.training.work import flatten
from levelhead.types import ConfigError, check_seed, nearest, quoted, visible

LONGEST_ROW_NAME = 200
"""In characters: folders are named after rows, and a name may list the options that were tried."""


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a training run; ``name``, which decides nothing, is its row's name in tables."""

    data: DataSet
    method: Method
    model: ModelConfig
    train: TrainConfig
    seed: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        _ = self.recipe  # a class that no other process could find is a mistake at once

    @cached_property
    def data_name(self) -> str:
        """The data set's name, of a fold that of its data."""
        return name_of(named(self.data), DATASETS)

    @cached_property
    def method_name(self) -> str:
        """The method's name, with ``dam+`` for debiased attention on top of another method."""
        name = name_of(self.method, METHODS)
        if isinstance(self.method, DAM) and type(self.method.base) is not ERM:  # a user's class has a name of its own
            name += f"+{name_of(self.method.base, METHODS)}"
        return name

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The recipe that makes it, with every default written out."""
        options = plain_options(self.method)
        if isinstance(self.method, DAM) and type(self.method.base) is ERM:
            del options["base"]
        folds = {"folds": self.data.folds, "fold": self.data.fold} if isinstance(self.data, Fold) else {}
        return {
            "data": {"name": self.data_name, **plain_options(named(self.data)), **folds},
            "method": {"name": self.method_name, **options},
            "model": plain_options(self.model),
            "train": plain_options(self.train),
            "seed": self.seed,
            "name": self.name,
        }

    @cached_property
    def oracle(self) -> str | None:
        """What sees groups in training or selection; None: nothing."""
        sees = {
            "method": self.method.uses_groups or self.method.uses_validation_groups,
            "selection": SELECTORS[self.train.select].uses_groups,
        }
        return " and ".join(what for what, seen in sees.items() if seen) or None

    @cached_property
    def own_code(self) -> dict[str, Any]:
        """What tables and cards show of classes that are not ours."""
        return _own_code(self.method, named(self.data))

    def check_pixels(self) -> None:
        """Raise :class:`~levelhead.types.ConfigError` early where a method changes pixels that it cannot reach."""
        if self.method.changes_pixels and (reason := self.model.why_no_pixels()):
            raise ConfigError(
                f"Method {self.method_name} changes pixels by the gradient of a network, and {reason}: choose "
                "data of pictures and a network whose weights are all trained (model.mode=fine_tune, or from scratch)."
            )

    def check_view(self) -> None:
        """Raise :class:`~levelhead.types.LevelheadError` early where a view cannot be taken of the validation rows."""
        view = self.method.declared_view
        if view is not None:
            view(self.data.examples("validation").inputs)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of ``recipe``, to change."""
        return copy.deepcopy(self.recipe)


def name_of(value: Any, table: Registry[Any]) -> str:
    """Return the name under which ``table`` finds the class of ``value``."""
    return value.name if isinstance(value, StandIn) else table.name_of(type(value))


def _own_code(method: Method, data: DataSet) -> dict[str, Any]:
    found: dict[str, Any] = {}
    method = named(method)
    if not isinstance(method, StandIn) and not METHODS.is_own(name_of(method, METHODS)):
        found["method"] = {
            "summary": str(method.summary),
            "changes_at_end": method.changes_at_end,
            "changed": _changed(method),
        }
    if not isinstance(data, StandIn) and not DATASETS.is_own(name_of(data, DATASETS)):
        card = {one.name: str(getattr(data.card, one.name, "")) for one in dataclasses.fields(Card)}
        found["data"] = {"card": card, "changed": _changed(data)}
    return found


def _changed(value: Any) -> list[str]:
    """Return which options differ from the defaults; no instance of these is made, which a user's check may refuse."""
    now = flatten(plain_options(value))
    default: dict[str, Any] = {}
    for one in dataclasses.fields(value):
        made = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        default |= flatten({one.name: plain_options(made)})
    return [key for key, option in now.items() if option != default.get(key)]


def plain_options(value: Any) -> Any:
    """Return a value as YAML has it: dataclasses as mappings, paths as texts, tuples as lists."""
    if isinstance(value, StandIn):
        return dict(value.options)
    if dataclasses.is_dataclass(value):
        return {one.name: plain_options(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def recipe_folder() -> Path:
    """Return the folder of the recipes that come with levelhead (in a wheel, or in a source checkout)."""
    packaged = Path(__file__).parents[1] / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "recipes"


def is_file(path: Path) -> bool:
    """Return whether there is a file; no name is too long for that question."""
    try:
        return path.is_file()
    except OSError:
        return False


def find_recipe(recipe: str | Path, kind: str = "") -> Path:
    """Return the recipe file: a path, or the name of one that comes with levelhead.

    Recipes of a ``kind``, such as pretraining, lie in a folder of that name among the others.
    """
    path, folder = Path(recipe), recipe_folder() / kind
    if is_file(path):
        return path
    # A path elsewhere that does not exist is a mistake, not another way to name a recipe of ours.
    packaged = folder / f"{path.name.removesuffix('.yaml')}.yaml"
    if path.parent in (Path(), Path("recipes") / kind) and is_file(packaged):
        return packaged
    names = sorted(file.stem for file in folder.glob("*.yaml"))
    raise ConfigError(f"There is no {f'{kind} recipe'.lstrip()} {quoted(str(recipe))}. {nearest(path.stem, names)}")


def data_recipe(data: str) -> dict[str, Any]:
    """Return the recipe that trains ERM on a data set: of two built-in ones the smaller.

    ``module:Class`` is trained as the drawn portraits are, by a network that one core trains in a minute.
    """
    if ":" in data:
        return assign(data_recipe("portraits") | {"data": {"name": data}}, "train.threads", 1)
    suffixes = ("_erm_small", "_erm", "_erm_le_small", "_erm_le")
    for suffix in suffixes:
        if is_file(recipe_folder() / f"{data}{suffix}.yaml"):
            return read_recipe(find_recipe(data + suffix), running=True)
    stems = [file.stem for file in sorted(recipe_folder().glob("*.yaml"))]
    known = sorted({stem.removesuffix(suffix) for suffix in suffixes for stem in stems if stem.endswith(suffix)})
    raise ConfigError(f"There is no data set {quoted(data)}. {nearest(data, known)} Your own: module:Class.")


def _refuse_table(path: Path) -> None:
    """Raise :class:`ConfigError` with the line to type for a file of data in the place of a recipe."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix.removeprefix(".")
    if kind not in ("csv", "tsv", "parquet"):
        return
    file = shlex.quote(str(path))
    raise ConfigError(
        f"{path} is a {kind}, not a recipe. Audit the predictions in it: levelhead audit {file} --label LABEL "
        f"--prediction PREDICTION --group GROUP. Or write a recipe that trains on it: levelhead init {file}"
    )


def read_recipe(path: Path, *, running: bool = False) -> dict[str, Any]:
    """Read a YAML mapping, or raise :class:`ConfigError` that names file and line.

    ``running``: its classes will be made, so :func:`refuse_own_code`.
    """
    _refuse_table(path)
    if not is_file(path):
        raise ConfigError(f"{path} is not a file. Give the path of a recipe.")
    try:
        with path.open("rb") as file:
            encoded = file.read(LONGEST_DOCUMENT + 1)  # no more, of any size the file is
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    if len(encoded) > LONGEST_DOCUMENT:
        raise ConfigError(f"{path} is longer than {LONGEST_DOCUMENT:,} bytes: it is no recipe.")
    try:
        content = read_yaml(encoded.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text, at byte {error.start:,}: it is no recipe.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold the sections data, method, model and train.")
    if running:
        refuse_own_code(path, content)
    return content


def refuse_own_code(file: Path, content: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` where ``content`` of a file names a module that lies in the file's folder, or below.

    Modules are looked for in the current folder, too, so that a folder that was sent to a user could bring its code
    along. What PYTHONPATH or the installation finds in such a folder is the user's.
    """
    home, here = Path(os.path.realpath(file.parent)), Path.cwd()
    named = {Path(one).resolve() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one}
    bases = {here, *(Path(one).resolve() for one in sys.path if one)}
    bases -= {base for base in bases if base.is_relative_to(home) and (base != here or base in named)}
    for key, value in flatten(content).items():
        module, colon, _ = str(value).removeprefix("dam+").partition(":")
        parts = module.split(".")
        if not colon or not key.endswith("name") or not all(map(str.isidentifier, parts)):
            continue
        places = [base.joinpath(*parts) for base in bases]
        found = [one for place in places for one in (place, *place.parent.glob(f"{place.name}.*")) if one.exists()]
        if any(one.resolve().is_relative_to(home) for one in found):
            raise ConfigError(
                f"{file} names {key}: {quoted(value)}, whose code lies in the same folder and would be run. If you "
                "trust it, move the file or the module elsewhere, or name the module's folder in PYTHONPATH."
            )


def _choose_method(options: Any, stand_in: Chosen | None) -> Method:
    """Make a method; ``dam+jtt`` is DAM with JTT, whose own options stand under ``base``."""
    name = str(options.get("name", "")) if isinstance(options, dict) else ""
    outer, plus, base = name.partition("+")
    if not plus:
        if name == "dam" and "base" in options:
            raise ConfigError("method.base holds options of the method under debiased attention: name it, as dam+jtt.")
        method: Method = choose(METHODS, options, "method", stand_in)
        return method
    if outer != "dam":
        raise ConfigError(f"method.name {quoted(name)}: only dam can stand before a plus, as in dam+jtt.")
    inner = choose(METHODS, {"name": base, **section(options, "base")}, "method.base", stand_in)
    return choose(METHODS, {**options, "name": outer, "base": inner}, "method")


def _choose_model(options: Any) -> ModelConfig:
    """Make a network's config: on a pretrained backbone where one is named, otherwise a ViT from scratch."""
    named = isinstance(options, dict) and "backbone" in options
    of_scratch = {one.name for one in dataclasses.fields(ScratchViT)}
    of_scratch -= {one.name for one in dataclasses.fields(BackboneModel)}
    if named and of_scratch & options.keys():
        others = ", ".join(sorted(of_scratch & options.keys()))
        raise ConfigError(
            f"model.backbone takes the place of a ViT from scratch, whose options ({others}) mean nothing then. "
            "Replace the whole section: --set 'model={backbone: NAME}'."
        )
    model: ModelConfig = build_options(BackboneModel if named else ScratchViT, options, "model")
    return model


def check_row_name(name: Any) -> str:
    """Return a row's name as a text; empty for None.

    Raises :class:`ConfigError` for one that no table, and no folder, can have.
    """
    text = "" if name is None else str(name)
    if isinstance(name, dict | list) or len(text) > LONGEST_ROW_NAME or text != visible(text):
        raise ConfigError(
            f"The name {quoted(name)} must be a text of at most {LONGEST_ROW_NAME} characters on one line, without "
            "control characters."
        )
    return text


def build_experiment(recipe: Mapping[str, Any], stand_in: Chosen | None = None) -> Experiment:
    """Make a validated experiment from a recipe's content.

    ``stand_in`` makes what takes the place of classes that are neither ours nor an installed package's.
    """
    sections = [one.name for one in dataclasses.fields(Experiment)]
    for key in recipe:
        if key not in sections:
            raise ConfigError(f"Unknown section {quoted(key)}. {nearest(str(key), sections)}")
    train = build_options(TrainConfig, recipe.get("train", {}), "train")
    if train.select not in SELECTORS:
        raise ConfigError(f"Unknown train.select {quoted(train.select)}. {nearest(train.select, SELECTORS)}")
    seed = recipe.get("seed", 0)
    check_seed(seed)
    method = _choose_method(recipe.get("method"), stand_in)
    if SELECTORS[train.select].uses_parts and not method.infers_parts:
        raise ConfigError(
            f"train.select is {train.select}, and method {recipe['method']['name']} infers no parts of the validation "
            f"split: choose one of {', '.join(FOR_ANY_METHOD)}, or another method."
        )
    return Experiment(
        data=build_data(recipe.get("data"), stand_in),
        method=method,
        model=_choose_model(recipe.get("model", {})),
        train=train,
        seed=seed,
        name=check_row_name(recipe.get("name")),
    )


def load_experiment(
    recipe: str | Path,
    settings: Iterable[str] = (),
    *,
    data_root: Path | None = None,
    seed: int | None = None,
) -> Experiment:
    """Read a recipe, apply ``--set`` overrides, data root and seed, and return the validated experiment."""
    content = override(read_recipe(find_recipe(recipe), running=True), settings)
    if data_root is not None:
        content["data"] = section(content, "data") | {"root": str(data_root)}
    if seed is not None:
        content["seed"] = seed
    return build_experiment(content)
