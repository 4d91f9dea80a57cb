"""Benchmarks by name: a user's own as ``module:Class``, and the class behind scores that were kept."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any

from levelhead import lm
from levelhead.lm.base import Benchmark
from levelhead.types import ConfigError, listed, quoted

logger = logging.getLogger(__name__)


def make_benchmark(name: str, options: Mapping[str, Any] | None = None) -> Benchmark:
    """Return the benchmark of this name with these options.

    Raises :class:`~levelhead.types.ConfigError` for an unknown name, and for a class whose own ``name``, after which
    files are called, is no word or is another benchmark's.
    """
    if name not in lm.BENCHMARKS:
        raise ConfigError(
            f"There is no benchmark {quoted(name)}. Known: {listed(lm.BENCHMARKS)}. One of your own is named "
            "module:Class, e.g. mypackage.mine:Mine."
        )
    cls = lm.BENCHMARKS[name]
    own = getattr(cls, "name", None)
    word = isinstance(own, str) and re.fullmatch(r"\w[\w.-]{0,99}", own, re.ASCII)
    if not word or (own != name and own in lm.BENCHMARKS and lm.BENCHMARKS[own] is not cls):
        raise ConfigError(
            f"{quoted(name)}: its attribute `name` is {quoted(own)}, and must be a word of letters, digits, hyphens "
            "and dots that no other benchmark has: files of answers and scores are called after it."
        )
    return cls(**(options or {}))


def recorded_class(benchmark: Benchmark) -> dict[str, str]:
    """Return ``{"class": name in BENCHMARKS}`` for scores of a benchmark that is not found by its own name alone."""
    try:
        found = lm.BENCHMARKS.name_of(type(benchmark))
    except ConfigError:  # of a script or a notebook: its scores are kept, and no other process can score again
        return {}
    return {} if found == benchmark.name else {"class": found}


def class_of(record: Mapping[str, Any], *, running: bool = False) -> type[Benchmark] | None:
    """Return the class of the benchmark that kept scores are of; None, and a warning, if it cannot be used here.

    A module that the scores name is imported only where its class is ``running``: a page of them runs no code.
    """
    name = str(record.get("class", record["benchmark"]))
    if not running and not lm.BENCHMARKS.offers(name) and name.partition(":")[0] not in sys.modules:
        return None
    try:
        return lm.BENCHMARKS.get(name)
    except ConfigError as error:
        logger.warning("%s", error)
        return None
