"""Do the same to many things side by side: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from levelhead.types import ConfigError, LevelheadError

Order = TypeVar("Order")
Found = TypeVar("Found")
MOST_WORKERS = 256


def check_workers(workers: int, ray: str | None = None) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a number of processes that cannot be started."""
    if not 1 <= workers <= MOST_WORKERS:
        raise ConfigError(f"workers={workers} is out of range. Pass 1 to {MOST_WORKERS}, for example 2.")
    if workers > 1 and ray is not None:
        raise ConfigError("--workers is for this machine and --ray for a cluster: pass one.")


def side_by_side(
    function: Callable[[Order], Found], orders: Sequence[Order], workers: int = 1, ray: str | None = None
) -> Iterator[Found]:
    """Yield what a function returns for each order, in their order.

    Args:
        function: of a module that can be imported, with arguments and results that can be pickled.
        orders: what it is called with.
        workers: processes of this machine; 1: this one.
        ray: ``auto`` or the address of a Ray cluster, whose nodes all see the files that orders name.

    Raises:
        LevelheadError: as the function does, or when a process ends early.
        ConfigError: Ray is not installed, or no cluster answers.
    """
    if ray is not None:
        yield from _on_cluster(function, orders, ray)
    elif workers == 1 or len(orders) < 2:
        yield from map(function, orders)
    else:
        # Fresh interpreters: a copy of this one would have its threads' locks, and not its threads.
        with ProcessPoolExecutor(min(workers, len(orders)), get_context("spawn"), _begin) as pool:
            try:
                yield from pool.map(function, orders)
            except BrokenProcessPool:
                raise LevelheadError(
                    "A worker process ended early: memory ran out, or a script starts workers as it is imported. Use "
                    "fewer workers, or call it below: if __name__ == '__main__':"
                ) from None
            except BaseException:  # Ctrl-C, or an error in one file: the other files are not counted to their end
                for process in list(pool._processes.values()):
                    process.terminate()
                raise


def _begin() -> None:
    """Leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _call(function: Callable[[Order], Found], order: Order) -> Found:
    return function(order)


def _on_cluster(function: Callable[[Order], Found], orders: Sequence[Order], address: str) -> Iterator[Found]:
    with cluster(address) as ray:
        remote = ray.remote(_call)
        waiting = [remote.remote(function, order) for order in orders]
        while waiting:
            try:
                found: Found = ray.get(waiting.pop(0))
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                raise cause if isinstance(cause, LevelheadError) else LevelheadError(f"Ray: {cause}") from None
            except ray.exceptions.RayError as error:  # a node that went away, a worker that was killed
                raise LevelheadError(f"Ray: {str(error).splitlines()[0]}") from None
            yield found


@contextmanager
def _hidden_folder() -> Iterator[None]:
    """Be in an empty folder while Ray connects: its workers look for modules in the driver's folder before all others.

    The folder is gone before a worker starts.
    """
    with tempfile.TemporaryDirectory(prefix="levelhead-ray-") as empty, contextlib.chdir(empty):
        yield


@contextmanager
def cluster(address: str, timeout: float = 30.0) -> Iterator[Any]:
    """Connect to a Ray cluster and yield the module ``ray``.

    Args:
        address: ``auto``, or the cluster's address (``host:port``).
        timeout: seconds to wait for the cluster to answer.

    Raises:
        ConfigError: Ray is not installed, or nothing answers.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'levelhead[ray]'.") from None
    if address != "auto":
        _check_answers(address, timeout)
    mine = not ray.is_initialized()
    if mine:
        try:
            with _hidden_folder():
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


def _check_answers(address: str, timeout: float) -> None:
    """Ray itself waits for minutes at an address where nobody listens; a plain connection tells sooner."""
    import socket

    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--ray {address!r} is neither 'auto' nor an address such as 10.0.0.5:6379.")
    try:
        socket.create_connection((host, int(port)), timeout=timeout).close()
    except OSError as error:
        raise ConfigError(
            f"No Ray cluster answers at {address} ({error}). Is it running, and is this its port?"
        ) from None
