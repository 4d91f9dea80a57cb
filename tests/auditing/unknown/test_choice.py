"""Audits without the attribute as a user makes them: the choice, the sentences, the refusals, and nobody's group."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from as_tables import audit_unrecorded
from command_line import written
from levelhead.auditing.unknown import privacy
from levelhead.auditing.unknown.answer import PERSONS, IndirectAudit
from levelhead.auditing.unknown.known import NOTHING_KNOWN
from levelhead.auditing.unknown.privacy import Response


def people(rows: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Rows with a true gap in selection rates of 27.5 points, three proxies and a probability."""
    rng = np.random.default_rng(seed)
    a = rng.random(rows) < 0.4
    y = rng.random(rows) < np.where(a, 0.5, 0.3)
    hit = rng.random(rows) < np.where(a, np.where(y, 0.9, 0.35), np.where(y, 0.7, 0.2))
    table = pd.DataFrame({"y": y.astype(int), "yhat": hit.astype(int), "sex": np.where(a, "women", "men")})
    for name, (low, high) in {"p1": (0.2, 0.7), "p2": (0.25, 0.9), "p3": (0.35, 0.6)}.items():
        table[name] = np.where(rng.random(rows) < np.where(a, high, low), "women", "men")
    table["p_female"] = np.clip(np.where(a, 0.7, 0.3) + rng.normal(0, 0.15, rows), 0, 1).round(3)
    table["known"] = np.where(rng.random(rows) < 0.03, table["sex"], None)
    table["zip"] = rng.choice(["north", "south"], rows)
    return table


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return people()


def audit(table: pd.DataFrame, **given: Any) -> IndirectAudit:
    return audit_unrecorded(table["y"], table["yhat"], **given)


def part_of(result: IndirectAudit) -> Any:
    return next(iter(result.parts.values()))


def width(one: Any) -> float:
    return float(one.high - one.low)


def test_labelled_rows_and_a_proxy(table: pd.DataFrame) -> None:
    part, other = (
        part_of(audit(table, labelled=table["known"], proxies={"p_female": p}))
        for p in (table["p_female"], 1 - table["p_female"])  # a proxy of the other group says the same
    )
    gap = part.gaps[0]
    assert part.method == "labelled subset"
    assert gap.estimate.low < 0.275 < gap.estimate.high
    assert width(gap.estimate) < 0.8 * width(gap.alone)
    assert gap.estimate.assumes == "the labelled rows are a random sample of all rows"
    assert part.headline.startswith("The selection rate of women is ")
    assert part.headline.endswith("it holds if the labelled rows are a random sample.")
    assert set(gap.naive) == {"p_female"}
    assert part.rests_on[-1] == PERSONS
    assert other.gaps[0].estimate.value == pytest.approx(gap.estimate.value, abs=1e-9)


def test_several_proxies_are_cross_fitted_and_none_makes_nothing_narrower(table: pd.DataFrame) -> None:
    part = part_of(audit(table, labelled=table["known"], proxies=table[["p1", "p2", "zip"]]))
    assert part.gaps[0].estimate.low < 0.275 < part.gaps[0].estimate.high
    assert any("cross-fitting in 5 parts of the labelled rows" in line for line in part.rests_on)
    assert set(part.gaps[0].naive) == {"p1", "p2"}  # "zip" speaks of no group
    alone = part_of(audit(table, labelled=table["known"])).gaps[0]
    assert width(alone.estimate) == pytest.approx(width(alone.alone), rel=1e-3)


def test_the_order_of_the_rows_changes_no_cross_fitted_figure(table: pd.DataFrame) -> None:
    def figures(rows: pd.DataFrame, **more: Any) -> list[float]:
        found = audit(rows, labelled=rows["known"], proxies=rows[["p1", "p2"]], **more)
        return [number for one in found.gaps.values() for number in (one.value, one.low, one.high)]

    first = figures(table)
    for seed in range(2):
        assert figures(table.sample(frac=1, random_state=seed)) == pytest.approx(first, abs=1e-9)
    assert figures(table.sort_values("known")) == pytest.approx(first, abs=1e-9)
    assert figures(table, seed=1) != pytest.approx(first, abs=1e-9)


def test_labels_that_are_missing_not_at_random_are_refused(table: pd.DataFrame) -> None:
    rng = np.random.default_rng(5)
    chance = np.where(table["yhat"] == 1, 0.08, 0.02)
    known = np.where(rng.random(len(table)) < chance, table["sex"], None)
    part = part_of(audit(table, labelled=known, proxies={"p": table["p_female"]}))
    assert "so the labelled rows are no random sample" in part.refused
    # No gate can pass on the labelled rows alone, and no sentence speaks of the interval that is not given.
    assert all(one.estimate.refused and one.alone is not None and one.alone.refused for one in part.gaps)


def three_groups(rows: int = 20_000) -> pd.DataFrame:
    """Selection rates of 30%, 50% and 60% in groups a, b and c, with proxies of them."""
    rng, names = np.random.default_rng(4), np.array(["a", "b", "c"])
    place = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame({"sex": names[place], "y": rng.integers(0, 2, rows)})
    table["yhat"] = (rng.random(rows) < np.array([0.3, 0.5, 0.6])[place]).astype(int)
    for name in ("p1", "p2", "p3"):
        table[name] = names[np.where(rng.random(rows) < 0.8, place, rng.integers(0, 3, rows))]
    table["p_c"] = np.clip(np.where(place == 2, 0.7, 0.3) + rng.normal(0, 0.15, rows), 0, 1)
    return table.assign(known=np.where(rng.random(rows) < 0.06, table["sex"], None))


THREE = {("b", "a"): 0.2, ("c", "a"): 0.3, ("c", "b"): 0.1}


@pytest.mark.parametrize("proxies", [[], ["p_c"], ["p1", "p2"]])
def test_three_groups_with_labelled_rows_are_compared_in_pairs(proxies: list[str]) -> None:
    table = three_groups()
    part = part_of(audit(table, labelled=table["known"], **({"proxies": table[proxies]} if proxies else {})))
    found = {one.groups: one for one in part.gaps if one.gap == "demographic_parity"}
    assert set(found) == set(THREE)
    for pair, true in THREE.items():
        assert found[pair].estimate.low < true < found[pair].estimate.high
        assert width(found[pair].estimate) < 1.05 * width(found[pair].alone)
    assert any("There are 3 pairs of groups: their intervals hold together" in line for line in part.rests_on)
    assert "; the largest of 3 differences, adjusted for all; " in part.headline
    if len(proxies) == 2:
        assert width(found["c", "a"].estimate) < 0.9 * width(found["c", "a"].alone)
        assert set(found["c", "a"].naive) == {"p1", "p2"}


def test_three_groups_by_answers_and_shares() -> None:
    table = three_groups(60_000)
    reports = privacy.randomize(table["sex"].to_numpy(), 2.5, seed=1)
    answers = [
        audit(table, responses=reports, response=Response(epsilon=2.5)),
        audit(table, shares={"a": 0.5, "b": 0.3, "c": 0.2}),
    ]
    for result in answers:
        part = part_of(result)
        found = {one.groups: one for one in part.gaps if one.gap == "demographic_parity"}
        assert set(found) == set(THREE)
        assert sum(line.startswith("There are 3 pairs of groups: ") for line in part.rests_on) == 1
        for pair, true in THREE.items():
            one = found[pair].bounds if part.method == "bounds" else found[pair].estimate
            assert one.low < true < one.high


def test_three_proxies(table: pd.DataFrame) -> None:
    part = part_of(audit(table, proxies=table[["p1", "p2", "p3"]], replicates=300))
    assert part.method == "three proxies"
    assert part.gaps[0].estimate.low < 0.275 < part.gaps[0].estimate.high
    assert any(line.startswith("Errors that the proxies share, given the group, cannot") for line in part.rests_on)
    assert part.gaps[0].bounds is not None
    assert "it holds if within each group, proxy errors are independent of each other, of the label" in part.headline


def test_noise_that_contradicts_the_answers_is_named(table: pd.DataFrame) -> None:
    rng = np.random.default_rng(3)
    answers = np.where(rng.random(len(table)) < 0.1, "f", "m")  # of flip=0.3, no fewer than 30% could say f
    part = part_of(audit(table, responses=answers, response=Response(flip=0.3)))
    assert part.refused.startswith("the declared noise is impossible for these answers")
    assert "the flip or epsilon with which" in part.help
    assert any("With flip=0.3, these answers imply shares of −" in line for line in part.rests_on)
    assert part.shares == {}
    rare = privacy.randomize(np.where(rng.random(len(table)) < 0.001, "f", "m"), 0.85, seed=1)
    part = part_of(audit(table, responses=rare, response=Response(epsilon=0.85)))
    assert "less than four standard errors above 0" in part.refused
    assert part.shares == {}


def test_a_probability_alone_and_too_few_labelled_rows_say_what_would_help(table: pd.DataFrame) -> None:
    known = table["known"].where(np.arange(len(table)) < 2000)
    part = part_of(audit(table, proxies=table[["p_female"]], labelled=known))
    assert part.refused.startswith("only ")
    assert part.rests_on[0].startswith("Only ")
    assert "name them with --proxy-probabilities GROUP=p_female" in part.rests_on[1]
    given = audit(table, proxy_probabilities={"women": table["p_female"]})
    assert "minus that of" in part_of(given).headline
    sure = audit(
        table.assign(yhat=(table["p_female"] > 0.5).astype(int)),
        proxy_probabilities={"women": np.where(table["p_female"] > 0.5, 0.98, 0.02)},
    )
    assert "points, higher in any case: " in part_of(sure).headline


def test_a_gap_without_rows_is_refused_and_the_others_are_not(table: pd.DataFrame) -> None:
    proxies = table[["p1", "p2", "p3"]]
    part = part_of(audit_unrecorded(np.ones(len(table), int), table["yhat"], proxies=proxies, replicates=100))
    found = {one.gap: one.estimate for one in part.gaps}
    assert found["demographic_parity"].low < 0.275 < found["demographic_parity"].high
    assert found["false_positive_rate"].reason == "too few rows have this label"


def test_a_constant_model_and_a_constant_proxy_are_named(table: pd.DataFrame) -> None:
    result = audit(table.assign(yhat=0), proxies=table[["p1", "p2", "p3"]], replicates=100)
    assert any("Every prediction is '0': every gap among these rows is 0" in one for one in result.warnings)
    for same in (0.5, "somebody"):
        part = part_of(audit(table, labelled=table["known"], proxies={"p": np.full(len(table), same)}))
        assert any("The proxy p is constant" in line for line in part.rests_on)


@pytest.mark.parametrize("kind", [object, int, float, str, bool])
def test_one_guess_is_refused_in_words_and_coded_0_and_1(table: pd.DataFrame, kind: type) -> None:
    guess = (table["p1"] == "women").astype(int)
    part = part_of(audit(table, proxies={"p1": table["p1"] if kind is object else guess.astype(kind)}))
    assert part.refused.startswith("1 proxy without labelled rows cannot tell a gap")
    assert part.headline.startswith("No answer: 1 proxy without labelled rows")
    assert NOTHING_KNOWN in part.rests_on
    assert all(math.isnan(one.estimate.value) and one.bounds is None for one in part.gaps)
    coded = any("If p1 holds probabilities of a group" in line for line in part.rests_on)
    assert coded == (kind not in (object, bool))


def test_probabilities_that_are_nearly_all_0_or_1_are_answered(table: pd.DataFrame) -> None:
    guess = (table["p1"] == "women").astype(float)
    part = part_of(audit(table, proxy_probabilities={"f": guess.where(np.arange(len(table)) > 5, 0.5)}))
    assert part.gaps[0].weighted is not None


def test_shares_by_stratum_are_joined_as_probabilities(table: pd.DataFrame) -> None:
    shares = pd.DataFrame({"zip": ["north", "south"], "men": [0.61, 0.58], "women": [0.39, 0.42]})
    given = {"join": shares, "on": "zip", "proxy_probabilities": ["men=men", "women=women"]}
    part = part_of(lh.audit_table(table, label="y", prediction="yhat", **given))
    assert part.gaps[0].groups == ("women", "men")
    assert part.gaps[0].bounds.low < 0.275 < part.gaps[0].bounds.high


def test_no_row_and_no_few_people_are_in_what_is_written(table: pd.DataFrame) -> None:
    small = np.where(np.arange(len(table)) < 7, "rare", np.where(table["known"].notna(), "common", None))
    result = audit(table, labelled=small, proxies={"p": table["p_female"]})
    text = json.dumps(result.to_dict()) + result.text(all=True) + result.to_html()
    assert "fewer than 10" in text
    assert "'rare' 7" not in text

    def longest(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return max([len(inner), *map(longest, inner)]) if inner else 0

    assert longest(result.to_dict()) < 50  # no list has an entry a row


@pytest.mark.parametrize("name", ["people.parquet", "people.csv"])
def test_a_file_and_its_rows_say_the_same(tmp_path: Path, table: pd.DataFrame, name: str) -> None:
    written(table, tmp_path / name)
    given = {"labelled_group": "known", "proxy": ["p_female"]}
    file = lh.audit_table(tmp_path / name, label="y", prediction="yhat", **given)
    for gap, figure in audit(table, labelled=table["known"], proxies=table[["p_female"]]).gaps.items():
        own = file.gaps[gap]
        assert (own.value, own.high) == pytest.approx((figure.value, figure.high), abs=1e-9)
    assert file.gaps["demographic_parity"].low < 0.275 < file.gaps["demographic_parity"].high


def test_ids_of_many_digits_stay_apart_as_decimals_too(tmp_path: Path, table: pd.DataFrame) -> None:
    """Tracts and postcodes: a column with missing values elsewhere, or of pandas' float64, holds them as decimals."""
    tract = 25_017_352_100 + (table["sex"] == "women").to_numpy() + 2 * (table["p_female"] > 0.6).to_numpy()
    ids, decimals = (table.assign(tract=tract.astype(kind)) for kind in ("int64", "float64"))
    eighths = ids.assign(tract=tract / 8)
    for wanted, given in ((ids, decimals), (eighths.assign(tract=eighths["tract"].astype(str)), eighths)):
        first, second = (audit(one, labelled=one["known"], proxies={"tract": one["tract"]}) for one in (wanted, given))
        assert second.to_dict() == first.to_dict()
        assert second.gaps["demographic_parity"].high - second.gaps["demographic_parity"].low < 0.06
    for name, one in (("ids", ids), ("decimals", decimals)):
        one.to_parquet(tmp_path / f"{name}.parquet")
        found = lh.audit_table(
            tmp_path / f"{name}.parquet", label="y", prediction="yhat", labelled_group="known", proxy=["tract"]
        )
        assert found.gaps == audit(ids, labelled=ids["known"], proxies={"tract": ids["tract"]}).gaps
