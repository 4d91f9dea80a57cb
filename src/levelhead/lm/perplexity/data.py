"""Documents of a text file: UTF-8, one a line, also gzipped; blank lines are left out."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from levelhead.lm.base import Item
from levelhead.storage import refuse_strange_files
from levelhead.types import DataError, reason_of


def read_documents(path: Path) -> list[Item]:
    """Read the documents of a file without their outer blanks; content: ``text``. The id is the line, from 1.

    Raises :class:`~levelhead.types.DataError` that names the file if it is missing, unreadable or empty.
    """
    refuse_strange_files(path)
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = content.decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        raise DataError(f"There is no file {path}: --perplexity names a text, one document per line.") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read as UTF-8 text, gzipped if it ends in .gz ({reason_of(error)})."
        ) from None
    items = [Item(f"line {number}", {"text": line.strip()}) for number, line in enumerate(lines, 1) if line.strip()]
    if not items:
        raise DataError(f"{path} has no text. Write one document per line.")
    return items
