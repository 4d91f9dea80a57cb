"""Is a rule of ``lh.BiasRule`` as good as fairlearn's ThresholdOptimizer? Five splits of Adult.

    python benchmarks/postprocess.py    # a minute on one core; reads $LEVELHEAD_DATA, else ./data

Each split deals the 32,561 people anew: half train gradient boosting without sex and race, a quarter fits both rules
on the same scores, labels and groups, and a quarter measures them. Both bound the gap by 0. Written are gaps and
accuracy on the measured quarter, and ours minus theirs with a 95% t interval over splits whose variance allows for
splits that share rows (Nadeau and Bengio, Machine Learning 2003). Needs fairlearn and scikit-learn.
"""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from fairlearn.postprocessing import ThresholdOptimizer
from measure import DATA, ROOT, destination
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier

import levelhead as lh
from levelhead.auditing.bias_rule import measured_gap
from levelhead.storage import write_json

SPLITS = 5
CONSTRAINTS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}
GROUPS = ("sex", "race")


class Given(ClassifierMixin, BaseEstimator):
    """A fitted model whose scores are its features."""

    def fit(self, features: Any, labels: Any) -> Given:
        self.classes_ = np.unique(labels)
        return self

    def predict(self, features: Any) -> Any:
        return np.asarray(features)[:, 0]


def adult(folder: Path) -> tuple[pd.DataFrame, NDArray[np.bool_], pd.DataFrame]:
    """Return features without sex and race, whether income is above 50K, and the groups."""
    table = pd.read_csv(folder / "adult" / "adult.csv.gz", skipinitialspace=True)
    label = (table["Probability"].str.strip().str.rstrip(".") == ">50K").to_numpy()
    groups = table[list(GROUPS)].astype(str)
    features = table.drop(columns=["Probability", *GROUPS, "fnlwgt", "relationship"], errors="ignore")
    words = features.select_dtypes(exclude="number").columns
    return features.assign(**{name: features[name].astype("category") for name in words}), label, groups


def decide(
    metric: str, fit: NDArray[np.bool_], score: NDArray[np.float64], label: NDArray[np.bool_], group: NDArray[Any]
) -> dict[str, tuple[NDArray[np.bool_], float]]:
    """Fit both on the rows of ``fit``; return decisions of all rows and the seconds that fitting took."""
    found = {}
    begun = time.process_time()
    rule = lh.BiasRule(metric, delta=0.0).fit(score[fit], label[fit], sensitive_features=group[fit])
    found["levelhead"] = rule.predict(score, sensitive_features=group), time.process_time() - begun
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ThresholdOptimizer(estimator=Given(), constraints=CONSTRAINTS[metric], predict_method="predict")
        theirs.fit(score[fit][:, None], label[fit], sensitive_features=group[fit])
        decided = theirs.predict(score[:, None], sensitive_features=group, random_state=0)
    found["fairlearn"] = np.asarray(decided).astype(bool), time.process_time() - begun
    return found


def interval(values: list[float]) -> dict[str, float]:
    """Mean and 95% interval over splits; a quarter measures what three quarters made."""
    own = np.array(values)
    error = math.sqrt((1 / len(own) + 1 / 3) * own.var(ddof=1))
    reach = float(stats.t.ppf(0.975, len(own) - 1)) * error
    return {"mean": float(own.mean()), "low": float(own.mean()) - reach, "high": float(own.mean()) + reach}


def main(data_root: Path = DATA, record: bool = False) -> None:
    """Fit both rules on each split, and write what the rest of it measures."""
    features, label, groups = adult(data_root)
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for split in range(SPLITS):
        place = np.random.default_rng(split).permutation(len(label)) / len(label)
        train, fit, test = place < 0.5, (place >= 0.5) & (place < 0.75), place >= 0.75
        model = HistGradientBoostingClassifier(random_state=split, categorical_features="from_dtype")
        score = model.fit(features[train], label[train]).predict_proba(features)[:, 1]
        for name in GROUPS:
            group = groups[name].to_numpy(object)
            for metric in CONSTRAINTS:
                decided = decide(metric, fit, score, label, group)
                decided["no rule"] = score >= 0.5, 0.0
                row = {
                    who: {
                        "gap": measured_gap(one[test], label[test], group[test], metric),
                        "accuracy": float((one[test] == label[test]).mean()),
                        "seconds": seconds,
                    }
                    for who, (one, seconds) in decided.items()
                }
                cells.setdefault((name, metric), []).append(row)
                print(split, name, metric, {who: {k: round(v, 4) for k, v in own.items()} for who, own in row.items()})
    result: dict[str, Any] = {"command": "python benchmarks/postprocess.py", "rows": len(label), "splits": SPLITS}
    result["cells"] = [
        {
            "group": name,
            "metric": metric,
            **{
                who: {key: float(np.mean([row[who][key] for row in rows])) for key in ("gap", "accuracy", "seconds")}
                for who in rows[0]
            },
            "difference": {
                key: interval([row["levelhead"][key] - row["fairlearn"][key] for row in rows])
                for key in ("gap", "accuracy")
            },
        }
        for (name, metric), rows in cells.items()
    ]
    write_json(destination(ROOT / "results/postprocess.json", record), result)


if __name__ == "__main__":
    typer.run(main)
