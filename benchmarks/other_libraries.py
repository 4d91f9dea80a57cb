"""The same figures from aequitas and statsmodels, on 100 drawn tables.

Neither is a dependency, and aequitas pins old packages, so this is two steps with a folder between them:

    python benchmarks/other_libraries.py write tables                 # levelhead's figures
    pip install aequitas statsmodels                                  # in an environment of its own
    python benchmarks/other_libraries.py check tables                 # theirs; ends with status 1 where one differs

aequitas: true and false positive rates, precision, selection rates and their ratios to a reference group.
statsmodels: Wilson's interval, Newcombe's of a difference, the exact test of McNemar, Holm, and the slope of a trend.
Tests compare the other figures with scipy and fairlearn (DeLong, Kolmogorov and Smirnov, Fisher, hypergeometric).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TABLES, CLOSE = 100, 1e-9


def drawn(seed: int) -> pd.DataFrame:
    """Draw a table: label, two models' predictions, group, period."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(200, 2000))
    frame = pd.DataFrame({"race": rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])})
    base = frame.race.map(dict(zip("abc", rng.uniform(0.2, 0.8, 3), strict=True)))
    frame["label_value"] = (rng.random(rows) < base).astype(int)
    for name in ("score", "other"):
        wrong = rng.random(rows) < rng.uniform(0.1, 0.4)
        frame[name] = np.where(wrong, 1 - frame.label_value, frame.label_value)
    return frame.assign(period=rng.integers(0, 6, rows))


def write(folder: Path) -> None:
    """Write tables and what levelhead says of them."""
    import levelhead as lh
    from levelhead.metrics import holm
    from levelhead.metrics.between import mover, wilson
    from levelhead.metrics.trend import trend

    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(TABLES):
        frame, found = drawn(seed), {}
        frame.to_csv(folder / f"{seed}.csv", index=False)
        result = lh.audit(
            frame.label_value, frame.score, sensitive_features=frame[["race"]], against=frame.other, reference="a",
            replicates=100, min_count=1,
        )  # fmt: skip
        rates = result.findings["rates"]["race"].groups
        for group, figures in result.by_attribute["race"].groups.items():
            found[str(group)] = {
                "tpr": figures.rates["true_positive_rate"].value,
                "fpr": figures.rates["false_positive_rate"].value,
                "selected": figures.rates["selection_rate"].value,
                "precision": rates[group].precision.value,
                "ratio": rates[group].selection_ratio and rates[group].selection_ratio.value,
                "mcnemar": result.against.by_attribute["race"].groups[group].rates["accuracy"].p_value,
            }
        hits, rows = frame.groupby("race").score.sum().to_numpy(), frame.groupby("race").size().to_numpy()
        low, high = wilson(hits, rows, 0.95)
        share = hits / rows
        found["wilson"] = [low.tolist(), high.tolist()]
        ends = mover(share[0], (low[0], high[0]), share[1], (low[1], high[1]))
        found["newcombe"] = [float(one) for one in ends]
        p_values = [found[group]["mcnemar"] for group in "abc"]
        found["holm"] = list(map(float, holm(p_values)))
        by = frame.groupby(["period", "race"]).score.agg(["sum", "size"]).unstack()
        found["slope"] = float(trend(by["sum"][["b", "a"]].to_numpy(), by["size"][["b", "a"]].to_numpy()).slope.value)
        (folder / f"{seed}.json").write_text(json.dumps(found))
    print(f"Wrote {TABLES} tables and their figures to {folder}")


def check(folder: Path) -> int:
    """Compare levelhead's figures with those of the other libraries."""
    found: dict[str, list[float]] = {}
    for seed in range(TABLES):
        frame, ours = pd.read_csv(folder / f"{seed}.csv"), json.loads((folder / f"{seed}.json").read_text())
        for library in (_aequitas, _statsmodels):
            for name, pairs in library(frame, ours).items():
                apart = [abs(one - other) for one, other in pairs]
                found.setdefault(name, []).append(max(apart))
    for name, apart in found.items():
        print(f"{name}: {len(apart)} tables, largest difference {max(apart):.1e}")
    return int(any(max(apart) > CLOSE for apart in found.values()))


def _aequitas(frame: pd.DataFrame, ours: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    from aequitas.bias import Bias
    from aequitas.group import Group

    table = frame[["score", "label_value", "race"]]
    counted, _ = Group().get_crosstabs(table)
    biased = Bias().get_disparity_predefined_groups(counted, original_df=table, ref_groups_dict={"race": "a"})
    by = biased.set_index("attribute_value")
    named = {"tpr": "tpr", "fpr": "fpr", "selected": "pprev", "precision": "precision", "ratio": "pprev_disparity"}
    return {
        f"aequitas {name}": [
            (ours[group][name], float(by.loc[group, column])) for group in "abc" if ours[group][name] is not None
        ]
        for name, column in named.items()
    }


def _statsmodels(frame: pd.DataFrame, ours: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    import statsmodels.api as sm
    from statsmodels.stats.contingency_tables import mcnemar
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

    hits, rows = frame.groupby("race").score.sum().to_numpy(), frame.groupby("race").size().to_numpy()
    low, high = proportion_confint(hits, rows, method="wilson")
    newcombe = confint_proportions_2indep(hits[0], rows[0], hits[1], rows[1], method="newcomb", compare="diff")
    tests = []
    for group in "abc":
        own = frame[frame.race == group]
        right = [(own[name] == own.label_value).to_numpy() for name in ("score", "other")]
        table = [[int(((right[0] == i) & (right[1] == j)).sum()) for j in (True, False)] for i in (True, False)]
        tests.append((ours[group]["mcnemar"], float(mcnemar(table, exact=True).pvalue)))
    holm = multipletests([ours[group]["mcnemar"] for group in "abc"], method="holm")[1]
    by = frame.groupby(["period", "race"]).score.agg(["sum", "size"]).unstack()
    hits_by, rows_by = by["sum"][["b", "a"]].to_numpy(), by["size"][["b", "a"]].to_numpy()
    steady = (hits_by.sum(0) + 0.5) / (rows_by.sum(0) + 1)
    weight = 1 / (steady * (1 - steady) / rows_by).sum(1)
    gap = hits_by[:, 0] / rows_by[:, 0] - hits_by[:, 1] / rows_by[:, 1]
    fitted = sm.WLS(gap, sm.add_constant(np.arange(len(gap), dtype=float)), weights=weight).fit()
    return {
        "statsmodels Wilson": [*zip(ours["wilson"][0], low, strict=True), *zip(ours["wilson"][1], high, strict=True)],
        "statsmodels Newcombe": list(zip(ours["newcombe"], newcombe, strict=True)),
        "statsmodels McNemar, exact": tests,
        "statsmodels Holm": list(zip(ours["holm"], holm, strict=True)),
        "statsmodels slope of a trend": [(ours["slope"], float(fitted.params[1]))],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["write", "check"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    sys.exit(write(given.folder) if given.step == "write" else check(given.folder))
