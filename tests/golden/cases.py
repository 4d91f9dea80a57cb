"""What the golden files are made of: small audits of every kind, on rows that are drawn from seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import levelhead as lh
from levelhead.auditing.postprocess_audit import postprocess
from levelhead.auditing.unknown.privacy import Response
from levelhead.bench.page import Comparisons
from levelhead.bench.tables import collect
from levelhead.cli.report import page_of
from levelhead.storage import write_json

FEW = {"replicates": 200}


def rows(count: int = 300, seed: int = 0) -> pd.DataFrame:
    """Return predictions of two models for ``count`` made-up people, with columns of each kind that an audit reads."""
    chance = np.random.default_rng(seed)
    sex, race = chance.choice(["f", "m"], count), chance.choice(["ann", "ben", "cy"], count, p=[0.5, 0.3, 0.2])
    age = chance.integers(18, 80, count)
    merit = chance.normal(0.4 * (sex == "m") - 0.3 * (race == "cy"), 1, count)
    logit = 1.4 * merit + 0.5 * (sex == "m") + 0.01 * (age - 50) + chance.normal(0, 0.7, count)
    label = chance.random(count) < 1 / (1 + np.exp(-1.5 * merit))
    other = 1.2 * merit + chance.normal(0, 1, count)
    near = chance.random((3, count)) < [[0.85], [0.8], [0.75]]
    women, swapped = (sex == "f").astype(int), np.where(sex == "f", "m", "f")
    return pd.DataFrame(
        {
            "y": label.astype(int),
            "answer": (logit > 0).astype(int),
            "other": (other > 0).astype(int),
            "score": np.round(1 / (1 + np.exp(-logit)), 1),
            "fine": np.round(1 / (1 + np.exp(-logit)), 4),
            "logit": np.round(2 * logit) / 2,
            "sex": sex,
            "race": race,
            "age": age,
            "weight": np.round(chance.uniform(0.5, 3, count), 2),
            "person": [f"p{one}" for one in np.sort(chance.integers(0, count // 3, count))],
            "site": np.where(chance.random(count) < 0.3 + 0.4 * (sex == "m"), "north", "south"),
            "group": np.where(chance.random(count) < 0.5, sex, None),
            "known": np.where(chance.random(count) < 0.8, sex, None),
            "proxy": np.round(np.clip(0.2 + 0.6 * women + chance.normal(0, 0.1, count), 0, 1), 3),
            **{f"guess{at}": np.where(near[at], sex, swapped) for at in range(3)},
            "reported": np.where(chance.random(count) < 0.2, chance.choice(["f", "m"], count), sex),
            "price": np.round(50 + 12 * merit + chance.normal(0, 6, count), 1),
            "estimate": np.round(50 + 10 * merit + 3 * (sex == "m") + chance.normal(0, 5, count), 1),
            "id": np.arange(count),
        }
    )


ROWS = rows()
ONE_A_ROW = ROWS.drop(columns="person")
"""Without the column that a warning would name, since its values repeat."""


def file(name: str = "rows.csv", data: pd.DataFrame = ONE_A_ROW) -> Path:
    """Write rows as csv into the current folder, and return the path as a user types it."""
    data.to_csv(name, index=False)
    return Path(name)


def audit(*, groups: str | list[str] = "sex", data: pd.DataFrame = ROWS, **options: Any) -> lh.AuditResult:
    names = [groups] if isinstance(groups, str) else groups
    predicted = options.pop("y_pred", data["answer"])
    return lh.audit(data["y"], predicted, sensitive_features=data[names], **FEW, **options)


def audit_file(groups: str | list[str] = "sex", prediction: str | None = "answer", **options: Any) -> lh.AuditResult:
    names = [groups] if isinstance(groups, str) else groups
    data = ROWS if "cluster" in options else ONE_A_ROW
    return lh.audit_table(file(data=data), label="y", prediction=prediction, groups=names, **FEW, **options)


def of_table(data: Any = ROWS, **options: Any) -> Any:
    return lh.audit_table(data, label="y", prediction="answer", **FEW, **options)


def three() -> pd.DataFrame:
    chance = np.random.default_rng(5)
    label = chance.choice(["cat", "dog", "owl"], len(ROWS))
    wrong = chance.random(len(ROWS)) < np.where(ROWS["sex"] == "f", 0.4, 0.2)
    return ROWS.assign(y=label, answer=np.where(wrong, chance.choice(["cat", "dog", "owl"], len(ROWS)), label))


def against_another_file() -> Any:
    other = file("other.csv", ROWS[::-1].assign(answer=ROWS["other"]))
    return audit_file(against=other, on="id")


def own_metrics() -> Any:
    def precision(label: np.ndarray, predicted: np.ndarray) -> float:
        return float(label[predicted == 1].mean())

    return audit(metrics={"precision": precision})


def periods() -> Any:
    month = [f"2024-{at:02}" for at in np.arange(len(ONE_A_ROW)) * 6 // len(ONE_A_ROW) + 1]
    return audit(time=month)


def numbers_crossed_and_cut() -> Any:
    groups = ROWS[["known", "age"]]
    options: dict[str, Any] = {"intersect": True, "bins": {"age": [45]}, "min_count": 40, "level": 0.9}
    return lh.audit(ROWS["price"], ROWS["estimate"], sensitive_features=groups, numbers=True, **options)


def shares_by_stratum() -> Any:
    Path("shares.csv").write_text("site,f,m\nnorth,0.4,0.6\nsouth,0.7,0.3\n")
    return of_table(file(), join="shares.csv", on="site", proxy_probabilities=["women=f", "men=m"])


def nothing_to_say() -> Any:
    few = ROWS.assign(group=ROWS["group"].where(ROWS["id"] < 60))
    return of_table(few, labelled_group="group", proxy=["proxy"])


def matched_pairs() -> Any:
    warmer = ROWS.assign(
        sex="m", answer=np.where(ROWS["price"] > 54, 1, ROWS["answer"]), fine=ROWS["other"] / 50 + ROWS["fine"]
    )
    return of_table(pd.concat([ROWS.assign(sex="f"), warmer]), groups=["sex"], pairs="id", score="fine")


def one_run(folder: Path, method: str, seed: int, wrong: float) -> None:
    chance = np.random.default_rng([seed, len(method)])
    label = ROWS["y"].to_numpy() == 1
    yes = label ^ (chance.random(len(label)) < wrong + 0.1 * (ROWS["sex"] == "f").to_numpy())
    sure = np.where(yes, 0.9, 0.1)
    frame = pd.DataFrame({"label": np.where(label, "yes", "no"), "prediction": np.where(yes, "yes", "no")})
    frame = frame.assign(probability_no=1 - sure, probability_yes=sure, group=ROWS["sex"])
    folder.mkdir(parents=True)
    data = {"name": "text-csv", "folder": "texts", "file": "rows.csv", "sensitive": "group"}
    plan = {"data": data, "method": {"name": method}, "seed": seed, "model": {}, "train": {}}
    (folder / "config.yaml").write_text(yaml.safe_dump(plan))
    frame.to_parquet(folder / "predictions-test.parquet", index=False)
    result = lh.audit(frame["label"], frame["prediction"], sensitive_features=frame[["group"]], **FEW)
    write_json(folder / "evaluation-test.json", {**result.to_dict(), "run": {"attribute": "group", "split": "test"}})
    history = [{"stage": 0, "epoch": epoch, "val_loss": loss} for epoch, loss in enumerate([0.7, 0.5, 0.6])]
    metrics = {"selected_by": "val_loss", "oracle": None, "validation": {}, "history": history}
    write_json(folder / "metrics.json", metrics)
    write_json(folder / "environment.json", {"device": "cpu", "cpu": "a processor", "threads": 1, "packages": {}})
    write_json(folder / "cost.json", {"seconds": 1.0 + seed, "parts": 1})


def comparison() -> Comparisons:
    for method, wrong in (("erm", 0.15), ("dam", 0.1)):
        for seed in (0, 1):
            one_run(Path("runs", f"{method}-{seed}"), method, seed, wrong)
    (found,) = collect([Path("runs")], "test")
    return Comparisons.of(found.compare("erm"))


def run() -> Any:
    one_run(Path("run"), "erm", 0, 0.15)
    return page_of(Path("run"))


def language_model() -> Any:
    def own(value: float, half: float = 0.1) -> dict[str, Any]:
        return {"value": value, "low": value - half, "high": value + half, "n": 9}

    scores = {"accuracy_ambiguous": own(0.7), "bias_ambiguous": own(0.05), "bias_disambiguated": own(-0.02, 0.01)}
    record = {
        "benchmark": "bbq",
        "model": "tiny",
        "overall": scores,
        "parts": {"Age": scores},
        "limit": None,
        "items": 9,
    }
    record |= {"units": {"bias_ambiguous": "a fraction"}, "notes": ["a note"]}
    Path("scores").mkdir()
    write_json(Path("scores", "scores-bbq.json"), record)
    return page_of(Path("scores"))


CASES: dict[str, Callable[[], Any]] = {
    **{
        one.__name__: one
        for one in (
            against_another_file,
            own_metrics,
            periods,
            numbers_crossed_and_cut,
            shares_by_stratum,
            matched_pairs,
            nothing_to_say,
            comparison,
            run,
            language_model,
        )
    },
    "classes": audit,
    "words": lambda: audit(groups="race", level=0.9, reference="ann", favourable=1),
    "three_classes": lambda: audit(data=three()),
    "scores": lambda: audit(y_pred=None, scores=ROWS["score"], threshold=[0.5, 0.7]),
    "log_odds_beside_predictions": lambda: audit(scores=ROWS["logit"], reference="m"),
    "against": lambda: audit(groups="race", against=ROWS["other"]),
    "along_a_number": lambda: audit(along=ROWS[["age"]]),
    "weights": lambda: audit(sample_weight=ROWS["weight"]),
    "control": lambda: audit(control_features=ROWS[["site"]]),
    "decisions": lambda: lh.audit(
        None, ROWS["answer"], sensitive_features=ROWS[["sex", "known"]], favourable=1, reference="sex=f"
    ),
    "ranking": lambda: lh.audit(
        None, scores=ROWS["score"], sensitive_features=ROWS[["sex", "known"]], top="20%", reference="sex=f"
    ),
    "three_proxies": lambda: of_table(rows(400, seed=1), proxy=["guess0", "guess1", "guess2"]),
    "labelled_rows": lambda: of_table(labelled_group="group", proxy=["proxy"]),
    "randomised_answers": lambda: of_table(groups=["reported"], randomized_response=Response(flip=0.1)),
    "shares": lambda: of_table(shares={"f": 0.5, "m": 0.5}),
    "explanation": lambda: lh.explain(ROWS, label="y", score="score", groups=["race"], **FEW),
    "plan_of_rows": lambda: lh.plan_audit(gap=0.05, rate=0.3, shares={"women": 0.3, "men": 0.7}),
    "plan_of_a_gap": lambda: lh.plan_audit(rows=2000, rate=0.1, shares=[0.5, 0.3, 0.2], level=0.9),
    "one_threshold": lambda: postprocess(
        file(), score="fine", groups=["sex"], label="y", delta=0.05, one_threshold=True
    ),
    "rule": lambda: postprocess(file(), score="fine", groups=["sex"], label="y", delta=0.05),
    "rule_without_labels": lambda: postprocess(file(), score="fine", groups=["sex"], metric="demographic_parity"),
    "crossed": lambda: audit(groups=["sex", "site"], intersect=True),
    "one_of_three_classes": lambda: audit(data=three(), positive="owl", favourable="owl"),
    "few_rows": lambda: audit(groups="race", data=rows(24, seed=3)),
    "missing_as_a_group": lambda: audit(groups="known", missing="group"),
    "one_answer": lambda: audit(y_pred=np.ones(len(ROWS), int)),
    "clusters_of_scores": lambda: audit(y_pred=None, scores=ROWS["score"], cluster=ROWS["person"]),
    "numbers": lambda: lh.audit(
        ROWS["price"], ROWS["estimate"], sensitive_features=ROWS[["sex"]], along=ROWS[["age"]], numbers=True
    ),
}
"""By name, what makes the result, or the page, of a case; it runs in an empty folder of its own."""
OF_FILES: dict[str, tuple[str, Callable[[], Any]]] = {
    "classes_of_a_file": ("classes", audit_file),
    "scores_of_a_file": ("scores", lambda: audit_file(prediction=None, score="score", threshold=[0.5, 0.7])),
    "control_of_a_file": ("control", lambda: audit_file(control=["site"])),
    "numbers_of_a_file": (
        "numbers",
        lambda: lh.audit_table(
            file(), label="price", prediction="estimate", groups=["sex"], along=["age"], numbers=True
        ),
    ),
    "labelled_rows_of_a_file": ("labelled_rows", lambda: of_table(file(), labelled_group="group", proxy=["proxy"])),
}
"""Cases of files, with the case of arrays whose figures are theirs."""
