"""Numbers that no training, plan or audit can mean end in one sentence, before any work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import levelhead as lh
from levelhead.auditing.unknown.privacy import Response
from levelhead.lm.klaad_training import KlaadTrain
from levelhead.pretraining.config import PretrainTrain
from levelhead.runs.recipe import build_experiment
from levelhead.training.config import TrainConfig
from levelhead.types import ConfigError, LevelheadError

EXTREMES = (0, -1, math.nan, math.inf, -math.inf, 1e-320, 1e-12, 1e308, 10**30)


@pytest.mark.parametrize("config", [TrainConfig, PretrainTrain, KlaadTrain])
def test_so_many_epochs_are_refused_with_what_they_cost(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"train\.epochs is 1000000000; it must be at most 100,000\. .* 31 years"):
        config(epochs=10**9)
    config(epochs=100_000)


@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, 1e-7, 0.0, -1.0, math.nan, math.inf])
def test_an_answer_that_says_nothing_of_the_group_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match=r"epsilon=.* at least 1e-06. Near 0 an answer carries no information"):
        Response(epsilon=epsilon)
    with pytest.raises(ConfigError, match="says no more about the group than chance"):
        Response(flip=0.5 - 1e-9).matrix(2)
    assert np.isfinite(np.linalg.inv(Response(epsilon=1e-6).matrix(1000))).all()


@pytest.mark.parametrize("name", ["gap", "rows", "rate", "power", "level", "groups"])
def test_a_plan_of_any_number_is_a_plan_or_a_sentence(name: str) -> None:
    for value in EXTREMES:
        options: dict[str, Any] = {"rate": 0.3, "gap": 0.05}
        if name == "rows":
            del options["gap"]
        options[name] = [value, 1 - value] if name == "groups" else value
        try:
            assert min(lh.plan_audit(**options).rows.values()) >= 1
        except LevelheadError:
            continue


@pytest.mark.parametrize("name", ["level", "min_count", "seed", "threshold"])
def test_an_audit_of_any_number_is_an_audit_or_a_sentence(name: str) -> None:
    labels, groups = [0, 1] * 20, ["a", "b", "b", "a"] * 10
    for value in EXTREMES:
        options: dict[str, Any] = {name: value}
        if name == "threshold":
            options = {"scores": [0.1, 0.9] * 20, name: value}
        else:
            options["y_pred"] = [1, 1, 0, 0] * 10
        try:
            lh.audit(labels, sensitive_features=groups, **options)
        except LevelheadError:
            continue


@pytest.mark.parametrize(
    "setting", ["method.identification_epochs", "train.epochs", "train.threads", "data.train_size", "seed"]
)
def test_a_recipe_of_any_number_is_a_recipe_or_a_sentence(setting: str) -> None:
    section, _, option = setting.partition(".")
    for value in EXTREMES:
        recipe: dict[str, Any] = {"data": {"name": "portraits"}, "method": {"name": "jtt"}}
        if option:
            recipe.setdefault(section, {})[option] = value
        else:
            recipe[section] = value
        try:
            build_experiment(recipe)
        except LevelheadError:
            continue
