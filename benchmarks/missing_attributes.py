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

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measure import ROOT, destinations
from numpy.typing import NDArray
from scipy import optimize, special

import levelhead as lh
from levelhead.auditing.unknown import privacy
from levelhead.auditing.unknown.answer import IndirectAudit
from levelhead.auditing.unknown.privacy import Response
from levelhead.metrics import estimate_to_dict
from levelhead.metrics.proxies import by_proxies
from levelhead.metrics.signed import GAPS, rate_gap, rows_of

LABELLED = 400


def fit_logistic(features: Any, labels: NDArray[Any], penalty: float = 1.0) -> NDArray[np.float64]:
    """Fit a logistic regression with an L2 penalty; return weights, the last of them the intercept."""
    sign = 2.0 * labels - 1

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (features @ weights[:-1] + weights[-1])
        slope = -sign * special.expit(-margin)
        value = float(np.logaddexp(0, -margin).sum()) + penalty / 2 * float(weights[:-1] @ weights[:-1])
        return value, np.append(features.T @ slope + penalty * weights[:-1], slope.sum())

    start = np.zeros(features.shape[1] + 1)
    return np.asarray(optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x)


def predict(features: Any, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return 1 where the score is above 0."""
    return (features @ weights[:-1] + weights[-1] > 0).astype(np.int64)


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
    guess = predict(features, fit_logistic(features[train], label[train]))
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


def audit_unrecorded(y: Any, yhat: Any, **known: Any) -> IndirectAudit:
    """Audit columns whose groups are not recorded: each stands under its option, or in a dict of several."""
    columns, named = {"label": y, "prediction": yhat}, {}
    for given, option in (
        ("labelled", "labelled_group"),
        ("proxies", "proxy"),
        ("responses", "groups"),
        ("proxy_probabilities",) * 2,
    ):
        if (values := known.pop(given, None)) is not None:
            several = dict(values) if isinstance(values, dict | pd.DataFrame) else {option: values}
            columns |= several
            by_group = {group: group for group in several} if option == "proxy_probabilities" else option
            named[option] = list(several) if option in ("proxy", "groups") else by_group
    if "response" in known:
        named["randomized_response"] = known.pop("response")
    return lh.audit_table(pd.DataFrame(columns), label="label", prediction="prediction", **named, **known)


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
    y, yhat = rows["label"].to_numpy(), rows["prediction"].to_numpy()
    true = truth(rows, "sex", ("Female", "Male"))
    columns = {name: rows[name].to_numpy() for name in ("marital", "occupation", "hours")}
    guesses = {name: rows[f"{name}_says"].to_numpy() for name in columns}
    p = rows["p_female"].to_numpy()

    def labelled(seed: int, proxies: Any) -> IndirectAudit:
        known_rows = sampled(rows, "sex", LABELLED, seed)
        return audit_unrecorded(y, yhat, labelled=known_rows, proxies=proxies)

    def randomised(seed: int) -> IndirectAudit:
        reports = privacy.randomize(rows["sex"].to_numpy(), np.log(4), seed=seed)
        return audit_unrecorded(y, yhat, responses=reports, response=Response(epsilon=float(np.log(4))))

    answers = {
        "labelled rows without a proxy": lambda seed: labelled(seed, None),
        "labelled rows, p_female of other rows": lambda seed: labelled(seed, {"p_female": p}),
        "labelled rows, three columns cross-fitted": lambda seed: labelled(seed, columns),
        "randomised responses, epsilon 1.39": randomised,
    }
    out: dict[str, Any] = {
        "rows": len(rows),
        "gap": "Male minus Female",
        "truth": true,
        "accuracy": float((y == yhat).mean()),
        "share_female": float((rows["sex"] == "Female").mean()),
        "proxy_right": {name: float((rows["sex"].to_numpy() == one).mean()) for name, one in guesses.items()},
        "answers": {name: said(once(0)) for name, once in answers.items()},
        "repeated": {
            name: repeat(lambda seed, once=once: once(seed).gaps, true, repeats) for name, once in answers.items()
        },
    }
    out["answers"]["three proxies"] = said(audit_unrecorded(y, yhat, proxies=guesses))
    counts = np.zeros((2, 2, 2, 2, 2))
    says = [(one == "Male").astype(int) for one in guesses.values()]
    np.add.at(counts, (*says, y, yhat), 1)
    forced = by_proxies(counts, mode="global")
    out["three proxies, the stronger assumption forced"] = {
        "refused": forced.refused,
        "p_value": forced.p_value,
        **{gap: estimate_to_dict(by_pair[1, 0]) for gap, by_pair in forced.gaps.items()},
    }
    out["answers"]["shares alone"] = said(audit_unrecorded(y, yhat, shares={"Female": 0.33, "Male": 0.67}))
    for name, chance in (("shares by occupation", rows["share_of_occupation"].to_numpy()), ("p_female alone", p)):
        out["answers"][name] = said(audit_unrecorded(y, yhat, proxy_probabilities={"Female": chance}))
    out["answers"]["one guess alone"] = said(audit_unrecorded(y, yhat, proxies={"marital": guesses["marital"]}))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path(os.environ.get("LEVELHEAD_DATA") or "data"))
    parser.add_argument("--repeats", type=int, default=200)
    destinations(parser, json=ROOT / "results/missing_attributes.json")
    options = parser.parse_args()
    start = time.perf_counter()
    result = {
        "command": f"python benchmarks/missing_attributes.py --repeats {options.repeats}",
        "labelled_rows": LABELLED,
        "adult": audit_adult(options.data_root, options.repeats),
        "seconds": round(time.perf_counter() - start),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    own = result["adult"]
    print(f"{own['rows']:,} rows, truth {own['truth']}")
    for method, answer in own["answers"].items():
        print(f"- {method}: {answer['headline']}")
    for method, figures in own["repeated"].items():
        print(f"- {method}, {options.repeats} draws: {figures}")


if __name__ == "__main__":
    main()
