"""CrowS-Pairs' pairs from the released table.

::

    crows_pairs/crows_pairs_anonymized.csv   a column without a name (the pair's number), sent_more, sent_less,
                                             stereo_antistereo, bias_type, and what the annotators said

It may be gzipped (``.gz``). ``sent_more`` is the more stereotyping sentence in both kinds of pairs.
"""

from __future__ import annotations

from pathlib import Path

from levelhead.data.base import dataset_folder
from levelhead.data.text_files import table_files, table_header
from levelhead.lm.base import Item
from levelhead.lm.files import filled_columns
from levelhead.types import DataError, quoted

SENTENCES = ("sent_more", "sent_less")
FIELDS = (*SENTENCES, "stereo_antistereo", "bias_type")
DIRECTIONS = ("stereo", "antistereo")
NUMBER = ""  # the name of the released table's first column


def read_crows_pairs(root: Path | None) -> list[Item]:
    """Read all pairs below ``root`` (None: ``$LEVELHEAD_DATA``, then ``data``), in ``crows_pairs/``.

    The id of a pair is its number in the table, or its row (from 0) where the table has no numbers.

    Raises :class:`~levelhead.types.DataError` that names file and row, never a sentence, for anything missing, empty or
    doubled.
    """
    names, suffixes = ("crows_pairs_anonymized", "crows_pairs"), (".csv", ".csv.gz")
    path = table_files(dataset_folder(root, "crows_pairs"), *names, suffixes=suffixes)[0]
    numbered = NUMBER in table_header(path)
    columns = filled_columns(path, [NUMBER, *FIELDS] if numbered else FIELDS)
    rows = range(len(columns["sent_more"]))
    ids = columns[NUMBER] if numbered else [str(row) for row in rows]
    seen: set[str] = set()
    for row in rows:
        if columns["stereo_antistereo"][row] not in DIRECTIONS:
            raise DataError(
                f"{path}: row {row} (from 0) has stereo_antistereo {quoted(columns['stereo_antistereo'][row])}; known "
                f"are {' and '.join(DIRECTIONS)}."
            )
        if ids[row] in seen:
            raise DataError(f"{path}: the pair {quoted(ids[row])} is there twice, again in row {row} (from 0).")
        seen.add(ids[row])
    return [Item(ids[row], {field: columns[field][row] for field in FIELDS}) for row in rows]
