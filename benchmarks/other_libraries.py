"""The same figures from aequitas, on 100 drawn tables.

It pins old packages, so this is two steps with a folder between them:

    python benchmarks/other_libraries.py write tables                 # levelhead's figures
    pip install aequitas typer                                        # in an environment of its own
    python benchmarks/other_libraries.py check tables                 # theirs; ends with status 1 where one differs

Compared are true and false positive rates, precision, selection rates and their ratios to a reference group. Figures of
fairlearn, scikit-learn, SciPy and statsmodels stand in tests/metrics/test_other_libraries.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import typer

app = typer.Typer(help=__doc__)
TABLES, CLOSE = 100, 1e-9
OURS = ["true_positive_rate", "false_positive_rate", "selection_rate", "precision"]
THEIRS = ["tpr", "fpr", "pprev", "precision", "pprev_disparity"]
"""Aequitas' names of our figures, and of the ratio."""


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
        frame = drawn(seed)
        frame.to_csv(folder / f"{seed}.csv", index=False)
        given = {"sensitive_features": frame[["race"]], "reference": "a", "replicates": 100, "min_count": 1}
        result = lh.audit(frame.label_value, frame.score, **given)
        figures = result.by_group.loc["race", OURS]
        ratios = {group: one.selection_ratio for group, one in result.rates["race"].groups.items()}
        figures["ratio"] = [ratios[group].value if ratios[group] else np.nan for group in figures.index]
        figures.to_csv(folder / f"{seed}-ours.csv")


@app.command()
def check(folder: Path) -> None:
    """Compare levelhead's figures with those of aequitas."""
    from aequitas.bias import Bias
    from aequitas.group import Group

    apart = []
    for seed in range(TABLES):
        frame, ours = pd.read_csv(folder / f"{seed}.csv"), pd.read_csv(folder / f"{seed}-ours.csv", index_col="group")
        counted, _ = Group().get_crosstabs(frame[["score", "label_value", "race"]])
        theirs = Bias().get_disparity_predefined_groups(counted, original_df=frame, ref_groups_dict={"race": "a"})
        theirs = theirs.set_index("attribute_value")[THEIRS]
        apart.append((ours - theirs.set_axis(ours.columns, axis=1)).abs().max())
    largest = pd.DataFrame(apart).max()
    print(largest)
    raise typer.Exit(int((largest > CLOSE).any()))


if __name__ == "__main__":
    app()
