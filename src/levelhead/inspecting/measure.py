"""Measure what a classifier's attention, its vectors and its answers know of a group: one network, some rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import optimize, special
from torch import Tensor

from levelhead.attention.capture import attention_logits
from levelhead.attention.places import NO_MOVE, ONLY_READ, PLACES, Anchor, Dissection
from levelhead.inspecting import theory
from levelhead.inspecting.curves import Answered, Curves, explanation_curves
from levelhead.inspecting.disparity import Disparity
from levelhead.inspecting.maps import (
    AgainstChance,
    between_groups,
    gap_of_means,
    iou_with_masks,
    mean_of_rows,
    total_variation,
)
from levelhead.inspecting.probes import Array, Ints, Probe, Readability, group_shifts
from levelhead.inspecting.rows import Options, Rows
from levelhead.metrics import Counts, estimate, joint
from levelhead.report.record import Finding
from levelhead.terminal import Progress, silent
from levelhead.types import DataError, Estimate

LOGITS = "logits"
KEPT_BYTES = 1 << 29
"""Of what the lower layers returned: beyond it they run once more."""
GAP = "equalized_odds"


@dataclass(frozen=True)
class Place(Finding):
    """What a place knows of the group, and what the answer owes to it.

    ``linear`` and ``hidden`` read the group, ``linear_given`` and ``hidden_given`` beyond the label. ``gap_after``
    is the gap in equalized odds without the group's direction, ``gap_change`` its paired difference to the gap as it
    is. None where a change is not tried.
    """

    title: str
    width: int
    linear: Readability
    hidden: Readability
    linear_given: Readability
    hidden_given: Readability
    gap_after: Estimate | None = None
    gap_change: Estimate | None = None
    accuracy_after: Estimate | None = None


@dataclass(frozen=True)
class MaskPart(Finding):
    """Attention on one part of the pictures: ``iou`` with its mask, the ``share`` of attention inside it, its ``area``
    (where even attention would go), and ``share_gap``, the second group's share less the first's in equal cells."""

    iou: AgainstChance
    share: Estimate
    area: float
    share_gap: Estimate


@dataclass(frozen=True)
class AttentionByGroup(Finding):
    """What attention differs by between the groups, given the label.

    ``disparity`` is the mean over heads and keys of the absolute difference of the groups' mean logits in the readout
    row (equation 2), in the logits' standard deviations within groups; ``logit_disparity`` and ``largest`` are mean and
    largest absolute difference in logits over all rows, and ``moment_bound``, ``free_bound``, ``gaussian_bound`` and
    ``paper_bound`` their limits, NaN where the model does not meet their assumptions. ``variation`` is the total
    variation of mean attention.
    """

    disparity: AgainstChance
    logit_disparity: float
    largest: float
    moment_bound: float
    free_bound: float
    gaussian_bound: float
    paper_bound: float
    variation: AgainstChance
    parts: dict[str, MaskPart] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelInside(Finding):
    """All figures of one model; ``layers`` reads the group, given the label, from every layer's output."""

    accuracy: Estimate
    gap: Estimate
    temperature: float
    attention: AttentionByGroup
    places: dict[str, Place]
    layers: tuple[Readability, ...]
    curves: Curves


@dataclass
class _Seen:
    """What the first pass leaves behind."""

    vectors: dict[str, list[Array]] = field(default_factory=dict)
    layers: list[list[Array]] = field(default_factory=list)
    attention: list[Array] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)
    logits: list[Array] = field(default_factory=list)
    anchors: list[Anchor | None] = field(default_factory=list)
    readout: list[Ints] = field(default_factory=list)
    kept: int = 0
    padded: bool = False


def measure(
    model: Any,
    rows: Rows,
    *,
    device: torch.device | str,
    batch_size: int = 64,
    options: Options | None = None,
    progress: Progress = silent,
) -> ModelInside:
    """Run a network on rows of two groups, and return all figures.

    Args:
        model: a classifier on ``device``; it is left as it is.
        rows: of both groups.
        device: where the model lies.
        batch_size: rows at once.
        options: how much is measured.
        progress: called for every batch.

    Raises:
        UnsupportedModelError: a network whose attention cannot be reached.
        DataError: logits that are not finite.
    """
    options = options or Options()
    batches = rows.batches(batch_size)

    def inputs_of(index: Tensor) -> dict[str, Tensor]:
        return rows.inputs_of(index, device)

    opened = Dissection(model, inputs_of(rows.index[:2]))
    disparity, seen = Disparity(), _Seen()
    for at, (where, index) in enumerate(batches):
        inside = opened.look(inputs_of(index))
        disparity.add(inside.captured, torch.from_numpy(rows.member[where].astype(np.int64)))
        _keep(seen, inside, opened)
        progress("Looking inside", at + 1, len(batches), "")
    vectors = {place: np.concatenate(parts) for place, parts in seen.vectors.items()}
    logits = np.concatenate(seen.logits)
    if not np.isfinite(logits).all():
        raise DataError(f"The network's logits are not finite in {int((~np.isfinite(logits)).any(1).sum()):,} rows.")
    temperature = fitted_temperature(logits, rows.label)
    moved = {place: vectors[place] for place in PLACES if place != NO_MOVE}
    shifts = {
        place: group_shifts(found, rows.member, rows.label, cluster=rows.cluster, seed=options.seed)
        for place, found in moved.items()
    }
    vectors[LOGITS] = _differences(logits)  # the answer itself: without its direction nothing would be left
    without: dict[str, list[Array]] = {place: [] for place in moved}
    for at, (where, index) in enumerate(batches):
        batch = inputs_of(index)
        anchor = seen.anchors[at] or opened.look(batch).anchor
        seen.anchors[at] = None
        own = slice(where.start, where.start + len(index))
        for place in moved:
            shift = torch.from_numpy(shifts[place][own]).float()
            without[place].append(opened.without(batch, anchor, {place: shift}).cpu().double().numpy())
        progress("Taking the group off", at + 1, len(batches), "")
    changed = {place: np.concatenate(parts) for place, parts in without.items()}
    accuracy, gap, after = _gaps(logits, changed, rows, options)
    places: dict[str, Place] = {}
    titles = PLACES | ONLY_READ | {LOGITS: "logits"}
    ordered = [place for place in ("input", *ONLY_READ, *list(PLACES)[1:], LOGITS) if place in vectors]
    for at, place in enumerate(ordered):
        known: dict[str, Any] = {**_read(vectors[place], rows, options), **after.get(place, {})}
        places[place] = Place(titles[place], vectors[place].shape[1], **known)
        progress("Reading the group", at + 1, len(ordered), places[place].title)
    below = [_probe(np.concatenate(parts), rows, options).read(rows.label, [False])[0] for parts in seen.layers[:-1]]
    layers = (*below, places["output"].linear_given)
    attention = _padded(seen.attention)
    answered = Answered(logits, temperature, attention, np.concatenate(seen.readout))
    curves = explanation_curves(opened, rows, answered, device=device, batch_size=batch_size, options=options,
                                progress=progress)  # fmt: skip
    by_group = _attention(opened, disparity, seen, attention, rows, options)
    return ModelInside(accuracy, gap, temperature, by_group, places, layers, curves)


def _keep(seen: _Seen, inside: Any, opened: Dissection) -> None:
    for place, found in inside.vectors.items():
        seen.vectors.setdefault(place, []).append(found.double().numpy())
    for at, found in enumerate(inside.layers):
        if at == len(seen.layers):
            seen.layers.append([])
        seen.layers[at].append(found.double().numpy())
    anchor = inside.anchor
    seen.attention.append(inside.attention.double().numpy())
    row = torch.zeros(len(anchor.logits), dtype=torch.int64) if anchor.row is None else anchor.row
    seen.readout.append(row.numpy() if anchor.row is not None else np.full(len(row), -1))
    seen.logits.append(anchor.logits.double().numpy())
    seen.padded |= inside.captured.valid is not None
    scores = attention_logits(inside.captured)
    scores = scores[:, :, 0] if anchor.row is not None else scores.nan_to_num(neginf=0).mean(2)
    seen.scores.append(scores.double().nan_to_num(neginf=0).flatten(1).numpy())
    below = anchor.below[0] if isinstance(anchor.below, tuple) else anchor.below
    seen.kept += 0 if below is None else below.numel() * below.element_size()
    seen.anchors.append(anchor if seen.kept <= KEPT_BYTES else None)


def fitted_temperature(logits: Array, label: Ints) -> float:
    """Return the temperature at which logits are most likely; between 1/50 and 50."""

    def loss(log: float) -> float:
        scaled = logits / np.exp(log)
        return float((special.logsumexp(scaled, axis=1) - scaled[np.arange(len(label)), label]).mean())

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-np.log(50), np.log(50)), method="bounded").x))


def _differences(logits: Array) -> Array:
    """Logits less that of the first class: what the answer depends on."""
    return np.asarray(logits[:, 1:] - logits[:, :1])


def _read(vectors: Array, rows: Rows, options: Options) -> dict[str, Readability]:
    probe = _probe(vectors, rows, options)
    linear, hidden = probe.read(None)
    linear_given, hidden_given = probe.read(rows.label)
    return {"linear": linear, "hidden": hidden, "linear_given": linear_given, "hidden_given": hidden_given}


def _probe(vectors: Array, rows: Rows, options: Options) -> Probe:
    return Probe(vectors, rows.member, cluster=rows.cluster, deals=options.permutations, level=options.level,
                 seed=options.seed)  # fmt: skip


def _gaps(
    logits: Array, changed: Mapping[str, Array], rows: Rows, options: Options
) -> tuple[Estimate, Estimate, dict[str, dict[str, Estimate]]]:
    """Accuracy and gap as they are, and without the group's direction at each place, with paired differences."""
    classes = logits.shape[1]
    found = joint(
        rows.label,
        rows.member.astype(np.int64),
        {"as it is": logits.argmax(1)[None], **{place: one.argmax(1)[None] for place, one in changed.items()}},
        baseline="as it is",
        positive=1 if classes == 2 else None,
        level=options.level,
        seed=options.seed,
        clusters=rows.cluster,
        classes=range(classes),
        min_count=10,
    )
    single = Counts.from_codes(
        rows.member.astype(np.int64), rows.label, logits.argmax(1), list(rows.groups), list(range(classes))
    )
    gap = estimate(single, GAP, positive=1 if classes == 2 else None, level=options.level, min_count=10)
    after = {
        place: {
            "gap_after": found.rows[place][GAP].rows_only,
            "gap_change": _or_undefined(found.rows[place][GAP].difference if gap.defined else gap, len(rows.label)),
            "accuracy_after": found.rows[place]["accuracy"].rows_only,
        }
        for place in changed
    }
    own = found.rows["as it is"]
    return own["accuracy"].rows_only, own[GAP].rows_only if own[GAP].rows_only.defined else gap, after


def _or_undefined(found: Estimate | None, rows: int) -> Estimate:
    if found is None:
        return Estimate.undefined("there is no difference", rows)
    return Estimate(found.value, found.low, found.high, found.n, found.reason if np.isnan(found.low) else None)


def _padded(parts: Sequence[Array]) -> Array:
    """Join batches of (batch, tokens), which differ in length where texts do."""
    longest = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, longest - part.shape[1]))) for part in parts])


def _attention(
    opened: Dissection, disparity: Disparity, seen: _Seen, attention: Array, rows: Rows, options: Options
) -> AttentionByGroup:
    def compared(values: Array, distance: Any) -> AgainstChance:
        return between_groups(values, rows.member, rows.label, distance, cluster=rows.cluster,
                              deals=options.permutations, seed=options.seed)  # fmt: skip

    def mean_difference(first: Array, second: Array) -> Array:
        return np.asarray(np.abs(first - second).mean(1))

    if len({one.shape[1] for one in seen.scores}) == 1 and not seen.padded:
        scores = np.concatenate(seen.scores)
        spread = np.stack([scores[rows.member == side].std(0) for side in (False, True)]).mean(0)
        kept = spread > 1e-9 * max(float(np.abs(scores).max()), 1e-30)
        scaled = compared(scores[:, kept] / spread[kept], mean_difference)
    else:
        reason = "rows differ in length, so that keys at one position are not comparable"
        scaled = AgainstChance.of(Estimate.undefined(reason, len(rows.label)), np.zeros(0))
    delta, bound = disparity.between()
    delta = np.abs(delta)
    shares = [float((~rows.member).mean()), float(rows.member.mean())]
    size, tap = seen.vectors["query"][0].shape[1] // len(delta), disparity.scaling
    # The scaling is 1 / (sqrt(head size) * temperature).
    temperature = 1 / (tap * np.sqrt(size))
    known, nan = np.isfinite(delta).any(), float("nan")
    return AttentionByGroup(
        scaled,
        float(np.nanmean(delta)) if known else float("nan"),
        float(np.nanmax(delta)) if known else float("nan"),
        float(np.nanmax(bound)) if known else float("nan"),
        theory.distribution_free_bound(shares, size, temperature=temperature) if opened.standardized else nan,
        float(theory.gaussian_bound(shares, size, temperature=temperature)) if opened.absolute else nan,
        theory.paper_bound(shares, size, temperature=temperature) if opened.absolute else nan,
        compared(attention, total_variation),
        _parts(attention, rows, options),
    )


def _parts(attention: Array, rows: Rows, options: Options) -> dict[str, MaskPart]:
    """Attention on each part; tokens before the patches are left out, and the rest is scaled to sum to 1."""
    if not rows.masks or rows.grid is None:
        return {}
    patches = rows.grid[0] * rows.grid[1]
    maps = attention[:, attention.shape[1] - patches :]
    maps = maps / maps.sum(1, keepdims=True)
    found = {}
    for part, mask in rows.masks.items():
        inside = (maps * mask).sum(1)
        found[part] = MaskPart(
            iou_with_masks(
                maps, mask, deals=options.permutations, level=options.level, seed=options.seed, cluster=rows.cluster
            ),
            mean_of_rows(inside, options.level, cluster=rows.cluster),
            float(mask.mean()),
            gap_of_means(inside, rows.member, rows.label, level=options.level, cluster=rows.cluster),
        )
    return found
