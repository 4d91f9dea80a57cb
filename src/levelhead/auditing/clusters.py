"""Rows that belong together, such as several records of one person: what an audit says of them, and who is left out.

The statistics are in :mod:`levelhead.metrics.clustered`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from levelhead.metrics import Counts
from levelhead.metrics.clustered import FEWEST, ClusteredCounts, Members
from levelhead.metrics.counts import IntArray
from levelhead.metrics.names import Key
from levelhead.report.text import clustered_sentence
from levelhead.tables.columns import occurring
from levelhead.tables.files import File, Files
from levelhead.tables.source import Source, Wanted
from levelhead.tables.tally import Tally
from levelhead.types import printable

ID = re.compile(
    r"(^|[_\W])(id|uid|uuid|guid)$|(?-i:[a-z]I[dD])$|^(person|subject|patient|user|customer|client|student|participant|"
    r"respondent|author|speaker|applicant|worker|employee)s?([_\W]?(no|nr|num|number|code|key|name))?$",
    re.IGNORECASE,
)
"""Names of columns that identify a person."""
FEWEST_IDS, REPEATED = 20, 1.1
"""Fewest distinct values, and mean rows per value, for a column to look like clusters."""


def clustered_counts(
    counts: Counts, tally: Tally, key: Key, codes: IntArray, labels: IntArray, predictions: IntArray
) -> ClusteredCounts:
    """Return counts with their clusters; ``codes``, ``labels``, ``predictions`` are those of the tally's patterns."""
    cluster, pattern, rows = tally.members(key).T
    return ClusteredCounts.of(counts, Members(cluster, codes[pattern], labels[pattern], predictions[pattern], rows))


def clusters_found(column: str, clustered: ClusteredCounts) -> dict[str, Any]:
    """Return what an audit's JSON says of clusters: ``column``, ``rows``, ``clusters``, ``largest``, ``worth``."""
    rows, clusters = clustered.counts.n, clustered.clusters
    largest = int(np.bincount(clustered.members.cluster, clustered.members.rows).max())
    worth = float(clustered.pooled().accuracy.worth[0])
    said = (
        f"{clustered_sentence(rows, clusters, column)}, the largest of {largest:,}. The effective sample size for "
        f"accuracy is {worth:,.0f}."
    )
    return {
        "column": column, "rows": rows, "clusters": clusters, "largest": largest, "worth": worth, "sentence": said,
    }  # fmt: skip


def alone_sentence(column: str) -> str:
    """Say that no two rows belong together."""
    return f"Every row has a {printable(column)} of its own: rows count as independent."


def few_clusters(clusters: int) -> str:
    """Say why a rate is not compared."""
    return f"from {clusters} cluster{'' if clusters == 1 else 's'}, fewer than {FEWEST},"


def repeating_id(source: Source, used: Collection[str], advice: str = "keep one row of each {name}") -> list[str]:
    """Return a warning that names an id column of a file, none of those ``used``, whose values repeat; else nothing.

    Only columns with the name of an id are read, and of them the first batch of rows. ``advice`` says what to do.
    """
    for name in source.file_of("").header() if isinstance(source, File | Files) else ():
        if name in used or not ID.search(name):
            continue
        codes, values, _ = occurring(next(source.batches(Wanted(words=[name]))).words[name])
        known, rows = len(values) - (None in values), len(codes)
        if known >= FEWEST_IDS and rows >= REPEATED * known:
            return [
                f"{printable(name)} has {known:,} values in {rows:,} rows. If rows with the same value belong to one "
                f"person, these intervals are too narrow: {advice.replace('{name}', printable(name))}."
            ]
    return []
