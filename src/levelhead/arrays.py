"""The one door for what a Python caller passes: columns of any library, their rows and their names, and options.

On the way in nothing is merged: integers beside missing values stay integers, masked values are missing, and classes
keep their names. What cannot be taken ends in one sentence that says what was given and what is taken.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import errno
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Set
from decimal import Decimal
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from levelhead.types import ConfigError, DataError, check_seed, quoted

P = ParamSpec("P")
R = TypeVar("R")
FloatArray = NDArray[np.float64]

EXACT = 2**53
"""Up to here, a float64 holds every whole number."""
COMPLEX = "complex numbers have no order"
TAKEN = "Pass one value a row: a list, an array, a tensor or one column of a frame."

# ---------------------------------------------------------------------------------------------------- columns


def array_of(values: Any, what: str, *, hint: str = "", names: bool = True, one: str = "value") -> NDArray[Any]:
    """Return a column of any library as an array (rows,) in which every value is what it was.

    Args:
        values: a list, tuple or range; an array, masked or not; a tensor, with or without a gradient; a column of
            pandas, polars, pyarrow or datasets.
        what: what errors call it.
        hint: what to do where there are several numbers a row.
        names: whether a column of class labels (``datasets.ClassLabel``) gives the names of its classes.
        one: what errors call what a row has.

    Raises:
        DataError: these are no values, or not one a row.
    """
    array = any_array(values, what, names)
    if array.ndim != 1 or array.dtype.kind == "V":
        one_column = array.shape[1:] == (1,)
        advice = "Of one column, pass [:, 0]." if one_column else hint if array.ndim == 2 and hint else TAKEN
        raise DataError(f"{what} has shape {array.shape}, and needs one {one} a row. {advice}")
    return array


def any_array(values: Any, what: str, names: bool = True) -> NDArray[Any]:
    """Return values of any shape as :func:`array_of` reads a column."""
    try:
        return _read(values, what, names)
    except DataError:
        raise
    except Exception as error:  # an object of somebody else's may raise anything where it is read
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{what} cannot be read as an array ({reason}). {TAKEN}") from None


def table_of(values: Any, what: str) -> NDArray[Any]:
    """Return several columns of one length, (columns, rows), each read as :func:`array_of` reads one."""
    if isinstance(values, (list, tuple)) and values and all(map(_is_sized, values)):
        columns = [array_of(one, what) for one in values]
        if len(set(map(len, columns))) > 1:
            raise DataError(f"{what} have rows of the lengths {sorted(set(map(len, columns)))}. Pass equal ones.")
        return np.stack(columns)
    array = any_array(values, what)
    if array.ndim != 2:
        raise DataError(f"{what} have shape {array.shape}. Pass (seeds, rows), one row of it a seed.")
    return array


def floats_of(values: Any, what: str, *, dimensions: int | None = None) -> FloatArray:
    """Return numbers of any shape, or of this many dimensions, as float64; NaN where one is missing."""
    array = any_array(values, what, False)
    kinds: set[type] = set()
    if array.dtype == object:
        flat = [math.nan if one is None or one is pd.NA else one for one in array.ravel().tolist()]
        array, kinds = np.fromiter(flat, object, len(flat)).reshape(array.shape), set(map(type, flat))
    if array.dtype.kind not in "biufOU" or not all(issubclass(kind, (int, float, Decimal, str)) for kind in kinds):
        raise DataError(f"{what} has values that are not numbers. Pass numbers.")
    if dimensions is not None and array.ndim != dimensions:
        raise DataError(f"{what} has shape {array.shape}, and needs {dimensions} dimension(s). Pass numbers.")
    try:
        return _printed(array).astype(np.float64)
    except (OverflowError, ValueError):
        raise DataError(f"{what} has a number too large for a float. Pass numbers.") from None


def _is_sized(one: Any) -> bool:
    return isinstance(one, collections.abc.Sized) and not isinstance(one, (str, bytes)) and getattr(one, "ndim", 1) > 0


def _read(values: Any, what: str, names: bool) -> NDArray[Any]:
    if values is None or isinstance(values, (str, bytes, bytearray, Mapping, Set, Iterator, type)):
        raise DataError(f"{what} is {shown(values)}. {TAKEN}")
    if is_tensor(values):
        values = _array_of_tensor(values)
    elif isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), _NONE, np.asarray(_printed(values.data), object))
    elif (classes := class_names(values)) is not None:
        codes = [None if code is None or code < 0 else code for code in objects_of(list(values)).tolist()]
        return objects_of([None if code is None else classes[code] for code in codes] if names else codes)
    elif hasattr(values, "to_pandas") and hasattr(values, "null_count"):  # of pyarrow
        values = values.to_pandas(integer_object_nulls=True)
    elif hasattr(values, "to_list") and callable(getattr(values, "null_count", None)):  # of polars
        values = values.to_numpy() if str(values.dtype) in ("Float16", "Float32") else values.to_list()
    if isinstance(values, (pd.Series, pd.Index)):
        values = values.array
    if isinstance(values, (pd.arrays.NumpyExtensionArray, pd.arrays.SparseArray)):
        values = np.asarray(values)
    if isinstance(values, pd.api.extensions.ExtensionArray) and not isinstance(values.dtype, np.dtype):
        values = _objects(values)
    if isinstance(values, (list, tuple)):
        nested = any(isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) for value in values)
        return np.asarray(values) if nested else objects_of(list(values))
    array = np.asarray(values)
    if array.dtype.kind in "US":  # NumPy turns 1 beside "1" into text
        array = np.asarray(values, dtype=object)
    if array.dtype == object and array.ndim == 1:
        return objects_of(array.tolist())
    if array.dtype.kind == "c":
        raise TypeError(COMPLEX)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))  # of HDF5 or FITS


def _objects(values: Any) -> NDArray[Any]:
    """Return what a column of pandas holds; numbers of fewer bits as they are printed, NaN where one is missing."""
    if isinstance(values, pd.Categorical) and _is_short(values.categories.dtype):
        values = pd.Series(_printed(values.categories.to_numpy())).reindex(values.codes).array
    kind = np.dtype(f"f{values.dtype.itemsize}") if _is_short(values.dtype) else None
    return np.asarray(values.astype(object)) if kind is None else _printed(values.to_numpy(kind, na_value=math.nan))


def _is_short(kind: Any) -> bool:
    """Whether these are floats of fewer than 64 bits, of NumPy or of another library."""
    return getattr(kind, "kind", "") == "f" and getattr(kind, "itemsize", 8) < 8


def _printed(values: NDArray[Any]) -> NDArray[Any]:
    return as_decimals(values.ravel()).reshape(values.shape) if _is_short(values.dtype) else values


def as_decimals(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers (rows,) as float64; those of float32 and float16 as the decimals that they are printed as.

    0.7 in float32 lies below 0.7 in float64: widened bit by bit, it would miss a threshold of 0.7.
    """
    if values.dtype == np.float32:
        import pyarrow  # here, as most columns need no such library

        return np.asarray(as_printed(pyarrow.array(np.ascontiguousarray(values))).to_numpy(zero_copy_only=False))
    if values.dtype == np.float16:
        known, places = np.unique(values, return_inverse=True)
        return np.array([float(str(one)) for one in known])[places]
    return values.astype(np.float64)


def as_printed(column: Any) -> Any:
    """Return a column of pyarrow; of float32 the decimals that its numbers are printed as, in float64."""
    return column.cast("string").cast("float64") if str(column.type) == "float" else column


def values_of(column: Any, title: str) -> list[Any]:
    """Return the values of a column of pyarrow; times in a zone that is not known are a :class:`DataError`."""
    try:
        return list(column.to_pylist())
    except KeyError as zone:
        raise DataError(f"{title} has times in the zone {zone}, which is unknown. Write them in UTC.") from None


def objects_of(values: list[Any]) -> NDArray[Any]:
    """Return a list in the type that holds each of its values exactly, which is often that of objects."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN:
        values = [_plain(value) for value in values]
        kinds = set(map(type, values))
        if any(issubclass(kind, complex) for kind in kinds):
            raise TypeError(COMPLEX)
    if kinds and kinds <= {int, float}:
        whole = [value for value in values if type(value) is int]
        low, high = (min(whole), max(whole)) if whole else (0, 0)
        fractions = len(whole) < len(values) and any(value == value for value in values if type(value) is float)
        if not whole or (fractions and low >= -EXACT and high <= EXACT):
            return np.array(values, np.float64)
        if len(whole) == len(values) and low >= -(2**63) and high < 2**63:
            return np.array(values, np.int64)
    return np.fromiter(values, object, len(values)) if kinds != {bool} else np.array(values)


_NONE = np.array(None, object)
_PLAIN = {int, float, str, bool, type(None)}


def _plain(value: Any) -> Any:
    """Return what a scalar of NumPy or torch holds; None for a masked one."""
    if value is np.ma.masked:
        return None
    if is_tensor(value):
        value = _array_of_tensor(value)
    if isinstance(value, np.ndarray):
        if value.ndim:
            return value
        value = value[()]
    if isinstance(value, np.floating) and _is_short(value.dtype):
        return float(str(value))
    return value.item() if isinstance(value, (np.bool_, np.integer, np.floating, np.str_)) else value


def is_tensor(values: Any) -> bool:
    """Whether this is a tensor of torch; nobody has one who has not imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _array_of_tensor(values: Any) -> NDArray[Any]:
    values = values.detach().cpu()
    if values.is_floating_point() and values.dtype.itemsize < 4 and values.dtype != sys.modules["torch"].float16:
        values = values.float()  # NumPy has no bfloat16 and no 8 bits
    return np.asarray(values.numpy())


def class_names(values: Any) -> tuple[str, ...] | None:
    """Return the names of a column of class labels (``datasets.ClassLabel``), or None."""
    if isinstance(values, (np.ndarray, pd.Series, list)):
        return None
    names = getattr(getattr(values, "features", None), "names", None)
    return None if names is None else tuple(map(str, names))


TABLES = {"data", "against", "join", "fit"}
"""Arguments that are tables of their own, whose frames are matched by ids or by position."""


def check_index(arguments: Mapping[str, Any]) -> None:
    """Raise :class:`DataError` for columns of pandas whose rows stand in two orders: rows are matched by position.

    ``arguments`` of a function, by name: columns, frames, and dicts and lists of them are looked at.
    """
    indexed = [
        (name, one)
        for name, value in arguments.items()
        for one in _indexed(value)
        if not (name in TABLES and isinstance(one, pd.DataFrame))
    ]
    for name, one in indexed[1:]:
        first, other = indexed[0]
        if len(one) == len(other) and not one.index.equals(other.index):
            raise DataError(
                f"The index of {name} has other rows than that of {first}, or another order. Pass columns of one "
                "frame; to match rows by position, pass .to_numpy() or .reset_index(drop=True) of each."
            )


def _indexed(value: Any) -> Iterator[Any]:
    """Yield the columns and frames of pandas in an argument: itself, or what a dict or a list of columns holds."""
    if isinstance(value, (pd.Series, pd.DataFrame)):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _indexed(one)
    elif isinstance(value, (list, tuple)) and value and _is_sized(value[0]):  # no list of numbers or of names
        yield from (one for one in value if isinstance(one, (pd.Series, pd.DataFrame)))


# ---------------------------------------------------------------------------------------------------- options


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check plain arguments of a public function against its annotations before it runs, and name what is wrong.

    Numbers of NumPy become those of Python. Anything but numbers, texts, paths, lists of them and classes of
    levelhead, such as an array or a model, the function reads itself.

    Raises:
        ConfigError: an argument is of a type that the function does not take.
        DataError: columns of pandas have two indices.
    """
    signature = inspect.signature(function)
    hints = functools.cache(lambda: _hints(function.__annotations__, function.__globals__))  # torch may be imported
    take = _take_arguments

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        taken, named = take(signature, hints, args, kwargs)
        return function(*taken, **named)

    # In the globals of its own module, where doctest looks for it.
    kept = types.FunctionType(call.__code__, function.__globals__, function.__name__, None, call.__closure__)
    return functools.update_wrapper(kept, function)


def _take_arguments(
    signature: inspect.Signature, hints: Callable[[], Mapping[str, Any]], args: Any, kwargs: Any
) -> tuple[Any, Any]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # Python says which argument is missing or unknown
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        many = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if name in hints() and not many and value is not parameter.default:
            bound.arguments[name] = option(name, value, hints()[name])
            if name == "seed" and bound.arguments[name] is not None:
                check_seed(bound.arguments[name])
    check_index(bound.arguments)
    return bound.args, bound.kwargs


def check_fields(instance: Any, section: str = "") -> None:
    """Check the fields of a dataclass of options as :func:`checked` checks arguments; for ``__post_init__``."""
    kind: Any = type(instance)
    for name, hint in _field_hints(kind).items():
        value = getattr(instance, name)
        if (taken := option(f"{section}.{name}" if section else name, value, hint)) is not value:
            object.__setattr__(instance, name, taken)


@functools.cache
def _field_hints(kind: Any) -> dict[str, Any]:
    annotations = {field.name: field.type for field in dataclasses.fields(kind)}
    return _hints(annotations, vars(sys.modules[kind.__module__]))


def option(name: str, value: Any, hint: Any) -> Any:
    """Return an option as the type hint has it; raise :class:`ConfigError` where it is of another type, or unknown."""
    if isinstance(value, (str, os.PathLike)) and Path in (hint, *typing.get_args(hint)):
        check_path(name, value)
    try:
        taken = _take(value, hint)
    except _WrongType:
        huge = isinstance(value, int) and abs(value) >= 2**63
        raise ConfigError(f"{name} is {shown(value)}; it takes {_words(hint)}{' below 2**63' * huge}.") from None
    if isinstance(taken, str) and (words := _choices(hint)) and taken not in words:
        raise ConfigError(f"{name} is {shown(taken)}; choose from {', '.join(map(str, words))}.")
    return taken


def _choices(hint: Any) -> list[Any]:
    """Return what a ``Literal`` allows, alone or among other types; nothing of a hint without one."""
    parts = (hint, *typing.get_args(hint))
    words = [word for one in parts if typing.get_origin(one) is typing.Literal for word in typing.get_args(one)]
    return [*[True, False] * (bool in parts), *words] if words else []


def check_path(name: str, value: str | os.PathLike[Any]) -> None:
    """Raise :class:`ConfigError` for a path that no file system takes."""
    try:
        os.lstat(value)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            raise ConfigError(
                f"{name} is too long, or has a character that is not allowed in paths. Give that of a file or folder."
            ) from None


class _WrongType(Exception):  # noqa: N818  (never leaves this module)
    """A value is not of the type that a hint says."""


def _hints(annotations: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """Return the types of arguments; one that only type checkers know takes everything."""
    found = {}
    for name, hint in annotations.items():
        try:
            found[name] = eval(hint, names) if isinstance(hint, str) else hint
        except NameError:
            found[name] = Any
    return found


def _take(value: Any, hint: Any) -> Any:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and all(map(_is_plain, inside)):
        for one in inside:
            with contextlib.suppress(_WrongType):
                return _take(value, one)
        raise _WrongType
    if not _is_plain(hint):
        return value
    if origin is typing.Literal:  # which texts there are, option() says
        if type(value) not in set(map(type, inside)):
            raise _WrongType
        return value
    return _several(value, origin, inside) if origin in _MANY else _one(value, hint)


def _is_plain(hint: Any) -> bool:
    """Whether a hint is of numbers, texts, truth values, paths, lists or dicts, or a class of levelhead."""
    ours = isinstance(hint, type) and hint.__module__.startswith("levelhead.") and not hasattr(hint, "_is_protocol")
    return ours or hint in _WORDS or typing.get_origin(hint) in (typing.Literal, *_MANY)


def _several(value: Any, origin: Any, inside: tuple[Any, ...]) -> Any:
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, Mapping):
            raise _WrongType
        return {key: _take(one, inside[1]) for key, one in value.items()} if inside[1] in (int, float) else value
    unordered = isinstance(value, (Mapping, Set)) and origin is not collections.abc.Collection
    if unordered or isinstance(value, (str, bytes)) or not isinstance(value, collections.abc.Iterable):
        raise _WrongType
    if not inside or not _is_plain(inside[0]):
        return value
    found = [_take(one, inside[0]) for one in value]
    if origin is tuple and inside[-1] is not ... and len(inside) != len(found):
        raise _WrongType
    return tuple(found) if isinstance(value, tuple) or origin is tuple else found


def _one(value: Any, hint: Any) -> Any:
    is_number: bool = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if hint in (int, float) and is_number:
        number = float(value) if abs(value) < 2**63 else math.inf
        if hint is float and (number < math.inf or isinstance(value, float)):
            return value if type(value) in (int, float) else number
        if hint is int and math.isfinite(number) and number.is_integer():
            return int(value)
    elif hint is bool and isinstance(value, np.bool_):
        return bool(value)
    elif hint is Path and isinstance(value, os.PathLike):
        return Path(value)
    elif hint not in (int, float, Path) and isinstance(value, hint):
        return str(value) if hint is str else value
    raise _WrongType


_MANY: dict[Any, str] = {
    collections.abc.Mapping: "a dict",
    dict: "a dict",
    collections.abc.Sequence: "a list",
    collections.abc.Iterable: "a list",
    collections.abc.Collection: "a list",
    list: "a list",
    tuple: "a tuple",
}
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    types.NoneType: "None",
}


def _words(hint: Any) -> str:
    """Say what an option takes."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        each = list(dict.fromkeys(map(_words, inside)))
        return f"{', '.join(each[:-1])} or {each[-1]}" if len(each) > 1 else each[0]
    if origin is typing.Literal:
        return " or ".join(map(repr, inside))
    of = {int: " of whole numbers", float: " of numbers", str: " of texts"}
    if isinstance(hint, type):
        return _WORDS.get(hint) or f"a {hint.__name__}"
    return _MANY[origin] + (of.get(inside[0], "") if inside and _MANY[origin] != "a dict" else "")


def shown(value: Any) -> str:
    """Say what a value is: short ones themselves, of all others the type."""
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex, Decimal, np.generic)):
        return quoted(value)
    if isinstance(value, type):
        return f"the type {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
