"""Randomised responses: people said their group with a known chance of saying another one (local privacy).

With M[i, j] = P(report j | group i) known, w_ia = (M^-1)[report_i, a] counts row i, in expectation, for its own group
alone: share_a = mean w_a and f_a = mean(w_a yhat) / share_a. The influence of a row on f_a is
w_ia (yhat_i - f_a) / share_a, which gives the exact large-sample variance of f_a - f_b. (Warner 1965,
doi:10.1080/01621459.1965.10480775; Mozannar, Ohannessian, Srebro 2020, arXiv:2006.03955.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from levelhead.arrays import check_fields
from levelhead.auditing.missing.gaps import GAPS, FloatArray, pairs_of, rows_of
from levelhead.metrics.between import normal_quantile, shared
from levelhead.types import ConfigError, Estimate, quoted

ASSUMES = "every answer was randomised as declared, by chance alone"
FAINTEST = 1e-6
"""The least epsilon, and the least distance of a flip from chance: below it, M cannot be inverted in float64."""
LEAST_SURE = 4.0
"""A group's share must be this many standard errors above 0: else the rates divide by what may be nothing."""


@dataclass(frozen=True)
class Response:
    """How an answer was randomised: exactly one of two numbers.

    Args:
        epsilon: of local differential privacy: the true group is e^epsilon times as likely as each other one.
        flip: chance that the report is another group than the true one; each other one is equally likely.

    Raises:
        ConfigError: neither or both are given, or the number leaves nothing to learn.

    Examples:
        >>> from levelhead.auditing.missing.responses import Response
        >>> Response(flip=0.2).matrix(2).tolist()
        [[0.8, 0.2], [0.2, 0.8]]
    """

    epsilon: float | None = None
    flip: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.epsilon is None) == (self.flip is None):
            raise ConfigError("A randomised response is declared by epsilon=E or by flip=Q, exactly one of them.")
        if self.epsilon is not None and not FAINTEST <= self.epsilon < math.inf:
            raise ConfigError(
                f"epsilon={self.epsilon:g}: it must be finite and at least {FAINTEST:g}. Near 0 an answer says nothing "
                "about the group."
            )
        if self.flip is not None and not 0 <= self.flip < 1:
            raise ConfigError(f"flip={self.flip:g} is not a chance from 0 up to 1.")

    @classmethod
    def parse(cls, text: str) -> Response:
        """Read ``epsilon=1.39`` or ``flip=0.2``, as a command line gives it."""
        name, _, number = text.partition("=")
        name = name.strip().lower()
        if name == "keep":
            raise ConfigError(
                "keep= has two meanings: the truth with that chance and otherwise another answer, or otherwise any "
                "answer, the truth among them. Say flip=Q, the chance that the report is not the truth, or epsilon=E."
            )
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in ("epsilon", "flip") or math.isnan(value):
            raise ConfigError(f"Randomised response {quoted(text)}: write epsilon=1.39 or flip=0.2.")
        return cls(**{name: value})

    def matrix(self, groups: int) -> FloatArray:
        """Return M (groups, groups): P(report j | group i)."""
        if groups < 2:
            raise ConfigError("A randomised response needs two groups or more: every report says the same.")
        if self.epsilon is not None:
            odd = 1 / (math.exp(min(self.epsilon, 700.0)) + groups - 1)
        else:
            assert self.flip is not None
            if self.flip >= (groups - 1) / groups - FAINTEST:
                raise ConfigError(
                    f"flip={self.flip:g} with {groups} groups: from {(groups - 1) / groups:.3g} on, a report says no "
                    "more about the group than chance."
                )
            odd = self.flip / (groups - 1)
        return np.full((groups, groups), odd) + np.eye(groups) * (1 - groups * odd)

    def spent(self, groups: int) -> float:
        """Return the epsilon that one answer spends."""
        matrix = self.matrix(groups)
        return math.inf if matrix[0, 1] == 0 else math.log(matrix[0, 0] / matrix[0, 1])

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:.4g}" if self.epsilon is not None else f"flip={self.flip:g}"


def read_responses(given: Sequence[str], groups: Sequence[str]) -> dict[str, Response]:
    """Read how the answers in each group column were randomised: ``epsilon=1.39`` for all, or ``sex:epsilon=1.39``.

    Raises:
        ConfigError: no group column, one without its randomisation, or a column that is none of them.
    """
    if not groups:
        raise ConfigError("A randomised response needs the column of reports: name it with --group.")
    found: dict[str, Response] = {}
    for text in given:
        name, _, declared = text.rpartition(":")
        if name and name not in groups:
            raise ConfigError(f"--randomized-response {quoted(text)}: {quoted(name)} is none of the --group columns.")
        response = Response.parse(declared)
        for column in [name] if name else groups:
            if column in found:
                raise ConfigError(f"--randomized-response names column {quoted(column)} twice.")
            found[column] = response
    if lacking := [column for column in groups if column not in found]:
        raise ConfigError(f"Nothing says how {quoted(lacking[0])} was randomised: add {lacking[0]}:epsilon=E.")
    return {column: found[column] for column in groups}


@dataclass(frozen=True)
class ResponseGap:
    """One gap f_a - f_b from randomised answers.

    ``naive`` takes reports for groups; ``inflation`` is the variance divided by that of the naive gap;
    ``rows_for_5_points`` how many rows would decide a gap of 5 points.
    """

    estimate: Estimate
    naive: float
    error: float
    inflation: float
    rows_for_5_points: int | None


@dataclass(frozen=True)
class ResponseShares:
    """Shares of the groups (groups,) and their standard errors; not clipped, so a share can be negative."""

    shares: FloatArray
    errors: FloatArray


def shares_of(reports: ArrayLike, matrix: FloatArray) -> ResponseShares:
    """Return the shares of the groups, from how many rows report each (groups,)."""
    counts = np.asarray(reports, np.float64)
    weight = np.linalg.inv(matrix)
    n = counts.sum()
    shares = counts @ weight / n
    return ResponseShares(shares, np.sqrt(np.maximum(0, counts @ weight**2 / n - shares**2) / n))


def by_responses(
    counts: ArrayLike, matrix: FloatArray, *, level: float = 0.95
) -> dict[str, dict[tuple[int, int], ResponseGap]]:
    """Estimate the gaps of every pair of groups.

    Args:
        counts: (report, label 2, prediction 2) rows.
        matrix: (groups, groups) P(report j | group i).
        level: confidence level of each pair; with more than two groups it is shared among the pairs (Bonferroni).

    Returns:
        by gap and pair (a, b), f_a - f_b. Refused where a group's share is less than four standard errors above 0.
    """
    table = np.asarray(counts, np.float64)
    weight = np.linalg.inv(matrix)
    pairs = pairs_of(len(matrix))
    z = normal_quantile(shared(level, len(pairs)))
    everyone = table.sum()
    out: dict[str, dict[tuple[int, int], ResponseGap]] = {}
    for gap in GAPS:
        own = rows_of(table, gap)  # (report, prediction)
        n = own.sum()
        out[gap] = {}
        sizes = own.sum(1)
        if n < 2 or not everyone:
            out[gap] = {pair: _refused("no rows with this label", int(n)) for pair in pairs}
            continue
        share = sizes @ weight / n
        sure = share / np.sqrt(np.maximum(1e-300, sizes @ weight**2 / n - share**2) / n)
        rate = (own[:, 1] @ weight / n) / np.where(share == 0, np.nan, share)
        # (report, prediction, group): what a row of this kind adds to the error of f_a
        psi = weight[:, None, :] * (np.array([0.0, 1.0])[None, :, None] - rate) / share
        for a, b in pairs:
            if min(sure[a], sure[b]) < LEAST_SURE:
                reason = (
                    "a group's share is less than four standard errors above 0: more rows, or less noise in the "
                    "answers, would help"
                )
                out[gap][a, b] = _refused(reason, int(n))
                continue
            difference = psi[..., a] - psi[..., b]
            variance = float((own * difference**2).sum() / (n - 1))
            error = math.sqrt(variance / n)
            value = float(rate[a] - rate[b])
            reported = np.divide(own[:, 1], sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
            plain = sum(reported[k] * (1 - reported[k]) * n / sizes[k] for k in (a, b) if sizes[k])
            rows = math.ceil(n * (z * error / 0.05) ** 2) if n else None
            out[gap][a, b] = ResponseGap(
                Estimate(value, value - z * error, value + z * error, int(n), assumes=ASSUMES),
                float(reported[a] - reported[b]),
                error,
                variance / plain if plain > 0 else math.nan,
                # rows of the file, of which the gap uses a part
                None if rows is None else math.ceil(rows * everyone / n),
            )
    return out


def _refused(reason: str, n: int) -> ResponseGap:
    return ResponseGap(Estimate.refuse(reason, n, ASSUMES), math.nan, math.nan, math.nan, None)
