"""The same figures from fairlearn and from levelhead, and how much longer fairlearn takes.

    python benchmarks/fairlearn_time.py
    python benchmarks/fairlearn_time.py --bootstrap-rows 1000 --replicates 1000  # equal replicates: 20 minutes

Drawn rows, two classes, eight groups: by group the accuracy, selection rate, true and false positive rate, and the
gaps of demographic parity and equalized odds (the larger of the two rates' differences). Both are given the same arrays
in one process, in turns; that the figures agree is asserted before any time is taken. fairlearn draws the rows of each
replicate and counts them anew, so that its time grows with rows times replicates; levelhead draws the counts. An audit
of levelhead has intervals always, and does more besides (pairs of groups, sentences, the ranges that chance makes).
Times are processor time of one thread; ratios are those of neighbours, with the median's 95% interval.
"""

from __future__ import annotations

import functools

import fairlearn
import fairlearn.metrics as theirs
import measure
import numpy as np
import torch
import typer

import levelhead as lh

CPU = torch.device("cpu")
GROUPS = 8
RATES = {
    "accuracy": lambda y_true, y_pred: float(np.mean(y_true == y_pred)),
    "selection_rate": theirs.selection_rate,
    "true_positive_rate": theirs.true_positive_rate,
    "false_positive_rate": theirs.false_positive_rate,
}


def draw(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, predictions and groups whose rates differ."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, GROUPS, rows)
    label = (rng.random(rows) < 0.2 + 0.05 * group).astype(int)
    prediction = (rng.random(rows) < np.where(label == 1, 0.8 - 0.03 * group, 0.1 + 0.02 * group)).astype(int)
    return label, prediction, group


def of_fairlearn(label: np.ndarray, prediction: np.ndarray, group: np.ndarray, replicates: int) -> dict[str, object]:
    """Return rates by group, gaps, and with replicates the ends of their intervals."""
    drawn = {"n_boot": replicates, "ci_quantiles": [0.025, 0.975], "random_state": 0} if replicates else {}
    frame = theirs.MetricFrame(metrics=RATES, y_true=label, y_pred=prediction, sensitive_features=group, **drawn)
    found = {name: frame.by_group[name].to_numpy() for name in RATES}
    gaps = frame.difference(method="between_groups")
    both = gaps["true_positive_rate"], gaps["false_positive_rate"]
    found["demographic_parity"], found["equalized_odds_worst"] = gaps["selection_rate"], max(both)
    if replicates:
        found["intervals"] = frame.by_group_ci, frame.difference_ci(method="between_groups")
    return found


def of_levelhead(label: np.ndarray, prediction: np.ndarray, group: np.ndarray) -> dict[str, object]:
    """Return the same rates and gaps from a whole audit."""
    audit = lh.audit(label, prediction, sensitive_features={"group": group}).to_dict()
    part = audit["by_attribute"]["group"]
    found = {name: np.array([one[name]["value"] for one in part["groups"].values()]) for name in RATES}
    return found | {name: part["metrics"][name]["value"] for name in ("demographic_parity", "equalized_odds_worst")}


def main(
    rows: int = 100_000, bootstrap_rows: int = 10_000, replicates: int = 20, repeats: int = 7, record: bool = False
) -> None:
    """Compare, measure, print, and keep the rows: fairlearn draws ``replicates`` where levelhead draws 1,000."""
    measure.with_environment()
    torch.set_num_threads(1)
    measured = []
    for size, drawn in ((rows, 0), (bootstrap_rows, replicates)):
        data = draw(size)
        ours, others = of_levelhead(*data), of_fairlearn(*data, 0)
        for name, value in others.items():
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)
        calls = {
            "fairlearn": functools.partial(of_fairlearn, *data, drawn),
            "levelhead": functools.partial(of_levelhead, *data),
        }
        times = measure.interleaved(calls, repeats, CPU, lambda _: None)
        how = f"with {drawn:,} replicates" if drawn else "without intervals"
        name = f"fairlearn {how} / levelhead audit with 1,000 replicates, {size:,} rows, {GROUPS} groups"
        measured.append(measure.row(name, measure.paired(times, "fairlearn", "levelhead"), None, "higher", device=CPU))
    measure.merge(measure.destination(measure.LATEST, record), measured)
    measure.show(measured, f"The same figures by fairlearn {fairlearn.__version__}")


if __name__ == "__main__":
    typer.run(main)
