"""Cells of a grid on a Ray cluster. Every node must see the run folder and the data under the same paths."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from levelhead.bench.grid import Cell, Failure, Launcher, LocalProcesses, order_of
from levelhead.types import ConfigError, LevelheadError

TIMEOUT = 30.0
"""Seconds to wait for a cluster to answer."""


def _run_on_node(order: dict[str, Any], marker: str) -> str | None:
    """Run on the node that Ray chose, in a process of its own; return the last line of its failure, if it failed."""
    if not Path(marker).exists():
        return f"this node does not see {marker}: the folder of the runs must be shared by all nodes"
    return LocalProcesses().run(order, Path(order["folder"]))


@contextmanager
def connected(address: str, out: Path) -> Iterator[tuple[Launcher, int]]:
    """Connect to a cluster, and yield the launcher and how many cells the cluster takes at a time.

    Args:
        address: ``auto``, or the cluster's address (``host:port``).
        out: folder of the runs, on a file system that all nodes share.

    Errors: :class:`ConfigError` when Ray is not installed or nothing answers.
    """
    out = out.absolute()
    marker = out / ".shared"
    with _cluster(address) as ray:
        out.mkdir(parents=True, exist_ok=True)
        marker.touch()
        remote = ray.remote(max_retries=0)(_run_on_node)

        def launch(cell: Cell) -> Failure | None:
            here = replace(cell, folder=cell.folder.absolute(), refitted=cell.refitted and cell.refitted.absolute())
            task: Any = remote.options(num_cpus=cell.experiment.train.threads or 1)
            try:
                failure: str | None = ray.get(task.remote(order_of(here), str(marker)))
            except ray.exceptions.RayError as error:  # a node that went away, a worker that was killed
                return Failure(cell, f"Ray: {str(error).splitlines()[0]}")
            return None if failure is None else Failure(cell, failure)

        slots = int(ray.cluster_resources().get("CPU", 0))
        if slots < 1:
            raise LevelheadError(f"The Ray cluster at {address!r} offers no CPU.")
        try:
            yield launch, slots
        finally:
            marker.unlink(missing_ok=True)


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Connect to a Ray cluster and yield the module ``ray``."""
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'levelhead[ray]'.") from None
    if address != "auto":
        _check_answers(address)
    mine = not ray.is_initialized()
    if mine:
        try:
            # Ray's workers look for modules in the driver's folder before all others: it is empty, and soon gone.
            with tempfile.TemporaryDirectory(prefix="levelhead-ray-") as empty, contextlib.chdir(empty):
                ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"No Ray cluster answers at {address!r} ({str(error).splitlines()[0]}). Start one with `ray start "
                "--head`, or give its address."
            ) from None
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Ray itself waits for minutes at an address where nobody listens; a plain connection tells sooner."""
    import socket

    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--ray {address!r} is neither 'auto' nor an address such as 10.0.0.5:6379.")
    try:
        socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
    except OSError as error:
        raise ConfigError(
            f"No Ray cluster answers at {address} ({error}). Is it running, and is this its port?"
        ) from None
