"""The same figures from fairlearn and from levelhead, and how much longer fairlearn takes.

    python benchmarks/fairlearn_time.py
    python benchmarks/fairlearn_time.py --bootstrap-rows 1000 --replicates 1000  # equal replicates: 20 minutes

Drawn rows, two classes, eight groups: by group the accuracy, selection rate, true and false positive rate, and the
gaps of demographic parity and equalized odds (the larger of the two rates' differences). Both are given the same arrays
in one process, in turns; that the figures agree is asserted before any time is taken. fairlearn draws the rows of each
replicate and counts them anew, so that its time grows with rows times replicates; levelhead draws the counts. An audit
of levelhead has intervals always, and does more besides (pairs of groups, sentences, the ranges that chance makes).
The last rows read a parquet file of a million rows with sex, race and their crossing: rates, gaps, and the area under
the ROC curve of a score in each group, by fairlearn from pandas and without any interval.
Times are processor time of one thread; ratios are those of neighbours, with the median's 95% interval.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import fairlearn
import fairlearn.metrics as theirs
import measure
import numpy as np
import pandas as pd
import torch
import typer
from sklearn.metrics import roc_auc_score

import levelhead as lh
from levelhead.metrics.names import group_name

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


def write_table(path: Path, rows: int) -> None:
    """Write labels, predictions, scores, sex and race."""
    rng = np.random.default_rng(0)
    sex, race = rng.choice(["f", "m"], rows), rng.choice(list("abcde"), rows, p=[0.6, 0.2, 0.1, 0.07, 0.03])
    score = rng.beta(2, 3, rows).round(4)
    label = (rng.random(rows) < 0.1 + 0.7 * score + 0.05 * (sex == "f")).astype(int)
    table = {"label": label, "prediction": (score >= 0.5).astype(int), "score": score, "sex": sex, "race": race}
    pd.DataFrame(table).to_parquet(path, index=False)


def table_of_fairlearn(path: Path) -> dict[str, object]:
    """Return rates by group and gaps of two columns and their crossing, and the areas of the scores."""
    table, found = pd.read_parquet(path), {}
    area = {"area": roc_auc_score}
    for name, columns in (("sex", ["sex"]), ("race", ["race"]), ("sex & race", ["sex", "race"])):
        given = {"y_true": table["label"], "sensitive_features": table[columns]}
        rates = theirs.MetricFrame(metrics=RATES, y_pred=table["prediction"], **given)
        areas = theirs.MetricFrame(metrics=area, y_pred=table["score"], **given)
        gap = rates.difference(method="between_groups")["selection_rate"]
        found[name] = (rates.by_group["true_positive_rate"].to_numpy(), areas.by_group["area"].to_numpy(), gap)
    return found


def table_of_levelhead(path: Path) -> dict[str, object]:
    """Return the same of a whole audit, which has intervals and calibration, too."""
    audit = lh.audit_table(path, label="label", groups=["sex", "race"], score="score", intersect=True)
    wide = audit.by_group
    return {
        name: (part["true_positive_rate"].to_numpy(), part["area"].to_numpy(), metrics["demographic_parity"].value)
        for name, metrics in ((group_name(key), one.metrics) for key, one in audit.by_attribute.items())
        for part in [wide.loc[name].sort_index()]
    }


def from_parquet(rows: int, compared: int, repeats: int) -> list[dict[str, object]]:
    """Measure an audit of a file of ``rows``, and both on one of ``compared`` rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_table(path, rows)
        audits = {"levelhead": functools.partial(table_of_levelhead, path)}
        seconds = measure.interleaved(audits, repeats, CPU, lambda _: None)["levelhead"]
        write_table(path, compared)
        ours, others = table_of_levelhead(path), table_of_fairlearn(path)
        for name, figures in others.items():
            for own, its in zip(ours[name], figures, strict=True):
                np.testing.assert_allclose(own, its, rtol=0, atol=1e-9, err_msg=name)
        calls = {
            "fairlearn": functools.partial(table_of_fairlearn, path),
            "levelhead": functools.partial(table_of_levelhead, path),
        }
        times = measure.interleaved(calls, repeats, CPU, lambda _: None)
    name, ratios = "rows of parquet with scores, sex x race: audit", measure.paired(times, "levelhead", "fairlearn")
    return [
        measure.row(f"{rows:,} {name} / 1.5 s", [one / 1.5 for one in seconds], 1.0, "lower", device=CPU),
        measure.row(f"{compared:,} {name} / fairlearn without intervals", ratios, 0.15, "lower", device=CPU),
    ]


def main(
    rows: int = 100_000, bootstrap_rows: int = 10_000, replicates: int = 20, parquet_rows: int = 1_000_000,
    compared_rows: int = 100_000, repeats: int = 7, record: bool = False,
) -> None:  # fmt: skip
    """Compare, measure, print, and keep the rows.

    fairlearn draws ``replicates`` of ``bootstrap_rows``, where levelhead draws 1,000. An audit reads a file of
    ``parquet_rows``, and both read one of ``compared_rows``.
    """
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
    measured += from_parquet(parquet_rows, compared_rows, repeats)
    measure.merge(measure.destination(measure.LATEST, record), measured)
    measure.show(measured, f"The same figures by fairlearn {fairlearn.__version__}")


if __name__ == "__main__":
    typer.run(main)
