"""Randomised responses: people said their group with a known chance of saying another one (local privacy).

With M[i, j] = P(report j | group i) known, w_ia = (M^-1)[report_i, a] counts row i, in expectation, for its own group
alone: share_a = mean w_a and f_a = mean(w_a yhat) / share_a. The influence of a row on f_a is
w_ia (yhat_i - f_a) / share_a, which gives the exact large-sample variance of f_a - f_b. (Warner 1965,
doi:10.1080/01621459.1965.10480775; Mozannar, Ohannessian, Srebro 2020, arXiv:2006.03955.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.metrics.between import normal_quantile, shared
from levelhead.metrics.group import FloatArray
from levelhead.metrics.power import errors_of_detected
from levelhead.metrics.signed import GAPS, ByPair, pairs_of, rows_of
from levelhead.types import Estimate

LEAST_SURE = 4.0
"""A group's share must be this many standard errors above 0: else the rates divide by what may be nothing."""
UNSURE = (
    "a group's share is less than four standard errors above 0: more rows, or less noise in the answers, would help"
)
IMPOSSIBLE = (
    "the declared noise is impossible for these answers: it implies a group's share below 0 or above 1 (p below 0.001)"
)


@dataclass(frozen=True)
class ResponseGap:
    """One gap f_a - f_b from randomised answers.

    ``naive`` takes reports for groups; ``rows_for_5_points`` is how many rows would detect a gap of 5 points, in 80 of
    100 audits.
    """

    estimate: Estimate
    naive: float = math.nan
    error: float = math.nan
    rows_for_5_points: int | None = None


def shares_of(reports: ArrayLike, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the groups and their standard errors, (groups,) each; no share is clipped at 0.

    Args:
        reports: (groups,) rows that report each group.
        matrix: (groups, groups) P(report j | group i).
    """
    counts = np.asarray(reports, np.float64)
    weight = np.linalg.inv(matrix)
    n = counts.sum()
    shares = counts @ weight / n
    return shares, np.sqrt(np.maximum(0, counts @ weight**2 / n - shares**2) / n)


def contradicted(reports: FloatArray, matrix: FloatArray) -> bool:
    """Whether no shares explain how many rows report each group under this noise (p below 0.001)."""
    n = int(reports.sum())
    few, many = special.bdtr(reports, n, matrix.min(0)), special.bdtrc(reports - 1, n, matrix.max(0))
    return bool(min(few.min(), many.min()) < 0.001 / len(reports))


def by_responses(counts: ArrayLike, matrix: FloatArray, *, level: float = 0.95) -> ByPair[ResponseGap]:
    """Estimate the gaps of every pair of groups.

    Args:
        counts: (report, label 2, prediction 2) rows.
        matrix: (groups, groups) P(report j | group i).
        level: confidence level of each pair; with more than two groups it is shared among the pairs (Bonferroni).

    Returns:
        the gaps. Refused where a group's share is less than four standard errors above 0, or impossible.
    """
    table = np.asarray(counts, np.float64)
    weight = np.linalg.inv(matrix)
    pairs = pairs_of(len(matrix))
    z = normal_quantile(shared(level, len(pairs)))
    everyone = table.sum()
    out: ByPair[ResponseGap] = {}
    for gap in GAPS:
        own = rows_of(table, gap)  # (report, prediction)
        n, sizes = own.sum(), own.sum(1)
        if n < 2:
            out[gap] = dict.fromkeys(pairs, ResponseGap(Estimate.refuse("no rows with this label", int(n))))
            continue
        share, share_error = shares_of(sizes, matrix)
        wrong = contradicted(sizes, matrix)
        rate = (own[:, 1] @ weight / n) / np.where(share == 0, np.nan, share)
        # (report, prediction, group): what a row of this kind adds to the error of f_a
        psi = weight[:, None, :] * (np.array([0.0, 1.0])[None, :, None] - rate) / share
        reported = np.divide(own[:, 1], sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
        out[gap] = {}
        for a, b in pairs:
            if wrong or (share[[a, b]] <= LEAST_SURE * share_error[[a, b]]).any():
                out[gap][a, b] = ResponseGap(Estimate.refuse(IMPOSSIBLE if wrong else UNSURE, int(n)))
                continue
            variance = float((own * (psi[..., a] - psi[..., b]) ** 2).sum() / (n - 1))
            error = math.sqrt(variance / n)
            value = float(rate[a] - rate[b])
            rows = math.ceil(n * (errors_of_detected(z) * error / 0.05) ** 2)
            out[gap][a, b] = ResponseGap(
                Estimate(value, value - z * error, value + z * error, int(n)),
                float(reported[a] - reported[b]),
                error,
                math.ceil(rows * everyone / n),  # rows of the file, of which the gap uses a part
            )
    return out
