"""What :func:`levelhead.inspect` found: figures of one model or two, of one run or several, and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import special

from levelhead.inspecting.measure import LOGITS, ModelInside, Place
from levelhead.inspecting.page import figures_of, inspection_page
from levelhead.metrics.between import difference_of
from levelhead.metrics.names import Key
from levelhead.report.record import Finding, Told
from levelhead.report.result import Report
from levelhead.report.text import Record, joined, number
from levelhead.types import Estimate, in_quotes

SHARE = (0.0, 1.0)
ENDS = dict.fromkeys(("gap_change", "share_gap", "deletion_gap", "insertion_gap"), (-1.0, 1.0))
"""The ends of a figure's scale by its field; all other figures are shares, or areas, of 0 to 1."""
READ = 0.05
"""Below this p-value a group counts as readable."""


@dataclass(frozen=True)
class Inspection(Told, Report):
    """What a classifier's attention, its vectors and its answers know of a group.

    ``models`` by name has the figures, the model that was asked about first; ``groups`` are the two that are compared,
    with their rows; a difference between them is the second less the first. ``runs`` says how many trainings each
    model's figures are means of. ``differences`` has, by place, the first model's area given the label less the
    second's. ``warnings`` are full sentences.

    Examples:
        >>> import numpy as np, torch
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8)
        >>> draw = torch.Generator().manual_seed(0)
        >>> rows = [{"pixel_values": torch.randn(3, 16, 16, generator=draw), "labels": i // 2 % 2} for i in range(100)]
        >>> found = lh.inspect(ViTForImageClassification(config), rows, {"site": ["a", "b"] * 50}, permutations=19)
        >>> found.groups
        {'a': 50, 'b': 50}
        >>> 0 < found.models["model"].places["logits"].linear.area.value < 1
        True
    """

    kind: ClassVar[str] = "inspection"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(inspection_page)

    attribute: str
    groups: dict[str, int]
    models: dict[str, ModelInside]
    runs: dict[str, int]
    differences: dict[str, Estimate]
    warnings: tuple[str, ...] = ()
    level: float = 0.95
    permutations: int = 200

    @classmethod
    def of(
        cls,
        attribute: str,
        groups: dict[str, int],
        models: Mapping[str, Sequence[ModelInside]],
        *,
        folds: Mapping[str, int] | None = None,
        **more: Any,
    ) -> Inspection:
        """Pool the runs of each model; ``folds`` says on how many sets of rows, by model (None: one)."""
        level = more.get("level", 0.95)
        found = {name: pooled(several, (folds or {}).get(name, 1), level) for name, several in models.items()}
        differences = {}
        if len(found) == 2:
            first, second = found.values()
            for place in first.places.keys() & second.places.keys():
                sides = first.places[place].linear_given.area, second.places[place].linear_given.area
                differences[place] = difference_of(*sides)
        ordered = {place: differences[place] for place in next(iter(found.values())).places if place in differences}
        return cls(attribute, groups, found, {name: len(one) for name, one in models.items()}, ordered, **more)

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure: its column is a model, its group a place inside it, or None."""
        yield from figures_of(Finding.to_dict(self))

    def sentences(self) -> list[str]:
        """Say what was found, the first model first."""
        said = []
        first, second = self.groups
        for name, one in self.models.items():
            said += _sentences(in_quotes(name), one, in_quotes(first), in_quotes(second))
        if self.differences:
            said.append(_compared(list(self.models), self.differences))
        return said


def _sentences(name: str, model: ModelInside, first: str, second: str) -> list[str]:
    disparity = model.attention.disparity
    if disparity.figure.defined:
        more = "differ more than chance" if disparity.p <= READ else "do not differ more than chance"
        attention = (
            f"In {name}, mean attention logits of {first} and {second} {more}: by {number(disparity.figure.value, 2)} "
            f"standard deviations, and {number(disparity.chance, 2)} under permutation."
        )
    else:
        attention = f"In {name}, attention logits are not compared: {disparity.figure.reason}."
    known = {place: one for place, one in model.places.items() if one.linear_given.area.defined}
    readable = [place for place, one in known.items() if one.linear_given.p <= READ]
    if not known:
        return [attention, f"Whether {name} encodes the group is undefined: {model.places[LOGITS].linear.area.reason}."]
    if len(readable) == len(known):
        low, high = (pick(one.linear_given.area.value for one in known.values()) for pick in (min, max))
        read = (
            f"A linear probe reads the group beyond the label at every place of {name}, with an area under the ROC "
            f"curve of {number(100 * low)} to {number(100 * high)}% (chance: 50%)."
        )
    elif readable:
        others = [one.title for place, one in known.items() if place not in readable]
        shown = f"from the {joined([known[place].title for place in readable])}"
        if len(others) < len(readable):
            shown = f"at {len(readable)} of {len(known)} places, not from the {joined(others)}"
        read = f"In {name}, a linear probe reads the group beyond the label {shown}."
    else:
        read = f"In {name}, a linear probe does not read the group beyond the label at any place."
    return [read, *_use(name, model), attention]


def _use(name: str, model: ModelInside) -> list[str]:
    """Say where taking the group's direction off changes the gap."""
    tried = {place: one for place, one in model.places.items() if one.gap_change is not None}
    moved = {place: one for place, one in tried.items() if _change(one).excludes_zero}
    if not tried:
        return []
    undefined = next((_change(one).reason for one in tried.values() if not _change(one).defined), None)
    if undefined is not None and not moved:
        return [f"The effect of these directions on the gap of {name} is undefined: {undefined}."]
    lowered = {place: one for place, one in moved.items() if _change(one).value < 0}
    if not lowered:
        return [f"Removing the group's direction does not measurably reduce the gap of {name} at any place."]
    place = min(lowered, key=lambda one: _change(lowered[one]).value)
    one = _change(lowered[place])
    ends = f"{number(100 * one.low, signed=True)} to {number(100 * one.high, signed=True)}"
    return [
        f"Without the group's direction in the {lowered[place].title}, the gap of {name} changes most: by "
        f"{number(100 * one.value, signed=True)} points, interval {ends}."
    ]


def _change(place: Place) -> Estimate:
    assert place.gap_change is not None
    return place.gap_change


def _compared(names: Sequence[str], differences: Mapping[str, Estimate]) -> str:
    one, other = map(in_quotes, names)
    lower = [place for place, found in differences.items() if found.high < 0]
    higher = [place for place, found in differences.items() if found.low > 0]
    if not lower and not higher:
        return f"At no place do the AUCs of {one} and {other} differ measurably."
    said = []
    if lower:
        said.append(f"less readable than in {other} at {len(lower)}")
    if higher:
        said.append(f"more readable at {len(higher)}")
    return f"In {one} the group is {joined(said)} of {len(differences)} places (linear probe, given the label)."


def pooled(several: Sequence[Any], folds: int = 1, level: float = 0.95, ends: tuple[float, float] = SHARE) -> Any:
    """Return the mean of findings of several runs, field by field; of one run, that run.

    Intervals are cut at the ``ends`` of a figure's scale, which those of fields in :data:`ENDS` replace.

    The variance over rows of one run is divided by ``folds``, the number of sets of rows alone: seeds share their rows.
    That over runs is added, with Student's t on runs - 1. A p-value is twice the mean of the runs', which is valid
    however they depend (Vovk and Wang, Biometrika 2020), and undefined where one run's is.
    """
    first = several[0]
    if len(several) == 1:
        return first
    if isinstance(first, Estimate):
        return _pooled_estimate(several, folds, level).within(*ends)
    if is_dataclass(first) and not isinstance(first, type):
        values = {
            one.name: pooled([getattr(each, one.name) for each in several], folds, level, ENDS.get(one.name, SHARE))
            for one in fields(first)
        }
        if "p" in values:  # rounded, as the mean of three times 0.025 is more than that; of NaN it is NaN
            values["p"] = float(np.minimum(1.0, round(2 * values["p"], 12)))
        return replace(first, **values)
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in one for one in several)]
        return {key: pooled([one[key] for one in several], folds, level, ends) for key in shared}
    if isinstance(first, tuple):
        return tuple(pooled(list(one), folds, level, ends) for one in zip(*several, strict=False))
    if isinstance(first, float):
        return float(np.mean(several))
    return first


def _pooled_estimate(several: Sequence[Estimate], folds: int, level: float) -> Estimate:
    known = [one for one in several if one.defined]
    rows = sum(one.n for one in several)
    if len(known) < len(several):
        reason = next(one.reason for one in several if not one.defined)
        return Estimate.undefined(f"in {len(several) - len(known)} of {len(several)} runs {reason}", rows)
    values = np.array([one.value for one in several])
    t = float(special.stdtrit(len(values) - 1, (1 + level) / 2))
    between = (t**2) * float(values.var(ddof=1)) / len(values)
    ends = []
    for end, sign in (("low", -1), ("high", 1)):
        arms = np.array([abs(getattr(one, end) - one.value) for one in several])
        ends.append(float(values.mean() + sign * math.sqrt(float((arms**2).mean()) / folds + between)))
    reason = next((one.reason for one in several if math.isnan(one.low)), None)
    return Estimate(float(values.mean()), ends[0], ends[1], rows, reason)
