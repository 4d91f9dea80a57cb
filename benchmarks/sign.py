"""Where do ids of people shrink a gap, and do other labels at hand? A sign sought without any group label.

    levelhead train celeba64_attractive_erm_small --data-root DATA --seed 0 --out runs/young-0 \
        --set data.target=Young --set train.epochs=3 --set train.threads=1        # a network; likewise for each task
    python benchmarks/sign.py measure runs/young-0 ... --data-root DATA --json results/sign.json
    python benchmarks/sign.py table --json results/sign.json

Written down before any network was trained or any figure was seen:

*Tasks.* CelebA, 64x64, official splits, perceived gender as annotated (Male). Attractive, Blond_Hair and Young with
three networks (seeds 0 to 2); and with one (seed 0) the seven attributes whose names have the smallest SHA-256 among
those with at least 100 test rows in each cell of attribute and Male: Receding_Hairline, Big_Nose, Bushy_Eyebrows,
Pointy_Nose, Smiling, Mouth_Slightly_Open, Black_Hair. The small vision transformer of the recipe, three epochs.

*Variants*, each held to half a point of expected validation accuracy, at plain training's positive rate, which is the
validation rows' share of the class (rare classes would never be predicted):

- identities: the first three, or the first, discriminants between people (penalty .1);
- along the score: u = (W + .1 I)^-1 B w, with the scatters W within and B between people inside the class, and w the
  head's weight difference;
- attributes: of the sixteen labels in ``OTHERS`` (but the task's own), ridge regressions (.1) inside the class on
  training features; the three leading directions of what they predict, each of unit variance;
- few-label: 200 groups told, ten draws.

*Placebos.* Ten shuffles each of ids (for all three forms with ids), of the rows of the other labels, and of the told
groups; ten draws of three random directions. Primary: change of the gap in equalized odds (mean of two) less the mean
of its own placebos, test rows, intervals over people, Holm over tasks and variants.

*Candidates for a sign*, from training rows and the head alone: (a) share of people, of those with two rows, who have
both labels; (b) correlation inside the class of ``along the score`` with the first discriminant; (c) share of the
score's variance inside the class that lies between people; (d) the same correlation of the first discriminants of two
halves of people, mean of ten halvings. For each, the limit lies half way between Blond_Hair and the nearer of
Attractive and Young (means over networks).

*Success.* A candidate is a sign if on the seven other tasks its Spearman correlation with the primary figure of
identities (three directions) has the direction that the first three tasks show, with an exact one-sided p below .05
after Holm over the four, and its limit is on the right side of each of the seven whose figure is decided. Attributes
are built in if they reach -3 points over their placebo on two tasks and no decided loss of accuracy on any. Otherwise
neither is, and that is the finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import ladder
import numpy as np
import typer
from scipy import linalg, stats

from levelhead.machine import cpu_name
from levelhead.methods.directions import less_means, standardized, without_directions
from levelhead.methods.few_label import FewLabel
from levelhead.methods.identities import between_people, scatters
from levelhead.methods.last_layer import FloatArray, IntArray
from levelhead.metrics.between import holm
from levelhead.runs.refit import Refitting
from levelhead.storage import read_json, write_json

app = typer.Typer(help=__doc__)
FIRST = ("Attractive", "Blond_Hair", "Young")
OTHERS = (
    "Smiling", "Eyeglasses", "Bangs", "Mouth_Slightly_Open", "High_Cheekbones", "Narrow_Eyes", "Blurry",
    "Wearing_Hat", "Straight_Hair", "Wavy_Hair", "Bags_Under_Eyes", "Bushy_Eyebrows", "Oval_Face", "Pointy_Nose",
    "Big_Lips", "Black_Hair",
)  # fmt: skip
DRAWS, PENALTY, REPLICATES, TOLD = 10, 0.1, 2000, 200
PLACEBOS = {"identities": "ids", "identities, one": "ids, one", "along the score": "ids, score", "attributes": "labels"}
PLACEBOS |= {"few-label": "groups"}


def along_score(features: FloatArray, labels: IntArray, people: IntArray, weight: FloatArray) -> FloatArray:
    """Return the direction (width, 1) in which the score's own part between people points."""
    within, between = scatters(features, labels, people)
    return np.asarray(linalg.solve(within + PENALTY * np.eye(len(weight)), between @ weight, assume_a="pos"))[:, None]


def of_labels(features: FloatArray, labels: IntArray, others: FloatArray) -> FloatArray:
    """Return three directions (width, 3) in which other labels (rows, some) are told inside the class."""
    centred = less_means(features, labels)
    moments = centred.T @ centred / len(centred)
    heads = linalg.solve(
        moments + PENALTY * np.eye(len(moments)), centred.T @ less_means(others, labels), assume_a="pos"
    )
    heads /= np.sqrt(np.einsum("ij,ik,kj->j", heads, moments, heads))
    return np.asarray(heads @ linalg.eigh(heads.T @ moments @ heads)[1][:, :-4:-1])


def directions(task: ladder.Task, others: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    """Yield the name and the directions (width, some) of each variant and placebo that needs no group."""
    train, drawn = task.train, np.random.default_rng((task.seed, 66))
    assert train is not None, "CelebA knows people"
    mean, scale = standardized(task.held)
    features, weight = (train.features - mean) / scale, (task.layer[0][1] - task.layer[0][0]) * scale
    for draw in range(DRAWS + 1):
        people = drawn.permutation(train.people) if draw else train.people
        found = between_people(features, train.labels, people, 3, PENALTY)
        names = PLACEBOS.values() if draw else PLACEBOS
        score, labels = (
            along_score(features, train.labels, people, weight),
            drawn.permutation(others) if draw else others,
        )
        yield from zip(names, (found, found[:, :1], score, of_labels(features, train.labels, labels)), strict=False)
        if draw:
            yield "random", drawn.normal(size=(len(mean), 3))


def answers(task: ladder.Task, others: FloatArray) -> Iterator[tuple[str, ladder.Booleans]]:
    """Yield the name and the answers to the test rows of plain training, and of each variant and placebo."""
    held, features = task.held, task.test.features
    plain = ladder.score(task.layer, features)
    count = int((plain > 0).sum())
    yield "ERM", ladder.highest(plain, count)
    blind = replace(held, groups=None)
    for name, found in directions(task, others):
        layer = without_directions(blind, found, ladder.BUDGET)
        yield name, ladder.highest(ladder.score(layer, features), count)
    for draw in range(DRAWS):
        rows = np.random.default_rng((task.seed, draw)).choice(len(held.labels), TOLD, replace=False)
        told = replace(ladder.told_groups(held, rows), seed=1000 * draw + task.seed)
        for name, method in (("few-label", FewLabel()), ("groups", FewLabel(placebo=True))):
            yield name, ladder.highest(ladder.score(method.refit(told), features), count)


def signs(task: ladder.Task) -> dict[str, float]:
    """Return the four candidates, of training rows and the head alone."""
    train, drawn = task.train, np.random.default_rng(task.seed)
    assert train is not None, "CelebA knows people"
    mean, scale = standardized(task.held)
    features, weight = (train.features - mean) / scale, (task.layer[0][1] - task.layer[0][0]) * scale
    several = np.flatnonzero(np.bincount(train.people) > 1)
    shares = np.bincount(train.people, train.labels)[several] / np.bincount(train.people)[several]
    within, between = scatters(features, train.labels, train.people)

    def alike(first: FloatArray, second: FloatArray) -> float:
        total = within + between
        return float(abs(first @ total @ second) / np.sqrt((first @ total @ first) * (second @ total @ second)))

    def leading(rows: ladder.Booleans) -> FloatArray:
        people = np.unique(train.people[rows], return_inverse=True)[1]
        return between_people(features[rows], train.labels[rows], people, 1, PENALTY)[:, 0]

    halves = [np.isin(train.people, drawn.permutation(several)[::2]) for _ in range(DRAWS)]
    first = leading(np.ones(len(features), bool))
    return {
        "both labels": float(((shares > 0) & (shares < 1)).mean()),
        "score and discriminant": alike(along_score(features, train.labels, train.people, weight)[:, 0], first),
        "score between people": float(weight @ between @ weight / (weight @ (within + between) @ weight)),
        "stable over halves": float(np.mean([alike(leading(one), leading(~one)) for one in halves])),
    }


def measured(run: Path, data_root: Path | None) -> dict[str, Any]:
    """Return a network's candidates, and its changes: first the measured one, then replicates of people."""
    ((task, _),) = ladder.tasks_of(run.name, run, data_root, others=False, ladder=False)
    refitting = Refitting(run, data_root)
    columns = ladder._columns(refitting, "train")
    others = np.stack([columns[name] for name in OTHERS if name != task.name], 1).astype(float)
    rate = float(task.validation.labels.mean())
    task = replace(task, layer=ladder.at_rate(task.layer, task.validation.features, rate))
    people = task.test.people.max() + 1
    weights = np.random.default_rng(0).multinomial(people, np.full(people, 1 / people), REPLICATES)
    found: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
    for name, positive in answers(task, others):
        counts = ladder.person_counts(task, positive)
        found.setdefault(name, []).append(ladder.figures(np.vstack([counts.sum(0), weights @ counts])))
    means = {name: np.mean(each, axis=0) for name, each in found.items()}
    changes = {name: (each - means["ERM"]).tolist() for name, each in means.items() if name != "ERM"}
    return {
        "task": task.name,
        "seed": task.seed,
        "signs": signs(task),
        "plain": means["ERM"][:, 0].tolist(),
        "changes": changes,
    }


def kept(run: Path, data_root: Path | None) -> dict[str, Any]:
    """Return what :func:`measured` returns, measured once and kept in the run folder."""
    file = run / "sign.json"
    if not file.exists():
        write_json(file, measured(run, data_root) | {"hardware": cpu_name()})
    return read_json(file)


def summary(networks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return by task its plain figures, candidates, and changes of each variant less its placebo."""
    found = {}
    for task in dict.fromkeys(one["task"] for one in networks):
        those = [one for one in networks if one["task"] == task]
        changes = {name: np.mean([one["changes"][name] for one in those], axis=0) for name in those[0]["changes"]}
        over = {name: changes[name][1] - changes[placebo][1] for name, placebo in PLACEBOS.items()}
        found[task] = {
            "networks": len(those),
            "accuracy": float(np.mean([one["plain"][0] for one in those])),
            "equalized_odds": float(np.mean([one["plain"][1] for one in those])),
            "signs": {name: float(np.mean([one["signs"][name] for one in those])) for name in those[0]["signs"]},
            "changes": {
                name: {"accuracy": ladder._interval(one[0]), "equalized_odds": ladder._interval(one[1])}
                for name, one in changes.items()
            },
            "over_placebo": {name: {**ladder._interval(one), "p": ladder._p_value(one)} for name, one in over.items()},
        }
    adjusted = iter(holm([one["p"] for task in found.values() for one in task["over_placebo"].values()]))
    for task in found.values():
        for one in task["over_placebo"].values():
            one["p_holm"] = float(next(adjusted))
    return found


def verdicts(tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """Say for each candidate whether it meets what was written down; ``tasks`` as :func:`summary` returns them."""
    rest = [name for name in tasks if name not in FIRST]
    gains = np.array([tasks[name]["over_placebo"]["identities"]["value"] for name in rest])
    said = []
    for name in tasks[rest[0]]["signs"]:
        attractive, blond, young = (tasks[one]["signs"][name] for one in FIRST)
        limit = (blond + min((attractive, young), key=lambda one: abs(one - blond))) / 2
        up = 1 if attractive > blond else -1  # a larger value then stands for a larger fall of the gap
        values = up * np.array([tasks[one]["signs"][name] for one in rest])
        ranks = stats.rankdata(values), stats.rankdata(-gains)
        drawn = np.array([np.corrcoef(ranks[0], each)[0, 1] for each in permutations(ranks[1])])
        sided = [
            (value > up * limit) == (gain < 0)
            for value, gain, one in zip(values, gains, rest, strict=True)
            if tasks[one]["over_placebo"]["identities"]["p_holm"] < 0.05
        ]
        found = {"limit": limit, "correlation": drawn[0], "p": (drawn >= drawn[0] - 1e-9).mean()}
        said.append(
            {
                "name": name,
                "separates": bool((attractive - limit) * (young - limit) > 0),
                "right": int(sum(sided)),
                **found,
                "of": len(sided),
            }
        )
    for one, p_value in zip(said, holm([one["p"] for one in said]), strict=True):
        one["p_holm"] = float(p_value)
        one["holds"] = bool(one["separates"] and p_value < 0.05 and one["right"] == one["of"])
    return said


def table(record: dict[str, Any]) -> str:
    """Return Markdown: changes of each task less their placebos, in points, and the candidates."""
    names = list(PLACEBOS)
    lines = [
        f"| task | gap | {' | '.join(names)} | accuracy, identities | accuracy, attributes |",
        f"|---|{'---:|' * 8}",
    ]

    def points(one: dict[str, float]) -> str:
        return f"{100 * one['value']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"

    for name, one in record["tasks"].items():
        cells = [f"{100 * one['equalized_odds']:.1f}", *(points(one["over_placebo"][each]) for each in names)]
        cells += [points(one["changes"][each]["accuracy"]) for each in ("identities", "attributes")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"| task | {' | '.join(one['name'] for one in record['verdicts'])} |", f"|---|{'---:|' * 4}"]
    lines += [
        f"| {name} | {' | '.join(f'{each:.2f}' for each in one['signs'].values())} |"
        for name, one in record["tasks"].items()
    ]
    told = "- {name}: {}; limit {limit:.2f}, correlation {correlation:+.2f} (p {p_holm:.3f}), right on {right} of {of}"
    return "\n".join(
        [*lines, "", *(told.format("holds" if one["holds"] else "no sign", **one) for one in record["verdicts"])]
    )


@app.command()
def measure(runs: list[Path], json: ladder.JsonFile, data_root: Path | None = None) -> None:
    """Measure finished runs of ERM, and print the table."""
    tasks = summary(networks := [kept(run, data_root) for run in runs])
    hardware = sorted({one["hardware"] for one in networks})
    write_json(json, {"tasks": tasks, "verdicts": verdicts(tasks), "hardware": hardware})
    show(json)


@app.command("table")
def show(json: ladder.JsonFile) -> None:
    """Print the table."""
    print(table(read_json(json)))


if __name__ == "__main__":
    app()
