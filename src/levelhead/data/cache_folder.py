"""The folder of what is kept on disk between runs, and how processes share it.

It is ``$LEVELHEAD_CACHE``, else ``$XDG_CACHE_HOME/levelhead``, else ``~/.cache/levelhead``; ``LEVELHEAD_CACHE=off``
keeps everything in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from levelhead.data.text_files import say_once
from levelhead.storage import refuse_strange_files
from levelhead.terminal import Terminal
from levelhead.types import DataError

VARIABLE = "LEVELHEAD_CACHE"
ADVICE = f"set {VARIABLE} to a folder on another disk, or {VARIABLE}=off to keep everything in memory."


def cache_folder() -> Path | None:
    """Return the folder of the cache, or None if it is switched off or there is no home folder to put it in.

    Raises :class:`~levelhead.types.DataError` for one with a link that leads out of it.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "off":
        return None
    try:
        home = os.environ.get("XDG_CACHE_HOME")
        usual = (Path(home) if home else Path.home() / ".cache") / "levelhead" if not setting else Path(setting)
        folder = usual.expanduser()
    except RuntimeError:  # containers run under user ids that have neither HOME nor an entry in the list of users
        said = "There is no home folder: everything is kept in memory. Set %s to a folder to keep it."
        say_once(said, VARIABLE)
        return None
    refuse_strange_files(folder)
    return folder


@contextlib.contextmanager
def alone(path: Path, waiting: str) -> Iterator[BinaryIO]:
    """Open ``path``, made if it is absent, and hold it for this process; at the end it is deleted, if still there.

    The lock goes with the process, also when it is killed. If another process holds it, ``waiting`` is printed and
    the end of that awaited.
    """
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                Terminal(stderr=True).print(waiting)
                fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held it has renamed or deleted the file that was waited for: begin again with a new one.
            if not is_at(file, path):
                continue
            try:
                yield file
            finally:
                if is_at(file, path):  # after a renaming or deletion, the name may be another process's
                    path.unlink(missing_ok=True)
            return


def is_at(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Return whether a process holds ``path`` with :func:`alone`."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise :class:`~levelhead.types.DataError` unless ``needed`` bytes are free for ``what``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"The {what} cache needs {needed / 2**20:,.1f} MiB in {folder}, and {free / 2**20:,.1f} MiB are free. "
            f"Make room, {ADVICE}"
        )
