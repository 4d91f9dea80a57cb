"""Lets the Auto classes of transformers know levelhead's models, without importing transformers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

AWAITED = "transformers.models.auto.configuration_auto"  # which keeps the list of configurations


def register_when_imported() -> None:
    """Register levelhead's configuration with transformers now, or as soon as transformers is imported."""
    if AWAITED in sys.modules:
        importlib.import_module("levelhead.appended")
    else:
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    """Finds one module as the other finders do, and registers when it has been executed.

    It is no ``importlib.abc.MetaPathFinder``: that module imports others of the standard library before the working
    folder is taken off the path.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != AWAITED:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                importlib.import_module("levelhead.appended")

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
