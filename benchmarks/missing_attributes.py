"""What do audits without the attribute say on real rows, where the attribute is known after all?

    python benchmarks/missing_attributes.py    # about two minutes; reads $LEVELHEAD_DATA, else ./data

*adult* (UCI, 32,561 people): half of the rows train a logistic regression that predicts an income above 50K from age,
education, hours, capital gains, occupation, work class and marital status, without sex and race. The other half is
audited. Proxies for sex are real columns, turned into guesses on the training half alone: marital status, occupation,
hours.

Each method gives its answer beside the truth, which it never sees. Methods that draw rows or noise are repeated, and
the share of the repeats whose interval holds the truth is written. Nothing about a row leaves this script:
results/missing_attributes.json holds aggregates alone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from measure import DATA, ROOT, destination
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import levelhead as lh
from levelhead.auditing.unknown import privacy
from levelhead.auditing.unknown.answer import IndirectAudit
from levelhead.auditing.unknown.privacy import Response
from levelhead.metrics import estimate_to_dict
from levelhead.metrics.proxies import by_proxies
from levelhead.metrics.signed import GAPS, rate_gap, rows_of
from levelhead.storage import write_json

LABELLED = 400


def adult(folder: Path) -> pd.DataFrame:
    """Train on one half; return the other with label, prediction, sex and proxies."""
    table = pd.read_csv(folder / "adult" / "adult.csv.gz", skipinitialspace=True)
    label = (table["Probability"].str.strip().str.rstrip(".") == ">50K").to_numpy().astype(np.int64)
    numbers = table[["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]].to_numpy(float)
    numbers[:, 2:4] = np.log1p(numbers[:, 2:4])
    words = pd.get_dummies(table[["workclass", "marital-status", "occupation"]]).to_numpy(float)
    train = np.random.default_rng(0).random(len(table)) < 0.5
    numbers = (numbers - numbers[train].mean(0)) / numbers[train].std(0)
    features = np.hstack([numbers, words])
    guess = LogisticRegression(tol=1e-8, max_iter=1000).fit(features[train], label[train]).predict(features)
    female = (table["sex"] == "Female").to_numpy()
    overall = female[train].mean()
    hours = pd.cut(table["hours-per-week"], [0, 20, 35, 39, 40, 50, 100]).astype(str)
    columns = {"marital": table["marital-status"], "occupation": table["occupation"], "hours": hours}
    rest = pd.DataFrame({"label": label, "prediction": guess, "sex": table["sex"]})
    for name, values in columns.items():
        share = pd.Series(female[train]).groupby(values[train].to_numpy()).mean()
        rest[name] = values
        rest[f"{name}_says"] = np.where(values.map(share).fillna(overall) > overall, "Female", "Male")
    cells = table["marital-status"] + "|" + table["occupation"] + "|" + hours
    sums = pd.Series(female[train]).groupby(cells[train].to_numpy()).agg(["sum", "count"])
    share = (sums["sum"] + 5 * overall) / (sums["count"] + 5)
    rest["p_female"] = cells.map(share).fillna(overall)
    by_occupation = pd.Series(female[train]).groupby(table["occupation"][train].to_numpy()).mean()
    rest["share_of_occupation"] = table["occupation"].map(by_occupation)
    return rest[~train].reset_index(drop=True)


def truth(table: pd.DataFrame, group: str, groups: tuple[str, str]) -> dict[str, float]:
    """The gaps with the group that methods do not see."""
    counts = np.zeros((2, 2, 2))
    place = {groups[0]: 0, groups[1]: 1}
    np.add.at(counts, (table[group].map(place).to_numpy(), table["label"], table["prediction"]), 1)
    return {gap: rate_gap(rows_of(counts, gap)) for gap in GAPS}


def audit(table: pd.DataFrame, **known: Any) -> IndirectAudit:
    """Audit rows whose groups are not recorded."""
    return lh.audit_table(table, label="label", prediction="prediction", **known)


def said(result: IndirectAudit) -> dict[str, Any]:
    """What an audit says, without the text of its method."""
    part = next(iter(result.parts.values()))
    return {
        "headline": part.headline,
        **{key: part.to_dict()[key] for key in ("method", "refused", "gaps", "rests_on")},
    }


def sampled(table: pd.DataFrame, group: str, rows: int, seed: int) -> NDArray[Any]:
    """The group of so many random rows, None elsewhere."""
    chosen = np.random.default_rng([seed, 7]).choice(len(table), rows, replace=False)
    known = np.full(len(table), None, object)
    known[chosen] = table[group].to_numpy()[chosen]
    return known


def repeat(once: Any, true: dict[str, float], repeats: int) -> dict[str, Any]:
    """Answer with many draws: how many intervals hold the truth, how many were refused, how wide they are.

    The truth is that of all audited rows; an interval is for the population that they come from, so it may hold it a
    little too often.
    """
    out: dict[str, Any] = {"repeats": repeats}
    found = [once(seed) for seed in range(repeats)]
    for gap in GAPS:
        defined = [one[gap] for one in found if one[gap].defined]
        held = [one.low <= true[gap] <= one.high for one in defined]
        out[gap] = {
            "answered": len(defined) / repeats,
            "held_truth": float(np.mean(held)) if held else None,
            "mean": float(np.mean([one.value for one in defined])) if defined else None,
            "mean_width": float(np.mean([one.high - one.low for one in defined])) if defined else None,
        }
    return out


def audit_adult(folder: Path, repeats: int) -> dict[str, Any]:
    """Every method on adult; gaps are Male minus Female, the later name minus the earlier."""
    rows = adult(folder)
    true = truth(rows, "sex", ("Female", "Male"))
    proxies = ("marital", "occupation", "hours")

    def labelled(seed: int, *proxy: str) -> IndirectAudit:
        table = rows.assign(known=sampled(rows, "sex", LABELLED, seed))
        return audit(table, labelled_group="known", **({"proxy": list(proxy)} if proxy else {}))

    def randomised(seed: int) -> IndirectAudit:
        reports = privacy.randomize(rows["sex"].to_numpy(), np.log(4), seed=seed)
        response = Response(epsilon=float(np.log(4)))
        return audit(rows.assign(reported=reports), groups=["reported"], randomized_response=response)

    answers = {
        "labelled rows without a proxy": labelled,
        "labelled rows, p_female of other rows": lambda seed: labelled(seed, "p_female"),
        "labelled rows, three columns cross-fitted": lambda seed: labelled(seed, *proxies),
        "randomised responses, epsilon 1.39": randomised,
    }
    out: dict[str, Any] = {
        "rows": len(rows),
        "gap": "Male minus Female",
        "truth": true,
        "accuracy": float((rows["label"] == rows["prediction"]).mean()),
        "share_female": float((rows["sex"] == "Female").mean()),
        "proxy_right": {name: float((rows["sex"] == rows[f"{name}_says"]).mean()) for name in proxies},
        "answers": {name: said(once(0)) for name, once in answers.items()},
        "repeated": {
            name: repeat(lambda seed, once=once: once(seed).gaps, true, repeats) for name, once in answers.items()
        },
    }
    out["answers"]["three proxies"] = said(audit(rows, proxy=[f"{name}_says" for name in proxies]))
    counts = np.zeros((2, 2, 2, 2, 2))
    says = [(rows[f"{name}_says"] == "Male").astype(int) for name in proxies]
    np.add.at(counts, (*says, rows["label"], rows["prediction"]), 1)
    forced = by_proxies(counts, mode="global")
    out["three proxies, the stronger assumption forced"] = {
        "refused": forced.refused,
        "p_value": forced.p_value,
        **{gap: estimate_to_dict(by_pair[1, 0]) for gap, by_pair in forced.gaps.items()},
    }
    out["answers"]["shares alone"] = said(audit(rows, shares={"Female": 0.33, "Male": 0.67}))
    for name, column in (("shares by occupation", "share_of_occupation"), ("p_female alone", "p_female")):
        out["answers"][name] = said(audit(rows, proxy_probabilities={"Female": column}))
    out["answers"]["one guess alone"] = said(audit(rows, proxy=["marital_says"]))
    return out


def main(data_root: Path = DATA, repeats: int = 200, record: bool = False) -> None:
    """Audit, write the figures, and print the answers."""
    start = time.perf_counter()
    result = {
        "command": f"python benchmarks/missing_attributes.py --repeats {repeats}",
        "labelled_rows": LABELLED,
        "adult": (own := audit_adult(data_root, repeats)),
        "seconds": round(time.perf_counter() - start),
    }
    write_json(destination(ROOT / "results/missing_attributes.json", record), result)
    print(f"{own['rows']:,} rows, truth {own['truth']}")
    for method, answer in own["answers"].items():
        print(f"- {method}: {answer['headline']}")
    for method, figures in own["repeated"].items():
        print(f"- {method}, {repeats} draws: {figures}")


if __name__ == "__main__":
    typer.run(main)
