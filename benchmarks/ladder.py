"""What each bit of knowledge about groups buys: last layers refitted on kept features, on many tasks.

    python benchmarks/ladder.py measure --network attractive=runs/attractive/erm-X/seed-0 \
        --network attractive=runs/attractive/erm-X/seed-1 --data-root DATA --json results/ladder_small.json
    python benchmarks/ladder.py table --json results/ladder_small.json      # the tables of results/ladder_small.md
    python benchmarks/ladder.py both --json results/ladder_small.json --shortcut results/ladder_portraits.json \
        --picture docs/images/ladder-both.png

A network is a finished run of ERM. On the features of its last layer stand heads for

- its own task, with the run's own last layer;
- with ``--others``, CelebA attributes that it was not trained for, with a last layer fitted on its training rows.

Which attributes was decided before any was run: those with at least 100 test rows in each of the four cells of
attribute and Male as annotated, without Attractive and Blond_Hair, which have networks of their own. All of them are
explained; the twelve whose names have the smallest SHA-256 are refitted as well.

A head on another task calls as many rows positive as there are among the validation rows: most are rare, and at even
odds some would never be.

Every variant is measured at the positive rate of plain training, on the test split. Beside it stands the variant held
to the budget: as far on the way from the plain last layer to its own as half a point of validation accuracy
allows. Intervals are of people (rows of one person are drawn together) for the mean over networks and draws.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import linalg, stats
from sklearn.isotonic import IsotonicRegression
from torch.nn import functional

import levelhead as lh
from levelhead.data import SPLITS
from levelhead.data.base import Split as SplitName
from levelhead.data.images import ImageInputs
from levelhead.data.views import View
from levelhead.methods.afr import AFR
from levelhead.methods.decorrelation import Decorrelation
from levelhead.methods.dfr import DFR
from levelhead.methods.directions import (
    largest_strength,
    less_means,
    regression_within,
    standardized,
    without_directions,
)
from levelhead.methods.few_label import FewLabel
from levelhead.methods.identities import Identities, between_people
from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, LastLayerMethod, PeopleRows, solve
from levelhead.metrics import estimate_to_dict
from levelhead.metrics.between import holm
from levelhead.metrics.ranking import area_under_roc
from levelhead.runs.refit import Refitting
from levelhead.storage import read_json, write_atomically, write_json

app = typer.Typer(help=__doc__)
JsonFile = Annotated[Path, typer.Option()]
CHOSEN = 12
LEAST = 100
OWN = ("Attractive", "Blond_Hair")
BUDGET = 0.005
DRAWS = 5
REPLICATES = 2000
SMALLEST_GAP = 0.05  # of tasks in the picture: of a small gap a share says little
LARGE_CHANGE = 0.02  # of DFR: of a small change a ratio says little
VARIANTS: dict[str, tuple[int, LastLayerMethod]] = {
    "class-balanced": (0, AFR(gamma=0, holdout=0)),
    **{f"AFR, gamma {gamma}": (0, AFR(gamma=gamma, holdout=0)) for gamma in (1, 2, 4, 8)},
    "identities": (2, Identities()),
    "identities, shuffled": (2, Identities(placebo=True)),
    "few-label, 50 rows": (3, FewLabel(rows=50)),
    "few-label, 200 rows": (3, FewLabel(rows=200)),
    "few-label, shuffled": (3, FewLabel(rows=200, placebo=True)),
    "few-label, 500 rows": (3, FewLabel(rows=500)),
    "decorrelation": (4, Decorrelation()),
    "DFR": (4, DFR()),
}
"""By name: the rung of knowledge, and the method. Rung 5 is known groups when predicting, computed below."""
FEWER_PEOPLE = (200, 500)
NEAR = 100
NEAR_THRESHOLD = f"few-label, {NEAR} rows at the threshold"
COLOUR = "colour planes"
"""A declared view that should not decide: colour without luminance, means of 8 by 8 fields."""
KNOWN_GROUP = "group subtracted"
NOISE, RANDOM_DIRECTION = "noise on the score", "a random direction"
REMOVED_DIRECTION = "a random direction, removed"
"""The placebo in few-label's own form: a direction drawn by chance is taken out as few-label takes out its probe's."""
PLACEBOS = {"few-label": REMOVED_DIRECTION, "decorrelation": REMOVED_DIRECTION, COLOUR: REMOVED_DIRECTION}
PLACEBOS |= {"identities": "identities, shuffled"}
"""By the name before its comma: what takes the same steps without the knowledge. A gain is said over it."""
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Split:
    """One split of a task: ``features`` (rows, width), ``labels``, ``groups``, and the ``people`` that rows are of."""

    features: FloatArray
    labels: IntArray
    groups: IntArray
    people: IntArray


@dataclass(frozen=True)
class Task:
    """One head: the ``name`` of what it answers, the ``network`` below it, its last layer, and the two splits.

    ``colour`` is what a declared view says of the label, a score of the validation rows.
    """

    name: str
    network: str
    seed: int
    layer: tuple[FloatArray, FloatArray]
    validation: Split
    test: Split
    train: PeopleRows | None = None
    colour: FloatArray | None = None

    @property
    def held(self) -> HeldOut:
        """What a method refits on, every group told; training rows where the data set knows people."""
        split = self.validation
        return HeldOut(split.features, split.labels, *self.layer, split.groups, self.seed, self.train)


def tasks_of(
    name: str, run: Path, data_root: Path | None, others: bool, ladder: bool = True
) -> Iterator[tuple[Task, bool]]:
    """Yield every task of a network, and whether it is refitted, not explained alone.

    Without ``ladder``, no colours are read, and attributes that the ladder refits are left out.
    """
    refitting = Refitting(run, data_root)
    data, seed = refitting.run.experiment.data, refitting.run.experiment.seed
    columns = {split: _columns(refitting, split) for split in SPLITS}
    knows = "celeb_id" in columns["train"]
    features = {
        split: refitting.inputs(split).features.double().numpy()
        for split in (SPLITS if others or knows else SPLITS[1:])
    }
    people = np.unique(columns["train"]["celeb_id"], return_inverse=True)[1] if knows else None
    seen = {split: colours(refitting, split) for split in SPLITS[:2]} if ladder else {}
    own = _splits(refitting, features, columns)
    held = HeldOut.of(
        refitting.model,
        refitting.inputs("validation").features,
        refitting.inputs("validation").examples.labels,
        None,
        seed,
    )
    target = str(getattr(data, "target", name))
    rows = people if people is None else PeopleRows(features["train"], _labels(refitting, "train"), people)
    colour = score(fitted(seen["train"], _labels(refitting, "train")), seen["validation"]) if ladder else None
    yield Task(target, f"{name}, its own", seed, (held.weight, held.bias), *own, rows, colour), True
    if not others:
        return
    male = columns["test"]["Male"]
    eligible = [
        attribute
        for attribute in sorted(columns["test"])
        if attribute not in ("Male", "celeb_id", *OWN)
        and min(np.bincount(2 * columns["test"][attribute] + male, minlength=4)) >= LEAST
    ]
    chosen = set(sorted(eligible, key=lambda text: hashlib.sha256(text.encode()).hexdigest())[:CHOSEN])
    for attribute in (each for each in eligible if ladder or each not in chosen):
        labels = {split: columns[split][attribute] for split in features}
        layer = fitted(features["train"], labels["train"])
        layer = at_rate(layer, features["validation"], float(labels["validation"].mean()))
        splits = [replace(split, labels=labels[key]) for key, split in zip(("validation", "test"), own, strict=True)]
        rows = people if people is None else PeopleRows(features["train"], labels["train"], people)
        colour = score(fitted(seen["train"], labels["train"]), seen["validation"]) if attribute in chosen else None
        yield Task(attribute, name, seed, layer, *splits, rows, colour), attribute in chosen


def colours(refitting: Refitting, split: SplitName) -> FloatArray:
    """Return the colour planes of the pictures of a split, (rows, 192): three channels of 8 by 8 fields."""
    inputs = View("chroma")(refitting.run.prepared(split, refitting.model).inputs)
    assert isinstance(inputs, ImageInputs)
    parts = torch.arange(len(inputs)).split(1024)
    fields = [functional.adaptive_avg_pool2d(inputs.pictures(part).float(), 8).flatten(1) for part in parts]
    return torch.cat(fields).double().numpy()


def _columns(refitting: Refitting, split: str) -> dict[str, IntArray]:
    """Return CelebA's attributes and identities of a split by name, in the order of its rows; else nothing."""
    root = Path(str(refitting.run.experiment.data.root)) / "celeba64"
    files = sorted(root.glob(f"{split}*.parquet"))
    if not files or not type(refitting.run.experiment.data).__name__.startswith("CelebA"):
        return {}
    names = [name for name in pq.read_schema(files[0]).names if name not in ("image", "file")]
    tables = [pq.read_table(file, columns=names).to_pandas() for file in files]
    return {name: np.concatenate([table[name].to_numpy() for table in tables]).astype(np.int64) for name in names}


def _splits(
    refitting: Refitting, features: dict[str, FloatArray], columns: dict[str, dict[str, IntArray]]
) -> tuple[Split, Split]:
    found = []
    for split in ("validation", "test"):
        labels = _labels(refitting, split)
        groups = refitting.run.experiment.data.groups(split)[0].values.numpy()  # type: ignore[arg-type]
        people = columns[split].get("celeb_id", np.arange(len(labels)))
        found.append(Split(features[split], labels, groups, np.unique(people, return_inverse=True)[1]))
    return found[0], found[1]


def _labels(refitting: Refitting, split: str) -> IntArray:
    return np.asarray(refitting.inputs(split).examples.labels)  # type: ignore[arg-type]


def fitted(features: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return a last layer fitted by penalised maximum likelihood on features of unit variance."""
    mean, scale = features.mean(0), features.std(0)
    scale[scale == 0] = 1
    start = (np.zeros((2, features.shape[1])), np.zeros(2))
    weight, bias = solve((features - mean) / scale, labels, np.full(len(labels), 1 / len(labels)), start, 1e-4)
    return weight / scale, bias - (weight / scale) @ mean


def at_rate(layer: tuple[FloatArray, FloatArray], features: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Return the layer with an offset that calls the share ``rate`` of rows positive: rare classes would never be."""
    threshold = np.quantile(score(layer, features), 1 - rate)
    return layer[0], layer[1] + np.array([threshold / 2, -threshold / 2])


def score(layer: tuple[FloatArray, FloatArray], features: FloatArray) -> FloatArray:
    """Return log odds (rows,) of the second class."""
    logits = features @ layer[0].T + layer[1]
    return np.asarray(logits[:, 1] - logits[:, 0])


def highest(values: FloatArray, count: int) -> Booleans:
    """Return which rows have the ``count`` highest values, ties in row order."""
    chosen = np.zeros(len(values), bool)
    chosen[np.argsort(-values, kind="stable")[:count]] = True
    return chosen


def within_budget(held: HeldOut, layer: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the layer, or as far on the way to it as the budget of expected accuracy allows."""
    before, after = score((held.weight, held.bias), held.features), score(layer, held.features)
    scale = before.std() / after.std() if after.std() else 0.0  # so that half of the way is half of the change
    change = held.logits - scale * (held.features @ layer[0].T + layer[1])
    share = min(1.0, largest_strength(held.logits, change, held.labels, BUDGET))
    return (
        (1 - share) * held.weight + share * scale * layer[0],
        (1 - share) * held.bias + share * scale * layer[1],
    )


def answers(task: Task) -> Iterator[tuple[str, int, bool, Booleans]]:
    """Yield each variant's name, its rung, whether it is held to the budget, and its answers to the test rows."""
    held, test = task.held, task.test
    plain = score(task.layer, test.features)
    count = int((plain > 0).sum())
    yield "ERM", 0, False, highest(plain, count)
    for name, (rung, method) in VARIANTS.items():
        for draw in range(DRAWS if isinstance(method, FewLabel) or getattr(method, "placebo", False) else 1):
            told = replace(held, seed=1000 * draw + task.seed)
            if isinstance(method, FewLabel):
                if method.rows > len(held.labels):
                    continue
                rows = np.random.default_rng((task.seed, draw)).choice(len(held.labels), method.rows, replace=False)
                told = told_groups(told, rows)
            elif rung < 3:
                told = replace(told, groups=None)
            if isinstance(method, Identities) and held.train is None:
                continue
            layer = method.refit(told)
            yield name, rung, False, highest(score(layer, test.features), count)
            yield name, rung, True, highest(score(within_budget(held, layer), test.features), count)
    for draw in range(DRAWS):
        generator = np.random.default_rng((task.seed, draw))
        for name, moved in noise(task, generator).items():
            yield name, 0, True, highest(moved, count)
        layer = without_directions(held, generator.normal(size=(held.features.shape[1], 1)), BUDGET)
        yield REMOVED_DIRECTION, 0, True, highest(score(layer, test.features), count)
        for people in FEWER_PEOPLE if held.train is not None else ():
            layer = Identities().refit(replace(held, train=some_people(held.train, people, generator)))
            yield f"identities, {people} people", 2, True, highest(score(layer, test.features), count)
    if task.colour is not None:
        layer = without_directions(held, telling(held, task.colour), BUDGET)
        yield COLOUR, 1, True, highest(score(layer, test.features), count)
    near = np.argsort(np.abs(score(task.layer, held.features)), kind="stable")[:NEAR]
    layer = FewLabel(rows=NEAR).refit(told_groups(held, near))
    yield NEAR_THRESHOLD, 3, True, highest(score(layer, test.features), count)
    # The group itself, known when predicting: the same subtraction, of the group instead of what tells it.
    assert held.groups is not None
    signal = held.groups[:, None].astype(float)
    share = regression_within(signal, held.logits - held.logits.mean(1, keepdims=True), held.labels)
    strength = largest_strength(held.logits, signal @ share, held.labels, BUDGET)
    moved = plain - strength * test.groups * float(share[0, 1] - share[0, 0])
    yield KNOWN_GROUP, 5, True, highest(moved, count)


def told_groups(held: HeldOut, rows: IntArray) -> HeldOut:
    """Return the held-out rows with the groups of some ``rows`` told, and no other."""
    return replace(held, groups=np.where(np.isin(np.arange(len(held.labels)), rows), held.groups, -1))


def some_people(train: PeopleRows, count: int, generator: np.random.Generator) -> PeopleRows:
    """Return the rows of ``count`` people, drawn from those with two rows or more."""
    chosen = generator.choice(np.flatnonzero(np.bincount(train.people) > 1), count, replace=False)
    rows = np.isin(train.people, chosen)
    return PeopleRows(train.features[rows], train.labels[rows], train.people[rows])


def telling(held: HeldOut, signal: FloatArray) -> FloatArray:
    """Return the direction (width, 1) of standardized features that tells a signal (rows,) inside the classes.

    Ridge regression, with the penalty that ``identities`` has.
    """
    mean, scale = standardized(held)
    features = less_means((held.features - mean) / scale, held.labels)
    own = less_means(signal[:, None], held.labels)
    moments = features.T @ features / len(own) + Identities().penalty * np.eye(features.shape[1])
    return np.asarray(linalg.solve(moments, features.T @ own / len(own), assume_a="pos"))


def inside(task: Task) -> dict[str, Any]:
    """Say how far the removed directions tell the group inside a class, and rho before and after they are removed.

    Each figure is the area under the ROC curve, the mean over the classes, turned to at least a half; of random
    directions the mean over ``DRAWS``.
    """
    held, test, generator = replace(task.held, groups=None), task.test, np.random.default_rng(task.seed)
    mean, scale = standardized(held)
    features = (test.features - mean) / scale

    def area(direction: FloatArray) -> float:
        values = features @ direction
        return float(
            np.mean([_area(values[test.labels == label], test.groups[test.labels == label]) for label in (0, 1)])
        )

    found: dict[str, Any] = {"random": np.mean([area(each) for each in generator.normal(size=(DRAWS, len(mean)))])}
    layers = {"ERM": task.layer}
    if (train := held.train) is not None:
        method = Identities()
        directions = between_people(
            (train.features - mean) / scale, train.labels, train.people, method.directions, method.penalty
        )
        found["identities"] = [area(each) for each in directions.T]
        layers["identities"] = method.refit(held)
    if task.colour is not None:
        found[COLOUR] = area(telling(held, task.colour)[:, 0])
        layers[COLOUR] = without_directions(held, telling(held, task.colour), BUDGET)
    found["rho"] = {name: explain(replace(task, layer=layer))["rho"]["value"] for name, layer in layers.items()}
    return found


def _area(values: FloatArray, groups: IntArray) -> float:
    """Return the area under the ROC curve of two groups, turned to at least a half."""
    share = area_under_roc(groups, np.zeros(len(groups)), {"": values}, positive=1)[""]["all"][0].value
    return max(share, 1 - share)


def monotone_shares(task: Task) -> dict[str, float]:
    """Say how far each label-only variant's score is a mere function of plain training's, on the test rows."""
    plain, held = score(task.layer, task.test.features), replace(task.held, groups=None)

    def monotone(after: FloatArray) -> float:
        """R^2 of the best monotone function of plain training's score, rising or falling."""
        fits = (IsotonicRegression(increasing=rising).fit(plain, after) for rising in (True, False))
        return max(float(fit.score(plain, after)) for fit in fits)

    return {
        name: monotone(score(method.refit(held), task.test.features))
        for name, (rung, method) in VARIANTS.items()
        if rung == 0
    }


def noise(task: Task, generator: np.random.Generator) -> dict[str, FloatArray]:
    """Return scores of the test rows that know nothing more, and cost what the budget allows: what anything must beat.

    Chance is added to the score, row by row, or along a direction of the features drawn by chance.
    """
    held, test = task.held, task.test
    plain, scale = score(task.layer, test.features), score(task.layer, held.features).std()
    mean, spread = held.features.mean(0), held.features.std(0)
    direction = generator.normal(size=held.features.shape[1]) / np.where(spread > 0, spread, np.inf)
    along = ((held.features - mean) @ direction, (test.features - mean) @ direction)
    drawn = {
        NOISE: (generator.normal(size=len(held.labels)), generator.normal(size=len(test.labels))),
        RANDOM_DIRECTION: (along[0] / along[0].std(), along[1] / along[0].std()),
    }
    found = {}
    for name, (on_held, on_test) in drawn.items():
        change = scale * np.stack([-on_held / 2, on_held / 2], 1)
        strength = largest_strength(held.logits, change, held.labels, BUDGET)
        found[name] = plain - strength * scale * on_test
    return found


def person_counts(task: Task, positive: Booleans) -> FloatArray:
    """Return how many rows each person has in each cell of class, group and answer, (people, 8)."""
    test = task.test
    cell = 4 * test.labels + 2 * test.groups + positive
    counts = np.zeros((test.people.max() + 1, 8))
    np.add.at(counts, (test.people, cell), 1)
    return counts


def figures(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return accuracy and the gap in equalized odds, (...), from counts (..., 8)."""
    cells = counts.reshape(*counts.shape[:-1], 2, 2, 2)  # class, group, answer
    accuracy = (cells[..., 0, :, 0] + cells[..., 1, :, 1]).sum(-1) / counts.sum(-1)
    rate = cells[..., 1] / cells.sum(-1)
    return accuracy, np.abs(rate[..., 0] - rate[..., 1]).mean(-1)


def measure(tasks: list[Task]) -> dict[str, Any]:
    """Refit every head of one task; the heads differ in the network's seed alone."""
    test, drawn = tasks[0].test, np.random.default_rng(0)
    weights = drawn.multinomial(
        test.people.max() + 1, np.full(test.people.max() + 1, 1 / (test.people.max() + 1)), REPLICATES
    )
    found: dict[tuple[str, int, bool], list[tuple[FloatArray, FloatArray]]] = {}
    plain: list[tuple[FloatArray, FloatArray]] = []
    for task in tasks:
        for name, rung, held, positive in answers(task):
            counts = person_counts(task, positive)
            both = figures(np.vstack([counts.sum(0), weights @ counts]))
            if name == "ERM":
                plain.append(both)
            else:
                found.setdefault((name, rung, held), []).append((both[0] - plain[-1][0], both[1] - plain[-1][1]))
    accuracy, gap = (np.mean([each[part] for each in plain], axis=0) for part in (0, 1))
    base = [float(test.labels[test.groups == group].mean()) for group in (0, 1)]
    rate = float(np.mean([np.mean(score(task.layer, test.features) > 0) for task in tasks]))
    random = rate * test.labels.mean() + (1 - rate) * (
        1 - test.labels.mean()
    )  # accuracy of random answers at that rate
    return {
        "rows": len(test.labels),
        "people": int(test.people.max() + 1),
        "networks": len(tasks),
        "base_rates": base,
        "smallest_cell": int(np.bincount(2 * test.labels + test.groups, minlength=4).min()),
        "accuracy": _interval(accuracy),
        "equalized_odds": _interval(gap),
        "inside": {str(task.seed): inside(task) for task in tasks},
        "monotone_share": {str(task.seed): monotone_shares(task) for task in tasks},
        # Random answers for a share of the rows: what the budget buys without knowing anything.
        "trivial": -float(gap[0]) * BUDGET / max(float(accuracy[0]) - random, BUDGET),
        "variants": [
            {
                "name": name,
                "rung": rung,
                "within_budget": held,
                "heads": len(each),
                "accuracy": _interval(np.mean([one[0] for one in each], axis=0)),
                "equalized_odds": _interval(np.mean([one[1] for one in each], axis=0)),
                "over_heads": float(np.std([one[1][0] for one in each], ddof=1)) if len(each) > 1 else None,
                "p": _p_value(np.mean([one[1] for one in each], axis=0)),
                **over_placebo(name, held, found),
            }
            for (name, rung, held), each in found.items()
        ],
    }


def over_placebo(
    name: str, held: bool, found: dict[tuple[str, int, bool], list[tuple[FloatArray, FloatArray]]]
) -> dict[str, Any]:
    """Return the gap of a variant less that of its placebo, of the same people in each replicate."""
    placebo = PLACEBOS.get(name.split(",")[0])
    if not held or placebo in (None, name):
        return {}
    gaps = {each: values for (each, _, within), values in found.items() if within}
    difference = np.mean([one[1] for one in gaps[name]], axis=0) - np.mean(
        [one[1] for one in gaps[str(placebo)]], axis=0
    )
    return {"over_placebo": {"placebo": placebo, **_interval(difference), "p": _p_value(difference)}}


def _interval(values: FloatArray) -> dict[str, float]:
    """The first value is measured, the others are replicates."""
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def _p_value(values: FloatArray) -> float:
    spread = float(values[1:].std())
    return float(2 * stats.norm.sf(abs(values[0]) / spread)) if spread else math.nan


def explain(task: Task) -> dict[str, Any]:
    """Return measured, implied and predicted gap of a head, and rho, by :func:`levelhead.explain`."""
    test = task.test
    columns = {"label": test.labels, "score": score(task.layer, test.features), "group": test.groups}
    table = pd.DataFrame({name: list(values) for name, values in columns.items()})
    found = lh.explain(table, label="label", score="score", groups=["group"], scale="log-odds", threshold=0.0)
    (pair,) = found.pairs
    names = ("measured", "implied", "rho", "predicted", "rest")
    return {name: estimate_to_dict(getattr(pair, name)) for name in names} | shapes(task)


def shapes(task: Task) -> dict[str, Any]:
    """Return what the densities of the score show: its spread by group and class, and the gap of normals with it.

    The formula of :func:`levelhead.explain` has one spread a group, the same in both classes, and joins the groups
    by one slope. ``own_spread`` is the gap of normal densities with the mean and the spread of each group and class.
    """
    test, values = task.test, score(task.layer, task.test.features)
    pairs = [(label, group) for label in (0, 1) for group in (0, 1)]
    cells = {pair: values[(test.labels == pair[0]) & (test.groups == pair[1])] for pair in pairs}
    rates = {pair: stats.norm.sf(0, own.mean(), own.std()) for pair, own in cells.items()}
    gap = np.mean([abs(rates[label, 1] - rates[label, 0]) for label in (0, 1)])
    return {
        "own_spread": {"value": float(gap)},
        "spreads": {f"class {label}, group {group}": float(own.std()) for (label, group), own in cells.items()},
    }


SHOWN = (
    NOISE,
    RANDOM_DIRECTION,
    REMOVED_DIRECTION,
    "AFR, gamma 2",
    COLOUR,
    "identities",
    "identities, shuffled",
    *(f"identities, {people} people" for people in FEWER_PEOPLE),
    "few-label, 50 rows",
    "few-label, 200 rows",
    "few-label, shuffled",
    NEAR_THRESHOLD,
    "few-label, 500 rows",
    "decorrelation",
    "DFR",
    KNOWN_GROUP,
)
"""The columns of the table."""


def composition(record: dict[str, Any]) -> str:
    """Return Markdown: what the gaps are made of."""
    made = [
        "| task, features of | measured | implied | rho, % | predicted | off by | normals of own spread |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for task, seeds in sorted(record["explained"].items(), key=lambda each: -_mean(each[1], "measured")):
        measured, implied, rho, predicted = (_mean(seeds, name) for name in ("measured", "implied", "rho", "predicted"))
        cells = [_points(measured), _points(implied), _points(rho, digits=0), _points(predicted)]
        cells += [_points(measured - predicted, signed=True), _points(_mean(seeds, "own_spread"))]
        made.append(f"| {' | '.join([_short(task), *cells])} |")
    sentences = []
    for which in ("implied", "predicted", "own_spread"):
        both = points(record["explained"], which)
        off = np.abs(both[:, 0] - both[:, 1])
        sentences.append(
            f"- {which.replace('_', ' ')} against measured: correlation {np.corrcoef(both.T)[0, 1]:.2f}; within 3 "
            f"points {np.mean(off <= 0.03):.0%}, within 5 points {np.mean(off <= 0.05):.0%} of {len(both)} tasks"
        )
    return "\n".join([*made, "", *sentences])


def gains(record: dict[str, Any]) -> str:
    """Return Markdown: what each variant takes away, and counts of tasks after Holm."""
    present = {one["name"] for measured in record["tasks"].values() for one in measured["variants"]}
    found = [
        "| variant | median change, % of the gap | minus its placebo, points (median) | "
        "tasks: smaller / larger / all | tasks: smaller than its placebo | most accuracy lost, points | "
        "Attractive, own network | Blond_Hair, own network | UTKFace, own network |",
        f"|---|{'---:|' * 8}",
    ]
    changes = {name: _changes(record, name) for name in SHOWN if name in present}
    found += [_row(name, each) for name, each in changes.items()]
    ratios = [
        changes["few-label, 500 rows"][task]["gap"] / one["gap"]
        for task, one in changes["DFR"].items()
        if one["gap"] <= -LARGE_CHANGE
    ]
    sentences = [
        f"- few-label with 500 rows reduces the gap {np.median(ratios):.1f} times as far as DFR "
        f"(median of {len(ratios)} tasks where DFR reduces it by at least {100 * LARGE_CHANGE:.0f} points)."
    ]
    monotone = [seed["AFR, gamma 2"] for one in record["tasks"].values() for seed in one["monotone_share"].values()]
    sentences.append(
        f"- A monotone function of the plain score explains {np.median(monotone):.0%} of the variance of AFR's at "
        f"gamma 2 (median of {len(monotone)} heads)."
    )
    return "\n".join([*found, "", *sentences, *reasons(record)])


def reasons(record: dict[str, Any]) -> list[str]:
    """Say what the directions between people tell of the group, and what is left of rho without them."""
    heads = [seed for one in record["tasks"].values() for seed in one["inside"].values()]
    told = [seed for seed in heads if "identities" in seed]
    areas = np.median([seed["identities"] for seed in told], axis=0)
    sentences = [
        f"- Inside a class, the three directions between people tell the group with areas of {areas[0]:.2f}, "
        f"{areas[1]:.2f} and {areas[2]:.2f}, that of colour with {np.median([seed[COLOUR] for seed in heads]):.2f}, "
        f"random ones with {np.median([seed['random'] for seed in heads]):.2f} (medians of {len(told)} heads)."
    ]
    rhos = [seed["rho"] for seed in told if None not in seed["rho"].values()]
    before, after = (np.median([each[name] for each in rhos]) for name in ("ERM", "identities"))
    sentences.append(f"- identities lowers rho from {before:.2f} to {after:.2f} (medians of {len(rhos)} heads).")
    return sentences


def _changes(record: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return by task what a variant held to the budget changes, where it was measured."""
    found = {}
    for task, measured in record["tasks"].items():
        whole = measured["equalized_odds"]["value"]
        for one in measured["variants"]:
            if one["within_budget"] and one["name"] == name:
                gap = one["equalized_odds"]["value"]
                found[task] = one | {"gap": gap, "share": gap / whole, "whole": whole}
    return found


def _row(name: str, changes: dict[str, dict[str, Any]]) -> str:
    """Return a variant's line: counts after Holm over the tasks, medians where plain training's gap is large enough."""
    known = [one for one in changes.values() if one["whole"] >= SMALLEST_GAP]
    over = [one["over_placebo"] for one in changes.values() if "over_placebo" in one]
    cells = [f"{100 * np.median([one['share'] for one in known]):+.0f}%"]
    median = np.median([one["over_placebo"]["value"] for one in known]) if over else math.nan
    cells.append(_points(median, signed=True) if over else "")
    smaller, larger = _decided([(one["gap"], one["p"]) for one in changes.values()])
    cells.append(f"{smaller} / {larger} / {len(changes)}")
    cells.append(str(_decided([(one["value"], one["p"]) for one in over])[0]) if over else "")
    cells.append(f"{-100 * min(one['accuracy']['value'] for one in changes.values()):.1f}")
    for own in ("Attractive on attractive", "Blond_Hair on blond", "gender on utkface"):
        one = changes.get(f"{own}, its own")
        cells.append("" if one is None else _spread(one["equalized_odds"], signed=True))
    return f"| {' | '.join([name, *cells])} |"


def _decided(changes: list[tuple[float, float]]) -> tuple[int, int]:
    """Return on how many tasks the change is decidedly smaller and larger, by Holm over the tasks."""
    adjusted = holm([p_value for _, p_value in changes])
    told = [value for (value, _), p_value in zip(changes, adjusted, strict=True) if p_value < 0.05]
    return sum(value < 0 for value in told), sum(value > 0 for value in told)


def _short(task: str) -> str:
    return task.replace(" on ", ", ")


def _mean(seeds: dict[str, Any], name: str) -> float:
    values = [one[name]["value"] for one in seeds.values()]
    return math.nan if None in values else float(np.mean(values))


def _points(value: float, *, digits: int = 1, signed: bool = False) -> str:
    return "undefined" if math.isnan(value) else f"{100 * value:{'+' if signed else ''}.{digits}f}"


def _spread(values: dict[str, float], *, signed: bool = False) -> str:
    value, low, high = (_points(values[end], signed=signed) for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def points(explained: dict[str, dict[str, Any]], which: str) -> FloatArray:
    """Return the gap by a formula and the measured one, (tasks, 2), means over networks."""
    found = [
        [np.mean([seed[name]["value"] for seed in seeds.values()]) for name in (which, "measured")]
        for seeds in explained.values()
        if all(seed[which]["value"] is not None for seed in seeds.values())
    ]
    return np.array(found)


BOTH: dict[str, tuple[str | None, str | None]] = {
    "AFR": ("AFR, gamma 1", "afr"),
    "JTT": (None, "jtt"),
    "XRM": (None, "xrm"),
    "DAM": (None, "dam"),
    "identities": ("identities", None),
    "few-label (200)": ("few-label, 200 rows", "few-label, rows 200"),
    "decorrelation": ("decorrelation", "decorrelation"),
    "DFR": ("DFR", "dfr"),
    "GroupDRO": (None, "group-dro"),
}
"""Variants of the picture of both halves, and their names where there is no shortcut and where there is one."""
KNEW = {"AFR": "class labels", "identities": "ids of people", "few-label (200)": "few groups"}
KNEW |= {"decorrelation": "all groups"}
BLUE, ORANGE = "#1f5f8b", "#b3541e"


def draw_both(faces: dict[str, Any], shortcut: dict[str, Any], path: Path) -> None:
    """Draw what is left of the gap where no shortcut is known, beside what is left where there is one."""
    figure = Figure(figsize=(9.4, 3.9))
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.265, right=0.985, top=0.87, bottom=0.15, wspace=0.08)
    known = {task: one for task, one in faces["tasks"].items() if one["equalized_odds"]["value"] >= SMALLEST_GAP}
    whole = shortcut["methods"][shortcut["baseline"]]["equalized_odds"]["estimate"]["value"]
    places = {name: place for place, name in enumerate(BOTH)}
    for name, (without, with_one) in BOTH.items():
        place = places[name]
        for panel, where in zip(panels, (without, with_one), strict=True):
            if where is None:
                panel.text(40, place, "not run", ha="center", va="center", color="0.6", fontsize=8)
        if without is not None:
            left = []
            for one in known.values():
                for each in one["variants"]:
                    if each["name"] == without and each["within_budget"]:
                        left.append(100 * (1 + each["equalized_odds"]["value"] / one["equalized_odds"]["value"]))
            low, middle, high = np.quantile(left, [0.25, 0.5, 0.75])
            panels[0].plot([low, high], [place, place], color=BLUE, linewidth=2)
            panels[0].plot(middle, place, "o", color=BLUE)
        if with_one is not None:
            difference = shortcut["methods"][with_one]["equalized_odds"]["difference"]
            value, low, high = (100 * (1 + difference[end] / whole) for end in ("value", "low", "high"))
            panels[1].plot([max(low, 0), min(high, 160)], [place, place], color=ORANGE, linewidth=2)
            panels[1].plot(value, place, "o", color=ORANGE)
    panels[0].set_yticks(list(places.values()), list(BOTH))
    panels[0].set_ylim(len(BOTH) - 0.4, -0.6)
    for name, text in KNEW.items():
        panels[0].text(-0.74, places[name], text, transform=panels[0].get_yaxis_transform(), weight="bold", va="center")
        for panel in panels if places[name] else ():
            panel.axhline(places[name] - 0.5, color="0.85", linewidth=0.8)
    titles = (
        f"No shortcut is known: {len(known)} face tasks\n(median and interquartile range over tasks)",
        "A shortcut that some training rows contradict:\nsynthetic portraits (three seeds, 95% interval)",
    )
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, fontsize=9.5)
        panel.axvline(100, color="0.4", linestyle="--", linewidth=1)
        panel.set_xlim(0, 160)
        panel.set_xlabel("Remaining EOd gap, % of plain training's")
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="0.92")
        panel.set_axisbelow(True)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))


Networks = Annotated[list[str], typer.Option(metavar="NAME=RUN")]


@app.command("measure")
def write_measured(
    network: Networks,
    json: JsonFile,
    others: list[str] | None = None,
    data_root: Path | None = None,
) -> None:
    """Measure the tasks of networks, and other attributes on the features of ``others``; tasks in the file are kept."""
    record: dict[str, Any] = read_json(json) if json.exists() else {"explained": {}, "tasks": {}}
    by_task: dict[str, list[Task]] = {}
    for text in network:
        name, _, run = text.partition("=")
        for task, refitted in tasks_of(name, Path(run), data_root, name in (others or ())):
            key = f"{task.name} on {task.network}"
            record["explained"].setdefault(key, {})[str(task.seed)] = explain(task)
            if refitted:
                by_task.setdefault(key, []).append(task)
    for key, tasks in by_task.items():
        record["tasks"][key] = measure(tasks)
        record["settings_tried"] = len({one["name"] for one in record["tasks"][key]["variants"]})
        write_json(json, record)
        print(key, flush=True)


@app.command()
def table(json: JsonFile) -> None:
    """Print the tables of results/ladder_small.md."""
    print(gains(read_json(json)), composition(read_json(json)), sep="\n\n")


@app.command()
def both(json: JsonFile, shortcut: JsonFile, picture: JsonFile) -> None:
    """Draw the tasks beside those of a comparison where there is a shortcut."""
    (compared,) = read_json(shortcut)["comparisons"]
    draw_both(read_json(json), compared, picture)


if __name__ == "__main__":
    app()
