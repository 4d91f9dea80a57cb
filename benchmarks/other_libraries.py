"""The same figures from aequitas, on 100 drawn tables.

It pins old packages, so this is two steps with a folder between them:

    python benchmarks/other_libraries.py write tables                 # levelhead's figures
    pip install aequitas                                              # in an environment of its own
    python benchmarks/other_libraries.py check tables                 # theirs; ends with status 1 where one differs

Compared are true and false positive rates, precision, selection rates and their ratios to a reference group. Figures of
fairlearn, scikit-learn, SciPy and statsmodels stand in tests/metrics/test_other_libraries.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

app = typer.Typer(help=__doc__)
TABLES, CLOSE = 100, 1e-9


def drawn(seed: int) -> pd.DataFrame:
    """Draw a table: label, prediction, group."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(200, 2000))
    frame = pd.DataFrame({"race": rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])})
    base = frame.race.map(dict(zip("abc", rng.uniform(0.2, 0.8, 3), strict=True)))
    frame["label_value"] = (rng.random(rows) < base).astype(int)
    wrong = rng.random(rows) < rng.uniform(0.1, 0.4)
    return frame.assign(score=np.where(wrong, 1 - frame.label_value, frame.label_value))


@app.command()
def write(folder: Path) -> None:
    """Write tables and what levelhead says of them."""
    import levelhead as lh

    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(TABLES):
        frame, found = drawn(seed), {}
        frame.to_csv(folder / f"{seed}.csv", index=False)
        result = lh.audit(
            frame.label_value, frame.score, sensitive_features=frame[["race"]], reference="a", replicates=100,
            min_count=1,
        )  # fmt: skip
        rates = result.findings["rates"]["race"].groups
        for group, figures in result.by_attribute["race"].groups.items():
            found[str(group)] = {
                "tpr": figures.rates["true_positive_rate"].value,
                "fpr": figures.rates["false_positive_rate"].value,
                "selected": figures.rates["selection_rate"].value,
                "precision": rates[group].precision.value,
                "ratio": rates[group].selection_ratio and rates[group].selection_ratio.value,
            }
        (folder / f"{seed}.json").write_text(json.dumps(found))
    print(f"Wrote {TABLES} tables and their figures to {folder}")


@app.command()
def check(folder: Path) -> None:
    """Compare levelhead's figures with those of aequitas."""
    found: dict[str, list[float]] = {}
    for seed in range(TABLES):
        frame, ours = pd.read_csv(folder / f"{seed}.csv"), json.loads((folder / f"{seed}.json").read_text())
        for name, pairs in _aequitas(frame, ours).items():
            found.setdefault(name, []).append(max(abs(one - other) for one, other in pairs))
    for name, apart in found.items():
        print(f"{name}: {len(apart)} tables, largest difference {max(apart):.1e}")
    raise typer.Exit(int(any(max(apart) > CLOSE for apart in found.values())))


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


if __name__ == "__main__":
    app()
