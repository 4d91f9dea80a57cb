"""The options of a recipe: set by dotted keys, checked, and made into data sets and other classes. Needs no torch."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from levelhead.data import DATASETS, DataSet
from levelhead.plain_yaml import DEEPEST, read_yaml
from levelhead.registry import Registry
from levelhead.types import ConfigError, nearest, printable, quoted

if TYPE_CHECKING:
    from levelhead.runs.stand_in import Chosen


def override(recipe: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return a copy of ``recipe`` with settings such as ``train.epochs=3`` applied; values are read as YAML."""
    for setting in settings:
        recipe = assign(recipe, *read_setting(setting))
    return recipe


def read_setting(setting: str) -> tuple[str, Any]:
    """Return the dotted key and the value of a setting such as ``train.epochs=3``; the value is read as YAML."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {quoted(setting)} is not of the form key=value, e.g. --set train.epochs=3.")
    return key.strip(), read_yaml(text, f"--set {quoted(setting)}")


def assign(recipe: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a copy of ``recipe`` in which an option, by its dotted key, has another value."""
    *parents, last = key.strip().split(".")
    if len(parents) >= DEEPEST:
        raise ConfigError(f"The key {quoted(key)} is nested more than {DEEPEST} deep: no option is.")
    result = place = dict(recipe)
    for parent in parents:
        inner = place.get(parent)
        place[parent] = dict(inner) if isinstance(inner, dict) else {}
        place = place[parent]
    place[last] = value
    return result


def section(recipe: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a copy of a section of a recipe, empty if it is absent; :class:`ConfigError` if it is no mapping."""
    content = recipe.get(name)
    if not isinstance(content, dict | None):
        raise ConfigError(f"Section {name} must be a mapping of options.")
    return dict(content or {})


def build_options(cls: Any, options: Any, where: str) -> Any:
    """Make ``cls`` from ``options``; unknown keys and wrong types are errors that name ``where``."""
    if not isinstance(options, dict):
        raise ConfigError(f"{where} must be a mapping of options, not {quoted(options)}.")
    known = [one.name for one in dataclasses.fields(cls)]
    # A recipe with every default written out names options that are off: of another version they are no mistake.
    options = {key: value for key, value in options.items() if value is not None or key in known}
    options = _expand_presets(cls, options)
    _refuse_unknown_keys(cls, options, where)
    from pydantic import ValidationError

    try:
        return _checker(cls).validate_python(options)
    except OSError as error:
        raise ConfigError(f"{where} names a path that cannot be used: {error.strerror}.") from None
    except ValidationError as error:
        problems = [
            f"{'.'.join([where, *map(printable, problem['loc'])])}: {problem['msg']}" for problem in error.errors()
        ]
        more = f"; and {len(problems) - 5:,} more" if len(problems) > 5 else ""
        raise ConfigError(f"Wrong options: {'; '.join(problems[:5])}{more}") from None


@functools.cache  # making one takes longer than all the rest
def _checker(cls: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _expand_presets(cls: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``{"preset": name, ...}`` by the named options with the others on top, where a class has presets."""
    types = typing.get_type_hints(cls)
    result = dict(options)
    for key, value in options.items():
        if isinstance(value, dict) and "preset" in value and hasattr(types.get(key), "preset"):
            preset = dataclasses.asdict(types[key].preset(str(value["preset"])))
            result[key] = _on_top(preset, {k: v for k, v in value.items() if k != "preset"})
    return result


def _on_top(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Join nested options; those ``above`` win, one by one."""
    result = dict(below)
    for key, value in above.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _on_top(result[key], value) if nested else value
    return result


def _refuse_unknown_keys(cls: Any, options: Mapping[str, Any], where: str) -> None:
    types = typing.get_type_hints(cls)
    known = [one.name for one in dataclasses.fields(cls)]
    for key, value in options.items():
        if key not in known:
            unknown = f"{where}.{printable(key)}".removeprefix("recipe.")
            raise ConfigError(f"Unknown key {unknown}. {nearest(str(key), known)}")
        if dataclasses.is_dataclass(types[key]) and isinstance(value, dict):
            _refuse_unknown_keys(types[key], value, f"{where}.{key}")


def choose(table: Registry[Any], options: Any, where: str, stand_in: Chosen | None = None) -> Any:
    """Make the class that the name in ``options`` has in ``table``; ``where`` is what errors call the section."""
    if not isinstance(options, dict) or "name" not in options:
        raise ConfigError(f"Section {where} needs a name. Known: {', '.join(table)}.")
    rest = {key: value for key, value in options.items() if key != "name"}
    name = str(options["name"])
    if stand_in is not None and not table.offers(name) and (found := stand_in(table, name, rest)) is not None:
        return found
    if name not in table:
        own = " A class of your own is named module:Class, e.g. mypackage.focal:Focal." if "." in name else ""
        raise ConfigError(f"Unknown {where}.name {quoted(name)}. {nearest(name, table)}{own}")
    return build_options(table[name], rest, where)


def build_data(options: Any, stand_in: Chosen | None = None) -> DataSet:
    """Make a data set from the section ``data`` of a recipe."""
    if not isinstance(options, Mapping) or not {"folds", "fold"} & options.keys():
        data: DataSet = choose(DATASETS, options, "data", stand_in)
        return data
    if options.get("folds") is None or options.get("fold") is None:
        raise ConfigError("data.folds and data.fold belong together: into how many folds, and which of them, from 0.")
    from levelhead.data.folds import Fold

    own = {key: value for key, value in options.items() if key not in ("folds", "fold")}
    whole = choose(DATASETS, own, "data", stand_in)
    return Fold(data=whole, folds=options["folds"], fold=options["fold"])
