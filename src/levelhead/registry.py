"""Classes by name: our own, those that installed packages offer, and those in a user's own file.

A recipe names one of its classes (``erm``), one that an installed package offers as an entry point (``focal``), or any
class as ``module:Class`` (``mypackage.focal:Focal``): from installed packages, ``PYTHONPATH``, or the current folder.
Training and evaluation run the code of that module; code out of the current folder is named in the log as it is run.
Tables, figures and cards of finished runs do not (levelhead.runs.stand_in). No other import reads the current folder:
:class:`_CurrentFolder`.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import operator
import re
import sys
import traceback
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from levelhead.types import ConfigError, listed, nearest, quoted, visible

Base = TypeVar("Base")

logger = logging.getLogger(__name__)


class _CurrentFolder(MetaPathFinder):
    """Finds a module that a user named in the current folder, and the modules beside it that this one imports.

    The folder stays off ``sys.path``: there, a file such as pynvml.py would answer an import of any library.
    """

    def __init__(self) -> None:
        self._named: tuple[str, str] | None = None  # a module and the folder in which it is looked for
        self._folders: dict[str, str] = {}  # by the top-level modules that were found in them

    def load(self, module: str, folder: str) -> Any:
        """Import ``module``, from ``folder`` where Python's path has none of its name."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)  # the last: no file can take the place of an installed module
        self._named = module.partition(".")[0], folder
        try:
            return importlib.import_module(module)
        finally:
            self._named = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """Return where the module is; None for an import by anything but the user's own modules."""
        if path is not None:  # the modules of a package are found by the package
            return None
        if self._named is not None and self._named[0] == name:
            folder: str | None = self._named[1]
        else:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
                frame = frame.f_back
            folder = self._folders.get(str(frame.f_globals.get("__name__")).partition(".")[0])
        spec = None if folder is None else PathFinder.find_spec(name, [folder])
        if spec is not None and folder is not None:
            self._folders[name] = folder
        return spec


_current_folder = _CurrentFolder()


class Registry(Mapping[str, type[Base]], Generic[Base]):
    """The classes of one kind by name.

    Iterating gives our own names, then those of installed packages; a class as ``module:Class`` is found as well, and
    not listed. An unknown name is a KeyError, as in any mapping; a name that leads to something that cannot be used is
    a :class:`~levelhead.types.ConfigError` that says why.

    Args:
        kind: what the classes are, in words, e.g. ``method``.
        base: the class that all of them are subclasses of.
        group: the group of entry points, e.g. ``levelhead.methods``.
        described_by: the attribute without which a class cannot be listed.
        own: our own classes by name; one that is given as ``module:Class`` is imported when it is first used.
    """

    def __init__(self, kind: str, base: type, group: str, described_by: str, own: Mapping[str, Any]) -> None:
        self.kind, self.base, self.group, self.described_by = kind, base, group, described_by
        self._own = dict(own)
        self._registered: dict[str, type[Base]] = {}

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._own, *self._registered, *self._offered()])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def own(self) -> list[type[Base]]:
        """Return our own classes."""
        return list(map(self._of_ours, self._own))

    def register(self, cls: type[Base]) -> type[Base]:
        """Add a class under its ``name``, for this process; for use as a decorator.

        Raises :class:`~levelhead.types.ConfigError` for a class that cannot be used, or the name of an own class.
        """
        name = str(getattr(cls, "name", cls.__name__))
        if self.is_own(name):
            raise ConfigError(f"levelhead has a {self.kind} {quoted(name)}. Give yours another name.")
        self._registered[name] = self._checked(name, cls)
        return cls

    def __getitem__(self, name: str) -> type[Base]:
        if name in self._own:
            return self._of_ours(name)
        if name in self._registered:
            return self._registered[name]
        if ":" in name:
            return self._checked(name, self._imported(name, search_here=True))
        point = self._offered()[name]
        return self._checked(name, self._imported(point.value.partition("[")[0].strip(), search_here=False))

    def _of_ours(self, name: str) -> type[Base]:
        own = self._own[name]
        if isinstance(own, str):
            module, _, attribute = own.partition(":")
            own = self._own[name] = getattr(importlib.import_module(module), attribute)
        return typing.cast("type[Base]", own)

    def offers(self, name: str) -> bool:
        """Return whether ``name`` is ours or an installed package's; nothing is imported."""
        return name in self._own or name in self._registered or name in self._offered()

    def is_own(self, name: str) -> bool:
        """Return whether ``name`` is ours."""
        return name in self._own

    def name_of(self, cls: type) -> str:
        """Return the name under which ``cls`` is found again, in this process or in another.

        Raises :class:`~levelhead.types.ConfigError` for a class that only this process knows.
        """
        for name, known in self._own.items():
            if known in (cls, f"{cls.__module__}:{cls.__qualname__}"):
                return name
        for name, point in self._offered().items():
            if _found(*point.value.partition("[")[0].strip().partition(":")[::2]) is cls:
                return name
        if cls.__module__ == "__main__" or _found(cls.__module__, cls.__qualname__) is not cls:
            raise ConfigError(
                f"The {self.kind} {cls.__qualname__} has no name that another process could find it by: put it at the "
                "top level of a module of its own, and import it from there."
            )
        return f"{cls.__module__}:{cls.__qualname__}"

    def source(self, name: str) -> str:
        """Return the package that offers ``name``, with its version and the class; ``levelhead`` for our own."""
        if name in self._own or name in self._registered:
            return "levelhead" if name in self._own else self._registered[name].__module__
        point = self._offered()[name]
        package = "an installed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        return f"{package} ({point.value})"

    def _offered(self) -> dict[str, EntryPoint]:
        """Return the entry points by name; by ``module:Class`` where the name is ours, another package's, or no name.

        They are read again each time, which takes milliseconds and happens only for names that are not ours.
        """
        points = list(entry_points(group=self.group))
        times = Counter(point.name for point in points)
        return {
            point.name
            if times[point.name] == 1 and point.name not in self._own and re.fullmatch(r"[\w.-]+", point.name)
            else point.value: point
            for point in points
        }

    def _imported(self, path: str, *, search_here: bool) -> Any:
        """Import what ``module:Class`` names; a module that is not there, or does not load, is one clear sentence."""
        module, _, attribute = path.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
            raise ConfigError(
                f"{quoted(path)} does not name a {self.kind}: write module:Class, e.g. mypackage.focal:Focal."
            )
        here = str(Path.cwd())
        importlib.invalidate_caches()
        new = module not in sys.modules
        try:
            loaded = _current_folder.load(module, here) if search_here else importlib.import_module(module)
        except (Exception, SystemExit) as error:  # a script may end Python when it is imported
            if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                tried = f"the current folder {here} and " if search_here else ""
                raise ConfigError(
                    f"{quoted(path)}: there is no module {quoted(error.name)}. Looked in {tried}Python's path, to "
                    "which PYTHONPATH adds. Start levelhead in the folder that holds it, or install its package."
                ) from None
            raise ConfigError(f"{quoted(path)}: {module} cannot be imported: {_told(error)}.") from error
        file = getattr(loaded, "__file__", None)
        if new and search_here and file and Path(file).is_relative_to(here):
            logger.warning("%s: running the code of %s", path, visible(str(file)))
        found = _found(module, attribute)
        if found is None:
            there = [
                name
                for name, value in vars(loaded).items()
                if isinstance(value, type) and issubclass(value, self.base) and value.__module__ == loaded.__name__
            ]
            raise ConfigError(
                f"{quoted(path)}: {module} ({file or 'built in'}) has no {self.kind} {quoted(attribute)}. "
                f"{nearest(attribute, there)}"
            )
        return found

    def _checked(self, name: str, cls: Any) -> type[Base]:
        """Return ``cls`` if recipes, tables and lists can use it; :class:`ConfigError` says what it lacks otherwise."""
        base = f"{self.base.__module__.removesuffix('.base')}.{self.base.__name__}"
        if not isinstance(cls, type) or not issubclass(cls, self.base) or cls is self.base:
            raise ConfigError(f"{quoted(name)} is not a {self.kind}: it must be a class derived from {base}.")
        if dataclasses.is_dataclass(self.base) and "__dataclass_fields__" not in vars(cls):
            raise ConfigError(f"{quoted(name)} is no dataclass: write @dataclass(frozen=True) above the class.")
        if lacking := getattr(cls, "__abstractmethods__", ()):
            raise ConfigError(f"{quoted(name)} lacks what every {self.kind} has: {listed(sorted(lacking))}.")
        if not hasattr(cls, self.described_by):
            raise ConfigError(f"{quoted(name)} lacks `{self.described_by}`, which `levelhead list` shows; see {base}.")
        if not dataclasses.is_dataclass(cls):
            return typing.cast("type[Base]", cls)
        options = [field for field in dataclasses.fields(cls) if field.init]
        bare = [one.name for one in options if one.default is one.default_factory is dataclasses.MISSING]
        if bare:
            raise ConfigError(f"{quoted(name)}: every option needs a default, and there is none for {listed(bare)}.")
        if any(option.name == "name" for option in options):
            raise ConfigError(f"{quoted(name)}: an option cannot be called name, which names the {self.kind} itself.")
        try:
            typing.get_type_hints(cls)
        except Exception as error:
            raise ConfigError(f"{quoted(name)}: the types of its options cannot be read: {_told(error)}.") from error
        return typing.cast("type[Base]", cls)


def _found(module: str, attribute: str) -> Any:
    """Return an attribute, dotted or not, of a module that is imported already; None if there is none."""
    try:
        return operator.attrgetter(attribute)(sys.modules[module])
    except (AttributeError, KeyError):
        return None


def _told(error: BaseException) -> str:
    """Return what an error says, and the line of code that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}" + ("" if isinstance(error, SyntaxError) else place)
