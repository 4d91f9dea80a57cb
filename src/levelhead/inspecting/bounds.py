"""Measured group gaps of attention logits beside every bound on them, for one trained run.

The logits are those of the last attention layer; a gap is the absolute difference of their means between two groups,
for one head, one query position and one key position. What is bounded here are logits: nothing is said about
predictions, for which there is :func:`levelhead.audit`, and nothing is certified.

Follows Theorem 1 of Lu, Wang, Wang, ICLR 2024; the other bounds are in :mod:`levelhead.inspecting.theory`, with
proofs in ``docs/theory.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelhead.inspecting import theory
from levelhead.types import ConfigError, DataError, quoted

if TYPE_CHECKING:
    from levelhead.attention.capture import Captured
    from levelhead.attention.config import DebiasConfig
    from levelhead.data import Groups, Split
from levelhead.inspecting.bounds_page import MIN_ROWS
from levelhead.inspecting.bounds_report import (
    AVERAGED,
    NOT_STANDARDISED,
    NOTHING,
    Bound,
    BoundsReport,
    GroupPair,
    Place,
    few_rows_notes,
    largest_place,
    worst_bounds,
)

Array = NDArray[np.float64]

# Sums over all rows are in float64; queries and keys came as float32 and are taken as they are.
ROUNDING = 1e-6


def bounds_of_run(
    folder: Path, split: Split = "test", *, data_root: Path | None = None, attribute: str | None = None
) -> BoundsReport:
    """Measure the group gaps of a finished run's attention logits and set them beside the bounds.

    Places with fewer than :data:`MIN_ROWS` rows of a group are left out, with a warning. Nothing is written.

    The split goes through the network in evaluation mode, twice for a debiased one: the second pass standardises
    queries and keys by the split's own statistics, which need the first. (Not so for a model that does not divide by
    the deviation, or centres twice: those statistics would not make it another such model.)

    Args:
        folder: a run folder that ``train`` finished.
        split: the split to measure on; group shares are those of its rows.
        data_root: folder that holds the data sets, if not the one that the run used.
        attribute: the sensitive attribute, if the data set has several; None means the first.

    Errors: :class:`~levelhead.DataError` for no run, or an unfinished one; :class:`~levelhead.ConfigError` for an
    attribute that the data set does not have; :class:`~levelhead.UnsupportedModelError` for attention that cannot be
    reached.
    """
    from levelhead.attention.capture import capture
    from levelhead.runs.finished import open_finished

    opened = open_finished(folder, data_root, running=["data"])
    experiment, model = opened.experiment, opened.load_model()
    examples, groups = opened.prepared(split, model), _choose(experiment.data.require_groups(split), attribute)

    class Passes:
        def __iter__(self) -> Iterator[Captured]:
            return capture(model, examples.inputs, experiment.train.evaluation_batch_size, opened.device)

    record = getattr(model.config, "levelhead", None) or {}
    return bounds_of(Passes(), groups, record.get("debias"), {**opened.about, "split": split})


def bounds_of(
    batches: Iterable[Captured], groups: Groups, debias: dict[str, Any] | None, run: dict[str, Any]
) -> BoundsReport:
    """Measure the group gaps of captured queries and keys, and set them beside the bounds.

    Args:
        batches: the split in row order; iterated twice where queries and keys are standardised.
        groups: who belongs to which group, in the same order.
        debias: the options of :class:`~levelhead.DebiasConfig`, resolved, or None for a plain model; options that are
            missing, as in the record of an earlier version, have their defaults.
        run: with the name of the ``split``, and whatever else is to be written down.

    Errors: :class:`~levelhead.DataError` for a split without rows, or another number of rows than ``groups`` has.
    """
    from levelhead.attention.config import DebiasConfig

    names = groups.names
    options = None if debias is None else DebiasConfig(**debias)
    standardised = options is not None and options.normalize
    no_own = _why_not_own(options)
    model, raw_query, raw_key = _Gaps(len(names)), _Moments(), _Moments()
    last: Captured | None = None
    padded = False
    for last, members in _with_groups(batches, groups.values):
        padded |= last.valid is not None
        raw_query.add(*_rows(last.query, last))
        raw_key.add(*_tokens(last.key, last))
        model.add(_rows(last.debiased_query, last), _tokens(last.debiased_key, last), members)
    if last is None:
        raise DataError(f"The split {run['split']!r} has no rows. Choose another.")
    scaling, head_size, readout = last.scaling, last.query.shape[-1], last.readout is not None

    sizes = torch.bincount(groups.values, minlength=len(names)).tolist()
    present = [group for group, size in enumerate(sizes) if size]
    warnings = [
        f"No row of {run['split']} belongs to {quoted(names[group])}."
        for group in range(len(names))
        if not sizes[group]
    ]
    rows_by_key = {names[group]: model.rows_by_key(group) for group in present}
    warnings += few_rows_notes(rows_by_key)
    compared = [group for group in present if max(rows_by_key[names[group]]) >= MIN_ROWS]
    if len(present) < 2:
        warnings.insert(0, f"{run['split']} holds rows of fewer than two groups of {groups.attribute!r}.")
    elif len(compared) < 2:
        warnings.insert(
            0, f"{run['split']} holds {MIN_ROWS} rows or more of fewer than two groups of {groups.attribute!r}."
        )
    if padded and standardised:
        warnings.append("Padding: each pair of positions is compared over the rows where both hold a token.")
    combined = list(itertools.combinations(compared, 2))

    heads, gaps = model.places(combined, names, scaling, readout)
    broken = model.broken
    if not standardised:  # what the second moments of a plain model allow is no limit that anybody set
        heads = tuple(replace(place, bound=math.nan, closest=math.nan) for place in heads)
    own: tuple[Place, ...] = ()
    signed: tuple[Place, ...] = ()
    own_gaps = dict.fromkeys(combined, math.nan)
    if options is not None and options.normalize and no_own is None:
        with_abs, without = _Gaps(len(names)), _Gaps(len(names))
        for batch, members in _with_groups(batches, groups.values):
            query, key = _rows(batch.query, batch), _tokens(batch.key, batch)
            query = (raw_query.standardise(*query), query[1])
            key = (raw_key.standardise(*key), key[1])
            without.add(query, key, members)
            if options.absolute:
                with_abs.add((query[0].abs(), query[1]), (key[0].abs(), key[1]), members)
        if options.absolute:
            own, own_gaps = with_abs.places(combined, names, scaling, readout)
            signed, _ = without.places(combined, names, scaling, readout)
        else:
            own, own_gaps = without.places(combined, names, scaling, readout)
        broken = max(broken, with_abs.broken, without.broken)
    if broken:
        warnings.insert(
            0,
            f"{broken} mean logits of a group are not finite, and their gaps are left out of every figure: queries or "
            "keys are NaN or infinite, so the weights or the inputs are broken.",
        )
    check = None
    if standardised and combined and not broken:
        check = all(place.closest <= 1 + ROUNDING for place in (*heads, *own, *signed))

    shares = [sizes[group] / sum(sizes) for group in present]
    bounded = [
        _bounds((present.index(one), present.index(other)), shares, scaling, head_size, options)
        for one, other in combined
    ]
    pairs = tuple(
        GroupPair((names[pair[0]], names[pair[1]]), gaps[pair], own_gaps[pair], bounds)
        for pair, bounds in zip(combined, bounded, strict=True)
    )
    if check and own and not padded:  # all second moments are 1, so that the ideal bound is exact too
        for positions, pair in zip(combined, pairs, strict=True):
            ideal = head_size * scaling * sum(sizes) / min(sizes[group] for group in positions)
            check = check and pair.own_gap <= ideal * (1 + ROUNDING)
    return BoundsReport(
        run=run,
        attribute=groups.attribute,
        rows=dict(zip(names, sizes, strict=True)),
        rows_by_key=rows_by_key,
        head_size=head_size,
        statistics=options.statistics if options is not None and standardised else None,
        heads=heads,
        own=own,
        signed=signed,
        pairs=pairs,
        bounds=worst_bounds(bounded, largest_place(heads), options),
        arithmetic_check=check,
        warnings=tuple(warnings),
        no_own=no_own,
    )


def _why_not_own(options: DebiasConfig | None) -> str | None:
    """Why standardising by the split's own statistics would not give the model's logits on them; None if it does."""
    if options is None or not options.normalize:
        return None
    if not options.scale:
        return "this model does not divide by the deviation"
    if options.notebook.twice:
        return "this model centres a second time"
    return None


def _choose(groups: tuple[Groups, ...], attribute: str | None) -> Groups:
    for group in groups:
        if attribute in (None, group.attribute):
            return group
    known = ", ".join(group.attribute for group in groups)
    raise ConfigError(f"The data set has no sensitive attribute {attribute!r}. Known: {known}.")


def _with_groups(batches: Iterable[Captured], values: Tensor) -> Iterator[tuple[Captured, Tensor]]:
    start = 0
    for batch in batches:
        stop = start + len(batch.query)
        yield batch, values[start:stop]
        start = stop
    if start != len(values):
        raise DataError(f"{start} rows went through the network, and {len(values)} have a group.")


# ------------------------------------------------------------------------------------------------ sums over rows


def _rows(query: Tensor, batch: Captured) -> tuple[Tensor, Tensor]:
    """Queries (batch, heads, 1 + tokens, head size) with the readout row in front, and who is valid (batch, ...).

    Row 0 repeats a position where the readout row is fixed; where it moves (the last real token), it is one more row
    with means and moments of its own. It is marked invalid throughout if there is none.
    """
    tokens, valid = _tokens(query, batch)
    here = torch.arange(len(query))
    row = batch.readout if batch.readout is not None else torch.zeros(len(query), dtype=torch.int64)
    first = tokens[here, :, row][:, :, None]
    if batch.readout is None:
        first = torch.zeros_like(first)
    marked = torch.full((len(query), 1), batch.readout is not None)
    if not batch.other_rows:
        valid = torch.zeros_like(valid)
    return torch.cat([first, tokens], dim=2), torch.cat([marked, valid], dim=1)


def _tokens(x: Tensor, batch: Captured) -> tuple[Tensor, Tensor]:
    """Queries or keys in float64, 0 at padding, and who is valid (batch, tokens)."""
    valid = batch.valid if batch.valid is not None else torch.ones(len(x), x.shape[2], dtype=torch.bool)
    return x.double().where(valid[:, None, :, None], 0.0), valid


def _grown(x: Tensor, shape: torch.Size) -> Tensor:
    """Pad ``x`` with zeros at the end of each axis: padded batches differ in length."""
    if x.shape == shape:
        return x
    result = x.new_zeros(shape)
    result[tuple(slice(size) for size in x.shape)] = x
    return result


def _added(total: Tensor | None, x: Tensor) -> Tensor:
    if total is None:
        return x
    shape = torch.Size(map(max, total.shape, x.shape))
    return _grown(total, shape) + _grown(x, shape)


class _Moments:
    """Mean and biased variance (heads, positions, head size) over the valid rows of all batches."""

    def __init__(self) -> None:
        self.count: Tensor | None = None
        self.shift: Tensor | None = None
        self.total: Tensor | None = None
        self.squares: Tensor | None = None

    def add(self, x: Tensor, valid: Tensor) -> None:
        weight = valid[:, None, :, None]
        if self.shift is None or self.shift.shape[1] < x.shape[2]:
            self._shift_to(x.sum(0) / weight.sum(0).clamp(min=1))
        assert self.shift is not None
        # Sums around a first guess of the mean: squares of the values themselves would cancel.
        centred = (x - self.shift[:, : x.shape[2]]) * weight
        self.count = _added(self.count, weight.sum(0).double())
        self.total = _added(self.total, centred.sum(0))
        self.squares = _added(self.squares, centred.square().sum(0))

    def _shift_to(self, guess: Tensor) -> None:
        """Take ``guess`` for the positions that were not seen before."""
        if self.shift is not None:
            guess = guess.clone()
            guess[:, : self.shift.shape[1]] = self.shift
        self.shift = guess

    def standardise(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return (x - mean) / deviation, 0 at padding and for features that do not vary."""
        assert self.count is not None
        assert self.shift is not None
        assert self.total is not None
        assert self.squares is not None
        size = self.count.clamp(min=1)
        offset = self.total / size
        variance = (self.squares / size - offset.square()).clamp(min=0)
        tokens = x.shape[2]
        mean, deviation = (self.shift + offset)[:, :tokens], variance.sqrt()[:, :tokens]
        varies = deviation != 0  # true of NaN, which must not pass for 0
        standard = torch.where(varies, (x - mean) / deviation.where(varies, 1.0), 0.0)
        return standard.where(valid[:, None, :, None], 0.0)


class _Gaps:
    """Sums of logits by group, and second moments of queries and keys; no logit of a single row is kept.

    Places where one of two groups has fewer than :data:`MIN_ROWS` rows are not compared.
    ``broken`` counts the mean logits, of one group at one place, that are not finite though the group has rows there.
    """

    def __init__(self, groups: int) -> None:
        self.broken = 0
        self.sums: list[Tensor | None] = [None] * groups
        self.counts: list[Tensor | None] = [None] * groups
        self.query_squares: Tensor | None = None
        self.key_squares: Tensor | None = None

    def add(self, query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor], members: Tensor) -> None:
        """Add queries (batch, heads, rows, size) and keys (batch, key heads, tokens, size), each with its validity."""
        (q, q_valid), (k, k_valid) = query, key
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # grouped queries share key heads
        self.query_squares = _added(self.query_squares, q.square().sum(0))
        self.key_squares = _added(self.key_squares, k.square().sum(0))
        for group in range(len(self.sums)):
            mine = members == group
            # One product per head sums over rows and features together.
            left = q[mine].permute(1, 2, 0, 3).flatten(2)
            right = k[mine].permute(1, 2, 0, 3).flatten(2)
            self.sums[group] = _added(self.sums[group], left @ right.transpose(1, 2))
            both = q_valid[mine].double().T @ k_valid[mine].double()
            self.counts[group] = _added(self.counts[group], both)

    def places(
        self, pairs: list[tuple[int, int]], names: tuple[str, ...], scaling: float, readout: bool
    ) -> tuple[tuple[Place, ...], dict[tuple[int, int], float]]:
        """Find the largest gap of each head over pairs and places, and that of each pair over heads and places."""
        assert self.query_squares is not None
        assert self.key_squares is not None
        shape = torch.Size((len(self.query_squares), self.query_squares.shape[1], self.key_squares.shape[1]))
        # sum over features of sqrt(S_q S_k), where S is the sum of squares over all rows.
        cauchy_schwarz = scaling * (self.query_squares.sqrt() @ self.key_squares.sqrt().transpose(1, 2)).numpy()
        best = [NOTHING] * shape[0]
        by_pair = {}
        for group in {group for pair in pairs for group in pair}:
            mean, rows = self._mean(group, shape, scaling)
            self.broken += int((~np.isfinite(mean) & (rows > 0)).sum())
        for pair in pairs:
            (one, n_one), (other, n_other) = (self._mean(group, shape, scaling) for group in pair)
            gap, fewer = np.abs(one - other), np.minimum(n_one, n_other)
            seen = np.isfinite(gap) & (fewer >= MIN_ROWS)
            bound = cauchy_schwarz / np.maximum(fewer, 1)
            by_pair[pair] = float(gap[seen].max()) if seen.any() else math.nan
            # A bound of 0 leaves no room: the gap is 0 as well, up to rounding.
            ratio = np.divide(gap, bound, out=np.zeros_like(gap), where=seen & (bound > 0))
            gap = np.where(seen, gap, -1.0)
            for head in range(shape[0]):
                # Positions first, so that a fixed readout row is named by its position.
                flat = int(np.concatenate([gap[head, 1:], gap[head, :1]]).argmax())
                query, key = divmod(flat, shape[2])
                row = (query + 1) % shape[1]
                value = float(gap[head, row, key])
                if value < 0:
                    continue
                before = best[head]
                front = float(gap[head, 0].max()) if readout and seen[head, 0].any() else math.nan
                if not before.gap >= value:
                    place = Place(value, float(bound[head, row, key]), before.closest, before.readout)
                    where = (names[pair[0]], names[pair[1]])
                    behind = (int(n_one[head, row, key]), int(n_other[head, row, key]))
                    place = replace(place, groups=where, query=None if row == 0 else row - 1, key=key, rows=behind)
                    best[head] = place
                best[head] = replace(
                    best[head],
                    closest=float(np.fmax(before.closest, ratio[head].max())),
                    readout=float(np.fmax(before.readout, front)),
                )
        return tuple(best), by_pair

    def rows_by_key(self, group: int) -> tuple[int, ...]:
        """Return how many rows of a group hold a token at each key: those seen by the query that sees most of them."""
        counts = self.counts[group]
        assert counts is not None
        keys = max(each.shape[1] for each in self.counts if each is not None)
        return tuple(int(count) for count in _grown(counts, torch.Size((len(counts), keys))).amax(0))

    def _mean(self, group: int, shape: torch.Size, scaling: float) -> tuple[Array, Array]:
        sums, counts = self.sums[group], self.counts[group]
        assert sums is not None
        assert counts is not None
        total, rows = _grown(sums, shape).numpy(), _grown(counts, shape[1:]).numpy()
        mean = np.divide(scaling * total, rows, out=np.full(tuple(shape), np.nan), where=rows > 0)
        return mean, np.broadcast_to(rows, tuple(shape))


# ------------------------------------------------------------------------------------------------ bounds


def _bounds(
    pair: tuple[int, int], shares: list[float], scaling: float, head_size: int, options: DebiasConfig | None
) -> tuple[Bound, ...]:
    """Bound the gap of one pair of groups, for statistics that are exact at each position."""
    temperature = 1 / (scaling * math.sqrt(head_size))
    plain = None if options is not None and options.normalize else NOT_STANDARDISED
    if plain is None and options is not None and not options.scale:
        plain = "does not apply: queries and keys are centred but not divided by their deviation"
    folded = plain
    absolute = options is not None and bool(options.absolute)
    if folded is None and not absolute:
        folded = "does not apply: this model keeps the sign of queries and keys"
    elif folded is None and options is not None and options.notebook.twice:
        folded = "does not apply: this model centres and folds a second time"
    pooled = options is not None and options.statistics != "position"
    two = folded
    if two is None and len(shares) > 2:
        two = "not defined for more than two groups"

    def bound(
        name: str, title: str, assumes: str, reason: str | None, value: Callable[[], float], applies: bool = True
    ) -> Bound:
        if reason is None and pooled and applies:
            return Bound(name, title, value(), assumes, AVERAGED, applies=False)
        return Bound(name, title, math.nan if reason else value(), assumes, reason, applies)

    return (
        bound(
            "distribution_free",
            "Distribution-free",
            "second moments 1; no law, no independence",
            plain,
            lambda: theory.distribution_free_bound(shares, head_size, pair=pair, temperature=temperature),
        ),
        bound(
            "gaussian",
            "Gaussian",
            "Gaussian in each group; q, k independent given it",
            folded,
            lambda: theory.gaussian_bound(shares, head_size, pair=pair, temperature=temperature),
        ),
        bound(
            "without_absolute",
            "Without absolute value",
            ("not this model: " if absolute else "") + "signs kept; q, k independent given the group",
            plain,
            lambda: theory.bound_without_absolute(shares, head_size, pair=pair, temperature=temperature),
            not absolute,
        ),
        bound(
            "paper",
            "Paper, Theorem 1",
            "as for Gaussian; two groups",
            two,
            lambda: theory.paper_bound(shares, head_size, temperature=temperature),
        ),
    )
